#![doc = include_str!("README.md")]

mod measure;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;
mod usable;

pub use crate::dispatch::{
    Family, KernelOverrides, KernelSlot, Selection, SizeClass, Source, overrides, set_overrides,
    set_trial_clock,
};
pub use measure::{Budget, Candidate, Contest, Outcome, Tuning, Verdict, measure};
pub use usable::{ChoiceError, built_in, in_use, is_usable};
