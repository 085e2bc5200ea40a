//! The state of TLS of one connection, which encrypts and decrypts in memory.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// The side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The peer has connected to the switch.
    Server,
    /// The switch has connected to a peer at this address.
    Client(IpAddr),
}

/// A session whose handshake is still to come.
pub(crate) struct Handshake {
    pub(super) connection: Connection,
    /// The peer is not authenticated: its authority is to be learned.
    pub(super) is_bootstrap: bool,
}

/// A session, for a thread that encrypts and one that decrypts.
pub(crate) struct Session(Mutex<Connection>);

fn of_tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Handshake {
    /// The certificates that the peer has presented, its own first.
    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.connection.peer_certificates().unwrap_or_default()
    }

    /// Authenticates the peer.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` where the peer is refused; `TimedOut` after the deadline, and where the switch ends.
    pub(crate) fn handshake(
        &mut self,
        mut socket: impl Read + Write,
        deadline: Instant,
        ends: &AtomicBool,
    ) -> io::Result<()> {
        let Self { connection, .. } = self;
        loop {
            while connection.wants_write() {
                connection.write_tls(&mut socket)?;
            }
            if !connection.is_handshaking() {
                return Ok(());
            }
            if Instant::now() >= deadline || ends.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake takes too long"));
            }
            match connection.read_tls(&mut socket) {
                Ok(0) => {
                    let problem = "the peer closes the connection during the TLS handshake";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
                }
                Ok(_) => {
                    if let Err(error) = connection.process_new_packets() {
                        // The alert says why. The peer may have closed the connection.
                        while connection.wants_write() && connection.write_tls(&mut socket).is_ok() {}
                        return Err(of_tls(error));
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The session, after the handshake.
    pub(crate) fn share(self) -> Session {
        Session(Mutex::new(self.connection))
    }
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Encrypts bytes, and appends the records to `into`.
    pub(crate) fn encrypt(&self, bytes: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.lock();
        let mut rest = bytes;
        // The session bounds what it has encrypted and not given away.
        while !rest.is_empty() {
            let taken = connection.writer().write(rest)?;
            rest = &rest[taken..];
            if taken == 0 && !connection.wants_write() {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while connection.wants_write() {
                connection.write_tls(into)?;
            }
        }
        Ok(())
    }

    /// Decrypts received records, from the byte `used` on, until there are bytes for `into`. Returns their number, 0 at the end of
    /// the stream, or `WouldBlock` where all records are used.
    pub(crate) fn decrypt(&self, records: &[u8], used: &mut usize, into: &mut [u8]) -> io::Result<usize> {
        let mut connection = self.lock();
        loop {
            match connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if *used == records.len() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            *used += connection.read_tls(&mut &records[*used..])?;
            connection.process_new_packets().map_err(of_tls)?;
        }
    }

    /// Appends the last records of the stream to `into`.
    pub(crate) fn finish(&self, into: &mut Vec<u8>) {
        let mut connection = self.lock();
        connection.send_close_notify();
        while connection.wants_write() {
            // Memory takes all.
            _ = connection.write_tls(into);
        }
    }
}
