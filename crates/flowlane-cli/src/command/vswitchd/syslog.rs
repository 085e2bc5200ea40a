//! The system's log, at its socket (RFC 3164, as the C library writes it).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use flowlane_switch::mgmt::vswitchd::LogLevel;

/// The socket of the system's log.
const SOCKET: &str = "/dev/log";
/// The name of the program in its lines, by which filters know Open vSwitch's daemon.
pub(super) const PROGRAM: &str = "ovs-vswitchd";
/// The part of the system that messages are of: daemons.
const FACILITY: u8 = 3;

/// The system's log.
pub(super) struct Syslog {
    /// None: messages are not written.
    path: Option<PathBuf>,
    /// Connected when the first message is written, and again where that server has ended.
    socket: Mutex<Option<UnixDatagram>>,
}

impl Syslog {
    /// The system's log where a method of Open vSwitch finds it: `libc`, `unix:PATH` or `null`.
    ///
    /// # Errors
    /// Another method.
    pub(super) fn of_method(method: &str) -> Result<Self, String> {
        let path = match (method, method.strip_prefix("unix:")) {
            ("" | "libc", _) => Some(SOCKET.into()),
            ("null", _) => None,
            (_, Some(path)) => Some(path.into()),
            _ => {
                return Err(format!(
                    "OVS_SYSLOG_METHOD={method} is not supported; there are libc, null and unix:PATH"
                ));
            }
        };
        Ok(Self { path, socket: Mutex::default() })
    }

    /// Writes a line. It is lost where nothing reads the log, or it is full: the daemon must not wait for it.
    pub(super) fn write(&self, level: LogLevel, text: &str) {
        let severity = match level {
            LogLevel::Off => return,
            LogLevel::Emergency => 1,
            LogLevel::Error => 3,
            LogLevel::Warning => 4,
            LogLevel::Info => 6,
            LogLevel::Debug => 7,
        };
        let line = format!("<{}>{PROGRAM}[{}]: {text}", FACILITY << 3 | severity, std::process::id());
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..2 {
            if socket.is_none() {
                *socket = self.connect().ok();
            }
            match socket.as_ref().map(|socket| socket.send(line.as_bytes())) {
                Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => *socket = None,
                _ => return,
            }
        }
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        let path = self.path.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        Ok(socket)
    }
}
