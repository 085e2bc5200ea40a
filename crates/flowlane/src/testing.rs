//! Where tests find data that is too large for the repository.

use std::path::{Path, PathBuf};

/// The folder of such data; `../shared/data` beside the checkout where nothing else is said.
pub const DATA_VARIABLE: &str = "FLOWLANE_TEST_DATA";

/// Where this is 1 a test fails, and does not skip, without its data. Set in CI where there is any.
pub const REQUIRE_VARIABLE: &str = "FLOWLANE_REQUIRE_DATA";

/// A file or a folder of the data, by its path in there; none, and a line that says so, where it is not there.
///
/// # Panics
/// Where it is not there and [`REQUIRE_VARIABLE`] asks for it.
pub fn data(path: impl AsRef<Path>) -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let found = std::env::var_os(DATA_VARIABLE).map_or_else(beside, PathBuf::from).join(path);
    if found.exists() {
        return Some(found);
    }
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    assert!(!required, "{REQUIRE_VARIABLE}=1, but there is no {}", found.display());
    println!("skipped: there is no {}", found.display());
    None
}
