//! TCP connections of random conversations, against a model.

mod model;

use std::collections::BTreeMap;

use flowlane::generate::Random;
use flowlane_switch::state::conntrack::{
    Connections, End, Limits, Listed, Message, Request, Seen, Segment, Tracked, Tuple, Wanted,
};

use model::{ACK, FIN, Header, Model, PSH, RST, SYN, URG, Verdict};

/// One end of a conversation, as a host has it.
#[derive(Clone, Copy, Debug)]
struct Host {
    /// The next byte that it sends.
    next: u32,
    /// The next byte that it expects.
    expected: u32,
    shift: Option<u8>,
    has_opened: bool,
    has_closed: bool,
}

/// Conversations that hosts have, and faults that they do not.
struct Conversation {
    hosts: [Host; 2],
    /// Of a thousand segments, those with a fault.
    faults: u32,
    sent: Vec<(Header, usize)>,
}

impl Conversation {
    fn new(random: &mut Random) -> Self {
        let mut host = || {
            let near = [0, 1, 0x7fff_ff00, 0x8000_0000, 0xffff_ff00][random.index(5)];
            let next = if random.chance(0.5) { near } else { random.bits() as u32 };
            let shift = random.chance(0.6).then(|| [0, 1, 7, 14][random.index(4)]);
            Host { next, expected: 0, shift, has_opened: false, has_closed: false }
        };
        let mut hosts = [host(), host()];
        if random.chance(0.2) {
            // It has begun before.
            let [a, b] = hosts.map(|host| host.next);
            for (host, expected) in hosts.iter_mut().zip([b, a]) {
                (host.expected, host.has_opened) = (expected, true);
            }
        }
        Self { hosts, faults: [0, 100, 400][random.index(3)], sent: Vec::new() }
    }

    /// The next segment, and who sends it.
    fn next(&mut self, random: &mut Random) -> (Header, usize) {
        // Both open at once, or one after the other.
        let opens_at_once = random.chance(0.1);
        let from = match self.hosts.map(|host| host.has_opened) {
            [false, false] => 0,
            [true, false] if !opens_at_once => 1,
            _ => random.index(2),
        };
        let (mut header, from) = match self.sent.len() {
            len if len > 0 && random.chance(0.1) => self.sent[random.index(len)],
            _ => (self.hosts[from].segment(random), from),
        };
        self.hosts[1 - from].hear(&header);
        if random.below(1000) < u64::from(self.faults) {
            spoil(&mut header, random);
        }
        self.sent.push((header, from));
        (header, from)
    }
}

impl Host {
    fn segment(&mut self, random: &mut Random) -> Header {
        let window = [0, 1, 100, 1000, 65_535][random.index(5)];
        let mut header =
            Header { flags: ACK, seq: self.next, ack: self.expected, window, shift: None, bytes: 0 };
        if !self.has_opened {
            header.flags = if self.expected == 0 { SYN } else { SYN | ACK };
            (header.shift, self.has_opened) = (self.shift, true);
            self.next = self.next.wrapping_add(1);
            return header;
        }
        match random.below(12) {
            0 if !self.has_closed => {
                (header.flags, self.has_closed) = (FIN | ACK, true);
                self.next = self.next.wrapping_add(1);
            }
            1 if random.chance(0.3) => header.flags = RST | [0, ACK][random.index(2)],
            2..8 if !self.has_closed => {
                header.bytes = [1, 10, 100, 1460][random.index(4)];
                header.flags |= [0, PSH, URG][random.index(3)];
                self.next = self.next.wrapping_add(header.bytes);
            }
            _ => {}
        }
        header
    }

    fn hear(&mut self, header: &Header) {
        let controls = u32::from(header.flags & SYN != 0) + u32::from(header.flags & FIN != 0);
        let end = header.seq.wrapping_add(header.bytes + controls);
        if self.expected == 0 || (end.wrapping_sub(self.expected) as i32) > 0 {
            self.expected = end;
        }
    }
}

/// A distance about which judgements change.
fn distance(random: &mut Random) -> u32 {
    let near = [1, 2, 100, 1000, 65_535, 67_035, 67_036, 1 << 24, 1 << 30, 1 << 31][random.index(10)];
    let off = (near as u32).wrapping_add([0, 1, u32::MAX][random.index(3)]);
    if random.chance(0.5) { off } else { off.wrapping_neg() }
}

fn spoil(header: &mut Header, random: &mut Random) {
    match random.below(7) {
        0 | 1 => header.seq = header.seq.wrapping_add(distance(random)),
        2 | 3 => header.ack = if random.chance(0.2) { 0 } else { header.ack.wrapping_add(distance(random)) },
        4 => header.flags = random.below(64) as u16,
        5 => header.flags |= [RST, FIN | ACK, SYN, RST | ACK][random.index(4)],
        _ => (header.shift, header.bytes) = (Some(random.below(15) as u8), random.below(3000) as u32),
    }
}

fn seen(header: &Header, from: usize) -> Seen {
    let end = |address, port| End { address, port, icmp_type: 0 };
    let (source, destination) = (end(0x0a00_0001, 40_000), end(0x0a00_0002, 443));
    let tuple = Tuple { source, destination, zone: 0, proto: 6, is_ipv6: false };
    let Header { flags, seq, ack, window, shift, bytes } = *header;
    let message = Message::Tcp(Segment {
        flags,
        sequence: seq,
        acknowledgement: ack,
        window,
        window_shift: shift,
        payload: bytes,
    });
    Seen { tuple: if from == 0 { tuple } else { tuple.reversed() }, message, is_error: false }
}

/// Returns the bits of Open vSwitch's `ct_state`.
fn bits(verdict: Verdict, from: usize) -> u32 {
    const TRACKED: u32 = 0x20;
    TRACKED
        | match verdict {
            Verdict::New | Verdict::Restart => 0x01,
            Verdict::Established => 0x02 | (from as u32) << 3,
            Verdict::Invalid => 0x10,
        }
}

#[test]
fn tcp_connections_are_tracked_as_the_model_says() {
    let random = &mut Random::new(5);
    let request = Request { zone: 0, commit: true, ..Request::default() };
    let (mut packets, mut verdicts, mut names) = (0, BTreeMap::new(), BTreeMap::new());
    let mut reasons_met = BTreeMap::new();
    for number in 0..6000 {
        let connections = Connections::new(Limits { connections: 4, per_zone: None });
        let mut conversation = Conversation::new(random);
        let mut known: Option<(Model, usize)> = None;
        let mut now_ms = 1000;
        for _ in 0..20 + random.below(20) {
            let (header, from) = conversation.next(random);
            now_ms += random.below(500);
            let mut tracked = Tracked::default();
            connections.track(Some(&seen(&header, from)), &request, &mut tracked, now_ms);
            let (verdict, direction, reasons) = match &mut known {
                Some((model, first)) => {
                    let direction = usize::from(from != *first);
                    let (verdict, reasons) = model.take(&header, direction);
                    (verdict, direction, reasons)
                }
                None if header.may_begin() => (Verdict::New, 0, Default::default()),
                None => (Verdict::Invalid, 0, Default::default()),
            };
            let begins = verdict == Verdict::Restart || known.is_none() && verdict == Verdict::New;
            if begins {
                known = Some((Model::new(&header), from));
            }
            let case = || {
                format!(
                    "conversation {number}: {header:?} from {from}: {verdict:?} {reasons:?}\n{:?}\n{known:?}",
                    conversation.sent
                )
            };
            assert_eq!(tracked.state, bits(verdict, direction), "{}", case());
            let mut listed: Vec<Listed> = Vec::new();
            connections.for_each(&Wanted::default(), now_ms, |one| {
                listed.push(one);
                true
            });
            assert_eq!(listed.len(), usize::from(known.is_some()), "{}", case());
            if let (Some((model, _)), [one]) = (&known, &listed[..]) {
                assert_eq!(one.state.name(), model.name(), "{}", case());
                if verdict != Verdict::Invalid && reasons.is_empty() {
                    assert_eq!(one.left_ms, model.seconds * 1000, "{}", case());
                }
                *names.entry(model.name()).or_insert(0) += 1;
            }
            *verdicts.entry(verdict).or_insert(0) += 1;
            reasons.into_iter().for_each(|reason| *reasons_met.entry((reason, verdict)).or_insert(0) += 1);
            packets += 1;
        }
    }
    println!("{packets} packets: {verdicts:?}, {names:?}, {reasons_met:?}");
    assert!(packets >= 100_000, "{packets}");
    assert!(verdicts.len() == 4 && verdicts.values().all(|count| *count > 100), "{verdicts:?}");
    assert!(names.len() == 4 && names.values().all(|count| *count > 3000), "{names:?}");
    // Each reason against a segment, and each that is tolerated.
    assert!(reasons_met.len() >= 10 && reasons_met.values().all(|count| *count > 20), "{reasons_met:?}");
}
