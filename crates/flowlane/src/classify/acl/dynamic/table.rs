//! A hash table: the rules that go by one mask.
//!
//! ```text
//! front  tag tag tag tag tag tag tag | class·2 + overflowed     8 bytes a bucket: what nearly all lookups stop at
//! heads  7 chains, one for each tag, and one for what overflowed: 32 bytes a bucket
//! ```

use super::chain::{Chain, Directory, LINKED_MAX};
use super::plan::Planned;
use super::rules::{BLOCK, Rules};
use super::{copied, mask_of};
use crate::classify::acl::WordKind;
use crate::hash::multilinear::{Multilinear, finish, term};
use crate::memory::{CachePadded, Memory, prefetch};

/// Tags in a bucket.
pub(super) const TAGS: usize = 7;

/// Heads of a bucket: one for each tag, then one for all rules whose tag found no place.
pub(super) const HEADS: usize = 8;

/// Where a bucket's class begins in its front.
pub(super) const CLASS_SHIFT: u32 = 57;

/// In a bucket's front: there are rules without a tag.
pub(super) const OVERFLOWED: u64 = 1 << 56;

/// In a head: bits of the class; the number of the first record is above them.
pub(super) const CLASS_BITS: u32 = 7;

/// Heads in use in a bucket, on average, at most: with 3 of 7, one bucket in 80 overflows.
const LOAD_MAX: usize = 3;

/// Most buckets, so that tags and bucket numbers have no bits of the hash in common.
pub(super) const BUCKETS_MAX: usize = 1 << 24;

/// A word that is hashed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Term {
    pub(super) word: u32,
    pub(super) mask: u32,
    pub(super) multiplier: u32,
}

#[derive(Debug)]
pub(super) struct Table<const W: usize> {
    pub(super) mask: [u32; W],
    /// Keys of the plan's sample whose winner is here: tables are searched by this, most first.
    pub(super) wins: u32,
    /// Only the first `terms_len` are.
    terms: [Term; W],
    terms_len: usize,
    pub(super) front: Memory<u64>,
    pub(super) heads: Memory<u32>,
    /// The shift that makes a bucket number of a hash.
    pub(super) shift: u32,
    /// The highest class of its rules.
    pub(super) ceiling: u8,
    number: u8,
    seed: u64,
    tally: CachePadded<Tally>,
}

/// Counters that every change writes and no lookup reads.
#[derive(Clone, Copy, Debug)]
struct Tally {
    /// Number of rules, and of those of each class.
    len: usize,
    in_class: [u32; super::classes::CLASSES],
    /// Heads in use.
    slots: usize,
}

impl<const W: usize> Clone for Table<W> {
    fn clone(&self) -> Self {
        Self { front: copied(&self.front), heads: copied(&self.heads), tally: self.tally.clone(), ..*self }
    }
}

/// Where the rules of a hash are: a bucket, and a tag there that is not 0.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) bucket: usize,
    pub(super) tag: u8,
}

/// The head for `tag` in a bucket of this front.
#[inline(always)]
pub(super) fn head_of(front: u64, tag: u8) -> Option<usize> {
    // A zero byte in what differs; the lowest that this finds is one, and tags of a bucket differ from each other.
    let different = front ^ (u64::from(tag) * 0x0101_0101_0101_0101);
    let zero = different.wrapping_sub(0x0101_0101_0101_0101) & !different & 0x0080_8080_8080_8080;
    (zero != 0).then(|| zero.trailing_zeros() as usize / 8)
}

fn buckets_for(slots: usize) -> usize {
    slots.div_ceil(LOAD_MAX).next_power_of_two().clamp(2, BUCKETS_MAX)
}

impl<const W: usize> Table<W> {
    /// Creates an empty table with room for this number of different keys.
    pub(super) fn with_room(Planned { mask, wins }: Planned<W>, number: u8, seed: u64, keys: usize) -> Self {
        let hash = Multilinear::new(seed ^ u64::from(number) << 32);
        let mut terms = [Term::default(); W];
        let mut terms_len = 0;
        for w in (0..W).filter(|w| mask[*w] != 0) {
            terms[terms_len] = Term { word: w as u32, mask: mask[w], multiplier: hash.multiplier(w) };
            terms_len += 1;
        }
        let buckets = buckets_for(keys);
        Self {
            mask,
            wins,
            terms,
            terms_len,
            front: Memory::zeroed(buckets),
            heads: Memory::zeroed(buckets * HEADS),
            shift: 32 - buckets.ilog2(),
            ceiling: 0,
            number,
            seed,
            tally: CachePadded(Tally { len: 0, in_class: [0; super::classes::CLASSES], slots: 0 }),
        }
    }

    /// An empty table of the same mask with room for these rules, and the blocks that they will need.
    pub(super) fn emptied_for(&self, rules: &Rules<W>, numbers: &[u32]) -> (Self, usize) {
        let mut hashes: Vec<u32> =
            numbers.iter().map(|n| self.hash(&rules.records[*n as usize].low)).collect();
        hashes.sort_unstable();
        let (mut keys, mut blocks) = (0, 0);
        for same in hashes.chunk_by(|a, b| a == b) {
            keys += 1;
            blocks += same.len().saturating_sub(LINKED_MAX).div_ceil(BLOCK);
        }
        let planned = Planned { mask: self.mask, wins: self.wins };
        (Self::with_room(planned, self.number, self.seed, keys + keys / 8), blocks)
    }

    pub(super) fn bytes(&self) -> usize {
        self.front.size_bytes() + self.heads.size_bytes()
    }

    /// Number of rules.
    pub(super) fn len(&self) -> usize {
        self.tally.len
    }

    /// Returns whether one more rule needs more buckets.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.tally.slots >= self.front.len() * LOAD_MAX && self.front.len() < BUCKETS_MAX
    }

    /// Returns the words that are hashed.
    #[inline(always)]
    pub(super) fn terms(&self) -> &[Term] {
        &self.terms[..self.terms_len]
    }

    /// The hash of a key under the mask: the definition.
    #[inline(always)]
    pub(super) fn hash(&self, key: &[u32; W]) -> u32 {
        let sum = self
            .terms()
            .iter()
            .fold(0u64, |sum, t| sum.wrapping_add(term(t.multiplier, key[t.word as usize % W] & t.mask)));
        finish(sum)
    }

    #[inline(always)]
    pub(super) fn place(&self, hash: u32) -> Place {
        Place { bucket: (hash >> self.shift) as usize, tag: (hash as u8).max(1) }
    }

    /// Asks for what a change under this key will read first.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u32; W]) {
        let bucket = self.place(self.hash(key)).bucket;
        prefetch(&self.front, bucket);
        prefetch(&self.heads, bucket * HEADS);
    }

    /// Adds a record's rule; there must be room for a block.
    pub(super) fn add(&mut self, rules: &mut Rules<W>, directory: &mut Directory, number: u32) {
        let record = rules.records[number as usize];
        let Place { bucket, tag } = self.place(self.hash(&record.low));
        let front = self.front[bucket];
        let at = head_of(front, tag).or_else(|| {
            let free = head_of(front, 0);
            free.inspect(|at| self.front[bucket] |= u64::from(tag) << (8 * at))
        });
        let at = at.unwrap_or_else(|| {
            self.front[bucket] |= OVERFLOWED;
            TAGS
        });
        let slot = bucket * HEADS + at;
        let head = self.heads[slot] >> CLASS_BITS;
        self.tally.slots += usize::from(head == 0);
        let mut chain = Chain { rules, directory, chain: self.chain(slot) };
        let head = chain.add(head, number);
        self.set_head(rules, slot, head);
        let class = u64::from(record.class);
        if self.front[bucket] >> CLASS_SHIFT < class {
            self.front[bucket] = self.front[bucket] & ((1 << CLASS_SHIFT) - 1) | class << CLASS_SHIFT;
        }
        self.tally.len += 1;
        self.tally.in_class[usize::from(record.class)] += 1;
        if self.ceiling < record.class {
            self.ceiling = record.class;
        }
    }

    /// Removes a record's rule.
    pub(super) fn remove(&mut self, rules: &mut Rules<W>, directory: &mut Directory, number: u32) {
        let record = rules.records[number as usize];
        let Place { bucket, tag } = self.place(self.hash(&record.low));
        let mut front = self.front[bucket];
        let heads = head_of(front, tag).into_iter().chain([TAGS]);
        for at in heads {
            let slot = bucket * HEADS + at;
            let head = self.heads[slot] >> CLASS_BITS;
            let mut chain = Chain { rules: &mut *rules, directory: &mut *directory, chain: self.chain(slot) };
            let Some(head) = chain.remove(head, number) else { continue };
            self.set_head(rules, slot, head);
            if head == 0 {
                self.tally.slots -= 1;
                let cleared = if at == TAGS { OVERFLOWED } else { 0xff << (8 * at) };
                front &= !cleared;
            }
            break;
        }
        let heads = &self.heads[bucket * HEADS..][..HEADS];
        let class = heads.iter().map(|head| head & ((1 << CLASS_BITS) - 1)).max().unwrap_or(0);
        front = front & ((1 << CLASS_SHIFT) - 1) | u64::from(class) << CLASS_SHIFT;
        // What stays as it is is not written: readers on other cores would fetch it again.
        if self.front[bucket] != front {
            self.front[bucket] = front;
        }
        self.tally.len -= 1;
        self.tally.in_class[usize::from(record.class)] -= 1;
        while self.ceiling > 0 && self.tally.in_class[usize::from(self.ceiling)] == 0 {
            self.ceiling -= 1;
        }
    }

    /// The chain's number in the directory.
    fn chain(&self, slot: usize) -> u64 {
        u64::from(self.number) << 32 | slot as u64
    }

    fn set_head(&mut self, rules: &Rules<W>, slot: usize, head: u32) {
        let class = if head == 0 { 0 } else { rules.records[head as usize].class };
        let head = head << CLASS_BITS | u32::from(class);
        if self.heads[slot] != head {
            self.heads[slot] = head;
        }
    }
}

/// The mask that a rule has at most: the bits in which all keys that fulfil its condition agree.
#[inline]
pub(super) fn finest_mask<const W: usize>(
    kinds: &[WordKind; W],
    low: &[u32; W],
    high: &[u32; W],
) -> [u32; W] {
    std::array::from_fn(|w| mask_of(kinds[w], low[w], high[w]))
}
