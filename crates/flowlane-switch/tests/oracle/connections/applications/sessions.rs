//! Sessions of FTP and TFTP: clients behind port 1 and servers behind port 2. Each end uses what it has received, and nothing else: the
//! numbers of TCP, and the address and port in a text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::super::ovs::Sent;
use super::super::super::packets::Random;
use super::super::conversations::Packet;
use super::super::frames::{
    ACK, Ends, FIN, SYN, Segment, TCP, UDP, address, ethernet, ip, read, tcp_with, udp_with,
};
use super::Translation;

/// A stream of TCP, or packets of UDP. End 0 has begun it.
struct Stream {
    proto: u8,
    /// The port of end 0.
    port: usize,
    /// As end 0 sends, and as end 1 has received.
    ends: [Ends; 2],
    /// The next sequence number of each end, and the next one that it expects.
    next: [u32; 2],
    expected: [u32; 2],
    /// Packets so far.
    stage: u32,
    /// It is a control connection.
    is_control: bool,
}

/// An end that has been announced: of which session, to which port of the switch it was, and where it is.
#[derive(Clone, Copy)]
struct Announced {
    session: usize,
    port: usize,
    address: IpAddr,
    number: u16,
}

pub(super) struct Sessions {
    translation: Translation,
    /// Control connections first.
    streams: Vec<Stream>,
    announced: Vec<Announced>,
    /// The stream that has sent the last packet, and its end.
    last: (usize, usize),
    ports: u16,
}

const SESSIONS: usize = 3;

fn ip_of(v6: bool, bytes: [u8; 16]) -> IpAddr {
    match v6 {
        true => Ipv6Addr::from(bytes).into(),
        false => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
    }
}

fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

/// Writes the message with which an end announces a port: the end 0 of a control connection is the client.
fn message(end: usize, address: IpAddr, port: u16) -> String {
    let commas = || format!("{},{},{}", address.to_string().replace('.', ","), port >> 8, port & 0xff);
    match (end, address) {
        (0, IpAddr::V4(_)) => format!("PORT {}\r\n", commas()),
        (0, IpAddr::V6(_)) => format!("EPRT |2|{address}|{port}|\r\n"),
        (_, IpAddr::V4(_)) => format!("227 Entering Passive Mode ({}).\r\n", commas()),
        (_, IpAddr::V6(_)) => format!("229 Entering Extended Passive Mode (|||{port}|)\r\n"),
    }
}

/// Reads such a message, as the other end does. A text without an address is about the sender's.
fn heard(text: &str, sender: IpAddr) -> Option<(IpAddr, u16)> {
    if text.starts_with("PORT") || text.starts_with("227") {
        let from = text.find(|c: char| c.is_ascii_digit() && !text.starts_with("227"));
        let from = from.or_else(|| text.find('(').map(|at| at + 1))?;
        let numbers = text[from..].split(|c: char| !c.is_ascii_digit()).take(6);
        let numbers: Vec<u8> = numbers.map_while(|number| number.parse().ok()).collect();
        let [a, b, c, d, high, low] = numbers[..] else { return None };
        return Some((Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low])));
    }
    let parts: Vec<&str> = text.split('|').collect();
    let port = parts.get(3)?.parse().ok()?;
    let address = if text.starts_with("EPRT") { parts[2].parse().ok()? } else { sender };
    Some((address, port))
}

impl Sessions {
    pub(super) fn new(r: &mut Random, translation: Translation) -> Self {
        let control = |number: usize, r: &mut Random| {
            let (v6, is_tftp) = (r.one_in(3), number + 1 == SESSIONS);
            let server = match translation {
                Translation::Destination => [203, 0, 113, 200],
                _ => [192, 0, 2, 1],
            };
            let ends = Ends {
                v6,
                source: address(v6, [10, 0, 0, r.pick(&[1, 2])]),
                destination: address(v6, server),
                source_port: 1000 + number as u16,
                destination_port: if is_tftp { 69 } else { 21 },
            };
            Stream::new(if is_tftp { UDP } else { TCP }, 1, ends, r)
        };
        let mut streams: Vec<Stream> = (0..SESSIONS).map(|number| control(number, r)).collect();
        streams.iter_mut().for_each(|stream| stream.is_control = true);
        Self { translation, streams, announced: Vec::new(), last: (0, 0), ports: 2000 }
    }

    /// Returns the next packet, and the port that it comes in through.
    pub(super) fn next(&mut self, r: &mut Random) -> Packet {
        let at = r.below(SESSIONS as u32) as usize;
        if self.streams[at].proto == UDP {
            return self.datagram(at, r);
        }
        if self.streams[at].stage < 3 {
            return self.handshake(at, r);
        }
        match r.below(12) {
            0..4 => self.announce(at, r),
            4..8 => self.connect(at, r),
            8 => self.noise(at, r),
            9 => {
                let text = if r.one_in(2) { "NOOP\r\n" } else { "" };
                let end = r.below(2) as usize;
                self.segment(at, end, ACK, text.as_bytes(), r)
            }
            _ => match self.streams.len() - SESSIONS {
                0 => self.connect(at, r),
                others => self.go_on(SESSIONS + r.below(others as u32) as usize, r),
            },
        }
    }

    fn handshake(&mut self, at: usize, r: &mut Random) -> Packet {
        match self.streams[at].stage {
            0 => self.segment(at, 0, SYN, &[], r),
            1 => self.segment(at, 1, SYN | ACK, &[], r),
            _ => self.segment(at, 0, ACK, &[], r),
        }
    }

    /// A stream of data goes on.
    fn go_on(&mut self, at: usize, r: &mut Random) -> Packet {
        if self.streams[at].proto == UDP {
            let end = r.below(2) as usize;
            return self.packet(at, end, &[0, 4, 0, 1], r);
        }
        if self.streams[at].stage < 3 {
            return self.handshake(at, r);
        }
        let end = r.below(2) as usize;
        match r.below(4) {
            0 => self.segment(at, end, FIN | ACK, &[], r),
            _ => self.segment(at, end, ACK, b"PORT of call\r\n", r),
        }
    }

    /// An end of a control connection announces a port.
    fn announce(&mut self, at: usize, r: &mut Random) -> Packet {
        let (end, stream) = (r.below(2) as usize, &self.streams[at]);
        let ends = stream.sends(end);
        let port = r.pick(&[1025, 1026, 40_000]) + at as u16;
        let text = message(end, ip_of(ends.v6, ends.source), port);
        self.control_segment(at, end, &text, r)
    }

    /// A segment whose frame has room behind it in Open vSwitch's memory, of which it takes some without looking.
    fn control_segment(&mut self, at: usize, end: usize, text: &str, r: &mut Random) -> Packet {
        let headers = if self.streams[at].ends[0].v6 { 74 } else { 54 };
        let mut text = text.as_bytes().to_vec();
        while (headers + text.len()) % 16 != 9 {
            text.push(b'N');
        }
        self.segment(at, end, ACK, &text, r)
    }

    /// The end that has heard of a port connects to it.
    fn connect(&mut self, at: usize, r: &mut Random) -> Packet {
        let known: Vec<Announced> = self.announced.iter().filter(|one| one.session == at).copied().collect();
        if known.is_empty() {
            return self.announce(at, r);
        }
        let one = known[r.below(known.len() as u32) as usize];
        self.connect_to(at, one, r)
    }

    fn connect_to(&mut self, at: usize, one: Announced, r: &mut Random) -> Packet {
        let control = &self.streams[at];
        self.ports += 1;
        let ends = Ends {
            source: control.sends(one.port - 1).source,
            destination: bytes_of(one.address),
            source_port: if one.port == 2 && r.one_in(2) { 20 } else { self.ports },
            destination_port: one.number,
            ..control.ends[0]
        };
        self.streams.push(Stream::new(TCP, one.port, ends, r));
        self.segment(self.streams.len() - 1, 0, SYN, &[], r)
    }

    /// Something that announces nothing: a port that no one has named, and, as long as no number is skewed, messages that are cut off or
    /// about another host.
    fn noise(&mut self, at: usize, r: &mut Random) -> Packet {
        let ends = self.streams[at].sends(0);
        if r.one_in(2) || self.translation != Translation::None {
            let port = 1 + r.below(2) as usize;
            let peer = self.streams[at].sends(2 - port);
            let address = ip_of(peer.v6, self.streams[at].sends(port - 1).destination);
            return self.connect_to(at, Announced { session: at, port, address, number: 7777 }, r);
        }
        let text = match r.below(3) {
            0 => message(0, ip_of(ends.v6, address(ends.v6, [10, 0, 0, 77])), 1025),
            1 => message(0, ip_of(ends.v6, ends.source), 1025)[..12].to_owned(),
            _ => "STOR PORT\r\n".to_owned(),
        };
        self.segment(at, 0, ACK, text.as_bytes(), r)
    }

    /// A packet of TFTP: a request, or one from another port of the server.
    fn datagram(&mut self, at: usize, r: &mut Random) -> Packet {
        let stream = &self.streams[at];
        if stream.stage == 0 || r.one_in(4) {
            let kind = r.pick(&[1, 2]);
            return self.packet(at, 0, &[0, kind, b'a', 0, b'o', 0], r);
        }
        self.ports += 1;
        let ends = Ends { source_port: self.ports, ..stream.sends(1) };
        self.streams.push(Stream::new(UDP, 2, ends, r));
        self.packet(self.streams.len() - 1, 0, &[0, 3, 0, 1], r)
    }

    fn packet(&mut self, at: usize, end: usize, payload: &[u8], r: &mut Random) -> Packet {
        let stream = &mut self.streams[at];
        let ends = stream.sends(end);
        stream.stage += 1;
        self.last = (at, end);
        (stream.port_of(end), ethernet(ends.v6, &ip(&ends, UDP, &udp_with(&ends, payload, r))))
    }

    fn segment(&mut self, at: usize, end: usize, flags: u8, payload: &[u8], r: &mut Random) -> Packet {
        let stream = &mut self.streams[at];
        let ends = stream.sends(end);
        let segment = Segment {
            flags,
            sequence: stream.next[end],
            acknowledgement: if flags & ACK == 0 { 0 } else { stream.expected[end] },
            window: r.pick(&[8192, 60_000]),
            scale: None,
            payload: 0,
        };
        let taken = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        stream.next[end] = stream.next[end].wrapping_add(taken);
        stream.stage += 1;
        self.last = (at, end);
        (stream.port_of(end), ethernet(ends.v6, &ip(&ends, TCP, &tcp_with(&ends, &segment, payload))))
    }

    /// Takes the frames that were sent because of the last packet.
    pub(super) fn hear(&mut self, sent: &Sent) {
        let (at, end) = self.last;
        let stream = &mut self.streams[at];
        let to = 3 - stream.port_of(end);
        for (ends, proto, packet) in sent[to - 1].iter().filter_map(|frame| read(frame)) {
            if end == 0 {
                stream.ends[1] = ends;
            }
            if proto != TCP {
                continue;
            }
            let data = &packet[if ends.v6 { 40 } else { 20 }..];
            let number = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
            let payload = &data[usize::from(data[12] >> 4) * 4..];
            if data[13] & ACK != 0 && stream.is_control {
                assert_eq!(number(8), stream.next[1 - end], "the end acknowledges what the other has sent");
            }
            let taken = payload.len() as u32 + u32::from(data[13] & (SYN | FIN) != 0);
            if stream.is_control && data[13] & SYN == 0 {
                assert_eq!(number(4), stream.expected[1 - end], "nothing is missing");
            }
            stream.expected[1 - end] = number(4).wrapping_add(taken);
            let text = String::from_utf8_lossy(payload);
            let known = heard(&text, ip_of(ends.v6, ends.source)).filter(|_| stream.is_control);
            if let Some((address, number)) = known {
                self.announced.push(Announced { session: at, port: to, address, number });
            }
        }
    }
}

impl Stream {
    fn new(proto: u8, port: usize, ends: Ends, r: &mut Random) -> Self {
        let next = [r.pick(&[1000, 70_000]), r.pick(&[5000, 90_000])];
        Self { proto, port, ends: [ends; 2], next, expected: [0; 2], stage: 0, is_control: false }
    }

    /// Returns the ends of packets that an end sends.
    fn sends(&self, end: usize) -> Ends {
        if end == 0 { self.ends[0] } else { self.ends[1].reversed() }
    }

    /// Returns the switch's port that an end is behind.
    fn port_of(&self, end: usize) -> usize {
        if end == 0 { self.port } else { 3 - self.port }
    }
}
