//! Measurements of the `flowlane` library: the implementation of `flowlane bench`.
//!
//! A [`Topic`] builds a seeded workload, so that every run measures the same input, measures the implementations in turn on
//! one core ([`measure`]), and returns [`figure::Figure`]s. A [`Report`] holds the figures with the machine and the command,
//! and is rendered as text ([`Report::text`]), as a self-contained HTML page ([`Report::html`]) or as JSON.
//!
//! ```text
//! topic/bloom.rs ..   workload, contenders ──▶ measure ──▶ figure ──▶ report ──▶ render ──▶ text, page
//! ```
//!
//! The figures of *Leveraging SIMD Parallelism for Accelerating Network Applications* (APNet 2020) that are
//! measured again have its numbers (`figure-5` to `figure-9`), its axes, and beside our ratios those that its
//! text states.
//!
//! Other implementations take part in the same run where the features `peers` (other crates) or `peers-dpdk`
//! (DPDK's `rte_hash`, `rte_acl`, `rte_fib` and `rte_fib6`) are on. Neither is in the default build.

pub mod figure;
pub mod machine;
pub mod measure;
mod options;
mod packets;
#[cfg(any(feature = "peers", feature = "peers-dpdk"))]
mod peers;
pub mod render;
mod report;
mod topic;

pub use options::{BenchError, Options, RouteTable, RuleSet};
pub use report::{Report, TopicReport};
pub use topic::Topic;
