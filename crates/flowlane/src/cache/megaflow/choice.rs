//! The selected variant, threshold and number of masks at once for lookups.

use std::fmt;
use std::str::FromStr;

use super::MegaflowConfig;
use super::interleaved::MASKS_MAX;
use crate::dispatch::{AdaptiveDispatch, KernelSlot};
use crate::isa::{Backend, Variant};

/// Variant, threshold, and masks at once. Its name is `variant/fromN/xM`; where `/xM` is missing, it is 16.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MegaflowChoice {
    /// The variant.
    pub variant: Variant,
    /// Batches of fewer packets are looked up one by one.
    pub threshold: usize,
    /// Masks under which a packet is looked up at once if packets are looked up one by one; below 4, one after
    /// the other.
    pub in_flight: usize,
}

/// A text that names no way of looking megaflows up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` names no way of looking megaflows up; write VARIANT/fromN/xM (M: 1 to 16), for instance \
     avx2/from4/x16"
)]
pub struct MegaflowChoiceError(pub String);

impl fmt::Display for MegaflowChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/from{}/x{}", self.variant, self.threshold, self.in_flight)
    }
}

impl FromStr for MegaflowChoice {
    type Err = MegaflowChoiceError;

    fn from_str(text: &str) -> Result<Self, MegaflowChoiceError> {
        let read = || {
            let (variant, threshold) = text.split_once("/from")?;
            let (threshold, in_flight) = match threshold.split_once("/x") {
                Some((threshold, in_flight)) => (threshold, in_flight.parse().ok()?),
                None => (threshold, MASKS_MAX),
            };
            (1..=MASKS_MAX).contains(&in_flight).then_some(())?;
            Some(Self { variant: variant.parse().ok()?, threshold: threshold.parse().ok()?, in_flight })
        };
        read().ok_or_else(|| MegaflowChoiceError(text.to_owned()))
    }
}

impl MegaflowChoice {
    /// Returns whether this CPU and the width cap allow it.
    pub fn available(self) -> bool {
        self.variant.available()
    }
}

/// How a cache looks batches up: a [`MegaflowChoice`] with the proof that its body may be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) body: Backend,
    pub(super) threshold: usize,
    pub(super) in_flight: usize,
}

/// The way that a configuration asks for, completed by the choice for this machine. Where the configuration names no
/// variant, the first batches may find another to be faster.
pub(super) fn choose(config: &MegaflowConfig) -> AdaptiveDispatch<Way> {
    let chosen = AdaptiveDispatch::of(KernelSlot::Megaflow, |text| {
        let choice: MegaflowChoice = text.parse().ok()?;
        Some(Way {
            body: Backend::of(choice.variant)?,
            threshold: config.threshold.unwrap_or(choice.threshold),
            in_flight: config.in_flight.unwrap_or(choice.in_flight).clamp(1, MASKS_MAX),
        })
    });
    match config.variant.and_then(Backend::of) {
        Some(body) => AdaptiveDispatch::named(Way { body, ..chosen.get() }),
        None => chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_back_and_texts_without_masks_at_once_are_read_too() {
        for text in ["avx512/from6/x16", "scalar/from1/x1"] {
            assert_eq!(text.parse::<MegaflowChoice>().unwrap().to_string(), text);
        }
        let in_flight = |text: &str| text.parse::<MegaflowChoice>().map(|choice| choice.in_flight);
        assert_eq!(in_flight("avx2/from12"), Ok(16));
        for wrong in ["avx2/from4/x0", "avx2/from4/x17", "avx2/x4", "fixed/avx2/from4/x16"] {
            assert!(in_flight(wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
