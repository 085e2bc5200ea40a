//! Captures as record batches.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use flowlane_arrow::{Column, Rows, USUAL};
use flowlane_capture::{Batch, CaptureError, CaptureReader, Split, splits, unpack};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::error::error;
use crate::file::{File, Raised};

/// A batch ends where its frames have so many bytes: offsets of Arrow end at 2 GiB.
const FRAME_BYTES_MAX: usize = 256 << 20;

type Reader = CaptureReader<Box<dyn Read + Send>>;

/// A capture that is being read.
struct Reading {
    name: String,
    reader: Reader,
    /// What an object of Python raised that is read.
    raised: Raised,
    /// Columns are called as they were asked for.
    schema: SchemaRef,
    rows: Rows,
    batch: Batch,
    rows_min: usize,
    done: bool,
    /// What is to be said once all packets before it have been given.
    damage: Option<String>,
}

impl Reading {
    /// Adds the next packets that are read at once; says how many.
    fn add(&mut self) -> Result<usize, CaptureError> {
        self.reader.next_batch(&mut self.batch)?;
        self.rows.add(&self.batch, |_| true);
        Ok(self.batch.len())
    }

    /// Why the system, or an object of Python, did not give what there is; none where what it gave is damaged.
    fn failed(&self, error: &CaptureError) -> Option<ArrowError> {
        let CaptureError::Io { source, .. } = error else { return None };
        let raised = self.raised.take().map(|raised| format!("{}: {raised}", self.name));
        let said = source.raw_os_error().map(|_| format!("{}: {error}", self.name));
        Some(ArrowError::IoError(raised.or(said)?, std::io::Error::other("it cannot be read")))
    }

    /// Says what is wrong behind the last packet.
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
            // What panics must not unwind into whoever reads the stream.
            match catch_unwind(AssertUnwindSafe(|| self.add())) {
                Ok(Ok(0)) => self.done = true,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    self.done = true;
                    // What could not be read may be whole: packets before are not all that there is.
                    if let Some(failed) = self.failed(&error) {
                        return Some(Err(failed));
                    }
                    self.damage = Some(error.to_string());
                }
                Err(_) => {
                    self.done = true;
                    return Some(Err(ArrowError::ExternalError(
                        "the reader has a fault: please report it".into(),
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

/// What Python is told of a capture that cannot be read.
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

/// Parts of a capture of about so many bytes: where each begins in the file, its first packet, and how many it has; and what is
/// wrong behind the last.
///
/// # Errors
/// Where the file cannot be read or is no capture.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple each is what Python takes")]
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

/// A capture by its path, or as an object with the method `read`.
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
        return Err(error(format!(
            "{name}: a part is of a file by its path, and not of an object that is read"
        )));
    }
    let (file, raised) = File::new(source.unbind());
    let reader = py.detach(|| {
        let file = unpack(file).map_err(|source| CaptureError::Io { offset: 0, source })?;
        CaptureReader::new(file)
    });
    let reader = reader.map_err(|e| raised.take().unwrap_or_else(|| wrong(name, e)))?;
    Ok((reader, raised))
}

/// The packets of a capture as a stream of record batches of about so many rows.
///
/// # Errors
/// Where the file cannot be read or is no capture, or there is no such column; what an object raises when it is read.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
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
    let names = columns.unwrap_or_else(|| USUAL.map(str::to_owned).to_vec());
    if names.is_empty() {
        return Err(error(flowlane_arrow::ArrowError::NoColumns));
    }
    let columns = names.iter().map(|name| Column::by_name(name).map_err(error));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let described = names.iter().zip(&columns).map(|(name, column)| column.described().with_name(name));
    let rows = Rows::new(&columns, in_port);
    let (reader, raised) = open(py, source, &name, split)?;
    Ok(PyRecordBatchReader::new(Box::new(Reading {
        name,
        reader,
        raised,
        schema: Arc::new(Schema::new(described.collect::<Vec<_>>())),
        rows: if decapsulate { rows.decapsulated() } else { rows },
        batch: Batch::default(),
        rows_min: batch_size.max(1),
        done: false,
        damage: None,
    })))
}
