//! An access list that keeps itself fast: a thread of its own builds the tree anew when rules have changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::{AclReader, SharedAcl, Transaction};
use crate::classify::acl::{Acl, BuildError, Condition};
use crate::rule::{Priority, RuleId};

/// Changes wait so long for others that are merged with them; a thread that has built rests at least so long, and as long as
/// it built.
const PAUSE: Duration = Duration::from_millis(20);

/// A [`SharedAcl`] whose lookups return to the rate of a table that was built at once, whatever has been changed: some time
/// after a change a thread builds the engine anew, while rules go on changing and readers look up, and ends when there is
/// nothing more to merge. It takes half of a core at most.
///
/// ```
/// use flowlane::classify::acl::{Acl, AclConfig, Condition, Layout, RenewedAcl, MatchId};
/// use flowlane::rule::{Priority, RuleId};
///
/// let layout = Layout::ipv4_five_tuple();
/// let any = Condition::any(layout.kinds());
/// let mut acl = RenewedAcl::new(Acl::new(layout, AclConfig::default()));
/// let mut reader = acl.reader();
/// acl.insert(RuleId(7), Priority(1), any, 1)?;
/// let mut verdicts = [MatchId::NONE];
/// reader.lookup_batch(&[[80, 6, 1, 2]], &mut verdicts);
/// assert_eq!(verdicts[0].rule(), Some(RuleId(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RenewedAcl<const W: usize> {
    kept: Arc<Mutex<Kept<W>>>,
}

#[derive(Debug)]
struct Kept<const W: usize> {
    table: SharedAcl<W>,
    /// Whether a thread is at work.
    renewing: bool,
    renewals: u64,
    refused: Option<BuildError>,
}

impl<const W: usize> Kept<W> {
    /// A panic of somebody who held the table leaves it as it was, or as a change that was complete made it.
    fn lock(kept: &Mutex<Self>) -> MutexGuard<'_, Self> {
        kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const W: usize> RenewedAcl<W> {
    /// Shares a table. It is there twice from now on, but for the tree, which both copies share.
    pub fn new(mut table: Acl<W>) -> Self {
        table.defer_rebuilds();
        let table = SharedAcl::new(table);
        let kept = Kept { table, renewing: false, renewals: 0, refused: None };
        Self { kept: Arc::new(Mutex::new(kept)) }
    }

    /// A reader.
    pub fn reader(&self) -> AclReader<W> {
        Kept::lock(&self.kept).table.reader()
    }

    /// Calls `look` with the table as readers see it.
    pub fn look<R>(&self, look: impl FnOnce(&Acl<W>) -> R) -> R {
        Kept::lock(&self.kept).table.look(look)
    }

    /// How often the engine has been built anew.
    pub fn renewals(&self) -> u64 {
        Kept::lock(&self.kept).renewals
    }

    /// Why the engine could not be built anew, where that was so the last time: answers are right, and slower. The next
    /// change tries again.
    pub fn refused(&self) -> Option<BuildError> {
        Kept::lock(&self.kept).refused.clone()
    }

    /// As [`SharedAcl::transaction`].
    ///
    /// # Errors
    /// As there.
    pub fn transaction<R, E>(
        &mut self,
        change: impl FnOnce(&mut Transaction<'_, W>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut kept = Kept::lock(&self.kept);
        let result = kept.table.transaction(change);
        if !kept.renewing && kept.table.look(Acl::needs_rebuild) {
            let weak = Arc::downgrade(&self.kept);
            let thread = thread::Builder::new().name("renewal".to_owned());
            // Where there is no thread to be had, the next change tries again.
            kept.renewing = thread.spawn(move || renew(&weak)).is_ok();
        }
        result
    }

    /// As [`SharedAcl::insert`].
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

    /// As [`SharedAcl::remove`].
    pub fn remove(&mut self, rule: RuleId) -> bool {
        self.transaction(|t| Ok::<_, BuildError>(t.remove(rule))).unwrap_or(false)
    }

    /// As [`SharedAcl::replace`].
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
}

/// Builds the engine anew as long as there are changes and somebody has the table.
fn renew<const W: usize>(kept: &Weak<Mutex<Kept<W>>>) {
    let mut rest = PAUSE;
    while let Some(built) = {
        thread::sleep(rest);
        renew_once(kept)
    } {
        rest = built.max(PAUSE);
    }
}

/// Builds the engine once; says how long that took, or that there was nothing to do.
fn renew_once<const W: usize>(kept: &Weak<Mutex<Kept<W>>>) -> Option<Duration> {
    let kept = kept.upgrade()?;
    let mut locked = Kept::lock(&kept);
    if !locked.table.look(Acl::needs_rebuild) {
        locked.renewing = false;
        return None;
    }
    let snapshot = locked.table.snapshot();
    drop(locked);
    let begun = Instant::now();
    let bulk = snapshot.build();
    let built = begun.elapsed();
    let mut locked = Kept::lock(&kept);
    let adopted = bulk.and_then(|bulk| locked.table.adopt(Arc::new(bulk)));
    if let Err(error) = adopted {
        locked.table.abandon();
        (locked.renewing, locked.refused) = (false, Some(error));
        return None;
    }
    locked.renewals += 1;
    locked.refused = None;
    // The other copy adopts it, too, and the old engine goes.
    _ = locked.table.transaction(|_| Ok::<(), BuildError>(()));
    Some(built)
}
