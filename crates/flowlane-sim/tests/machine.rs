//! The machine as a whole: what it measures of itself, and what must hold whatever its numbers are.

use std::rc::Rc;

use flowlane_sim::config::{Approach, Preset, RunConfig};
use flowlane_sim::run::{run, tables_of};

#[test]
fn every_approach_answers_as_the_library_does() {
    let mut config = RunConfig::on(Preset::Paper);
    (config.run.lookups, config.run.warm_up_lookups) = (2000, 500);
    for (tables, entries) in [(1, 64), (1, 16_384), (6, 256)] {
        (config.workload.tables, config.workload.entries) = (tables, entries);
        let shared = Rc::new(tables_of(&config));
        for approach in Approach::ALL {
            let result = run(&config, approach, &shared).unwrap();
            println!(
                "{tables} x {entries} {}: {:.1} cycles, {:.0} instructions, stack {:?}",
                approach.name(),
                result.cycles_per_lookup,
                result.instructions_per_lookup,
                result.thread.stack.parts().map(|(n, ps)| (n, (ps as f64 / 476.0 / result.thread.lookups as f64).round()))
            );
            assert!(result.cycles_per_lookup > 1.0);
        }
    }
}
