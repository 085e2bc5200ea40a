//! The part of a flow that says which packets it is for.

use std::ops::RangeInclusive;

use super::super::error::{Fault, Token, did_you_mean};
use super::super::{Match, PortRange, ReadOptions};
use super::check::needs;
use super::known::Known;
use super::names::{self, matched};
use super::values;
use crate::packet::fields::{self, Field, VLAN_PRESENT};
use crate::packet::key::WORDS;
use crate::packet::parse::{ether_type, ip_proto};

/// Protocol shorthands: name, EtherType, protocol.
pub(super) const SHORTHANDS: [(&str, u16, Option<u8>); 15] = [
    ("ip", ether_type::IPV4, None),
    ("ipv6", ether_type::IPV6, None),
    ("ip6", ether_type::IPV6, None),
    ("arp", ether_type::ARP, None),
    ("rarp", ether_type::RARP, None),
    ("mpls", ether_type::MPLS, None),
    ("mplsm", ether_type::MPLS_MULTICAST, None),
    ("icmp", ether_type::IPV4, Some(ip_proto::ICMP)),
    ("icmp6", ether_type::IPV6, Some(ip_proto::ICMPV6)),
    ("tcp", ether_type::IPV4, Some(ip_proto::TCP)),
    ("tcp6", ether_type::IPV6, Some(ip_proto::TCP)),
    ("udp", ether_type::IPV4, Some(ip_proto::UDP)),
    ("udp6", ether_type::IPV6, Some(ip_proto::UDP)),
    ("sctp", ether_type::IPV4, Some(ip_proto::SCTP)),
    ("sctp6", ether_type::IPV6, Some(ip_proto::SCTP)),
];

/// The words that stand for protocols in a match: the word, its EtherType and IP protocol.
pub fn protocols() -> impl Iterator<Item = (&'static str, u16, Option<u8>)> {
    SHORTHANDS.into_iter()
}

type Pair<'a> = (Token<'a>, Option<Token<'a>>);

/// Reads `key` and `key=value` parts. Those that others depend on are read first, wherever they stand. A range of ICMP types or
/// codes that no mask expresses becomes several matches: at most 14 blocks of either, and so 196, because a field with a range
/// is named once.
pub(super) fn read(pairs: &[Pair<'_>], options: &ReadOptions<'_>) -> Result<Vec<Match>, Fault> {
    let mut all = vec![Match::any()];
    let order = |pair: &Pair<'_>| match pair.0.text {
        "dl_type" | "eth_type" | "packet_type" => 0,
        name if SHORTHANDS.iter().any(|s| s.0 == name) => 0,
        "nw_proto" | "ip_proto" => 1,
        "icmp_type" | "icmpv6_type" => 2,
        _ => 3,
    };
    for turn in 0..4 {
        for pair in pairs.iter().filter(|p| order(p) == turn) {
            let range = icmp_range(*pair, &all[0])?;
            check_named_once(pair.0, &all, range.is_some())?;
            if let Some((field, range)) = range {
                all = all.iter().flat_map(|one| in_range(one, field, &range)).collect();
                continue;
            }
            for matches in &mut all {
                read_pair(*pair, matches, options)?;
            }
        }
    }
    Ok(all)
}

/// Refuses a second value of an ICMP field where either is a range, of which every block would be multiplied.
fn check_named_once(key: Token<'_>, all: &[Match], is_range: bool) -> Result<(), Fault> {
    let field = names::by_name(key.before("[").text).map(|field| meant(key.text, field, &all[0]));
    let icmp = field.filter(|field| matches!(field, Field::IcmpType | Field::IcmpCode));
    match icmp {
        Some(field) if (is_range || all.len() > 1) && all[0].get(field).1 != 0 => {
            let name = field.info().name;
            Err(key
                .fault(format!("{name} is there twice, and with a range; write one range, or several rules")))
        }
        _ => Ok(()),
    }
}

/// The range of a `icmp_type=8-11`.
fn icmp_range(
    (key, value): Pair<'_>,
    matches: &Match,
) -> Result<Option<(Field, RangeInclusive<u16>)>, Fault> {
    let Some((value, (low, high))) = value.and_then(|value| Some((value, value.split("-")?))) else {
        return Ok(None);
    };
    let Some(field) = names::by_name(key.text).map(|field| meant(key.text, field, matches)) else {
        return Ok(None);
    };
    if !matches!(field, Field::IcmpType | Field::IcmpCode) {
        return Ok(None);
    }
    check_prerequisite(key, field, matches)?;
    Ok(Some((field, range(value, low, high, 0xff)?)))
}

/// A match for each block of a range of ICMP types that a mask expresses.
fn in_range(matches: &Match, field: Field, range: &RangeInclusive<u16>) -> Vec<Match> {
    let blocks = PortRange::new(*range.start(), *range.end()).prefixes();
    let with = |(value, mask): (u16, u16)| {
        let mut matches = matches.clone();
        matches.set_masked(field, value.into(), u128::from(mask) & field.info().ones());
        matches
    };
    blocks.into_iter().map(with).collect()
}

/// The numbers from `low` to `high`, of which none is above `max`.
fn range(value: Token<'_>, low: Token<'_>, high: Token<'_>, max: u16) -> Result<RangeInclusive<u16>, Fault> {
    let number = |token: Token<'_>| values::number(token.trim(), max.into()).map(|n| n as u16);
    let (first, last) = (number(low)?, number(high)?);
    if first > last {
        let (what, number) = if max == u16::MAX { ("port range", "port") } else { ("range", "number") };
        let problem =
            format!("{what} {first}-{last} is empty; write the smaller {number} first ({last}-{first})");
        return Err(value.fault(problem));
    }
    Ok(first..=last)
}

fn read_pair((key, value): Pair<'_>, matches: &mut Match, options: &ReadOptions<'_>) -> Result<(), Fault> {
    if let Some((_, eth_type, proto)) = SHORTHANDS.iter().find(|s| s.0 == key.text && value.is_none()) {
        matches.set(Field::EthType, (*eth_type).into());
        if let Some(proto) = proto {
            matches.set(Field::NwProto, (*proto).into());
        }
        return Ok(());
    }
    // A tunnel's option that is there, with any value.
    if let (None, Some(number)) = (value, option_number(key.text)) {
        present(number, matches);
        return Ok(());
    }
    // Printed by Open vSwitch with some fields of metadata: Ethernet frames, which all packets are here.
    if key.text == "eth" && value.is_none() {
        return Ok(());
    }
    let Some(value) = value else {
        check_absent(key)?;
        let known = SHORTHANDS.iter().map(|s| s.0);
        let hint = did_you_mean(key.text, known);
        return Err(key.fault(format!("`field=value` or a protocol such as `tcp` is expected{hint}")));
    };
    match key.text {
        "dl_vlan" => vlan(value, matches),
        "dl_vlan_pcp" | "vlan_pcp" => {
            let pcp = values::number(value, 7)?;
            matches.set_masked(Field::VlanTci, pcp << 13 | u128::from(VLAN_PRESENT), 0xf000);
            Ok(())
        }
        "vlan_vid" => {
            let (vid, mask) = value.split("/").unwrap_or((value, Token { text: "0x1fff", at: value.at }));
            let (vid, mask) = (values::number(vid, 0x1fff)?, values::number(mask, 0x1fff)?);
            replace(matches, Field::VlanTci, 0x1fff, vid & mask, mask);
            Ok(())
        }
        name if name.starts_with("word") => word(key, value, matches),
        name if name.ends_with(']') => {
            let (part, shift) = matched(key)?;
            check_prerequisite(key, part.field(), matches)?;
            let value = values::number(value, part.ones() << shift | ((1 << shift) - 1))? >> shift;
            matches.set_masked(part.field(), part.place(value), part.mask());
            if let Some(number) = part.field().tun_metadata_number() {
                present(number, matches);
            }
            Ok(())
        }
        name => {
            let Some(field) = names::by_name(name) else {
                check_absent(key)?;
                return Err(key.fault(names::no_such_field(name, names::all())));
            };
            read_field(key, meant(key.text, field, matches), value, matches, options)
        }
    }
}

/// Refuses a field that Open vSwitch has and Flowlane has not: without it, the rule would be for more packets than was meant.
fn check_absent(key: Token<'_>) -> Result<(), Fault> {
    match names::absent(key.text) {
        Some(reason) => Err(key
            .fault(format!("{reason}; the rule cannot be taken over, since without it it would match more"))),
        None => Ok(()),
    }
}

fn option_number(name: &str) -> Option<usize> {
    names::by_name(name)?.tun_metadata_number()
}

/// Asks for a tunnel's option: any match on one does.
fn present(number: usize, matches: &mut Match) {
    matches.set_masked(Field::TunMetadataPresent, 1 << number, 1 << number);
}

/// `dl_vlan=10`, or `dl_vlan=0xffff` for packets without a tag.
fn vlan(value: Token<'_>, matches: &mut Match) -> Result<(), Fault> {
    match values::number(value, 0xffff)? {
        0xffff => replace(matches, Field::VlanTci, 0xffff, 0, 0xffff),
        vid if vid <= 0xfff => {
            matches.set_masked(Field::VlanTci, vid | u128::from(VLAN_PRESENT), 0x1fff);
        }
        _ => return Err(value.fault("a VLAN is 0 to 4095, or 0xffff for packets without a tag")),
    }
    Ok(())
}

/// `word12=0x1/0xff`.
fn word(key: Token<'_>, value: Token<'_>, matches: &mut Match) -> Result<(), Fault> {
    let number = values::number(key.part(4, key.text.len()), WORDS as u128 - 1)?;
    let index = fields::word::of_number(number as usize);
    let (value, mask) = value.split("/").unwrap_or((value, Token { text: "0xffffffff", at: value.at }));
    let max = u32::MAX.into();
    matches.set_word(index, values::number(value, max)? as u32, values::number(mask, max)? as u32);
    Ok(())
}

/// The field that a name means for the packets matched so far: Open vSwitch gives `tp_src` and `nw_src`
/// other meanings under ICMP and ARP.
fn meant(name: &str, field: Field, matches: &Match) -> Field {
    let known = Known::of(matches);
    // `tcp_src` is a port whatever the match has.
    let (arp, icmp) = (known.is_arp(), known.is_icmp() && name.starts_with("tp_"));
    match field {
        Field::TpSrc if icmp => Field::IcmpType,
        Field::TpDst if icmp => Field::IcmpCode,
        Field::Ipv4Src if arp => Field::ArpSpa,
        Field::Ipv4Dst if arp => Field::ArpTpa,
        Field::NwProto if arp => Field::ArpOp,
        other => other,
    }
}

fn read_field(
    key: Token<'_>,
    field: Field,
    value: Token<'_>,
    matches: &mut Match,
    options: &ReadOptions<'_>,
) -> Result<(), Fault> {
    let info = values::info_as(field, key.text);
    check_prerequisite(key, field, matches)?;
    let ports = matches!(field, Field::TpSrc | Field::TpDst);
    if let Some((low, high)) = value.split("-").filter(|_| ports) {
        let range = range(value, low, high, u16::MAX)?;
        matches.set_range(field, *range.start(), *range.end());
        return Ok(());
    }
    let (value, mask) = values::value_mask(&info, value, options)?;
    replace(matches, field, info.ones(), value, mask);
    if let Some(number) = field.tun_metadata_number() {
        present(number, matches);
    }
    Ok(())
}

/// Sets the value of `field` under `mask`. As in Open vSwitch, it replaces an earlier one with its mask in the bits `all`.
fn replace(matches: &mut Match, field: Field, all: u128, value: u128, mask: u128) {
    let earlier = matches.get(field).1;
    if earlier & all & !mask != 0 {
        let mut left = matches.word_mask();
        left.set(field, earlier & !all);
        *matches = Match::from_key(&matches.key(), &left).with_ranges_of(matches);
    }
    matches.set_masked(field, value, mask);
}

/// Returns whether the packets have the field that a key names, as far as the match says.
fn check_prerequisite(key: Token<'_>, field: Field, matches: &Match) -> Result<(), Fault> {
    let name = key.before("[").text;
    // `tp_src` and `nw_src` may stand for a field of another name.
    let name = if names::by_name(name) == Some(field) { name } else { field.info().name };
    match Known::of(matches).lacks_to_match(field, name) {
        Some(missing) => Err(key.fault(needs(name, missing, "on the same line"))),
        None => Ok(()),
    }
}
