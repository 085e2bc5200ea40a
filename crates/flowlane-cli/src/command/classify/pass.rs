//! All packets of a trace through the engine, by several threads: each takes the next piece, and writes what has come of it when
//! all before it have been written.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use flowlane::classify::{Hit, HitCounts};
use flowlane::packet::FlowKey;
use flowlane::rule::RuleId;
use indicatif::ProgressBar;

use super::book::{Book, Sheet};
use super::verdicts::Verdicts;
use super::{BATCH, Engine, List};
use crate::arguments::ClassifyOptions;
use crate::failure::Failure;
use crate::output;
use crate::trace::{Faults, Parsing, Piece, Trace};

/// What has come of classifying all packets.
pub(super) struct Totals {
    pub(super) packets: u64,
    /// Packets that any list has a rule for.
    pub(super) hits: u64,
    pub(super) faults: Faults,
    /// By rule, where that was asked for.
    pub(super) counts: HitCounts,
    /// Verdicts that are not those of linear search, where that was asked for.
    pub(super) differences: u64,
    /// Ticks of the lookups, of all threads together.
    pub(super) cycles: u64,
}

impl Totals {
    fn new(lists: &[List]) -> Self {
        let rules = lists.iter().map(|list| list.rules.len()).sum();
        let counts = HitCounts::new(rules);
        Self { packets: 0, hits: 0, faults: Faults::default(), counts, differences: 0, cycles: 0 }
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

/// What threads share.
pub(super) struct Pass<'a> {
    engine: &'a Engine,
    oracles: Vec<Engine>,
    lists: &'a [List],
    options: &'a ClassifyOptions,
    verdicts: &'a Verdicts,
    trace: Trace<'a>,
    sink: Mutex<Sink<'a>>,
    turn: Condvar,
}

struct Sink<'a> {
    book: Book<'a>,
    /// Packets of which what has come of them has been written.
    packets: u64,
    /// A thread could not write its own: nothing more comes.
    failed: bool,
    bar: ProgressBar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics ends the program: others stop at the next piece.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        trace: Trace<'a>,
        engine: &'a Engine,
        lists: &'a [List],
        options: &'a ClassifyOptions,
        verdicts: &'a Verdicts,
        book: Book<'a>,
    ) -> Result<Self, Failure> {
        let checked = lists.iter().filter(|_| options.check);
        let oracles = checked.map(|list| Engine::build(&list.rules, options, "linear", &[]));
        let oracles = oracles.collect::<Result<Vec<_>, _>>()?;
        let bar = output::progress(trace.count().unwrap_or(0), "classifying");
        let sink = Mutex::new(Sink { book, packets: 0, failed: false, bar });
        Ok(Self { engine, oracles, lists, options, verdicts, trace, sink, turn: Condvar::new() })
    }

    /// Classifies all packets with so many threads; gives back the trace, at its end, and the book.
    pub(super) fn run(self, threads: usize) -> Result<(Totals, Trace<'a>, Book<'a>), Failure> {
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
        let sink = self.sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        sink.bar.finish_and_clear();
        Ok((totals, self.trace, sink.book))
    }

    /// The work of a thread.
    fn work(&self) -> Result<Totals, Failure> {
        let mut worker = Worker::new(self);
        let mut piece = Piece::default();
        loop {
            let is_there = self.trace.next(&mut piece);
            if !is_there && worker.waiting.is_empty() {
                return Ok(worker.totals);
            }
            // What has been waiting is a device's, of which one thread is given all packets.
            let first = if is_there { piece.numbers.start } else { worker.totals.packets };
            let waited_for = WaitedFor(self);
            if is_there {
                worker.classify(&piece)
            } else {
                worker.classify_waiting()
            }
            std::mem::forget(waited_for);
            if !self.write(first, piece.len(), &worker.sheet)? {
                return Ok(worker.totals);
            }
        }
    }

    /// Writes what has come of a piece, the first packet of which has this number, once all before it are written; says whether
    /// to go on.
    fn write(&self, first: u64, packets: usize, sheet: &Sheet) -> Result<bool, Failure> {
        let mut sink = lock(&self.sink);
        while sink.packets != first && !sink.failed {
            sink = self.turn.wait(sink).unwrap_or_else(PoisonError::into_inner);
        }
        if sink.failed {
            return Ok(false);
        }
        let written = sink.book.write(sheet);
        sink.packets += packets as u64;
        sink.failed = written.is_err();
        sink.bar.inc(packets as u64);
        self.turn.notify_all();
        written.map(|()| true)
    }
}

/// A piece of which others wait to be written: where its thread panics, they would wait for ever.
struct WaitedFor<'p, 'a>(&'p Pass<'a>);

impl Drop for WaitedFor<'_, '_> {
    fn drop(&mut self) {
        lock(&self.0.sink).failed = true;
        self.0.turn.notify_all();
    }
}

/// What a thread has of its own.
struct Worker<'p, 'a> {
    pass: &'p Pass<'a>,
    parsing: Parsing<'a>,
    clock: quanta::Clock,
    keys: Vec<FlowKey>,
    /// Packets for a device's next batch, and the number of the first.
    waiting: Vec<FlowKey>,
    waiting_from: u64,
    found: Vec<Option<Hit>>,
    sheet: Sheet,
    totals: Totals,
}

impl<'p, 'a> Worker<'p, 'a> {
    fn new(pass: &'p Pass<'a>) -> Self {
        Self {
            pass,
            parsing: Parsing::new(&pass.options.trace),
            clock: quanta::Clock::new(),
            keys: Vec::new(),
            waiting: Vec::new(),
            waiting_from: 0,
            found: Vec::new(),
            sheet: Sheet::default(),
            totals: Totals::new(pass.lists),
        }
    }

    /// Classifies the packets of a piece; their verdicts are its text. A device is given full batches, however few packets are
    /// in a piece: what is left waits for the next.
    fn classify(&mut self, piece: &Piece) {
        self.sheet.clear();
        let (engine, options) = (self.pass.engine, self.pass.options);
        let batch = engine.batch(options);
        let step = if piece.is_text() { piece.len() } else { BATCH };
        for at in (0..piece.len()).step_by(step.max(1)) {
            let packets = at..(at + step).min(piece.len());
            let [first, end] = [packets.start, packets.end].map(|i| piece.numbers.start + i as u64);
            let faults = self.parsing.keys(piece, packets, &mut self.keys);
            self.totals.faults.add(faults);
            let mut keys = std::mem::take(&mut self.keys);
            if engine.is_on_device() {
                self.waiting.append(&mut keys);
                self.waiting_from = end - self.waiting.len() as u64;
                self.look_up_batches(batch);
            } else {
                for (chunk, keys) in keys.chunks(batch).enumerate() {
                    self.look_up(first + (chunk * batch) as u64, keys);
                }
            }
            self.keys = keys;
        }
        self.totals.packets += piece.len() as u64;
    }

    /// Looks up as many full batches as have been waiting.
    fn look_up_batches(&mut self, batch: usize) {
        while self.waiting.len() >= batch {
            let rest = self.waiting.split_off(batch);
            let full = std::mem::replace(&mut self.waiting, rest);
            self.look_up(self.waiting_from, &full);
            self.waiting_from += batch as u64;
        }
    }

    /// Classifies those that have been waiting for others that did not come.
    fn classify_waiting(&mut self) {
        self.sheet.clear();
        let waiting = std::mem::take(&mut self.waiting);
        self.look_up(self.waiting_from, &waiting);
    }

    /// Looks up packets whose first one has this number.
    fn look_up(&mut self, first: u64, keys: &[FlowKey]) {
        let Pass { engine, oracles, lists, options, verdicts, .. } = self.pass;
        self.found.clear();
        self.found.resize(keys.len() * lists.len(), None);
        let tick = self.clock.raw();
        engine.lookup(keys, lists.len(), &mut self.found);
        if options.hits.is_some() {
            self.totals.counts.count(&self.found);
        }
        self.totals.cycles += self.clock.raw() - tick;
        for ((number, key), found) in (first..).zip(keys).zip(self.found.chunks(lists.len())) {
            self.totals.hits += u64::from(found.iter().any(Option::is_some));
            for ((oracle, list), hit) in oracles.iter().zip(*lists).zip(found) {
                let expected = oracle.table().lookup(key);
                let expected = expected.map(|hit| Hit { rule: RuleId(list.first + hit.rule.0), ..hit });
                self.totals.differences += u64::from(expected != *hit);
            }
            verdicts.write(number, found, &mut self.sheet);
        }
    }
}
