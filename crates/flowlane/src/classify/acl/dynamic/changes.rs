//! Many changes, one after the other, with what the next ones will read asked for ahead.

use super::table::{CLASS_BITS, HEADS, head_of};
use super::{BuildError, Dynamic, finest_mask};
use crate::classify::acl::Entry;
use crate::rule::RuleId;

/// How far ahead of a change its cell of the handles, its record, its bucket and its chain are asked for. The steps of
/// one need what the step before asked for.
const AHEAD: [usize; 4] = [16, 12, 8, 4];

/// A change of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<const W: usize> {
    /// Adds this entry.
    Insert(Entry<W>),
    /// Removes the entry of this handle, where there is one.
    Remove(RuleId),
}

/// Which of several changes was refused, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("change {at} and those behind it were not made: {error}")]
pub struct ChangeError {
    /// Its place; those before it were made.
    pub at: usize,
    /// Why.
    pub error: BuildError,
}

impl<const W: usize> Dynamic<W> {
    /// Makes changes in their order: the same as one [`insert`](Self::insert) or [`remove`](Self::remove) after the
    /// other, in less time where the table lies outside the nearest cache.
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

    /// Asks for what a change will read, one step after the other.
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
