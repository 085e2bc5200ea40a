//! Captures as tables of an embedded SQL engine (Apache DataFusion), with rules and routes as functions.
//!
//! ```text
//! files ──► Feed: a file for each thread ──► Scan: record batches of the columns that are asked for ──► DataFusion ──► Answer
//!                                                          functions: AclSearch, AnyFib ──┘
//! ```
//!
//! A table has a row for each packet, and the columns of [`flowlane_arrow::Column`]; only those that a query asks for are made.
//! Conditions on time and length are asked before a packet is parsed.
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
//! let mut answer = session.ask("SELECT count(*) FROM packets")?;
//! assert_eq!(answer.next().expect("a batch")?.num_rows(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

mod bounds;
mod captures;
mod error;
mod feed;
mod files;
mod functions;
mod session;
mod tables;
mod verdicts;
mod write;

pub use error::QueryError;
pub use feed::Progress;
pub use session::{Answer, Options, Session};
pub use verdicts::{Rules, VerdictFile};
pub use write::{Format, Written, write};
