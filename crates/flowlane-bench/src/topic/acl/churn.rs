//! Tables after rule changes, next to fresh tables of the same rules.

use std::hint::black_box;

use flowlane::classify::acl::{Acl, AclConfig, AclEngine, Layout, MatchId};
use flowlane::generate::Locality;
use flowlane::rule::Priority;

use super::set::{self, Set};
use super::{BATCH, add, keys, packets_per_pass};
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
use crate::topic::Context;

/// The share of rules that is removed and inserted again: one rule of this many.
const CHANGED: [(usize, &str); 3] = [(100, "a hundredth"), (10, "a tenth"), (3, "a third")];
pub(super) const ENGINES: [AclEngine; 2] = [AclEngine::Tree, AclEngine::Dynamic];
const RULES: usize = 10_000;

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    set::some_sets_count(context)
}

fn look_up(acl: &Acl<4>, keys: &[[u32; 4]]) {
    let mut verdicts = [MatchId::NONE; BATCH];
    for keys in keys.chunks(BATCH) {
        acl.lookup_batch(black_box(keys), &mut verdicts[..keys.len()]);
        black_box(&verdicts);
    }
}

/// Returns a distinct priority for each rule, so that a re-inserted rule keeps its position.
pub(super) fn priority(set: &Set, place: usize) -> Priority {
    Priority((set.entries.len() - place) as u32)
}

/// Builds a table of a set with an engine.
pub(super) fn fresh(set: &Set, engine: AclEngine) -> Acl<4> {
    let rules = set.entries.iter().enumerate();
    let rules = rules.map(|(place, e)| (e.rule, priority(set, place), e.condition, e.categories));
    let config = AclConfig::default().with_engine(engine);
    Acl::build(Layout::ipv4_five_tuple(), config, rules).expect("1 GiB is enough")
}

/// Builds the set in an engine, and again with unmerged changes.
fn tables(set: &Set, engine: AclEngine) -> Vec<(String, Acl<4>)> {
    let fresh = fresh(set, engine);
    let changed = CHANGED.map(|(step, name)| {
        let mut table = fresh.clone();
        let some = || set.entries.iter().enumerate().step_by(step);
        some().for_each(|(_, entry)| _ = table.remove(entry.rule));
        for (place, entry) in some() {
            let back = table.insert(entry.rule, priority(set, place), entry.condition, entry.categories);
            back.expect("was there a moment ago");
        }
        (format!("{engine}, {name} changed"), table)
    });
    std::iter::once((engine.to_string(), fresh)).chain(changed).collect()
}

/// Measures fresh tables, and tables in which a share of the rules was removed and inserted again, before any merge.
pub(super) fn after_changes(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let sets: Vec<Set> = set::some_sets(context, RULES).collect();
    let about = format!(
        "Batches of {BATCH}, uniform traffic. A part of the rules has been removed and inserted again in place, without a rebuild \
         since."
    );
    let mut figure = Figure::new("acl-churn", "Access lists: after changes", about)
        .over("rules", sets.iter().map(|set| set.name.clone()))
        .bars()
        .tall();
    for (place, set) in sets.iter().enumerate() {
        let keys = keys(&set.packets(packets_per_pass(context), Locality::Uniform, 0.0));
        let tables: Vec<_> = ENGINES.into_iter().flat_map(|engine| tables(set, engine)).collect();
        let keys = &keys;
        let contenders =
            tables.iter().map(|(name, acl)| Contender::new(name, move || look_up(acl, keys)).warm());
        let what = format!("{}, changed", set.name);
        let contenders = contenders.collect();
        add(&mut figure, place, &meter.compare(&what, keys.len() as u64, contenders));
    }
    for engine in ENGINES {
        for (_, name) in CHANGED {
            figure.gain(&format!("{engine}, {name} changed"), engine.name(), None);
        }
    }
    figure
}
