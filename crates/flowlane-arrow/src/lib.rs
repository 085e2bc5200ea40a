//! Packets as Arrow record batches, for every engine and language that reads them.
//!
//! ```text
//! capture ── Batch ──► Rows ──► RecordBatch ──► packets_of ──► FlowColumns ──► AclSearch::lookup_columns
//! ```
//!
//! [`Rows`] makes record batches of the packets of captures; [`packets_of`] takes the columns of any record batch as packets to
//! be looked up, where they lie.

#![deny(missing_docs)]

mod capture;
mod column;
mod error;
mod packets;
mod presence;

pub use capture::{Rows, USUAL, schema};
pub use column::{Column, FORM, field};
pub use error::ArrowError;
pub use packets::{
    SHARED, check_tags, check_width, ether_type, fields, missing, packets, packets_of, with_columns,
};
