//! Routes and the forwarding table made from them, changed together.

use super::engine::{AnyFib, Family};
use super::prefix::{Address, Prefix};
use super::rib::{Rib, RibError};
use super::{BuildError, Fib, FibConfig};

/// A change that was not made; routes and table are as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// There is a route for this prefix already.
    #[error("there is a route already, to next hop {next_hop}; replace it, or delete it first")]
    Exists {
        /// Its next hop.
        next_hop: u64,
    },
    /// There is no route for this prefix.
    #[error("there is no such route; only a route's own prefix names it, not what that covers")]
    Missing,
    /// The routes are full.
    #[error(transparent)]
    Rib(#[from] RibError),
    /// The forwarding table cannot follow.
    #[error(transparent)]
    Fib(#[from] BuildError),
}

/// The routes of one table with what packets are looked up in.
///
/// ```
/// use flowlane::route::engine::AnyFib;
/// use flowlane::route::{Fib, FibConfig, HopSize, Routes};
///
/// let mut routes: Routes<u32, AnyFib<u32>> = Routes::new(1000, &FibConfig::new(HopSize::B2))?;
/// routes.add("10.0.0.0/8".parse()?, 1)?;
/// routes.add("10.1.0.0/16".parse()?, 2)?;
/// let addresses = [0x0a01_0001, 0x0a02_0001, 0x0b00_0001]; // 10.1.0.1, 10.2.0.1, 11.0.0.1
/// let mut next_hops = [0; 3];
/// routes.fib().lookup_batch(&addresses, &mut next_hops);
/// assert_eq!(next_hops, [2, 1, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Routes<A: Address, F: Fib<A>> {
    rib: Rib<A>,
    fib: F,
}

impl<A: Address, F: Fib<A>> Routes<A, F> {
    /// No routes yet, and room for `routes_max`.
    ///
    /// # Errors
    /// [`BuildError`], where even the empty table takes too much memory.
    pub fn new(routes_max: usize, config: &FibConfig) -> Result<Self, BuildError> {
        Self::with_rib(Rib::new(routes_max), config)
    }

    /// These routes, with a table built for them.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn with_rib(rib: Rib<A>, config: &FibConfig) -> Result<Self, BuildError> {
        F::build(&rib, config).map(|fib| Self { rib, fib })
    }

    /// Adds a route.
    ///
    /// # Errors
    /// [`RouteError`]: it is there already, or there is no room.
    pub fn add(&mut self, prefix: Prefix<A>, next_hop: u64) -> Result<(), RouteError> {
        if let Some(before) = self.rib.insert(prefix, next_hop)? {
            self.rib.insert(prefix, before)?;
            return Err(RouteError::Exists { next_hop: before });
        }
        self.follow(prefix, None)
    }

    /// Adds a route, or replaces its next hop; returns the one that it had.
    ///
    /// # Errors
    /// [`RouteError`]: there is no room.
    pub fn replace(&mut self, prefix: Prefix<A>, next_hop: u64) -> Result<Option<u64>, RouteError> {
        let before = self.rib.insert(prefix, next_hop)?;
        if before != Some(next_hop) {
            self.follow(prefix, before)?;
        }
        Ok(before)
    }

    /// Deletes a route; returns its next hop.
    ///
    /// # Errors
    /// [`RouteError`]: there is none, or what shows from under it has no room in the table.
    pub fn delete(&mut self, prefix: Prefix<A>) -> Result<u64, RouteError> {
        let before = self.rib.remove(prefix).ok_or(RouteError::Missing)?;
        self.follow(prefix, Some(before))?;
        Ok(before)
    }

    /// Repairs the table after a change of `prefix`, or undoes the change.
    fn follow(&mut self, prefix: Prefix<A>, before: Option<u64>) -> Result<(), RouteError> {
        let Err(error) = self.fib.update(&self.rib, prefix) else { return Ok(()) };
        match before {
            // It was there a moment ago, so there is room.
            Some(next_hop) => drop(self.rib.insert(prefix, next_hop)),
            None => drop(self.rib.remove(prefix)),
        }
        Err(error.into())
    }

    /// Returns the next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u64> {
        self.rib.get(prefix)
    }

    /// Returns the longest prefix that `address` is in, and its next hop.
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, u64)> {
        self.rib.lookup(address)
    }

    /// Returns the routes that `prefix` covers, itself with them, sorted.
    pub fn walk(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u64)> + '_ {
        self.rib.walk(prefix)
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.rib.is_empty()
    }

    /// Returns the routes.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Returns the forwarding table: batches are looked up in it, and it makes readers.
    pub fn fib(&self) -> &F {
        &self.fib
    }
}

impl<A: Family> Routes<A, AnyFib<A>> {
    /// Chooses the engine again, by addresses that were looked up: see [`AnyFib::renew`].
    ///
    /// # Errors
    /// [`BuildError`]: no engine can hold the routes; the table is as it was.
    pub fn renew(&mut self, recent: &[A]) -> Result<(), BuildError> {
        self.fib.renew(&self.rib, recent)
    }
}
