//! Packet filter, asset detection and address translation with one lookup a packet, and with the lookups of a burst
//! together: HALO's three functions (ISCA 2019, figure 13: 2.3 to 2.7 times with its accelerator).
//!
//! `cargo bench -p flowlane-switch --bench stages -- [--quick] [--json] [stage=NAME] [entries=N] [rounds=N] [packets=N]`.
//! Three measurements each, cycles a packet: *lookups*: the tables alone, on the keys that the stage asks for (one a
//! packet of translation, in either of two tables; one and a half a packet of asset detection; one of a filter);
//! *stage*: reading keys, looking up, and what the stage does with the answer, for bursts of 64 in the first cache;
//! *switch*: from a capture's memory through parser and caches to a port that drops. In the last two the lookups of a burst
//! together include that the entries which were found are asked for ahead, where entries are read: that can be done only
//! where the entry is known before its packet's turn. Both ways take turns within each round, on the same packets in
//! the same random order; the figure is the median of the rounds and, in brackets, the lowest and highest quotient of a
//! round. Every verdict is compared with what it should be.

mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flowlane::classify::LinearSearch;
use flowlane::cuckoo::{CuckooConfig, CuckooWriter};
use flowlane::packet::parse;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Match, Rule};
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, Pipeline, PortSlot, Until, Worker};
use flowlane_switch::packet::{Burst, Frame, Frames};
use flowlane_switch::port::{NullPort, Port, PortError, Received};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::stage::{Lookups, StageCall, StageTable, Verdicts};
use flowlane_switch::state::fdb::Fdb;
use work::{Asked, FRAME_BYTES, Keys, Name, Work};

const BURST: usize = 64;

/// Cycles a packet of one way and of the other, a round each.
#[derive(Default)]
struct Rounds {
    scalar: Vec<f64>,
    batch: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Rounds {
    fn add(&mut self, lookups: Lookups, cycles: f64) {
        match lookups {
            Lookups::Scalar => self.scalar.push(cycles),
            Lookups::Batch => self.batch.push(cycles),
        }
    }

    /// Median of both, and of the quotient with its extremes.
    fn summary(&self) -> [f64; 5] {
        let quotients: Vec<f64> = self.scalar.iter().zip(&self.batch).map(|(s, b)| s / b).collect();
        let extreme = |pick: fn(f64, f64) -> f64| quotients.iter().copied().reduce(pick).unwrap_or(f64::NAN);
        [median(&self.scalar), median(&self.batch), median(&quotients), extreme(f64::min), extreme(f64::max)]
    }
}

/// Both ways, beginning with the one in even rounds and with the other in odd ones.
fn ways(round: usize) -> [Lookups; 2] {
    match round % 2 {
        0 => [Lookups::Scalar, Lookups::Batch],
        _ => [Lookups::Batch, Lookups::Scalar],
    }
}

/// A burst of packets, parsed.
struct Stage {
    table: StageTable,
    now_ns: u64,
}

impl Stage {
    fn new(work: &Work, lookups: Lookups) -> Self {
        let mut stage = Self { table: work.stage(lookups), now_ns: 0 };
        let mut lanes = Burst::new(BURST);
        for burst in work.opening.chunks(BURST) {
            fill(&mut lanes, burst.iter());
            stage.process(&mut lanes);
        }
        stage
    }

    fn process(&mut self, burst: &mut Burst) -> Verdicts {
        self.now_ns += 1000;
        burst.times_ns = [self.now_ns; BURST];
        let lanes = burst.lanes();
        std::hint::black_box(self.table.process(StageCall::of(5, burst), burst, lanes))
    }
}

/// Fills a burst with these frames.
fn fill<'a>(burst: &mut Burst, frames: impl Iterator<Item = &'a [u8; FRAME_BYTES]>) {
    burst.clear_for(0, u64::MAX);
    for bytes in frames {
        let lane = burst.len();
        burst.frames.next_frame().expect("as many as fit").fill(bytes);
        burst.headers[lane] = parse(bytes, 1, &mut burst.keys[lane]);
    }
}

/// The stage alone, its packets in the first cache.
fn stage(work: &Work, rounds: usize, clock: &quanta::Clock) -> Rounds {
    let mut stages = [Lookups::Batch, Lookups::Scalar].map(|lookups| (lookups, Stage::new(work, lookups)));
    let (mut out, mut lanes) = (Rounds::default(), Burst::new(BURST));
    for round in 0..=rounds {
        for way in ways(round) {
            let (_, stage) = stages.iter_mut().find(|(lookups, _)| *lookups == way).expect("there are both");
            let mut cycles = 0;
            for burst in work.order.chunks_exact(BURST) {
                fill(&mut lanes, burst.iter().map(|&i| &work.packets[i as usize]));
                let begun = clock.raw();
                let verdicts = stage.process(&mut lanes);
                cycles += clock.raw() - begun;
                assert!(burst.iter().zip(verdicts).all(|(&i, verdict)| work.verdicts[i as usize] == verdict));
            }
            // The first round warms up.
            if round > 0 {
                out.add(way, cycles as f64 / (work.order.len() / BURST * BURST) as f64);
            }
        }
    }
    stages.iter().for_each(|(_, stage)| work.check(&stage.table));
    out
}

/// The tables alone.
fn lookups<const W: usize>(work: &Asked<W>, order: &[u32], rounds: usize, clock: &quanta::Clock) -> Rounds {
    let table = |keys: &Vec<[u32; W]>| {
        let mut table = CuckooWriter::<W>::new(&CuckooConfig::new(keys.len(), 5));
        keys.iter().zip(0..).for_each(|(key, i)| _ = table.insert(key, i).expect("there is room"));
        table
    };
    let tables: Vec<CuckooWriter<W>> = work.tables.iter().map(table).collect();
    // The goes in which bursts ask: of which table, and the keys.
    let go = |burst: &[u32], go: usize| {
        let keys: Vec<[u32; W]> = burst.iter().filter_map(|&i| work.asked[i as usize][go]).collect();
        (go.min(tables.len() - 1), keys)
    };
    let bursts = order.chunks_exact(BURST);
    let goes: Vec<_> =
        bursts.flat_map(|burst| [0, 1].map(|n| go(burst, n))).filter(|g| !g.1.is_empty()).collect();
    let mut out = Rounds::default();
    for round in 0..=rounds {
        for way in ways(round) {
            let mut found = 0u64;
            let begun = clock.raw();
            for (table, keys) in &goes {
                let table = &tables[*table];
                match way {
                    Lookups::Scalar => {
                        found += keys.iter().filter_map(|key| table.lookup(key)).map(u64::from).sum::<u64>();
                    }
                    Lookups::Batch => {
                        let mut values = [0; BURST];
                        let hits = table.lookup_batch(keys, &mut values[..keys.len()]);
                        found += u64::from(hits.count_ones()) + u64::from(values[0]);
                    }
                }
            }
            let cycles = clock.raw() - begun;
            std::hint::black_box(found);
            if round > 0 {
                out.add(way, cycles as f64 / (order.len() / BURST * BURST) as f64);
            }
        }
    }
    out
}

/// Gives the work's packets, for ever.
struct Source {
    work: Arc<Work>,
    at: usize,
}

impl Port for Source {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        while let Some(frame) = frames.next_frame() {
            frame.fill(&self.work.packets[self.work.order[self.at] as usize]);
            self.at = (self.at + 1) % self.work.order.len();
        }
        Ok(Received::More)
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(true)
    }
}

fn worker(work: &Arc<Work>, lookups: Lookups) -> Worker {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", Box::new(LinearSearch::new(1)), Miss::Drop);
    pipeline.add_stage(5, work.stage(lookups));
    pipeline.add_rule(Rule::new(Match::any(), vec![Action::Goto(5)])).expect("the rule is right");
    let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
    let source = Source { work: work.clone(), at: 0 };
    egress.ports.add(PortSlot::new(PortNo(1), "source", "", Box::new(source)));
    egress.ports.add(PortSlot::new(PortNo(2), "null", "", Box::new(NullPort)));
    let cache = CacheConfig { idle_ns: u64::MAX, seed: 12345, ..CacheConfig::default() };
    let mut worker = Worker::new(Lookup::new(pipeline, cache), egress, BURST, Clock::Wall);
    for burst in work.opening.chunks(BURST) {
        let frames: Vec<&[u8]> = burst.iter().map(|frame| &frame[..]).collect();
        worker.inject(0, &frames).expect("no port fails");
    }
    worker
}

/// The whole switch.
fn switch(work: &Arc<Work>, rounds: usize, clock: &quanta::Clock) -> Rounds {
    let mut workers = [Lookups::Batch, Lookups::Scalar].map(|lookups| (lookups, worker(work, lookups)));
    let mut out = Rounds::default();
    for round in 0..=rounds {
        for way in ways(round) {
            let (_, worker) =
                workers.iter_mut().find(|(lookups, _)| *lookups == way).expect("there are both");
            let packets = work.order.len() as u64;
            let begun = clock.raw();
            let until = Until { packets: Some(packets), duration: None };
            worker.run(until, &AtomicBool::new(false), |_| {}).expect("no port fails");
            if round > 0 {
                out.add(way, (clock.raw() - begun) as f64 / packets as f64);
            }
        }
    }
    for (_, worker) in &workers {
        let (_, stage) = worker.lookup.pipeline.stages().next().expect("it was added");
        let judged: u64 = stage.verdicts().iter().map(|verdict| verdict.packets).sum();
        assert_eq!((judged, worker.egress.drops.stage_refused), (stage.packets, 0));
        work.check(stage);
    }
    out
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let named = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let (quick, json) = (flag("--quick"), flag("--json"));
    let number = |name, default: usize| named(name).map_or(default, |n| n.parse().expect("a number"));
    let rounds = number("rounds", if quick { 3 } else { 15 });
    let packets = number("packets", if quick { 1 << 14 } else { 1 << 19 });
    let clock = quanta::Clock::new();
    if !json {
        println!("cycles a packet: one lookup a packet, lookups of a burst of {BURST} together, quotient\n");
        println!("{:<22} {:>34} {:>34} {:>34}", "stage, entries", "lookups", "stage", "switch");
    }
    for name in Name::ALL.into_iter().filter(|name| named("stage").is_none_or(|n| n == name.text())) {
        for &entries in name.sizes().iter().filter(|n| named("entries").is_none_or(|e| e == n.to_string())) {
            let work = Arc::new(Work::new(name, entries, packets));
            let tables = match &work.keys {
                Keys::Two(keys) => lookups(keys, &work.order, rounds, &clock),
                Keys::Four(keys) => lookups(keys, &work.order, rounds, &clock),
                Keys::Seven(keys) => lookups(keys, &work.order, rounds, &clock),
            };
            let measured = [tables, stage(&work, rounds, &clock), switch(&work, rounds, &clock)];
            let summaries = measured.map(|rounds| rounds.summary());
            if json {
                for (what, [scalar, batch, quotient, least, most]) in
                    ["lookups", "stage", "switch"].into_iter().zip(summaries)
                {
                    println!(
                        "{{\"stage\": \"{}\", \"entries\": {entries}, \"what\": \"{what}\", \"scalar\": {scalar:.2}, \
                         \"batch\": {batch:.2}, \"quotient\": {quotient:.3}, \"least\": {least:.3}, \"most\": {most:.3}}}",
                        name.text()
                    );
                }
                continue;
            }
            let cell = |[scalar, batch, quotient, least, most]: [f64; 5]| {
                format!("{scalar:.1} {batch:.1} {quotient:.2} ({least:.2}-{most:.2})")
            };
            let [a, b, c] = summaries.map(cell);
            println!("{:<22} {a:>34} {b:>34} {c:>34}", format!("{}, {entries}", name.text()));
        }
    }
}
