//! Exact-match tables with keys of any length, as cuckoo tables of the library.

use flowlane::cuckoo::{BATCH_MAX, CuckooConfig, CuckooWriter};
use flowlane::packet::key::FlowKey;

use crate::machine::space::Space;
use crate::workload::tables::place;
use crate::workload::{Recorder, TablePlace};

/// The most words of a key.
pub const WORDS_MAX: usize = flowlane::cuckoo::KEY_WORDS_MAX;

/// A word of a key, and its mask.
pub type MaskWord = (u8, u32);

/// A table whose keys consist of a number of a packet's words.
pub trait Exact: Send + Sync {
    /// Inserts a key, or replaces its value.
    ///
    /// # Panics
    /// Panics if the table is full.
    fn insert(&mut self, words: &[u32], value: u32);

    /// Removes a key.
    fn remove(&mut self, words: &[u32]);

    /// Looks up a key with a recorder, and returns its hash and the answers of the recorded walk and of the batch
    /// lookup.
    fn recorded(&self, words: &[u32], recorder: &mut Recorder<'_>) -> (u32, Option<u32>, Option<u32>);

    /// Returns the value of a packet's key under a mask.
    fn find(&self, mask: &[MaskWord], key: &FlowKey) -> Option<u32>;

    /// Looks up at most [`BATCH_MAX`] packets under a mask, and returns a bit for each hit.
    fn find_batch(&self, mask: &[MaskWord], keys: &[&FlowKey], values: &mut [u32]) -> u64;

    fn bytes(&self) -> usize;

    /// Allocates the table in the simulated memory.
    fn place(&self, space: &mut Space) -> TablePlace;
}

/// Creates a table of `entries` keys of `words` words (at most [`WORDS_MAX`]).
///
/// # Panics
/// Panics if there are more words.
pub fn exact(words: usize, entries: usize, seed: u32) -> Box<dyn Exact> {
    let config = CuckooConfig::new(entries, seed);
    match words {
        0..=4 => Box::new(CuckooWriter::<4>::new(&config)),
        5..=8 => Box::new(CuckooWriter::<8>::new(&config)),
        9..=WORDS_MAX => Box::new(CuckooWriter::<WORDS_MAX>::new(&config)),
        _ => panic!("keys of {words} words"),
    }
}

fn padded<const W: usize>(words: &[u32]) -> [u32; W] {
    let mut key = [0; W];
    key[..words.len()].copy_from_slice(words);
    key
}

fn masked<const W: usize>(mask: &[MaskWord], key: &FlowKey) -> [u32; W] {
    let mut out = [0; W];
    for (to, (word, bits)) in out.iter_mut().zip(mask) {
        *to = key.word(usize::from(*word)) & bits;
    }
    out
}

impl<const W: usize> Exact for CuckooWriter<W> {
    fn insert(&mut self, words: &[u32], value: u32) {
        let inserted = Self::insert(self, &padded(words), value);
        assert!(inserted.is_ok(), "a table promises to take its most entries: {inserted:?}");
    }

    fn remove(&mut self, words: &[u32]) {
        Self::remove(self, &padded(words));
    }

    fn recorded(&self, words: &[u32], recorder: &mut Recorder<'_>) -> (u32, Option<u32>, Option<u32>) {
        let key = padded(words);
        let simulated = self.lookup_probed(&key, recorder);
        let mut values = [0];
        let library = (self.lookup_batch(std::slice::from_ref(&key), &mut values) != 0).then_some(values[0]);
        let hash = self.hash(&key);
        recorder.buckets(self.bucket_offsets(hash));
        (hash, simulated, library)
    }

    fn find(&self, mask: &[MaskWord], key: &FlowKey) -> Option<u32> {
        self.lookup(&masked(mask, key))
    }

    fn find_batch(&self, mask: &[MaskWord], keys: &[&FlowKey], values: &mut [u32]) -> u64 {
        let mut words = [[0; W]; BATCH_MAX];
        for (words, key) in words.iter_mut().zip(keys) {
            *words = masked(mask, key);
        }
        self.lookup_batch(&words[..keys.len()], values)
    }

    fn bytes(&self) -> usize {
        self.table_bytes()
    }

    fn place(&self, space: &mut Space) -> TablePlace {
        place(space, self)
    }
}
