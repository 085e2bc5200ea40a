//! Memory latency: chains of dependent loads, one at a time and several in parallel.
//!
//! Each load's address is a random line plus a zero that the previous load returned, which defeats prefetchers. A
//! cache that holds a share of the lines answers that share of the loads, as for a table. Memory of 2 MiB and more is
//! on huge pages if available, as tables are.

use std::hint::black_box;
use std::time::Instant;

use flowlane::generate::Random;
use flowlane::memory::{HUGE_BYTES, Memory};

/// Words of a line.
const LINE: usize = 8;

/// A cycle through lines of memory; each line has the position of the next, a counter, and a zero.
pub(super) struct Chain {
    words: Memory<u64>,
    at: usize,
    state: u64,
}

impl Chain {
    /// Creates one cycle through a number of bytes.
    pub(super) fn new(bytes: usize, seed: u64) -> Self {
        let lines = (bytes / 64).max(2);
        let mut words = Memory::<u64>::zeroed(lines * LINE);
        let mut random = Random::for_purpose(seed, "chase");
        // Sattolo's algorithm yields a permutation with one cycle.
        for (n, line) in words.chunks_exact_mut(LINE).enumerate() {
            line[0] = (n * LINE) as u64;
        }
        for n in (1..lines).rev() {
            let other = random.index(n);
            let (a, b) = (words[n * LINE], words[other * LINE]);
            (words[n * LINE], words[other * LINE]) = (b, a);
        }
        Self { words, at: 0, state: seed }
    }

    /// Returns the nanoseconds of a load on a cycle through lines that are `apart` bytes and a line from each other, all in the
    /// first-level cache and in one huge page.
    pub(super) fn apart_nanoseconds(apart: usize) -> f64 {
        const LINES: usize = 256;
        const ROUNDS: usize = 64;
        let mut words = Memory::<u64>::zeroed(HUGE_BYTES / 8);
        let place = |n: usize| n % LINES * (apart / 8) + n % (apart / 64).clamp(1, 64) * LINE;
        // An odd step leads through all lines, with no two neighbours after each other.
        (0..LINES).for_each(|n| words[place(n)] = place(n + 97) as u64);
        let mut best = f64::MAX;
        let mut at = 0;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            for _ in 0..4 * LINES {
                at = words[at] as usize;
            }
            best = best.min(begun.elapsed().as_secs_f64() * 1e9 / (4 * LINES) as f64);
        }
        black_box(at);
        best
    }

    pub(super) fn lines(&self) -> usize {
        self.words.len() / LINE
    }

    /// Writes every line, so that this core owns all of them.
    pub(super) fn write(&mut self) {
        for line in self.words.chunks_exact_mut(LINE) {
            line[1] = line[1].wrapping_add(1);
        }
    }

    /// Reads every line.
    pub(super) fn read(&self) {
        black_box(self.words.chunks_exact(LINE).fold(0, |sum: u64, line| sum.wrapping_add(line[1])));
    }

    /// Returns the nanoseconds of a load on `CHAINS` parallel chains of the cycle; a load depends only on the
    /// previous one of its chain.
    pub(super) fn cycle_nanoseconds<const CHAINS: usize>(&mut self, loads: usize) -> f64 {
        let words: &[u64] = &self.words;
        let (apart, steps) = (self.lines() / CHAINS * LINE, loads / CHAINS);
        let mut at: [usize; CHAINS] = std::array::from_fn(|n| (self.at + n * apart) % words.len());
        let begun = Instant::now();
        for _ in 0..steps {
            for at in &mut at {
                *at = words[*at] as usize;
            }
        }
        let took = begun.elapsed();
        self.at = black_box(at)[0];
        took.as_secs_f64() * 1e9 / (steps * CHAINS) as f64
    }

    /// Returns the nanoseconds of a load and an addition, over loads of random lines.
    pub(super) fn nanoseconds(&mut self, loads: usize) -> f64 {
        let words: &[u64] = &self.words;
        let (lines, mut at, mut state) = (self.lines() as u64, ZERO, self.state);
        let begun = Instant::now();
        for _ in 0..loads {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let line = ((state >> 32) * lines) >> 32;
            at = (line as usize * LINE + ZERO).wrapping_add(words[at] as usize);
        }
        let took = begun.elapsed();
        black_box(at);
        self.state = state;
        took.as_secs_f64() * 1e9 / loads as f64
    }
}

/// Results in vector registers: on other processors, in general ones.
#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::{__m128i, _mm_add_epi64, _mm_set1_epi64x, _mm_shuffle_epi32};

    pub(super) type Vector = __m128i;

    pub(super) fn of(value: u64) -> Vector {
        // SAFETY: every x86-64 has SSE2.
        unsafe { _mm_set1_epi64x(value.cast_signed()) }
    }

    /// Two instructions.
    #[inline(always)]
    pub(super) fn step(vector: Vector, add: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE2.
        unsafe { _mm_add_epi64(_mm_shuffle_epi32::<0b00_11_10_01>(vector), add) }
    }
}
#[cfg(not(target_arch = "x86_64"))]
mod vector {
    pub(super) type Vector = u64;

    pub(super) fn of(value: u64) -> Vector {
        value
    }

    #[inline(always)]
    pub(super) fn step(vector: Vector, add: Vector) -> Vector {
        vector.rotate_left(9).wrapping_add(add)
    }
}
use vector::Vector;

/// Values of instructions that need neither memory nor each other's results. Half are in general registers, half in vectors: neither
/// are all taken before the window is full.
#[derive(Clone, Copy)]
struct Values {
    general: [u64; 4],
    vectors: [Vector; 4],
    add: u64,
    add_vector: Vector,
}

impl Values {
    fn new() -> Self {
        let (general, add) = (black_box([1, 2, 3, 4]), black_box(0x9e37_79b9_7f4a_7c15));
        Self { general, vectors: general.map(vector::of), add, add_vector: vector::of(add) }
    }

    /// Sixteen instructions.
    #[inline(always)]
    fn step(&mut self) {
        for value in &mut self.general {
            *value = value.rotate_left(7).wrapping_add(self.add);
        }
        for value in &mut self.vectors {
            *value = vector::step(*value, self.add_vector);
        }
    }

    #[inline(always)]
    fn steps<const N: usize>(&mut self) {
        // A loop's own instructions would count, too.
        macro_rules! up_to {
            ($($n:literal)*) => { $(if N > $n { self.step(); })* };
        }
        up_to!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23);
    }
}

/// The most sixteens of instructions between two loads.
const SIXTEENS: usize = 24;

/// Returns the nanoseconds of two independent loads, with `N` times sixteen instructions behind each.
fn apart<const N: usize>(words: &[u64], at: &mut [usize; 2], loads: usize) -> f64 {
    let mut values = Values::new();
    let begun = Instant::now();
    for _ in 0..loads {
        for at in &mut *at {
            *at = words[*at] as usize;
            values.steps::<N>();
        }
    }
    let took = begun.elapsed();
    black_box((values.general, values.vectors));
    took.as_secs_f64() * 1e9 / loads as f64
}

impl Chain {
    /// Returns the instructions after which a second load no longer begins before the first one has ended: the window, to
    /// sixteen instructions.
    pub(super) fn window(&mut self) -> u32 {
        const LOADS: usize = 64;
        const TIMES: usize = 2;
        let (words, half): (&[u64], usize) = (&self.words, self.lines() / 2 * LINE);
        let mut at = [self.at, (self.at + half) % words.len()];
        let (mut least, mut alone) = ([f64::MAX; SIXTEENS / 2], [f64::MAX; SIXTEENS / 2]);
        macro_rules! each {
            ($($n:literal)*) => {
                for _ in 0..TIMES {
                    $(
                        least[$n / 2 - 1] = least[$n / 2 - 1].min(apart::<$n>(words, &mut at, LOADS));
                        // The instructions without a miss, which take a while themselves.
                        alone[$n / 2 - 1] = alone[$n / 2 - 1].min(apart::<$n>(&[0; LINE], &mut [0; 2], LOADS));
                    )*
                }
            };
        }
        each!(2 4 6 8 10 12 14 16 18 20 22 24);
        self.at = black_box(at)[0];
        let missed: Vec<f64> = least.iter().zip(&alone).map(|(least, alone)| least - alone).collect();
        let together = missed.iter().take_while(|ns| **ns < 1.5 * missed[0]).count();
        32 * together as u32
    }
}

/// The index of a line's word that stays zero.
const ZERO: usize = 2;

/// The number of parallel chains, which exceeds the outstanding misses of a core.
pub(super) const MANY: usize = 24;

/// Random branches, and as many alternating ones that do the same work.
pub(super) struct Branches {
    coins: Vec<u8>,
    turns: Vec<u8>,
}

impl Branches {
    pub(super) fn new() -> Self {
        // More than a predictor remembers.
        const COUNT: usize = 1 << 15;
        let mut random = Random::for_purpose(1, "branches");
        Self {
            coins: (0..COUNT).map(|_| random.below(2) as u8).collect(),
            turns: (0..COUNT).map(|n| (n % 2) as u8).collect(),
        }
    }

    /// Returns the nanoseconds of a misprediction.
    pub(super) fn nanoseconds(&self) -> f64 {
        // Half of the random branches are mispredicted.
        ((Self::pass(&self.coins) - Self::pass(&self.turns)) / (self.coins.len() as f64 / 2.0)).max(0.0)
    }

    fn pass(bits: &[u8]) -> f64 {
        let mut sum = 0u64;
        let begun = Instant::now();
        for bit in bits {
            // `black_box` keeps the compiler from removing the branch.
            if *bit != 0 {
                sum = black_box(sum + 1);
            }
        }
        black_box(sum);
        begun.elapsed().as_secs_f64() * 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_through_every_line_once() {
        for bytes in [128, 4096, 100_000] {
            let chain = Chain::new(bytes, 5);
            let mut seen = vec![false; chain.lines()];
            let mut at = 0;
            for _ in 0..chain.lines() {
                assert!(!std::mem::replace(&mut seen[at / LINE], true));
                at = chain.words[at] as usize;
            }
            assert_eq!(at, 0);
        }
    }
}
