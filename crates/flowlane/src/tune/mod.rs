#![doc = include_str!("README.md")]

mod measure;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;
mod usable;

pub use crate::choices::{
    Choices, Decision, Family, SizeClass, Slot, Source, install, installed, measure_by,
};
pub use measure::{Budget, Candidate, Contest, Outcome, Tuning, Verdict, measure};
pub use usable::{ChoiceError, built_in, in_use, is_usable};
