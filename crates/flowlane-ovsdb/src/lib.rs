#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod frame;
#[doc(hidden)]
pub mod fuzz_invariants;
mod replica;
mod schema;
mod session;
mod value;

pub use frame::{FrameError, Framer, MESSAGE_BYTES_MAX};
pub use replica::{Replica, Row, UpdateError};
pub use schema::{ColumnKind, Schema};
pub use session::{Event, Session, SessionError, Wanted};
pub use value::{Atom, Datum, MalformedValue, Uuid};
