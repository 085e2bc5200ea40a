//! From frame to flow key.
//!
//! [`fields`] is the one table of what a packet can be matched on; the parser, the rule readers and
//! the printers are driven by it. [`key`] holds the flow key and mask, 64 words of 32 bits each;
//! [`headers`] the offsets that the parser found.

pub mod fields;
pub mod headers;
pub mod key;
pub mod parse;

pub use fields::{Field, FieldInfo};
pub use headers::{Headers, Malformed, Network, Transport};
pub use key::{FlowKey, FlowMask};
pub use parse::parse;
