//! Packet classification on every lane of a machine.
//!
//! The modules stand in the order in which a packet meets them, and each may use only those before it:
//!
//! `isa ← memory ← hash ← {bloom, cuckoo} ← packet ← rule ← {cache, classify} ← generate`
//!
//! | module | what |
//! |---|---|
//! | [`isa`] | which SIMD variants this CPU has and may use |
//! | [`memory`] | memory for tables: aligned, on huge pages where it is large |
//! | [`hash`] | MurmurHash3 and CRC32C over one or many keys |
//! | [`bloom`] | Bloom filters: classic and blocked, one key or a batch at a time |
//! | [`packet`] | the table of fields, the flow key and its parser |
//! | [`rule`] | matches, actions, rules, and their readers and printers |
//! | [`cuckoo`] | an exact-match table of many keys: one writer, readers that never wait |
//! | [`classify`] | rule tables: linear search (the oracle), tuple search |
//! | [`cache`] | exact-match and megaflow caches |
//! | [`generate`] | synthetic rules and traces |
//!
//! The library does no I/O, starts no threads, and holds no global state but the SIMD width cap.

pub mod bloom;
pub mod cache;
pub mod classify;
pub mod cuckoo;
pub mod generate;
pub mod hash;
pub mod isa;
pub mod memory;
pub mod packet;
pub mod rule;
