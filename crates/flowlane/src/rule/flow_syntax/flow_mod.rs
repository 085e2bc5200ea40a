//! Changes to the rules of a running switch: OpenFlow's flow-mods, one a line.

use std::time::Duration;

use strum::{Display, IntoStaticStr, VariantArray};

use super::super::action::PortNo;
use super::super::error::{Fault, ReadErrors, Token, read_lines_of_several};
use super::super::{Action, Match, ReadOptions, Rule};
use super::known::Known;
use super::matches::SHORTHANDS;
use super::{
    actions, attribute, bounded, check_expansion, dump, number, read_keys, split_actions, values,
    without_actions,
};
use crate::named_enum;

/// A kind of change to rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Command {
    /// A rule comes, in place of one with the same table, priority and match, if there is one.
    Add,
    /// Rules that ask for all that is asked here get other actions. Where there is none, nothing happens.
    Modify,
    /// The rule with the same priority and match gets other actions.
    ModifyStrict,
    /// Rules that ask for all that is asked here go.
    Delete,
    /// The rule with the same priority and match goes.
    DeleteStrict,
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 5] = named_enum::all();

    /// The word for it, in files.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether it selects rules of one priority and one match, at most one of each table.
    pub fn is_strict(self) -> bool {
        !matches!(self, Self::Modify | Self::Delete)
    }

    /// Returns whether it deletes rules.
    pub fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteStrict)
    }
}

/// Requests beside the change of a rule: the bits of OpenFlow's `ofp_flow_mod_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags(pub u16);

impl FlowFlags {
    /// Controllers get a message when the rule goes.
    pub const SEND_FLOW_REM: Self = Self(1);
    /// A rule that overlaps one of its priority is refused.
    pub const CHECK_OVERLAP: Self = Self(2);
    /// The counters of the rule begin at 0 again.
    pub const RESET_COUNTS: Self = Self(4);
    /// Packets of the rule need not be counted.
    pub const NO_PACKET_COUNTS: Self = Self(8);
    /// Bytes of the rule need not be counted.
    pub const NO_BYTE_COUNTS: Self = Self(16);

    /// The names of the flags, as `ovs-ofctl` reads them.
    const NAMES: [(&str, Self); 5] = [
        ("send_flow_rem", Self::SEND_FLOW_REM),
        ("check_overlap", Self::CHECK_OVERLAP),
        ("reset_counts", Self::RESET_COUNTS),
        ("no_packet_counts", Self::NO_PACKET_COUNTS),
        ("no_byte_counts", Self::NO_BYTE_COUNTS),
    ];

    /// Returns the flag of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
    }

    /// Returns whether all flags of `other` are among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags and those of `other`.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A change of rules, as [`read_changes`] reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// When it is to happen, since the switch's start; none: when it comes.
    pub at: Option<Duration>,
    /// The kind of change.
    pub command: Command,
    /// The table that it selects; `None` for all. Added rules always have one.
    pub table: Option<u8>,
    /// The rule to add, or the match of the rules to change and their new actions; without actions for deletions.
    /// Its table is the default one where none is named, its cookie 0 where none is set. The actions of a change of all
    /// tables may go to any table but the first: the code that changes a rule of a later one must check.
    pub rule: Rule,
    /// Value and mask of the cookies of rules that are changed; no bit of the value is outside the mask.
    pub cookie: Option<(u64, u64)>,
    /// The cookie that the rules get; none: those that are modified keep theirs.
    pub new_cookie: Option<u64>,
    /// The rule that comes goes when no packet has come for so long, in seconds; 0: it stays.
    pub idle_timeout_s: u16,
    /// The rule that comes goes after so long, in seconds; 0: it stays.
    pub hard_timeout_s: u16,
    /// How much the rule that comes is worth, where a full table gives one up.
    pub importance: u16,
    /// The flags.
    pub flags: FlowFlags,
    /// Only rules that send packets to this port go.
    pub out_port: Option<PortNo>,
    /// Only rules that send packets to this group go.
    pub out_group: Option<u32>,
    /// The line that it was read from, from 1.
    pub line: usize,
}

impl FlowMod {
    /// A change at once that asks for nothing but the rule's table, or for its match and priority where the command is strict.
    pub fn new(command: Command, rule: Rule) -> Self {
        Self {
            at: None,
            command,
            table: Some(rule.table),
            rule,
            cookie: None,
            new_cookie: None,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            importance: 0,
            flags: FlowFlags::default(),
            out_port: None,
            out_group: None,
            line: 0,
        }
    }

    /// Returns whether it selects a rule of table `table`: for additions, whether the new rule replaces that one.
    pub fn selects(&self, table: u8, rule: &Rule) -> bool {
        let asked = |matches: &Match| match self.command.is_strict() {
            true => rule.priority == self.rule.priority && *matches == self.rule.matches,
            false => matches.is_within(&self.rule.matches),
        };
        self.table.is_none_or(|own| own == table)
            && self.cookie.is_none_or(|(value, mask)| rule.cookie & mask == value)
            && self.out_port.is_none_or(|port| sends_to(&rule.actions, port))
            && self.out_group.is_none_or(|group| has_group(&rule.actions, group))
            && asked(&rule.matches)
    }

    /// Reads a key that is not about packets. Returns whether `key` is one.
    fn attribute(
        &mut self,
        key: Token<'_>,
        value: Option<Token<'_>>,
        options: &ReadOptions<'_>,
    ) -> Result<bool, Fault> {
        let command = self.command;
        match key.text {
            "table" => {
                attribute(key, value, &mut self.rule)?;
                self.table = Some(self.rule.table);
            }
            "priority" if !command.is_strict() => {
                return Err(key.fault(format!(
                    "`{command}` is about rules of every priority; leave it out, or write `{command}_strict`"
                )));
            }
            "cookie" => self.cookie(key, value)?,
            "idle_timeout" | "hard_timeout" if command.deletes() => {
                return Err(key.fault(format!("`{command}` does not look at time-outs; leave it out")));
            }
            "idle_timeout" | "hard_timeout" if command != Command::Add => {
                return Err(key.fault(format!(
                    "`{command}` leaves time-outs as they are; leave it out, or `add` the rule again"
                )));
            }
            "idle_timeout" => self.idle_timeout_s = number(key, value, u16::MAX.into())? as u16,
            "hard_timeout" => self.hard_timeout_s = number(key, value, u16::MAX.into())? as u16,
            "importance" if command == Command::Add => {
                self.importance = number(key, value, u16::MAX.into())? as u16;
            }
            name if FlowFlags::named(name).is_some() => {
                self.flags = self.flags.union(FlowFlags::named(name).unwrap_or_default());
            }
            "out_group" if command.deletes() => {
                let group = value.ok_or_else(|| key.fault("`out_group=GROUP` is expected"))?;
                // As OpenFlow has it for any group.
                let is_any = ["ANY", "NONE"].iter().any(|any| group.text.eq_ignore_ascii_case(any));
                self.out_group =
                    if is_any { None } else { Some(number(key, Some(group), u32::MAX.into())? as u32) };
            }
            "out_port" if command.deletes() => {
                let port = value.ok_or_else(|| key.fault("`out_port=PORT` is expected"))?;
                // As OpenFlow has it for any port.
                let is_any = ["ANY", "NONE"].iter().any(|any| port.text.eq_ignore_ascii_case(any));
                self.out_port = if is_any { None } else { Some(actions::port(port, options)?) };
            }
            _ => return attribute(key, value, &mut self.rule),
        }
        Ok(true)
    }

    /// A cookie is set, or asked for where it has a mask or the rules go.
    fn cookie(&mut self, key: Token<'_>, value: Option<Token<'_>>) -> Result<(), Fault> {
        let Some((cookie, mask)) = value.and_then(|value| value.split("/")) else {
            let cookie = number(key, value, u64::MAX)?;
            match self.command.deletes() {
                true => self.cookie = Some((cookie, u64::MAX)),
                false => (self.new_cookie, self.rule.cookie) = (Some(cookie), cookie),
            }
            return Ok(());
        };
        if self.command == Command::Add {
            return Err(mask.fault("the cookie of a rule that is added has no mask; write `cookie=VALUE`"));
        }
        let value = number(key, Some(cookie), u64::MAX)?;
        // As ovs-ofctl's manual has it.
        let mask = if mask.text == "-1" { u64::MAX } else { values::number(mask, u64::MAX.into())? as u64 };
        self.cookie = Some((value & mask, mask));
        Ok(())
    }
}

/// Returns whether one of these actions, or of those in them, sends packets to a port.
fn sends_to(actions: &[Action], port: PortNo) -> bool {
    let sends = |action: &Action| {
        let is_to = matches!(
            action,
            Action::Output(to) | Action::OutputTruncated { port: to, .. } | Action::Enqueue { port: to, .. }
                if *to == port
        );
        is_to || sends_to(action.nested(), port)
    };
    actions.iter().any(sends)
}

/// Returns whether one of these actions, or of those in them, lets a group decide.
fn has_group(actions: &[Action], group: u32) -> bool {
    actions.iter().any(|action| *action == Action::Group(group) || has_group(action.nested(), group))
}

/// Reads changes, one a line, in the order in which they are to happen; `file` is the text's name in errors.
///
/// ```text
/// table=1,priority=10,tcp,tp_dst=80,idle_timeout=60,actions=output:2
/// modify table=1,tcp,actions=drop
/// @0.25 delete cookie=0x5/-1
/// @2.5 delete_strict priority=10,ip
/// ```
///
/// A line may begin with `@` and the seconds from the switch's start until it is to happen, and then with a [`Command`];
/// without one, a rule is added. What follows is a flow as [`read`](super::read) reads it, and:
/// - A delete or modify without a `table=` applies to all tables.
/// - `delete` and `delete_strict` take no actions. `out_port=PORT` and `out_group=GROUP` take rules that send there only.
/// - `cookie=VALUE/MASK` takes rules with such a cookie only; a mask of -1 is all ones. Without a mask it sets the cookie of
///   added or modified rules, and is the whole cookie of deleted ones.
/// - `idle_timeout=` and `hard_timeout=`, in seconds, and `importance=` are of rules that are added.
/// - `send_flow_rem`, `check_overlap`, `reset_counts`, `no_packet_counts` and `no_byte_counts` are [`FlowFlags`].
/// - `modify` and `delete` take no priority.
///
/// Differences from `ovs-ofctl`, in addition to those of flows: there, a modify that finds no rule may add one (OpenFlow 1.0), and so takes a
/// priority and time-outs; a delete takes no cookie without a mask; commands may be cut short; there are no times.
///
/// ```
/// use flowlane::rule::{Command, ReadOptions, read_changes};
///
/// let text = "priority=10,tcp,tp_dst=80,cookie=5,actions=output:1\n@0.25 delete tcp";
/// let changes = read_changes(text, "changes.txt", &ReadOptions::default())?;
/// assert_eq!(changes[1].command, Command::Delete);
/// assert!(changes[1].selects(0, &changes[0].rule));
/// let errors = read_changes("delete tcp,actions=drop", "changes.txt", &ReadOptions::default()).unwrap_err();
/// assert!(errors.to_string().starts_with("changes.txt:1:12: `actions=drop`: `delete` takes no actions"));
/// # Ok::<(), flowlane::rule::ReadErrors>(())
/// ```
///
/// # Errors
/// All lines that are wrong.
pub fn read_changes(text: &str, file: &str, options: &ReadOptions<'_>) -> Result<Vec<FlowMod>, ReadErrors> {
    let limit = (options.rules_max, "changes");
    read_lines_of_several(text, file, limit, |number, line, changes| {
        if dump::is_header(line) {
            return Ok(());
        }
        read_change(number, line, options, changes)
    })
}

/// Adds the changes of a line to `changes`: one, or several for a range of ICMP types.
fn read_change(
    number: usize,
    line: Token<'_>,
    options: &ReadOptions<'_>,
    changes: &mut Vec<FlowMod>,
) -> Result<(), Fault> {
    bounded(line)?;
    let (at, line) = read_time(line.without_comment().trim())?;
    let (command, line) = read_command(line)?;
    let (keys, actions) = match split_actions(line) {
        Some((keys, _)) if command.deletes() => {
            let given = line.part(keys.text.len(), line.text.len());
            return Err(given.fault(format!(
                "`{command}` takes no actions; leave them out, or write `out_port=PORT` for rules that send there"
            )));
        }
        Some((keys, actions)) => (keys, Some(actions)),
        None if command.deletes() => (line, None),
        None => return Err(without_actions(line)),
    };
    let rule = Rule { table: options.table_default, ..Rule::new(Match::any(), Vec::new()) };
    let mut change = FlowMod { at, table: None, line: number, ..FlowMod::new(command, rule) };
    let matches = read_keys(keys, options, |key, value| change.attribute(key, value, options))?;
    if command == Command::Add {
        change.table = Some(change.rule.table);
    }
    if let Some(actions) = actions {
        check_expansion(matches.len(), actions)?;
    }
    for matches in matches {
        let mut change = change.clone();
        if let Some(actions) = actions {
            let known = Known::of(&matches);
            change.rule.actions = actions::read(actions, change.table.unwrap_or(0), known, options)?;
        }
        change.rule.matches = matches;
        changes.push(change);
    }
    Ok(())
}

/// Reads `@0.25`, and returns the rest.
fn read_time(line: Token<'_>) -> Result<(Option<Duration>, Token<'_>), Fault> {
    if !line.text.starts_with('@') {
        return Ok((None, line));
    }
    let (word, rest) = first_word(line, char::is_whitespace);
    let at = seconds(&word.text[1..]).ok_or_else(|| {
        word.fault(
            "seconds since the switch's start are expected, with up to nine decimals: `@0.25`, and a space behind",
        )
    })?;
    Ok((Some(at), rest))
}

/// Seconds in decimals, exactly.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 9 {
        return None;
    }
    // 136 years: as nanoseconds, they fit into 64 bits.
    let seconds: u32 = whole.parse().ok()?;
    Some(Duration::new(seconds.into(), format!("{part:0<9}").parse().ok()?))
}

/// Returns the command at the beginning of a line, or `add`, and the rest.
fn read_command(line: Token<'_>) -> Result<(Command, Token<'_>), Fault> {
    let (word, rest) = first_word(line, |c| c == ',' || c.is_whitespace());
    if let Some(command) = Command::ALL.into_iter().find(|command| command.name() == word.text) {
        return Ok((command, rest));
    }
    let is_shorthand = SHORTHANDS.iter().any(|s| s.0 == word.text);
    match meant(word.text).filter(|_| !is_shorthand && !word.text.contains('=')) {
        Some(name) => Err(word.fault(format!("there is no such command; did you mean `{name}`?"))),
        None => Ok((Command::Add, line)),
    }
}

/// The command that a first word was probably meant to be: `del`, `modfy`.
fn meant(word: &str) -> Option<&'static str> {
    let commands = Command::ALL.map(Command::name);
    let cut_short = commands.into_iter().find(|name| word.len() >= 3 && name.starts_with(word));
    let nearest = || named_enum::nearest(word, SHORTHANDS.iter().map(|s| s.0).chain(commands));
    cut_short.or_else(|| nearest().filter(|name| commands.contains(name)))
}

/// Returns the first word of a line, up to a character that ends it, and the rest.
fn first_word(line: Token<'_>, ends: impl Fn(char) -> bool) -> (Token<'_>, Token<'_>) {
    let end = line.text.find(ends).unwrap_or(line.text.len());
    (line.part(0, end), line.part(end, line.text.len()).trim())
}

#[cfg(test)]
mod tests;
