//! The output of `ip route show` and `ip -6 route show` (iproute2), with or without `-o` and `table all`.
//!
//! ```text
//! default via 192.0.2.1 dev eth0 proto dhcp metric 100
//! 198.51.100.0/24 dev eth1 scope link                          the destination is a neighbour
//! 10.0.0.0/8 proto static                                      equal-cost paths: one group
//!     nexthop via 192.0.2.2 dev eth0 weight 1
//!     nexthop via 192.0.2.3 dev eth0 weight 3
//! blackhole 203.0.113.0/24
//! ```
//!
//! Where packets go is read: kind, prefix, `via`, `dev`, `nexthop`, `weight`, `metric`, `table`. A path that is
//! `dead` is left out. All else is read over. Of several routes for a prefix the one with the least metric counts,
//! the first of equals. `default` is of its gateway's family, else of that of the routes before it, else after it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AnyPrefix, CheckNextHop, Gateway, NextHop, RouteList, RouteOptions, prefix};
use crate::rule::ReadErrors;
use crate::rule::error::{Fault, Token, Words, read_numbered_lines};

/// Words before the prefix with which a route may begin.
const KINDS: [&str; 10] = [
    "unicast",
    "local",
    "broadcast",
    "multicast",
    "anycast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
];

/// Words that follow a prefix.
const FOLLOW: [&str; 9] = ["via", "dev", "proto", "scope", "metric", "src", "nhid", "table", "\\"];

/// Returns whether a line looks as if `ip route` had printed it.
pub(super) fn is_like(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    first == "default" || KINDS.contains(&first) || words.next().is_some_and(|word| FOLLOW.contains(&word))
}

/// One path of a route.
#[derive(Default)]
struct Path {
    gateway: Gateway,
    weight: u32,
    dead: bool,
}

/// A route as it is written in the text.
struct Entry {
    /// None: `default`.
    prefix: Option<AnyPrefix>,
    kind: Box<str>,
    paths: Vec<Path>,
    metric: u32,
    /// In the table that is read.
    wanted: bool,
    /// The number of its line, from 1.
    line: usize,
}

pub(super) fn read(text: &str, file: &str, options: &RouteOptions<'_>) -> Result<RouteList, ReadErrors> {
    let mut entries: Vec<Entry> = Vec::new();
    read_numbered_lines(text, file, (options.routes_max, "lines of routes"), |number, line| {
        if line.text.trim_start().starts_with("nexthop") {
            let Some(entry) = entries.last_mut() else {
                return Err(line
                    .trim()
                    .fault("a `nexthop` belongs below its route, and there is none above"));
            };
            return attributes(&mut Words::of(line), entry, options.table);
        }
        entries.push(Entry { line: number, ..route(line, options.table)? });
        Ok(())
    })?;
    collect(entries, options.check_next_hop)
        .map_err(|(line, problem)| ReadErrors::of_line(text, file, line, |line| line.trim().fault(problem)))
}

/// Returns the line of a route.
fn route(line: Token<'_>, table: &str) -> Result<Entry, Fault> {
    let mut words = Words::of(line);
    let mut first = words.next("a route")?;
    let mut kind = "unicast";
    if KINDS.contains(&first.text) {
        kind = first.text;
        first = words.next("a prefix or `default`")?;
    }
    let prefix = if first.text == "default" { None } else { Some(prefix(first)?) };
    let main = table == "main" || table == "all";
    let mut entry = Entry { prefix, kind: kind.into(), paths: Vec::new(), metric: 0, wanted: main, line: 0 };
    entry.paths.push(Path { weight: 1, ..Path::default() });
    attributes(&mut words, &mut entry, table)?;
    Ok(entry)
}

/// Returns the part after the prefix, or a line of its own from `nexthop` on.
fn attributes(words: &mut Words<'_>, entry: &mut Entry, table: &str) -> Result<(), Fault> {
    while !words.done() {
        let word = words.next("")?;
        let path = entry.paths.last_mut().expect("a route has a path from the beginning");
        match word.text {
            "nexthop" => {
                // The path from the beginning was none.
                if path.gateway == Gateway::default() {
                    entry.paths.pop();
                }
                entry.paths.push(Path { weight: 1, ..Path::default() });
            }
            "via" => path.gateway.address = Some(gateway(words)?),
            "dev" => path.gateway.device = Some(words.next("a device")?.text.into()),
            "weight" => path.weight = number(words.next("a weight")?, 1)?,
            "dead" => path.dead = true,
            "metric" => entry.metric = number(words.next("a metric")?, 0)?,
            "table" => entry.wanted = words.next("a table")?.text == table,
            "from" | "tos" | "dsfield" => {
                return Err(word.fault(
                    "routes that depend on more than the destination cannot be held; leave them out of the file",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the address behind `via`, with or without its family.
fn gateway(words: &mut Words<'_>) -> Result<IpAddr, Fault> {
    let mut word = words.next("a gateway's address")?;
    if ["inet", "inet6"].contains(&word.text) {
        word = words.next("a gateway's address")?;
    }
    word.text.parse().map_err(|_| word.fault("an address is expected behind `via`"))
}

fn number(token: Token<'_>, least: u32) -> Result<u32, Fault> {
    let read = token.text.parse().ok().filter(|n| *n >= least);
    read.ok_or_else(|| token.fault(format!("a number from {least} to {} is expected", u32::MAX)))
}

/// Collects the routes of the entries that are wanted, of each prefix the one with the least metric. An error has the line of
/// the route whose next hop is rejected, and the reason.
fn collect(entries: Vec<Entry>, check: &CheckNextHop<'_>) -> Result<RouteList, (usize, String)> {
    let mut routes = RouteList::default();
    let first = entries.iter().find_map(Entry::family);
    let mut family = first.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let mut best: HashMap<AnyPrefix, usize> = HashMap::with_capacity(entries.len());
    let mut kept: Vec<(AnyPrefix, Entry)> = Vec::with_capacity(entries.len());
    for mut entry in entries {
        family = entry.family().unwrap_or(family);
        let prefix = entry.prefix.unwrap_or(AnyPrefix::truncated(family, 0));
        entry.paths.retain(|path| !path.dead);
        if !entry.wanted || entry.paths.is_empty() {
            continue;
        }
        match best.get(&prefix) {
            Some(&at) if kept[at].1.metric <= entry.metric => {}
            Some(&at) => kept[at].1 = entry,
            None => {
                best.insert(prefix, kept.len());
                kept.push((prefix, entry));
            }
        }
    }
    for (prefix, entry) in kept {
        let line = entry.line;
        let number = routes.next_hops.number(entry.next_hop());
        check(number, routes.next_hops.get(number)).map_err(|problem| (line, problem))?;
        routes.push(prefix, number);
    }
    Ok(routes)
}

impl Entry {
    /// Returns an address of its family, where it says so: the prefix does, or the gateway of a default route.
    fn family(&self) -> Option<IpAddr> {
        match self.prefix {
            Some(AnyPrefix::V4(_)) => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Some(AnyPrefix::V6(_)) => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            None => self.paths.iter().find_map(|path| path.gateway.address),
        }
    }

    fn next_hop(mut self) -> NextHop {
        match &*self.kind {
            "blackhole" => NextHop::Blackhole,
            "unreachable" => NextHop::Unreachable,
            "prohibit" => NextHop::Prohibit,
            "throw" => NextHop::Throw,
            "local" | "anycast" | "broadcast" => NextHop::Local,
            _ if self.paths.len() == 1 => NextHop::Via(self.paths.remove(0).gateway),
            _ => NextHop::Group(self.paths.into_iter().map(|path| (path.gateway, path.weight)).collect()),
        }
    }
}
