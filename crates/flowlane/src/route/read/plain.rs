//! Lists of prefixes, with or without next hops.
//!
//! ```text
//! # a comment
//! 192.0.2.0/24 198.51.100.1     an address: numbered
//! 192.0.2.0/24 17               a number: means itself; not in a file with addresses
//! 2001:db8::/32                 none: as the caller says
//! ```
//!
//! Of several lines for a prefix the last counts, as if each were a replacement.

use super::{NextHop, NextHops, RouteList, RouteOptions, prefix};
use crate::rule::ReadErrors;
use crate::rule::error::{Fault, Token, Words, read_lines};

pub(super) fn read(text: &str, file: &str, options: &RouteOptions<'_>) -> Result<RouteList, ReadErrors> {
    let mut routes = RouteList::default();
    let mut hops = Hops::default();
    read_lines(text, file, (options.routes_max, "routes"), |line| {
        let mut words = Words::of(line.before("#"));
        let mut token = words.next("a prefix")?;
        let prefix = prefix(token)?;
        let next_hop = match words.done() {
            true => (options.next_hop_absent)(routes.len()),
            false => {
                token = words.next("a next hop")?;
                hops.read(token)?
            }
        };
        (options.check_next_hop)(next_hop, hops.known.get(next_hop))
            .map_err(|problem| token.fault(problem))?;
        if !words.done() {
            return Err(words.next("")?.fault("nothing is expected behind the next hop"));
        }
        routes.push(prefix, next_hop);
        Ok(())
    })?;
    routes.next_hops = hops.known;
    routes.keep_last();
    Ok(routes)
}

/// The next hops of a file: either numbers, or texts that are numbered here.
#[derive(Default)]
pub(super) struct Hops {
    pub(super) known: NextHops,
    /// True if there were numbers.
    numbers: bool,
}

impl Hops {
    pub(super) fn read(&mut self, token: Token<'_>) -> Result<u64, Fault> {
        if let Ok(number) = token.text.parse() {
            self.numbers = true;
            if !self.known.is_empty() {
                return Err(
                    token.fault("next hops before were addresses; write all as addresses or all as numbers")
                );
            }
            return Ok(number);
        }
        let address = token.text.parse().map_err(|_| {
            token.fault("a next hop is expected: an address as 192.0.2.1, or a number of up to 64 bits")
        })?;
        if self.numbers {
            return Err(
                token.fault("next hops before were numbers; write all as addresses or all as numbers")
            );
        }
        Ok(self.known.number(NextHop::neighbour(address)))
    }
}
