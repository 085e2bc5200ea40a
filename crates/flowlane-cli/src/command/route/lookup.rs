//! `flowlane route lookup`: looks up the route of each address.

use std::net::IpAddr;
use std::time::Instant;

use flowlane::route::engine::Family;
use flowlane::route::read::{NextHops, RouteList};
use flowlane::route::{Fib, Prefix};
use serde::Serialize;

use super::table::{self, Built};
use crate::arguments::RouteLookupOptions;
use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output};
use crate::stderr::{self, Severity};

#[derive(Clone, Serialize)]
struct Answer {
    address: IpAddr,
    /// `None` without a route.
    prefix: Option<String>,
    next_hop: u64,
    via: String,
    engine: &'static str,
}

/// Forwarding table of an address family, with its lookup statistics.
#[derive(Serialize)]
struct Table {
    family: &'static str,
    routes: usize,
    engine: &'static str,
    variant: &'static str,
    hop_bytes: usize,
    table_bytes: usize,
    build_seconds: f64,
    lookups: usize,
    misses: usize,
    lookups_per_second: f64,
    /// Results that differ from the longest-prefix match of the routes.
    differences: usize,
}

#[derive(Serialize)]
struct Document {
    tables: Vec<Table>,
    answers: Vec<Answer>,
}

/// Runs the verb.
pub(super) fn run(options: &RouteLookupOptions) -> Result<(), Failure> {
    table::check(options.variant)?;
    if options.addresses.is_none() && options.address.is_empty() {
        let help = "give addresses, or a file of addresses with --addresses FILE";
        return Err(Failure::input_help("no address to look up", help));
    }
    let (routes, _) = input::read_routes(&options.routes)?;
    let addresses = match &options.addresses {
        Some(path) => input::read_addresses(path)?,
        None => options.address.clone(),
    };
    let mut document = Document { tables: Vec::new(), answers: Vec::new() };
    let mut answers: Vec<Option<Answer>> = vec![None; addresses.len()];
    let RouteList { v4, v6, next_hops } = &routes;
    let v4_asked = |a: &IpAddr| if let IpAddr::V4(a) = a { Some(a.to_bits()) } else { None };
    let v6_asked = |a: &IpAddr| if let IpAddr::V6(a) = a { Some(a.to_bits()) } else { None };
    document.tables.extend(ask(v4, next_hops, &addresses, v4_asked, options, &mut answers)?);
    document.tables.extend(ask(v6, next_hops, &addresses, v6_asked, options, &mut answers)?);
    document.answers = answers.into_iter().flatten().collect();
    write(&document, options)?;
    match document.tables.iter().map(|t| t.differences).sum() {
        0 => Ok(()),
        n => Err(Failure::Check(format!("{n} of {} results differ from the routes", addresses.len()))),
    }
}

/// Looks up the addresses of one family; returns `None` if there are none.
fn ask<A: Family>(
    routes: &[(Prefix<A>, u64)],
    next_hops: &NextHops,
    addresses: &[IpAddr],
    of_family: impl Fn(&IpAddr) -> Option<A>,
    options: &RouteLookupOptions,
    answers: &mut [Option<Answer>],
) -> Result<Option<Table>, Failure> {
    let (places, asked): (Vec<usize>, Vec<A>) =
        addresses.iter().enumerate().filter_map(|(i, a)| Some((i, of_family(a)?))).unzip();
    if asked.is_empty() {
        return Ok(None);
    }
    let rib = table::rib(routes);
    let built = Built::new(&rib, options.engine.0, options.variant, &options.shape)?;
    let mut found = vec![0; asked.len()];
    let begun = Instant::now();
    built.fib.lookup_batch(&asked, &mut found);
    let seconds = begun.elapsed().as_secs_f64();
    let (mut misses, mut differences) = (0, 0);
    for ((place, address), next_hop) in places.into_iter().zip(&asked).zip(&found) {
        let longest = rib.lookup(*address);
        misses += usize::from(longest.is_none());
        let expected = longest.map_or(options.shape.default_next_hop, |(_, next_hop)| next_hop);
        differences += usize::from(expected != *next_hop);
        answers[place] = Some(Answer {
            address: address.to_ip(),
            prefix: longest.map(|(prefix, _)| prefix.to_string()),
            next_hop: *next_hop,
            via: longest.map(|_| table::via(next_hops, *next_hop)).unwrap_or_default(),
            engine: built.fib.engine().name(),
        });
    }
    Ok(Some(Table {
        family: A::FAMILY,
        routes: rib.len(),
        engine: built.fib.engine().name(),
        variant: built.fib.variant().name(),
        hop_bytes: built.hop_size.bytes(),
        table_bytes: built.fib.table_bytes(),
        build_seconds: built.seconds,
        lookups: asked.len(),
        misses,
        lookups_per_second: asked.len() as f64 / seconds.max(1e-9),
        differences,
    }))
}

/// Writes a table for addresses given as arguments, CSV for a file of addresses, or JSON.
fn write(document: &Document, options: &RouteLookupOptions) -> Result<(), Failure> {
    let mut out = Output::create(options.output.as_deref())?;
    if options.json {
        out.text(&serde_json::to_string_pretty(document).expect("plain data"))?;
        out.text("\n")?;
        return out.finish();
    }
    if options.addresses.is_none() && options.output.is_none() {
        let header = ["address", "prefix", "next hop", "via", "engine"];
        let row = |a: &Answer| {
            let prefix = a.prefix.clone().unwrap_or_else(|| "no route".to_owned());
            vec![a.address.to_string(), prefix, a.next_hop.to_string(), a.via.clone(), a.engine.to_owned()]
        };
        let rows: Vec<Vec<String>> = document.answers.iter().map(row).collect();
        out.text(&output::text_table("", &header, &rows))?;
        return out.finish();
    }
    out.text("address,prefix,next_hop,via\n")?;
    for answer in &document.answers {
        let quote = if answer.via.contains(',') { "\"" } else { "" };
        let prefix = answer.prefix.as_deref().unwrap_or_default();
        let Answer { address, next_hop, via, .. } = answer;
        out.text(&format!("{address},{prefix},{next_hop},{quote}{via}{quote}\n"))?;
    }
    out.finish()?;
    document.tables.iter().for_each(|table| stderr::write(Severity::Info, &table.text()));
    Ok(())
}

impl Table {
    fn text(&self) -> String {
        let rows = [
            ("routes", output::count(self.routes as u64)),
            ("engine", self.engine.to_owned()),
            ("variant", self.variant.to_owned()),
            ("next-hop bytes", self.hop_bytes.to_string()),
            ("table", output::bytes(self.table_bytes as u64)),
            ("build time", format!("{:.3} s", self.build_seconds)),
            ("addresses", output::count(self.lookups as u64)),
            ("without a route", output::count(self.misses as u64)),
            ("lookups/s, single pass", output::count(self.lookups_per_second as u64)),
            ("differences from the routes", output::count(self.differences as u64)),
        ];
        let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
        output::table("", &[self.family, ""], &rows)
    }
}
