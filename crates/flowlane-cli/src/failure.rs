//! Command failures: the message, the place in the input, a suggested fix, and the exit code.

use std::io;
use std::ops::Range;
use std::process::ExitCode;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use flowlane::rule::ReadErrors;
use flowlane_capture::TextError;
use flowlane_gpu::GpuError;
use flowlane_switch::datapath::RunError;
use flowlane_switch::mgmt::config::ConfigError;
use flowlane_switch::mgmt::setup::SetupError;
use flowlane_switch::port::PortError;
use serde::Serialize;

use crate::kind::Kind;
use crate::limits::suggestion;
use crate::stderr::{self, Severity, for_terminal};

/// Reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The requested comparison found a difference: exit code 1.
    Check(String),
    /// Invalid input: exit code 2.
    Input(Box<Diagnostic>),
    /// Invalid arguments, with a rendered message: exit code 2.
    Usage(String),
    /// A permission, device or driver is missing: exit code 3.
    Environment(String),
    /// A bug in Flowlane: exit code 101, as for a panic.
    Bug(String),
    /// The reader of the output has closed it: no message.
    OutputClosed,
    /// A failure that a document on standard output has reported: no message.
    Reported(Box<Failure>),
}

/// An error message, with the places in the input that it refers to, if any.
#[derive(Debug)]
pub(crate) struct Diagnostic {
    message: String,
    help: Option<String>,
    place: Option<SourceSpans>,
}

/// Spans of a file, each with a label where the message does not cover it.
#[derive(Debug)]
struct SourceSpans {
    file: String,
    text: String,
    spans: Vec<(Range<usize>, Option<String>)>,
}

impl SourceSpans {
    /// Converts the spans for rendering, clamped to the text and to character boundaries.
    fn snippet(&self) -> Snippet<'_, Annotation<'_>> {
        let text = self.text.as_str();
        let marks = self.spans.iter().map(|(span, label)| {
            let start = text.floor_char_boundary(span.start.min(text.len()));
            let end = text.ceil_char_boundary(span.end.clamp(start, text.len()));
            // A part that is missing at the end of a line is marked there, not as a stretch into the next.
            let end = if text[start..end].trim_matches(['\r', '\n']).is_empty() { start } else { end };
            AnnotationKind::Primary.span(start..end).label(label.as_deref())
        });
        Snippet::source(text).path(self.file.as_str()).annotations(marks)
    }
}

impl Diagnostic {
    /// Converts the message and its places for a document.
    pub(crate) fn finding(&self) -> Finding {
        let of_span = |place: &SourceSpans, (span, problem): &(Range<usize>, Option<String>)| {
            let before = &place.text[..place.text.floor_char_boundary(span.start.min(place.text.len()))];
            let line_start = before.rfind('\n').map_or(0, |end| end + 1);
            FoundPlace {
                file: place.file.clone(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                problem: problem.clone(),
            }
        };
        let places = self.place.iter().flat_map(|place| place.spans.iter().map(|span| of_span(place, span)));
        Finding { message: self.message.clone(), help: self.help.clone(), places: places.collect() }
    }

    /// Renders the message, the source lines and the suggested fix for a terminal.
    fn render(&self, level: Level<'static>) -> String {
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        if let Some(place) = &self.place {
            group = group.element(place.snippet());
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::styled().render(&[group])
    }
}

impl Failure {
    /// Invalid input without a position.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(Box::new(Diagnostic { message: message.into(), help: None, place: None }))
    }

    /// Invalid input, with a suggested fix.
    pub(crate) fn input_help(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input(Box::new(Diagnostic { message: message.into(), help: Some(help.into()), place: None }))
    }

    /// A file that cannot be opened, read or written.
    pub(crate) fn file(path: &std::path::Path, doing: &str, error: &io::Error) -> Self {
        Self::input(format!("{} cannot be {doing}: {error}", path.display()))
    }

    /// An output that cannot be opened or written.
    pub(crate) fn written(path: &std::path::Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ if is_of_path(error) => Self::file(path, "written", error),
            _ => Self::Environment(format!("{} cannot be written: {error}", path.display())),
        }
    }

    /// A thread that the system does not start.
    pub(crate) fn thread(error: &io::Error) -> Self {
        Self::Environment(format!("the system starts no further thread: {error}"))
    }

    /// Lines of a rule or trace file that do not parse.
    pub(crate) fn lines(text: String, errors: &ReadErrors) -> Self {
        let first = &errors.errors()[0];
        let more = errors.count() - errors.errors().len();
        let spans = errors.errors().iter();
        let spans = spans.map(|e| (e.offset..e.offset + e.len.max(1), Some(e.problem.clone()))).collect();
        let help = match more {
            0 => "nothing was loaded".to_owned(),
            n => format!("{n} further errors; nothing was loaded"),
        };
        let message = format!("{first}");
        let place = Some(SourceSpans { file: first.file.clone(), text, spans });
        Self::Input(Box::new(Diagnostic { message, help: Some(help), place }))
    }

    /// Lines of a file that do not parse as one of the kinds `expected`; a file of another kind gets one error, which names it.
    pub(crate) fn lines_of(expected: &[Kind], text: String, errors: &ReadErrors) -> Self {
        match Self::other_kind(expected, &errors.errors()[0].file, &text) {
            Some(failure) => failure,
            None => Self::lines(text, errors),
        }
    }

    /// Returns the error of a file that looks like another kind than those `expected`.
    pub(crate) fn other_kind(expected: &[Kind], file: &str, text: &str) -> Option<Self> {
        let kind = Kind::of(text).filter(|kind| !expected.contains(kind))?;
        let wanted = expected.first().map_or("expected here", |kind| kind.name());
        Some(Self::input_help(
            format!("{file} looks like {}, not like {wanted}", kind.name()),
            kind.help(file),
        ))
    }

    /// Spans of a text that the switch rejected; no change was made.
    pub(crate) fn places(
        message: String,
        file: String,
        text: String,
        spans: Vec<(Range<usize>, String)>,
    ) -> Self {
        let spans = spans.into_iter().map(|(span, problem)| (span, Some(problem))).collect();
        let place = Some(SourceSpans { file, text, spans });
        Self::Input(Box::new(Diagnostic { message, help: Some("nothing was changed".to_owned()), place }))
    }

    /// Returns the message as one line.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Check(message) | Self::Usage(message) | Self::Environment(message) | Self::Bug(message) => {
                message.clone()
            }
            Self::Input(trouble) => trouble.message.clone(),
            Self::OutputClosed => "the output is closed".to_owned(),
            Self::Reported(failure) => failure.message(),
        }
    }

    /// Returns the exit code.
    fn code(&self) -> ExitCode {
        match self {
            Self::Check(_) => ExitCode::from(1),
            Self::Input(_) | Self::Usage(_) => ExitCode::from(2),
            Self::Environment(_) => ExitCode::from(3),
            Self::Bug(_) => ExitCode::from(101),
            Self::OutputClosed => ExitCode::SUCCESS,
            Self::Reported(failure) => failure.code(),
        }
    }

    /// Writes the message to standard error; returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let code = self.code();
        match self {
            Self::Check(message) | Self::Bug(message) => stderr::error!("{message}"),
            Self::Input(trouble) => {
                let text = trouble.render(Level::ERROR) + "\n";
                stderr::write(Severity::Error, &for_terminal(&io::stderr(), text));
            }
            Self::Usage(message) => stderr::write(Severity::Error, &for_terminal(&io::stderr(), message)),
            Self::Environment(message) => stderr::error!("{message}{}", suggestion(&message)),
            Self::OutputClosed | Self::Reported(_) => {}
        }
        code
    }

    /// Converts the failure to a finding for a document.
    pub(crate) fn finding(&self) -> Finding {
        match self {
            Self::Input(trouble) => trouble.finding(),
            other => Finding { message: other.message(), help: None, places: Vec::new() },
        }
    }
}

/// An error or a warning in a document.
#[derive(Serialize)]
pub(crate) struct Finding {
    message: String,
    help: Option<String>,
    places: Vec<FoundPlace>,
}

/// A place in a file.
#[derive(Serialize)]
struct FoundPlace {
    file: String,
    /// From 1.
    line: usize,
    /// Of the line, in characters from 1.
    column: usize,
    /// The problem there, where the message does not cover it.
    problem: Option<String>,
}

/// Returns whether another path avoids an error; otherwise the system lacks something, such as room on a disk.
fn is_of_path(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;

    matches!(
        error.kind(),
        Kind::NotFound
            | Kind::PermissionDenied
            | Kind::AlreadyExists
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::InvalidFilename
            | Kind::InvalidInput
            | Kind::ReadOnlyFilesystem
    )
}

impl From<ConfigError> for Diagnostic {
    fn from(error: ConfigError) -> Self {
        let message = error.to_string();
        let place = error.span.map(|span| {
            let file = error.file.display().to_string();
            SourceSpans { file, text: error.text, spans: vec![(span, None)] }
        });
        Self { message, help: error.help, place }
    }
}

/// Writes a warning about a part of a configuration to standard error.
pub(crate) fn warn(warning: ConfigError) {
    let text = Diagnostic::from(warning).render(Level::WARNING);
    stderr::write(Severity::Warning, &for_terminal(&io::stderr(), text + "\n"));
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error.environment {
            true => Self::Environment(error.to_string()),
            false => Self::other_kind(&[Kind::Toml], &error.file.display().to_string(), &error.text)
                .unwrap_or_else(|| Self::Input(Box::new(error.into()))),
        }
    }
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Environment { .. } => Self::Environment(error.to_string()),
            PortError::Io { ref source, .. } if !is_of_path(source) => Self::Environment(error.to_string()),
            other => Self::input(other.to_string()),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Port(error) => error.into(),
            RunError::Difference(difference) => Self::Check(difference.to_string()),
            bug @ RunError::Panicked { .. } => Self::Bug(bug.to_string()),
            RunError::Thread(_) => Self::Environment(error.to_string()),
            other => Self::input(other.to_string()),
        }
    }
}

impl From<GpuError> for Failure {
    fn from(error: GpuError) -> Self {
        // The rules do not suit a device, or the machine lacks something.
        match error {
            GpuError::Entries { .. } | GpuError::Words { .. } | GpuError::List { .. } => {
                Self::input(error.to_string())
            }
            lack => Self::Environment(lack.to_string()),
        }
    }
}

#[cfg(feature = "opencl")]
impl From<flowlane_paper::opencl::ClError> for Failure {
    fn from(error: flowlane_paper::opencl::ClError) -> Self {
        match error {
            flowlane_paper::opencl::ClError::Rules(error) => error.into(),
            lack => Self::Environment(lack.to_string()),
        }
    }
}

impl From<TextError> for Failure {
    fn from(TextError { file, problem, help, .. }: TextError) -> Self {
        Self::Input(Box::new(Diagnostic { message: format!("{file} {problem}"), help, place: None }))
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Config(error) => error.into(),
            SetupError::Lines { text, errors } => {
                Self::lines_of(&[Kind::Flows, Kind::Filters, Kind::Routes, Kind::Toml], text, &errors)
            }
        }
    }
}
