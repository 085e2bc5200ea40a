//! Packets that one worker hands over to another, in order.
//!
//! A worker keeps what only its own packets change: its caches, and its share of each function's state. A packet that another
//! worker is to work on goes there with all that is known of it, and its buffer changes places with an empty one.
//!
//! ```text
//! hand ─► the parcel that is being filled ─► ring (bounded) ─► the other's next round
//!              ▲   full ring: waits, in order                      │
//!              └───────────────── empty parcels ◄──────────────────┘
//! ```
//!
//! Nothing is lost, and nobody waits for anybody: where a ring is full, parcels wait here, and as long as some do, their worker
//! receives nothing from its ports. So there are never more packets under way than there were when it stopped.
//!
//! *The end*: a worker is done when all have stopped receiving and all parcels that were ever made have been worked on.

use std::collections::VecDeque;
use std::sync::Arc;

use flowlane::memory::prefetch_at;
use flowlane::packet::{FlowKey, Headers, Miniflow};

use super::waker::Waker;
use crate::packet::{Burst, Frame};
use crate::sync::{AtomicU64, AtomicUsize, Consumer, Ordering, Producer, PushError, RingBuffer};

/// Packets in a parcel: what waits is bounded, and an atomic operation is for many.
const PACKETS: usize = 32;

/// Words of a key that a packet takes along, in two lines of a cache: an IPv6 packet with a tag or two has as many.
const KEY_WORDS: usize = 22;

/// Packets of a parcel that are asked for ahead of being filled.
const AHEAD: usize = 3;

/// Parcels in a ring.
const PARCELS: usize = 32;

/// Where a packet that was handed over goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entrance {
    /// It has come in, and nothing has been done with it.
    Port,
    /// It is before a function.
    Function(u8),
    /// It is half through a function.
    OtherHalf(u8),
}

/// A packet that has been handed over.
#[derive(Debug)]
struct Handed {
    frame: Frame,
    key: Miniflow<KEY_WORDS>,
    /// Where it has more words than that.
    whole_key: Option<Box<FlowKey>>,
    headers: Headers,
    /// The place of the port that it came in through.
    port: usize,
    now_ns: u64,
    /// Whether it has been sent somewhere.
    sent: bool,
    entrance: Entrance,
}

impl Default for Handed {
    fn default() -> Self {
        let (frame, key, headers) = (Frame::default(), Miniflow::EMPTY, Headers::default());
        Self {
            frame,
            key,
            whole_key: None,
            headers,
            port: 0,
            now_ns: 0,
            sent: false,
            entrance: Entrance::Port,
        }
    }
}

/// Packets that are handed over together. Their buffers stay with it.
#[derive(Debug, Default)]
pub(super) struct Parcel {
    packets: Vec<Handed>,
    len: usize,
    /// Those before this have been worked on.
    at: usize,
}

impl Parcel {
    fn push(&mut self, burst: &mut Burst, lane: usize, entrance: Entrance) {
        if self.len == self.packets.len() {
            self.packets.push(Handed::default());
        }
        self.prefetch(self.len + AHEAD);
        let packet = &mut self.packets[self.len];
        self.len += 1;
        std::mem::swap(&mut packet.frame, &mut burst.frames[lane]);
        if entrance != Entrance::Port {
            let key = &burst.keys[lane];
            let packed = Miniflow::pack(key);
            packet.whole_key = packed.is_none().then(|| Box::new(key.clone()));
            packet.key = packed.unwrap_or(Miniflow::EMPTY);
            packet.headers = burst.headers[lane];
        }
        (packet.port, packet.now_ns) = (burst.port, burst.times_ns[lane]);
        (packet.sent, packet.entrance) = (burst.sent.0 >> lane & 1 == 1, entrance);
    }

    /// Asks for a packet's lines, which another core has had.
    #[inline]
    fn prefetch(&self, at: usize) {
        if let Some(packet) = self.packets.get(at) {
            let packet: *const Handed = packet;
            (0..size_of::<Handed>())
                .step_by(64)
                .for_each(|line| prefetch_at(packet.cast::<u8>().wrapping_add(line)));
        }
    }

    /// Moves the next packets, which came in through one port and go on in one place, into a burst. Gives that place; none where
    /// there are no more.
    pub(super) fn unpack(&mut self, burst: &mut Burst) -> Option<Entrance> {
        let first = self.packets[..self.len].get(self.at)?;
        let (port, entrance) = (first.port, first.entrance);
        burst.clear_for(port, u64::MAX);
        (self.at..self.len).for_each(|at| self.prefetch(at));
        for packet in &mut self.packets[self.at..self.len] {
            if (packet.port, packet.entrance) != (port, entrance) {
                break;
            }
            let lane = burst.len();
            let Some(frame) = burst.frames.next_frame() else { break };
            std::mem::swap(frame, &mut packet.frame);
            // Its headers are read when the whole burst is here.
            prefetch_at(frame.bytes().as_ptr());
            burst.times_ns[lane] = packet.now_ns;
            burst.sent.0 |= u64::from(packet.sent) << lane;
            if entrance != Entrance::Port {
                match packet.whole_key.take() {
                    Some(key) => burst.keys[lane] = *key,
                    None => packet.key.unpack(&mut burst.keys[lane]),
                }
                burst.headers[lane] = packet.headers;
            }
            self.at += 1;
        }
        Some(entrance)
    }
}

/// The way to one other worker.
struct Outlet {
    to: Producer<Box<Parcel>>,
    back: Consumer<Box<Parcel>>,
    filling: Option<Box<Parcel>>,
    /// Those for which there was no room in the ring.
    waiting: VecDeque<Box<Parcel>>,
    waker: Waker,
}

impl Outlet {
    /// The parcel that is being filled is to go.
    fn seal(&mut self) {
        self.waiting.extend(self.filling.take());
    }

    /// Sends what there is room for.
    fn send(&mut self) {
        let mut sent = false;
        while let Some(parcel) = self.waiting.pop_front() {
            if let Err(PushError::Full(parcel)) = self.to.push(parcel) {
                self.waiting.push_front(parcel);
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
struct Inlet {
    from: Consumer<Box<Parcel>>,
    back: Producer<Box<Parcel>>,
}

/// What one worker has counted of parcels; no other's lies on its lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Parcels {
    made: AtomicU64,
    worked_on: AtomicU64,
}

/// What workers that hand packets over to each other have in common.
#[derive(Debug)]
struct Group {
    /// Workers that may still receive from ports.
    receiving: AtomicUsize,
    parcels: Box<[Parcels]>,
}

/// A worker's ways to and from all others, and its share of what they have in common.
pub(super) struct Links {
    me: usize,
    /// By worker; none to itself.
    outlets: Vec<Option<Outlet>>,
    inlets: Vec<Inlet>,
    group: Arc<Group>,
    /// It receives nothing from ports any more.
    retired: bool,
}

impl Links {
    /// Those of as many workers as there are wakers.
    pub(super) fn between(wakers: &[Waker]) -> Vec<Self> {
        let workers = wakers.len();
        let group = Arc::new(Group {
            receiving: AtomicUsize::new(workers),
            parcels: (0..workers).map(|_| Parcels::default()).collect(),
        });
        let of =
            |me| Self { me, outlets: Vec::new(), inlets: Vec::new(), group: group.clone(), retired: false };
        let mut all: Vec<Self> = (0..workers).map(of).collect();
        for from in 0..workers {
            for to in 0..workers {
                if from == to {
                    all[from].outlets.push(None);
                    continue;
                }
                let (sender, receiver) = RingBuffer::new(PARCELS);
                // There are no more parcels on the way back than fit: those that were sent, and those in hand.
                let (giver, taker) = RingBuffer::new(2 * PARCELS);
                let waker = wakers[to].clone();
                let (filling, waiting) = (None, VecDeque::new());
                all[from].outlets.push(Some(Outlet { to: sender, back: taker, filling, waiting, waker }));
                all[to].inlets.push(Inlet { from: receiver, back: giver });
            }
        }
        all
    }

    /// Number of workers.
    #[inline]
    pub(super) fn workers(&self) -> usize {
        self.outlets.len()
    }

    /// This worker's place among them.
    #[inline]
    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// Hands a lane's packet over to another worker. Its frame's place takes another frame, to be filled.
    pub(super) fn hand(&mut self, to: usize, burst: &mut Burst, lane: usize, entrance: Entrance) {
        let outlet = self.outlets[to].as_mut().expect("nobody hands packets over to itself");
        let (back, made) = (&mut outlet.back, &self.group.parcels[self.me].made);
        let parcel = outlet.filling.get_or_insert_with(|| {
            // This worker alone writes it; and before what the parcel is made of counts as worked on.
            made.store(made.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
            back.pop().unwrap_or_default()
        });
        parcel.push(burst, lane, entrance);
        if parcel.len == PACKETS {
            outlet.seal();
        }
    }

    /// Sends what has been handed over, as far as there is room.
    #[inline]
    pub(super) fn send(&mut self) {
        for outlet in self.outlets.iter_mut().flatten() {
            outlet.seal();
            if !outlet.waiting.is_empty() {
                outlet.send();
            }
        }
    }

    /// Whether some of what was handed over has found no room yet.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        self.outlets.iter().flatten().any(|outlet| !outlet.waiting.is_empty())
    }

    /// Whether others have sent something.
    pub(super) fn has_incoming(&self) -> bool {
        self.inlets.iter().any(|inlet| !inlet.from.is_empty())
    }

    /// Number of ways from others.
    pub(super) fn inlets(&self) -> usize {
        self.inlets.len()
    }

    /// The next parcel on a way from another worker.
    #[inline]
    pub(super) fn take(&mut self, inlet: usize) -> Option<Box<Parcel>> {
        self.inlets[inlet].from.pop().ok()
    }

    /// A parcel has been worked on; it goes back empty.
    pub(super) fn give_back(&mut self, inlet: usize, mut parcel: Box<Parcel>) {
        (parcel.len, parcel.at) = (0, 0);
        // Where there is no room for it, it is not needed.
        _ = self.inlets[inlet].back.push(parcel);
        let worked_on = &self.group.parcels[self.me].worked_on;
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
        let sum = |count: fn(&Parcels) -> &AtomicU64| -> u64 {
            self.group.parcels.iter().map(|parcels| count(parcels).load(Ordering::SeqCst)).sum()
        };
        // New parcels come of old ones before these count as worked on: so none is overlooked that is made between two looks.
        self.group.receiving.load(Ordering::SeqCst) == 0 && {
            let worked_on = sum(|parcels| &parcels.worked_on);
            worked_on == sum(|parcels| &parcels.made)
        }
    }

    /// All others are to look whether it is over.
    pub(super) fn wake_all(&self) {
        self.outlets.iter().flatten().for_each(|outlet| outlet.waker.wake());
    }
}
