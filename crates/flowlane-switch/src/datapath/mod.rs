//! The worker: bursts from ports, through parser, caches and tables, to ports.
//!
//! ```text
//! receive → parse ┬ exact match → signature match → megaflow: a path ────────┬ actions → transmit
//!              ↑  └ rule tables, all lanes before one together: rules, hops ┘      │
//!              └────────────────────────── recirculated lanes ─────────────────────┘
//! ```
//!
//! Which of the two ways is cheaper is measured (`choice`, `hybrid`); what brings a megaflow is decided in `admission`. Where a
//! table answers later, packets that no cache knows are parked before their actions (`deferral`, `waiting`).
//!
//! Everything here belongs to one thread. A stage takes a [`Burst`] and some of its lanes, and narrows them; the stages'
//! cycles are counted per burst ([`Stages`]).

mod admission;
mod apply;
mod cache_policy;
mod calls;
mod classify;
mod egress;
mod execute;
mod faults;
mod handoff;
mod hybrid;
mod idle;
mod latency;
mod lookup;
mod mailbox;
mod merge;
mod notifier;
mod offload;
mod path;
mod pipeline;
mod ports;
mod rx;
mod stages;
mod trace;
mod validate;
mod walk;
mod worker;
mod workers;
mod xlate;

#[cfg(all(loom, test))]
mod loom;
#[cfg(test)]
mod tests;

pub use cache_policy::CacheSet;
pub use egress::{Drops, Egress, Packet};
pub use faults::{Faults, MalformedPolicy};
pub use hybrid::{HybridCounters, Mode};
pub use latency::{Latency, distribution};
pub use lookup::{CacheConfig, Lookup};
pub use mailbox::Mailbox;
pub use notifier::Notifier;
pub use offload::MAX_DELAY;
pub use offload::reorder::WaitingCounters;
pub use path::{Path, PathId, Paths};
pub use pipeline::{Engine, Given, NotAdded, Pipeline, RuleEntry, TableView};
pub use ports::{PortCounters, PortSlot, Ports};
pub use stages::{Stage, StageCounters, Stages, Timer};
pub use trace::{Trace, TraceSent, TraceStep, Traced, Tracing};
pub use validate::{Difference, RunError};
pub use worker::{Clock, Until, Worker};
pub use workers::Switch;
pub use xlate::{Translation, translate};
