//! What is done with the packets of a megaflow: the rules' actions, flattened.

use std::collections::HashMap;

use flowlane::rule::{Action, RuleId};

/// One step of a path. All that depends on the bits that the megaflow fixes has been decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A rule won, or none did: a mark for the counters.
    Matched {
        /// Where.
        table: u8,
        /// Which; none for a miss.
        rule: Option<RuleId>,
    },
    /// Do what a rule says. `move` has become `set_field`, since the megaflow fixes what is moved; `goto_table`
    /// has been followed.
    Do(Action),
    /// Parse the packet again, since its headers are not what the key says any more, and look it up again
    /// from a table on. The last step.
    Recirculate {
        /// Where to go on.
        table: u8,
        /// Words of the key that rules have set and that are in no header: (word, value, mask).
        carry: Vec<(u8, u32, u32)>,
    },
}

/// A path's place in [`Paths`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathId(pub u32);

/// A path with its counters.
#[derive(Debug)]
pub struct Path {
    /// All steps, marks included: the path's identity.
    pub steps: Box<[Step]>,
    /// Packets that took it to its end, since the counters were last collected.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The paths in use, each kept once however many megaflows take it.
#[derive(Debug, Default)]
pub struct Paths {
    paths: Vec<Option<Path>>,
    index: HashMap<Box<[Step]>, PathId>,
    free: Vec<PathId>,
}

impl Paths {
    /// The path with these steps.
    pub fn intern(&mut self, steps: Vec<Step>) -> PathId {
        let steps = steps.into_boxed_slice();
        if let Some(&id) = self.index.get(&steps) {
            return id;
        }
        let id = self.free.pop().unwrap_or(PathId(self.paths.len() as u32));
        let path = Some(Path { steps: steps.clone(), packets: 0, bytes: 0 });
        match self.paths.get_mut(id.0 as usize) {
            Some(place) => *place = path,
            None => self.paths.push(path),
        }
        self.index.insert(steps, id);
        id
    }

    /// A path.
    ///
    /// # Panics
    /// Where it has been discarded.
    #[inline]
    pub fn get_mut(&mut self, id: PathId) -> &mut Path {
        self.paths[id.0 as usize].as_mut().expect("a path that a megaflow refers to is kept")
    }

    /// A path.
    ///
    /// # Panics
    /// Where it has been discarded.
    #[inline]
    pub fn get(&self, id: PathId) -> &Path {
        self.paths[id.0 as usize].as_ref().expect("a path that a megaflow refers to is kept")
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Takes the counters of every path: (table, rule or none for a miss, packets, bytes) for each mark.
    pub fn collect(&mut self, mut credit: impl FnMut(u8, Option<RuleId>, u64, u64)) {
        for path in self.paths.iter_mut().flatten().filter(|p| p.packets > 0) {
            for step in &path.steps {
                if let Step::Matched { table, rule } = *step {
                    credit(table, rule, path.packets, path.bytes);
                }
            }
            (path.packets, path.bytes) = (0, 0);
        }
    }

    /// Discards the paths that are not in `used`. Their counters must have been collected.
    pub fn retain(&mut self, used: &std::collections::HashSet<PathId>) {
        for (i, place) in self.paths.iter_mut().enumerate() {
            let id = PathId(i as u32);
            if let Some(path) = place.take_if(|_| !used.contains(&id)) {
                self.index.remove(&path.steps);
                self.free.push(id);
            }
        }
    }
}
