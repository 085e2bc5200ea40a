//! Captures as a table.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use arrow::array::{ArrayRef, DictionaryArray, RecordBatch, RecordBatchOptions, StringArray, UInt16Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use flowlane_arrow::{Column, Rows};
use flowlane_capture::{Batch, CaptureReader, decompress};
use futures::Stream;

use crate::bounds::{Bounds, is_supported};
use crate::file_queue::{FileQueue, Progress};
use crate::{QueryError, files};

/// Name of the column with the file name.
pub(crate) const FILE: &str = "file";

/// Limit of frame bytes per record batch.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Limit of files per record batch.
const FILES_MAX: usize = 4096;

/// Parameters of packet parsing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParseOptions {
    pub(crate) in_port: u32,
    /// Parse the inner headers of tunnel packets.
    pub(crate) decapsulate: bool,
}

/// A table with one row per captured packet.
#[derive(Debug)]
pub(crate) struct Captures {
    files: Arc<[PathBuf]>,
    parse_options: ParseOptions,
    schema: SchemaRef,
    progress: Arc<Progress>,
}

impl Captures {
    /// Finds the captures of files, directories and patterns.
    ///
    /// # Errors
    /// If there are none, or a named file is not a capture.
    pub(crate) fn new(
        names: &[String],
        parse_options: ParseOptions,
        progress: Arc<Progress>,
    ) -> Result<Self, QueryError> {
        let all = files::captures(names)?;
        // Named files must be captures; errors in files of directories and patterns are reported when read.
        for name in names.iter().filter(|name| std::path::Path::new(name).is_file()) {
            let file_error =
                |what: &dyn fmt::Display| QueryError::File { name: name.clone(), what: what.to_string() };
            let file = File::open(name).and_then(decompress).map_err(|e| file_error(&e))?;
            CaptureReader::new(file).map_err(|e| file_error(&e))?;
        }
        let packets = Column::all().map(Column::schema_field);
        let file = DataType::Dictionary(DataType::UInt16.into(), DataType::Utf8.into());
        let columns = std::iter::once(Field::new(FILE, file, false)).chain(packets);
        let schema = Arc::new(Schema::new(columns.collect::<Vec<_>>()));
        Ok(Self { files: all.into(), parse_options, schema, progress })
    }

    /// Returns the size of the files in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.metadata().ok()).map(|data| data.len()).sum()
    }
}

#[async_trait]
impl TableProvider for Captures {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&Expr| match is_supported(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(taken).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let schema = Arc::new(self.schema.project(projection)?);
        let named = |name: &str| Column::by_name(name).map_err(|e| DataFusionError::Plan(e.to_string()));
        let columns = schema.fields().iter().filter(|f| f.name() != FILE).map(|f| named(f.name()));
        Ok(Arc::new(Scan::new(Arc::new(Source {
            files: Arc::clone(&self.files),
            columns: columns.collect::<Result<_>>()?,
            file_at: schema.fields().iter().position(|f| f.name() == FILE),
            schema,
            bounds: Bounds::of(filters),
            parse_options: self.parse_options,
            progress: Arc::clone(&self.progress),
            threads: session.config().target_partitions().max(1),
        }))))
    }
}

/// Parameters of a scan.
#[derive(Debug)]
struct Source {
    files: Arc<[PathBuf]>,
    schema: SchemaRef,
    columns: Vec<Column>,
    /// Index of the file-name column in the schema.
    file_at: Option<usize>,
    bounds: Bounds,
    parse_options: ParseOptions,
    progress: Arc<Progress>,
    threads: usize,
}

impl Source {
    fn queue(&self) -> Arc<FileQueue> {
        Arc::new(FileQueue::new(&self.files, self.threads, Arc::clone(&self.progress)))
    }
}

/// A scan of captures by several threads.
struct Scan {
    source: Arc<Source>,
    /// The current pass over the files, and the threads that have joined it.
    begun: Mutex<(Option<Arc<FileQueue>>, Vec<bool>)>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    fn new(source: Arc<Source>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&source.schema)),
            Partitioning::UnknownPartitioning(source.threads),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let begun = Mutex::new((None, vec![false; source.threads]));
        Self { source, begun, properties: properties.into(), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Returns the pass for this thread: a new one if the thread has joined the current one already.
    fn queue(&self, thread: usize) -> Arc<FileQueue> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, has_begun) = &mut *begun;
        if has_begun[thread] || queue.is_none() {
            has_begun.fill(false);
            *queue = Some(self.source.queue());
        }
        has_begun[thread] = true;
        Arc::clone(queue.as_ref().expect("it was made"))
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("source", &self.source).finish_non_exhaustive()
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Source { files, columns, bounds, .. } = &*self.source;
        let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
        write!(f, "CaptureScan: files={}, columns=[{}]{bounds}", files.len(), names.join(", "))
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &'static str {
        "CaptureScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.source))))
    }

    fn execute(&self, thread: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let source = Arc::clone(&self.source);
        let rows = Rows::new(&source.columns, source.parse_options.in_port);
        Ok(Box::pin(cooperative(Packets {
            queue: self.queue(thread),
            thread,
            rows: if source.parse_options.decapsulate { rows.decapsulated() } else { rows },
            rows_min: context.session_config().batch_size(),
            batch: Batch::default(),
            files: Vec::new(),
            has_yielded: false,
            source,
            metrics: BaselineMetrics::new(&self.metrics, thread),
        })))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The packets that one thread reads.
struct Packets {
    source: Arc<Source>,
    queue: Arc<FileQueue>,
    thread: usize,
    rows: Rows,
    rows_min: usize,
    /// Batch to be added next.
    batch: Batch,
    /// Files of the rows, each with the number of rows up to its end.
    files: Vec<(Arc<str>, usize)>,
    has_yielded: bool,
    metrics: BaselineMetrics,
}

impl Packets {
    fn next(&mut self) -> Option<RecordBatch> {
        let bounds = self.source.bounds;
        while let Some(file) = self.queue.next(self.thread, &mut self.batch) {
            let before = self.rows.len();
            self.rows.add(&self.batch, |packet| bounds.matches(packet));
            let rows = self.rows.len();
            match self.files.last_mut() {
                Some((last, end)) if *last == file => *end = rows,
                _ if rows > before => self.files.push((file, rows)),
                _ => {}
            }
            if rows >= self.rows_min
                || self.rows.frame_bytes() >= FRAME_BYTES_MAX
                || self.files.len() >= FILES_MAX
            {
                return Some(self.finish());
            }
        }
        (!self.rows.is_empty()).then(|| self.finish())
    }

    fn finish(&mut self) -> RecordBatch {
        let made = self.rows.finish();
        let files = std::mem::take(&mut self.files);
        let Some(at) = self.source.file_at else { return made };
        let mut keys = Vec::with_capacity(made.num_rows());
        for (key, (_, end)) in (0..).zip(&files) {
            keys.resize(*end, key);
        }
        let names: ArrayRef = Arc::new(files.iter().map(|(name, _)| Some(&**name)).collect::<StringArray>());
        let file: ArrayRef = Arc::new(DictionaryArray::new(UInt16Array::from(keys), names));
        let mut columns = made.columns().to_vec();
        columns.insert(at, file);
        let options = RecordBatchOptions::new().with_row_count(Some(made.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.source.schema), columns, &options)
            .expect("columns are of their types and as long as each other")
    }
}

impl Stream for Packets {
    type Item = Result<RecordBatch>;

    fn poll_next(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        // Yield once: tasks just spawned may sit behind this one, which never blocks, in a queue that no other core polls.
        if !std::mem::replace(&mut own.has_yielded, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let timer = own.metrics.elapsed_compute().clone();
        let timed = timer.timer();
        let next = own.next().map(Ok);
        timed.done();
        own.metrics.record_poll(Poll::Ready(next))
    }
}

impl RecordBatchStream for Packets {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.source.schema)
    }
}
