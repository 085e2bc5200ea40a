//! Words, lines and windows.

use std::sync::atomic::AtomicU32;

use crate::memory::LINE_BYTES;
use crate::route::v6::hops::LISTED;

/// A cache line of words.
pub(super) type Line = [AtomicU32; 16];

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

/// Spans of a leaf; a pair has twice as many.
pub(super) const BUCKET_SPANS: usize = 8;

/// Routes in a block up to which it may be a bucket: if they part it into no more spans than a pair has.
pub(super) const BUCKET_ROUTES: usize = 2 * BUCKET_SPANS - 1;

/// A separator that is below no key.
pub(super) const NO_SEPARATOR: i32 = i32::MAX;

/// Most lines of a table: a word numbers them with 24 bits.
pub(super) const LINES_MAX: usize = 1 << 24;

/// What holds for a span or a block: a next hop, or where to look on.
///
/// ```text
/// bits 31 30   29            28 … 0
///   0   0      listed        next hop, or its place in the list
///   0   1      next window   line of a leaf
///   1   0      next window   pair, behind which its leaves stand
///   1   1      next window   first line << 5 | shift | code: a table of 16 << 4·code words
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub(super) u32);

/// What kind of word it is: the two highest bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Hop,
    Leaf,
    Pair,
    Table,
}

/// Clear where the lookup goes on with the next 32 bits of the address.
pub(super) const THIS_WINDOW: u32 = 1 << 29;

const _: () = assert!(THIS_WINDOW == LISTED, "one bit, by the kind of the word");

/// Bits below kind and flag.
pub(super) const PAYLOAD: u32 = THIS_WINDOW - 1;

impl Word {
    pub(super) fn leaf(line: u32) -> Self {
        Self(1 << 30 | THIS_WINDOW | line)
    }

    pub(super) fn pair(line: u32) -> Self {
        Self(2 << 30 | THIS_WINDOW | line)
    }

    /// A table of `1 << bits` words for the bits of the window that have `shift` behind them.
    pub(super) fn table(line: u32, bits: u8, shift: u8) -> Self {
        Self(3 << 30 | THIS_WINDOW | line << 5 | u32::from(shift) | (u32::from(bits) / 4 - 1))
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 >> 30 {
            0 => Kind::Hop,
            1 => Kind::Leaf,
            2 => Kind::Pair,
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

    /// The line of a leaf, the first of a pair.
    #[inline(always)]
    pub(super) fn line(self) -> u32 {
        self.0 & PAYLOAD
    }

    /// The spans that there is room for in a bucket.
    #[inline(always)]
    pub(super) fn bucket_spans(self) -> usize {
        BUCKET_SPANS << (self.0 >> 31)
    }

    /// The first line of a table.
    #[inline(always)]
    pub(super) fn table_line(self) -> u32 {
        (self.0 & PAYLOAD) >> 5
    }

    /// Bits that a table decides.
    #[inline(always)]
    pub(super) fn table_bits(self) -> u8 {
        4 * (self.0 as u8 % 4 + 1)
    }

    /// The number, among all words of all lines, of the table's word for `key`.
    #[inline(always)]
    pub(super) fn table_word(self, key: u32) -> usize {
        let shift = self.0 & 0x1c;
        let mask = (1 << self.table_bits()) - 1;
        self.table_line() as usize * 16 + (key >> shift & mask) as usize
    }
}

/// Where the first window begins: the root decides these bits, or more.
pub(super) const WINDOW_START: u8 = 16;

/// The number of the window in which a block of `depth` bits is parted.
pub(super) fn window(depth: u8) -> u8 {
    (depth - WINDOW_START) / 32
}

/// The end of that window.
pub(super) fn window_end(depth: u8) -> u8 {
    (WINDOW_START + 32 * (window(depth) + 1)).min(128)
}

/// The 32 bits of an address in a window; behind the address's last bit there are zeros.
#[inline(always)]
pub(super) fn key(address: u128, window: u8) -> u32 {
    (address << (WINDOW_START + 32 * window) >> 96) as u32
}

/// The key that a separator was made of.
#[inline(always)]
pub(super) fn unsigned(key: i32) -> u32 {
    key.cast_unsigned() ^ 1 << 31
}

/// Keys as separators have them: signed, which is what AVX2 compares.
#[inline(always)]
pub(super) fn signed(key: u32) -> i32 {
    (key ^ 1 << 31).cast_signed()
}

/// The order of the block of lines that a table of so many bits takes.
pub(super) fn table_order(bits: u8) -> u8 {
    bits - 4
}
