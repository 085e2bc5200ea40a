//! Output of query results as text and files.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::cast;
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use arrow::json::{ArrayWriter, LineDelimitedWriter, WriterBuilder as JsonBuilder};
use arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::error::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use flowlane::named_enum::{Named, UnknownName};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::QueryError;
use crate::functions::address::{Family, texts};

/// Output format of a query's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Format>)]
pub enum Format {
    /// A table for reading.
    Table,
    /// Comma-separated values with a header line.
    Csv,
    /// A JSON array of objects.
    Json,
    /// One JSON object per line.
    NdJson,
    /// A Parquet file with Zstandard compression.
    Parquet,
    /// An Arrow IPC file.
    Arrow,
}

impl Named for Format {
    const KIND: &'static str = "format";
}

/// Result of [`write()`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Number of rows written.
    pub rows: u64,
    /// Further rows were omitted.
    pub is_limited: bool,
}

/// Approximate size of a Parquet row group in bytes.
const GROUP_BYTES: usize = 32 << 20;

/// Writer of record batches in one of the formats.
pub(crate) enum Writer<W: Write + Send> {
    Csv(Box<arrow::csv::Writer<W>>),
    Json(ArrayWriter<W>),
    NdJson(LineDelimitedWriter<W>),
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>),
}

fn failed(error: impl Into<DataFusionError>) -> QueryError {
    QueryError::Engine(error.into())
}

impl<W: Write + Send> Writer<W> {
    pub(crate) fn new(format: Format, schema: &SchemaRef, sink: W) -> Result<Self, QueryError> {
        let with_nulls = JsonBuilder::new().with_explicit_nulls(true);
        Ok(match format {
            Format::Csv | Format::Table => {
                Self::Csv(Box::new(WriterBuilder::new().with_header(true).build(sink)))
            }
            Format::Json => Self::Json(with_nulls.build(sink)),
            Format::NdJson => Self::NdJson(with_nulls.build(sink)),
            Format::Parquet => {
                let properties =
                    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
                let writer = ArrowWriter::try_new(sink, Arc::clone(schema), Some(properties.build()));
                Self::Parquet(Box::new(writer.map_err(failed)?))
            }
            Format::Arrow => Self::Arrow(Box::new(FileWriter::try_new(sink, schema).map_err(failed)?)),
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        match self {
            Self::Csv(writer) => writer.write(batch).map_err(failed),
            Self::Json(writer) => writer.write(batch).map_err(failed),
            Self::NdJson(writer) => writer.write(batch).map_err(failed),
            Self::Parquet(writer) => {
                writer.write(batch).map_err(failed)?;
                // Rows stay in memory until their row group is complete.
                if writer.in_progress_size() > GROUP_BYTES { writer.flush().map_err(failed) } else { Ok(()) }
            }
            Self::Arrow(writer) => writer.write(batch).map_err(failed),
        }
    }

    /// Completes and flushes the output.
    pub(crate) fn finish(self) -> Result<(), QueryError> {
        let mut sink = match self {
            Self::Csv(writer) => writer.into_inner(),
            Self::Json(mut writer) => {
                writer.finish().map_err(failed)?;
                let mut sink = writer.into_inner();
                sink.write_all(b"\n").map_err(|e| failed(ArrowError::from(e)))?;
                sink
            }
            Self::NdJson(mut writer) => {
                writer.finish().map_err(failed)?;
                writer.into_inner()
            }
            Self::Parquet(writer) => writer.into_inner().map_err(failed)?,
            Self::Arrow(writer) => writer.into_inner().map_err(failed)?,
        };
        sink.flush().map_err(|e| failed(ArrowError::from(e)))
    }
}

/// Writes at most `rows_max` rows of a result; later rows are not computed. Parquet and Arrow files contain addresses as
/// numbers and binaries, the other formats as text.
///
/// # Errors
/// If the query or writing fails.
pub fn write(
    schema: &SchemaRef,
    answer: impl Iterator<Item = Result<RecordBatch, QueryError>>,
    format: Format,
    rows_max: Option<u64>,
    mut sink: impl Write + Send,
) -> Result<Written, QueryError> {
    let converter = Converter::new(schema, matches!(format, Format::Parquet | Format::Arrow));
    let mut left = rows_max.unwrap_or(u64::MAX);
    let mut written = Written { rows: 0, is_limited: false };
    let mut batches = answer.map_while(|batch| {
        if written.is_limited {
            return None;
        }
        let batch = batch.and_then(|batch| converter.batch(&batch));
        Some(batch.map(|batch| {
            written.is_limited = batch.num_rows() as u64 > left;
            let batch = if written.is_limited { batch.slice(0, left as usize) } else { batch };
            left -= batch.num_rows() as u64;
            written.rows += batch.num_rows() as u64;
            batch
        }))
    });
    match format {
        Format::Table => {
            let batches = batches.collect::<Result<Vec<RecordBatch>, _>>()?;
            let table = pretty_format_batches_with_schema(converter.schema(), &batches).map_err(failed)?;
            let printed = writeln!(sink, "{table}").and_then(|()| sink.flush());
            printed.map_err(|e| failed(ArrowError::from(e)))?;
        }
        _ => {
            let mut writer = Writer::new(format, &converter.schema, &mut sink)?;
            // An empty result still has a header.
            writer.write(&RecordBatch::new_empty(converter.schema()))?;
            batches.try_for_each(|batch| writer.write(&batch?))?;
            writer.finish()?;
        }
    }
    Ok(written)
}

/// Conversion of columns for output.
struct Converter {
    schema: SchemaRef,
    /// Families of address columns that are written as text.
    families: Vec<Option<Family>>,
}

impl Converter {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn new(schema: &SchemaRef, is_raw: bool) -> Self {
        let families = schema.fields().iter().map(|field| Family::of(field).filter(|_| !is_raw));
        let families: Vec<Option<Family>> = families.collect();
        let fields = schema.fields().iter().zip(&families).map(|(field, family)| match family {
            Some(_) => Arc::new(Field::new(field.name(), DataType::Utf8, field.is_nullable())),
            // Arrow files have one dictionary per column, but each batch has its own.
            None => match field.data_type() {
                DataType::Dictionary(_, values) => {
                    Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone()))
                }
                _ => Arc::clone(field),
            },
        });
        Self { schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())), families }
    }

    fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, QueryError> {
        let field = self.schema.fields().iter().zip(&self.families);
        let columns = batch.columns().iter().zip(field).map(|(column, (field, family))| match family {
            Some(family) => Ok(texts(*family, column)),
            None if column.data_type() != field.data_type() => {
                cast(column, field.data_type()).map_err(failed)
            }
            None => Ok(Arc::clone(column)),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema(), columns, &options).map_err(failed)
    }
}
