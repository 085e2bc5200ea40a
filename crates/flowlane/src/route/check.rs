//! Every engine and variant against the routes themselves, on random tables under random changes.
//!
//! For tests, and for checking a machine: a difference is a bug here, or a broken CPU.

use std::net::IpAddr;

use super::engine::{AnyFib, Engine, Family};
use super::{BuildError, Fib, FibConfig, FibReader, HopSize, Prefix, Rib};
use crate::isa::Variant;

/// The size of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckConfig {
    /// Routes of a table.
    pub routes: usize,
    /// Changes to each table, one at a time.
    pub updates: usize,
}

/// Counts of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Tables built: engines × variants × sizes of next hops.
    pub tables: usize,
    /// Changes made to tables.
    pub updates: usize,
    /// Answers compared.
    pub lookups: usize,
}

/// An answer that is not that of the routes, or a table that could not be made or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A wrong answer.
    #[error(
        "{engine} {variant}, next hops of {hop_size} bytes, after {updates} changes: {address} has next hop \
         {expected} by the routes and {found} in the table"
    )]
    Difference {
        /// Of this engine.
        engine: Engine,
        /// And this variant.
        variant: Variant,
        /// With next hops of this size.
        hop_size: HopSize,
        /// The number of changes before.
        updates: usize,
        /// For this address.
        address: IpAddr,
        /// As the routes say.
        expected: u64,
        /// As the table says.
        found: u64,
    },
    /// A table that could not be made or changed.
    #[error("{engine} {variant}, next hops of {hop_size} bytes, after {updates} changes: {error}")]
    Build {
        /// Of this engine.
        engine: Engine,
        /// And this variant.
        variant: Variant,
        /// With next hops of this size.
        hop_size: HopSize,
        /// The number of changes before.
        updates: usize,
        /// Why.
        error: BuildError,
    },
    /// A table that is larger after a route was added and removed again, over and over.
    #[error(
        "{engine}, next hops of {hop_size} bytes: {before} bytes before {updates} changes were undone, {after} after"
    )]
    Grown {
        /// Of this engine.
        engine: Engine,
        /// With next hops of this size.
        hop_size: HopSize,
        /// Changes.
        updates: usize,
        /// Bytes before.
        before: usize,
        /// Bytes after.
        after: usize,
    },
}

/// Checks every engine of a family with every variant that may be used here; `random` gives 64 random bits a call.
/// Errors name all but the seed, which is the caller's.
///
/// # Errors
/// At the first difference.
pub fn check<A: Family>(
    config: &CheckConfig,
    random: &mut dyn FnMut() -> u64,
) -> Result<Checked, CheckError> {
    let mut checked = Checked::default();
    for &engine in A::ENGINES {
        for variant in Variant::ALL {
            for hop_size in HopSize::ALL {
                let fib = FibConfig::new(hop_size).with_default_next_hop(random() % 100);
                if let Some(fib) = fib.with_variant(variant) {
                    let mut run = Run { engine, variant, config: fib, random: &mut *random, updates: 0 };
                    run.check::<A>(config, &mut checked)?;
                }
            }
        }
    }
    Ok(checked)
}

/// One table's check.
struct Run<'a> {
    engine: Engine,
    variant: Variant,
    config: FibConfig,
    random: &'a mut dyn FnMut() -> u64,
    updates: usize,
}

impl Run<'_> {
    fn check<A: Family>(&mut self, config: &CheckConfig, checked: &mut Checked) -> Result<(), CheckError> {
        let mut rib = Rib::new(2 * config.routes + config.updates + 1);
        let mut there: Vec<Prefix<A>> = Vec::with_capacity(config.routes);
        while there.len() < config.routes {
            let prefix = self.prefix(&there);
            if rib.insert(prefix, self.next_hop()).expect("there is room").is_none() {
                there.push(prefix);
            }
        }
        let mut fib = match A::build(self.engine, &rib, &self.config) {
            Some(built) => built.map_err(|e| self.failed(e))?,
            None => return Ok(()),
        };
        checked.tables += 1;
        let all: Vec<A> = there.iter().flat_map(|p| edges(*p)).collect();
        self.compare(&rib, &fib, &all, checked)?;
        for _ in 0..config.updates {
            let changed = self.change(&mut rib, &mut there);
            self.updates += 1;
            fib.update(&rib, changed).map_err(|e| self.failed(e))?;
            let mut near: Vec<A> = edges(changed).to_vec();
            near.extend((0..4).map(|_| self.address::<A>(&there)));
            self.compare(&rib, &fib, &near, checked)?;
        }
        checked.updates += config.updates;
        let all: Vec<A> = there.iter().flat_map(|p| edges(*p)).collect();
        self.compare(&rib, &fib, &all, checked)?;
        self.churn(&mut rib, &mut fib, &there, config, checked)
    }

    /// Adds a route and removes it again, over and over: the table ends as it began.
    fn churn<A: Family>(
        &mut self,
        rib: &mut Rib<A>,
        fib: &mut AnyFib<A>,
        there: &[Prefix<A>],
        config: &CheckConfig,
        checked: &mut Checked,
    ) -> Result<(), CheckError> {
        let pass = |run: &mut Self, rib: &mut Rib<A>, fib: &mut AnyFib<A>| {
            for _ in 0..config.updates {
                let prefix = run.prefix(there);
                if rib.get(prefix).is_some() {
                    continue;
                }
                rib.insert(prefix, run.next_hop()).expect("there is room");
                fib.update(rib, prefix).map_err(|e| run.failed(e))?;
                rib.remove(prefix);
                fib.update(rib, prefix).map_err(|e| run.failed(e))?;
                run.updates += 2;
            }
            Ok(fib.table_bytes())
        };
        // What the first pass leaves in reserve is used by the second.
        let before = pass(self, rib, fib)?;
        let after = pass(self, rib, fib)?;
        // The first table of DIR-24-8 is in memory where it has been written to.
        let first_table = if self.engine == Engine::Dir24 { self.config.hop_size.bytes() << 24 } else { 0 };
        if after > before.max(first_table) + before / 8 {
            let (engine, hop_size, updates) = (self.engine, self.config.hop_size, self.updates);
            return Err(CheckError::Grown { engine, hop_size, updates, before, after });
        }
        let all: Vec<A> = there.iter().flat_map(|p| edges(*p)).collect();
        self.compare(rib, fib, &all, checked)
    }

    /// Adds, replaces or removes a route; returns its prefix.
    fn change<A: Family>(&mut self, rib: &mut Rib<A>, there: &mut Vec<Prefix<A>>) -> Prefix<A> {
        let kind = (self.random)() % 4;
        if kind < 2 && !there.is_empty() {
            let at = (self.random)() as usize % there.len();
            let prefix = there[at];
            if kind == 0 {
                rib.remove(prefix);
                there.swap_remove(at);
            } else {
                rib.insert(prefix, self.next_hop()).expect("it is there");
            }
            return prefix;
        }
        let prefix = self.prefix(there);
        if rib.insert(prefix, self.next_hop()).expect("there is room").is_none() {
            there.push(prefix);
        }
        prefix
    }

    /// Compares the answers of the writer's handle and of a reader's, in a batch and one by one.
    fn compare<A: Family>(
        &self,
        rib: &Rib<A>,
        fib: &AnyFib<A>,
        addresses: &[A],
        checked: &mut Checked,
    ) -> Result<(), CheckError> {
        let mut batch = vec![0; addresses.len()];
        let mut read = batch.clone();
        fib.lookup_batch(addresses, &mut batch);
        fib.reader().lookup_batch(addresses, &mut read);
        for ((&address, batch), read) in addresses.iter().zip(batch).zip(read) {
            let expected = rib.lookup(address).map_or(self.config.default_next_hop, |(_, next_hop)| next_hop);
            for found in [batch, read, fib.lookup(address)] {
                if found != expected {
                    return Err(CheckError::Difference {
                        engine: self.engine,
                        variant: self.variant,
                        hop_size: self.config.hop_size,
                        updates: self.updates,
                        address: address.to_ip(),
                        expected,
                        found,
                    });
                }
            }
        }
        checked.lookups += 3 * addresses.len();
        Ok(())
    }

    /// Returns a prefix of any length: anywhere, or inside or around one that is there, near its ends.
    fn prefix<A: Family>(&mut self, there: &[Prefix<A>]) -> Prefix<A> {
        let len = (self.random)() as u8 % (A::BITS + 1);
        let address = self.address(there);
        // A table of lengths 0 to 7 alone would be all alike.
        let len = if len < 8 && (self.random)() & 15 != 0 { len + 16 } else { len };
        Prefix::truncated(address, len)
    }

    fn address<A: Family>(&mut self, there: &[Prefix<A>]) -> A {
        let anywhere = A::from_words((self.random)(), (self.random)());
        let kind = (self.random)() % 4;
        if there.is_empty() || kind == 0 {
            return anywhere;
        }
        let near = there[(self.random)() as usize % there.len()];
        match kind {
            1 => near.first() | (anywhere & !A::mask(near.len())),
            2 => near.first(),
            _ => near.last(),
        }
    }

    fn next_hop(&mut self) -> u64 {
        // Seven bits fit any engine's smallest next hop; few enough that some neighbours are equal.
        (self.random)() % 100
    }

    fn failed(&self, error: BuildError) -> CheckError {
        CheckError::Build {
            engine: self.engine,
            variant: self.variant,
            hop_size: self.config.hop_size,
            updates: self.updates,
            error,
        }
    }
}

/// Returns the first and last addresses of a prefix, and those beside them.
fn edges<A: Family>(prefix: Prefix<A>) -> [A; 4] {
    let (first, last) = (prefix.first(), prefix.last());
    [first.previous().unwrap_or(last), first, last, last.next().unwrap_or(first)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    #[test]
    fn all_engines_agree_with_the_routes_under_changes() {
        let config = CheckConfig { routes: 50, updates: 12 };
        let mut random = Random::new(11);
        let v4 = check::<u32>(&config, &mut || random.bits()).unwrap_or_else(|e| panic!("{e}"));
        let v6 = check::<u128>(&config, &mut || random.bits()).unwrap_or_else(|e| panic!("{e}"));
        assert!(v4.tables >= 8 && v6.tables >= 4, "{v4:?} {v6:?}");
        assert!(v4.lookups > 10_000);
    }
}
