//! What-if analyses of a user's rules.

use std::sync::{Arc, OnceLock};

use flowlane::generate::{Profile, Random, RuleConfig, Trace, TraceConfig, draw_key, generate_rules};
use flowlane::packet::key::FlowKey;
use flowlane::rule::Match;
use flowlane_sim::config::{Approach, Dispatch, MachineConfig, Preset};
use flowlane_sim::machine::SimError;
use flowlane_sim::report::Effort;
use flowlane_sim::what_if::{
    APPROACHES, Bottleneck, BreakEven, Measured, Measurement, Outcome, Plan, Question, Report, Run, parts_of,
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
                let changes = approach == Approach::TupleSearch || outcome.updates_per_second > 0.0;
                assert!(changes, "{approach:?}");
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
    for approach in [Approach::Scalar, Approach::Bulk, Approach::HaloBlocking, Approach::HaloNonBlocking] {
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
        let run = Run { warm_up, packets, cache_flows: 400, ..run(&machine, &workload, Approach::Scalar) };
        let known = run.simulate().unwrap().known;
        assert!((0.72..0.9).contains(&known), "{warm_up}: {known}");
    }
}

fn bottleneck(machine: &MachineConfig, workload: &Arc<Workload>, approach: Approach) -> Bottleneck {
    let simulate =
        |machine: &MachineConfig| -> Outcome { run(machine, workload, approach).simulate().unwrap() };
    let outcome = simulate(machine);
    let ideal: Vec<_> =
        parts_of(approach, machine).map(|(part, ideal)| (part, simulate(&ideal).cycles)).collect();
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
    for (machine, approach, part) in [
        (&far, Approach::Scalar, "memory"),
        (&slow, Approach::Scalar, "instructions"),
        (&slow, Approach::Tcam, "instructions"),
        (&mesh, Approach::HaloBlocking, "mesh"),
        (&pages, Approach::Scalar, "core's translation"),
        (&queue, Approach::HaloBlocking, "accelerator steps"),
        (&queue, Approach::HaloNonBlocking, "accelerators"),
    ] {
        let found = bottleneck(machine, &workload, approach);
        // One query after the other: its steps, where they are what takes the time, give as much as their overlapping.
        let steps = part == "accelerators" && found.part == Some("accelerator steps");
        assert!(found.part == Some(part) || steps, "{approach:?}: {}", found.sentence);
        assert!(found.reliefs.windows(2).all(|pair| pair[0].times >= pair[1].times));
    }
}

#[test]
fn a_small_scheduler_is_found_as_what_fills_the_window() {
    let mut machine = Preset::SkylakeSp.machine();
    let core = &mut machine.core;
    (core.rob_entries, core.load_queue_entries, core.store_queue_entries) = (4096, 4096, 4096);
    (core.scheduler_entries, core.base_cpi_milli) = (8, 50);
    (machine.l1.size_kib, machine.l1.ways, machine.l2.size_kib, machine.l2.ways) = (1, 1, 1, 1);
    let found = bottleneck(&machine, &workload(300, 200), Approach::Bulk);
    let times = |part: &str| found.reliefs.iter().find(|relief| relief.part == part).unwrap().times;
    assert!(times("window") > 1.05, "{:?}", found.reliefs);
    let scheduler = "scheduler_entries as many as the window has";
    assert!((times(scheduler) / times("window") - 1.0).abs() < 1e-9, "{:?}", found.reliefs);
}

fn measurement(name: &str, single: bool, ns: f64) -> Measurement {
    Measurement {
        name: name.into(),
        single,
        ns: [ns; 3],
        build_ms: 1.0,
        bytes: 1000,
        update_us: Some(1.0),
        simulated_as: single.then_some(Approach::Scalar),
    }
}

/// Nanoseconds of a cycle of the core that was measured.
const CYCLE_NS: f64 = 0.4;

/// Simulates a report with single lookups measured at `single_ns`; the simulated machine has another clock.
fn report(threads: usize, cache_flows: usize, single_ns: f64) -> Report {
    let (rules, packets) = generated(60, 150);
    let effort = Effort { quick: true, threads, seed: 2 };
    let plan = Plan::new(rules, packets, effort).unwrap();
    let all =
        |axis: usize| vec![vec![measurement("a", true, single_ns), measurement("b", false, 90.0)]; axis];
    let measured = Measured {
        base: all(1).remove(0),
        sizes: all(plan.sizes.len()),
        masks: all(plan.masks.len()),
        exact_update_us: Some(0.5),
        cycle_ns: Some(CYCLE_NS),
        ..Measured::default()
    };
    let machine = Preset::SkylakeSp.machine();
    let question = Question { preset: "skylake-sp".into(), machine, cache_flows, extrapolate: false, effort };
    Report::simulate(&question, &plan, measured, &|_, _| {}).unwrap()
}

/// A report without a flow cache, on one thread, with software measured far from its simulation, shared by the tests.
fn doubted() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| report(1, 0, 10.0))
}

/// The time of single lookups that matches the simulated cycles.
fn as_simulated_ns() -> f64 {
    doubted().trust[0].simulated_cycles * CYCLE_NS
}

/// A report with software measured at 1.1 times its simulated cycles, shared by the tests.
fn plain_report() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    REPORT.get_or_init(|| report(1, 0, 1.1 * as_simulated_ns()))
}

/// Break-evens that compare accelerators with software.
fn beside_software(report: &Report) -> Vec<&BreakEven> {
    let asks = |even: &&BreakEven| {
        let software = ["lookups", "batches", "software"].iter().any(|name| even.question.contains(name));
        software
            && (even.question.contains(" is faster than ") || even.question.contains(" fewer cores than "))
    };
    report.break_evens.iter().filter(asks).collect()
}

#[test]
fn inaccurately_simulated_software_is_not_compared() {
    let (doubted, plain) = (doubted(), plain_report());
    assert!(
        doubted.doubt.as_deref().is_some_and(|doubt| doubt.contains("more than 20 %")),
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
    // Ticks are not cycles: the ratio is in cycles of the cores.
    let trust = &plain.trust[0];
    assert!((trust.ratio.unwrap() - 1.0 / 1.1).abs() < 1e-9, "{trust:?}");
    let clocks = Preset::SkylakeSp.machine().cycle_ps() as f64 / 1e3 / CYCLE_NS;
    assert!((trust.time_ratio / trust.ratio.unwrap() / clocks - 1.0).abs() < 1e-9, "{trust:?}");
}

#[test]
fn a_report_has_all_its_parts_and_is_the_same_on_any_number_of_threads() {
    let one = plain_report();
    let mut three = report(3, 0, 1.1 * as_simulated_ns());
    three.effort.threads = 1;
    assert_eq!(serde_json::to_string(one).unwrap(), serde_json::to_string(&three).unwrap());
    assert_eq!(one.lines.len(), APPROACHES.len());
    assert_eq!(one.bottlenecks.len(), APPROACHES.len());
    assert!(one.tornado.bars.len() >= 20 && one.tornado.bars.is_sorted_by(|a, b| a.swing >= b.swing));
    for axis in ["rules", "masks", "packets a second", "changes a second"] {
        assert!(one.break_evens.iter().any(|even| even.axis == axis), "{axis}");
    }
    for id in ["stacks", "by-rules", "energy", "by-masks", "by-cores", "by-rate", "by-changes"] {
        assert!(one.charts.iter().any(|chart| chart.id == id), "{id}");
    }
    for chart in &one.charts {
        assert!(chart.series.iter().all(|s| s.values.len() == chart.places.len()), "{}", chart.id);
    }
    assert_eq!(one.trust.len(), 1);
    let csv = one.csv();
    assert!(
        csv.starts_with("machine,") && csv.contains("\nby-rules,") && csv.contains("LOOKUP_B,load-like,")
    );
}

#[test]
fn a_flow_cache_changes_the_report() {
    let (with, without) = (&report(2, 256, 1.1 * as_simulated_ns()), plain_report());
    let queries = |report: &Report| {
        report.lines.iter().find(|l| l.outcome.approach == Approach::HaloBlocking).unwrap().outcome.queries
    };
    assert!(queries(with) < queries(without));
    // Trust compares measured and simulated software without the cache.
    assert_eq!(with.trust, without.trust);
    for line in &with.lines {
        let plain =
            [Approach::TupleSearch, Approach::Tcam, Approach::SramTcam].contains(&line.outcome.approach);
        assert_eq!(line.outcome.cache_flows, if plain { 0 } else { 256 }, "{:?}", line.outcome.approach);
    }
    let beside_measured = |report: &Report| {
        let of = report.break_evens.iter().filter(|even| even.question.contains("measured here"));
        of.map(|even| (even.axis, even.crossing.is_some(), even.answer.clone())).collect::<Vec<_>>()
    };
    for axis in ["rules", "masks", "packets a second", "changes a second"] {
        let refused = |(at, crossed, answer): &(&str, bool, String)| {
            *at == axis && !crossed && answer.contains("flow cache in front")
        };
        assert!(beside_measured(with).iter().any(refused), "{axis}: {:?}", beside_measured(with));
        assert!(!beside_measured(without).iter().any(refused), "{axis}");
    }
    assert!(beside_measured(with).iter().all(|(_, crossed, _)| !crossed));
    assert!(with.charts.iter().all(|c| c.series.iter().all(|s| !s.name.contains("measured here"))));
}
