#![doc = include_str!("README.md")]

mod built_in;
mod slot;
mod trial;

pub use built_in::Family;
pub use slot::{KernelSlot, KernelSlotError, SizeClass};
pub use trial::CALLS_MAX;

pub(crate) use trial::AdaptiveDispatch;
#[cfg(test)]
pub(crate) use trial::testing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

/// A candidate replaces the built-in choice, or an earlier candidate, if it takes less than this share of its time. Smaller
/// differences are noise.
pub(crate) const WIN_BELOW: f64 = 0.97;

/// Kernels of a slot that take part in a trial: the widest ones.
const TRIED: usize = 2;

/// A counter of equal ticks of any length.
pub type Clock = fn() -> u64;

/// Overrides of the built-in choice, by slot. Slots without one use the built-in choice.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct KernelOverrides {
    by_slot: BTreeMap<KernelSlot, String>,
}

impl KernelOverrides {
    /// No overrides.
    pub const fn new() -> Self {
        Self { by_slot: BTreeMap::new() }
    }

    /// Overrides a slot, by a text that its table parses, such as `avx512-staged/u8/prefetch`. One that the table
    /// cannot parse, or cannot use here, has no effect ([`Selection::refused`] says so).
    pub fn set(&mut self, slot: KernelSlot, choice: impl Into<String>) {
        self.by_slot.insert(slot, choice.into());
    }

    /// Returns the override of a slot.
    pub fn get(&self, slot: KernelSlot) -> Option<&str> {
        self.by_slot.get(&slot).map(String::as_str)
    }

    /// Iterates over the overrides, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (KernelSlot, &str)> {
        self.by_slot.iter().map(|(slot, choice)| (*slot, choice.as_str()))
    }

    /// Returns whether there are no overrides.
    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }
}

static OVERRIDES: RwLock<KernelOverrides> = RwLock::new(KernelOverrides::new());

/// Overrides the kernels of all tables that are built from now on: the second of the library's three pieces of
/// global state. To be called once, at the start.
pub fn set_overrides(choices: KernelOverrides) {
    *OVERRIDES.write().unwrap_or_else(PoisonError::into_inner) = choices;
}

/// Returns the overrides in force.
pub fn overrides() -> KernelOverrides {
    OVERRIDES.read().unwrap_or_else(PoisonError::into_inner).clone()
}

static CLOCK: RwLock<Option<Clock>> = RwLock::new(None);

/// Sets the clock by which tables that are built from now on time their kernels in their first batches, where there is
/// neither an explicit choice nor an override nor a measurement: the last of the library's three pieces of global state. To
/// be called once, at the start; without it there are no trials.
///
/// It is read twice for each of some 30 batches of a table.
///
/// Forwarding tables whose engine is not named ([`AnyFib`](crate::route::engine::AnyFib)) are also timed when they are built, with each engine
/// of their family: an override gives the kernel of its engine then, and not which engine is taken.
pub fn set_trial_clock(clock: Clock) {
    *CLOCK.write().unwrap_or_else(PoisonError::into_inner) = Some(clock);
}

/// Returns the clock for trials, if there is one.
pub(crate) fn clock() -> Option<Clock> {
    #[cfg(test)]
    if let Some(clock) = testing::forced() {
        return Some(clock);
    }
    *CLOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// The source of a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// An override.
    Installed,
    /// The built-in table of a family: this CPU's, or a more general one where this CPU's choice needs more
    /// than there is, or than the width cap allows.
    BuiltIn(Family),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Installed => f.write_str("stored"),
            Source::BuiltIn(family) => write!(f, "built-in for {family}"),
        }
    }
}

/// The kernel that a table uses, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection<T> {
    /// The choice.
    pub choice: T,
    /// Its source.
    pub source: Source,
    /// The override, if it cannot be used here.
    pub refused: Option<String>,
    /// The kernels that the first batches compare it with; none where the choice is settled, or where there is no clock
    /// ([`set_trial_clock`]).
    pub candidates: Vec<T>,
}

impl<T: fmt::Display> Selection<T> {
    /// Describes the source, a refused override, and the candidates of a trial.
    pub fn origin(&self) -> String {
        let mut text = self.source.to_string();
        if let Some(refused) = &self.refused {
            text += &format!(": stored {refused} cannot be used here");
        }
        if !self.candidates.is_empty() {
            let candidates: Vec<String> = self.candidates.iter().map(T::to_string).collect();
            text += &format!("; to be measured in the first batches, against {}", candidates.join(" and "));
        }
        text
    }
}

/// Selects the kernel for a slot: the override, else the built-in choice of this CPU's family, else that of a more general
/// family; the first that `read` can use.
///
/// # Panics
/// Where `read` cannot even use the scalar choice.
pub fn select_kernel<T>(slot: KernelSlot, read: impl Fn(&str) -> Option<T>) -> Selection<T> {
    let mut refused = None;
    {
        let installed = OVERRIDES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = installed.get(slot) {
            match read(text) {
                Some(choice) => {
                    return Selection { choice, source: Source::Installed, refused, candidates: Vec::new() };
                }
                None => refused = Some(text.to_owned()),
            }
        }
    }
    select_kernel_in(slot, Family::this(), read, refused)
}

/// Selects the built-in choice for a slot, whatever the override.
///
/// # Panics
/// As [`select_kernel`] does.
pub fn select_built_in_kernel<T>(slot: KernelSlot, read: impl Fn(&str) -> Option<T>) -> Selection<T> {
    select_kernel_in(slot, Family::this(), read, None)
}

fn select_kernel_in<T>(
    slot: KernelSlot,
    family: Family,
    read: impl Fn(&str) -> Option<T>,
    refused: Option<String>,
) -> Selection<T> {
    let found = family.and_more_general().find_map(|row| Some((read(row.choice(slot))?, row)));
    let (choice, row) = found.expect("the portable choice can be used everywhere");
    let is_tried = slot.can_be_tried() && clock().is_some();
    let candidates = if is_tried { other_candidates(slot, family, row, read) } else { Vec::new() };
    Selection { choice, source: Source::BuiltIn(row), refused, candidates }
}

/// Returns whether a test requests trials everywhere.
fn is_forced() -> bool {
    #[cfg(test)]
    return testing::forced().is_some();
    #[cfg(not(test))]
    false
}

/// Returns the candidates of a trial beside the choice of a row: the others of the widest that `read` can use. None where the row
/// was measured on CPUs of this family, and is its own or has the widest.
fn other_candidates<T>(
    slot: KernelSlot,
    own: Family,
    row: Family,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let chosen = row.choice(slot);
    let mut usable: Vec<(&str, T)> = Vec::new();
    for text in built_in::by_width(slot) {
        if usable.iter().all(|(known, _)| *known != text) {
            usable.extend(read(text).map(|choice| (text, choice)));
        }
    }
    let is_forced = is_forced();
    let is_measured = own.is_a_measured_cpu() && row.is_measured(slot);
    let is_widest = usable.first().is_some_and(|(widest, _)| *widest == chosen);
    if is_measured && (row == own || is_widest) && !is_forced {
        return Vec::new();
    }
    let widest = usable.into_iter().take(if is_forced { trial::CANDIDATES_MAX } else { TRIED });
    widest.filter(|(text, _)| *text != chosen).map(|(_, choice)| choice).collect()
}

/// Selects the kernel for a slot, without the reasons.
pub(crate) fn choose<T>(slot: KernelSlot, read: impl Fn(&str) -> Option<T>) -> T {
    select_kernel(slot, read).choice
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the candidates beside this row's choice, where kernels are at most as wide as `widest`.
    fn tried(row: Family, slot: KernelSlot, widest: &[&str]) -> Vec<String> {
        other_candidates(slot, row, row, |text| {
            widest.iter().any(|of| text.contains(of)).then(|| text.to_owned())
        })
    }

    const ALL: [&str; 4] = ["avx512", "avx2", "sse42", "scalar"];

    #[test]
    fn measured_choices_have_no_trial() {
        for slot in KernelSlot::all() {
            assert!(tried(Family::Zen5, slot, &ALL).is_empty(), "{slot}");
            let read = |text: &str| (!text.contains("avx512")).then_some(());
            assert!(other_candidates(slot, Family::Zen5, Family::Avx2, read).is_empty(), "{slot}, capped");
            assert!(tried(Family::Portable, slot, &ALL[3..]).is_empty(), "{slot}: there is one body");
        }
        assert!(tried(Family::SkylakeSp, KernelSlot::AclTree, &ALL).is_empty());
    }

    #[test]
    fn unmeasured_choices_are_tried_against_the_next_width() {
        for row in [Family::Zen4, Family::SapphireRapids, Family::IceLake] {
            assert_eq!(tried(row, KernelSlot::AclTree, &ALL), ["avx2"], "{row}");
            assert_eq!(tried(row, KernelSlot::Bloom(SizeClass::L3), &ALL), ["avx2-staged/u8/prefetch"]);
        }
        // An unknown CPU with AVX-512.
        assert_eq!(tried(Family::Avx2, KernelSlot::Cuckoo(SizeClass::L1), &ALL), ["avx512"]);
        assert_eq!(tried(Family::SkylakeSp, KernelSlot::Routes4, &ALL), ["compact/avx512"]);
        // One without, which is not the one that the row was measured on under a cap.
        assert_eq!(tried(Family::Avx2, KernelSlot::AclTree, &ALL[1..]), ["sse42"]);
    }

    #[test]
    fn a_selection_describes_its_trial() {
        let read = |text: &str| (!text.contains("neon")).then(|| text.to_owned());
        let decide = || select_kernel_in(KernelSlot::AclTree, Family::Zen4, read, Some("avx9".to_owned()));
        let settled = "built-in for zen4: stored avx9 cannot be used here";
        assert_eq!(decide().origin(), settled);
        let never = || -> u64 { panic!("the clock was read") };
        let tried =
            format!("{settled}; to be measured in the first batches, against avx2 and sse42 and scalar");
        assert_eq!(testing::forcing(never, decide).origin(), tried);
    }

    #[test]
    fn there_are_no_trials_without_a_clock() {
        let read = |text: &str| Some(text.to_owned());
        for family in Family::ALL {
            for slot in KernelSlot::all() {
                assert_eq!(
                    select_kernel_in(slot, family, read, None).candidates,
                    [""; 0],
                    "{family}, {slot}"
                );
            }
        }
    }
}
