//! Programs that cores execute: lookups recorded from the real tables, as software performs them or as instructions
//! for accelerators.

mod chase;
mod devices;
mod functions;
mod halo;
mod software;
mod tuples;
mod update;

pub use chase::{Chase, chase_cycles, dirty_cycles};
pub use devices::{DeviceProgram, FlatDevice};
pub use functions::{Neighbour, WithWork, Work};
pub use halo::{Halo, HaloProgram};
pub(crate) use halo::{NonBlocking, RESULTS, ask};
pub(crate) use software::{Batches, NEXT_TABLE, begin, end, pad, scalar, unit};
pub use software::{Software, SoftwareProgram};
pub use tuples::TupleSearchProgram;
pub use update::Updates;
