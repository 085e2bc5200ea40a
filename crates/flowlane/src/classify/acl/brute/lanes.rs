//! The two shapes, for registers of any width.

use super::{BLOCK, Brute, Column, Shape, Test};
use crate::classify::acl::{MatchId, WordKind};
use crate::isa::simd::{Kernel, Registers};

/// Packets whose keys are transposed at a time: full registers of every width, and the stores complete before the loads.
const CHUNK: usize = 64;
/// Registers of packets compared with a rule at a time: enough to hide the latency of a comparison.
const GROUP: usize = 4;

/// For fewer packets every kernel puts rules in the lanes.
const PACKETS_MIN: usize = 12;

/// Looks up keys in some categories.
pub(super) struct Lookup<'a, const W: usize> {
    pub(super) table: &'a Brute<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) categories: usize,
    pub(super) verdicts: &'a mut [MatchId],
}

impl<R: Registers, const W: usize> Kernel<R> for Lookup<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: R) {
        const { assert!(BLOCK.is_multiple_of(R::LANES)) };
        let Self { table, keys, categories, verdicts } = self;
        match (table.kernel.shape, categories) {
            (Shape::Packets, 1) => packets(isa, table, keys, verdicts),
            _ => rules(isa, table, keys, categories, verdicts),
        }
    }
}

/// Returns the words of `among` in which the key matches: of a range, those that clamping to the range leaves unchanged.
#[inline(always)]
fn suit<R: Registers>(
    isa: R,
    among: R::Mask,
    kind: WordKind,
    key: R::Register,
    low: R::Register,
    high: R::Register,
) -> R::Mask {
    match kind {
        WordKind::Ternary => isa.equal_in(among, isa.and(key, high), low),
        WordKind::Range32 => isa.equal_in(among, isa.clamp(key, low, high), key),
        WordKind::Range16 => isa.equal_in(among, isa.clamp_halves(key, low, high), key),
    }
}

/// Returns the rules of a block that match, one bit each.
#[inline(always)]
fn matching<R: Registers, const W: usize>(isa: R, tests: &[Test], block: &[Column], key: &[u32; W]) -> u32 {
    // One for each register of a block: four where a register has four words.
    let mut sets = [isa.mask_all(); BLOCK / 4];
    for (test, column) in tests.iter().zip(block) {
        let key = isa.splat(key[test.word]);
        for (set, from) in sets.iter_mut().zip((0..BLOCK).step_by(R::LANES)) {
            let (low, high) = (isa.load(&column.low[from..]), isa.load(&column.high[from..]));
            *set = suit(isa, *set, test.kind, key, low, high);
        }
    }
    let own = sets.into_iter().zip((0..BLOCK).step_by(R::LANES));
    own.fold(0, |bits, (set, from)| bits | isa.bits(set) << from)
}

/// Looks up with rules in lanes.
#[inline(always)]
fn rules<R: Registers, const W: usize>(
    isa: R,
    table: &Brute<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    // As slices: through the table, which verdicts might alias, they would be loaded again for every block.
    let (tests, columns, entries) = (&table.tests[..], &table.columns[..], &table.entries[..]);
    for (key, verdicts) in keys.iter().zip(verdicts.chunks_exact_mut(categories)) {
        verdicts.fill(MatchId::NONE);
        let mut open = (1u32 << categories) - 1;
        for (i, counting) in table.counting.iter().enumerate() {
            let block = &columns[i * tests.len()..(i + 1) * tests.len()];
            let bits = matching(isa, tests, block, key);
            let mut left = open;
            while left != 0 {
                let category = left.trailing_zeros() as usize;
                left &= left - 1;
                let found = bits & u32::from(counting[category]);
                if found != 0 {
                    let place = i * BLOCK + found.trailing_zeros() as usize;
                    verdicts[category] = MatchId::of(entries[place].rule);
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
fn packets<R: Registers, const W: usize>(
    isa: R,
    table: &Brute<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
) {
    let mut words = [[0; CHUNK]; W];
    let mut found = [0; CHUNK];
    for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
        if keys.len() < PACKETS_MIN {
            rules(isa, table, keys, 1, verdicts);
            continue;
        }
        for (lane, key) in keys.iter().enumerate() {
            table.tests.iter().for_each(|test| words[test.word][lane] = key[test.word]);
        }
        for from in (0..keys.len()).step_by(GROUP * R::LANES) {
            group(isa, table, &words, from, &mut found);
        }
        verdicts
            .iter_mut()
            .zip(found)
            .for_each(|(verdict, found)| *verdict = MatchId::of(crate::rule::RuleId(found)));
    }
}

/// Looks up the packets from `from` on, as many as [`GROUP`] registers hold.
#[inline(always)]
fn group<R: Registers, const W: usize>(
    isa: R,
    table: &Brute<W>,
    words: &[[u32; CHUNK]; W],
    from: usize,
    found: &mut [u32; CHUNK],
) {
    let tests = &table.tests[..];
    let none = isa.splat(u32::MAX);
    let mut best = [none; GROUP];
    let mut done = [isa.mask_none(); GROUP];
    for &(place, verdict) in &table.plain {
        let (block, lane) = (place as usize / BLOCK, place as usize % BLOCK);
        let columns = &table.columns[block * tests.len()..(block + 1) * tests.len()];
        let mut set = [isa.mask_all(); GROUP];
        for (test, column) in tests.iter().zip(columns) {
            let (low, high) = (isa.splat(column.low[lane]), isa.splat(column.high[lane]));
            for (g, set) in set.iter_mut().enumerate() {
                let key = isa.load(&words[test.word][from + g * R::LANES..]);
                *set = suit(isa, *set, test.kind, key, low, high);
            }
        }
        let rule = isa.splat(verdict.0);
        for g in 0..GROUP {
            best[g] = isa.blend(isa.mask_and_not(set[g], done[g]), rule, best[g]);
            done[g] = isa.mask_or(done[g], set[g]);
        }
        if isa.all(done) {
            break;
        }
    }
    (0..GROUP).for_each(|g| isa.store(best[g], &mut found[from + g * R::LANES..]));
}
