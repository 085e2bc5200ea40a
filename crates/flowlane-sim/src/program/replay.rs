//! Replay of recorded instructions on a simulated core, in micro-operations.
//!
//! | of an instruction | micro-operations |
//! |---|---|
//! | each read | a load, once the registers of its address are known |
//! | computing | one or more on a port for that work, once registers and loaded data are there |
//! | each write | a store, once address and data are known |
//!
//! A load takes its data from the last store to one of its bytes, if that store has them all and is under way. If it has a part only, the
//! load waits until the store has retired and its line is written.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use flowlane::generate::Random;

use crate::config::{MachineConfig, Work};
use crate::machine::cache::{LINE_BYTES, Line};
use crate::machine::op::{Class, Kind, Mismatch, Op, Program, VECTORS};
use crate::machine::query::Queries;
use crate::machine::space::{PAGE_BYTES, PAGES, line_at};
use crate::machine::{Busy, Counters, Machine, SimError, ThreadStats};
use crate::trace::{Code, Step, Trace};

/// The first name of the registers between the micro-operations of an instruction.
const BETWEEN: u8 = 200;
/// Names for what loads have read.
const LOADED: u8 = 16;

/// The stack pointer's name.
const STACK: u8 = 5;

/// Bytes of a vector of 512 bits.
const WIDE_BYTES: u8 = 64;

/// Operations after which a store is in the cache.
const RECENT: u32 = 128;

/// Words whose last stores are kept, at the most.
const WORDS_MAX: usize = 1 << 14;

/// A store: its operation, and the addresses that it wrote.
#[derive(Clone, Copy)]
struct Stored {
    made: u64,
    from: u64,
    to: u64,
}

/// The last stores to each word of eight bytes.
#[derive(Default)]
struct StoredWords(HashMap<u64, Vec<Stored>>);

impl StoredWords {
    fn note(&mut self, made: u64, from: u64, bytes: u8) {
        let to = from + u64::from(bytes.max(1));
        for word in words(from, bytes) {
            let (begin, end) = (word * 8, word * 8 + 8);
            let last = self.0.entry(word).or_default();
            // No load takes data that were written over.
            last.retain(|old| old.from.max(begin) < from || to < old.to.min(end));
            last.push(Stored { made, from, to });
        }
        if self.0.len() > WORDS_MAX {
            self.0.clear();
        }
    }

    /// Returns the last store to one of these bytes.
    fn last(&self, from: u64, bytes: u8) -> Option<Stored> {
        let to = from + u64::from(bytes.max(1));
        let all = words(from, bytes).filter_map(|word| self.0.get(&word)).flatten();
        all.filter(|old| old.from < to && from < old.to).max_by_key(|old| old.made).copied()
    }
}

/// Replays a trace once.
pub(crate) struct Replay {
    trace: Arc<Trace>,
    machine: Rc<MachineConfig>,
    pages: Rc<Pages>,
    core: u32,
    /// The executed steps, and the position of the first one.
    step: usize,
    first: usize,
    access: usize,
    /// The operations before the next one.
    made: u64,
    stored: StoredWords,
}

/// The first address of lines that a trace does not access, and its like would: no program has such addresses.
const UNSEEN: u64 = 1 << 57;

/// The recorded memory in the simulated one.
#[derive(Debug)]
struct Pages {
    /// The pieces of 2 MiB that a trace accesses, numbered by address.
    pieces: HashMap<u64, u64>,
    /// The lines that it writes, numbered: each core has its own.
    written: HashMap<u64, u64>,
}

impl Pages {
    fn of(trace: &Trace) -> Self {
        let mut all: Vec<u64> = trace.accesses.iter().map(|a| a / PAGE_BYTES).collect();
        // An access may reach into the next piece, and regions are filled as a whole.
        all.extend(
            trace.regions().into_iter().flat_map(|r| r.start / PAGE_BYTES..=(r.end + 64) / PAGE_BYTES),
        );
        all.sort_unstable();
        all.dedup();
        let pieces = all.into_iter().zip(0..).collect();
        let mut at = 0;
        let written = trace.steps.iter().flat_map(|step| {
            let code = &trace.code[step.code()];
            let from = at + usize::from(code.loads);
            at = from + usize::from(code.stores);
            &trace.accesses[from..at]
        });
        let mut written: Vec<u64> = written.map(|address| address / LINE_BYTES).collect();
        written.sort_unstable();
        written.dedup();
        Self { pieces, written: written.into_iter().zip(0..).collect() }
    }

    fn line(&self, address: u64, core: u32) -> Line {
        if address >= UNSEEN {
            return line_at(PAGES / 2 * PAGE_BYTES + (address - UNSEEN));
        }
        if core > 0
            && let Some(number) = self.written.get(&(address / LINE_BYTES))
        {
            let own = (u64::from(core) - 1) * self.written.len() as u64 + number;
            return line_at(self.pieces.len() as u64 * PAGE_BYTES + own * LINE_BYTES);
        }
        let page = self.pieces.get(&(address / PAGE_BYTES)).copied().unwrap_or(0);
        line_at(page * PAGE_BYTES + address % PAGE_BYTES)
    }
}

impl Replay {
    /// Creates the replay of one of several cores, each of which begins at another position.
    fn new(
        trace: Arc<Trace>,
        pages: Rc<Pages>,
        machine: Rc<MachineConfig>,
        (core, cores): (u32, u32),
    ) -> Self {
        let first = trace.steps.len() * core as usize / cores as usize;
        let accesses = |step: &Step| trace.code[step.code()].accesses();
        let access = trace.steps[..first].iter().map(accesses).sum();
        Self { trace, machine, pages, core, step: 0, first, access, made: 0, stored: StoredWords::default() }
    }

    fn push(&mut self, op: Op, ops: &mut Vec<Op>) {
        ops.push(op);
        self.made += 1;
    }

    /// Appends the micro-operations of an instruction.
    fn instruction(&mut self, code: &Code, taken: bool, ops: &mut Vec<Op>) {
        let from = ops.len();
        let of_none = code.work == Work::None && code.count == 0;
        let mut between = [0; 2];
        for n in 0..code.loads {
            // Elements of a gather share names.
            let name = BETWEEN + n % LOADED;
            let plain = of_none && code.stores == 0 && code.loads == 1;
            let writes = if plain { code.writes } else { [name, 0, 0] };
            between[usize::from(n) % 2] = name;
            let writes = if code.prefetch { [0; 3] } else { writes };
            self.load(code, writes, ops);
        }
        let mut reads = [0; 6];
        reads[..4].copy_from_slice(&code.reads);
        reads[4..].copy_from_slice(&between);
        let computes = code.work != Work::None || code.loads == 0 && code.stores == 0;
        if computes {
            let kind = match code.conditional {
                true => Kind::Branch { id: (code.address ^ code.address >> 32) as u32, taken },
                false => Kind::Work,
            };
            let writes =
                if code.stores > 0 && code.writes == [0; 3] { [BETWEEN + LOADED, 0, 0] } else { code.writes };
            let (work, latency) = (code.work, self.machine.latency.of(code.work));
            let each = &self.machine.micro_operations;
            let wide = if code.wide { each.of(Work::Wide) } else { 1 };
            let count = code.count.saturating_mul(each.of(work)).saturating_mul(wide);
            let op = Op { count, work, latency, wide: code.wide, ..Op::new(kind, Class::Compute) };
            self.push(Op { reads, writes, ..op }, ops);
        }
        for _ in 0..code.stores {
            let address = self.trace.accesses[self.access];
            self.access += 1;
            if computes {
                reads[5] = if code.writes == [0; 3] { BETWEEN + LOADED } else { code.writes[0] };
            }
            let mut reads = reads;
            // The address is known long before the data in general: two of its registers are enough.
            for (read, of) in reads[2..4].iter_mut().zip(code.address_reads).filter(|(read, _)| **read == 0) {
                *read = of;
            }
            let store = Op::new(Kind::Store(self.pages.line(address, self.core)), Class::Data);
            self.stored.note(self.made, address, code.bytes);
            self.push(Op { reads, wide: code.bytes >= WIDE_BYTES, ..store }, ops);
        }
        // The whole instruction has one place in the window.
        for (n, op) in ops[from..].iter_mut().enumerate() {
            op.instructions = u32::from(n == 0 && !code.fused);
        }
    }

    fn load(&mut self, code: &Code, writes: [u8; 3], ops: &mut Vec<Op>) {
        let address = self.trace.accesses[self.access];
        self.access += 1;
        let mut reads = [0; 6];
        reads[..4].copy_from_slice(&code.address_reads);
        let end = address + u64::from(code.bytes.max(1)) - 1;
        let last = self.stored.last(address, code.bytes);
        // Prefetches wait for no store.
        let last = last.filter(|_| !code.prefetch);
        let after = last.map_or(0, |last| (self.made - last.made) as u32);
        let core = &self.machine.core;
        let mut latency = if VECTORS.contains(&writes[0]) { core.vector_load_cycles } else { 0 };
        let whole = last.is_some_and(|last| last.from <= address && end < last.to);
        if whole && after < RECENT {
            // The data come from the store.
            let stack = code.address_reads.iter().all(|register| [0, STACK].contains(register));
            latency += if stack { core.stack_forward_cycles } else { core.forward_cycles };
            let op = Op { work: Work::Load, ..Op::new(Kind::Work, Class::Data) };
            return self.push(Op { reads, writes, latency, after, ..op }, ops);
        }
        let (after_retired, wide) = (!whole && after > 0, code.bytes >= WIDE_BYTES);
        latency += if code.address_reads[1] != 0 { core.indexed_load_cycles } else { 0 };
        let mut lines = vec![self.pages.line(address, self.core)];
        if end / LINE_BYTES != address / LINE_BYTES {
            lines.push(self.pages.line(end, self.core));
        }
        for (n, line) in lines.into_iter().enumerate() {
            let kind = if code.prefetch { Kind::Prefetch(line) } else { Kind::Load(line) };
            let op = Op::new(kind, Class::Data);
            let after = if n == 0 { after } else { 0 };
            self.push(Op { reads, writes, latency, after, after_retired, wide, ..op }, ops);
        }
    }
}

/// Returns the words of eight bytes of an access.
fn words(address: u64, bytes: u8) -> impl Iterator<Item = u64> {
    address / 8..=(address + u64::from(bytes.max(1)) - 1) / 8
}

impl Program for Replay {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        let trace = self.trace.clone();
        let (steps, lookups) = (trace.steps.len() as u64, trace.lookups.max(1));
        let until = (self.step + 64).min(trace.steps.len());
        while self.step < until {
            let at = (self.first + self.step) % trace.steps.len();
            if at == 0 {
                self.access = 0;
            }
            let step = trace.steps[at];
            let before = self.step as u64;
            self.step += 1;
            let from = ops.len();
            self.instruction(&trace.code[step.code()], step.taken(), ops);
            // Lookups end at equal distances, since a trace has no marks between them.
            let (ended, of) = (before * lookups / steps, self.step as u64 * lookups / steps);
            if of > ended
                && let Some(last) = ops.last_mut()
            {
                last.ends = (of - ended) as u32;
            }
            debug_assert!(ops.len() > from, "every instruction is an operation");
        }
        Ok(until < trace.steps.len())
    }
}

/// The outcome of a replay.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Cycles of a lookup on the slowest core, or of an instruction if the trace has no lookups.
    pub cycles: f64,
    /// Millions of lookups a second on all cores.
    pub millions_per_second: f64,
    /// The statistics of the first core's counted part.
    pub stats: ThreadStats,
    /// The utilisation and the counters of the shared parts.
    pub busy: Busy,
    pub counters: Counters,
    pub cycle_ps: u64,
}

/// The share of a trace that warms up caches and predictors.
const WARM: f64 = 0.25;

/// Replays a trace on cores of a machine whose caches hold as much of the accessed arrays as they can. Cores share the
/// lines that the trace only reads.
///
/// # Errors
/// Returns an error if the machine gets stuck.
///
/// # Panics
/// Panics if the machine does not have as many cores.
pub fn replay(trace: &Arc<Trace>, machine: &MachineConfig, cores: u32) -> Result<Replayed, SimError> {
    let mut config = machine.clone();
    // Instructions are explicit: the front end is limited by its width, and everything else is in the model.
    config.core.base_cpi_milli = 1000 / u64::from(config.core.width);
    let mut machine = Machine::new(&config);
    let trace = if trace.lookups == 0 {
        Arc::new(Trace { lookups: trace.steps.len() as u64, ..(**trace).clone() })
    } else {
        trace.clone()
    };
    let pages = Rc::new(Pages::of(&trace));
    let huge = |piece: u64| trace.huge.iter().any(|r| r.contains(&(piece * PAGE_BYTES + PAGE_BYTES / 2)));
    machine
        .on_small_pages(pages.pieces.iter().filter(|(piece, _)| !huge(**piece)).map(|(_, number)| *number));
    warm(&trace, &pages, &config, (cores, &mut machine));
    let config = Rc::new(config);
    for core in 0..cores {
        let program = Replay::new(trace.clone(), pages.clone(), config.clone(), (core, cores));
        machine.run_on(core, Box::new(program), (trace.lookups as f64 * WARM) as u64);
    }
    machine.run()?;
    let cycle_ps = machine.cycle_ps();
    let cycles = |core| machine.thread(core, 0).cycles_per_lookup(cycle_ps);
    Ok(Replayed {
        cycles: (0..cores).map(cycles).fold(0.0, f64::max),
        millions_per_second: (0..cores).map(|core| 1e6 / (cycles(core) * cycle_ps as f64)).sum(),
        stats: machine.thread(0, 0).clone(),
        busy: machine.busy(),
        counters: machine.counters(),
        cycle_ps,
    })
}

/// Fills the caches as after many lookups. The shared cache has random lines of the accessed arrays. A core has read lines near
/// those that the trace accesses once, so that a part of an array that is accessed more often is held more; and lately those that
/// the trace accesses again long after.
fn warm(trace: &Trace, pages: &Pages, config: &MachineConfig, (cores, machine): (u32, &mut Machine)) {
    let mut random = Random::for_purpose(1, "warm caches");
    let regions: Vec<Range<u64>> =
        trace.regions().into_iter().map(|r| r.start / LINE_BYTES..r.end / LINE_BYTES).collect();
    let mut arrays: Vec<u64> = regions.iter().cloned().flatten().collect();
    let seen = arrays.len() as u64;
    let unseen = (trace.bytes / LINE_BYTES).saturating_sub(seen);
    arrays.extend((0..unseen).map(|n| UNSEEN / LINE_BYTES + n));
    random.shuffle(&mut arrays);
    let (mut again, mut once) = (Vec::new(), Vec::new());
    for (line, (first, last, accesses)) in spans(trace) {
        match last - first >= trace.steps.len() / 2 {
            true => again.push((accesses, line)),
            false => once.push(line),
        }
    }
    again.sort_unstable();
    once.sort_unstable();
    let again: Vec<u64> = again.into_iter().map(|(_, line)| line).collect();
    let mut near = || {
        if once.is_empty() || random.below(seen + unseen) < unseen {
            return UNSEEN / LINE_BYTES + random.below(unseen.max(1));
        }
        let line = once[random.index(once.len())];
        let array = &regions[regions.partition_point(|array| array.end <= line)];
        let width = ((array.end - array.start) / PARTS).max(1);
        (line + random.below(width)).saturating_sub(width / 2).clamp(array.start, array.end - 1)
    };
    let held = (config.l2.size_kib << 10) / LINE_BYTES;
    let near: Vec<u64> = (0..4 * held.min(seen + unseen)).map(|_| near()).collect();
    let anywhere = &arrays[arrays.len() - arrays.len().min(2 * held as usize)..];
    let of = |core: u32| move |line: &u64| pages.line(line * LINE_BYTES, core);
    machine.fill_llc(arrays.iter().chain(&again).map(of(0)));
    for core in 0..cores {
        machine.fill_clean(core, anywhere.iter().chain(&near).chain(&again).map(of(core)));
    }
}

/// The parts of an array that may be accessed more or less often than others.
const PARTS: u64 = 32;

/// Returns the first and last step that accesses each line, and the number of accesses.
fn spans(trace: &Trace) -> HashMap<u64, (usize, usize, usize)> {
    let (mut spans, mut at) = (HashMap::new(), 0);
    for (n, step) in trace.steps.iter().enumerate() {
        let code = &trace.code[step.code()];
        let count = code.accesses();
        for access in &trace.accesses[at..at + count] {
            let (_, last, accesses) = spans.entry(access / LINE_BYTES).or_insert((n, n, 0));
            (*last, *accesses) = (n, *accesses + 1);
        }
        at += count;
    }
    spans
}
