//! Handoff of packets from one worker to another, in order.
//!
//! A worker owns its caches and its shard of each stateful stage, which only its own packets change. A packet for another worker
//! is handed over with its key, headers and metadata; a long frame's buffer is swapped with an empty one.
//!
//! ```text
//! hand ─► the batch that is being filled ─► ring (bounded) ─► the other's next round
//!              ▲   full ring: waits, in order                      │
//!              └───────────────── empty batches ◄──────────────────┘
//! ```
//!
//! No packet is lost, and no worker blocks on another: where a ring is full, batches wait at the sender, and while some do, the
//! sender receives nothing from its ports. So the packets in flight are bounded by those when it stopped receiving.
//!
//! *Shutdown*: a worker is done when all workers have stopped receiving and all batches ever made have been processed.

use std::collections::VecDeque;
use std::sync::Arc;

use flowlane::memory::{LINE_BYTES, prefetch_at};
use flowlane::packet::{FlowKey, Headers, WordSet, pack_words, unpack_words};
use flowlane::rule::action::PortNo;

use super::calls::{Calls, PacketState};
use super::notifier::Notifier;
use crate::packet::{Burst, Frame};
use crate::sync::{AtomicU64, AtomicUsize, Consumer, Ordering, Producer, PushError, RingBuffer};

/// Packets per batch: bounds those that wait, and shares one atomic operation among many.
const PACKETS: usize = 32;

/// Longest frame copied into the batch; the buffer of a longer one, or of one with offloads, is swapped with an empty one.
const SHORT: usize = 192;

/// Words of a key that fit in the batch: an IPv6 packet with a tag or two has 22.
const KEY_WORDS: usize = 30;

/// Prefetch distance in packets, while a batch is filled.
const AHEAD: usize = 3;

/// Maximum rounds that a partly filled batch is kept; also bounded by the number of workers, since evenly spread bursts fill it
/// by then.
const ROUNDS: usize = 16;

/// Batches per ring.
pub(super) const BATCHES_MAX: usize = 32;

/// The place where a packet that was handed over resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResumePoint {
    /// As received, not yet parsed.
    Port,
    /// Before a stateful stage.
    Stage(u8),
}

/// A packet that has been handed over.
///
/// Each cache line moves between cores by itself, so the data of most packets is adjacent: 64 bytes of the frame, at the end of
/// `bytes`; the metadata; 14 words of the key. That is three lines of six.
#[derive(Debug)]
#[repr(C, align(64))]
struct Handed {
    /// The frame, at the end.
    bytes: [u8; SHORT],
    /// The frame's time.
    time_ns: u64,
    /// The time in the burst.
    now_ns: u64,
    /// The key, if it has more words than fit below.
    whole_key: Option<Box<FlowKey>>,
    counted: u32,
    /// The index of its input port.
    port: u32,
    len: u16,
    resume_point: ResumePoint,
    /// Whether it has been sent somewhere.
    sent: bool,
    /// It has a [`Beside`] in its batch.
    has_beside: bool,
    headers: Headers,
    /// The words that the key has, and their values.
    present: WordSet,
    words: [u32; KEY_WORDS],
}

const _: () = assert!(size_of::<Handed>() == 6 * LINE_BYTES);

impl Handed {
    /// The `len` of a packet whose frame is not in `bytes`.
    const LONG: u16 = u16::MAX;

    fn new() -> Self {
        Self {
            bytes: [0; SHORT],
            time_ns: 0,
            now_ns: 0,
            whole_key: None,
            counted: 0,
            port: 0,
            len: 0,
            resume_point: ResumePoint::Port,
            sent: false,
            has_beside: false,
            headers: Headers::default(),
            present: WordSet::EMPTY,
            words: [0; KEY_WORDS],
        }
    }

    /// Copies a short frame; returns whether it is one.
    #[inline]
    fn copy(&mut self, frame: &Frame) -> bool {
        let bytes = frame.bytes();
        let is_short = bytes.len() <= SHORT && !frame.has_metadata();
        if is_short {
            self.bytes[SHORT - bytes.len()..].copy_from_slice(bytes);
            (self.len, self.counted, self.time_ns) = (bytes.len() as u16, frame.counted, frame.time_ns);
        } else {
            self.len = Self::LONG;
        }
        is_short
    }
}

/// State that few packets have: for each of the others, it would be a cache line or more.
#[derive(Debug)]
struct Beside {
    state: Option<PacketState>,
    /// The port that an action says it came in through.
    source: Option<PortNo>,
}

/// A batch of packets that are handed over together. It keeps its buffers when it is reused.
#[derive(Debug, Default)]
pub(super) struct HandoffBatch {
    packets: Vec<Handed>,
    len: usize,
    /// The next packet to unpack.
    at: usize,
    /// The frames that were not copied, in order.
    frames: Vec<Frame>,
    frames_len: usize,
    frames_at: usize,
    /// By packet that has it, in order.
    beside: VecDeque<Beside>,
    /// Some packet has no Ethernet header.
    pub(super) has_bare: bool,
}

impl HandoffBatch {
    fn push(
        &mut self,
        burst: &mut Burst,
        lane: usize,
        resume_point: ResumePoint,
        state: Option<PacketState>,
    ) {
        if self.len == self.packets.len() {
            self.packets.push(Handed::new());
        }
        self.prefetch(self.len + AHEAD);
        let packet = &mut self.packets[self.len];
        self.len += 1;
        if !packet.copy(&burst.frames[lane]) {
            if self.frames_len == self.frames.len() {
                self.frames.push(Frame::default());
            }
            self.has_bare |= burst.frames[lane].is_bare();
            std::mem::swap(&mut self.frames[self.frames_len], &mut burst.frames[lane]);
            self.frames_len += 1;
        }
        if resume_point != ResumePoint::Port {
            let key = &burst.keys[lane];
            packet.present = key.present();
            if !pack_words(key, &mut packet.words) {
                packet.whole_key = Some(Box::new(key.clone()));
            }
            packet.headers = burst.headers[lane];
        }
        (packet.port, packet.now_ns) = (burst.port as u32, burst.times_ns[lane]);
        (packet.sent, packet.resume_point) = (burst.sent.0 >> lane & 1 == 1, resume_point);
        let source = burst.source(lane);
        packet.has_beside = state.is_some() || source.is_some();
        if packet.has_beside {
            self.beside.push_back(Beside { state, source });
        }
    }

    /// Prefetches a packet's lines, which another core has used.
    #[inline]
    fn prefetch(&self, at: usize) {
        if let Some(packet) = self.packets.get(at) {
            let packet: *const u8 = std::ptr::from_ref(packet).cast();
            let used = SHORT - LINE_BYTES..SHORT + 2 * LINE_BYTES;
            used.step_by(LINE_BYTES).for_each(|line| prefetch_at(packet.wrapping_add(line)));
        }
    }

    /// Moves the next packets with one input port and one resume point into a burst, and their state into the calls of that burst.
    /// Returns that resume point; `None` if no packet is left.
    pub(super) fn unpack(&mut self, burst: &mut Burst, calls: &mut Calls) -> Option<ResumePoint> {
        let first = self.packets[..self.len].get(self.at)?;
        let (port, resume_point) = (first.port, first.resume_point);
        if self.at == 0 {
            (1..self.len).for_each(|at| self.prefetch(at));
        }
        burst.clear_for(port as usize, u64::MAX);
        calls.begin_burst();
        for packet in &mut self.packets[self.at..self.len] {
            if (packet.port, packet.resume_point) != (port, resume_point) {
                break;
            }
            let lane = burst.len();
            let Some(frame) = burst.frames.next_frame() else { break };
            if packet.len == Handed::LONG {
                std::mem::swap(frame, &mut self.frames[self.frames_at]);
                self.frames_at += 1;
                // Its headers are read once the whole burst is unpacked.
                prefetch_at(frame.bytes().as_ptr());
            } else {
                frame.fill(&packet.bytes[SHORT - usize::from(packet.len)..]);
                (frame.counted, frame.time_ns) = (packet.counted, packet.time_ns);
            }
            burst.times_ns[lane] = packet.now_ns;
            burst.sent.0 |= u64::from(packet.sent) << lane;
            if resume_point != ResumePoint::Port {
                match packet.whole_key.take() {
                    Some(key) => burst.keys[lane] = *key,
                    None => unpack_words(packet.present, &packet.words, &mut burst.keys[lane]),
                }
                burst.headers[lane] = packet.headers;
            }
            let beside = if packet.has_beside { self.beside.pop_front() } else { None };
            if let Some(Beside { state, source }) = beside {
                state.into_iter().for_each(|state| calls.set_state(lane, state));
                burst.sources.extend(source.map(|source| (lane, source)));
            }
            self.at += 1;
        }
        Some(resume_point)
    }

    /// Removes all packets.
    fn clear(&mut self) {
        (self.len, self.at, self.frames_len, self.frames_at) = (0, 0, 0, 0);
        self.beside.clear();
        self.has_bare = false;
    }
}

/// The sending side of the rings to one other worker.
struct HandoffTx {
    to: Producer<Box<HandoffBatch>>,
    back: Consumer<Box<HandoffBatch>>,
    filling: Option<Box<HandoffBatch>>,
    /// Rounds for which `filling` has been kept.
    rounds: usize,
    /// Batches to send, in order; they stay here while the ring is full.
    waiting: VecDeque<Box<HandoffBatch>>,
    waker: Notifier,
}

impl HandoffTx {
    /// Queues the batch that is being filled.
    fn seal(&mut self) {
        self.waiting.extend(self.filling.take());
        self.rounds = 0;
    }

    /// Sends batches while the ring has room.
    fn send(&mut self) {
        let mut sent = false;
        while let Some(batch) = self.waiting.pop_front() {
            if let Err(PushError::Full(batch)) = self.to.push(batch) {
                self.waiting.push_front(batch);
                break;
            }
            sent = true;
        }
        if sent {
            self.waker.wake();
        }
    }
}

/// The receiving side of the rings from one other worker.
struct HandoffRx {
    from: Consumer<Box<HandoffBatch>>,
    back: Producer<Box<HandoffBatch>>,
}

/// The batch counters of one worker, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct BatchCounters {
    made: AtomicU64,
    worked_on: AtomicU64,
}

/// State that all workers share, to detect the shutdown's end.
#[derive(Debug)]
struct Group {
    /// Workers that may still receive from ports.
    receiving: AtomicUsize,
    batches: Box<[BatchCounters]>,
}

/// A worker's rings to and from all other workers, and the state they share.
pub(super) struct Links {
    me: usize,
    /// By worker; `None` for itself.
    senders: Vec<Option<HandoffTx>>,
    receivers: Vec<HandoffRx>,
    group: Arc<Group>,
    /// This worker has stopped receiving from ports.
    retired: bool,
}

impl Links {
    /// Connects as many workers as there are `wakers`; returns the links of each.
    pub(super) fn between(wakers: &[Notifier]) -> Vec<Self> {
        let workers = wakers.len();
        let group = Arc::new(Group {
            receiving: AtomicUsize::new(workers),
            batches: (0..workers).map(|_| BatchCounters::default()).collect(),
        });
        let of = |me| Self {
            me,
            senders: Vec::new(),
            receivers: Vec::new(),
            group: group.clone(),
            retired: false,
        };
        let mut all: Vec<Self> = (0..workers).map(of).collect();
        for from in 0..workers {
            for to in 0..workers {
                if from == to {
                    all[from].senders.push(None);
                    continue;
                }
                let (sender, receiver) = RingBuffer::new(BATCHES_MAX);
                // Has room for all batches that can be on the way back: those sent, and those being processed.
                let (giver, taker) = RingBuffer::new(2 * BATCHES_MAX);
                let waker = wakers[to].clone();
                let (filling, rounds, waiting) = (None, 0, VecDeque::new());
                let sender = HandoffTx { to: sender, back: taker, filling, rounds, waiting, waker };
                all[from].senders.push(Some(sender));
                all[to].receivers.push(HandoffRx { from: receiver, back: giver });
            }
        }
        all
    }

    /// Returns the number of workers.
    #[inline]
    pub(super) fn workers(&self) -> usize {
        self.senders.len()
    }

    /// Returns this worker's index.
    #[inline]
    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// Hands a lane's packet over to another worker, with its state. The lane's frame buffer may be swapped with another.
    pub(super) fn hand(
        &mut self,
        to: usize,
        burst: &mut Burst,
        lane: usize,
        resume_point: ResumePoint,
        state: Option<PacketState>,
    ) {
        let sender = self.senders[to].as_mut().expect("no worker hands packets over to itself");
        let (back, made) = (&mut sender.back, &self.group.batches[self.me].made);
        let batch = sender.filling.get_or_insert_with(|| {
            // Only this worker writes it, and before the batch that these packets came from counts as processed.
            made.store(made.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
            back.pop().unwrap_or_default()
        });
        batch.push(burst, lane, resume_point, state);
        if batch.len == PACKETS {
            sender.seal();
        }
    }

    /// Sends batches, as far as the rings have room. If `more_come`, more packets are expected, and partly filled batches may be
    /// kept: with many workers a burst has few packets for each, and the cost of a batch is to be shared by many.
    #[inline]
    pub(super) fn send(&mut self, more_come: bool) {
        let rounds_max = if more_come { self.senders.len().min(ROUNDS) } else { 0 };
        for sender in self.senders.iter_mut().flatten() {
            if sender.filling.is_some() {
                sender.rounds += 1;
                if sender.rounds > rounds_max {
                    sender.seal();
                }
            }
            if !sender.waiting.is_empty() {
                sender.send();
            }
        }
    }

    /// Returns whether batches wait for room in a ring.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        self.senders.iter().flatten().any(|sender| !sender.waiting.is_empty())
    }

    /// Returns whether another worker has sent a batch.
    pub(super) fn has_incoming(&self) -> bool {
        self.receivers.iter().any(|receiver| !receiver.from.is_empty())
    }

    /// Returns the number of workers that send to this one.
    pub(super) fn receivers(&self) -> usize {
        self.receivers.len()
    }

    /// Takes the next batch from another worker.
    #[inline]
    pub(super) fn take(&mut self, receiver: usize) -> Option<Box<HandoffBatch>> {
        self.receivers[receiver].from.pop().ok()
    }

    /// Counts a batch as processed, and returns it to its sender, empty.
    pub(super) fn give_back(&mut self, receiver: usize, mut batch: Box<HandoffBatch>) {
        batch.clear();
        // A batch that finds no room is not needed.
        _ = self.receivers[receiver].back.push(batch);
        let worked_on = &self.group.batches[self.me].worked_on;
        worked_on.store(worked_on.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    /// Records that this worker receives nothing more from ports.
    pub(super) fn retire(&mut self) {
        if !std::mem::replace(&mut self.retired, true) {
            self.group.receiving.fetch_sub(1, Ordering::SeqCst);
            self.wake_all();
        }
    }

    /// Returns whether all workers are done: none receives, and no batch is in flight.
    pub(super) fn is_over(&self) -> bool {
        let sum = |count: fn(&BatchCounters) -> &AtomicU64| -> u64 {
            self.group.batches.iter().map(|batches| count(batches).load(Ordering::SeqCst)).sum()
        };
        // A batch made from another is counted before that one counts as processed, so none made between the two sums is missed.
        self.group.receiving.load(Ordering::SeqCst) == 0 && {
            let worked_on = sum(|batches| &batches.worked_on);
            worked_on == sum(|batches| &batches.made)
        }
    }

    /// Wakes all other workers, to check whether all are done.
    pub(super) fn wake_all(&self) {
        self.senders.iter().flatten().for_each(|sender| sender.waker.wake());
    }
}
