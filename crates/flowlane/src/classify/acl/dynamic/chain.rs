//! Chains: rules of one slot, by descending rank. The first few are linked records; those further down are in blocks,
//! where they are compared 16 at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::rules::{BLOCK, Rules, TO_BLOCK};

/// Most linked records of a chain; further rules are in blocks. A chain with blocks has exactly this number of records.
pub(super) const LINKED_MAX: usize = 8;

/// A block takes its successor's rules in where both together have no more than this.
const MERGED_MAX: u32 = 12;

/// The order of the rules in a chain: by rank, and by record where callers give two rules the same rank.
type Order = Reverse<(u64, u32)>;

/// For every block of every long chain, by chain and by its first rule: so that a change deep in a chain of any length
/// finds its block in logarithmic time.
pub(super) type Directory = BTreeMap<(u64, Order), u32>;

/// The linked records of a chain, and where the last one leads to: a block, or 0.
struct Linked {
    numbers: [u32; LINKED_MAX],
    len: usize,
    rest: u32,
}

impl Linked {
    fn read<const W: usize>(rules: &Rules<W>, head: u32) -> Self {
        let mut linked = Self { numbers: [0; LINKED_MAX], len: 0, rest: head };
        while linked.rest != 0 && linked.rest & TO_BLOCK == 0 {
            linked.numbers[linked.len] = linked.rest;
            linked.len += 1;
            linked.rest = rules.records[linked.rest as usize].next;
        }
        linked
    }
}

/// A chain, by its number in the directory.
pub(super) struct Chain<'a, const W: usize> {
    pub(super) rules: &'a mut Rules<W>,
    pub(super) directory: &'a mut Directory,
    pub(super) chain: u64,
}

impl<const W: usize> Chain<'_, W> {
    fn rank(&self, number: u32) -> u64 {
        self.rules.records[number as usize].rank
    }

    fn link_to(&mut self, number: u32, next: u32) {
        self.rules.records[number as usize].next = next;
    }

    /// Adds a record to the chain that begins with `head`; gives the new head. There must be room for a block.
    pub(super) fn add(&mut self, head: u32, number: u32) -> u32 {
        let Linked { numbers, len, rest } = Linked::read(self.rules, head);
        let rank = self.rank(number);
        let place = numbers[..len].iter().position(|n| self.rank(*n) < rank).unwrap_or(len);
        if place == LINKED_MAX {
            self.add_behind(numbers[place - 1], number);
            return head;
        }
        self.link_to(number, if place < len { numbers[place] } else { rest });
        if place > 0 {
            self.link_to(numbers[place - 1], number);
        }
        if len == LINKED_MAX {
            // One too many: the last goes into a block.
            let last = if place == LINKED_MAX - 1 { number } else { numbers[LINKED_MAX - 2] };
            self.link_to(last, rest);
            self.add_behind(last, numbers[LINKED_MAX - 1]);
        }
        if place == 0 { number } else { head }
    }

    /// Takes a record out of the chain that begins with `head`; gives the new head, or none where it is not there.
    pub(super) fn remove(&mut self, head: u32, number: u32) -> Option<u32> {
        let Linked { numbers, len, rest } = Linked::read(self.rules, head);
        let Some(place) = numbers[..len].iter().position(|n| *n == number) else {
            return (rest != 0 && self.remove_behind(numbers[len - 1], number)).then_some(head);
        };
        let next = self.rules.records[number as usize].next;
        if place > 0 {
            self.link_to(numbers[place - 1], next);
        }
        if rest != 0 {
            // The best of the blocks takes its place among the linked ones.
            let last = numbers[if place == len - 1 { len - 2 } else { len - 1 }];
            let first = self.rules.blocks[(rest & !TO_BLOCK) as usize].records[0];
            self.remove_behind(last, first);
            let behind = self.rules.records[last as usize].next;
            self.link_to(first, behind);
            self.link_to(last, first);
        }
        Some(if place == 0 { next } else { head })
    }

    /// The block that a rule belongs into: the last that begins with it or with one before it.
    fn block_of(&self, order: Order) -> Option<u32> {
        let (key, block) = self.directory.range(..=(self.chain, order)).next_back()?;
        (key.0 == self.chain).then_some(*block)
    }

    fn first(&self, block: u32) -> Order {
        let held = &self.rules.blocks[block as usize];
        Reverse((held.ranks[0], held.records[0]))
    }

    /// Adds a record to the blocks behind the linked record `last`.
    fn add_behind(&mut self, last: u32, number: u32) {
        let rank = self.rank(number);
        let first = self.rules.records[last as usize].next & !TO_BLOCK;
        self.rules.counts.in_blocks += 1;
        if first == 0 {
            let block = self.rules.add_block();
            self.link_to(last, block | TO_BLOCK);
            return self.put(block, 0, number);
        }
        let mut block = self.block_of(Reverse((rank, number))).unwrap_or(first);
        let held = &self.rules.blocks[block as usize];
        let before = |i: &usize| (held.ranks[*i], held.records[*i]) > (rank, number);
        let mut at = (0..held.len as usize).take_while(before).count();
        if held.len as usize == BLOCK {
            // Insertions in descending order fill the blocks; all others leave room in both halves.
            let kept = if at == BLOCK && held.next == 0 { BLOCK } else { BLOCK / 2 };
            let next = held.next;
            let new = self.rules.add_block();
            let [from, to] = self.rules.block_pair(block, new);
            from.move_to(kept, to);
            (from.next, to.next) = (new | TO_BLOCK, next);
            if kept < BLOCK {
                self.directory.insert((self.chain, self.first(new)), new);
            }
            if at > kept || at == BLOCK {
                (block, at) = (new, at - kept);
            }
        }
        self.put(block, at, number);
    }

    /// Puts a record into a block that has room.
    fn put(&mut self, block: u32, at: usize, number: u32) {
        let record = self.rules.records[number as usize];
        if at == 0 {
            if self.rules.blocks[block as usize].len > 0 {
                self.directory.remove(&(self.chain, self.first(block)));
            }
            self.directory.insert((self.chain, Reverse((record.rank, number))), block);
        }
        self.rules.blocks[block as usize].put(at, number, &record);
    }

    /// Takes a record out of the blocks behind the linked record `last`; says whether it was there.
    fn remove_behind(&mut self, last: u32, number: u32) -> bool {
        let Some(block) = self.block_of(Reverse((self.rank(number), number))) else { return false };
        let first = self.first(block);
        let held = &mut self.rules.blocks[block as usize];
        let Some(at) = held.records[..held.len as usize].iter().position(|n| *n == number) else {
            return false;
        };
        held.take(at);
        let (len, next) = (held.len, held.next);
        self.rules.counts.in_blocks -= 1;
        if at == 0 {
            self.directory.remove(&(self.chain, first));
            if len > 0 {
                self.directory.insert((self.chain, self.first(block)), block);
            }
        }
        if len == 0 {
            match self.block_of(first) {
                Some(before) => self.rules.blocks[before as usize].next = next,
                None => self.link_to(last, next),
            }
            self.rules.drop_block(block);
        } else if next != 0 {
            self.merge(block, next & !TO_BLOCK);
        }
        true
    }

    /// Takes the rules of the block behind in, where there is room.
    fn merge(&mut self, block: u32, next: u32) {
        let key = (self.chain, self.first(next));
        let [held, behind] = self.rules.block_pair(block, next);
        if held.len + behind.len > MERGED_MAX {
            return;
        }
        behind.move_to(0, held);
        held.next = behind.next;
        self.directory.remove(&key);
        self.rules.drop_block(next);
    }
}
