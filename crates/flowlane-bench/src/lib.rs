//! Measurements of the `flowlane` library: the implementation of `flowlane bench`.
//!
//! A [`Topic`] builds a seeded workload, so that every run measures the same input, measures the implementations in
//! turn on one core ([`measure`]), and returns [`figure::Figure`]s. A [`Report`] holds the figures with the machine
//! and the command, and is rendered as text ([`Report::text`]), as a self-contained HTML page ([`Report::html`]) or
//! as JSON.
//!
//! ```text
//! topic/bloom.rs ..   workload, contenders ──▶ measure ──▶ figure ──▶ report ──▶ render ──▶ text, page
//! ```
//!
//! Figures that repeat a measurement of *Leveraging SIMD Parallelism for Accelerating Network Applications* (APNet
//! 2020) have its numbers (`figure-5` to `figure-9`) and its axes, and show the ratios that its text states next to
//! ours.
//!
//! With the features `peers` (other crates) and `peers-dpdk` (DPDK's `rte_hash`, `rte_acl`, `rte_fib` and
//! `rte_fib6`), other implementations are measured in the same run. Neither is in the default build.

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
