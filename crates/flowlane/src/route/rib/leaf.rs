//! Leaves: runs of routes in order, and the memory that they are in.

use super::Route;
use crate::memory::{LINE_BYTES, Memory, Zeroed, prefetch_at};
use crate::route::prefix::{Address, Prefix};

/// Most routes of a leaf.
pub(super) const ROUTES: usize = 64;

/// No leaf: the first one has no neighbour in the direction of the search.
pub(super) const NONE: u32 = u32::MAX;

/// The routes from one prefix to another, in order.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Leaf<A: Address> {
    /// Where it begins: the routes of leaves before come before this one. It stays as long as the leaf.
    pub(super) fence: Prefix<A>,
    /// Where the next one begins, if there is one.
    pub(super) end: Prefix<A>,
    /// The lengths of all routes that cover the fence and are shorter: of those that cover routes in here, the ones
    /// that are not in here themselves. One bit each.
    pub(super) outside: u128,
    pub(super) len: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    addresses: [A; ROUTES],
    lens: [u8; ROUTES],
    next_hops: [u64; ROUTES],
}

// SAFETY: addresses, which are `Zeroed`, and numbers; a prefix is both. Nothing owns, and it is aligned to a line.
unsafe impl<A: Address> Zeroed for Leaf<A> {}

impl<A: Address> Leaf<A> {
    /// Begins the leaf with nothing in it.
    pub(super) fn begin(&mut self, fence: Prefix<A>, outside: u128) {
        (self.fence, self.outside, self.len) = (fence, outside, 0);
        (self.next, self.previous) = (NONE, NONE);
    }

    /// Returns whether routes of this prefix are in here, if anywhere.
    #[inline(always)]
    pub(super) fn is_for(&self, prefix: Prefix<A>) -> bool {
        self.fence <= prefix && (self.next == NONE || prefix < self.end)
    }

    /// Returns whether the route of this prefix covers routes in the leaves behind.
    #[inline(always)]
    pub(super) fn is_left_by(&self, prefix: Prefix<A>) -> bool {
        self.next != NONE && prefix.covers(self.end)
    }

    /// Asks for what a search reads.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        let searched = size_of::<Self>();
        (0..searched).step_by(LINE_BYTES).for_each(|at| prefetch_at(start.wrapping_add(at)));
    }

    /// How many routes are before this prefix.
    #[inline(always)]
    pub(super) fn position(&self, prefix: Prefix<A>) -> usize {
        let len = self.len as usize % (ROUTES + 1);
        let mut at = self.addresses[..len].partition_point(|address| *address < prefix.first());
        while at < len && self.addresses[at] == prefix.first() && self.lens[at] < prefix.len() {
            at += 1;
        }
        at
    }

    /// How many routes are before this prefix, or of it.
    #[inline(always)]
    pub(super) fn position_behind(&self, prefix: Prefix<A>) -> usize {
        let at = self.position(prefix);
        at + usize::from(self.get(at).is_some_and(|(there, _)| there == prefix))
    }

    #[inline(always)]
    pub(super) fn prefix(&self, at: usize) -> Prefix<A> {
        Prefix::truncated(self.addresses[at], self.lens[at])
    }

    /// Returns the route number `at`, if it exists.
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> Option<Route<A>> {
        (at < self.len as usize).then(|| (self.prefix(at), self.next_hops[at]))
    }

    pub(super) fn next_hop_mut(&mut self, at: usize) -> &mut u64 {
        &mut self.next_hops[at]
    }

    /// Returns the last route that covers `prefix`, of the first `before`.
    pub(super) fn covering(&self, prefix: Prefix<A>, before: usize) -> Option<Route<A>> {
        let routes = self.addresses[..before].iter().zip(&self.lens[..before]);
        let covers = |(address, len): (&A, &u8)| {
            (*address ^ prefix.first()) & A::mask(*len) == A::ZERO && *len <= prefix.len()
        };
        routes.rev().position(covers).and_then(|back| self.get(before - 1 - back))
    }

    /// Puts a route at `at`, where there is room.
    pub(super) fn insert(&mut self, at: usize, (prefix, next_hop): Route<A>) {
        let len = self.len as usize;
        self.addresses.copy_within(at..len, at + 1);
        self.lens.copy_within(at..len, at + 1);
        self.next_hops.copy_within(at..len, at + 1);
        (self.addresses[at], self.lens[at], self.next_hops[at]) = (prefix.first(), prefix.len(), next_hop);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) -> u64 {
        let len = self.len as usize;
        let next_hop = self.next_hops[at];
        self.addresses.copy_within(at + 1..len, at);
        self.lens.copy_within(at + 1..len, at);
        self.next_hops.copy_within(at + 1..len, at);
        self.len -= 1;
        next_hop
    }

    /// Appends the routes of `other` from `from` on.
    pub(super) fn append(&mut self, other: &Self, from: usize) {
        let (len, end) = (self.len as usize, other.len as usize);
        let own = len..len + end - from;
        self.addresses[own.clone()].copy_from_slice(&other.addresses[from..end]);
        self.lens[own.clone()].copy_from_slice(&other.lens[from..end]);
        self.next_hops[own.clone()].copy_from_slice(&other.next_hops[from..end]);
        self.len = own.end as u32;
    }
}

/// Leaves by number, in pieces that never move: each has twice as many as the one before.
#[derive(Debug)]
pub(super) struct Leaves<A: Address> {
    pieces: Vec<Memory<Leaf<A>>>,
    /// Leaves that were in use once.
    touched: u32,
    /// Of those, which are free.
    free: Vec<u32>,
}

/// Leaves of the first piece.
const FIRST: u32 = 4;

/// Returns the piece that a leaf is in, and its number there.
#[inline(always)]
fn place(leaf: u32) -> (usize, usize) {
    let piece = (leaf / FIRST + 1).ilog2();
    (piece as usize, (leaf - FIRST * ((1 << piece) - 1)) as usize)
}

impl<A: Address> Leaves<A> {
    pub(super) fn new() -> Self {
        Self { pieces: Vec::new(), touched: 0, free: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn at(&self, leaf: u32) -> &Leaf<A> {
        let (piece, at) = place(leaf);
        &self.pieces[piece][at]
    }

    #[inline(always)]
    pub(super) fn at_mut(&mut self, leaf: u32) -> &mut Leaf<A> {
        let (piece, at) = place(leaf);
        &mut self.pieces[piece][at]
    }

    /// Returns a leaf with nothing in it.
    pub(super) fn take(&mut self, fence: Prefix<A>, outside: u128) -> u32 {
        let leaf = self.free.pop().unwrap_or_else(|| {
            let leaf = self.touched;
            if place(leaf).0 == self.pieces.len() {
                self.pieces.push(Memory::zeroed((FIRST << self.pieces.len()) as usize));
            }
            self.touched += 1;
            leaf
        });
        self.at_mut(leaf).begin(fence, outside);
        leaf
    }

    pub(super) fn give(&mut self, leaf: u32) {
        self.free.push(leaf);
    }

    /// Returns the bytes of leaves that were in use once.
    pub(super) fn bytes(&self) -> usize {
        self.touched as usize * size_of::<Leaf<A>>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<A: Address> Clone for Leaves<A> {
    fn clone(&self) -> Self {
        let mut pieces: Vec<Memory<Leaf<A>>> =
            self.pieces.iter().map(|piece| Memory::zeroed(piece.len())).collect();
        for leaf in 0..self.touched {
            let (piece, at) = place(leaf);
            pieces[piece][at] = *self.at(leaf);
        }
        Self { pieces, touched: self.touched, free: self.free.clone() }
    }
}
