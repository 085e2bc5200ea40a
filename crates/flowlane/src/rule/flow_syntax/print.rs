//! Rules as text, so that reading it gives the same rule.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::{Action, Match, Rule};
use super::matches::{SHORTHANDS, missing};
use super::values::FRAGMENTS;
use crate::packet::fields::{Field, FieldInfo, Form, VLAN_PRESENT};
use crate::packet::key::FlowMask;

/// A rule as one line.
pub fn print_rule(rule: &Rule) -> String {
    let mut out = format!("table={},priority={}", rule.table, rule.priority);
    if rule.cookie != 0 {
        let _ = write!(out, ",cookie={:#x}", rule.cookie);
    }
    let matches = print_matches(&rule.matches);
    if !matches.is_empty() {
        let _ = write!(out, ",{matches}");
    }
    let _ = write!(out, " actions={}", print_actions(&rule.actions));
    out
}

/// A match; empty where everything matches.
pub fn print_matches(matches: &Match) -> String {
    let (key, mask) = (matches.key(), matches.mask());
    let mut parts: Vec<String> = Vec::new();
    let mut left = mask.clone();
    // Ranges are printed on their own; the mask counts them in full.
    for (field, range) in [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())] {
        if range.is_some() {
            left.set(field, 0);
        }
    }
    shorthand(matches, &mut left, &mut parts);
    for info in Field::all() {
        let (value, bits) = (key.get(info.field), left.get(info.field));
        if bits == 0 || missing(info.field, matches).is_some() {
            continue;
        }
        left.set(info.field, 0);
        parts.push(field(info, value & bits, bits));
    }
    for (field, range) in [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())] {
        if let Some(range) = range {
            parts.push(format!("{}={}-{}", field.info().name, range.low(), range.high()));
            // A mask beside a range, which no reader makes: as a word.
            let (value, bits) = matches.get(field);
            if bits != 0 {
                let shift = if field == Field::TpSrc { 16 } else { 0 };
                parts.push(format!("word38={:#x}/{:#x}", value << shift, bits << shift));
            }
        }
    }
    for w in left.present_words().filter(|&w| left.word(w) != 0) {
        parts.push(format!("word{w}={:#x}/{:#x}", key.word(w) & left.word(w), left.word(w)));
    }
    parts.join(",")
}

/// Prints EtherType and protocol as `tcp6` and the like, where there is such a name.
fn shorthand(matches: &Match, left: &mut FlowMask, parts: &mut Vec<String>) {
    let (eth_type, type_mask) = matches.get(Field::EthType);
    let (proto, proto_mask) = matches.get(Field::NwProto);
    if type_mask != 0xffff {
        return;
    }
    let with_proto = SHORTHANDS
        .iter()
        .find(|s| u128::from(s.1) == eth_type && proto_mask == 0xff && s.2.map(u128::from) == Some(proto));
    let without = SHORTHANDS.iter().find(|s| u128::from(s.1) == eth_type && s.2.is_none());
    if with_proto.is_some() {
        left.set(Field::NwProto, 0);
    }
    if let Some(shorthand) = with_proto.or(without) {
        left.set(Field::EthType, 0);
        parts.push(shorthand.0.to_owned());
    }
}

fn field(info: &FieldInfo, value: u128, mask: u128) -> String {
    if info.field == Field::VlanTci && mask == 0x1fff && value & u128::from(VLAN_PRESENT) != 0 {
        return format!("dl_vlan={}", value & 0xfff);
    }
    // By these names, VID and priority would imply that there is a tag.
    if matches!(info.field, Field::VlanVid | Field::VlanPcp) {
        unreachable!("vlan_tci comes first and holds their bits");
    }
    format!("{}={}", info.name, print_value(info, value, mask))
}

/// A value with its mask, where that is not all ones.
fn print_value(info: &FieldInfo, value: u128, mask: u128) -> String {
    if info.form == Form::Frag
        && let Some((name, ..)) =
            FRAGMENTS.iter().find(|(_, v, m)| (value, mask) == ((*v).into(), (*m).into()))
    {
        return (*name).to_owned();
    }
    let one = |n: u128| match info.form {
        Form::Decimal | Form::Port | Form::Frag => n.to_string(),
        Form::Hex | Form::TcpFlags => format!("{n:#x}"),
        Form::Ipv4 => Ipv4Addr::from(n as u32).to_string(),
        Form::Ipv6 => Ipv6Addr::from(n).to_string(),
        Form::Mac => {
            let bytes = (0..6).rev().map(|i| format!("{:02x}", (n >> (8 * i)) as u8));
            bytes.collect::<Vec<_>>().join(":")
        }
    };
    if mask == info.ones() {
        return one(value);
    }
    let aligned = mask << (128 - u32::from(info.width));
    let is_prefix = aligned.leading_ones() == aligned.count_ones();
    match info.form {
        Form::Ipv4 | Form::Ipv6 if is_prefix => format!("{}/{}", one(value), aligned.leading_ones()),
        Form::Decimal | Form::Port => format!("{}/{mask:#x}", one(value)),
        _ => format!("{}/{}", one(value), one(mask)),
    }
}

/// A list of actions; `drop` where there are none.
pub fn print_actions(actions: &[Action]) -> String {
    if actions.is_empty() {
        return "drop".to_owned();
    }
    actions.iter().map(Action::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Output(port) => write!(f, "output:{}", port.0),
            Action::InPort => f.write_str("in_port"),
            Action::Flood => f.write_str("flood"),
            Action::Normal => f.write_str("normal"),
            Action::Controller { max_len: u16::MAX } => f.write_str("controller"),
            Action::Controller { max_len } => write!(f, "controller:{max_len}"),
            Action::Sample { probability } => write!(f, "sample(probability={probability})"),
            Action::PushVlan(tpid) => write!(f, "push_vlan:{tpid:#06x}"),
            Action::PopVlan => f.write_str("pop_vlan"),
            Action::PushMpls(eth_type) => write!(f, "push_mpls:{eth_type:#06x}"),
            Action::PopMpls(eth_type) => write!(f, "pop_mpls:{eth_type:#06x}"),
            Action::SetField { field, value, mask } => {
                let info = field.info();
                write!(f, "set_field:{}->{}", print_value(info, *value, *mask), info.name)
            }
            Action::Move { from, to } => write!(f, "move:{}->{}", from.info().name, to.info().name),
            Action::DecTtl => f.write_str("dec_ttl"),
            Action::DecMplsTtl => f.write_str("dec_mpls_ttl"),
            Action::Meter(meter) => write!(f, "meter:{meter}"),
            Action::Count(counter) => write!(f, "count:{counter}"),
            Action::Encapsulate(tunnel) => write!(f, "encap:{tunnel}"),
            Action::Goto(table) => write!(f, "goto_table:{table}"),
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_matches(self))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_rule(self))
    }
}
