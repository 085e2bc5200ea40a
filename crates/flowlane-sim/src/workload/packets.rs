//! Packets: the keys that are looked up.

use flowlane::generate::Random;

use super::tables::{KEY_WORDS, Tables, key_of};
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
        let place = tables.keys[number as usize % tables.keys.len()];
        (0..len)
            .map(|table| {
                let filled = tables.filled(table);
                let among = if self.working_set > 0 { self.working_set.min(filled) } else { filled };
                let found = table == has && hit && filled > 0;
                let of_key =
                    if found { self.random.below(among) } else { ABSENT + self.random.below(ABSENT) };
                let key = key_of(tables.seed(), table, of_key);
                let inserted = found.then_some(of_key as u32);
                let mut recorder = Recorder::new(&tables.places, place);
                let lookup = record(tables, table, &key, inserted, &mut recorder, number)?;
                Ok(recorder.lookup(table, lookup.0, lookup.1, lookup.2))
            })
            .collect()
    }
}

type Recorded = (u32, Option<u32>, Option<u32>);

/// Walks a table with a probe, and compares the answer with the library's batch lookup and with the inserted value.
fn record(
    tables: &Tables,
    table: usize,
    key: &[u32; KEY_WORDS],
    inserted: Option<u32>,
    recorder: &mut Recorder<'_>,
    lookup: u64,
) -> Result<Recorded, Mismatch> {
    let real = tables.table(table);
    let mut numbered = Numbered { table: table as u32, recorder };
    let simulated = real.lookup_probed(key, &mut numbered);
    let mut values = [0];
    let library = (real.lookup_batch(std::slice::from_ref(key), &mut values) != 0).then_some(values[0]);
    if simulated != library || library != inserted {
        let library = if simulated == library { inserted } else { library };
        return Err(Mismatch { lookup, table: format!("cuckoo table {table}"), simulated, library });
    }
    let hash = real.hash(key);
    recorder.buckets(table, real.bucket_offsets(hash));
    Ok((hash, simulated, library))
}

/// A recorder for one of several tables, which do not know their numbers.
struct Numbered<'r, 'a> {
    table: u32,
    recorder: &'r mut Recorder<'a>,
}

impl flowlane::probe::Probe for Numbered<'_, '_> {
    fn load(
        &mut self,
        _: u32,
        part: flowlane::probe::Part,
        offset: usize,
        bytes: usize,
        dependency: flowlane::probe::Dependency,
    ) {
        self.recorder.load(self.table, part, offset, bytes, dependency);
    }

    fn store(&mut self, _: u32, part: flowlane::probe::Part, offset: usize, bytes: usize) {
        self.recorder.store(self.table, part, offset, bytes);
    }

    fn alu(&mut self, instructions: u32) {
        self.recorder.alu(instructions);
    }

    fn branch(&mut self, id: u32, taken: bool) {
        self.recorder.branch(id, taken);
    }
}
