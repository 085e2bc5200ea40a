//! The batch with NEON: primary buckets are compared for eight keys at a time, entries for four, and nothing branches on a single
//! key.

use std::arch::aarch64::*;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::BATCH_MAX;
use super::batch::{BucketOps, Stages, View, note_use};
use super::bucket::{Bucket, SLOTS};
use super::entry::{EntriesView, EntryAt};
use super::sync::{AtomicU32, fence};
use crate::hash::multilinear::{self, KEYS, KeyHash};
use crate::isa::Neon;
use crate::isa::simd::neon::add_neighbours;
use crate::isa::simd::{Quad, Registers};

/// Keys whose primary buckets are read between two fences: their signatures fill a register.
const TOGETHER: usize = 8;

/// Keys whose entries are compared at once.
const LANES: usize = 4;

/// Returns a bucket's signatures, and its filter and what else is there, in a register each.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
fn halves(_: Neon, bucket: &Bucket) -> [uint16x8_t; 2] {
    let (signatures, state);
    // SAFETY: the witness proves NEON. A bucket is 32 bytes that begin with the signatures. Beside a writer these are reads of atomics,
    // relaxed: `ldp` reads each aligned word of 64 bits at once (Arm Architecture Reference Manual, B2.2.1). In assembly, since
    // Rust has no atomics of this size: what the compiler sees is an opaque read.
    unsafe {
        std::arch::asm!("ldp {0:q}, {1:q}, [{2}]", out(vreg) signatures, out(vreg) state, in(reg) bucket,
            options(nostack, readonly, preserves_flags));
    }
    [signatures, state]
}

/// Returns a bucket's signatures and the rest, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
fn halves(_: Neon, bucket: &Bucket) -> [uint16x8_t; 2] {
    // SAFETY: the witness proves NEON; 16 bytes each.
    [bucket.signatures(), bucket.state()]
        .map(|half| unsafe { vreinterpretq_u16_u32(vld1q_u32(half.as_ptr())) })
}

/// Returns four words of an entry in one register.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
fn four_words(_: Neon, words: &[AtomicU32; 4]) -> uint32x4_t {
    let register;
    // SAFETY: the witness proves NEON; four words. Beside a writer this is a read of atomics, relaxed: `ld1` reads each aligned
    // element at once.
    unsafe {
        std::arch::asm!("ld1 {{{0:v}.4s}}, [{1}]", out(vreg) register, in(reg) words,
            options(nostack, readonly, preserves_flags));
    }
    register
}

/// Returns four words of an entry in one register, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
fn four_words(_: Neon, words: &[AtomicU32; 4]) -> uint32x4_t {
    let words: [u32; 4] = std::array::from_fn(|i| words[i].load(Relaxed));
    // SAFETY: the witness proves NEON; four words.
    unsafe { vld1q_u32(words.as_ptr()) }
}

impl BucketOps for Neon {
    #[inline(always)]
    fn hash_keys<const W: usize>(self, hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], hashes: &mut [u32; KEYS]) {
        // SAFETY: the witness proves that the CPU has NEON; so below.
        unsafe { multilinear::neon::hash_keys(hash, keys, hashes) };
    }

    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        let [signatures, _] = halves(self, bucket);
        // SAFETY: as above; eight weights. Each lane has a bit of its own, so that the sum is their union.
        unsafe {
            let equal = vceqq_u16(signatures, vdupq_n_u16(signature));
            let weights = vld1q_u16([1, 2, 4, 8, 16, 32, 64, 128].as_ptr());
            vaddvq_u16(vandq_u16(equal, weights)).into()
        }
    }

    #[inline(always)]
    fn nonzero(self, slots: &[u8; BATCH_MAX]) -> u64 {
        // SAFETY: as above; sixteen bytes each.
        unsafe {
            let weights = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            let part = |at: usize| {
                let slots = vld1q_u8(slots[16 * at..][..16].as_ptr());
                vandq_u8(vtstq_u8(slots, slots), weights)
            };
            // Neighbours are added until a byte has the bits of eight.
            let add = |a, b| add_neighbours(self, a, b);
            let all = add(add(part(0), part(1)), add(part(2), part(3)));
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(add(all, all)))
        }
    }

    #[inline(always)]
    fn primaries<const W: usize>(self, view: View<'_, W>, stages: &mut Stages, len: usize) {
        // SAFETY: as above.
        unsafe { primaries(self, view, stages, len) }
    }

    #[inline(always)]
    fn entries<const W: usize>(
        self,
        view: View<'_, W>,
        keys: &[[u32; W]],
        used: Option<u64>,
        values: &mut [u32],
        stages: &mut Stages,
        later: u64,
    ) -> u64 {
        // SAFETY: as above.
        let hits = unsafe { entries(self, view, keys, values, stages, stages.candidates | later) };
        note_use(view, used, hits, stages);
        hits
    }
}

/// Returns the slots with the key's signature for each of eight buckets: a bit each, a byte a bucket.
#[inline]
#[target_feature(enable = "neon")]
fn slots(isa: Neon, signatures: [uint16x8_t; TOGETHER], wanted: uint16x8_t) -> uint8x8_t {
    let weights = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let wanted = [
        vdupq_laneq_u16::<0>(wanted),
        vdupq_laneq_u16::<1>(wanted),
        vdupq_laneq_u16::<2>(wanted),
        vdupq_laneq_u16::<3>(wanted),
        vdupq_laneq_u16::<4>(wanted),
        vdupq_laneq_u16::<5>(wanted),
        vdupq_laneq_u16::<6>(wanted),
        vdupq_laneq_u16::<7>(wanted),
    ];
    let equal = |i: usize| vreinterpretq_u8_u16(vceqq_u16(signatures[i], wanted[i]));
    let two = |i: usize| vandq_u8(vuzp1q_u8(equal(i), equal(i + 1)), weights);
    // Neighbours are added until a byte has the bits of a bucket.
    let add = |a, b| add_neighbours(isa, a, b);
    let all = add(add(two(0), two(2)), add(two(4), two(6)));
    vget_low_u8(add(all, all))
}

/// Returns ones for each of eight keys whose bit is set in the filter of its bucket, which begins the bucket's second half.
#[inline]
#[target_feature(enable = "neon")]
fn may_have_moved(states: [uint16x8_t; TOGETHER], signatures: uint16x8_t) -> uint8x8_t {
    // Shifts by negative numbers go to the right.
    let bits = vnegq_s16(vreinterpretq_s16_u16(vshrq_n_u16::<10>(signatures)));
    let [low, high] = [vmovl_s16(vget_low_s16(bits)), vmovl_high_s16(bits)];
    let two = |i: usize, bits: int32x2_t| {
        let [a, b] = [states[i], states[i + 1]].map(|state| vreinterpretq_u64_u16(state));
        vreinterpretq_u32_u64(vshlq_u64(vzip1q_u64(a, b), vmovl_s32(bits)))
    };
    let first = vuzp1q_u32(two(0, vget_low_s32(low)), two(2, vget_high_s32(low)));
    let second = vuzp1q_u32(two(4, vget_low_s32(high)), two(6, vget_high_s32(high)));
    let all = vuzp1q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(second));
    vtst_u8(vmovn_u16(all), vdup_n_u8(1))
}

/// Returns the places of the candidates' entries, from their buckets and the slots with their signatures; that of others is the first,
/// which is always cached.
#[inline]
#[target_feature(enable = "neon")]
fn places<const W: usize>(buckets: &[u32; TOGETHER], slots: uint8x8_t) -> [EntryAt; TOGETHER] {
    let in_bucket: [u8; 2 * SLOTS] = const {
        let mut places = [0; 2 * SLOTS];
        let mut slot = 0;
        while slot < SLOTS {
            assert!(EntriesView::<W>::PLACES[slot] <= u8::MAX as u32);
            places[slot] = EntriesView::<W>::PLACES[slot] as u8;
            slot += 1;
        }
        places
    };
    // The lowest slot; the number after the last where there is none.
    let slot = vclz_u8(vrbit_u8(slots));
    // SAFETY: sixteen bytes.
    let in_bucket = vmovl_u8(vqtbl1_u8(unsafe { vld1q_u8(in_bucket.as_ptr()) }, slot));
    let found = vmovl_s8(vreinterpret_s8_u8(vtst_u8(slots, slots)));
    let four = |at: usize, in_bucket: uint16x4_t, found: int16x4_t| {
        let in_bucket = vmovl_u16(in_bucket);
        // SAFETY: four buckets.
        let buckets = unsafe { vld1q_u32(buckets[at..][..4].as_ptr()) };
        let buckets = vandq_u32(buckets, vreinterpretq_u32_s32(vmovl_s16(found)));
        let stride = EntriesView::<W>::STRIDE as u32;
        [
            vmlal_n_u32(vmovl_u32(vget_low_u32(in_bucket)), vget_low_u32(buckets), stride),
            vmlal_n_u32(vmovl_high_u32(in_bucket), vget_high_u32(buckets), stride),
        ]
    };
    let [a, b] = four(0, vget_low_u16(in_bucket), vget_low_s16(found));
    let [c, d] = four(4, vget_high_u16(in_bucket), vget_high_s16(found));
    let mut places = [0; TOGETHER];
    for (two, to) in [a, b, c, d].into_iter().zip(places.as_chunks_mut::<2>().0) {
        // SAFETY: two numbers of 64 bits.
        unsafe { vst1q_u64(to.as_mut_ptr().cast(), two) };
    }
    places
}

/// [`BucketOps::primaries`], without a branch on a key.
#[inline]
#[target_feature(enable = "neon")]
fn primaries<const W: usize>(isa: Neon, view: View<'_, W>, stages: &mut Stages, len: usize) {
    let mut moved = [0; BATCH_MAX];
    // Versions only grow: a sum that is the same is that of the same versions.
    let (mut before, mut after, mut odd) = (vdupq_n_u32(0), 0u32, vdupq_n_u32(0));
    for group in 0..len.div_ceil(TOGETHER) {
        let at = &stages.buckets.as_chunks::<TOGETHER>().0[group];
        let wanted = &stages.signatures.as_chunks::<TOGETHER>().0[group];
        // SAFETY: the geometry gives buckets of the table only.
        let buckets = at.map(|at| unsafe { view.buckets.get_unchecked(at as usize) });
        stages.versions.as_chunks_mut::<TOGETHER>().0[group] = buckets.map(|bucket| bucket.version_relaxed());
        // All versions before all that is read of the buckets, and that before the versions again.
        fence(Acquire);
        let read = buckets.map(|bucket| halves(isa, bucket));
        fence(Acquire);
        after = buckets.into_iter().fold(after, |sum, bucket| sum.wrapping_add(bucket.version_relaxed()));
        for versions in stages.versions.as_chunks::<TOGETHER>().0[group].as_chunks::<LANES>().0 {
            let versions = isa.load(versions);
            (before, odd) = (vaddq_u32(before, versions), vorrq_u32(odd, versions));
        }
        // SAFETY: eight numbers of 16 bits.
        let signatures = unsafe { vld1q_u16(wanted.as_ptr()) };
        let slots = slots(isa, read.map(|[signatures, _]| signatures), signatures);
        let may_have_moved = may_have_moved(read.map(|[_, state]| state), signatures);
        // SAFETY: eight bytes each.
        unsafe {
            vst1_u8(stages.slots.as_chunks_mut::<TOGETHER>().0[group].as_mut_ptr(), slots);
            vst1_u8(moved.as_chunks_mut::<TOGETHER>().0[group].as_mut_ptr(), may_have_moved);
        }
        let places = places::<W>(at, slots);
        places.iter().for_each(|place| view.entries.prefetch(*place));
        stages.entries.as_chunks_mut::<TOGETHER>().0[group] = places;
    }
    let all = u64::MAX >> (BATCH_MAX - len);
    stages.candidates = all & isa.nonzero(&stages.slots);
    // As in the portable kernel: misses are decided here.
    let changed = vaddvq_u32(before) != after || isa.any(vtstq_u32(odd, vdupq_n_u32(1)));
    stages.again = if changed { all & !stages.candidates } else { 0 };
    stages.alternates = all & isa.nonzero(&moved) & !stages.candidates & !stages.again;
}

/// Loads a word into each lane.
#[cfg(not(any(all(loom, test), miri)))]
#[inline(always)]
fn lanes(_: Neon, [a, b, c, d]: [&AtomicU32; LANES]) -> uint32x4_t {
    let register;
    // SAFETY: the witness proves NEON; four aligned words. Beside a writer these are reads of atomics, relaxed. In assembly, since
    // the compiler would load atomics into general registers first.
    unsafe {
        std::arch::asm!(
            "ldr {0:s}, [{1}]",
            "ld1 {{{0:v}.s}}[1], [{2}]",
            "ld1 {{{0:v}.s}}[2], [{3}]",
            "ld1 {{{0:v}.s}}[3], [{4}]",
            out(vreg) register, in(reg) a, in(reg) b, in(reg) c, in(reg) d,
            options(nostack, readonly, preserves_flags));
    }
    register
}

/// Loads a word into each lane, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
fn lanes(isa: Neon, words: [&AtomicU32; LANES]) -> uint32x4_t {
    isa.words(words.map(|word| word.load(Relaxed)))
}

/// Returns not 0 in a lane where an entry has another key.
#[inline]
#[target_feature(enable = "neon")]
fn differences<const W: usize>(
    isa: Neon,
    entries: [&[AtomicU32]; LANES],
    keys: &[[u32; W]; LANES],
) -> uint32x4_t {
    if W < 4 {
        return (0..W).fold(vdupq_n_u32(0), |all, w| {
            let wanted = isa.words(keys.each_ref().map(|key| key[w]));
            vorrq_u32(all, veorq_u32(lanes(isa, entries.map(|words| &words[w])), wanted))
        });
    }
    let one = |lane: usize| {
        let different = |at: usize| {
            let stored = entries[lane][at..].first_chunk().expect("four words from here on");
            veorq_u32(four_words(isa, stored), isa.load(&keys[lane][at..]))
        };
        // The last four, which may be counted twice, and all before them.
        (0..W - 4).step_by(4).fold(different(W - 4), |all, at| vorrq_u32(all, different(at)))
    };
    // Largest neighbours, until a lane has those of an entry.
    vpmaxq_u32(vpmaxq_u32(one(0), one(1)), vpmaxq_u32(one(2), one(3)))
}

/// [`BucketOps::entries`], without noting uses.
#[inline]
#[target_feature(enable = "neon")]
fn entries<const W: usize>(
    isa: Neon,
    view: View<'_, W>,
    keys: &[[u32; W]],
    values: &mut [u32],
    stages: &mut Stages,
    candidates: u64,
) -> u64 {
    let mut hits = 0;
    let mut four = |group: usize, keys: &[[u32; W]; LANES], values: &mut [u32; LANES]| {
        let [at, versions] =
            [&stages.buckets, &stages.versions].map(|all| &all.as_chunks::<LANES>().0[group]);
        // SAFETY: entries of the table's buckets; the geometry gives no other buckets.
        let stored = stages.entries.as_chunks::<LANES>().0[group]
            .map(|at| unsafe { view.entries.words_unchecked(at) });
        let different = differences(isa, stored, keys);
        let found = lanes(isa, stored.map(|words| &words[W]));
        fence(Acquire);
        // SAFETY: as above.
        let now = lanes(isa, at.map(|at| unsafe { view.buckets.get_unchecked(at as usize) }.version_word()));
        let before = isa.load(versions);
        let changed = vorrq_u32(veorq_u32(now, before), vandq_u32(before, vdupq_n_u32(1)));
        let wanted = vtstq_u32(vdupq_n_u32((candidates >> (LANES * group)) as u32), isa.words([1, 2, 4, 8]));
        let same = vandq_u32(vceqzq_u32(vorrq_u32(different, changed)), wanted);
        isa.store(isa.blend(same, found, isa.load(values)), values);
        hits |= u64::from(isa.bits(same)) << (LANES * group);
    };
    let (fours, rest) = keys.as_chunks::<LANES>();
    let (known, rest_values) = values.as_chunks_mut::<LANES>();
    for (group, (keys, values)) in fours.iter().zip(known).enumerate() {
        four(group, keys, values);
    }
    if !rest.is_empty() {
        // Lanes behind the last key are no candidates.
        let (mut keys, mut values) = ([[0; W]; LANES], [0; LANES]);
        keys[..rest.len()].copy_from_slice(rest);
        values[..rest.len()].copy_from_slice(rest_values);
        four(fours.len(), &keys, &mut values);
        rest_values.copy_from_slice(&values[..rest.len()]);
    }
    stages.again |= candidates & !hits;
    hits
}
