//! Machine settings: the widest SIMD registers, and the kernels that tables select.

use super::Error;
use crate::dispatch::{self, KernelOverrides, KernelSlot};
use crate::isa::{self, MaxSimd};
use crate::tune;

/// Limits the width of SIMD registers, in bits, of tables made from now on: 64 (no SIMD), 128, 256 or 512. Without a call the
/// environment variable `FLOWLANE_MAX_SIMD` decides, else the limit is 512.
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

/// Returns the limit on the width of SIMD registers, in bits.
pub fn max_simd() -> u32 {
    isa::max_simd().bits().into()
}

/// Sets the clock by which tables made from now on measure their kernels in their first batches, on CPUs without a measured default.
/// It counts equal ticks of any length, and is read twice for each of some 30 batches of a table. Without a clock tables use built-in
/// defaults.
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

/// Kernel overrides: the kernel that each kind of table uses, measured on this machine or read from a program's own storage. An
/// override is a text for a name, such as `avx512` for `acl-tree`.
///
/// ```
/// use flowlane::Tuning;
///
/// // `flowlane tune` stores these lines.
/// let tuning = Tuning::new().with("acl-tree", "scalar")?.with("routes4", "compact/scalar")?;
/// assert_eq!(tuning.iter().next(), Some(("acl-tree".to_owned(), "scalar")));
/// tuning.install();
/// assert!(Tuning::in_use().iter().any(|choice| choice == ("acl-tree".to_owned(), "scalar")));
/// assert!(Tuning::new().with("acl-tree", "avx9000").is_err());
/// # Ok::<(), flowlane::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tuning(KernelOverrides);

impl Tuning {
    /// Creates an empty set of overrides.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures all kernels by `clock`, for about `ticks` and two seconds more, and returns the fastest ones. A few seconds are
    /// enough. Installs nothing.
    pub fn measure(clock: &mut dyn FnMut() -> u64, ticks: u64) -> Self {
        let budget = tune::Budget { ticks, table_bytes_max: tune::Budget::TABLE_BYTES_MAX };
        Self(tune::measure(clock, budget, &mut |_, _, _| {}).choices())
    }

    /// Returns the kernels that tables made now would use.
    pub fn in_use() -> Self {
        let mut own = KernelOverrides::new();
        KernelSlot::all().for_each(|slot| own.set(slot, tune::in_use(slot).choice));
        Self(own)
    }

    /// Adds an override.
    ///
    /// # Errors
    /// [`Input`](super::ErrorKind::Input): there is no such name or kernel. A kernel that this CPU lacks, or that is
    /// wider than the limit, is accepted and has no effect.
    pub fn with(mut self, name: &str, choice: &str) -> Result<Self, Error> {
        let slot: KernelSlot = name.parse().map_err(Error::input)?;
        tune::is_usable(slot, choice).map_err(Error::input)?;
        self.0.set(slot, choice);
        Ok(self)
    }

    /// Returns names and kernels, always in the same order.
    pub fn iter(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().map(|(slot, choice)| (slot.to_string(), choice))
    }

    /// Installs the overrides for all tables made from now on. Call it once, at the start.
    pub fn install(self) {
        dispatch::set_overrides(self.0);
    }
}
