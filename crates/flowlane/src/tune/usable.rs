//! The choices that each slot's table can parse, and those that it can use here.

use std::fmt::Display;
use std::str::FromStr;

use crate::bloom::{BlockedKernel, BloomKernel};
use crate::cache::MegaflowChoice;
use crate::dispatch::{self, KernelSlot, Selection};
use crate::hash::crc32c::Crc32c;
use crate::hash::murmur3::Murmur3;
use crate::isa::Variant;
use crate::packet::Parser;
use crate::route::engine::FibKernel;

/// A choice that a slot's table cannot parse.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{slot}: {problem}")]
pub struct ChoiceError {
    /// The slot.
    pub slot: KernelSlot,
    /// The problem, and the choices that exist.
    pub problem: String,
}

/// Returns whether the table of this slot can use this choice here, under the width cap.
///
/// # Errors
/// Where no CPU could, since there is no such choice.
pub fn is_usable(slot: KernelSlot, choice: &str) -> Result<bool, ChoiceError> {
    fn read<T: FromStr<Err: Display>>(text: &str, usable: impl Fn(T) -> bool) -> Result<bool, String> {
        text.parse().map(usable).map_err(|e: T::Err| e.to_string())
    }
    let found = match slot {
        KernelSlot::Murmur3 => read(choice, |v| Murmur3::with_variant(v).is_some()),
        KernelSlot::Crc32c => read(choice, |v| Crc32c::with_variant(v).is_some()),
        KernelSlot::Parser => read(choice, |v| Parser::with_variant(v).is_some()),
        KernelSlot::Bloom(_) => read(choice, BloomKernel::available),
        KernelSlot::BlockedBloom(_) => read(choice, BlockedKernel::available),
        KernelSlot::Cuckoo(_) | KernelSlot::AclTree | KernelSlot::AclDynamic => {
            read(choice, Variant::available)
        }
        KernelSlot::Megaflow => read(choice, MegaflowChoice::available),
        KernelSlot::Routes4 => read(choice, FibKernel::available::<u32>),
        KernelSlot::Routes6 => read(choice, FibKernel::available::<u128>),
    };
    found.map_err(|problem| ChoiceError { slot, problem })
}

fn usable(slot: KernelSlot) -> impl Fn(&str) -> Option<String> {
    move |choice| is_usable(slot, choice).is_ok_and(|usable| usable).then(|| choice.to_owned())
}

/// Returns the choice of tables that are built now without an explicit one, and why.
pub fn in_use(slot: KernelSlot) -> Selection<String> {
    dispatch::select_kernel(slot, usable(slot))
}

/// Returns the choice that they would use without overrides.
pub fn built_in(slot: KernelSlot) -> Selection<String> {
    dispatch::select_built_in_kernel(slot, usable(slot))
}
