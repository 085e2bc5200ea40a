//! Whole switches, and hostile packets.

mod functions;
mod language;
mod robustness;
