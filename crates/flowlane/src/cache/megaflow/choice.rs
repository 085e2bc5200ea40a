//! How batches are looked up: the designs, and what was chosen of design, variant, threshold and masks at once.

use std::fmt;
use std::str::FromStr;

use super::MegaflowConfig;
use super::interleaved::MASKS_MAX;
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

    /// Under how many masks at once a packet is looked for where nothing was chosen for this design.
    pub(crate) fn in_flight(self) -> usize {
        match self {
            Design::Fixed => MASKS_MAX,
            // MurmurHash3 has no terms to be summed side by side.
            Design::Majority => 1,
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

/// Design, variant, threshold, and masks at once. Its name is `design/variant/fromN/xM`; where `/xM` is missing, it is
/// 16 with `fixed`, and 1 with `majority`, which has no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MegaflowChoice {
    /// The design.
    pub design: Design,
    /// The variant.
    pub variant: Variant,
    /// Batches of fewer packets are looked up one by one.
    pub threshold: usize,
    /// Under so many masks at once a packet is looked for where packets are looked up one by one; below 4, one after
    /// the other.
    pub in_flight: usize,
}

/// A text that names no way of looking megaflows up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` names no way of looking megaflows up; write DESIGN/VARIANT/fromN/xM (M: 1 to 16; of majority, 1), for instance \
     fixed/avx2/from4/x16"
)]
pub struct MegaflowChoiceError(pub String);

impl fmt::Display for MegaflowChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/from{}/x{}", self.design, self.variant, self.threshold, self.in_flight)
    }
}

impl FromStr for MegaflowChoice {
    type Err = MegaflowChoiceError;

    fn from_str(text: &str) -> Result<Self, MegaflowChoiceError> {
        let read = || {
            let (design, rest) = text.split_once('/')?;
            let (variant, threshold) = rest.split_once("/from")?;
            let (threshold, in_flight) = match threshold.split_once("/x") {
                Some((threshold, in_flight)) => (threshold, Some(in_flight.parse().ok()?)),
                None => (threshold, None),
            };
            let (design, variant): (Design, _) = (design.parse().ok()?, variant.parse().ok()?);
            let in_flight = in_flight.unwrap_or(design.in_flight());
            (1..=design.in_flight()).contains(&in_flight).then_some(())?;
            Some(Self { design, variant, threshold: threshold.parse().ok()?, in_flight })
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
pub(super) fn choose(config: &MegaflowConfig) -> (Design, Body, usize, usize) {
    let (chosen, body) = choices::choose(Slot::Megaflow, |text| {
        let choice: MegaflowChoice = text.parse().ok()?;
        Some((choice, Body::of(choice.variant)?))
    });
    let design = config.design.unwrap_or(chosen.design);
    let body = config.variant.and_then(Body::of).unwrap_or(body);
    // What was measured belongs to the design that it was measured with.
    let (threshold, in_flight) = if design == chosen.design {
        (chosen.threshold, chosen.in_flight)
    } else {
        (design.threshold(), design.in_flight())
    };
    let in_flight = config.in_flight.unwrap_or(in_flight).clamp(1, design.in_flight());
    (design, body, config.threshold.unwrap_or(threshold), in_flight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back_and_older_texts_are_read_too() {
        for text in ["fixed/avx512/from6/x16", "fixed/scalar/from1/x1", "majority/avx2/from9/x1"] {
            assert_eq!(text.parse::<MegaflowChoice>().unwrap().to_string(), text);
        }
        let in_flight = |text: &str| text.parse::<MegaflowChoice>().map(|choice| choice.in_flight);
        assert_eq!(in_flight("fixed/avx2/from12"), Ok(16));
        assert_eq!(in_flight("majority/avx2/from12"), Ok(1));
        for wrong in
            ["fixed/avx2/from4/x0", "fixed/avx2/from4/x17", "majority/avx2/from9/x4", "fixed/avx2/x4"]
        {
            assert!(in_flight(wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
