//! The paper's data flow with 16 lanes that are refilled as their keys are decided, in three variants that differ in
//! how lanes are refilled and survivors packed.

use std::arch::x86_64::*;
use std::mem::transmute;
use std::sync::LazyLock;

use flowlane::bloom::Bits;
use flowlane::bloom::avx512::{murmur3, prefetch, test};
use flowlane::isa::Avx512;

use super::batch::{Batch, Out, Survive, in_flight, rest};

const LANES: usize = 16;

/// Values of `HOW` in [`survive`].
const TABLE: u8 = 0;
const EXPAND_LOAD: u8 = 1;
const REGISTER: u8 = 2;

/// With a table of permutations.
pub(super) struct Table(pub(super) Avx512);
/// With `vpexpandd` from memory and `vpcompressd` to memory.
pub(super) struct ExpandLoad(pub(super) Avx512);
/// With full loads and stores, expanded and compressed in registers.
pub(super) struct Register(pub(super) Avx512);

impl Survive for Table {
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        unsafe { survive::<TABLE, U, PREFETCH>(bits, batch.keys, batch.payloads, &mut batch.out) }
    }
}

impl Survive for ExpandLoad {
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        unsafe { survive::<EXPAND_LOAD, U, PREFETCH>(bits, batch.keys, batch.payloads, &mut batch.out) }
    }
}

impl Survive for Register {
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        unsafe { survive::<REGISTER, U, PREFETCH>(bits, batch.keys, batch.payloads, &mut batch.out) }
    }
}

/// For each set of lanes, the permutation that moves them to the front in order, followed by the others.
static PERMUTATIONS: LazyLock<Box<[[u8; LANES]]>> = LazyLock::new(|| {
    let permutation = |set: usize| {
        let mut lanes = [0u8; LANES];
        let members = (0..LANES).filter(|l| set >> l & 1 == 1);
        let others = (0..LANES).filter(|l| set >> l & 1 == 0);
        lanes.iter_mut().zip(members.chain(others)).for_each(|(to, lane)| *to = lane as u8);
        lanes
    };
    (0..1 << LANES).map(permutation).collect()
});

/// The keys under test, one in each lane.
#[derive(Clone, Copy)]
struct Lanes {
    keys: __m512i,
    payloads: __m512i,
    /// The index of the hash function to test next.
    index: __m512i,
    /// The lanes whose key is decided.
    done: __mmask16,
}

/// Tests the batch in `U` parts, each with 16 lanes of its own.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn survive<const HOW: u8, const U: usize, const PREFETCH: bool>(
    bits: Bits<'_>,
    keys: &[u32],
    payloads: &[u32],
    out: &mut Out<'_>,
) {
    let table: &[[u8; LANES]] = if HOW == TABLE { &PERMUTATIONS } else { &[] };
    let part = keys.len() / U;
    let mut at = [0; U];
    let mut end = [0; U];
    for u in 0..U {
        at[u] = u * part;
        end[u] = if u + 1 == U { keys.len() } else { (u + 1) * part };
    }
    let zero = _mm512_setzero_si512();
    let mut lanes = [Lanes { keys: zero, payloads: zero, index: zero, done: !0 }; U];
    // SAFETY: `seeds` has 16 words.
    let seeds = unsafe { _mm512_loadu_si512(bits.seeds().as_ptr().cast()) };
    let hashes = _mm512_set1_epi32(bits.hashes() as i32);

    // Every part can refill all of its lanes.
    while (0..U).all(|u| at[u] + LANES <= end[u]) {
        let mut hash = [zero; U];
        for u in 0..U {
            // SAFETY: 16 keys and payloads lie from `at[u]` on: the loop's condition. Lanes that stay were filled with
            // keys of this part before `at[u]`. The table is whole where `HOW` asks for it.
            unsafe { refill::<HOW>(table, &mut lanes[u], keys, payloads, &mut at[u]) };
            hash[u] = murmur3(lanes[u].keys, _mm512_permutexvar_epi32(lanes[u].index, seeds));
            if PREFETCH {
                prefetch(bits, hash[u]);
            }
        }
        for u in 0..U {
            let hit = test(bits, hash[u], !0);
            let index = _mm512_add_epi32(lanes[u].index, _mm512_set1_epi32(1));
            let passed = _mm512_mask_cmpeq_epi32_mask(hit, index, hashes);
            lanes[u].done = !hit | passed;
            lanes[u].index = _mm512_maskz_mov_epi32(!lanes[u].done, index);
            // SAFETY: the 16 keys of these lanes are not among the survivors yet, and there is room for every key of
            // the batch, so there is room for 16 more. The table is complete if `HOW` needs it.
            unsafe { pack::<HOW>(table, &lanes[u], passed, out) };
        }
    }
    for Lanes { keys, payloads, done, .. } in lanes {
        // SAFETY: a register is 16 words.
        let [keys, payloads]: [[u32; LANES]; 2] = unsafe { transmute([keys, payloads]) };
        in_flight(bits, keys, payloads, done, out);
    }
    for u in 0..U {
        let (keys, payloads) = (&keys[at[u]..end[u]], &payloads[at[u]..end[u]]);
        if U > 1 && keys.len() >= LANES {
            survive::<HOW, 1, PREFETCH>(bits, keys, payloads, out);
        } else {
            rest(bits, keys, payloads, out);
        }
    }
}

/// Refills each decided lane with the next key from `at` on.
///
/// # Safety
/// At least 16 keys and payloads follow `at`, and at least as many precede it as there are undecided lanes. With
/// [`TABLE`] the table is [`PERMUTATIONS`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn refill<const HOW: u8>(
    table: &[[u8; LANES]],
    lanes: &mut Lanes,
    keys: &[u32],
    payloads: &[u32],
    at: &mut usize,
) {
    let Lanes { done, .. } = *lanes;
    let fresh = done.count_ones() as usize;
    // SAFETY: the caller's promise.
    unsafe {
        let (key, payload) = (keys.as_ptr().add(*at), payloads.as_ptr().add(*at));
        match HOW {
            EXPAND_LOAD => {
                lanes.keys = _mm512_mask_expandloadu_epi32(lanes.keys, done, key.cast());
                lanes.payloads = _mm512_mask_expandloadu_epi32(lanes.payloads, done, payload.cast());
            }
            REGISTER => {
                let (key, payload) = (_mm512_loadu_si512(key.cast()), _mm512_loadu_si512(payload.cast()));
                lanes.keys = _mm512_mask_expand_epi32(lanes.keys, done, key);
                lanes.payloads = _mm512_mask_expand_epi32(lanes.payloads, done, payload);
            }
            _ => {
                // Undecided lanes move to the front. New keys are loaded from an address before `at`, so that they
                // land in the lanes behind without another permutation. In the first round no lane is undecided, and
                // 16 keys precede `at`.
                let stay = LANES - fresh;
                let order = permutation(table, !done);
                let behind = (!0u32 << stay) as __mmask16;
                let (key, payload) = (key.sub(stay), payload.sub(stay));
                let (old, old_payloads) = (permute(order, lanes.keys), permute(order, lanes.payloads));
                lanes.keys = _mm512_mask_loadu_epi32(old, behind, key.cast());
                lanes.payloads = _mm512_mask_loadu_epi32(old_payloads, behind, payload.cast());
                lanes.index = permute(order, lanes.index);
            }
        }
    }
    *at += fresh;
}

/// Appends the lanes of `passed` to the survivors.
///
/// # Safety
/// There is room for 16 more survivors. With [`TABLE`] the table is [`PERMUTATIONS`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack<const HOW: u8>(table: &[[u8; LANES]], lanes: &Lanes, passed: __mmask16, out: &mut Out<'_>) {
    let Lanes { keys, payloads, .. } = *lanes;
    // SAFETY: the caller's promise.
    unsafe {
        let (to, to_payloads) = (out.keys.as_mut_ptr().add(out.len), out.payloads.as_mut_ptr().add(out.len));
        match HOW {
            EXPAND_LOAD if passed != 0 => {
                _mm512_mask_compressstoreu_epi32(to.cast(), passed, keys);
                _mm512_mask_compressstoreu_epi32(to_payloads.cast(), passed, payloads);
            }
            REGISTER => {
                // Merge masking, since zero masking waits for the old value of its target on Zen 4 and 5.
                _mm512_storeu_si512(to.cast(), _mm512_mask_compress_epi32(keys, passed, keys));
                let payloads = _mm512_mask_compress_epi32(payloads, passed, payloads);
                _mm512_storeu_si512(to_payloads.cast(), payloads);
            }
            TABLE if passed != 0 => {
                let order = permutation(table, passed);
                _mm512_storeu_si512(to.cast(), permute(order, keys));
                _mm512_storeu_si512(to_payloads.cast(), permute(order, payloads));
            }
            _ => {}
        }
    }
    out.len += passed.count_ones() as usize;
}

/// # Safety
/// The table has an entry for every value of 16 bits.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn permutation(table: &[[u8; LANES]], first: __mmask16) -> __m512i {
    // SAFETY: the caller's promise; an entry has 16 bytes.
    let entry = unsafe { _mm_loadu_si128(table.as_ptr().add(first.into()).cast()) };
    _mm512_cvtepu8_epi32(entry)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn permute(order: __m512i, lanes: __m512i) -> __m512i {
    _mm512_permutexvar_epi32(order, lanes)
}
