//! Traces of updates: `time a|w prefix next-hop`, one a line. `a` announces a route, `w` withdraws it; the text
//! behind a withdrawn prefix is ignored.

use super::plain::Hops;
use super::{AnyPrefix, NextHops, prefix};
use crate::rule::ReadErrors;
use crate::rule::error::{Words, read_lines};

/// A change to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// When it came, in seconds.
    pub time: u64,
    /// The route's prefix.
    pub prefix: AnyPrefix,
    /// Its next hop from now on; none where it is withdrawn.
    pub next_hop: Option<u64>,
}

/// Reads at most `updates_max` updates in `text`; `file` is its name in errors. Next hops are numbered, or stand for
/// themselves, as in files of routes.
///
/// # Errors
/// All lines that are wrong; nothing is loaded then.
pub fn read_updates(
    text: &str,
    file: &str,
    updates_max: usize,
) -> Result<(Vec<Update>, NextHops), ReadErrors> {
    let mut hops = Hops::default();
    let updates = read_lines(text, file, (updates_max, "updates"), |line| {
        let mut words = Words::of(line);
        let time = words.next("a time")?;
        let time = time.text.parse().map_err(|_| time.fault("a time is expected, in whole seconds"))?;
        let kind = words.next("`a` or `w`")?;
        let prefix = prefix(words.next("a prefix")?)?;
        let next_hop = match kind.text {
            "a" => Some(hops.read(words.next("a next hop")?)?),
            "w" => None,
            _ => {
                return Err(
                    kind.fault("`a` is expected where a route is announced, `w` where it is withdrawn")
                );
            }
        };
        Ok(Update { time, prefix, next_hop })
    })?;
    Ok((updates, hops.known))
}
