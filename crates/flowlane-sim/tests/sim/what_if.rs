//! What-if analyses of a user's rules.

use std::sync::{Arc, OnceLock};

use flowlane::generate::{Profile, Random, RuleConfig, Trace, TraceConfig, draw_key, generate_rules};
use flowlane::packet::key::FlowKey;
use flowlane::rule::Match;
use flowlane_sim::config::{Approach, Dispatch, MachineConfig, Preset, Work};
use flowlane_sim::machine::SimError;
use flowlane_sim::report::Effort;
use flowlane_sim::trace::{Code, Step, Trace as Recorded};
use flowlane_sim::what_if::{
    APPROACHES, Arrival, Bottleneck, BreakEven, Call, Measured, Measurement, Method, Outcome, Plan, Question,
    Recording, Report, Run, parts_of,
};
use flowlane_sim::workload::rules::{Workload, in_order};

fn generated(rules: usize, packets: usize) -> (Vec<Match>, Vec<FlowKey>) {
    let rules = generate_rules(&RuleConfig { seed: 3, ..RuleConfig::new(Profile::Acl, rules) }).unwrap();
    let trace = Trace::generate(&rules, &TraceConfig { seed: 3, ..TraceConfig::new(packets) }).unwrap();
    (in_order(&rules), trace.keys().cloned().collect())
}

fn workload(rules: usize, packets: usize) -> Arc<Workload> {
    let (rules, packets) = generated(rules, packets);
    Workload::shared("test", rules, packets, 1).unwrap()
}

fn run(machine: &MachineConfig, workload: &Arc<Workload>, approach: Approach) -> Run {
    Run { packets: 64, ..Run::new(&Arc::new(machine.clone()), workload, approach) }
}

#[test]
fn every_approach_answers_as_the_rules_do_with_and_without_a_flow_cache_and_changes() {
    let workload = workload(200, 300);
    assert!(workload.tables.len() > 20);
    for machine in [Preset::Paper.machine(), Preset::SkylakeSp.machine()] {
        for approach in APPROACHES {
            for cache_flows in [0, 16] {
                let one = run(&machine, &workload, approach);
                let outcome =
                    Run { cores: 2, cache_flows, update_pause: Some(500), ..one }.simulate().unwrap();
                let whole: f64 = outcome.stack.iter().map(|(_, cycles)| cycles).sum();
                assert!(
                    (whole / outcome.cycles - 1.0).abs() < 0.2,
                    "{approach:?}: {whole} of {}",
                    outcome.cycles
                );
                let tables = workload.tables.len() as f64;
                // In the mean more than one table in order and less than all; all at once without a cache, and with one
                // those of packets that it does not know, and itself.
                let queries = match (approach, cache_flows) {
                    (Approach::HaloNonBlocking | Approach::NearL2, 0) => tables..=tables,
                    (Approach::HaloNonBlocking | Approach::NearL2, _) => {
                        let queries = 1.0 + (1.0 - outcome.known) * tables;
                        queries - 1e-9..=queries + 1e-9
                    }
                    (Approach::HaloBlocking, 0) => 1.0..=tables - 1.0,
                    (Approach::HaloBlocking, _) => {
                        1.0 + (1.0 - outcome.known)..=1.0 + (1.0 - outcome.known) * (tables - 1.0)
                    }
                    _ => 0.0..=0.0,
                };
                assert!(queries.contains(&outcome.queries), "{approach:?}: {} {queries:?}", outcome.queries);
                assert!(outcome.busy.slice < 1.0 && outcome.busy.accelerator <= 1.0);
                assert!(outcome.updates_per_second > 0.0, "{approach:?}");
            }
        }
    }
}

#[test]
fn queries_sent_ahead_are_as_many_and_take_less_time() {
    let workload = workload(200, 300);
    for cache_flows in [0, 16] {
        let ahead = |packets_ahead| {
            let mut machine = Preset::SkylakeSp.machine();
            machine.accelerator.packets_ahead = packets_ahead;
            let halo = run(&machine, &workload, Approach::HaloNonBlocking);
            Run { cache_flows, ..halo }.simulate().unwrap()
        };
        // 64 is more than there are in the warm-up, which ends when results are read.
        let [none, one, many] = [0, 1, 64].map(ahead);
        assert!(one.cycles < 0.98 * none.cycles, "{cache_flows}: {} and {}", one.cycles, none.cycles);
        assert!(many.cycles < none.cycles, "{cache_flows}: {} and {}", many.cycles, none.cycles);
        assert_eq!((one.queries, many.queries), (none.queries, none.queries));
    }
}

#[test]
fn a_wrong_answer_of_any_approach_ends_the_run() {
    let (rules, packets) = generated(60, 100);
    let mut wrong = Workload::new("wrong", rules, packets, 1).unwrap();
    wrong.expected[40] = match wrong.expected[40] {
        Some(rule) => Some(rule + 1),
        None => Some(0),
    };
    let (wrong, machine) = (Arc::new(wrong), Preset::Paper.machine());
    for approach in APPROACHES {
        for cache_flows in [0, 8] {
            let failed = Run { cache_flows, ..run(&machine, &wrong, approach) }.simulate().unwrap_err();
            let SimError::Mismatch(mismatch) = failed else { panic!("{approach:?}: {failed}") };
            assert_eq!((mismatch.lookup, mismatch.library), (40, wrong.expected[40]), "{approach:?}");
        }
    }
}

#[test]
fn a_flow_cache_that_holds_all_flows_spares_the_tables() {
    let workload = workload(200, 60);
    let machine = Preset::Paper.machine();
    for approach in [Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::NearL2] {
        let long = Run { packets: 64, warm_up: 128, ..run(&machine, &workload, approach) };
        let without = long.simulate().unwrap();
        let with = Run { cache_flows: 128, ..long.clone() }.simulate().unwrap();
        assert!(with.cycles < without.cycles / 2.0, "{approach:?}: {} and {}", with.cycles, without.cycles);
        // The cache is warm before the first simulated packet.
        assert_eq!((with.known, without.known), (1.0, 0.0), "{approach:?}");
    }
}

#[test]
fn a_flow_cache_starts_in_its_steady_state() {
    let (rules, _) = generated(4, 1);
    let mut random = Random::new(3);
    // 500 flows, each as often as the others, of which the cache holds 400: it knows some four of five packets.
    let flows: Vec<FlowKey> = (0..500).map(|n| draw_key(&rules[n % rules.len()], &mut random)).collect();
    let packets = (0..12_000).map(|_| flows[random.index(flows.len())].clone()).collect();
    let workload = Workload::shared("", rules, packets, 1).unwrap();
    let machine = Preset::Paper.machine();
    for (warm_up, packets) in [(0, 500), (4000, 500)] {
        let run =
            Run { warm_up, packets, cache_flows: 400, ..run(&machine, &workload, Approach::HaloBlocking) };
        let known = run.simulate().unwrap().known;
        assert!((0.72..0.9).contains(&known), "{warm_up}: {known}");
    }
}

fn bottleneck(machine: &MachineConfig, workload: &Arc<Workload>, method: &Method) -> Bottleneck {
    let simulate = |machine: &MachineConfig| -> Outcome {
        let run = Run::new(&Arc::new(machine.clone()), workload, method.clone());
        Run { packets: 64, ..run }.simulate().unwrap()
    };
    let outcome = simulate(machine);
    let ideal: Vec<_> =
        parts_of(method.approach(), machine).map(|(part, ideal)| (part, simulate(&ideal).cycles)).collect();
    Bottleneck::of(&outcome, &ideal)
}

#[test]
fn a_planted_bottleneck_is_named() {
    let workload = workload(300, 200);
    let plant = |change: fn(&mut MachineConfig)| {
        let mut machine = Preset::Paper.machine();
        change(&mut machine);
        machine
    };
    let far = plant(|m| {
        (m.l1.size_kib, m.l1.ways, m.l2.size_kib, m.l2.ways) = (1, 1, 1, 1);
        (m.llc.slice_kib, m.llc.ways) = (1, 1);
        m.dram.controller_ps = 2_000_000;
    });
    let slow = plant(|m| m.core.base_cpi_milli = 30_000);
    let queue = plant(|m| {
        (m.accelerator.in_flight_queries, m.accelerator.dispatch) = (1, Dispatch::Table);
        m.accelerator.fixed_cycles = 300;
    });
    let mesh = plant(|m| m.mesh.hop_cycles = 500);
    let pages = plant(|m| {
        (m.core.page_kib, m.core.tlb_entries, m.core.tlb_miss_cycles) = (4, 4, 2000);
    });
    let recorded = Method::Recorded(recording("loads", 4000, 1 << 17));
    for (machine, method, part) in [
        (&far, recorded.clone(), "memory"),
        (&slow, Approach::Tcam.into(), "instructions"),
        (&mesh, Approach::HaloBlocking.into(), "mesh"),
        (&pages, recorded, "core's translation"),
        (&queue, Approach::HaloBlocking.into(), "accelerator steps"),
        (&queue, Approach::HaloNonBlocking.into(), "accelerators"),
    ] {
        let found = bottleneck(machine, &workload, &method);
        // One query after the other: its steps, where they are what takes the time, give as much as their overlapping.
        let steps = part == "accelerators" && found.part == Some("accelerator steps");
        assert!(found.part == Some(part) || steps, "{}: {}", found.name, found.sentence);
        assert!(found.reliefs.windows(2).all(|pair| pair[0].times >= pair[1].times));
    }
}

#[test]
fn a_small_scheduler_is_found_as_what_fills_the_window() {
    let mut machine = Preset::SkylakeSp.machine();
    let core = &mut machine.core;
    (core.rob_entries, core.load_queue_entries, core.store_queue_entries) = (4096, 4096, 4096);
    (core.integer_registers, core.vector_registers) = (4096, 4096);
    core.scheduler_entries = 8;
    (machine.l1.size_kib, machine.l1.ways, machine.l2.size_kib, machine.l2.ways) = (1, 1, 1, 1);
    let chains = Method::Recorded(recording("chains", 4000, 1 << 17));
    let found = bottleneck(&machine, &workload(300, 200), &chains);
    let times = |part: &str| found.reliefs.iter().find(|relief| relief.part == part).unwrap().times;
    assert!(times("window") > 1.05, "{:?}", found.reliefs);
    let scheduler = "scheduler_entries as many as the window has";
    assert!((times(scheduler) / times("window") - 1.0).abs() < 1e-9, "{:?}", found.reliefs);
}

#[test]
fn packets_of_the_network_interface_take_longer_where_it_writes_to_memory() {
    let workload = workload(20, 300);
    let cycles = |ddio_ways: u64, ring_packets: u64, approach, arrival| {
        let mut machine = Preset::SkylakeSp.machine();
        (machine.nic.ddio_ways, machine.nic.ring_packets) = (ddio_ways, ring_packets);
        let run = Run::new(&Arc::new(machine), &workload, approach);
        Run { packets: 512, arrival, ..run }.simulate().unwrap().cycles
    };
    // A TCAM's keys are read far ahead.
    for approach in [Approach::HaloBlocking, Approach::NearL2] {
        let of = |ways, ring| cycles(ways, ring, approach, Arrival::Nic);
        let parsed = cycles(2, 1024, approach, Arrival::Parsed);
        let [cached, leaking, memory] = [of(2, 1024), of(2, 65_536 * 2), of(0, 1024)];
        // A larger ring than the ways hold is overwritten before it is read.
        assert!(
            parsed <= cached && cached < leaking && leaking < memory,
            "{approach:?}: {parsed} {cached} {leaking} {memory}"
        );
    }
}

#[test]
fn several_cores_replay_what_one_does() {
    let workload = workload(60, 100);
    let machine = Preset::SkylakeSp.machine();
    let run = Run::new(&Arc::new(machine), &workload, Method::Recorded(recording("near", 4000, 64)));
    let [one, two] = [1, 2].map(|cores| Run { cores, ..run.clone() }.simulate().unwrap());
    // What each core writes is its own, and what both read is in the first cache of both.
    assert!((two.millions_per_second / one.millions_per_second - 2.0).abs() < 0.02, "{two:?}");
    assert!((one.instructions - 20.0).abs() < 1.0, "{}", one.instructions);
}

/// Returns lookups of 20 instructions: a load at random in some lines, a store on the stack, and 18 additions after the load.
fn recording(name: &str, lookups: u64, lines: u64) -> Arc<Recording> {
    let code = |n: u64, work, reads, writes, loads, stores| Code {
        address: 0x40_0000 + 4 * n,
        work,
        count: u8::from(work != Work::None),
        reads,
        address_reads: [0; 4],
        writes,
        loads,
        stores,
        bytes: 8,
        conditional: false,
        fused: false,
        prefetch: false,
        wide: false,
    };
    let load = code(0, Work::None, [0; 4], [1, 0, 0], 1, 0);
    let store = code(1, Work::None, [2, 0, 0, 0], [0; 3], 0, 1);
    let add = code(2, Work::Alu, [1, 0, 0, 0], [2, 0, 0], 0, 0);
    let mut random = Random::new(5);
    let (mut steps, mut accesses) = (Vec::new(), Vec::new());
    for _ in 0..lookups {
        steps.extend([0, 1].map(|n| Step::new(n, false)));
        steps.extend([Step::new(2, false); 18]);
        accesses.extend([0x1000_0000 + random.below(lines) * 64, 0x7000_0000]);
    }
    let trace =
        Recorded { code: vec![load, store, add], steps, accesses, huge: Vec::new(), lookups, bytes: 0 };
    Arc::new(Recording { name: name.to_owned(), trace: Arc::new(trace) })
}

fn measurement(name: &str, single: bool, ns: f64) -> Measurement {
    let call = |packets: u32| Call { packets, ns: vec![ns * f64::from(packets)] };
    Measurement {
        name: name.into(),
        single,
        ns: [ns; 3],
        build_ms: 1.0,
        bytes: 1000,
        update_us: Some(1.0),
        calls: [1, 32].map(call).to_vec(),
        threads: vec![(2, 1900.0 / ns)],
        recording: single.then(|| recording(name, 2000, 1 << 17).trace.clone()),
    }
}

/// Nanoseconds of a cycle of the core that was measured.
const CYCLE_NS: f64 = 0.4;

/// Simulates a report on a preset's machine, with software measured at a share of its replay on the host's, `skylake-sp`.
fn report(preset: Preset, threads: usize, cache_flows: usize, share: f64) -> Report {
    let (rules, packets) = generated(60, 150);
    let effort = Effort { quick: true, threads, seed: 2 };
    let plan = Plan::new(rules, packets, effort).unwrap();
    let ns = share * replayed_cycles() * CYCLE_NS;
    let all = |axis: usize| vec![vec![measurement("a", true, ns), measurement("b", false, 0.9 * ns)]; axis];
    let measured = Measured {
        host: Some(Preset::SkylakeSp.machine()),
        base: all(1).remove(0),
        sizes: all(plan.sizes.len()),
        masks: all(plan.masks.len()),
        exact_update_us: Some(0.5),
        cycle_ns: Some(CYCLE_NS),
        ..Measured::default()
    };
    let (preset, machine) = (preset.name().to_owned(), preset.machine());
    let (rate, arrival) = (Some(1.0), Arrival::Parsed);
    let question = Question { preset, machine, rate, arrival, cache_flows, extrapolate: false, effort };
    Report::simulate(&question, &plan, measured, &|_, _| {}).unwrap()
}

/// The cycles of the recorded software on the host's machine.
fn replayed_cycles() -> f64 {
    static CYCLES: OnceLock<f64> = OnceLock::new();
    *CYCLES.get_or_init(|| {
        let machine = Arc::new(Preset::SkylakeSp.machine());
        let method = Method::Recorded(recording("a", 2000, 1 << 17));
        Run::new(&machine, &workload(60, 100), method).simulate().unwrap().cycles
    })
}

/// A report without a flow cache, on one thread, with software measured far from its simulation, shared by the tests.
fn doubted() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| report(Preset::SkylakeSp, 1, 0, 0.2))
}

/// A report with software measured at 1.1 times its simulated cycles, shared by the tests.
fn plain_report() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| report(Preset::SkylakeSp, 1, 0, 1.1))
}

/// Break-evens that compare accelerators with software.
fn beside_software(report: &Report) -> Vec<&BreakEven> {
    let asks = |even: &&BreakEven| {
        even.question.contains("the fastest software") || even.question.contains(" fewer cores than ")
    };
    report.break_evens.iter().filter(asks).collect()
}

#[test]
fn inaccurately_simulated_software_is_not_compared() {
    let (doubted, plain) = (doubted(), plain_report());
    assert!(
        doubted.doubt.as_deref().is_some_and(|doubt| doubt.contains("5.00 times")),
        "{:?}",
        doubted.doubt
    );
    assert_eq!(plain.doubt, None);
    // The simulated parts do not depend on the measurements.
    let simulated = |report: &Report| {
        serde_json::to_string(&(&report.machine_hash, &report.facts, &report.lines, &report.bottlenecks))
            .unwrap()
    };
    assert_eq!(simulated(doubted), simulated(plain));
    let cycles = |report: &Report| {
        let settings = report.tornado.bars.iter().flat_map(|bar| &bar.settings);
        settings.map(|s| (s.cycles, s.tcam_cycles)).collect::<Vec<_>>()
    };
    assert_eq!(cycles(doubted), cycles(plain));
    assert!(beside_software(doubted).len() >= 10, "{:?}", beside_software(doubted));
    for even in beside_software(doubted) {
        assert!(even.crossing.is_none() && even.answer.starts_with("no ratio"), "{even:?}");
    }
    assert!(beside_software(plain).iter().all(|even| !even.answer.contains("no ratio")));
    assert!(beside_software(plain).iter().any(|even| even.crossing.is_some()));
    let advantages = |report: &Report| {
        let settings = report.tornado.bars.iter().flat_map(|bar| &bar.settings);
        let all: Vec<_> = settings.map(|s| s.advantage).chain([report.tornado.advantage]).collect();
        all
    };
    assert!(advantages(doubted).iter().all(Option::is_none));
    assert!(advantages(plain).iter().all(Option::is_some));
    // Before all other simulated values.
    let csv = doubted.csv();
    assert!(csv.lines().nth(1).unwrap().starts_with("no ratio,"), "{csv}");
    assert!(!plain.csv().contains("no ratio"));
}

#[test]
fn simulated_values_have_the_band_of_the_recorded_softwares_error() {
    let plain = plain_report();
    assert_eq!(plain.trust.len(), 1);
    let band = plain.band.unwrap();
    assert!((band.least - 1.0 / 1.1).abs() < 1e-9 && band.least == band.most, "{band:?}");
    let halo = &plain.lines[0].outcome;
    let row = &plain.side_by_side().rows[2];
    assert_eq!(row[0], halo.name);
    let ends: Vec<f64> = row[3].split(" to ").map(|end| end.parse().unwrap()).collect();
    assert!(ends.iter().all(|end| (end / halo.cycles / 1.1 - 1.0).abs() < 1e-3), "{row:?}");
    // On the host, software has its measured time.
    assert!(plain.software.iter().all(|s| s.times == Some(1.0)));
    assert_eq!(plain.software[0].ns, Some(plain.measured.base[0].ns[1]));
}

#[test]
fn measured_software_is_carried_to_another_machine_by_its_replays() {
    let (here, there) = (plain_report(), report(Preset::Zen3, 2, 0, 1.1));
    let (a, b) = (&there.software[0], &there.software[1]);
    // The same error on both machines cancels out; without a recording there is no time on the other one.
    let of = |machine: Preset| {
        let method = Method::Recorded(recording("a", 2000, 1 << 17));
        Run::new(&Arc::new(machine.machine()), &workload(60, 100), method).simulate().unwrap().ns()
    };
    let times = of(Preset::Zen3) / of(Preset::SkylakeSp);
    assert!((a.times.unwrap() / times - 1.0).abs() < 1e-9 && times != 1.0, "{a:?}");
    assert!((a.ns.unwrap() / here.software[0].ns.unwrap() / times - 1.0).abs() < 1e-9, "{a:?}");
    assert_eq!((b.ns, b.times), (None, None));
    assert_eq!(there.trust, here.trust);
    // Rates of several threads are the host's.
    let cores = |report: &Report| {
        let of = report.break_evens.iter().find(|e| e.question.starts_with("cores taken by a,"));
        of.unwrap().question.clone()
    };
    assert!(cores(here).contains("up to 2 cores") && cores(&there).contains("up to 1 cores"));
}

#[test]
fn a_report_has_all_its_parts_and_is_the_same_on_any_number_of_threads() {
    let one = plain_report();
    let mut three = report(Preset::SkylakeSp, 3, 0, 1.1);
    three.effort.threads = 1;
    assert_eq!(serde_json::to_string(one).unwrap(), serde_json::to_string(&three).unwrap());
    assert_eq!(one.lines.len(), APPROACHES.len());
    assert_eq!(one.bottlenecks.len(), 1 + APPROACHES.len());
    assert!(one.tornado.bars.len() >= 20 && one.tornado.bars.is_sorted_by(|a, b| a.swing >= b.swing));
    for axis in ["rules", "masks", "packets a second", "changes a second"] {
        assert!(one.break_evens.iter().any(|even| even.axis == axis), "{axis}");
    }
    for id in ["stacks", "by-rules", "energy", "by-masks", "by-cores", "by-rate", "by-changes", "latency"] {
        assert!(one.charts.iter().any(|chart| chart.id == id), "{id}");
    }
    for chart in &one.charts {
        assert!(chart.series.iter().all(|s| s.values.len() == chart.places.len()), "{}", chart.id);
    }
    // Two shares of its own rate and the one asked for, of everything.
    assert_eq!(one.latencies.len(), 3 * (2 + APPROACHES.len()));
    assert!(one.latencies.iter().all(|l| l.ns[0] > 0.0 && l.ns.is_sorted()));
    // Cores take energy for the whole time of a packet.
    let active = Preset::SkylakeSp.machine().core.active_mw as f64;
    assert!(one.lines.iter().all(|l| (l.core_nj / (l.outcome.ns() * active / 1e3) - 1.0).abs() < 1e-9));
    let csv = one.csv();
    assert!(
        csv.starts_with("machine,") && csv.contains("\nby-rules,") && csv.contains("LOOKUP_B,load-like,")
    );
    assert!(one.bases().rows.iter().any(|row| row[0] == "a TCAM" && row[1].starts_with("an assumption")));
}

#[test]
fn a_flow_cache_changes_the_report() {
    let (with, without) = (&report(Preset::SkylakeSp, 2, 256, 1.1), plain_report());
    let queries = |report: &Report| report.lines[0].outcome.queries;
    assert!(queries(with) < queries(without));
    // Software has none.
    assert_eq!(with.trust, without.trust);
    for line in &with.lines {
        let plain = [Approach::Tcam, Approach::SramTcam].contains(&line.outcome.approach);
        assert_eq!(line.outcome.cache_flows, if plain { 0 } else { 256 }, "{}", line.outcome.name);
    }
    let answers = |report: &Report| {
        let of = report.break_evens.iter().filter(|even| even.question.contains("fastest software"));
        of.map(|even| (even.axis, even.crossing.is_some(), even.answer.clone())).collect::<Vec<_>>()
    };
    for axis in ["rules", "masks", "packets a second", "changes a second"] {
        let refused = |(at, crossed, answer): &(&str, bool, String)| {
            *at == axis && !crossed && answer.contains("flow cache in front")
        };
        assert!(answers(with).iter().any(refused), "{axis}: {:?}", answers(with));
        assert!(!answers(without).iter().any(refused), "{axis}");
    }
    assert!(answers(with).iter().all(|(_, crossed, _)| !crossed));
}
