//! One file per command.

pub(crate) mod bench;
pub(crate) mod classify;
pub(crate) mod cpu;
pub(crate) mod engine;
pub(crate) mod generate;
mod import;
pub(crate) mod meta;
#[cfg(feature = "query")]
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod selftest;
pub(crate) mod sim;
pub(crate) mod switch;
pub(crate) mod tune;
#[cfg(target_os = "linux")]
pub(crate) mod vswitchd;
