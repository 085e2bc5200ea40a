//! Packet classification on every lane of a machine.
//!
//! Tables that look up many packets at once, with SSE4.2, AVX2, AVX-512 or NEON where the CPU has them: access lists over any fields of
//! a packet, routes of IPv4 and IPv6, exact match, Bloom filters. They read slices and write slices, and give the same answers on every
//! machine.
//!
//! ```
//! use flowlane::{ClassifierBuilder, FlowKey, Parser, read_rules};
//!
//! let text = "priority=10,ip,nw_dst=192.0.2.0/24,actions=output:2\npriority=20,tcp,tp_dst=22,actions=drop";
//! let acl = ClassifierBuilder::new().build(read_rules(text, "flows.txt")?)?;
//!
//! // An IPv4 packet of TCP to port 22 of 192.0.2.1; yours come from a port or a capture.
//! let mut frame = [0; 60];
//! frame[12..14].copy_from_slice(&[0x08, 0x00]);
//! frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6]);
//! frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
//! (frame[37], frame[46]) = (22, 0x50);
//!
//! let mut keys = [FlowKey::zero()];
//! Parser::new().parse_one(&frame, 1, &mut keys[0]);
//! let mut rules = [0; 1];
//! acl.lookup_keys(&keys, &mut rules);
//! assert_eq!(rules, [1]); // the second rule; flowlane::NONE where none matches
//! assert!(acl.rule(rules[0]).unwrap().actions.is_empty());
//! # Ok::<(), flowlane::Error>(())
//! ```
//!
//! # Overview
//!
//! | for | items |
//! |---|---|
//! | packets | [`Parser`] parses frames (including truncated ones, [`Captured`]) into a [`FlowKey`] of [`Field`]s, records header offsets in [`Headers`], and reports [`Malformed`] frames; [`FlowColumns`] of [`Values`] are packets as columns |
//! | rules | [`read_rules`] parses text into [`Rule`]s: a [`Match`], a [`Priority`] and [`Action`]s, which print as they were written |
//! | access lists | [`ClassifierBuilder`] builds a [`Classifier`] with an [`AclEngine`], which takes changes and looks up; other threads do through a [`Reader`] of [`ClassifierSnapshot`]s; [`NONE`] means no rule; an [`Explanation`] says why a rule won |
//! | several lists in one pass | [`ClassifierBuilder::build_categories`], [`Classifier::lookup_categories`]: a rule is in some [`Categories`], up to [`CATEGORIES_MAX`] |
//! | routes | [`read_routes`] parses text into a [`RouteList`]; [`RouteTableBuilder`] builds a [`RouteTable`] of [`IpPrefix`]es, which other threads read through a [`RouteReader`] |
//! | exact match | [`CuckooMap`]: numbers of 64 bits by keys of 1 to 64 bytes, which other threads read through a [`CuckooMapReader`] |
//! | membership | [`BloomFilter`] |
//! | the machine | [`set_max_simd`] limits register widths; [`Tuning`] overrides kernels, and [`set_clock`] lets tables measure them |
//! | errors | [`Error`], of an [`ErrorKind`] |
//!
//! # Conventions
//!
//! - **Slices.** A batch has any length. It has one result for each packet, in their order; a function panics where lengths
//!   differ. Batches of 32 packets are worth a call; from 128 on lookups are fastest.
//! - **Numbers** are in this machine's order: `0xc000_0201` is 192.0.2.1. Bytes are in network order.
//! - **Lookups** of many packets never allocate, start threads or wait.
//! - **Changes** are made as a whole or not at all, unless a function says otherwise.
//! - **Threads.** All types are `Send`, all tables `Sync`. Changes take `&mut`; a table returns readers for other threads.
//! - **Seeds.** Hashes have random seeds, so that senders cannot craft packets that are slow; for reproducible runs pass a seed.
//!   Answers do not depend on it, except for the false positives of a [`BloomFilter`].
//! - **State.** The library does no I/O, and starts no threads except those that build a tree of rules, as many as
//!   [`ClassifierBuilder::threads`] allows. Global are the limit of [`set_max_simd`], the overrides of [`Tuning`], and the clock.
//!
//! Modules that are not shown here are private to this project, and change without notice.

#![deny(missing_docs)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "kernels for wider instructions are unused on machines that lack them"
    )
)]

// In the order of ARCHITECTURE.md, which says what each is for.
mod api;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod bloom;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod cache;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod check;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod classify;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod cuckoo;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod deterministic_math;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod dispatch;
mod error;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod flow_register;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod generate;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod hash;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod isa;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod memory;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod named_enum;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod packet;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod probe;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod published;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod route;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod rule;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod testing;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod tune;
#[cfg_attr(not(feature = "internals"), doc(hidden))]
pub mod tunnel;

pub use api::*;
