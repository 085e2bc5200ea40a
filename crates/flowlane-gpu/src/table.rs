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

/// Words of the widest key that kernels take.
pub const WORDS_MAX: usize = 16;
/// Entries after expansion of ranges that a table may have.
pub const ENTRIES_MAX: usize = 1 << 26;
/// The same of what is added to a table: all of them are compared with every key.
const ADDED_ENTRIES_MAX: usize = 1 << 14;

/// Most winners that a table has for a key: of its bulk, and of what was added to it.
pub(crate) const COLUMNS_MAX: usize = 2;

/// Rules on a device, for good: a change makes another table. One that differs in few rules shares the bulk of them,
/// and has those that are new beside, and on the host a mark for each that is gone
/// ([`with_changes`](Self::with_changes)).
#[derive(Debug)]
pub struct GpuTable<const W: usize> {
    bulk: Arc<Bulk<W>>,
    added: Option<Part>,
    /// A bit for each standing of the bulk whose rule is gone; nothing where none is.
    gone: Vec<u64>,
    epoch: u64,
    device: Device,
}

/// Rules, and how they are found.
#[derive(Debug)]
struct Part {
    search: Box<dyn Search>,
    /// By standing from 1.
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
    /// The standing of each rule, in the order of rules.
    standings: Vec<(RuleId, u32)>,
}

/// The best rule of the bulk is gone, and nobody has asked for the next best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

impl<const W: usize> Drop for GpuTable<W> {
    /// The last batch may end on a thread that knows nothing of the device; its memory is given back all the same.
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

    /// The rule of a standing, and its rank. One that no rule has would be a kernel's error: no rule, rather than a
    /// wrong one.
    fn winner(&self, standing: u32) -> Option<(RankKey, Hit)> {
        let place = (standing as usize).checked_sub(1)?;
        Some((*self.ranks.get(place)?, self.hits[place]))
    }
}

impl<const W: usize> GpuTable<W> {
    /// Puts the entries that count in category 0 onto a device. `seed` is secret; `epoch` names this set of rules.
    ///
    /// # Errors
    /// Where they do not fit, or the device fails.
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
        // Refused before it is made, on the host, too.
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
        Ok(Self { bulk, added: None, gone: Vec::new(), epoch, device: device.clone() })
    }

    /// The table of the rules of this one's bulk without those in `gone` (that were there), and of these entries. What
    /// other changes this one has does not count. Costs as much as there are changes: the bulk is shared.
    ///
    /// Where the best rule of the bulk for a key is gone, the device has no answer:
    /// [`Session::unanswered`](crate::Session::unanswered).
    ///
    /// # Errors
    /// Where the entries are more than may be compared with every key, and where the device fails.
    #[inline(never)]
    pub fn with_changes(
        &self,
        gone: impl IntoIterator<Item = RuleId>,
        added: &[Entry<W>],
        epoch: u64,
    ) -> Result<Self, GpuError> {
        let bulk = &self.bulk;
        let mut marks = Vec::new();
        for rule in gone {
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
        Ok(Self { bulk: bulk.clone(), added, gone: marks, epoch, device: self.device.clone() })
    }

    /// Where a rule stands in the bulk.
    fn standings(&self, rule: RuleId) -> impl Iterator<Item = u32> {
        let all = &self.bulk.standings;
        let first = all.partition_point(|(other, _)| *other < rule);
        all[first..].iter().take_while(move |(other, _)| *other == rule).map(|(_, standing)| *standing)
    }

    /// Whether the bulk has a rule, gone or not.
    pub fn bulk_has(&self, rule: RuleId) -> bool {
        self.standings(rule).next().is_some()
    }

    /// How it finds rules.
    pub fn method(&self) -> Method {
        self.bulk.method
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        let gone: usize = self.gone.iter().map(|marks| marks.count_ones() as usize).sum();
        self.bulk.part.hits.len() - gone + self.added.as_ref().map_or(0, |added| added.hits.len())
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries on the device, those of rules that are gone among them: a rule with ranges is several.
    pub fn entries(&self) -> usize {
        self.bulk.part.entries + self.added.as_ref().map_or(0, |added| added.entries)
    }

    /// Number of masks of the bulk, split where a class has too many rules; none where the method does not know classes.
    pub fn classes(&self) -> Option<usize> {
        self.bulk.part.search.classes()
    }

    /// Which set of rules this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Device memory that it takes, what it shares included.
    pub fn table_bytes(&self) -> usize {
        self.bulk.part.search.table_bytes()
            + self.added.as_ref().map_or(0, |added| added.search.table_bytes())
    }

    /// Winners of a key, of [`COLUMNS_MAX`] at most.
    pub(crate) fn columns(&self) -> usize {
        1 + usize::from(self.added.is_some())
    }

    /// Puts what finds the winners of so many tuples onto a stream. `winners` gets a column of them for the bulk, and
    /// behind it one for what was added.
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

    /// The rule that won, of the winners of the bulk and of what was added (0 where nothing was).
    pub(crate) fn hit(&self, bulk: u32, added: u32) -> Result<Option<Hit>, Gone> {
        let of_added = self.added.as_ref().and_then(|part| part.winner(added));
        let Some((rank, hit)) = self.bulk.part.winner(bulk) else { return Ok(of_added.map(|(_, hit)| hit)) };
        match of_added {
            // Better than a rule that is gone is better than all that come behind it. Of one rank is the same rule,
            // replaced.
            Some((better, hit)) if better >= rank => Ok(Some(hit)),
            _ if self.is_gone(bulk) => Err(Gone),
            _ => Ok(Some(hit)),
        }
    }

    fn is_gone(&self, standing: u32) -> bool {
        self.gone.get(standing as usize / 64).is_some_and(|marks| marks >> (standing % 64) & 1 == 1)
    }
}
