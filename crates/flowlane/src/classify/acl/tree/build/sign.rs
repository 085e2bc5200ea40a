//! Which bits to tell the rules of a leaf apart by.
//!
//! For packets drawn from rules, and better rules in their leaves: each bit in which packet and rule differ rules it out.
//! Bits are taken one after the other, each the one that rules out most of the remaining candidates.

use super::one_of_every;
use super::ternary::Ternary;
use crate::classify::acl::tree::bits;

/// Bits of a signature.
const BITS: u32 = 32;

/// Most pairs of a packet and a rule, at a root and below, where rules are few and nodes may be thousands.
pub(super) const PAIRS_MAX: usize = 4096;
pub(super) const PAIRS_MAX_BELOW: usize = 256;

/// Draws a packet that `rule` may match; `state` decides its wild bits.
pub(super) fn packet<const W: usize>(rule: &Ternary<W>, state: &mut u64) -> [u32; W] {
    std::array::from_fn(|w| {
        // SplitMix64 (Steele, Lea, Flood 2014).
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        rule.value[w] | (z ^ z >> 31) as u32 & !rule.mask[w]
    })
}

/// Draws about this number of packets over all rules.
pub(super) fn packets<const W: usize>(rules: &[Ternary<W>], count: usize, seed: u64) -> Vec<[u32; W]> {
    let mut state = seed;
    one_of_every(rules.len().div_ceil(count), rules).map(|rule| packet(rule, &mut state)).collect()
}

/// The bits for a node where those of `told` are known otherwise: `packets` with their ranks, and `leaf_of` the rules where a packet ends.
pub(super) fn choose<'a, const W: usize>(
    rules: &[Ternary<W>],
    told: &[u32; W],
    packets: impl Iterator<Item = ([u32; W], u32)>,
    pairs_max: usize,
    leaf_of: impl Fn(&[u32; W]) -> &'a [u32],
) -> [u32; W] {
    let mut all: Vec<[u32; W]> = Vec::new();
    let mut seen = [0; W];
    for (packet, own) in packets {
        for &rank in leaf_of(&packet).iter().filter(|rank| **rank != own).take(64) {
            let rule = &rules[rank as usize];
            let differing: [u32; W] =
                std::array::from_fn(|w| (packet[w] ^ rule.value[w]) & rule.mask[w] & !told[w]);
            (0..W).for_each(|w| seen[w] |= rule.mask[w] & !told[w]);
            if bits::count(&differing) != 0 {
                all.push(differing);
            }
        }
        if all.len() >= pairs_max {
            break;
        }
    }
    let mut sign = [0; W];
    let mut left = all.clone();
    let mut differ = Differ::of(&left);
    while bits::count(&sign) < BITS {
        let places = (0..W).flat_map(|w| (0..32).map(move |b| (w, b)));
        let open = places.filter(|&(w, b)| sign[w] >> b & 1 == 0 && differ.0[w][b] > 0);
        match open.max_by_key(|&(w, b)| differ.0[w][b]) {
            Some((w, b)) => {
                sign[w] |= 1 << b;
                left.retain(|pair| {
                    let told = pair[w] >> b & 1 == 1;
                    if told {
                        differ.each_bit(pair, |count| *count -= 1);
                    }
                    !told
                });
            }
            // All are separated: once more, by other bits.
            None if left.len() < all.len() => {
                left.clone_from(&all);
                differ = Differ::of(&left);
            }
            None => break,
        }
    }
    fill(&mut sign, &seen);
    sign
}

/// How many pairs differ in each bit: kept up to date, since to count them all for each bit that is taken was most of what
/// building a tree of many nodes took.
struct Differ<const W: usize>([[u32; 32]; W]);

impl<const W: usize> Differ<W> {
    fn of(pairs: &[[u32; W]]) -> Self {
        let mut made = Self([[0; 32]; W]);
        pairs.iter().for_each(|pair| made.each_bit(pair, |count| *count += 1));
        made
    }

    fn each_bit(&mut self, pair: &[u32; W], change: impl Fn(&mut u32)) {
        for (differing, counts) in pair.iter().zip(&mut self.0) {
            let mut differing = *differing;
            while differing != 0 {
                change(&mut counts[differing.trailing_zeros() as usize]);
                differing &= differing - 1;
            }
        }
    }
}

/// Takes what else rules look at, while there is room.
fn fill<const W: usize>(sign: &mut [u32; W], seen: &[u32; W]) {
    for w in 0..W {
        for b in 0..32 {
            if bits::count(sign) < BITS && seen[w] >> b & 1 == 1 {
                sign[w] |= 1 << b;
            }
        }
    }
}
