//! Rules as text.

use super::Error;
use crate::rule::{ReadOptions, Rule, read};

/// Reads rules, a line each: flows as `ovs-ofctl add-flow` takes them, or ClassBench filters (which begin with `@`); the
/// first line that is neither empty nor a comment decides. Errors show `name` as the name of the text, usually of a file.
///
/// A rule's number in a [`Classifier`](super::Classifier) is its position in the list that is returned, from 0. In the list, a
/// flow with the table, priority and match of an earlier one takes that one's place, and a range of ICMP types or codes is a rule
/// for each prefix of it. Up to ten million rules are read. Actions name ports by number.
///
/// ```
/// use flowlane::{Action, PortNo, read_rules};
///
/// let rules = read_rules("priority=7,tcp,nw_dst=192.0.2.0/24,tp_dst=80-90,actions=dec_ttl,output:1", "flows.txt")?;
/// assert_eq!(rules[0].priority.0, 7);
/// assert_eq!(rules[0].actions, [Action::dec_ttl(), Action::Output(PortNo(1))]);
/// # Ok::<(), flowlane::Error>(())
/// ```
///
/// # Errors
/// [`Input`](super::ErrorKind::Input): all invalid lines (the first 20 in full), each with name, line and column.
///
#[doc = include_str!("../rule/flow_syntax/README.md")]
pub fn read_rules(text: &str, name: &str) -> Result<Vec<Rule>, Error> {
    read(text, name, None, &ReadOptions::default()).map_err(Error::input)
}
