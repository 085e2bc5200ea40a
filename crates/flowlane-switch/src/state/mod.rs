//! What packets change, and other packets see.

pub mod mac_table;
pub mod meter;
