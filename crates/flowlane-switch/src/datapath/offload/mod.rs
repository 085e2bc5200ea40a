//! The worker's side of offloaded tables: packets are parked, keys gathered, batches sent when they are full or due, answers
//! received as they come, and packets released in the order of their flows.
//!
//! Bounds: a table has as many batches in flight as it takes, and one more is gathered. If all are full, the worker waits for the
//! oldest batch instead of receiving more packets.

pub(super) mod reorder;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use flowlane::classify::{AsyncEngine, Hit};
use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::execute::{Cursor, Cursors};
use super::lookup::Upcall;
use super::path::PathId;
use super::stages::Stage;
use super::xlate::{Walk, advance};
use super::{Lookup, Worker};
use crate::packet::Burst;
use reorder::{OnItsWay, State};

/// The default of the maximum time that a packet waits for others to fill its batch. The paper's GSwitch forwards 64-byte frames
/// at nearly 40 Gbit/s with it (Varvello and others, figure 10).
pub const MAX_DELAY: Duration = Duration::from_micros(100);

/// Maximum packets that wait per table, in batches: in flight, gathered, and behind those.
const BATCHES_WAITING_MAX: usize = 8;

/// Returns the engine of a table that a packet waits for.
fn engine(lookup: &mut Lookup, table: u8) -> &mut dyn AsyncEngine {
    lookup.pipeline.deferred_mut(table).expect("packets wait only for tables that answer later")
}

/// Parks the lanes that have no path (`left`), and those that may not overtake a packet that waits. Returns the lanes that
/// continue at once.
pub(super) fn park_all(
    worker: &mut Worker,
    burst: &mut Burst,
    live: LaneMask,
    left: LaneMask,
    paths: &mut [PathId; LANES_MAX],
) -> LaneMask {
    if left.is_empty() && worker.waiting.is_empty() {
        return live;
    }
    let timer = worker.stages.start();
    let generation = worker.lookup.pipeline.generation();
    let mut going = live;
    for lane in live.lanes() {
        let frame = &mut burst.frames[lane];
        let (key, headers, now_ns) = (&burst.keys[lane], burst.headers[lane], burst.times_ns[lane]);
        let flow = worker.waiting.flow_of(key);
        let mut known = Upcall::Path(paths[lane]);
        if left.0 >> lane & 1 == 1 {
            known = worker.lookup.begin(key, frame.len(), now_ns);
        }
        let (table, state) = match known {
            Upcall::Path(path) if !worker.waiting.stands(flow) => {
                paths[lane] = path;
                continue;
            }
            Upcall::Path(path) => (None, State::Found(path)),
            Upcall::Waits { table, walk } => (Some(table), State::Asked(walk)),
        };
        going.remove(lane);
        let on_its_way = OnItsWay {
            port: burst.port,
            now_ns,
            sent: burst.sent.0 >> lane & 1 == 1,
            source: burst.sources.remove(&lane),
            state: worker.calls.take_state(lane),
        };
        let at = worker.waiting.park(frame, key, headers, on_its_way, generation, flow, state);
        match table {
            Some(table) => ask(worker, table, at),
            None => worker.waiting.counters.held += 1,
        }
    }
    if !left.is_empty() {
        worker.stages.stop(Stage::SlowPath, left.len() as u64, timer);
    }
    going
}

/// Adds the key of a packet that waits for a table to the table's batch.
fn ask(worker: &mut Worker, table: u8, at: u32) {
    while is_batch_full(worker, table) && !send_full(worker, table) {
        worker.waiting.counters.stalls += 1;
        receive(worker, table, true);
    }
    let slot = worker.waiting.slot(at);
    let key = match &slot.state {
        State::Asked(Some(walk)) => walk.key(),
        _ => Cow::Borrowed(&slot.key),
    };
    engine(&mut worker.lookup, table).gather(&key);
    let queue = worker.waiting.queues.entry(table).or_default();
    queue.slots.push_back(at);
    queue.gathered_since.get_or_insert_with(Instant::now);
    worker.waiting.counters.asked += 1;
    if is_batch_full(worker, table) {
        send_full(worker, table);
    }
}

/// Returns whether a table's batch is full.
fn is_batch_full(worker: &mut Worker, table: u8) -> bool {
    let deferred = engine(&mut worker.lookup, table);
    deferred.gathered() == deferred.batch_max()
}

/// Sends a full batch. Returns whether it did.
fn send_full(worker: &mut Worker, table: u8) -> bool {
    let sent = send(worker, table);
    worker.waiting.counters.batches_full += u64::from(sent);
    sent
}

/// Sends a table's batch. Returns whether it did.
fn send(worker: &mut Worker, table: u8) -> bool {
    if !engine(&mut worker.lookup, table).send() {
        return false;
    }
    let queue = worker.waiting.queues.entry(table).or_default();
    if let Some(since) = queue.gathered_since.take() {
        let waited = since.elapsed().as_nanos() as u64;
        let longest = &mut worker.waiting.counters.longest_gathering_ns;
        *longest = waited.max(*longest);
    }
    true
}

/// Receives the answers to the oldest batch of a table. Returns whether there were any.
fn receive(worker: &mut Worker, table: u8, wait: bool) -> bool {
    let Some(queue) = worker.waiting.queues.get_mut(&table) else { return false };
    let mut hits = std::mem::take(&mut queue.hits);
    let received = engine(&mut worker.lookup, table).receive(wait, &mut hits).is_some();
    if received {
        for hit in hits.drain(..) {
            let queue = worker.waiting.queues.entry(table).or_default();
            let Some(at) = queue.slots.pop_front() else { break };
            answered(worker, table, at, hit);
        }
    }
    worker.waiting.queues.entry(table).or_default().hits = hits;
    received
}

/// Continues a packet with the answer of the table that it waited for.
fn answered(worker: &mut Worker, table: u8, at: u32, hit: Option<Hit>) {
    let generation = worker.lookup.pipeline.generation();
    let slot = worker.waiting.slot_mut(at);
    let State::Asked(walk) = &mut slot.state else { unreachable!("a packet in a queue waits for an answer") };
    let walk = walk.take();
    if slot.generation != generation {
        // Rules of this table or of earlier ones may have changed.
        worker.waiting.counters.outdated += 1;
        return relookup(worker, at);
    }
    let rule = hit.map(|hit| hit.rule);
    let (bytes, now_ns) = (slot.frame.len(), slot.on_its_way.now_ns);
    let queue = worker.waiting.queues.entry(table).or_default();
    let from_entry = walk.is_none();
    if let (true, Some(path)) = (from_entry, queue.known(rule, generation)) {
        let key = &worker.waiting.slot(at).key;
        let mask = engine(&mut worker.lookup, table).looks_at().clone();
        let path = worker.lookup.remember(key, mask, path, bytes, now_ns);
        return worker.waiting.found(at, path);
    }
    let key = &worker.waiting.slot(at).key;
    let mut walk = walk.unwrap_or_else(|| Box::new(Walk::new(key)));
    match advance(&worker.lookup.pipeline, &mut walk, Some(hit)) {
        Some(next) => {
            worker.waiting.slot_mut(at).state = State::Asked(Some(walk));
            ask(worker, next, at);
        }
        None => {
            let alone = from_entry && walk.is_decided_by_one_answer();
            let end = walk.end();
            let interned = worker.lookup.paths.intern(end.steps);
            let path = worker.lookup.remember(key, end.mask, interned, bytes, now_ns);
            if alone {
                let queue = worker.waiting.queues.entry(table).or_default();
                queue.learn(rule, generation, interned);
            }
            worker.waiting.found(at, path);
        }
    }
}

/// Looks a packet up again, without waiting for a device.
fn relookup(worker: &mut Worker, at: u32) {
    let slot = worker.waiting.slot_mut(at);
    let (bytes, now_ns) = (slot.frame.len(), slot.on_its_way.now_ns);
    slot.generation = worker.lookup.pipeline.generation();
    let path = worker.lookup.slow_path(&worker.waiting.slot(at).key, bytes, now_ns);
    worker.waiting.found(at, path);
}

/// Sends the batches that are due, and receives the answers that have come, without waiting.
pub(super) fn poll(worker: &mut Worker) {
    let max_delay = worker.max_delay;
    take_answers(worker, |worker, table| {
        while receive(worker, table, false) {}
        let since = worker.waiting.queues[&table].gathered_since;
        if is_batch_full(worker, table) {
            // The table's queue was full when the batch became full.
            send_full(worker, table);
        } else if since.is_some_and(|since| since.elapsed() >= max_delay) && send(worker, table) {
            worker.waiting.counters.batches_due += 1;
        }
    });
}

/// Returns whether too many packets wait to receive `more`.
pub(super) fn is_full(worker: &Worker, more: usize) -> bool {
    !worker.waiting.is_empty() && worker.waiting.len() + more > waiting_max(worker)
}

/// Returns the maximum number of packets that wait.
fn waiting_max(worker: &Worker) -> usize {
    let tables = worker.lookup.pipeline.deferred_tables();
    let packets: usize = tables.map(|(_, deferred)| BATCHES_WAITING_MAX * deferred.batch_max()).sum();
    packets.max(BATCHES_WAITING_MAX * LANES_MAX)
}

/// Waits for the oldest batch of each table.
pub(super) fn wait_oldest_batch(worker: &mut Worker) {
    take_answers(worker, |worker, table| {
        if send(worker, table) {
            worker.waiting.counters.batches_forced += 1;
        }
        receive(worker, table, true);
    });
}

/// Calls `each` for every table with keys to answer; looks up packets of other tables again.
fn take_answers(worker: &mut Worker, mut each: impl FnMut(&mut Worker, u8)) {
    let timer = worker.stages.start();
    let before = waiting_answers(worker);
    let mut next = worker.waiting.queues.keys().next().copied();
    while let Some(table) = next {
        let deferred = worker.lookup.pipeline.deferred_mut(table);
        match deferred.is_some_and(|deferred| deferred.gathered() + deferred.under_way() > 0) {
            true => each(worker, table),
            false => relookup_orphans(worker, table),
        }
        next = worker.waiting.queues.range(table..).nth(1).map(|(table, _)| *table);
    }
    let answers = before.saturating_sub(waiting_answers(worker));
    worker.stages.stop(Stage::Device, answers as u64, timer);
}

/// Looks up packets that wait for a table without batches: it has been replaced.
fn relookup_orphans(worker: &mut Worker, table: u8) {
    while let Some(at) = worker.waiting.queues.entry(table).or_default().slots.pop_front() {
        relookup(worker, at);
    }
}

/// Returns the number of packets that wait for answers.
fn waiting_answers(worker: &Worker) -> usize {
    worker.waiting.queues.values().map(|queue| queue.slots.len()).sum()
}

/// Moves the ready packets of one port into the burst. Returns whether there are any.
pub(super) fn next_ready(worker: &mut Worker, burst: &mut Burst, cursors: &mut Cursors) -> bool {
    let Some(port) = worker.waiting.first_ready() else { return false };
    burst.clear_for(port, u64::MAX);
    worker.calls.begin_burst();
    while !burst.frames.is_full() && worker.waiting.first_ready() == Some(port) {
        let lane = burst.len();
        let frame = burst.frames.next_frame().expect("it is not full");
        let (at, path) = worker.waiting.leave(frame).expect("one is ready");
        let slot = worker.waiting.slot_mut(at);
        let OnItsWay { now_ns, sent, source, state, .. } = std::mem::take(&mut slot.on_its_way);
        let path = match slot.generation == worker.lookup.pipeline.generation() {
            true => path,
            false => worker.lookup.slow_path(&slot.key, frame.len(), now_ns),
        };
        cursors[lane] = Cursor::Path(path);
        burst.keys[lane].clone_from(&slot.key);
        (burst.headers[lane], burst.times_ns[lane]) = (slot.headers, now_ns);
        burst.sent.0 |= u64::from(sent) << lane;
        burst.sources.extend(source.map(|source| (lane, source)));
        state.into_iter().for_each(|state| worker.calls.set_state(lane, state));
        // Where it continues, a packet of its flow may be ready that must leave first.
        if worker.lookup.paths.steps_without_marks(path).leads_on() {
            break;
        }
    }
    true
}
