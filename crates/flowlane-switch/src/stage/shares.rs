//! Shares of a table: how many entries the packets of each port have added.
//!
//! By default a port gets another entry only while as many are free as it has (a dynamic threshold: Choudhury and Hahne, *Dynamic
//! queue length thresholds for shared-memory packet switches*, 1998). So one port alone gets half, each of n ports that flood the
//! table one of n + 1 parts, and the last part is left for others. Nothing that is in use is taken away.

use std::collections::BTreeMap;

/// No port: an entry of the configuration.
const NO_PORT: u32 = u32::MAX;

/// The entries of a table by the ports whose packets have added them.
#[derive(Debug)]
pub(super) struct Shares {
    /// A fixed limit for each port.
    port_max: Option<usize>,
    /// The port of each entry, by the entry's number; shorter if the last entries are no port's.
    holders: Vec<u32>,
    held: BTreeMap<u32, usize>,
}

impl Shares {
    /// Each port has at most `port_max` entries; without it, at most as many as are free.
    pub(super) fn new(port_max: Option<usize>) -> Self {
        Self { port_max, holders: Vec::new(), held: BTreeMap::new() }
    }

    /// Returns the number of entries that a port has.
    pub(super) fn held(&self, port: u32) -> usize {
        self.held.get(&port).copied().unwrap_or(0)
    }

    /// Returns whether a port that has `held` entries may get another one of those that are free.
    #[inline]
    pub(super) fn may_add(&self, held: usize, free: usize) -> bool {
        held < self.port_max.unwrap_or(free)
    }

    /// Returns the port whose packets have added an entry.
    pub(super) fn holder(&self, at: u32) -> Option<u32> {
        self.holders.get(at as usize).copied().filter(|&holder| holder != NO_PORT)
    }

    /// Records a new entry of a port.
    pub(super) fn add(&mut self, at: u32, port: u32) {
        let at = at as usize;
        if at >= self.holders.len() {
            self.holders.resize(at + 1, NO_PORT);
        }
        self.holders[at] = port;
        *self.held.entry(port).or_default() += 1;
    }

    /// Forgets an entry that is removed.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(holder) = self.holder(at) else { return };
        self.holders[at as usize] = NO_PORT;
        if let Some(held) = self.held.get_mut(&holder) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&holder);
            }
        }
    }

    /// Returns the bytes that it takes.
    pub(super) fn table_bytes(&self) -> usize {
        self.holders.len() * size_of::<u32>()
    }
}
