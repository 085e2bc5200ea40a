//! What the library makes of the machine: widths, and which bodies tables use.

use super::Error;
use crate::dispatch::{self, KernelOverrides, KernelSlot};
use crate::isa::{self, MaxSimd};
use crate::tune;

/// Uses SIMD registers of so many bits at most, in what is made from now on: 64 (none), 128, 256 or 512. Where nobody says so, it
/// is what the environment variable `FLOWLANE_MAX_SIMD` says, else 512.
///
/// ```
/// flowlane::set_max_simd(256)?;
/// assert_eq!(flowlane::max_simd(), 256);
/// assert!(flowlane::set_max_simd(100).is_err());
/// # Ok::<(), flowlane::Error>(())
/// ```
///
/// # Errors
/// [`Input`](super::ErrorKind::Input): another number.
pub fn set_max_simd(bits: u32) -> Result<(), Error> {
    let limit: MaxSimd = bits.to_string().parse().map_err(Error::input)?;
    isa::set_max_simd(limit);
    Ok(())
}

/// The widest SIMD registers that may be used, in bits.
pub fn max_simd() -> u32 {
    isa::max_simd().bits().into()
}

/// Gives the library a clock, by which tables that are made from now on measure in their first batches which of their bodies is fastest,
/// on CPUs on which nobody has measured that. It counts equal ticks of any length, and is read twice for each of some 30 batches of a
/// table. Without it nothing is measured.
///
/// ```
/// use std::sync::LazyLock;
/// use std::time::Instant;
///
/// static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// flowlane::set_clock(|| BEGIN.elapsed().as_nanos() as u64);
/// ```
pub fn set_clock(clock: fn() -> u64) {
    dispatch::set_trial_clock(clock);
}

/// Which body each table uses, where that is not left to the library: measured on this machine, or read from where a program has stored
/// it. A choice is a text for a name, such as `avx512` for `acl-tree`.
///
/// ```
/// use flowlane::Tuning;
///
/// // `flowlane tune` stores these lines.
/// let tuning = Tuning::new().with("acl-tree", "scalar")?.with("routes4", "compact/scalar")?;
/// assert_eq!(tuning.iter().next(), Some(("acl-tree".to_owned(), "scalar")));
/// tuning.set_overrides();
/// assert!(Tuning::in_use().iter().any(|choice| choice == ("acl-tree".to_owned(), "scalar")));
/// assert!(Tuning::new().with("acl-tree", "avx9000").is_err());
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tuning(KernelOverrides);

impl Tuning {
    /// No choices.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures all tables by `clock`, for about so many of its ticks and two seconds more, and chooses what is fastest: a few
    /// seconds are enough. Nothing is installed.
    pub fn measure(clock: &mut dyn FnMut() -> u64, ticks: u64) -> Self {
        let budget = tune::Budget { ticks, table_bytes_max: tune::Budget::TABLE_BYTES_MAX };
        Self(tune::measure(clock, budget, &mut |_, _, _| {}).choices())
    }

    /// What tables that are made now would use, with what is installed.
    pub fn in_use() -> Self {
        let mut own = KernelOverrides::new();
        KernelSlot::all().for_each(|slot| own.set(slot, tune::in_use(slot).choice));
        Self(own)
    }

    /// The same with a choice for a name.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): there is no such name, or no CPU has such a body. One that this CPU has not, or that is
    /// wider than allowed, is taken, and has no effect.
    pub fn with(mut self, name: &str, choice: &str) -> Result<Self, Error> {
        let slot: KernelSlot = name.parse().map_err(Error::input)?;
        tune::is_usable(slot, choice).map_err(Error::input)?;
        self.0.set(slot, choice);
        Ok(self)
    }

    /// The names and what was chosen for them, always in the same order.
    pub fn iter(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().map(|(slot, choice)| (slot.to_string(), choice))
    }

    /// Makes these the choices of all tables that are made from now on. To be called once, at the start.
    pub fn install(self) {
        dispatch::set_overrides(self.0);
    }
}
