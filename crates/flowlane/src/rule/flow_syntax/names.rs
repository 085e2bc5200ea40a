//! Names of fields and of their parts, as matches and actions have them.

use std::str::FromStr;

use super::super::error::{Fault, Token, did_you_mean};
use super::known::Known;
use super::values;
use crate::error::Error;
use crate::packet::FieldRef;
use crate::packet::fields::{Field, Form, TUN_METADATA_COUNT};

/// Fields by their names in the extensible matches of Open vSwitch (`NXM_`) and OpenFlow (`OXM_`), where these are not made of
/// our own ([`extensible`] knows the others). A name that begins with `OF_` is one behind either.
const EXTENSIBLE: [(&str, Field); 49] = [
    ("OF_IN_PORT", Field::InPort),
    ("OF_ETH_DST", Field::EthDst),
    ("OF_ETH_SRC", Field::EthSrc),
    ("OF_ETH_TYPE", Field::EthType),
    ("NXM_OF_VLAN_TCI", Field::VlanTci),
    ("OXM_OF_VLAN_VID", Field::VlanVid),
    ("OXM_OF_VLAN_PCP", Field::VlanPcp),
    ("OXM_OF_MPLS_LABEL", Field::MplsLabel),
    ("OXM_OF_MPLS_TC", Field::MplsTc),
    ("OXM_OF_MPLS_BOS", Field::MplsBos),
    ("NXM_OF_IP_SRC", Field::Ipv4Src),
    ("NXM_OF_IP_DST", Field::Ipv4Dst),
    ("OXM_OF_IPV4_SRC", Field::Ipv4Src),
    ("OXM_OF_IPV4_DST", Field::Ipv4Dst),
    ("OXM_OF_IPV6_SRC", Field::Ipv6Src),
    ("OXM_OF_IPV6_DST", Field::Ipv6Dst),
    ("OXM_OF_IPV6_FLABEL", Field::Ipv6Label),
    ("OF_IP_PROTO", Field::NwProto),
    ("NXM_OF_IP_TOS", Field::IpDscp),
    ("OXM_OF_IP_DSCP", Field::IpDscp),
    ("OXM_OF_IP_ECN", Field::IpEcn),
    ("OF_TCP_SRC", Field::TpSrc),
    ("OF_TCP_DST", Field::TpDst),
    ("OF_UDP_SRC", Field::TpSrc),
    ("OF_UDP_DST", Field::TpDst),
    ("OXM_OF_SCTP_SRC", Field::TpSrc),
    ("OXM_OF_SCTP_DST", Field::TpDst),
    ("OXM_OF_TCP_FLAGS", Field::TcpFlags),
    ("ONFOXM_ET_TCP_FLAGS", Field::TcpFlags),
    ("OF_ICMP_TYPE", Field::IcmpType),
    ("OF_ICMP_CODE", Field::IcmpCode),
    ("OXM_OF_ICMPV4_TYPE", Field::IcmpType),
    ("OXM_OF_ICMPV4_CODE", Field::IcmpCode),
    ("OXM_OF_ICMPV6_TYPE", Field::IcmpType),
    ("OXM_OF_ICMPV6_CODE", Field::IcmpCode),
    ("OF_ARP_OP", Field::ArpOp),
    ("OF_ARP_SPA", Field::ArpSpa),
    ("OF_ARP_TPA", Field::ArpTpa),
    ("OXM_OF_ARP_SHA", Field::ArpSha),
    ("OXM_OF_ARP_THA", Field::ArpTha),
    ("OXM_OF_IPV6_ND_TARGET", Field::NdTarget),
    ("OXM_OF_IPV6_ND_SLL", Field::NdSll),
    ("OXM_OF_IPV6_ND_TLL", Field::NdTll),
    ("ERICOXM_OF_ICMPV6_ND_RESERVED", Field::NdReserved),
    ("ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", Field::NdOptionsType),
    ("OXM_OF_TUNNEL_ID", Field::TunId),
    ("NXM_NX_TUN_IPV4_SRC", Field::TunSrc),
    ("NXM_NX_TUN_IPV4_DST", Field::TunDst),
    ("OXM_OF_METADATA", Field::Metadata),
];

/// Beginnings of names in extensible matches behind which our own name follows in capitals, and what begins ours.
const OWN: [(&str, &str); 5] = [
    ("NXM_NX_", ""),
    ("NXOXM_NSH_", "nsh_"),
    ("NXOXM_ET_ERSPAN_", "tun_erspan_"),
    ("NXOXM_ET_", ""),
    ("OXM_OF_PKT_REG", "xreg"),
];

/// Names in extensible matches that are ours, and more.
const OTHERS: [(&str, Field); 3] = [
    ("OXM_OF_PACKET_TYPE", Field::PacketType),
    ("OXM_OF_ACTSET_OUTPUT", Field::ActsetOutput),
    ("ONFOXM_ET_ACTSET_OUTPUT", Field::ActsetOutput),
];

fn extensible(name: &str) -> Option<Field> {
    // Most names are ours.
    if !name.starts_with(['N', 'O', 'E']) {
        return None;
    }
    let is = |known: &str| match name.split_at_checked(4) {
        Some(("NXM_" | "OXM_", rest)) if known.starts_with("OF_") => rest == known,
        _ => name == known,
    };
    let listed = EXTENSIBLE.iter().chain(&OTHERS).find(|(known, _)| is(known)).map(|(_, field)| *field);
    let own = |(prefix, own): &(&str, &str)| {
        let rest =
            name.strip_prefix(prefix).filter(|rest| !rest.contains(|c: char| c.is_ascii_lowercase()))?;
        Field::by_name(&format!("{own}{}", rest.to_ascii_lowercase()))
    };
    listed.or_else(|| OWN.iter().find_map(own))
}

/// The field of a name: its own, an alias, or its name in extensible matches.
pub(super) fn by_name(name: &str) -> Option<Field> {
    Field::by_name(name).or_else(|| extensible(name))
}

/// The reason for which Flowlane has not a field that Open vSwitch has; `None` where that has none of this name, either.
pub(super) fn absent(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let number = |prefix: &str| lower.split_once(prefix)?.1.parse::<u16>().ok();
    if let Some(number) = number("tun_metadata") {
        return (number < 64).then(|| {
            format!(
                "the key has room for {TUN_METADATA_COUNT} options of tunnels, of 16 bytes each: tun_metadata0 to tun_metadata{}",
                TUN_METADATA_COUNT - 1
            )
        });
    }
    let registers = [("xxreg", "xxreg0 to xxreg3"), ("xreg", "xreg0 to xreg7"), ("reg", "reg0 to reg15")];
    if let Some((_, ours)) = registers.iter().find(|(prefix, _)| number(prefix).is_some()) {
        return Some(format!(
            "registers are {ours}: the key has no room for more, and Open vSwitch before 3.7 has none, either"
        ));
    }
    let lacked = ["ipv6_exthdr", "pbb_isid", "pbb_uca"];
    lacked.contains(&lower.as_str()).then(|| "Flowlane does not have this field of Open vSwitch".to_owned())
}

/// Says that there is no field of this name, and the one that was probably meant.
pub(super) fn no_such_field<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!("there is no such field{}", did_you_mean(name, known))
}

/// All names of fields but those of extensible matches.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    Field::all().iter().flat_map(|info| info.aliases.iter().chain([&info.name])).copied()
}

impl FromStr for Field {
    type Err = Error;

    /// Reads any name that rules take: the field's own, an alias, or that of extensible matches.
    fn from_str(name: &str) -> Result<Self, Error> {
        let wrong = || absent(name).unwrap_or_else(|| no_such_field(name, all()));
        by_name(name).ok_or_else(|| Error::input(format!("`{name}`: {}", wrong())))
    }
}

/// The field of a name, or the mistake in it.
pub(super) fn field_named(token: Token<'_>) -> Result<Field, Fault> {
    by_name(token.text).ok_or_else(|| match absent(token.text) {
        Some(reason) => token.fault(reason),
        None => {
            let names = Field::all().iter().filter(|f| f.writable).map(|f| f.name);
            token.fault(no_such_field(token.text, names))
        }
    })
}

/// Returns whether the packets have the field that a token names, as far as a rule says.
fn present(token: Token<'_>, field: Field, known: &Known) -> Result<(), Fault> {
    let Some(wanted) = known.lacks_to_act(field, token.text) else { return Ok(()) };
    let where_to = match known.changed() {
        true => "at this action: those in front have changed the headers",
        false => "in the match; add it",
    };
    Err(token.fault(format!("{} needs {wanted} {where_to}", token.text)))
}

/// A part of a field as it is written. `nw_tos` is an octet whose upper six bits are the field, so that the bits that are
/// written are not always those of the field; `in_port` has 16 bits, as in OpenFlow 1.0, and `in_port_oxm` 32.
pub(super) struct Part {
    pub(super) field: Field,
    /// The lowest bit and the number of bits, as written.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Written bits below the field's lowest.
    pub(super) shift: u32,
    /// Whether all that can be written of the field is.
    pub(super) is_whole: bool,
}

impl Part {
    /// A field, or the bits of it that `[first..last]` names.
    pub(super) fn read(token: Token<'_>) -> Result<Self, Fault> {
        let (name, inside) = match token.text.find('[') {
            None => (token, None),
            Some(open) => (token.part(0, open), Some(token.part(open + 1, token.text.len()))),
        };
        let field = field_named(name)?;
        let (width, shift) = match values::info_as(field, name.text).form {
            Form::Tos => (8, 2),
            _ if matches!(name.text, "in_port" | "NXM_OF_IN_PORT") => (16, 0),
            _ => (field.info().width.into(), 0),
        };
        let whole = Self { field, first: 0, count: width, shift, is_whole: true };
        let Some(inside) = inside else { return Ok(whole) };
        let Some(bits) = inside.text.strip_suffix(']').map(|b| inside.part(0, b.len())) else {
            return Err(inside.fault("`]` is expected at the end"));
        };
        if bits.text.is_empty() {
            return Ok(whole);
        }
        let (first, last) = bits.split("..").unwrap_or((bits, bits));
        let max = u128::from(width) - 1;
        let (first, last) = (values::number(first, max)? as u32, values::number(last, max)? as u32);
        match first <= last {
            true => {
                let count = last - first + 1;
                Ok(Self { first, count, is_whole: count == width, ..whole })
            }
            false => Err(bits.fault("the lower bit comes first")),
        }
    }

    /// The bits of the field that are written; `None` where it has none of them.
    pub(super) fn reference(&self) -> Option<FieldRef> {
        let end = (self.first + self.count).checked_sub(self.shift)?;
        let first = self.first.saturating_sub(self.shift);
        FieldRef::new(self.field, first as u8, (end - first) as u8)
    }

    /// The value of the bits of the field, of one as it is written.
    pub(super) fn place(&self, value: u128, bits: FieldRef) -> u128 {
        (value << self.first) >> self.shift & bits.mask()
    }
}

/// The bits of a field that `FIELD[first..last]` names in a match, all of them unless the field is maskable; and the number of
/// written bits below them, which are ECN's in `nw_tos[]`.
pub(super) fn matched(token: Token<'_>) -> Result<(FieldRef, u32), Fault> {
    let part = Part::read(token)?;
    let ignored = part.shift.saturating_sub(part.first);
    let whole = part.is_whole.then(|| FieldRef::whole(part.field));
    let reference = whole.or_else(|| part.reference().filter(|p| p.is_whole() || part.field.info().maskable));
    let problem = || format!("{} takes no mask, here as in Open vSwitch", part.field.info().name);
    Ok((reference.ok_or_else(|| token.fault(problem()))?, ignored))
}

/// The name in front of `[first..last]`.
fn name_of(token: Token<'_>) -> Token<'_> {
    token.before("[")
}

/// Bits of a field that the packets have.
pub(super) fn read_part(token: Token<'_>, known: &Known) -> Result<FieldRef, Fault> {
    let part = Part::read(token)?;
    present(name_of(token), part.field, known)?;
    reference(token, &part)
}

/// Returns whether a name is that of OpenFlow's VLAN with the bit that says that there is a tag.
pub(super) fn is_vid(name: &str) -> bool {
    matches!(name, "vlan_vid" | "OXM_OF_VLAN_VID")
}

/// Bits of a field that a learned rule matches: of packets of which `known` is known.
pub(super) fn learned_part(token: Token<'_>, known: &Known) -> Result<FieldRef, Fault> {
    let part = Part::read(token)?;
    let name = name_of(token);
    match known.lacks_to_match(part.field, name.text) {
        Some(wanted) => {
            Err(name.fault(format!("{} needs {wanted} among the fields in front of it", name.text)))
        }
        None => reference(token, &part),
    }
}

/// Bits of a field that may be written, and that the packets have.
pub(super) fn written_part(token: Token<'_>, known: &Known) -> Result<FieldRef, Fault> {
    let part = Part::read(token)?;
    written(name_of(token), known)?;
    reference(token, &part)
}

/// Bits of a field that `pop` may write: mark and label of the connection, too, for the tables that follow, as in Open vSwitch.
pub(super) fn popped_part(token: Token<'_>, known: &Known) -> Result<FieldRef, Fault> {
    let part = Part::read(token)?;
    if !part.field.is_set_with_connection() {
        written(name_of(token), known)?;
    }
    reference(token, &part)
}

fn reference(token: Token<'_>, part: &Part) -> Result<FieldRef, Fault> {
    let ecn = part.first < part.shift && !part.is_whole;
    part.reference()
        .filter(|_| !ecn)
        .ok_or_else(|| token.fault("the two low bits of the TOS are ECN's: use nw_ecn"))
}

/// A field that may be written, and that the packets have.
pub(super) fn written(token: Token<'_>, known: &Known) -> Result<Field, Fault> {
    let token = name_of(token);
    let field = field_named(token)?;
    let with_connection = field.is_set_with_connection();
    if with_connection && !known.in_connection() {
        return Err(token.fault(
            "this field of the connection is set with it only: write `ct(commit,exec(set_field:…))`",
        ));
    }
    if !field.info().writable && !with_connection {
        return Err(token.fault("this field cannot be set"));
    }
    if known.in_connection() && !with_connection {
        return Err(
            token.fault("`ct(exec(…))` sets ct_mark and ct_label only; set other fields outside of it")
        );
    }
    present(token, field, known)?;
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_print_as_names_that_are_read_back() {
        for info in Field::named() {
            let name = info.field.to_string();
            assert_eq!(name, info.name);
            assert_eq!(name.parse(), Ok(info.field), "{name}");
            for alias in info.aliases {
                assert_eq!(alias.parse(), Ok(info.field), "{alias}");
            }
        }
        for (name, field) in EXTENSIBLE.iter().chain(&OTHERS) {
            let names = match name.starts_with("OF_") {
                true => vec![format!("NXM_{name}"), format!("OXM_{name}")],
                false => vec![(*name).to_owned()],
            };
            names.iter().for_each(|name| assert_eq!(name.parse(), Ok(*field), "{name}"));
        }
        assert_eq!(format!("{:>8}|{:<8}|", Field::TpDst, Field::Reg0), "  tp_dst|reg0    |");
    }

    #[test]
    fn names_that_rules_do_not_take_are_refused() {
        // Two fields have names that rules cannot write.
        for name in
            ["nd_options", "tun_metadata_present", "", "TP_DST", "tp_dst ", "tp_dst[0..7]", "word12", "tcp"]
        {
            assert!(name.parse::<Field>().is_err(), "{name}");
        }
        let said = |name: &str| name.parse::<Field>().unwrap_err().to_string();
        assert_eq!(said("nw_prot"), "`nw_prot`: there is no such field; did you mean `nw_proto`?");
        assert!(said("reg16").starts_with("`reg16`: registers are reg0 to reg15"));
    }

    #[test]
    fn values_that_a_field_cannot_hold_are_refused() {
        use crate::packet::fields::Prerequisite;
        use crate::rule::flow_syntax::{read, read_actions};

        let options = crate::rule::ReadOptions::default();
        let acts = |text: &str| read_actions(text, "actions", &options).map(drop);
        let matches = |text: &str| read(&format!("{text} actions=drop"), "flows", &options).map(drop);
        for info in Field::named() {
            let (name, width) = (info.name, if info.form == Form::Tos { 8 } else { u32::from(info.width) });
            let most = u128::MAX >> (128 - width);
            let above =
                most.checked_add(1).map_or_else(|| format!("0x1{:032x}", 0), |above| above.to_string());
            let numbers = matches!(info.form, Form::Decimal | Form::Hex | Form::Tos);
            if info.writable && numbers {
                // The octet's lower two bits are another field's.
                let most = if info.form == Form::Tos { 0xfc } else { most };
                assert!(acts(&format!("set_field:{most}->{name}")).is_ok(), "{name}");
                assert!(acts(&format!("load:{most}->{name}[]")).is_ok(), "{name}");
            }
            assert!(acts(&format!("set_field:{above}->{name}")).is_err(), "{name}");
            assert!(acts(&format!("set_field:0/{above}->{name}")).is_err(), "{name}");
            assert!(acts(&format!("load:{above}->{name}[]")).is_err(), "{name}");
            assert!(acts(&format!("load:2->{name}[0]")).is_err(), "{name}");
            if matches!(info.prerequisite, Prerequisite::None | Prerequisite::Tunnel) && numbers {
                assert!(matches(&format!("{name}={most}")).is_ok(), "{name}");
                assert!(!info.maskable || matches(&format!("{name}[0]=1")).is_ok(), "{name}");
            }
            assert!(matches(&format!("{name}={above}")).is_err(), "{name}");
            assert!(matches(&format!("{name}=0/{above}")).is_err(), "{name}");
            assert!(matches(&format!("{name}[0]=2")).is_err(), "{name}");
        }
    }
}
