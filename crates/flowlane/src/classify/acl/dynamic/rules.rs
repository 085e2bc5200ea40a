//! The rules, one record each, and blocks of 16 for those far down a long chain.

use crate::classify::acl::{Entry, RankKey, WordKind};
use crate::memory::{CachePadded, LINE_BYTES, Memory, Zeroed, prefetch_at};
use crate::rule::RuleId;

use super::winners::Found;
use super::{copied, resized};

/// Rules in a block.
pub(super) const BLOCK: usize = 16;

/// In a link: it leads to a block.
pub(super) const TO_BLOCK: u32 = 1 << 31;

/// A rule: one line for keys of up to five words. Records do not move while their rule is there; number 0 is none.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Record<const W: usize> {
    pub(super) low: [u32; W],
    pub(super) high: [u32; W],
    pub(super) rank: u64,
    pub(super) rule: u32,
    /// The next of its chain, of a lower rank: a record, or a block with [`TO_BLOCK`]; 0: the end. Of a free record:
    /// the next free one.
    pub(super) next: u32,
    pub(super) categories: u16,
    pub(super) table: u8,
    /// Its rank's class; [`FREE`] where the record is free.
    pub(super) class: u8,
}

/// The class of records that hold no rule.
const FREE: u8 = u8::MAX;

// SAFETY: integers, which any bytes are.
unsafe impl<const W: usize> Zeroed for Record<W> {}

const _: () =
    assert!(size_of::<Record<4>>() == 64 && size_of::<Record<5>>() == 64 && size_of::<Record<10>>() == 128);

/// Rules of one chain side by side, by descending rank.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Block<const W: usize> {
    pub(super) low: [[u32; BLOCK]; W],
    pub(super) high: [[u32; BLOCK]; W],
    pub(super) ranks: [u64; BLOCK],
    pub(super) records: [u32; BLOCK],
    pub(super) rules: [u32; BLOCK],
    pub(super) categories: [u16; BLOCK],
    pub(super) classes: [u8; BLOCK],
    pub(super) len: u32,
    /// The next block of the chain, with [`TO_BLOCK`]; 0: the end. Of a free block: the next free one.
    pub(super) next: u32,
}

// SAFETY: integers, which any bytes are.
unsafe impl<const W: usize> Zeroed for Block<W> {}

impl<const W: usize> Block<W> {
    /// The rule at place `i`.
    #[inline(always)]
    pub(super) fn found(&self, i: usize) -> Found {
        Found {
            rank: self.ranks[i],
            rule: self.rules[i],
            class: self.classes[i],
            categories: self.categories[i],
        }
    }

    /// Puts a rule at place `at`, before those that are there.
    pub(super) fn put(&mut self, at: usize, number: u32, record: &Record<W>) {
        let len = self.len as usize;
        for w in 0..W {
            self.low[w].copy_within(at..len, at + 1);
            self.high[w].copy_within(at..len, at + 1);
            self.low[w][at] = record.low[w];
            self.high[w][at] = record.high[w];
        }
        self.ranks.copy_within(at..len, at + 1);
        self.records.copy_within(at..len, at + 1);
        self.rules.copy_within(at..len, at + 1);
        self.categories.copy_within(at..len, at + 1);
        self.classes.copy_within(at..len, at + 1);
        self.ranks[at] = record.rank;
        self.records[at] = number;
        self.rules[at] = record.rule;
        self.categories[at] = record.categories;
        self.classes[at] = record.class;
        self.len += 1;
    }

    /// Takes the rule at place `at` out.
    pub(super) fn take(&mut self, at: usize) {
        for w in 0..W {
            self.low[w].copy_within(at + 1.., at);
            self.high[w].copy_within(at + 1.., at);
        }
        self.ranks.copy_within(at + 1.., at);
        self.records.copy_within(at + 1.., at);
        self.rules.copy_within(at + 1.., at);
        self.categories.copy_within(at + 1.., at);
        self.classes.copy_within(at + 1.., at);
        self.len -= 1;
    }

    /// Moves the rules from place `from` on behind those of `to`.
    pub(super) fn move_to(&mut self, from: usize, to: &mut Self) {
        let (count, at) = (self.len as usize - from, to.len as usize);
        for w in 0..W {
            to.low[w][at..at + count].copy_from_slice(&self.low[w][from..from + count]);
            to.high[w][at..at + count].copy_from_slice(&self.high[w][from..from + count]);
        }
        to.ranks[at..at + count].copy_from_slice(&self.ranks[from..from + count]);
        to.records[at..at + count].copy_from_slice(&self.records[from..from + count]);
        to.rules[at..at + count].copy_from_slice(&self.rules[from..from + count]);
        to.categories[at..at + count].copy_from_slice(&self.categories[from..from + count]);
        to.classes[at..at + count].copy_from_slice(&self.classes[from..from + count]);
        to.len += count as u32;
        self.len = from as u32;
    }
}

impl<const W: usize> Record<W> {
    /// Returns whether `key` fulfils the condition: the definition.
    #[inline]
    pub(super) fn matches(&self, kinds: &[WordKind; W], key: &[u32; W]) -> bool {
        self.entry().condition.matches(kinds, key)
    }

    #[inline(always)]
    pub(super) fn found(&self) -> Found {
        Found { rank: self.rank, rule: self.rule, class: self.class, categories: self.categories }
    }

    pub(super) fn entry(&self) -> Entry<W> {
        Entry {
            condition: crate::classify::acl::Condition { low: self.low, high: self.high },
            rank: RankKey(self.rank),
            rule: RuleId(self.rule),
            categories: self.categories,
        }
    }
}

/// All records and blocks.
#[derive(Debug)]
pub(super) struct Rules<const W: usize> {
    pub(super) records: Memory<Record<W>>,
    pub(super) blocks: Memory<Block<W>>,
    pub(super) counts: CachePadded<Counts>,
}

/// Counters that changes write and no lookup reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// The first free one, and how many have ever been in use: of records, and of blocks.
    free: [u32; 2],
    used: [u32; 2],
    pub(super) len: usize,
    pub(super) blocks_len: usize,
    /// Rules that are in blocks.
    pub(super) in_blocks: usize,
}

impl<const W: usize> Clone for Rules<W> {
    fn clone(&self) -> Self {
        Self { records: copied(&self.records), blocks: copied(&self.blocks), counts: self.counts.clone() }
    }
}

impl<const W: usize> Rules<W> {
    pub(super) fn with_room(rules: usize) -> Self {
        Self {
            records: Memory::zeroed(rules + 1),
            blocks: Memory::zeroed(1),
            counts: CachePadded(Counts { free: [0; 2], used: [1; 2], len: 0, blocks_len: 0, in_blocks: 0 }),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.size_bytes() + self.blocks.size_bytes()
    }

    /// Number of rules.
    pub(super) fn len(&self) -> usize {
        self.counts.len
    }

    /// Records that there is room for.
    pub(super) fn room(&self) -> usize {
        self.records.len() - 1
    }

    /// How much room to make for one more record, or for `blocks` more; 0: none is needed.
    pub(super) fn wanted_room(&self, blocks: usize) -> [usize; 2] {
        let grown = |len: usize| len + len / 2 + 16;
        let records = if self.counts.len + 1 < self.records.len() { 0 } else { grown(self.records.len()) };
        let needed = self.counts.blocks_len + blocks + 1;
        let blocks = if needed <= self.blocks.len() { 0 } else { grown(self.blocks.len()).max(needed) };
        [records, blocks]
    }

    /// Bytes that this room takes beyond what there is.
    pub(super) fn room_bytes(&self, [records, blocks]: [usize; 2]) -> usize {
        records.saturating_sub(self.records.len()) * size_of::<Record<W>>()
            + blocks.saturating_sub(self.blocks.len()) * size_of::<Block<W>>()
    }

    pub(super) fn make_room(&mut self, [records, blocks]: [usize; 2]) {
        if records > self.records.len() {
            self.records = resized(&self.records, records);
        }
        if blocks > self.blocks.len() {
            self.blocks = resized(&self.blocks, blocks);
        }
    }

    /// Adds a record, for which there must be room.
    pub(super) fn add(&mut self, entry: &Entry<W>, table: u8, class: u8) -> u32 {
        let number = match self.counts.free[0] {
            0 => {
                self.counts.used[0] += 1;
                self.counts.used[0] - 1
            }
            number => number,
        };
        let record = &mut self.records[number as usize];
        let next_free = if self.counts.free[0] == number { record.next } else { 0 };
        *record = Record {
            low: entry.condition.low,
            high: entry.condition.high,
            rank: entry.rank.0,
            rule: entry.rule.0,
            next: 0,
            categories: entry.categories,
            table,
            class,
        };
        self.counts.len += 1;
        self.counts.free[0] = next_free;
        // The next one to be added will want to know which is free after it.
        self.prefetch_record(next_free);
        number
    }

    /// Frees a record.
    pub(super) fn drop(&mut self, number: u32) {
        let record = &mut self.records[number as usize];
        (record.class, record.next) = (FREE, self.counts.free[0]);
        self.counts.free[0] = number;
        self.counts.len -= 1;
    }

    /// An empty block, for which there must be room.
    pub(super) fn add_block(&mut self) -> u32 {
        let number = match self.counts.free[1] {
            0 => {
                self.counts.used[1] += 1;
                self.counts.used[1] - 1
            }
            number => number,
        };
        let block = &mut self.blocks[number as usize];
        if self.counts.free[1] == number {
            self.counts.free[1] = block.next;
        }
        (block.len, block.next) = (0, 0);
        self.counts.blocks_len += 1;
        number
    }

    /// Frees a block.
    pub(super) fn drop_block(&mut self, number: u32) {
        self.blocks[number as usize].next = self.counts.free[1];
        self.counts.free[1] = number;
        self.counts.blocks_len -= 1;
    }

    /// Two blocks.
    pub(super) fn block_pair(&mut self, a: u32, b: u32) -> [&mut Block<W>; 2] {
        self.blocks.get_disjoint_mut([a as usize, b as usize]).expect("two blocks of a chain differ")
    }

    /// The numbers of the records in use.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        (1..self.counts.used[0]).filter(|n| self.records[*n as usize].class != FREE)
    }

    /// Asks for a record.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, number: u32) {
        let record = self.records.as_ptr().wrapping_add(number as usize).cast::<u8>();
        for line in 0..size_of::<Record<W>>() / LINE_BYTES {
            prefetch_at(record.wrapping_add(LINE_BYTES * line));
        }
    }

    /// Asks for the block that a link leads to.
    #[inline(always)]
    pub(super) fn prefetch_block(&self, link: u32) {
        let block = self.blocks.as_ptr().wrapping_add((link & !TO_BLOCK) as usize).cast::<u8>();
        for line in 0..size_of::<Block<W>>() / LINE_BYTES {
            prefetch_at(block.wrapping_add(LINE_BYTES * line));
        }
    }
}
