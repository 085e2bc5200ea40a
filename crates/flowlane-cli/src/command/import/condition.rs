//! The packets that a rule of a firewall is about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::rule::PortRange;

pub(super) const IPV4: u8 = 1;
pub(super) const IPV6: u8 = 2;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;

/// States of connections in the words of Linux, of which a packet has one, and those of Open vSwitch.
const STATES: [(&str, &str); 4] = [
    ("new", "+new-rel+trk"),
    ("established", "+est+trk"),
    ("related", "+rel-est+trk"),
    ("invalid", "+inv+trk"),
];

/// Returns the bit of a state by its name, in small letters or capitals.
pub(super) fn state_of(name: &str) -> Option<u8> {
    STATES.iter().position(|(known, _)| known.eq_ignore_ascii_case(name)).map(|place| 1 << place)
}

/// Returns the number of a protocol.
pub(super) fn protocol_of(name: &str) -> Option<u8> {
    let known = [
        ("icmp", ICMP),
        ("igmp", 2),
        ("tcp", TCP),
        ("udp", UDP),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("ahp", 51),
        ("icmpv6", ICMPV6),
        ("ipv6-icmp", ICMPV6),
        ("eigrp", 88),
        ("ospf", 89),
        ("pim", 103),
        ("sctp", SCTP),
    ];
    name.parse().ok().or_else(|| known.iter().find(|(known, _)| *known == name).map(|(_, number)| *number))
}

/// Addresses that agree with one in the bits of a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Network {
    pub(super) family: u8,
    pub(super) address: u128,
    pub(super) mask: u128,
}

impl Network {
    pub(super) fn new(address: IpAddr, mask: u128) -> Self {
        let (family, bits) = bits_of(address);
        Self { family, address: bits & mask, mask }
    }

    fn prefix(family: u8, address: u128, length: u32) -> Self {
        let width = width_of(family);
        let all = u128::MAX >> (128 - width);
        let mask = all & !(all.checked_shr(length).unwrap_or(0));
        Self { family, address: address & mask, mask }
    }

    /// Reads `ADDRESS`, `ADDRESS/LENGTH` or `ADDRESS/MASK`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (address, mask) =
            text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
        let (family, bits) = bits_of(address.parse().ok()?);
        let width = width_of(family);
        match mask {
            None => Some(Self::prefix(family, bits, width)),
            Some(mask) => match mask.parse::<u32>() {
                Ok(length) => (length <= width).then(|| Self::prefix(family, bits, length)),
                Err(_) => {
                    let (of, mask) = bits_of(mask.parse().ok()?);
                    (of == family).then_some(Self { family, address: bits & mask, mask })
                }
            },
        }
    }

    /// The prefixes of a range of addresses.
    pub(super) fn range(first: IpAddr, last: IpAddr) -> Option<Vec<Self>> {
        let ((family, mut low), (other, high)) = (bits_of(first), bits_of(last));
        if family != other || low > high {
            return None;
        }
        let width = width_of(family);
        let mut prefixes = Vec::new();
        loop {
            let mut free = low.trailing_zeros().min(width);
            let last_of = |free: u32| low | (1u128.checked_shl(free).unwrap_or(0).wrapping_sub(1));
            while last_of(free) > high {
                free -= 1;
            }
            prefixes.push(Self::prefix(family, low, width - free));
            if last_of(free) == high {
                return Some(prefixes);
            }
            low = last_of(free) + 1;
        }
    }

    /// The networks of all other addresses of the family: for each bit of the mask, those that differ there first.
    pub(super) fn others(self) -> Vec<Self> {
        let bits =
            (0..width_of(self.family)).rev().map(|bit| 1u128 << bit).filter(|bit| self.mask & bit != 0);
        bits.map(|bit| {
            let mask = self.mask & !(bit - 1);
            Self { mask, address: (self.address & mask) ^ bit, ..self }
        })
        .collect()
    }

    fn and(self, other: Self) -> Option<Self> {
        let differ = (self.address ^ other.address) & self.mask & other.mask;
        let both = Self { address: self.address | other.address, mask: self.mask | other.mask, ..self };
        (self.family == other.family && differ == 0).then_some(both)
    }

    fn text(self) -> String {
        let width = width_of(self.family);
        let address = |bits: u128| match self.family {
            IPV4 => IpAddr::V4(Ipv4Addr::from(bits as u32)),
            _ => IpAddr::V6(Ipv6Addr::from(bits)),
        };
        match self.mask.count_ones() {
            length if length == width => address(self.address).to_string(),
            length if Self::prefix(self.family, u128::MAX, length).mask == self.mask => {
                format!("{}/{length}", address(self.address))
            }
            _ => format!("{}/{}", address(self.address), address(self.mask)),
        }
    }
}

fn bits_of(address: IpAddr) -> (u8, u128) {
    match address {
        IpAddr::V4(address) => (IPV4, u32::from(address).into()),
        IpAddr::V6(address) => (IPV6, address.into()),
    }
}

fn width_of(family: u8) -> u32 {
    if family == IPV4 { 32 } else { 128 }
}

/// Returns the ports that none of these ranges has.
pub(super) fn other_ports(ranges: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let (mut next, mut others) = (0u32, Vec::new());
    for (low, high) in sorted {
        if u32::from(low) > next {
            others.push((next as u16, low - 1));
        }
        next = next.max(u32::from(high) + 1);
    }
    if next <= 0xffff {
        others.push((next as u16, u16::MAX));
    }
    others
}

/// Reads the name of an interface, which becomes that of a port. Those that flow syntax would read as something else are refused.
pub(super) fn interface(name: &str) -> Result<String, String> {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let is_number = name.chars().all(|c| c.is_ascii_digit());
    match is_plain && !is_number {
        true => Ok(name.to_owned()),
        false => Err(format!("the interface {name:?}, which no port of flows can be called")),
    }
}

/// A condition of a rule; each list has alternatives, and `None` asks nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Condition {
    pub(super) families: u8,
    pub(super) protocol: Option<u8>,
    pub(super) src: Option<Vec<Network>>,
    pub(super) dst: Option<Vec<Network>>,
    pub(super) src_ports: Option<Vec<(u16, u16)>>,
    pub(super) dst_ports: Option<Vec<(u16, u16)>>,
    /// The type of ICMP and its code.
    pub(super) icmp: Option<(u8, Option<u8>)>,
    /// Flags of TCP, as flow syntax has them.
    pub(super) flags: Option<Vec<String>>,
    pub(super) in_port: Option<String>,
    /// Bits of states.
    pub(super) states: Option<u8>,
}

impl Condition {
    pub(super) fn of(families: u8) -> Self {
        Self {
            families,
            protocol: None,
            src: None,
            dst: None,
            src_ports: None,
            dst_ports: None,
            icmp: None,
            flags: None,
            in_port: None,
            states: None,
        }
    }

    /// The packets of both; `None` where there are none.
    ///
    /// # Errors
    /// Where flags of TCP or codes of ICMP come from both.
    pub(super) fn and(&self, other: &Self) -> Result<Option<Self>, String> {
        let equal = |one: Option<u8>, other: Option<u8>| match (one, other) {
            (Some(one), Some(other)) if one != other => Err(()),
            (one, other) => Ok(one.or(other)),
        };
        let networks = |one: Network, other: Network| one.and(other);
        let ports = |one: (u16, u16), other: (u16, u16)| {
            let both = (one.0.max(other.0), one.1.min(other.1));
            (both.0 <= both.1).then_some(both)
        };
        let in_port = match (&self.in_port, &other.in_port) {
            (Some(one), Some(other)) if one != other => return Ok(None),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let icmp = match (self.icmp, other.icmp) {
            (Some(one), Some(other)) if one.0 != other.0 => return Ok(None),
            (Some(one), Some(other)) => match equal(one.1, other.1) {
                Err(()) => return Ok(None),
                Ok(code) => Some((one.0, code)),
            },
            (one, other) => one.or(other),
        };
        let flags = match (&self.flags, &other.flags) {
            (Some(one), Some(other)) if one != other => {
                return Err("flags of TCP are asked for by several chains".to_owned());
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let Ok(protocol) = equal(self.protocol, other.protocol) else { return Ok(None) };
        let both = Self {
            families: self.families & other.families,
            protocol,
            src: alternatives(&self.src, &other.src, networks),
            dst: alternatives(&self.dst, &other.dst, networks),
            src_ports: alternatives(&self.src_ports, &other.src_ports, ports),
            dst_ports: alternatives(&self.dst_ports, &other.dst_ports, ports),
            icmp,
            flags,
            in_port,
            states: match (self.states, other.states) {
                (Some(one), Some(other)) => Some(one & other),
                (one, other) => one.or(other),
            },
        };
        Ok((both.families != 0 && !both.is_empty()).then_some(both))
    }

    fn is_empty(&self) -> bool {
        let no_network = |list: &Option<Vec<Network>>| list.as_ref().is_some_and(Vec::is_empty);
        let no_port = |list: &Option<Vec<(u16, u16)>>| list.as_ref().is_some_and(Vec::is_empty);
        no_network(&self.src)
            || no_network(&self.dst)
            || no_port(&self.src_ports)
            || no_port(&self.dst_ports)
            || self.states == Some(0)
    }

    /// The number of its [flows](Self::flows).
    pub(super) fn count(&self) -> usize {
        self.parts().iter().flatten().map(|(_, lists)| lists.iter().map(Vec::len).product::<usize>()).sum()
    }

    /// Its matches in flow syntax.
    pub(super) fn flows(&self) -> Vec<String> {
        let times = |flows: Vec<String>, texts: Vec<String>| -> Vec<String> {
            flows.iter().flat_map(|flow| texts.iter().map(move |text| format!("{flow},{text}"))).collect()
        };
        let parts = self.parts().into_iter().flatten();
        parts.flat_map(|(first, lists)| lists.into_iter().fold(vec![first], times)).collect()
    }

    /// For each family that it has, the text that all its flows begin with, and lists of alternatives for the rest.
    fn parts(&self) -> [Option<(String, Vec<Vec<String>>)>; 2] {
        [IPV4, IPV6].map(|family| (self.families & family != 0).then(|| self.parts_of(family)))
    }

    fn parts_of(&self, family: u8) -> (String, Vec<Vec<String>>) {
        let keys = if family == IPV4 { ["nw_src", "nw_dst"] } else { ["ipv6_src", "ipv6_dst"] };
        let mut first = protocol_text(family, self.protocol);
        if let Some(port) = &self.in_port {
            first += &format!(",in_port={port}");
        }
        if let Some((kind, code)) = self.icmp {
            first += &format!(",icmp_type={kind}");
            first += &code.map_or_else(String::new, |code| format!(",icmp_code={code}"));
        }
        let mut lists = Vec::new();
        for (key, networks) in keys.into_iter().zip([&self.src, &self.dst]) {
            lists.extend(networks.as_ref().map(|networks| {
                let own = networks.iter().filter(|network| network.family == family);
                own.map(|network| format!("{key}={}", network.text())).collect()
            }));
        }
        for (key, ranges) in [("tp_src", &self.src_ports), ("tp_dst", &self.dst_ports)] {
            let some = ranges.as_ref().filter(|ranges| !ranges.contains(&(0, u16::MAX)));
            lists.extend(some.map(|ranges| ranges.iter().flat_map(|r| port_texts(key, *r)).collect()));
        }
        lists.extend(
            self.flags.as_ref().map(|flags| flags.iter().map(|f| format!("tcp_flags={f}")).collect()),
        );
        lists.extend(self.states.filter(|states| *states != 0xf).map(|states| {
            let own = (0..).zip(STATES).filter(|(place, _)| states & (1 << place) != 0);
            own.map(|(_, (_, text))| format!("ct_state={text}")).collect()
        }));
        (first, lists)
    }
}

/// The alternatives that both lists have.
fn alternatives<T: Copy>(
    one: &Option<Vec<T>>,
    other: &Option<Vec<T>>,
    and: impl Fn(T, T) -> Option<T>,
) -> Option<Vec<T>> {
    match (one, other) {
        (Some(one), Some(other)) => {
            Some(one.iter().flat_map(|a| other.iter().filter_map(|b| and(*a, *b))).collect())
        }
        (one, other) => one.clone().or_else(|| other.clone()),
    }
}

fn protocol_text(family: u8, protocol: Option<u8>) -> String {
    let [ip, suffix] = if family == IPV4 { ["ip", ""] } else { ["ipv6", "6"] };
    match (protocol, family) {
        (None, _) => ip.to_owned(),
        (Some(TCP), _) => format!("tcp{suffix}"),
        (Some(UDP), _) => format!("udp{suffix}"),
        (Some(SCTP), _) => format!("sctp{suffix}"),
        (Some(ICMP), IPV4) => "icmp".to_owned(),
        (Some(ICMPV6), IPV6) => "icmp6".to_owned(),
        (Some(number), _) => format!("{ip},nw_proto={number}"),
    }
}

/// A range of ports as blocks, since Open vSwitch has no ranges.
fn port_texts(key: &str, (low, high): (u16, u16)) -> impl Iterator<Item = String> {
    PortRange::new(low, high).prefixes().into_iter().map(move |(port, mask)| match mask {
        u16::MAX => format!("{key}={port}"),
        _ => format!("{key}={port:#x}/{mask:#x}"),
    })
}
