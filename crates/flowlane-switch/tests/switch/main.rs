//! Whole switches, and hostile packets.

mod control;
mod functions;
mod interfaces;
mod language;
mod mistakes;
mod robustness;
