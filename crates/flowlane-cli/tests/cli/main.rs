//! The `flowlane` binary, from outside. One program: each would link all that tests need once more.

mod bench;
mod classify;
mod control;
mod gpu;
mod namespaces;
#[cfg(feature = "query")]
mod query;
mod route;
mod sim;
mod streams;
mod support;
mod switch;
mod tune;
mod what_if;
