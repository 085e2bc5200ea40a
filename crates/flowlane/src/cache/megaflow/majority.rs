//! The paper's lookup as it stands (*Leveraging SIMD parallelism*, §3.2), kept for comparison.
//!
//! The batch's n-th column holds every packet's n-th present word, as its miniflow does; so the columns mean
//! the same fields only for packets whose bitmap is that of the majority. The others, marked beforehand, are
//! hashed one by one, as are all where few are left. There is no prefilter: every lane's hash is looked for
//! in the table. Its unit here is the 32-bit word, half of the paper's.

use super::Tables;
use super::flow::FlowRef;
use super::subtable::{KeyHash, Subtable, Term};
use crate::hash::murmur3;
use crate::isa::{Body, Variant};
use crate::packet::batch::{BLOCK, Column, LANES_MAX, LaneMask};
use crate::packet::key::{BitIter, FlowKey, FlowMask, WORDS};

/// The packets of a batch, their present words side by side.
#[derive(Debug)]
pub(super) struct Miniflows {
    /// The last is zero: that of the words that the majority does not have.
    columns: Box<[Column; WORDS + 1]>,
    /// The column of each word: known once a batch, so that masks need not count bits.
    places: [u8; WORDS],
}

impl Default for Miniflows {
    fn default() -> Self {
        Self { columns: Box::new([[0; LANES_MAX]; WORDS + 1]), places: [WORDS as u8; WORDS] }
    }
}

impl Miniflows {
    /// Fills the columns. Returns the lanes that have the bitmap of the majority.
    fn fill(&mut self, keys: &[FlowKey], live: LaneMask) -> LaneMask {
        let present = majority(keys, live);
        self.places = [WORDS as u8; WORDS];
        BitIter(present).zip(0..).for_each(|(w, place)| self.places[w] = place);
        let mut regular = LaneMask(0);
        for lane in live.lanes() {
            if keys[lane].present() == present {
                regular.0 |= 1 << lane;
                for (column, w) in self.columns.iter_mut().zip(BitIter(present)) {
                    column[lane] = keys[lane].word(w);
                }
            }
        }
        regular
    }

    /// The column of a word.
    #[inline(always)]
    fn column(&self, w: u8) -> &Column {
        let place = usize::from(self.places[usize::from(w) % WORDS]);
        &self.columns[place.min(WORDS)]
    }
}

/// Lanes that are hashed where these live: whole blocks.
fn lanes(live: LaneMask) -> usize {
    (64 - live.0.leading_zeros() as usize).next_multiple_of(BLOCK)
}

/// A batch whose keys are hashed under one mask, and nothing else: the step that this design computes side by
/// side, for who measures it (the paper's figure 8).
#[derive(Debug)]
pub struct MaskHasher {
    subtable: Subtable,
    miniflows: Miniflows,
    lanes: usize,
    body: Body,
}

impl MaskHasher {
    /// The hasher of up to [`LANES_MAX`] keys that have the same words, under `mask`, by a variant that may be
    /// used here.
    pub fn new(variant: Variant, mask: &FlowMask, seed: u32, keys: &[FlowKey]) -> Option<Self> {
        let live = LaneMask::first(keys.len());
        let mut miniflows = Miniflows::default();
        let regular = miniflows.fill(keys, live);
        let body = Body::of(variant).filter(|_| regular == live)?;
        let subtable = Subtable::new(mask, KeyHash::Murmur3(seed));
        Some(Self { subtable, miniflows, lanes: lanes(live), body })
    }

    /// The hashes of all keys, whichever are still looked for.
    #[inline]
    pub fn hash_batch(&self, out: &mut [u32; LANES_MAX]) {
        hash_columns(self.body, &self.subtable, &self.miniflows, &mut out[..self.lanes]);
    }
}

/// The bitmap that most of the lanes have.
fn majority(keys: &[FlowKey], live: LaneMask) -> u64 {
    let mut counts = [(0u64, 0usize); LANES_MAX];
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
    counts[..kinds].iter().max_by_key(|(_, n)| *n).map_or(0, |(present, _)| *present)
}

/// As [`scalar::lookup`](super::scalar::lookup); under masks for which fewer than `threshold` lanes are left,
/// one by one.
pub(super) fn lookup(
    tables: &mut Tables,
    miniflows: &mut Miniflows,
    body: Body,
    threshold: usize,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    let regular = miniflows.fill(keys, live);
    let lanes = lanes(live);
    let mut left = live;
    let mut probes = 0;
    let mut hashes = [0; LANES_MAX];
    for &id in &tables.order {
        if left.is_empty() {
            break;
        }
        let subtable = &mut tables.subtables[id as usize];
        probes += left.len() as u64;
        let mut serial = left;
        if left.len() >= threshold {
            hash_columns(body, subtable, miniflows, &mut hashes[..lanes]);
            serial.0 &= !regular.0;
        }
        for lane in serial.lanes() {
            hashes[lane] = subtable.hash(&keys[lane]);
        }
        for lane in left.lanes() {
            subtable.prefetch(hashes[lane]);
        }
        for lane in left.lanes() {
            if let Some(index) = subtable.find(&tables.flows, &keys[lane], hashes[lane]) {
                found[lane] = FlowRef { index, serial: tables.flows[index as usize].serial };
                left.remove(lane);
                subtable.hits += 1;
            }
        }
    }
    (left, probes)
}

fn hash_columns(body: Body, subtable: &Subtable, miniflows: &Miniflows, out: &mut [u32]) {
    let terms = subtable.terms.as_slice();
    let seed = subtable.murmur3_seed();
    match body {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has SSE4.2.
        Body::Sse42(_) => unsafe { sse42(terms, miniflows, seed, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2.
        Body::Avx2(_) => unsafe { avx2(terms, miniflows, seed, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        Body::Avx512(_) => unsafe { avx512(terms, miniflows, seed, out) },
        _ => hash(terms, miniflows, seed, out),
    }
}

/// Two blocks side by side, since each step of the hash waits for the one before.
#[inline(always)]
fn hash(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
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
    hash(terms, miniflows, seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    hash(terms, miniflows, seed, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512(terms: &[Term], miniflows: &Miniflows, seed: u32, out: &mut [u32]) {
    hash(terms, miniflows, seed, out);
}
