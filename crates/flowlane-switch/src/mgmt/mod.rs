//! Management: configuration, setup of a switch, reports, and the control socket.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the TOML file, with the place of each part |
//! | [`setup`] | from a configuration to a switch |
//! | [`report`] | the counters of workers, as data |
//! | [`rpc`] | the control socket: JSON-RPC 2.0 |
//! | [`saved`] | state that outlives the process |

pub mod config;
pub mod openflow;
pub mod report;
pub mod rpc;
pub mod saved;
pub mod setup;
