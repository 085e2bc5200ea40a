//! The part of a flow that says what happens.

mod ct;
mod described;
mod hashes;
mod headers;
mod learn;
mod outputs;

pub use described::{ACTIONS, ActionInfo};
pub(super) use learn::learned;
pub(super) use outputs::{REASONS, port};

use super::super::ReadOptions;
use super::super::action::{Action, HEADERS_PUSHED_MAX, NESTING_MAX, SetForm};
use super::super::error::{Fault, Token, did_you_mean};
use super::known::Known;
use super::names::{self, popped_part, read_part, written_part};
use super::write::{load, move_field, own, set_field};
use super::{split, values};
use crate::packet::fields::Field;
use crate::packet::parse::ether_type;

/// Names of actions without arguments, and the actions.
static PLAIN: [(&str, Action); 14] = [
    ("in_port", Action::InPort),
    ("flood", Action::Flood),
    ("all", Action::All),
    ("normal", Action::Normal),
    ("pop_vlan", Action::PopVlan),
    ("strip_vlan", Action::PopVlan),
    ("dec_ttl", Action::DecTtl(Vec::new())),
    ("dec_mpls_ttl", Action::DecMplsTtl),
    ("dec_nsh_ttl", Action::DecNshTtl),
    ("pop_queue", Action::PopQueue),
    ("clear_actions", Action::ClearActions),
    ("ct_clear", Action::ClearConnection),
    ("exit", Action::Exit),
    ("decap", Action::Decapsulate(None)),
];

/// Names of actions that set a field.
static OWN: [(&str, Field, SetForm); 20] = [
    ("mod_vlan_vid", Field::VlanVid, SetForm::Own),
    ("set_vlan_vid", Field::VlanVid, SetForm::Own),
    ("mod_vlan_pcp", Field::VlanPcp, SetForm::Own),
    ("set_vlan_pcp", Field::VlanPcp, SetForm::Own),
    ("set_mpls_label", Field::MplsLabel, SetForm::Own),
    ("set_mpls_tc", Field::MplsTc, SetForm::Own),
    ("set_mpls_ttl", Field::MplsTtl, SetForm::Own),
    ("mod_dl_src", Field::EthSrc, SetForm::Own),
    ("mod_dl_dst", Field::EthDst, SetForm::Own),
    ("mod_nw_src", Field::Ipv4Src, SetForm::Own),
    ("mod_nw_dst", Field::Ipv4Dst, SetForm::Own),
    ("mod_nw_tos", Field::IpDscp, SetForm::Own),
    ("mod_nw_ecn", Field::IpEcn, SetForm::Own),
    ("mod_nw_ttl", Field::NwTtl, SetForm::Own),
    ("mod_tp_src", Field::TpSrc, SetForm::Own),
    ("mod_tp_dst", Field::TpDst, SetForm::Own),
    ("set_tunnel", Field::TunId, SetForm::Own),
    ("set_tunnel64", Field::TunId, SetForm::SetTunnel64),
    ("write_metadata", Field::Metadata, SetForm::Own),
    ("set_nw_ttl", Field::NwTtl, SetForm::Own),
];

/// Actions that Open vSwitch reads, or its newer versions, and Flowlane does not; and what to do instead.
const ABSENT: [(&str, &str); 8] = [
    ("apply_actions", "write the actions themselves, as for Open vSwitch"),
    (
        "debug_recirc",
        "it is for Open vSwitch's own tests, which look a packet up again; leave it out: it changes no packet's way",
    ),
    (
        "debug_slow",
        "it is for Open vSwitch's own tests, of packets' slow path; leave it out: it changes no packet's way",
    ),
    ("table", "packets of controllers go to the tables so; in a rule, write `resubmit(,0)`"),
    ("any", "this is no port that packets can be sent to; write `drop` to drop"),
    ("none", "this is no port that packets can be sent to; write `drop` to drop"),
    ("set_nw_ttl", "Open vSwitch has no such action; write mod_nw_ttl"),
    ("nat", "addresses are translated by connection: write `ct(commit,nat(…))`"),
];

/// The place of a list of actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a rule, or alone.
    Rule,
    /// In `clone`.
    Clone,
    /// In `write_actions`.
    ActionSet,
    /// In the `exec` of `ct`.
    Connection,
}

/// Reads the part of a rule behind `actions=`; `known` is known of its packets.
pub(super) fn read(
    text: Token<'_>,
    table: u8,
    known: Known,
    options: &ReadOptions<'_>,
) -> Result<Vec<Action>, Fault> {
    Reader { options, table, known, place: Place::Rule, depth: 1, pushed: 0 }.list(text)
}

/// Reads the actions of a group's bucket.
pub(super) fn read_bucket(tokens: &[Token<'_>], options: &ReadOptions<'_>) -> Result<Vec<Action>, Fault> {
    let known = Known::anything();
    Reader { options, table: 0, known, place: Place::ActionSet, depth: 1, pushed: 0 }.actions(tokens)
}

/// Reads a list of actions.
struct Reader<'a> {
    options: &'a ReadOptions<'a>,
    /// The table of the rule.
    table: u8,
    /// The properties of the packets at the action that is read.
    known: Known,
    place: Place,
    /// Lists around the actions, with their own.
    depth: usize,
    /// Headers that the actions so far put on a packet.
    pushed: usize,
}

impl Reader<'_> {
    /// None drop, as in Open vSwitch.
    fn list(&mut self, text: Token<'_>) -> Result<Vec<Action>, Fault> {
        self.actions(&split(text)?)
    }

    fn actions(&mut self, tokens: &[Token<'_>]) -> Result<Vec<Action>, Fault> {
        let mut actions = Vec::new();
        for (i, token) in tokens.iter().enumerate() {
            if token.text.eq_ignore_ascii_case("drop") {
                match tokens.len() {
                    1 => break,
                    _ => return Err(token.fault("`drop` is the only action of its rule")),
                }
            }
            let action = self.action(*token)?;
            self.check(*token, &action, &actions, i + 1 < tokens.len())?;
            (self.options.check_action)(&action).map_err(|problem| token.fault(problem))?;
            self.known.after(&action);
            actions.push(action);
        }
        check_conjunctions(tokens, &actions)?;
        Ok(actions)
    }

    /// Checks an action's place among the others.
    fn check(
        &mut self,
        token: Token<'_>,
        action: &Action,
        before: &[Action],
        others_follow: bool,
    ) -> Result<(), Fault> {
        let name = token.before(":").before("(").text;
        let is_instruction =
            matches!(action, Action::Goto(_) | Action::WriteActions(_) | Action::ClearActions);
        // In a copy it does nothing, as in Open vSwitch.
        let is_part = matches!(action, Action::Conjunction { .. }) && self.place != Place::Clone;
        if self.place != Place::Rule && (is_instruction || is_part) {
            return Err(token.fault(format!("{name} is in no other action")));
        }
        if let Action::Goto(to) = action {
            if *to <= self.table {
                let table = self.table;
                return Err(token.fault(format!("a flow of table {table} can only go on in a later table")));
            }
            if others_follow {
                return Err(token.fault(format!("{name} is the last action")));
            }
        }
        self.pushed += usize::from(action.pushes_header());
        if self.pushed > HEADERS_PUSHED_MAX {
            return Err(token.fault(format!("a rule puts at most {HEADERS_PUSHED_MAX} headers on a packet")));
        }
        check_order(token, name, action, before)
    }

    /// Reads the list of actions in another action.
    fn nested(&mut self, text: Token<'_>, place: Place) -> Result<Vec<Action>, Fault> {
        if self.depth >= NESTING_MAX {
            return Err(text.fault(format!("actions stand in each other at most {NESTING_MAX} deep")));
        }
        let known = match place {
            Place::Connection => self.known.clone().into_connection(),
            Place::Rule | Place::Clone | Place::ActionSet => self.known.clone(),
        };
        let mut inner = Reader { known, place, depth: self.depth + 1, ..*self };
        let actions = inner.list(text)?;
        if place == Place::ActionSet {
            self.pushed = inner.pushed;
        }
        Ok(actions)
    }

    /// `name`, `name:argument` or `name(argument)`. Names are read in capitals, too, as ovs-ofctl prints some.
    fn action(&mut self, token: Token<'_>) -> Result<Action, Fault> {
        if token.text.starts_with('"') {
            return outputs::output(token, self.options, &self.known);
        }
        let end = token.text.find([':', '(', '=']).unwrap_or(token.text.len());
        let name = token.part(0, end);
        let lower = name.text.to_ascii_lowercase();
        let rest = token.part(end, token.text.len());
        let argument = match rest.text.chars().next() {
            Some('(') if rest.text.ends_with(')') => Some(rest.part(1, rest.text.len() - 1)),
            Some('(') if lower == "check_pkt_larger" => Some(rest),
            Some(':' | '=') => Some(rest.part(1, rest.text.len())),
            Some(_) => return Err(token.fault("`)` is expected at the end")),
            None => None,
        };
        let argument = argument.map(Token::trim);
        if argument.is_none_or(|argument| argument.text.is_empty())
            && let Some((_, action)) = PLAIN.iter().find(|(plain, _)| *plain == lower)
        {
            return Ok(action.clone());
        }
        match (argument, lower.as_str()) {
            (_, "controller") => outputs::controller(argument),
            (_, "note") => outputs::bytes(argument.unwrap_or(name.part(end, end))).map(Action::Note),
            (_, "learn") => learn::learn(argument.unwrap_or(name.part(end, end)), self.options, &self.known),
            (_, "ct") => self.connection(name, argument.unwrap_or(name.part(end, end))),
            (None, "nat") if self.place == Place::Connection => ct::nat(None),
            (None, lower) => self.without_argument(name, lower),
            (Some(argument), lower) => self.with_argument(name, lower, argument),
        }
    }

    fn without_argument(&self, name: Token<'_>, lower: &str) -> Result<Action, Fault> {
        let is_port = name.text.starts_with(|c: char| c.is_ascii_digit())
            || lower == "local"
            || (self.options.ports)(name.text).is_some();
        if is_port {
            return outputs::output(name, self.options, &self.known);
        }
        let is_known = described::names().any(|known| known == lower);
        match is_known && !ABSENT.iter().any(|(absent, _)| *absent == lower) {
            true => Err(name.fault(format!("`{lower}:ARGUMENT` is expected"))),
            false => Err(unknown(name, "action or port")),
        }
    }

    fn with_argument(&mut self, name: Token<'_>, lower: &str, argument: Token<'_>) -> Result<Action, Fault> {
        if let Some(action) = numbered(lower, argument).or_else(|| self.of_field(lower, argument)) {
            return action;
        }
        match lower {
            "output" => outputs::output(argument, self.options, &self.known),
            "enqueue" => outputs::enqueue(argument, self.options),
            "resubmit" => outputs::resubmit(argument, &self.known, self.options),
            "sample" => outputs::sample(argument, self.options),
            "multipath" => hashes::multipath(argument, &self.known),
            "bundle" | "bundle_load" => {
                hashes::bundle(argument, lower == "bundle_load", self.options, &self.known)
            }
            "conjunction" => conjunction(argument),
            "clone" => self.nested(argument, Place::Clone).map(Action::Clone),
            "write_actions" => self.nested(argument, Place::ActionSet).map(Action::WriteActions),
            "nat" if self.place == Place::Connection => ct::nat(Some(argument)),
            "encap" => headers::encapsulate(argument),
            "decap" => headers::decapsulate(argument),
            "fin_timeout" => fin_timeout(argument),
            "dec_ttl" => split(argument)?
                .into_iter()
                .map(|id| values::number(id, 0xffff).map(|id| id as u16))
                .collect::<Result<_, _>>()
                .map(Action::DecTtl),
            _ => Err(unknown(name, "action")),
        }
    }

    /// Reads an action about a field, if it is one.
    fn of_field(&self, lower: &str, argument: Token<'_>) -> Option<Result<Action, Fault>> {
        let known = &self.known;
        Some(match lower {
            "set_field" => set_field(argument, self.options, known),
            "load" => load(argument, known),
            "move" => move_field(argument, known),
            "push" => read_part(argument, known).map(Action::Push),
            "pop" => popped_part(argument, known).map(Action::Pop),
            "delete_field" => delete_field(argument),
            "check_pkt_larger" => check_packet_larger(argument, known),
            // The two low bits are ECN's and stay.
            "mod_nw_tos" if values::number(argument, 0xff).is_ok_and(|tos| tos & 3 != 0) => {
                Err(argument.fault("the two low bits are not part of the TOS; use mod_nw_ecn"))
            }
            "write_metadata" => write_metadata(argument, self.options),
            lower => {
                let (_, field, form) =
                    OWN.iter().find(|(name, ..)| *name == lower && lower != "set_nw_ttl")?;
                own(*field, *form, argument, self.options)
            }
        })
    }
}

/// `VALUE[/MASK]`; bits of the value outside of the mask are kept, as they are listed.
fn write_metadata(argument: Token<'_>, options: &ReadOptions<'_>) -> Result<Action, Fault> {
    let info = Field::Metadata.info();
    let (_, mask) = values::value_mask(info, argument, options)?;
    let value = values::one(info, argument.before("/"), options)?;
    let (field, form, protocol) = (Field::Metadata, SetForm::Own, None);
    Ok(Action::SetField { field, value, mask, form, protocol })
}

/// Reads an action whose argument is a number, if it is one.
fn numbered(lower: &str, argument: Token<'_>) -> Option<Result<Action, Fault>> {
    let number = |max: u32| match argument.text {
        // All ones, as in Open vSwitch.
        "-1" if max == u32::MAX => Ok(max),
        _ => values::number(argument, max.into()).map(|number| number as u32),
    };
    Some(match lower {
        "set_queue" => number(u32::MAX).map(Action::SetQueue),
        "group" => number(u32::MAX).map(Action::Group),
        "meter" => number(u32::MAX).map(Action::Meter),
        "count" => number(u32::MAX).map(Action::Count),
        "encap" if argument.text.starts_with(|c: char| c.is_ascii_digit()) => {
            number(u32::MAX).map(Action::Encapsulate)
        }
        "goto_table" => number(254).map(|table| Action::Goto(table as u8)),
        "pop_mpls" => number(0xffff).map(|eth_type| Action::PopMpls(eth_type as u16)),
        "push_vlan" => one_of(argument, &[ether_type::VLAN, ether_type::QINQ]).map(Action::PushVlan),
        "push_mpls" => {
            one_of(argument, &[ether_type::MPLS, ether_type::MPLS_MULTICAST]).map(Action::PushMpls)
        }
        _ => return None,
    })
}

fn one_of(token: Token<'_>, allowed: &[u16]) -> Result<u16, Fault> {
    let value = values::number(token, 0xffff).ok().map(|n| n as u16).filter(|n| allowed.contains(n));
    value.ok_or_else(|| token.fault(format!("{:#06x} or {:#06x} is expected", allowed[0], allowed[1])))
}

/// The fault of an unknown action, with a replacement or the name that was perhaps meant.
fn unknown(name: Token<'_>, kind: &str) -> Fault {
    let lower = name.text.to_ascii_lowercase();
    match ABSENT.iter().find(|(absent, _)| *absent == lower) {
        Some((_, instead)) => name.fault(*instead),
        None => {
            let hint = did_you_mean(&lower, described::names());
            name.fault(format!("there is no such {kind}{hint}"))
        }
    }
}

/// Checks that actions of the rule itself stand in front of `clear_actions`, and that in front of `write_actions`: so OpenFlow
/// executes them, and Open vSwitch takes no other order.
fn check_order(token: Token<'_>, name: &str, action: &Action, before: &[Action]) -> Result<(), Fault> {
    let stage = |action: &Action| {
        if matches!(action, Action::ClearActions) {
            1
        } else if matches!(action, Action::WriteActions(_)) {
            2
        } else {
            let is_last = matches!(
                action,
                Action::Goto(_) | Action::SetField { field: Field::Metadata, form: SetForm::Own, .. }
            );
            if is_last { 3 } else { 0 }
        }
    };
    let earlier = before.iter().map(stage).filter(|stage| (1..=2).contains(stage)).max().unwrap_or(0);
    let own = stage(action);
    match (own, earlier) {
        (1 | 2, earlier) if own == earlier => Err(token.fault(format!("{name} is there twice"))),
        (own, earlier) if own < earlier => {
            let later = if earlier == 1 { "clear_actions" } else { "write_actions" };
            Err(token.fault(format!("{name} goes in front of {later}, as it is executed before")))
        }
        _ => Ok(()),
    }
}

/// Checks that a rule with `conjunction` has no other action but `note`.
fn check_conjunctions(tokens: &[Token<'_>], actions: &[Action]) -> Result<(), Fault> {
    if !actions.iter().any(|action| matches!(action, Action::Conjunction { .. })) {
        return Ok(());
    }
    let is_other = |action: &&Action| !matches!(action, Action::Conjunction { .. } | Action::Note(_));
    match actions.iter().zip(tokens).find(|(action, _)| is_other(action)) {
        Some((_, token)) => Err(token.fault("a rule with conjunction has no other action but note")),
        None => Ok(()),
    }
}

/// `ID,CLAUSE/CLAUSES`.
fn conjunction(argument: Token<'_>) -> Result<Action, Fault> {
    let parts = argument.split(",").and_then(|(id, rest)| Some((id, rest.split("/")?)));
    let Some((id, (clause, clauses))) = parts else {
        return Err(argument.fault("`conjunction(ID,CLAUSE/CLAUSES)` is expected"));
    };
    let id = values::number(id.trim(), u32::MAX.into())? as u32;
    let (clause, clauses) = (clause.trim(), clauses.trim());
    let count = values::number(clauses, 64).ok().filter(|count| *count >= 2);
    let count = count.ok_or_else(|| clauses.fault("the number of clauses is 2 to 64"))?;
    let number = values::number(clause, count).ok().filter(|number| *number >= 1);
    let number = number.ok_or_else(|| clause.fault(format!("the clause is 1 to {count}")))?;
    Ok(Action::Conjunction { id, clause: (number - 1) as u8, clauses: count as u8 })
}

/// `idle_timeout=SECONDS,hard_timeout=SECONDS`.
fn fin_timeout(argument: Token<'_>) -> Result<Action, Fault> {
    let (mut idle_s, mut hard_s) = (0, 0);
    for part in split(argument)? {
        let (key, value) = super::key_value(part)?;
        let seconds = super::number(key, value, 0xffff)? as u16;
        match key.text {
            "idle_timeout" => idle_s = seconds,
            "hard_timeout" => hard_s = seconds,
            _ => return Err(key.fault("idle_timeout or hard_timeout is expected")),
        }
    }
    Ok(Action::FinTimeout { idle_s, hard_s })
}

/// An option of tunnels.
fn delete_field(argument: Token<'_>) -> Result<Action, Fault> {
    let field = names::field_named(argument)?;
    match field.tun_metadata_number() {
        Some(_) => Ok(Action::DeleteField(field)),
        None => Err(argument.fault("only options of tunnels can be removed: tun_metadata0 and the like")),
    }
}

/// `(BYTES)->FIELD[BIT]`.
fn check_packet_larger(argument: Token<'_>, known: &Known) -> Result<Action, Fault> {
    let Some((bytes, to)) = argument.split("->") else {
        return Err(argument.fault("`check_pkt_larger(BYTES)->FIELD[BIT]` is expected"));
    };
    let bytes = bytes.trim();
    let inside = bytes.text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let bytes = if inside.is_some() { bytes.part(1, bytes.text.len() - 1) } else { bytes };
    let bytes = values::number(bytes, 0xffff)? as u16;
    let to = to.trim();
    let part = written_part(to, known)?;
    match part.bits() {
        1 => Ok(Action::CheckPacketLarger { bytes, to: part }),
        _ => Err(to.fault("the answer is one bit; write which, as in `reg0[0]`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_described_or_refused_with_a_reason() {
        let read = PLAIN.iter().map(|(name, _)| *name).chain(OWN.iter().map(|(name, ..)| *name));
        for name in read {
            let is_absent = ABSENT.iter().any(|(absent, _)| *absent == name);
            assert!(described::names().any(|known| known == name) != is_absent, "{name}");
        }
        // Whatever is described is known to the reader, with an argument or without.
        for name in described::names() {
            let problem = |argument: &str| {
                let text = format!("{name}{argument}");
                let token = Token { text: &text, at: 0 };
                read_bucket(&[token], &ReadOptions::default())
                    .err()
                    .map_or(String::new(), |fault| fault.problem)
            };
            assert!(["", ":1"].iter().any(|argument| !problem(argument).contains("no such")), "{name}");
        }
    }
}
