//! Fragmented datagrams that are under way, by their first fragments.
//!
//! A datagram is forgotten once all its fragments have come, or [`FRAGMENT_IDLE_S`] after its first. It has come whole when its
//! fragments meet: each adds h(end) − h(begin), with a keyed hash h of its place in the datagram, and those sums are h(length) − h(0)
//! only if they leave no gap, whatever their order (but for one chance in 2^32). A fragment that comes twice spoils the sum, and its
//! datagram stays until its time is over.
//!
//! **Those that stay incomplete have limits**, since each also takes memory of the receiver (4 MB for all of them in Linux:
//! `ipfrag_high_thresh`), to which all hosts behind an outside address are one source. A source may have as many under way as
//! entries are free, or [a few](Fragments::few); beyond, its first fragments are refused.
//!
//! **When the table is full**, a first fragment of a source that has few takes the room of another one: of the next [`COMPARED`]
//! entries, that of the source with most of them, the one recorded longest ago. So if first fragments come from many sources, as
//! forged ones do, a datagram whose fragments follow each other closely is complete before its turn.

use std::cmp::Reverse;

use flowlane::hash::murmur3;

use super::FRAGMENT_IDLE_S;
use super::packet::word16;
use crate::stage::StagePacket;
use crate::stage::ageing::{FULL_BUDGET, PACKET_BUDGET, idle_ticks};
use crate::stage::table::AgedTable;

/// A datagram: its source and destination before translation, its protocol and identification.
pub(super) type Datagram = [u32; 3];

/// Entries that are compared for the one to be forgotten.
const COMPARED: u32 = 16;

/// The flag *more fragments* in the word of the fragment offset.
const MORE_FRAGMENTS: u16 = 1 << 13;

/// A fragment's place in its datagram, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    begin: u32,
    end: u32,
    is_last: bool,
}

impl Piece {
    /// Returns the place of a fragment with a valid IPv4 header.
    pub(super) fn of(seen: StagePacket<'_>) -> Self {
        let (bytes, l3) = (seen.frame.bytes(), usize::from(seen.headers.l3));
        let [len, place] = [2, 6].map(|at| word16(bytes, l3 + at).unwrap_or(0));
        let header_len = bytes.get(l3).map_or(0, |first| 4 * u32::from(first & 15));
        let begin = 8 * u32::from(place & 0x1fff);
        let end = begin + u32::from(len).saturating_sub(header_len);
        Self { begin, end, is_last: place & MORE_FRAGMENTS == 0 }
    }
}

/// A datagram of which fragments are missing.
#[derive(Clone, Copy, Debug)]
struct Incomplete<T> {
    value: T,
    /// The differences of its fragments.
    sum: u32,
    /// Its length, once the last fragment has come.
    len: Option<u32>,
}

/// Fragmented datagrams, each with a value from its first fragment.
#[derive(Debug)]
pub(super) struct Fragments<T> {
    table: AgedTable<3, Incomplete<T>>,
    seed: u32,
    /// The datagrams that each source may have in any case.
    few: usize,
    /// The first of the next entries to be compared.
    hand: u32,
}

impl<T: Copy> Fragments<T> {
    /// A table of up to `datagrams_max` datagrams.
    pub(super) fn new(datagrams_max: usize, seed: u32) -> Self {
        Self { table: AgedTable::new(datagrams_max, seed), seed, few: (datagrams_max / 64).max(1), hand: 0 }
    }

    /// Returns the entry of a datagram.
    pub(super) fn find(&self, datagram: &Datagram, now: u32) -> Option<u32> {
        self.table.find(datagram, now).live()
    }

    /// Returns the value of a datagram.
    pub(super) fn get(&self, at: u32) -> T {
        self.table.entries.get(at).value.value
    }

    /// Forgets datagrams whose time is over.
    #[inline]
    pub(super) fn age(&mut self, now: u32) {
        let before = self.table.aged();
        self.table.age(now, PACKET_BUDGET);
        if self.table.entries.is_full() && self.table.aged() == before {
            self.table.age(now, FULL_BUDGET);
        }
    }

    /// Previews the entries that [`age`](Self::age) would forget.
    pub(super) fn departing(&self, now: u32) -> Vec<u32> {
        self.table.entries.preview_expiry(&[], now)
    }

    /// Returns the bytes allocated.
    pub(super) fn table_bytes(&self) -> usize {
        self.table.table_bytes()
    }

    /// Returns whether a first fragment may be recorded once the `departing` entries are forgotten.
    pub(super) fn may_record(&self, datagram: &Datagram, departing: &[u32], now: u32) -> bool {
        let free = self.table.entries.free() + departing.len();
        self.find(datagram, now).is_some() || self.table.held(datagram[0], departing) < free.max(self.few)
    }

    /// Records a first fragment that [may be](Self::may_record). Returns the number of datagrams that are forgotten for it; it may be
    /// its own, if the cuckoo table refuses the key.
    pub(super) fn record(&mut self, datagram: &Datagram, piece: Piece, value: T, now: u32) -> u64 {
        let incomplete = Incomplete { value, sum: self.difference(piece.begin, piece.end), len: None };
        if let Some(at) = self.table.commit(self.table.find(datagram, now)) {
            self.table.entries.get_mut(at).value = incomplete;
            self.table.entries.touch(at, now);
            return 0;
        }
        let is_full = self.table.entries.is_full();
        if is_full {
            self.forget_one();
        }
        let idle = idle_ticks(FRAGMENT_IDLE_S);
        let recorded = self.table.insert_for(datagram, incomplete, idle, now, datagram[0]);
        u64::from(is_full) + u64::from(recorded.is_none())
    }

    /// Takes a later fragment of a datagram in, and forgets the datagram if no other is missing.
    pub(super) fn add(&mut self, at: u32, piece: Piece) {
        let difference = self.difference(piece.begin, piece.end);
        let incomplete = &mut self.table.entries.get_mut(at).value;
        incomplete.sum = incomplete.sum.wrapping_add(difference);
        if piece.is_last {
            incomplete.len = Some(piece.end);
        }
        let Incomplete { sum, len, .. } = *incomplete;
        if len.is_some_and(|len| sum == self.difference(0, len)) {
            self.table.remove(at);
        }
    }

    /// Returns the difference of the hashes of two places in a datagram.
    fn difference(&self, begin: u32, end: u32) -> u32 {
        let [begin, end] = [begin, end].map(|at| murmur3::finish(murmur3::mix(self.seed, at), 4));
        end.wrapping_sub(begin)
    }

    /// Makes room in a full table, in which every number is an entry's.
    #[cold]
    fn forget_one(&mut self) {
        let entries = &self.table.entries;
        let len = entries.len() as u32;
        let held = |at: u32| self.table.held(entries.get(at).key[0], &[]);
        let first = (0..COMPARED.min(len))
            .map(|i| (self.hand + i) % len)
            .min_by_key(|&at| (Reverse(held(at)), entries.used(at), entries.get(at).key))
            .expect("a full table has entries");
        self.hand = (self.hand + COMPARED) % len;
        self.table.remove(first);
    }
}

#[cfg(test)]
mod tests {
    use flowlane::generate::Random;

    use super::*;

    /// The pieces of a datagram of this length, cut after each `cut` bytes.
    fn pieces(len: u32, cut: u32) -> Vec<Piece> {
        let begins = (0..len).step_by(cut as usize);
        begins.map(|begin| Piece { begin, end: len.min(begin + cut), is_last: begin + cut >= len }).collect()
    }

    /// Records a first fragment if that is allowed.
    fn offer(fragments: &mut Fragments<u32>, datagram: Datagram, now: u32) -> bool {
        fragments.age(now);
        let may = fragments.may_record(&datagram, &[], now);
        if may {
            fragments.record(&datagram, pieces(3000, 1480)[0], 0, now);
        }
        may
    }

    #[test]
    fn a_datagram_is_forgotten_with_the_last_of_its_fragments_and_not_before() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut fragments = Fragments::new(4, seed as u32);
            let mut rest = pieces(1 + random.below(65_000) as u32 + 800, 8 * (1 + random.below(100) as u32));
            let first = rest.remove(0);
            random.shuffle(&mut rest);
            fragments.record(&[1, 2, 3], first, 0, 0);
            for (i, &piece) in rest.iter().enumerate() {
                let at = fragments.find(&[1, 2, 3], 0);
                fragments
                    .add(at.unwrap_or_else(|| panic!("seed {seed}: piece {i} of {}", rest.len())), piece);
            }
            assert_eq!(fragments.find(&[1, 2, 3], 0), None, "seed {seed}");
        }
    }

    #[test]
    fn fragments_that_overlap_or_repeat_do_not_make_up_for_a_gap() {
        let piece = |begin, end, is_last| Piece { begin, end, is_last };
        // As many bytes as the datagram has, from 0 to 48, but a gap from 8 to 16.
        for rest in [
            [piece(16, 24, false), piece(16, 24, false), piece(24, 48, true)],
            [piece(16, 32, false), piece(24, 32, false), piece(32, 48, true)],
            [piece(24, 48, true), piece(16, 24, false), piece(40, 48, true)],
        ] {
            let mut fragments = Fragments::new(4, 7);
            fragments.record(&[1, 2, 3], piece(0, 8, false), 0, 0);
            for piece in rest {
                fragments.add(fragments.find(&[1, 2, 3], 0).expect("a gap"), piece);
            }
            assert!(fragments.find(&[1, 2, 3], 0).is_some(), "{rest:?}");
        }
    }

    #[test]
    fn one_source_or_many_take_no_room_from_datagrams_that_are_completed() {
        for is_forged in [false, true] {
            let mut fragments = Fragments::new(1024, 7);
            let (mut identification, mut kept) = (0, 0);
            // Ten first fragments of the flood for each of the other host, whose later fragments come a little after.
            for tick in 0..3000u32 {
                let (own, now) = ([1, 9, tick], tick / 100);
                offer(&mut fragments, own, now);
                for _ in 0..10 {
                    identification += 1;
                    let source = if is_forged { 2 + identification } else { 2 };
                    offer(&mut fragments, [source, 9, identification], now);
                }
                if let Some(at) = fragments.find(&own, now) {
                    fragments.add(at, pieces(3000, 1480)[1]);
                    kept += usize::from(fragments.find(&own, now).is_some());
                    let at = fragments.find(&own, now);
                    at.into_iter().for_each(|at| fragments.add(at, pieces(3000, 1480)[2]));
                }
            }
            assert!(kept >= 2950, "{kept} of 3000, forged: {is_forged}");
        }
    }

    #[test]
    fn incomplete_datagrams_of_a_source_have_a_share_until_their_time_is_over() {
        let mut fragments = Fragments::new(1024, 3);
        let mut id = 0;
        let mut flood = |source: u32, now: u32| {
            id += 3000;
            (0..3000).filter(|i| offer(&mut fragments, [source, 9, id + i], now)).count()
        };
        // Half of the room, half of the rest, and so on down to a few.
        assert_eq!((flood(2, 0), flood(3, 0), flood(4, 0), flood(2, 0)), (512, 256, 128, 0));
        let after = idle_ticks(FRAGMENT_IDLE_S) + 1;
        assert_eq!(flood(2, after), 512);
        // The highest addresses are sources, too.
        assert_eq!((flood(u32::MAX, after), flood(u32::MAX, 2 * after)), (256, 512));
    }
}
