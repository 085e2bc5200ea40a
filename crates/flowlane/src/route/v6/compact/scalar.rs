//! The definition.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::View;
use super::batch::NodeOps;
use super::layout::{self, Kind, LINE_WORDS, UNIT_WORDS, Word};

/// Follows `word`, which `address` led to in `window`, to a next hop.
pub(super) fn follow(view: View<'_>, mut word: Word, address: u128, mut window: u8) -> Word {
    loop {
        window += u8::from(word.is_in_next_window());
        let key = layout::key(address, window);
        word = match word.kind() {
            Kind::Hop => return word,
            Kind::Table => Word(view.lines.as_flattened()[word.table_word(key)].load(Acquire)),
            Kind::Narrow => narrow_span(view, word, key),
            Kind::Wide => span(view, word, layout::signed(key)),
        };
    }
}

/// Returns the word of the span of a leaf or a pair that `key` is in.
#[inline(always)]
pub(super) fn span(view: View<'_>, bucket: Word, key: i32) -> Word {
    let spans = bucket.bucket_spans();
    let words = &view.lines.as_flattened()[bucket.line() as usize * LINE_WORDS..][..2 * spans];
    let below = |separator: &AtomicU32| usize::from(separator.load(Relaxed).cast_signed() < key);
    let span: usize = words[..spans].iter().map(below).sum();
    Word(words[spans + span % spans].load(Relaxed))
}

/// Returns the word of the span of a narrow node that a window's `key` is in.
#[inline(always)]
pub(super) fn narrow_span(view: View<'_>, node: Word, key: u32) -> Word {
    let key = layout::signed_16((key >> node.narrow_shift()) as u16);
    let (unit, units) = node.units();
    let (first, separators) = (unit as usize * UNIT_WORDS, units as usize * UNIT_WORDS / 2);
    let words = &view.lines.as_flattened()[first..][..separators];
    let below = |half: u16| usize::from(half.cast_signed() < key);
    let span: usize = words.iter().map(halves).map(|[low, high]| below(low) + below(high)).sum();
    Word::of_code(half(view, 2 * (first + separators) + span))
}

/// Returns the lower and the upper half of a word.
#[inline(always)]
pub(super) fn halves(word: &AtomicU32) -> [u16; 2] {
    let word = word.load(Relaxed);
    [word as u16, (word >> 16) as u16]
}

/// Returns a half, counted over all lines.
#[inline(always)]
pub(super) fn half(view: View<'_>, number: usize) -> u16 {
    (view.lines.as_flattened()[number / 2].load(Relaxed) >> (16 * (number % 2))) as u16
}

/// Portable code.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl NodeOps for Portable {}
