//! Batches by graphs: the same answers, and nothing is left behind.

use std::sync::Arc;

use flowlane::classify::acl::{Condition, Entry, RankKey, WordKind, best};
use flowlane::generate::{Profile, Random};
use flowlane::rule::{Priority, RuleId};
use flowlane_gpu::{Device, GpuError, GpuTable, Method, Rebuild, Session, SessionConfig};

use crate::history::{History, matches, with_changes};
use crate::host_device::on_host_device;

const KINDS: [WordKind; 4] = [WordKind::Ternary; 4];
const BATCH: usize = 16;

/// Rules on the first word, one for each of eight values, of which others win for other seeds.
fn rules(seed: u64) -> Vec<Entry<4>> {
    let mut random = Random::new(seed);
    let entry = |i: u32| Entry {
        condition: Condition { low: [i % 8, 0, 0, 0], high: [7, 0, 0, 0] },
        rank: RankKey::new(Priority(random.below(4) as u32), i),
        rule: RuleId(i),
        categories: 1,
    };
    (0..30).map(entry).collect()
}

fn session(device: &Device, slots: usize, graphs: bool) -> Session<4> {
    Session::new(device, SessionConfig { batch_max: BATCH, slots, graphs }).expect("it fits")
}

fn table(device: &Device, method: Method, entries: &[Entry<4>]) -> Arc<GpuTable<4>> {
    Arc::new(GpuTable::build(device, method, &KINDS, entries, 1, 1).expect("it fits"))
}

fn keys(random: &mut Random, count: usize) -> Vec<[u32; 4]> {
    (0..count).map(|_| [random.bits() as u32, 1, 2, 3]).collect()
}

fn check(session: &mut Session<4>, table: &Arc<GpuTable<4>>, entries: &[Entry<4>], keys: &[[u32; 4]]) {
    let mut hits = vec![None; keys.len()];
    session.lookup_batch(table, keys, &mut hits).expect("the device works");
    for (key, hit) in keys.iter().zip(hits) {
        assert_eq!(hit, best(entries, &KINDS, key, 0).map(Entry::hit));
    }
}

#[test]
fn graphs_give_the_same_answers_over_tables_that_change() {
    on_host_device("graphs_give_the_same_answers_over_tables_that_change", "", || {
        let device = Device::open(0).expect("the host device");
        let mut random = Random::new(1);
        for method in Method::ALL {
            let (mut session, sets) = (session(&device, 2, true), [rules(1), rules(2)]);
            let tables = [0, 1].map(|i| table(&device, method, &sets[i]));
            for _ in 0..8 {
                let i = random.index(2);
                // Some fill all slots several times, some none.
                let count = 1 + random.index(8 * BATCH);
                check(&mut session, &tables[i], &sets[i], &keys(&mut random, count));
            }
            // Also with an overlay.
            let added = [Entry { rank: RankKey::new(Priority(9), 99), rule: RuleId(99), ..sets[0][3] }];
            let changed = Arc::new(tables[0].with_changes([], &added, 2).expect("it fits"));
            let all: Vec<Entry<4>> = sets[0].iter().chain(&added).copied().collect();
            for table_has_changes in [true, false, true] {
                let count = 6 * BATCH;
                let (table, entries) =
                    if table_has_changes { (&changed, &all) } else { (&tables[0], &sets[0]) };
                check(&mut session, table, entries, &keys(&mut random, count));
            }
            assert!(session.has_graphs());
        }
    });
}

#[test]
fn the_second_full_batch_is_recorded_and_those_behind_it_are_launched_whole() {
    // One launch by itself: the first.
    let test = "the_second_full_batch_is_recorded_and_those_behind_it_are_launched_whole";
    on_host_device(test, "plain=1", || {
        let device = Device::open(0).expect("the host device");
        let (mut session, entries) = (session(&device, 1, true), rules(3));
        let table = table(&device, Method::Linear, &entries);
        let mut random = Random::new(2);
        for _ in 0..5 {
            check(&mut session, &table, &entries, &keys(&mut random, BATCH));
        }
        // One that is not full goes by itself.
        let failed = session.lookup_batch(&table, &[[0; 4]; 3], &mut [None; 3]);
        assert!(matches!(failed, Err(GpuError::Device { .. })));
    });
}

#[test]
fn a_driver_that_records_nothing_is_done_without() {
    on_host_device("a_driver_that_records_nothing_is_done_without", "no-capture", || {
        let device = Device::open(0).expect("the host device");
        let (mut session, entries) = (session(&device, 2, true), rules(4));
        let table = table(&device, Method::Tuple, &entries);
        check(&mut session, &table, &entries, &keys(&mut Random::new(3), 6 * BATCH));
        assert!(!session.has_graphs());
    });
}

#[test]
fn graphs_and_their_tables_end_when_another_table_comes() {
    on_host_device("graphs_and_their_tables_end_when_another_table_comes", "", || {
        let context = cudarc::driver::CudaContext::new(0).expect("the host device");
        let free = || context.mem_get_info().expect("it says").0;
        let device = Device::open(0).expect("the host device");
        let entries = rules(5);
        let before = free();
        let mut session = session(&device, 2, true);
        let first = table(&device, Method::Bloom, &entries);
        check(&mut session, &first, &entries, &keys(&mut Random::new(4), 6 * BATCH));
        let with_graphs = free();
        let kept = Arc::downgrade(&first);
        drop(first);
        assert!(kept.upgrade().is_some(), "graphs have its addresses");
        let second = table(&device, Method::Bloom, &entries);
        check(&mut session, &second, &entries, &keys(&mut Random::new(5), 3));
        assert!(kept.upgrade().is_none());
        assert!(free() > with_graphs, "as much table, and no graph");
        check(&mut session, &second, &entries, &keys(&mut Random::new(6), 6 * BATCH));
        drop((second, session));
        assert_eq!(free(), before);
    });
}

#[test]
fn a_device_that_disappears_under_a_graph_is_an_error() {
    on_host_device("a_device_that_disappears_under_a_graph_is_an_error", "vanish=5", || {
        let device = Device::open(0).expect("the host device");
        let (mut session, entries) = (session(&device, 1, true), rules(6));
        let table = table(&device, Method::Vector, &entries);
        let mut random = Random::new(7);
        for _ in 0..5 {
            check(&mut session, &table, &entries, &keys(&mut random, BATCH));
        }
        let failed = session.lookup_batch(&table, &keys(&mut random, BATCH), &mut [None; BATCH]);
        assert!(matches!(failed, Err(GpuError::Device { .. })));
    });
}

#[test]
fn rules_that_change_get_the_same_answers_by_graphs() {
    on_host_device("rules_that_change_get_the_same_answers_by_graphs", "", || {
        let others = matches(Profile::Acl, 50, 17);
        let mut config = with_changes(Method::Pruned, 6, Rebuild::Background);
        config.session.graphs = true;
        let mut history = History::new(config, &others[..25], 9);
        for _ in 0..60 {
            history.step(&others);
            history.lookup(300);
        }
        history.send();
        history.receive_all();
        assert!(history.table.has_graphs() && history.table.failure().is_none());
    });
}
