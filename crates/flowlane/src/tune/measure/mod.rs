//! The contests, one after the other.

mod acl;
mod bloom;
mod contest;
mod cuckoo;
mod hash;
mod megaflow;
mod parser;
mod routes;

pub use contest::{Candidate, Contest, Verdict};

pub(super) use contest::Workload;
#[cfg(test)]
pub(super) use contest::{Rules, contest};

use std::fmt::Display;

use crate::dispatch::{KernelOverrides, KernelSlot, SizeClass};
use crate::isa::cpu::Cpu;
use contest::Measuring;

/// How long measuring may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Ticks of the clock for all contests together; making the tables (about two seconds) comes on top. Each
    /// contest has a few rounds even where that takes longer.
    pub ticks: u64,
    /// The largest filter or cuckoo table that represents a size, in bytes, where caches are larger; at most
    /// [`TABLE_BYTES_MAX`](Self::TABLE_BYTES_MAX) counts.
    pub table_bytes_max: u64,
}

impl Budget {
    /// The limit of a classic Bloom filter.
    pub const TABLE_BYTES_MAX: u64 = 512 << 20;
}

/// The measurements, and the choices that follow from them.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// In the order of the slots.
    pub outcomes: Vec<Outcome>,
}

impl Tuning {
    /// Returns the choices.
    pub fn choices(&self) -> KernelOverrides {
        let mut choices = KernelOverrides::new();
        self.outcomes.iter().for_each(|o| choices.set(o.slot, o.choice.as_str()));
        choices
    }

    /// Of all slots the one whose built-in choice reaches least of the best one's rate.
    pub fn worst(&self) -> Option<&Outcome> {
        self.outcomes.iter().min_by(|a, b| a.built_in_share().total_cmp(&b.built_in_share()))
    }
}

/// The measurement for a slot.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The slot.
    pub slot: KernelSlot,
    /// The choice: the built-in one where no other is faster by more than noise.
    pub choice: String,
    /// The built-in choice.
    pub built_in: String,
    /// Bytes of the table that was measured, where it has a size.
    pub table_bytes: Option<u64>,
    /// The contests; only the megaflow cache has several.
    pub contests: Vec<Contest>,
}

impl Outcome {
    /// The rate of the built-in choice as a share of the best one's, in the first contest: the rate without tuning.
    pub fn built_in_share(&self) -> f64 {
        self.contests.first().map_or(1.0, Contest::default_share)
    }
}

/// Measures every slot by `clock`, whose ticks count in the budget and in the results; calls `progress` before
/// each slot with the number of those done and that of all.
///
/// Overrides play no part: candidates are compared with the built-in choice.
pub fn measure(
    clock: &mut dyn FnMut() -> u64,
    budget: Budget,
    progress: &mut dyn FnMut(KernelSlot, usize, usize),
) -> Tuning {
    let slots: Vec<KernelSlot> = KernelSlot::all().collect();
    let weights: u64 = slots.iter().map(|slot| weight(*slot)).sum();
    let outcomes = slots.iter().enumerate().map(|(done, slot)| {
        progress(*slot, done, slots.len());
        let ticks = (budget.ticks / weights).saturating_mul(weight(*slot));
        let mut measuring = Measuring { clock: &mut *clock, ticks, table_bytes_max: budget.table_bytes_max };
        match *slot {
            KernelSlot::Murmur3 => hash::murmur3(&mut measuring),
            KernelSlot::Crc32c => hash::crc32c(&mut measuring),
            KernelSlot::Parser => parser::measure(&mut measuring),
            KernelSlot::Bloom(size) => bloom::classic(&mut measuring, size),
            KernelSlot::BlockedBloom(size) => bloom::blocked(&mut measuring, size),
            KernelSlot::Cuckoo(size) => cuckoo::measure(&mut measuring, size),
            KernelSlot::Megaflow => megaflow::measure(&mut measuring),
            KernelSlot::AclTree => acl::tree(&mut measuring),
            KernelSlot::AclDynamic => acl::dynamic(&mut measuring),
            KernelSlot::Routes4 => routes::measure::<u32>(&mut measuring),
            KernelSlot::Routes6 => routes::measure::<u128>(&mut measuring),
        }
    });
    Tuning { outcomes: outcomes.collect() }
}

/// Its share of the time: by the number of candidates and how noisy their memory is.
fn weight(slot: KernelSlot) -> u64 {
    match slot {
        KernelSlot::Murmur3 | KernelSlot::Crc32c => 1,
        KernelSlot::Parser => 2,
        KernelSlot::Bloom(_)
        | KernelSlot::BlockedBloom(_)
        | KernelSlot::Cuckoo(_)
        | KernelSlot::AclTree
        | KernelSlot::AclDynamic => 3,
        KernelSlot::Routes4 | KernelSlot::Routes6 => 6,
        KernelSlot::Megaflow => 12,
    }
}

/// Returns the size of the table that represents a class: a power of two, unless that is more than allowed.
fn table_bytes(size: SizeClass, table_bytes_max: u64) -> usize {
    let [l1, l2, l3] = Cpu::this().cache_bytes;
    let below = |bytes: u64| 1u64 << bytes.max(1024).ilog2();
    let bytes = match size {
        SizeClass::L1 => below(l1 / 2),
        SizeClass::L2 => below(l2 / 2),
        SizeClass::L3 => below(l3 / 2).max(2 * below(l2)),
        SizeClass::Memory => 2 * l3.next_power_of_two(),
    };
    bytes.min(table_bytes_max.min(Budget::TABLE_BYTES_MAX)) as usize
}

/// Returns the outcome of a slot with one contest between all `candidates`.
fn one_contest<T: Display + Copy>(
    measuring: &mut Measuring<'_>,
    slot: KernelSlot,
    table_bytes: Option<u64>,
    items: u64,
    candidates: &[T],
    workload: &mut impl Workload<Entrant = T>,
) -> Outcome {
    let built_in = super::built_in(slot).choice;
    let names: Vec<String> = candidates.iter().map(T::to_string).collect();
    let default = names.iter().position(|name| *name == built_in);
    let default = default.expect("the built-in choice, if usable, is a candidate");
    let ticks = measuring.ticks;
    let contest = measuring.contest(slot.to_string(), ticks, items, candidates, default, workload);
    Outcome { slot, choice: contest.winner().choice.clone(), built_in, table_bytes, contests: vec![contest] }
}
