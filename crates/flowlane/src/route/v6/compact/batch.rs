//! Many addresses level by level: all that stand at tables take a step, then all at inner lines, then all at
//! leaves. Steps of a level do not depend on each other, so that their cache misses overlap.

use std::sync::atomic::Ordering::Acquire;

use super::View;
use super::layout::{self, Kind, Word};
use super::scalar;
use crate::memory::{LINE_BYTES, prefetch, prefetch_at};
use crate::route::v6::hops::{self, LISTED};

/// Addresses that are on their way at once.
pub(super) const GROUP: usize = 64;

/// How far ahead addresses are asked for.
const AHEAD: usize = 2 * GROUP;

const ADDRESSES_OF_LINE: usize = LINE_BYTES / size_of::<u128>();

/// Room behind a queue for vectors stored whole.
const SLACK: usize = 16;

/// Addresses that stand at words of one kind.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Queue {
    pub(super) keys: [i32; GROUP + SLACK],
    /// Words; of inner lines and leaves: their lines.
    pub(super) words: [u32; GROUP + SLACK],
    /// Which addresses they are.
    pub(super) lanes: [u32; GROUP + SLACK],
    pub(super) len: usize,
}

impl Queue {
    const EMPTY: Self =
        Self { keys: [0; GROUP + SLACK], words: [0; GROUP + SLACK], lanes: [0; GROUP + SLACK], len: 0 };

    #[inline(always)]
    pub(super) fn push(&mut self, key: i32, word: u32, lane: u32) {
        let at = self.len % GROUP;
        (self.keys[at], self.words[at], self.lanes[at]) = (key, word, lane);
        self.len = at + 1;
    }
}

/// Where the addresses of a group stand.
pub(super) struct Queues {
    pub(super) tables: Queue,
    pub(super) inner: Queue,
    pub(super) leaves: Queue,
    /// By address: its word, when that is a next hop.
    pub(super) hops: [u32; GROUP + SLACK],
    /// By address: its window.
    pub(super) windows: [u8; GROUP],
}

impl Queues {
    /// Queues an address by the kind of its word.
    #[inline(always)]
    pub(super) fn sort(&mut self, key: i32, word: Word, lane: u32) {
        match word.kind() {
            Kind::Hop => self.hops[lane as usize % GROUP] = word.0,
            Kind::Table => self.tables.push(key, word.0, lane),
            Kind::Inner => self.inner.push(key, word.line(), lane),
            Kind::Leaf => self.leaves.push(key, word.line(), lane),
        }
    }
}

/// What bodies do differently.
pub(super) trait Lanes: Copy {
    /// Finds the roots of up to [`GROUP`] addresses and queues them.
    #[inline(always)]
    fn roots(self, view: View<'_>, addresses: &[u128], queues: &mut Queues) {
        for (lane, &address) in addresses.iter().enumerate() {
            let key = layout::signed(layout::key(address, 0));
            queues.sort(key, view.root_of(address), lane as u32);
        }
    }

    /// Takes the step of all that stand at tables.
    #[inline(always)]
    fn tables(self, view: View<'_>, queues: &mut Queues, again: &mut Again<'_>) {
        let len = std::mem::take(&mut queues.tables.len);
        for i in 0..len.min(GROUP) {
            let (key, word) = (queues.tables.keys[i], Word(queues.tables.words[i]));
            let lane = queues.tables.lanes[i];
            let place = word.table_word(key.cast_unsigned() ^ 1 << 31);
            let word = Word(view.lines.as_flattened()[place].load(Acquire));
            let key = if word.is_in_next_window() { again.next_key(&mut queues.windows, lane) } else { key };
            queues.sort(key, word, lane);
        }
    }

    /// The leaf of an inner line, as a number, for `key`.
    #[inline(always)]
    fn separators_below(self, view: View<'_>, line: u32, key: i32) -> usize {
        scalar::separators_below(&view.lines[line as usize], key)
    }

    /// The word of the span of a leaf that `key` is in.
    #[inline(always)]
    fn span(self, view: View<'_>, line: u32, key: i32) -> Word {
        scalar::span(&view.lines[line as usize], key)
    }

    /// Writes the next hops that the words stand for.
    #[inline(always)]
    fn resolve(self, view: View<'_>, hops: &[u32; GROUP + SLACK], next_hops: &mut [u64]) {
        for (next_hop, word) in next_hops.iter_mut().zip(hops) {
            *next_hop = hops::resolve(view.list, *word);
        }
    }
}

/// The addresses of a group, for those that go on with their next bits.
pub(super) struct Again<'a> {
    addresses: &'a [u128],
}

impl Again<'_> {
    /// The key of an address in its next window.
    pub(super) fn next_key(&self, windows: &mut [u8; GROUP], lane: u32) -> i32 {
        let window = &mut windows[lane as usize % GROUP];
        *window += 1;
        layout::signed(layout::key(self.addresses[lane as usize], *window))
    }
}

/// Looks any number of addresses up.
#[inline(always)]
pub(super) fn lookup<L: Lanes>(body: L, view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    let (tables, inner, leaves) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
    let mut queues = Queues { tables, inner, leaves, hops: [0; GROUP + SLACK], windows: [0; GROUP] };
    for (addresses, next_hops) in addresses.chunks(GROUP).zip(next_hops.chunks_mut(GROUP)) {
        // A group's addresses are read at once: nothing would be under way while they come.
        for line in 0..GROUP / ADDRESSES_OF_LINE {
            prefetch_at(addresses.as_ptr().wrapping_add(AHEAD + line * ADDRESSES_OF_LINE).cast());
        }
        queues.windows = [0; GROUP];
        group(body, view, addresses, &mut queues);
        body.resolve(view, &queues.hops, next_hops);
    }
}

#[inline(always)]
fn group<L: Lanes>(body: L, view: View<'_>, addresses: &[u128], queues: &mut Queues) {
    let mut again = Again { addresses };
    body.roots(view, addresses, queues);
    loop {
        while queues.tables.len != 0 {
            body.tables(view, queues, &mut again);
        }
        if leaves(body, view, queues) {
            return;
        }
        resort(&mut again, queues);
    }
}

/// Takes the steps of all that stand at inner lines, and then at leaves. Returns whether next hops were
/// reached everywhere; else the words are in the queue of leaves.
#[inline(always)]
fn leaves<L: Lanes>(body: L, view: View<'_>, queues: &mut Queues) -> bool {
    for i in 0..queues.leaves.len.min(GROUP) {
        prefetch(view.lines, queues.leaves.words[i] as usize);
    }
    for i in 0..queues.inner.len.min(GROUP) {
        let (key, line) = (queues.inner.keys[i], queues.inner.words[i]);
        let leaf = line + 1 + body.separators_below(view, line, key) as u32;
        prefetch(view.lines, leaf as usize);
        queues.leaves.push(key, leaf, queues.inner.lanes[i]);
    }
    queues.inner.len = 0;
    let mut all = 0;
    for i in 0..queues.leaves.len.min(GROUP) {
        let word = body.span(view, queues.leaves.words[i], queues.leaves.keys[i]);
        queues.leaves.words[i] = word.0;
        queues.hops[queues.leaves.lanes[i] as usize % GROUP] = word.0;
        all |= word.0;
    }
    let is_done = Word(all & !LISTED).is_hop();
    if is_done {
        queues.leaves.len = 0;
    }
    is_done
}

/// Queues those whose leaves led into the next window.
#[cold]
fn resort(again: &mut Again<'_>, queues: &mut Queues) {
    let mut leaves = queues.leaves.clone();
    queues.leaves.len = 0;
    for i in 0..std::mem::take(&mut leaves.len) {
        let (word, lane) = (Word(leaves.words[i]), leaves.lanes[i]);
        if !word.is_hop() {
            let key = again.next_key(&mut queues.windows, lane);
            queues.sort(key, word, lane);
        }
    }
}
