//! What if.

mod flow_cache;
mod library;
mod program;
mod run;

pub use run::{Outcome, Run};
