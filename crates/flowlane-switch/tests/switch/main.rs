//! Whole switches, and hostile packets.

mod control;
mod functions;
mod language;
mod robustness;
