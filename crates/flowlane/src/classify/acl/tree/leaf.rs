//! Leaves: blocks of fifteen rules each.

/// Rules in a block.
pub(super) const RULES: usize = 15;

/// A block, three cache lines: the signatures' values, then their masks, then the ranks of the rules, ascending. A rule is
/// a candidate where `signature & mask == value`. The sixteenth is no rule but always a candidate, so that there is a
/// first one: its rank is [`NONE`], or [`MORE`] with the first rank of the next block where the leaf goes on.
pub(super) type Block = [u32; 48];

const _: () = assert!(size_of::<Block>() == 192);

/// The first word of the masks, and of the ranks.
pub(super) const MASKS: usize = 16;
pub(super) const RANKS: usize = 32;

/// The rank of no rule, worse than every rank.
pub(super) const NONE: u32 = 0x7fff_ffff;

/// The bit in the sentinel's rank that says that the leaf goes on in the next block.
pub(super) const MORE: u32 = 1 << 31;

/// The bit in an entry of the table that says that the others are the number of a node.
pub(super) const NODE: u32 = 1 << 31;

/// The block without rules: its values have a bit that its masks lack.
pub(super) const EMPTY: Block = {
    let mut block = [NONE; 48];
    let mut i = 0;
    while i < RANKS {
        block[i] = if i < RULES { 1 } else { 0 };
        i += 1;
    }
    block
};

/// Writes the block's rule `i`.
pub(super) fn set(block: &mut Block, i: usize, value: u32, mask: u32, rank: u32) {
    block[i] = value & mask;
    block[MASKS + i] = mask;
    block[RANKS + i] = rank;
}

/// Returns one bit for each candidate of the block: the definition.
pub(super) fn candidates(block: &Block, signature: u32) -> u32 {
    let is = |i: &usize| block[MASKS + i] & signature == block[*i];
    (0..RULES).filter(is).fold(0, |all, i| all | 1 << i)
}

/// Returns the rank of the block's rule `i`.
#[inline(always)]
pub(super) fn rank(block: &Block, i: usize) -> u32 {
    block[RANKS + i]
}

/// Returns the first rank of the next block, where the leaf goes on.
#[inline(always)]
pub(super) fn goes_on(block: &Block) -> Option<u32> {
    let last = block[RANKS + RULES];
    (last & MORE != 0).then_some(last & !MORE)
}
