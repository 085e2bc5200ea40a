//! Writing results: files, standard output, tables.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use flowlane_bench::render::{self, Align};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Whether a path is how tools call standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses a name that says that the file is packed.
pub(crate) fn is_not_packed(path: &Path) -> Result<(), Failure> {
    let ending = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).unwrap_or_default();
    match ["gz", "zst", "bz2", "xz", "lz4"].contains(&ending.as_str()) {
        true => Err(Failure::input_help(
            format!("{}: what is written is not packed", path.display()),
            format!("leave .{ending} out, and pack it then"),
        )),
        false => Ok(()),
    }
}

/// Refuses an output that is one of the files that are read: they would be gone before they are.
pub(crate) fn is_not_read(output: Option<&Path>, inputs: &[&Path]) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;

    let id = |path: &Path| {
        path.metadata().ok().filter(std::fs::Metadata::is_file).map(|data| (data.dev(), data.ino()))
    };
    let Some((output, own)) = output.and_then(|path| Some((path, id(path)?))) else { return Ok(()) };
    match inputs.iter().any(|input| id(input) == Some(own)) {
        true => Err(Failure::input_help(
            format!("{} is read, and cannot be written as well", output.display()),
            "give another name; nothing was changed",
        )),
        false => Ok(()),
    }
}

/// A file, or standard output where there is none.
pub(crate) struct Output<'a> {
    writer: Box<dyn Write + Send>,
    path: Option<&'a Path>,
}

impl<'a> Output<'a> {
    pub(crate) fn create(path: Option<&'a Path>) -> Result<Self, Failure> {
        let path = path.filter(|path| !is_stdout(path));
        path.map_or(Ok(()), is_not_packed)?;
        let writer: Box<dyn Write + Send> = match path {
            Some(path) => {
                let file = File::create(path).map_err(|e| Failure::file(path, "written", &e))?;
                Box::new(BufWriter::with_capacity(1 << 18, file))
            }
            None => Box::new(BufWriter::with_capacity(1 << 16, io::stdout())),
        };
        Ok(Self { writer, path })
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
        match self.path {
            None if error.kind() == io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            path => Failure::file(path.unwrap_or(Path::new("standard output")), "written", error),
        }
    }
}

/// A file that is there whole, or as it was before: it is written beside, and renamed; what was written goes where the program is
/// stopped before.
#[cfg(feature = "query")]
pub(crate) struct Beside<'a> {
    path: &'a Path,
    /// Where it is written; none where the path is no plain file, but a link, a pipe or a device, and is written to as it is.
    beside: Option<std::path::PathBuf>,
    _removed: Option<crate::stopped::Removed>,
}

#[cfg(feature = "query")]
impl<'a> Beside<'a> {
    /// What is to be called `path`, and where it is written to.
    pub(crate) fn create(path: &'a Path) -> Result<(Self, BufWriter<File>), Failure> {
        is_not_packed(path)?;
        let failed = |e: &io::Error| Failure::file(path, "written", e);
        let before = match path.symlink_metadata() {
            Ok(data) => Some(data),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(&e)),
        };
        let (beside, file) = if before.as_ref().is_none_or(std::fs::Metadata::is_file) {
            // No other run, and no file of the user's, is called so.
            let beside =
                std::path::PathBuf::from(format!("{}.{}.partial", path.display(), std::process::id()));
            (Some(beside.clone()), File::create_new(beside))
        } else {
            (None, File::create(path))
        };
        let file = file.map_err(|e| failed(&e))?;
        let removed = beside.clone().map(|beside| crate::stopped::removed(move || vec![beside.clone()]));
        let made = Self { path, beside, _removed: removed };
        if let Some(before) = before.filter(std::fs::Metadata::is_file) {
            file.set_permissions(before.permissions()).map_err(|e| failed(&e))?;
        }
        Ok((made, BufWriter::with_capacity(1 << 18, file)))
    }

    /// It is whole.
    pub(crate) fn keep(mut self) -> Result<(), Failure> {
        match self.beside.take() {
            Some(beside) => {
                std::fs::rename(beside, self.path).map_err(|e| Failure::file(self.path, "written", &e))
            }
            None => Ok(()),
        }
    }
}

#[cfg(feature = "query")]
impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // What failed before is what is said.
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// A document as JSON on standard output.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).expect("reports have no keys but strings");
    text.push('\n');
    let mut output = Output::create(None)?;
    output.text(&text)?;
    output.finish()
}

/// A table with a title line: the first column to the left, the others to the right.
pub(crate) fn table(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    format!("{title}\n{}\n", render::text_table(header, rows, Align::Right))
}

/// The same with all columns to the left.
pub(crate) fn text_table(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    format!("{title}\n{}\n", render::text_table(header, rows, Align::Left))
}

/// A number with its thousands apart.
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

/// Bytes in the largest unit that leaves a number of at least 1.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}

/// A progress bar on standard error where that is a terminal; `len` 0 for unknown.
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

/// A progress bar on standard error, where that is a terminal, of so many bytes.
#[cfg(feature = "query")]
pub(crate) fn progress_bytes(len: u64, what: &'static str) -> ProgressBar {
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}, {eta})";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    progress(len, what).with_style(style)
}

/// A progress bar on standard error, where that is a terminal, of a share of the whole.
pub(crate) fn progress_share() -> ProgressBar {
    let template = "{msg:32!} {wide_bar} {percent:>3} %";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    progress(SHARES, "").with_style(style)
}

/// The whole of [`progress_share`].
pub(crate) const SHARES: u64 = 1000;
