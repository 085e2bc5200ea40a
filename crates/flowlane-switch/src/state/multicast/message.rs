//! Frames for groups: messages of IGMP and MLD, and packets.

use std::net::{Ipv4Addr, Ipv6Addr};

use flowlane::packet::fields::Field;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::{ether_type, ip_proto};
use flowlane::packet::{Headers, Network, parse};

use crate::packet::edit::checksum::{fold, sum};

/// The protocol number of IGMP.
const IGMP: u8 = 2;

/// The types of messages of IGMP and MLD (IANA).
mod message_type {
    pub(super) const IGMP_QUERY: u8 = 0x11;
    pub(super) const IGMP_V1_REPORT: u8 = 0x12;
    pub(super) const IGMP_V2_REPORT: u8 = 0x16;
    pub(super) const IGMP_LEAVE: u8 = 0x17;
    pub(super) const IGMP_V3_REPORT: u8 = 0x22;
    pub(super) const MLD_QUERY: u8 = 130;
    pub(super) const MLD_REPORT: u8 = 131;
    pub(super) const MLD_DONE: u8 = 132;
    pub(super) const MLD_V2_REPORT: u8 = 143;
}

/// The types of records in reports of IGMPv3 and MLDv2: the sources that a host listens to are these, all others, or change.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 1..=6;
/// Those by which a host without sources listens no more: `MODE_IS_INCLUDE` and `CHANGE_TO_INCLUDE_MODE`.
const INCLUDES: [u8; 2] = [1, 3];

/// Bytes of the shortest message of IGMP, of the header of MLD, and in front of the first record of a report.
const HEADER: usize = 8;

/// A frame for a group, as far as snooping is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupFrame<'a> {
    /// A host listens to groups, or leaves them.
    Report(Memberships<'a>),
    /// A router asks who listens; or a switch in the place of one, which has no address.
    Query {
        /// It has the address of a router, and is sound.
        is_of_router: bool,
    },
    /// For all hosts of the link, or IGMP of another type.
    OfLink,
    /// For the listeners of a group.
    ToGroup(Ipv6Addr),
}

/// The groups of a report, each with whether its sender listens to it. Addresses of IPv4 are mapped to IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memberships<'a> {
    rest: &'a [u8],
    /// How many are to come, as the message says.
    left: u16,
    address_len: usize,
    /// The only group of a message without records is listened to, or left.
    listens: Option<bool>,
}

impl<'a> Memberships<'a> {
    /// No groups: the message is not sound.
    const NONE: Memberships<'static> = Memberships { rest: &[], left: 0, address_len: 4, listens: None };

    fn one(address: &'a [u8], listens: bool) -> Self {
        Self { rest: address, left: 1, address_len: address.len(), listens: Some(listens) }
    }

    /// The records of a report of IGMPv3 or MLDv2, whose headers are alike.
    fn records(message: &'a [u8], address_len: usize) -> Self {
        let left = u16::from_be_bytes([message[6], message[7]]);
        Self { rest: &message[HEADER..], left, address_len, listens: None }
    }

    /// Takes the next record; an unknown one says nothing.
    fn record(&mut self) -> Option<(Ipv6Addr, Option<bool>)> {
        let (header, behind) = self.rest.split_at_checked(4 + self.address_len)?;
        let &[kind, auxiliary_words, high, low, ref address @ ..] = header else { return None };
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let skipped = sources * self.address_len + 4 * usize::from(auxiliary_words);
        // Bytes that are missing end the report behind this record.
        self.rest = behind.get(skipped..).unwrap_or_default();
        let listens = RECORD_TYPES.contains(&kind).then_some(sources > 0 || !INCLUDES.contains(&kind));
        Some((address_of(address)?, listens))
    }
}

impl Iterator for Memberships<'_> {
    type Item = (Ipv6Addr, bool);

    fn next(&mut self) -> Option<(Ipv6Addr, bool)> {
        while self.left > 0 {
            self.left -= 1;
            if let Some(listens) = self.listens {
                return Some((address_of(self.rest)?, listens));
            }
            if let (group, Some(listens)) = self.record()? {
                return Some((group, listens));
            }
        }
        None
    }
}

fn address_of(bytes: &[u8]) -> Option<Ipv6Addr> {
    let of_ipv4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_ipv6_mapped());
    <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from).or_else(of_ipv4)
}

/// Reads a frame, unless it is for one station, for all, or no IP. `is_complete`: checksums have been completed, not left to a device.
pub fn read(frame: &[u8], is_complete: bool) -> Option<GroupFrame<'_>> {
    if frame.first()? & 1 == 0 || frame.starts_with(&[0xff; 6]) {
        return None;
    }
    let mut key = FlowKey::zero();
    let headers = parse(frame, 0, &mut key);
    let message = Message::find(frame, &headers, is_complete);
    match key.get(Field::EthType) as u16 {
        ether_type::IPV4 => Some(ipv4(&key, &message)),
        ether_type::IPV6 => Some(ipv6(&key, &message)),
        _ => None,
    }
}

/// The bytes behind the headers of IP.
struct Message<'a> {
    bytes: &'a [u8],
    /// It is a whole message, whose checksum is to be compared.
    is_whole: bool,
    is_complete: bool,
}

impl<'a> Message<'a> {
    /// Finds the message of a frame, without the padding of Ethernet: nothing of a later fragment.
    fn find(frame: &'a [u8], headers: &Headers, is_complete: bool) -> Self {
        let l3 = usize::from(headers.l3);
        let length = |at: usize| {
            let bytes = frame.get(l3 + at..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| usize::from(u16::from_be_bytes(*bytes)))
        };
        let end = match headers.network {
            Network::Ipv4 => l3 + length(2),
            Network::Ipv6 => l3 + 40 + length(4),
            Network::None | Network::Arp | Network::Nsh => 0,
        };
        let bytes = frame.get(headers.l4.into()..end).unwrap_or_default();
        let is_later = headers.fragment > 1;
        Self {
            bytes: if is_later { &[] } else { bytes },
            is_whole: headers.fragment == 0 && headers.malformed.is_none(),
            is_complete,
        }
    }

    /// Returns whether the checksum is right, where `pseudo` is the sum of other bytes that it covers.
    fn is_sound(&self, pseudo: u32) -> bool {
        self.is_whole && (!self.is_complete || fold(pseudo + sum(self.bytes)) == 0xffff)
    }
}

fn ipv4<'a>(key: &FlowKey, message: &Message<'a>) -> GroupFrame<'a> {
    let address = |field| Ipv4Addr::from(key.get(field) as u32);
    if key.get(Field::NwProto) as u8 == IGMP {
        return igmp(message, address(Field::Ipv4Src));
    }
    let group = address(Field::Ipv4Dst);
    match group.octets() {
        [224, 0, 0, _] => GroupFrame::OfLink,
        _ => GroupFrame::ToGroup(group.to_ipv6_mapped()),
    }
}

fn igmp<'a>(message: &Message<'a>, source: Ipv4Addr) -> GroupFrame<'a> {
    let bytes = message.bytes;
    if bytes.len() < HEADER {
        return GroupFrame::OfLink;
    }
    let is_sound = message.is_sound(0);
    let memberships = match bytes[0] {
        message_type::IGMP_QUERY => {
            return GroupFrame::Query { is_of_router: is_sound && !source.is_unspecified() };
        }
        message_type::IGMP_V1_REPORT | message_type::IGMP_V2_REPORT => Memberships::one(&bytes[4..8], true),
        message_type::IGMP_LEAVE => Memberships::one(&bytes[4..8], false),
        message_type::IGMP_V3_REPORT => Memberships::records(bytes, 4),
        _ => return GroupFrame::OfLink,
    };
    GroupFrame::Report(if is_sound { memberships } else { Memberships::NONE })
}

fn ipv6<'a>(key: &FlowKey, message: &Message<'a>) -> GroupFrame<'a> {
    let address = |field| Ipv6Addr::from(key.get(field));
    let (source, group) = (address(Field::Ipv6Src), address(Field::Ipv6Dst));
    if key.get(Field::NwProto) as u8 == ip_proto::ICMPV6
        && let Some(frame) = mld(message, source, group)
    {
        return frame;
    }
    // All nodes.
    match group == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) {
        true => GroupFrame::OfLink,
        false => GroupFrame::ToGroup(group),
    }
}

fn mld<'a>(message: &Message<'a>, source: Ipv6Addr, destination: Ipv6Addr) -> Option<GroupFrame<'a>> {
    let bytes = message.bytes;
    if bytes.len() < HEADER {
        return None;
    }
    let addresses = sum(&source.octets()) + sum(&destination.octets());
    let is_sound = message.is_sound(addresses + bytes.len() as u32 + u32::from(ip_proto::ICMPV6));
    let one = |listens| bytes.get(HEADER..HEADER + 16).map(|address| Memberships::one(address, listens));
    let memberships = match bytes[0] {
        message_type::MLD_QUERY => {
            return Some(GroupFrame::Query { is_of_router: is_sound && !source.is_unspecified() });
        }
        message_type::MLD_REPORT => one(true),
        message_type::MLD_DONE => one(false),
        message_type::MLD_V2_REPORT => Some(Memberships::records(bytes, 16)),
        _ => return None,
    };
    Some(GroupFrame::Report(memberships.filter(|_| is_sound).unwrap_or(Memberships::NONE)))
}
