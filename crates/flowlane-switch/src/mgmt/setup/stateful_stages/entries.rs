//! The entries of a filter, from its section of the configuration or a file.

use std::collections::HashSet;
use std::ops::Range;

use flowlane::packet::fields::{VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask, WORDS};
use flowlane::rule::{Match, flow_syntax};

use crate::mgmt::setup::SetupError;
use crate::mgmt::setup::lines::Lines;
use crate::mgmt::setup::reader::Reader;
use crate::stage::ageing::idle_ticks;
use crate::stage::filter::KeyShape;

/// Names of the syntax of rules that are about rules, and not about packets: an entry has none of them.
const OF_RULES: [&str; 8] =
    ["table", "priority", "cookie", "duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

/// Appended to the matches of an entry to make it a rule.
const ACTIONS: &str = " actions=drop\n";

/// A filter's entries as they are read.
#[derive(Default)]
pub(super) struct Entries {
    /// Keys, and ticks after which they go.
    pub(super) list: Vec<(FlowKey, u32)>,
    known: HashSet<[u32; WORDS]>,
}

/// The line of an entry.
struct Line {
    /// Where it begins in the text that is read, and in the rules that are made of it.
    start: usize,
    rule_start: usize,
    len: usize,
    idle: u32,
}

impl Entries {
    /// Reads entries, one in a line: matches as in rules, and perhaps a timeout.
    pub(super) fn read(
        &mut self,
        text: &Lines<'_>,
        shape: &KeyShape,
        reader: &Reader<'_>,
    ) -> Result<(), SetupError> {
        // The reader of rules reads the matches. A line of rules has the same bytes at the same places as its entry.
        let (mut rules, mut lines, mut next) = (String::new(), Vec::new(), 0);
        for whole in text.text.split_inclusive('\n') {
            let (start, line) = (next, whole.trim_end_matches(['\n', '\r']));
            next += whole.len();
            if line.trim_start().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let (matches, seconds) = entry_parts(line).map_err(|(part, message, help)| {
                text.error(start + part.start..start + part.end, message, help)
            })?;
            let (rule_start, len) = (rules.len(), line.len());
            lines.push(Line { start, rule_start, len, idle: idle_ticks(seconds) });
            rules.push_str(&matches);
            rules.push_str(ACTIONS);
        }
        let name = text.name();
        let read =
            reader.with_options(0, usize::MAX, |options| flow_syntax::read_each(&rules, &name, options));
        let read = read.map_err(|errors| {
            text.errors(errors.moved_into(&name, &text.text, |part| place_of(&lines, part)))
        })?;
        for (rule, line) in read.iter().zip(lines) {
            let content = text.text[line.start..line.start + line.len].trim();
            let start = line.start + text.text[line.start..].find(content).unwrap_or(0);
            let fail = |problem, help: &str| {
                text.error(start..start + content.len(), format!("entry `{content}` {problem}"), help)
            };
            let key = entry_key(&rule.matches, shape)
                .map_err(|problem| fail(problem, "give every field of the key a value, and nothing else"))?;
            if !self.known.insert(*key.words()) {
                return Err(fail("has the key of one before it", "leave one of them out").into());
            }
            self.list.push((key, line.idle));
        }
        Ok(())
    }
}

/// Where bytes of the rules are in the text of the entries.
fn place_of(lines: &[Line], part: Range<usize>) -> Range<usize> {
    let line = lines.partition_point(|line| line.rule_start <= part.start).saturating_sub(1);
    let Some(line) = lines.get(line) else { return part };
    let within = |at: usize| line.start + (at - line.rule_start).min(line.len);
    within(part.start)..within(part.end)
}

/// Why an entry is rejected: the bytes of the line, the problem, and what helps.
type Fault = (Range<usize>, String, &'static str);

/// Reads the matches of an entry, as rules have them, with blanks in place of its timeout, and that timeout in seconds.
fn entry_parts(line: &str) -> Result<(String, u64), Fault> {
    let (mut matches, mut seconds) = (line.to_owned(), 0);
    let mut next = 0;
    for part in line.split([',', ' ', '\t']) {
        let at = next..next + part.len();
        next = at.end + 1;
        match part.split_once('=') {
            Some(("timeout", value)) => {
                matches.replace_range(at.clone(), &" ".repeat(part.len()));
                let fault = |_| (at, format!("`{part}` is no timeout"), "write seconds, as in timeout=60");
                seconds = value.parse().map_err(fault)?;
            }
            Some((name, _)) if OF_RULES.contains(&name) => {
                let message = format!("`{name}` is for rules; an entry has a key, and perhaps a timeout");
                return Err((at, message, "leave it out"));
            }
            _ => {}
        }
    }
    Ok((matches, seconds))
}

/// Returns the flow key that an entry describes, or its problem.
fn entry_key(matches: &Match, shape: &KeyShape) -> Result<FlowKey, &'static str> {
    let mask = shape.mask();
    let mut key = FlowKey::zero();
    let mut given = FlowMask::zero();
    for part in matches.words() {
        let w = usize::from(part.word);
        key.set_word(w, part.value & mask.word(w));
        given.or_word(w, part.mask);
        let mut beyond = part.mask & !mask.word(w);
        if w == word::VLAN_ETH_TYPE {
            // What a packet must be to have the key's fields may be said.
            beyond &= !(u32::from(VLAN_PRESENT) << 16);
            if part.mask & 0xffff == 0xffff && shape.is_only(part.value as u16) {
                beyond &= !0xffff;
            }
        }
        if beyond != 0 {
            return Err(
                "says something that is not in the key (where it names a protocol, `dl_type` and `nw_proto` must be in it)",
            );
        }
    }
    if matches.tp_src_range().is_some() || matches.tp_dst_range().is_some() || !given.covers(mask) {
        return Err("does not fix all of the key");
    }
    Ok(key)
}
