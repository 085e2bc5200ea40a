//! Output of results: files, standard output, tables, progress bars.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use flowlane_bench::render::{self, Align};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Returns whether a path denotes standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Rejects a name with the extension of a compressed file.
pub(crate) fn reject_compressed_name(path: &Path) -> Result<(), Failure> {
    let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).unwrap_or_default();
    match ["gz", "zst", "bz2", "xz", "lz4"].contains(&ending.as_str()) {
        true => Err(Failure::input_help(
            format!("{}: output is not compressed", path.display()),
            format!("omit .{ending} and compress the file afterwards"),
        )),
        false => Ok(()),
    }
}

/// Rejects an output that is one of the input files, which opening it would truncate.
pub(crate) fn reject_input_as_output(output: Option<&Path>, inputs: &[&Path]) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;

    let id = |path: &Path| {
        path.metadata().ok().filter(std::fs::Metadata::is_file).map(|data| (data.dev(), data.ino()))
    };
    let Some((output, own)) = output.and_then(|path| Some((path, id(path)?))) else { return Ok(()) };
    match inputs.iter().any(|input| id(input) == Some(own)) {
        true => Err(Failure::input_help(
            format!("{} is an input of this command", output.display()),
            "choose another output; nothing was changed",
        )),
        false => Ok(()),
    }
}

/// An output file, or standard output.
pub(crate) struct Output<'a> {
    writer: Box<dyn Write + Send>,
    path: Option<&'a Path>,
}

impl<'a> Output<'a> {
    /// Opens standard output.
    pub(crate) fn stdout() -> Self {
        Self { writer: Box::new(BufWriter::with_capacity(1 << 16, io::stdout())), path: None }
    }

    pub(crate) fn create(path: Option<&'a Path>) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| !is_stdout(path)) else { return Ok(Self::stdout()) };
        reject_compressed_name(path)?;
        let file = File::create(path).map_err(|e| Failure::written(path, &e))?;
        Ok(Self { writer: Box::new(BufWriter::with_capacity(1 << 18, file)), path: Some(path) })
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.writer.write_all(text.as_bytes());
        written.map_err(|e| self.failed(&e))
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.writer.flush();
        flushed.map_err(|e| self.failed(&e))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::written(self.path.unwrap_or(Path::new(STDOUT)), error)
    }
}

/// An output file that appears complete or not at all: a temporary file is written, then renamed, or removed if the program
/// is interrupted.
pub(crate) struct AtomicFile<'a> {
    path: &'a Path,
    /// Temporary file; none if the path is a link, a pipe or a device, which is written in place.
    temporary: Option<std::path::PathBuf>,
    _cleanup: Option<crate::cleanup::CleanupGuard>,
}

impl<'a> AtomicFile<'a> {
    /// Opens the output `path`; returns the guard and the writer.
    pub(crate) fn create(path: &'a Path) -> Result<(Self, BufWriter<File>), Failure> {
        reject_compressed_name(path)?;
        let failed = |e: &io::Error| Failure::written(path, e);
        let before = match path.symlink_metadata() {
            Ok(data) => Some(data),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(&e)),
        };
        let (temporary, file) = if before.as_ref().is_none_or(std::fs::Metadata::is_file) {
            // The process ID makes the name unique among runs.
            let temporary =
                std::path::PathBuf::from(format!("{}.{}.partial", path.display(), std::process::id()));
            (Some(temporary.clone()), File::create_new(temporary))
        } else {
            (None, File::create(path))
        };
        let file = file.map_err(|e| failed(&e))?;
        let cleanup =
            temporary.clone().map(|path| crate::cleanup::remove_on_signal(move || vec![path.clone()]));
        let made = Self { path, temporary, _cleanup: cleanup };
        if let Some(before) = before.filter(std::fs::Metadata::is_file) {
            file.set_permissions(before.permissions()).map_err(|e| failed(&e))?;
        }
        Ok((made, BufWriter::with_capacity(1 << 18, file)))
    }

    /// Renames the completed file to its name.
    pub(crate) fn commit(mut self) -> Result<(), Failure> {
        match self.temporary.take() {
            Some(temporary) => {
                std::fs::rename(temporary, self.path).map_err(|e| Failure::written(self.path, &e))
            }
            None => Ok(()),
        }
    }
}

impl Drop for AtomicFile<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The earlier failure is reported.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Name of standard output in messages.
const STDOUT: &str = "standard output";

/// Prints a text on standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = Output::stdout();
    output.text(text)?;
    output.finish()
}

/// Prints a document as JSON on standard output.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).expect("reports have no keys but strings");
    text.push('\n');
    print(&text)
}

/// Formats a table with a title line: the first column aligned left, the others right.
pub(crate) fn table(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    format!("{title}\n{}\n", render::text_table(header, rows, Align::Right))
}

/// Formats a table with a title line and all columns aligned left.
pub(crate) fn text_table(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    format!("{title}\n{}\n", render::text_table(header, rows, Align::Left))
}

/// Formats a number with its thousands separated.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Formats bytes in the largest unit that gives a value of at least 1.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}

/// Creates a progress bar on standard error, if that is a terminal; `len` is 0 if unknown.
pub(crate) fn progress(len: u64, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, style) = match len {
        0 => (ProgressBar::new_spinner(), "{msg} {spinner} {human_pos} ({per_sec})"),
        len => (ProgressBar::new(len), "{msg} {wide_bar} {human_pos}/{human_len} ({eta})"),
    };
    let style = ProgressStyle::with_template(style).expect("the template is a constant");
    bar.with_style(style).with_message(what)
}

/// Creates a progress bar of bytes on standard error, if that is a terminal.
#[cfg(feature = "query")]
pub(crate) fn progress_bytes(len: u64, what: &'static str) -> ProgressBar {
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}, {eta})";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    progress(len, what).with_style(style)
}

/// Creates a progress bar of a share of [`SHARES`] on standard error, if that is a terminal.
pub(crate) fn progress_share() -> ProgressBar {
    let template = "{msg:32!} {wide_bar} {percent:>3} %";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    progress(SHARES, "").with_style(style)
}

/// Position of a complete [`progress_share`].
pub(crate) const SHARES: u64 = 1000;
