//! One's own rules on the simulated machine.

use std::sync::Arc;
use std::time::Instant;

use flowlane::generate::{Profile, RuleConfig, Trace, TraceConfig, generate_rules};
use flowlane_sim::config::{Approach, Preset};
use flowlane_sim::what_if::{Outcome, Run};
use flowlane_sim::workload::rules::{Workload, in_order};

fn workload(rules: usize, packets: usize) -> Arc<Workload> {
    let rules = generate_rules(&RuleConfig { seed: 3, ..RuleConfig::new(Profile::Acl, rules) }).unwrap();
    let trace = Trace::generate(&rules, &TraceConfig { seed: 3, ..TraceConfig::new(packets) }).unwrap();
    Workload::shared("test", in_order(&rules), trace.keys().cloned().collect(), 1).unwrap()
}

fn simulate(workload: &Arc<Workload>, approach: Approach, cache_flows: usize) -> Outcome {
    let machine = Preset::Paper.machine();
    let run = Run {
        machine: &machine,
        workload,
        approach,
        packets: 128,
        warm_up: 64,
        cores: 2,
        cache_flows,
        update_pause: Some(1000),
        seed: 1,
    };
    run.simulate().unwrap()
}

#[test]
fn every_approach_answers_as_the_rules_do() {
    let workload = workload(1000, 600);
    println!("{} tables", workload.tables.len());
    for cache in [0, 64] {
        for approach in Approach::ALL {
            let begun = Instant::now();
            let outcome = simulate(&workload, approach, cache);
            println!("{cache} {approach:?} {:.0} cycles, {:.1} queries {:?} {:?} {:?}", outcome.cycles, outcome.queries, outcome.busy, outcome.stack, begun.elapsed());
        }
    }
}
