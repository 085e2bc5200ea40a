//! The lookup by AVX-512 in registers of 512 bits: steps without branches that depend on a key.
//!
//! Each step is taken by all keys of a group, in all parts, before the next. What cannot be taken by all at once (a node
//! below a root, a leaf that goes on, a first candidate that fails) is put on a list by compression, and the lists are
//! worked off.

use std::arch::x86_64::*;

use super::avx512_tail;
use super::grid::{Axis, Grid};
use super::leaf::{self, NODE, NONE, RANKS, RULES};
use super::range_filter::RangeFilter;
use super::{Node, PARTS_MAX, Tree, lanes};
use crate::classify::acl::engine::Tombstones;
use crate::classify::acl::{MatchId, WordKind};
use crate::isa::Avx512;
use crate::memory;

/// Keys in a group: enough that lists are long, few enough that prefetched lines are still in the cache.
const GROUP: usize = 128;

/// Keys in a register.
const LANES: usize = 16;

/// A part of more bytes is asked for ahead.
const COLD_BYTES: usize = 256 << 10;

/// Registers of keys that numbers are made for together.
const TOGETHER: usize = 4;

/// Bits of a key on their way to a number: a word is turned, and what lies under the mask is taken.
#[derive(Clone, Copy, Debug)]
struct Run {
    word: u32,
    rotate: u32,
    mask: u32,
}

/// Constants of a tree that vector lookups need, computed at its build.
#[derive(Clone, Debug)]
pub(super) struct Vectors {
    roots: Vec<Root>,
    kinds: Kinds,
}

impl Vectors {
    /// Of roots, each with the bytes of its part.
    pub(super) fn of<const W: usize>(roots: &[(&Node<W>, usize)], kinds: &[WordKind; W]) -> Self {
        // Four keys of four words are compared at once.
        let times = if W == 4 { 4 } else { 1 };
        let roots = roots.iter().map(|(node, bytes)| Root::of(node, *bytes)).collect();
        Self { roots, kinds: Kinds::of(kinds, times) }
    }
}

/// How vectors of keys are cut at a root.
#[derive(Clone, Debug)]
struct Root {
    cut: Vec<Run>,
    sign: Vec<Run>,
    /// Whether the part is so large that its entries are prefetched.
    cold: bool,
}

impl Root {
    fn of<const W: usize>(node: &Node<W>, bytes: usize) -> Self {
        Self { cut: runs(&node.cut), sign: runs(&node.sign), cold: bytes > COLD_BYTES }
    }
}

/// The runs that do what [`bits::gather`](super::bits::gather) does.
fn runs<const W: usize>(mask: &[u32; W]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut have = 0;
    for (word, &mask) in mask.iter().enumerate() {
        for bit in (0..32).filter(|bit| mask >> bit & 1 == 1) {
            let (word, rotate) = (word as u32, (have + 32 - bit) % 32);
            match runs.iter_mut().find(|run| (run.word, run.rotate) == (word, rotate)) {
                Some(run) => run.mask |= 1 << have,
                None => runs.push(Run { word, rotate, mask: 1 << have }),
            }
            have += 1;
        }
    }
    runs
}

/// The lists that the steps pass on.
#[repr(C, align(64))]
struct Group<const W: usize> {
    /// The keys, word by word.
    words: [[u32; GROUP]; W],
    /// By part: entries, then blocks.
    at: [[u32; GROUP]; PARTS_MAX],
    signatures: [[u32; GROUP]; PARTS_MAX],
    best: [u32; GROUP],
    found: [u32; GROUP],
    /// Lists.
    key: [u32; GROUP],
    block: [u32; GROUP],
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn register(words: &[u32; LANES]) -> __m512i {
    // SAFETY: sixteen words are a register.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// The register that begins with word `v`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn load(from: &[u32; GROUP], v: usize) -> __m512i {
    register(&from.as_chunks().0[v / LANES])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn store(to: &mut [u32; GROUP], v: usize, value: __m512i) {
    let words: &mut [u32; LANES] = &mut to.as_chunks_mut().0[v / LANES];
    // SAFETY: sixteen words are a register.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), value) }
}

/// The lanes of `value` under `mask` behind the `count` first; how many there are then.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn push(to: &mut [u32; GROUP], count: usize, mask: __mmask16, value: __m512i) {
    let packed = _mm512_maskz_compress_epi32(mask, value);
    let room = GROUP.saturating_sub(count);
    let fits = if room >= LANES { u16::MAX } else { (1 << room) - 1 };
    // SAFETY: only lanes that there is room for are written.
    unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().wrapping_add(count).cast(), fits, packed) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn lanes_from(first: usize) -> __m512i {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32))
}

impl<const W: usize> Group<W> {
    const NEW: Self = Self {
        words: [[0; GROUP]; W],
        at: [[0; GROUP]; PARTS_MAX],
        signatures: [[0; GROUP]; PARTS_MAX],
        best: [0; GROUP],
        found: [0; GROUP],
        key: [0; GROUP],
        block: [0; GROUP],
    };

    /// The keys word by word.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn transpose(&mut self, keys: &[[u32; W]]) {
        if W == 4 {
            return self.transpose_four(keys);
        }
        let places = _mm512_mullo_epi32(lanes_from(0), _mm512_set1_epi32(W as i32));
        for (v, keys) in keys.chunks_exact(LANES).enumerate() {
            for w in 0..W {
                // SAFETY: word `w` of sixteen keys.
                let words =
                    unsafe { _mm512_i32gather_epi32::<4>(places, keys.as_ptr().cast::<i32>().add(w)) };
                store(&mut self.words[w], v * LANES, words);
            }
        }
    }

    /// Extracts bits as above, for keys of four words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn transpose_four(&mut self, keys: &[[u32; W]]) {
        // Words 0 and 1, or 2 and 3, of the keys in two registers; then one word of those in four.
        let low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
        let even = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(8));
        for (v, keys) in keys.chunks_exact(LANES).enumerate() {
            // SAFETY: sixteen keys of four words are four registers.
            let four = [0, 4, 8, 12].map(|i| unsafe { _mm512_loadu_si512(keys.as_ptr().add(i).cast()) });
            for (half, places) in [low, high].into_iter().enumerate() {
                let a = _mm512_permutex2var_epi32(four[0], places, four[1]);
                let b = _mm512_permutex2var_epi32(four[2], places, four[3]);
                store(&mut self.words[2 * half], v * LANES, _mm512_permutex2var_epi32(a, even, b));
                store(&mut self.words[2 * half + 1], v * LANES, _mm512_permutex2var_epi32(a, odd, b));
            }
        }
    }

    /// The numbers that runs of bits make, of `N` registers of keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn gather<const N: usize>(&self, runs: &[Run], v: usize) -> [__m512i; N] {
        let mut numbers = [_mm512_setzero_si512(); N];
        let first = v / LANES;
        assert!(first + N <= GROUP / LANES);
        for run in runs {
            let words = &self.words[run.word as usize].as_chunks().0[first..first + N];
            let (rotate, mask) = (_mm512_set1_epi32(run.rotate as i32), _mm512_set1_epi32(run.mask as i32));
            for (words, number) in words.iter().zip(&mut numbers) {
                let turned = _mm512_rolv_epi32(register(words), rotate);
                // number | turned & mask
                *number = _mm512_ternarylogic_epi32::<0xf8>(*number, turned, mask);
            }
        }
        numbers
    }

    /// The cells of `N` registers of keys.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn cells<const N: usize>(&self, grid: &Grid, v: usize) -> [__m512i; N] {
        let [rows, columns] = grid.axes.each_ref().map(|axis| self.classes::<N>(axis, v));
        let shift = _mm512_set1_epi32(grid.axes[1].bits as i32);
        std::array::from_fn(|i| _mm512_or_si512(_mm512_sllv_epi32(rows[i], shift), columns[i]))
    }

    /// The classes of a field, by halving.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn classes<const N: usize>(&self, axis: &Axis, v: usize) -> [__m512i; N] {
        let (first, field) = (v / LANES, axis.field);
        let words = &self.words[field.word % W].as_chunks().0[first..first + N];
        let (shift, max) =
            (_mm512_set1_epi32(field.shift as i32), _mm512_set1_epi32(field.max.cast_signed()));
        let values: [__m512i; N] =
            std::array::from_fn(|i| _mm512_and_si512(_mm512_srlv_epi32(register(&words[i]), shift), max));
        let mut at = [_mm512_setzero_si512(); N];
        for step in (0..axis.bits).rev() {
            let by = _mm512_set1_epi32(1 << step);
            for (at, value) in at.iter_mut().zip(values) {
                let next = _mm512_add_epi32(*at, by);
                // SAFETY: there are two to the power of `bits` bounds, and `next` is below: bits from `step` on are set once each.
                let bound = unsafe { _mm512_i32gather_epi32::<4>(next, axis.bounds.as_ptr().cast()) };
                *at = _mm512_mask_mov_epi32(*at, _mm512_cmple_epu32_mask(bound, value), next);
            }
        }
        at
    }

    /// Which entries, and what to scan leaves for.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn index(&mut self, tree: &Tree<W>, part: usize, count: usize) {
        let together = count - count % (TOGETHER * LANES);
        (0..together).step_by(TOGETHER * LANES).for_each(|v| self.index_some::<TOGETHER>(tree, part, v));
        (together..count).step_by(LANES).for_each(|v| self.index_some::<1>(tree, part, v));
        if tree.vectors.roots[part].cold {
            self.at[part][..count].iter().for_each(|at| memory::prefetch(&tree.table, *at as usize));
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn index_some<const N: usize>(&mut self, tree: &Tree<W>, part: usize, v: usize) {
        let root = &tree.vectors.roots[part];
        let first = _mm512_set1_epi32(tree.nodes[part].first.cast_signed());
        let at = match &tree.grid {
            Some(grid) if part == 0 => self.cells(grid, v),
            _ => self.gather::<N>(&root.cut, v),
        };
        for (i, at) in at.into_iter().enumerate() {
            store(&mut self.at[part], v + i * LANES, _mm512_add_epi32(at, first));
        }
        for (i, signature) in self.gather::<N>(&root.sign, v).into_iter().enumerate() {
            store(&mut self.signatures[part], v + i * LANES, signature);
        }
    }

    /// From entries to blocks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn descend(&mut self, isa: Avx512, tree: &Tree<W>, part: usize, count: usize, keys: &[[u32; W]]) {
        let mut nodes = 0;
        for v in (0..count).step_by(LANES) {
            let at = load(&self.at[part], v);
            // SAFETY: `build::piece` gives each root as many entries as its cut has indices; there are fewer than 2^31.
            let entry = unsafe { _mm512_i32gather_epi32::<4>(at, tree.table.as_ptr().cast()) };
            store(&mut self.at[part], v, entry);
            let met = _mm512_movepi32_mask(entry);
            push(&mut self.key, nodes, met, lanes_from(v));
            nodes += met.count_ones() as usize;
        }
        if tree.vectors.roots[part].cold {
            for &key in &self.key[..nodes] {
                let node = self.at[part][key as usize % GROUP] & !NODE;
                memory::prefetch(&tree.nodes, node as usize);
            }
        }
        for i in 0..nodes {
            let key = self.key[i] as usize % GROUP;
            let at = lanes::index(isa, lanes::node(tree, self.at[part][key]), &keys[key]);
            self.block[i] = at;
            memory::prefetch(&tree.table, at as usize);
        }
        for i in 0..nodes {
            let key = self.key[i] as usize % GROUP;
            let place = lanes::place_below(isa, tree, self.at[part][key], self.block[i], &keys[key]);
            self.at[part][key] = place.block;
            self.signatures[part][key] = place.signature;
        }
        if tree.vectors.roots[part].cold {
            for at in &self.at[part][..count] {
                let block = tree.blocks.as_ptr().wrapping_add(*at as usize).cast::<u8>();
                memory::prefetch_at(block);
                memory::prefetch_at(block.wrapping_add(64));
                memory::prefetch_at(block.wrapping_add(128));
            }
            for filter in &tree.range_filters {
                for at in &self.at[part][..count] {
                    let ends = filter.ends.as_ptr().wrapping_add(*at as usize).cast::<u8>();
                    memory::prefetch_at(ends);
                    memory::prefetch_at(ends.wrapping_add(64));
                }
            }
        }
    }

    /// The rank of the first candidate of a block that passes the tests of key number `i`, or the sentinel behind the last rule.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn first<const TESTS: usize>(
        &self,
        tree: &Tree<W>,
        tests: [&RangeFilter; TESTS],
        at: u32,
        signature: u32,
        i: usize,
    ) -> u32 {
        let block = lanes::block(tree, at);
        let mut candidates = avx512_tail::candidates(block, signature);
        for test in tests {
            let word = self.words[test.word % W][i];
            candidates &= avx512_tail::passing(&test.ends[at as usize], test.ranges, word) | 1 << RULES;
        }
        // There is a candidate, the last at the latest.
        block[RANKS + _tzcnt_u32(candidates.into()) as usize]
    }

    /// The first candidate of each key's leaf, where it is better than what there is.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn scan(&mut self, tree: &Tree<W>, part: usize, count: usize) {
        match &tree.range_filters[..] {
            [] => self.scan_with(tree, [], part, count),
            [one] => self.scan_with(tree, [one], part, count),
            [one, other, ..] => self.scan_with(tree, [one, other], part, count),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn scan_with<const TESTS: usize>(
        &mut self,
        tree: &Tree<W>,
        tests: [&RangeFilter; TESTS],
        part: usize,
        count: usize,
    ) {
        for i in 0..count {
            self.found[i] = self.first(tree, tests, self.at[part][i], self.signatures[part][i], i);
        }
        let mut waiting = 0;
        for v in (0..count).step_by(LANES) {
            let found = load(&self.found, v);
            let best = _mm512_min_epu32(load(&self.best, v), found);
            store(&mut self.best, v, best);
            let next = _mm512_andnot_si512(_mm512_set1_epi32(i32::MIN), found);
            let on = _mm512_mask_cmpgt_epu32_mask(_mm512_movepi32_mask(found), best, next);
            push(&mut self.key, waiting, on, lanes_from(v));
            push(
                &mut self.block,
                waiting,
                on,
                _mm512_add_epi32(load(&self.at[part], v), _mm512_set1_epi32(1)),
            );
            waiting += on.count_ones() as usize;
        }
        while waiting > 0 {
            let met = std::mem::take(&mut waiting);
            for i in 0..met {
                let key = self.key[i] as usize % GROUP;
                let block = self.block[i];
                let signature = self.signatures[part][key];
                let found = self.first(tree, tests, block, signature, key);
                let best = self.best[key].min(found);
                self.best[key] = best;
                (self.key[waiting], self.block[waiting]) = (key as u32, block + 1);
                waiting += usize::from(found & leaf::MORE != 0 && found & !leaf::MORE < best);
            }
        }
    }
}

/// Which words are compared how, one bit each.
#[derive(Clone, Debug)]
struct Kinds {
    ternary: __mmask16,
    range16: __mmask16,
    range32: __mmask16,
}

impl Kinds {
    fn of(kinds: &[WordKind], times: usize) -> Self {
        let mask = |kind: WordKind| {
            let lane = |lane: usize| u16::from(kinds[lane % kinds.len()] == kind) << lane;
            (0..(times * kinds.len()).min(LANES)).map(lane).fold(0, |all, lane| all | lane)
        };
        Self {
            ternary: mask(WordKind::Ternary),
            range16: mask(WordKind::Range16),
            range32: mask(WordKind::Range32),
        }
    }

    /// One bit for each word that does not match.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn failing(&self, low: __m512i, high: __m512i, key: __m512i) -> __mmask16 {
        // key & high ^ low
        let ternary = _mm512_ternarylogic_epi32::<0x6c>(high, low, key);
        let (below, above) = (_mm512_subs_epu16(low, key), _mm512_subs_epu16(key, high));
        let differing = _mm512_mask_or_epi32(ternary, self.range16, below, above);
        let failing = _mm512_mask_test_epi32_mask(self.ternary | self.range16, differing, differing);
        if self.range32 == 0 {
            return failing;
        }
        failing
            | _mm512_mask_cmplt_epu32_mask(self.range32, key, low)
            | _mm512_mask_cmpgt_epu32_mask(self.range32, key, high)
    }
}

/// Which of sixteen keys do not fulfil the conditions of these rules.
///
/// # Safety
/// The ranks must be those of rules.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn failing<const W: usize>(tree: &Tree<W>, keys: &[[u32; W]], ranks: &[u32]) -> __mmask16 {
    let kinds = &tree.vectors.kinds;
    let (keys, ranks) = (&keys[..LANES], &ranks[..LANES]);
    if W == 4 {
        let mut failing = 0u64;
        for four in 0..4 {
            let at = |i: usize, offset: usize| tree.records.address(ranks[4 * four + i]).wrapping_add(offset);
            // SAFETY: by the caller's promise; a record is low and high ends first.
            let (low, high, key) = unsafe {
                let load = |offset: usize| {
                    let one = |i: usize| _mm_loadu_si128(at(i, offset).cast());
                    let two =
                        |i: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(one(i)), one(i + 1));
                    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(two(0)), two(2))
                };
                (load(0), load(W), _mm512_loadu_si512(keys.as_ptr().add(4 * four).cast()))
            };
            failing |= u64::from(kinds.failing(low, high, key)) << (16 * four);
        }
        failing |= failing >> 1;
        failing |= failing >> 2;
        return _pext_u64(failing, 0x1111_1111_1111_1111) as u16;
    }
    let mut failing = 0;
    for (i, (key, &rank)) in keys.iter().zip(ranks).enumerate() {
        let all = ((1u32 << W.min(LANES)) - 1) as u16;
        // SAFETY: as above; a key has W words.
        let (low, high, key) = unsafe {
            let record = tree.records.address(rank).cast();
            (
                _mm512_maskz_loadu_epi32(all, record),
                _mm512_maskz_loadu_epi32(all, record.wrapping_add(W)),
                _mm512_maskz_loadu_epi32(all, key.as_ptr().cast()),
            )
        };
        failing |= u16::from(kinds.failing(low, high, key) != 0) << i;
    }
    failing
}

/// Which of these rules are dead. There must be a bit for each that `hit` names.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn are_tombstones(dead: Tombstones<'_>, hit: __mmask16, handles: __m512i) -> __mmask16 {
    let (none, words) = (_mm512_setzero_si512(), _mm512_srli_epi32::<5>(handles));
    // SAFETY: by the caller's promise.
    let words = unsafe { _mm512_mask_i32gather_epi32::<4>(none, hit, words, dead.0.as_ptr().cast()) };
    let bits = _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_si512(handles, _mm512_set1_epi32(31)));
    _mm512_test_epi32_mask(words, bits)
}

/// Whole registers of keys.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn group<const W: usize>(
    isa: Avx512,
    tree: &Tree<W>,
    group: &mut Group<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    let count = keys.len();
    group.transpose(keys);
    (0..tree.parts).for_each(|part| group.index(tree, part, count));
    (0..tree.parts).for_each(|part| group.descend(isa, tree, part, count, keys));
    group.best[..count].fill(NONE);
    (0..tree.parts).for_each(|part| group.scan(tree, part, count));
    // Keys without a candidate are compared with some rule.
    let last = _mm512_set1_epi32(tree.records.len() as i32 - 1);
    for v in (0..count).step_by(LANES) {
        let ranks = _mm512_min_epu32(load(&group.best, v), last);
        store(&mut group.found, v, ranks);
    }
    if tree.cold {
        for rank in &group.found[..count] {
            memory::prefetch_at(tree.records.address(*rank).cast());
            if let Some(handles) = &tree.records.handles {
                memory::prefetch(handles, *rank as usize);
            }
        }
    }
    let mut again = 0;
    for (v, verdicts) in verdicts.chunks_exact_mut(LANES).enumerate() {
        let v = v * LANES;
        let ranks = load(&group.found, v);
        let hit = _mm512_cmpneq_epi32_mask(load(&group.best, v), _mm512_set1_epi32(NONE as i32));
        // SAFETY: `found` has ranks up to that of the last rule.
        let mut failing = unsafe { failing(tree, &keys[v..], &group.found[v..]) };
        // SAFETY: the ranks are those of rules, fewer than 2^31, and each has categories and a rule number; sixteen verdicts are sixteen
        // words.
        unsafe {
            if let Some(categories) = &tree.records.categories
                && !tree.records.all_plain
            {
                let categories = _mm512_i32gather_epi32::<4>(ranks, categories.as_ptr().cast());
                failing |= _mm512_testn_epi32_mask(categories, _mm512_set1_epi32(1));
            }
            let none = _mm512_set1_epi32(-1);
            let found = match &tree.records.handles {
                Some(handles) => _mm512_mask_i32gather_epi32::<4>(none, hit, ranks, handles.as_ptr().cast()),
                None => _mm512_mask_mov_epi32(none, hit, ranks),
            };
            // `Tree::lookup_live` has seen that each rule number has a bit.
            failing |= dead.map_or(0, |dead| are_tombstones(dead, hit, found));
            _mm512_storeu_si512(verdicts.as_mut_ptr().cast(), found);
        }
        push(&mut group.key, again, failing & hit, lanes_from(v));
        again += (failing & hit).count_ones() as usize;
    }
    for &i in &group.key[..again] {
        let i = i as usize % GROUP;
        let rank = lanes::best(isa, tree, &group.at[..tree.parts], &group.signatures, i, &keys[i], dead);
        verdicts[i] = tree.verdict((rank != NONE).then_some(rank));
    }
}

/// Looks up whole registers of keys in groups, and the last keys as [`lanes`] does.
#[inline(always)]
pub(super) fn lookup_batch<const W: usize>(
    isa: Avx512,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    let mut whole = 0;
    // Of longer keys one does not fit into a register: nothing of this is compiled for them.
    if const { W <= LANES } && tree.records.len() > 0 && keys.len() >= LANES {
        whole = keys.len() / LANES * LANES;
        let mut state = Group::NEW;
        for (keys, verdicts) in keys[..whole].chunks(GROUP).zip(verdicts[..whole].chunks_mut(GROUP)) {
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
            unsafe { group(isa, tree, &mut state, keys, verdicts, dead) }
        }
    }
    lanes::lookup_batch(isa, tree, &keys[whole..], &mut verdicts[whole..], dead);
}
