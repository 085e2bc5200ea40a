//! Datagrams that come in fragments: these wait until all have come, and then go on together, as they came.
//!
//! Only a whole datagram has ports and a checksum that can be verified. As in Open vSwitch, fragments that are shorter than any path
//! makes them are invalid and wait for nothing. Where two overlap, the datagram is given up, with those of its fragments that are still
//! to come (RFC 5722, RFC 8200 §4.5): it is not known which one says the truth. A fragment that comes twice is refused alone.
//!
//! **Those that wait have limits**, since each takes memory. A source may have as many waiting as there is room for others, or a few
//! (`FEW`). Where there is no room, one of the datagrams that have waited longest is forgotten for a fragment of a source that has
//! few: of the next few (`COMPARED`), that of the source which has most. So fragments that follow each other closely meet, though
//! others send first fragments alone, from one source or from many.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use flowlane::packet::{Field, FlowKey, Headers, Network, parse};

use super::packet::behind_extensions;
use super::{Seen, seen};
use crate::packet::edit::checksum::{fold, sum};
use crate::packet::edit::packet_end;

/// Fragments that wait at most; as in Open vSwitch.
const WAITING_MAX: usize = 1000;

/// Fragments that each source may have waiting in any case.
const FEW: usize = WAITING_MAX / 64;

/// Datagrams that are compared for the one to be forgotten.
const COMPARED: usize = 16;

/// Milliseconds that the first of a datagram's fragments waits for the others.
const WAIT_MS: u64 = 15_000;

/// Bytes of the shortest packet that may be a fragment but for the last, of IPv4 and of IPv6, unless the configuration says something
/// else: as in Open vSwitch.
pub(super) const SHORTEST: [u16; 2] = [1200, 1280];

/// Bytes of a datagram's payload at most.
const DATAGRAM_MAX: u32 = 0xffff;

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const FRAGMENT_BYTES: usize = 8;

/// A datagram at the place where it waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Datagram {
    source: u128,
    destination: u128,
    identification: u32,
    proto: u8,
    is_ipv6: bool,
    zone: u16,
}

/// The part of a datagram that a fragment has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Places in the datagram's payload.
    begin: u32,
    end: u32,
    is_last: bool,
    /// The payload's place in the frame.
    at: usize,
}

/// Returns a datagram of which a fragment may have other addresses by now.
pub(crate) fn with_addresses(mut seen: Seen, key: &FlowKey) -> Seen {
    let (source, destination) = match seen.tuple.is_ipv6 {
        true => (Field::Ipv6Src, Field::Ipv6Dst),
        false => (Field::Ipv4Src, Field::Ipv4Dst),
    };
    if !seen.is_error {
        seen.tuple.source.address = key.get(source);
        seen.tuple.destination.address = key.get(destination);
    }
    seen
}

/// Reads a fragment; `None` if it is not sound, or shorter than paths make it: `shortest` is the length of IPv4 and of IPv6.
pub fn piece(
    bytes: &[u8],
    headers: &Headers,
    key: &FlowKey,
    zone: u16,
    shortest: [u16; 2],
) -> Option<(Datagram, Piece)> {
    let shortest = shortest[usize::from(headers.network == Network::Ipv6)];
    let is_short = packet_end(bytes, headers)?.checked_sub(headers.l3.into())? < shortest.into();
    piece_of_any_length(bytes, headers, key, zone).filter(|(_, piece)| piece.is_last || !is_short)
}

/// Reads a fragment; `None` if it is not sound.
pub fn piece_of_any_length(
    bytes: &[u8],
    headers: &Headers,
    key: &FlowKey,
    zone: u16,
) -> Option<(Datagram, Piece)> {
    let l3 = usize::from(headers.l3);
    let end = packet_end(bytes, headers)?;
    let packet = bytes.get(l3..end)?;
    let word = |at: usize| packet.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let is_ipv6 = headers.network == Network::Ipv6;
    let (place, more, identification, header, proto) = match headers.network {
        Network::Ipv4 => {
            let header = usize::from(packet.first()? & 15) * 4;
            let place = word(6)?;
            if fold(sum(packet.get(..header)?)) != 0xffff {
                return None;
            }
            (u32::from(place & 0x1fff) * 8, place & 0x2000 != 0, u32::from(word(4)?), header, packet[9])
        }
        Network::Ipv6 => {
            let (at, _, is_fragment) = behind_extensions(packet)?;
            if !is_fragment {
                return None;
            }
            let place = word(at + 2)?;
            let identification = u32::from(word(at + 4)?) << 16 | u32::from(word(at + 6)?);
            (u32::from(place & 0xfff8), place & 1 != 0, identification, at + FRAGMENT_BYTES, *packet.get(at)?)
        }
        Network::Arp | Network::Nsh | Network::None => return None,
    };
    let len = packet.len().checked_sub(header)? as u32;
    // All but the last have a multiple of eight bytes.
    if len == 0 || more && !len.is_multiple_of(8) || place + len > DATAGRAM_MAX {
        return None;
    }
    let get = |v4, v6| key.get(if is_ipv6 { v6 } else { v4 });
    let datagram = Datagram {
        source: get(Field::Ipv4Src, Field::Ipv6Src),
        destination: get(Field::Ipv4Dst, Field::Ipv6Dst),
        identification,
        proto: if is_ipv6 { proto } else { packet[9] },
        is_ipv6,
        zone,
    };
    Some((datagram, Piece { begin: place, end: place + len, is_last: !more, at: l3 + header }))
}

/// A fragment that waits.
#[derive(Debug)]
pub struct Waiting<T> {
    pub piece: Piece,
    pub held: T,
}

/// The fragments of a datagram.
#[derive(Debug)]
struct Incomplete<T> {
    /// In the order of their places.
    pieces: Vec<Waiting<T>>,
    /// Two of them overlapped: no more are taken.
    is_given_up: bool,
}

impl<T> Incomplete<T> {
    /// The number of fragments that it counts as.
    fn weight(&self) -> usize {
        if self.is_given_up { 1 } else { self.pieces.len() }
    }

    /// Returns whether a piece is there already.
    fn has(&self, new: &Piece) -> bool {
        let ends = |piece: &Piece| (piece.begin, piece.end, piece.is_last);
        self.pieces.iter().any(|waiting| ends(&waiting.piece) == ends(new))
    }

    /// Returns the place of a new piece; none if it overlaps others, or there is one behind the last.
    fn place_for(&self, new: &Piece) -> Option<usize> {
        let at = self.pieces.partition_point(|waiting| waiting.piece.begin < new.begin);
        let before = at.checked_sub(1).map(|at| &self.pieces[at].piece);
        let after = self.pieces.get(at).map(|waiting| &waiting.piece);
        let fits = before.is_none_or(|before| before.end <= new.begin && !before.is_last)
            && after.is_none_or(|after| new.end <= after.begin && !new.is_last);
        fits.then_some(at)
    }
}

/// Returns whether pieces, in the order of their places, are a whole datagram.
fn are_complete(pieces: impl IntoIterator<Item = Piece>) -> bool {
    let (mut end, mut ends) = (0, false);
    for piece in pieces {
        if piece.begin != end {
            return false;
        }
        (end, ends) = (piece.end, piece.is_last);
    }
    ends
}

/// The fate of a fragment, were it taken.
#[derive(Debug)]
pub enum Fate<'a, T> {
    /// It would wait.
    Waits,
    /// All of its datagram would be there, in the order of their places: those that wait, and itself.
    All(Vec<(Piece, Option<&'a T>)>),
    /// It would be refused.
    Refused,
}

/// The fate of a fragment.
#[derive(Debug)]
pub enum Taken<T> {
    /// It waits.
    Waits,
    /// All of its datagram are there, in the order of their places.
    All(Vec<Waiting<T>>),
    /// It is not sound, or there is no room: it is given back.
    Refused(T),
}

/// One that has fragments waiting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Holder {
    Source(bool, u128),
    Zone(u16),
}

impl Datagram {
    fn holder(&self) -> Holder {
        Holder::Source(self.is_ipv6, self.source)
    }
}

/// Datagrams of which fragments are missing.
#[derive(Debug)]
pub struct Fragments<T> {
    datagrams: HashMap<Datagram, Incomplete<T>>,
    /// The datagrams in the order in which they began, and when.
    order: VecDeque<(u64, Datagram)>,
    waiting: usize,
    /// Fragments that wait by their source, and datagrams by their zone.
    held: HashMap<Holder, usize>,
    /// Fragments whose datagrams were never complete.
    pub expired: u64,
    /// Fragments that were given up since some overlapped.
    pub overlapping: u64,
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        let (datagrams, order, held) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { datagrams, order, waiting: 0, held, expired: 0, overlapping: 0 }
    }
}

impl<T> Fragments<T> {
    /// Takes a fragment, of whose zone up to `datagrams_max` datagrams may wait.
    pub fn take(
        &mut self,
        datagram: Datagram,
        piece: Piece,
        held: T,
        (now_ms, datagrams_max): (u64, usize),
    ) -> Taken<T> {
        self.expire(now_ms);
        if !self.may_wait(&datagram, datagrams_max) {
            return Taken::Refused(held);
        }
        let known = self.datagrams.get(&datagram);
        if known.is_some_and(|incomplete| incomplete.is_given_up || incomplete.has(&piece)) {
            return Taken::Refused(held);
        }
        let Some(at) = known.map_or(Some(0), |incomplete| incomplete.place_for(&piece)) else {
            self.give_up(&datagram);
            return Taken::Refused(held);
        };
        if self.waiting == WAITING_MAX {
            self.forget_one(&datagram);
        }
        let incomplete = self.datagrams.entry(datagram).or_insert_with(|| {
            self.order.push_back((now_ms, datagram));
            *self.held.entry(Holder::Zone(datagram.zone)).or_default() += 1;
            Incomplete { pieces: Vec::new(), is_given_up: false }
        });
        incomplete.pieces.insert(at, Waiting { piece, held });
        self.waiting += 1;
        *self.held.entry(datagram.holder()).or_default() += 1;
        if !are_complete(incomplete.pieces.iter().map(|waiting| waiting.piece)) {
            return Taken::Waits;
        }
        let pieces = self.remove(&datagram);
        // Mostly one of the last.
        if let Some(at) = self.order.iter().rposition(|(_, other)| *other == datagram) {
            self.order.remove(at);
        }
        Taken::All(pieces)
    }

    /// Gives a datagram up of which a fragment overlaps others.
    fn give_up(&mut self, datagram: &Datagram) {
        let Some(incomplete) = self.datagrams.get_mut(datagram) else { return };
        let before = incomplete.weight();
        self.overlapping += 1 + incomplete.pieces.len() as u64;
        (incomplete.pieces, incomplete.is_given_up) = (Vec::new(), true);
        let freed = before - incomplete.weight();
        self.waiting -= freed;
        if let Some(held) = self.held.get_mut(&datagram.holder()) {
            *held -= freed;
        }
    }

    /// Returns whether there is room for a fragment, or room is made.
    fn may_wait(&self, datagram: &Datagram, datagrams_max: usize) -> bool {
        let held = |holder| self.held.get(&holder).copied().unwrap_or(0);
        let free = WAITING_MAX - self.waiting;
        held(datagram.holder()) < free.max(FEW)
            && (self.datagrams.contains_key(datagram) || held(Holder::Zone(datagram.zone)) < datagrams_max)
    }

    /// Removes a datagram, which may still be in the order. Returns its fragments.
    fn remove(&mut self, datagram: &Datagram) -> Vec<Waiting<T>> {
        let Some(incomplete) = self.datagrams.remove(datagram) else { return Vec::new() };
        let weight = incomplete.weight();
        self.waiting -= weight;
        for (holder, count) in [(datagram.holder(), weight), (Holder::Zone(datagram.zone), 1)] {
            if let Some(held) = self.held.get_mut(&holder) {
                *held -= count;
                if *held == 0 {
                    self.held.remove(&holder);
                }
            }
        }
        incomplete.pieces
    }

    /// Makes room for a fragment of a datagram.
    #[cold]
    fn forget_one(&mut self, new: &Datagram) {
        let held = |datagram: &Datagram| self.held.get(&datagram.holder()).copied().unwrap_or(0);
        let oldest = self.order.iter().take(COMPARED).enumerate().filter(|(_, (_, other))| other != new);
        let first = oldest.min_by_key(|(at, (_, datagram))| (Reverse(held(datagram)), *at)).map(|(at, _)| at);
        if let Some((_, datagram)) = first.and_then(|at| self.order.remove(at)) {
            self.expired += self.remove(&datagram).len() as u64;
        }
    }

    /// Returns what would become of a fragment.
    pub fn preview(
        &mut self,
        datagram: &Datagram,
        piece: Piece,
        (now_ms, datagrams_max): (u64, usize),
    ) -> Fate<'_, T> {
        self.expire(now_ms);
        if !self.may_wait(datagram, datagrams_max) {
            return Fate::Refused;
        }
        let incomplete = self.datagrams.get(datagram);
        let waiting = incomplete.map_or(&[][..], |incomplete| &incomplete.pieces);
        let place_in = |incomplete: &Incomplete<T>| match incomplete.is_given_up || incomplete.has(&piece) {
            true => None,
            false => incomplete.place_for(&piece),
        };
        let Some(at) = incomplete.map_or(Some(0), place_in) else { return Fate::Refused };
        let mut all: Vec<_> = waiting.iter().map(|waiting| (waiting.piece, Some(&waiting.held))).collect();
        all.insert(at, (piece, None));
        match are_complete(all.iter().map(|(piece, _)| *piece)) {
            true => Fate::All(all),
            false => Fate::Waits,
        }
    }

    /// Forgets datagrams whose time is over.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some(&(begun_ms, datagram)) = self.order.front() {
            if begun_ms + WAIT_MS > now_ms {
                return;
            }
            self.order.pop_front();
            self.expired += self.remove(&datagram).len() as u64;
        }
    }
}

/// Returns what connection tracking sees of a datagram, whose fragments are all there with their frames, in order.
pub fn seen_whole<'a>(
    pieces: impl IntoIterator<Item = (Piece, &'a [u8])>,
    datagram: &Datagram,
) -> Option<Seen> {
    let mut payload = Vec::new();
    for (piece, frame) in pieces {
        let len = (piece.end - piece.begin) as usize;
        payload.extend(frame.get(piece.at..piece.at + len)?);
    }
    let bytes = whole(datagram, &payload);
    let mut key = FlowKey::zero();
    let headers = parse(&bytes, 0, &mut key);
    seen(&bytes, &headers, &key)
}

/// A frame with a whole datagram.
fn whole(datagram: &Datagram, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ETHERNET_BYTES];
    let header = if datagram.is_ipv6 { IPV6_BYTES } else { IPV4_BYTES };
    let width = if datagram.is_ipv6 { 16 } else { 4 };
    let len = if datagram.is_ipv6 { payload.len() } else { payload.len() + header };
    let len = (len as u16).to_be_bytes();
    if datagram.is_ipv6 {
        bytes[12..].copy_from_slice(&[0x86, 0xdd]);
        bytes.extend([0x60, 0, 0, 0, len[0], len[1], datagram.proto, 64]);
    } else {
        bytes[12..].copy_from_slice(&[8, 0]);
        bytes.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, datagram.proto, 0, 0]);
    }
    for address in [datagram.source, datagram.destination] {
        bytes.extend(&address.to_be_bytes()[16 - width..]);
    }
    if !datagram.is_ipv6 {
        let checksum = !fold(sum(&bytes[ETHERNET_BYTES..]));
        bytes[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(begin: u32, end: u32, is_last: bool) -> Piece {
        Piece { begin, end, is_last, at: 0 }
    }

    fn datagram(identification: u32) -> Datagram {
        datagram_of(1, identification)
    }

    fn datagram_of(source: u128, identification: u32) -> Datagram {
        Datagram { source, destination: 2, identification, proto: 17, is_ipv6: false, zone: 0 }
    }

    fn names(taken: Taken<char>) -> String {
        match taken {
            Taken::Waits => "waits".into(),
            Taken::All(all) => all.iter().map(|waiting| waiting.held).collect(),
            Taken::Refused(one) => format!("refused {one}"),
        }
    }

    #[test]
    fn fragments_come_in_any_order_and_go_on_in_theirs() {
        let mut fragments = Fragments::default();
        let mut take = |begin, end, last, name| {
            names(fragments.take(datagram(1), piece(begin, end, last), name, (0, usize::MAX)))
        };
        assert_eq!(take(16, 20, true, 'c'), "waits");
        assert_eq!(take(0, 8, false, 'a'), "waits");
        assert_eq!(take(0, 8, false, 'x'), "refused x", "twice");
        assert_eq!(take(8, 16, false, 'b'), "abc");
        assert_eq!((fragments.waiting, fragments.datagrams.len()), (0, 0));
    }

    #[test]
    fn fragments_that_wait_are_bounded_in_number_and_time() {
        let mut fragments = Fragments::default();
        // Each of another source: the oldest go.
        for id in 0..WAITING_MAX as u32 + 5 {
            fragments.take(datagram_of(id.into(), id), piece(0, 8, false), 'a', (u64::from(id), usize::MAX));
        }
        assert_eq!((fragments.waiting, fragments.expired), (WAITING_MAX, 5));
        let now = (WAIT_MS + 6, usize::MAX);
        assert_eq!(names(fragments.take(datagram_of(7, 7), piece(8, 9, true), 'b', now)), "ab");
        assert_eq!((fragments.waiting, fragments.expired), (WAITING_MAX - 3, 7));
        fragments.take(datagram(7), piece(0, 8, false), 'a', now);
        fragments.expire(3 * WAIT_MS / 2);
        assert_eq!(fragments.waiting, 1);
        fragments.expire(3 * WAIT_MS);
        assert_eq!((fragments.waiting, fragments.order.len(), fragments.held.len()), (0, 0, 0));
    }

    #[test]
    fn incomplete_datagrams_of_a_source_have_a_share_until_their_time_is_over() {
        let (mut fragments, mut id) = (Fragments::default(), 0);
        let mut flood = |source: u128, now_ms: u64| {
            id += 3000;
            let waits = |i: &u32| {
                let datagram = datagram_of(source, id + i);
                matches!(
                    fragments.take(datagram, piece(0, 8, false), 'a', (now_ms, usize::MAX)),
                    Taken::Waits
                )
            };
            (0..3000).filter(waits).count()
        };
        // Half of the room, half of the rest, and so on down to a few.
        assert_eq!((flood(2, 0), flood(3, 0), flood(4, 0), flood(2, 0)), (500, 250, 125, 0));
        assert_eq!(flood(2, WAIT_MS), 500);
    }

    #[test]
    fn one_source_or_many_take_no_room_from_datagrams_that_are_completed() {
        for is_forged in [false, true] {
            let (mut fragments, mut kept) = (Fragments::default(), 0);
            // Ten first fragments of the flood for each of the other host, whose later fragments come a little after.
            for tick in 0..3000u32 {
                let (own, now) = (datagram_of(1, tick), (u64::from(tick), usize::MAX));
                fragments.take(own, piece(0, 8, false), 'a', now);
                for i in 0..10 {
                    let source = if is_forged { u128::from(10 * tick + i + 2) } else { 2 };
                    fragments.take(datagram_of(source, 10 * tick + i), piece(0, 8, false), 'x', now);
                }
                kept += usize::from(names(fragments.take(own, piece(8, 9, true), 'b', now)) == "ab");
            }
            assert_eq!(kept, 3000, "forged: {is_forged}");
        }
    }

    #[test]
    fn datagrams_of_a_zone_have_a_limit() {
        let mut fragments = Fragments::default();
        let mut take = |id, begin| {
            let last = begin > 0;
            names(fragments.take(datagram(id), piece(begin, begin + 8, last), 'a', (0, 2)))
        };
        assert_eq!([take(1, 0), take(2, 0), take(3, 0)], ["waits", "waits", "refused a"]);
        assert_eq!([take(1, 8), take(3, 0)], ["aa", "waits"]);
    }

    #[test]
    fn a_datagram_whose_fragments_overlap_is_given_up() {
        for (begin, end, is_last) in
            [(4, 12, false), (0, 16, false), (20, 28, false), (8, 17, true), (0, 7, true)]
        {
            let mut fragments = Fragments::default();
            let mut take = |id, begin, end, last| {
                let taken = fragments.take(datagram(id), piece(begin, end, last), 'a', (0, usize::MAX));
                (names(taken), fragments.waiting)
            };
            assert_eq!(take(1, 0, 8, false), ("waits".into(), 1));
            assert_eq!(take(1, 16, 20, true), ("waits".into(), 2));
            let case = format!("{begin}..{end}");
            assert_eq!(take(1, begin, end, is_last), ("refused a".into(), 1), "{case}");
            // None of those that come later is taken, and other datagrams are.
            assert_eq!(take(1, 8, 16, false), ("refused a".into(), 1), "{case}");
            assert_eq!(take(2, 0, 8, false), ("waits".into(), 2), "{case}");
            assert_eq!(take(2, 8, 9, true), ("aa".into(), 1), "{case}");
            assert_eq!(fragments.overlapping, 3);
            // Its time ends as that of others.
            fragments.expire(WAIT_MS);
            assert_eq!((fragments.waiting, fragments.order.len(), fragments.datagrams.len()), (0, 0, 0));
        }
    }

    #[test]
    fn datagrams_that_are_given_up_are_bounded() {
        let mut fragments = Fragments::default();
        for id in 0..2 * WAITING_MAX as u32 {
            fragments.take(datagram_of(id.into(), id), piece(0, 16, false), 'a', (0, usize::MAX));
            fragments.take(datagram_of(id.into(), id), piece(8, 24, false), 'a', (0, usize::MAX));
        }
        assert_eq!((fragments.waiting, fragments.datagrams.len()), (WAITING_MAX, WAITING_MAX));
    }

    #[test]
    fn complete_datagrams_take_no_memory() {
        let mut fragments = Fragments::default();
        for id in 0..10 * WAITING_MAX as u32 {
            fragments.take(datagram(id % 7), piece(0, 8, false), 'a', (0, usize::MAX));
            assert_eq!(fragments.order.len(), 1);
            assert_eq!(
                names(fragments.take(datagram(id % 7), piece(8, 9, true), 'b', (0, usize::MAX))),
                "ab"
            );
        }
        assert_eq!((fragments.waiting, fragments.order.len()), (0, 0));
    }
}
