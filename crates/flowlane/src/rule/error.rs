//! Mistakes in a file of lines, with their places.

use std::fmt;
use std::ops::Range;

use crate::named_enum::nearest;

/// Errors kept of one file; further ones are counted.
pub const ERRORS_KEPT: usize = 20;

/// Errors after which reading on is idle.
const ERRORS_COUNTED: usize = 100_000;

/// Editors of Windows save it in front of UTF-8; it is no part of the first line.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Something in a file of rules, routes or headers that is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Where in the text the offending part begins, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
    /// The offending part.
    pub found: String,
    /// The mistake, the expected text, the remedy.
    pub problem: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: `{}`: {}", self.file, self.line, self.column, self.found, self.problem)
    }
}

/// All that is wrong with a file. There is at least one error; nothing of the file was loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadErrors {
    errors: Vec<ReadError>,
    count: usize,
}

impl ReadErrors {
    /// The first [`ERRORS_KEPT`] errors, in order.
    pub fn errors(&self) -> &[ReadError] {
        &self.errors
    }

    /// Number of errors.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One error, at a part of `text`.
    pub(crate) fn of_part(text: &str, file: &str, part: Range<usize>, problem: String) -> Self {
        let (line, column) = line_column(text, part.start);
        let error = ReadError {
            file: file.to_owned(),
            line,
            column,
            offset: part.start,
            len: part.len(),
            found: text[part].to_owned(),
            problem,
        };
        Self { errors: vec![error], count: 1 }
    }

    /// Moves the errors into `text`, named `file`, which the text that was read is a part of: `place` maps bytes of that part
    /// to bytes of `text`.
    pub fn moved_into(
        mut self,
        file: &str,
        text: &str,
        place: impl Fn(Range<usize>) -> Range<usize>,
    ) -> Self {
        for error in &mut self.errors {
            let Range { start, end } = place(error.offset..error.offset + error.len);
            file.clone_into(&mut error.file);
            (error.line, error.column) = line_column(text, start);
            (error.offset, error.len) = (start, end.saturating_sub(start));
        }
        self
    }
}

/// The line of a byte of `text`, and its column in characters; both from 1.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let characters = before[line..].trim_start_matches(BYTE_ORDER_MARK).chars().count();
    (before.matches('\n').count() + 1, characters + 1)
}

impl fmt::Display for ReadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        match self.count - self.errors.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ReadErrors {}

/// A part of a line, and the mistake in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    /// Offset in the line, in bytes.
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) problem: String,
}

/// A part of a line with its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Offset in the line, in bytes.
    pub(crate) at: usize,
}

impl<'a> Token<'a> {
    pub(crate) fn fault(&self, problem: impl Into<String>) -> Fault {
        Fault { at: self.at, len: self.text.len(), problem: problem.into() }
    }

    /// Without white space at the ends.
    pub(crate) fn trim(self) -> Token<'a> {
        let start = self.text.len() - self.text.trim_start().len();
        Token { text: self.text.trim(), at: self.at + start }
    }

    /// The part of this token from byte `from` to byte `to`.
    pub(crate) fn part(&self, from: usize, to: usize) -> Token<'a> {
        Token { text: &self.text[from..to], at: self.at + from }
    }

    /// Returns the part before the first `mark`; all of it if there is none.
    pub(crate) fn before(&self, mark: &str) -> Token<'a> {
        self.split(mark).map_or(*self, |(before, _)| before)
    }

    /// Returns the parts before and after the first `separator`.
    pub(crate) fn split(&self, separator: &str) -> Option<(Token<'a>, Token<'a>)> {
        let at = self.text.find(separator)?;
        Some((self.part(0, at), self.part(at + separator.len(), self.text.len())))
    }

    /// Returns the part in front of a comment, which begins with a `#` outside quotes.
    pub(crate) fn without_comment(&self) -> Token<'a> {
        let mut quoted = false;
        let is_comment = |c: char| {
            quoted ^= c == '"';
            c == '#' && !quoted
        };
        let end = self.text.find(is_comment).unwrap_or(self.text.len());
        self.part(0, end)
    }
}

/// The words of a line: parts between white space, in order.
pub(crate) struct Words<'a> {
    pub(crate) line: Token<'a>,
    at: usize,
}

impl<'a> Words<'a> {
    pub(crate) fn of(line: Token<'a>) -> Self {
        Self { line, at: 0 }
    }

    /// The next word; `expected` says what should stand there.
    pub(crate) fn next(&mut self, expected: &str) -> Result<Token<'a>, Fault> {
        let rest = self.line.part(self.at, self.line.text.len());
        let word = rest.trim();
        if word.text.is_empty() {
            let end = Token { text: "", at: self.line.text.trim_end().len() };
            return Err(end.fault(format!("the line ends where {expected} is expected")));
        }
        let len = word.text.find(char::is_whitespace).unwrap_or(word.text.len());
        let word = word.part(0, len);
        self.at = word.at + len;
        Ok(word)
    }

    /// Returns whether no part is left.
    pub(crate) fn done(&self) -> bool {
        self.line.text[self.at..].trim().is_empty()
    }
}

/// Collects the errors of a file.
struct Collector<'a> {
    text: &'a str,
    file: &'a str,
    errors: Vec<ReadError>,
    count: usize,
}

impl Collector<'_> {
    /// Reports a mistake that all lines of a file have in common once: the file is of another kind.
    fn merge_alike(&mut self, what: &str) {
        let [first, others @ ..] = &self.errors[..] else { return };
        if others.is_empty() || others.iter().any(|error| error.problem != first.problem) {
            return;
        }
        let looks = match looks_like(self.text) {
            Some(kind) => format!("it looks like {kind}"),
            None => format!("is it a file of {}?", what.trim_start_matches("lines of ")),
        };
        let problem = &mut self.errors[0].problem;
        *problem = format!("{problem}; none of the {} lines of this file can be read: {looks}", self.count);
        self.errors.truncate(1);
        self.count = 1;
    }

    /// Notes a fault in the line that is number `line` (from 1) and begins at byte `start`.
    fn note(&mut self, line: usize, start: usize, fault: Fault) {
        self.count += 1;
        if self.errors.len() >= ERRORS_KEPT {
            return;
        }
        let offset = start + fault.at;
        let found = self.text[offset..offset + fault.len].to_owned();
        self.errors.push(ReadError {
            file: self.file.to_owned(),
            line,
            column: self.text[start..offset].chars().count() + 1,
            offset,
            len: fault.len,
            found,
            problem: fault.problem,
        });
    }
}

/// Reads every line that says something with `read`; more than `max` of `what` are refused.
pub(crate) fn read_lines<'a, T>(
    text: &'a str,
    file: &str,
    limit: (usize, &str),
    mut read: impl FnMut(Token<'a>) -> Result<T, Fault>,
) -> Result<Vec<T>, ReadErrors> {
    read_numbered_lines(text, file, limit, |_, line| read(line))
}

/// Reads like [`read_lines`]; `read` also receives the line's number, from 1.
pub(crate) fn read_numbered_lines<'a, T>(
    text: &'a str,
    file: &str,
    limit: (usize, &str),
    mut read: impl FnMut(usize, Token<'a>) -> Result<T, Fault>,
) -> Result<Vec<T>, ReadErrors> {
    read_lines_of_several(text, file, limit, |number, line, out| {
        out.push(read(number, line)?);
        Ok(())
    })
}

/// Reads like [`read_numbered_lines`]; `read` adds what a line says to the list: nothing, one element or several.
pub(crate) fn read_lines_of_several<'a, T>(
    text: &'a str,
    file: &str,
    (max, what): (usize, &str),
    mut read: impl FnMut(usize, Token<'a>, &mut Vec<T>) -> Result<(), Fault>,
) -> Result<Vec<T>, ReadErrors> {
    let mut collector = Collector { text, file, errors: Vec::new(), count: 0 };
    let mut out = Vec::new();
    for (number, start, line) in lines(text) {
        let before = out.len();
        if let Err(fault) = read(number, line, &mut out) {
            collector.note(number, start, fault);
        }
        if before <= max && out.len() > max {
            collector.note(number, start, line.fault(format!("more than {max} {what}; raise the limit")));
        }
        if out.len() > max || collector.count >= ERRORS_COUNTED {
            break;
        }
    }
    if out.is_empty() {
        collector.merge_alike(what);
    }
    match collector.count {
        0 => Ok(out),
        count => Err(ReadErrors { errors: collector.errors, count }),
    }
}

/// Returns the kind of a text that is no list of lines, by how it begins.
fn looks_like(text: &str) -> Option<&'static str> {
    let text = text.trim_start_matches(BYTE_ORDER_MARK).trim_start();
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'))?.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.\"' ".contains(c);
    match first.chars().next()? {
        _ if text.starts_with("#!") => Some("a script"),
        '[' if first.ends_with(']') && first.trim_matches(['[', ']']).chars().all(is_key) => {
            Some("TOML, as a switch's configuration is written")
        }
        '{' | '[' => Some("JSON"),
        '<' => Some("XML or HTML"),
        _ => None,
    }
}

/// Reads a text as one line.
pub(crate) fn read_one<'a, T>(
    text: &'a str,
    file: &str,
    read: impl FnOnce(Token<'a>) -> Result<T, Fault>,
) -> Result<T, ReadErrors> {
    read(Token { text, at: 0 }).map_err(|fault| {
        let mut collector = Collector { text, file, errors: Vec::new(), count: 0 };
        collector.note(1, 0, fault);
        ReadErrors { errors: collector.errors, count: collector.count }
    })
}

/// The lines of a text that say something: number from 1, byte where they begin, content. Comments (from
/// `#` at the beginning) and blank lines are left out.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, usize, Token<'_>)> {
    let without_mark = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut start = text.len() - without_mark.len();
    without_mark
        .split('\n')
        .enumerate()
        .map(move |(i, line)| {
            let this = start;
            start += line.len() + 1;
            (i + 1, this, Token { text: line.strip_suffix('\r').unwrap_or(line), at: 0 })
        })
        .filter(|(_, _, line)| !line.text.trim().is_empty() && !line.text.trim_start().starts_with('#'))
}

/// `; did you mean …?` where one of `known` is near.
pub(crate) fn did_you_mean<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(unknown, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
