//! `flowlane route show`: prints the contents of a file of routes.

use std::collections::HashMap;

use flowlane::route::engine::{Engine, Family};
use flowlane::route::read::{AnyPrefix, NextHops};
use flowlane::route::{Fib, Prefix};
use serde::Serialize;

use super::table::{self, Built};
use crate::arguments::RouteShowOptions;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output};

/// Width of the histogram.
const BAR: usize = 40;

#[derive(Serialize)]
struct Document {
    format: &'static str,
    families: Vec<Summary>,
    next_hops: Vec<HopUse>,
    next_hops_in_use: usize,
}

#[derive(Serialize)]
struct Summary {
    family: &'static str,
    routes: usize,
    rib_bytes: usize,
    lengths: Vec<Length>,
    engines: Vec<Size>,
}

#[derive(Serialize)]
struct Length {
    length: u8,
    routes: usize,
}

/// Size of an engine's table, or the reason why it cannot be built.
#[derive(Serialize)]
struct Size {
    engine: &'static str,
    hop_bytes: Option<usize>,
    table_bytes: Option<usize>,
    build_seconds: Option<f64>,
    problem: Option<String>,
}

#[derive(Serialize)]
struct HopUse {
    next_hop: u64,
    via: String,
    routes: usize,
}

#[derive(Serialize)]
struct Listed {
    prefix: String,
    next_hop: u64,
    via: String,
}

/// Runs the verb.
pub(super) fn run(options: &RouteShowOptions) -> Result<(), Failure> {
    let (routes, format) = input::read_routes(&options.routes)?;
    match options.subtree {
        Some(AnyPrefix::V4(prefix)) => return subtree(&routes.v4, &routes.next_hops, prefix, options),
        Some(AnyPrefix::V6(prefix)) => return subtree(&routes.v6, &routes.next_hops, prefix, options),
        None => {}
    }
    let hops = routes.v4.iter().map(|(_, hop)| *hop).chain(routes.v6.iter().map(|(_, hop)| *hop));
    let mut used: HashMap<u64, usize> = HashMap::new();
    hops.for_each(|hop| *used.entry(hop).or_default() += 1);
    let mut next_hops: Vec<(u64, usize)> = used.into_iter().collect();
    next_hops.sort_unstable_by_key(|(hop, routes)| (std::cmp::Reverse(*routes), *hop));
    let next_hops_in_use = next_hops.len();
    next_hops.truncate(options.next_hops);
    let hop_use =
        |(next_hop, count)| HopUse { next_hop, via: table::via(&routes.next_hops, next_hop), routes: count };
    let families = [summary(&routes.v4, options), summary(&routes.v6, options)];
    let document = Document {
        format,
        families: families.into_iter().flatten().collect(),
        next_hops: next_hops.into_iter().map(hop_use).collect(),
        next_hops_in_use,
    };
    if options.json {
        return output::json(&document);
    }
    let mut out = Output::create(None)?;
    document.families.iter().try_for_each(|family| out.text(&family.text()))?;
    out.text(&document.hops_text())?;
    out.finish()
}

/// Lists the routes inside a prefix, and those that cover it.
fn subtree<A: Family>(
    routes: &[(Prefix<A>, u64)],
    next_hops: &NextHops,
    prefix: Prefix<A>,
    options: &RouteShowOptions,
) -> Result<(), Failure> {
    let rib = table::rib(routes);
    let around = rib.covering(prefix).into_iter();
    let listed = around.chain(rib.walk(prefix)).map(|(prefix, next_hop)| Listed {
        prefix: prefix.to_string(),
        next_hop,
        via: table::via(next_hops, next_hop),
    });
    if options.json {
        return output::json(&listed.collect::<Vec<_>>());
    }
    let mut out = Output::create(None)?;
    for Listed { prefix, next_hop, via } in listed {
        let shown = if via.is_empty() { next_hop.to_string() } else { via };
        out.text(&format!("{prefix} {shown}\n"))?;
    }
    out.finish()
}

fn summary<A: Family>(routes: &[(Prefix<A>, u64)], options: &RouteShowOptions) -> Option<Summary> {
    if routes.is_empty() {
        return None;
    }
    let mut counts = vec![0; usize::from(A::BITS) + 1];
    routes.iter().for_each(|(prefix, _)| counts[usize::from(prefix.len())] += 1);
    let lengths = (0..).zip(counts).filter(|(_, n)| *n > 0).map(|(length, routes)| Length { length, routes });
    let rib = table::rib(routes);
    let size = |engine: &Engine| match Built::new(&rib, Some(*engine), None, &options.shape) {
        Ok(built) => Size {
            engine: engine.name(),
            hop_bytes: Some(built.hop_size.bytes()),
            table_bytes: Some(built.fib.table_bytes()),
            build_seconds: Some(built.seconds),
            problem: None,
        },
        Err(failure) => Size {
            engine: engine.name(),
            hop_bytes: None,
            table_bytes: None,
            build_seconds: None,
            problem: Some(failure.message()),
        },
    };
    Some(Summary {
        family: A::FAMILY,
        routes: routes.len(),
        rib_bytes: rib.table_bytes(),
        lengths: lengths.collect(),
        engines: A::ENGINES.iter().map(size).collect(),
    })
}

impl Summary {
    fn text(&self) -> String {
        let most = self.lengths.iter().map(|l| l.routes).max().unwrap_or(1);
        let bar = |n: usize| "#".repeat((n * BAR).div_ceil(most));
        let row = |l: &Length| vec![format!("/{}", l.length), output::count(l.routes as u64), bar(l.routes)];
        let rows: Vec<Vec<String>> = self.lengths.iter().map(row).collect();
        let title = format!("{}: {} routes", self.family, output::count(self.routes as u64));
        let lengths = output::text_table(&title, &["length", "routes", ""], &rows);
        let own =
            ["routing table".into(), String::new(), output::bytes(self.rib_bytes as u64), String::new()];
        let size = |s: &Size| {
            let bytes = s.table_bytes.map(|n| output::bytes(n as u64));
            vec![
                s.engine.to_owned(),
                s.hop_bytes.map(|n| n.to_string()).unwrap_or_default(),
                bytes.or_else(|| s.problem.clone()).unwrap_or_default(),
                s.build_seconds.map(|s| format!("{s:.3} s")).unwrap_or_default(),
            ]
        };
        let rows: Vec<Vec<String>> = self.engines.iter().map(size).chain([own.to_vec()]).collect();
        lengths + &output::table("", &["table", "next-hop bytes", "memory", "built in"], &rows)
    }
}

impl Document {
    fn hops_text(&self) -> String {
        let row = |h: &HopUse| vec![h.next_hop.to_string(), output::count(h.routes as u64), h.via.clone()];
        let rows: Vec<Vec<String>> = self.next_hops.iter().map(row).collect();
        let more = match self.next_hops_in_use - rows.len() {
            0 => String::new(),
            n => format!("and {n} more; raise --next-hops to show them\n"),
        };
        let title = format!("next hops: {}", output::count(self.next_hops_in_use as u64));
        output::text_table(&title, &["next hop", "routes", "via"], &rows) + &more
    }
}
