//! How many of many words have each bit set.
//!
//! Words are added eight at a time, each bit for itself, as a chain of full adders would: three of them make a bit of
//! weight one and one of weight two (Harley and Seal). Only what carries out of weight four is counted as numbers.

/// Words that are added at a time.
pub(super) const ROWS: usize = 8;

/// Additions after which the byte counters are full.
const ADDED_MAX: u32 = 31;

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

/// Counts so far.
#[derive(Clone, Copy)]
pub(super) struct Counts<const W: usize> {
    /// One bit of each count.
    ones: [u32; W],
    twos: [u32; W],
    fours: [u32; W],
    /// The rest of each count, in bytes.
    eights: [[u64; 4]; W],
    added: u32,
    many: [[u32; 32]; W],
}

/// Sum and carry of three bits.
#[inline(always)]
fn add(a: u32, b: u32, c: u32) -> (u32, u32) {
    let differ = a ^ b;
    (differ ^ c, a & b | differ & c)
}

impl<const W: usize> Counts<W> {
    pub(super) const NONE: Self =
        Self { ones: [0; W], twos: [0; W], fours: [0; W], eights: [[0; 4]; W], added: 0, many: [[0; 32]; W] };

    #[inline(always)]
    pub(super) fn add(&mut self, rows: [&[u32; W]; ROWS]) {
        if self.added == ADDED_MAX {
            self.flush();
        }
        self.added += 1;
        let mut carry = [0; W];
        for w in 0..W {
            let (one, a) = add(self.ones[w], rows[0][w], rows[1][w]);
            let (one, b) = add(one, rows[2][w], rows[3][w]);
            let (one, c) = add(one, rows[4][w], rows[5][w]);
            let (one, d) = add(one, rows[6][w], rows[7][w]);
            let (two, e) = add(self.twos[w], a, b);
            let (two, f) = add(two, c, d);
            let (four, g) = add(self.fours[w], e, f);
            (self.ones[w], self.twos[w], self.fours[w], carry[w]) = (one, two, four, g);
        }
        for (eights, carry) in self.eights.iter_mut().zip(carry) {
            for (eights, byte) in eights.iter_mut().zip(carry.to_le_bytes()) {
                *eights += SPREAD[usize::from(byte)];
            }
        }
    }

    fn flush(&mut self) {
        for w in 0..W {
            for i in 0..4 {
                let spread = |bits: u32| SPREAD[usize::from(bits.to_le_bytes()[i])];
                let few = 8 * self.eights[w][i]
                    + 4 * spread(self.fours[w])
                    + 2 * spread(self.twos[w])
                    + spread(self.ones[w]);
                let many = &mut self.many[w][8 * i..8 * i + 8];
                many.iter_mut().zip(few.to_le_bytes()).for_each(|(many, few)| *many += u32::from(few));
            }
        }
        *self = Self { many: self.many, ..Self::NONE };
    }

    /// How many words had each bit.
    pub(super) fn done(mut self) -> [[u32; 32]; W] {
        self.flush();
        self.many
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    #[test]
    fn counts_are_those_of_bit_after_bit() {
        let mut random = Random::new(1);
        for rounds in [0, 1, 2, 30, 31, 32, 63, 200] {
            let words: Vec<[u32; 2]> =
                (0..rounds * ROWS).map(|_| [random.bits() as u32, !0 >> random.below(3)]).collect();
            let mut counts = Counts::NONE;
            words.as_chunks::<ROWS>().0.iter().for_each(|eight| counts.add(eight.each_ref()));
            let count = |w: usize, b: usize| words.iter().map(|word| word[w] >> b & 1).sum::<u32>();
            let expected: [[u32; 32]; 2] = std::array::from_fn(|w| std::array::from_fn(|b| count(w, b)));
            assert_eq!(counts.done(), expected, "{rounds} times {ROWS} words");
        }
    }
}
