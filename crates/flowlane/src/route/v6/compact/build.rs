//! From sorted routes to words and lines.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{self, BUCKET_ROUTES, BUCKET_SPANS, Line, NO_SEPARATOR, Word};
use crate::memory::Memory;
use crate::route::v6::hops::{Hops, LISTED};
use crate::route::v6::pool::{Block, Pool};

/// A route whose next hop is a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) first: u128,
    pub(super) len: u8,
    pub(super) hop: Word,
}

impl Route {
    fn last(&self) -> u128 {
        last(self.first, self.len)
    }
}

/// The last address of the block of `depth` bits at `at`.
pub(super) fn last(at: u128, depth: u8) -> u128 {
    at | u128::MAX.checked_shr(depth.into()).unwrap_or(0)
}

/// How many bits a table decides over a block with so many routes: up to about six words a route, so that what
/// lookups touch is small, and hardly a way leads through more than three tables.
pub(super) fn table_bits(routes: usize, room: u8) -> u8 {
    let bits = if routes < TABLE_8_ROUTES {
        4
    } else if routes < TABLE_12_ROUTES {
        8
    } else if routes < TABLE_16_ROUTES {
        12
    } else {
        16
    };
    bits.min(room)
}

const TABLE_8_ROUTES: usize = 48;
const TABLE_12_ROUTES: usize = 744;
const TABLE_16_ROUTES: usize = 12_000;

/// Whether a table of so many bits may stay over a block that has so many routes now. Between the limits for
/// making it and these, tables depend on what was before.
pub(super) fn table_may_stay(bits: u8, routes: usize, room: u8) -> bool {
    routes > BUCKET_ROUTES
        && [routes / 4, routes, routes * 4].into_iter().any(|routes| table_bits(routes, room) == bits)
}

/// The memory that a change writes to.
pub(super) struct Builder<'a> {
    pub(super) lines: &'a Memory<Line>,
    pub(super) list: &'a Memory<AtomicU64>,
    pub(super) pool: &'a mut Pool,
    pub(super) hops: &'a mut Hops,
    /// By the first line of a table: the routes in it.
    pub(super) table_routes: &'a mut Memory<u32>,
    pub(super) made: &'a mut Made,
}

/// What a change has made so far, to be unmade if it fails.
#[derive(Debug, Default)]
pub(super) struct Made {
    blocks: Vec<Block>,
    held: Vec<(u32, u32)>,
    /// Lines that were not to be had.
    pub(super) lines_missing: usize,
    /// Spans of the blocks that are being built, innermost last: last address and word.
    pub(super) runs: Vec<(u128, Word)>,
    /// Routes that the place is in, in the same way.
    open: Vec<(u128, Word)>,
}

impl Made {
    /// Begins the next change.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.held.clear();
        self.lines_missing = 0;
        self.runs.clear();
    }
}

impl Builder<'_> {
    /// What holds for the block of `depth` bits at `at`: `routes` are those inside it that are longer, sorted,
    /// and `covering` holds where there are none.
    pub(super) fn block(&mut self, at: u128, depth: u8, routes: &[Route], covering: Word) -> Word {
        if routes.is_empty() {
            return covering;
        }
        let end = layout::window_end(depth);
        let mark = self.made.runs.len();
        let before = (self.made.blocks.len(), self.made.held.len());
        if routes.len() <= BUCKET_ROUTES {
            self.spans(at, depth, end, routes, covering);
        }
        let spans = self.made.runs.len() - mark;
        let word = if routes.len() <= BUCKET_ROUTES && spans <= 2 * BUCKET_SPANS {
            self.bucket(mark, layout::window(depth))
        } else {
            // Among the spans there may have been blocks of the next window.
            self.unmake_from(before);
            self.made.runs.truncate(mark);
            let bits = table_bits(routes.len(), end - depth);
            self.spans(at, depth, depth + bits, routes, covering);
            self.table(mark, at, depth, bits, routes.len())
        };
        self.made.runs.truncate(mark);
        word
    }

    /// Pushes the spans of a block on the stack of runs, where what is longer than `grain` bits is a block of
    /// its own.
    pub(super) fn spans(&mut self, at: u128, depth: u8, grain: u8, routes: &[Route], covering: Word) {
        let ends_window = depth >= layout::WINDOW_START && grain == layout::window_end(depth);
        let (mark, outermost) = (self.made.runs.len(), self.made.open.len());
        self.made.open.push((last(at, depth), covering));
        let mut rest = routes;
        while let Some(route) = rest.first() {
            let first = route.first & !last(0, grain);
            self.close(mark, outermost, first);
            let inner = self.made.open[self.made.open.len() - 1].1;
            if first > at {
                self.run(mark, first - 1, inner);
            }
            if route.len <= grain {
                self.made.open.push((route.last(), route.hop));
                rest = &rest[1..];
                continue;
            }
            let cell_last = last(first, grain);
            let cell = rest.partition_point(|route| route.first <= cell_last);
            let word = self.block(first, grain, &rest[..cell], inner);
            self.run(mark, cell_last, if ends_window { word.in_next_window() } else { word });
            rest = &rest[cell..];
        }
        while self.made.open.len() > outermost {
            let (last, word) = self.made.open[self.made.open.len() - 1];
            self.run(mark, last, word);
            self.made.open.pop();
        }
    }

    /// Ends the routes that end before `first`.
    fn close(&mut self, mark: usize, outermost: usize, first: u128) {
        while let Some(&(last, word)) = self.made.open[outermost..].last().filter(|(last, _)| *last < first) {
            self.run(mark, last, word);
            self.made.open.pop();
        }
    }

    /// From where the last run ended to `last` holds `word`.
    fn run(&mut self, mark: usize, last: u128, word: Word) {
        match self.made.runs[mark..].last_mut() {
            Some((end, _)) if *end >= last => {}
            Some((end, before)) if *before == word && word.is_hop() => *end = last,
            _ => self.made.runs.push((last, word)),
        }
    }

    /// The runs from `mark` on, as leaves.
    fn bucket(&mut self, mark: usize, window: u8) -> Word {
        let runs = self.made.runs.len() - mark;
        if runs == 1 {
            return self.made.runs[mark].1;
        }
        let is_pair = runs > BUCKET_SPANS;
        let Some(block) = self.take(is_pair.into()) else { return Word(0) };
        for run in mark..self.made.runs.len() {
            self.hold(self.made.runs[run].1, 1);
        }
        let words = self.lines[block.start as usize..][..block.units()].as_flattened();
        let (separators, spans) = words.split_at(words.len() / 2);
        let runs = &self.made.runs[mark..];
        for (i, (separator, span)) in separators.iter().zip(spans).enumerate() {
            let ended = runs.get(i).filter(|_| i + 1 < runs.len());
            let last = ended.map(|(last, _)| layout::signed(layout::key(*last, window)));
            separator.store(last.unwrap_or(NO_SEPARATOR).cast_unsigned(), Relaxed);
            span.store(runs.get(i).map_or(0, |(_, word)| word.0), Relaxed);
        }
        if is_pair { Word::pair(block.start) } else { Word::leaf(block.start) }
    }

    /// The runs from `mark` on, as a table.
    fn table(&mut self, mark: usize, at: u128, depth: u8, bits: u8, routes: usize) -> Word {
        let Some(block) = self.take(layout::table_order(bits)) else { return Word(0) };
        let words = self.lines[block.start as usize..][..block.units()].as_flattened();
        let mut next = 0;
        for run in mark..self.made.runs.len() {
            let (last, word) = self.made.runs[run];
            let end = ((last - at) >> (128 - depth - bits)) as usize + 1;
            self.hold(word, (end - next) as u32);
            words[next..end].iter().for_each(|place| place.store(word.0, Relaxed));
            next = end;
        }
        self.table_routes[block.start as usize] = routes as u32;
        let window_start = layout::WINDOW_START + 32 * layout::window(depth);
        Word::table(block.start, bits, 32 - (depth - window_start) - bits)
    }

    fn take(&mut self, order: u8) -> Option<Block> {
        let block = self.pool.take(order);
        match block {
            Some(block) => self.made.blocks.push(block),
            None => self.made.lines_missing += 1 << order,
        }
        block
    }

    /// `word` is stored so many times more.
    pub(super) fn hold(&mut self, word: Word, times: u32) {
        if word.is_hop() {
            self.hops.hold(word.0, times);
            if word.0 & LISTED != 0 {
                self.made.held.push((word.0, times));
            }
        }
    }

    /// Unmakes all that was made: no reader has seen it.
    pub(super) fn unmake(&mut self) {
        self.unmake_from((0, 0));
    }

    /// The same, but for so many blocks and uses of next hops.
    fn unmake_from(&mut self, (blocks, held): (usize, usize)) {
        for block in self.made.blocks.drain(blocks..) {
            self.pool.give_back(block);
        }
        for (word, times) in self.made.held.drain(held..) {
            (0..times).for_each(|_| self.hops.release(self.list, word));
        }
    }
}

/// Shows `block` and `hop` what `word` leads to, everything below it.
pub(super) fn visit(
    lines: &Memory<Line>,
    word: Word,
    block: &mut impl FnMut(Block),
    hop: &mut impl FnMut(Word),
) {
    let (start, order) = match word.kind() {
        layout::Kind::Hop => return hop(word),
        layout::Kind::Leaf => (word.line(), 0),
        layout::Kind::Pair => (word.line(), 1),
        layout::Kind::Table => (word.table_line(), layout::table_order(word.table_bits())),
    };
    let own = Block { start, order };
    let words = lines[start as usize..][..own.units()].as_flattened();
    // Of a bucket the second half.
    let first = if word.kind() == layout::Kind::Table { 0 } else { words.len() / 2 };
    words[first..].iter().for_each(|place| visit(lines, Word(place.load(Relaxed)), block, hop));
    block(own);
}
