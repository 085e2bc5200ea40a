//! Measurements of the `flowlane` library: what the command `flowlane bench` does.
//!
//! A [`Topic`] makes its workload (seeded: the same at every run), has the implementations measured in turn by
//! one core ([`measure`]), and gives [`figure::Figure`]s. A [`Report`] is what topics gave, with the machine and
//! the command, as text ([`Report::text`]), as a self-contained HTML page ([`Report::html`]) or, being
//! serialisable, as JSON.
//!
//! ```text
//! topic/bloom.rs ..   workload, bodies ──▶ measure ──▶ figure ──▶ report ─┬─ text
//!                                                                         └─ html ─ page ◀─ plot
//! ```
//!
//! The figures of *Leveraging SIMD Parallelism for Accelerating Network Applications* (APNet 2020) that are
//! measured again have its numbers (`figure-5` to `figure-9`), its axes, and beside our ratios those that its
//! text states.
//!
//! Other implementations take part in the same run where the features `peers` (other crates) or `peers-dpdk`
//! (DPDK's `rte_hash`, `rte_acl`, `rte_fib` and `rte_fib6`) are on. Neither is in the default build.

pub mod figure;
mod html;
pub mod machine;
pub mod measure;
mod options;
mod packets;
pub mod page;
#[cfg(any(feature = "peers", feature = "peers-dpdk"))]
mod peers;
mod plot;
mod report;
mod text;
mod topic;

pub use options::{BenchError, Options, RouteTable, RuleSet};
pub use report::{Report, TopicReport};
pub use topic::Topic;
