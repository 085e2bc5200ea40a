//! `flowlane route bench`: benchmarks every engine and variant on a file of routes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use flowlane::generate::{Internet, generate_addresses, generate_updates};
use flowlane::isa::Variant;
use flowlane::route::engine::{AnyFib, Engine, Family};
use flowlane::route::read::{AnyPrefix, Update, read_updates};
use flowlane::route::{Fib, Prefix, Rib};
use flowlane_bench::measure::{Contender, Effort, Measured, Meter, TimeStampCounter};
use serde::Serialize;

use super::table::{self, Built};
use crate::arguments::{FIB_VARIANTS, RouteBenchOptions};
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output, SHARES};

/// Number of generated updates, without a trace.
const UPDATES: usize = 100_000;
/// Time limit of an engine's updates.
const UPDATES_TIME: Duration = Duration::from_secs(2);
/// Limit of updates read from a trace.
const UPDATES_MAX: usize = 10_000_000;

#[derive(Serialize)]
struct Row {
    family: &'static str,
    routes: usize,
    engine: &'static str,
    variant: &'static str,
    hop_bytes: usize,
    table_bytes: usize,
    build_seconds: f64,
    millions_per_second: f64,
    cycles: f64,
    /// Larger distance of a quartile from the median.
    spread: f64,
    /// Update rate of the engine, which does not depend on the variant.
    updates: Option<Updates>,
}

#[derive(Clone, Copy, Serialize)]
struct Updates {
    applied: usize,
    per_second: f64,
    /// Size of the table after the updates.
    table_bytes: usize,
}

/// An update: prefix, and next hop or `None` for a withdrawal.
type Change<A> = (Prefix<A>, Option<u64>);

/// Runs the verb.
pub(super) fn run(options: &RouteBenchOptions) -> Result<(), Failure> {
    table::check(options.variant)?;
    if !(0.0..=1.0).contains(&options.miss) {
        return Err(Failure::input_help(
            format!("--miss {} is not between 0 and 1", options.miss),
            "give 0 to 1",
        ));
    }
    if !(options.seconds > 0.0 && options.seconds.is_finite()) {
        let message = format!("--seconds {} is not a positive time", options.seconds);
        return Err(Failure::input_help(message, "give a positive number of seconds: --seconds 30"));
    }
    let (routes, _) = input::read_routes(&options.routes)?;
    let trace = options.updates.as_deref().map(read_trace).transpose()?;
    let v4_updates =
        trace.as_deref().map(|t| of_family(t, |p| if let AnyPrefix::V4(p) = p { Some(p) } else { None }));
    let v6_updates =
        trace.as_deref().map(|t| of_family(t, |p| if let AnyPrefix::V6(p) = p { Some(p) } else { None }));
    let clock = TimeStampCounter::new();
    let bar = output::progress_share();
    let mut watch = |what: &str, share: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((share * SHARES as f64) as u64);
    };
    let mut rows = Vec::new();
    let mut one = Bench { options, clock: &clock, watch: &mut watch };
    one.family(&routes.v4, v4_updates, &mut rows)?;
    one.family(&routes.v6, v6_updates, &mut rows)?;
    bar.finish_and_clear();
    if options.json {
        return output::json(&rows);
    }
    let mut out = Output::create(None)?;
    out.text(&text(&rows))?;
    out.finish()
}

fn read_trace(path: &std::path::Path) -> Result<Vec<Update>, Failure> {
    let text = input::read_text(path)?;
    match read_updates(&text, &path.display().to_string(), UPDATES_MAX) {
        Ok((updates, _)) => Ok(updates),
        Err(errors) => Err(Failure::lines(text, &errors)),
    }
}

fn of_family<A: Family>(
    updates: &[Update],
    prefix: impl Fn(AnyPrefix) -> Option<Prefix<A>>,
) -> Vec<Change<A>> {
    updates.iter().filter_map(|update| Some((prefix(update.prefix)?, update.next_hop))).collect()
}

struct Bench<'a> {
    options: &'a RouteBenchOptions,
    clock: &'a TimeStampCounter,
    watch: &'a mut dyn FnMut(&str, f64),
}

impl Bench<'_> {
    fn family<A: Family + Internet>(
        &mut self,
        routes: &[(Prefix<A>, u64)],
        trace: Option<Vec<Change<A>>>,
        rows: &mut Vec<Row>,
    ) -> Result<(), Failure> {
        let asked = self.options.engine.0;
        if routes.is_empty() || asked.is_some_and(|e| !A::ENGINES.contains(&e)) {
            return Ok(());
        }
        let addresses = generate_addresses(
            routes,
            self.options.locality,
            self.options.miss,
            self.options.count,
            self.options.seed,
        );
        let hops = routes.iter().map(|(_, next_hop)| *next_hop).max().unwrap_or(1);
        let updates = trace.unwrap_or_else(|| generate_updates(routes, hops, UPDATES, self.options.seed));
        let rib = table::rib(routes);
        let mut tables = Vec::new();
        let first = rows.len();
        for engine in A::ENGINES.iter().filter(|e| asked.is_none_or(|a| a == **e)) {
            let updates = self.updates(&rib, routes, *engine, &updates)?;
            for variant in self.variants() {
                let built = Built::new(&rib, Some(*engine), Some(variant), &self.options.shape)?;
                // Not every engine has a kernel for every variant.
                if built.fib.variant() != variant {
                    continue;
                }
                rows.push(Row {
                    family: A::FAMILY,
                    routes: rib.len(),
                    engine: engine.name(),
                    variant: variant.name(),
                    hop_bytes: built.hop_size.bytes(),
                    table_bytes: built.fib.table_bytes(),
                    build_seconds: built.seconds,
                    millions_per_second: 0.0,
                    cycles: 0.0,
                    spread: 0.0,
                    updates,
                });
                tables.push(built);
            }
        }
        for (row, measured) in rows[first..].iter_mut().zip(self.lookups(&tables, &addresses)) {
            row.millions_per_second = 1e3 / measured.ns.median;
            row.cycles = measured.cycles.median;
            let (low, high) = (measured.cycles.lower_quartile, measured.cycles.upper_quartile);
            row.spread = (row.cycles - low).max(high - row.cycles) / row.cycles;
        }
        Ok(())
    }

    fn variants(&self) -> Vec<Variant> {
        let requested = |v: &Variant| self.options.variant.is_none_or(|a| a == *v);
        FIB_VARIANTS.into_iter().filter(|v| v.available() && requested(v)).collect()
    }

    fn lookups<A: Family>(&mut self, tables: &[Built<A>], addresses: &[A]) -> Vec<Measured> {
        let effort = Effort { seconds: Some(self.options.seconds), ..Effort::default() };
        let mut meter = Meter::new(self.clock, effort, self.watch);
        meter.announce(1);
        let batch = self.options.batch as usize;
        let contenders = tables.iter().map(|built| Contender::new("", look_up(&built.fib, addresses, batch)));
        let contenders: Vec<Contender<'_>> = contenders.collect();
        meter.compare(A::FAMILY, addresses.len() as u64, contenders)
    }

    /// Applies updates one at a time, to routes and table.
    fn updates<A: Family>(
        &mut self,
        rib: &Rib<A>,
        routes: &[(Prefix<A>, u64)],
        engine: Engine,
        updates: &[Change<A>],
    ) -> Result<Option<Updates>, Failure> {
        if updates.is_empty() {
            return Ok(None);
        }
        (self.watch)("updates", 0.0);
        let mut fib = Built::new(rib, Some(engine), self.options.variant, &self.options.shape)?.fib;
        // A second routing table, with room for what the updates add.
        let mut rib = Rib::new(routes.len() + updates.len());
        for (prefix, next_hop) in routes {
            rib.insert(*prefix, *next_hop).expect("there is room for all");
        }
        let begun = Instant::now();
        let mut applied = 0;
        for changes in updates.chunks(64) {
            for (prefix, next_hop) in changes {
                apply(&mut rib, &mut fib, *prefix, *next_hop)?;
            }
            applied += changes.len();
            if begun.elapsed() > UPDATES_TIME {
                break;
            }
        }
        let per_second = applied as f64 / begun.elapsed().as_secs_f64();
        Ok(Some(Updates { applied, per_second, table_bytes: fib.table_bytes() }))
    }
}

fn apply<A: Family>(
    rib: &mut Rib<A>,
    fib: &mut AnyFib<A>,
    prefix: Prefix<A>,
    next_hop: Option<u64>,
) -> Result<(), Failure> {
    match next_hop {
        Some(next_hop) => _ = rib.insert(prefix, next_hop).expect("there is room for all"),
        None => _ = rib.remove(prefix),
    }
    fib.update(rib, prefix).map_err(|e| {
        let help = "raise --memory-max, or choose another --hop-size";
        Failure::input_help(format!("the update of {prefix} failed: {e}"), help)
    })
}

/// Looks up all addresses once, in batches.
fn look_up<'a, A: Family>(fib: &'a AnyFib<A>, addresses: &'a [A], batch: usize) -> impl FnMut() + 'a {
    let mut next_hops = vec![0; batch];
    move || {
        for addresses in addresses.chunks(batch) {
            fib.lookup_batch(black_box(addresses), &mut next_hops);
            black_box(&next_hops);
        }
    }
}

fn text(rows: &[Row]) -> String {
    let header = [
        "engine",
        "variant",
        "hop bytes",
        "memory",
        "build time",
        "million lookups/s",
        "cycles",
        "±",
        "updates/s",
    ];
    let mut families: Vec<&str> = rows.iter().map(|row| row.family).collect();
    families.dedup();
    let mut out = String::new();
    for family in families {
        let these = rows.iter().filter(|row| row.family == family);
        let routes = these.clone().next().map_or(0, |row| row.routes);
        let cells = these.map(|row| {
            vec![
                row.engine.to_owned(),
                row.variant.to_owned(),
                row.hop_bytes.to_string(),
                output::bytes(row.table_bytes as u64),
                format!("{:.3} s", row.build_seconds),
                format!("{:.1}", row.millions_per_second),
                format!("{:.1}", row.cycles),
                format!("{:.0} %", 100.0 * row.spread),
                row.updates.map(|u| output::count(u.per_second as u64)).unwrap_or_default(),
            ]
        });
        let title = format!("{family}: {} routes", output::count(routes as u64));
        out += &output::table(&title, &header, &cells.collect::<Vec<_>>());
    }
    out
}
