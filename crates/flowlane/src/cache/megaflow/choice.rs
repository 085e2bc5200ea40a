//! How batches are looked up: the designs, and what was chosen of design, variant and threshold.

use std::fmt;
use std::str::FromStr;

use super::MegaflowConfig;
use crate::choices::{self, Slot};
use crate::isa::{Body, Variant};

/// How batches are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Design {
    /// Fixed columns, multilinear hash, filter: ours.
    Fixed,
    /// Columns of the majority's miniflow, MurmurHash3, no filter: the paper's.
    Majority,
}

impl Design {
    /// Both.
    pub const ALL: [Design; 2] = [Design::Fixed, Design::Majority];

    /// The name, on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Design::Fixed => "fixed",
            Design::Majority => "majority",
        }
    }

    /// From how many packets on a batch pays where nothing was measured with this design.
    pub(crate) fn threshold(self) -> usize {
        match self {
            Design::Fixed => 6,
            // What the paper measured (§4.2).
            Design::Majority => 9,
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that is no design.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no megaflow design `{0}`; there are fixed and majority")]
pub struct DesignError(pub String);

impl FromStr for Design {
    type Err = DesignError;

    fn from_str(text: &str) -> Result<Self, DesignError> {
        Self::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| DesignError(text.to_owned()))
    }
}

/// Design, variant and threshold. Its name is `design/variant/fromN`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MegaflowChoice {
    /// The design.
    pub design: Design,
    /// The variant.
    pub variant: Variant,
    /// Batches of fewer packets are looked up one by one.
    pub threshold: usize,
}

/// A text that names no way of looking megaflows up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` names no way of looking megaflows up; write DESIGN/VARIANT/fromN, for instance fixed/avx2/from4"
)]
pub struct MegaflowChoiceError(pub String);

impl fmt::Display for MegaflowChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/from{}", self.design, self.variant, self.threshold)
    }
}

impl FromStr for MegaflowChoice {
    type Err = MegaflowChoiceError;

    fn from_str(text: &str) -> Result<Self, MegaflowChoiceError> {
        let read = || {
            let (design, rest) = text.split_once('/')?;
            let (variant, threshold) = rest.split_once("/from")?;
            let (design, variant) = (design.parse().ok()?, variant.parse().ok()?);
            Some(Self { design, variant, threshold: threshold.parse().ok()? })
        };
        read().ok_or_else(|| MegaflowChoiceError(text.to_owned()))
    }
}

impl MegaflowChoice {
    /// Whether it may be used here.
    pub fn available(self) -> bool {
        self.variant.available()
    }
}

/// What a configuration asks for, and for the rest what was chosen on this machine.
pub(super) fn choose(config: &MegaflowConfig) -> (Design, Body, usize) {
    let (chosen, body) = choices::choose(Slot::Megaflow, |text| {
        let choice: MegaflowChoice = text.parse().ok()?;
        Some((choice, Body::of(choice.variant)?))
    });
    let design = config.design.unwrap_or(chosen.design);
    let body = config.variant.and_then(Body::of).unwrap_or(body);
    // A threshold belongs to the design that it was measured with.
    let chosen = if design == chosen.design { chosen.threshold } else { design.threshold() };
    (design, body, config.threshold.unwrap_or(chosen))
}
