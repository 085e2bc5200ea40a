//! The definition.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::View;
use super::batch::Lanes;
use super::layout::{self, Kind, LEAF_SPANS, Line, Word};

/// Follows `word`, which `address` led to in `window`, to a next hop.
pub(super) fn follow(view: View<'_>, mut word: Word, address: u128, mut window: u8) -> Word {
    loop {
        window += u8::from(word.is_in_next_window());
        let key = layout::key(address, window);
        word = match word.kind() {
            Kind::Hop => return word,
            Kind::Table => Word(view.lines.as_flattened()[word.table_word(key)].load(Acquire)),
            Kind::Inner => {
                let child = separators_below(&view.lines[word.line() as usize], layout::signed(key));
                span(&view.lines[word.line() as usize + 1 + child], layout::signed(key))
            }
            Kind::Leaf => span(&view.lines[word.line() as usize], layout::signed(key)),
        };
    }
}

/// How many separators of an inner line are below `key`: the number of its leaf.
#[inline(always)]
pub(super) fn separators_below(line: &Line, key: i32) -> usize {
    line.iter().map(|separator| usize::from(separator.load(Relaxed).cast_signed() < key)).sum()
}

/// The word of the span of a leaf that `key` is in.
#[inline(always)]
pub(super) fn span(line: &Line, key: i32) -> Word {
    let separators = line[..LEAF_SPANS].iter();
    let span: usize =
        separators.map(|separator| usize::from(separator.load(Relaxed).cast_signed() < key)).sum();
    Word(line[LEAF_SPANS + span % LEAF_SPANS].load(Relaxed))
}

/// Portable code.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {}
