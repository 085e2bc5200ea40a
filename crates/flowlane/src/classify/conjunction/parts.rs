//! The rules that are parts of conjunctions, by their matches.

use std::collections::HashMap;
use std::sync::Arc;

use super::Clause;
use crate::classify::{InsertError, RuleEngine, TupleSearch};
use crate::rule::{Match, Priority, RuleId};

/// A conjunction of one priority.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub(super) priority: Priority,
    /// The number of the conjunction.
    pub(super) id: u32,
    clauses: u8,
}

/// That a clause is met, of the conjunction at a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Mark {
    place: u32,
    clause: u8,
}

/// The marks of 64 places for one clause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    pub(super) block: u32,
    pub(super) clause: u8,
    pub(super) places: u64,
}

/// The places, each with the number of marks for it.
#[derive(Clone, Debug, Default)]
struct Places {
    numbers: HashMap<Place, u32>,
    all: Vec<(Place, u32)>,
    free: Vec<u32>,
    /// By block of 64 places and clause: the places that have such a clause.
    needed: Vec<Vec<u64>>,
}

impl Places {
    /// Returns the number of a place for one more mark.
    fn take(&mut self, place: Place) -> u32 {
        if let Some(number) = self.numbers.get(&place) {
            self.all[*number as usize].1 += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.all.len() as u32);
        if number as usize == self.all.len() {
            self.all.push((place, 1));
        }
        self.all[number as usize] = (place, 1);
        self.numbers.insert(place, number);
        let block = number as usize / 64;
        if self.needed.len() <= block {
            self.needed.resize_with(block + 1, Vec::new);
        }
        let needed = &mut self.needed[block];
        if needed.len() < place.clauses.into() {
            needed.resize(place.clauses.into(), 0);
        }
        needed[..place.clauses.into()].iter_mut().for_each(|places| *places |= 1 << (number % 64));
        number
    }

    /// A mark for a place has gone.
    fn release(&mut self, number: u32) {
        let (place, marks) = &mut self.all[number as usize];
        *marks -= 1;
        if *marks == 0 {
            self.numbers.remove(place);
            self.free.push(number);
            let needed = &mut self.needed[number as usize / 64];
            needed.iter_mut().for_each(|places| *places &= !(1 << (number % 64)));
        }
    }
}

/// The rules of one match.
#[derive(Clone, Debug)]
struct Entry {
    matches: Arc<Match>,
    /// At least the highest of its rules' priorities.
    priority: Priority,
    rules: u32,
    /// In order of block and clause.
    marks: Vec<Marks>,
}

impl Entry {
    /// Returns where the marks of a block and clause are, or would be.
    fn find(&self, mark: Mark) -> Result<usize, usize> {
        let key = (mark.place / 64, mark.clause);
        self.marks.binary_search_by_key(&key, |marks| (marks.block, marks.clause))
    }

    /// Adds a mark. Returns whether it was there.
    fn add(&mut self, mark: Mark) -> bool {
        let (block, clause, bit) = (mark.place / 64, mark.clause, 1 << (mark.place % 64));
        let at = self.find(mark).unwrap_or_else(|at| {
            self.marks.insert(at, Marks { block, clause, places: 0 });
            at
        });
        let was_there = self.marks[at].places & bit != 0;
        self.marks[at].places |= bit;
        was_there
    }

    fn remove(&mut self, mark: Mark) {
        let at = self.find(mark).expect("it is there while its rule is");
        self.marks[at].places &= !(1 << (mark.place % 64));
        if self.marks[at].places == 0 {
            self.marks.remove(at);
        }
    }
}

/// The entry of a rule, and its marks there.
#[derive(Clone, Debug)]
struct Part {
    entry: u32,
    priority: Priority,
    marks: Box<[Mark]>,
}

/// The rules.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    rules_max: usize,
    len: usize,
    /// The entries, as rules whose number is theirs.
    found: TupleSearch,
    by_match: HashMap<Arc<Match>, u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// By rule.
    parts: Vec<Option<Part>>,
    places: Places,
    /// How many more rules of an entry have a mark than one: rules of the same match and priority.
    more: HashMap<(u32, Mark), u32>,
    clauses_max: u8,
}

impl Parts {
    pub(super) fn new(rules_max: usize, seed: u32) -> Self {
        Self {
            rules_max,
            len: 0,
            found: TupleSearch::new(rules_max, seed),
            by_match: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            parts: Vec::new(),
            places: Places::default(),
            more: HashMap::new(),
            clauses_max: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The most clauses of a conjunction that there have been.
    pub(super) fn clauses_max(&self) -> usize {
        self.clauses_max.into()
    }

    /// The matches of entries.
    pub(super) fn entries(&self) -> &TupleSearch {
        &self.found
    }

    /// The marks of an entry.
    pub(super) fn marks(&self, entry: u32) -> &[Marks] {
        self.entries[entry as usize].as_ref().map_or(&[], |entry| &entry.marks)
    }

    /// By clause: the places of a block that have such a clause.
    pub(super) fn needed(&self, block: u32) -> &[u64] {
        &self.places.needed[block as usize]
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.places.needed.len()
    }

    pub(super) fn place(&self, number: u32) -> &Place {
        &self.places.all[number as usize].0
    }

    pub(super) fn table_bytes(&self) -> usize {
        let marks = self.entries.iter().flatten().map(|entry| entry.marks.capacity() * size_of::<Marks>());
        let parts = self.parts.iter().flatten().map(|part| size_of_val(&*part.marks));
        let needed = self.places.needed.iter().map(|needed| needed.capacity() * size_of::<u64>());
        self.found.table_bytes()
            + marks.chain(parts).chain(needed).sum::<usize>()
            + self.entries.capacity() * size_of::<Option<Entry>>()
            + self.by_match.capacity() * size_of::<(Arc<Match>, u32)>()
            + self.parts.capacity() * size_of::<Option<Part>>()
            + (self.places.all.capacity() + self.places.numbers.capacity()) * size_of::<(Place, u32)>()
    }

    pub(super) fn insert(
        &mut self,
        id: RuleId,
        priority: Priority,
        matches: &Match,
        clauses: &[Clause],
    ) -> Result<(), InsertError> {
        let at = id.0 as usize;
        if self.parts.get(at).is_some_and(Option::is_some) {
            return Err(InsertError::Duplicate(id));
        }
        if self.len == self.rules_max {
            return Err(InsertError::Full { rules_max: self.rules_max });
        }
        let entry = match self.by_match.get(matches) {
            Some(entry) => *entry,
            None => self.new_entry(priority, matches)?,
        };
        if self.parts.len() <= at {
            self.parts.resize(at + 1, None);
        }
        self.parts[at] = Some(Part { entry, priority, marks: Box::default() });
        self.len += 1;
        self.entries[entry as usize].as_mut().expect("found or made above").rules += 1;
        self.raise(entry, priority);
        self.add_marks(id, clauses);
        Ok(())
    }

    fn new_entry(&mut self, priority: Priority, matches: &Match) -> Result<u32, InsertError> {
        let number = self.free.last().copied().unwrap_or(self.entries.len() as u32);
        self.found.insert(RuleId(number), priority, matches)?;
        if self.free.pop().is_none() {
            self.entries.push(None);
        }
        let matches = Arc::new(matches.clone());
        self.by_match.insert(matches.clone(), number);
        self.entries[number as usize] = Some(Entry { matches, priority, rules: 0, marks: Vec::new() });
        Ok(number)
    }

    /// Gives an entry this priority, if it has a lower one.
    fn raise(&mut self, number: u32, priority: Priority) {
        let entry = self.entries[number as usize].as_mut().expect("a rule has its entry");
        if entry.priority < priority {
            entry.priority = priority;
            self.found.remove(RuleId(number));
            let placed = self.found.insert(RuleId(number), priority, &entry.matches);
            placed.expect("there is the room that it has left");
        }
    }

    pub(super) fn set(&mut self, id: RuleId, clauses: &[Clause]) {
        self.remove_marks(id);
        self.add_marks(id, clauses);
    }

    pub(super) fn remove(&mut self, id: RuleId) -> bool {
        let at = id.0 as usize;
        if self.parts.get(at).is_none_or(Option::is_none) {
            return false;
        }
        self.remove_marks(id);
        let number = self.parts[at].take().expect("looked at above").entry;
        self.len -= 1;
        let entry = self.entries[number as usize].as_mut().expect("a rule has its entry");
        entry.rules -= 1;
        if entry.rules == 0 {
            self.by_match.remove(&*entry.matches);
            self.found.remove(RuleId(number));
            self.entries[number as usize] = None;
            self.free.push(number);
        }
        true
    }

    fn add_marks(&mut self, id: RuleId, clauses: &[Clause]) {
        let Some(part) = self.parts.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let entry = self.entries[part.entry as usize].as_mut().expect("a rule has its entry");
        let is_sound = |one: &&Clause| one.clauses <= 64 && one.clause < one.clauses;
        let mut wanted: Vec<Clause> = clauses.iter().filter(is_sound).copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut mark = |one: Clause| {
            let Clause { id, clauses, clause } = one;
            self.clauses_max = self.clauses_max.max(clauses);
            let mark =
                Mark { place: self.places.take(Place { priority: part.priority, id, clauses }), clause };
            if entry.add(mark) {
                *self.more.entry((part.entry, mark)).or_default() += 1;
            }
            mark
        };
        part.marks = wanted.into_iter().map(&mut mark).collect();
    }

    fn remove_marks(&mut self, id: RuleId) {
        let Some(part) = self.parts.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let entry = self.entries[part.entry as usize].as_mut().expect("a rule has its entry");
        for mark in std::mem::take(&mut part.marks) {
            self.places.release(mark.place);
            match self.more.get_mut(&(part.entry, mark)) {
                None => entry.remove(mark),
                Some(1) => _ = self.more.remove(&(part.entry, mark)),
                Some(more) => *more -= 1,
            }
        }
    }
}
