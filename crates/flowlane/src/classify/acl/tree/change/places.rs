//! The order of the rules of a tree that changes: places, of which some are free.
//!
//! A rule's place is its rank, by which leaves order rules and records are found. A new rule goes between two others: into a
//! free place there, or after the rules up to the nearest free place have moved by one. Where none is near, all rules are spread
//! out again. New rules mostly come last of their priority, so free places follow the rules of each priority: rules that come again
//! come there, and those that have gone leave theirs far before.

use crate::classify::acl::RankKey;

/// Rules of few a priority for which there is one free place after [`Places::spread`], behind the last of a priority.
const RULES_PER_FREE: usize = 4;

/// Rules from which on a priority has many, and those of them for one free place behind them: all priorities with many are to last
/// about as long, since a spread costs as much for one as for all.
const MANY: usize = 8;
const RULES_PER_FREE_OF_MANY: usize = 2;

/// Most rules that move so that one gets a place: each costs a tenth of a microsecond, and a spread as much for each rule.
const MOVED_MAX: usize = 16;

/// Free places that a spread leaves where a rule had none: this number, and one for every few rules.
const FREE_MIN: usize = 16;
const RULES_PER_FREE_HERE: usize = 2;

/// The number of no place.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Where a rule goes, and the free place that is filled: rules from one to the other move by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    pub(super) place: u32,
    pub(super) free: u32,
}

/// Which places rules have.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// The rank key of each place's rule, descending; that of a free place is not above the rule's before it nor below the rule's
    /// behind it.
    keys: Vec<u64>,
    taken: Vec<bool>,
    len: usize,
    /// The key that came last: the next may follow it.
    last: u64,
}

impl Places {
    /// Returns the places of rules with these keys, descending, and none free.
    pub(super) fn dense(keys: Vec<u64>) -> Self {
        Self { taken: vec![true; keys.len()], len: keys.len(), keys, last: 0 }
    }

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of places.
    pub(super) fn capacity(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<u64>() + self.taken.capacity()
    }

    /// Finds a place for a rule; none where too many rules would have to move.
    pub(super) fn gap(&self, key: RankKey) -> Option<Gap> {
        let key = key.0;
        let p = self.keys.partition_point(|other| *other > key);
        let before = self.taken[..p].iter().rev().take_while(|taken| !**taken).count();
        let behind = self.taken[p..].iter().take_while(|taken| !**taken).count();
        let (first, end) = (p - before, p + behind);
        if first < end {
            let place = self.among(key, first, end) as u32;
            return Some(Gap { place, free: place });
        }
        let near = |taken: &&bool| !**taken;
        let right =
            self.taken[p..].iter().take(MOVED_MAX).position(|taken| near(&taken)).map(|by| (by, p + by));
        let left = self.taken[..p].iter().rev().take(MOVED_MAX).position(|taken| near(&taken));
        let left = left.map(|by| (by, p - 1 - by));
        match (left, right) {
            (None, None) => None,
            (Some((by, free)), right) if right.is_none_or(|(other, _)| by < other) => {
                Some(Gap { place: p as u32 - 1, free: free as u32 })
            }
            (_, right) => right.map(|(_, free)| Gap { place: p as u32, free: free as u32 }),
        }
    }

    /// Chooses among the free places `first..end`: next to the rule that came last, so that a row of insertions moves nothing;
    /// behind the last rule of the same priority; else in the middle.
    fn among(&self, key: u64, first: usize, end: usize) -> usize {
        let before = first.checked_sub(1).map(|at| self.keys[at]);
        let behind = self.keys.get(end).copied();
        if behind == Some(self.last) {
            return end - 1;
        }
        let follows = |other: u64| other == self.last || other >> 32 == key >> 32;
        if before.is_some_and(follows) { first } else { (first + end) / 2 }
    }

    /// Gives a rule its place, after the others have moved.
    pub(super) fn take(&mut self, gap: Gap, key: RankKey) {
        let (place, free) = (gap.place as usize, gap.free as usize);
        if free > place {
            self.keys.copy_within(place..free, place + 1);
        } else {
            self.keys.copy_within(free + 1..place + 1, free);
        }
        self.keys[place] = key.0;
        self.taken[free] = true;
        self.len += 1;
        self.last = key.0;
        let before = self.taken[..place].iter().rev().take_while(|taken| !**taken).count();
        self.keys[place - before..place].iter_mut().for_each(|other| *other = (*other).max(key.0));
        let behind = self.taken[place + 1..].iter().take_while(|taken| !**taken).count();
        self.keys[place + 1..][..behind].iter_mut().for_each(|other| *other = (*other).min(key.0));
    }

    /// Frees a place.
    pub(super) fn free(&mut self, place: u32) {
        self.taken[place as usize] = false;
        self.len -= 1;
    }

    /// Gives all rules new keys in the same order.
    pub(super) fn rename(&mut self, mut key: impl FnMut(u32) -> RankKey) {
        let mut before = u64::MAX;
        for (place, name) in self.keys.iter_mut().enumerate() {
            if self.taken[place] {
                before = key(place as u32).0;
            }
            *name = before;
        }
        self.last = 0;
    }

    /// Spreads the rules out, with room for a rule of this key and others beside it. Returns the new place of each.
    pub(super) fn spread(&mut self, key: RankKey) -> Vec<u32> {
        let here = FREE_MIN + self.len / RULES_PER_FREE_HERE;
        let mut out = Self { len: self.len, ..Self::default() };
        let mut to = vec![NOWHERE; self.keys.len()];
        let (mut owed, mut is_here) = (0, false);
        let mut rules = (0..self.keys.len()).filter(|place| self.taken[*place]).peekable();
        while let Some(place) = rules.next() {
            let own = self.keys[place];
            if !is_here && own <= key.0 {
                is_here = true;
                out.extend(here, key.0);
            }
            to[place] = out.keys.len() as u32;
            out.keys.push(own);
            out.taken.push(true);
            owed += 1;
            if rules.peek().is_none_or(|next| self.keys[*next] >> 32 != own >> 32) {
                let (free, left) = match owed >= MANY {
                    true => (owed / RULES_PER_FREE_OF_MANY, 0),
                    false => (owed / RULES_PER_FREE, owed % RULES_PER_FREE),
                };
                out.extend(free, own);
                owed = left;
            }
        }
        if !is_here {
            out.extend(here, key.0);
        }
        *self = out;
        to
    }

    /// Adds free places.
    fn extend(&mut self, count: usize, key: u64) {
        self.keys.resize(self.keys.len() + count, key);
        self.taken.resize(self.keys.len(), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;
    use crate::rule::Priority;

    /// Every place's key, by a plain model.
    fn check(places: &Places, model: &[u64]) {
        let rules = places.keys.iter().zip(&places.taken).filter(|(_, taken)| **taken).map(|(key, _)| *key);
        assert_eq!(rules.collect::<Vec<_>>(), model);
        assert_eq!(places.len(), model.len());
        assert!(places.keys.is_sorted_by(|a, b| a >= b), "{:?}", places.keys);
    }

    /// Inserts a key, and returns the rules that moved to make room, and those that were spread.
    fn insert(places: &mut Places, key: RankKey) -> (usize, usize) {
        let (gap, spread) = match places.gap(key) {
            Some(gap) => (gap, 0),
            None => {
                places.spread(key);
                (places.gap(key).expect("there is room after a spread"), places.len())
            }
        };
        places.take(gap, key);
        (gap.place.abs_diff(gap.free) as usize, spread)
    }

    #[test]
    fn rules_keep_their_order_whatever_comes_and_goes() {
        for (seed, priorities) in [1, 3, 50, 100_000].into_iter().enumerate() {
            let mut random = Random::new(seed as u64);
            let mut model: Vec<u64> = Vec::new();
            let mut places = Places::dense(Vec::new());
            for sequence in 0..3000 {
                let key = RankKey::new(Priority(random.below(priorities) as u32), sequence);
                assert!(insert(&mut places, key).0 <= MOVED_MAX);
                model.insert(model.partition_point(|other| *other > key.0), key.0);
                while random.chance(0.4) && !model.is_empty() {
                    let gone = model.remove(random.index(model.len()));
                    let at = (0..places.keys.len()).find(|at| places.taken[*at] && places.keys[*at] == gone);
                    places.free(at.expect("the rule has a place") as u32);
                }
                if sequence % 50 == 0 {
                    check(&places, &model);
                }
            }
            check(&places, &model);
            assert!(places.capacity() <= 4 * places.len() + 100, "{} {}", places.capacity(), places.len());
        }
    }

    #[test]
    fn rows_of_insertions_move_few_rules() {
        let rules = |priority: fn(u32) -> u32| {
            let keys = (0..1000).map(|i| RankKey::new(Priority(1_000_000 - 10 * i), i).0).collect();
            let mut places = Places::dense(keys);
            places.spread(RankKey(0));
            (1000..3000).map(|i| insert(&mut places, RankKey::new(Priority(priority(i)), i)).0).sum::<usize>()
        };
        for (name, priority) in [
            ("the last", (|_| 0) as fn(u32) -> u32),
            ("better and better", |i| 2_000_000 + i),
            ("worse and worse in the middle", |i| 995_009 - (i - 1000) / 400),
            ("all over", |i| 990_000 + (i * 7919) % 10_000),
        ] {
            let moved = rules(priority);
            assert!(moved < 16_000, "{name}: {moved} rules moved for 2000");
        }
    }

    #[test]
    fn rules_that_come_again_move_few_whatever_their_priorities() {
        for (priorities, each) in [(1, 1000), (2, 800), (25, 64), (20, 50), (100, 100), (300, 5), (1000, 1)] {
            let rules = priorities * each;
            let key = |rule: u32, sequence| RankKey::new(Priority(1000 - rule / each), sequence);
            let mut present: Vec<(u32, u64)> = (0..rules).map(|rule| (rule, key(rule, rule).0)).collect();
            let mut places = Places::dense(present.iter().map(|(_, key)| *key).collect());
            places.spread(RankKey(0));
            let (mut random, mut cost) = (Random::new(u64::from(rules)), 0);
            for sequence in rules..rules + 10_000 {
                let (rule, gone) = &mut present[random.index(rules as usize)];
                let end = places.keys.partition_point(|other| *other >= *gone);
                let at = (0..end).rev().find(|at| places.taken[*at]).expect("the rule has a place");
                assert_eq!(places.keys[at], *gone);
                places.free(at as u32);
                let key = key(*rule, sequence);
                let (moved, spread) = insert(&mut places, key);
                (*gone, cost) = (key.0, cost + moved + spread);
            }
            // 1 to 2 each; 400 where only one priority had room after a spread.
            assert!(cost < 40_000, "{priorities} priorities of {each}: {cost} rules moved for 10000");
            assert!(places.capacity() <= 9 * places.len() / 4 + FREE_MIN, "{}", places.capacity());
        }
    }
}
