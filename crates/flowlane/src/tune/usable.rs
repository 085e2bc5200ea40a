//! What each slot's table reads, and what it can use here.

use std::fmt::Display;
use std::str::FromStr;

use crate::bloom::{BlockedKernel, BloomKernel};
use crate::cache::MegaflowChoice;
use crate::choices::{self, Decision, Slot};
use crate::hash::crc32c::Crc32c;
use crate::hash::murmur3::Murmur3;
use crate::isa::Variant;
use crate::packet::Parser;
use crate::route::engine::FibChoice;

/// A text that a slot's table does not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{slot}: {problem}")]
pub struct ChoiceError {
    /// The slot.
    pub slot: Slot,
    /// What is wrong, and what there is.
    pub problem: String,
}

/// Whether the table of this slot can use this choice here, under the width cap.
///
/// # Errors
/// Where no CPU could, since there is no such choice.
pub fn is_usable(slot: Slot, choice: &str) -> Result<bool, ChoiceError> {
    fn read<T: FromStr<Err: Display>>(text: &str, usable: impl Fn(T) -> bool) -> Result<bool, String> {
        text.parse().map(usable).map_err(|e: T::Err| e.to_string())
    }
    let found = match slot {
        Slot::Murmur3 => read(choice, |v| Murmur3::with_variant(v).is_some()),
        Slot::Crc32c => read(choice, |v| Crc32c::with_variant(v).is_some()),
        Slot::Parser => read(choice, |v| Parser::with_variant(v).is_some()),
        Slot::Bloom(_) => read(choice, BloomKernel::available),
        Slot::BlockedBloom(_) => read(choice, BlockedKernel::available),
        Slot::Cuckoo(_) | Slot::AclTree | Slot::AclDynamic => read(choice, Variant::available),
        Slot::Megaflow => read(choice, MegaflowChoice::available),
        Slot::Routes4 => read(choice, FibChoice::available::<u32>),
        Slot::Routes6 => read(choice, FibChoice::available::<u128>),
    };
    found.map_err(|problem| ChoiceError { slot, problem })
}

fn usable(slot: Slot) -> impl Fn(&str) -> Option<String> {
    move |choice| is_usable(slot, choice).is_ok_and(|usable| usable).then(|| choice.to_owned())
}

/// What tables of this slot use that are built now without an explicit choice, and why.
pub fn in_use(slot: Slot) -> Decision<String> {
    choices::decide(slot, usable(slot))
}

/// What they would use if nothing were installed.
pub fn built_in(slot: Slot) -> Decision<String> {
    choices::decide_built_in(slot, usable(slot))
}
