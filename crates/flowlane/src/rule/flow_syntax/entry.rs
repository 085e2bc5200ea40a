//! Entries of a set of packets, such as a filter's: matches as flows have them, without actions, and perhaps a time-out.

use std::ops::Range;

use super::super::error::{lines, read_lines};
use super::{Fault, Match, ReadErrors, ReadOptions, Rule, Token};
use super::{attribute, bounded, number, read_keys};

/// A line of a list of entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The packets that it is for.
    pub matches: Match,
    /// Seconds after which it goes; 0 for never.
    pub timeout_s: u64,
    /// The bytes of the text that say it.
    pub part: Range<usize>,
}

/// Reads entries, one a line; `file` is the text's name in errors.
///
/// # Errors
/// All lines that are wrong; also those with several values for a field, and those with keys that are about flows only, such as a priority.
pub fn read_entries(text: &str, file: &str, options: &ReadOptions<'_>) -> Result<Vec<Entry>, ReadErrors> {
    let entries = read_lines(text, file, (options.rules_max, "entries"), |line| read_entry(line, options))?;
    // One has been read from each line.
    Ok(entries
        .into_iter()
        .zip(lines(text))
        .map(|(entry, (_, start, _))| {
            let part = start + entry.part.start..start + entry.part.end;
            Entry { part, ..entry }
        })
        .collect())
}

/// Reads a line; the part is of this line.
fn read_entry(line: Token<'_>, options: &ReadOptions<'_>) -> Result<Entry, Fault> {
    bounded(line)?;
    let line = line.without_comment().trim();
    let (mut timeout_s, mut none) = (0, Rule::new(Match::any(), Vec::new()));
    let mut matches = read_keys(line, options, |key, value| {
        match key.text {
            "timeout" => timeout_s = number(key, value, u64::MAX)?,
            "actions" | "action" => return Err(key.fault("an entry has no actions; leave them out")),
            name => {
                if !attribute(key, value, &mut none)? {
                    return Ok(false);
                }
                let problem = format!("`{name}` is for rules; an entry has a key, and perhaps a timeout");
                return Err(key.fault(problem));
            }
        }
        Ok(true)
    })?;
    match (matches.pop(), matches.is_empty()) {
        (Some(matches), true) => Ok(Entry { matches, timeout_s, part: line.at..line.at + line.text.len() }),
        _ => Err(line.fault("an entry has one value for each field; write a line for each of them")),
    }
}
