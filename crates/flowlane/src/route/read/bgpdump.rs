//! The output of `bgpdump -m` for a table: one peer's announcement of a prefix on each line.
//!
//! ```text
//! TABLE_DUMP2|1418774400|B|192.0.2.1|64500|10.0.0.0/8|64500 64501 {64502,64503}|IGP|192.0.2.7|0|0||NAG||
//! kind        time         peer      AS    prefix     AS path                   origin next hop
//! ```
//!
//! Of several announcements of a prefix the one with the shortest AS path counts, the first of equals: each AS of a sequence counts,
//! a set (`{…}`) as one (RFC 4271, 9.1.2.2), and confederations (`(…)`, `[…]`) do not (RFC 5065, 5.3).

use std::collections::HashMap;

use super::entry::{Entry, Path, collect};
use super::{AnyPrefix, Gateway, RouteList, RouteOptions, prefix};
use crate::rule::ReadErrors;
use crate::rule::error::{Fault, Token, read_lines};

/// Returns whether a line looks as if `bgpdump -m` had printed it for a table.
pub(super) fn is_like(line: &str) -> bool {
    line.starts_with("TABLE_DUMP") && line.contains('|')
}

pub(super) fn read(text: &str, file: &str, options: &RouteOptions<'_>) -> Result<RouteList, ReadErrors> {
    let mut best: Vec<Entry<'_>> = Vec::new();
    let mut known: HashMap<AnyPrefix, usize> = HashMap::new();
    read_lines(text, file, (usize::MAX, "lines of routes"), |line| {
        let entry = entry(line)?;
        let prefix = entry.prefix.expect("a line has a prefix");
        match known.get(&prefix) {
            Some(&at) if best[at].metric <= entry.metric => {}
            Some(&at) => best[at] = entry,
            None if best.len() >= options.routes_max => {
                let what = format!("more than {} routes; raise the limit", options.routes_max);
                return Err(line.fault(what));
            }
            None => {
                known.insert(prefix, best.len());
                best.push(entry);
            }
        }
        Ok(())
    })?;
    collect(text, best, options).map_err(|(place, problem)| ReadErrors::of_part(text, file, place, problem))
}

/// Returns the announcement of a line; its metric is the length of the AS path.
fn entry(line: Token<'_>) -> Result<Entry<'_>, Fault> {
    let mut fields = Fields(line);
    let kind = fields.next("`TABLE_DUMP2`")?;
    if !kind.text.starts_with("TABLE_DUMP") {
        return Err(kind.fault("a line of `bgpdump -m` for a table begins with `TABLE_DUMP2`"));
    }
    for field in ["a time", "`B`", "a peer's address", "a peer's AS"] {
        fields.next(field)?;
    }
    let destination = fields.next("a prefix")?;
    let prefix = prefix(destination)?;
    let metric = Some(path_len(fields.next("an AS path")?.text));
    fields.next("an origin")?;
    let next_hop = fields.next("a next hop")?;
    let address = next_hop.text.parse().map_err(|_| next_hop.fault("a next hop's address is expected"))?;
    let path = Path { gateway: Gateway { address: Some(address), ..Gateway::default() }, ..Path::default() };
    Ok(Entry { metric, paths: vec![path], ..Entry::to(destination.text, Some(prefix)) })
}

/// Counts the ASes of a path.
fn path_len(path: &str) -> u32 {
    let (mut len, mut in_confederation) = (0, false);
    for part in path.split_whitespace() {
        in_confederation |= part.starts_with(['(', '[']);
        len += u32::from(!in_confederation);
        in_confederation &= !part.ends_with([')', ']']);
    }
    len
}

/// The unread fields of a line.
struct Fields<'a>(Token<'a>);

impl<'a> Fields<'a> {
    /// The next field; `expected` says what should stand there.
    fn next(&mut self, expected: &str) -> Result<Token<'a>, Fault> {
        let (field, rest) = self.0.split("|").ok_or_else(|| {
            let end = self.0.part(self.0.text.len(), self.0.text.len());
            end.fault(format!("the line ends where {expected} and `|` are expected"))
        })?;
        self.0 = rest;
        Ok(field)
    }
}
