//! Plain packets in two steps: their words into columns, then loops over the columns that the compiler makes
//! lanes of.

use super::{BATCH_MAX, Batch, Decapsulated, Decapsulator};
use crate::packet::tunnel::Inner;
use crate::tunnel::cache::Keys;
use crate::tunnel::endpoint::{V4Key, tag};
use crate::tunnel::plain::{OUTER_BYTES, PLAIN_WORDS, Plain, checksum_is_right, hash, key, vni, words};

/// [`ReadPlain`](super::ReadPlain) in portable code.
#[inline(always)]
pub(super) fn read_plain(
    plain: &Plain,
    multipliers: &V4Key,
    batch: Batch<'_>,
    keys: &mut Keys,
    out: &mut Decapsulated,
) -> u64 {
    let mut columns = [[0u64; BATCH_MAX]; PLAIN_WORDS];
    for (lane, (frame, headers)) in batch.frames.iter().zip(batch.headers).enumerate() {
        // Zeros are no plain packet.
        let words = words(frame, headers).unwrap_or_default();
        for (column, word) in columns.iter_mut().zip(words) {
            column[lane] = word;
        }
        out.inner_at[lane] = headers.l3.wrapping_add(OUTER_BYTES as u16);
    }
    let column = |lane: usize| -> [u64; PLAIN_WORDS] { std::array::from_fn(|i| columns[i][lane]) };
    let mut good = [false; BATCH_MAX];
    for (lane, good) in good.iter_mut().enumerate() {
        let words = column(lane);
        let wrong = plain.network[0].wrong(words[0]) | plain.network[1].wrong(words[1]);
        let udp_len = (words[3] as u16).swap_bytes();
        let checksum = !plain.verify_ipv4_checksum | checksum_is_right(&words);
        *good = (wrong == 0) & (udp_len >= 16) & checksum;
        out.inner_len[lane] = udp_len.wrapping_sub(16);
    }
    let mut is_plain = 0;
    for stack in &plain.stacks {
        let mut fits = [false; BATCH_MAX];
        for (lane, fits) in fits.iter_mut().enumerate() {
            let wrong = stack.ports.wrong(columns[2][lane]) | stack.tunnel.wrong(columns[3][lane]);
            *fits = (wrong == 0) & good[lane];
        }
        let of_this = bits(&fits) & !is_plain;
        if of_this != 0 {
            let tag = tag(stack.kind, batch.vrf);
            for (lane, fits) in fits.iter().enumerate().take(batch.frames.len()) {
                if *fits {
                    keys.keys[lane] = key(&column(lane), tag);
                    out.kinds[lane] = stack.kind;
                }
            }
        }
        is_plain |= of_this;
    }
    for lane in 0..BATCH_MAX {
        keys.hashes[lane] = hash(multipliers, &keys.keys[lane]);
        out.ids[lane] = vni(keys.keys[lane][2]);
    }
    out.inner.fill(Inner::Ethernet);
    is_plain & batch.live
}

/// Returns a bit for each that is true.
#[inline(always)]
fn bits(of: &[bool; BATCH_MAX]) -> u64 {
    of.as_chunks::<8>().0.iter().rev().fold(0, |bits, eight| {
        let bytes = u64::from_le_bytes(eight.map(u8::from));
        // Gathers the lowest bits of eight bytes: the products do not meet.
        bits << 8 | bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}

/// The whole node under AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn avx2(node: &mut Decapsulator, batch: Batch<'_>, out: &mut Decapsulated) {
    node.whole_batch(
        batch,
        out,
        |plain: &Plain, multipliers: &V4Key, batch: Batch<'_>, keys: &mut Keys, out: &mut Decapsulated| {
            read_plain(plain, multipliers, batch, keys, out)
        },
    );
}
