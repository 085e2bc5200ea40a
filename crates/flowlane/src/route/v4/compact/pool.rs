//! Buddy allocator for pool words.
//!
//! A block has 2 to 256 words, a power of two, and begins at a multiple of its size: one of up to 64 bytes lies in
//! one cache line. Free neighbours join again, so that churn leaves nothing behind.

/// Words of the smallest block.
const UNIT: usize = 2;

/// Sizes of blocks: 16, 32, … 2048 bytes.
const ORDERS: usize = 8;

/// Units of the largest block.
const LARGEST: usize = 1 << (ORDERS - 1);

/// Words of the largest block.
pub(super) const LARGEST_WORDS: usize = UNIT * LARGEST;

/// The state of a unit: the order of the block that begins there, and whether that is free; or within one.
const FREE: u8 = 0x80;
const WITHIN: u8 = 0x7f;

#[derive(Debug)]
pub(super) struct Blocks {
    /// For each unit in use so far.
    states: Vec<u8>,
    /// Blocks that were free once: those whose state says so still are. Others are dropped when met.
    free: [Vec<u32>; ORDERS],
    units_max: usize,
    free_units: usize,
}

impl Blocks {
    /// An allocator of this number of words. The first of them, a multiple of the largest block, are reserved.
    pub(super) fn new(words_max: usize, words_reserved: usize) -> Self {
        let units_max = words_max / UNIT / LARGEST * LARGEST;
        let units_reserved = words_reserved.next_multiple_of(LARGEST_WORDS) / UNIT;
        let states = vec![WITHIN; units_reserved];
        Self { states, free: Default::default(), units_max, free_units: 0 }
    }

    /// Words reserved, and handed out so far, back again or not.
    pub(super) fn words_touched(&self) -> usize {
        self.states.len() * UNIT
    }

    /// Words in blocks that are free.
    #[cfg(test)]
    pub(super) fn words_free(&self) -> usize {
        self.free_units * UNIT
    }

    /// Blocks that are taken.
    #[cfg(test)]
    pub(super) fn pieces_taken(&self) -> usize {
        self.states.iter().filter(|state| usize::from(**state) < ORDERS).count()
    }

    /// Returns the bytes for this account itself.
    pub(super) fn own_bytes(&self) -> usize {
        self.states.capacity()
            + self.free.iter().map(|list| list.capacity() * size_of::<u32>()).sum::<usize>()
    }

    /// The first word of a block of `words`; none where there is no room, or only in words that were never used and
    /// `may_extend` does not allow those.
    pub(super) fn take(&mut self, words: usize, may_extend: bool) -> Option<u32> {
        let order = order_of(words);
        let mut from = order;
        let at = loop {
            if from == ORDERS {
                from -= 1;
                break may_extend.then(|| self.extend()).flatten()?;
            }
            match self.free[from].pop() {
                Some(at) if self.states[at as usize] == FREE | from as u8 => break at,
                Some(_) => {}
                None => from += 1,
            }
        };
        while from > order {
            from -= 1;
            self.put(at + (1 << from), from);
        }
        self.states[at as usize] = order as u8;
        self.free_units -= 1 << order;
        Some(at * UNIT as u32)
    }

    /// Gives the block at this word back.
    pub(super) fn give(&mut self, word: u32) {
        let mut at = word / UNIT as u32;
        let mut order = usize::from(self.states[at as usize]);
        self.free_units += 1 << order;
        while order + 1 < ORDERS {
            let buddy = at ^ (1 << order);
            if self.states[buddy as usize] != FREE | order as u8 {
                break;
            }
            self.states[at.max(buddy) as usize] = WITHIN;
            at = at.min(buddy);
            order += 1;
        }
        self.put(at, order);
    }

    /// Resets the number of words that were ever touched: all beyond are free.
    pub(super) fn untouch(&mut self, words_touched: usize) {
        let units = words_touched / UNIT;
        self.free_units -= self.states.len() - units;
        self.states.truncate(units);
        self.free.iter_mut().for_each(|list| list.retain(|at| (*at as usize) < units));
    }

    fn put(&mut self, at: u32, order: usize) {
        self.states[at as usize] = FREE | order as u8;
        self.free[order].push(at);
    }

    /// Returns a block of the largest size that was never used.
    fn extend(&mut self) -> Option<u32> {
        let at = self.states.len();
        if at + LARGEST > self.units_max {
            return None;
        }
        self.states.resize(at + LARGEST, WITHIN);
        self.free_units += LARGEST;
        Some(at as u32)
    }
}

/// Returns the order of the smallest block with this number of words.
fn order_of(words: usize) -> usize {
    words.div_ceil(UNIT).next_power_of_two().ilog2() as usize
}

/// Returns the words of the block that `words` get.
pub(super) fn words_of_block(words: usize) -> usize {
    UNIT << order_of(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::random::Random;

    #[test]
    fn blocks_do_not_overlap_and_join_again() {
        let mut blocks = Blocks::new(1 << 14, 0);
        let mut random = Random::new(3);
        let mut taken: Vec<(u32, usize)> = Vec::new();
        for _ in 0..20_000 {
            let words = 1 + random.index(81);
            let block = if random.below(2) == 0 { blocks.take(words, true) } else { None };
            if let Some(at) = block {
                let len = words_of_block(words);
                assert_eq!(at as usize % len, 0);
                assert!(taken.iter().all(|(other, other_len)| {
                    at as usize + len <= *other as usize || *other as usize + other_len <= at as usize
                }));
                taken.push((at, len));
            } else if !taken.is_empty() {
                blocks.give(taken.swap_remove(random.index(taken.len())).0);
            }
            let words_taken: usize = taken.iter().map(|(_, len)| len).sum();
            assert_eq!(blocks.words_touched() - blocks.words_free(), words_taken);
        }
        taken.drain(..).for_each(|(at, _)| blocks.give(at));
        assert_eq!(blocks.words_free(), blocks.words_touched());
        let largest = blocks.words_touched() / (UNIT * LARGEST);
        assert!((0..largest).all(|_| blocks.take(UNIT * LARGEST, true).is_some()), "all have joined");
        assert_eq!(blocks.words_touched(), largest * UNIT * LARGEST);
    }
}
