//! Packets: the keys that are looked up.

use flowlane::generate::Random;

use super::rules::Exact;
use super::tables::{Tables, key_of};
use super::{Lookup, Recorder};
use crate::config::MatchingTable;
use crate::machine::op::Mismatch;

/// Seeded packets.
#[derive(Clone, Debug)]
pub struct Packets {
    random: Random,
    matching: MatchingTable,
    /// The share of hits in lookups of one table, in thousandths.
    hit_permille: u64,
    /// The number of distinct keys looked up; 0 for all in a table.
    working_set: u64,
    number: u64,
}

/// The first number beyond the keys of all tables.
const ABSENT: u64 = 1 << 40;

impl Packets {
    /// Creates packets that all hit.
    pub fn new(seed: u64) -> Self {
        let random = Random::for_purpose(seed, "packets");
        Self { random, matching: MatchingTable::Uniform, hit_permille: 1000, working_set: 0, number: 0 }
    }

    /// Sets the table that has the key.
    #[must_use]
    pub fn matching(self, matching: MatchingTable) -> Self {
        Self { matching, ..self }
    }

    /// Sets the share of hits, in thousandths.
    #[must_use]
    pub fn hits(self, hit_permille: u64) -> Self {
        Self { hit_permille, ..self }
    }

    /// Limits the number of distinct keys.
    #[must_use]
    pub fn of(self, working_set: u64) -> Self {
        Self { working_set, ..self }
    }

    /// Returns the lookups of the next packet, one in each table, recorded from the real tables.
    ///
    /// # Errors
    /// Returns an error if the recorded walk, the library's vectorised lookup and the inserted value differ.
    pub fn next(&mut self, tables: &Tables) -> Result<Vec<Lookup>, Mismatch> {
        let len = tables.len();
        let has = match self.matching {
            MatchingTable::Uniform => self.random.index(len),
            MatchingTable::Last => len - 1,
        };
        let hit = self.hit_permille >= 1000 || self.random.below(1000) < self.hit_permille;
        let number = self.number;
        self.number += 1;
        let place = tables.own.key(number);
        (0..len)
            .map(|table| {
                let filled = tables.filled(table);
                let among = if self.working_set > 0 { self.working_set.min(filled) } else { filled };
                let found = table == has && hit && filled > 0;
                let of_key =
                    if found { self.random.below(among) } else { ABSENT + self.random.below(ABSENT) };
                let key = key_of(tables.seed(), table, of_key);
                let inserted = found.then_some(of_key as u32);
                let mut recorder = Recorder::new(&tables.places[table], place);
                let (hash, simulated, library) = tables.table(table).recorded(&key, &mut recorder);
                if simulated != library || library != inserted {
                    let library = if simulated == library { inserted } else { library };
                    let table = format!("cuckoo table {table}");
                    return Err(Mismatch { lookup: number, table, simulated, library });
                }
                Ok(recorder.lookup(hash, simulated, library))
            })
            .collect()
    }
}
