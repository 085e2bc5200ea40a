//! Management: configuration, setup of a switch, reports, and the control socket.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the TOML file, with the place of each part |
//! | [`setup`] | from a configuration to a switch |
//! | [`report`] | the counters of workers, as data |
//! | [`rpc`] | the control socket: JSON-RPC 2.0 |
//! | [`metrics`] | counters over HTTP |
//! | `discipline` | the kernel's queues on the interfaces of ports |
//! | [`kernel_routes`] | the system's routes, followed by netlink |
//! | [`links`] | the links of its interfaces, likewise |
//! | [`vswitchd`] | the daemon in the place of `ovs-vswitchd`: bridges of an OVSDB |
//! | [`saved`] | state that outlives the process |

pub mod config;
#[cfg(target_os = "linux")]
pub(crate) mod discipline;
#[cfg(target_os = "linux")]
pub mod kernel_routes;
#[cfg(target_os = "linux")]
pub mod links;
mod memory;
pub mod metrics;
#[cfg(target_os = "linux")]
mod netlink;
pub mod openflow;
pub mod report;
pub mod rpc;
pub mod saved;
pub mod setup;
#[cfg(target_os = "linux")]
pub mod vswitchd;
