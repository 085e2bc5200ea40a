//! Readers next to a concurrent writer.

use std::hint::black_box;

use flowlane::classify::acl::{Acl, AclConfig, AclEngine, BuildError, Layout, MatchId, SharedAcl};
use flowlane::generate::Locality;

use super::set::{self, Set};
use super::{BATCH, add, keys, packets_per_pass};
use crate::figure::Figure;
use crate::measure::{Measured, Meter};
use crate::topic::{Context, concurrent_writer};

/// Engines, and changes published at once: ten or a thousand publications a second.
const WRITTEN: [(AclEngine, usize); 3] =
    [(AclEngine::Tree, 1000), (AclEngine::Dynamic, 100), (AclEngine::Dynamic, 10_000)];
const CHANGES_PER_SECOND: u64 = 100_000;
const RULES: usize = 100_000;

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    WRITTEN.len() * set::some_sets_count(context)
}

/// Measures one reader, alone and with a concurrent writer.
pub(super) fn with_concurrent_writer(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let mut about = format!(
        "A reader's batches of {BATCH} and a writer that removes a tenth of the rules and inserts them again, at {CHANGES_PER_SECOND} \
         changes a second in transactions of 100 to 10,000, each visible at once. {} Changes a second that there were:",
        concurrent_writer::ABOUT
    );
    let (mut places, mut all) = (Vec::new(), Vec::new());
    for set in set::some_sets(context, RULES) {
        for (engine, step) in WRITTEN {
            meter.say(&format!("building {}: {engine}", set.name));
            let (measured, per_second) = compare(meter, context, &set, engine, step);
            let place = format!("{}, {engine}, {step} at once", set.name);
            about.push_str(&format!(" {place} {per_second:.0}."));
            places.push(place);
            all.push(measured);
        }
    }
    let mut figure =
        Figure::new("acl-writer", "Access lists: beside a writer", about).over("rules", places).bars();
    all.iter().enumerate().for_each(|(place, measured)| add(&mut figure, place, measured));
    figure.gain("beside a writer", "alone", None);
    figure.gain("beside a writer", "beside a thread that spins", None);
    figure.gain("beside a writer", "beside a writer of another table", None);
    figure
}

fn compare(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    set: &Set,
    engine: AclEngine,
    step: usize,
) -> (Vec<Measured>, f64) {
    let keys = keys(&set.packets(packets_per_pass(context), Locality::Uniform, 0.0));
    let rules = set.entries.iter().map(|e| (e.rule, e.rank.priority(), e.condition, e.categories));
    let config = AclConfig::default().with_engine(engine);
    let acl = Acl::build(Layout::ipv4_five_tuple(), config, rules).expect("1 GiB is enough");
    let (another, shared) = (SharedAcl::new(acl.clone()), SharedAcl::new(acl));
    let (mut reader, mut verdicts) = (shared.reader(), [MatchId::NONE; BATCH]);
    let look_up = || {
        for keys in keys.chunks(BATCH) {
            reader.lookup_batch(black_box(keys), &mut verdicts[..keys.len()]);
            black_box(&verdicts);
        }
    };
    let [change_another, change] = [another, shared].map(|mut shared| {
        let mut some = set.entries.iter().step_by(10).cycle();
        move || {
            let made: Result<_, BuildError> = shared.transaction(|table| {
                for entry in some.by_ref().take(step / 2) {
                    table.remove(entry.rule);
                    table.insert(entry.rule, entry.rank.priority(), entry.condition, entry.categories)?;
                }
                Ok(())
            });
            made.expect("they were there a moment ago");
        }
    });
    let writer = concurrent_writer::Writer { change, change_another, step, per_second: CHANGES_PER_SECOND };
    let what = format!("{}, {engine} beside a writer", set.name);
    concurrent_writer::compare(meter, &what, keys.len(), look_up, writer)
}
