//! Query sessions: tables, functions and limits.

use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::options::ArrowReadOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{
    CsvReadOptions, JsonReadOptions, ParquetReadOptions, SessionConfig, SessionContext,
};
use flowlane_arrow::Column;
use futures::StreamExt;
use tokio::runtime::Runtime;
use url::Url;

use crate::captures::{Captures, ParseOptions};
use crate::file_queue::Progress;
use crate::tables::Tables;
use crate::{QueryError, files, functions};

/// Table of the captures given after the query.
const PACKETS: &str = "packets";

/// Rows per batch, without and with frames (some hundred kilobytes). A sort holds a few batches of each spilled file.
const ROWS: usize = 8192;
const ROWS_OF_FRAMES: usize = 256;

/// Resource limits and parsing parameters of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Number of threads; `None` for all cores.
    pub threads: Option<NonZeroUsize>,
    /// Memory limit of sorts, groupings and joins in bytes; larger ones spill to disk where possible.
    pub memory_max: usize,
    /// Ingress port of packets.
    pub in_port: u32,
    /// Parse the inner headers of tunnel packets.
    pub decapsulate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: None, memory_max: 256 << 20, in_port: 1, decapsulate: false }
    }
}

/// A query session with its tables and functions.
pub struct Session {
    context: SessionContext,
    parse_options: ParseOptions,
    progress: Arc<Progress>,
    /// Total size of the capture tables.
    bytes: AtomicU64,
    runtime: Runtime,
}

impl Session {
    /// Creates a session without tables.
    ///
    /// # Errors
    /// If threads cannot be created.
    pub fn new(options: &Options) -> Result<Self, QueryError> {
        let threads = options.threads.or_else(|| std::thread::available_parallelism().ok());
        let threads = threads.map_or(1, NonZeroUsize::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("query")
            .build()
            .map_err(|e| QueryError::File { name: "threads".to_owned(), what: e.to_string() })?;
        let mut config = SessionConfig::new().with_target_partitions(threads).with_information_schema(true);
        // Memory that each thread reserves for merging sorted runs.
        let kept = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *kept = options.memory_max / (4 * threads);
        // Keep the metadata of address columns in files.
        config.options_mut().execution.parquet.skip_metadata = false;
        let pool = Arc::new(FairSpillPool::new(options.memory_max));
        let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let context = SessionContext::new_with_config_rt(config, environment);
        functions::register(&context, &Arc::new(Tables::default()))?;
        let parse_options = ParseOptions { in_port: options.in_port, decapsulate: options.decapsulate };
        Ok(Self { context, parse_options, progress: Arc::default(), bytes: AtomicU64::new(0), runtime })
    }

    /// Registers captures (files, directories, patterns) as the table `packets`.
    ///
    /// # Errors
    /// If there are none, or a named file is not a capture.
    pub fn packets(&self, names: &[String]) -> Result<(), QueryError> {
        self.add(TableReference::bare(PACKETS), names)
    }

    fn add(&self, table: TableReference, names: &[String]) -> Result<(), QueryError> {
        let captures = Captures::new(names, self.parse_options, Arc::clone(&self.progress))?;
        self.bytes.fetch_add(captures.bytes(), Ordering::Relaxed);
        let captures: Arc<dyn TableProvider> = Arc::new(captures);
        self.context.register_table(table, captures)?;
        Ok(())
    }

    /// Returns the total size of the capture tables in bytes.
    pub fn capture_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns a function that lists the current directories for spilled data. The session removes them when dropped; a
    /// program that exits otherwise must remove them.
    pub fn spill_dirs(&self) -> impl Fn() -> Vec<PathBuf> + Send + 'static {
        let environment = self.context.runtime_env();
        move || environment.disk_manager.temp_dir_paths()
    }

    /// Returns the progress of reading and the errors in captures.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Starts a query. Tables named like a file, directory or pattern are opened: `FROM 'archive/*.pcap.gz'`.
    ///
    /// # Errors
    /// If the query is invalid, or a file is missing.
    pub fn query(&self, sql: &str) -> Result<Answer<'_>, QueryError> {
        self.runtime.block_on(async {
            let state = self.context.state();
            let dialect = state.config_options().sql_parser.dialect;
            let statement = state.sql_to_statement(sql, &dialect)?;
            for table in state.resolve_table_references(&statement)? {
                self.open(table).await?;
            }
            // The tables just added are in the new state.
            let plan = self.context.state().statement_to_plan(statement).await?;
            // Statements that change tables are rejected: the tables last for one query only.
            let only_asking =
                SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
            only_asking.verify_plan(&plan)?;
            let rows = if has_frames(&plan)? { ROWS_OF_FRAMES } else { ROWS };
            {
                let state = self.context.state_ref();
                let mut state = state.write();
                let config = state.config().clone().with_batch_size(rows);
                *state.config_mut() = config;
            }
            let frame = self.context.execute_logical_plan(plan).await?;
            let plan = frame.create_physical_plan().await?;
            let stream = execute_stream(plan, self.context.task_ctx())?;
            Ok(Answer { schema: stream.schema(), stream, runtime: &self.runtime })
        })
    }

    /// Registers a table that is named like a file, directory or pattern.
    async fn open(&self, table: TableReference) -> Result<(), QueryError> {
        let TableReference::Bare { table: name } = &table else {
            let name = table.to_string();
            return match files::has_capture_extension(Path::new(&name)) || Path::new(&name).exists() {
                true => {
                    Err(QueryError::File { what: format!("file names need quotes: FROM '{name}'"), name })
                }
                false => Ok(()),
            };
        };
        if self.context.table_exist(table.clone())? {
            return Ok(());
        }
        let name = name.to_string();
        let path = Path::new(&name);
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        let is_data = ["parquet", "arrow", "csv", "json", "ndjson", "jsonl"].contains(&ending.as_str());
        if is_data && !path.exists() && !name.contains(['*', '?', '[']) {
            return Err(QueryError::File { name, what: "no such file or folder".to_owned() });
        }
        // The original spelling: the engine compares it with other files of a directory.
        let own_ending = path.extension().and_then(|e| e.to_str()).map_or(String::new(), |e| format!(".{e}"));
        let place = if is_data { place(path) } else { String::new() };
        match ending.as_str() {
            "parquet" => {
                let options = ParquetReadOptions { file_extension: &own_ending, ..Default::default() };
                self.context.register_parquet(table, &place, options).await?;
            }
            "arrow" => {
                let options = ArrowReadOptions { file_extension: &own_ending, ..Default::default() };
                self.context.register_arrow(table, &place, options).await?;
            }
            "csv" => {
                let options = CsvReadOptions::new().file_extension(&own_ending);
                self.context.register_csv(table, &place, options).await?;
            }
            "json" | "ndjson" | "jsonl" => {
                let options = JsonReadOptions::default().file_extension(&own_ending);
                let is_array = is_array(path);
                if is_array {
                    // A single array cannot be partitioned.
                    let state = self.context.state_ref();
                    state.write().config_mut().options_mut().optimizer.repartition_file_scans = false;
                }
                let options = options.newline_delimited(!is_array);
                self.context.register_json(table, &place, options).await?;
            }
            // Reserved for the captures given after the query.
            _ if name == PACKETS => return Err(QueryError::NoPackets),
            _ if files::has_capture_extension(path)
                || path.exists()
                || name.contains(['/', '*', '?', '[']) =>
            {
                self.add(table, std::slice::from_ref(&name))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns whether any step of a plan uses frames.
fn has_frames(plan: &LogicalPlan) -> Result<bool, QueryError> {
    let is_frame = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == Column::Frame.name());
    let found = plan.exists(|step| {
        let mut has = false;
        step.apply_expressions(|expr| {
            has |= expr.exists(|part| Ok(is_frame(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(has)
    });
    Ok(found?)
}

/// Converts a path for the engine: an existing path becomes a URL, so that its characters are not taken as a pattern.
fn place(path: &Path) -> String {
    let url = path.canonicalize().ok().and_then(|path| match path.is_dir() {
        true => Url::from_directory_path(path).ok(),
        false => Url::from_file_path(path).ok(),
    });
    url.map_or_else(|| path.display().to_string(), |url| url.to_string())
}

/// Returns whether a JSON file begins with an array rather than an object per line.
fn is_array(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(1024).read_to_end(&mut beginning));
    read.is_ok() && beginning.trim_ascii_start().starts_with(b"[")
}

/// Record batches of a query's result, produced on demand.
pub struct Answer<'s> {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    runtime: &'s Runtime,
}

impl Answer<'_> {
    /// Returns the schema of the result.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.runtime.block_on(self.stream.next())?;
        Some(next.map_err(QueryError::Engine))
    }
}
