//! Frames at the ends of logical ports: what a test sends there, and what arrives.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::super::{Host, Process};
use crate::namespaces::sh;

pub(super) type Mac = [u8; 6];

/// A frame that arrived at an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrived {
    pub(super) port: String,
    pub(super) frame: Vec<u8>,
}

/// The far ends of a chassis' interfaces, in one namespace whose kernel neither sends nor answers anything there.
pub(super) struct Wire {
    namespace: String,
    pump: Process,
    input: ChildStdin,
    arrivals: Receiver<Arrived>,
}

impl Wire {
    /// Adds an interface to a chassis for each logical port, and takes the far ends.
    pub(super) fn plug(host: &Host, ports: &[String]) -> Self {
        let (inside, namespace) = (&host.namespace, format!("{}e", host.namespace));
        let quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
        assert!(sh(&format!("ip netns add {namespace} && ip netns exec {namespace} {quiet}")));
        assert!(sh(&format!("ip netns exec {inside} {quiet}")));
        let mut asked = String::new();
        for port in ports {
            assert!(sh(&format!(
                "ip link add v{port} netns {inside} type veth peer name {port} netns {namespace} \
                 && ip -n {inside} link set v{port} arp off up && ip -n {namespace} link set {port} arp off up"
            )));
            let separator = if asked.is_empty() { "" } else { " -- " };
            asked += &format!(
                "{separator}add-port br-int v{port} -- set Interface v{port} external_ids:iface-id={port}"
            );
        }
        host.vsctl(&asked).unwrap();
        let mut pump = Command::new("ip");
        pump.args(["netns", "exec", &namespace, "python3", "-c", include_str!("wire.py")]).args(ports);
        let mut pump = Process(pump.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let input = pump.0.stdin.take().unwrap();
        let mut lines = BufReader::new(pump.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let (sender, arrivals) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let (port, frame) = line.split_once(' ').unwrap();
                let arrived = Arrived { port: port.to_owned(), frame: bytes(frame) };
                if sender.send(arrived).is_err() {
                    return;
                }
            }
        });
        Self { namespace, pump, input, arrivals }
    }

    /// Sends a frame from the far end of a logical port.
    pub(super) fn send(&mut self, port: &str, frame: &[u8]) {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.input, "{port} {hex}").unwrap();
    }

    /// Returns the frames that arrive until there are none for some time.
    pub(super) fn receive(&mut self, quiet: Duration) -> Vec<Arrived> {
        let mut arrived = Vec::new();
        loop {
            match self.arrivals.recv_timeout(quiet) {
                Ok(one) => arrived.push(one),
                Err(RecvTimeoutError::Timeout) => return arrived,
                Err(RecvTimeoutError::Disconnected) => panic!("the pump ended: {:?}", self.pump.0.try_wait()),
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        _ = self.pump.0.kill();
        sh(&format!("ip netns del {}", self.namespace));
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// The Internet checksum of the parts, of which only the last may have an odd length.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = 0;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The two ends of a packet: its source, then its destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) macs: [Mac; 2],
    pub(super) ips: [IpAddr; 2],
}

/// The fields of a TCP segment beside its ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
}

impl Ends {
    pub(super) fn new(macs: [Mac; 2], ips: [&str; 2]) -> Self {
        Self { macs, ips: ips.map(|ip| ip.parse().unwrap()) }
    }

    /// The frame of a packet of any protocol.
    pub(super) fn packet(&self, ttl: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() as u16;
        let ips = self.ips.map(octets).concat();
        let mut header = match self.ips[0] {
            IpAddr::V4(_) => {
                let len = (20 + len).to_be_bytes();
                vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, ttl, protocol, 0, 0]
            }
            IpAddr::V6(_) => {
                let len = len.to_be_bytes();
                vec![0x60, 0, 0, 0, len[0], len[1], protocol, ttl]
            }
        };
        header.extend(ips);
        let mut ether_type = 0x86dd;
        if self.ips[0].is_ipv4() {
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            ether_type = 0x800;
        }
        ethernet(self.macs, ether_type, &[&header, payload])
    }

    fn sum(&self, protocol: u8, payload: &[u8]) -> [u8; 2] {
        let pseudo = [self.ips.map(octets).concat(), vec![0, protocol]].concat();
        let len = (payload.len() as u16).to_be_bytes();
        checksum(&[&pseudo, &len, payload]).to_be_bytes()
    }

    pub(super) fn udp(&self, ports: [u16; 2], data: &[u8]) -> Vec<u8> {
        let [source, destination] = ports.map(u16::to_be_bytes);
        let len = (8 + data.len() as u16).to_be_bytes();
        let mut datagram = [&source[..], &destination, &len, &[0, 0], data].concat();
        let sum = self.sum(17, &datagram);
        datagram[6..8].copy_from_slice(&sum);
        self.packet(64, 17, &datagram)
    }

    pub(super) fn tcp(&self, ports: [u16; 2], segment: Segment, data: &[u8]) -> Vec<u8> {
        let mut header = ports.map(u16::to_be_bytes).concat();
        header.extend([segment.seq.to_be_bytes(), segment.ack.to_be_bytes()].concat());
        header.extend([0x50, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
        header.extend(data);
        let sum = self.sum(6, &header);
        header[16..18].copy_from_slice(&sum);
        self.packet(64, 6, &header)
    }

    /// A message of ICMP or ICMPv6, with a hop limit.
    pub(super) fn icmp(&self, ttl: u8, kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
        let mut message = [&[kind, code, 0, 0], body].concat();
        let (protocol, sum) = match self.ips[0] {
            IpAddr::V4(_) => (1, checksum(&[&message]).to_be_bytes()),
            IpAddr::V6(_) => (58, self.sum(58, &message)),
        };
        message[2..4].copy_from_slice(&sum);
        self.packet(ttl, protocol, &message)
    }

    /// A message of ARP, from the first address, about the second.
    pub(super) fn arp(&self, operation: u8, target: Mac) -> Vec<u8> {
        let [source, destination] = self.ips.map(octets);
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        ethernet(self.macs, 0x806, &[&head, &self.macs[0], &source, &target, &destination])
    }
}

pub(super) fn ethernet(macs: [Mac; 2], ether_type: u16, parts: &[&[u8]]) -> Vec<u8> {
    let [source, destination] = macs;
    [&destination[..], &source, &ether_type.to_be_bytes(), &parts.concat()].concat()
}

/// A frame of IP without options, as far as tests read it.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    pub(super) ends: Ends,
    pub(super) ttl: u8,
    pub(super) protocol: u8,
    pub(super) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(super) fn read(frame: &'a [u8]) -> Option<Self> {
        let (destination, rest) = frame.split_first_chunk()?;
        let (source, rest) = rest.split_first_chunk()?;
        let (ether_type, ip) = rest.split_first_chunk()?;
        let macs = [*source, *destination];
        let (ips, ttl, protocol, payload) = match (u16::from_be_bytes(*ether_type), *ip.first()?) {
            (0x800, 0x45) => {
                let address = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
                let len = u16::from_be_bytes(*ip.get(2..)?.first_chunk()?);
                ([address(12)?, address(16)?], ip[8], ip[9], ip.get(20..len.into())?)
            }
            (0x86dd, _) => {
                let address = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
                let len = u16::from_be_bytes(*ip.get(4..)?.first_chunk()?);
                ([address(8)?, address(24)?], ip[7], ip[6], ip.get(40..40 + usize::from(len))?)
            }
            _ => return None,
        };
        Some(Self { ends: Ends { macs, ips }, ttl, protocol, payload })
    }

    pub(super) fn ports(&self) -> Option<[u16; 2]> {
        let port = |at: usize| Some(u16::from_be_bytes(*self.payload.get(at..)?.first_chunk()?));
        Some([port(0)?, port(2)?])
    }
}
