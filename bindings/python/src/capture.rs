//! Captures as streams of record batches.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use flowlane_arrow::{Column, DEFAULT_COLUMNS, Rows};
use flowlane_capture::{Batch, CaptureError, CaptureReader, Split, decompress, splits};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::error::error;
use crate::file::{File, Raised};

/// Limit of frame bytes per record batch: Arrow's 32-bit offsets end at 2 GiB.
const FRAME_BYTES_MAX: usize = 256 << 20;

type Reader = CaptureReader<Box<dyn Read + Send>>;

/// A capture stream.
struct Reading {
    name: String,
    reader: Reader,
    /// Exception of the Python object that is read.
    raised: Raised,
    /// Columns have the requested names.
    schema: SchemaRef,
    rows: Rows,
    batch: Batch,
    rows_min: usize,
    done: bool,
    /// Damage to report after all packets before it.
    damage: Option<String>,
}

impl Reading {
    /// Reads and adds the next packets; returns their number.
    fn add(&mut self) -> Result<usize, CaptureError> {
        self.reader.next_batch(&mut self.batch)?;
        self.rows.add(&self.batch, |_| true);
        Ok(self.batch.len())
    }

    /// Returns the error if reading failed; `None` if the data is damaged.
    fn failed(&self, error: &CaptureError) -> Option<ArrowError> {
        let CaptureError::Io { source, .. } = error else { return None };
        let raised = self.raised.take().map(|raised| format!("{}: {raised}", self.name));
        let said = source.raw_os_error().map(|_| format!("{}: {error}", self.name));
        Some(ArrowError::IoError(raised.or(said)?, std::io::Error::other("it cannot be read")))
    }

    /// Warns of damage after the last packet.
    fn warn(&self, damage: &str) -> Result<(), ArrowError> {
        let text = std::ffi::CString::new(format!("{}: {damage}", self.name).replace('\0', "?"));
        let text = text.expect("there is no NUL in it");
        Python::attach(|py| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2))
            .map_err(|e| ArrowError::ExternalError(e.to_string().into()))
    }
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rows.len() < self.rows_min && self.rows.frame_bytes() < FRAME_BYTES_MAX && !self.done {
            // A panic must not unwind into the consumer of the stream.
            match catch_unwind(AssertUnwindSafe(|| self.add())) {
                Ok(Ok(0)) => self.done = true,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    self.done = true;
                    // The file may be intact: the packets before the error are not the whole capture.
                    if let Some(failed) = self.failed(&error) {
                        return Some(Err(failed));
                    }
                    self.damage = Some(error.to_string());
                }
                Err(_) => {
                    self.done = true;
                    return Some(Err(ArrowError::ExternalError(
                        "internal error in the reader; please report it".into(),
                    )));
                }
            }
        }
        if self.rows.is_empty() {
            let damage = self.damage.take()?;
            return self.warn(&damage).err().map(Err);
        }
        Some(RecordBatch::try_new(self.schema.clone(), self.rows.finish().columns().to_vec()))
    }
}

impl RecordBatchReader for Reading {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Converts an error of opening a capture.
fn wrong(name: &str, error_of: CaptureError) -> PyErr {
    match error_of {
        CaptureError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            pyo3::exceptions::PyFileNotFoundError::new_err(format!("{name}: {source}"))
        }
        CaptureError::Io { offset: 0, source } => {
            pyo3::exceptions::PyOSError::new_err(format!("{name}: {source}"))
        }
        other => error(format!("{name}: {other}")),
    }
}

/// Splits a capture into parts of about `bytes` bytes: file offset, first packet and number of packets of each part; also
/// returns the damage after the last part.
///
/// # Errors
/// If the file cannot be read or is not a capture.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "converted to a list of tuples in Python")]
pub fn capture_splits(
    py: Python<'_>,
    path: PathBuf,
    bytes: u64,
) -> PyResult<(Vec<(u64, u64, u64)>, Option<String>)> {
    let (parts, damage) =
        py.detach(|| splits(&path, bytes)).map_err(|e| wrong(&path.display().to_string(), e))?;
    let parts = parts.into_iter().map(|part| (part.offset, part.first, part.frames)).collect();
    Ok((parts, damage.map(|damage| damage.to_string())))
}

/// Opens a capture by path, or from an object with the method `read`.
fn open(
    py: Python<'_>,
    source: Bound<'_, PyAny>,
    name: &str,
    split: Option<(u64, u64, u64)>,
) -> PyResult<(Reader, Raised)> {
    if !source.hasattr("read")? {
        let path: PathBuf = source.extract()?;
        let split = split.map_or(Split::WHOLE, |(offset, first, frames)| Split { offset, first, frames });
        let reader = py.detach(|| CaptureReader::of_split(&path, &split)).map_err(|e| wrong(name, e))?;
        return Ok((reader, Raised::default()));
    }
    if split.is_some() {
        return Err(error(format!("{name}: split requires a path, not a file object")));
    }
    let (file, raised) = File::new(source.unbind());
    let reader = py.detach(|| {
        let file = decompress(file).map_err(|source| CaptureError::Io { offset: 0, source })?;
        CaptureReader::new(file)
    });
    let reader = reader.map_err(|e| raised.take().unwrap_or_else(|| wrong(name, e)))?;
    Ok((reader, raised))
}

/// Returns the packets of a capture as a stream of record batches of about `batch_size` rows.
///
/// # Errors
/// If the file cannot be read, is not a capture, or a column is unknown; exceptions of the object's `read`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "passed by name in Python")]
pub fn capture_batches(
    py: Python<'_>,
    source: Bound<'_, PyAny>,
    name: String,
    columns: Option<Vec<String>>,
    batch_size: usize,
    in_port: u32,
    decapsulate: bool,
    split: Option<(u64, u64, u64)>,
) -> PyResult<PyRecordBatchReader> {
    let names = columns.unwrap_or_else(|| DEFAULT_COLUMNS.map(str::to_owned).to_vec());
    if names.is_empty() {
        return Err(error(flowlane_arrow::ArrowError::NoColumns));
    }
    let columns = names.iter().map(|name| Column::by_name(name).map_err(error));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let fields = names.iter().zip(&columns).map(|(name, column)| column.schema_field().with_name(name));
    let rows = Rows::new(&columns, in_port);
    let (reader, raised) = open(py, source, &name, split)?;
    Ok(PyRecordBatchReader::new(Box::new(Reading {
        name,
        reader,
        raised,
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        rows: if decapsulate { rows.decapsulated() } else { rows },
        batch: Batch::default(),
        rows_min: batch_size.max(1),
        done: false,
        damage: None,
    })))
}
