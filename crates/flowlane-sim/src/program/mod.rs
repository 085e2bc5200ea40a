//! Programs that cores execute: lookups recorded from the real tables, as software performs them or as instructions
//! for accelerators.

mod chase;
mod devices;
mod flow_cache;
mod functions;
mod halo;
mod lookups;
mod replay;
mod rules;
mod software;
mod update;

pub use chase::{Chase, chase_cycles, dirty_cycles, parallel_chase_cycles};
pub(crate) use flow_cache::FlowCache;
pub use functions::{Neighbour, WithWork, Work};
pub(crate) use lookups::{Cached, Generated, LookupProgram, Packet, Source};
pub use replay::{Replayed, replay};
pub(crate) use rules::{Progress, RulePackets};
pub use update::Updates;
