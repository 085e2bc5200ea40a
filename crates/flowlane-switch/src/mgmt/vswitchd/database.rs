//! Connections to the servers of a database, one at a time.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{DaemonError, PROBE_AFTER, WAIT};
use crate::mgmt::openflow::{Address, Credentials, Reader, Side, Socket, Stream, TlsFiles, Writer};

/// Pauses between two attempts to connect to all servers.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

/// The servers, of which the next is tried where one is lost.
pub(super) struct Servers {
    addresses: Vec<Address>,
    files: Option<TlsFiles>,
    credentials: Option<Arc<Credentials>>,
    next: usize,
    /// Attempts since a server was there.
    failed: usize,
    pause: Duration,
    /// The last session was synchronised.
    was_there: bool,
    /// The last problem of each, which is said once.
    problems: Vec<String>,
}

impl Servers {
    /// # Errors
    /// No addresses, one that is listened at, or one with TLS without its files.
    pub(super) fn new(addresses: Vec<Address>, files: Option<TlsFiles>) -> Result<Self, DaemonError> {
        if addresses.is_empty() {
            return Err(DaemonError::NoDatabase);
        }
        if let Some(passive) = addresses.iter().find(|address| !address.is_connected_to()) {
            return Err(DaemonError::Database(passive.clone()));
        }
        if let Some(secured) = addresses.iter().find(|address| address.has_tls() && files.is_none()) {
            return Err(DaemonError::NoTls(secured.clone()));
        }
        let problems = vec![String::new(); addresses.len()];
        Ok(Self {
            addresses,
            files,
            credentials: None,
            next: 0,
            failed: 0,
            pause: PAUSES[0],
            was_there: false,
            problems,
        })
    }

    /// Connects to the server whose turn it is. `ends`: the daemon ends.
    pub(super) fn connect(&mut self, ends: &AtomicBool) -> io::Result<Connection> {
        let stream = match &self.addresses[self.next] {
            Address::ConnectUnix(path) => Stream::plain(Socket::Unix(UnixStream::connect(path)?)),
            Address::ConnectTcp(to) => Stream::plain(connect_tcp(to)?),
            Address::ConnectSsl(to) => {
                let (to, side) = (*to, Side::Client(to.ip()));
                let credentials = self.credentials()?;
                Stream::with_tls(connect_tcp(&to)?, credentials, side)
            }
            other => return Err(io::Error::other(format!("{other} cannot be connected to"))),
        };
        let (reader, writer) = stream.open(Instant::now() + PROBE_AFTER, ends)?;
        reader.set_timeout(WAIT)?;
        Ok(Connection { reader, writer })
    }

    /// The files of TLS may come after the daemon.
    fn credentials(&mut self) -> io::Result<Arc<Credentials>> {
        if let Some(credentials) = &self.credentials {
            return Ok(credentials.clone());
        }
        let files = self.files.as_ref().ok_or_else(|| io::Error::other("there are no files of TLS"))?;
        let credentials = Credentials::read(files).map_err(io::Error::other)?;
        self.credentials = Some(credentials.clone());
        Ok(credentials)
    }

    /// Notes that the server is there.
    pub(super) fn succeeded(&mut self) {
        (self.failed, self.pause, self.was_there) = (0, PAUSES[0], true);
    }

    /// Notes why a connection has ended, and goes on to the next server. Returns the text, unless it was said before, and how long to
    /// wait: after each has been tried once.
    pub(super) fn lost(&mut self, error: &dyn std::fmt::Display) -> (Option<String>, Duration) {
        let text = format!("{}: {error}", self.addresses[self.next]);
        let is_new = self.problems[self.next] != text;
        self.problems[self.next].clone_from(&text);
        self.next = (self.next + 1) % self.addresses.len();
        self.failed += 1;
        let is_round = self.failed.is_multiple_of(self.addresses.len());
        // One that ends sessions as soon as they are synchronised is not asked without end.
        let least = if std::mem::take(&mut self.was_there) { PAUSES[0] } else { Duration::ZERO };
        let pause = if is_round { self.pause } else { least };
        if is_round {
            self.pause = (2 * pause).min(PAUSES[1]);
        }
        (is_new.then_some(text), pause)
    }
}

fn connect_tcp(to: &SocketAddr) -> io::Result<Socket> {
    TcpStream::connect_timeout(to, PROBE_AFTER).map(Socket::Tcp)
}

/// A connection to a server.
pub(super) struct Connection {
    reader: Reader,
    writer: Writer,
}

impl Connection {
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Receives bytes for some time; none where none have come.
    pub(super) fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        match self.reader.read(buffer) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has closed the connection")),
            Ok(len) => Ok(&buffer[..len]),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(&[])
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(texts: &[&str]) -> Result<Servers, DaemonError> {
        let addresses = texts.iter().map(|text| Address::of_database(text).unwrap()).collect();
        Servers::new(addresses, None)
    }

    #[test]
    fn addresses_that_no_client_connects_to_are_refused() {
        assert!(matches!(servers(&[]), Err(DaemonError::NoDatabase)));
        assert!(matches!(servers(&["unix:/a", "ptcp:"]), Err(DaemonError::Database(_))));
        assert!(matches!(servers(&["ssl:127.0.0.1"]), Err(DaemonError::NoTls(_))));
    }

    #[test]
    fn each_server_is_tried_before_a_pause_which_doubles_up_to_eight_seconds() {
        let mut servers = servers(&["unix:/a", "unix:/b"]).unwrap();
        let pauses: Vec<u128> = (0..12).map(|_| servers.lost(&"gone").1.as_millis()).collect();
        assert_eq!(pauses, [0, 500, 0, 1000, 0, 2000, 0, 4000, 0, 8000, 0, 8000]);
        servers.succeeded();
        // After a session, there is always one.
        let pauses: Vec<u128> = (0..4).map(|_| servers.lost(&"gone").1.as_millis()).collect();
        assert_eq!(pauses, [500, 500, 0, 1000]);
    }

    #[test]
    fn a_problem_that_lasts_is_said_once_for_each_server() {
        let mut servers = servers(&["unix:/a", "unix:/b"]).unwrap();
        let said: Vec<_> = ["x", "x", "x", "x", "y"].iter().map(|error| servers.lost(error).0).collect();
        assert_eq!(
            said,
            [
                Some("unix:/a: x".to_owned()),
                Some("unix:/b: x".to_owned()),
                None,
                None,
                Some("unix:/a: y".to_owned())
            ]
        );
    }
}
