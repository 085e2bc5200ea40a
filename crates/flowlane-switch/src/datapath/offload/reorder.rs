//! Packets that wait for an offloaded table, and those that may not overtake them.
//!
//! Each flow has a queue, a *line*, and its packets leave in order: a packet whose path is known at once waits there, too, while
//! another of its flow waits. A line is selected by a few hash bits of the addresses: a packet may wait for another flow's now
//! and then, but never overtakes its own.
//!
//! ```text
//! no path ──► asked: a queue for each table, until answers come ─┐
//! path, but others of its flow wait ─────────────────────────────┴─► first of its flow? ──► ready
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use flowlane::classify::Hit;
use flowlane::hash::multilinear::{Multilinear, finish, term};
use flowlane::packet::Headers;
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::rule::RuleId;
use flowlane::rule::action::PortNo;

use crate::datapath::calls::PacketState;
use crate::datapath::path::PathId;
use crate::datapath::xlate::Walk;
use crate::packet::Frame;

/// Number of lines.
const FLOWS: usize = 4096;

/// No slot.
const NONE: u32 = u32::MAX;

/// The event that a packet waits for.
#[derive(Debug)]
pub(in crate::datapath) enum State {
    /// The answer of a table, with the walk up to there; `None` if that is the packet's first table.
    Asked(Option<Box<Walk>>),
    /// Its turn to leave: its path is known.
    Found(PathId),
}

/// Where a packet that waits comes from, and what has happened to it.
#[derive(Debug, Default)]
pub(in crate::datapath) struct OnItsWay {
    /// The index of its input port.
    pub(in crate::datapath) port: usize,
    /// The time of its arrival.
    pub(in crate::datapath) now_ns: u64,
    /// Whether it has been sent somewhere.
    pub(in crate::datapath) sent: bool,
    /// The port that an action says it came in through.
    pub(in crate::datapath) source: Option<PortNo>,
    pub(in crate::datapath) state: Option<PacketState>,
}

/// A packet that waits.
#[derive(Debug)]
pub(in crate::datapath) struct Slot {
    pub(in crate::datapath) frame: Frame,
    pub(in crate::datapath) key: FlowKey,
    pub(in crate::datapath) headers: Headers,
    pub(in crate::datapath) on_its_way: OnItsWay,
    /// The ruleset's generation when it was looked up.
    pub(in crate::datapath) generation: u32,
    pub(in crate::datapath) state: State,
    flow: u32,
    /// The next packet in its line.
    next: u32,
}

/// The waiting packets of a flow, a list of slots.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
}

/// The packets that wait for a table.
#[derive(Debug, Default)]
pub(in crate::datapath) struct Queue {
    /// In the order in which their keys were gathered.
    pub(in crate::datapath) slots: VecDeque<u32>,
    /// When the oldest unsent key was gathered; `None` if all have been sent.
    pub(in crate::datapath) gathered_since: Option<Instant>,
    /// Buffer for answers, reused by each reception.
    pub(in crate::datapath) hits: Vec<Option<Hit>>,
    /// The path that follows from an answer, if the answer alone decides it: by rule ID plus one; 0 for a miss. All of one
    /// `generation`.
    answers: Vec<u32>,
    generation: u32,
}

impl Queue {
    fn place(rule: Option<RuleId>) -> usize {
        rule.map_or(0, |rule| rule.0 as usize + 1)
    }

    /// Returns the path that follows from this answer, if known.
    pub(in crate::datapath) fn known(&self, rule: Option<RuleId>, generation: u32) -> Option<PathId> {
        let path = *self.answers.get(Self::place(rule))?;
        (path != NONE && self.generation == generation).then_some(PathId(path))
    }

    /// Records the path that follows from an answer.
    pub(in crate::datapath) fn learn(&mut self, rule: Option<RuleId>, generation: u32, path: PathId) {
        if self.generation != generation {
            self.answers.clear();
            self.generation = generation;
        }
        let place = Self::place(rule);
        if self.answers.len() <= place {
            self.answers.resize(place + 1, NONE);
        }
        self.answers[place] = path.0;
    }

    /// Clears the recorded paths.
    pub(in crate::datapath) fn forget(&mut self) {
        self.answers.clear();
    }
}

/// Counters of packets that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounters {
    /// Lookups of packets in offloaded tables.
    pub asked: u64,
    /// Packets with a known path that waited for others of their flow.
    pub held: u64,
    /// Batches sent because they were full.
    pub batches_full: u64,
    /// Batches sent because their oldest packet had waited for the maximum delay.
    pub batches_due: u64,
    /// Batches sent because no more packets came, or room was needed.
    pub batches_forced: u64,
    /// Waits for a batch because the maximum number was in flight.
    pub stalls: u64,
    /// Packets that were looked up again, since rules changed while they waited.
    pub outdated: u64,
    /// Maximum number of packets waiting at a time.
    pub most: usize,
    /// Maximum time from gathering a key to sending its batch, in nanoseconds.
    pub longest_gathering_ns: u64,
}

/// The packets that wait.
pub(in crate::datapath) struct Waiting {
    slots: Vec<Slot>,
    free: Vec<u32>,
    lines: Box<[Line]>,
    flow_hash: Multilinear,
    /// By table.
    pub(in crate::datapath) queues: BTreeMap<u8, Queue>,
    ready: VecDeque<u32>,
    pub(in crate::datapath) counters: WaitingCounters,
}

impl Waiting {
    /// Makes an empty set of waiting packets. `seed` is secret.
    pub(in crate::datapath) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            lines: vec![Line { first: NONE, last: NONE }; FLOWS].into(),
            flow_hash: Multilinear::new(seed),
            queues: BTreeMap::new(),
            ready: VecDeque::new(),
            counters: WaitingCounters::default(),
        }
    }

    /// Returns the number of packets that wait.
    #[inline]
    pub(in crate::datapath) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether no packet waits.
    #[inline]
    pub(in crate::datapath) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the line of packets with this key. Hashes addresses only, which fragments have, too.
    pub(in crate::datapath) fn flow_of(&self, key: &FlowKey) -> u32 {
        let words = (word::ETH..word::ETH + 3).chain(word::IPV6_SRC..word::IPV6_SRC + 8);
        let words = words.chain([word::IPV4_SRC, word::IPV4_DST]);
        let terms = words.map(|w| term(self.flow_hash.multiplier(w), key.word(w)));
        finish(terms.fold(0, u64::wrapping_add)) % FLOWS as u32
    }

    /// Returns whether packets wait in this line.
    pub(in crate::datapath) fn stands(&self, flow: u32) -> bool {
        self.lines[flow as usize].first != NONE
    }

    /// Appends a packet to its line; returns its slot. Swaps its frame with an unused one.
    #[expect(clippy::too_many_arguments, reason = "what a packet is, once")]
    pub(in crate::datapath) fn park(
        &mut self,
        frame: &mut Frame,
        key: &FlowKey,
        headers: Headers,
        on_its_way: OnItsWay,
        generation: u32,
        flow: u32,
        state: State,
    ) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            let slot = Slot {
                frame: Frame::default(),
                key: FlowKey::zero(),
                headers,
                on_its_way: OnItsWay::default(),
                generation,
                state: State::Found(PathId(NONE)),
                flow,
                next: NONE,
            };
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        });
        let first = !self.stands(flow);
        let is_found = matches!(state, State::Found(_));
        let slot = &mut self.slots[at as usize];
        std::mem::swap(&mut slot.frame, frame);
        slot.key.clone_from(key);
        (slot.headers, slot.on_its_way) = (headers, on_its_way);
        (slot.generation, slot.state, slot.flow, slot.next) = (generation, state, flow, NONE);
        let line = &mut self.lines[flow as usize];
        match first {
            true => line.first = at,
            false => self.slots[line.last as usize].next = at,
        }
        line.last = at;
        if first && is_found {
            self.ready.push_back(at);
        }
        self.counters.most = self.counters.most.max(self.len());
        at
    }

    pub(in crate::datapath) fn slot(&self, at: u32) -> &Slot {
        &self.slots[at as usize]
    }

    /// Returns a packet's slot. Only [`found`](Self::found) makes it ready.
    pub(in crate::datapath) fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.slots[at as usize]
    }

    /// Sets a packet's path: it is ready once it is the first of its flow.
    pub(in crate::datapath) fn found(&mut self, at: u32, path: PathId) {
        let slot = &mut self.slots[at as usize];
        slot.state = State::Found(path);
        if self.lines[slot.flow as usize].first == at {
            self.ready.push_back(at);
        }
    }

    /// Returns the input port of the next packet that is ready.
    pub(in crate::datapath) fn first_ready(&self) -> Option<usize> {
        self.ready.front().map(|&at| self.slot(at).on_its_way.port)
    }

    /// Removes the [first ready](Self::first_ready) packet and swaps its frame with `frame`. Returns its slot and path; the slot
    /// keeps its key and headers until another packet is parked.
    pub(in crate::datapath) fn leave(&mut self, frame: &mut Frame) -> Option<(u32, PathId)> {
        let at = self.ready.pop_front()?;
        let slot = &mut self.slots[at as usize];
        let State::Found(path) = std::mem::replace(&mut slot.state, State::Found(PathId(NONE))) else {
            unreachable!("only what has a path is ready")
        };
        std::mem::swap(&mut slot.frame, frame);
        let (flow, next) = (slot.flow, slot.next);
        self.free.push(at);
        let line = &mut self.lines[flow as usize];
        line.first = next;
        if next == NONE {
            line.last = NONE;
        } else if matches!(self.slots[next as usize].state, State::Found(_)) {
            self.ready.push_back(next);
        }
        Some((at, path))
    }

    /// Returns the paths of the packets that wait. Clears the paths recorded for answers, which are not returned.
    pub(in crate::datapath) fn paths(&mut self) -> impl Iterator<Item = PathId> + '_ {
        self.queues.values_mut().for_each(Queue::forget);
        let found = |slot: &Slot| match slot.state {
            State::Found(path) if path.0 != NONE => Some(path),
            _ => None,
        };
        self.slots.iter().filter_map(found)
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::Field;

    use super::*;

    struct Lines(Waiting);

    impl Lines {
        fn park(&mut self, name: u8, address: u32, state: State) -> u32 {
            let mut key = FlowKey::zero();
            key.set(Field::Ipv4Src, address.into());
            let mut frame = Frame::default();
            frame.fill(&[name]);
            let flow = self.0.flow_of(&key);
            self.0.park(&mut frame, &key, Headers::default(), OnItsWay::default(), 0, flow, state)
        }

        fn leaving(&mut self) -> Vec<u8> {
            let mut frame = Frame::default();
            std::iter::from_fn(|| self.0.leave(&mut frame).map(|_| frame.bytes()[0])).collect()
        }
    }

    #[test]
    fn a_packet_leaves_when_all_of_its_flow_before_it_have_left() {
        let mut lines = Lines(Waiting::new(7));
        let found = || State::Found(PathId(1));
        let a = lines.park(b'a', 1, State::Asked(None));
        lines.park(b'b', 1, found());
        let c = lines.park(b'c', 1, State::Asked(None));
        let x = lines.park(b'x', 2, State::Asked(None));
        lines.park(b'y', 2, found());
        assert_eq!(lines.leaving(), b"", "the first of both flows wait");
        lines.0.found(c, PathId(3));
        assert_eq!(lines.leaving(), b"", "c has its answer before a");
        lines.0.found(x, PathId(4));
        assert_eq!(lines.leaving(), b"xy");
        lines.0.found(a, PathId(5));
        lines.park(b'd', 1, found());
        assert_eq!(lines.leaving(), b"abcd");
        assert!(lines.0.is_empty() && (0..FLOWS as u32).all(|flow| !lines.0.stands(flow)));
        // Slots are reused.
        lines.park(b'e', 1, found());
        assert_eq!((lines.leaving(), lines.0.slots.len()), (b"e".to_vec(), 5));
    }

    #[test]
    fn what_answers_lead_to_is_of_one_generation() {
        let mut queue = Queue::default();
        queue.learn(Some(RuleId(4)), 1, PathId(7));
        queue.learn(None, 1, PathId(8));
        assert_eq!(queue.known(Some(RuleId(4)), 1), Some(PathId(7)));
        assert_eq!(queue.known(None, 1), Some(PathId(8)));
        assert_eq!(queue.known(Some(RuleId(3)), 1), None);
        assert_eq!(queue.known(Some(RuleId(9)), 1), None);
        assert_eq!(queue.known(Some(RuleId(4)), 2), None);
        queue.learn(Some(RuleId(1)), 2, PathId(9));
        assert_eq!(
            (queue.known(Some(RuleId(4)), 2), queue.known(Some(RuleId(1)), 2)),
            (None, Some(PathId(9)))
        );
    }
}
