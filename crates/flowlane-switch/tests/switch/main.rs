//! Whole switches, and hostile packets.

mod functions;
mod robustness;
