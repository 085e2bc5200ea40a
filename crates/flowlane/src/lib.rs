//! Packet classification on every lane of a machine.
//!
//! Tables that answer for many packets at once, by SSE4.2, AVX2 or AVX-512 where the CPU has them: access lists over any fields of a
//! packet, routes of IPv4 and IPv6, exact match, Bloom filters. They take slices, write to slices, and give the same answers whatever
//! the machine is.
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
//! | packets | [`Parser`] parses frames, truncated captures ([`Captured`]) too, into a [`FlowKey`] of [`Field`]s, and records header offsets in [`Headers`], and how a frame is [`Malformed`]; [`FlowColumns`] of [`Values`] are packets as columns |
//! | rules | [`read_rules`] makes of a text [`Rule`]s: a [`Match`], a [`Priority`], [`Action`]s, which prints as it was written |
//! | access lists | [`ClassifierBuilder`] builds a [`Classifier`], which is changed; lookups go to its [`ClassifierSnapshot`], on other threads through a [`Reader`]; [`NONE`] is no rule; an [`Explanation`] says how an answer came about |
//! | several lists in one pass | [`ClassifierBuilder::build_categories`], [`ClassifierSnapshot::lookup_categories`], up to [`CATEGORIES_MAX`] |
//! | routes | [`read_routes`] makes of a text a [`RouteList`], [`RouteConfig`] of it a [`RouteTable`] of [`IpPrefix`]es, which is looked up in on other threads by a [`RouteReader`] |
//! | exact match | [`CuckooMap`]: numbers of 64 bits by keys of 1 to 64 bytes |
//! | membership | [`BloomFilter`] |
//! | the machine | [`set_max_simd`] caps the SIMD width; [`Tuning`] overrides the kernels of tables, and [`set_clock`] lets tables try them |
//! | what went wrong | [`Error`], of an [`ErrorKind`] |
//!
//! # Conventions
//!
//! - **Slices.** A batch has any length. Its results are as many as its packets, in their order; lengths that differ are a panic, which
//!   the function names. 32 packets are worth a call, from 128 on it is fastest.
//! - **Numbers** are in this machine's order: `0xc000_0201` is 192.0.2.1. Bytes are in network order.
//! - **Lookups** of many allocate nothing, start no thread and never wait.
//! - **Changes** are made whole or not at all, unless a function says otherwise.
//! - **Threads.** All is `Send`, all tables are `Sync`. Changes take `&mut`; readers for other threads come from the table.
//! - **Seeds.** Hashes are keyed at random, so that an attacker cannot choose slow packets; a fixed seed makes a run reproducible.
//!   Answers do not depend on it, but for which keys a [`BloomFilter`] confirms wrongly.
//! - **State.** The library does no I/O and starts no threads, but those that build a tree of rules, as many as the configuration
//!   says. Global are the width of [`set_max_simd`], the overrides of [`Tuning`], and the clock.
//!
//! Modules that are not shown here are this project's own, and change without notice.

#![deny(missing_docs)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "shared parts of SIMD kernels are unused on machines without such kernels"
    )
)]

// In the order of ARCHITECTURE.md, which says what each is for.
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
mod facade;
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
