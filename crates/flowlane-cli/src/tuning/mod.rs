//! The stored kernel selection: its location, its check against this machine, and its installation in the library.
//!
//! Without a file, tables use built-in defaults, or measure their candidates in their first batches with this program's
//! clock.
//!
//! `flowlane tune` writes the file; every command that builds tables reads it. A file from another machine is ignored with
//! a note that states the difference, because its measurements do not apply.

mod file;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use flowlane::tune::{set_overrides, set_trial_clock};

use crate::failure::Failure;
use crate::stderr::note;

pub(crate) use file::{Machine, Stored};

/// Origin of the kernel selection in this run.
pub(crate) enum Origin {
    /// No file.
    BuiltIn,
    /// A file for this machine.
    File(PathBuf, Box<Stored>),
    /// A file for another machine, with the difference.
    Foreign(PathBuf, String),
}

/// Sets the library's clock, which tables use to measure kernels without a default.
pub(crate) fn give_clock() {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    LazyLock::force(&BEGUN);
    set_trial_clock(|| BEGUN.elapsed().as_nanos() as u64);
}

/// Returns the path of the file: `named`, else the one in the user's configuration directory.
pub(crate) fn path(named: Option<&Path>) -> Option<PathBuf> {
    let folder = || {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
    };
    named.map(Path::to_owned).or_else(|| folder().map(|f| f.join("flowlane/tune.toml")))
}

/// Reads the stored selection and installs it in the library. `named` is the file given by `--tune` or `FLOWLANE_TUNE`,
/// which must exist.
pub(crate) fn load(named: Option<&Path>) -> Result<Origin, Failure> {
    let Some(path) = path(named) else { return Ok(Origin::BuiltIn) };
    if named.is_none() && !path.exists() {
        return Ok(Origin::BuiltIn);
    }
    let Some(stored) = Stored::read(&path)? else { return Ok(Origin::BuiltIn) };
    match stored.machine().differs(&Machine::this()) {
        Some(difference) => Ok(Origin::Foreign(path, difference)),
        None => {
            set_overrides(stored.choices());
            Ok(Origin::File(path, Box::new(stored)))
        }
    }
}

/// Loads the selection like [`load`], with a note on standard error if the file is for another machine.
pub(crate) fn load_noting(named: Option<&Path>) -> Result<Origin, Failure> {
    let origin = load(named)?;
    if let Origin::Foreign(path, difference) = &origin {
        note!(
            "flowlane: {} is not used: {difference}; run `flowlane tune` to measure this machine",
            path.display()
        );
    }
    Ok(origin)
}

impl Origin {
    /// Describes the origin.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::BuiltIn => "built in; `flowlane tune` measures this machine".to_owned(),
            Self::File(path, stored) => {
                format!("{}, measured {}{}", path.display(), stored.date, stored.cap_note())
            }
            Self::Foreign(path, difference) => {
                format!("built in; {} is not used: {difference}", path.display())
            }
        }
    }
}
