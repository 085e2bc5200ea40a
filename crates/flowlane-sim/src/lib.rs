#![doc = include_str!("../README.md")]

pub mod confidence;
pub mod config;
pub mod event;
pub mod fuzz_invariants;
pub mod host_calibration;
pub mod machine;
pub mod paper;
pub mod parallel;
pub mod perturb;
pub mod program;
pub mod report;
pub mod run;
mod search;
pub mod trace;
pub mod what_if;
pub mod workload;
