//! Texts that a configuration gives: as strings of its own, or in a file that it names. Errors in them are at their place in the
//! configuration, or in that file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use flowlane::rule::ReadErrors;

use super::SetupError;
use crate::mgmt::config::{ConfigError, KeyPath, Source};

/// A text of one or more lines.
pub(super) struct Lines<'a> {
    source: &'a Source,
    pub(super) text: String,
    origin: Origin,
}

enum Origin {
    /// One string of the configuration.
    String(KeyPath),
    /// A list of strings, joined by line ends; and where each begins in the text.
    List(KeyPath, Vec<usize>),
    File(PathBuf),
}

impl<'a> Lines<'a> {
    /// The string at `at`.
    pub(super) fn string(source: &'a Source, at: KeyPath, text: &str) -> Self {
        Self { source, text: text.to_owned(), origin: Origin::String(at) }
    }

    /// The strings of the list at `at`.
    pub(super) fn list(source: &'a Source, at: KeyPath, strings: &[String]) -> Self {
        let mut next = 0;
        let starts = strings.iter().map(|string| {
            next += string.len() + 1;
            next - string.len() - 1
        });
        let starts = starts.collect();
        Self { source, text: strings.join("\n"), origin: Origin::List(at, starts) }
    }

    /// The file whose path, relative to the configuration's folder, is at `at`.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(super) fn file(
        source: &'a Source,
        at: &KeyPath,
        file: &Path,
        help: &str,
    ) -> Result<Self, ConfigError> {
        let path = source.folder().join(file);
        match flowlane_capture::read_text(&path) {
            Ok(text) => Ok(Self { source, text, origin: Origin::File(path) }),
            Err(error) => Err(source.error(at, error.to_string(), help)),
        }
    }

    /// The name of the text in errors.
    pub(super) fn name(&self) -> String {
        match &self.origin {
            Origin::File(path) => path.display().to_string(),
            _ => self.source.file.display().to_string(),
        }
    }

    /// The string of the configuration that bytes of the text are of, and where in it they are.
    fn string_of(&self, part: Range<usize>) -> (KeyPath, Range<usize>) {
        match &self.origin {
            Origin::List(at, starts) => {
                let string = starts.partition_point(|start| *start <= part.start).saturating_sub(1);
                let start = starts.get(string).copied().unwrap_or(0);
                (at.item(string), part.start - start..part.end.saturating_sub(start))
            }
            Origin::String(at) => (at.clone(), part),
            Origin::File(_) => (KeyPath::default(), part),
        }
    }

    /// An error at a part of the text.
    pub(super) fn error(&self, part: Range<usize>, message: String, help: &str) -> ConfigError {
        if let Origin::File(path) = &self.origin {
            return ConfigError {
                file: path.clone(),
                text: self.text.clone(),
                span: Some(part),
                ..self.source.error(&KeyPath::default(), message, help)
            };
        }
        let (at, part) = self.string_of(part);
        self.source.error_in_string(&at, part, message, help)
    }

    /// An error at a line of the text, from 1.
    pub(super) fn error_in_line(&self, line: usize, message: String, help: &str) -> ConfigError {
        let mut lines = self.text.split_inclusive('\n');
        let start = lines.by_ref().take(line.saturating_sub(1)).map(str::len).sum();
        let len = lines.next().map_or(0, |line| line.trim_end().len());
        self.error(start..start + len, message, help)
    }

    /// Errors that a reader found in the text.
    pub(super) fn errors(&self, errors: ReadErrors) -> SetupError {
        match &self.origin {
            Origin::File(_) => SetupError::Lines { text: self.text.clone(), errors },
            _ => SetupError::Lines {
                text: self.source.text.clone(),
                errors: self.source.errors_in_strings(errors, |part| self.string_of(part)),
            },
        }
    }
}
