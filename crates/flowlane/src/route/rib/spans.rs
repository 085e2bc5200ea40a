//! Spans: the routes of a prefix as tiles.

use super::Rib;
use crate::route::prefix::{Address, Prefix};

impl<A: Address> Rib<A> {
    /// Shows `span` what holds for the addresses of `prefix`: spans that tile it, in order, first and last
    /// address with the next hop of their longest match, or without where they have none. Neighbours differ.
    pub fn spans(&self, prefix: Prefix<A>, span: impl FnMut(A, A, Option<u64>)) {
        // Those that the place is in, outermost first: last address and next hop.
        let mut inside: Vec<(A, u64)> = Vec::new();
        let (outer, mut routes) = self.inside(prefix);
        let mut tiles = Tiles { first: prefix.first(), next_hop: outer, held: None, span };
        loop {
            let route = routes.next();
            let ended = |last: A| route.is_none_or(|(route, _)| last < route.first());
            while let Some((last, _)) = inside.pop_if(|(last, _)| ended(*last)) {
                if let Some(after) = last.next() {
                    tiles.turn(after, inside.last().map(|(_, next_hop)| *next_hop).or(outer));
                }
            }
            let Some((route, next_hop)) = route else { break };
            tiles.turn(route.first(), Some(next_hop));
            inside.push((route.last(), next_hop));
        }
        tiles.finish(prefix.last());
    }
}

/// Spans in the making.
struct Tiles<A, F> {
    /// The part that is not covered yet begins here, and has this next hop.
    first: A,
    next_hop: Option<u64>,
    /// The last span, which its neighbour may extend.
    held: Option<(A, A, Option<u64>)>,
    span: F,
}

impl<A: Address, F: FnMut(A, A, Option<u64>)> Tiles<A, F> {
    /// From `at` on another next hop holds.
    fn turn(&mut self, at: A, next_hop: Option<u64>) {
        if let Some(last) = at.previous().filter(|_| at > self.first) {
            self.hold(last);
            self.first = at;
        }
        self.next_hop = next_hop;
    }

    fn hold(&mut self, last: A) {
        match &mut self.held {
            Some((_, held_last, held)) if *held == self.next_hop => *held_last = last,
            held => {
                if let Some((first, last, next_hop)) = held.replace((self.first, last, self.next_hop)) {
                    (self.span)(first, last, next_hop);
                }
            }
        }
    }

    /// `last` is the last address of all; a route that ends there has turned beyond it.
    fn finish(mut self, last: A) {
        if self.first <= last {
            self.hold(last);
        }
        if let Some((first, last, next_hop)) = self.held {
            (self.span)(first, last, next_hop);
        }
    }
}
