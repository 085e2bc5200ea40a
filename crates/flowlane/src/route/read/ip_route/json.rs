//! The output of `ip -j route`: lists of objects, whose members are the words of a route in JSON.
//!
//! Members are read in their order into the words that `ip route` prints, since an encapsulation repeats names of the route's own
//! (`dst`), and only the order distinguishes them:
//!
//! ```text
//! {"dst":"10.40.0.0/16","encap":"mpls","dst":"100","gateway":"192.0.2.9","dev":"eth0","flags":[]}
//!      10.40.0.0/16      encap   mpls        100    via      192.0.2.9   dev  eth0
//! ```

use super::super::entry::{Entry, collect};
use super::super::{RouteList, RouteOptions};
use super::encapsulation::begins_bare;
use super::grammar::route;
use super::words::RouteWords;
use crate::rule::ReadErrors;
use crate::rule::error::{BYTE_ORDER_MARK, Fault, Token, read_one};

/// Nested lists and objects, at most.
const DEPTH_MAX: usize = 8;

/// Returns whether a text looks like the output of `ip -j route`.
pub(in super::super) fn is_like(text: &str) -> bool {
    let text = text.trim_start_matches(BYTE_ORDER_MARK).trim_start();
    let rest = text.strip_prefix('[').map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with(['{', ']']))
}

pub(in super::super) fn read(
    text: &str,
    file: &str,
    options: &RouteOptions<'_>,
) -> Result<RouteList, ReadErrors> {
    let entries = read_one(text, file, |all| {
        let mark = text.len() - text.trim_start_matches(BYTE_ORDER_MARK).len();
        let mut json = Json { all, at: mark };
        let mut entries: Vec<Entry<'_>> = Vec::new();
        let mut words = Vec::new();
        // One list for each call of `ip`.
        while !json.peek().text.is_empty() {
            json.list(|json| {
                if entries.len() >= options.routes_max {
                    let what = format!("more than {} routes; raise the limit", options.routes_max);
                    return Err(json.peek().fault(what));
                }
                words.clear();
                json.route(&mut words, false)?;
                let mut words = RouteWords::of(&words, json.at - 1);
                entries.push(route(&mut words)?);
                Ok(())
            })?;
        }
        Ok(entries)
    });
    let entries = entries.map_err(|errors| errors.moved_into(file, text, |place| place))?;
    collect(text, entries, options)
        .map_err(|(place, problem)| ReadErrors::of_part(text, file, place, problem))
}

/// The unread rest of a text of JSON.
struct Json<'a> {
    all: Token<'a>,
    at: usize,
}

impl<'a> Json<'a> {
    /// The next bracket, comma, colon, string with its quotes, or other word, which stays unread; empty at the end.
    fn peek(&self) -> Token<'a> {
        let rest = self.all.part(self.at, self.all.text.len());
        let rest = rest.part(rest.text.len() - rest.text.trim_start().len(), rest.text.len());
        let len = match rest.text.as_bytes().first() {
            None => 0,
            Some(b'"') => {
                let mut escaped = false;
                let end = rest.text.bytes().skip(1).position(|byte| {
                    let is_end = byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    is_end
                });
                end.map_or(rest.text.len(), |end| end + 2)
            }
            Some(b'[' | b']' | b'{' | b'}' | b',' | b':') => 1,
            Some(_) => rest
                .text
                .find(|c: char| c.is_whitespace() || "[]{},:\"".contains(c))
                .unwrap_or(rest.text.len()),
        };
        rest.part(0, len)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = token.at + token.text.len();
        token
    }

    fn expect(&mut self, mark: &str) -> Result<(), Fault> {
        let token = self.next();
        match token.text == mark {
            true => Ok(()),
            false => Err(token.fault(format!("`{mark}` is expected in the JSON of `ip -j route`"))),
        }
    }

    /// Reads a string or another word, without quotes.
    fn scalar(&mut self) -> Result<Token<'a>, Fault> {
        let token = self.next();
        let inner = token.text.strip_prefix('"').map(|rest| rest.strip_suffix('"'));
        match inner {
            Some(None) => Err(token.fault("the string does not end")),
            Some(Some(text)) if text.contains('\\') => {
                Err(token
                    .fault("escaped characters in strings are not read; leave the route out of the file"))
            }
            Some(Some(text)) => Ok(token.part(1, 1 + text.len())),
            None if token.text.is_empty() || "[]{},:".contains(token.text) => {
                Err(token.fault("a value is expected in the JSON of `ip -j route`"))
            }
            None => Ok(token),
        }
    }

    /// Reads a list, and each of its items by `item`.
    fn list(&mut self, item: impl FnMut(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        self.items("[", "]", item)
    }

    fn items(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(open)?;
        if self.peek().text == close {
            return self.expect(close);
        }
        loop {
            item(self)?;
            if self.peek().text == close {
                return self.expect(close);
            }
            self.expect(",")?;
        }
    }

    /// Reads a value of any kind over.
    fn skip(&mut self, depth: usize) -> Result<(), Fault> {
        if depth == DEPTH_MAX {
            return Err(self
                .peek()
                .fault(format!("more than {DEPTH_MAX} lists and objects within each other")));
        }
        match self.peek().text {
            "[" => self.list(|json| json.skip(depth + 1)),
            "{" => self.items("{", "}", |json| {
                json.scalar()?;
                json.expect(":")?;
                json.skip(depth + 1)
            }),
            _ => self.scalar().map(drop),
        }
    }

    /// Reads an object of a route, or of one of its paths, into words.
    fn route(&mut self, out: &mut Vec<Token<'a>>, is_path: bool) -> Result<(), Fault> {
        let mut encapsulation = None;
        let mut has_destination = is_path;
        self.items("{", "}", |json| {
            let name = json.scalar()?;
            json.expect(":")?;
            let word = |text| Token { text, at: name.at };
            match (name.text, encapsulation) {
                ("type", None) => out.push(json.scalar()?),
                ("dst", _) if !has_destination => {
                    has_destination = true;
                    out.push(json.scalar()?);
                }
                ("encap", _) => {
                    let kind = json.scalar()?;
                    encapsulation = Some(kind.text);
                    out.extend([name, kind]);
                }
                ("dst" | "locator", Some(kind)) if begins_bare(kind) => out.push(json.scalar()?),
                ("gateway", _) => out.extend([word("via"), json.scalar()?]),
                ("via", _) => {
                    out.push(name);
                    json.items("{", "}", |json| {
                        json.scalar()?;
                        json.expect(":")?;
                        out.push(json.scalar()?);
                        Ok(())
                    })?;
                }
                ("protocol", _) => out.extend([word("proto"), json.scalar()?]),
                ("prefsrc", _) => out.extend([word("src"), json.scalar()?]),
                ("flags", _) => json.list(|json| {
                    out.push(json.scalar()?);
                    Ok(())
                })?,
                ("nexthops", _) if !is_path => json.list(|json| {
                    out.push(word("nexthop"));
                    json.route(out, true)
                })?,
                ("metrics" | "flow" | "cache" | "nh_info", _) => json.skip(0)?,
                _ => json.attribute(name, out)?,
            }
            Ok(())
        })
    }

    /// Reads an attribute that text and JSON call the same: with a value, with a list of values in brackets, or alone.
    fn attribute(&mut self, name: Token<'a>, out: &mut Vec<Token<'a>>) -> Result<(), Fault> {
        match self.peek().text {
            "true" | "null" => {
                self.next();
                out.push(name);
            }
            "false" => _ = self.next(),
            "[" => {
                out.extend([name, self.peek()]);
                self.list(|json| {
                    out.push(json.scalar()?);
                    Ok(())
                })?;
                out.push(self.all.part(self.at - 1, self.at));
            }
            _ => out.extend([name, self.scalar()?]),
        }
        Ok(())
    }
}
