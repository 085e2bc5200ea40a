//! Which bits to cut by: one after the other, each the one that tells most about which rules remain.
//!
//! A bucket of `n` rules costs `log2 n`, its remaining entropy. A bit parts it into those with 0, those
//! with 1, and wild ones, which go to both. Where a rule may not be copied any further, it is left to another part, which
//! costs a fixed number of bits.

use super::counts::{Counts, ROWS};
use super::ternary::Ternary;
use crate::classify::acl::tree::field::Field;

/// A bit must tell so much, in bits on the average over all rules.
const GAIN_MIN: f32 = 0.05;

pub(super) struct Limits {
    pub(super) bits_max: u32,
    /// Of all rules together.
    pub(super) copies_max: usize,
    /// The cost of a copy, in bits.
    pub(super) copy_bits: f32,
    /// Wild bits of a rule, from which on it is evicted; none: never.
    pub(super) wild_max: Option<u8>,
    /// The cost of an evicted rule, in bits.
    pub(super) eviction_bits: f32,
    /// Buckets of at most this number of rules are not cut further.
    pub(super) full: usize,
}

/// Bits, and which rules they are not for.
#[derive(Clone, Debug)]
pub(super) struct Cut<const W: usize> {
    pub(super) mask: [u32; W],
    /// Rules that tell too little about this field are left to another part.
    pub(super) field: Option<Field>,
    /// In the order in which they were chosen: the bit, and how many wild ones a rule might have had before.
    bits: Vec<(usize, usize, u8)>,
}

impl<const W: usize> Cut<W> {
    /// Returns whether each rule was evicted to another part on the way.
    pub(super) fn evicts(&self, rule: &Ternary<W>) -> bool {
        if self.field.is_some_and(|field| !field.is_told_by(rule)) {
            return true;
        }
        let mut wild = 0;
        self.bits.iter().any(|&(w, b, wild_max)| {
            let is_wild = rule.mask[w] >> b & 1 == 0;
            wild += u8::from(is_wild);
            is_wild && wild > wild_max
        })
    }
}

/// Rules on their way into buckets.
struct Cutting<'a, const W: usize> {
    rules: &'a [Ternary<W>],
    /// Which rules, bucket after bucket; only of buckets that are worth cutting.
    copies: Vec<u32>,
    ends: Vec<u32>,
    /// Which packets end there, likewise.
    packets: &'a [[u32; W]],
    visits: Vec<u32>,
    visit_ends: Vec<u32>,
    /// How many rules a packet weighs.
    weight: f32,
    /// Of each rule, how many bits of the cut are wild.
    wild: Vec<u8>,
    wild_max: u8,
    eviction_bits: f32,
    full: usize,
    /// All copies, those in finished buckets too.
    total: usize,
}

/// The effect of each bit.
struct Effects<const W: usize> {
    gain: [[f32; 32]; W],
    /// Copies more (or less).
    growth: [[f32; 32]; W],
}

/// A bucket, or the rules added to it, by bits: their number, and the number of values in each bit of a word.
struct Bucket {
    rules: f32,
    /// Rules that may still be copied.
    free: f32,
    /// Packets.
    visits: f32,
}

/// `log2` of a number from 1 on, less than 0.0001 beside it; of 0 some number.
#[inline(always)]
fn log2(x: f32) -> f32 {
    let bits = x.to_bits();
    let t = f32::from_bits(bits & 0x7f_ffff | 0x3f80_0000) - 1.0;
    let curve = ((-0.044_243_74 * t + 0.147_018_77) * t - 0.266_536_28) * t + 0.441_835_87;
    (bits >> 23) as i32 as f32 - 127.0 + t + t * (1.0 - t) * curve
}

/// How many of these words have each bit set.
#[inline(always)]
fn count<'a, const W: usize>(these: &[u32], words: impl Fn(u32) -> &'a [u32; W]) -> [[u32; 32]; W] {
    let mut counts = Counts::NONE;
    let (eights, rest) = these.as_chunks::<ROWS>();
    eights.iter().for_each(|eight| counts.add(eight.map(&words)));
    if !rest.is_empty() {
        counts.add(std::array::from_fn(|i| rest.get(i).map_or(&[0; W], |item| words(*item))));
    }
    counts.done()
}

impl<const W: usize> Cutting<'_, W> {
    fn effects(&self) -> Effects<W> {
        let mut effects = Effects { gain: [[0.0; 32]; W], growth: [[0.0; 32]; W] };
        let (mut start, mut visit) = (0, 0);
        for (&end, &visit_end) in self.ends.iter().zip(&self.visit_ends) {
            let bucket = &self.copies[start..end as usize];
            let visits = &self.visits[visit..visit_end as usize];
            (start, visit) = (end as usize, visit_end as usize);
            self.add_effects(bucket, visits, &mut effects);
        }
        effects
    }

    fn add_effects(&self, bucket: &[u32], visits: &[u32], effects: &mut Effects<W>) {
        let free = bucket.iter().filter(|rule| self.wild[**rule as usize] < self.wild_max).count();
        let ones = count(bucket, |rule| &self.rules[rule as usize].value);
        let told = count(bucket, |rule| &self.rules[rule as usize].mask);
        let told_free = match free {
            0 => [[0; 32]; W],
            _ if free == bucket.len() => told,
            _ => count(bucket, |rule| {
                if self.wild[rule as usize] < self.wild_max {
                    &self.rules[rule as usize].mask
                } else {
                    &[0; W]
                }
            }),
        };
        let set = count(visits, |packet| &self.packets[packet as usize]);
        let of = Bucket { rules: bucket.len() as f32, free: free as f32, visits: visits.len() as f32 };
        for w in 0..W {
            let (gain, growth) = (&mut effects.gain[w], &mut effects.growth[w]);
            self.add_effects_of(&of, [&ones[w], &told[w], &told_free[w], &set[w]], gain, growth);
        }
    }

    /// Adds what the bits of a word do in a bucket.
    fn add_effects_of(
        &self,
        bucket: &Bucket,
        [ones, told, told_free, set]: [&[u32; 32]; 4],
        gain: &mut [f32; 32],
        growth: &mut [f32; 32],
    ) {
        let &Bucket { rules, free, visits } = bucket;
        let bits = log2(rules);
        for i in 0..32 {
            let count = |of: &[u32; 32]| of[i] as i32 as f32;
            let (ones, told, told_free, set) = (count(ones), count(told), count(told_free), count(set));
            let (both, evicted) = (free - told_free, rules - free - (told - told_free));
            let (zero, one) = (told - ones + both, ones + both);
            let (zero_bits, one_bits) = (log2(zero), log2(one));
            let after = (rules - evicted) * (zero * zero_bits + one * one_bits) / (zero + one).max(1.0);
            // Empty buckets have no packets.
            let visited = |rules: f32, visits: f32, bits: f32| if rules > 0.0 { visits * bits } else { 0.0 };
            let left = visited(zero, visits - set, zero_bits) + visited(one, set, one_bits);
            gain[i] += 0.5 * (rules * bits - after + self.weight * (visits * bits - left))
                - evicted * self.eviction_bits;
            growth[i] += both - evicted;
        }
    }

    /// Cuts all buckets by a bit.
    fn cut(&mut self, (w, b): (usize, usize)) {
        let side = |of: &[u32; W]| ZERO << (of[w] >> b & 1);
        let sides = |(rule, wild): (&Ternary<W>, &u8)| match rule.mask[w] >> b & 1 {
            1 => side(&rule.value),
            _ if *wild < self.wild_max => ZERO | ONE,
            _ => 0,
        };
        let rules: Vec<u8> = self.rules.iter().zip(&self.wild).map(sides).collect();
        let packets: Vec<u8> = self.packets.iter().map(side).collect();
        let (mut copies, mut visits) =
            (Sides::with_room(self.copies.len()), Sides::with_room(self.visits.len()));
        let (mut ends, mut visit_ends) = (Vec::new(), Vec::new());
        let (mut start, mut visit) = (0, 0);
        for (&end, &visit_end) in self.ends.iter().zip(&self.visit_ends) {
            let bucket = &self.copies[start..end as usize];
            let visitors = &self.visits[visit..visit_end as usize];
            (start, visit) = (end as usize, visit_end as usize);
            let sizes = copies.part(bucket, &rules);
            self.total = self.total + sizes[0] + sizes[1] - bucket.len();
            let keep = sizes.map(|size| size > self.full);
            copies.keep(keep, &mut ends);
            if keep != [false; 2] {
                visits.part(visitors, &packets);
                visits.keep(keep, &mut visit_ends);
            }
        }
        for (rule, wild) in self.rules.iter().zip(&mut self.wild) {
            *wild = wild.saturating_add((rule.mask[w] >> b & 1 == 0).into());
        }
        (self.copies, self.ends) = (copies.items, ends);
        (self.visits, self.visit_ends) = (visits.items, visit_ends);
    }
}

/// The sides of a bit that have rules.
const ZERO: u8 = 1;
const ONE: u8 = 2;

/// The rules to part, bucket after bucket.
struct Sides {
    items: Vec<u32>,
    /// Where the last bucket's zeros begin.
    start: usize,
    ones: Vec<u32>,
}

impl Sides {
    fn with_room(items: usize) -> Self {
        Self { items: Vec::with_capacity(items + items / 4), start: 0, ones: Vec::new() }
    }

    /// Parts a bucket by the sides of its rules, and returns the number on each.
    fn part(&mut self, bucket: &[u32], sides: &[u8]) -> [usize; 2] {
        self.start = self.items.len();
        self.items.resize(self.start + bucket.len(), 0);
        self.ones.resize(self.ones.len().max(bucket.len()), 0);
        let (zeros, ones) = (&mut self.items[self.start..], &mut self.ones[..]);
        let (mut zero, mut one) = (0, 0);
        // Written in any case, so that nothing has to be guessed.
        for &item in bucket {
            let side = sides[item as usize];
            (zeros[zero], ones[one]) = (item, item);
            zero += usize::from(side & ZERO);
            one += usize::from(side / ONE);
        }
        self.items.truncate(self.start + zero);
        self.ones.truncate(one);
        [zero, one]
    }

    /// Goes on with the sides of the last bucket that are wanted.
    fn keep(&mut self, [zeros, ones]: [bool; 2], ends: &mut Vec<u32>) {
        if zeros {
            ends.push(self.items.len() as u32);
        } else {
            self.items.truncate(self.start);
        }
        if ones {
            self.items.extend_from_slice(&self.ones);
            ends.push(self.items.len() as u32);
        }
    }
}

/// The bits to cut `rules` by, where these packets come.
pub(super) fn choose<const W: usize>(rules: &[Ternary<W>], packets: &[[u32; W]], limits: &Limits) -> Cut<W> {
    let mut cut = Cut { mask: [0; W], field: None, bits: Vec::new() };
    if rules.len() <= limits.full {
        return cut;
    }
    let mut cutting = Cutting {
        rules,
        copies: (0..rules.len() as u32).collect(),
        ends: vec![rules.len() as u32],
        packets,
        visits: (0..packets.len() as u32).collect(),
        visit_ends: vec![packets.len() as u32],
        weight: rules.len() as f32 / packets.len().max(1) as f32,
        wild: vec![0; rules.len()],
        wild_max: limits.wild_max.unwrap_or(u8::MAX),
        eviction_bits: limits.eviction_bits,
        full: limits.full,
        total: rules.len(),
    };
    let mut seen = [0; W];
    rules.iter().for_each(|rule| (0..W).for_each(|w| seen[w] |= rule.mask[w]));
    while cut.bits.len() < limits.bits_max as usize && !cutting.ends.is_empty() {
        let effects = cutting.effects();
        let worth = |w: usize, b: usize| {
            let (gain, growth) = (effects.gain[w][b], effects.growth[w][b]);
            let fits = cutting.total as f32 + growth <= limits.copies_max as f32;
            if fits { gain - limits.copy_bits * growth.max(0.0) } else { f32::NEG_INFINITY }
        };
        let active = (0..W).flat_map(|w| (0..32).map(move |b| (w, b)));
        let active = active.filter(|&(w, b)| (seen[w] & !cut.mask[w]) >> b & 1 == 1);
        let best = active.map(|(w, b)| (w, b, worth(w, b))).max_by(|x, y| x.2.total_cmp(&y.2));
        let Some((w, b, _)) = best.filter(|best| best.2 >= GAIN_MIN * rules.len() as f32) else {
            // Perhaps there is one if fewer rules are copied, and more evicted.
            if limits.wild_max.is_none() || cutting.wild_max == 0 {
                break;
            }
            cutting.wild_max -= 1;
            continue;
        };
        cut.mask[w] |= 1 << b;
        cut.bits.push((w, b, cutting.wild_max));
        cutting.cut((w, b));
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::log2;

    #[test]
    fn logarithms_are_as_exact_as_they_say() {
        for n in (1..100_000).map(|n| n as f32) {
            assert!((log2(n) - n.log2()).abs() < 0.0001, "log2 {n}: {}", log2(n));
        }
    }
}
