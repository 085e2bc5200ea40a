//! Lookups with a concurrent writer.

use std::hint::black_box;

use flowlane::generate::{Locality, generate_updates};
use flowlane::route::{Fib, FibReader};

use super::{BATCH, HOP_SIZE, Kind, NEXT_HOPS, SEED, Work, add, id};
use crate::figure::Figure;
use crate::measure::Meter;
use crate::topic::{Context, concurrent_writer};

const CHANGES_PER_SECOND: u64 = 1_000_000;
/// Changes between two reads of the clock.
const STEP: usize = 20;

pub(super) fn with_concurrent_writer<A: Kind>(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    work: &Work<A>,
) -> Figure {
    let mut about = format!(
        "{}; batches of {BATCH} addresses, uniform over the routes, and a writer that withdraws and announces routes at \
         {CHANGES_PER_SECOND} changes a second, in the routes and the table, each visible at once. {} Changes a second that there were:",
        work.about(),
        concurrent_writer::ABOUT
    );
    let variant = super::variants(context).last().expect("there is always the scalar one");
    let addresses = work.addresses(Locality::Uniform, 0.0);
    let updates = generate_updates(&work.routes, NEXT_HOPS, work.updates, SEED);
    let (mut places, mut all) = (Vec::new(), Vec::new());
    for engine in A::ENGINES {
        let [Some(fib), Some(another)] = [(); 2].map(|()| work.build(*engine, variant, HOP_SIZE)) else {
            continue;
        };
        let (reader, mut next_hops) = (fib.reader(), [0; BATCH]);
        let look_up = || {
            for batch in addresses.chunks(BATCH) {
                reader.lookup_batch(black_box(batch), &mut next_hops);
                black_box(&next_hops);
            }
        };
        let [change_another, change] = [another, fib].map(|mut fib| {
            let (mut rib, mut next) = (work.rib.clone(), updates.iter().cycle());
            move || {
                for (prefix, hop) in next.by_ref().take(STEP) {
                    super::change(&mut rib, &mut fib, *prefix, *hop);
                }
            }
        });
        let writer =
            concurrent_writer::Writer { change, change_another, step: STEP, per_second: CHANGES_PER_SECOND };
        let what = format!("{}, {engine} beside a writer", A::FAMILY);
        let (measured, per_second) =
            concurrent_writer::compare(meter, &what, addresses.len(), look_up, writer);
        about.push_str(&format!(" {engine} {per_second:.0}."));
        places.push(engine.name().to_owned());
        all.push(measured);
    }
    let title = format!("{} routes: beside a writer", A::FAMILY);
    let mut figure = Figure::new(id::<A>("writer"), title, about).over("engine", places).bars();
    all.iter().enumerate().for_each(|(place, measured)| add(&mut figure, place, measured));
    figure.gain("beside a writer", "alone", None);
    figure.gain("beside a writer", "beside a thread that spins", None);
    figure.gain("beside a writer", "beside a writer of another table", None);
    figure
}
