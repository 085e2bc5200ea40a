#![doc = include_str!("README.md")]

mod classifier;
mod device;
mod error;
mod library;
mod program;
mod table;

pub use self::classifier::ClSearch;
pub use self::device::{ClDevice, ClProperties, all};
pub use self::error::ClError;
pub use self::program::ClMethod;
pub use self::table::ClTable;
