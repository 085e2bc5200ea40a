//! A session: tables, functions, limits, and queries.

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

use crate::captures::{Captures, Reading};
use crate::feed::Progress;
use crate::tables::Tables;
use crate::{QueryError, files, functions};

/// The table of the captures that stand behind a query.
const PACKETS: &str = "packets";

/// Rows that are worked on at a time; and where they have frames, of which so many are some hundred kilobytes. Sorting holds a
/// few times as many for each file that it has put aside.
const ROWS: usize = 8192;
const ROWS_OF_FRAMES: usize = 256;

/// What a session may use, and how it reads packets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Threads; all cores where nobody says.
    pub threads: Option<NonZeroUsize>,
    /// Bytes that sorting, grouping and joining may use; what needs more goes to files, where that can be.
    pub memory_max: usize,
    /// The port that packets came in at.
    pub in_port: u32,
    /// Packets in tunnels are read in the place of what carries them.
    pub decapsulate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: None, memory_max: 256 << 20, in_port: 1, decapsulate: false }
    }
}

/// Tables and functions that queries are asked of.
pub struct Session {
    context: SessionContext,
    reading: Reading,
    progress: Arc<Progress>,
    /// Bytes of the captures that are tables.
    bytes: AtomicU64,
    runtime: Runtime,
}

impl Session {
    /// A session without tables.
    ///
    /// # Errors
    /// Where there can be no threads.
    pub fn new(options: &Options) -> Result<Self, QueryError> {
        let threads = options.threads.or_else(|| std::thread::available_parallelism().ok());
        let threads = threads.map_or(1, NonZeroUsize::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("query")
            .build()
            .map_err(|e| QueryError::File { name: "threads".to_owned(), what: e.to_string() })?;
        let mut config = SessionConfig::new().with_target_partitions(threads).with_information_schema(true);
        // What each thread keeps to merge what it has sorted.
        let kept = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *kept = options.memory_max / (4 * threads);
        // What columns of addresses are is kept in files, too.
        config.options_mut().execution.parquet.skip_metadata = false;
        let pool = Arc::new(FairSpillPool::new(options.memory_max));
        let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
        let context = SessionContext::new_with_config_rt(config, environment);
        functions::register(&context, &Arc::new(Tables::default()))?;
        let reading = Reading { in_port: options.in_port, decapsulate: options.decapsulate };
        Ok(Self { context, reading, progress: Arc::default(), bytes: AtomicU64::new(0), runtime })
    }

    /// Makes captures (files, folders, patterns) the table `packets`.
    ///
    /// # Errors
    /// Where there are none, or one that is named is no capture.
    pub fn packets(&self, names: &[String]) -> Result<(), QueryError> {
        self.add(TableReference::bare(PACKETS), names)
    }

    fn add(&self, table: TableReference, names: &[String]) -> Result<(), QueryError> {
        let captures = Captures::new(names, self.reading, Arc::clone(&self.progress))?;
        self.bytes.fetch_add(captures.bytes(), Ordering::Relaxed);
        let captures: Arc<dyn TableProvider> = Arc::new(captures);
        self.context.register_table(table, captures)?;
        Ok(())
    }

    /// Bytes of the captures that are tables, as they lie there.
    pub fn capture_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Folders for what does not fit memory, as they are when it is asked. They go with the session; who ends the program otherwise
    /// removes them.
    pub fn folders(&self) -> impl Fn() -> Vec<PathBuf> + Send + 'static {
        let environment = self.context.runtime_env();
        move || environment.disk_manager.temp_dir_paths()
    }

    /// How far reading has come, and what was wrong with captures.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Begins to answer a query. Tables that are called as a file, folder or pattern are those: `FROM 'archive/*.pcap.gz'`.
    ///
    /// # Errors
    /// Where the query is wrong, or names what is not there.
    pub fn ask(&self, sql: &str) -> Result<Answer<'_>, QueryError> {
        self.runtime.block_on(async {
            let state = self.context.state();
            let dialect = state.config_options().sql_parser.dialect;
            let statement = state.sql_to_statement(sql, &dialect)?;
            for table in state.resolve_table_references(&statement)? {
                self.open(table).await?;
            }
            // What was added since is in a newer state.
            let plan = self.context.state().statement_to_plan(statement).await?;
            // Of what a statement changes nothing would be left: there is one.
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

    /// Adds a table that is called as a file, folder or pattern.
    async fn open(&self, table: TableReference) -> Result<(), QueryError> {
        let TableReference::Bare { table: name } = &table else {
            let name = table.to_string();
            return match files::is_called_so(Path::new(&name)) || Path::new(&name).exists() {
                true => Err(QueryError::File {
                    what: format!("names of files are in quotes: FROM '{name}'"),
                    name,
                }),
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
        // As it is written: endings of other files in a folder are compared with it.
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
                    // One array is read in one piece.
                    let state = self.context.state_ref();
                    state.write().config_mut().options_mut().optimizer.repartition_file_scans = false;
                }
                let options = options.newline_delimited(!is_array);
                self.context.register_json(table, &place, options).await?;
            }
            // What stands behind the query is called so.
            _ if name == PACKETS => return Err(QueryError::NoPackets),
            _ if files::is_called_so(path) || path.exists() || name.contains(['/', '*', '?', '[']) => {
                self.add(table, std::slice::from_ref(&name))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether a plan has frames in any of its steps.
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

/// How the engine is told of files: a pattern stays one; what is there is no pattern, whatever it is called.
fn place(path: &Path) -> String {
    let url = path.canonicalize().ok().and_then(|path| match path.is_dir() {
        true => Url::from_directory_path(path).ok(),
        false => Url::from_file_path(path).ok(),
    });
    url.map_or_else(|| path.display().to_string(), |url| url.to_string())
}

/// Whether a file of JSON begins as one array, and not as an object a line.
fn is_array(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(1024).read_to_end(&mut beginning));
    read.is_ok() && beginning.trim_ascii_start().starts_with(b"[")
}

/// Record batches that answer a query, as they are made.
pub struct Answer<'s> {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    runtime: &'s Runtime,
}

impl Answer<'_> {
    /// Its columns.
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
