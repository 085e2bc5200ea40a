//! A connection: bytes to messages and back.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowlane_openflow::message::{Error, Hello, Message};
use flowlane_openflow::{Codec, ErrorCode, Header, Version, split};

use super::Shared;
use super::outgoing::Outgoing;
use super::packets::Subscriber;
use super::session::{Session, State};

/// Answers up to this length take nothing of the budget of all connections.
const SMALL: usize = 64 * 1024;
/// A peer that takes nothing for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection looks whether the switch ends.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// A peer that is silent for this long is asked whether it lives; after the same time again it is disconnected.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// A stream of bytes.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
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

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    fn close(&self) {
        // It may be closed already.
        _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
        }
    }
}

/// Serves a connection until either side ends it. Returns whether the peers agreed on a version. `is_passive`: the peer has
/// connected to the switch.
pub(super) fn serve(stream: Stream, shared: &Arc<Shared>, is_passive: bool) -> bool {
    let Ok(writer) = stream.set_timeouts().and_then(|()| stream.try_clone()) else { return false };
    let queue = Arc::new(Outgoing::default());
    let thread = std::thread::Builder::new().name("openflow".to_owned());
    let writing = queue.clone();
    let Ok(thread) = thread.spawn(move || write(writer, &writing)) else { return false };
    let mut connection =
        Connection { stream, queue, input: Vec::new(), heard: Instant::now(), probed: false };
    let session = connection.negotiate(shared, is_passive);
    let agreed = session.is_some();
    if let Some(mut session) = session {
        let (queue, state) = (connection.queue.clone(), session.state.clone());
        let id = shared.subscribers.add(Subscriber { queue, state });
        if !is_passive {
            shared.primaries.connected();
        }
        connection.run(&mut session, shared);
        if !is_passive {
            shared.primaries.disconnected();
        }
        shared.subscribers.remove(id);
    }
    // The writer sends what waits, and ends.
    connection.queue.close();
    _ = thread.join();
    connection.stream.close();
    agreed
}

fn write(mut stream: Stream, waiting: &Outgoing) {
    waiting.drain(|bytes| stream.write_all(bytes).is_ok());
    // The reader notices, where the peer takes nothing any more.
    stream.close();
}

struct Connection {
    stream: Stream,
    queue: Arc<Outgoing>,
    input: Vec<u8>,
    /// When the peer was last heard.
    heard: Instant,
    /// It has been asked since whether it lives.
    probed: bool,
}

impl Connection {
    /// Queues bytes. Returns whether the writer lives.
    fn send(&self, bytes: Vec<u8>) -> bool {
        self.queue.answer(bytes, None)
    }

    /// Returns the next message; `None` at the end of the connection. `probe` is sent to a peer that is silent.
    fn next(&mut self, shared: &Shared, probe: impl Fn() -> Vec<u8>) -> Option<Vec<u8>> {
        loop {
            match split(&self.input) {
                Ok(Some((message, _))) => {
                    let message = message.to_vec();
                    self.input.drain(..message.len());
                    return Some(message);
                }
                Ok(None) => {}
                // Where the next message begins is not known any more.
                Err(_) => return None,
            }
            let filled = self.input.len();
            self.input.resize(filled + CHUNK, 0);
            let read = self.stream.read(&mut self.input[filled..]);
            self.input.truncate(filled + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return None,
                Ok(_) => (self.heard, self.probed) = (Instant::now(), false),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if shared.ends.load(Ordering::Relaxed) {
                        return None;
                    }
                    let silent = self.heard.elapsed();
                    if self.probed && silent >= 2 * PROBE_INTERVAL {
                        return None;
                    }
                    if !self.probed && silent >= PROBE_INTERVAL {
                        self.probed = true;
                        if !self.send(probe()) {
                            return None;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// Agrees with the peer on a version (OpenFlow 1.3.5, 6.3.1).
    fn negotiate(&mut self, shared: &Arc<Shared>, is_passive: bool) -> Option<Session> {
        let ours = shared.service.versions();
        let versions = ours.iter().fold(0, |bits, version| bits | version.bit());
        let newest = Codec::new(ours.iter().copied().max()?);
        let hello = newest.encode(0, &Message::Hello(Hello { versions })).expect("a hello can be written");
        if !self.send(hello) {
            return None;
        }
        let first = self.next(shared, Vec::new)?;
        let header = Header::read(&first)?;
        let theirs = match Codec::new(Version::OpenFlow15).decode(&first).map(|decoded| decoded.message) {
            Ok(Message::Hello(hello)) => hello.versions,
            // A hello of a version that is not known offers all up to it.
            _ if header.kind == 0 => (2u32 << header.version.min(30)) - 1,
            _ => return None,
        };
        let common = ours.iter().copied().filter(|version| theirs & version.bit() != 0).max();
        let Some(version) = common else {
            let (kind, data) = (ErrorCode::HelloIncompatible.into(), b"no version in common".to_vec());
            let spoken = Version::of_number(header.version).filter(|version| ours.contains(version));
            let version = spoken.unwrap_or(newest.version);
            let error = Message::Error(Error { kind, data });
            self.send(Codec::new(version).encode(header.xid, &error).unwrap_or_default());
            return None;
        };
        let state = State::new(Codec::new(version), is_passive);
        Some(Session::new(shared.clone(), Arc::new(Mutex::new(state))))
    }

    /// Answers requests until the connection ends.
    fn run(&mut self, session: &mut Session, shared: &Shared) {
        while let Some(message) = self.next(shared, || session.probe()) {
            let mut answer = session.answer(&message);
            let mut taken = None;
            if answer.len() > SMALL {
                taken = shared.replies.take(answer.len());
                if taken.is_none() {
                    answer = session.refuse(&message, ErrorCode::RequestMultipartBufferOverflow);
                }
            }
            if !self.queue.answer(answer, taken) {
                return;
            }
        }
    }
}
