//! Streams of bytes between the switch and a peer.
//!
//! A connection has a thread that reads and one that writes, so an opened stream has two halves. Each half of a plain stream is its
//! socket, and the reader sends short answers itself. Those of a stream with TLS share the [session](tls::Session), which encrypts and decrypts in memory: no thread waits for
//! the network while it holds the session, and after the handshake the writer alone writes to the socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::tls::{self, Credentials, Session};

/// A peer that takes nothing for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a reader looks whether the switch ends.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// Bytes that are encrypted at once, while the reader cannot decrypt: two records.
const PART: usize = 2 << 14;

/// A connected socket.
#[derive(Debug)]
pub(in crate::mgmt) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub(super) fn set_blocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(false),
            Self::Tcp(stream) => stream.set_nonblocking(false),
        }
    }

    fn set_timeouts(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(READ_TIMEOUT))?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))
            }
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(READ_TIMEOUT))?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))
            }
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    pub(super) fn close(&self) {
        // It may be closed already.
        _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream whose handshake, if it needs one, is still to come.
#[derive(Debug)]
pub(in crate::mgmt) struct Stream {
    socket: Socket,
    security: Option<(Arc<Credentials>, tls::Side)>,
}

impl Stream {
    pub(in crate::mgmt) fn plain(socket: Socket) -> Self {
        Self { socket, security: None }
    }

    pub(in crate::mgmt) fn with_tls(socket: Socket, credentials: Arc<Credentials>, side: tls::Side) -> Self {
        Self { socket, security: Some((credentials, side)) }
    }

    /// The socket, to close it from another thread.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Completes the handshake, before the deadline and the end of the switch, and separates the halves.
    ///
    /// # Errors
    /// Those of the socket and of the handshake.
    pub(in crate::mgmt) fn open(self, deadline: Instant, ends: &AtomicBool) -> io::Result<(Reader, Writer)> {
        let Self { mut socket, security } = self;
        socket.set_timeouts()?;
        let session = match security {
            None => None,
            Some((credentials, side)) => {
                let mut session = credentials.session(side)?;
                session.handshake(&mut socket, deadline, ends)?;
                credentials.bootstrap(&session)?;
                Some(Arc::new(session.share()))
            }
        };
        let decrypts = session.clone().map(|session| Decryption { session, records: Vec::new(), used: 0 });
        let reader = Reader { socket: socket.try_clone()?, decrypts };
        let writer = Writer { socket, encrypts: session, records: Vec::new() };
        Ok((reader, writer))
    }
}

/// The half of a stream that reads.
pub(in crate::mgmt) struct Reader {
    socket: Socket,
    decrypts: Option<Decryption>,
}

struct Decryption {
    session: Arc<Session>,
    /// Received records, of which the session has taken the first `used` bytes.
    records: Vec<u8>,
    used: usize,
}

impl Reader {
    /// Reads some bytes; none at the end of the stream.
    ///
    /// # Errors
    /// Those of the socket and of TLS. `WouldBlock` where the peer has sent nothing for a while, or only messages of TLS.
    pub(in crate::mgmt) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(Decryption { session, records, used }) = &mut self.decrypts else {
            return self.socket.read(into);
        };
        // What has come with the end of the handshake, or with the records before.
        match session.decrypt(records, used, into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        records.resize(PART, 0);
        let read = self.socket.read(records);
        records.truncate(*read.as_ref().unwrap_or(&0));
        *used = 0;
        match read? {
            0 => Ok(0),
            _ => session.decrypt(records, used, into),
        }
    }

    /// Returns whether bytes can be [sent at once](Self::send_at_once): of a stream with TLS the writer sends all.
    pub(super) fn is_plain(&self) -> bool {
        self.decrypts.is_none()
    }

    /// Sends as many bytes of a plain stream as the peer takes at once; returns the number.
    pub(super) fn send_at_once(&self, bytes: &[u8]) -> usize {
        use rustix::net::{SendFlags, send};
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match &self.socket {
            Socket::Unix(stream) => send(stream, bytes, flags),
            Socket::Tcp(stream) => send(stream, bytes, flags),
        };
        // The writer meets the errors of the socket.
        sent.unwrap_or(0)
    }

    /// Sets how long a read waits for bytes.
    ///
    /// # Errors
    /// Those of the socket.
    pub(in crate::mgmt) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Socket::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    /// Returns whether the peer is on this machine.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// Closes the stream in both directions.
    pub(super) fn close(&self) {
        self.socket.close();
    }
}

/// The half of a stream that writes.
pub(in crate::mgmt) struct Writer {
    socket: Socket,
    encrypts: Option<Arc<Session>>,
    records: Vec<u8>,
}

impl Writer {
    pub(in crate::mgmt) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &self.encrypts else { return self.socket.write_all(bytes) };
        for part in bytes.chunks(PART) {
            self.records.clear();
            session.encrypt(part, &mut self.records)?;
            self.socket.write_all(&self.records)?;
        }
        Ok(())
    }

    /// Sends the end of the stream, and the alert of the reader if it met an error.
    pub(super) fn finish(&mut self) {
        if let Some(session) = &self.encrypts {
            self.records.clear();
            session.finish(&mut self.records);
            // The peer may have closed it.
            _ = self.socket.write_all(&self.records);
        }
    }

    /// Closes the stream in both directions.
    pub(super) fn close(&self) {
        self.socket.close();
    }
}
