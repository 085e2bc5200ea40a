//! A rule set on a device.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use flowlane::classify::Hit;
use flowlane::classify::acl::{Entry, RankKey, WordKind};
use flowlane::rule::RuleId;

use crate::device::Device;
use crate::error::GpuError;
use crate::search::{self, Batch, Method, Search};
use crate::ternary::{Ternary, TernaryRules};

/// The most words of a key that kernels support.
pub const WORDS_MAX: usize = 16;
/// The most entries of a table after expansion of ranges.
pub const ENTRIES_MAX: usize = 1 << 26;
/// The most entries of an overlay after expansion of ranges: every key is compared with all of them.
const ADDED_ENTRIES_MAX: usize = 1 << 14;

/// The most winners of a key: one of the bulk and one of the overlay.
pub(crate) const COLUMNS_MAX: usize = 2;

/// An immutable rule set on a device. A table that differs in few rules shares the bulk and adds an overlay: the new
/// rules on the device, and on the host a mark for each deleted rule ([`with_changes`](Self::with_changes)).
#[derive(Debug)]
pub struct GpuTable<const W: usize> {
    bulk: Arc<Bulk<W>>,
    added: Option<Part>,
    /// A bit for each standing of the bulk whose rule was deleted; empty without deletions.
    deleted: Vec<u64>,
    epoch: u64,
    device: Device,
}

/// Rules and the search structure over them.
#[derive(Debug)]
struct Part {
    search: Box<dyn Search>,
    /// The hits, indexed by standing from 1.
    hits: Vec<Hit>,
    ranks: Vec<RankKey>,
    entries: usize,
}

#[derive(Debug)]
struct Bulk<const W: usize> {
    part: Part,
    method: Method,
    kinds: [WordKind; W],
    seed: u64,
    /// The standings of the rules, ordered by rule.
    standings: Vec<(RuleId, u32)>,
}

/// The best rule of the bulk was deleted, and the next best is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WinnerDeleted;

impl<const W: usize> Drop for GpuTable<W> {
    /// Binds the context, since the last batch may end on a thread that has none.
    fn drop(&mut self) {
        _ = self.device.context().bind_to_thread();
    }
}

impl Part {
    #[inline(never)]
    fn build<const W: usize>(
        device: &Device,
        method: Method,
        rules: TernaryRules<W>,
        seed: u64,
    ) -> Result<Self, GpuError> {
        let search = search::build(device, method, &rules, seed)?;
        Ok(Self { search, entries: rules.rules.len(), hits: rules.hits, ranks: rules.ranks })
    }

    /// Returns the rule of a standing and its rank. An unknown standing indicates an error in a kernel and yields no
    /// rule rather than a wrong one.
    fn winner(&self, standing: u32) -> Option<(RankKey, Hit)> {
        let place = (standing as usize).checked_sub(1)?;
        Some((*self.ranks.get(place)?, self.hits[place]))
    }
}

impl<const W: usize> GpuTable<W> {
    /// Builds a table of the entries of category 0 on a device. `seed` is secret; `epoch` identifies the rule set.
    ///
    /// # Errors
    /// Returns an error if the entries do not fit, or if the device fails.
    #[inline(never)]
    pub fn build(
        device: &Device,
        method: Method,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        seed: u64,
        epoch: u64,
    ) -> Result<Self, GpuError> {
        const {
            assert!(
                matches!(W, 4 | 9 | 10 | WORDS_MAX),
                "kernels are compiled for keys of 4, 9, 10 and 16 words"
            );
        }
        // Refused before it is built, on the host as well.
        let needed = TernaryRules::count(kinds, entries);
        if needed > ENTRIES_MAX {
            return Err(GpuError::Entries { rules: entries.len(), entries_max: ENTRIES_MAX });
        }
        device.reserve("the set of rules", needed * size_of::<Ternary<W>>())?;
        let rules = TernaryRules::new(kinds, entries, ENTRIES_MAX)?;
        let part = Part::build(device, method, rules, seed)?;
        let mut standings: Vec<(RuleId, u32)> = part.hits.iter().map(|hit| hit.rule).zip(1..).collect();
        standings.sort_unstable();
        let bulk = Arc::new(Bulk { part, method, kinds: *kinds, seed, standings });
        Ok(Self { bulk, added: None, deleted: Vec::new(), epoch, device: device.clone() })
    }

    /// Returns a table with the bulk of this one, without the rules in `deleted` and with these entries. Other changes
    /// of this table do not carry over. The cost is proportional to the number of changes, since the bulk is shared.
    ///
    /// If the best rule of the bulk for a key was deleted, the device has no answer:
    /// [`Session::unanswered`](crate::Session::unanswered).
    ///
    /// # Errors
    /// Returns an error if the entries exceed the limit of an overlay, or if the device fails.
    #[inline(never)]
    pub fn with_changes(
        &self,
        deleted: impl IntoIterator<Item = RuleId>,
        added: &[Entry<W>],
        epoch: u64,
    ) -> Result<Self, GpuError> {
        let bulk = &self.bulk;
        let mut marks = Vec::new();
        for rule in deleted {
            for standing in self.standings(rule) {
                marks.resize(bulk.part.hits.len() / 64 + 1, 0);
                marks[standing as usize / 64] |= 1u64 << (standing % 64);
            }
        }
        let rules = TernaryRules::new(&bulk.kinds, added, ADDED_ENTRIES_MAX)?;
        let added = match rules.rules.is_empty() {
            true => None,
            false => Some(Part::build(&self.device, Method::Linear, rules, bulk.seed)?),
        };
        Ok(Self { bulk: bulk.clone(), added, deleted: marks, epoch, device: self.device.clone() })
    }

    /// Returns the standings of a rule in the bulk.
    fn standings(&self, rule: RuleId) -> impl Iterator<Item = u32> {
        let all = &self.bulk.standings;
        let first = all.partition_point(|(other, _)| *other < rule);
        all[first..].iter().take_while(move |(other, _)| *other == rule).map(|(_, standing)| *standing)
    }

    /// Returns whether the bulk contains a rule, deleted or not.
    pub fn bulk_has(&self, rule: RuleId) -> bool {
        self.standings(rule).next().is_some()
    }

    /// Returns the search method.
    pub fn method(&self) -> Method {
        self.bulk.method
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        let deleted: usize = self.deleted.iter().map(|marks| marks.count_ones() as usize).sum();
        self.bulk.part.hits.len() - deleted + self.added.as_ref().map_or(0, |added| added.hits.len())
    }

    /// Returns whether the table has no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries on the device, including those of deleted rules; a rule with ranges has several.
    pub fn entries(&self) -> usize {
        self.bulk.part.entries + self.added.as_ref().map_or(0, |added| added.entries)
    }

    /// Returns the number of masks of the bulk, counting the parts of split classes; `None` if the method does not
    /// use classes.
    pub fn classes(&self) -> Option<usize> {
        self.bulk.part.search.classes()
    }

    /// Returns the epoch of the rule set.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the size of the device memory in use, including shared parts.
    pub fn table_bytes(&self) -> usize {
        self.bulk.part.search.table_bytes()
            + self.added.as_ref().map_or(0, |added| added.search.table_bytes())
    }

    /// Returns the number of winners of a key, at most [`COLUMNS_MAX`].
    pub(crate) fn columns(&self) -> usize {
        1 + usize::from(self.added.is_some())
    }

    /// Enqueues the search for the winners of `count` tuples. `winners` receives a column for the bulk, followed by
    /// one for the overlay.
    pub(crate) fn launch(
        &self,
        stream: &Arc<CudaStream>,
        tuples: &CudaSlice<u32>,
        count: usize,
        winners: &mut CudaSlice<u32>,
    ) -> Result<(), GpuError> {
        let mut all = winners.slice_mut(..self.columns() * count);
        stream.memset_zeros(&mut all).map_err(GpuError::of("clearing winners"))?;
        for (column, part) in std::iter::once(&self.bulk.part).chain(&self.added).enumerate() {
            let winners = winners.slice_mut(column * count..(column + 1) * count);
            part.search.launch(stream, Batch { tuples, count: count as u32, winners })?;
        }
        Ok(())
    }

    /// Returns the winning rule, given the winners of the bulk and of the overlay (0 for none).
    pub(crate) fn hit(&self, bulk: u32, added: u32) -> Result<Option<Hit>, WinnerDeleted> {
        let of_added = self.added.as_ref().and_then(|part| part.winner(added));
        let Some((rank, hit)) = self.bulk.part.winner(bulk) else { return Ok(of_added.map(|(_, hit)| hit)) };
        match of_added {
            // A better rule than a deleted one precedes all rules after it. An equal rank is the same rule, replaced.
            Some((better, hit)) if better >= rank => Ok(Some(hit)),
            _ if self.is_deleted(bulk) => Err(WinnerDeleted),
            _ => Ok(Some(hit)),
        }
    }

    fn is_deleted(&self, standing: u32) -> bool {
        self.deleted.get(standing as usize / 64).is_some_and(|marks| marks >> (standing % 64) & 1 == 1)
    }
}
