//! Captures as tables of an embedded SQL engine (Apache DataFusion), with rule and route lookups as functions.
//!
//! ```text
//! files ──► FileQueue: one file per thread ──► Scan: record batches of the projected columns ──► DataFusion ──► Answer
//!                                                             functions: AclSearch, AnyFib ──┘
//! ```
//!
//! A table has one row per packet and the columns of [`flowlane_arrow::Column`]; only those that a query uses are built.
//! Conditions on time and length are evaluated before a packet is parsed.
//!
//! ```
//! use flowlane_query::{Options, Session};
//! # use flowlane_capture::{CaptureWriter, FileFormat};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("t.pcap");
//! # let mut writer = CaptureWriter::new(std::fs::File::create(&path)?, FileFormat::Pcap)?;
//! # writer.write(1_700_000_000_000_000_000, &[0xff; 60])?;
//! # writer.finish()?;
//! let session = Session::new(&Options::default())?;
//! session.packets(&[path.display().to_string()])?;
//! let mut answer = session.query("SELECT count(*) FROM packets")?;
//! assert_eq!(answer.next().expect("a batch")?.num_rows(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod bounds;
mod captures;
mod error;
mod file_queue;
mod files;
mod functions;
mod session;
mod tables;
mod verdicts;
mod write;

pub use error::QueryError;
pub use file_queue::Progress;
pub use session::{Answer, Options, Session};
pub use verdicts::{Rules, VerdictFile};
pub use write::{Format, Written, write};
