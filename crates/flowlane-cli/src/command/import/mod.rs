//! Rules of other firewalls, in flow syntax: `flowlane rules convert --from`.
//!
//! Each source becomes one list in which the first matching entry decides; the order becomes priorities. Without states of
//! connections the list is table 0. With them, table 0 sends packets of IP through connection tracking to the list in table 1, and
//! accepted packets go to table 2, which keeps new connections, as Linux does with those that its rules accept.

mod chains;
mod cisco;
mod condition;
mod dnat;
mod iptables;
mod nft;

use chains::{ENTRIES_MAX, Entry};
use condition::{Condition, IPV4};

use crate::arguments::Source;
use crate::failure::Failure;

/// Flows of a list at most.
const FLOWS_MAX: usize = 1_000_000;

/// A part of the source that the rules do not say.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LeftOut {
    place: String,
    reason: String,
}

impl LeftOut {
    fn new(place: &str, reason: impl Into<String>) -> Self {
        Self { place: place.to_owned(), reason: reason.into() }
    }

    /// The line for standard error.
    pub(super) fn text(&self, file: &str) -> String {
        format!("{file}: {}: {}", self.place, self.reason)
    }
}

/// The entries of a source in their order; the last says what becomes of all other packets.
struct List {
    entries: Vec<Entry>,
    left_out: Vec<LeftOut>,
}

/// Converts a text; returns rules in flow syntax, and what they do not say.
pub(super) fn convert(text: &str, from: Source) -> Result<(String, Vec<LeftOut>), Failure> {
    let list = match from {
        Source::Iptables => iptables::read(text),
        Source::Nft => nft::read(text),
        Source::Cisco => cisco::read(text),
    };
    let list = list.map_err(Failure::input)?;
    if list.entries.len() > ENTRIES_MAX {
        return Err(Failure::input(format!("the list has more than {ENTRIES_MAX} entries")));
    }
    let flows = list.entries.iter().fold(0, |all: usize, entry| all.saturating_add(entry.condition.count()));
    if flows > FLOWS_MAX {
        return Err(Failure::input(format!(
            "the list becomes {flows} flows, and {FLOWS_MAX} are the most: negated networks and lists of ports multiply"
        )));
    }
    Ok((print(&list.entries), list.left_out))
}

fn print(entries: &[Entry]) -> String {
    let is_stateful = entries.iter().any(|entry| entry.condition.states.is_some());
    let families = entries.iter().fold(0, |all, entry| all | entry.condition.families);
    let ip: Vec<&str> = [(IPV4, "ip"), (condition::IPV6, "ipv6")]
        .iter()
        .filter(|(f, _)| families & f != 0)
        .map(|(_, ip)| *ip)
        .collect();
    let (table, pass) = if is_stateful { (1, "goto_table:2") } else { (0, "normal") };
    let mut out = String::new();
    if is_stateful {
        ip.iter().for_each(|ip| out += &format!("table=0,priority=1,{ip},actions=ct(table=1)\n"));
    }
    for (priority, entry) in (0..entries.len()).rev().zip(entries) {
        let actions = if entry.passes { pass } else { "drop" };
        for flow in entry.condition.flows() {
            out += &format!("table={table},priority={priority},{flow},actions={actions}\n");
        }
    }
    if is_stateful {
        for ip in ip {
            out += &format!("table=2,priority=1,{ip},ct_state=+new+trk,actions=ct(commit),normal\n");
        }
        out += "table=2,priority=0,actions=normal\n";
    }
    out
}

/// Appends the policy: the entry of all packets.
fn with_policy(mut entries: Vec<Entry>, families: u8, passes: bool) -> Vec<Entry> {
    entries.push(Entry { condition: Condition::of(families), passes });
    entries
}
