//! The branch predictor: counters by address, and tagged counters by address and histories of growing lengths.
//!
//! The longest history that is known predicts (Seznec and Michaud, *A case for (partially) tagged geometric history length
//! branch prediction*, JILP 2006), as in cores since Haswell and Zen 2. Sizes are of the order of those that were measured; no
//! core's are published.

/// Histories of the tagged tables, in branches.
const LENGTHS: [u32; 4] = [5, 9, 15, 25];
/// Counters of a table, by bits.
const BITS: u32 = 11;

#[derive(Clone, Copy, Default, Debug)]
struct Tagged {
    tag: u16,
    /// Three bits; taken from 4 on.
    counter: u8,
    useful: u8,
}

#[derive(Debug)]
pub(super) struct Predictor {
    plain: Vec<u8>,
    tagged: [Vec<Tagged>; LENGTHS.len()],
    history: u64,
}

impl Default for Predictor {
    fn default() -> Self {
        let tables = || vec![Tagged::default(); 1 << BITS];
        Self { plain: vec![1; 1 << (BITS + 2)], tagged: std::array::from_fn(|_| tables()), history: 0 }
    }
}

impl Predictor {
    /// Returns the place and the tag of a branch in a table.
    fn place(&self, table: usize, id: u32) -> (usize, u16) {
        let history = self.history & (u64::MAX >> (64 - LENGTHS[table]));
        let mixed =
            (history ^ u64::from(id).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15 + table as u64 * 2);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> (64 - BITS)) as usize, (mixed >> 20) as u16 | 1)
    }

    /// Predicts a branch, then learns whether it was taken; returns the prediction.
    pub(super) fn learn(&mut self, id: u32, taken: bool) -> bool {
        let plain = (id.wrapping_mul(0x9e37_79b9) >> (32 - BITS - 2)) as usize;
        let places: [(usize, u16); LENGTHS.len()] = std::array::from_fn(|table| self.place(table, id));
        let known = (0..LENGTHS.len()).rev().find(|t| self.tagged[*t][places[*t].0].tag == places[*t].1);
        let predicted = match known {
            Some(table) => self.tagged[table][places[table].0].counter >= 4,
            None => self.plain[plain] >= 2,
        };
        let step =
            |counter: u8, most: u8| if taken { (counter + 1).min(most) } else { counter.saturating_sub(1) };
        match known {
            Some(table) => {
                let entry = &mut self.tagged[table][places[table].0];
                entry.counter = step(entry.counter, 7);
                entry.useful = if predicted == taken {
                    (entry.useful + 1).min(3)
                } else {
                    entry.useful.saturating_sub(1)
                };
            }
            None => self.plain[plain] = step(self.plain[plain], 3),
        }
        if predicted != taken {
            self.allocate(known.map_or(0, |table| table + 1), &places, taken);
        }
        self.history = self.history << 1 | u64::from(taken);
        predicted
    }

    /// Takes a place in the first longer table that has a useless one.
    fn allocate(&mut self, from: usize, places: &[(usize, u16)], taken: bool) {
        for (table, (at, tag)) in self.tagged.iter_mut().zip(places).skip(from) {
            let entry = &mut table[*at];
            if entry.useful == 0 {
                *entry = Tagged { tag: *tag, counter: if taken { 4 } else { 3 }, useful: 0 };
                return;
            }
            entry.useful -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(branches: impl Iterator<Item = bool>) -> usize {
        let mut predictor = Predictor::default();
        let outcomes: Vec<bool> = branches.map(|taken| predictor.learn(7, taken) == taken).collect();
        outcomes[outcomes.len() / 2..].iter().filter(|right| !**right).count()
    }

    #[test]
    fn loops_and_patterns_are_learnt_and_coins_are_not() {
        assert_eq!(wrong((0..4000).map(|_| true)), 0);
        assert_eq!(wrong((0..4000).map(|n| n % 7 != 6)), 0, "a loop of seven rounds");
        assert!(wrong((0..20_000).map(|n| n % 19 < 3)) < 100, "a pattern of 19");
        let mut coin = 1u64;
        let mut toss = || {
            coin = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            coin >> 63 == 1
        };
        let lost = wrong((0..20_000).map(|_| toss()));
        assert!((4500..5500).contains(&lost), "{lost} of 10,000");
    }
}
