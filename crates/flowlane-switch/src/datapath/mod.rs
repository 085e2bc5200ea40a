//! The datapath: bursts from ports, through parser, caches and tables, to ports.
//!
//! ```text
//! receive → parse ┬ exact match → signature match → megaflow: a path ────────┬ steps → transmit
//!              ↑  └ rule tables, all lanes before one together: rules, hops ┘    │
//!              └────────────────────── recirculated lanes ───────────────────────┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `worker` | the poll loop and the way of a burst, on one page |
//! | `arrivals`, `rx` | which ports have frames; receiving, spreading over workers, parsing |
//! | `classify`, `lookup` | caches first or tables first; `admission`, `cache_policy`, `hybrid` decide which by measurement |
//! | `execute` | the lanes of a burst along their steps, in packet order where effects are visible |
//! | `walk`, `apply` | control flow over steps; one operation on one packet |
//! | `egress` | the live effects: ports, FDB, meters, controller |
//! | `mirroring` | copies for mirrors, of packets that are received or sent |
//! | `bond` | the members of bonds that frames leave through, and that let frames in |
//! | `inlet`, `bfd` | control packets of BFD and LACP, which leave the way of packets |
//! | `xlate` | a path and its mask from a key |
//! | `trace` | a dry run of one packet |
//! | `handoff` | packets between workers |
//! | `offload` | packets that wait for tables on devices, and their order |
//! | `idle`, `mailbox`, `notifier` | waiting for work; requests of other threads |
//!
//! Everything here belongs to one thread. A stage takes a [burst](crate::packet::Burst) and some of its lanes, and narrows them;
//! the stages' cycles are counted per burst ([`Stages`]).

mod admission;
mod apply;
mod arrivals;
mod bfd;
mod bond;
mod cache_policy;
mod calls;
mod classify;
mod clock;
mod egress;
mod enter_stage;
mod execute;
mod faults;
mod group_counters;
mod handoff;
mod hash_ports;
mod hybrid;
mod idle;
mod inlet;
mod lane_steps;
mod latency;
mod learn_limits;
mod learning;
mod lookup;
mod mailbox;
mod merge;
mod mirroring;
mod multicast;
mod normal;
mod notifier;
mod offload;
mod packet_ins;
mod path;
mod pause;
mod pipeline;
mod ports;
mod resources;
mod router;
mod rx;
mod spanning_tree;
mod stages;
mod table_view;
mod trace;
mod track;
mod track_burst;
mod validate;
mod walk;
mod worker;
mod workers;
mod xlate;

#[cfg(all(loom, test))]
mod loom;
#[cfg(test)]
mod tests;

pub use bfd::BfdInlet;
pub use cache_policy::CacheSet;
pub use egress::{Drops, Egress, Packet};
pub use faults::{Faults, MalformedPolicy};
pub use group_counters::{GroupCount, GroupCounters};
pub use hybrid::{HybridCounters, Mode};
pub use inlet::{ControlFrame, Inlet};
pub use latency::{Latency, distribution};
pub(crate) use learn_limits::TableCookie;
pub use learning::{LearnQueue, Learning};
pub(crate) use learning::{WaitingRequest, limited_cookies};
pub use lookup::{CacheConfig, Lookup};
pub use mailbox::Mailbox;
pub use notifier::Notifier;
pub use offload::MAX_DELAY;
pub use offload::reorder::WaitingCounters;
pub use packet_ins::{PacketIn, PacketIns};
pub use path::{Path, PathId, Paths};
pub use pause::{PauseToken, Paused};
pub use pipeline::{Engine, Given, NotAdded, Pipeline};
pub use ports::{PortCounters, PortSlot, Ports};
pub use router::HeldPacket;
pub use spanning_tree::TreeView;
pub use stages::{Stage, StageCounters, Stages, Timer};
pub use table_view::{RuleEntry, TableView};
pub use trace::{Trace, TraceRule, TraceSent, TraceStep, Traced, Tracing};
pub use validate::{Difference, RunError};
pub use worker::{Clock, Until, Worker};
pub use workers::Switch;
pub use xlate::{Translation, translate};
