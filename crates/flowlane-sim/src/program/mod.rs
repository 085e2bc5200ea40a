//! Programs that cores execute: lookups recorded from the real tables, as software performs them or as instructions
//! for accelerators.

mod chase;
mod devices;
mod functions;
mod halo;
mod lookups;
mod replay;
mod software;
mod tuples;
mod update;

pub use chase::{Chase, chase_cycles, dirty_cycles, parallel_chase_cycles};
pub use functions::{Neighbour, WithWork, Work};
pub(crate) use lookups::{Cached, Generated, LookupProgram, Packet, Source};
pub use replay::{Replayed, replay};
pub(crate) use software::unit;
pub(crate) use tuples::generated_tuples;
pub use update::Updates;
