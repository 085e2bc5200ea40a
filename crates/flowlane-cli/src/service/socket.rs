//! The socket of the service manager: a path, or a name of the abstract namespace (unix(7)).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A manager that takes nothing for this time misses a message: the switch must not wait for it.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The socket.
pub(super) struct NotifySocket {
    socket: UnixDatagram,
    /// Looked up at each message: the manager may be started again.
    address: SocketAddr,
}

impl NotifySocket {
    /// Reads an address of `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// An address of another kind, or the system gives no socket.
    pub(super) fn of(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            [b'@', name @ ..] => abstract_address(name)?,
            _ => {
                let message =
                    "a path or @NAME is expected; there is no service manager that could be notified";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { socket, address })
    }

    /// Sends a message: lines `NAME=VALUE`.
    pub(super) fn send(&self, text: &str) -> io::Result<()> {
        self.socket.send_to_addr(text.as_bytes(), &self.address).map(drop)
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn names_of_the_abstract_namespace_are_reached() {
        let name = format!("flowlane-notify-{}", std::process::id());
        let address = abstract_address(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        NotifySocket::of(OsStr::new(&format!("@{name}"))).unwrap().send("READY=1").unwrap();
        let mut bytes = [0; 16];
        let len = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"READY=1");
    }

    #[test]
    fn other_addresses_are_refused() {
        for name in ["vsock:2:1234", "relative/path", "/"] {
            let socket = NotifySocket::of(OsStr::new(name));
            assert!(socket.is_err() || socket.is_ok_and(|socket| socket.send("READY=1").is_err()), "{name}");
        }
        let refused = NotifySocket::of(OsStr::new("vsock:2:1234")).err().unwrap();
        assert!(refused.to_string().contains("@NAME"), "{refused}");
    }
}
