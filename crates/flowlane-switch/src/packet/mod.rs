//! A packet's bytes: frames in memory, edits in place, decapsulation, recirculation.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | a frame, with room to push headers; several that came together |
//! | [`burst`] | packets that are under way together, with all that is known of them |
//! | [`edit`] | changing frames in place, checksums included |
//! | `decapsulate` | the inner packet of a tunnel's packet |
//! | `recirculate` | the key of a packet that comes back |
//! | [`shown`] | the fields that a called table sees in place of the packet's own |
//! | [`spread`] | which worker a frame is for |
//!
//! Nothing here knows ports, tables or workers.

pub mod burst;
pub mod decapsulate;
pub mod edit;
pub mod frame;
pub(crate) mod length;
pub(crate) mod recirculate;
pub mod shown;
pub mod spread;

pub use burst::Burst;
pub use decapsulate::{Termination, decapsulate};
pub use frame::{Cut, Frame, Frames, Offload};
pub(crate) use frame::{QUEUES_MAX, Queue};
pub use shown::Shown;
pub use spread::{Spread, Steer};
