//! The stored choices: where they are, whether they are this machine's, and making the library use them.
//!
//! Where there is no file, tables choose what is built in, or choose for themselves in their first batches, by this
//! program's clock.
//!
//! `flowlane tune` writes the file, every command that builds tables reads it. A file from another machine is
//! ignored, since its choices are answers to another question; the note says what differs.

mod file;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use flowlane::tune::{set_overrides, set_trial_clock};

use crate::failure::Failure;

pub(crate) use file::{Machine, Stored};

/// Where choices come from in this run.
pub(crate) enum Origin {
    /// No file names any.
    BuiltIn,
    /// From this file.
    File(PathBuf, Box<Stored>),
    /// There is a file, which is not this machine's: what differs.
    Foreign(PathBuf, String),
}

/// Gives the library a clock, by which tables choose for themselves where nobody has measured.
pub(crate) fn give_clock() {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    LazyLock::force(&BEGUN);
    set_trial_clock(|| BEGUN.elapsed().as_nanos() as u64);
}

/// The file that `flowlane tune` writes: the one named, else the user's.
pub(crate) fn path(named: Option<&Path>) -> Option<PathBuf> {
    let folder = || {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
    };
    named.map(Path::to_owned).or_else(|| folder().map(|f| f.join("flowlane/tune.toml")))
}

/// Reads the stored choices and makes the library use them. `named` is what `--tune` or `FLOWLANE_TUNE` says,
/// and must be there.
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

/// The same, with a note on standard error where the file is another machine's.
pub(crate) fn load_noting(named: Option<&Path>) -> Result<Origin, Failure> {
    let origin = load(named)?;
    if let Origin::Foreign(path, difference) = &origin {
        eprintln!(
            "flowlane: {} is not used: {difference}; run `flowlane tune` to measure this machine",
            path.display()
        );
    }
    Ok(origin)
}

impl Origin {
    /// In words.
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
