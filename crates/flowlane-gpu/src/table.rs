//! A rule set on a device.

use flowlane::classify::Hit;
use flowlane::classify::acl::{Entry, WordKind};

use crate::device::Device;
use crate::error::GpuError;
use crate::search::{self, Method, Search};
use crate::ternary::TernaryRules;

/// Entries after expansion of ranges that a table may have.
pub(crate) const ENTRIES_MAX: usize = 1 << 26;

/// Rules on a device, for good: a change makes another table.
#[derive(Debug)]
pub struct GpuTable<const W: usize> {
    search: Box<dyn Search>,
    method: Method,
    /// The rules, by standing from 1.
    hits: Vec<Hit>,
    entries: usize,
    epoch: u64,
    device: Device,
}

impl<const W: usize> Drop for GpuTable<W> {
    /// The last batch may end on a thread that knows nothing of the device; its memory is given back all the same.
    fn drop(&mut self) {
        _ = self.device.context().bind_to_thread();
    }
}

impl<const W: usize> GpuTable<W> {
    /// Puts the entries that count in category 0 onto a device. `seed` is secret; `epoch` names this set of rules.
    ///
    /// # Errors
    /// Where they do not fit, or the device fails.
    pub fn build(
        device: &Device,
        method: Method,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        seed: u64,
        epoch: u64,
    ) -> Result<Self, GpuError> {
        const { assert!(matches!(W, 4 | 9 | 10 | 16), "kernels are compiled for keys of 4, 9, 10 and 16 words") };
        let rules = TernaryRules::new(kinds, entries, ENTRIES_MAX)?;
        let search = search::build(device, method, &rules, seed)?;
        let entries = rules.rules.len();
        Ok(Self { search, method, entries, hits: rules.hits, epoch, device: device.clone() })
    }

    /// How it finds rules.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.hits.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

    /// Number of entries: a rule with ranges is several.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Number of masks, split where a class has too many rules; none where the method does not know classes.
    pub fn classes(&self) -> Option<usize> {
        self.search.classes()
    }

    /// Which set of rules this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Device memory that it takes.
    pub fn table_bytes(&self) -> usize {
        self.search.table_bytes()
    }

    pub(crate) fn search(&self) -> &dyn Search {
        &*self.search
    }

    /// The rule of a standing. One that no rule has would be a kernel's error: no rule, rather than a wrong one.
    pub(crate) fn hit(&self, standing: u32) -> Option<Hit> {
        self.hits.get((standing as usize).checked_sub(1)?).copied()
    }
}
