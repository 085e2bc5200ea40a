#![doc = include_str!("README.md")]

mod built_in;
mod slot;
mod trial;

pub use built_in::Family;
pub use slot::{KernelSlot, KernelSlotError, SizeClass};

pub(crate) use trial::AdaptiveDispatch;
#[cfg(test)]
pub(crate) use trial::testing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

/// A candidate replaces what is built in, or what comes first, where it takes less than this share of its time: what lies
/// between is noise.
pub(crate) const WIN_BELOW: f64 = 0.97;

/// The widest of the bodies of a slot that are tried: as many.
const TRIED: usize = 2;

/// A counter of equal ticks of any length.
pub type Clock = fn() -> u64;

/// What was chosen for some slots; for the others the built-in table holds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct KernelOverrides {
    by_slot: BTreeMap<KernelSlot, String>,
}

impl KernelOverrides {
    /// None.
    pub const fn new() -> Self {
        Self { by_slot: BTreeMap::new() }
    }

    /// Chooses for a slot: a text that its table reads, such as `avx512-staged/u8/prefetch`. One that it does
    /// not read, or cannot use here, has no effect ([`Selection::refused`] says so).
    pub fn set(&mut self, slot: KernelSlot, choice: impl Into<String>) {
        self.by_slot.insert(slot, choice.into());
    }

    /// What was chosen for a slot.
    pub fn get(&self, slot: KernelSlot) -> Option<&str> {
        self.by_slot.get(&slot).map(String::as_str)
    }

    /// All that was chosen, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (KernelSlot, &str)> {
        self.by_slot.iter().map(|(slot, choice)| (*slot, choice.as_str()))
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }
}

static OVERRIDES: RwLock<KernelOverrides> = RwLock::new(KernelOverrides::new());

/// Makes these the choices of all tables that are built from now on: the second of the library's three pieces of
/// global state. To be called once, at the start.
pub fn set_overrides(choices: KernelOverrides) {
    *OVERRIDES.write().unwrap_or_else(PoisonError::into_inner) = choices;
}

/// What is installed.
pub fn overrides() -> KernelOverrides {
    OVERRIDES.read().unwrap_or_else(PoisonError::into_inner).clone()
}

static CLOCK: RwLock<Option<Clock>> = RwLock::new(None);

/// Gives the library a clock, by which tables that are built from now on measure their bodies in their first batches,
/// where nobody has chosen and nobody has measured: the last of the library's three pieces of global state. To be called
/// once, at the start; without it nothing is measured.
///
/// It is read twice for each of some 30 batches of a table.
pub fn set_trial_clock(clock: Clock) {
    *CLOCK.write().unwrap_or_else(PoisonError::into_inner) = Some(clock);
}

fn clock() -> Option<Clock> {
    #[cfg(test)]
    if let Some(clock) = testing::forced() {
        return Some(clock);
    }
    *CLOCK.read().unwrap_or_else(PoisonError::into_inner)
}

/// Where a choice comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// It was installed.
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

/// What a table uses, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection<T> {
    /// What it uses.
    pub choice: T,
    /// Where that comes from.
    pub source: Source,
    /// What was installed and cannot be used here.
    pub refused: Option<String>,
    /// What the first batches of the table measure it against; none where it is settled, or where there is no clock
    /// ([`set_trial_clock`]).
    pub candidates: Vec<T>,
}

impl<T: fmt::Display> Selection<T> {
    /// Where the choice comes from, what was refused for it, and what it is to be measured against, in words.
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

/// The choice for a slot: what is installed, else what this CPU's family has built in, else what a more general
/// family has; the first that `read` can use.
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

/// The built-in choice for a slot, whatever is installed.
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

/// Whether a test wants everything tried.
fn is_forced() -> bool {
    #[cfg(test)]
    return testing::forced().is_some();
    #[cfg(not(test))]
    false
}

/// What is to be measured against the choice of a row: the others of the widest that `read` can use. None where the row
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

/// What a table uses for a slot.
pub(crate) fn choose<T>(slot: KernelSlot, read: impl Fn(&str) -> Option<T>) -> T {
    select_kernel(slot, read).choice
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this row's choice is measured against, where bodies are as wide as `widest` at most.
    fn tried(row: Family, slot: KernelSlot, widest: &[&str]) -> Vec<String> {
        other_candidates(slot, row, row, |text| {
            widest.iter().any(|of| text.contains(of)).then(|| text.to_owned())
        })
    }

    const ALL: [&str; 4] = ["avx512", "avx2", "sse42", "scalar"];

    #[test]
    fn what_was_measured_is_not_tried() {
        for slot in KernelSlot::all() {
            assert!(tried(Family::Zen5, slot, &ALL).is_empty(), "{slot}");
            let read = |text: &str| (!text.contains("avx512")).then_some(());
            assert!(other_candidates(slot, Family::Zen5, Family::Avx2, read).is_empty(), "{slot}, capped");
            assert!(tried(Family::Portable, slot, &ALL[3..]).is_empty(), "{slot}: there is one body");
        }
        assert!(tried(Family::SkylakeSp, KernelSlot::AclTree, &ALL).is_empty());
    }

    #[test]
    fn what_was_not_measured_is_tried_against_the_next_narrower_or_wider() {
        for row in [Family::Zen4, Family::SapphireRapids, Family::IceLake] {
            assert_eq!(tried(row, KernelSlot::AclTree, &ALL), ["avx2"], "{row}");
            assert_eq!(tried(row, KernelSlot::Bloom(SizeClass::L3), &ALL), ["avx2-staged/u8/prefetch"]);
        }
        // A CPU with AVX-512 of which nobody knows anything.
        assert_eq!(tried(Family::Avx2, KernelSlot::Cuckoo(SizeClass::L1), &ALL), ["avx512"]);
        assert_eq!(tried(Family::SkylakeSp, KernelSlot::Routes4, &ALL), ["compact/avx512"]);
        // One without, which is not the one that the row was measured on under a cap.
        assert_eq!(tried(Family::Avx2, KernelSlot::AclTree, &ALL[1..]), ["sse42"]);
    }

    #[test]
    fn choices_that_are_to_be_measured_say_so() {
        let read = |text: &str| Some(text.to_owned());
        let decide = || select_kernel_in(KernelSlot::AclTree, Family::Zen4, read, Some("avx9".to_owned()));
        let settled = "built-in for zen4: stored avx9 cannot be used here";
        assert_eq!(decide().origin(), settled);
        let never = || -> u64 { panic!("the clock was read") };
        let tried =
            format!("{settled}; to be measured in the first batches, against avx2 and sse42 and scalar");
        assert_eq!(testing::forcing(never, decide).origin(), tried);
    }

    #[test]
    fn without_a_clock_nothing_is_tried() {
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
