//! Packets as Arrow record batches, for other engines and languages.
//!
//! ```text
//! capture ── Batch ──► Rows ──► RecordBatch ──► packets_of ──► FlowColumns ──► AclSearch::lookup_columns
//! ```
//!
//! [`Rows`] builds record batches of captured packets; [`packets_of`] looks up the columns of any record batch as packets,
//! without copying them.

#![deny(missing_docs)]

mod capture;
mod column;
mod error;
mod packets;
mod presence;

pub use capture::{DEFAULT_COLUMNS, Rows, schema};
pub use column::{Column, FORM, field};
pub use error::ArrowError;
pub use packets::{
    SHARED_WORDS, check_tags, check_width, ether_type, fields, missing, packets, packets_of, with_columns,
};
