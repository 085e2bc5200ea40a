//! The part of a flow that says what happens.

use super::super::ReadOptions;
use super::super::action::{Action, PortNo};
use super::super::error::{Fault, Token, did_you_mean};
use super::{split, values};
use crate::packet::fields::Field;
use crate::packet::parse::ether_type;

/// Names of actions, for suggestions.
const NAMES: [&str; 33] = [
    "output",
    "in_port",
    "flood",
    "all",
    "normal",
    "drop",
    "controller",
    "sample",
    "push_vlan",
    "pop_vlan",
    "strip_vlan",
    "mod_vlan_vid",
    "mod_vlan_pcp",
    "push_mpls",
    "pop_mpls",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "dec_mpls_ttl",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_tos",
    "mod_tp_dst",
    "set_field",
    "load",
    "move",
    "dec_ttl",
    "meter",
    "count",
    "encap",
    "goto_table",
];

/// Reads what stands behind `actions=`.
pub(super) fn read(text: Token<'_>, table: u8, options: &ReadOptions<'_>) -> Result<Vec<Action>, Fault> {
    let tokens = split(text)?;
    if tokens.is_empty() {
        return Err(text.fault("an action is expected; write `drop` to drop"));
    }
    let mut actions = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let last = i + 1 == tokens.len();
        match token.text {
            "drop" if tokens.len() == 1 => {}
            "drop" => return Err(token.fault("`drop` stands alone")),
            _ => {
                let action = action(*token, options)?;
                if let Action::Goto(to) = action {
                    if to <= table {
                        let problem = format!("a flow of table {table} can only go on in a later table");
                        return Err(token.fault(problem));
                    }
                    if !last {
                        return Err(token.fault("goto_table is the last action"));
                    }
                }
                actions.push(action);
            }
        }
    }
    Ok(actions)
}

/// `name`, `name:argument` or `name(argument)`.
fn action(token: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let end = token.text.find([':', '(', '=']).unwrap_or(token.text.len());
    let name = token.part(0, end);
    let argument = match token.text[end..].chars().next() {
        Some('(') if token.text.ends_with(')') => Some(token.part(end + 1, token.text.len() - 1)),
        Some(':' | '=') => Some(token.part(end + 1, token.text.len())),
        Some(_) => return Err(token.fault("`)` is expected at the end")),
        None => None,
    };
    match argument {
        None => without_argument(name, options),
        Some(argument) => with_argument(name, argument.trim(), options),
    }
}

fn without_argument(name: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    Ok(match name.text.to_ascii_lowercase().as_str() {
        "in_port" => Action::InPort,
        "flood" | "all" => Action::Flood,
        "normal" => Action::Normal,
        "controller" => Action::Controller { max_len: u16::MAX },
        "pop_vlan" | "strip_vlan" => Action::PopVlan,
        "dec_ttl" => Action::DecTtl,
        "dec_mpls_ttl" => Action::DecMplsTtl,
        _ => {
            let is_port = name.text.starts_with(|c: char| c == '"' || c.is_ascii_digit())
                || (options.ports)(name.text).is_some();
            if is_port {
                return output(name, options);
            }
            let hint = did_you_mean(name.text, NAMES.into_iter());
            let problem = if NAMES.contains(&name.text) {
                format!("`{}:ARGUMENT` is expected", name.text)
            } else {
                format!("there is no such action or port{hint}")
            };
            return Err(name.fault(problem));
        }
    })
}

fn with_argument(name: Token<'_>, argument: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let number = |max: u128| values::number(argument, max);
    let set = |field: Field| {
        let value = values::one(field.info(), argument, options)?;
        Ok(Action::SetField { field, value, mask: field.info().ones() })
    };
    match name.text {
        "output" => output(argument, options),
        "controller" => {
            let len = argument.text.strip_prefix("max_len=").map_or(argument, |rest| {
                argument.part(argument.text.len() - rest.len(), argument.text.len())
            });
            Ok(Action::Controller { max_len: values::number(len, 0xffff)? as u16 })
        }
        "sample" => match argument.split("probability=") {
            Some((before, p)) if before.text.is_empty() => {
                Ok(Action::Sample { probability: values::number(p, 0xffff)? as u16 })
            }
            _ => Err(argument.fault("`sample(probability=N)`, N up to 65535, is expected")),
        },
        "push_vlan" => one_of(argument, &[ether_type::VLAN, ether_type::QINQ]).map(Action::PushVlan),
        "push_mpls" => {
            one_of(argument, &[ether_type::MPLS, ether_type::MPLS_MULTICAST]).map(Action::PushMpls)
        }
        "pop_mpls" => Ok(Action::PopMpls(number(0xffff)? as u16)),
        "mod_vlan_vid" | "set_vlan_vid" => set(Field::VlanVid),
        "mod_vlan_pcp" | "set_vlan_pcp" => set(Field::VlanPcp),
        "set_mpls_label" => set(Field::MplsLabel),
        "set_mpls_tc" => set(Field::MplsTc),
        "set_mpls_ttl" => set(Field::MplsTtl),
        "mod_dl_src" => set(Field::EthSrc),
        "mod_dl_dst" => set(Field::EthDst),
        "mod_nw_src" => set(Field::Ipv4Src),
        "mod_nw_dst" => set(Field::Ipv4Dst),
        // As in OpenFlow 1.0, the two low bits are ECN's and stay.
        "mod_nw_tos" => {
            let value = number(0xff)?;
            match value & 3 {
                0 => Ok(Action::SetField { field: Field::IpDscp, value: value >> 2, mask: 0x3f }),
                _ => Err(argument.fault("the two low bits are not part of the TOS; use mod_nw_ecn")),
            }
        }
        "mod_nw_ecn" => set(Field::IpEcn),
        "mod_nw_ttl" => set(Field::NwTtl),
        "mod_tp_src" => set(Field::TpSrc),
        "mod_tp_dst" => set(Field::TpDst),
        "set_field" => set_field(argument, options),
        "load" => load(argument),
        "move" => move_field(argument),
        "write_metadata" => {
            let (value, mask) = values::value_mask(Field::Metadata.info(), argument, options)?;
            Ok(Action::SetField { field: Field::Metadata, value, mask })
        }
        "meter" => Ok(Action::Meter(number(u32::MAX.into())? as u32)),
        "count" => Ok(Action::Count(number(u32::MAX.into())? as u32)),
        "encap" => Ok(Action::Encapsulate(number(u32::MAX.into())? as u32)),
        "goto_table" => Ok(Action::Goto(number(254)? as u8)),
        "resubmit" => Err(name.fault("Flowlane has no resubmit; use goto_table")),
        _ => {
            let hint = did_you_mean(name.text, NAMES.into_iter());
            Err(name.fault(format!("there is no such action{hint}")))
        }
    }
}

fn output(token: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let port = PortNo(values::port(token, options)?);
    match port <= PortNo::MAX && port.0 > 0 {
        true => Ok(Action::Output(port)),
        false => Err(token.fault(format!("a port number is 1 to {}", PortNo::MAX.0))),
    }
}

fn one_of(token: Token<'_>, allowed: &[u16]) -> Result<u16, Fault> {
    let value = values::number(token, 0xffff).ok().map(|n| n as u16).filter(|n| allowed.contains(n));
    value.ok_or_else(|| token.fault(format!("{:#06x} or {:#06x} is expected", allowed[0], allowed[1])))
}

/// A field that may be written.
fn writable(token: Token<'_>) -> Result<Field, Fault> {
    let field = field_named(token)?;
    match field.info().writable {
        true => Ok(field),
        false => Err(token.fault("this field cannot be set")),
    }
}

/// A field by its own name, an alias, or its name in Open vSwitch's extensible matches.
fn field_named(token: Token<'_>) -> Result<Field, Fault> {
    let known = match token.text {
        "NXM_OF_ETH_DST" | "OXM_OF_ETH_DST" => Some(Field::EthDst),
        "NXM_OF_ETH_SRC" | "OXM_OF_ETH_SRC" => Some(Field::EthSrc),
        "NXM_OF_VLAN_TCI" => Some(Field::VlanTci),
        "OXM_OF_VLAN_VID" => Some(Field::VlanVid),
        "NXM_OF_IP_SRC" | "OXM_OF_IPV4_SRC" => Some(Field::Ipv4Src),
        "NXM_OF_IP_DST" | "OXM_OF_IPV4_DST" => Some(Field::Ipv4Dst),
        "NXM_NX_IPV6_SRC" | "OXM_OF_IPV6_SRC" => Some(Field::Ipv6Src),
        "NXM_NX_IPV6_DST" | "OXM_OF_IPV6_DST" => Some(Field::Ipv6Dst),
        "NXM_OF_IP_TOS" => Some(Field::NwTos),
        "NXM_NX_IP_TTL" => Some(Field::NwTtl),
        "NXM_OF_TCP_SRC" | "NXM_OF_UDP_SRC" | "OXM_OF_TCP_SRC" | "OXM_OF_UDP_SRC" => Some(Field::TpSrc),
        "NXM_OF_TCP_DST" | "NXM_OF_UDP_DST" | "OXM_OF_TCP_DST" | "OXM_OF_UDP_DST" => Some(Field::TpDst),
        "NXM_OF_ARP_OP" | "OXM_OF_ARP_OP" => Some(Field::ArpOp),
        "NXM_OF_ARP_SPA" | "OXM_OF_ARP_SPA" => Some(Field::ArpSpa),
        "NXM_OF_ARP_TPA" | "OXM_OF_ARP_TPA" => Some(Field::ArpTpa),
        "NXM_NX_ARP_SHA" | "OXM_OF_ARP_SHA" => Some(Field::ArpSha),
        "NXM_NX_ARP_THA" | "OXM_OF_ARP_THA" => Some(Field::ArpTha),
        "NXM_NX_TUN_ID" | "OXM_OF_TUNNEL_ID" => Some(Field::TunId),
        "NXM_NX_PKT_MARK" => Some(Field::PktMark),
        "OXM_OF_METADATA" => Some(Field::Metadata),
        "NXM_NX_REG0" => Some(Field::Reg0),
        "NXM_NX_REG1" => Some(Field::Reg1),
        "NXM_NX_REG2" => Some(Field::Reg2),
        "NXM_NX_REG3" => Some(Field::Reg3),
        name => Field::by_name(name),
    };
    known.ok_or_else(|| {
        let names = Field::all().iter().filter(|f| f.writable).map(|f| f.name);
        token.fault(format!("there is no such field{}", did_you_mean(token.text, names)))
    })
}

/// `VALUE[/MASK]->FIELD`.
fn set_field(argument: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let Some((value, target)) = argument.split("->") else {
        return Err(argument.fault("`set_field:VALUE[/MASK]->FIELD` is expected"));
    };
    let field = writable(target.trim())?;
    let value = value.trim();
    // OpenFlow's vlan_vid has a bit that says 'tag present'; setting the field always makes it so.
    if target.trim().text == "vlan_vid" {
        let vid = values::number(value, 0x1fff)? & 0xfff;
        return Ok(Action::SetField { field, value: vid, mask: 0xfff });
    }
    let (value, mask) = values::value_mask(field.info(), value, options)?;
    Ok(Action::SetField { field, value, mask })
}

/// A field, or the bits of it that `[first..last]` names: (field, lowest bit, number of bits).
fn subfield(token: Token<'_>) -> Result<(Field, u32, u32), Fault> {
    let Some(open) = token.text.find('[') else {
        let field = field_named(token)?;
        return Ok((field, 0, field.info().width.into()));
    };
    let field = field_named(token.part(0, open))?;
    let width = u32::from(field.info().width);
    let inside = token.part(open + 1, token.text.len());
    let Some(bits) = inside.text.strip_suffix(']').map(|b| inside.part(0, b.len())) else {
        return Err(inside.fault("`]` is expected at the end"));
    };
    if bits.text.is_empty() {
        return Ok((field, 0, width));
    }
    let (first, last) = bits.split("..").unwrap_or((bits, bits));
    let max = u128::from(width) - 1;
    let (first, last) = (values::number(first, max)? as u32, values::number(last, max)? as u32);
    match first <= last {
        true => Ok((field, first, last - first + 1)),
        false => Err(bits.fault("the lower bit comes first")),
    }
}

/// `VALUE->FIELD[first..last]`.
fn load(argument: Token<'_>) -> Result<Action, Fault> {
    let Some((value, target)) = argument.split("->") else {
        return Err(argument.fault("`load:VALUE->FIELD[FIRST..LAST]` is expected"));
    };
    let (field, first, bits) = subfield(target.trim())?;
    if !field.info().writable {
        return Err(target.fault("this field cannot be set"));
    }
    let ones = u128::MAX >> (128 - bits);
    let value = values::number(value.trim(), ones)?;
    Ok(Action::SetField { field, value: value << first, mask: ones << first })
}

/// `FIELD->FIELD`, both whole and of one width.
fn move_field(argument: Token<'_>) -> Result<Action, Fault> {
    let Some((from, to)) = argument.split("->") else {
        return Err(argument.fault("`move:FIELD->FIELD` is expected"));
    };
    let (from, to) = (from.trim(), to.trim());
    let ((source, _, width), (target, _, target_width)) = (subfield(from)?, subfield(to)?);
    if !target.info().writable {
        return Err(to.fault("this field cannot be set"));
    }
    let whole = |field: Field, bits: u32| bits == u32::from(field.info().width);
    if width != target_width || !whole(source, width) || !whole(target, target_width) {
        return Err(argument.fault("move takes two whole fields of the same width"));
    }
    Ok(Action::Move { from: source, to: target })
}
