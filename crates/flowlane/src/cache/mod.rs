//! Flow caches: answers of the rule tables, kept for the packets that follow.
//!
//! ```text
//! exact-match cache       whole key          → megaflow     one probe, 128 bytes an entry
//! signature-match cache   hash of the flow   → megaflow     one probe, 8 bytes an entry
//! megaflow cache          masked key         → value        one probe per mask
//! (rule tables)                                             the caller's slow path
//! ```
//!
//! A megaflow's mask is what the slow path looked at, so every packet that it matches would have got the
//! same answer from the tables. The caches know nothing of rules: a megaflow carries the caller's value
//! and the generation of the tables that it was made from.

// The parts of subtables, here and in `flowlane-paper`.
#[doc(hidden)]
pub mod bucket;
pub mod exact;
pub mod flow_hash;
pub mod megaflow;
pub mod signature;

pub use exact::ExactMatchCache;
pub use megaflow::{FlowRef, MegaflowCache, MegaflowChoice, MegaflowConfig};
pub use signature::SignatureCache;

#[cfg(test)]
mod tests;
