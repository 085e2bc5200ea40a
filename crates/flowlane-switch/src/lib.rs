//! A software switch over the `flowlane` library.
//!
//! | module | what |
//! |---|---|
//! | [`capture`] | readers and writers for pcap and pcapng |
//! | [`frame`] | a frame in memory, with room to push headers |
//! | [`port`] | where frames come from and go to |

pub mod capture;
pub mod config;
pub mod edit;
pub mod frame;
pub mod mac_table;
pub mod meter;
pub mod pipeline;
pub mod port;
pub mod worker;
