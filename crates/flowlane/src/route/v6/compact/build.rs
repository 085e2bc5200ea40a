//! From sorted routes to words and lines.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{
    self, BUCKET_SPANS, Kind, LINE_UNITS, Line, NARROW_SPANS, NO_SEPARATOR, NO_SEPARATOR_16, NODE_ROUTES,
    UNIT_WORDS, UPPER_SHIFT, Word,
};
use super::scalar::halves;
use crate::memory::Memory;
use crate::route::v6::hops::{Hops, LISTED};
use crate::route::v6::pool::{Block, Pool};

/// Where blocks with few routes in them are tables, too.
///
/// A trie takes more memory, and a lookup in it no comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Nowhere: they are nodes.
    Nodes,
    /// In the first window, where nearly everything is that is announced. Beyond, a route could take a dozen tables.
    Trie,
}

impl Form {
    /// Returns the units that only removals may take: what they rebuild exists beside what it replaces. In a trie that may be a table
    /// of [`TRIE_ROUTES`], which leaves some for a quarter of them.
    pub(super) fn reserve(self) -> usize {
        let lines = if self == Self::Trie { 1 << 14 } else { 1 << 8 };
        lines * LINE_UNITS
    }

    /// Returns whether a block of `depth` bits is a table whatever its routes.
    fn is_table(self, depth: u8) -> bool {
        self == Self::Trie && depth < layout::window_end(layout::WINDOW_START)
    }

    /// Returns the bits of a table over a block of `depth` bits.
    fn table_bits(self, depth: u8, routes: &[Route]) -> u8 {
        if self.is_table(depth) && !in_upper_half(depth) {
            trie_bits(depth, routes)
        } else {
            table_bits(depth, routes)
        }
    }
}

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

/// Returns the last address of the block of `depth` bits at `at`.
pub(super) fn last(at: u128, depth: u8) -> u128 {
    at | u128::MAX.checked_shr(depth.into()).unwrap_or(0)
}

/// How many bits a table decides over a block of `depth` bits: up to the middle of its window eight at a time, or all sixteen where
/// the first window has many routes, or nearly all are in few places; then as few as leave hardly a cell to another table, unless the table would be large for its
/// routes, or all sixteen where these fill a table of them.
fn table_bits(depth: u8, routes: &[Route]) -> u8 {
    let room = layout::window_end(depth) - depth;
    let cells = |bits: u8| {
        let cell = move |route: &Route| route.first & !last(0, depth + bits);
        routes.chunk_by(move |a, b| cell(a) == cell(b)).map(<[_]>::len)
    };
    if in_upper_half(depth) {
        let is_wide = may_be_wide(depth, routes.len())
            && (depth == layout::WINDOW_START || cells(16).count() <= CLUSTERED_CELLS);
        return if is_wide { 16 } else { room.min(8) };
    }
    let widest = least(&TABLE_ROUTES_MIN, routes.len()).min(room);
    if widest == 16 && routes.len() >= TABLE_ROUTES[2] {
        return widest;
    }
    let fits =
        |bits: &u8| 20 * cells(*bits).filter(|cell| *cell > CELL_ROUTES).sum::<usize>() <= routes.len();
    let by_routes = least(&TABLE_ROUTES, routes.len());
    (4..=widest).step_by(4).find(fits).unwrap_or(by_routes).min(room)
}

/// How many bits a table of a trie decides in the second half of a window: eight, or as many as give a route this many words, but
/// no more than the longest route needs.
fn trie_bits(depth: u8, routes: &[Route]) -> u8 {
    let by_routes = least(&TRIE_ROUTES, routes.len());
    let longest = routes.iter().map(|route| route.len - depth).max().unwrap_or(0);
    let room = layout::window_end(depth) - depth;
    by_routes.min(longest.next_multiple_of(4)).min(room)
}

/// Routes that make a table of a trie worth 8, 12 or 16 bits.
const TRIE_ROUTES: [usize; 3] = [0, 64, 1024];

/// Returns the routes for which a table of a trie over a block of `depth` bits is made with this number of bits.
fn trie_routes(depth: u8, bits: u8) -> usize {
    match bits {
        16 if in_upper_half(depth) => WIDE_ROUTES,
        12 | 16 => TRIE_ROUTES[usize::from(bits) / 4 - 2],
        _ => 0,
    }
}

/// Returns whether a table of eight bits has nothing but next hops in place of a leaf, which takes a step for each address.
fn is_table_of_hops(depth: u8, routes: &[Route]) -> bool {
    depth == layout::WINDOW_START && routes.iter().all(|route| route.len <= depth + 8)
}

/// Returns the width of the widest table for this number of routes, where one of 8, 12 and 16 bits has at least these.
fn least(routes_min: &[usize; 3], routes: usize) -> u8 {
    4 + 4 * routes_min.iter().filter(|min| routes >= **min).count() as u8
}

/// Routes that make a table of 8, 12 or 16 bits worth its memory, and as many as make it likely to be right.
const TABLE_ROUTES_MIN: [usize; 3] = [0, 40, 1024];
const TABLE_ROUTES: [usize; 3] = [48, 744, 12_000];

/// Routes of a block of the first window from which on its table has sixteen bits: a step less for all of them. Two tables of eight would
/// have as many lines that are read; those of 256 KiB that are not take no cache.
const WIDE_ROUTES: usize = 512;

/// A table of another window has sixteen bits where at least this number of routes is in at most this number of its cells: few lines.
const CLUSTERED_ROUTES: usize = 2048;
const CLUSTERED_CELLS: usize = 16;

/// Returns whether a table over a block of `depth` bits with this number of routes may have sixteen bits.
fn may_be_wide(depth: u8, routes: usize) -> bool {
    let least = if depth == layout::WINDOW_START { WIDE_ROUTES } else { CLUSTERED_ROUTES };
    layout::window_end(depth) - depth == 32 && routes >= least
}

/// Routes of a cell for which a node is likely to do.
const CELL_ROUTES: usize = 20;

fn in_upper_half(depth: u8) -> bool {
    layout::window_end(depth) - depth > 16
}

/// Routes in a table, now and when it was made.
pub(super) type Counts = [u32; 2];

/// Returns whether a table over a block of `depth` bits may stay: until there are four times as many routes, or a quarter.
/// A table of eight bits in the first half of a window is right for any number; where it begins the window, sixteen may be right when there
/// are many more. One of a trie stays until it has a quarter of the routes that one of its size is made for.
pub(super) fn table_may_stay(form: Form, [routes, made]: Counts, depth: u8, bits: u8) -> bool {
    let is_grown = routes > 4 * made;
    let is_right = if in_upper_half(depth) && bits == 8 {
        !(may_be_wide(depth, routes as usize) && is_grown)
    } else {
        !is_grown && (form.is_table(depth) || made <= 4 * routes)
    };
    let fewest = if form.is_table(depth) { (trie_routes(depth, bits) / 4).max(1) } else { NODE_ROUTES + 1 };
    routes as usize >= fewest && is_right
}

/// The memory that a change writes to.
pub(super) struct Builder<'a> {
    pub(super) form: Form,
    pub(super) lines: &'a Memory<Line>,
    pub(super) list: &'a Memory<AtomicU64>,
    pub(super) pool: &'a mut Pool,
    pub(super) hops: &'a mut Hops,
    /// By the first line of a table: the routes in it.
    pub(super) table_routes: &'a mut Memory<Counts>,
    pub(super) made: &'a mut Made,
}

/// Memory and uses that a change has taken so far, to be released if it fails.
#[derive(Debug, Default)]
pub(super) struct Made {
    blocks: Vec<Block>,
    held: Vec<(u32, u32)>,
    /// Units that were not to be had.
    pub(super) units_missing: usize,
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
        self.units_missing = 0;
        self.runs.clear();
    }
}

impl Builder<'_> {
    /// Returns the word for the block of `depth` bits at `at`: `routes` are those inside it that are longer, sorted,
    /// and `covering` holds where there are none.
    pub(super) fn block(&mut self, at: u128, depth: u8, routes: &[Route], covering: Word) -> Word {
        if routes.is_empty() {
            return covering;
        }
        let end = layout::window_end(depth);
        let mark = self.made.runs.len();
        let before = (self.made.blocks.len(), self.made.held.len());
        if !self.form.is_table(depth) && routes.len() <= NODE_ROUTES && !is_table_of_hops(depth, routes) {
            self.spans(at, depth, end, routes, covering);
            if let Some(word) = self.node(mark, depth) {
                self.made.runs.truncate(mark);
                return word;
            }
        }
        // Among the spans there may have been blocks of the next window.
        self.unmake_from(before);
        self.made.runs.truncate(mark);
        let bits = self.form.table_bits(depth, routes);
        self.spans(at, depth, depth + bits, routes, covering);
        let word = self.table(mark, at, depth, bits, routes.len());
        self.made.runs.truncate(mark);
        word
    }

    /// Pushes the spans of a block on the stack of runs, where routes longer than `grain` bits are a block of
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

    /// Returns the runs from `mark` on, as a node, if one can hold them.
    fn node(&mut self, mark: usize, depth: u8) -> Option<Word> {
        let runs = &self.made.runs[mark..];
        if let [(_, word)] = runs {
            return Some(*word);
        }
        let window = layout::window(depth);
        let shift = if in_upper_half(depth) { UPPER_SHIFT } else { 0 };
        let has_16_bits = |last: u128| layout::key(last, window) & ((1 << shift) - 1) == (1 << shift) - 1;
        let is_narrow = runs.len() <= NARROW_SPANS
            && depth >= layout::window_start(depth) + 16 - shift
            && runs.iter().all(|(last, word)| word.code().is_some() && has_16_bits(*last));
        if is_narrow {
            Some(self.narrow(mark, window, shift))
        } else {
            (runs.len() <= 2 * BUCKET_SPANS).then(|| self.wide(mark, window))
        }
    }

    /// Returns the runs from `mark` on, as a narrow node.
    fn narrow(&mut self, mark: usize, window: u8, shift: u8) -> Word {
        let spans = (self.made.runs.len() - mark).next_power_of_two();
        let Some(block) = self.take((spans / 2).trailing_zeros() as u8) else { return Word(0) };
        self.hold_runs(mark);
        let words = self.lines.as_flattened();
        let words = &words[block.start as usize * UNIT_WORDS..][..block.units() * UNIT_WORDS];
        let (separators, codes) = words.split_at(words.len() / 2);
        let runs = &self.made.runs[mark..];
        let separator = |i: usize| {
            let ended = runs.get(i).filter(|_| i + 1 < runs.len());
            let key = |last: u128| layout::signed_16((layout::key(last, window) >> shift) as u16);
            ended.map_or(NO_SEPARATOR_16, |(last, _)| key(*last)).cast_unsigned()
        };
        let code = |i: usize| runs.get(i).and_then(|(_, word)| word.code()).unwrap_or(0);
        let both = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        for (i, (two, codes)) in separators.iter().zip(codes).enumerate() {
            two.store(both(separator(2 * i), separator(2 * i + 1)), Relaxed);
            codes.store(both(code(2 * i), code(2 * i + 1)), Relaxed);
        }
        Word::narrow(block.start, block.units() as u32, shift != 0)
    }

    /// Returns the runs from `mark` on, as a leaf or a pair.
    fn wide(&mut self, mark: usize, window: u8) -> Word {
        let is_pair = self.made.runs.len() - mark > BUCKET_SPANS;
        let Some(block) = self.take(LINE_ORDER + u8::from(is_pair)) else { return Word(0) };
        self.hold_runs(mark);
        let words = &self.lines.as_flattened()[block.start as usize * UNIT_WORDS..];
        let (separators, spans) =
            words[..block.units() * UNIT_WORDS].split_at(block.units() * UNIT_WORDS / 2);
        let runs = &self.made.runs[mark..];
        for (i, (separator, span)) in separators.iter().zip(spans).enumerate() {
            let ended = runs.get(i).filter(|_| i + 1 < runs.len());
            let last = ended.map(|(last, _)| layout::signed(layout::key(*last, window)));
            separator.store(last.unwrap_or(NO_SEPARATOR).cast_unsigned(), Relaxed);
            span.store(runs.get(i).map_or(0, |(_, word)| word.0), Relaxed);
        }
        Word::wide(line_of(block), is_pair)
    }

    /// The words of the runs from `mark` on are stored.
    fn hold_runs(&mut self, mark: usize) {
        for run in mark..self.made.runs.len() {
            self.hold(self.made.runs[run].1, 1);
        }
    }

    /// Returns the runs from `mark` on, as a table.
    fn table(&mut self, mark: usize, at: u128, depth: u8, bits: u8, routes: usize) -> Word {
        let Some(block) = self.take(layout::table_order(bits)) else { return Word(0) };
        let words = &self.lines.as_flattened()[block.start as usize * UNIT_WORDS..][..1 << bits];
        let mut next = 0;
        for run in mark..self.made.runs.len() {
            let (last, word) = self.made.runs[run];
            let end = ((last - at) >> (128 - depth - bits)) as usize + 1;
            self.hold(word, (end - next) as u32);
            words[next..end].iter().for_each(|place| place.store(word.0, Relaxed));
            next = end;
        }
        self.table_routes[line_of(block) as usize] = [routes as u32; 2];
        let window_start = layout::window_start(depth);
        Word::table(line_of(block), bits, 32 - (depth - window_start) - bits)
    }

    fn take(&mut self, order: u8) -> Option<Block> {
        let block = self.pool.take(order);
        match block {
            Some(block) => self.made.blocks.push(block),
            None => self.made.units_missing += 1 << order,
        }
        block
    }

    /// Counts further stores of `word`.
    pub(super) fn hold(&mut self, word: Word, times: u32) {
        if word.is_hop() {
            self.hops.hold(word.0, times);
            if word.0 & LISTED != 0 {
                self.made.held.push((word.0, times));
            }
        }
    }

    /// Undoes the change: no reader has seen it.
    pub(super) fn unmake(&mut self) {
        self.unmake_from((0, 0));
    }

    /// Undoes a change down to these numbers of blocks and of uses of next hops.
    fn unmake_from(&mut self, (blocks, held): (usize, usize)) {
        for block in self.made.blocks.drain(blocks..) {
            self.pool.give_back(block);
        }
        for (word, times) in self.made.held.drain(held..) {
            (0..times).for_each(|_| self.hops.release(self.list, word));
        }
    }
}

/// The order of a line, among blocks of units.
const LINE_ORDER: u8 = LINE_UNITS.trailing_zeros() as u8;

/// Returns the line that a block begins.
fn line_of(block: Block) -> u32 {
    block.start >> LINE_ORDER
}

/// Shows `block` and `hop` what `word` leads to, everything below it.
pub(super) fn visit(
    lines: &Memory<Line>,
    word: Word,
    block: &mut impl FnMut(Block),
    hop: &mut impl FnMut(Word),
) {
    let own = match word.kind() {
        Kind::Hop => return hop(word),
        Kind::Narrow => {
            let (start, units) = word.units();
            Block { start, order: units.trailing_zeros() as u8 }
        }
        Kind::Wide => {
            let order = LINE_ORDER + u8::from(word.bucket_spans() > BUCKET_SPANS);
            Block { start: word.line() << LINE_ORDER, order }
        }
        Kind::Table => {
            let order = layout::table_order(word.table_bits());
            Block { start: word.table_line() << LINE_ORDER, order }
        }
    };
    let words = &lines.as_flattened()[own.start as usize * UNIT_WORDS..][..own.units() * UNIT_WORDS];
    // Of a node the second half.
    let (_, spans) = words.split_at(words.len() / 2);
    match word.kind() {
        Kind::Narrow => spans.iter().flat_map(halves).for_each(|code| hop(Word::of_code(code))),
        Kind::Table => words.iter().for_each(|place| visit(lines, Word(place.load(Relaxed)), block, hop)),
        _ => spans.iter().for_each(|place| visit(lines, Word(place.load(Relaxed)), block, hop)),
    }
    block(own);
}
