#![doc = include_str!("README.md")]
//!
//! [`read_changes`] reads lines that add, modify and delete rules.

mod actions;
mod flow_mod;
mod known;
mod matches;
mod print;
#[cfg(test)]
mod tests;
mod values;
mod write;

pub use flow_mod::{Command, FlowMod, read_changes};
pub use print::{print_actions, print_matches, print_rule, print_rules, print_value};

use super::error::{Fault, ReadErrors, Token, read_lines, read_one};
use super::{Action, Match, Priority, ReadOptions, Rule};
use crate::packet::Field;
use known::Known;

/// A line longer than this is refused.
pub const LINE_MAX: usize = 64 * 1024;

/// Reads flows, one a line; `file` is the text's name in errors.
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read(text: &str, file: &str, options: &ReadOptions<'_>) -> Result<Vec<Rule>, ReadErrors> {
    read_lines(text, file, (options.rules_max, "rules"), |line| read_line(line, options))
}

/// Reads actions without a rule, for a verdict of a stateful stage or a next hop: `text` is the part after `actions=` in
/// a rule. The rules that lead there determine the packets, so fields need no prerequisites.
///
/// # Errors
/// The mistakes in them.
pub fn read_actions(text: &str, name: &str, options: &ReadOptions<'_>) -> Result<Vec<Action>, ReadErrors> {
    read_one(text, name, |line| {
        bounded(line)?;
        actions::read(line, options.table_default, Known::anything(), options)
    })
}

fn bounded(line: Token<'_>) -> Result<(), Fault> {
    if line.text.len() <= LINE_MAX {
        return Ok(());
    }
    let head = Token { text: line.text.get(..40).unwrap_or(""), at: 0 };
    Err(head.fault(format!("the line is longer than {LINE_MAX} bytes")))
}

fn read_line(line: Token<'_>, options: &ReadOptions<'_>) -> Result<Rule, Fault> {
    bounded(line)?;
    let (before, after) = split_actions(line).ok_or_else(|| without_actions(line))?;
    let mut rule = Rule { table: options.table_default, ..Rule::new(Match::any(), Vec::new()) };
    rule.matches = read_keys(before, options, |key, value| {
        let taken = attribute(key, value, &mut rule)?;
        if let Some(value) = value.filter(|_| key.text == "table") {
            (options.check_table)(rule.table).map_err(|problem| value.fault(problem))?;
        }
        Ok(taken)
    })?;
    rule.actions = actions::read(after, rule.table, Known::of(&rule.matches), options)?;
    Ok(rule)
}

/// Returns the parts before and after `actions=`.
fn split_actions(line: Token<'_>) -> Option<(Token<'_>, Token<'_>)> {
    line.split("actions=").or_else(|| line.split("action="))
}

fn without_actions(line: Token<'_>) -> Fault {
    let end = Token { text: "", at: line.at + line.text.trim_end().len() };
    end.fault("the line ends without `actions=`; write `actions=drop` to drop")
}

/// Reads the part before the actions: `attribute` takes the keys that are not about packets, and returns whether it did.
fn read_keys(
    text: Token<'_>,
    options: &ReadOptions<'_>,
    mut attribute: impl FnMut(Token<'_>, Option<Token<'_>>) -> Result<bool, Fault>,
) -> Result<Match, Fault> {
    let mut fields = Vec::new();
    for token in split(text)? {
        let (key, value) = match token.split("=") {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (token, None),
        };
        if !attribute(key, value)? {
            fields.push((key, value));
        }
    }
    matches::read(&fields, options)
}

/// Reads a match without actions, as ClassBench-ng prints it: `nw_src=10.0.0.0/8, nw_proto=6, tp_dst=1024..65535`. Ports need no
/// protocol, and fields of IP no EtherType: they are those of IPv4 then.
pub(super) fn read_tuple(line: Token<'_>, options: &ReadOptions<'_>) -> Result<Match, Fault> {
    bounded(line)?;
    let (mut fields, mut ports) = (Vec::new(), Vec::new());
    for token in split(line)? {
        let (key, value) =
            token.split("=").map(|(key, value)| (key.trim(), value.trim())).ok_or_else(|| {
                token.fault("`field=value` is expected, as ClassBench-ng prints it, or `@source/length`")
            })?;
        match key.text {
            "tp_src" => ports.push((Field::TpSrc, value)),
            "tp_dst" => ports.push((Field::TpDst, value)),
            _ => fields.push((key, Some(value))),
        }
    }
    let has_type = fields.iter().any(|(key, _)| ["dl_type", "eth_type"].contains(&key.text));
    if !has_type && (!ports.is_empty() || fields.iter().any(|(key, _)| key.text.starts_with("nw_"))) {
        fields.push((Token { text: "ip", at: line.at }, None));
    }
    let mut out = matches::read(&fields, options)?;
    for (field, value) in ports {
        let (low, high) = value.split("..").unwrap_or((value, value));
        let port = |token| values::number(token, u16::MAX.into()).map(|port| port as u16);
        let (low, high) = (port(low)?, port(high)?);
        if low > high {
            let problem =
                format!("port range {low}..{high} is empty; write the smaller port first ({high}..{low})");
            return Err(value.fault(problem));
        }
        out.set_range(field, low, high);
    }
    Ok(out)
}

/// The number behind `key`.
fn number(key: Token<'_>, value: Option<Token<'_>>, max: u64) -> Result<u64, Fault> {
    let value = value.ok_or_else(|| key.fault(format!("`{}=NUMBER` is expected", key.text)))?;
    values::number(value, max.into()).map(|n| n as u64)
}

/// Reads a key that is about the rule and not about packets. Returns whether `key` is one.
fn attribute(key: Token<'_>, value: Option<Token<'_>>, rule: &mut Rule) -> Result<bool, Fault> {
    let number = |max: u64| number(key, value, max);
    match key.text {
        "table" => rule.table = number(254)? as u8,
        // As in OpenFlow.
        "priority" => rule.priority = Priority(number(u16::MAX.into())? as u32),
        "cookie" => rule.cookie = number(u64::MAX)?,
        // Printed by dump-flows with the flow.
        "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
        "idle_timeout" | "hard_timeout" => {
            let problem = "only rules that are added while the switch runs have time-outs; leave it out, and the rule stays";
            return Err(key.fault(problem));
        }
        "importance" | "send_flow_rem" | "check_overlap" | "reset_counts" | "no_packet_counts"
        | "no_byte_counts" | "out_group" => {
            return Err(key.fault("Open vSwitch has this, Flowlane does not; leave it out"));
        }
        "out_port" => {
            return Err(
                key.fault("only `delete` and `delete_strict` ask where rules send packets; leave it out")
            );
        }
        // Without it, the rule would be for more packets than was meant.
        name if name.starts_with("ct_") || FIELDS_ABSENT.contains(&name) => {
            let problem = "Flowlane cannot match this: the rule cannot be taken over, since without it it would match more";
            return Err(key.fault(problem));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Fields that Open vSwitch matches and Flowlane does not, in addition to connection tracking.
const FIELDS_ABSENT: [&str; 8] = [
    "conj_id",
    "tunnel_flags",
    "packet_type",
    "dp_hash",
    "actset_output",
    "in_port_oxm",
    "skb_priority",
    "ipv6_exthdr",
];

/// Splits at commas and white space that stand in no parentheses and no quotes.
fn split(text: Token<'_>) -> Result<Vec<Token<'_>>, Fault> {
    let mut out = Vec::new();
    let (mut from, mut depth, mut quoted) = (0, 0usize, false);
    for (at, c) in text.text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                let close = text.part(at, at + 1);
                depth = depth.checked_sub(1).ok_or_else(|| close.fault("there is no `(` to this `)`"))?;
            }
            c if !quoted && depth == 0 && (c == ',' || c.is_whitespace()) => {
                out.push(text.part(from, at));
                from = at + c.len_utf8();
            }
            _ => {}
        }
    }
    let last = text.part(from, text.text.len());
    if depth > 0 || quoted {
        return Err(last.fault(if quoted { "a quote is not closed" } else { "a `(` is not closed" }));
    }
    out.push(last);
    out.retain(|t| !t.text.is_empty());
    Ok(out)
}
