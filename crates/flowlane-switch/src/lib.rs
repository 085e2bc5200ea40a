//! A software switch over the `flowlane` library.
//!
//! Each module uses only those before it:
//! `sync ← packet ← state ← {tunnel, ruleset} ← {port, stage} ← datapath ← control ← mgmt ← fuzz_invariants`.
//!
//! | module | what |
//! |---|---|
//! | `sync` | atomics and locks of the standard library, or of the model checker |
//! | [`packet`] | bytes: frames in memory, bursts, edits, decapsulation |
//! | [`state`] | state that packets change and workers share: learned addresses, meters |
//! | [`port`] | where frames come from and go to |
//! | [`tunnel`] | tunnels that end here, and those that packets leave through |
//! | [`ruleset`] | what rules say; how a newer program reaches workers |
//! | [`stage`] | packet filter, asset detection, address translation |
//! | [`datapath`] | the loop: receive, parse, caches, tables, actions, transmit |
//! | [`control`] | flow-mods, publication, rebuilds, expiry |
//! | [`mgmt`] | configuration, setup, reports, and the control socket |
//! | [`fuzz_invariants`] | what must hold for any input: for fuzzing and tests |

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod control;
pub mod datapath;
pub mod fuzz_invariants;
pub mod mgmt;
pub mod packet;
pub mod port;
pub mod ruleset;
pub mod stage;
pub mod state;
mod sync;
pub mod tunnel;
