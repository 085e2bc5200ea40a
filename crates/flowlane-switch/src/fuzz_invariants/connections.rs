//! Connection tracking: arbitrary packets with arbitrary requests, while time jumps and connections are flushed.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;

use flowlane::packet::{FlowKey, Headers, parse};
use flowlane::rule::action::{Nat, NatRange};

use crate::packet::Frame;
use crate::packet::edit::checksum::{fold, sum};
use crate::state::conntrack::fragments::{Fate, Fragments, Taken, piece, seen_whole};
use crate::state::conntrack::{
    Application, Connections, Limits, Listed, Request, Rewrite, Seen, Tracked, Tuple, Wanted, rewrite, seen,
};

/// Connections at most, in all and of a zone.
const LIMITS: Limits = Limits { connections: 40, per_zone: Some(25) };

/// Bytes of the longest packet that is made.
const FRAME_MAX: usize = 2000;

/// Operations on one table: the first byte of each says which, and the next ones how.
pub fn connections(bytes: &[u8]) {
    let mut checked = Checked {
        connections: Connections::new(LIMITS),
        fragments: Fragments::default(),
        now_ms: 1,
        tracked: Tracked::default(),
        removed: 0,
    };
    let mut input = Input(bytes);
    while let Some(operation) = input.0.first().copied() {
        input.0 = &input.0[1..];
        checked.take(operation, &mut input);
        checked.check();
    }
}

/// Bytes that are taken one after the other; 0 where none is left.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// The table, and the state that the checks compare it with.
struct Checked {
    connections: Connections,
    fragments: Fragments<Vec<u8>>,
    now_ms: u64,
    /// The connection of the last packet: another `ct` begins with it, though actions may have changed the packet since.
    tracked: Tracked,
    /// Connections that requests have removed.
    removed: u64,
}

impl Checked {
    fn take(&mut self, operation: u8, input: &mut Input<'_>) {
        match operation % 16 {
            0 => self.now_ms += u64::from(input.byte()).pow(3),
            1 => {
                let wanted = Wanted {
                    zone: Some((input.byte() % 3).into()).filter(|zone| *zone < 2),
                    proto: Some(input.byte()).filter(|proto| *proto > 0),
                    port: Some(input.byte().into()).filter(|port| *port > 0),
                    ..Wanted::default()
                };
                self.removed += self.connections.flush(&wanted, 0) as u64;
            }
            2 => self.connections.sweep(self.now_ms, input.byte().into()),
            3 | 4 => {
                let len = usize::from(input.byte()) * FRAME_MAX / 255;
                let frame = input.take(len).to_vec();
                self.packet(&frame, operation, input);
            }
            5 => self.datagram(operation, input),
            _ => {
                let frame = made(input, 0);
                self.packet(&frame, operation, input);
            }
        }
    }

    /// A packet and one or two requests, perhaps one that actions have made of the packet before.
    fn packet(&mut self, bytes: &[u8], operation: u8, input: &mut Input<'_>) {
        let mut frame = Frame::default();
        frame.fill(bytes);
        let mut key = FlowKey::zero();
        let mut headers = parse(frame.bytes(), 1, &mut key);
        let is_new = operation & 0x10 == 0;
        if is_new {
            self.tracked = Tracked::default();
        }
        for _ in 0..=operation >> 5 & 1 {
            let nat = nat(input.byte());
            let request = request(input, nat.as_ref());
            let packet = seen(frame.bytes(), &headers, &key);
            let Some(by) = self.track(packet.as_ref(), &request) else { continue };
            rewrite(&mut frame, &mut headers, &mut key, &by);
            if is_new {
                self.check_rewritten(&frame, &headers, &key, packet.is_some());
                let again = seen(frame.bytes(), &headers, &key).filter(|again| !again.is_error);
                assert!(again.is_none_or(|again| again.tuple == Tuple { zone: 0, ..by.to }), "{by:?}");
            }
        }
    }

    /// Tracks a packet. A dry run in front says what becomes of it.
    fn track(&mut self, packet: Option<&Seen>, request: &Request<'_>) -> Option<Rewrite> {
        let (mut dry, len) = (self.tracked, self.connections.len());
        let dry_run = Request { is_dry_run: true, ..*request };
        let predicted = self.connections.track(packet, &dry_run, &mut dry, self.now_ms);
        assert!(self.connections.len() <= len, "a dry run adds no connection");
        assert_eq!(self.removed_ever(), self.removed, "nor does it remove any");
        // A table that is full may make room, or not.
        let has_room = self.connections.len() < LIMITS.connections;
        let by = self.connections.track(packet, request, &mut self.tracked, self.now_ms);
        // One that is replaced.
        let removed = self.removed_ever();
        assert!((self.removed..=self.removed + 1).contains(&removed));
        self.removed = removed;
        if request.is_dry_run || has_room {
            let shown = |tracked: &Tracked| {
                (tracked.state, tracked.zone, tracked.mark, tracked.label, tracked.original)
            };
            assert_eq!((shown(&dry), predicted), (shown(&self.tracked), by), "{packet:?} {request:?}");
        }
        assert!(self.tracked.state != 0 && self.tracked.zone == request.zone);
        by
    }

    /// A translated packet is as sound as before, and its key is what it says.
    fn check_rewritten(&self, frame: &Frame, headers: &Headers, key: &FlowKey, was_sound: bool) {
        let mut parsed = FlowKey::zero();
        assert_eq!(parse(frame.bytes(), 1, &mut parsed), *headers);
        assert!(parsed == *key, "the key follows");
        assert_eq!(seen(frame.bytes(), headers, key).is_some(), was_sound, "{:02x?}", frame.bytes());
    }

    /// A datagram in two fragments, in any order, perhaps changed.
    fn datagram(&mut self, operation: u8, input: &mut Input<'_>) {
        let whole = made(input, 1400);
        let mut pieces = fragments_of(&whole);
        if input.byte() & 1 == 1 {
            pieces.reverse();
        }
        for (nth, bytes) in pieces.iter_mut().enumerate() {
            let at = usize::from(input.byte()) * 4;
            let change = input.byte();
            let is_changed = change != 0 && at < bytes.len();
            if is_changed {
                bytes[at] ^= change;
            }
            let mut key = FlowKey::zero();
            let headers = parse(bytes, 1, &mut key);
            let Some((datagram, piece)) =
                piece(bytes, &headers, &key, (operation >> 6).into(), self.connections.shortest_fragments)
            else {
                continue;
            };
            let predicted = match self.fragments.preview(&datagram, piece, (self.now_ms, usize::MAX)) {
                Fate::Waits => 0,
                Fate::All(all) => all.len(),
                Fate::Refused => usize::MAX,
            };
            match self.fragments.take(datagram, piece, bytes.clone(), (self.now_ms, usize::MAX)) {
                Taken::Waits => assert_eq!(predicted, 0),
                Taken::Refused(held) => assert!(predicted == usize::MAX && held == *bytes),
                Taken::All(all) => {
                    assert_eq!((predicted, predicted >= nth), (all.len(), true));
                    let held = all.iter().map(|waiting| (waiting.piece, &waiting.held[..]));
                    _ = seen_whole(held, &datagram);
                }
            }
        }
    }

    fn added(&self) -> u64 {
        self.connections.counters.added.load(Relaxed)
    }

    /// Connections that have gone, as far as counters say.
    fn gone(&self) -> u64 {
        let counters = &self.connections.counters;
        counters.expired.load(Relaxed) + counters.evicted.load(Relaxed)
    }

    /// Connections that are neither there nor among the gone ones.
    fn removed_ever(&self) -> u64 {
        self.added() - self.gone() - self.connections.len() as u64
    }

    fn check(&self) {
        let connections = &self.connections;
        let len = connections.len();
        assert!(len <= LIMITS.connections);
        assert_eq!(self.removed_ever(), self.removed, "each has an end");
        let mut listed: Vec<Listed> = Vec::new();
        connections.for_each(&Wanted::default(), self.now_ms, |one| {
            listed.push(one);
            true
        });
        assert!(listed.len() <= len);
        let mut tuples = HashSet::new();
        for one in &listed {
            let [there, back] =
                [one.original, one.reply].map(|tuple| connections.place(&connections.prepare(&tuple)));
            assert!(there.is_some() && there == back, "{one:?}");
            // The replies of a packet of an end to itself look like it.
            let is_new = tuples.insert(one.original);
            assert!(is_new && (one.reply == one.original || tuples.insert(one.reply)), "{one:?}");
            // An end may be translated to itself.
            assert!(!one.translated.is_none() || one.reply == one.original.reversed(), "{one:?}");
            assert!(one.left_ms > 0);
        }
        for zone in 0..3 {
            let in_zone = listed.iter().filter(|one| one.original.zone == zone).count();
            assert!(LIMITS.per_zone.is_none_or(|limit| in_zone as u32 <= limit));
        }
    }
}

/// A translation: none, of known connections, of sources or of destinations to few ends.
fn nat(byte: u8) -> Option<Nat> {
    let [a, b] = if byte & 8 == 0 {
        [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    } else {
        [1, 2].map(|last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)))
    };
    let ports = (byte & 16 != 0).then_some((4000, 4003));
    let range = match byte % 8 {
        0..=3 => return None,
        4 => None,
        5 => Some(NatRange { is_source: false, addresses: Some((a, b)), ports }),
        6 => Some(NatRange { is_source: true, addresses: Some((a, a)), ports }),
        _ => Some(NatRange { is_source: true, addresses: Some((a, b)), ports }),
    };
    Some(Nat { range, persistent: byte & 32 != 0, hash: byte & 64 != 0, random: byte & 128 != 0 })
}

fn request<'a>(input: &mut Input<'_>, nat: Option<&'a Nat>) -> Request<'a> {
    let byte = input.byte();
    let mark = u32::from(byte);
    Request {
        zone: u16::from(byte & 1),
        commit: byte & 6 != 0,
        force: byte & 14 == 14,
        nat,
        mark: (byte & 16 != 0).then_some((mark, 0xff)),
        label: (byte & 32 != 0).then_some((u128::from(mark) << 100, u128::MAX << 64)),
        application: [None, None, Some(Application::Ftp), Some(Application::Tftp)]
            [usize::from(byte >> 4 & 3)],
        is_dry_run: byte & 0xc0 == 0xc0,
    }
}

/// Makes a sound packet between few ends, perhaps an error about one, with at least `len` bytes of payload.
fn made(input: &mut Input<'_>, len: usize) -> Vec<u8> {
    let (ends, kind) = (input.byte(), input.byte());
    let is_ipv6 = ends & 0x80 != 0;
    let [from, to] = [ends & 3, ends >> 2 & 3];
    let ports: [[u8; 4]; 2] = [[0, 1, 0x0f, 0xa0], [0, 2, 0, 53]];
    let [own, other] = if from < to { [ports[0], ports[1]] } else { [ports[1], ports[0]] };
    let ends_of_ports = [own[2], own[3].wrapping_add(ends >> 4 & 3), other[2], other[3]];
    let payload = vec![kind; len + usize::from(kind & 7)];
    let numbers = [[0, 0, 0, input.byte()], [0, 0, 0, input.byte()]].concat();
    let (proto, mut data, checksum) = match kind >> 3 & 7 {
        0..=2 => {
            let flags = input.byte() & 0x3f;
            (6, [&ends_of_ports[..], &numbers, &[0x50, flags, 1, 0, 0, 0, 0, 0]].concat(), 16)
        }
        3 | 4 => {
            let len = ((8 + payload.len()) as u16).to_be_bytes();
            (17, [&ends_of_ports[..], &len, &[0, 0]].concat(), 6)
        }
        5 | 6 => {
            let types = if is_ipv6 { [128, 129, 1, 3] } else { [8, 0, 3, 11] };
            let icmp_type = types[usize::from(input.byte() & 3)];
            let proto = if is_ipv6 { 58 } else { 1 };
            (proto, vec![icmp_type, 0, 0, 0, 0, ends >> 4 & 3, 0, 1], 2)
        }
        _ => (47, vec![0; 8], usize::MAX),
    };
    data.extend(match matches!(data[0], 3 | 11 | 1) && matches!(proto, 1 | 58) && len == 0 {
        // An error about a packet the other way.
        true => in_ip(is_ipv6, [to, from], 17, &[&other[2..], &own[2..], &[0, 8, 0, 0]].concat(), 6),
        false => payload,
    });
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], if is_ipv6 { &[0x86, 0xdd] } else { &[8, 0] }]
        .concat()
        .into_iter()
        .chain(in_ip(is_ipv6, [from, to], proto, &data, checksum))
        .collect()
}

/// Makes an IP packet, with the checksum at `at` of its data.
fn in_ip(is_ipv6: bool, ends: [u8; 2], proto: u8, data: &[u8], at: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    let address = |end: u8| match is_ipv6 {
        true => [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[end]].concat(),
        false => vec![10, 0, 0, end],
    };
    let addresses = ends.map(address).concat();
    if let Some(place) = data.get(at..at.saturating_add(2)).map(|_| at) {
        let pseudo = if proto == 1 {
            Vec::new()
        } else {
            [&addresses[..], &(data.len() as u32).to_be_bytes(), &[0, 0, 0, proto]].concat()
        };
        let checksum = !fold(u32::from(fold(sum(&pseudo))) + u32::from(fold(sum(&data))));
        data[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    let total = if is_ipv6 { data.len() } else { data.len() + 20 } as u16;
    let [high, low] = total.to_be_bytes();
    let mut header = match is_ipv6 {
        true => vec![0x60, 0, 0, 0, high, low, proto, 64],
        false => vec![0x45, 0, high, low, 0, 0, 0, 0, 64, proto, 0, 0],
    };
    header.extend(addresses);
    if !is_ipv6 {
        let checksum = !fold(sum(&header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    [header, data].concat()
}

/// Cuts a frame of IP in two.
fn fragments_of(frame: &[u8]) -> Vec<Vec<u8>> {
    const FIRST: usize = 1280;
    let is_ipv6 = frame[12] == 0x86;
    let data = &frame[if is_ipv6 { 54 } else { 34 }..];
    let cut = |range: std::ops::Range<usize>| {
        let (place, more) = ((range.start as u16), range.end < data.len());
        let part = &data[range];
        if is_ipv6 {
            let field = (place | u16::from(more)).to_be_bytes();
            let fragment = [frame[20], 0, field[0], field[1], 0, 0, 0, 7];
            let len = ((8 + part.len()) as u16).to_be_bytes();
            let middle = [&frame[14..18], &len, &[44, 64]].concat();
            return [&frame[..14], &middle, &frame[22..54], &fragment, part].concat();
        }
        let mut out = [&frame[..34], part].concat();
        out[16..18].copy_from_slice(&((20 + part.len()) as u16).to_be_bytes());
        let field = ((place / 8) | (u16::from(more) << 13)).to_be_bytes();
        out[18..22].copy_from_slice(&[0, 7, field[0], field[1]]);
        out[24..26].fill(0);
        let checksum = !fold(sum(&out[14..34]));
        out[24..26].copy_from_slice(&checksum.to_be_bytes());
        out
    };
    vec![cut(0..FIRST), cut(FIRST..data.len())]
}
