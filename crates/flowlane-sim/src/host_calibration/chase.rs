//! How far away memory is: loads that wait for each other, and several chains of such at once.
//!
//! Each load's address is that of a random line, plus a zero that the load before brought: no prefetcher knows the way, and a
//! cache that holds a share of the lines answers that share, as it does of a table's. Memory of 2 MiB and more is on huge
//! pages where the system gives them, as tables are.

use std::hint::black_box;
use std::time::Instant;

use flowlane::generate::Random;
use flowlane::memory::Memory;

/// Words of a line.
const LINE: usize = 8;

/// Lines of memory: each has the place of the next of a cycle through all, a counter, and a zero.
pub(super) struct Chain {
    words: Memory<u64>,
    at: usize,
    state: u64,
}

impl Chain {
    /// One cycle through so many bytes.
    pub(super) fn new(bytes: usize, seed: u64) -> Self {
        let lines = (bytes / 64).max(2);
        let mut words = Memory::<u64>::zeroed(lines * LINE);
        let mut random = Random::for_purpose(seed, "chase");
        // Sattolo: a permutation that is one cycle.
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

    pub(super) fn lines(&self) -> usize {
        self.words.len() / LINE
    }

    /// Writes every line, so that whoever runs this has them all.
    pub(super) fn write(&mut self) {
        for line in self.words.chunks_exact_mut(LINE) {
            line[1] = line[1].wrapping_add(1);
        }
    }

    /// Reads every line.
    pub(super) fn read(&self) {
        black_box(self.words.chunks_exact(LINE).fold(0, |sum: u64, line| sum.wrapping_add(line[1])));
    }

    /// Nanoseconds a load, of so many along chains of the cycle, each load with nothing but the place of the chain's next.
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

    /// Nanoseconds a load and an addition, of so many loads of random lines.
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

/// The word of a line that stays zero.
const ZERO: usize = 2;

/// Chains that are followed at once: more than a core asks memory for at a time.
pub(super) const MANY: usize = 24;

/// Branches that go as coins fall, and as many that go one way and the other by turns: both do the same work.
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

    /// Nanoseconds that a wrongly predicted one costs.
    pub(super) fn nanoseconds(&self) -> f64 {
        // Half of the coins are predicted wrongly.
        ((Self::pass(&self.coins) - Self::pass(&self.turns)) / (self.coins.len() as f64 / 2.0)).max(0.0)
    }

    fn pass(bits: &[u8]) -> f64 {
        let mut sum = 0u64;
        let begun = Instant::now();
        for bit in bits {
            // A body that cannot be made an unconditional one.
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
