//! Batches: every step for all keys before the next, so that what each needs from memory arrives meanwhile.
//!
//! ```text
//! for each hash table, best rules first:
//!   probe   16 lanes: hash, front of the bucket; a tag that is equal and a class that is high enough: into the queue
//!   heads   queue: number of the chain's first record; its line is asked for
//!   rules   queue: compared; what has a next record goes round again
//! ```

use super::Dynamic;
use super::rules::{Block, Record, TO_BLOCK};
use super::scalar;
use super::table::{CLASS_BITS, CLASS_SHIFT, HEADS, OVERFLOWED, Place, TAGS, Table, head_of};
use super::winners::{BATCH, BatchWinners, CATEGORIES_BATCH, Cutoff, One, Several, Single, Winners};
use crate::classify::acl::{MatchId, WordKind};
use crate::isa::Backend;
#[cfg(target_arch = "aarch64")]
use crate::isa::simd::InstructionSet;

/// Keys that are probed together.
pub(super) const GROUP: usize = 16;

/// Room for the candidates of a batch in one table: for each a chain of the tag, and one that overflowed, together half of
/// it; then for a whole vector that is written, though not all of it counts; and from the end for what waits.
const QUEUE: usize = 4 * BATCH;

/// Keys that are looked up one by one instead of in a batch.
const FEW: usize = 4;

/// Candidates that wait for the next table's.
const CARRIED_MAX: usize = GROUP;

/// The keys of a batch, word by word.
pub(super) struct Columns<const W: usize> {
    pub(super) words: [[u32; BATCH]; W],
    pub(super) len: usize,
}

/// Lanes, and where their chains begin.
pub(super) struct Queue {
    pub(super) lanes: [u32; QUEUE],
    /// Numbers of heads; later, of records or blocks.
    pub(super) ats: [u32; QUEUE],
    pub(super) len: usize,
}

impl Queue {
    #[inline(always)]
    pub(super) fn push(&mut self, lane: usize, at: usize) {
        self.put(self.len, lane, at);
        self.len += 1;
    }

    #[inline(always)]
    fn put(&mut self, place: usize, lane: usize, at: usize) {
        self.lanes[place % QUEUE] = lane as u32;
        self.ats[place % QUEUE] = at as u32;
    }
}

/// How the words of a condition are compared, of keys of up to 16; beyond the key's words, all are as if ternary under no
/// mask.
///
/// Every kind is a range after one step: `key & (high | ranges)` lies between `low` and `low` in a ternary word, between
/// `low` and `high` in others, half by half but for `whole` ones.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Kinds {
    pub(super) ranges: [u32; Kinds::WORDS],
    pub(super) whole: [u32; Kinds::WORDS],
}

impl Kinds {
    pub(super) const WORDS: usize = 16;

    fn new<const W: usize>(kinds: &[WordKind; W]) -> Self {
        let of = |suits: fn(&WordKind) -> bool| {
            std::array::from_fn(|w| if kinds.get(w).is_some_and(suits) { u32::MAX } else { 0 })
        };
        Self { ranges: of(|k| *k != WordKind::Ternary), whole: of(|k| *k == WordKind::Range32) }
    }
}

/// Operations of the batch search that have kernels of their own.
pub(super) trait DynamicOps: Copy {
    /// Puts those of the 16 lanes from `first` on for which the table may have better rules into the queue.
    #[inline(always)]
    fn probe<const W: usize>(
        self,
        table: &Table<W>,
        columns: &Columns<W>,
        classes: &[u8; BATCH],
        first: usize,
        queue: &mut Queue,
    ) {
        probe(table, columns, classes, first, queue);
    }

    /// Returns whether the key fulfils the record's condition. Only for keys that have [`Kinds`].
    fn matches<const W: usize>(self, kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool;

    /// Which of the block's rules the key fulfils the conditions of.
    fn block_matches<const W: usize>(self, kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32;
}

/// In portable code.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// The steps of a probe, lane by lane.
#[inline(always)]
fn probe<const W: usize>(
    table: &Table<W>,
    columns: &Columns<W>,
    classes: &[u8; BATCH],
    first: usize,
    queue: &mut Queue,
) {
    let own = &classes.as_chunks::<GROUP>().0[first / GROUP];
    if own.iter().fold(u8::MAX, |least, class| least.min(*class)) > table.ceiling {
        return;
    }
    let mut sums = [0u64; GROUP];
    for term in table.terms() {
        let column = columns.words[term.word as usize % W].as_chunks::<GROUP>().0[first / GROUP];
        for (sum, word) in sums.iter_mut().zip(column) {
            *sum = sum.wrapping_add(u64::from(word & term.mask) * u64::from(term.multiplier));
        }
    }
    let hashes = sums.map(crate::hash::multilinear::finish);
    for ((lane, hash), class) in (first..columns.len).zip(hashes).zip(own) {
        let Place { bucket, tag } = table.place(hash);
        let front = table.front[bucket];
        let better = front >> CLASS_SHIFT >= u64::from(*class);
        // Without a branch: what has no tag is written over.
        let at = head_of(front, tag);
        queue.put(queue.len, lane, bucket * HEADS + at.unwrap_or(TAGS));
        queue.len += usize::from(at.is_some() & better);
        if better & (front & OVERFLOWED != 0) {
            queue.push(lane, bucket * HEADS + TAGS);
        }
    }
}

/// A block's rules, word by word.
#[inline(always)]
pub(super) fn block_matches<const W: usize>(kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
    let mut matches = u32::MAX >> (32 - block.len);
    for w in 0..W {
        let (key, mut own) = (key[w], 0);
        let ends = block.low[w].iter().zip(&block.high[w]).enumerate();
        match kinds[w] {
            WordKind::Ternary => ends.for_each(|(i, (low, high))| own |= u32::from(key & high == *low) << i),
            WordKind::Range32 => {
                ends.for_each(|(i, (low, high))| own |= u32::from(*low <= key && key <= *high) << i);
            }
            WordKind::Range16 => ends.for_each(|(i, (low, high))| {
                let (low, high) = ([*low as u16, (low >> 16) as u16], [*high as u16, (high >> 16) as u16]);
                let key = [key as u16, (key >> 16) as u16];
                let within = low[0] <= key[0] && key[0] <= high[0] && low[1] <= key[1] && key[1] <= high[1];
                own |= u32::from(within) << i;
            }),
        }
        matches &= own;
        if matches == 0 {
            break;
        }
    }
    matches
}

impl DynamicOps for Portable {
    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
        let mut wrong = false;
        for w in 0..W {
            let (low, high, ranges) = (record.low[w], record.high[w], kinds.ranges[w]);
            let key = key[w] & (high | ranges);
            let top = high & ranges | low & !ranges;
            let half = |of: u32| [of as u16, (of >> 16) as u16];
            let ([l0, l1], [h0, h1], [k0, k1]) = (half(low), half(top), half(key));
            let halves = (k0 < l0) | (k0 > h0) | (k1 < l1) | (k1 > h1);
            let whole = (key < low) | (key > top);
            wrong |= if kinds.whole[w] != 0 { whole } else { halves };
        }
        !wrong
    }

    #[inline(always)]
    fn block_matches<const W: usize>(self, kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
        block_matches(kinds, block, key)
    }
}

/// [`Engine::lookup_batch`](crate::classify::acl::Engine::lookup_batch).
pub(super) fn lookup<const W: usize>(
    backend: Backend,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
) {
    if keys.len() <= FEW {
        for (key, verdict) in keys.iter().zip(verdicts) {
            let mut winner = One::above(Cutoff::default());
            scalar::lookup(engine, key, &mut winner, 0);
            *verdict = winner.verdict().unwrap_or(MatchId::NONE);
        }
        return;
    }
    for (keys, verdicts) in keys.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
        let mut winners = Single::new();
        search(backend, engine, keys, &mut winners);
        winners.verdicts(verdicts);
    }
}

/// [`Dynamic::improve_batch`].
pub(super) fn improve<const W: usize>(
    backend: Backend,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    cutoffs: &[Cutoff],
    verdicts: &mut [MatchId],
) {
    if keys.len() <= FEW {
        for ((key, cutoff), verdict) in keys.iter().zip(cutoffs).zip(verdicts) {
            let mut winner = One::above(*cutoff);
            scalar::lookup(engine, key, &mut winner, 0);
            *verdict = winner.verdict().unwrap_or(*verdict);
        }
        return;
    }
    let chunks = keys.chunks(BATCH).zip(cutoffs.chunks(BATCH)).zip(verdicts.chunks_mut(BATCH));
    for ((keys, cutoffs), verdicts) in chunks {
        let mut winners = Single::above(cutoffs);
        search(backend, engine, keys, &mut winners);
        winners.improve(verdicts);
    }
}

/// [`Engine::lookup_categories`](crate::classify::acl::Engine::lookup_categories).
pub(super) fn lookup_categories<const W: usize>(
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    if keys.len() <= FEW {
        let mut winners = Several::<FEW>::new(categories);
        one_by_one(engine, keys, &mut winners);
        return winners.verdicts(verdicts);
    }
    let verdicts = verdicts.chunks_mut(CATEGORIES_BATCH * categories);
    for (keys, verdicts) in keys.chunks(CATEGORIES_BATCH).zip(verdicts) {
        let mut winners = Several::new(categories);
        search_categories(engine, keys, &mut winners);
        winners.verdicts(verdicts);
    }
}

/// One key after the other.
fn one_by_one<const W: usize>(engine: &Dynamic<W>, keys: &[[u32; W]], winners: &mut impl Winners) {
    for (lane, key) in keys.iter().enumerate() {
        scalar::lookup(engine, key, winners, lane);
    }
}

fn search<const W: usize>(backend: Backend, engine: &Dynamic<W>, keys: &[[u32; W]], winners: &mut Single) {
    match backend {
        Backend::Scalar => one_by_one(engine, keys, winners),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has SSE4.2.
        Backend::Sse42(_) => unsafe { sse42(engine, keys, winners) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
        Backend::Avx2(isa) => unsafe { super::avx2::search(isa, engine, keys, winners) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
        Backend::Avx512(isa) => unsafe { super::avx512::search(isa, engine, keys, winners) },
        #[cfg(target_arch = "aarch64")]
        Backend::Neon(isa) => isa.run(super::neon::Search { engine, keys, winners }),
    }
}

/// Looks up in several categories, which is rare: one kernel for all CPUs with AVX2, one for NEON, none for SSE4.2.
fn search_categories<const W: usize>(
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    winners: &mut Several<CATEGORIES_BATCH>,
) {
    match engine.backend.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
        Backend::Avx2(isa) => unsafe { super::avx2::search_categories(isa, engine, keys, winners) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the witness proves that the CPU has AVX2, too, and the instructions on bits.
        Backend::Avx512(isa) => unsafe { super::avx2::search_categories(isa.into(), engine, keys, winners) },
        #[cfg(target_arch = "aarch64")]
        Backend::Neon(isa) => isa.run(super::neon::Search { engine, keys, winners }),
        _ => one_by_one(engine, keys, winners),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn sse42<const W: usize>(engine: &Dynamic<W>, keys: &[[u32; W]], winners: &mut Single) {
    run(Portable, engine, keys, winners);
}

/// All tables, for up to [`BATCH`] keys.
#[inline(always)]
pub(super) fn run<const W: usize>(
    ops: impl DynamicOps,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    winners: &mut impl BatchWinners,
) {
    let mut columns = Columns { words: [[0; BATCH]; W], len: keys.len().min(BATCH) };
    for (lane, key) in keys.iter().take(BATCH).enumerate() {
        for (column, word) in columns.words.iter_mut().zip(key) {
            column[lane] = *word;
        }
    }
    let kinds = Kinds::new(&engine.kinds);
    let mut queue = Queue { lanes: [0; QUEUE], ats: [0; QUEUE], len: 0 };
    for t in &engine.order {
        let table = &engine.tables[usize::from(*t)];
        let before = queue.len;
        for first in (0..columns.len).step_by(GROUP) {
            ops.probe(table, &columns, winners.classes(), first, &mut queue);
        }
        heads(engine, table, &mut queue, before, winners);
        rules(ops, engine, &kinds, keys, &mut queue, winners);
        while queue.len > CARRIED_MAX {
            rules(ops, engine, &kinds, keys, &mut queue, winners);
        }
    }
    while queue.len > 0 {
        rules(ops, engine, &kinds, keys, &mut queue, winners);
    }
}

/// From heads, which are those behind the first `before` of the queue, to records.
#[inline(always)]
fn heads<const W: usize>(
    engine: &Dynamic<W>,
    table: &Table<W>,
    queue: &mut Queue,
    before: usize,
    winners: &impl BatchWinners,
) {
    let candidates = before..queue.len.min(QUEUE);
    let table_heads = &table.heads[..];
    crate::memory::prefetch_each(table_heads, &queue.ats[candidates.clone()]);
    let mut kept = before;
    for i in candidates {
        let (lane, head) = (queue.lanes[i] as usize, table_heads[queue.ats[i] as usize]);
        let (number, class) = (head >> CLASS_BITS, head as u8 & 0x7f);
        engine.rules.prefetch_record(number);
        // Without a branch: what does not count is written over.
        queue.put(kept, lane, number as usize);
        kept += usize::from(class >= winners.classes()[lane % BATCH]);
    }
    queue.len = kept;
}

/// Compares each candidate with one record; those that have a next one stay.
#[inline(always)]
fn rules<const W: usize>(
    ops: impl DynamicOps,
    engine: &Dynamic<W>,
    kinds: &Kinds,
    keys: &[[u32; W]],
    queue: &mut Queue,
    winners: &mut impl BatchWinners,
) {
    let records = &engine.rules.records[..];
    let (mut kept, mut long) = (0, false);
    for i in 0..queue.len.min(QUEUE) {
        let (lane, link) = (queue.lanes[i] as usize, queue.ats[i]);
        let Some(record) = records.get(link as usize) else {
            // A block. Later: with all that blocks need, this loop would not fit into the registers.
            long = true;
            queue.put(kept, lane, link as usize);
            kept += 1;
            continue;
        };
        let matches = if const { W <= Kinds::WORDS } {
            ops.matches(kinds, record, &keys[lane])
        } else {
            record.matches(&engine.kinds, &keys[lane])
        };
        let goes_on = winners.offer(lane, matches, record.found());
        engine.rules.prefetch_record(record.next);
        // Without a branch, as in `heads`.
        queue.put(kept, lane, record.next as usize);
        kept += usize::from((record.next != 0) & goes_on);
    }
    queue.len = kept;
    if long {
        long_chains(ops, engine, keys, queue, winners);
    }
}

/// Compares the candidates that have come to a block with all blocks of their chains.
#[inline(always)]
fn long_chains<const W: usize>(
    ops: impl DynamicOps,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    queue: &mut Queue,
    winners: &mut impl BatchWinners,
) {
    let mut kept = 0;
    for i in 0..queue.len.min(QUEUE) {
        let (lane, link) = (queue.lanes[i] as usize, queue.ats[i]);
        if link & TO_BLOCK == 0 {
            queue.put(kept, lane, link as usize);
            kept += 1;
        } else {
            blocks(ops, engine, link, &keys[lane], winners, lane);
        }
    }
    queue.len = kept;
}

/// Compares a key with the blocks of a chain.
#[inline(always)]
fn blocks<const W: usize>(
    ops: impl DynamicOps,
    engine: &Dynamic<W>,
    mut link: u32,
    key: &[u32; W],
    winners: &mut impl BatchWinners,
    lane: usize,
) {
    while link != 0 {
        let block = &engine.rules.blocks[(link & !TO_BLOCK) as usize];
        engine.rules.prefetch_block(block.next);
        let mut matches = ops.block_matches(&engine.kinds, block, key);
        while matches != 0 {
            let i = matches.trailing_zeros() as usize;
            matches &= matches - 1;
            if !winners.offer(lane, true, block.found(i)) {
                return;
            }
        }
        if block.ranks[block.len as usize - 1] < winners.cutoff(lane) {
            return;
        }
        link = block.next;
    }
}
