//! Changes of routes: the affected blocks are rebuilt, then put in place word by word.

use std::sync::atomic::Ordering::Release;

use super::build::{self, Route};
use super::layout::{self, Kind, LINE_WORDS, Word};
use super::{Compact, ROOT_BITS, UNIT_BYTES};
use crate::route::{BuildError, Prefix, Rib};

/// A word that may change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// A word of the root.
    Root(usize),
    /// A word of a table, counted over all lines.
    Table(usize),
}

/// A part of a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A run of words that gets a new value.
    Words(Place, usize, Word),
    /// The table that begins with this line has one route more or less.
    Routes(u32, i32),
}

/// A block of addresses and the word for it.
#[derive(Clone, Copy)]
struct At {
    first: u128,
    depth: u8,
    place: Place,
    /// True if words here belong to the next window: a table above ends its own.
    ends_window: bool,
}

impl Compact {
    /// Repairs what `changed` covers.
    pub(super) fn repaint(&mut self, rib: &Rib<u128>, changed: Prefix<u128>) -> Result<(), BuildError> {
        self.made.clear();
        self.changes.clear();
        let difference = rib.len() as i64 - self.len as i64;
        let reserve = self.form.reserve().min(self.pool.units_max() / 8);
        let units_max = self.pool.units_max() - reserve;
        if self.pool.used() + 2 * reserve > units_max {
            self.pool.collect(&self.table.epochs);
        }
        let built = self.plan(rib, changed, difference as i32);
        let units_max = if difference < 0 { self.pool.units_max() } else { units_max };
        if let Err(error) = built.and_then(|()| self.affordable(units_max)) {
            self.builder().unmake();
            self.settle();
            return Err(error);
        }
        self.len = rib.len();
        self.publish();
        self.settle();
        Ok(())
    }

    /// Builds the blocks that change.
    fn plan(&mut self, rib: &Rib<u128>, changed: Prefix<u128>, difference: i32) -> Result<(), BuildError> {
        if changed.len() >= ROOT_BITS {
            let slot = self.roots(changed).start;
            let first = changed.first() & Prefix::<u128>::truncated(u128::MAX, ROOT_BITS).first();
            let at = At { first, depth: ROOT_BITS, place: Place::Root(slot), ends_window: false };
            return self.plan_block(rib, changed, difference, at);
        }
        let first = self.roots(changed).start;
        self.plan_words(rib, changed, ROOT_BITS, |at| Place::Root(first + at))
    }

    /// Builds the words of all blocks of `depth` bits that `changed` covers.
    fn plan_words(
        &mut self,
        rib: &Rib<u128>,
        changed: Prefix<u128>,
        depth: u8,
        place: impl Fn(usize) -> Place,
    ) -> Result<(), BuildError> {
        let covering = self.collect(rib, changed)?;
        let (routes, mut builder) = (std::mem::take(&mut self.routes), self.builder());
        builder.spans(changed.first(), changed.len(), depth, &routes, covering);
        let runs = std::mem::take(&mut builder.made.runs);
        let mut next = 0;
        for &(last, word) in &runs {
            let end = ((last - changed.first()) >> (128 - depth)) as usize + 1;
            self.change(Change::Words(place(next), end - next, word));
            next = end;
        }
        self.made.runs = runs;
        self.discard(routes, covering);
        Ok(())
    }

    /// Goes down to the smallest blocks that have words of their own, and builds them.
    fn plan_block(
        &mut self,
        rib: &Rib<u128>,
        changed: Prefix<u128>,
        difference: i32,
        at: At,
    ) -> Result<(), BuildError> {
        let word = self.load(at.place);
        if word.kind() != Kind::Table || changed.len() <= at.depth {
            return self.plan_word(rib, at);
        }
        let (line, bits) = (word.table_line(), word.table_bits());
        let [routes, made] = self.table_routes[line as usize];
        if !build::table_may_stay(self.form, [routes.saturating_add_signed(difference), made], at.depth, bits)
        {
            return self.plan_word(rib, at);
        }
        self.changes.push(Change::Routes(line, difference));
        let depth = at.depth + bits;
        let number = ((changed.first() - at.first) >> (128 - depth)) as usize;
        let first = line as usize * LINE_WORDS + number;
        if changed.len() < depth {
            return self.plan_words(rib, changed, depth, |at| Place::Table(first + at));
        }
        let ends_window = depth == layout::window_end(at.depth);
        let block = Prefix::truncated(changed.first(), depth).first();
        let below = At { first: block, depth, place: Place::Table(first), ends_window };
        self.plan_block(rib, changed, difference, below)
    }

    /// Builds the block of one word.
    fn plan_word(&mut self, rib: &Rib<u128>, at: At) -> Result<(), BuildError> {
        let block = Prefix::truncated(at.first, at.depth);
        let covering = self.collect(rib, block)?;
        let (routes, mut builder) = (std::mem::take(&mut self.routes), self.builder());
        let word = builder.block(at.first, at.depth, &routes, covering);
        let word = if at.ends_window { word.in_next_window() } else { word };
        self.change(Change::Words(at.place, 1, word));
        self.discard(routes, covering);
        Ok(())
    }

    /// Notes a change of words, with the uses of next hops that it will make.
    fn change(&mut self, change: Change) {
        self.changes.push(change);
        if let Change::Words(_, places, word) = change {
            self.builder().hold(word, places as u32);
        }
    }

    /// Fetches the routes inside `block` that are longer, and returns what holds where there are none.
    fn collect(&mut self, rib: &Rib<u128>, block: Prefix<u128>) -> Result<Word, BuildError> {
        let mut routes = std::mem::take(&mut self.routes);
        routes.clear();
        let mut fetched = Ok(());
        let (own, inside) = rib.inside(block);
        for (prefix, next_hop) in inside {
            match self.hop(next_hop) {
                Ok(hop) => routes.push(Route { first: prefix.first(), len: prefix.len(), hop }),
                Err(error) => {
                    fetched = Err(error);
                    break;
                }
            }
        }
        let own = own.unwrap_or(self.config.default_next_hop);
        let covering = fetched.and_then(|()| self.hop(own));
        match covering {
            Ok(covering) => {
                self.routes = routes;
                Ok(covering)
            }
            Err(error) => {
                self.discard(routes, Word(0));
                Err(error)
            }
        }
    }

    /// Gives back the uses that [`collect`](Self::collect) made of next hops.
    fn discard(&mut self, routes: Vec<Route>, covering: Word) {
        let list = &self.table.list;
        routes.iter().for_each(|route| self.hops.release(list, route.hop.0));
        self.hops.release(list, covering.0);
        self.routes = routes;
    }

    fn hop(&mut self, next_hop: u64) -> Result<Word, BuildError> {
        let (hop_size, largest) = (self.config.hop_size, self.config.hop_size.max());
        if next_hop > largest {
            return Err(BuildError::HopTooLarge { next_hop, max: largest, hop_size });
        }
        let needed = self.config.memory_max + 512;
        let full = BuildError::NeedsMemory { needed, max: self.config.memory_max };
        self.hops.word(&self.table.list, next_hop).map(Word).ok_or(full)
    }

    fn affordable(&self, units_max: usize) -> Result<(), BuildError> {
        let units = self.pool.used() + self.made.units_missing;
        if self.made.units_missing == 0 && units <= units_max {
            return Ok(());
        }
        let units = units.max(self.pool.units_max()) + self.form.reserve();
        let spare = self.config.memory_max - self.pool.units_max() * UNIT_BYTES;
        Err(BuildError::NeedsMemory { needed: units * UNIT_BYTES + spare, max: self.config.memory_max })
    }

    /// Puts everything in place.
    fn publish(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        for change in &changes {
            match *change {
                Change::Words(Place::Root(first), places, word) => {
                    (first..first + places).for_each(|slot| self.put(Place::Root(slot), word));
                }
                Change::Words(Place::Table(first), places, word) => {
                    (first..first + places).for_each(|number| self.put(Place::Table(number), word));
                }
                Change::Routes(line, difference) => {
                    let [routes, _] = &mut self.table_routes[line as usize];
                    *routes = routes.saturating_add_signed(difference);
                }
            }
        }
        self.changes = changes;
    }

    /// Puts a word in its place; what it replaces waits for its readers.
    fn put(&mut self, place: Place, word: Word) {
        let before = self.load(place);
        self.word(place).store(word.0, Release);
        // Not a handle of its own: readers read the line that handles are counted in.
        let Self { table, pool, hops, .. } = self;
        build::visit(&table.lines, before, &mut |block| pool.unlink(block), &mut |hop| {
            hops.release(&table.list, hop.0)
        });
    }

    /// Ends the epoch of a change, made or not.
    fn settle(&mut self) {
        let epochs = &self.table.epochs;
        let stamp = epochs.stamp();
        self.pool.stamp(stamp);
        self.hops.stamp(stamp);
        if self.pool.is_due() {
            self.pool.collect(epochs);
            self.hops.collect(epochs);
        }
    }
}
