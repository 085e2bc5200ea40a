//! Lookup of many addresses stage by stage: all roots, then tables until no address is at one, then nodes.
//! Steps of a stage do not depend on each other, so that their cache misses overlap.

use std::sync::atomic::Ordering::Acquire;

use super::View;
use super::layout::{self, Kind, LINE_UNITS, Word};
use super::scalar;
use crate::isa::simd::Kernel;
use crate::memory::{LINE_BYTES, prefetch, prefetch_at};
use crate::route::v6::hops;

/// Addresses that are on their way at once.
pub(super) const GROUP: usize = 64;

/// Lanes that go through the stages of another window together; fewer are followed one by one.
pub(super) const TOGETHER: u32 = 8;

/// The distance at which addresses are prefetched.
const AHEAD: usize = 2 * GROUP;

const ADDRESSES_OF_LINE: usize = LINE_BYTES / size_of::<u128>();

/// Prefetches the addresses of a later group: a group's are read at once, and nothing would be under way while
/// they arrive.
#[inline(always)]
pub(super) fn ask_ahead(addresses: &[u128; GROUP]) {
    for line in addresses.as_chunks::<ADDRESSES_OF_LINE>().0 {
        prefetch_at(line.as_ptr().wrapping_add(AHEAD).cast());
    }
}

/// The words that the addresses of a group have reached.
#[repr(C, align(64))]
pub(super) struct Group {
    /// Their bits in the first window, as separators have them.
    pub(super) keys: [i32; GROUP],
    pub(super) words: [u32; GROUP],
}

/// Operations that have kernels of their own; the provided ones are the scalar kernel.
pub(super) trait NodeOps: Copy {
    /// Takes the step of all lanes at tables of this window. Returns whether there were any.
    #[inline(always)]
    fn tables(self, view: View<'_>, group: &mut Group) -> bool {
        let words = view.lines.as_flattened();
        let is_there = |word: &u32| Word(*word).kind() == Kind::Table && !Word(*word).is_in_next_window();
        let any = group.words.iter().any(is_there);
        // Without a branch that depends on an address: those elsewhere read the table's first word.
        for (word, key) in group.words.iter_mut().zip(group.keys).filter(|_| any) {
            let place = Word(*word).table_word(layout::unsigned(key));
            let is_there = is_there(word);
            let found = words[std::hint::select_unpredictable(is_there, place, 0)].load(Acquire);
            *word = std::hint::select_unpredictable(is_there, found, *word);
        }
        any
    }

    /// Returns the lanes at this kind of word, in this window.
    #[inline(always)]
    fn at(self, group: &Group, kind: Kind) -> u64 {
        let is_there = |word: u32| Word(word).kind() == kind && !Word(word).is_in_next_window();
        let lanes = group.words.iter().enumerate();
        lanes.fold(0, |lanes, (lane, word)| lanes | u64::from(is_there(*word)) << lane)
    }

    /// Returns the word of the span of a leaf or a pair that `key` is in.
    #[inline(always)]
    fn span(self, view: View<'_>, bucket: Word, key: i32) -> Word {
        scalar::span(view, bucket, key)
    }

    /// Returns the word of the span of a narrow node that a window's `key` is in.
    #[inline(always)]
    fn narrow_span(self, view: View<'_>, node: Word, key: u32) -> Word {
        scalar::narrow_span(view, node, key)
    }

    /// Takes the step of all lanes at narrow nodes of this window.
    #[inline(always)]
    fn narrow(self, view: View<'_>, group: &mut Group) {
        let lanes = self.at(group, Kind::Narrow);
        each(lanes, |lane| {
            let (unit, units) = Word(group.words[lane]).units();
            prefetch(view.lines, unit as usize / LINE_UNITS);
            prefetch(view.lines, (unit + units - 1) as usize / LINE_UNITS);
        });
        each(lanes, |lane| {
            let key = layout::unsigned(group.keys[lane]);
            group.words[lane] = self.narrow_span(view, Word(group.words[lane]), key).0;
        });
    }
}

/// Looks up a batch of addresses.
pub(super) struct LookupBatch<'a> {
    pub(super) view: View<'a>,
    pub(super) addresses: &'a [u128],
    pub(super) next_hops: &'a mut [u64],
}

impl<I: NodeOps> Kernel<I> for LookupBatch<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: I) {
        lookup(isa, self.view, self.addresses, self.next_hops);
    }
}

#[inline(always)]
fn lookup<I: NodeOps>(isa: I, view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    let mut standing = Group { keys: [0; GROUP], words: [0; GROUP] };
    let (groups, addresses) = addresses.as_chunks::<GROUP>();
    let (hops_of_groups, next_hops) = next_hops.as_chunks_mut::<GROUP>();
    for (addresses, next_hops) in groups.iter().zip(hops_of_groups) {
        ask_ahead(addresses);
        group(isa, view, addresses, &mut standing, next_hops);
    }
    if !addresses.is_empty() {
        // Surplus lanes are at a next hop.
        standing.words = [0; GROUP];
        group(isa, view, addresses, &mut standing, next_hops);
    }
}

#[inline(always)]
fn group<I: NodeOps>(
    isa: I,
    view: View<'_>,
    addresses: &[u128],
    standing: &mut Group,
    next_hops: &mut [u64],
) {
    for (lane, address) in addresses.iter().enumerate().take(GROUP) {
        standing.keys[lane] = layout::signed(layout::key(*address, 0));
        standing.words[lane] = view.root_of(*address).0;
    }
    let mut window = 0;
    loop {
        step(isa, view, standing);
        let lanes = standing.words.iter().enumerate();
        let rest = lanes.fold(0, |rest, (lane, word)| rest | u64::from(!Word(*word).is_hop()) << lane);
        if rest.count_ones() < TOGETHER {
            if rest != 0 {
                follow_all(view, addresses, &mut standing.words, rest, window);
            }
            break;
        }
        window += 1;
        each(rest, |lane| {
            standing.words[lane] |= layout::THIS_WINDOW;
            standing.keys[lane] = layout::signed(layout::key(addresses[lane], window));
        });
    }
    for (next_hop, word) in next_hops.iter_mut().zip(standing.words) {
        *next_hop = hops::resolve(view.list, word);
    }
}

/// Takes all steps of a window.
#[inline(always)]
fn step<I: NodeOps>(isa: I, view: View<'_>, standing: &mut Group) {
    while isa.tables(view, standing) {}
    let wide = isa.at(standing, Kind::Wide);
    isa.narrow(view, standing);
    each(wide, |lane| {
        standing.words[lane] = isa.span(view, Word(standing.words[lane]), standing.keys[lane]).0;
    });
}

/// Calls `body` with each of `lanes`.
#[inline(always)]
fn each(mut lanes: u64, mut body: impl FnMut(usize)) {
    while lanes != 0 {
        body(lanes.trailing_zeros() as usize % GROUP);
        lanes &= lanes - 1;
    }
}

/// Follows the words of `rest`, whose ways lead beyond this window, to next hops.
#[cold]
pub(super) fn follow_all(view: View<'_>, addresses: &[u128], words: &mut [u32], rest: u64, window: u8) {
    each(rest, |lane| words[lane] = scalar::follow(view, Word(words[lane]), addresses[lane], window).0);
}
