//! Actions that write fields: `set_field`, `load`, `move`.

use super::super::ReadOptions;
use super::super::action::Action;
use super::super::error::{Fault, Token, did_you_mean};
use super::known::Known;
use super::{is_absent, values};
use crate::packet::FieldRef;
use crate::packet::fields::{Field, Form, VLAN_PRESENT};

/// Fields by their names in the extensible matches of Open vSwitch (`NXM_`) and OpenFlow (`OXM_`). A name that begins with
/// `OF_` is one behind either.
const EXTENSIBLE: [(&str, Field); 58] = [
    ("OF_ETH_DST", Field::EthDst),
    ("OF_ETH_SRC", Field::EthSrc),
    ("NXM_OF_ETH_TYPE", Field::EthType),
    ("NXM_OF_VLAN_TCI", Field::VlanTci),
    ("OXM_OF_VLAN_VID", Field::VlanVid),
    ("OXM_OF_VLAN_PCP", Field::VlanPcp),
    ("OXM_OF_MPLS_LABEL", Field::MplsLabel),
    ("OXM_OF_MPLS_TC", Field::MplsTc),
    ("OXM_OF_MPLS_BOS", Field::MplsBos),
    ("NXM_NX_MPLS_TTL", Field::MplsTtl),
    ("NXM_OF_IP_SRC", Field::Ipv4Src),
    ("NXM_OF_IP_DST", Field::Ipv4Dst),
    ("OXM_OF_IPV4_SRC", Field::Ipv4Src),
    ("OXM_OF_IPV4_DST", Field::Ipv4Dst),
    ("NXM_NX_IPV6_SRC", Field::Ipv6Src),
    ("NXM_NX_IPV6_DST", Field::Ipv6Dst),
    ("OXM_OF_IPV6_SRC", Field::Ipv6Src),
    ("OXM_OF_IPV6_DST", Field::Ipv6Dst),
    ("NXM_NX_IPV6_LABEL", Field::Ipv6Label),
    ("OXM_OF_IPV6_FLABEL", Field::Ipv6Label),
    ("NXM_OF_IP_PROTO", Field::NwProto),
    ("OXM_OF_IP_PROTO", Field::NwProto),
    ("NXM_OF_IP_TOS", Field::IpDscp),
    ("OXM_OF_IP_DSCP", Field::IpDscp),
    ("NXM_NX_IP_ECN", Field::IpEcn),
    ("OXM_OF_IP_ECN", Field::IpEcn),
    ("NXM_NX_IP_TTL", Field::NwTtl),
    ("OF_TCP_SRC", Field::TpSrc),
    ("OF_TCP_DST", Field::TpDst),
    ("OF_UDP_SRC", Field::TpSrc),
    ("OF_UDP_DST", Field::TpDst),
    ("OXM_OF_SCTP_SRC", Field::TpSrc),
    ("OXM_OF_SCTP_DST", Field::TpDst),
    ("NXM_OF_ICMP_TYPE", Field::IcmpType),
    ("NXM_OF_ICMP_CODE", Field::IcmpCode),
    ("OXM_OF_ICMPV4_TYPE", Field::IcmpType),
    ("OXM_OF_ICMPV4_CODE", Field::IcmpCode),
    ("NXM_NX_ICMPV6_TYPE", Field::IcmpType),
    ("NXM_NX_ICMPV6_CODE", Field::IcmpCode),
    ("OXM_OF_ICMPV6_TYPE", Field::IcmpType),
    ("OXM_OF_ICMPV6_CODE", Field::IcmpCode),
    ("OF_ARP_OP", Field::ArpOp),
    ("OF_ARP_SPA", Field::ArpSpa),
    ("OF_ARP_TPA", Field::ArpTpa),
    ("NXM_NX_ARP_SHA", Field::ArpSha),
    ("NXM_NX_ARP_THA", Field::ArpTha),
    ("OXM_OF_ARP_SHA", Field::ArpSha),
    ("OXM_OF_ARP_THA", Field::ArpTha),
    ("NXM_NX_ND_TARGET", Field::NdTarget),
    ("NXM_NX_ND_SLL", Field::NdSll),
    ("NXM_NX_ND_TLL", Field::NdTll),
    ("NXM_NX_TUN_ID", Field::TunId),
    ("OXM_OF_TUNNEL_ID", Field::TunId),
    ("NXM_NX_TUN_IPV4_SRC", Field::TunSrc),
    ("NXM_NX_TUN_IPV4_DST", Field::TunDst),
    ("NXM_NX_TUN_METADATA0", Field::TunOptionData),
    ("NXM_NX_PKT_MARK", Field::PktMark),
    ("OXM_OF_METADATA", Field::Metadata),
];

/// Names of registers in extensible matches, and our own: a number follows.
const REGISTERS: [(&str, &str); 3] =
    [("NXM_NX_REG", "reg"), ("OXM_OF_PKT_REG", "xreg"), ("NXM_NX_XXREG", "xxreg")];

fn register_named(name: &str) -> Option<Field> {
    let (number, own) = REGISTERS.iter().find_map(|(prefix, own)| Some((name.strip_prefix(prefix)?, own)))?;
    Field::by_name(&format!("{own}{number}"))
}

/// A field by its own name, an alias, or its name in extensible matches.
fn field_named(token: Token<'_>) -> Result<Field, Fault> {
    let is = |name: &str| match token.text.split_at_checked(4) {
        Some(("NXM_" | "OXM_", rest)) if name.starts_with("OF_") => rest == name,
        _ => token.text == name,
    };
    let extensible = EXTENSIBLE.iter().find(|(name, _)| is(name)).map(|(_, field)| *field);
    let named = || Field::by_name(token.text).or_else(|| register_named(token.text));
    extensible.or_else(named).ok_or_else(|| {
        if is_absent(token.text) {
            return token.fault("Flowlane does not have this field of Open vSwitch");
        }
        let names = Field::all().iter().filter(|f| f.writable).map(|f| f.name);
        token.fault(format!("there is no such field{}", did_you_mean(token.text, names)))
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

/// A field that may be written, and that the packets have.
fn written(token: Token<'_>, known: &Known) -> Result<Field, Fault> {
    let field = field_named(token)?;
    if !field.info().writable {
        return Err(token.fault("this field cannot be set"));
    }
    present(token, field, known)?;
    Ok(field)
}

/// `VALUE[/MASK]->FIELD`.
pub(super) fn set_field(
    argument: Token<'_>,
    options: &ReadOptions<'_>,
    known: &Known,
) -> Result<Action, Fault> {
    let Some((value, target)) = argument.split("->") else {
        return Err(argument.fault("`set_field:VALUE[/MASK]->FIELD` is expected"));
    };
    let (value, target) = (value.trim(), target.trim());
    let field = written(target, known)?;
    // OpenFlow's vlan_vid has a bit that says 'tag present'; setting the field always makes it so.
    if matches!(target.text, "vlan_vid" | "OXM_OF_VLAN_VID") {
        return vlan_vid(value);
    }
    let info = values::info_as(field, target.text);
    if info.form == Form::Tos && values::number(value.before("/"), 0xff)? & 3 != 0 {
        return Err(value.fault("the two low bits of the TOS are ECN's and stay; set nw_ecn"));
    }
    let (value, mask) = values::value_mask(&info, value, options)?;
    vlan_tci(argument, field, value, mask)
}

fn vlan_vid(token: Token<'_>) -> Result<Action, Fault> {
    let (value, mask) = token.split("/").unwrap_or((token, Token { text: "0x1fff", at: token.at }));
    let vid = values::number(value, 0x1fff)?;
    match values::number(mask, 0x1fff)? & 0xfff {
        0 => Err(mask.fault("the mask has no bit of the VID")),
        mask => Ok(Action::set_field(Field::VlanVid, vid & mask, mask)),
    }
}

/// Sets the field; a `vlan_tci` of 0 is no tag, as in Open vSwitch.
fn vlan_tci(token: Token<'_>, field: Field, value: u128, mask: u128) -> Result<Action, Fault> {
    let present = u128::from(VLAN_PRESENT);
    match (field, mask & present != 0 && value & present == 0) {
        (Field::VlanTci, true) if mask == field.info().ones() && value == 0 => Ok(Action::PopVlan),
        (Field::VlanTci, true) => {
            let problem = "a vlan_tci without the bit 0x1000 is no tag; write pop_vlan to remove the tag, or add 0x1000";
            Err(token.fault(problem))
        }
        _ => Ok(Action::set_field(field, value, mask)),
    }
}

/// A part of a field as it is written. `nw_tos` is an octet whose upper six bits are the field, so that the bits that are
/// written are not always those of the field.
struct Part {
    field: Field,
    /// The lowest bit and the number of bits, as written.
    first: u32,
    count: u32,
    /// Written bits below the field's lowest.
    shift: u32,
    /// Whether all that can be written of the field is.
    is_whole: bool,
}

impl Part {
    /// A field, or the bits of it that `[first..last]` names.
    fn read(token: Token<'_>) -> Result<Self, Fault> {
        let (name, inside) = match token.text.find('[') {
            None => (token, None),
            Some(open) => (token.part(0, open), Some(token.part(open + 1, token.text.len()))),
        };
        let field = field_named(name)?;
        let (width, shift) = match values::info_as(field, name.text).form {
            Form::Tos => (8, 2),
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
    fn reference(&self) -> Option<FieldRef> {
        let end = (self.first + self.count).checked_sub(self.shift)?;
        let first = self.first.saturating_sub(self.shift);
        FieldRef::new(self.field, first as u8, (end - first) as u8)
    }
}

/// The bits of a field that `FIELD[first..last]` names in a match, all of them unless the field is maskable; and the number of
/// written bits below them, which are ECN's in `nw_tos[]`.
pub(super) fn part(token: Token<'_>) -> Result<(FieldRef, u32), Fault> {
    let part = Part::read(token)?;
    let ignored = part.shift.saturating_sub(part.first);
    let reference = part.reference().filter(|bits| bits.is_whole() || part.field.info().maskable);
    let problem = || format!("{} takes no mask, here as in Open vSwitch", part.field.info().name);
    Ok((reference.ok_or_else(|| token.fault(problem()))?, ignored))
}

/// The name in front of `[first..last]`.
fn name_of(token: Token<'_>) -> Token<'_> {
    token.before("[")
}

/// `VALUE->FIELD[first..last]`.
pub(super) fn load(argument: Token<'_>, known: &Known) -> Result<Action, Fault> {
    let Some((value, target)) = argument.split("->") else {
        return Err(argument.fault("`load:VALUE->FIELD[FIRST..LAST]` is expected"));
    };
    let target = target.trim();
    written(name_of(target), known)?;
    let part = Part::read(target)?;
    let value = values::number(value.trim(), u128::MAX >> (128 - part.count))?;
    let Some(bits) = part.reference() else {
        return Err(target.fault("these bits of the TOS are ECN's; load them into nw_ecn"));
    };
    vlan_tci(argument, part.field, (value << part.first) >> part.shift & bits.mask(), bits.mask())
}

/// `FIELD[first..last]->FIELD[first..last]`, or whole fields; both of one width.
pub(super) fn move_field(argument: Token<'_>, known: &Known) -> Result<Action, Fault> {
    let Some((from, to)) = argument.split("->") else {
        return Err(argument.fault("`move:FIELD->FIELD` is expected"));
    };
    let (from, to) = (from.trim(), to.trim());
    let (source, target) = (Part::read(from)?, Part::read(to)?);
    present(name_of(from), source.field, known)?;
    written(name_of(to), known)?;
    if target.field == Field::VlanTci {
        return Err(to.fault(
            "the value that is moved may mean that there is no tag; move to dl_vlan and dl_vlan_pcp",
        ));
    }
    let reference = |part: &Part, token: Token<'_>| {
        let ecn = part.first < part.shift && !part.is_whole;
        let problem = "the two low bits of the TOS are ECN's; move nw_ecn";
        part.reference().filter(|_| !ecn).ok_or_else(|| token.fault(problem))
    };
    let (source, target) = (reference(&source, from)?, reference(&target, to)?);
    if source.bits() != target.bits() {
        return Err(argument.fault(format!(
            "move takes two fields, or parts of fields, of the same width; these have {} and {} bits",
            source.bits(),
            target.bits()
        )));
    }
    Ok(Action::Move { from: source, to: target })
}
