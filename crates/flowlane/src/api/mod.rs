//! The public interface: tables without const parameters, numbers and slices, one error type.
//!
//! Everything else is hidden from the documentation, and may change: this project's other crates use it. The items of this module
//! are listed in `public-api.txt`, which `.ci/public-api` compares.

mod categories;
mod classifier;
mod filter;
mod machine;
mod map;
mod map_reader;
mod reader;
mod routes;
mod rules;
mod snapshot;

pub use self::categories::Categories;
pub use self::classifier::{Classifier, ClassifierBuilder};
pub use self::filter::BloomFilter;
pub use self::machine::{Tuning, max_simd, set_clock, set_max_simd};
pub use self::map::CuckooMap;
pub use self::map_reader::CuckooMapReader;
pub use self::reader::Reader;
pub use self::routes::{IpPrefix, RouteList, RouteReader, RouteTable, RouteTableBuilder, read_routes};
pub use self::rules::read_rules;
pub use self::snapshot::{ClassifierSnapshot, Explanation, NONE};
pub use crate::classify::acl::{AclEngine, CATEGORIES_MAX};
pub use crate::error::{Error, ErrorKind};
pub use crate::packet::Captured;
pub use crate::packet::columns::{FlowColumns, Values};
pub use crate::packet::key::Flow;
pub use crate::packet::{
    Field, FieldClass, FieldInfo, FieldRef, FlowKey, FlowMask, Headers, Malformed, Network, Parser, Transport,
};
pub use crate::rule::action::{Action, PortNo};
pub use crate::rule::{Match, PortRange, Priority, Rule};

/// The guide for users, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/rust.md")]
struct Page;

/// The page of the package, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
