//! Batches of changes, with prefetching of the data that the next ones read.

use super::table::{CLASS_BITS, HEADS, head_of};
use super::{BuildError, Dynamic, finest_mask};
use crate::classify::acl::Entry;
use crate::rule::RuleId;

/// Distances ahead of a change at which its cell, its record, its bucket and its chain are prefetched. Each step needs the
/// data of the step before.
const AHEAD: [usize; 4] = [16, 12, 8, 4];

/// A change of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<const W: usize> {
    /// Adds this entry.
    Insert(Entry<W>),
    /// Removes the entry of this rule number, where there is one.
    Remove(RuleId),
}

/// The change of a batch that was refused, and the reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("change {at} and those behind it were not made: {error}")]
pub struct ChangeError {
    /// Its index; the changes before it were made.
    pub at: usize,
    /// The reason.
    pub error: BuildError,
}

impl<const W: usize> Dynamic<W> {
    /// Makes changes in their order, as [`insert`](Self::insert) and [`remove`](Self::remove) do one at a time, in less time
    /// where the table lies outside the nearest cache.
    ///
    /// # Errors
    /// At the first that is refused; those before it are made.
    pub fn apply(&mut self, changes: &[Change<W>]) -> Result<(), ChangeError> {
        for (at, change) in changes.iter().enumerate() {
            for (step, ahead) in AHEAD.iter().enumerate() {
                if let Some(coming) = changes.get(at + ahead) {
                    self.announce(coming, step);
                }
            }
            match change {
                Change::Insert(entry) => self.insert(*entry).map_err(|error| ChangeError { at, error })?,
                Change::Remove(rule) => {
                    self.remove(*rule);
                }
            }
        }
        Ok(())
    }

    /// Prefetches the data that a change reads, one step after the other.
    #[inline]
    fn announce(&self, change: &Change<W>, step: usize) {
        let rule = match change {
            Change::Insert(entry) => entry.rule.0,
            Change::Remove(rule) => rule.0,
        };
        if step == 0 {
            return self.ids.prefetch(rule);
        }
        let (table, key) = match change {
            Change::Insert(_) if step == 1 => return,
            Change::Insert(entry) => {
                let condition = &entry.condition;
                (self.table_for(&finest_mask(&self.kinds, &condition.low, &condition.high)), &condition.low)
            }
            Change::Remove(rule) => {
                let Some(number) = self.ids.find(rule.0) else { return };
                if step == 1 {
                    return self.rules.prefetch_record(number);
                }
                let record = &self.rules.records[number as usize];
                (record.table, &record.low)
            }
        };
        let table = &self.tables[usize::from(table)];
        if step < AHEAD.len() - 1 {
            return table.prefetch(key);
        }
        let place = table.place(table.hash(key));
        if let Some(at) = head_of(table.front[place.bucket], place.tag) {
            self.rules.prefetch_record(table.heads[place.bucket * HEADS + at] >> CLASS_BITS);
        }
    }
}
