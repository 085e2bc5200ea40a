//! Which bits to cut by: one after the other, each the one that tells most about which rules remain.
//!
//! A bucket of `n` rules costs `log2 n`: what is still to be found out there. A bit parts it into those with 0, those
//! with 1, and wild ones, which go to both. Where a rule may not be copied any further, it is left to another part, which
//! costs a fixed number of bits.

use super::field::Field;
use super::ternary::Ternary;

/// A bit must tell so much, in bits on the average over all rules.
const GAIN_MIN: f32 = 0.05;

pub(super) struct Limits {
    pub(super) bits_max: u32,
    /// Of all rules together.
    pub(super) copies_max: usize,
    /// What a copy costs, in bits.
    pub(super) copy_bits: f32,
    /// Wild bits of a rule, from which on it is evicted; none: never.
    pub(super) wild_max: Option<u8>,
    /// What a rule costs that is evicted, in bits.
    pub(super) eviction_bits: f32,
    /// Buckets of so many rules are not cut further.
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
    /// Whether a rule was left to another part on the way.
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

/// For each byte its bits as bytes.
static SPREAD: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[byte] |= (byte as u64 >> bit & 1) << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// How many of some words have each bit set.
struct Counts<const W: usize> {
    /// One byte each, for the last few.
    few: [[u64; 4]; W],
    many: [[u32; 32]; W],
    added: u32,
}

impl<const W: usize> Counts<W> {
    const NONE: Self = Self { few: [[0; 4]; W], many: [[0; 32]; W], added: 0 };

    #[inline(always)]
    fn add(&mut self, words: &[u32; W]) {
        if self.added == 255 {
            self.flush();
        }
        self.added += 1;
        for (few, word) in self.few.iter_mut().zip(words) {
            for (few, byte) in few.iter_mut().zip(word.to_le_bytes()) {
                *few += SPREAD[usize::from(byte)];
            }
        }
    }

    fn flush(&mut self) {
        for (few, many) in self.few.iter_mut().zip(&mut self.many) {
            let bytes = few.iter().flat_map(|eight| eight.to_le_bytes());
            many.iter_mut().zip(bytes).for_each(|(many, byte)| *many += u32::from(byte));
            *few = [0; 4];
        }
        self.added = 0;
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
    /// `n · log2 n`
    logs: Vec<f32>,
}

/// What a bit does.
#[derive(Clone, Copy, Default)]
struct Effect {
    gain: f32,
    /// Copies more (or less).
    growth: f32,
}

impl<const W: usize> Cutting<'_, W> {
    fn effects(&self, active: &[(usize, usize)]) -> Vec<Effect> {
        let mut effects = vec![Effect::default(); active.len()];
        let (mut start, mut visit) = (0, 0);
        for (&end, &visit_end) in self.ends.iter().zip(&self.visit_ends) {
            let bucket = &self.copies[start..end as usize];
            let visits = &self.visits[visit..visit_end as usize];
            (start, visit) = (end as usize, visit_end as usize);
            self.add_effects(bucket, visits, active, &mut effects);
        }
        effects
    }

    fn add_effects(&self, bucket: &[u32], visits: &[u32], active: &[(usize, usize)], effects: &mut [Effect]) {
        let (mut ones, mut told, mut told_free) = (Counts::<W>::NONE, Counts::<W>::NONE, Counts::<W>::NONE);
        let mut free = 0;
        for &rule in bucket {
            let ternary = &self.rules[rule as usize];
            ones.add(&ternary.value);
            told.add(&ternary.mask);
            if self.wild[rule as usize] < self.wild_max {
                told_free.add(&ternary.mask);
                free += 1;
            }
        }
        let mut set = Counts::<W>::NONE;
        visits.iter().for_each(|&packet| set.add(&self.packets[packet as usize]));
        [&mut ones, &mut told, &mut told_free, &mut set].into_iter().for_each(Counts::flush);
        let n = bucket.len() as u32;
        for (&(w, b), effect) in active.iter().zip(effects) {
            let (ones, told, told_free) = (ones.many[w][b], told.many[w][b], told_free.many[w][b]);
            let (both, evicted) = (free - told_free, n - free - (told - told_free));
            let (zero, one) = (told - ones + both, ones + both);
            let log = |n: u32| self.logs[n as usize];
            let kept = (n - evicted) as f32;
            let after =
                if zero + one == 0 { 0.0 } else { kept * (log(zero) + log(one)) / (zero + one) as f32 };
            let bits = |n: u32| log(n) / n.max(1) as f32;
            let (visits, set) = (visits.len() as f32, set.many[w][b] as f32);
            let visited = visits * bits(n) - (visits - set) * bits(zero) - set * bits(one);
            let gain = 0.5 * (log(n) - after + self.weight * visited);
            effect.gain += gain - evicted as f32 * self.eviction_bits;
            effect.growth += both as f32 - evicted as f32;
        }
    }

    /// Cuts all buckets by a bit.
    fn cut(&mut self, (w, b): (usize, usize)) {
        let mut copies = Vec::with_capacity(self.copies.len() + self.copies.len() / 4);
        let mut ends = Vec::with_capacity(2 * self.ends.len());
        let (mut visits, mut visit_ends) =
            (Vec::with_capacity(self.visits.len()), Vec::with_capacity(2 * self.ends.len()));
        let (mut start, mut visit) = (0, 0);
        let kept = |rule: u32| {
            self.rules[rule as usize].mask[w] >> b & 1 == 1 || self.wild[rule as usize] < self.wild_max
        };
        let mut total = self.total;
        for (&end, &visit_end) in self.ends.iter().zip(&self.visit_ends) {
            let bucket = &self.copies[start..end as usize];
            let visitors = &self.visits[visit..visit_end as usize];
            total -= bucket.len();
            (start, visit) = (end as usize, visit_end as usize);
            for side in 0..2 {
                let from = copies.len();
                copies.extend(bucket.iter().filter(|&&rule| {
                    let ternary = &self.rules[rule as usize];
                    kept(rule) && (ternary.mask[w] >> b & 1 == 0 || ternary.value[w] >> b & 1 == side)
                }));
                total += copies.len() - from;
                if copies.len() - from <= self.full {
                    copies.truncate(from);
                } else {
                    ends.push(copies.len() as u32);
                    visits.extend(visitors.iter().filter(|&&p| self.packets[p as usize][w] >> b & 1 == side));
                    visit_ends.push(visits.len() as u32);
                }
            }
        }
        for (rule, wild) in self.rules.iter().zip(&mut self.wild) {
            *wild = wild.saturating_add((rule.mask[w] >> b & 1 == 0).into());
        }
        (self.copies, self.ends, self.total) = (copies, ends, total);
        (self.visits, self.visit_ends) = (visits, visit_ends);
    }
}

/// The bits to cut `rules` by, where these packets come.
pub(super) fn choose<const W: usize>(rules: &[Ternary<W>], packets: &[[u32; W]], limits: &Limits) -> Cut<W> {
    let mut cut = Cut { mask: [0; W], field: None, bits: Vec::new() };
    if rules.len() <= limits.full {
        return cut;
    }
    let mut logs: Vec<f32> = (0..=rules.len()).map(|n| n as f32 * (n as f32).log2()).collect();
    logs[0] = 0.0;
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
        logs,
    };
    let mut seen = [0; W];
    rules.iter().for_each(|rule| (0..W).for_each(|w| seen[w] |= rule.mask[w]));
    let mut active: Vec<(usize, usize)> = (0..W).flat_map(|w| (0..32).map(move |b| (w, b))).collect();
    active.retain(|&(w, b)| seen[w] >> b & 1 == 1);
    while cut.bits.len() < limits.bits_max as usize && !cutting.ends.is_empty() {
        let effects = cutting.effects(&active);
        let fits = |e: &Effect| cutting.total as f32 + e.growth <= limits.copies_max as f32;
        let worth = |e: &Effect| e.gain - limits.copy_bits * e.growth.max(0.0);
        let best = (0..active.len()).filter(|&i| fits(&effects[i]));
        let best = best.max_by(|&i, &j| worth(&effects[i]).total_cmp(&worth(&effects[j])));
        let Some(best) = best.filter(|&i| worth(&effects[i]) >= GAIN_MIN * rules.len() as f32) else {
            // Perhaps there is one if fewer rules are copied, and more evicted.
            if limits.wild_max.is_none() || cutting.wild_max == 0 {
                break;
            }
            cutting.wild_max -= 1;
            continue;
        };
        let (w, b) = active.swap_remove(best);
        cut.mask[w] |= 1 << b;
        cut.bits.push((w, b, cutting.wild_max));
        cutting.cut((w, b));
    }
    cut
}
