//! The part of a flow that says what happens.

use super::super::ReadOptions;
use super::super::action::HEADERS_PUSHED_MAX;
use super::super::action::{Action, PortNo};
use super::super::error::{Fault, Token, did_you_mean};
use super::known::Known;
use super::write::{load, move_field, set_field};
use super::{split, values};
use crate::packet::fields::Field;
use crate::packet::parse::ether_type;

/// Names of actions, for suggestions.
const NAMES: [&str; 34] = [
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
    "mod_tp_src",
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

/// Actions of Open vSwitch that are not there, and what to do instead.
const ABSENT: [(&str, &str); 30] = [
    ("group", "Flowlane has no groups; flows are shared among the next hops of a [[route_table]]"),
    ("resubmit", "of resubmit Flowlane has `resubmit(,TABLE)` as the last action, which is goto_table"),
    ("ct", "Flowlane has no connection tracking; a [[nat_table]] translates addresses"),
    ("ct_clear", "Flowlane has no connection tracking"),
    ("learn", "Flowlane has no learn; `normal` learns addresses, a [[filter_table]] keys"),
    ("enqueue", "Flowlane has no queues; use output, and meter to limit a rate"),
    ("set_queue", "Flowlane has no queues; meter limits a rate"),
    ("pop_queue", "Flowlane has no queues"),
    ("write_actions", "Flowlane has no action set; write the actions where they are to happen"),
    ("clear_actions", "Flowlane has no action set; leave it out"),
    ("apply_actions", "write the actions themselves"),
    ("conjunction", "Flowlane has no conjunctive matches; write a rule for each combination"),
    ("multipath", "Flowlane has no multipath; flows are shared among the next hops of a [[route_table]]"),
    ("bundle", "Flowlane has no bundles; flows are shared among the next hops of a [[route_table]]"),
    (
        "fin_timeout",
        "the end of a connection changes no time-outs; a rule that is added may have an idle_timeout",
    ),
    ("push", "Flowlane has no stack; move keeps a value in a register"),
    ("pop", "Flowlane has no stack; move takes a value from a register"),
    ("clone", "Flowlane has no clone; actions change the packets that are sent behind them only"),
    ("exit", "leave it out: behind the last action nothing happens"),
    ("note", "leave it out: it does nothing"),
    ("bundle_load", "Flowlane has no bundles; flows are shared among the next hops of a [[route_table]]"),
    ("check_pkt_larger", "Flowlane cannot match the length of packets"),
    ("delete_field", "Flowlane cannot delete fields; pop_vlan and pop_mpls remove headers"),
    ("dec_nsh_ttl", "Flowlane has no NSH"),
    ("debug_recirc", "leave it out: it changes no packet's way"),
    ("debug_slow", "leave it out: it changes no packet's way"),
    ("table", "only a packet of a controller goes to the tables so; use goto_table"),
    ("any", "this is no port that packets can be sent to; write `drop` to drop"),
    ("none", "this is no port that packets can be sent to; write `drop` to drop"),
    ("decap", "a port with `decapsulate` takes outer headers away"),
];

/// Reads the part of a rule behind `actions=`; `known` is known of its packets.
pub(super) fn read(
    text: Token<'_>,
    table: u8,
    mut known: Known,
    options: &ReadOptions<'_>,
) -> Result<Vec<Action>, Fault> {
    // None drop, as in Open vSwitch.
    let tokens = split(text)?;
    let mut actions = Vec::new();
    let mut pushed = 0;
    for (i, token) in tokens.iter().enumerate() {
        if token.text.eq_ignore_ascii_case("drop") {
            match tokens.len() {
                1 => break,
                _ => return Err(token.fault("`drop` is the only action of its rule")),
            }
        }
        let action = action(*token, &known, options)?;
        match action {
            Action::Goto(to) if to <= table => {
                return Err(token.fault(format!("a flow of table {table} can only go on in a later table")));
            }
            Action::Goto(_) if i + 1 < tokens.len() => {
                let name = token.before(":").before("(").text;
                return Err(token.fault(format!("{name} is the last action")));
            }
            _ => pushed += usize::from(action.pushes_header()),
        }
        if pushed > HEADERS_PUSHED_MAX {
            return Err(token.fault(format!("a rule puts at most {HEADERS_PUSHED_MAX} headers on a packet")));
        }
        (options.check_action)(&action).map_err(|problem| token.fault(problem))?;
        known.after(&action);
        actions.push(action);
    }
    Ok(actions)
}

/// `name`, `name:argument` or `name(argument)`. Names are read in capitals, too, as ovs-ofctl prints some.
fn action(token: Token<'_>, known: &Known, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    if token.text.starts_with('"') {
        return output(token, options);
    }
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
        Some(argument) => with_argument(name, argument.trim(), known, options),
    }
}

fn without_argument(name: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    Ok(match name.text.to_ascii_lowercase().as_str() {
        "in_port" => Action::InPort,
        "flood" | "all" => Action::Flood,
        "normal" => Action::Normal,
        "controller" => Action::controller(u16::MAX),
        "pop_vlan" | "strip_vlan" => Action::PopVlan,
        "dec_ttl" => Action::dec_ttl(),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        lower => {
            let is_port = name.text.starts_with(|c: char| c.is_ascii_digit())
                || lower == "local"
                || (options.ports)(name.text).is_some();
            if is_port {
                return port(name, options).map(Action::Output);
            }
            if NAMES.contains(&lower) {
                return Err(name.fault(format!("`{lower}:ARGUMENT` is expected")));
            }
            return Err(unknown(name, "action or port"));
        }
    })
}

/// The fault of an unknown action, with a replacement or the name that was perhaps meant.
fn unknown(name: Token<'_>, kind: &str) -> Fault {
    let lower = name.text.to_ascii_lowercase();
    match ABSENT.iter().find(|(absent, _)| *absent == lower) {
        Some((_, instead)) => name.fault(*instead),
        None => {
            let hint = did_you_mean(&lower, NAMES.into_iter());
            name.fault(format!("there is no such {kind}{hint}"))
        }
    }
}

fn with_argument(
    name: Token<'_>,
    argument: Token<'_>,
    known: &Known,
    options: &ReadOptions<'_>,
) -> Result<Action, Fault> {
    let number = |max: u128| values::number(argument, max);
    let set = |field: Field| {
        let value = values::one(field.info(), argument, options)?;
        Ok(Action::set_field(field, value, field.info().ones()))
    };
    match name.text.to_ascii_lowercase().as_str() {
        "output" => output(argument, options),
        "controller" => controller(argument),
        "sample" => match argument.split("probability=") {
            Some((before, p)) if before.text.is_empty() => {
                Ok(Action::sample(values::number(p, 0xffff)? as u16))
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
        // The two low bits are ECN's and stay.
        "mod_nw_tos" => match number(0xff)? & 3 {
            0 => set(Field::IpDscp),
            _ => Err(argument.fault("the two low bits are not part of the TOS; use mod_nw_ecn")),
        },
        "mod_nw_ecn" => set(Field::IpEcn),
        "mod_nw_ttl" => set(Field::NwTtl),
        "mod_tp_src" => set(Field::TpSrc),
        "mod_tp_dst" => set(Field::TpDst),
        "set_field" => set_field(argument, options, known),
        "load" => load(argument, known),
        "move" => move_field(argument, known),
        "set_tunnel" | "set_tunnel64" => set(Field::TunId),
        "resubmit" => resubmit(name, argument),
        "write_metadata" => {
            let (value, mask) = values::value_mask(Field::Metadata.info(), argument, options)?;
            Ok(Action::set_field(Field::Metadata, value, mask))
        }
        "meter" => Ok(Action::Meter(number(u32::MAX.into())? as u32)),
        "count" => Ok(Action::Count(number(u32::MAX.into())? as u32)),
        "encap" => Ok(Action::Encapsulate(number(u32::MAX.into())? as u32)),
        "goto_table" => Ok(Action::Goto(number(254)? as u8)),
        "dec_ttl" if argument.text.is_empty() => Ok(Action::dec_ttl()),
        "dec_ttl" => {
            Err(argument.fault("there is one controller port: write `dec_ttl`, without identifiers"))
        }
        _ => Err(unknown(name, "action")),
    }
}

/// `65535`, `max_len=65535`, or nothing.
fn controller(argument: Token<'_>) -> Result<Action, Fault> {
    let len = argument.split("max_len=").filter(|(before, _)| before.text.is_empty()).map(|(_, len)| len);
    let len = len.unwrap_or(argument);
    if len.text.is_empty() {
        return Ok(Action::controller(u16::MAX));
    }
    let max_len = values::number(len, 0xffff).map_err(|_| {
        len.fault("the bytes that are kept of a packet are expected, 0 to 65535; what else Open vSwitch has here, Flowlane has not")
    });
    Ok(Action::controller(max_len? as u16))
}

/// `resubmit(,TABLE)`: behind it there is nothing to come back for, so that it is a `goto_table`.
fn resubmit(name: Token<'_>, argument: Token<'_>) -> Result<Action, Fault> {
    match argument.split(",") {
        Some((port, table)) if port.text.is_empty() || port.text.eq_ignore_ascii_case("in_port") => {
            Ok(Action::Goto(values::number(table.trim(), 254)? as u8))
        }
        _ => Err(unknown(name, "action")),
    }
}

/// `output:` and a port by its name or number, or one of OpenFlow's names for more than a port.
fn output(token: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let name = token.text.trim_matches('"');
    if (options.ports)(name).is_none() {
        match name.to_ascii_lowercase().as_str() {
            "in_port" | "flood" | "all" | "normal" | "controller" => return without_argument(token, options),
            "table" | "any" | "none" => return Err(unknown(token, "port")),
            _ if name.contains('[') => {
                return Err(
                    token.fault("Flowlane sends to ports that a rule names, not to one that a field names")
                );
            }
            _ if name.contains("max_len=") => {
                return Err(token.fault("Flowlane sends whole packets; write `output:PORT`"));
            }
            _ => {}
        }
    }
    port(token, options).map(Action::Output)
}

/// A port that packets may be sent to.
pub(super) fn port(token: Token<'_>, options: &ReadOptions<'_>) -> Result<PortNo, Fault> {
    let port = PortNo(values::port(token, options)?);
    match port <= PortNo::MAX && port.0 > 0 || port == PortNo::LOCAL {
        true => Ok(port),
        false => Err(token.fault(format!("a port number is 1 to {}", PortNo::MAX.0))),
    }
}

fn one_of(token: Token<'_>, allowed: &[u16]) -> Result<u16, Fault> {
    let value = values::number(token, 0xffff).ok().map(|n| n as u16).filter(|n| allowed.contains(n));
    value.ok_or_else(|| token.fault(format!("{:#06x} or {:#06x} is expected", allowed[0], allowed[1])))
}
