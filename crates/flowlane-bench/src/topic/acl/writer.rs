//! Readers next to a concurrent writer.

use std::hint::black_box;

use flowlane::classify::acl::AclEngine;
use flowlane::generate::Locality;
use flowlane::{Categories, ClassifierBuilder};

use super::set::{self, Set};
use super::{BATCH, add, packets_per_pass};
use crate::figure::Figure;
use crate::measure::{Measured, Meter};
use crate::topic::{Context, concurrent_writer};

/// Engines, and changes published at once: ten or a hundred publications a second.
const WRITTEN: [(AclEngine, usize); 3] =
    [(AclEngine::Tree, 10_000), (AclEngine::Dynamic, 1000), (AclEngine::Dynamic, 10_000)];
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
    let packets = set.packets(packets_per_pass(context), Locality::Uniform, 0.0);
    let build = || {
        let builder = ClassifierBuilder::new().engine(engine);
        builder.build(set.rules.iter().cloned()).expect("16 GiB are enough")
    };
    let (another, published) = (build(), build());
    let (mut reader, mut rules) = (published.reader(), [0; BATCH]);
    let look_up = || {
        for packets in packets.chunks(BATCH) {
            reader.list().lookup_keys(black_box(packets), &mut rules[..packets.len()]);
            black_box(&rules);
        }
    };
    let [change_another, change] = [another, published].map(|mut classifier| {
        let mut some = (0..set.rules.len() as u32).step_by(10).cycle();
        move || {
            for number in some.by_ref().take(step / 2) {
                let rule = classifier.remove(number).expect("every rule is there between two changes");
                classifier
                    .insert_numbered([(number, rule)], Categories::FIRST)
                    .expect("the rule was there before");
            }
            classifier.publish();
        }
    });
    let writer = concurrent_writer::Writer { change, change_another, step, per_second: CHANGES_PER_SECOND };
    let what = format!("{}, {engine} beside a writer", set.name);
    concurrent_writer::compare(meter, &what, packets.len(), look_up, writer)
}
