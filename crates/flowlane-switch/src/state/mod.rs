//! What packets change, and other packets see.

pub mod mac_table;
pub mod meter;

pub use mac_table::MacTable;
pub use meter::Meter;
