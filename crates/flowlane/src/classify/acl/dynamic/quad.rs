//! The batch in registers of 128 bits: records and blocks are compared four words at a time.

use super::Dynamic;
use super::batch::{self, DynamicOps, Kinds, Portable};
use super::rules::{BLOCK, Block, Record};
use super::winners::BatchWinners;
use crate::classify::acl::WordKind;
use crate::isa::simd::{Kernel, Quad};

/// The vector operations, with the witness of their instructions; `WHOLE`: there are ranges over whole words.
#[derive(Clone, Copy)]
struct Records<Q, const WHOLE: bool>(Q);

/// Words `at` to `at + 3` of a record that differ from what the key must have there.
#[inline(always)]
fn wrong<Q: Quad, const W: usize, const WHOLE: bool>(
    isa: Q,
    kinds: &Kinds,
    record: &Record<W>,
    key: &[u32; W],
    at: usize,
) -> Q::Register {
    let [key, low, high] = [key, &record.low, &record.high].map(|words| isa.load(&words[at..]));
    let ranges = isa.load(&kinds.ranges[at..]);
    let key = isa.and(key, isa.or(high, ranges));
    let top = isa.or(isa.and(high, ranges), isa.and_not(low, ranges));
    let halves = isa.or(isa.excess_halves(low, key), isa.excess_halves(key, top));
    if !WHOLE {
        return halves;
    }
    let whole = isa.or(isa.xor(isa.max(key, low), key), isa.xor(isa.min(key, top), key));
    let is_whole = isa.load(&kinds.whole[at..]);
    isa.or(isa.and(whole, is_whole), isa.and_not(halves, is_whole))
}

impl<Q: Quad, const WHOLE: bool> DynamicOps for Records<Q, WHOLE> {
    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
        if W < 4 {
            return Portable.matches(kinds, record, key);
        }
        // The last four words, some of which may be compared twice, and all before them.
        let last = wrong::<Q, W, WHOLE>(self.0, kinds, record, key, W - 4);
        let all = (0..W - 4)
            .step_by(4)
            .fold(last, |all, at| self.0.or(all, wrong::<Q, W, WHOLE>(self.0, kinds, record, key, at)));
        self.0.is_zero(all)
    }

    #[inline(always)]
    fn block_matches<const W: usize>(self, kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
        let isa = self.0;
        let mut matches = [isa.mask_all(); BLOCK / 4];
        for (w, kind) in kinds.iter().enumerate() {
            let key = isa.splat(key[w]);
            for (i, matches) in matches.iter_mut().enumerate() {
                let (low, high) = (isa.load(&block.low[w][4 * i..]), isa.load(&block.high[w][4 * i..]));
                *matches = match kind {
                    WordKind::Ternary => isa.equal_in(*matches, isa.and(key, high), low),
                    WordKind::Range32 => isa.equal_in(*matches, isa.clamp(key, low, high), key),
                    WordKind::Range16 => isa.equal_in(*matches, isa.clamp_halves(key, low, high), key),
                };
            }
        }
        isa.bits_of_four(matches) & u32::MAX >> (32 - block.len)
    }
}

/// Finds the best rules for up to [`BATCH`](super::winners::BATCH) keys.
pub(super) struct Search<'a, const W: usize, B> {
    pub(super) engine: &'a Dynamic<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) winners: &'a mut B,
}

impl<Q: Quad, const W: usize, B: BatchWinners> Kernel<Q> for Search<'_, W, B> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: Q) {
        let Self { engine, keys, winners } = self;
        if engine.kinds.contains(&WordKind::Range32) {
            batch::run(Records::<Q, true>(isa), engine, keys, winners);
        } else {
            batch::run(Records::<Q, false>(isa), engine, keys, winners);
        }
    }
}
