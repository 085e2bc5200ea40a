#![doc = include_str!("README.md")]
//!
//! [`read_changes`] reads lines that add, modify and delete rules, and [`read_groups`] groups.

mod actions;
mod check;
mod consistent;
mod dump;
mod entry;
mod flow_mod;
mod groups;
mod known;
mod matches;
mod names;
mod openflow;
mod print;
mod print_action;
#[cfg(test)]
mod tests;
mod values;
mod write;

pub use actions::{ACTIONS, ActionInfo};
pub use consistent::is_consistent;
pub use dump::dumped_ports;
pub use entry::{Entry, read_entries};
pub use flow_mod::{Command, FlowFlags, FlowMod, read_changes};
pub use groups::{print_group, read_groups};
pub use matches::protocols;
pub use print::{
    TooManyFlows, print_actions, print_key, print_matches, print_openflow_rules, print_rule, print_rules,
    print_value,
};

use std::collections::{HashMap, hash_map};

use super::error::{Fault, ReadErrors, Token, read_lines_of_several, read_one};
use super::{Action, Match, Priority, ReadOptions, Rule};
use crate::packet::Field;
use known::Known;

/// A line longer than this is refused.
pub const LINE_MAX: usize = 64 * 1024;

/// A line whose ranges multiply the text of its actions to more than this is refused.
const EXPANDED_MAX: usize = 16 * LINE_MAX;

/// Reads flows, one a line; `file` is the text's name in errors.
///
/// A flow with the table, priority and match of an earlier one replaces that one, as in OpenFlow (1.3.5, 6.4), and takes its
/// place in the list.
///
/// Time-outs, importance and flags such as `send_flow_rem` change no packet's way, and are no part of a [`Rule`]: they are
/// checked here, and [`read_changes`] returns them with the same rules.
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read(text: &str, file: &str, options: &ReadOptions<'_>) -> Result<Vec<Rule>, ReadErrors> {
    let limit = (options.rules_max, "rules");
    read_lines_of_several(text, file, limit, |_, line, rules| read_line(line, options, rules)).map(in_force)
}

/// The rules that no later one replaces, each in the place of the first that it replaces.
pub fn in_force(rules: Vec<Rule>) -> Vec<Rule> {
    let mut places: HashMap<(u8, Priority, &Match), usize> = HashMap::with_capacity(rules.len());
    let mut latest = Vec::with_capacity(rules.len());
    for (n, rule) in rules.iter().enumerate() {
        match places.entry((rule.table, rule.priority, &rule.matches)) {
            hash_map::Entry::Occupied(place) => latest[*place.get()] = n,
            hash_map::Entry::Vacant(place) => {
                place.insert(latest.len());
                latest.push(n);
            }
        }
    }
    drop(places);
    if latest.len() == rules.len() {
        return rules;
    }
    let mut rules: Vec<Option<Rule>> = rules.into_iter().map(Some).collect();
    latest.into_iter().filter_map(|n| rules[n].take()).collect()
}

/// Reads actions without a rule, for a verdict of a stateful stage or a next hop: `text` is the part after `actions=` in
/// a rule. The rules that lead there determine the packets, so fields need no prerequisites.
///
/// # Errors
/// The mistakes in them.
pub fn read_actions(text: &str, name: &str, options: &ReadOptions<'_>) -> Result<Vec<Action>, ReadErrors> {
    read_one(text, name, |line| {
        bounded(line)?;
        let line = line.without_comment();
        if line.text.trim().is_empty() {
            return Err(line.fault("an action is expected; write `drop` to drop"));
        }
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

/// Refuses long actions that ranges multiply: each rule of a range has its own.
fn check_expansion(rules: usize, actions: Token<'_>) -> Result<(), Fault> {
    if rules == 1 || rules.saturating_mul(actions.text.len()) <= EXPANDED_MAX {
        return Ok(());
    }
    let most = EXPANDED_MAX / rules;
    let head = Token { text: actions.text.get(..40).unwrap_or(""), at: actions.at };
    Err(head
        .fault(format!("the ranges make {rules} rules of this line: their actions may have {most} bytes")))
}

/// Adds the rules of a line to `rules`: one, or several for a range of ICMP types; none for the header of a dump.
fn read_line(line: Token<'_>, options: &ReadOptions<'_>, rules: &mut Vec<Rule>) -> Result<(), Fault> {
    bounded(line)?;
    if dump::is_header(line) {
        return Ok(());
    }
    let line = line.without_comment();
    let (before, after) = split_actions(line).ok_or_else(|| without_actions(line))?;
    let mut rule = Rule { table: options.table_default, ..Rule::new(Match::any(), Vec::new()) };
    let matches = read_keys(before, options, |key, value| {
        let taken = attribute(key, value, &mut rule)?;
        if let Some(value) = value.filter(|_| key.text == "table") {
            (options.check_table)(rule.table).map_err(|problem| value.fault(problem))?;
        }
        Ok(taken)
    })?;
    check_expansion(matches.len(), after)?;
    for matches in matches {
        let actions = actions::read(after, rule.table, Known::of(&matches), options)?;
        rules.push(Rule { matches, actions, ..rule });
    }
    Ok(())
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
/// More than one match together are what the part asks for.
fn read_keys(
    text: Token<'_>,
    options: &ReadOptions<'_>,
    mut attribute: impl FnMut(Token<'_>, Option<Token<'_>>) -> Result<bool, Fault>,
) -> Result<Vec<Match>, Fault> {
    let mut fields = Vec::new();
    for token in split(text)? {
        let (key, value) = key_value(token)?;
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
    let mut all = matches::read(&fields, options)?;
    if all.len() > 1 {
        return Err(line.fault("this range of ICMP types is several rules; write one for each type"));
    }
    let mut out = all.remove(0);
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

/// The parts of `key`, `key=value`, `key:value` or `key(value)`.
fn key_value(token: Token<'_>) -> Result<(Token<'_>, Option<Token<'_>>), Fault> {
    let Some(end) = token.text.find(['=', ':', '(']) else { return Ok((token, None)) };
    let (key, value) = (token.part(0, end).trim(), token.part(end + 1, token.text.len()));
    match token.text[end..].starts_with('(') {
        false => Ok((key, Some(value.trim()))),
        true if value.text == ")" => Ok((key, None)),
        true if value.text.ends_with(')') => Ok((key, Some(value.part(0, value.text.len() - 1).trim()))),
        true => Err(token.fault("`)` is expected at the end")),
    }
}

/// The number behind `key`.
fn number(key: Token<'_>, value: Option<Token<'_>>, max: u64) -> Result<u64, Fault> {
    let value = value.ok_or_else(|| key.fault(format!("`{}=NUMBER` is expected", key.text)))?;
    // All ones, as Open vSwitch reads it for a cookie.
    if value.text == "-1" && max == u64::MAX {
        return Ok(max);
    }
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
        "duration" | "n_packets" | "n_bytes" | "n_offload_packets" | "n_offload_bytes" | "idle_age"
        | "hard_age" => {}
        // They change no packet's way: `read_changes` has them for those who keep rules.
        "idle_timeout" | "hard_timeout" | "importance" => _ = number(u16::MAX.into())?,
        name if FlowFlags::named(name).is_some() => {}
        "out_port" | "out_group" => {
            return Err(
                key.fault("only `delete` and `delete_strict` ask where rules send packets; leave it out")
            );
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Splits at commas that stand in no parentheses and no brackets; parts may be empty.
fn commas(text: Token<'_>) -> Vec<Token<'_>> {
    let (mut out, mut from, mut depth) = (Vec::new(), 0, 0usize);
    for (at, c) in text.text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(text.part(from, at).trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push(text.part(from, text.text.len()).trim());
    out
}

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
