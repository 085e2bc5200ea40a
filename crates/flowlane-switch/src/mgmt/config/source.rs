//! A configuration's text, and where in it each part is.
//!
//! Errors name a part by its [`KeyPath`]; the parser's spans say where in the text that part is. A text is parsed again for each
//! error, so that a configuration without errors costs no more than its own reading.

use std::ops::Range;
use std::path::{Path, PathBuf};

use flowlane::rule::ReadErrors;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// The keys and positions that lead from a configuration's root to one of its parts, as in `port[1].number`.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyPath(Vec<Step>);

#[derive(Clone, Copy, Debug)]
enum Step {
    Key(&'static str),
    Item(usize),
}

impl KeyPath {
    /// A key of the root.
    pub(crate) fn of(key: &'static str) -> Self {
        Self(vec![Step::Key(key)])
    }

    /// An element of a list of sections.
    pub(crate) fn section(list: &'static str, item: usize) -> Self {
        Self(vec![Step::Key(list), Step::Item(item)])
    }

    /// A key of this section.
    pub(crate) fn key(&self, key: &'static str) -> Self {
        self.with(Step::Key(key))
    }

    /// An element of this list.
    pub(crate) fn item(&self, item: usize) -> Self {
        self.with(Step::Item(item))
    }

    fn with(&self, step: Step) -> Self {
        Self(self.0.iter().copied().chain([step]).collect())
    }
}

/// A configuration file and its text.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// That of a part which is in no file.
    pub(crate) fn none() -> Self {
        Self { file: PathBuf::new(), text: String::new() }
    }

    /// The folder that relative paths of the configuration start from.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("."))
    }

    /// An error at a part of the configuration.
    pub(crate) fn error(
        &self,
        at: &KeyPath,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ConfigError {
        let help = help.into();
        ConfigError {
            file: self.file.clone(),
            text: self.text.clone(),
            span: self.span(at),
            message: message.into(),
            help: (!help.is_empty()).then_some(help),
            environment: false,
        }
    }

    /// An error at bytes `part` of the value of a string of the configuration.
    pub(crate) fn error_in_string(
        &self,
        at: &KeyPath,
        part: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ConfigError {
        ConfigError { span: self.span_in_string(at, part), ..self.error(at, message, help) }
    }

    /// Moves errors in strings of the configuration to where these are: `string` maps bytes of the text that was read to a
    /// string, and to bytes of its value.
    pub(crate) fn errors_in_strings(
        &self,
        errors: ReadErrors,
        string: impl Fn(Range<usize>) -> (KeyPath, Range<usize>),
    ) -> ReadErrors {
        errors.moved_into(&self.file.display().to_string(), &self.text, |part| {
            let (at, part) = string(part);
            self.span_in_string(&at, part).unwrap_or_default()
        })
    }

    /// The bytes of a part: a value, a section's header, or an inline table. For a part that is left out, those of the nearest
    /// part around it.
    fn span(&self, at: &KeyPath) -> Option<Range<usize>> {
        let document = DeTable::parse(&self.text).ok()?;
        let mut part: Option<&Spanned<DeValue<'_>>> = None;
        for step in &at.0 {
            let next = match (*step, part.map(Spanned::get_ref)) {
                (Step::Key(key), None) => document.get_ref().get(key),
                (Step::Key(key), Some(DeValue::Table(table))) => table.get(key),
                (Step::Item(item), Some(DeValue::Array(array))) => array.get(item),
                _ => None,
            };
            let Some(next) = next else { break };
            part = Some(next);
        }
        part.map(Spanned::span)
    }

    /// The bytes of a part of a string's value; those of the whole string where it is none.
    fn span_in_string(&self, at: &KeyPath, part: Range<usize>) -> Option<Range<usize>> {
        let string = self.span(at)?;
        let raw = &self.text[string.clone()];
        if !raw.starts_with(['"', '\'']) {
            return Some(string);
        }
        let start = position_in_string(raw, part.start, true);
        let end = position_in_string(raw, part.end, false).max(start);
        Some(string.start + start..string.start + end)
    }
}

/// The position in `raw`, a string as TOML writes it, of the byte `wanted` of its value. `is_start` says on which side of a
/// line continuation, which adds nothing to the value, the position is to be.
fn position_in_string(raw: &str, wanted: usize, is_start: bool) -> usize {
    let quotes = if raw.starts_with("\"\"\"") || raw.starts_with("'''") { 3 } else { 1 };
    let (mut at, end) = (quotes, raw.len() - quotes);
    if quotes == 3 {
        // A line end right behind the opening quotes does not count.
        at += ["\r\n", "\n"].iter().find(|line_end| raw[at..].starts_with(**line_end)).map_or(0, |e| e.len());
    }
    let mut value = 0;
    while at < end {
        let (raw_len, value_len) = character(&raw[at..end], raw.starts_with('"'));
        if value >= wanted && !(is_start && value_len == 0) {
            break;
        }
        at += raw_len;
        value += value_len;
    }
    at
}

/// Returns the length of the first character of a string as TOML writes it, and the length of its value.
fn character(raw: &str, has_escapes: bool) -> (usize, usize) {
    let mut chars = raw.chars();
    let first = chars.next().map_or(1, char::len_utf8);
    if !has_escapes || !raw.starts_with('\\') {
        return (first, first);
    }
    let digits = match chars.next() {
        Some('x') => 2,
        Some('u') => 4,
        Some('U') => 8,
        Some(c) if c.is_whitespace() => return (raw.len() - raw[1..].trim_start().len(), 0),
        _ => return (2, 1),
    };
    let code = raw.get(2..2 + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    (2 + digits, code.and_then(char::from_u32).map_or(1, char::len_utf8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of a string's value is at the characters that stand for it.
    #[test]
    fn parts_of_strings_are_found_behind_escapes_and_in_long_strings() {
        let strings = [
            (r#""ab""#, "b", "b"),
            (r#""\"b""#, "b", "b"),
            (r#""\u00e9\U0001F600\x41\tb c""#, "b", "b"),
            (r#""a\tb""#, "\t", r"\t"),
            (r"'a\tb'", "t", "t"),
            ("\"\"\"\nab\ncd\"\"\"", "c", "c"),
            ("\"\"\"\r\nab\r\ncd\"\"\"", "c", "c"),
            ("\"\"\"a\\\n   b\"\"\"", "b", "b"),
            ("'''\na\"b'''", "b", "b"),
            (r#""Zürich→Genève,b""#, "b", "b"),
        ];
        for (string, part, shown) in strings {
            let text = format!("# x = 7\n[switch]\nx = {string} # b\n");
            let value: toml::Table = toml::from_str(&text).unwrap();
            let start = value["switch"]["x"].as_str().unwrap().find(part).unwrap();
            let source = Source { file: PathBuf::from("c.toml"), text };
            let found =
                source.span_in_string(&KeyPath::of("switch").key("x"), start..start + part.len()).unwrap();
            assert_eq!(&source.text[found.clone()], shown, "{string}");
            assert!(found.start >= 23 && found.end < source.text.len() - 5, "{string}: {found:?}");
        }
    }
}
