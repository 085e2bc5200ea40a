//! Checks that a user can run for as long as she likes: engines against the definition, on random and on adversarial
//! input, in every variant that this CPU has.
//!
//! A check is a function of a seed and a size. What it finds it says so that the same can be done again.

pub mod acl;
pub mod route;
pub mod tunnel;

/// Where an engine does not agree with the definition.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{part} seed {seed} size {size}: {engine} {step}: for {input} it finds {found}, and {wanted} is right"
)]
pub struct Difference {
    /// Which check.
    pub part: &'static str,
    /// The seed that `check` was called with.
    pub seed: u64,
    /// The size that it was called with.
    pub size: usize,
    /// Engine and variant.
    pub engine: String,
    /// The step at which it happened.
    pub step: String,
    /// The key.
    pub input: String,
    /// The definition's answer.
    pub wanted: String,
    /// The engine's.
    pub found: String,
}

/// A check by name.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The name, on the command line.
    pub name: &'static str,
    /// Runs it: seed, size. Gives the number of answers that were compared.
    pub run: fn(u64, usize) -> Result<u64, Box<Difference>>,
}

/// All checks.
pub const PARTS: &[Part] = &[
    Part { name: "acl", run: acl::check },
    Part { name: "route", run: route::check },
    Part { name: "tunnel", run: tunnel::check },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_finds_no_difference() {
        for part in PARTS {
            // Access lists have six layouts; routes are of one family or the other.
            for seed in 0..if part.name == "acl" { 6 } else { 2 } {
                let compared = (part.run)(seed, 24).unwrap_or_else(|difference| panic!("{difference}"));
                assert!(compared > 1000, "{} compared {compared} answers", part.name);
            }
        }
    }
}
