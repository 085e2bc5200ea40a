//! Reading routes: lists of prefixes, what `ip route`, routers and `bgpdump` print, traces of updates.
//!
//! | [`Format`] | a line | module |
//! |---|---|---|
//! | `Plain` | `192.0.2.0/24 198.51.100.1`, `2001:db8::/32 7`, or the prefix alone | `plain` |
//! | `IpRoute` | `default via 192.0.2.1 dev eth0 metric 100`, as of iproute2 | `ip_route` |
//! | `IpRouteJson` | `[{"dst":"default","gateway":"192.0.2.1","dev":"eth0"}]`, as of `ip -j route` | `ip_route` |
//! | `ShowRoute` | `B>* 10.0.0.0/8 [20/0] via 192.0.2.1, eth0`, as of FRRouting and Cisco IOS | `show` |
//! | `Bgpdump` | `TABLE_DUMP2\|1418774400\|B\|192.0.2.1\|64500\|10.0.0.0/8\|…`, as of `bgpdump -m` | `bgpdump` |
//! | (MRT) | dumps of a collector's table, binary | `mrt` |
//! | (updates) | `1418774413 a 192.0.2.0/24 198.51.100.1`, `1418774414 w 192.0.2.0/24 0.0.0.0` | `updates` |
//!
//! Everything is text or bytes in, routes out; a file is the caller's to read. Both families may be in one text. Bits of
//! an address behind the prefix's length are ignored. `foreign` recognises texts that are not read.
//!
//! A table holds numbers. Next hops that are numbers mean themselves; others (addresses, devices, groups,
//! refusals) are numbered from 1 on in the order in which they are met, [`NextHops`].

mod any;
mod bgpdump;
mod entry;
mod foreign;
mod hops;
mod ip_route;
mod mrt;
mod plain;
mod show;
#[cfg(test)]
mod tests;
mod updates;

pub use any::AnyPrefix;
pub use hops::{Gateway, NextHop, NextHops};
pub use mrt::{MrtError, read_mrt};
pub use updates::{Update, read_updates};

use strum::IntoStaticStr;

use super::{Address, Prefix};
use crate::rule::ReadErrors;
use crate::rule::error::{Fault, Token, lines};

/// How a file of routes is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Format {
    /// A prefix a line, and perhaps its next hop: an address or a number.
    Plain,
    /// The output of `ip route show` and `ip -6 route show`.
    IpRoute,
    /// The output of `ip -j route show`.
    IpRouteJson,
    /// The output of `show ip route` and `show ipv6 route` of FRRouting and Cisco IOS.
    ShowRoute,
    /// The output of `bgpdump -m` for a table.
    Bgpdump,
}

impl Format {
    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How to read routes.
#[derive(Clone, Copy)]
pub struct RouteOptions<'a> {
    /// More routes than this are refused.
    pub routes_max: usize,
    /// The next hop of a prefix without one, by its position in the file, from 0.
    pub next_hop_absent: &'a dyn Fn(usize) -> u64,
    /// Of `ip route show table all`, the table to be read: `main` is the one whose routes name none. A table that no route is
    /// of is an error.
    pub table: &'a str,
    /// Rejects the next hop of a route, with the reason: its number, and the meaning of the number if the file does not
    /// use numbers of its own. The error is at that next hop, or at its route.
    pub check_next_hop: &'a CheckNextHop<'a>,
}

/// Returns why a next hop is rejected: see [`RouteOptions::check_next_hop`].
pub type CheckNextHop<'a> = dyn Fn(u64, Option<&NextHop>) -> Result<(), String> + 'a;

impl Default for RouteOptions<'_> {
    /// Up to ten million routes of the main table; prefixes alone get the next hops 1 to 255 in turn, which fit
    /// into a byte beside the 0 of no route.
    fn default() -> Self {
        Self {
            routes_max: 10_000_000,
            next_hop_absent: &|position| 1 + position as u64 % 255,
            table: "main",
            check_next_hop: &|_, _| Ok(()),
        }
    }
}

/// The routes of a file, each prefix once, in the order of the file.
#[derive(Clone, Default, Debug)]
pub struct RouteList {
    /// For IPv4.
    pub v4: Vec<(Prefix<u32>, u64)>,
    /// For IPv6.
    pub v6: Vec<(Prefix<u128>, u64)>,
    /// The meaning of the numbers; empty where they are the file's own.
    pub next_hops: NextHops,
}

impl RouteList {
    /// Returns the number of routes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns the largest next hop; 0 where there are no routes.
    pub fn next_hop_max(&self) -> u64 {
        let v4 = self.v4.iter().map(|(_, next_hop)| *next_hop);
        v4.chain(self.v6.iter().map(|(_, next_hop)| *next_hop)).max().unwrap_or(0)
    }

    /// Notes a route.
    pub fn push(&mut self, prefix: AnyPrefix, next_hop: u64) {
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push((prefix, next_hop)),
            AnyPrefix::V6(prefix) => self.v6.push((prefix, next_hop)),
        }
    }

    /// Leaves of several routes for a prefix the last, in its place.
    pub fn keep_last(&mut self) {
        keep_last(&mut self.v4);
        keep_last(&mut self.v6);
    }
}

fn keep_last<A: Address>(routes: &mut Vec<(Prefix<A>, u64)>) {
    let mut seen = std::collections::HashSet::with_capacity(routes.len());
    let mut last: Vec<bool> = routes.iter().rev().map(|(prefix, _)| seen.insert(*prefix)).collect();
    routes.retain(|_| last.pop() == Some(true));
}

/// Returns the format of a text, by all of its lines: one that only `ip route` or a router prints decides.
pub fn detect_format(text: &str) -> Format {
    let any = |is_like: fn(&str) -> bool| lines(text).any(|(_, _, line)| is_like(line.text));
    match lines(text).next() {
        _ if ip_route::json::is_like(text) => Format::IpRouteJson,
        Some((_, _, line)) if bgpdump::is_like(line.text) => Format::Bgpdump,
        _ if any(show::is_like) => Format::ShowRoute,
        _ if any(ip_route::is_like) => Format::IpRoute,
        _ => Format::Plain,
    }
}

/// Reads the routes in `text`; `file` is its name in errors, and `format` is found out where it is none.
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read(
    text: &str,
    file: &str,
    format: Option<Format>,
    options: &RouteOptions<'_>,
) -> Result<RouteList, ReadErrors> {
    if let Some(fault) = foreign::recognise(text).filter(|_| format.is_none()) {
        return Err(ReadErrors::of_part(text, file, fault.0, fault.1));
    }
    match format.unwrap_or_else(|| detect_format(text)) {
        Format::Plain => plain::read(text, file, options),
        Format::IpRoute => ip_route::read(text, file, options),
        Format::IpRouteJson => ip_route::json::read(text, file, options),
        Format::ShowRoute => show::read(text, file, options),
        Format::Bgpdump => bgpdump::read(text, file, options),
    }
}

/// Returns a prefix, or an address alone.
fn prefix(token: Token<'_>) -> Result<AnyPrefix, Fault> {
    let (address, length) = match token.split("/") {
        Some((address, length)) => (address, Some(length)),
        None => (token, None),
    };
    let address = address.text.parse().map_err(|_| {
        token
            .fault("a prefix is expected: an address, a slash and a length, as 192.0.2.0/24 or 2001:db8::/32")
    })?;
    let longest = AnyPrefix::bits(address);
    let length = match length {
        None => longest,
        Some(length) => length
            .text
            .parse()
            .ok()
            .filter(|l| *l <= longest)
            .ok_or_else(|| length.fault(format!("the length of a prefix is 0 to {longest} here")))?,
    };
    Ok(AnyPrefix::truncated(address, length))
}
