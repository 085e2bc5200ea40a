//! The output of `ip route show` and `ip -6 route show` (iproute2), with or without `-o`, `-d`, `-s`, `-j` and `table all`.
//!
//! ```text
//! default via 192.0.2.1 dev eth0 proto dhcp metric 100
//! default via inet6 fe80::9 dev swp1                           an IPv4 route: the other family's gateway is marked
//! 198.51.100.0/24 dev eth1 scope link                          the destination is a neighbour
//! 10.0.0.0/8 proto static                                      equal-cost paths: one group
//!     nexthop via 192.0.2.2 dev eth0 weight 1
//!     nexthop via 192.0.2.3 dev eth0 weight 3
//! 10.40.0.0/16  encap mpls 100 via 192.0.2.9 dev eth0          the encapsulation is part of the next hop
//! blackhole 203.0.113.0/24
//! ```
//!
//! A route is `[kind] destination attribute…`, and each attribute is a word that is known with its values: a word in the place of a
//! value (a device called `dead`, `tos` of an encapsulation) is not taken for an attribute, and an unknown word is an error. Lines
//! that begin with an attribute continue the route above. `grammar` has the attributes, `encapsulation` those of tunnels.
//!
//! Where packets go is kept: kind, prefix, `via`, `dev`, `encap`, `nexthop`, `weight`, `metric`, `table`, and `nhid` where no path
//! is printed. A path that is `dead` is left out. Of several routes for a prefix the one with the least metric counts, the first of
//! equals; IPv6 routes to gateways with one prefix and metric are paths of one route, as in Linux, unless routers have advertised
//! them. Routes that depend on more than the destination are errors.
//!
//! **The family of `default`** is that of its gateway, of the other one behind `via inet6` and `via inet`, of `src`, IPv6 with
//! `pref`, IPv4 with a `scope` other than `global`; else that of the routes before it, else after it.

mod encapsulation;
mod grammar;
pub(super) mod json;
mod words;

use super::entry::{Entry, collect};
use super::{RouteList, RouteOptions};
use crate::rule::ReadErrors;
use crate::rule::error::{Token, read_lines};
use grammar::{KINDS, attributes, is_attribute, route};
use words::RouteWords;

/// Returns whether a line looks as if `ip route` had printed it.
pub(super) fn is_like(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_kind = KINDS.iter().any(|kind| kind.0 == first);
    first == "default"
        || is_kind
        || first == "nexthop"
        || words.next().is_some_and(|word| word == "\\" || is_attribute(word))
}

pub(super) fn read(text: &str, file: &str, options: &RouteOptions<'_>) -> Result<RouteList, ReadErrors> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut words = Vec::new();
    read_lines(text, file, (options.routes_max, "lines of routes"), |line| {
        split(line, &mut words);
        let mut words = RouteWords::of(&words, line.text.trim_end().len());
        if !is_attribute(words.peek()) {
            entries.push(Entry { place: line.text.trim(), ..route(&mut words)? });
            return Ok(());
        }
        match entries.last_mut() {
            Some(entry) => attributes(&mut words, entry),
            None => {
                let first = words.next("")?;
                Err(first.fault(format!(
                    "a line with `{}` belongs below its route, and there is none above",
                    first.text
                )))
            }
        }
    })?;
    collect(text, entries, options)
        .map_err(|(place, problem)| ReadErrors::of_part(text, file, place, problem))
}

/// Splits a line into words, up to a comment. `\` is where `-o` joins lines.
fn split<'a>(line: Token<'a>, out: &mut Vec<Token<'a>>) {
    out.clear();
    let mut at = 0;
    for word in line.text.split_inclusive(char::is_whitespace) {
        let token = line.part(at, at + word.len()).trim();
        at += word.len();
        match token.text {
            comment if comment.starts_with('#') => break,
            "" | "\\" => {}
            _ => out.push(token),
        }
    }
}
