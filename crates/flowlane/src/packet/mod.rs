//! From frame to flow key.
//!
//! [`fields`] is the one table of what a packet can be matched on; the parser, the rule readers and
//! the printers are driven by it. [`key`] holds the flow key and mask, up to 128 words of 32 bits each, [`word_set`] sets of
//! these; [`headers`] the offsets that the parser found; [`batch`] many keys transposed. [`parse()`] is the parser's definition,
//! [`Parser`] it with a fast path. [`tunnel`] reads VXLAN, GENEVE and GTP-U headers into the tunnel fields.

pub mod batch;
mod captured;
pub mod columns;
mod extract;
mod field_ref;
pub mod fields;
pub mod headers;
pub mod key;
mod miniflow;
pub mod parse;
pub mod tunnel;
pub mod word_set;

pub use batch::LaneMask;
pub use captured::Captured;
pub use extract::Parser;
pub use field_ref::FieldRef;
pub use fields::{Field, FieldClass, FieldInfo};
pub use headers::{Headers, Layer, Malformed, Network, Transport};
pub use key::{FlowKey, FlowMask};
pub use miniflow::{Miniflow, pack_some_words, pack_words, unpack_words};
pub use parse::{parse, parse_captured};
pub use word_set::WordSet;

#[cfg(test)]
mod cut;
#[cfg(test)]
mod tests;
