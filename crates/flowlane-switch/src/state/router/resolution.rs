//! How neighbours are asked for, and answer: ARP (RFC 826) and IPv6 neighbour discovery (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::packet::parse::ether_type;

use super::wire::{
    BROADCAST, Ends, Mac, ethernet, icmpv6, is_unicast_mac, link_local_of, mac_of_group, solicited_node,
};

/// Types of messages (RFC 4861, sections 4.3 and 4.4).
pub(super) const SOLICITATION: u8 = 135;
pub(super) const ADVERTISEMENT: u8 = 136;

/// Hop limit of neighbour discovery: no router has forwarded the message.
pub(super) const HOP_LIMIT: u8 = 255;

/// Flags of an advertisement.
const IS_ROUTER: u8 = 0x80;
const IS_SOLICITED: u8 = 0x40;
const OVERRIDES: u8 = 0x20;

/// Options: the Ethernet address of the source and of the target.
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;

/// A message of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// It asks who has an address, and perhaps says its own.
    Asks { target: IpAddr, by: Option<(IpAddr, Mac)>, asks_all: bool },
    /// It says which Ethernet address an address has; an answer to one that knows it already may leave it out.
    Says { address: IpAddr, mac: Option<Mac>, is_solicited: bool, overrides: bool },
}

/// Bytes of ARP for IPv4 over Ethernet.
const ARP: usize = 28;

/// Reads ARP behind its Ethernet header.
pub(super) fn read_arp(bytes: &[u8]) -> Option<Said> {
    let message: &[u8; ARP] = bytes.first_chunk()?;
    let [0, 1, 8, 0, 6, 4, 0, operation, ..] = *message else { return None };
    let mac = |at: usize| -> Mac { [0, 1, 2, 3, 4, 5].map(|n| message[at + n]) };
    let address = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|n| message[at + n]));
    let (sender, mac, target) = (address(14), mac(8), address(24));
    if !is_unicast_mac(mac) {
        return None;
    }
    match operation {
        // Both ends are the sender's: it announces itself (RFC 5227, section 3).
        1 if sender == target => {
            Some(Said::Says { address: sender.into(), mac: Some(mac), is_solicited: false, overrides: true })
        }
        1 => {
            // A probe has no sender's address (RFC 5227, section 1.1).
            let by = (!sender.is_unspecified()).then_some((sender.into(), mac));
            Some(Said::Asks { target: target.into(), by, asks_all: false })
        }
        2 => {
            let is_solicited = sender != target;
            Some(Said::Says { address: sender.into(), mac: Some(mac), is_solicited, overrides: true })
        }
        _ => None,
    }
}

/// A message of ARP in a frame.
fn arp(ends: Ends, operation: u8, sender: Ipv4Addr, target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut message = vec![0, 1, 8, 0, 6, 4, 0, operation];
    message.extend_from_slice(&ends.source);
    message.extend_from_slice(&sender.octets());
    message.extend_from_slice(&target.0);
    message.extend_from_slice(&target.1.octets());
    ethernet(ends, ether_type::ARP, &message)
}

/// Reads a message of neighbour discovery, whose checksum is right, from `source`.
pub(super) fn read_discovery(source: Ipv6Addr, message: &[u8]) -> Option<Said> {
    let (&[kind, 0, _, _, flags, ..], Some(target)) = (message.first_chunk::<8>()?, message.get(8..24))
    else {
        return None;
    };
    let target = Ipv6Addr::from(<[u8; 16]>::try_from(target).ok()?);
    if target.is_multicast() {
        return None;
    }
    let option = |wanted| option(message.get(24..)?, wanted);
    match kind {
        SOLICITATION => {
            // A host that looks whether an address is free has none yet, and sends no option.
            let asks_all = source.is_unspecified();
            let by = option(SOURCE_OPTION).filter(|_| !asks_all).map(|mac| (source.into(), mac));
            Some(Said::Asks { target: target.into(), by, asks_all })
        }
        ADVERTISEMENT => {
            let mac = option(TARGET_OPTION);
            let (is_solicited, overrides) = (flags & IS_SOLICITED != 0, flags & OVERRIDES != 0);
            Some(Said::Says { address: target.into(), mac, is_solicited, overrides })
        }
        _ => None,
    }
}

/// The Ethernet address in an option of this type.
fn option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    while let Some(&[kind, units]) = options.first_chunk::<2>() {
        let (option, rest) = options.split_at_checked(8 * usize::from(units))?;
        if option.is_empty() {
            return None;
        }
        if kind == wanted {
            return option.get(2..8)?.try_into().ok().filter(|mac| is_unicast_mac(*mac));
        }
        options = rest;
    }
    None
}

/// A message of neighbour discovery: its type, flags, target, and the Ethernet address in its option.
fn discovery(kind: u8, flags: u8, target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    message.extend_from_slice(&[if kind == SOLICITATION { SOURCE_OPTION } else { TARGET_OPTION }, 1]);
    message.extend_from_slice(&mac);
    message
}

/// Asks for a neighbour: one whose Ethernet address is known, or all. `own` is the address of the one that asks.
pub(super) fn question(mac: Mac, own: IpAddr, target: IpAddr, known: Option<Mac>) -> Option<Vec<u8>> {
    match (own, target) {
        (IpAddr::V4(own), IpAddr::V4(target)) => {
            let ends = Ends { source: mac, destination: known.unwrap_or(BROADCAST) };
            Some(arp(ends, 1, own, ([0; 6], target)))
        }
        (IpAddr::V6(own), IpAddr::V6(target)) => {
            let group = solicited_node(target);
            let (destination, to) = known.map_or((mac_of_group(group), group), |known| (known, target));
            let message = discovery(SOLICITATION, 0, target, mac);
            Some(icmpv6(Ends { source: mac, destination }, own, to, HOP_LIMIT, message))
        }
        _ => None,
    }
}

/// Answers a question for the address `own`: to the one that has asked, or to all.
pub(super) fn answer(mac: Mac, own: IpAddr, by: Option<(IpAddr, Mac)>, to: Mac) -> Vec<u8> {
    match (own, by) {
        (IpAddr::V4(own), by) => {
            // A probe is answered, too, and so finds the address in use.
            let asker = match by {
                Some((IpAddr::V4(asker), mac)) => (mac, asker),
                _ => (to, Ipv4Addr::UNSPECIFIED),
            };
            arp(Ends { source: mac, destination: asker.0 }, 2, own, asker)
        }
        (IpAddr::V6(own), Some((IpAddr::V6(asker), destination))) => {
            let message = discovery(ADVERTISEMENT, IS_ROUTER | IS_SOLICITED | OVERRIDES, own, mac);
            icmpv6(Ends { source: mac, destination }, own, asker, HOP_LIMIT, message)
        }
        (IpAddr::V6(own), _) => announcement_v6(mac, own),
    }
}

/// Tells all neighbours of an address, so that they forget an earlier one (RFC 5227, section 3; RFC 4861, section 7.2.6).
pub(super) fn announcement(mac: Mac, own: IpAddr) -> Vec<u8> {
    match own {
        IpAddr::V4(own) => arp(Ends { source: mac, destination: BROADCAST }, 1, own, ([0; 6], own)),
        IpAddr::V6(own) => announcement_v6(mac, own),
    }
}

fn announcement_v6(mac: Mac, own: Ipv6Addr) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let ends = Ends { source: mac, destination: mac_of_group(all) };
    // A tentative address must not be a source; this one is ours.
    let source = if own.is_unicast_link_local() { own } else { link_local_of(mac) };
    icmpv6(ends, source, all, HOP_LIMIT, discovery(ADVERTISEMENT, IS_ROUTER | OVERRIDES, own, mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 9];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Reads the message behind the Ethernet header, and behind that of IPv6.
    fn read(frame: &[u8]) -> Option<Said> {
        match frame[12..14] {
            [8, 6] => read_arp(&frame[14..]),
            _ => {
                let source = Ipv6Addr::from(<[u8; 16]>::try_from(&frame[22..38]).unwrap());
                read_discovery(source, &frame[54..])
            }
        }
    }

    #[test]
    fn what_is_asked_is_read_and_answered() {
        for (own, other) in [("192.0.2.1", "192.0.2.9"), ("2001:db8::1", "2001:db8::9")] {
            let (own, other) = (ip(own), ip(other));
            let asked = question(OTHER, other, own, None).unwrap();
            let by = Some((other, OTHER));
            assert_eq!(read(&asked), Some(Said::Asks { target: own, by, asks_all: false }));
            let answered = answer(OWN, own, by, OTHER);
            assert_eq!(answered[..12], [OTHER, OWN].concat());
            let says = Said::Says { address: own, mac: Some(OWN), is_solicited: true, overrides: true };
            assert_eq!(read(&answered), Some(says));
            let says = Said::Says { address: own, mac: Some(OWN), is_solicited: false, overrides: true };
            assert_eq!(read(&announcement(OWN, own)), Some(says));
        }
    }

    /// RFC 4861's example of an address, and RFC 2464's of a group.
    #[test]
    fn groups_are_those_of_the_standards() {
        let group = solicited_node("4037::1:800:200e:8c6c".parse().unwrap());
        assert_eq!(group, "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
        assert_eq!(mac_of_group(group), [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
        let made = link_local_of([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(made, "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    }

    /// No text panics, and no question has a group as its target or its sender.
    #[test]
    fn hostile_messages_say_nothing() {
        let valid = question(OTHER, ip("2001:db8::9"), ip("2001:db8::1"), None).unwrap();
        let source = Ipv6Addr::LOCALHOST;
        for len in 0..valid.len() - 54 {
            let said = read_discovery(source, &valid[54..54 + len]);
            let by = said.map(|said| matches!(said, Said::Asks { by: Some(_), .. }));
            assert!(by != Some(true), "{len} bytes have no option");
        }
        let mut looping = valid[54..].to_vec();
        (looping[24], looping[25]) = (9, 0);
        assert!(matches!(read_discovery(source, &looping), Some(Said::Asks { by: None, .. })));
        let mut group = valid[54..].to_vec();
        group[8] = 0xff;
        assert_eq!(read_discovery(source, &group), None);
        let mut arp = question(OTHER, ip("192.0.2.9"), ip("192.0.2.1"), None).unwrap();
        arp[22] |= 1;
        assert_eq!(read_arp(&arp[14..]), None);
        assert_eq!(read_arp(&arp[15..]), None);
    }
}
