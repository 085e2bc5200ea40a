//! A batch in the paper's column layout, and its hashes under a mask.

use flowlane::hash::murmur3;
use flowlane::isa::{Backend, Variant};
use flowlane::packet::WordSet;
use flowlane::packet::batch::{BLOCK, Column, LANES_MAX, LaneMask};
use flowlane::packet::key::{FlowKey, FlowMask, WORDS};

/// Words of a key that have columns: packets with more are hashed one by one.
const COLUMNS: usize = 64;

/// A masked word of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Term {
    pub(super) word: u8,
    pub(super) mask: u32,
}

/// Returns the masked words in ascending order.
pub(super) fn terms(mask: &FlowMask) -> Vec<Term> {
    let looked_at = mask.present_words().filter(|&w| mask.word(w) != 0);
    looked_at.map(|w| Term { word: w as u8, mask: mask.word(w) }).collect()
}

/// Returns the words of a key under a mask.
#[inline(always)]
pub(super) fn masked<'a>(terms: &'a [Term], key: &'a FlowKey) -> impl Iterator<Item = u32> + 'a {
    let words = key.words();
    terms.iter().map(|term| words[usize::from(term.word) % WORDS] & term.mask)
}

/// Hashes one key under a mask: the definition.
#[inline(always)]
pub(super) fn hash(terms: &[Term], seed: u32, key: &FlowKey) -> u32 {
    murmur3::finish(masked(terms, key).fold(seed, murmur3::mix), 4 * terms.len() as u32)
}

/// The packets of a batch, transposed: a column for each present word.
#[derive(Debug)]
pub(super) struct Miniflows {
    /// The columns, and a column of zeros for words absent from the majority's bitmap.
    columns: Box<[Column; COLUMNS + 1]>,
    /// The column of each word, computed once a batch so that masks need not count bits.
    places: [u8; WORDS],
}

impl Default for Miniflows {
    fn default() -> Self {
        Self { columns: Box::new([[0; LANES_MAX]; COLUMNS + 1]), places: [COLUMNS as u8; WORDS] }
    }
}

impl Miniflows {
    /// Fills the columns, and returns the lanes with the bitmap of the majority.
    pub(super) fn fill(&mut self, keys: &[FlowKey], live: LaneMask) -> LaneMask {
        let present = majority(keys, live);
        self.places = [COLUMNS as u8; WORDS];
        if present.len() > COLUMNS {
            return LaneMask(0);
        }
        present.iter().zip(0..).for_each(|(w, place)| self.places[w] = place);
        let mut regular = LaneMask(0);
        for lane in live.lanes() {
            if keys[lane].present() == present {
                regular.0 |= 1 << lane;
                for (column, w) in self.columns.iter_mut().zip(present) {
                    column[lane] = keys[lane].word(w);
                }
            }
        }
        regular
    }

    /// Returns the column of a word.
    #[inline(always)]
    fn column(&self, w: u8) -> &Column {
        let place = usize::from(self.places[usize::from(w) % WORDS]);
        &self.columns[place.min(COLUMNS)]
    }
}

/// Returns the most frequent bitmap of the lanes.
fn majority(keys: &[FlowKey], live: LaneMask) -> WordSet {
    let mut counts = [(WordSet::EMPTY, 0usize); LANES_MAX];
    let mut kinds = 0;
    for lane in live.lanes() {
        let present = keys[lane].present();
        match counts[..kinds].iter_mut().find(|(p, _)| *p == present) {
            Some((_, n)) => *n += 1,
            None => {
                counts[kinds] = (present, 1);
                kinds += 1;
            }
        }
    }
    counts[..kinds].iter().max_by_key(|(_, n)| *n).map_or(WordSet::EMPTY, |(present, _)| *present)
}

/// Returns the number of lanes to hash for these live lanes, in whole blocks.
pub(super) fn lanes(live: LaneMask) -> usize {
    (64 - live.0.leading_zeros() as usize).next_multiple_of(BLOCK)
}

/// A batch of keys hashed under one mask: the step that the paper vectorises (its figure 8).
#[derive(Debug)]
pub struct MaskHasher {
    terms: Vec<Term>,
    seed: u32,
    miniflows: Miniflows,
    lanes: usize,
    body: Backend,
}

impl MaskHasher {
    /// Builds a hasher of up to [`LANES_MAX`] keys with equal presence bitmaps, or `None` if the CPU lacks the
    /// variant.
    pub fn new(variant: Variant, mask: &FlowMask, seed: u32, keys: &[FlowKey]) -> Option<Self> {
        let live = LaneMask::first(keys.len());
        let mut miniflows = Miniflows::default();
        let regular = miniflows.fill(keys, live);
        let body = Backend::of(variant).filter(|_| regular == live)?;
        Some(Self { terms: terms(mask), seed, miniflows, lanes: lanes(live), body })
    }

    /// Hashes all keys of the batch.
    #[inline]
    pub fn hash_batch(&self, out: &mut [u32; LANES_MAX]) {
        hash_columns(self.body, &self.terms, &self.miniflows, self.seed, &mut out[..self.lanes]);
    }
}

/// Hashes whole blocks of lanes under a mask.
pub(super) fn hash_columns(body: Backend, terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    match body {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has SSE4.2.
        Backend::Sse42(_) => unsafe { sse42(terms, miniflows, seed, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2.
        Backend::Avx2(_) => unsafe { avx2(terms, miniflows, seed, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        Backend::Avx512(_) => unsafe { avx512(terms, miniflows, seed, out) },
        _ => portable(terms, miniflows, seed, out),
    }
}

/// Hashes two blocks in an interleaved fashion, since the steps of one hash depend on each other.
#[inline(always)]
fn portable(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    for from in (0..out.len()).step_by(2 * BLOCK) {
        let mut hash = [seed; 2 * BLOCK];
        for term in terms {
            let words: &[u32; 2 * BLOCK] =
                miniflows.column(term.word)[from..].first_chunk().expect("two blocks of a column");
            for (hash, word) in hash.iter_mut().zip(words) {
                *hash = murmur3::mix(*hash, word & term.mask);
            }
        }
        for (out, hash) in out[from..].iter_mut().zip(hash) {
            *out = murmur3::finish(hash, 4 * terms.len() as u32);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn sse42(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    portable(terms, miniflows, seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    portable(terms, miniflows, seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    portable(terms, miniflows, seed, out);
}
