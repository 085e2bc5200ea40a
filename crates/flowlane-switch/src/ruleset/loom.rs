//! Publication of rulesets to a worker, and collection of its counters, in every interleaving with up to 3 preemptions (loom):
//! `RUSTFLAGS="--cfg loom" cargo test -p flowlane-switch --release --lib loom`.

use std::sync::Arc;

use flowlane::rule::RuleId;
use loom::thread;

use super::counters::{FlowStats, LocalCounters};
use super::publication::{PublishedRuleset, RulesetReader, WorkerEpoch};
use super::snapshot::Ruleset;
use super::table_map::TableMap;
use crate::sync::{AtomicBool, Ordering};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn ruleset(version: u64) -> Arc<Ruleset> {
    Arc::new(Ruleset::of_version(version))
}

/// A ruleset that all workers have passed is modified for reuse, so no worker may still read it. `next` is how a worker takes the
/// newest one before a burst.
fn no_worker_uses_what_all_have_passed(next: fn(&RulesetReader, &mut Arc<Ruleset>)) {
    check(move || {
        let published = Arc::new(PublishedRuleset::new(ruleset(1)));
        let reader = Arc::new(WorkerEpoch::new(TableMap::default()));
        let changed = loom::sync::Arc::new(AtomicBool::new(false));
        let working = thread::spawn({
            let mut used = published.newest();
            let mut source = RulesetReader::new(published.clone(), reader.clone());
            let changed = changed.clone();
            move || {
                source.begin(used.version(), None);
                for next in [follow, next] {
                    next(&source, &mut used);
                    assert!(used.version() == 2 || !changed.load(Ordering::Relaxed), "the first is in use");
                }
                source.end();
            }
        });
        assert_eq!(published.publish(ruleset(2)).version(), 1);
        if reader.has_passed(2) {
            changed.store(true, Ordering::Relaxed);
        }
        working.join().unwrap();
        assert!(reader.is_offline());
        assert_eq!(published.newest().version(), 2);
    });
}

/// As a worker's pipeline does before each burst.
fn follow(source: &RulesetReader, used: &mut Arc<Ruleset>) {
    if source.refresh(used).is_some() {
        source.passed(used.version());
    }
}

#[test]
fn a_worker_that_follows_uses_no_ruleset_that_all_have_passed() {
    no_worker_uses_what_all_have_passed(follow);
}

#[test]
fn a_worker_that_has_rested_uses_no_ruleset_that_all_have_passed() {
    no_worker_uses_what_all_have_passed(|source, used| {
        assert!(source.rest(used));
        assert_eq!(used.version(), 0, "it holds none");
        source.resume(used);
    });
}

#[test]
fn what_was_counted_before_it_was_asked_for_is_in_the_sum_and_nothing_goes_back() {
    check(|| {
        let published = Arc::new(PublishedRuleset::new(ruleset(1)));
        let reader = Arc::new(WorkerEpoch::new(TableMap::default()));
        let mut counters = LocalCounters::default();
        let tally = counters.tally().clone();
        let working = thread::spawn({
            let mut source = RulesetReader::new(published, reader.clone());
            move || {
                source.begin(1, None);
                // A path's counts are flushed on request, and at the end; the table grows meanwhile.
                let mut of_path = 0;
                for rule in [0, 2] {
                    counters.grow(rule + 1);
                    of_path += 1;
                    if source.wants_counters() {
                        let wanted = source.wanted();
                        counters.count(Some(RuleId(0)), std::mem::take(&mut of_path), 0);
                        source.collected(wanted);
                    }
                }
                counters.count(Some(RuleId(0)), of_path, 0);
                counters.count(Some(RuleId(2)), 1, 60);
            }
        });
        let asked = reader.want_counters();
        while !reader.has_collected(asked) {
            thread::yield_now();
        }
        let sum = tally.of([RuleId(0), RuleId(2)]);
        assert!(sum[0].packets > 0, "it is said to have been brought");
        working.join().unwrap();
        let after = tally.of([RuleId(0), RuleId(2)]);
        assert!(sum.iter().zip(&after).all(|(sum, after)| sum.packets <= after.packets));
        assert_eq!(after, [FlowStats { packets: 2, bytes: 0 }, FlowStats { packets: 1, bytes: 60 }]);
    });
}
