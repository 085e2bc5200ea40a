//! `flowlane query`: SQL over captures.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowlane_capture::{read_stream, text_of};
use flowlane_query::{Answer, Format, Options, QueryError, Session, Written, write};

use crate::arguments::QueryOptions;
use crate::cleanup::remove_on_signal;
use crate::failure::Failure;
use crate::output::{self, AtomicFile};
use crate::stderr::note;

/// Default limit of rows in a table.
const ROWS: u64 = 100;

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        match error.is_input_error() {
            true => Self::input(error.to_string()),
            false => Self::Environment(error.to_string()),
        }
    }
}

/// Runs the command.
pub(crate) fn run(options: &QueryOptions) -> Result<(), Failure> {
    let output = options.output.as_deref().filter(|path| !output::is_stdout(path));
    let format = format(options.format, output)?;
    let sql = match options.sql.as_str() {
        "-" => text_of(read_stream(io::stdin(), "standard input")?, "standard input")?,
        sql => sql.to_owned(),
    };
    let mut own = Options::default();
    (own.threads, own.memory_max) = (options.threads, options.memory_max);
    (own.in_port, own.decapsulate) = (options.in_port, options.decapsulate);
    let captures: Vec<&Path> = options.captures.iter().map(Path::new).collect();
    output::reject_input_as_output(output, &captures)?;
    let session = Session::new(&own)?;
    let _cleanup = remove_on_signal(session.spill_dirs());
    if !options.captures.is_empty() {
        // `-` is standard input, as in other tools.
        let name = |name: &String| if name == "-" { "/dev/stdin".to_owned() } else { name.clone() };
        session.packets(&options.captures.iter().map(name).collect::<Vec<_>>())?;
    }
    let answer = session.query(&sql)?;
    let rows_max = match options.rows {
        Some(0) => None,
        None if format == Format::Table => Some(ROWS),
        asked => asked,
    };
    let written = with_progress(&session, || match output {
        Some(path) => to_file(path, answer, format, rows_max),
        None => to_stdout(answer, format, rows_max),
    })?;
    if written.is_limited && options.rows.is_none() {
        note!("flowlane: output stopped after {} rows; use --rows 0 or --output FILE for all", written.rows);
    }
    match session.progress().take_damage() {
        damage if damage.is_empty() => Ok(()),
        damage => {
            let help = "all other packets are in the result";
            Err(Failure::input_help(damage.join("\n"), help))
        }
    }
}

fn format(requested: Option<Format>, output: Option<&Path>) -> Result<Format, Failure> {
    let ending = |path: &Path| path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let by_name = |path: &Path| match ending(path).as_deref() {
        Some("csv") => Ok(Format::Csv),
        Some("json") => Ok(Format::Json),
        Some("ndjson" | "jsonl") => Ok(Format::NdJson),
        Some("parquet") => Ok(Format::Parquet),
        Some("arrow") => Ok(Format::Arrow),
        Some("txt") => Ok(Format::Table),
        _ => Err(Failure::input_help(
            format!("the name {} does not select an output format", path.display()),
            "use .parquet, .arrow, .csv, .json, .ndjson or .txt, or give --format",
        )),
    };
    match (requested, output) {
        (Some(format), _) => Ok(format),
        (None, Some(path)) => by_name(path),
        (None, None) => Ok(Format::Table),
    }
}

/// Runs a function while showing how much of the captures has been read.
fn with_progress<T>(session: &Session, doing: impl FnOnce() -> T) -> T {
    let (bar, done) = (output::progress_bytes(session.capture_bytes(), "reading"), AtomicBool::new(false));
    if bar.is_hidden() {
        return doing();
    }
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bar.set_position(session.progress().bytes());
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = doing();
        done.store(true, Ordering::Relaxed);
        shown.thread().unpark();
        bar.finish_and_clear();
        result
    })
}

/// A writer that keeps the error that it failed with.
struct Sink<W> {
    writer: W,
    failure: Option<io::Error>,
}

impl<W> Sink<W> {
    fn noted<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|e| {
            let again = io::Error::new(e.kind(), e.to_string());
            self.failure = Some(e);
            again
        })
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.flush();
        self.noted(flushed)
    }
}

/// Writes a result to a writer; `name` is used in messages.
fn write_to(
    writer: impl Write + Send,
    name: &Path,
    answer: Answer<'_>,
    format: Format,
    rows_max: Option<u64>,
) -> Result<Written, Failure> {
    let mut sink = Sink { writer, failure: None };
    let written = write(&answer.schema(), answer, format, rows_max, &mut sink);
    match (written, sink.failure) {
        (Ok(written), _) => Ok(written),
        (Err(_), Some(failure)) => Err(Failure::written(name, &failure)),
        (Err(error), None) => Err(error.into()),
    }
}

fn to_stdout(answer: Answer<'_>, format: Format, rows_max: Option<u64>) -> Result<Written, Failure> {
    let stdout = BufWriter::with_capacity(1 << 16, io::stdout());
    write_to(stdout, Path::new("standard output"), answer, format, rows_max)
}

fn to_file(
    path: &Path,
    answer: Answer<'_>,
    format: Format,
    rows_max: Option<u64>,
) -> Result<Written, Failure> {
    let (file, writer) = AtomicFile::create(path)?;
    let written = write_to(writer, path, answer, format, rows_max)?;
    file.commit()?;
    Ok(written)
}
