//! The two shapes, for registers of any width.

use super::{BLOCK, Brute, Column, Shape, Test};
use crate::classify::acl::{MatchId, WordKind};

/// Packets whose keys are transposed at a time: full registers of every width, and the stores complete before the loads.
const CHUNK: usize = 64;
/// Registers of packets compared with a rule at a time: enough to hide the latency of a comparison.
const GROUP: usize = 4;

/// For fewer packets every kernel puts rules in the lanes.
const PACKETS_MIN: usize = 12;

/// Registers of [`N`](Self::N) 32-bit lanes.
pub(super) trait Lanes: Copy {
    /// The number of lanes; a divisor of [`BLOCK`].
    const N: usize;
    /// A register.
    type Words: Copy;
    /// A set of lanes.
    type Set: Copy;

    /// Loads the words from `at` on, which must exist.
    fn load(self, words: &[u32], at: usize) -> Self::Words;
    fn store(self, words: Self::Words, to: &mut [u32], at: usize);
    fn splat(self, word: u32) -> Self::Words;
    fn all(self) -> Self::Set;
    fn none(self) -> Self::Set;
    /// Returns the lanes of `among` in which the key matches.
    fn suit(
        self,
        among: Self::Set,
        kind: WordKind,
        key: Self::Words,
        low: Self::Words,
        high: Self::Words,
    ) -> Self::Set;
    /// Returns the lanes of `of` that are not in `without`.
    fn minus(self, of: Self::Set, without: Self::Set) -> Self::Set;
    fn union(self, a: Self::Set, b: Self::Set) -> Self::Set;
    /// Returns `new` in the lanes of `set`, else `old`.
    fn pick(self, set: Self::Set, new: Self::Words, old: Self::Words) -> Self::Words;
    /// Returns one bit for each lane.
    fn bits(self, set: Self::Set) -> u32;
}

#[inline(always)]
pub(super) fn lookup<L: Lanes, const W: usize>(
    lanes: L,
    table: &Brute<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    match (table.kernel.shape, categories) {
        (Shape::Packets, 1) => packets(lanes, table, keys, verdicts),
        _ => rules(lanes, table, keys, categories, verdicts),
    }
}

/// Returns the rules of a block that match, one bit each.
#[inline(always)]
fn matching<L: Lanes, const W: usize>(lanes: L, tests: &[Test], block: &[Column], key: &[u32; W]) -> u32 {
    let mut bits = 0;
    for from in (0..BLOCK).step_by(L::N) {
        let mut set = lanes.all();
        for (test, column) in tests.iter().zip(block) {
            let (low, high) = (lanes.load(&column.low, from), lanes.load(&column.high, from));
            set = lanes.suit(set, test.kind, lanes.splat(key[test.word]), low, high);
        }
        bits |= lanes.bits(set) << from;
    }
    bits
}

/// Looks up with rules in lanes.
#[inline(always)]
fn rules<L: Lanes, const W: usize>(
    lanes: L,
    table: &Brute<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    let tests = &table.tests[..];
    for (key, verdicts) in keys.iter().zip(verdicts.chunks_exact_mut(categories)) {
        verdicts.fill(MatchId::NONE);
        let mut open = (1u32 << categories) - 1;
        for (i, counting) in table.counting.iter().enumerate() {
            let block = &table.columns[i * tests.len()..(i + 1) * tests.len()];
            let bits = matching(lanes, tests, block, key);
            let mut left = open;
            while left != 0 {
                let category = left.trailing_zeros() as usize;
                left &= left - 1;
                let found = bits & u32::from(counting[category]);
                if found != 0 {
                    let place = i * BLOCK + found.trailing_zeros() as usize;
                    verdicts[category] = MatchId::of(table.entries[place].rule);
                    open &= !(1 << category);
                }
            }
            if open == 0 {
                break;
            }
        }
    }
}

/// Looks up with packets in lanes.
#[inline(always)]
fn packets<L: Lanes, const W: usize>(
    lanes: L,
    table: &Brute<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
) {
    let mut words = [[0; CHUNK]; W];
    let mut found = [0; CHUNK];
    for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
        if keys.len() < PACKETS_MIN {
            rules(lanes, table, keys, 1, verdicts);
            continue;
        }
        for (lane, key) in keys.iter().enumerate() {
            table.tests.iter().for_each(|test| words[test.word][lane] = key[test.word]);
        }
        for from in (0..keys.len()).step_by(GROUP * L::N) {
            group(lanes, table, &words, from, &mut found);
        }
        verdicts
            .iter_mut()
            .zip(found)
            .for_each(|(verdict, found)| *verdict = MatchId::of(crate::rule::RuleId(found)));
    }
}

/// Looks up the packets from `from` on, as many as [`GROUP`] registers hold.
#[inline(always)]
fn group<L: Lanes, const W: usize>(
    lanes: L,
    table: &Brute<W>,
    words: &[[u32; CHUNK]; W],
    from: usize,
    found: &mut [u32; CHUNK],
) {
    let tests = &table.tests[..];
    let none = lanes.splat(u32::MAX);
    let mut best = [none; GROUP];
    let mut done = [lanes.none(); GROUP];
    for &(place, verdict) in &table.plain {
        let (block, lane) = (place as usize / BLOCK, place as usize % BLOCK);
        let columns = &table.columns[block * tests.len()..(block + 1) * tests.len()];
        let mut set = [lanes.all(); GROUP];
        for (test, column) in tests.iter().zip(columns) {
            let (low, high) = (lanes.splat(column.low[lane]), lanes.splat(column.high[lane]));
            for (g, set) in set.iter_mut().enumerate() {
                let key = lanes.load(&words[test.word], from + g * L::N);
                *set = lanes.suit(*set, test.kind, key, low, high);
            }
        }
        let rule = lanes.splat(verdict.0);
        for g in 0..GROUP {
            best[g] = lanes.pick(lanes.minus(set[g], done[g]), rule, best[g]);
            done[g] = lanes.union(done[g], set[g]);
        }
        if (0..GROUP).all(|g| lanes.bits(done[g]) == u32::MAX >> (32 - L::N)) {
            break;
        }
    }
    (0..GROUP).for_each(|g| lanes.store(best[g], found, from + g * L::N));
}
