//! The definition.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::View;
use super::batch::Lanes;
use super::layout::{self, Kind, Word};

/// Follows `word`, which `address` led to in `window`, to a next hop.
pub(super) fn follow(view: View<'_>, mut word: Word, address: u128, mut window: u8) -> Word {
    loop {
        window += u8::from(word.is_in_next_window());
        let key = layout::key(address, window);
        word = match word.kind() {
            Kind::Hop => return word,
            Kind::Table => Word(view.lines.as_flattened()[word.table_word(key)].load(Acquire)),
            Kind::Leaf | Kind::Pair => span(view, word, layout::signed(key)),
        };
    }
}

/// The word of the span of a bucket that `key` is in.
#[inline(always)]
pub(super) fn span(view: View<'_>, bucket: Word, key: i32) -> Word {
    let spans = bucket.bucket_spans();
    let words = &view.lines.as_flattened()[bucket.line() as usize * 16..][..2 * spans];
    let below = |separator: &AtomicU32| usize::from(separator.load(Relaxed).cast_signed() < key);
    let span: usize = words[..spans].iter().map(below).sum();
    Word(words[spans + span % spans].load(Relaxed))
}

/// Portable code.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {}
