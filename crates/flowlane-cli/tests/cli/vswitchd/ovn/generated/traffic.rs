//! Random frames, and the answers that machines give to those that arrive.

use std::net::IpAddr;

use super::super::wire::{Arrived, Ends, Packet, Segment, checksum};
use super::chance;
use super::plan::{OUTSIDE, Plan, address, pick, router_mac};
use crate::import::Random;

/// A frame and the port that sends it.
pub(super) type Sent = (String, Vec<u8>);

const PORTS: [u16; 6] = [80, 443, 8080, 85, 90, 7000];
/// Protocols without ports. SCTP is none of them: Open vSwitch 3.1 tracks it by its addresses, with any checksum. Nor is 0, which Open
/// vSwitch takes for a packet without a header, whose hop limit it leaves as it is.
const OTHERS: [u8; 5] = [47, 2, 255, 50, 103];
/// A port at which no program listens: machines answer by ICMP.
const CLOSED: u16 = 7000;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Makes frames of a network.
pub(super) struct Traffic<'a> {
    plan: &'a Plan,
    /// Each conversation has a source port, or an identifier, of its own: so translation has no need to choose ports.
    serial: u16,
    /// Frames to be sent again.
    recent: Vec<Sent>,
}

impl<'a> Traffic<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self { plan, serial: 0, recent: Vec::new() }
    }

    /// The first frame of a conversation, or one that was sent before.
    pub(super) fn next(&mut self, random: &mut Random) -> Sent {
        if chance(random, 5) && !self.recent.is_empty() {
            return pick(random, &self.recent).clone();
        }
        self.serial += 1;
        let (port, frame) = match random.below(12) {
            0 => self.question(random),
            _ => self.opening(random),
        };
        if self.recent.len() == 64 {
            self.recent.remove(random.below(64) as usize);
        }
        self.recent.push((port.clone(), frame.clone()));
        let frame = if chance(random, 8) { damaged(random, frame) } else { frame };
        (port, frame)
    }

    fn question(&self, random: &mut Random) -> Sent {
        let machine = pick(random, &self.plan.machines);
        let host = *pick(random, &[254, 77, 50, 3, 4]);
        let target = if chance(random, 2) {
            pick(random, &self.plan.machines).ips[0]
        } else {
            address(machine.switch, host, false)
        };
        let ends = Ends { macs: [machine.mac, [0xff; 6]], ips: [machine.ips[0], target] };
        (machine.port.clone(), ends.arp(1, [0; 6]))
    }

    /// The two ends of a conversation, and the port of the first.
    fn ends(&self, random: &mut Random) -> (String, Ends, u16) {
        let machine = pick(random, &self.plan.machines);
        let family = usize::from(chance(random, 4));
        let mut port = *pick(random, &PORTS);
        let mut via = router_mac(machine.switch);
        let target = match random.below(12) {
            0..6 => {
                let other = pick(random, &self.plan.machines);
                if other.switch == machine.switch {
                    via = other.mac;
                }
                other.ips[family]
            }
            6..9 if !self.plan.services.is_empty() => {
                let service = pick(random, &self.plan.services);
                port = service.port;
                service.ip
            }
            9 if !self.plan.floating.is_empty() => *pick(random, &self.plan.floating),
            9 => address(OUTSIDE, 254, family == 1),
            10 => address(machine.switch, 254, family == 1),
            _ => address(1 + random.below(4) as u8, 99, family == 1),
        };
        let mut ends =
            Ends { macs: [machine.mac, via], ips: [machine.ips[usize::from(target.is_ipv6())], target] };
        // Addresses of another; not at open ports, whose addresses are learned at some time.
        if chance(random, 12) && !machine.is_open {
            let other = pick(random, &self.plan.machines);
            ends.ips[0] = other.ips[usize::from(target.is_ipv6())];
            if chance(random, 2) {
                ends.macs[0] = other.mac;
            }
        }
        (machine.port.clone(), ends, port)
    }

    fn opening(&self, random: &mut Random) -> Sent {
        let (from, ends, port) = self.ends(random);
        let ports = [20_000 + self.serial, port];
        let data = vec![b'd'; random.below(40) as usize];
        let id = self.serial.to_be_bytes();
        let frame = match random.below(12) {
            0..5 => {
                let flags = *pick(random, &[SYN, SYN, SYN, SYN, SYN, ACK, RST, FIN | ACK]);
                let data = if flags == ACK { data } else { Vec::new() };
                ends.tcp(
                    ports,
                    Segment { seq: 1000, ack: if flags & ACK == 0 { 0 } else { 77 }, flags },
                    &data,
                )
            }
            5..8 => ends.udp(ports, &data),
            8..10 => {
                let kind = if ends.ips[0].is_ipv4() { 8 } else { 128 };
                ends.icmp(64, kind, 0, &[&id[..], &[0, 1], &data].concat())
            }
            10 => ends.packet(64, *pick(random, &OTHERS), &[&id[..], &data].concat()),
            _ => {
                let mut datagram = ports.map(u16::to_be_bytes).concat();
                datagram.extend([&[0, 8 + data.len() as u8, 0, 0], &data[..]].concat());
                ends.packet(*pick(random, &[0, 1, 2, 255]), 17, &datagram)
            }
        };
        (from, frame)
    }

    /// Returns the answer of a machine to a frame that arrived.
    pub(super) fn answer(&self, arrived: &Arrived) -> Option<Sent> {
        let machine = self.plan.machines.iter().find(|machine| machine.port == arrived.port)?;
        let frame = &arrived.frame[..];
        let port = machine.port.clone();
        if frame.len() >= 42 && frame[12..14] == [8, 6] && frame[21] == 1 {
            let IpAddr::V4(own) = machine.ips[0] else { return None };
            let source = frame[28..32].first_chunk::<4>()?;
            let mac = *frame[22..28].first_chunk()?;
            let ends = Ends { macs: [machine.mac, mac], ips: [own.into(), IpAddr::from(*source)] };
            return (frame[38..42] == own.octets()).then(|| (port, ends.arp(2, mac)));
        }
        let packet = Packet::read(frame).filter(|packet| packet.ends.macs[1] == machine.mac)?;
        let [from, to] = packet.ends.ips;
        let ends = Ends { macs: [machine.mac, packet.ends.macs[0]], ips: [to, from] };
        Some((port, answer_to(&packet, &ends)?))
    }
}

fn answer_to(packet: &Packet<'_>, ends: &Ends) -> Option<Vec<u8>> {
    let payload = packet.payload;
    match packet.protocol {
        6 if payload.len() >= 20 => {
            let [source, destination] = packet.ports()?;
            let word = |at: usize| Some(u32::from_be_bytes(*payload.get(at..)?.first_chunk()?));
            let (seq, ack, flags) = (word(4)?, word(8)?, payload[13]);
            let data = payload.get(usize::from(payload[12] >> 4) * 4..)?;
            let next = seq.wrapping_add(data.len() as u32).wrapping_add(u32::from(flags & (SYN | FIN) != 0));
            let (flags, seq, data) = match flags {
                _ if flags & RST != 0 => return None,
                SYN => (SYN | ACK, 5000, &b""[..]),
                _ if flags & SYN != 0 => (ACK, ack, &b"request"[..]),
                _ if data == b"request" => (ACK, ack, &b"response"[..]),
                _ if data == b"response" => (FIN | ACK, ack, &b""[..]),
                _ if flags & FIN != 0 => (ACK, ack, &b""[..]),
                _ => return None,
            };
            Some(ends.tcp([destination, source], Segment { seq, ack: next, flags }, data))
        }
        17 => {
            let [source, destination] = packet.ports()?;
            if destination == CLOSED {
                let (kind, code) = if ends.ips[0].is_ipv4() { (3, 3) } else { (1, 4) };
                return Some(ends.icmp(64, kind, code, &[&[0; 4], &quoted(packet)[..]].concat()));
            }
            let is_answer = payload.get(8..)? == b"answer";
            (!is_answer).then(|| ends.udp([destination, source], b"answer"))
        }
        1 if payload.first() == Some(&8) => Some(ends.icmp(64, 0, 0, payload.get(4..)?)),
        58 if payload.first() == Some(&128) => Some(ends.icmp(64, 129, 0, payload.get(4..)?)),
        _ => None,
    }
}

/// The packet as an error quotes it.
fn quoted(packet: &Packet<'_>) -> Vec<u8> {
    packet.ends.packet(packet.ttl, packet.protocol, packet.payload)[14..].to_vec()
}

/// A frame that is not as it should be: cut, longer, with other bytes behind its Ethernet addresses, tagged, or a fragment.
fn damaged(random: &mut Random, mut frame: Vec<u8>) -> Vec<u8> {
    match random.below(6) {
        0 => frame.truncate(14 + random.below(frame.len() as u64 - 14) as usize),
        1 => frame.extend(vec![0xee; 1 + random.below(30) as usize]),
        2 => {
            let at = 12 + random.below(frame.len() as u64 - 12) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        3 => {
            let at = 14 + random.below(frame.len() as u64 - 14) as usize;
            frame[at] = random.below(256) as u8;
            mend_header(&mut frame);
        }
        4 => {
            let tag = [0x81, 0, 0, *pick(random, &[0, 5])];
            frame.splice(12..12, tag);
        }
        _ if frame[12..14] == [8, 0] => {
            let (more, offset) = *pick(random, &[(0x20, 0), (0, 1), (0x20, 3), (0x40, 0)]);
            frame[20..22].copy_from_slice(&[more, offset]);
            mend_header(&mut frame);
        }
        _ => {}
    }
    if frame.len() > 23 && frame[12..14] == [8, 0] && [0, 132].contains(&frame[23]) {
        frame[23] = 255;
    }
    frame
}

/// Sets the checksum of an IPv4 header.
fn mend_header(frame: &mut [u8]) {
    if frame.len() >= 34 && frame[12..15] == [8, 0, 0x45] {
        frame[24..26].fill(0);
        let sum = checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}
