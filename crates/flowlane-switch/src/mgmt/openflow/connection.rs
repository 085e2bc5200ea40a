//! A connection: bytes to messages and back.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowlane_openflow::message::{Error, Hello, Message};
use flowlane_openflow::{Codec, ErrorCode, Header, Version, split};

use super::Shared;
use super::flow_mods::{TOGETHER_MAX, is_flow_mod};
use super::outgoing::Outgoing;
use super::packets::Subscriber;
use super::session::{Session, State};
use super::settings::ConnectionSettings;
use super::slots::Slot;
use super::stream::{Reader, Stream, Writer};
use super::turns::{Class, Turn, Usage};
use crate::mgmt::rpc::Controller;

/// Answers up to this length take nothing of the budget of all connections.
const SMALL: usize = 64 * 1024;
/// The time for the handshake of TLS and the greeting together, however the peer divides its bytes.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// The type of a greeting (OpenFlow 1.3.5, A.5.1): the first message, in all versions.
const HELLO: u8 = 0;
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Serves a connection at an address until either side ends it. Returns whether the peers agreed on a version. A peer that has
/// connected to the switch has a slot. A silent
/// peer is asked at these intervals whether it lives.
pub(super) fn serve(
    stream: Stream,
    shared: &Arc<Shared>,
    controller: &Controller,
    slot: Option<&Slot>,
    probe_interval: Option<Duration>,
) -> bool {
    let (copies, is_passive) = (shared.clone(), slot.is_some());
    let opened = Connection::open(stream, shared, move |bytes| copies.snoopers.copy(bytes));
    let (mut connection, thread) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            controller.failed(error.to_string());
            return false;
        }
    };
    connection.is_copied = true;
    let version = connection.negotiate(shared);
    if version.is_none() {
        controller.failed(connection.refusal());
    }
    if let Some(version) = version {
        let _connected = controller.connected();
        connection.probe_interval = probe_interval;
        slot.inspect(|slot| slot.greeted());
        let state = State::new(Codec::new(version), is_passive);
        let mut session = Session::new(shared.clone(), Arc::new(Mutex::new(state)));
        let (queue, state) = (connection.queue.clone(), session.state.clone());
        let id = shared.subscribers.add(Subscriber { queue, state, monitors: Mutex::default() });
        session.connection = id;
        session.take_option_bytes();
        if !is_passive {
            shared.primaries.connected();
        }
        connection.run(&mut session, shared);
        if !is_passive {
            shared.primaries.disconnected();
        }
        shared.subscribers.remove(id);
    }
    connection.end(thread);
    version.is_some()
}

/// Sends copies of all messages to a client until either side ends the connection.
pub(super) fn serve_snooper(stream: Stream, shared: &Arc<Shared>, slot: &Slot) {
    let Ok((mut connection, thread)) = Connection::open(stream, shared, |_| {}) else { return };
    if let Some(version) = connection.negotiate(shared) {
        slot.greeted();
        // The client takes probes for copies.
        connection.probe_interval = None;
        let id = shared.snoopers.add(version, connection.queue.clone());
        while connection.next(shared, Vec::new).is_some() {}
        shared.snoopers.remove(id);
    }
    connection.end(thread);
}

fn write(mut stream: Writer, waiting: &Outgoing, copy: impl Fn(&[u8])) {
    let mut is_written = true;
    waiting.drain(|bytes, is_rest| {
        // The reader has copied what it has begun to send.
        if !is_rest {
            copy(bytes);
        }
        is_written = stream.write_all(bytes).is_ok();
        is_written
    });
    if is_written {
        stream.finish();
    }
    // The reader notices, where the peer takes nothing any more.
    stream.close();
}

struct Connection {
    stream: Reader,
    queue: Arc<Outgoing>,
    input: Vec<u8>,
    /// Bytes of `input` that earlier messages had.
    used: usize,
    /// When the peer was last heard.
    heard: Instant,
    /// It has been asked since whether it lives.
    probed: bool,
    /// A silent peer is asked after this time.
    probe_interval: Option<Duration>,
    /// Received messages are copied to snoopers.
    is_copied: bool,
    /// When the peer must have greeted, until it has.
    deadline: Option<Instant>,
    /// Why the peer could not be read.
    error: Option<io::Error>,
}

impl Connection {
    /// Completes the handshake of the stream, and starts the writer, which passes all that it sends to `copy`, too.
    fn open(
        stream: Stream,
        shared: &Shared,
        copy: impl Fn(&[u8]) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let deadline = Instant::now() + GREETING_TIME;
        let (reader, writer) = stream.open(deadline, &shared.ends)?;
        let queue = Arc::new(Outgoing::default());
        let writing = queue.clone();
        let thread = std::thread::Builder::new().name("openflow".to_owned());
        let thread = thread.spawn(move || write(writer, &writing, copy))?;
        let connection = Self {
            stream: reader,
            queue,
            input: Vec::new(),
            used: 0,
            heard: Instant::now(),
            probed: false,
            probe_interval: Some(ConnectionSettings::PROBE_INTERVAL),
            is_copied: false,
            deadline: Some(deadline),
            error: None,
        };
        Ok((connection, thread))
    }

    /// Lets the writer send what waits, and closes the connection.
    fn end(&self, writer: JoinHandle<()>) {
        self.queue.close();
        _ = writer.join();
        self.stream.close();
    }

    /// Queues bytes. Returns whether the writer lives.
    fn send(&self, bytes: Vec<u8>) -> bool {
        self.queue.answer(bytes, None)
    }

    /// Returns the next message; `None` at the end of the connection. `probe` is sent to a peer that is silent.
    fn next(&mut self, shared: &Shared, probe: impl Fn() -> Vec<u8>) -> Option<Vec<u8>> {
        loop {
            match split(&self.input[self.used..]) {
                Ok(Some((message, _))) => {
                    let message = message.to_vec();
                    self.used += message.len();
                    if self.is_copied {
                        shared.snoopers.copy(&message);
                    }
                    return Some(message);
                }
                Ok(None) => {}
                // Where the next message begins is not known any more.
                Err(_) => return None,
            }
            if self.deadline.is_some_and(|deadline| self.does_not_greet(deadline)) {
                return None;
            }
            self.input.drain(..self.used);
            self.used = 0;
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
                    let Some(interval) = self.probe_interval else { continue };
                    let silent = self.heard.elapsed();
                    if self.probed && silent >= interval.saturating_mul(2) {
                        return None;
                    }
                    if !self.probed && silent >= interval {
                        self.probed = true;
                        if !self.send(probe()) {
                            return None;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    return None;
                }
            }
        }
    }

    /// Returns whether the peer speaks another protocol, or is too late.
    fn does_not_greet(&self, deadline: Instant) -> bool {
        self.input.get(self.used + 1).is_some_and(|kind| *kind != HELLO) || Instant::now() >= deadline
    }

    /// The reason of a connection that ended without an agreement.
    fn refusal(&mut self) -> String {
        let error = self.error.take().map(|error| error.to_string());
        error.unwrap_or_else(|| {
            "the peer does not greet in a version of OpenFlow that the switch speaks".to_owned()
        })
    }

    /// Agrees with the peer on a version (OpenFlow 1.3.5, 6.3.1).
    fn negotiate(&mut self, shared: &Shared) -> Option<Version> {
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
            _ if header.kind == HELLO => (2u32 << header.version.min(30)) - 1,
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
        self.deadline = None;
        Some(version)
    }

    /// Returns whether the next message has been received.
    fn has_next(&self) -> bool {
        matches!(split(&self.input[self.used..]), Ok(Some(_)))
    }

    /// Returns a flow-mod with those behind it that have been received, if there are any.
    fn flow_mods_behind(&mut self, message: &[u8], shared: &Shared) -> Option<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        while is_flow_mod(message)
            && all.len() + 1 < TOGETHER_MAX
            && let Ok(Some((next, _))) = split(&self.input[self.used..])
            && is_flow_mod(next)
        {
            if self.is_copied {
                shared.snoopers.copy(next);
            }
            if all.is_empty() {
                all.push(message.to_vec());
            }
            all.push(next.to_vec());
            self.used += next.len();
        }
        (!all.is_empty()).then_some(all)
    }

    /// Answers requests until the connection ends.
    fn run(&mut self, session: &mut Session, shared: &Shared) {
        let usage = Usage::new(self.stream.is_local());
        let mut turn: Option<Turn<'_>> = None;
        while let Some(message) = self.next(shared, || session.probe()) {
            let class = Class::of(&message);
            if !turn.as_ref().is_some_and(|turn| turn.is_for(class)) {
                drop(turn.take());
                turn = Some(shared.turns.take(class, &usage));
            }
            let mut answer = match self.flow_mods_behind(&message, shared) {
                Some(all) => session.answer_flow_mods(&all),
                None => session.answer(&message),
            };
            let mut taken = None;
            // Within the turn: one answer at most has not taken of the budget yet.
            if answer.len() > SMALL {
                taken = shared.replies.take(answer.len());
                if taken.is_none() {
                    answer = session.refuse(&message, ErrorCode::RequestMultipartBufferOverflow);
                }
            }
            // No other connection waits until this peer reads or sends.
            if self.queue.is_full() || !self.has_next() {
                turn = None;
            }
            let stream = &self.stream;
            let send = |bytes: &[u8]| {
                let sent = stream.send_at_once(bytes);
                if sent > 0 {
                    shared.snoopers.copy(bytes);
                }
                sent
            };
            let lives = match stream.is_plain() {
                true => self.queue.answer_at_once(answer, taken, send),
                false => self.queue.answer(answer, taken),
            };
            if !lives {
                return;
            }
        }
    }
}
