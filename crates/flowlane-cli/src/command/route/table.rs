//! Building forwarding tables from the arguments.

use std::time::Instant;

use flowlane::isa::Variant;
use flowlane::route::engine::{AnyFib, Engine, Family};
use flowlane::route::read::NextHops;
use flowlane::route::{BuildError, Fib, FibConfig, HopSize, Prefix, Rib};

use crate::arguments::FibShape;
use crate::failure::Failure;

/// Checks that this machine can run the requested variant.
pub(super) fn check(variant: Option<Variant>) -> Result<(), Failure> {
    let Some(variant) = variant.filter(|variant| !variant.available()) else { return Ok(()) };
    let reason = match variant.detected() {
        true => "the SIMD width cap forbids it; raise --max-simd",
        false => "the CPU does not support it; omit --variant to use the best one",
    };
    Err(Failure::Environment(format!("the variant {variant} cannot be used here: {reason}")))
}

/// Builds the routing table of an address family.
pub(super) fn rib<A: Family>(routes: &[(Prefix<A>, u64)]) -> Rib<A> {
    let mut rib = Rib::new(routes.len());
    for (prefix, next_hop) in routes {
        rib.insert(*prefix, *next_hop).expect("the table is as large as the file");
    }
    rib
}

/// A forwarding table, with its next-hop size and build time.
pub(super) struct Built<A: Family> {
    pub(super) fib: AnyFib<A>,
    pub(super) hop_size: HopSize,
    pub(super) seconds: f64,
}

impl<A: Family> Built<A> {
    /// Builds the table with the given or best engine, and with the smallest next-hop size that fits if none is given.
    pub(super) fn new(
        rib: &Rib<A>,
        engine: Option<Engine>,
        variant: Option<Variant>,
        shape: &FibShape,
    ) -> Result<Self, Failure> {
        let sizes = shape.hop_size.map_or(HopSize::ALL.to_vec(), |size| vec![size]);
        let mut last = None;
        for hop_size in sizes {
            let config = config(hop_size, variant, shape);
            let begun = Instant::now();
            let built = match engine {
                None => Some(AnyFib::build(rib, &config)),
                Some(engine) => A::build(engine, rib, &config),
            };
            match built {
                None => return Err(no_such_engine::<A>(engine.expect("auto is always there"))),
                Some(Ok(fib)) => return Ok(Self { fib, hop_size, seconds: begun.elapsed().as_secs_f64() }),
                Some(Err(error @ BuildError::NeedsMemory { .. })) => return Err(failed(&error)),
                Some(Err(error)) => last = Some(error),
            }
        }
        Err(failed(&last.expect("there is a size")))
    }
}

fn config(hop_size: HopSize, variant: Option<Variant>, shape: &FibShape) -> FibConfig {
    let config = FibConfig::new(hop_size)
        .with_default_next_hop(shape.default_next_hop)
        .with_memory_max(shape.memory_max);
    let Some(variant) = variant else { return config };
    config.with_variant(variant).expect("checked to be available")
}

fn no_such_engine<A: Family>(engine: Engine) -> Failure {
    let names: Vec<&str> = A::ENGINES.iter().map(|e| e.name()).collect();
    Failure::input_help(
        format!("the engine {engine} has no {} tables", A::FAMILY),
        format!("engines for {}: {}", A::FAMILY, names.join(", ")),
    )
}

fn failed(error: &BuildError) -> Failure {
    let help = match error {
        BuildError::NeedsMemory { .. } => "raise --memory-max, or choose another --engine",
        _ => "choose a larger --hop-size, or omit it",
    };
    Failure::input_help(error.to_string(), help)
}

/// Returns the text of a next hop; empty if the file gives numbers.
pub(super) fn via(next_hops: &NextHops, number: u64) -> String {
    next_hops.get(number).map(ToString::to_string).unwrap_or_default()
}
