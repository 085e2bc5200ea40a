//! What cores execute: lookups recorded from the real tables, as software makes them or as instructions for
//! accelerators.

mod chase;
mod devices;
mod functions;
mod halo;
mod recorder;
mod software;
mod update;

pub use chase::{Chase, chase_cycles, dirty_cycles};
pub use devices::{DeviceProgram, FlatDevice};
pub use functions::{Beside, Neighbour, Work};
pub use halo::{Halo, HaloProgram};
pub(crate) use halo::{NonBlocking, RESULTS, ask};
pub use recorder::{Lookup, Recorder, TablePlace};
pub(crate) use software::{BATCH, Batches, NEXT_TABLE, begin, end, pad, scalar, unit};
pub use software::{Software, SoftwareProgram};
pub use update::Updates;
