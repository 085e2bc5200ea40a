//! Translations: walks of cores and accelerators.

use std::rc::Rc;

use flowlane_sim::config::{Approach, CoreConfig, MachineConfig, Preset, RunConfig, Translation, Walks};
use flowlane_sim::run::{RunResult, run, tables_of};

use crate::machine::{chase, cycles_with};

/// A chase over pages of 4 KiB that no translation buffer knows, with lines in LLC and page tables in L2.
#[test]
fn a_page_walk_takes_the_latencies_of_the_lines_that_it_reads() {
    let mut c = Preset::SkylakeSp.machine();
    (c.core.page_kib, c.core.tlb_entries, c.core.second_tlb_entries) = (4, 4, 4);
    let bytes = 12 << 20;
    let cycles = |c: &MachineConfig, bytes| chase(c, bytes, 5, true);
    let free = cycles(
        &MachineConfig { core: CoreConfig { walks: Walks::Free, ..c.core.clone() }, ..c.clone() },
        bytes,
    );
    // The second level has answered that it does not know the page, then one line of a table is read: 3,072 pages have 384.
    let one_line = c.l2.latency_cycles as f64;
    let walked = cycles(&c, bytes);
    assert!((walked / (free + one_line) - 1.0).abs() < 0.05, "{walked}, {free} without");
    // Six tables of pages, of which the last one used is known: mostly a walk of four levels.
    c.core.walk_cache_entries = 1;
    let walked = cycles(&c, bytes);
    let tables = 6.0;
    let expected = free + one_line * (1.0 + 3.0 * (1.0 - 1.0 / tables));
    assert!((walked / expected - 1.0).abs() < 0.05, "{walked} for {expected}");
    // Neighbouring pages share lines of tables; where those are in no cache of the core, a walk takes as long as a load.
    (c.core.walk_cache_entries, c.l2.size_kib, c.l2.ways) = (32, 16, 4);
    let (walked, free) = (cycles(&c, 24 << 20), {
        c.core.walks = Walks::Free;
        cycles(&c, 24 << 20)
    });
    assert!((1.5..2.1).contains(&(walked / free)), "{walked}, {free} without");
}

/// A chase in a virtual machine over huge pages, which a host keeps on small ones.
#[test]
fn a_host_below_makes_many_pages_of_a_huge_one_and_walks_read_its_entries_too() {
    let mut c = Preset::SkylakeSp.machine();
    (c.core.small_tlb_entries, c.core.second_tlb_entries) = (4, 4);
    let cycles = |c: &MachineConfig| chase(c, 12 << 20, 5, true);
    // Six huge pages, which the first translation buffer knows.
    let own = cycles(&c);
    // On huge pages of the host, too, nothing changes.
    c.core.nested_page_kib = 2048;
    assert!((cycles(&c) / own - 1.0).abs() < 0.01);
    // On small ones, the entry of the page and the host's of the piece of 4 KiB are read, from L2.
    c.core.nested_page_kib = 4;
    let two_lines = own + (c.core.tlb_miss_cycles + 2 * c.l2.latency_cycles) as f64;
    let nested = cycles(&c);
    assert!((nested / two_lines - 1.0).abs() < 0.05, "{nested} for {two_lines}");
    // A guest's small pages need no more where it knows the last table, which holds the entries of 2 MiB.
    c.core.page_kib = 4;
    let small = cycles(&c);
    assert!((small / nested - 1.0).abs() < 0.05, "{small} and {nested}");
    // Where it knows no table, each of the other three takes two more lines, and those of the host are known.
    c.core.walk_cache_entries = 1;
    let all = cycles(&c);
    assert!(all > small + 1.5 * 3.0 * c.l2.latency_cycles as f64, "{all} and {small}");
}

#[test]
fn page_walks_overlap_as_far_as_there_are_walkers() {
    let cycles = |walkers: u32| {
        cycles_with(Approach::Bulk, (1, 1 << 17), |m| {
            (m.core.page_kib, m.core.tlb_entries, m.core.second_tlb_entries) = (4, 4, 4);
            m.core.walkers = walkers;
        })
    };
    let [one, two, eight] = [1, 2, 8].map(cycles);
    assert!(one > 1.2 * two && two >= eight, "{one}, {two}, {eight}");
}

/// Tables on more pages than any translation buffer has, in the shared cache.
#[test]
fn accelerators_walk_through_page_tables_that_are_lines_like_others() {
    let mut config = RunConfig::on(Preset::SkylakeSp);
    (config.run.lookups, config.run.warm_up_lookups, config.workload.entries) = (2000, 500, 1 << 18);
    let tables = Rc::new(tables_of(&config));
    let outcome = |approach, change: &dyn Fn(&mut MachineConfig)| {
        let mut config = config.clone();
        config.machine.core.second_tlb_entries = 64;
        change(&mut config.machine);
        run(&config, approach, &tables).unwrap()
    };
    let huge = outcome(Approach::HaloBlocking, &|_| {});
    // Two pages a query, of which no walk begins at the last level if one table is known; each line takes a request to a slice.
    let small = |m: &mut MachineConfig| m.core.page_kib = 4;
    let free = outcome(Approach::HaloBlocking, &|m| {
        small(m);
        (m.core.walks, m.accelerator.tlb_miss_cycles) = (Walks::Free, 0);
    });
    let walked = outcome(Approach::HaloBlocking, &small);
    assert!(walked.counters.tlb_misses > 2000, "{:?}", walked.counters);
    let slower = |one: &RunResult, other: &RunResult, by: f64| {
        let (one, other) = (one.cycles_per_lookup, other.cycles_per_lookup);
        assert!(other > by * one, "{other} after {one}");
    };
    slower(&free, &walked, 1.2);
    let long = outcome(Approach::HaloBlocking, &|m| {
        small(m);
        m.core.walk_cache_entries = 1;
    });
    slower(&walked, &long, 1.2);
    // A host's small pages make many of a huge one, for accelerators and for those that use the core's translation.
    slower(&huge, &outcome(Approach::HaloBlocking, &|m| m.core.nested_page_kib = 4), 1.2);
    for (approach, translation) in
        [(Approach::NearL2, Translation::Tlb), (Approach::HaloBlocking, Translation::Core)]
    {
        let of = |nested| {
            outcome(approach, &|m| {
                (m.core.nested_page_kib, m.accelerator.translation) = (nested, translation);
            })
        };
        let nested = of(4);
        slower(&of(0), &nested, 1.2);
        assert!(nested.counters.page_walks > 2000, "{:?}", nested.counters);
    }
}
