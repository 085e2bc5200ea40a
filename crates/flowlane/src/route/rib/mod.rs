#![doc = include_str!("README.md")]

mod leaf;
mod spans;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::prefix::{Address, Prefix};
use leaf::{Leaf, Leaves, NONE, ROUTES};

/// Most routes of a table: leaves are numbered in 32 bits, and may be nearly empty.
const ROUTES_MAX: usize = 1 << 30;

/// A leaf with fewer routes joins a neighbour, if both have no more than that.
const FEW: usize = ROUTES / 4;
const JOINED_MAX: usize = ROUTES / 4 * 3;

/// A route that was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RibError {
    /// The table has all the routes that it may have.
    #[error("the table has its {routes_max} routes; make it for more")]
    Full {
        /// Most routes.
        routes_max: usize,
    },
}

/// A prefix and its next hop.
type Route<A> = (Prefix<A>, u64);

/// The routes of a table. See the [module](self).
#[derive(Clone, Debug)]
pub struct Rib<A: Address> {
    leaves: Leaves<A>,
    /// By fence.
    index: BTreeMap<Prefix<A>, u32>,
    /// The leaf that was changed last: the next query is about the same routes.
    last_changed: u32,
    len: usize,
    routes_max: usize,
}

impl<A: Address> Rib<A> {
    /// Creates a table without routes, for `routes_max` of them (at most 2³⁰).
    pub fn new(routes_max: usize) -> Self {
        let mut leaves = Leaves::new();
        let first = leaves.take(Prefix::ALL, 0);
        let index = BTreeMap::from([(Prefix::ALL, first)]);
        Self { leaves, index, last_changed: first, len: 0, routes_max: routes_max.min(ROUTES_MAX) }
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most routes that the table takes.
    pub fn routes_max(&self) -> usize {
        self.routes_max
    }

    /// Returns the bytes in use, or free for other routes.
    pub fn table_bytes(&self) -> usize {
        self.leaves.bytes() + self.index.len() * (size_of::<Prefix<A>>() + size_of::<u32>())
    }

    /// Adds a route, or replaces its next hop; returns the one that it had.
    ///
    /// # Errors
    /// [`RibError::Full`] where the route is new and there are `routes_max`; nothing has changed then.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: u64) -> Result<Option<u64>, RibError> {
        let mut leaf = self.leaf_of(prefix);
        let mut at = self.leaves.at(leaf).position(prefix);
        if self.leaves.at(leaf).get(at).is_some_and(|(there, _)| there == prefix) {
            self.last_changed = leaf;
            return Ok(Some(std::mem::replace(self.leaves.at_mut(leaf).next_hop_mut(at), next_hop)));
        }
        if self.len == self.routes_max {
            return Err(RibError::Full { routes_max: self.routes_max });
        }
        if self.leaves.at(leaf).len as usize == ROUTES {
            let right = self.split(leaf, at, prefix);
            if self.leaves.at(right).fence <= prefix {
                leaf = right;
            }
            at = self.leaves.at(leaf).position(prefix);
        }
        self.leaves.at_mut(leaf).insert(at, (prefix, next_hop));
        self.mark_behind(leaf, prefix, true);
        self.len += 1;
        self.last_changed = leaf;
        Ok(None)
    }

    /// Removes a route; returns its next hop.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u64> {
        let leaf = self.leaf_of(prefix);
        let own = self.leaves.at_mut(leaf);
        let at = own.position(prefix);
        own.get(at).filter(|(there, _)| *there == prefix)?;
        let next_hop = own.remove(at);
        let few = (own.len as usize) < FEW;
        self.mark_behind(leaf, prefix, false);
        self.len -= 1;
        self.last_changed = leaf;
        if few {
            self.join_neighbour(leaf);
        }
        Some(next_hop)
    }

    /// Returns the next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u64> {
        let leaf = self.leaves.at(self.leaf_of(prefix));
        let (there, next_hop) = leaf.get(leaf.position(prefix))?;
        (there == prefix).then_some(next_hop)
    }

    /// Returns the longest prefix that `address` is in, and its next hop.
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, u64)> {
        self.longest(Prefix::truncated(address, A::BITS))
    }

    /// Returns the longest prefix that covers `prefix` and is shorter, and its next hop.
    pub fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, u64)> {
        self.longest(Prefix::truncated(prefix.first(), prefix.len().checked_sub(1)?))
    }

    /// Returns the longest prefix that covers `prefix`, be it the same.
    fn longest(&self, prefix: Prefix<A>) -> Option<Route<A>> {
        let leaf = self.leaves.at(self.leaf_of(prefix));
        self.longest_before(leaf, leaf.position_behind(prefix), prefix)
    }

    /// Returns the longest route before a prefix whose position in `leaf` is `before`.
    fn longest_before(&self, leaf: &Leaf<A>, before: usize, prefix: Prefix<A>) -> Option<Route<A>> {
        leaf.covering(prefix, before).or_else(|| {
            let common = leaf.fence.first().common_bits(prefix.first()).min(prefix.len());
            let lens = leaf.outside & lens_up_to(common);
            let covering = Prefix::truncated(prefix.first(), lens.checked_ilog2()? as u8);
            Some((covering, self.get(covering)?))
        })
    }

    /// Returns the routes that `prefix` covers, itself with them, sorted: each before those inside it.
    pub fn walk(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u64)> + '_ {
        let leaf = self.leaves.at(self.leaf_of(prefix));
        self.walk_from(leaf, leaf.position(prefix), prefix)
    }

    /// Returns the route of `prefix` where no longer route matches, and those longer routes, sorted.
    pub(super) fn inside(&self, prefix: Prefix<A>) -> (Option<u64>, impl Iterator<Item = Route<A>> + '_) {
        let leaf = self.leaves.at(self.leaf_of(prefix));
        let behind = leaf.position_behind(prefix);
        let longest = self.longest_before(leaf, behind, prefix);
        (longest.map(|(_, next_hop)| next_hop), self.walk_from(leaf, behind, prefix))
    }

    fn walk_from<'a>(
        &'a self,
        mut leaf: &'a Leaf<A>,
        mut at: usize,
        prefix: Prefix<A>,
    ) -> impl Iterator<Item = Route<A>> + 'a {
        std::iter::from_fn(move || {
            while at == leaf.len as usize {
                if leaf.next == NONE {
                    return None;
                }
                (leaf, at) = (self.leaves.at(leaf.next), 0);
            }
            let route = leaf.get(at).filter(|(route, _)| prefix.covers(*route))?;
            at += 1;
            Some(route)
        })
    }

    /// Returns the leaf in which the route of a prefix is, or would be.
    #[inline]
    fn leaf_of(&self, prefix: Prefix<A>) -> u32 {
        let last = self.leaves.at(self.last_changed);
        if last.is_for(prefix) {
            return self.last_changed;
        }
        if last.previous != NONE && prefix < last.fence && self.leaves.at(last.previous).fence <= prefix {
            return last.previous;
        }
        let (_, &leaf) = self.index.range(..=prefix).next_back().expect("the first fence is before all");
        self.leaves.at(leaf).prefetch();
        leaf
    }

    /// Notes in the leaves behind `leaf`, in which a route was added or removed, whether it covers their fences.
    fn mark_behind(&mut self, leaf: u32, prefix: Prefix<A>, is_there: bool) {
        let (mut leaf, bit) = (leaf, 1u128.unbounded_shl(prefix.len().into()));
        while self.leaves.at(leaf).is_left_by(prefix) {
            leaf = self.leaves.at(leaf).next;
            let outside = &mut self.leaves.at_mut(leaf).outside;
            *outside = if is_there { *outside | bit } else { *outside & !bit };
        }
    }

    /// Makes room in a full leaf, for a route at `at`; returns the leaf that is behind it then.
    fn split(&mut self, left: u32, at: usize, prefix: Prefix<A>) -> u32 {
        let full = self.leaves.at(left);
        // Routes inserted in order fill leaves.
        let from = if at == ROUTES && full.next == NONE { ROUTES } else { ROUTES / 2 };
        let fence = full.get(from).map_or(prefix, |(first, _)| first);
        let outside = outside_of(full, from, fence);
        let right = self.leaves.take(fence, outside);
        let mut moved = *self.leaves.at(right);
        let full = self.leaves.at_mut(left);
        moved.append(full, from);
        (moved.end, moved.next, moved.previous) = (full.end, full.next, left);
        (full.end, full.next, full.len) = (fence, right, from as u32);
        *self.leaves.at_mut(right) = moved;
        if moved.next != NONE {
            self.leaves.at_mut(moved.next).previous = right;
        }
        self.index.insert(fence, right);
        right
    }

    /// Joins a leaf of few routes with a neighbour that has room for them.
    fn join_neighbour(&mut self, leaf: u32) {
        let own = self.leaves.at(leaf);
        let (previous, next, len) = (own.previous, own.next, own.len);
        for (left, right, other) in [(leaf, next, next), (previous, leaf, previous)] {
            if other == NONE {
                continue;
            }
            let joined = (self.leaves.at(other).len + len) as usize;
            if joined <= JOINED_MAX || len == 0 {
                return self.join(left, right);
            }
        }
    }

    fn join(&mut self, left: u32, right: u32) {
        let gone = *self.leaves.at(right);
        let own = self.leaves.at_mut(left);
        own.append(&gone, 0);
        (own.end, own.next) = (gone.end, gone.next);
        if gone.next != NONE {
            self.leaves.at_mut(gone.next).previous = left;
        }
        self.index.remove(&gone.fence);
        self.leaves.give(right);
        self.last_changed = left;
    }
}

/// The lengths of the routes that cover `fence` and are shorter, where it parts `leaf` after its first `from` routes.
fn outside_of<A: Address>(leaf: &Leaf<A>, from: usize, fence: Prefix<A>) -> u128 {
    let common = leaf.fence.first().common_bits(fence.first());
    let before = leaf.outside & lens_up_to(common);
    let covering = (0..from).map(|at| leaf.prefix(at)).filter(|route| route.covers(fence));
    covering.fold(before, |lens, route| lens | 1 << route.len())
}

/// Returns the bits of lengths that are not greater.
fn lens_up_to(len: u8) -> u128 {
    u128::MAX >> 127u8.saturating_sub(len)
}
