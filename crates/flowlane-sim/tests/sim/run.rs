//! Observations of runs: statistics over time, and accesses to memory.

use std::rc::Rc;

use flowlane_sim::config::{Approach, Preset, RunConfig};
use flowlane_sim::run::{run, tables_of, with_accesses};

fn small() -> RunConfig {
    let mut config = RunConfig::on(Preset::Paper);
    (config.run.lookups, config.run.warm_up_lookups) = (300, 100);
    (config.workload.tables, config.workload.entries) = (4, 256);
    config
}

#[test]
fn statistics_over_time_add_up_and_change_nothing() {
    let mut config = small();
    let tables = Rc::new(tables_of(&config));
    for approach in [Approach::Software, Approach::HaloNonBlocking] {
        config.run.interval_cycles = 0;
        let without = run(&config, approach, &tables).unwrap();
        assert_eq!(without.series, None);
        config.run.interval_cycles = 2000;
        let result = run(&config, approach, &tables).unwrap();
        assert_eq!(
            (result.cycles_per_lookup, result.counters),
            (without.cycles_per_lookup, without.counters)
        );
        let series = result.series.unwrap();
        let interval = 2000 * result.cycle_ps;
        assert!(series.at_ps.len() > 5 && series.at_ps[0] == interval);
        assert!(series.at_ps.windows(2).all(|at| at[1] - at[0] <= interval), "{:?}", series.at_ps);
        let of = |component: &str, quantity: &str| {
            let all = series.quantities.iter().filter(|q| (q.component, q.quantity) == (component, quantity));
            all.map(|q| q.values.clone()).collect::<Vec<_>>()
        };
        // 400 packets, of which each is a lookup.
        assert_eq!(of("core", "lookups")[0].iter().sum::<f64>(), 400.0);
        let accesses = result.counters.row_hits + result.counters.row_opens + result.counters.row_conflicts;
        assert_eq!(of("memory", "accesses")[0].iter().sum::<f64>(), accesses as f64);
        let (busy, ports) = (of("accelerator", "busy"), of("slice", "port busy"));
        assert_eq!((busy.len(), ports.len()), (16, 16));
        assert!(busy.iter().chain(&ports).flatten().all(|share| (0.0..=1.0).contains(share)), "{busy:?}");
        // Four tables are at four accelerators at most, and only queries keep them busy.
        let used = busy.iter().filter(|values| values.iter().any(|share| *share > 0.1)).count();
        assert_eq!((1..=4).contains(&used), approach == Approach::HaloNonBlocking, "{used}");
        let instructions: f64 = of("core", "instructions")[0].iter().sum::<f64>() / series.at_ps.len() as f64;
        let mean = result.instructions_per_lookup / result.cycles_per_lookup;
        assert!((instructions / mean - 1.0).abs() < 0.15, "{instructions} of {mean}");
    }
}

#[test]
fn accesses_to_memory_are_misses_and_modified_lines() {
    let mut config = small();
    // Caches of few lines, and a core that writes.
    (config.machine.llc.slice_kib, config.machine.llc.ways, config.machine.l2.size_kib) = (1, 4, 16);
    config.machine.l1.size_kib = 4;
    (config.workload.warm, config.workload.updates, config.workload.update_instructions) = (false, 500, 50);
    let tables = Rc::new(tables_of(&config));
    let (result, accesses) = with_accesses(&config, Approach::HaloBlocking, &tables).unwrap();
    let writes = accesses.iter().filter(|access| access.write).count();
    let fetched = result.counters.llc_misses - result.counters.miss_joins;
    assert_eq!(accesses.len() as u64 - writes as u64, fetched);
    let counted = result.counters.row_hits + result.counters.row_opens + result.counters.row_conflicts;
    assert_eq!(accesses.len() as u64, counted);
    // Lines that a core has written leave its caches, then the slices.
    let buckets: Vec<u64> = tables.places.iter().flat_map(|place| place.buckets.lines()).collect();
    assert!(writes > 20 && accesses.iter().any(|a| a.write && buckets.contains(&a.line)), "{writes}");
    assert_eq!(with_accesses(&config, Approach::HaloBlocking, &tables).unwrap().1, accesses);
}

#[test]
fn cores_that_miss_the_same_line_fetch_it_once() {
    let mut config = small();
    (config.run.cores, config.run.warm_up_lookups, config.workload.warm) = (16, 0, false);
    let tables = Rc::new(tables_of(&config));
    let (result, mut accesses) = with_accesses(&config, Approach::Bulk, &tables).unwrap();
    assert!(result.counters.miss_joins > 20, "{:?}", result.counters);
    let count = accesses.len();
    assert_eq!(count as u64, result.counters.llc_misses - result.counters.miss_joins);
    accesses.sort_unstable_by_key(|access| access.line);
    accesses.dedup();
    assert_eq!(accesses.len(), count);
}
