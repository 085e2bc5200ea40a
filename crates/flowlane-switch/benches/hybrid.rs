//! Traffic that swings between few flows and many: a worker that always probes the caches of flows (cache-first), one that
//! has none (table-first), one that probes those that pay on the current traffic (adaptive), and one that also chooses by the
//! number of flows, which is the default (hybrid). They take turns, in another order each round.
//!
//! `cargo bench -p flowlane-switch --bench hybrid -- [few=N] [many=N] [masks=S] [seconds=T] [swings=N] [rounds=N]`: 50 and
//! 100,000 flows over 20 masks, T = 2 seconds of each, 3 swings, 3 rounds by default. Reports cycles per packet, from
//! memory to a port that drops: of each phase, and of the time right after each swing.

mod workload;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowlane::classify::TupleSearch;
use flowlane::generate::Random;
use flowlane::rule::action::PortNo;
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, PortSlot, Until, Worker};
use flowlane_switch::packet::{Frame, Frames};
use flowlane_switch::port::{NullPort, Port, PortError, Received};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;
use workload::{Flow, flows, frame, rule};

const FRAME_BYTES: usize = 60;
/// Packets until the traffic repeats.
const PACKETS: usize = 1 << 18;

/// Packets and cycles of a phase, and of its first hundredth.
#[derive(Clone, Copy, Default)]
struct Phase {
    packets: u64,
    cycles: u64,
    first: (u64, u64),
}

/// A port whose frames alternate between few flows and many.
struct Swing {
    frames: Arc<[Vec<u8>; 2]>,
    seconds: f64,
    clock: quanta::Clock,
    begun: Option<(Instant, u64)>,
    at: [usize; 2],
    phases: Arc<Mutex<Vec<Phase>>>,
    now: usize,
}

impl Port for Swing {
    fn receive(&mut self, out: &mut Frames) -> Result<Received, PortError> {
        let (begun, raw) = *self.begun.get_or_insert_with(|| (Instant::now(), self.clock.raw()));
        let passed = begun.elapsed().as_secs_f64();
        let cycles = self.clock.raw() - raw;
        let mut phases = self.phases.lock().expect("nobody panics");
        phases[self.now].cycles = cycles;
        if passed < 0.01 * self.seconds {
            phases[self.now].first = (phases[self.now].packets, cycles);
        }
        if passed >= self.seconds {
            self.now += 1;
            self.begun = None;
            if self.now == phases.len() {
                return Ok(Received::Finished);
            }
        }
        let (frames, at) = (&self.frames[self.now % 2], &mut self.at[self.now % 2]);
        while let Some(frame) = out.next_frame() {
            frame.fill(&frames[*at..*at + FRAME_BYTES]);
            *at = (*at + FRAME_BYTES) % frames.len();
            phases[self.now].packets += 1;
        }
        Ok(Received::More)
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(true)
    }
}

/// Returns frames of `count` flows, in random order.
fn traffic(rules: &[Flow], count: usize, random: &mut Random) -> Vec<u8> {
    let mut one = Vec::new();
    let different: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            frame(&rules[random.index(rules.len())], random, &mut one);
            one.clone()
        })
        .collect();
    (0..PACKETS).flat_map(|_| different[random.index(count)][..FRAME_BYTES].to_vec()).collect()
}

fn worker(rules: &[Flow], port: Swing, cache: CacheConfig) -> Worker {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "flows", Box::new(TupleSearch::new(rules.len(), 7)), Miss::Drop);
    for flow in rules {
        pipeline.add_rule(rule(flow)).expect("the table is large enough");
    }
    let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
    egress.ports.add(PortSlot::new(PortNo(1), "swing", "", Box::new(port)));
    egress.ports.add(PortSlot::new(PortNo(2), "null", "", Box::new(NullPort)));
    Worker::new(Lookup::new(pipeline, cache), egress, 64, Clock::Wall)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let named = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
    let number = |name, default: f64| named(name).map_or(default, |n| n.parse().expect("a number"));
    let (few, many) = (number("few", 50.0) as usize, number("many", 100_000.0) as usize);
    let (masks, seconds) = (number("masks", 20.0) as usize, number("seconds", 2.0));
    let (swings, rounds) = (number("swings", 3.0) as usize, number("rounds", 3.0) as usize);
    let mut random = Random::new(7);
    let rules = flows(masks, 1024, &mut random);
    let frames = Arc::new([traffic(&rules, few, &mut random), traffic(&rules, many, &mut random)]);
    let default = CacheConfig { idle_ns: u64::MAX, seed: 12345, ..CacheConfig::default() };
    let fixed = CacheConfig { adaptive: false, hybrid: false, ..default };
    let without = CacheConfig { exact_entries: 0, signature_entries: 0, ..fixed };
    let adaptive = CacheConfig { hybrid: false, ..default };
    let mut kinds =
        [("cache-first", fixed), ("table-first", without), ("adaptive", adaptive), ("hybrid", default)];
    println!(
        "cycles a packet with {few} flows, with {many}, and in the first {:.0} ms behind a swing",
        10.0 * seconds
    );
    for round in 0..rounds {
        for (name, cache) in kinds {
            let phases = Arc::new(Mutex::new(vec![Phase::default(); 2 * swings + 2]));
            let (frames, clock) = (frames.clone(), quanta::Clock::new());
            let port =
                Swing { frames, seconds, clock, begun: None, at: [0; 2], phases: phases.clone(), now: 0 };
            let mut worker = worker(&rules, port, cache);
            let duration = Some(Duration::from_secs_f64(seconds * (2 * swings + 3) as f64));
            let until = Until { packets: None, duration };
            worker.run(until, &AtomicBool::new(false), |_| {}).expect("no port fails");
            let phases = phases.lock().expect("nobody panics");
            // Without the first of each, which installs megaflows.
            let mean = |which: usize, part: fn(&Phase) -> (u64, u64)| {
                let all = phases.iter().skip(2 + which).step_by(2).map(part);
                let (packets, cycles) = all.fold((0, 0), |(p, c), (q, d)| (p + q, c + d));
                cycles as f64 / packets.max(1) as f64
            };
            let whole = |phase: &Phase| (phase.packets, phase.cycles);
            let first = |phase: &Phase| phase.first;
            let hybrid = worker.lookup.hybrid_counters();
            println!(
                "round {round} {name:>12}: {:>7.1} {:>7.1}   first {:>7.1} {:>7.1}   {} changes of mode, {} and {} bursts",
                mean(0, whole),
                mean(1, whole),
                mean(0, first),
                mean(1, first),
                hybrid.switches,
                hybrid.bursts[0],
                hybrid.bursts[1]
            );
        }
        kinds.rotate_left(1);
    }
}
