//! Whole switches, and hostile packets.

mod control;
mod firewall;
mod flood;
mod interfaces;
mod language;
mod mistakes;
mod openflow;
mod robustness;
mod router;
mod stateful_stages;
mod tcp;
mod tunnel_ports;
mod vlans;
mod warnings;
