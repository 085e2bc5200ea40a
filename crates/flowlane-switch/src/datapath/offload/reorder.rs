//! Packets that wait for a table that answers later, and those that may not overtake them.
//!
//! A packet of a flow leaves when all before it have left: packets stand in a line for each flow, and one whose path is
//! known at once waits there, too, while another of its flow waits. Flows differ by addresses only, and by few
//! bits of a hash: that makes a packet wait for another flow's now and then, and never lets one overtake its own.
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

use crate::datapath::path::PathId;
use crate::datapath::xlate::Walk;
use crate::packet::Frame;

/// Lines in which flows stand.
const FLOWS: usize = 4096;

/// No slot.
const NONE: u32 = u32::MAX;

/// What a packet waits for.
#[derive(Debug)]
pub(in crate::datapath) enum State {
    /// The answer of a table. The walk that has come there; none where that is the first table, which nothing has
    /// happened before.
    Asked(Option<Box<Walk>>),
    /// Its turn.
    Found(PathId),
}

/// A packet that waits.
#[derive(Debug)]
pub(in crate::datapath) struct Slot {
    pub(in crate::datapath) frame: Frame,
    pub(in crate::datapath) key: FlowKey,
    pub(in crate::datapath) headers: Headers,
    /// The place of the port that it came in through.
    pub(in crate::datapath) port: usize,
    /// When it came.
    pub(in crate::datapath) now_ns: u64,
    /// Whether it has been sent somewhere.
    pub(in crate::datapath) sent: bool,
    /// The rules' generation when it was looked up.
    pub(in crate::datapath) generation: u32,
    pub(in crate::datapath) state: State,
    flow: u32,
    /// The next of its flow.
    next: u32,
}

/// A line of packets of a flow, by their slots.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
}

/// What waits for a table.
#[derive(Debug, Default)]
pub(in crate::datapath) struct Queue {
    /// In the order in which their keys were gathered.
    pub(in crate::datapath) slots: VecDeque<u32>,
    /// When the oldest key was gathered that has not been sent; none where all have.
    pub(in crate::datapath) gathered_since: Option<Instant>,
    /// Answers, between two receptions.
    pub(in crate::datapath) hits: Vec<Option<Hit>>,
    /// The path that an answer leads to, where it alone decides: by the rule's number plus one, and first that of
    /// no rule. Of one generation.
    answers: Vec<u32>,
    generation: u32,
}

impl Queue {
    fn place(rule: Option<RuleId>) -> usize {
        rule.map_or(0, |rule| rule.0 as usize + 1)
    }

    /// The path that this answer is known to lead to.
    pub(in crate::datapath) fn known(&self, rule: Option<RuleId>, generation: u32) -> Option<PathId> {
        let path = *self.answers.get(Self::place(rule))?;
        (path != NONE && self.generation == generation).then_some(PathId(path))
    }

    /// Notes where an answer leads.
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

    /// Forgets where answers lead.
    pub(in crate::datapath) fn forget(&mut self) {
        self.answers.clear();
    }
}

/// Counters of packets that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounters {
    /// Packets that a table was asked for that answers later: for each time.
    pub asked: u64,
    /// Packets whose path was known and that waited for others of their flow.
    pub held: u64,
    /// Batches that left since they were full.
    pub batches_full: u64,
    /// Batches that left since their oldest packet had waited as long as it may.
    pub batches_due: u64,
    /// Batches that left since nothing more came, or room was needed.
    pub batches_forced: u64,
    /// Times that a batch had to be waited for, since as many were under way as may be.
    pub stalls: u64,
    /// Packets that waited for answers of rules that have changed meanwhile, and were looked up again.
    pub outdated: u64,
    /// The most packets that waited at a time.
    pub most: usize,
    /// The longest that a packet waited between its key's being gathered and its batch's being sent, in nanoseconds.
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
    /// Nothing waits. `seed` is secret.
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

    /// Packets that wait.
    #[inline]
    pub(in crate::datapath) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no packet waits.
    #[inline]
    pub(in crate::datapath) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The line in which packets with this key stand: of addresses only, which fragments have like others.
    pub(in crate::datapath) fn flow_of(&self, key: &FlowKey) -> u32 {
        let words = (word::ETH..word::ETH + 3).chain(word::IPV6_SRC..word::IPV6_SRC + 8);
        let words = words.chain([word::IPV4_SRC, word::IPV4_DST]);
        let terms = words.map(|w| term(self.flow_hash.multiplier(w), key.word(w)));
        finish(terms.fold(0, u64::wrapping_add)) % FLOWS as u32
    }

    /// Whether packets stand in this line.
    pub(in crate::datapath) fn stands(&self, flow: u32) -> bool {
        self.lines[flow as usize].first != NONE
    }

    /// Puts a packet at the end of its line. Its frame's place takes another frame, to be filled.
    #[expect(clippy::too_many_arguments, reason = "what a packet is, once")]
    pub(in crate::datapath) fn park(
        &mut self,
        frame: &mut Frame,
        key: &FlowKey,
        headers: Headers,
        (port, now_ns, sent): (usize, u64, bool),
        generation: u32,
        flow: u32,
        state: State,
    ) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            let slot = Slot {
                frame: Frame::default(),
                key: FlowKey::zero(),
                headers,
                port,
                now_ns,
                sent,
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
        (slot.headers, slot.port, slot.now_ns, slot.sent) = (headers, port, now_ns, sent);
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

    /// What a packet waits for, to be changed by [`found`](Self::found).
    pub(in crate::datapath) fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.slots[at as usize]
    }

    /// A packet's path is known: it leaves when it is the first of its flow.
    pub(in crate::datapath) fn found(&mut self, at: u32, path: PathId) {
        let slot = &mut self.slots[at as usize];
        slot.state = State::Found(path);
        if self.lines[slot.flow as usize].first == at {
            self.ready.push_back(at);
        }
    }

    /// Where the next packet came in whose turn it is.
    pub(in crate::datapath) fn first_ready(&self) -> Option<usize> {
        self.ready.front().map(|&at| self.slot(at).port)
    }

    /// Lets the [first](Self::first_ready) go: its frame changes places with this one. Gives its path and the generation
    /// of which that is; its key and headers are in its slot until another packet is parked.
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

    /// The paths that packets here will take, and forgets those that only answers lead to.
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
            self.0.park(&mut frame, &key, Headers::default(), (0, 0, false), 0, flow, state)
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
        // Slots are used again.
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
