//! Words, lines and windows.

use std::sync::atomic::AtomicU32;

use crate::memory::LINE_BYTES;
use crate::route::v6::hops::LISTED;

/// A cache line of words.
pub(super) type Line = [AtomicU32; 16];

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

/// Words of a line, and of the pool's unit, which is the smallest node.
pub(super) const LINE_WORDS: usize = 16;
pub(super) const UNIT_WORDS: usize = 2;
pub(super) const LINE_UNITS: usize = LINE_WORDS / UNIT_WORDS;

/// Spans of a leaf; a pair has twice as many.
pub(super) const BUCKET_SPANS: usize = 8;

/// Spans of the largest narrow node.
pub(super) const NARROW_SPANS: usize = 32;

/// Routes in a block up to which it may be a node: if they part it into no more spans than one has.
pub(super) const NODE_ROUTES: usize = NARROW_SPANS - 1;

/// A separator that is below no key.
pub(super) const NO_SEPARATOR: i32 = i32::MAX;

/// A separator of a narrow node that is below no key.
pub(super) const NO_SEPARATOR_16: i16 = i16::MAX;

/// Most lines of a table: a word numbers them with 24 bits.
pub(super) const LINES_MAX: usize = 1 << 24;

/// The word of a span or a block: a next hop, or the node to continue at.
///
/// ```text
/// bits 31 30   29            28 … 0
///   0   0      listed        next hop, or its place in the list
///   0   1      next window   upper half │ narrow node: twice its first unit + its units
///   1   0      next window   pair │ line of a leaf, or of a pair, followed by its words
///   1   1      next window   first line << 5 | shift | code: a table of 16 << 4·code words
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub(super) u32);

/// The kind of a word: its two highest bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Hop,
    Narrow,
    Wide,
    Table,
}

/// Clear where the lookup continues with the next 32 bits of the address.
pub(super) const THIS_WINDOW: u32 = 1 << 29;

const _: () = assert!(THIS_WINDOW == LISTED, "one bit, by the kind of the word");

/// Bits below kind and flag.
pub(super) const PAYLOAD: u32 = THIS_WINDOW - 1;

/// Set in a narrow node's word where it compares the 16 bits that have [`UPPER_SHIFT`] behind them in the window;
/// else it compares the window's last 16 bits.
pub(super) const UPPER: u32 = 1 << 28;
pub(super) const UPPER_SHIFT: u8 = 8;

/// Set in a pair's word.
pub(super) const PAIR: u32 = 1 << 28;

/// Set in the code of a listed next hop.
const CODE_LISTED: u32 = 1 << 15;

impl Word {
    /// Creates a leaf, or a pair, at a line.
    pub(super) fn wide(line: u32, is_pair: bool) -> Self {
        Self(2 << 30 | THIS_WINDOW | if is_pair { PAIR } else { 0 } | line)
    }

    /// Returns the word of a node of `units` units, a power of two, that begins at a multiple of them.
    pub(super) fn narrow(unit: u32, units: u32, is_upper: bool) -> Self {
        Self(1 << 30 | THIS_WINDOW | if is_upper { UPPER } else { 0 } | (2 * unit + units))
    }

    /// Creates a table of `1 << bits` words for the bits of the window that have `shift` behind them.
    pub(super) fn table(line: u32, bits: u8, shift: u8) -> Self {
        Self(3 << 30 | THIS_WINDOW | line << 5 | u32::from(shift) | (u32::from(bits) / 4 - 1))
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 >> 30 {
            0 => Kind::Hop,
            1 => Kind::Narrow,
            2 => Kind::Wide,
            _ => Kind::Table,
        }
    }

    #[inline(always)]
    pub(super) fn is_hop(self) -> bool {
        self.0 >> 30 == 0
    }

    #[inline(always)]
    pub(super) fn is_in_next_window(self) -> bool {
        !self.is_hop() && self.0 & THIS_WINDOW == 0
    }

    /// This word, reached from a span that ends its window.
    pub(super) fn in_next_window(self) -> Self {
        if self.is_hop() { self } else { Self(self.0 & !THIS_WINDOW) }
    }

    /// Returns the line of a leaf, the first of a pair.
    #[inline(always)]
    pub(super) fn line(self) -> u32 {
        self.0 & (PAIR - 1)
    }

    /// Returns the spans that there is room for in a leaf or a pair.
    #[inline(always)]
    pub(super) fn bucket_spans(self) -> usize {
        BUCKET_SPANS << (self.0 >> PAIR.trailing_zeros() & 1)
    }

    /// Returns a narrow node's first unit, and its units: the lowest bit that is set tells them apart.
    #[inline(always)]
    pub(super) fn units(self) -> (u32, u32) {
        let both = self.0 & (UPPER - 1);
        let units = both & both.wrapping_neg();
        ((both - units) / 2, units)
    }

    /// Returns the bits of a window that are behind those which a narrow node compares.
    #[inline(always)]
    pub(super) fn narrow_shift(self) -> u8 {
        if self.0 & UPPER == 0 { 0 } else { UPPER_SHIFT }
    }

    /// Returns a next hop in 16 bits, if it is one that fits.
    pub(super) fn code(self) -> Option<u16> {
        let number = self.0 & PAYLOAD;
        let listed = if self.0 & LISTED == 0 { 0 } else { CODE_LISTED };
        (self.is_hop() && number < CODE_LISTED).then_some((number | listed) as u16)
    }

    /// Returns the next hop of a code.
    #[inline(always)]
    pub(super) fn of_code(code: u16) -> Self {
        let code = u32::from(code);
        Self(
            code & !CODE_LISTED
                | (code & CODE_LISTED) << (LISTED.trailing_zeros() - CODE_LISTED.trailing_zeros()),
        )
    }

    /// Returns the first line of a table.
    #[inline(always)]
    pub(super) fn table_line(self) -> u32 {
        (self.0 & PAYLOAD) >> 5
    }

    /// Bits that a table decides.
    #[inline(always)]
    pub(super) fn table_bits(self) -> u8 {
        4 * (self.0 as u8 % 4 + 1)
    }

    /// Returns the number, among all words of all lines, of the table's word for `key`.
    #[inline(always)]
    pub(super) fn table_word(self, key: u32) -> usize {
        let shift = self.0 & 0x1c;
        let mask = (1 << self.table_bits()) - 1;
        self.table_line() as usize * LINE_WORDS + (key >> shift & mask) as usize
    }
}

/// Where the first window begins: the root decides these bits, or more.
pub(super) const WINDOW_START: u8 = 16;

/// Returns the number of the window in which a block of `depth` bits is parted.
pub(super) fn window(depth: u8) -> u8 {
    (depth - WINDOW_START) / 32
}

/// Returns the start of that window.
pub(super) fn window_start(depth: u8) -> u8 {
    WINDOW_START + 32 * window(depth)
}

/// Returns the end of that window.
pub(super) fn window_end(depth: u8) -> u8 {
    (window_start(depth) + 32).min(128)
}

/// Returns the 32 bits of an address in a window; behind the address's last bit there are zeros.
#[inline(always)]
pub(super) fn key(address: u128, window: u8) -> u32 {
    (address << (WINDOW_START + 32 * window) >> 96) as u32
}

/// Returns the key that a separator was made of.
#[inline(always)]
pub(super) fn unsigned(key: i32) -> u32 {
    key.cast_unsigned() ^ 1 << 31
}

/// Keys as separators have them: signed, which is what AVX2 compares.
#[inline(always)]
pub(super) fn signed(key: u32) -> i32 {
    (key ^ 1 << 31).cast_signed()
}

/// Converts a key of 16 bits to the order of separators.
#[inline(always)]
pub(super) fn signed_16(key: u16) -> i16 {
    (key ^ 1 << 15).cast_signed()
}

/// Returns the order of the block of units that a table of this number of bits takes.
pub(super) fn table_order(bits: u8) -> u8 {
    bits - UNIT_WORDS.trailing_zeros() as u8
}
