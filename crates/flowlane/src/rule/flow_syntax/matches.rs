//! The part of a flow that says which packets it is for.

use super::super::error::{Fault, Token, did_you_mean};
use super::super::{Match, ReadOptions};
use super::known::Known;
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

type Pair<'a> = (Token<'a>, Option<Token<'a>>);

/// Reads `key` and `key=value` parts. Those that others depend on are read first, wherever they stand.
pub(super) fn read(pairs: &[Pair<'_>], options: &ReadOptions<'_>) -> Result<Match, Fault> {
    let mut matches = Match::any();
    let order = |pair: &Pair<'_>| match pair.0.text {
        "dl_type" | "eth_type" => 0,
        name if SHORTHANDS.iter().any(|s| s.0 == name) => 0,
        "nw_proto" | "ip_proto" => 1,
        "icmp_type" | "icmpv6_type" => 2,
        _ => 3,
    };
    for turn in 0..4 {
        for pair in pairs.iter().filter(|p| order(p) == turn) {
            read_pair(*pair, &mut matches, options)?;
        }
    }
    Ok(matches)
}

fn read_pair((key, value): Pair<'_>, matches: &mut Match, options: &ReadOptions<'_>) -> Result<(), Fault> {
    if let Some((_, eth_type, proto)) = SHORTHANDS.iter().find(|s| s.0 == key.text && value.is_none()) {
        matches.set(Field::EthType, (*eth_type).into());
        if let Some(proto) = proto {
            matches.set(Field::NwProto, (*proto).into());
        }
        return Ok(());
    }
    let Some(value) = value else {
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
            matches.set_masked(Field::VlanTci, vid & mask, mask);
            Ok(())
        }
        name if name.starts_with("word") => word(key, value, matches),
        name => {
            let Some(field) = Field::by_name(name) else {
                let known = Field::all().iter().flat_map(|f| f.aliases.iter().chain([&f.name])).copied();
                let hint = did_you_mean(name, known);
                return Err(key.fault(format!("there is no such field{hint}")));
            };
            read_field(key, meant(field, matches), value, matches, options)
        }
    }
}

/// `dl_vlan=10`, or `dl_vlan=0xffff` for packets without a tag.
fn vlan(value: Token<'_>, matches: &mut Match) -> Result<(), Fault> {
    match values::number(value, 0xffff)? {
        0xffff => matches.set_masked(Field::VlanTci, 0, VLAN_PRESENT.into()),
        vid if vid <= 0xfff => matches.set_masked(Field::VlanTci, vid | u128::from(VLAN_PRESENT), 0x1fff),
        _ => return Err(value.fault("a VLAN is 0 to 4095, or 0xffff for packets without a tag")),
    };
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
fn meant(field: Field, matches: &Match) -> Field {
    let known = Known::of(matches);
    let (arp, icmp) = (known.is_arp(), known.is_icmp());
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
    // `tp_src` and `nw_src` may stand for a field of another name.
    let name = if Field::by_name(key.text) == Some(field) { key.text } else { info.name };
    if let Some(missing) = Known::of(matches).lacks_to_match(field, name) {
        return Err(key.fault(format!("{name} needs {missing} on the same line")));
    }
    let ports = matches!(field, Field::TpSrc | Field::TpDst);
    if let Some((low, high)) = value.split("-").filter(|_| ports) {
        let (first, last) = (values::number(low, 0xffff)? as u16, values::number(high, 0xffff)? as u16);
        if first > last {
            let problem =
                format!("port range {first}-{last} is empty; write the smaller port first ({last}-{first})");
            return Err(value.fault(problem));
        }
        matches.set_range(field, first, last);
        return Ok(());
    }
    let (value, mask) = values::value_mask(&info, value, options)?;
    matches.set_masked(field, value, mask);
    Ok(())
}
