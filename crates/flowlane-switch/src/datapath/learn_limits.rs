//! The rules that count for the limits of `learn`.
//!
//! Whether a packet may add a rule is decided where the packet meets `learn`, since later actions may read the answer (`result_dst`);
//! the rule itself is added by control, later. So rules that are promised count as those that are there. Control reports the rules
//! that it has published, and the end of each promise.

use std::collections::{HashMap, HashSet};

use crate::ruleset::{Learned, RuleDigest};

/// A cookie of a table's rules.
pub(crate) type TableCookie = (u8, u64);

/// Cookies that are counted, at least, before those that no rule names any more are dropped.
const COUNTED_MIN: usize = 4096;

/// Rules by cookie, with those that packets have been promised.
#[derive(Debug, Default)]
pub(super) struct LearnLimits {
    /// The number of rules of each cookie that a limit is for.
    counts: HashMap<TableCookie, usize>,
    /// Those rules, and promised ones, by [identity](RuleDigest::identity).
    rules: HashMap<u64, Counted>,
    /// The number of cookies that rules have named when others were dropped.
    named: usize,
}

/// A rule as it is, or as it will be when control has taken the requests that wait.
#[derive(Debug)]
struct Counted {
    cookie: TableCookie,
    content: u64,
    /// Requests that wait for control.
    waiting: usize,
}

impl LearnLimits {
    /// Returns whether a limit allows the rule, or the rule is there already. A rule that takes the place of another must have room,
    /// too, as in Open vSwitch.
    pub(super) fn allows(&self, learned: &Learned) -> bool {
        let RuleDigest { identity, content, cookie } = learned.digest;
        let is_there = self.rules.get(&identity).is_some_and(|rule| rule.content == content);
        let count = self.counts.get(&cookie).copied().unwrap_or(0);
        is_there || learned.limit == 0 || count < learned.limit as usize
    }

    /// Returns whether the cookie's rules are counted, so that [`allows`](Self::allows) is the answer to its requests.
    pub(super) fn counts(&self, cookie: TableCookie) -> bool {
        self.counts.contains_key(&cookie)
    }

    /// Counts a rule that is allowed. Returns whether another cookie has lost the rule that this one replaces.
    pub(super) fn promise(&mut self, digest: RuleDigest) -> bool {
        let before = self.rules.get(&digest.identity).map(|rule| rule.cookie);
        if before.is_none() && !self.counts(digest.cookie) {
            return false;
        }
        self.set(digest.identity, Some(digest), 1);
        before.is_some_and(|cookie| cookie != digest.cookie)
    }

    /// Ends the promise of a rule, which now is that, or is not there. Returns whether its cookie has fewer rules than promised.
    pub(super) fn settle(&mut self, identity: u64, is: impl FnOnce() -> Option<RuleDigest>) -> bool {
        let Some(rule) = self.rules.get_mut(&identity) else { return false };
        rule.waiting = rule.waiting.saturating_sub(1);
        if rule.waiting > 0 {
            return false;
        }
        let (promised, is) = (rule.cookie, is());
        self.set(identity, is, 0);
        is.is_none_or(|is| is.cookie != promised)
    }

    /// Follows a change of a rule, unless a request that waits will change the rule again.
    pub(super) fn follow(&mut self, identity: u64, is: Option<RuleDigest>) {
        if self.rules.get(&identity).is_none_or(|rule| rule.waiting == 0) {
            self.set(identity, is, 0);
        }
    }

    /// Returns whether no rule counts.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.rules.is_empty()
    }

    /// Returns whether the cookies that no rule names should be dropped before more are counted.
    pub(super) fn is_full(&self) -> bool {
        self.counts.len() >= COUNTED_MIN.max(2 * self.named)
    }

    /// Drops the cookies that are not among these.
    pub(super) fn retain(&mut self, named: &HashSet<TableCookie>) {
        self.counts.retain(|cookie, _| named.contains(cookie));
        let counts = &self.counts;
        self.rules.retain(|_, rule| rule.waiting > 0 || counts.contains_key(&rule.cookie));
        self.named = self.counts.len();
    }

    /// Begins to count a cookie's rules, of which none is known.
    pub(super) fn begin(&mut self, cookie: TableCookie) {
        let promised = self.rules.values().filter(|rule| rule.cookie == cookie).count();
        self.counts.insert(cookie, promised);
    }

    fn set(&mut self, identity: u64, is: Option<RuleDigest>, promises: usize) {
        let before = self.rules.remove(&identity);
        let waiting = before.as_ref().map_or(0, |rule| rule.waiting) + promises;
        if let Some(count) = before.and_then(|rule| self.counts.get_mut(&rule.cookie)) {
            *count -= 1;
        }
        let Some(RuleDigest { cookie, content, .. }) = is else { return };
        let count = self.counts.get_mut(&cookie);
        if count.is_some() || waiting > 0 {
            self.rules.insert(identity, Counted { cookie, content, waiting });
        }
        if let Some(count) = count {
            *count += 1;
        }
    }
}
