//! Random numbers whose sequence never changes.
//!
//! [`Random`] is xoshiro256++ 1.0 (Blackman and Vigna, public domain), its state filled by SplitMix64 from
//! the seed. It is written out here, ten lines, because the promise that sequences are stable over
//! platforms and versions should not depend on another crate's release notes. Not for secrets.

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut mixed)) }
    }

    /// The sequence of a seed and a purpose: sequences of different purposes do not resemble each other,
    /// so that one purpose may draw more numbers without changing what the others get.
    pub fn for_purpose(seed: u64, purpose: &str) -> Self {
        let tag = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut mixed = seed;
        Self::new(split_mix(&mut mixed) ^ tag)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number below `n`, each equally likely (Lemire 2019). 0 where `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        loop {
            let wide = u128::from(self.bits()) * u128::from(n);
            if wide as u64 >= n.wrapping_neg() % n {
                return (wide >> 64) as u64;
            }
        }
    }

    /// An index into a collection of `len` elements; 0 where it is empty.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub fn port(&mut self, low: u16, high: u16) -> u16 {
        low + self.below(u64::from(high - low) + 1) as u16
    }

    /// A number in `0.0..1.0`, a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Brings `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

/// A distribution over a few values: drawn in time logarithmic in their number.
#[derive(Clone, PartialEq, Debug)]
pub struct Weighted<T> {
    items: Vec<T>,
    cumulative: Vec<f64>,
}

impl<T: Copy> Weighted<T> {
    /// Values with their weights, which need not add up to anything. Weights of 0 or less are left out.
    pub fn new(items: impl IntoIterator<Item = (T, f64)>) -> Self {
        let mut out = Self { items: Vec::new(), cumulative: Vec::new() };
        let mut total = 0.0;
        for (item, weight) in items {
            if weight > 0.0 {
                total += weight;
                out.items.push(item);
                out.cumulative.push(total);
            }
        }
        out
    }

    /// Returns whether there is no item to draw.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The values that can be drawn.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The value at the place `p` (0 to 1) of the cumulative distribution; none where it is empty.
    pub fn at(&self, p: f64) -> Option<T> {
        let total = *self.cumulative.last()?;
        let i = self.cumulative.partition_point(|&c| c <= p * total);
        Some(self.items[i.min(self.items.len() - 1)])
    }

    /// A random value; none where there are none.
    pub fn draw(&self, random: &mut Random) -> Option<T> {
        self.at(random.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The reference implementation's first outputs from the state 1, 2, 3, 4.
        let mut random = Random { state: [1, 2, 3, 4] };
        assert_eq!(
            [random.bits(), random.bits(), random.bits()],
            [41943041, 58720359, 3588806011781223],
            "xoshiro256++"
        );
        assert_eq!(split_mix(&mut 1234567u64.clone()), 6457827717110365317);
    }

    #[test]
    fn numbers_below_a_limit_are_equally_likely() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 6];
        (0..60_000).for_each(|_| counts[random.index(6)] += 1);
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let weighted = Weighted::new([('a', 0.0), ('b', 1.0), ('c', 3.0), ('d', 0.0)]);
        let mut random = Random::new(2);
        let drawn: String = (0..4000).filter_map(|_| weighted.draw(&mut random)).collect();
        let c = drawn.matches('c').count();
        assert!((2850..3150).contains(&c) && !drawn.contains(['a', 'd']), "{c}");
        assert_eq!((weighted.at(0.0), weighted.at(1.0)), (Some('b'), Some('c')));
        assert_eq!(Weighted::<u8>::new([]).at(0.5), None);
    }
}
