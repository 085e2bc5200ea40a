//! The whole switch, on the workload of many masks: S masks × R megaflows, a capture of 64-byte UDP packets
//! that match one each, uniformly, replayed from memory to a port that drops.
//!
//! `cargo bench -p flowlane-switch --bench switch -- [S …] [rules=R] [packets=N] [burst=B] [caches=C]`: S is 1, 5,
//! 10, 20 and 40 where none is given, R 1024, N 40000, B 64; C is `none` (only the megaflow cache: the default),
//! `exact`, `signature`, `all`, or `adaptive` (all, probed while they pay).
//!
//! Every packet is copied from the capture's memory, parsed, looked up, acted on and sent, as in the
//! measurements of Open vSwitch in `docs/lab/switch-2026-11-21.md`.

mod workload;

use std::sync::atomic::AtomicBool;

use flowlane::classify::TupleSearch;
use flowlane::generate::Random;
use flowlane::rule::action::PortNo;
use flowlane_capture::{CaptureWriter, FileFormat};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, PortSlot, Stage, Until, Worker};
use flowlane_switch::port::{NullPort, PcapConfig, PcapPort};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;
use workload::{Flow, flows, frame, rule};

/// The parameters of a run.
struct Workload {
    rules: usize,
    packets: usize,
    burst: usize,
    caches: String,
}

impl Workload {
    fn cache(&self) -> CacheConfig {
        let default = CacheConfig::default();
        let only = |wanted: &[&str], entries: usize| {
            if wanted.contains(&self.caches.as_str()) { entries } else { 0 }
        };
        CacheConfig {
            exact_entries: only(&["exact", "all", "adaptive"], default.exact_entries),
            signature_entries: only(&["signature", "all", "adaptive"], default.signature_entries),
            adaptive: self.caches == "adaptive",
            idle_ns: u64::MAX,
            seed: 12345,
            ..default
        }
    }
}

fn worker(flows: &[Flow], capture: &std::path::Path, workload: &Workload) -> Worker {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "flows", Box::new(TupleSearch::new(flows.len(), 7)), Miss::Drop);
    for flow in flows {
        pipeline.add_rule(rule(flow)).expect("the table is large enough");
    }
    let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
    let replay = PcapConfig { loops: 0, ..PcapConfig::new(capture) };
    let replay = PcapPort::open(&replay).expect("written just now");
    egress.ports.add(PortSlot::new(PortNo(1), "replay", "", Box::new(replay)));
    egress.ports.add(PortSlot::new(PortNo(2), "null", "", Box::new(NullPort)));
    Worker::new(Lookup::new(pipeline, workload.cache()), egress, workload.burst, Clock::Wall)
}

fn measure(masks: usize, workload: &Workload) {
    let mut random = Random::new(7);
    let flows = flows(masks, workload.rules, &mut random);
    let file = std::env::temp_dir().join(format!("flowlane-bench-{}.pcap", std::process::id()));
    let output = std::io::BufWriter::new(std::fs::File::create(&file).expect("a temporary file"));
    let mut writer = CaptureWriter::new(output, FileFormat::Pcap).expect("a temporary file");
    let mut bytes = Vec::new();
    for i in 0..workload.packets {
        let flow = &flows[random.below(flows.len() as u64) as usize];
        frame(flow, &mut random, &mut bytes);
        writer.write(i as u64, &bytes).expect("a temporary file");
    }
    writer.finish().expect("a temporary file");
    let mut worker = worker(&flows, &file, workload);
    std::fs::remove_file(&file).expect("written just now");
    // Every flow once, so that all megaflows exist; then the capture, so that masks are ranked.
    let every: Vec<Vec<u8>> = flows
        .iter()
        .map(|flow| {
            let mut bytes = Vec::new();
            frame(flow, &mut random, &mut bytes);
            bytes
        })
        .collect();
    worker.inject(0, &every.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("no port fails");
    let stop = AtomicBool::new(false);
    let mut run = |packets| {
        let until = Until { packets: Some(packets), duration: None };
        worker.run(until, &stop, |_| {}).expect("no port fails");
    };
    run(10 * workload.packets as u64);
    let clock = quanta::Clock::new();
    let mut samples: Vec<f64> = (0..15)
        .map(|_| {
            let begun = clock.raw();
            run(400_000);
            (clock.raw() - begun) as f64 / 400_000.0
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    let found: Vec<usize> = worker.lookup.megaflows.masks().map(|(_, n)| n).collect();
    let counters = worker.lookup.megaflows.counters();
    print!(
        "{masks:>3} masks: {:>7.1} / {:>7.1} cycles per packet (least / median); {} megaflows in {} masks, \
         {:.1} probes per packet;",
        samples[0],
        samples[samples.len() / 2],
        found.iter().sum::<usize>(),
        found.len(),
        counters.probes as f64 / counters.lookups as f64,
    );
    for stage in Stage::ALL {
        let c = worker.stages.get(stage);
        if c.packets > 400_000 {
            print!(" {} {:.1}", stage.name(), c.cycles as f64 / c.packets as f64);
        }
    }
    println!(
        " asked at the end: exact {}, signature {}",
        worker.lookup.asked().exact(),
        worker.lookup.asked().signature()
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let named = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='));
    let number = |name, default| named(name).map_or(default, |n| n.parse().expect("a number"));
    let workload = Workload {
        rules: number("rules", 1024),
        packets: number("packets", 40_000),
        burst: number("burst", 64),
        caches: named("caches").unwrap_or("none").to_owned(),
    };
    let asked: Vec<usize> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let masks = if asked.is_empty() { vec![1, 5, 10, 20, 40] } else { asked };
    masks.into_iter().for_each(|masks| measure(masks, &workload));
}
