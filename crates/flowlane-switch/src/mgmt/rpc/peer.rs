//! The process at the other end of a connection, as the system says.

use std::io;
use std::os::unix::net::UnixStream;

/// The process and the user that connected, or listened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// 0 where the system does not say.
    pub(super) process: i32,
    pub(super) user: u32,
}

impl Peer {
    /// Calls the system itself: `rustix` takes the process for a number that is not 0, which it is for a client of another PID
    /// namespace.
    #[cfg(target_os = "linux")]
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let into = (&raw mut credentials).cast();
        // SAFETY: the descriptor is open while `stream` is borrowed; the system writes at most `len` bytes into `credentials`, whose
        // fields are integers.
        match unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, into, &raw mut len) } {
            0 => Ok(Self { process: credentials.pid, user: credentials.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Other systems have the mode of the socket alone.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_: &UnixStream) -> io::Result<Self> {
        Ok(Self { process: 0, user: crate::port::runtime_folder::user() })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer.process, std::process::id() as i32);
        assert_eq!(peer.user, crate::port::runtime_folder::user());
    }
}
