//! A software switch over the `flowlane` library.
//!
//! The modules in the order of a packet's way, then those that put a switch together:
//!
//! | module | what |
//! |---|---|
//! | [`packet`] | what is done to bytes: frames in memory, edits, decapsulation |
//! | [`capture`] | readers and writers for pcap and pcapng |
//! | [`port`] | where frames come from and go to |
//! | [`pipeline`] | rule tables, and the paths of packets through them |
//! | [`function`] | packet filter, asset detection, address translation |
//! | [`mac_table`], [`meter`] | state of the `normal` and `meter` actions |
//! | [`tunnel`] | tunnels that end here, and those that packets leave through |
//! | [`worker`] | the loop: receive, parse, caches, tables, actions, transmit |
//! | [`control`] | whoever changes rules while packets go through them |
//! | [`config`], [`setup`] | from a TOML file to a worker |
//! | [`socket`] | on which a switch that runs answers |
//! | [`report`] | what a worker has counted, as data |
//! | [`hostile`] | what must hold for any input: for fuzzing and tests |

pub mod capture;
pub mod config;
pub mod control;
pub mod function;
pub mod hostile;
pub mod mac_table;
pub mod meter;
pub mod packet;
pub mod pipeline;
pub mod port;
pub mod report;
pub mod setup;
pub mod socket;
pub mod tunnel;
pub mod worker;
