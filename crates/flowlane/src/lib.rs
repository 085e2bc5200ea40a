//! Packet classification on every lane of a machine.
//!
//! The modules stand in the order in which a packet meets them, and each may use only those before it:
//!
//! `names ← testing ← isa ← memory ← choices ← {hash, real} ← probe ← {bloom, cuckoo, flow_register} ← packet ← rule ← {cache, classify, route, tunnel} ← generate ← {check, tune}`
//!
//! | module | what |
//! |---|---|
//! | [`names`] | kinds of things that are read by name |
//! | `testing` | where tests find larger data |
//! | [`isa`] | which SIMD variants this CPU has and may use |
//! | `memory` | memory for tables: aligned, on huge pages where it is large |
//! | [`choices`] | which variants and kernels tables use where nobody asked for one: installed, built in, or tried in the first batches |
//! | [`hash`] | MurmurHash3 and CRC32C over one or many keys |
//! | `real` | logarithms and powers that are the same on every machine |
//! | `probe` | what a scalar lookup reads and computes, for simulators |
//! | [`bloom`] | Bloom filters: classic and blocked, one key or a batch at a time |
//! | [`flow_register`] | how many flows there are, by linear counting |
//! | [`packet`] | the table of fields, the flow key and its parser |
//! | [`rule`] | matches, actions, rules, and their readers and printers |
//! | [`cuckoo`] | an exact-match table of many keys: one writer, readers that never wait |
//! | [`classify`] | rule tables: linear search (the oracle), tuple search |
//! | [`route`] | routes: the longest prefix that an address is in, and its next hop |
//! | [`cache`] | exact-match and megaflow caches |
//! | [`tunnel`] | VXLAN, GENEVE and GTP-U: endpoints, decapsulation, encapsulation |
//! | [`generate`] | synthetic rules and traces |
//! | `check` | engines against their definitions, for as long as one likes |
//! | [`tune`] | measures which choices are fastest on this machine |
//!
//! `testing`, `memory`, `real`, `probe` and `check` are there for this project's other crates, and not in the documentation.
//!
//! # From a packet to a verdict
//!
//! ```
//! use flowlane::classify::{Classifier, TupleSearch};
//! use flowlane::generate::build_frame;
//! use flowlane::packet::{FlowKey, Parser};
//! use flowlane::rule::{ReadOptions, RuleId, read};
//!
//! let text = "priority=10,ip,nw_dst=192.0.2.0/24,actions=output:2\npriority=20,tcp,tp_dst=22,actions=drop";
//! let rules = read(text, "flows.txt", None, &ReadOptions::default())?;
//! let mut table = TupleSearch::new(1000, 0x5eed);
//! for (id, rule) in (0..).map(RuleId).zip(&rules) {
//!     table.insert(id, rule.priority, &rule.matches)?;
//! }
//! let mut frame = Vec::new();
//! build_frame(&rules[0].matches.key(), 60, &mut frame); // to 192.0.2.0; yours come from a port or a capture
//!
//! let mut key = FlowKey::zero();
//! Parser::new().parse_one(&frame, 1, &mut key);
//! let verdict = table.lookup(&key).map(|hit| &rules[hit.rule.0 as usize].actions);
//! assert_eq!(verdict, Some(&rules[0].actions));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A switch puts a [megaflow cache](cache) in front of the table, and asks for many packets at once. What else each
//! table can do is shown where it is documented.
//!
//! The library does no I/O, starts no threads but those that it is told to build a tree of rules with, and holds no
//! global state but the SIMD width cap, the installed choices and the clock by which tables try their bodies.

#![deny(missing_docs)]

pub mod bloom;
pub mod cache;
#[doc(hidden)]
pub mod check;
pub mod choices;
pub mod classify;
pub mod cuckoo;
pub mod flow_register;
pub mod generate;
pub mod hash;
pub mod isa;
#[doc(hidden)]
pub mod memory;
pub mod names;
pub mod packet;
#[doc(hidden)]
pub mod probe;
#[doc(hidden)]
pub mod real;
pub mod route;
pub mod rule;
#[doc(hidden)]
pub mod testing;
pub mod tune;
pub mod tunnel;
