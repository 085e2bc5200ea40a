//! Routes as texts give them, before one per prefix is kept.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::{AnyPrefix, Gateway, NextHop, RouteList, RouteOptions};

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the prefix of all addresses.
    fn default_route(self) -> AnyPrefix {
        AnyPrefix::truncated(
            match self {
                Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
                Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
            },
            0,
        )
    }
}

/// One path of a route.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) gateway: Gateway,
    pub(super) weight: u32,
    pub(super) dead: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self { gateway: Gateway::default(), weight: 1, dead: false }
    }
}

/// A route of a text.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// The part of the text that errors about the route mark.
    pub(super) place: &'a str,
    /// None: `default`, of either family.
    pub(super) prefix: Option<AnyPrefix>,
    /// The family, where another word than the prefix shows it.
    pub(super) family: Option<Family>,
    /// The next hop of a kind of route that has no paths: local, or a refusal.
    pub(super) refusal: Option<NextHop>,
    /// The nexthop object whose paths the text may leave out.
    pub(super) object: Option<u32>,
    pub(super) paths: Vec<Path>,
    pub(super) metric: Option<u32>,
    /// Whether IPv6 routes of one prefix and metric are paths of one route, as Linux has them.
    pub(super) joins: bool,
    /// None: the main table, or the only one of the text.
    pub(super) table: Option<&'a str>,
}

impl<'a> Entry<'a> {
    /// A route without a path.
    pub(super) fn to(place: &'a str, prefix: Option<AnyPrefix>) -> Self {
        Self {
            place,
            prefix,
            family: None,
            refusal: None,
            object: None,
            paths: Vec::new(),
            metric: None,
            joins: false,
            table: None,
        }
    }

    fn family(&self) -> Option<Family> {
        match self.prefix {
            Some(AnyPrefix::V4(_)) => Some(Family::V4),
            Some(AnyPrefix::V6(_)) => Some(Family::V6),
            None => self.family,
        }
    }

    /// Returns the next hop; none where every path is dead.
    fn next_hop(mut self) -> Result<Option<NextHop>, String> {
        if let Some(refusal) = self.refusal {
            return Ok(Some(refusal));
        }
        let is_empty = |path: &Path| path.gateway == Gateway::default() && !path.dead;
        if let Some(id) = self.object.filter(|_| self.paths.iter().all(is_empty)) {
            return Ok(Some(NextHop::Object(id)));
        }
        if self.paths.is_empty() || self.paths.iter().any(is_empty) {
            return Err(
                "the route leads nowhere: a gateway (`via 192.0.2.1`), a device (`dev eth0`) or paths \
                        (`nexthop via …`) are expected"
                    .to_owned(),
            );
        }
        self.paths.retain(|path| !path.dead);
        Ok(match self.paths.len() {
            0 => None,
            1 => Some(NextHop::Via(self.paths.remove(0).gateway)),
            _ => {
                Some(NextHop::Group(self.paths.into_iter().map(|path| (path.gateway, path.weight)).collect()))
            }
        })
    }
}

/// A route that is the best of its prefix so far.
struct Kept<'a> {
    prefix: AnyPrefix,
    metric: u32,
    joins: bool,
    place: &'a str,
    next_hop: NextHop,
}

/// Returns whether each path leads to a neighbour: those that lead to a link alone are no paths of one another.
fn has_gateways(next_hop: &NextHop) -> bool {
    match next_hop {
        NextHop::Via(gateway) => gateway.address.is_some(),
        NextHop::Group(paths) => paths.iter().all(|(gateway, _)| gateway.address.is_some()),
        _ => false,
    }
}

/// Adds a route's paths to those of another one; a gateway that is there keeps its weight.
fn join(next_hop: &mut NextHop, other: NextHop) {
    let paths = |next_hop| match next_hop {
        NextHop::Via(gateway) => vec![(gateway, 1)],
        NextHop::Group(paths) => paths,
        _ => Vec::new(),
    };
    let mut all = paths(std::mem::replace(next_hop, NextHop::Local));
    for (gateway, weight) in paths(other) {
        if all.iter().all(|(known, _)| *known != gateway) {
            all.push((gateway, weight));
        }
    }
    *next_hop = match all.len() {
        1 => NextHop::Via(all.remove(0).0),
        _ => NextHop::Group(all),
    };
}

/// Collects the routes of the wanted table, of each prefix the one with the least metric. An error has its place in `text`.
pub(super) fn collect(
    text: &str,
    entries: Vec<Entry<'_>>,
    options: &RouteOptions<'_>,
) -> Result<RouteList, (Range<usize>, String)> {
    if let Some(first) = entries.first() {
        check_table(&entries, options.table).map_err(|problem| (range_of(text, first.place), problem))?;
    }
    let wanted = |entry: &Entry<'_>| table_name(entry.table.unwrap_or("main")) == table_name(options.table);
    let mut family = entries.iter().find_map(Entry::family).unwrap_or(Family::V4);
    let mut best: HashMap<AnyPrefix, usize> = HashMap::with_capacity(entries.len());
    let mut kept: Vec<Kept<'_>> = Vec::with_capacity(entries.len());
    for entry in entries {
        family = entry.family().unwrap_or(family);
        let prefix = entry.prefix.unwrap_or(family.default_route());
        let (metric, is_wanted, place) = (entry.metric.unwrap_or(0), wanted(&entry), entry.place);
        let joins = entry.joins && matches!(prefix, AnyPrefix::V6(_));
        let next_hop = entry.next_hop().map_err(|problem| (range_of(text, place), problem))?;
        let Some(next_hop) = next_hop.filter(|_| is_wanted) else { continue };
        let joins = joins && has_gateways(&next_hop);
        let found = Kept { prefix, metric, joins, place, next_hop };
        match best.get(&prefix).map(|&at| &mut kept[at]) {
            Some(known) if known.metric == metric && known.joins && joins => {
                join(&mut known.next_hop, found.next_hop);
            }
            Some(known) if known.metric <= metric => {}
            Some(known) => *known = found,
            None => {
                best.insert(prefix, kept.len());
                kept.push(found);
            }
        }
    }
    let mut routes = RouteList::default();
    for Kept { prefix, place, next_hop, .. } in kept {
        let number = routes.next_hops.number(next_hop);
        (options.check_next_hop)(number, routes.next_hops.get(number))
            .map_err(|problem| (range_of(text, place), problem))?;
        routes.push(prefix, number);
    }
    Ok(routes)
}

/// Returns where a part of `text` lies in it, in bytes.
fn range_of(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// Returns the name of a table that has a number and a name.
fn table_name(table: &str) -> &str {
    match table {
        "253" => "default",
        "254" => "main",
        "255" => "local",
        other => other,
    }
}

/// Tables that an error names.
const TABLES_NAMED: usize = 20;

/// Refuses to read a table that no route is of.
fn check_table(entries: &[Entry<'_>], wanted: &str) -> Result<(), String> {
    let (mut tables, mut known) = (Vec::new(), HashSet::new());
    for entry in entries {
        let table = table_name(entry.table.unwrap_or("main"));
        if table == table_name(wanted) {
            return Ok(());
        }
        if known.insert(table) {
            tables.push(table);
        }
    }
    let named = tables[..tables.len().min(TABLES_NAMED)].join(", ");
    let named = match tables.len().saturating_sub(TABLES_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    };
    Err(match entries.iter().any(|entry| entry.table.is_some()) {
        false => format!(
            "no route is of table `{wanted}`: none names a table, as `ip route show table {wanted}` prints the \
             routes of one; read them without naming the table"
        ),
        true => format!(
            "no route is of table `{wanted}`, but of {named}; name one of these, or print one alone: \
             `ip route show table {}`",
            tables[0]
        ),
    })
}
