//! Conversations: clients behind port 1 and servers behind port 2, which answer what they are sent, and now and then do what they must
//! not.

use super::super::ovs::Sent;
use super::super::packets::Random;
use super::frames::{
    ACK, Ends, FIN, ICMP, ICMPV6, RST, SCTP, SYN, Segment, TCP, UDP, address, error, ethernet, fragments,
    icmp, ip, read, sctp, seal, tcp, udp,
};
use super::rules::Kind;

/// The port that a packet comes in through, and its frame.
pub(super) type Packet = (usize, Vec<u8>);

/// The ends of a conversation as each side sees them, and how far it is.
struct Conversation {
    proto: u8,
    /// As the client sends.
    client: Ends,
    /// As the server has received; the client's, until it has.
    server: Ends,
    /// The next sequence numbers of both.
    next: [u32; 2],
    /// The shift of windows that both offer.
    scale: Option<u8>,
    /// Packets so far.
    stage: u32,
    /// It may begin again.
    restarts: bool,
    /// It has long datagrams.
    has_fragments: bool,
}

pub(super) struct Conversations {
    all: Vec<Conversation>,
    kind: Kind,
    /// Conversations so far.
    begun: u16,
    /// The one that has sent the last packet.
    last: usize,
    /// Fragments that are still to be sent.
    pending: Vec<Packet>,
    /// IP packets that have left, with the port.
    heard: Vec<(usize, Ends, Vec<u8>)>,
}

impl Conversations {
    pub(super) fn new(r: &mut Random, kind: Kind) -> Self {
        let all = (0..4).map(|number| Conversation::new(r, kind, number)).collect();
        Self { all, kind, begun: 4, last: 0, pending: Vec::new(), heard: Vec::new() }
    }

    /// Returns the next packet, and the port that it comes in through.
    pub(super) fn next(&mut self, r: &mut Random) -> Packet {
        if !self.pending.is_empty() && r.below(4) > 0 {
            return self.pending.swap_remove(r.below(self.pending.len() as u32) as usize);
        }
        if r.one_in(20) {
            let at = r.below(4) as usize;
            self.all[at] = Conversation::new(r, self.kind, self.begun);
            self.begun += 1;
        }
        // Open vSwitch 3.1 leaves wrong checksums in translated packets that errors of ICMPv6 quote.
        let is_quoted = |(_, ends, _): &(usize, Ends, Vec<u8>)| self.kind == Kind::Forces || !ends.v6;
        if r.one_in(10) && !self.heard.is_empty() && self.heard.iter().all(is_quoted) {
            return self.error(r);
        }
        self.last = r.below(4) as usize;
        let mut packets = self.all[self.last].next(r);
        // The others come in any order, or not at all.
        let first = packets.swap_remove(r.below(packets.len() as u32) as usize);
        self.pending.extend(packets.into_iter().filter(|_| !r.one_in(12)));
        first
    }

    /// An end, or a router on the way, complains about a packet.
    fn error(&self, r: &mut Random) -> Packet {
        let (port, ends, packet) = &self.heard[r.below(self.heard.len() as u32) as usize];
        let source = match r.below(3) {
            0 => address(ends.v6, [203, 0, 113, 9]),
            _ => ends.destination,
        };
        let back = Ends { source, destination: ends.source, ..*ends };
        let kind = if ends.v6 { r.pick(&[1, 2, 3, 4]) } else { r.pick(&[3, 11, 12]) };
        let header = if ends.v6 { 40 } else { 20 };
        // Of IPv6, Open vSwitch takes only what has a whole TCP header.
        let least = if ends.v6 { 20 } else { 8 };
        let len = packet.len().min(header + r.pick(&[least, least, 20, 60]));
        let proto = if ends.v6 { ICMPV6 } else { ICMP };
        (*port, ethernet(ends.v6, &ip(&back, proto, &error(&back, kind, &packet[..len]))))
    }

    /// Takes what has been sent because of the last packet.
    pub(super) fn hear(&mut self, in_port: usize, sent: &Sent) {
        for port in [1, 2] {
            for (ends, proto, packet) in sent[port - 1].iter().filter_map(|frame| read(frame)) {
                let conversation = &mut self.all[self.last];
                if port == 2 && in_port == 1 && proto == conversation.proto {
                    conversation.server = ends;
                }
                self.heard.push((port, ends, packet));
            }
        }
        let surplus = self.heard.len().saturating_sub(6);
        self.heard.drain(..surplus);
    }
}

impl Conversation {
    fn new(r: &mut Random, kind: Kind, number: u16) -> Self {
        // Connections with the same ends may follow each other.
        let restarts = kind == Kind::Forces;
        let v6 = r.one_in(4);
        let all =
            if kind == Kind::Fragments { &[UDP, TCP][..] } else { &[TCP, TCP, TCP, TCP, UDP, UDP, ICMP, 47] };
        let proto = r.pick(all);
        let proto = if proto == ICMP && v6 { ICMPV6 } else { proto };
        let host = r.pick(&[1, 2]);
        let client = Ends {
            v6,
            source: address(v6, [10, 0, 0, host]),
            destination: address(v6, r.pick(&[[192, 0, 2, 1], [192, 0, 2, 1], [192, 0, 2, 2]])),
            source_port: if restarts { r.pick(&[1000, 1001, 40_000, 300]) } else { 1000 + number },
            destination_port: r.pick(&[80, 21_000]),
        };
        Self {
            proto,
            client,
            server: client,
            next: [r.pick(&[1, 1000, u32::MAX - 50]), r.pick(&[5, 70_000])],
            scale: r.pick(&[None, Some(0), Some(7)]),
            stage: 0,
            restarts,
            has_fragments: kind == Kind::Fragments,
        }
    }

    /// Returns the next packet, in fragments if it is a long one.
    fn next(&mut self, r: &mut Random) -> Vec<Packet> {
        let from = match self.stage {
            0 => u32::from(r.one_in(12)),
            1 => u32::from(!r.one_in(4)),
            _ => r.below(2),
        } as usize;
        let mut ends = if from == 0 { self.client } else { self.server.reversed() };
        if r.one_in(40) {
            ends = ends.reversed();
        }
        self.stage += 1;
        let data = match self.proto {
            TCP => {
                let segment = self.segment(from, r);
                tcp(&ends, &segment)
            }
            UDP if self.has_fragments && r.one_in(3) => return self.fragments(from, &ends, r),
            UDP => {
                let payload = r.below(20) as usize;
                udp(&ends, payload, r)
            }
            SCTP => sctp(&ends),
            ICMP | ICMPV6 => {
                let v6 = self.proto == ICMPV6;
                let kinds = if v6 { [128, 129, 135] } else { [8, 0, 13] };
                let kind = match r.below(8) {
                    0 => (kinds[r.below(3) as usize], 0),
                    1 => (kinds[from], r.below(2) as u8),
                    _ => (kinds[from], 0),
                };
                // Open vSwitch 3.1 does not translate identifiers.
                let identifier = self.client.source_port;
                icmp(&ends, kind, identifier)
            }
            _ => vec![0, 0, 8, 0, 1, 2, 3, 4],
        };
        let mut data = data;
        if r.one_in(40) && data.len() > 9 {
            // A wrong checksum, or another number under a right one.
            data[7] ^= 0x40;
            if r.one_in(2) {
                seal(&ends, self.proto, &mut data);
            }
        }
        let mut frame = ethernet(ends.v6, &ip(&ends, self.proto, &data));
        if !ends.v6 && r.one_in(100) {
            frame[24] ^= 1;
        }
        vec![(from + 1, frame)]
    }

    /// A long datagram in fragments.
    fn fragments(&self, from: usize, ends: &Ends, r: &mut Random) -> Vec<Packet> {
        let data = udp(ends, 2600 + r.below(300) as usize, r);
        let cut = |r: &mut Random| 1240 + 8 * r.below(4) as usize;
        let first = cut(r);
        let cuts = if r.one_in(12) { vec![first - 800, first + 400] } else { vec![first, first + cut(r)] };
        let all = fragments(ends, UDP, &data, &cuts, r.next() as u32);
        all.into_iter().map(|frame| (from + 1, frame)).collect()
    }

    /// The next segment of an end: mostly what TCP would send.
    fn segment(&mut self, from: usize, r: &mut Random) -> Segment {
        let [own, other] = [self.next[from], self.next[1 - from]];
        let (mut flags, mut payload) = match (self.stage, from) {
            (1, 0) => (SYN, 0),
            (2, 1) => (SYN | ACK, 0),
            _ => match r.below(12) {
                0 => (FIN | ACK, 0),
                1 => (RST, 0),
                2 => (RST | ACK, 0),
                3 if self.restarts => (SYN, 0),
                4..=6 => (ACK, 0),
                _ => (ACK, r.below(40) as usize),
            },
        };
        if r.one_in(25) {
            flags = r.next() as u8 & 0x3f;
            if !self.restarts && flags & (SYN | ACK) == SYN {
                flags = RST;
            }
            payload = r.below(3) as usize;
        }
        let sequence = match r.below(16) {
            0 => own.wrapping_add(r.below(3)),
            1 => own.wrapping_sub(r.below(100)),
            2 => own.wrapping_add(r.below(200_000)),
            3 => r.next() as u32,
            _ => own,
        };
        let acknowledgement = match r.below(16) {
            0 => 0,
            1 => other.wrapping_sub(r.below(70_000)),
            2 => other.wrapping_add(r.below(70_000)),
            _ => other,
        };
        let acknowledgement = if flags & ACK == 0 { 0 } else { acknowledgement };
        if sequence == own {
            let taken = payload as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
            self.next[from] = own.wrapping_add(taken);
        }
        let scale = self.scale.filter(|_| flags & SYN != 0 && (from == 0 || !r.one_in(5)));
        Segment {
            flags,
            sequence,
            acknowledgement,
            window: r.pick(&[0, 1, 300, 8192, u16::MAX]),
            scale,
            payload,
        }
    }
}
