//! Plain packets eight at a time: their first words transposed in registers, and all that is asked of them
//! asked of eight at once.

use std::arch::x86_64::*;

use super::{BATCH_MAX, Batch, Decapsulated, Decapsulator};
use crate::hash::multilinear::FOLD;
use crate::packet::Network;
use crate::packet::tunnel::Inner;
use crate::tunnel::TunnelKind;
use crate::tunnel::cache::Keys;
use crate::tunnel::endpoint::{V4Key, tag};
use crate::tunnel::plain::{OUTER_BYTES, PLAIN_BYTES, PLAIN_WORDS, Plain, Wanted};

/// Frames that are worked on together.
const LANES: usize = 8;

/// The whole node.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn decapsulate(node: &mut Decapsulator, batch: Batch<'_>, out: &mut Decapsulated) {
    node.whole_batch(
        batch,
        out,
        |plain: &Plain, multipliers: &V4Key, batch: Batch<'_>, keys: &mut Keys, out: &mut Decapsulated| {
            read_plain(plain, multipliers, batch, keys, out)
        },
    );
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn read_plain(
    plain: &Plain,
    multipliers: &V4Key,
    batch: Batch<'_>,
    keys: &mut Keys,
    out: &mut Decapsulated,
) -> u64 {
    // Zeros are no plain packet: they replace a frame that has fewer bytes behind its IPv4 header.
    let zeros = [0u8; PLAIN_BYTES];
    let mut starts = [zeros.as_ptr(); BATCH_MAX];
    for (lane, (frame, headers)) in batch.frames.iter().zip(batch.headers).enumerate() {
        let at = usize::from(headers.l3);
        let there = (headers.network == Network::Ipv4)
            & headers.malformed.is_none()
            & (frame.len() >= at + PLAIN_BYTES);
        let start = frame.as_ptr().wrapping_add(at);
        starts[lane] = if there { start } else { zeros.as_ptr() };
        out.inner_at[lane] = headers.l3.wrapping_add(OUTER_BYTES as u16);
    }
    let mut is_plain = 0;
    let groups = batch.frames.len().div_ceil(LANES);
    for (group, starts) in starts.as_chunks::<LANES>().0.iter().enumerate().take(groups) {
        // SAFETY: each begins 40 bytes of a frame, or of zeros.
        let words = unsafe { transposed(starts) };
        is_plain |=
            u64::from(judge(plain, multipliers, batch.vrf, &words, keys, out, group)) << (group * LANES);
    }
    out.inner.fill(Inner::Ethernet);
    is_plain & batch.live
}

/// Returns the words 0 to 4 of eight packets.
///
/// # Safety
/// Each begins [`PLAIN_BYTES`] readable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn transposed(starts: &[*const u8; LANES]) -> [__m512i; PLAIN_WORDS] {
    let row = |lane: usize| {
        // SAFETY: by the caller's promise; only 40 bytes are read.
        unsafe { _mm512_maskz_loadu_epi64(0x1f, starts[lane].cast()) }
    };
    // Of two packets: words 0, 2 and 4 of both, side by side; and words 1 and 3.
    let pair = |lane: usize| {
        let (a, b) = (row(lane), row(lane + 1));
        (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
    };
    let [(even0, odd0), (even1, odd1), (even2, odd2), (even3, odd3)] = [pair(0), pair(2), pair(4), pair(6)];
    // Of four: the first two 128-bit parts of each.
    let (even01, even23) =
        (_mm512_shuffle_i64x2::<0x44>(even0, even1), _mm512_shuffle_i64x2::<0x44>(even2, even3));
    let (odd01, odd23) = (_mm512_shuffle_i64x2::<0x44>(odd0, odd1), _mm512_shuffle_i64x2::<0x44>(odd2, odd3));
    let (last01, last23) =
        (_mm512_shuffle_i64x2::<0xaa>(even0, even1), _mm512_shuffle_i64x2::<0xaa>(even2, even3));
    [
        _mm512_shuffle_i64x2::<0x88>(even01, even23),
        _mm512_shuffle_i64x2::<0x88>(odd01, odd23),
        _mm512_shuffle_i64x2::<0xdd>(even01, even23),
        _mm512_shuffle_i64x2::<0xdd>(odd01, odd23),
        _mm512_shuffle_i64x2::<0x88>(last01, last23),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn splat(value: u64) -> __m512i {
    _mm512_set1_epi64(value.cast_signed())
}

/// Adds [`Wanted::wrong`] of every lane to the bits that were wrong before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn wrong(before: __m512i, wanted: Wanted, word: __m512i) -> __m512i {
    // (word ^ value) & bits
    let here = _mm512_ternarylogic_epi64::<0x60>(splat(wanted.bits), word, splat(wanted.value));
    _mm512_or_si512(before, here)
}

/// Which of eight packets are plain. Writes what they are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn judge(
    plain: &Plain,
    multipliers: &V4Key,
    vrf: u32,
    words: &[__m512i; PLAIN_WORDS],
    keys: &mut Keys,
    out: &mut Decapsulated,
    group: usize,
) -> u8 {
    let network = wrong(_mm512_setzero_si512(), plain.network[0], words[0]);
    let network = wrong(network, plain.network[1], words[1]);
    let mut good = _mm512_testn_epi64_mask(network, network);
    if plain.verify_ipv4_checksum {
        good &= checksum_is_right(words);
    }
    let udp_len = _mm512_and_si512(swapped16(words[3]), splat(0xffff));
    good &= _mm512_cmpge_epu64_mask(udp_len, splat(16));
    let (mut is_plain, mut tags) = (0, _mm512_setzero_si512());
    for stack in &plain.stacks {
        let differs = wrong(wrong(_mm512_setzero_si512(), stack.ports, words[2]), stack.tunnel, words[3]);
        let fits = _mm512_mask_testn_epi64_mask(good & !is_plain, differs, differs);
        tags = _mm512_mask_mov_epi64(tags, fits, splat(u64::from(tag(stack.kind, vrf)) << 32));
        is_plain |= fits;
        if is_plain == good {
            break;
        }
    }
    // Source and destination; id and tag.
    let addresses = _mm512_or_si512(_mm512_srli_epi64::<32>(words[1]), _mm512_slli_epi64::<32>(words[2]));
    let ids = _mm512_and_si512(words[4], splat(0x00ff_ffff));
    let ids_tags = _mm512_or_si512(ids, tags);
    let at = group * LANES;
    let hash = hash(multipliers, addresses, ids_tags);
    let inner_len = _mm512_sub_epi64(udp_len, splat(16));
    let kinds = _mm512_cvtepi64_epi8(_mm512_srli_epi64::<32>(tags));
    let first = _mm512_permutex2var_epi64(addresses, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), ids_tags);
    let last = _mm512_permutex2var_epi64(addresses, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), ids_tags);
    // SAFETY: a group is within the arrays of 64: eight keys of 16 bytes, hashes and ids of 4, lengths of 2.
    unsafe {
        let rows: *mut V4Key = keys.keys[at..at + LANES].as_mut_ptr();
        _mm512_storeu_si512(rows.cast(), first);
        _mm512_storeu_si512(rows.add(4).cast(), last);
        _mm256_storeu_si256(keys.hashes[at..at + LANES].as_mut_ptr().cast(), hash);
        _mm256_storeu_si256(out.ids[at..at + LANES].as_mut_ptr().cast(), numbers(ids));
        _mm_storeu_si128(out.inner_len[at..at + LANES].as_mut_ptr().cast(), _mm512_cvtepi64_epi16(inner_len));
    }
    write_kinds(is_plain, kinds, &mut out.kinds[at..at + LANES]);
    is_plain
}

/// The kinds of the packets of a group that are plain, which are those of their tags' lowest bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn write_kinds(is_plain: u8, tags: __m128i, kinds: &mut [TunnelKind]) {
    assert!(kinds.len() == LANES);
    // SAFETY: eight kinds of a byte each; only those of plain packets are written, whose tags were made of kinds.
    unsafe { _mm_mask_storeu_epi8(kinds.as_mut_ptr().cast(), is_plain.into(), tags) };
}

/// VNIs as numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn numbers(ids: __m512i) -> __m256i {
    // Bytes 2, 1, 0 of each become bytes 0, 1, 2; the fourth is zero already.
    let order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 1, 0, 3, 6, 5, 4, 7, 10, 9, 8, 11, 14, 13, 12, 15));
    _mm256_shuffle_epi8(_mm512_cvtepi64_epi32(ids), order)
}

/// Returns the lowest 16 bits of each lane in the other byte order; others change, too.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn swapped16(words: __m512i) -> __m512i {
    _mm512_or_si512(_mm512_srli_epi16::<8>(words), _mm512_slli_epi16::<8>(words))
}

/// [`checksum_is_right`](crate::tunnel::plain::checksum_is_right).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn checksum_is_right(words: &[__m512i; PLAIN_WORDS]) -> u8 {
    let low = splat(0xffff_ffff);
    let halves = |word| _mm512_add_epi64(_mm512_and_si512(word, low), _mm512_srli_epi64::<32>(word));
    let sum = _mm512_add_epi64(halves(words[0]), halves(words[1]));
    let sum = _mm512_add_epi64(sum, _mm512_and_si512(words[2], low));
    let low = splat(0xffff);
    // Below 5 · 2³²: three folds leave 16 bits.
    let middle = _mm512_and_si512(_mm512_srli_epi64::<16>(sum), low);
    let sum =
        _mm512_add_epi64(_mm512_add_epi64(_mm512_and_si512(sum, low), middle), _mm512_srli_epi64::<32>(sum));
    let fold = |sum| _mm512_add_epi64(_mm512_and_si512(sum, low), _mm512_srli_epi64::<16>(sum));
    _mm512_cmpeq_epi64_mask(fold(fold(sum)), low)
}

/// [`hash`](crate::tunnel::plain::hash) of eight keys.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn hash(multipliers: &V4Key, addresses: __m512i, ids_tags: __m512i) -> __m256i {
    let term = |w: usize, word| _mm512_mul_epu32(word, splat(multipliers[w].into()));
    let sum = _mm512_add_epi64(
        _mm512_add_epi64(term(0, addresses), term(1, _mm512_srli_epi64::<32>(addresses))),
        _mm512_add_epi64(term(2, ids_tags), term(3, _mm512_srli_epi64::<32>(ids_tags))),
    );
    let folded = _mm512_cvtepi64_epi32(_mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum)));
    let folded = _mm256_mullo_epi32(folded, _mm256_set1_epi32(FOLD.cast_signed()));
    _mm256_xor_si256(folded, _mm256_srli_epi32::<15>(folded))
}
