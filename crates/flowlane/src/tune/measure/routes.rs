//! Forwarding tables.

use std::hint::black_box;

use super::contest::{Measuring, Workload};
use super::{Outcome, one_contest};
use crate::generate::{Internet, Locality, RouteConfig, generate_addresses, generate_routes};
use crate::isa::Variant;
use crate::route::engine::{AnyFib, Family, FibKernel};
use crate::route::{Fib, FibConfig, HopSize, Rib};

const ROUTES: usize = 100_000;
const NEXT_HOPS: u64 = 100;
const ADDRESSES: usize = 1 << 14;
const BATCH: usize = 64;

/// A table for each candidate.
struct Looking<A: Family> {
    tables: Vec<(FibKernel, AnyFib<A>)>,
    addresses: Vec<A>,
}

impl<A: Family> Workload for Looking<A> {
    type Entrant = FibKernel;

    fn prepare(&mut self, candidate: &FibKernel) {
        // Each has a table of its own, which those of the others have driven out of the caches.
        self.run(candidate);
        // Other addresses first than the time before, so that branches are not learnt by heart.
        self.addresses.rotate_left(ADDRESSES / 3);
    }

    fn run(&mut self, candidate: &FibKernel) {
        let (_, table) = self.tables.iter().find(|(of, _)| of == candidate).expect("each has a table");
        let mut next_hops = [0; BATCH];
        for addresses in self.addresses.chunks(BATCH) {
            table.lookup_batch(black_box(addresses), &mut next_hops);
            black_box(&next_hops);
        }
    }
}

pub(super) fn measure<A: Family + Internet>(measuring: &mut Measuring<'_>) -> Outcome {
    let config = RouteConfig { count: ROUTES, next_hops: NEXT_HOPS, seed: 1 };
    let routes = generate_routes::<A>(&config);
    let mut rib = Rib::new(routes.len());
    for (prefix, next_hop) in &routes {
        rib.insert(*prefix, *next_hop).expect("there is room for all");
    }
    let variants = Variant::ALL.into_iter().filter(|v| v.available());
    let candidates = variants
        .flat_map(|variant| A::ENGINES.iter().map(move |engine| FibKernel { engine: *engine, variant }));
    let table = |choice: FibKernel| {
        let config = FibConfig::new(HopSize::B4).with_variant(choice.variant)?;
        let fib = A::build(choice.engine, &rib, &config)?.ok()?;
        // An engine need not have a kernel for every variant.
        (fib.variant() == choice.variant).then_some((choice, fib))
    };
    let tables: Vec<(FibKernel, AnyFib<A>)> = candidates.filter_map(table).collect();
    let candidates: Vec<FibKernel> = tables.iter().map(|(choice, _)| *choice).collect();
    // Half of what comes is spread over the routes, half over addresses without one.
    let addresses = generate_addresses(&routes, Locality::Uniform, 0.5, ADDRESSES, 1);
    let default = super::super::built_in(A::SLOT).choice;
    let of_default = tables.iter().find(|(choice, _)| choice.to_string() == default);
    let bytes = of_default.map(|(_, fib)| fib.table_bytes() as u64);
    let mut work = Looking { tables, addresses };
    one_contest(measuring, A::SLOT, bytes, ADDRESSES as u64, &candidates, &mut work)
}
