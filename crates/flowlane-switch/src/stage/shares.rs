//! Shares of a table: how many entries each holder has, a port whose packets have added them, or a source address.
//!
//! By default a holder gets another entry only while as many are free as it has (a dynamic threshold: Choudhury and Hahne, *Dynamic
//! queue length thresholds for shared-memory packet switches*, 1998). So one holder alone gets half, each of n that flood the
//! table one of n + 1 parts, and the last part is left for others. Nothing that is in use is taken away.

use std::collections::BTreeMap;

/// No holder: an entry of the configuration.
const NO_HOLDER: u32 = u32::MAX;

/// The entries of a table by their holders. The two highest numbers count as one.
#[derive(Debug)]
pub(super) struct Shares {
    /// A fixed limit for each holder.
    each_max: Option<usize>,
    /// The holder of each entry, by the entry's number; shorter if the last entries are no holder's.
    holders: Vec<u32>,
    held: BTreeMap<u32, usize>,
}

impl Shares {
    /// Each holder has at most `each_max` entries; without it, at most as many as are free.
    pub(super) fn new(each_max: Option<usize>) -> Self {
        Self { each_max, holders: Vec::new(), held: BTreeMap::new() }
    }

    /// Returns the number of entries that a holder has.
    pub(super) fn held(&self, holder: u32) -> usize {
        self.held.get(&counted(holder)).copied().unwrap_or(0)
    }

    /// Returns the number of entries that a holder has without those that are `gone`.
    pub(super) fn held_without(&self, holder: u32, gone: &[u32]) -> usize {
        self.held(holder) - gone.iter().filter(|&&at| self.holder(at) == Some(counted(holder))).count()
    }

    /// Returns whether a holder that has `held` entries may get another one of those that are free.
    #[inline]
    pub(super) fn may_add(&self, held: usize, free: usize) -> bool {
        held < self.each_max.unwrap_or(free)
    }

    /// Returns the holder of an entry.
    fn holder(&self, at: u32) -> Option<u32> {
        self.holders.get(at as usize).copied().filter(|&holder| holder != NO_HOLDER)
    }

    /// Records a new entry of a holder.
    pub(super) fn add(&mut self, at: u32, holder: u32) {
        let (at, holder) = (at as usize, counted(holder));
        if at >= self.holders.len() {
            self.holders.resize(at + 1, NO_HOLDER);
        }
        self.holders[at] = holder;
        *self.held.entry(holder).or_default() += 1;
    }

    /// Forgets an entry that is removed.
    pub(super) fn remove(&mut self, at: u32) {
        let Some(holder) = self.holder(at) else { return };
        self.holders[at as usize] = NO_HOLDER;
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

/// Returns the number as which a holder counts.
fn counted(holder: u32) -> u32 {
    holder.min(NO_HOLDER - 1)
}
