//! `flowlane query`: captures as tables of an SQL engine.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowlane_query::{Answer, Format, Options, QueryError, Session, Written, write};

use crate::arguments::{AnswerFormat, QueryOptions};
use crate::failure::Failure;
use crate::output::{self, Beside};
use crate::stopped::removed;

/// Rows of a table that are shown where nobody says how many.
const ROWS: u64 = 100;

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        match error.is_of_input() {
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
        "-" => io::read_to_string(io::stdin())
            .map_err(|e| Failure::input(format!("standard input cannot be read: {e}")))?,
        sql => sql.to_owned(),
    };
    let mut own = Options::default();
    (own.threads, own.memory_max) = (options.threads, options.memory_max);
    (own.in_port, own.decapsulate) = (options.in_port, options.decapsulate);
    let captures: Vec<&Path> = options.captures.iter().map(Path::new).collect();
    output::is_not_read(output, &captures)?;
    let session = Session::new(&own)?;
    let _removed = removed(session.folders());
    if !options.captures.is_empty() {
        // As other tools call standard input.
        let name = |name: &String| if name == "-" { "/dev/stdin".to_owned() } else { name.clone() };
        session.packets(&options.captures.iter().map(name).collect::<Vec<_>>())?;
    }
    let answer = session.ask(&sql)?;
    let rows_max = match options.rows {
        Some(0) => None,
        None if format == Format::Table => Some(ROWS),
        asked => asked,
    };
    let written = with_progress(&session, || match output {
        Some(path) => to_file(path, answer, format, rows_max),
        None => to_stdout(answer, format, rows_max),
    })?;
    if written.is_cut && options.rows.is_none() {
        eprintln!("flowlane: there are more than {} rows; --rows 0 or --output FILE gives all", written.rows);
    }
    for damage in session.progress().take_damage() {
        eprintln!("flowlane: warning: {damage}");
    }
    Ok(())
}

fn format(asked: Option<AnswerFormat>, output: Option<&Path>) -> Result<Format, Failure> {
    let ending = |path: &Path| path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let by_name = |path: &Path| match ending(path).as_deref() {
        Some("csv") => Ok(AnswerFormat::Csv),
        Some("json") => Ok(AnswerFormat::Json),
        Some("ndjson" | "jsonl") => Ok(AnswerFormat::Ndjson),
        Some("parquet") => Ok(AnswerFormat::Parquet),
        Some("arrow") => Ok(AnswerFormat::Arrow),
        Some("txt") => Ok(AnswerFormat::Table),
        _ => Err(Failure::input_help(
            format!("{} does not say how the answer is to be written", path.display()),
            "call it .parquet, .arrow, .csv, .json, .ndjson or .txt, or give --format",
        )),
    };
    let format = match (asked, output) {
        (Some(format), _) => format,
        (None, Some(path)) => by_name(path)?,
        (None, None) => AnswerFormat::Table,
    };
    Ok(match format {
        AnswerFormat::Table => Format::Table,
        AnswerFormat::Csv => Format::Csv,
        AnswerFormat::Json => Format::Json,
        AnswerFormat::Ndjson => Format::NdJson,
        AnswerFormat::Parquet => Format::Parquet,
        AnswerFormat::Arrow => Format::Arrow,
    })
}

/// Does something, and shows meanwhile how much of the captures has been read.
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

/// What an answer is written to, and why that failed.
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

/// Writes an answer into what is called `name`.
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
        (Err(_), Some(closed)) if closed.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        (Err(_), Some(failure)) => Err(Failure::file(name, "written", &failure)),
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
    let (beside, sink) = Beside::create(path)?;
    let written = write_to(sink, path, answer, format, rows_max)?;
    beside.keep()?;
    Ok(written)
}
