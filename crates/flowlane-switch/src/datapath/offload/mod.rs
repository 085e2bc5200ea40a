//! The worker's side of tables that answer later: packets are parked, keys gathered, batches sent when they are full or
//! due, answers taken as they come, packets let go in the order of their flows.
//!
//! What bounds it: a batch of each table is gathered while so many are under way as the table takes. Where all are,
//! the worker waits for the oldest instead of receiving more.

pub(super) mod reorder;

use std::time::{Duration, Instant};

use flowlane::classify::{AsyncEngine, Hit};
use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::execute::{NOWHERE, Way};
use super::lookup::Known;
use super::stages::Stage;
use super::validate::RunError;
use super::{Lookup, Worker};
use crate::datapath::{PathId, Walk};
use crate::packet::Burst;
use reorder::{State, WaitingCounters};

/// How long a packet waits at most for others to fill its batch, where nothing is said. The paper's GSwitch forwards
/// 64-byte frames at nearly 40 Gbit/s with this (Varvello and others, figure 10).
pub const MAX_DELAY: Duration = Duration::from_micros(100);

/// Batches' worth of packets of each table that may wait: those under way and gathered, and those behind them.
const BATCHES_WAITING_MAX: usize = 8;

/// A table's engine, which a packet waits for.
fn engine(lookup: &mut Lookup, table: u8) -> &mut dyn AsyncEngine {
    lookup.pipeline.deferred_mut(table).expect("packets wait only for tables that answer later")
}

impl Worker {
    /// How long a packet waits at most for others to fill its batch; [`MAX_DELAY`] where nothing is said.
    pub fn set_max_delay(&mut self, max_delay: Duration) {
        self.max_delay = max_delay;
    }

    /// What has happened to packets that waited.
    pub fn waiting_counters(&self) -> WaitingCounters {
        self.waiting.counters
    }

    /// Packets that wait for tables that answer later.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Parks the lanes that have no path (`left`), and those that may not overtake a packet that waits. Gives those that
    /// go on at once.
    pub(super) fn park_all(
        &mut self,
        burst: &mut Burst,
        live: LaneMask,
        left: LaneMask,
        paths: &mut [PathId; LANES_MAX],
    ) -> LaneMask {
        if left.is_empty() && self.waiting.is_empty() {
            return live;
        }
        let timer = self.stages.start();
        let generation = self.lookup.pipeline.generation();
        let mut going = live;
        for lane in live.lanes() {
            let frame = &mut burst.frames[lane];
            let (key, headers, now_ns) = (&burst.keys[lane], burst.headers[lane], burst.times_ns[lane]);
            let flow = self.waiting.flow_of(key);
            let mut known = Known::Path(paths[lane]);
            if left.0 >> lane & 1 == 1 {
                known = self.lookup.begin(key, frame.len(), now_ns);
            }
            let (table, state) = match known {
                Known::Path(path) if !self.waiting.stands(flow) => {
                    paths[lane] = path;
                    continue;
                }
                Known::Path(path) => (None, State::Found(path)),
                Known::Waits { table, walk } => (Some(table), State::Asked(walk)),
            };
            going.remove(lane);
            let sent = burst.sent.0 >> lane & 1 == 1;
            let at =
                self.waiting.park(frame, key, headers, (burst.port, now_ns, sent), generation, flow, state);
            match table {
                Some(table) => self.ask(table, at),
                None => self.waiting.counters.held += 1,
            }
        }
        if !left.is_empty() {
            self.stages.stop(Stage::SlowPath, left.len() as u64, timer);
        }
        going
    }

    /// Gathers the key of a packet that waits for a table.
    fn ask(&mut self, table: u8, at: u32) {
        while self.is_full(table) && !self.send_full(table) {
            self.waiting.counters.stalls += 1;
            self.receive(table, true);
        }
        let slot = self.waiting.slot(at);
        let key = match &slot.state {
            State::Asked(Some(walk)) => walk.key(),
            _ => &slot.key,
        };
        engine(&mut self.lookup, table).gather(key);
        let queue = self.waiting.queues.entry(table).or_default();
        queue.slots.push_back(at);
        queue.gathered_since.get_or_insert_with(Instant::now);
        self.waiting.counters.asked += 1;
        if self.is_full(table) {
            self.send_full(table);
        }
    }

    /// Whether a table's batch is full.
    fn is_full(&mut self, table: u8) -> bool {
        let deferred = engine(&mut self.lookup, table);
        deferred.gathered() == deferred.batch_max()
    }

    /// Sends a full batch. Says whether it did.
    fn send_full(&mut self, table: u8) -> bool {
        let sent = self.send(table);
        self.waiting.counters.batches_full += u64::from(sent);
        sent
    }

    /// Sends what is gathered for a table. Says whether it did.
    fn send(&mut self, table: u8) -> bool {
        if !engine(&mut self.lookup, table).send() {
            return false;
        }
        let queue = self.waiting.queues.entry(table).or_default();
        if let Some(since) = queue.gathered_since.take() {
            let waited = since.elapsed().as_nanos() as u64;
            let longest = &mut self.waiting.counters.longest_gathering_ns;
            *longest = waited.max(*longest);
        }
        true
    }

    /// Takes the answers to the oldest batch of a table. Says whether there was one.
    fn receive(&mut self, table: u8, wait: bool) -> bool {
        let Some(queue) = self.waiting.queues.get_mut(&table) else { return false };
        let mut hits = std::mem::take(&mut queue.hits);
        let received = engine(&mut self.lookup, table).receive(wait, &mut hits).is_some();
        if received {
            for hit in hits.drain(..) {
                let queue = self.waiting.queues.entry(table).or_default();
                let Some(at) = queue.slots.pop_front() else { break };
                self.answered(table, at, hit);
            }
        }
        self.waiting.queues.entry(table).or_default().hits = hits;
        received
    }

    /// A packet goes on with the answer of the table that it waited for.
    fn answered(&mut self, table: u8, at: u32, hit: Option<Hit>) {
        let generation = self.lookup.pipeline.generation();
        let slot = self.waiting.slot_mut(at);
        let State::Asked(walk) = &mut slot.state else {
            unreachable!("a packet in a queue waits for an answer")
        };
        let walk = walk.take();
        if slot.generation != generation {
            // Of rules that are gone, or of tables before this one.
            self.waiting.counters.outdated += 1;
            return self.look_up_anew(at);
        }
        let rule = hit.map(|hit| hit.rule);
        let (bytes, now_ns) = (slot.frame.len(), slot.now_ns);
        let queue = self.waiting.queues.entry(table).or_default();
        let from_entry = walk.is_none();
        if let (true, Some(path)) = (from_entry, queue.known(rule, generation)) {
            let key = &self.waiting.slot(at).key;
            let mask = engine(&mut self.lookup, table).looks_at().clone();
            let path = self.lookup.remember(key, mask, path, bytes, now_ns);
            return self.waiting.found(at, path);
        }
        let key = &self.waiting.slot(at).key;
        let mut walk = walk.unwrap_or_else(|| Box::new(Walk::new(key)));
        match self.lookup.pipeline.advance(&mut walk, Some(hit)) {
            Some(next) => {
                self.waiting.slot_mut(at).state = State::Asked(Some(walk));
                self.ask(next, at);
            }
            None => {
                let alone = from_entry && walk.is_decided_by_one_answer();
                let end = walk.end();
                let interned = self.lookup.paths.intern(end.steps);
                let path = self.lookup.remember(key, end.mask, interned, bytes, now_ns);
                if alone {
                    let queue = self.waiting.queues.entry(table).or_default();
                    queue.learn(rule, generation, interned);
                }
                self.waiting.found(at, path);
            }
        }
    }

    /// Looks a packet up without waiting for anything.
    fn look_up_anew(&mut self, at: u32) {
        let slot = self.waiting.slot_mut(at);
        let (bytes, now_ns) = (slot.frame.len(), slot.now_ns);
        slot.generation = self.lookup.pipeline.generation();
        let path = self.lookup.slow_path(&self.waiting.slot(at).key, bytes, now_ns);
        self.waiting.found(at, path);
    }

    /// Sends what is due, takes what answers there are, and lets go whose turn it is. Waits for nothing.
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub(super) fn poll(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let max_delay = self.max_delay;
        self.take_answers(|worker, table| {
            while worker.receive(table, false) {}
            let since = worker.waiting.queues[&table].gathered_since;
            if worker.is_full(table) {
                // All places were taken when it became full.
                worker.send_full(table);
            } else if since.is_some_and(|since| since.elapsed() >= max_delay) && worker.send(table) {
                worker.waiting.counters.batches_due += 1;
            }
        });
        self.release(burst)
    }

    /// Waits until no packet waits any more.
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn settle(&mut self) -> Result<(), RunError> {
        self.with_burst(Self::settle_by)
    }

    /// The same; what goes then goes in this burst.
    pub(super) fn settle_by(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        while !self.waiting.is_empty() {
            self.relieve(burst)?;
        }
        Ok(())
    }

    /// Waits until a burst of packets may be received.
    pub(super) fn wait_for_room(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        while !self.waiting.is_empty() && self.waiting.len() + burst.capacity() > self.waiting_max() {
            self.relieve(burst)?;
        }
        Ok(())
    }

    /// Packets that may wait.
    fn waiting_max(&self) -> usize {
        let tables = self.lookup.pipeline.deferred_tables();
        let packets: usize = tables.map(|(_, deferred)| BATCHES_WAITING_MAX * deferred.batch_max()).sum();
        packets.max(BATCHES_WAITING_MAX * LANES_MAX)
    }

    /// Waits for the oldest batch of each table.
    fn relieve(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        self.take_answers(|worker, table| {
            if worker.send(table) {
                worker.waiting.counters.batches_forced += 1;
            }
            worker.receive(table, true);
        });
        self.release(burst)
    }

    /// Does this for each table that packets wait for.
    fn take_answers(&mut self, mut each: impl FnMut(&mut Self, u8)) {
        let timer = self.stages.start();
        let before = self.waiting_answers();
        let mut next = self.waiting.queues.keys().next().copied();
        while let Some(table) = next {
            let deferred = self.lookup.pipeline.deferred_mut(table);
            match deferred.is_some_and(|deferred| deferred.gathered() + deferred.under_way() > 0) {
                true => each(self, table),
                false => self.answer_orphans(table),
            }
            next = self.waiting.queues.range(table..).nth(1).map(|(table, _)| *table);
        }
        let answers = before.saturating_sub(self.waiting_answers());
        self.stages.stop(Stage::Device, answers as u64, timer);
    }

    /// Looks up what waits for a table that has nothing to answer: somebody has put another one in its place.
    fn answer_orphans(&mut self, table: u8) {
        while let Some(at) = self.waiting.queues.entry(table).or_default().slots.pop_front() {
            self.look_up_anew(at);
        }
    }

    /// Packets that wait for answers.
    fn waiting_answers(&self) -> usize {
        self.waiting.queues.values().map(|queue| queue.slots.len()).sum()
    }

    /// Lets go whose turn it is, in the order in which it was.
    fn release(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        while let Some(port) = self.waiting.first_ready() {
            burst.clear_for(port, u64::MAX);
            let mut ways = NOWHERE;
            while !burst.frames.is_full() && self.waiting.first_ready() == Some(port) {
                let lane = burst.len();
                let frame = burst.frames.next_frame().expect("it is not full");
                let (at, path) = self.waiting.leave(frame).expect("one is ready");
                let slot = self.waiting.slot(at);
                let path = match slot.generation == self.lookup.pipeline.generation() {
                    true => path,
                    false => self.lookup.slow_path(&slot.key, frame.len(), slot.now_ns),
                };
                ways[lane] = Way::Path(path);
                burst.keys[lane].clone_from(&slot.key);
                (burst.headers[lane], burst.times_ns[lane]) = (slot.headers, slot.now_ns);
                burst.sent.0 |= u64::from(slot.sent) << lane;
                // Where it goes on to, one of its flow may be ready that has to be let go first.
                if self.lookup.paths.steps_without_marks(path).leads_on() {
                    break;
                }
            }
            self.act(burst, burst.lanes(), &mut ways)?;
        }
        Ok(())
    }
}
