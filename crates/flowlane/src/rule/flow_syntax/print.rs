//! Rules as text, so that reading it gives the same rule.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::action::SetForm;
use super::super::{Action, Match, Priority, Rule};
use super::known::{Known, Names};
use super::matches::SHORTHANDS;
use super::openflow;
use super::print_action::list;
use super::values::{FRAGMENTS, flag_names, reserved_port};
use crate::packet::FieldRef;
use crate::packet::fields::{Field, FieldInfo, Form, TUN_METADATA_COUNT, VLAN_PRESENT, word};
use crate::packet::key::{FlowKey, FlowMask};

/// Rules as lines, so that reading them gives the same rules. Of rules with one table, priority and match the first is printed,
/// which is the one that packets meet.
///
/// Where a priority is beyond the 65535 that the language has, as filters' in ClassBench's format may be, all are renumbered
/// from 1 on, and the best come first. More than 65535 different ones share numbers with their neighbours: of rules of
/// one number, the first line wins here, and Open vSwitch leaves it open.
pub fn print_rules(rules: &[Rule]) -> String {
    let mut printed: HashSet<(u8, Priority, &Match)> = HashSet::with_capacity(rules.len());
    let mut out = String::new();
    let mut line = |rule: &'_ Rule, matches, priority| {
        if printed.insert((rule.table, priority, matches)) {
            out += &(print_with(rule, priority) + "\n");
        }
    };
    let most = u64::from(u16::MAX);
    if rules.iter().all(|rule| u64::from(rule.priority.0) <= most) {
        rules.iter().for_each(|rule| line(rule, &rule.matches, rule.priority));
        return out;
    }
    let mut sorted: Vec<&Rule> = rules.iter().collect();
    sorted.sort_by_key(|rule| Reverse(rule.priority));
    let runs: Vec<&[&Rule]> = sorted.chunk_by(|a, b| a.priority == b.priority).collect();
    let distinct = runs.len() as u64;
    let number = |rank: u64| Priority((rank * most.min(distinct)).div_ceil(distinct) as u32);
    for (run, rank) in runs.into_iter().zip((1..=distinct).rev()) {
        run.iter().for_each(|rule| line(rule, &rule.matches, number(rank)));
    }
    out
}

/// Rules that would become more flows of Open vSwitch than are allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "with the rule at position {position} (`{rule}`), the rules become more than {rules_max} flows of Open vSwitch"
)]
pub struct TooManyFlows {
    /// The first rule with which they are too many: its place in the list, from 0.
    pub position: usize,
    /// The rule, as a line.
    pub rule: String,
    /// The limit.
    pub rules_max: usize,
}

/// Rules as lines that `ovs-ofctl` reads, too, and that match the same packets: a rule becomes several where it has what Open
/// vSwitch's matches cannot express, `openflow.rs` says how. Fields and actions that only Flowlane has stay as they are.
///
/// # Errors
/// Where the rules become more than `rules_max`; found before they are made.
pub fn print_openflow_rules(rules: &[Rule], rules_max: usize) -> Result<String, TooManyFlows> {
    let mut left = rules_max;
    for (position, rule) in rules.iter().enumerate() {
        let count = openflow::count(&rule.matches, left);
        let too_many = || TooManyFlows { position, rule: print_rule(rule), rules_max };
        left = left.checked_sub(count).ok_or_else(too_many)?;
    }
    let several = |rule: &Rule| {
        let one = |matches| Rule { matches, ..rule.clone() };
        openflow::matches(&rule.matches).into_iter().map(one).collect::<Vec<_>>()
    };
    Ok(print_rules(&rules.iter().flat_map(several).collect::<Vec<_>>()))
}

/// A rule as one line.
pub fn print_rule(rule: &Rule) -> String {
    print_with(rule, rule.priority)
}

fn print_with(rule: &Rule, priority: Priority) -> String {
    let mut out = format!("table={},priority={priority}", rule.table);
    if rule.cookie != 0 {
        let _ = write!(out, ",cookie={:#x}", rule.cookie);
    }
    let matches = print_matches(&rule.matches);
    if !matches.is_empty() {
        let _ = write!(out, ",{matches}");
    }
    let _ = write!(out, " actions={}", list(&rule.actions, &Known::of(&rule.matches)));
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
    let known = Known::of(matches);
    shorthand(matches, &mut left, &mut parts);
    for info in Field::all() {
        let (value, bits) = (key.get(info.field), left.get(info.field));
        let readable = bits == info.ones()
            || info.maskable
            || info.field == Field::IpFrag
            || block(info, value & bits, bits).is_some();
        if bits == 0 || !readable || known.lacks_to_match(info.field, info.name).is_some() {
            continue;
        }
        if info.field == Field::IpFrag && fragment(value & bits, bits).is_none() {
            continue;
        }
        if let Some(number) = info.field.tun_metadata_number() {
            // Its value is written with its presence only.
            let present = left.get(Field::TunMetadataPresent) & key.get(Field::TunMetadataPresent);
            if present >> number & 1 == 0 {
                continue;
            }
            left.set(Field::TunMetadataPresent, left.get(Field::TunMetadataPresent) & !(1 << number));
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
                let number = word::number_of(word::PORTS);
                parts.push(format!("word{number}={:#x}/{:#x}", value << shift, bits << shift));
            }
        }
    }
    for number in 0..TUN_METADATA_COUNT {
        let bits = left.get(Field::TunMetadataPresent);
        if (bits & key.get(Field::TunMetadataPresent)) >> number & 1 != 0 {
            left.set(Field::TunMetadataPresent, bits & !(1 << number));
            parts.push(format!("tun_metadata{number}"));
        }
    }
    parts.extend(words(&key, &left));
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
    if info.field == Field::VlanTci && mask == 0xf000 && value & u128::from(VLAN_PRESENT) != 0 {
        return format!("dl_vlan_pcp={}", value >> 13);
    }
    // By these names, VID and priority would imply that there is a tag.
    if matches!(info.field, Field::VlanVid | Field::VlanPcp) {
        unreachable!("vlan_tci comes first and holds their bits");
    }
    match block(info, value, mask) {
        Some((first, last)) if mask != info.ones() => format!("{}={first}-{last}", info.name),
        _ => format!("{}={}", info.name, masked(info, value, mask)),
    }
}

/// The first and the last ICMP type (or code) of a mask that is a prefix.
fn block(info: &FieldInfo, value: u128, mask: u128) -> Option<(u128, u128)> {
    let is_icmp = matches!(info.field, Field::IcmpType | Field::IcmpCode);
    let others = info.ones() & !mask;
    (is_icmp && (others + 1).is_power_of_two()).then_some((value, value | others))
}

/// The bits `mask` of a packet's key, by the names of its fields. This is no match that is read back: fields stand without their
/// prerequisites, and any of them with a mask.
pub fn print_key(key: &FlowKey, mask: &FlowMask) -> String {
    let mut packet = Match::any();
    for field in [Field::EthType, Field::NwProto, Field::IcmpType, Field::VlanTci] {
        packet.set(field, key.get(field));
    }
    let known = Known::of(&packet);
    let (mut parts, mut left) = (Vec::new(), mask.clone());
    shorthand(&Match::from_key(key, mask), &mut left, &mut parts);
    // First the fields that the packet has, then others in the same words, which are 0 in its key.
    for all in [false, true] {
        for info in Field::all().iter().chain([Field::NdOptions.info(), Field::TunMetadataPresent.info()]) {
            let bits = left.get(info.field);
            if bits != 0 && (all || known.lacks_to_match(info.field, info.name).is_none()) {
                left.set(info.field, 0);
                parts.push(field(info, key.get(info.field) & bits, bits));
            }
        }
    }
    parts.extend(words(key, &left));
    parts.join(",")
}

/// Bits of a key by the indices of their words.
fn words(key: &FlowKey, left: &FlowMask) -> impl Iterator<Item = String> {
    left.present_words().filter(|&w| left.word(w) != 0).map(|w| {
        let number = word::number_of(w);
        format!("word{number}={:#x}/{:#x}", key.word(w) & left.word(w), left.word(w))
    })
}

/// The name of fragments of these bits.
fn fragment(value: u128, mask: u128) -> Option<&'static str> {
    let named = FRAGMENTS.iter().find(|(_, v, m)| (value, mask) == ((*v).into(), (*m).into()));
    named.map(|(name, ..)| *name)
}

/// A field with a value, as in a match.
pub fn print_value(field: Field, value: u128) -> String {
    let info = field.info();
    format!("{}={}", info.name, masked(info, value, info.ones()))
}

/// `new|trk`, where the bits of a value all have names, and there is one.
fn all_flags(form: Form, value: u128) -> Option<String> {
    let flags = flags(form, value, value).filter(|flags| !flags.is_empty())?;
    Some(flags[1..].replace('+', "|"))
}

/// `+trk-new`, where these bits all have names.
fn flags(form: Form, value: u128, mask: u128) -> Option<String> {
    if !matches!(form, Form::CtState | Form::TunFlags) {
        return None;
    }
    let bits = (0..128).filter(|bit| mask >> bit & 1 != 0);
    let one = |bit: usize| {
        let name = flag_names(form).get(bit).filter(|name| !name.is_empty())?;
        Some(format!("{}{name}", if value >> bit & 1 == 0 { '-' } else { '+' }))
    };
    bits.map(one).collect::<Option<Vec<_>>>().map(|flags| flags.concat())
}

/// A value with its mask, where that is not all ones.
pub(super) fn masked(info: &FieldInfo, value: u128, mask: u128) -> String {
    if let Some(name) = fragment(value, mask).filter(|_| info.form == Form::Frag) {
        return name.to_owned();
    }
    let one = |n: u128| match info.form {
        Form::Tos => (n << 2).to_string(),
        Form::Port => reserved_port(n).map_or_else(|| n.to_string(), str::to_owned),
        Form::Decimal | Form::Frag => n.to_string(),
        Form::Hex | Form::TcpFlags | Form::CtState | Form::TunFlags => format!("{n:#x}"),
        Form::PacketType => format!("({},{:#x})", n >> 16, n & 0xffff),
        Form::Ipv4 => Ipv4Addr::from(n as u32).to_string(),
        Form::Ipv6 => Ipv6Addr::from(n).to_string(),
        Form::Mac => {
            let bytes = (0..6).rev().map(|i| format!("{:02x}", (n >> (8 * i)) as u8));
            bytes.collect::<Vec<_>>().join(":")
        }
    };
    if mask == info.ones() {
        return all_flags(info.form, value).unwrap_or_else(|| one(value));
    }
    if let Some(flags) = flags(info.form, value, mask) {
        return flags;
    }
    let aligned = mask << (128 - u32::from(info.width));
    let is_prefix = aligned.leading_ones() == aligned.count_ones();
    match info.form {
        Form::Ipv4 | Form::Ipv6 if is_prefix => format!("{}/{}", one(value), aligned.leading_ones()),
        Form::Decimal | Form::Port => format!("{}/{mask:#x}", one(value)),
        _ => format!("{}/{}", one(value), one(mask)),
    }
}

/// The action that sets some bits of a field.
pub(super) fn assignment(info: &FieldInfo, value: u128, mask: u128, form: SetForm, names: Names) -> String {
    let takes_mask = mask == info.ones() || info.field == Field::Metadata;
    if let Some(name) = form.own_action(info.field).filter(|_| takes_mask) {
        return format!("{name}:{}", masked(info, value, mask));
    }
    let part = FieldRef::of_mask(info.field, mask);
    let load = |part: FieldRef| match info.form {
        Form::Tos if part.is_whole() => format!("load:{:#x}->{}", value << 2, info.name),
        _ => format!("load:{:#x}->{}", part.extract(value), names.assigned(part)),
    };
    if let Some(part) = part.filter(|_| form == SetForm::Load) {
        return load(part);
    }
    // By this name, the VLAN takes a mask, and has the bit that says that there is a tag.
    if info.field == Field::VlanVid && form == SetForm::SetField {
        let present = u128::from(VLAN_PRESENT);
        return match mask == info.ones() {
            true => format!("set_field:{}->vlan_vid", value | present),
            false => format!("set_field:{value:#x}/{mask:#x}->vlan_vid"),
        };
    }
    // By the other name, a tag is added where there is none.
    if info.field == Field::VlanPcp && form == SetForm::SetField && mask == info.ones() {
        return format!("set_field:{value}->vlan_pcp");
    }
    if mask == info.ones() || info.maskable || mask == 0 {
        return format!("set_field:{}->{}", masked(info, value, mask), names.of(info.field));
    }
    if let Some(part) = part {
        return load(part);
    }
    // No reader makes such an action.
    format!("set_field:{value:#x}/{mask:#x}->{}", names.of(info.field))
}

/// A list of actions; `drop` where there are none.
pub fn print_actions(actions: &[Action]) -> String {
    list(actions, &Known::default())
}

/// `reg0`, or `reg0[8..15]` where it is not the whole field.
impl fmt::Display for FieldRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Names::default().part(*self))
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
