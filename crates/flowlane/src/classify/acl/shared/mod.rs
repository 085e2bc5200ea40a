#![doc = include_str!("README.md")]

mod left_right;
#[cfg(all(loom, test))]
mod loom;
mod renewed;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use self::left_right::{Reader, Writer};
pub use self::renewed::RenewedAcl;
use super::table::{AclContest, Bulk, Snapshot};
use super::{Acl, BuildError, Condition, MatchId};
use crate::classify::Hit;
use crate::rule::{Priority, RuleId};

/// A change, to be made to both copies.
#[derive(Clone, Debug)]
enum Change<const W: usize> {
    Insert(RuleId, Priority, Condition<W>, u16),
    Remove(RuleId),
    Replace(RuleId, Priority, Condition<W>, u16),
    Snapshot,
    Adopt(Arc<Bulk<W>>),
    Abandon,
    /// Anything: the copy is made anew.
    Become,
}

impl<const W: usize> Change<W> {
    /// Makes the change; says whether that was possible.
    fn make(&self, table: &mut Acl<W>) -> Result<bool, BuildError> {
        match self {
            Self::Insert(rule, priority, condition, categories) => {
                table.insert(*rule, *priority, *condition, *categories).map(|()| true)
            }
            Self::Remove(rule) => Ok(table.remove(*rule)),
            Self::Replace(rule, priority, condition, categories) => {
                table.replace(*rule, *priority, *condition, *categories)
            }
            Self::Snapshot => {
                table.freeze();
                Ok(true)
            }
            Self::Adopt(bulk) => table.adopt(bulk.clone()).map(|()| true),
            Self::Abandon => {
                table.abandon();
                Ok(true)
            }
            Self::Become => Ok(false),
        }
    }
}

/// The writer's side of an access list with readers on other threads.
#[derive(Debug)]
pub struct SharedAcl<const W: usize> {
    writer: Writer<Acl<W>>,
    /// What has been done to the copy that is shown, and not yet to the hidden one.
    behind: Vec<Change<W>>,
}

/// A reader of a [`SharedAcl`]: one for each thread, cloned from any other.
#[derive(Clone, Debug)]
pub struct AclReader<const W: usize> {
    reader: Reader<Acl<W>>,
}

/// Changes that become visible at once: see [`SharedAcl::transaction`].
#[derive(Debug)]
pub struct Transaction<'a, const W: usize> {
    table: &'a mut Acl<W>,
    made: &'a mut Vec<Change<W>>,
}

impl<const W: usize> Transaction<'_, W> {
    fn make(&mut self, change: Change<W>) -> Result<bool, BuildError> {
        let made = change.make(self.table);
        match (&made, change) {
            (Ok(false), _) => {}
            (Ok(true), change) => self.made.push(change),
            // The rule is there as before, but not in the same slot.
            (Err(_), Change::Replace(..)) => self.made.push(Change::Become),
            (Err(_), _) => {}
        }
        made
    }

    /// As [`Acl::insert`].
    ///
    /// # Errors
    /// As there.
    pub fn insert(
        &mut self,
        rule: RuleId,
        priority: Priority,
        condition: Condition<W>,
        categories: u16,
    ) -> Result<(), BuildError> {
        self.make(Change::Insert(rule, priority, condition, categories)).map(|_| ())
    }

    /// As [`Acl::remove`].
    pub fn remove(&mut self, rule: RuleId) -> bool {
        self.make(Change::Remove(rule)).unwrap_or(false)
    }

    /// As [`Acl::replace`].
    ///
    /// # Errors
    /// As there.
    pub fn replace(
        &mut self,
        rule: RuleId,
        priority: Priority,
        condition: Condition<W>,
        categories: u16,
    ) -> Result<bool, BuildError> {
        self.make(Change::Replace(rule, priority, condition, categories))
    }

    /// The table with what has been changed so far.
    pub fn table(&self) -> &Acl<W> {
        self.table
    }
}

impl<const W: usize> SharedAcl<W> {
    /// Shares a table. It is there twice from now on, but for the tree, which both copies share.
    pub fn new(table: Acl<W>) -> Self {
        Self { writer: Writer::new(table.clone(), table), behind: Vec::new() }
    }

    /// A reader.
    pub fn reader(&self) -> AclReader<W> {
        AclReader { reader: self.writer.reader() }
    }

    /// Calls `look` with the table as readers see it.
    pub fn look<R>(&self, look: impl FnOnce(&Acl<W>) -> R) -> R {
        self.writer.shown(look)
    }

    /// Makes changes that readers see all at once, or, where `change` fails, not at all. Waits for readers that have
    /// been in a batch since before the last change.
    ///
    /// # Errors
    /// What `change` says; the table is as before.
    pub fn transaction<R, E>(
        &mut self,
        change: impl FnOnce(&mut Transaction<'_, W>) -> Result<R, E>,
    ) -> Result<R, E> {
        let behind = &mut self.behind;
        let result = self.writer.change(|hidden, shown| {
            // The copies differ in room to grow: where one has none, it is made anew.
            if behind.drain(..).any(|change| !change.make(hidden).unwrap_or(false)) {
                *hidden = shown.clone();
            }
            let result = change(&mut Transaction { table: hidden, made: behind });
            if result.is_err() && !behind.is_empty() {
                *hidden = shown.clone();
                behind.clear();
            }
            result
        });
        if !self.behind.is_empty() {
            self.writer.swap();
        }
        result
    }

    /// As [`Acl::insert`], visible at once.
    ///
    /// # Errors
    /// As there.
    pub fn insert(
        &mut self,
        rule: RuleId,
        priority: Priority,
        condition: Condition<W>,
        categories: u16,
    ) -> Result<(), BuildError> {
        self.transaction(|t| t.insert(rule, priority, condition, categories))
    }

    /// As [`Acl::remove`], visible at once.
    pub fn remove(&mut self, rule: RuleId) -> bool {
        self.transaction(|t| Ok::<_, BuildError>(t.remove(rule))).unwrap_or(false)
    }

    /// As [`Acl::replace`], visible at once.
    ///
    /// # Errors
    /// As there.
    pub fn replace(
        &mut self,
        rule: RuleId,
        priority: Priority,
        condition: Condition<W>,
        categories: u16,
    ) -> Result<bool, BuildError> {
        self.transaction(|t| t.replace(rule, priority, condition, categories))
    }

    /// As [`Acl::snapshot`]: to be built on any thread, while rules change and readers look up.
    pub fn snapshot(&mut self) -> Snapshot<W> {
        let taken = self.transaction(|t| {
            t.make(Change::Snapshot)?;
            Ok::<_, BuildError>(t.table.snapshot())
        });
        taken.expect("freezing does not fail")
    }

    /// As [`Acl::adopt`], visible at once.
    ///
    /// # Errors
    /// As there.
    pub fn adopt(&mut self, bulk: Arc<Bulk<W>>) -> Result<(), BuildError> {
        self.transaction(|t| t.make(Change::Adopt(bulk)).map(|_| ()))
    }

    /// Nothing will be adopted of the last snapshot.
    fn abandon(&mut self) {
        let made = self.transaction(|t| t.make(Change::Abandon));
        made.expect("nothing is needed for it");
    }

    /// Merges what has changed into the bulk, on this thread; readers go on with the old one meanwhile.
    ///
    /// # Errors
    /// Where the budget is too small; the table is as before.
    pub fn rebuild(&mut self) -> Result<(), BuildError> {
        let bulk = self.snapshot().build()?;
        self.adopt(Arc::new(bulk))
    }

    /// As [`Acl::choose`]; readers go on with the old engine meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn choose(
        &mut self,
        sample: &[[u32; W]],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<AclContest, BuildError> {
        self.transaction(|t| {
            let contest = t.table.choose(sample, clock)?;
            t.made.push(Change::Become);
            Ok(contest)
        })
    }
}

impl<const W: usize> AclReader<W> {
    /// Calls `look` with the table as it is: it does not change meanwhile, and the writer's next but one change waits
    /// for the end.
    #[inline]
    pub fn look<R>(&mut self, look: impl FnOnce(&Acl<W>) -> R) -> R {
        self.reader.look(look)
    }

    /// As [`Acl::lookup_batch`]: all keys in the same set of rules.
    ///
    /// # Panics
    /// As there.
    pub fn lookup_batch(&mut self, keys: &[[u32; W]], verdicts: &mut [MatchId]) {
        self.look(|table| table.lookup_batch(keys, verdicts));
    }

    /// As [`Acl::lookup_categories`].
    ///
    /// # Panics
    /// As there.
    pub fn lookup_categories(&mut self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]) {
        self.look(|table| table.lookup_categories(keys, categories, verdicts));
    }

    /// As [`Acl::lookup_hits`].
    ///
    /// # Panics
    /// As there.
    pub fn lookup_hits(&mut self, keys: &[[u32; W]], hits: &mut [Option<Hit>]) {
        self.look(|table| table.lookup_hits(keys, hits));
    }
}
