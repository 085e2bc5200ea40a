#![doc = include_str!("README.md")]

mod built_in;
mod slot;

pub use built_in::Family;
pub use slot::{SizeClass, Slot, SlotError};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};

/// What was chosen for some slots; for the others the built-in table holds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Choices {
    by_slot: BTreeMap<Slot, String>,
}

impl Choices {
    /// None.
    pub const fn new() -> Self {
        Self { by_slot: BTreeMap::new() }
    }

    /// Chooses for a slot: a text that its table reads, such as `avx512-staged/u8/prefetch`. One that it does
    /// not read, or cannot use here, has no effect ([`Decision::refused`] says so).
    pub fn set(&mut self, slot: Slot, choice: impl Into<String>) {
        self.by_slot.insert(slot, choice.into());
    }

    /// What was chosen for a slot.
    pub fn get(&self, slot: Slot) -> Option<&str> {
        self.by_slot.get(&slot).map(String::as_str)
    }

    /// All that was chosen, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &str)> {
        self.by_slot.iter().map(|(slot, choice)| (*slot, choice.as_str()))
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }
}

static INSTALLED: RwLock<Choices> = RwLock::new(Choices::new());

/// Makes these the choices of all tables that are built from now on: the library's second and last piece of
/// global state. To be called once, at the start.
pub fn install(choices: Choices) {
    *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = choices;
}

/// What is installed.
pub fn installed() -> Choices {
    INSTALLED.read().unwrap_or_else(PoisonError::into_inner).clone()
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
pub struct Decision<T> {
    /// What it uses.
    pub choice: T,
    /// Where that comes from.
    pub source: Source,
    /// What was installed and cannot be used here.
    pub refused: Option<String>,
}

/// The choice for a slot: what is installed, else what this CPU's family has built in, else what a more general
/// family has; the first that `read` can use.
///
/// # Panics
/// Where `read` cannot even use the scalar choice.
pub fn decide<T>(slot: Slot, read: impl Fn(&str) -> Option<T>) -> Decision<T> {
    let mut refused = None;
    {
        let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = installed.get(slot) {
            match read(text) {
                Some(choice) => return Decision { choice, source: Source::Installed, refused },
                None => refused = Some(text.to_owned()),
            }
        }
    }
    built_in(slot, Family::this(), read, refused)
}

/// The built-in choice for a slot, whatever is installed.
///
/// # Panics
/// As [`decide`] does.
pub fn decide_built_in<T>(slot: Slot, read: impl Fn(&str) -> Option<T>) -> Decision<T> {
    built_in(slot, Family::this(), read, None)
}

fn built_in<T>(
    slot: Slot,
    family: Family,
    read: impl Fn(&str) -> Option<T>,
    refused: Option<String>,
) -> Decision<T> {
    let found = family.and_more_general().find_map(|family| Some((read(family.choice(slot))?, family)));
    let (choice, family) = found.expect("the portable choice can be used everywhere");
    Decision { choice, source: Source::BuiltIn(family), refused }
}

/// What a table uses for a slot.
pub(crate) fn choose<T>(slot: Slot, read: impl Fn(&str) -> Option<T>) -> T {
    decide(slot, read).choice
}
