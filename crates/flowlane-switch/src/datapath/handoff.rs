//! Packets that one worker hands over to another, in order.
//!
//! A worker keeps what only its own packets change: its caches, and its share of each function's state. A packet that another
//! worker is to work on goes there with all that is known of it, and its buffer changes places with an empty one.
//!
//! ```text
//! hand ─► the batch that is being filled ─► ring (bounded) ─► the other's next round
//!              ▲   full ring: waits, in order                      │
//!              └───────────────── empty batches ◄──────────────────┘
//! ```
//!
//! No packet is lost, and no worker waits for another: where a ring is full, batches wait here, and as long as some do, their worker
//! receives nothing from its ports. So there are never more packets under way than there were when it stopped.
//!
//! *The end*: a worker is done when all have stopped receiving and all batches that were ever made have been worked on.

use std::collections::VecDeque;
use std::sync::Arc;

use flowlane::memory::{LINE_BYTES, prefetch_at};
use flowlane::packet::{FlowKey, Headers, WordSet, pack_words, unpack_words};

use super::notifier::Notifier;
use crate::packet::{Burst, Frame};
use crate::sync::{AtomicU64, AtomicUsize, Consumer, Ordering, Producer, PushError, RingBuffer};

/// Packets in a batch: what waits is bounded, and an atomic operation is for many.
const PACKETS: usize = 32;

/// Bytes of a frame that go in the batch; a longer frame's buffer changes places with an empty one.
const SHORT: usize = 192;

/// Words of a key that go in the batch: an IPv6 packet with a tag or two has 22.
const KEY_WORDS: usize = 30;

/// Packets of a batch that are asked for ahead of being filled.
const AHEAD: usize = 3;

/// Rounds that a batch is kept to be filled, at most; and no more than there are workers, since it is full by then where bursts are
/// spread evenly.
const ROUNDS: usize = 16;

/// BatchCounters in a ring.
pub(super) const BATCHES_MAX: usize = 32;

/// Where a packet that was handed over goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResumePoint {
    /// It has come in, and nothing has been done with it.
    Port,
    /// It is before a function.
    Stage(u8),
    /// It is half through a function.
    SplitStage(u8),
}

/// A packet that has been handed over.
///
/// Cores pass lines of their caches to each other one by one, so what most packets have lies together: 64 bytes of a frame, at the
/// end of `bytes`; what is known of it; 14 words of its key. That is three lines of six.
#[derive(Debug)]
#[repr(C, align(64))]
struct Handed {
    /// The frame's are the last ones.
    bytes: [u8; SHORT],
    /// As of the frame.
    time_ns: u64,
    /// As of the burst.
    now_ns: u64,
    /// Its key, where that has more words than there is room for.
    whole_key: Option<Box<FlowKey>>,
    counted: u32,
    /// The place of the port that it came in through.
    port: u32,
    len: u16,
    resume_point: ResumePoint,
    /// Whether it has been sent somewhere.
    sent: bool,
    headers: Headers,
    /// Which words its key has, and these.
    present: WordSet,
    words: [u32; KEY_WORDS],
}

const _: () = assert!(size_of::<Handed>() == 6 * LINE_BYTES);

impl Handed {
    /// The length of one whose frame is not here.
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
            headers: Headers::default(),
            present: WordSet::EMPTY,
            words: [0; KEY_WORDS],
        }
    }

    /// Takes a copy of a short frame; says whether it is one.
    #[inline]
    fn copy(&mut self, frame: &Frame) -> bool {
        let bytes = frame.bytes();
        let is_short = bytes.len() <= SHORT && frame.offload.is_none();
        if is_short {
            self.bytes[SHORT - bytes.len()..].copy_from_slice(bytes);
            (self.len, self.counted, self.time_ns) = (bytes.len() as u16, frame.counted, frame.time_ns);
        } else {
            self.len = Self::LONG;
        }
        is_short
    }
}

/// Packets that are handed over together. Their buffers stay with it.
#[derive(Debug, Default)]
pub(super) struct HandoffBatch {
    packets: Vec<Handed>,
    len: usize,
    /// Those before this have been worked on.
    at: usize,
    /// The long frames, in order.
    frames: Vec<Frame>,
    frames_len: usize,
    frames_at: usize,
}

impl HandoffBatch {
    fn push(&mut self, burst: &mut Burst, lane: usize, resume_point: ResumePoint) {
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
    }

    /// Asks for a packet's lines, which another core has had.
    #[inline]
    fn prefetch(&self, at: usize) {
        if let Some(packet) = self.packets.get(at) {
            let packet: *const u8 = std::ptr::from_ref(packet).cast();
            let used = SHORT - LINE_BYTES..SHORT + 2 * LINE_BYTES;
            used.step_by(LINE_BYTES).for_each(|line| prefetch_at(packet.wrapping_add(line)));
        }
    }

    /// Moves the next packets, which came in through one port and go on in one place, into a burst. Gives that place; none where
    /// there are no more.
    pub(super) fn unpack(&mut self, burst: &mut Burst) -> Option<ResumePoint> {
        let first = self.packets[..self.len].get(self.at)?;
        let (port, resume_point) = (first.port, first.resume_point);
        if self.at == 0 {
            (1..self.len).for_each(|at| self.prefetch(at));
        }
        burst.clear_for(port as usize, u64::MAX);
        for packet in &mut self.packets[self.at..self.len] {
            if (packet.port, packet.resume_point) != (port, resume_point) {
                break;
            }
            let lane = burst.len();
            let Some(frame) = burst.frames.next_frame() else { break };
            if packet.len == Handed::LONG {
                std::mem::swap(frame, &mut self.frames[self.frames_at]);
                self.frames_at += 1;
                // Its headers are read when the whole burst is here.
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
            self.at += 1;
        }
        Some(resume_point)
    }

    /// Forgets all packets.
    fn clear(&mut self) {
        (self.len, self.at, self.frames_len, self.frames_at) = (0, 0, 0, 0);
    }
}

/// The way to one other worker.
struct HandoffTx {
    to: Producer<Box<HandoffBatch>>,
    back: Consumer<Box<HandoffBatch>>,
    filling: Option<Box<HandoffBatch>>,
    /// Rounds that this has been filled in.
    rounds: usize,
    /// Those for which there was no room in the ring.
    waiting: VecDeque<Box<HandoffBatch>>,
    waker: Notifier,
}

impl HandoffTx {
    /// The batch that is being filled is to go.
    fn seal(&mut self) {
        self.waiting.extend(self.filling.take());
        self.rounds = 0;
    }

    /// Sends what there is room for.
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

/// The way from one other worker.
struct HandoffRx {
    from: Consumer<Box<HandoffBatch>>,
    back: Producer<Box<HandoffBatch>>,
}

/// What one worker has counted of batches; no other's lies on its lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct BatchCounters {
    made: AtomicU64,
    worked_on: AtomicU64,
}

/// What workers that hand packets over to each other have in common.
#[derive(Debug)]
struct Group {
    /// Workers that may still receive from ports.
    receiving: AtomicUsize,
    batches: Box<[BatchCounters]>,
}

/// A worker's ways to and from all others, and its share of what they have in common.
pub(super) struct Links {
    me: usize,
    /// By worker; none to itself.
    senders: Vec<Option<HandoffTx>>,
    receivers: Vec<HandoffRx>,
    group: Arc<Group>,
    /// It receives nothing from ports any more.
    retired: bool,
}

impl Links {
    /// Those of as many workers as there are wakers.
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
                // There are no more batches on the way back than fit: those that were sent, and those in hand.
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

    /// Number of workers.
    #[inline]
    pub(super) fn workers(&self) -> usize {
        self.senders.len()
    }

    /// This worker's place among them.
    #[inline]
    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// Hands a lane's packet over to another worker. Its frame's place takes another frame, to be filled.
    pub(super) fn hand(&mut self, to: usize, burst: &mut Burst, lane: usize, resume_point: ResumePoint) {
        let sender = self.senders[to].as_mut().expect("no worker hands packets over to itself");
        let (back, made) = (&mut sender.back, &self.group.batches[self.me].made);
        let batch = sender.filling.get_or_insert_with(|| {
            // This worker alone writes it; and before what the batch is made of counts as worked on.
            made.store(made.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
            back.pop().unwrap_or_default()
        });
        batch.push(burst, lane, resume_point);
        if batch.len == PACKETS {
            sender.seal();
        }
    }

    /// Sends what has been handed over, as far as there is room. Where more packets are about to come, batches may be kept to be
    /// filled: with many workers a burst has few packets for each, and what a batch costs is to be for many.
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

    /// Whether some of what was handed over has found no room yet.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        self.senders.iter().flatten().any(|sender| !sender.waiting.is_empty())
    }

    /// Whether others have sent something.
    pub(super) fn has_incoming(&self) -> bool {
        self.receivers.iter().any(|receiver| !receiver.from.is_empty())
    }

    /// Number of ways from others.
    pub(super) fn receivers(&self) -> usize {
        self.receivers.len()
    }

    /// The next batch on a way from another worker.
    #[inline]
    pub(super) fn take(&mut self, receiver: usize) -> Option<Box<HandoffBatch>> {
        self.receivers[receiver].from.pop().ok()
    }

    /// A batch has been worked on; it goes back empty.
    pub(super) fn give_back(&mut self, receiver: usize, mut batch: Box<HandoffBatch>) {
        batch.clear();
        // Where there is no room for it, it is not needed.
        _ = self.receivers[receiver].back.push(batch);
        let worked_on = &self.group.batches[self.me].worked_on;
        worked_on.store(worked_on.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    /// This worker receives nothing more from ports.
    pub(super) fn retire(&mut self) {
        if !std::mem::replace(&mut self.retired, true) {
            self.group.receiving.fetch_sub(1, Ordering::SeqCst);
            self.wake_all();
        }
    }

    /// Whether all have come to their end: nobody receives, and nothing is under way.
    pub(super) fn is_over(&self) -> bool {
        let sum = |count: fn(&BatchCounters) -> &AtomicU64| -> u64 {
            self.group.batches.iter().map(|batches| count(batches).load(Ordering::SeqCst)).sum()
        };
        // New batches come of old ones before these count as worked on: so none is overlooked that is made between two looks.
        self.group.receiving.load(Ordering::SeqCst) == 0 && {
            let worked_on = sum(|batches| &batches.worked_on);
            worked_on == sum(|batches| &batches.made)
        }
    }

    /// All others are to look whether it is over.
    pub(super) fn wake_all(&self) {
        self.senders.iter().flatten().for_each(|sender| sender.waker.wake());
    }
}
