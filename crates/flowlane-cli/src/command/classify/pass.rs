//! Classification of a trace by several threads: each takes the next chunk, classifies it, and writes its verdicts once all
//! earlier chunks are written.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use flowlane::classify::{Hit, HitCounts};
use flowlane::packet::FlowKey;
use flowlane::rule::RuleId;
use indicatif::ProgressBar;

use super::sink::{VerdictBuffer, VerdictSink};
use super::verdicts::Verdicts;
use super::{BATCH, Engine, List};
use crate::arguments::ClassifyOptions;
use crate::failure::Failure;
use crate::output;
use crate::trace::{Chunk, ChunkParser, ParseFaults, Trace};

/// Counters over all packets.
pub(super) struct Totals {
    pub(super) packets: u64,
    /// Packets that match a rule of any list.
    pub(super) hits: u64,
    pub(super) faults: ParseFaults,
    /// Hits by rule, if requested.
    pub(super) counts: HitCounts,
    /// Verdicts that differ from linear search, if requested.
    pub(super) differences: u64,
    /// Clock ticks in lookups, summed over threads.
    pub(super) cycles: u64,
}

impl Totals {
    fn new(lists: &[List]) -> Self {
        let rules = lists.iter().map(|list| list.rules.len()).sum();
        let counts = HitCounts::new(rules);
        Self { packets: 0, hits: 0, faults: ParseFaults::default(), counts, differences: 0, cycles: 0 }
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.hits += other.hits;
        self.faults.add(other.faults);
        self.counts.add(&other.counts);
        self.differences += other.differences;
        self.cycles += other.cycles;
    }
}

/// State shared by the threads.
pub(super) struct Pass<'a> {
    engine: &'a Engine,
    oracles: Vec<Engine>,
    lists: &'a [List],
    options: &'a ClassifyOptions,
    verdicts: &'a Verdicts,
    trace: Trace<'a>,
    output: Mutex<OrderedOutput<'a>>,
    turn: Condvar,
}

/// The output, which threads write to in packet order.
struct OrderedOutput<'a> {
    sink: VerdictSink<'a>,
    /// Number of packets whose verdicts have been written.
    packets: u64,
    /// A thread failed to write: the others stop.
    failed: bool,
    bar: ProgressBar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the program; the other threads stop at their next chunk.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        trace: Trace<'a>,
        engine: &'a Engine,
        lists: &'a [List],
        options: &'a ClassifyOptions,
        verdicts: &'a Verdicts,
        sink: VerdictSink<'a>,
    ) -> Result<Self, Failure> {
        let checked = lists.iter().filter(|_| options.check);
        let oracles = checked.map(|list| Engine::build(&list.rules, options, "linear", &[]));
        let oracles = oracles.collect::<Result<Vec<_>, _>>()?;
        let bar = output::progress(trace.count().unwrap_or(0), "classifying");
        let output = Mutex::new(OrderedOutput { sink, packets: 0, failed: false, bar });
        Ok(Self { engine, oracles, lists, options, verdicts, trace, output, turn: Condvar::new() })
    }

    /// Classifies all packets with `threads` threads; returns the totals, the exhausted trace and the sink.
    pub(super) fn run(self, threads: usize) -> Result<(Totals, Trace<'a>, VerdictSink<'a>), Failure> {
        let mut totals = Totals::new(self.lists);
        let done: Vec<Result<Totals, Failure>> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| self.work())).collect();
            let own = self.work();
            let others = others
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            std::iter::once(own).chain(others).collect()
        });
        for done in done {
            totals.add(&done?);
        }
        let output = self.output.into_inner().unwrap_or_else(PoisonError::into_inner);
        output.bar.finish_and_clear();
        Ok((totals, self.trace, output.sink))
    }

    /// Runs one thread.
    fn work(&self) -> Result<Totals, Failure> {
        let mut worker = Worker::new(self);
        let mut chunk = Chunk::default();
        loop {
            let has_packets = self.trace.next(&mut chunk);
            if !has_packets && worker.pending.is_empty() {
                return Ok(worker.totals);
            }
            // Only devices leave packets pending, and then a single thread classifies all packets.
            let first = if has_packets { chunk.numbers.start } else { worker.totals.packets };
            let release = ReleaseOnPanic(self);
            if has_packets {
                worker.classify(&chunk)
            } else {
                worker.classify_pending()
            }
            std::mem::forget(release);
            if !self.write(first, chunk.len(), &worker.buffer)? {
                return Ok(worker.totals);
            }
        }
    }

    /// Writes the verdicts of a chunk, whose first packet is `first`, after those of all earlier packets; returns whether
    /// to continue.
    fn write(&self, first: u64, packets: usize, buffer: &VerdictBuffer) -> Result<bool, Failure> {
        let mut output = lock(&self.output);
        while output.packets != first && !output.failed {
            output = self.turn.wait(output).unwrap_or_else(PoisonError::into_inner);
        }
        if output.failed {
            return Ok(false);
        }
        let written = output.sink.write(buffer);
        output.packets += packets as u64;
        output.failed = written.is_err();
        output.bar.inc(packets as u64);
        self.turn.notify_all();
        written.map(|()| true)
    }
}

/// A chunk that other threads wait for: releases them if this thread panics.
struct ReleaseOnPanic<'p, 'a>(&'p Pass<'a>);

impl Drop for ReleaseOnPanic<'_, '_> {
    fn drop(&mut self) {
        lock(&self.0.output).failed = true;
        self.0.turn.notify_all();
    }
}

/// State of one thread.
struct Worker<'p, 'a> {
    pass: &'p Pass<'a>,
    parser: ChunkParser<'a>,
    clock: quanta::Clock,
    keys: Vec<FlowKey>,
    /// Packets for a device's next batch, and the number of the first one.
    pending: Vec<FlowKey>,
    pending_first: u64,
    hits: Vec<Option<Hit>>,
    buffer: VerdictBuffer,
    totals: Totals,
}

impl<'p, 'a> Worker<'p, 'a> {
    fn new(pass: &'p Pass<'a>) -> Self {
        Self {
            pass,
            parser: ChunkParser::new(&pass.options.trace),
            clock: quanta::Clock::new(),
            keys: Vec::new(),
            pending: Vec::new(),
            pending_first: 0,
            hits: Vec::new(),
            buffer: VerdictBuffer::default(),
            totals: Totals::new(pass.lists),
        }
    }

    /// Classifies the packets of a chunk into `self.buffer`. A device receives full batches only, whatever the size of the
    /// chunk: the remainder stays pending.
    fn classify(&mut self, chunk: &Chunk) {
        self.buffer.clear();
        let (engine, options) = (self.pass.engine, self.pass.options);
        let batch = engine.batch(options);
        let step = if chunk.is_text() { chunk.len() } else { BATCH };
        for at in (0..chunk.len()).step_by(step.max(1)) {
            let packets = at..(at + step).min(chunk.len());
            let [first, end] = [packets.start, packets.end].map(|i| chunk.numbers.start + i as u64);
            let faults = self.parser.keys(chunk, packets, &mut self.keys);
            self.totals.faults.add(faults);
            let mut keys = std::mem::take(&mut self.keys);
            if engine.is_on_device() {
                self.pending.append(&mut keys);
                self.pending_first = end - self.pending.len() as u64;
                self.look_up_batches(batch);
            } else {
                for (chunk, keys) in keys.chunks(batch).enumerate() {
                    self.look_up(first + (chunk * batch) as u64, keys);
                }
            }
            self.keys = keys;
        }
        self.totals.packets += chunk.len() as u64;
    }

    /// Looks up all full batches of pending packets.
    fn look_up_batches(&mut self, batch: usize) {
        while self.pending.len() >= batch {
            let rest = self.pending.split_off(batch);
            let full = std::mem::replace(&mut self.pending, rest);
            self.look_up(self.pending_first, &full);
            self.pending_first += batch as u64;
        }
    }

    /// Looks up the pending packets after the last chunk.
    fn classify_pending(&mut self) {
        self.buffer.clear();
        let pending = std::mem::take(&mut self.pending);
        self.look_up(self.pending_first, &pending);
    }

    /// Looks up packets, the first of which has the number `first`.
    fn look_up(&mut self, first: u64, keys: &[FlowKey]) {
        let Pass { engine, oracles, lists, options, verdicts, .. } = self.pass;
        self.hits.clear();
        self.hits.resize(keys.len() * lists.len(), None);
        let tick = self.clock.raw();
        engine.lookup(keys, lists.len(), &mut self.hits);
        if options.hits.is_some() {
            self.totals.counts.count(&self.hits);
        }
        self.totals.cycles += self.clock.raw() - tick;
        for ((number, key), hits) in (first..).zip(keys).zip(self.hits.chunks(lists.len())) {
            self.totals.hits += u64::from(hits.iter().any(Option::is_some));
            for ((oracle, list), hit) in oracles.iter().zip(*lists).zip(hits) {
                let expected = oracle.table().lookup(key);
                let expected = expected.map(|hit| Hit { rule: RuleId(list.first + hit.rule.0), ..hit });
                self.totals.differences += u64::from(expected != *hit);
            }
            verdicts.write(number, hits, &mut self.buffer);
        }
    }
}
