//! Paths: the compiled actions that megaflows point to.

use std::hash::{BuildHasher, Hash, Hasher};

use flowlane::memory::prefetch;
use flowlane::rule::RuleId;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::ruleset::{Step, StepSummary, Steps};

/// A path's place in [`Paths`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathId(pub u32);

/// The part of a path that its packets touch: a reference to its steps, and its counters.
///
/// Kept apart from the rest, since many paths differ only in the rules that they credit: ten thousands of
/// them take a few cache lines of steps, and 32 bytes each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Packets that took it to its end, since the counters were last collected.
    pub packets: u64,
    pub bytes: u64,
    program: u32,
    /// As its [`Steps`] has it.
    pub summary: StepSummary,
}

/// Steps that several paths share, without their marks: packets do not pass over these one by one.
#[derive(Debug, Default)]
struct Shared {
    program: Steps,
    /// Paths that take them.
    paths: usize,
}

/// The paths in use, each kept once however many megaflows take it.
#[derive(Debug, Default)]
pub struct Paths {
    hot: Vec<Path>,
    /// All steps of each path, marks included: its identity. None where the place is free.
    steps: Vec<Option<Box<[Step]>>>,
    programs: Vec<Shared>,
    /// By all steps, each with its hash: steps are hashed once.
    index: HashTable<(u64, PathId)>,
    /// By the steps without marks.
    program_index: HashTable<(u64, u32)>,
    /// Seeded in secret: packets choose among paths.
    hasher: DefaultHashBuilder,
    free: Vec<PathId>,
    programs_free: Vec<u32>,
}

/// Returns whether a step is more than a mark.
fn is_taken(step: &&Step) -> bool {
    !matches!(step, Step::Matched { .. })
}

/// Returns the hash of the steps without their marks.
fn hash_of_taken(hasher: &DefaultHashBuilder, steps: &[Step]) -> u64 {
    let mut state = hasher.build_hasher();
    steps.iter().filter(is_taken).for_each(|step| step.hash(&mut state));
    state.finish()
}

impl Paths {
    /// The path with these steps.
    pub fn intern(&mut self, steps: Vec<Step>) -> PathId {
        let hash = self.hasher.hash_one(&steps[..]);
        let is_same = |(_, id): &(u64, PathId)| self.steps[id.0 as usize].as_deref() == Some(&steps[..]);
        if let Some(&(_, id)) = self.index.find(hash, is_same) {
            return id;
        }
        let program = self.program(&steps);
        let shared = &mut self.programs[program as usize];
        shared.paths += 1;
        let summary = shared.program.summary();
        let id = self.free.pop().unwrap_or_else(|| {
            self.hot.push(Path::default());
            self.steps.push(None);
            PathId((self.hot.len() - 1) as u32)
        });
        self.hot[id.0 as usize] = Path { packets: 0, bytes: 0, program, summary };
        self.steps[id.0 as usize] = Some(steps.into_boxed_slice());
        self.index.insert_unique(hash, (hash, id), |(hash, _)| *hash);
        id
    }

    /// Returns the place of what the steps are without their marks.
    fn program(&mut self, steps: &[Step]) -> u32 {
        let taken = || steps.iter().filter(is_taken);
        let hash = hash_of_taken(&self.hasher, steps);
        let is_same = |(_, id): &(u64, u32)| taken().eq(self.programs[*id as usize].program.steps());
        if let Some(&(_, id)) = self.program_index.find(hash, is_same) {
            return id;
        }
        let id = self.programs_free.pop().unwrap_or_else(|| {
            self.programs.push(Shared::default());
            (self.programs.len() - 1) as u32
        });
        let program = Steps::new(taken().cloned().collect::<Vec<Step>>());
        self.programs[id as usize] = Shared { program, paths: 0 };
        self.program_index.insert_unique(hash, (hash, id), |(hash, _)| *hash);
        id
    }

    /// A path.
    ///
    /// # Panics
    /// Where there has never been such a path.
    #[inline]
    pub fn get(&self, id: PathId) -> &Path {
        &self.hot[id.0 as usize]
    }

    /// Returns the steps of a path without its marks.
    ///
    /// # Panics
    /// Where there has never been such a path.
    #[inline]
    pub fn steps_without_marks(&self, id: PathId) -> &Steps {
        &self.programs[self.hot[id.0 as usize].program as usize].program
    }

    /// Counts a packet that has taken a path to its end.
    ///
    /// # Panics
    /// Where there has never been such a path.
    #[inline]
    pub fn count(&mut self, id: PathId, bytes: u64) {
        let path = &mut self.hot[id.0 as usize];
        (path.packets, path.bytes) = (path.packets + 1, path.bytes + bytes);
    }

    /// Asks for what a packet on this path will touch.
    #[inline]
    pub fn prefetch(&self, id: PathId) {
        prefetch(&self.hot, id.0 as usize);
    }

    /// All steps of a path.
    ///
    /// # Panics
    /// Where it has been discarded.
    pub fn steps(&self, id: PathId) -> &[Step] {
        self.steps[id.0 as usize].as_ref().expect("a path that a megaflow refers to is kept")
    }

    /// Returns the marks of a path before a place in its [steps without marks](Self::steps_without_marks): the tables and rules of
    /// a packet that ended there.
    ///
    /// # Panics
    /// Where the path has been discarded.
    pub fn marks_until(&self, id: PathId, at: usize) -> impl Iterator<Item = (u8, Option<RuleId>)> {
        let mut others = 0;
        let passed = self.steps(id).iter().take_while(move |step| {
            others += usize::from(!matches!(step, Step::Matched { .. }));
            others <= at
        });
        passed.filter_map(|step| match *step {
            Step::Matched { table, rule, .. } => Some((table, rule)),
            _ => None,
        })
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there are no paths.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Takes the counters of every path: (table, rule or none for a miss, packets, bytes) for each mark.
    pub fn collect(&mut self, mut credit: impl FnMut(u8, Option<RuleId>, u64, u64)) {
        for (path, steps) in self.hot.iter_mut().zip(&self.steps).filter(|(p, _)| p.packets > 0) {
            for step in steps.iter().flatten() {
                if let Step::Matched { table, rule, .. } = *step {
                    credit(table, rule, path.packets, path.bytes);
                }
            }
            (path.packets, path.bytes) = (0, 0);
        }
    }

    /// Discards the paths that are not in `used`. Their counters must have been collected.
    pub fn retain(&mut self, used: &std::collections::HashSet<PathId>) {
        for (i, place) in self.steps.iter_mut().enumerate() {
            let id = PathId(i as u32);
            let Some(steps) = place.take_if(|_| !used.contains(&id)) else { continue };
            if let Ok(entry) =
                self.index.find_entry(self.hasher.hash_one(&steps[..]), |(_, other)| *other == id)
            {
                entry.remove();
            }
            self.free.push(id);
            let number = self.hot[i].program;
            let program = &mut self.programs[number as usize];
            program.paths -= 1;
            if program.paths == 0 {
                let hash = hash_of_taken(&self.hasher, &steps);
                if let Ok(entry) = self.program_index.find_entry(hash, |(_, other)| *other == number) {
                    entry.remove();
                }
                self.programs_free.push(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::rule::Action;
    use flowlane::rule::action::PortNo;

    use super::*;

    fn path(rule: u32, port: u32) -> Vec<Step> {
        let mark = Step::Matched { table: 3, rule: Some(RuleId(rule)), original: false };
        vec![mark, Step::Do(Action::Output(PortNo(port)))]
    }

    #[test]
    fn paths_that_differ_in_marks_only_share_their_steps_and_credit_their_own_rules() {
        let mut paths = Paths::default();
        let ids: Vec<PathId> = (0..10).map(|i| paths.intern(path(i, i % 2))).collect();
        assert_eq!(paths.intern(path(4, 0)), ids[4]);
        assert_eq!((paths.len(), paths.programs.len()), (10, 2));
        (0..5).for_each(|_| paths.count(ids[7], 10));
        assert_eq!(paths.steps_without_marks(ids[7]).steps()[0], Step::Do(Action::Output(PortNo(1))));
        assert_eq!(paths.steps(ids[7]), path(7, 1));
        let mut credited = Vec::new();
        paths.collect(|table, rule, packets, _| credited.push((table, rule, packets)));
        assert_eq!(credited, [(3, Some(RuleId(7)), 5)]);
        // Places and programs are used again.
        paths.retain(&[ids[0], ids[2]].into());
        assert_eq!(paths.len(), 2);
        let new = paths.intern(path(99, 7));
        assert!(ids.contains(&new) && paths.programs.len() == 2);
        assert_eq!(paths.steps_without_marks(ids[2]).steps()[0], Step::Do(Action::Output(PortNo(0))));
        assert_eq!(paths.steps_without_marks(new).steps()[0], Step::Do(Action::Output(PortNo(7))));
    }

    #[test]
    fn marks_until_a_step_are_those_of_the_rules_that_led_to_it() {
        let mut paths = Paths::default();
        let mark = |rule| Step::Matched { table: rule as u8, rule: Some(RuleId(rule)), original: false };
        let ttl = || Step::Do(Action::dec_ttl());
        let id = paths.intern(vec![mark(0), ttl(), ttl(), mark(1), mark(2), ttl(), mark(3)]);
        let until = |at| paths.marks_until(id, at).map(|(table, _)| table).collect::<Vec<_>>();
        assert_eq!([until(0), until(1)], [[0], [0]]);
        assert_eq!([until(2), until(3)], [vec![0, 1, 2], vec![0, 1, 2, 3]]);
    }
}
