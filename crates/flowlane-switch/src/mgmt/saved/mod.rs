//! State that outlives the process: for a switch that takes the place of this one, and in a file for a start after a crash.
//!
//! | part | to the next switch | in the file |
//! |---|---|---|
//! | connections of connection tracking | yes | yes |
//! | connections that are expected | yes | yes |
//! | learned addresses | yes | yes |
//! | sessions of address translation | yes | yes |
//! | rules, groups, meters, fields of options, settings of ports | yes | no: the configuration and controllers give them |
//! | routes that were added by the socket | yes | no |
//!
//! # The format
//!
//! Numbers have their least significant byte first. A text is its length (4 bytes) and UTF-8.
//!
//! ```text
//! "FLOWLANE" | version (4) | block | block | …
//! block:  length of the content (4) | checksum (4) | record | record | …
//! record: kind (1) | fields
//! ```
//!
//! The checksum is the CRC32C of the block's number, from 0 (8 bytes), and its content: no block can be lost, repeated or moved.
//! A content has at most 8 MiB. The first record is the header, and the last one the end, with the number of records: a state that
//! was cut off has no end. Another version of the format has another version number, and is refused.
//!
//! | kind | record | fields |
//! |---:|---|---|
//! | 0 | header | clock in ns (8), milliseconds since 1970 (8), whether the clock is that of frames (1), seed (4), workers (4), text of ports and stages |
//! | 1 | end | number of records, without this one (8) |
//! | 2 | connection, or session of a `[[nat_table]]` | see `state/conntrack/saved.rs` |
//! | 3 | learned address | MAC address (8), VLAN (2), port (4), second when it was seen (4) |
//! | 5 | meter that drops packets | number (4), kilobits or packets (1), bursts given (1), statistics wanted (1), bands (1), rate and burst of each (8, 8) |
//! | 6 | field of an option | number (1), class (2), type (1), bytes (1) |
//! | 7 | group | text, as `ovs-ofctl` writes it |
//! | 8 | settings of a port | port (4), flags (1) |
//! | 9 | rule | idle and hard timeout (2, 2), flags (2), importance (2), creation and begin of the hard timeout in ns (8, 8), text |
//! | 10 | expected connection | see `state/conntrack/alg/saved.rs`; behind its control connection |
//! | 11 | route | table (1), text, as `ip route` prints it |
//! | 12 | meter that remarks packets | as 5, with the levels of each band (1; 0: it drops) |
//!
//! Times are of the clock of the workers, which goes on in the next process from where it was: by the time since the header was
//! written, for a file. The header has the seed of hashes, too.
//!
//! **Nothing is taken on trust.** A file is read to its end and checked before any of it is used. Each record is checked by the table
//! that it is for, with that table's limits.

mod blocks;
mod collect;
mod file;
mod record;
mod restore;

#[cfg(test)]
mod tests;

pub use blocks::{Reader, StateError, VERSION, Writer};
pub use collect::{Workers, save_packets_state, save_routes, save_rules};
pub use file::{FileError, SavedFile, StateFile};
pub use record::Header;
pub use restore::{Restored, Taken, WaitingAddresses, restore};
