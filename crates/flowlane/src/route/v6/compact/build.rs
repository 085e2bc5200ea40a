//! From sorted routes to words and lines.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{self, BUCKET_ROUTES, LEAF_SPANS, Line, NO_SEPARATOR, Word};
use crate::memory::Memory;
use crate::route::v6::hops::Hops;
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

/// How many bits a table decides over a block with so many routes: about four words a route at most, so
/// that a table is small beside what it leads to.
pub(super) fn table_bits(routes: usize, room: u8) -> u8 {
    let bits = if routes <= TABLE_8_ROUTES {
        4
    } else if routes <= TABLE_12_ROUTES {
        8
    } else {
        12
    };
    bits.min(room)
}

const TABLE_8_ROUTES: usize = 256;
const TABLE_12_ROUTES: usize = 4096;

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
        let word = if routes.len() <= BUCKET_ROUTES {
            self.spans(at, depth, end, routes, covering);
            self.bucket(mark, layout::window(depth))
        } else {
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
        let leaves = runs.div_ceil(LEAF_SPANS);
        let order = if leaves == 1 { 0 } else { layout::bucket_order(leaves) };
        let Some(block) = self.take(order) else { return Word(0) };
        let has_inner = u32::from(leaves > 1);
        for run in mark..self.made.runs.len() {
            self.hold(self.made.runs[run].1, 1);
        }
        let lines = &self.lines[block.start as usize..][..block.units()];
        let runs = &self.made.runs[mark..];
        let separator = |run: Option<&(u128, Word)>| {
            let signed = run.map_or(NO_SEPARATOR, |(last, _)| layout::signed(layout::key(*last, window)));
            signed.cast_unsigned()
        };
        if leaves > 1 {
            for (i, word) in lines[0].iter().enumerate() {
                let run = (i + 1 < leaves).then(|| &runs[(i + 1) * LEAF_SPANS - 1]);
                word.store(separator(run), Relaxed);
            }
        }
        for (leaf, spans) in lines[has_inner as usize..].iter().zip(runs.chunks(LEAF_SPANS)) {
            for i in 0..LEAF_SPANS {
                let ended = (i + 1 < spans.len()).then(|| &spans[i]);
                leaf[i].store(separator(ended), Relaxed);
                leaf[LEAF_SPANS + i].store(spans.get(i).map_or(0, |(_, word)| word.0), Relaxed);
            }
        }
        if leaves > 1 { Word::inner(block.start) } else { Word::leaf(block.start) }
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
            if word.0 & layout::NEXT_WINDOW != 0 {
                self.made.held.push((word.0, times));
            }
        }
    }

    /// Unmakes all that was made: no reader has seen it.
    pub(super) fn unmake(&mut self) {
        for block in self.made.blocks.drain(..) {
            self.pool.give_back(block);
        }
        for (word, times) in self.made.held.drain(..) {
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
        layout::Kind::Inner => {
            let separators = lines[word.line() as usize].iter();
            let leaves = 1 + separators.filter(|s| s.load(Relaxed).cast_signed() != NO_SEPARATOR).count();
            (word.line(), layout::bucket_order(leaves))
        }
        layout::Kind::Table => (word.table_line(), layout::table_order(word.table_bits())),
    };
    let own = Block { start, order };
    let of_block = &lines[start as usize..][..own.units()];
    match word.kind() {
        layout::Kind::Table => {
            let words = of_block.as_flattened().iter().map(|place| Word(place.load(Relaxed)));
            words.for_each(|word| visit(lines, word, block, hop));
        }
        layout::Kind::Leaf => visit_leaf(lines, &of_block[0], block, hop),
        _ => {
            let separators = of_block[0].iter();
            let leaves = 1 + separators.filter(|s| s.load(Relaxed).cast_signed() != NO_SEPARATOR).count();
            of_block[1..=leaves].iter().for_each(|leaf| visit_leaf(lines, leaf, block, hop));
        }
    }
    block(own);
}

fn visit_leaf(lines: &Memory<Line>, leaf: &Line, block: &mut impl FnMut(Block), hop: &mut impl FnMut(Word)) {
    leaf[LEAF_SPANS..].iter().for_each(|word| visit(lines, Word(word.load(Relaxed)), block, hop));
}
