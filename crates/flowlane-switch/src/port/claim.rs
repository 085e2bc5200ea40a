//! Interfaces that a switch has. Two switches on one interface would both forward each frame.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::PortError;

/// The interfaces of this process, each with the file that is locked for it until the process ends.
static CLAIMED: Mutex<BTreeMap<String, File>> = Mutex::new(BTreeMap::new());

/// Where switches of a user keep what others look for: for root in /run, for others in the folder that is theirs while they are
/// logged in, or in one that only they may enter.
pub(crate) fn own_folder() -> PathBuf {
    let user = user();
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    match (user, own) {
        (0, _) => PathBuf::from("/run/flowlane"),
        (_, Some(folder)) => Path::new(&folder).join("flowlane"),
        (user, None) => std::env::temp_dir().join(format!("flowlane-{user}")),
    }
}

/// Whose process this is.
fn user() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |of_process| of_process.uid())
}

/// Claims an interface for this process, as long as it runs; where nothing can be locked, nobody else is kept away.
///
/// # Errors
/// Where another process has it.
pub(super) fn claim(interface: &str, spec: &dyn std::fmt::Display) -> Result<(), PortError> {
    claim_in(&own_folder(), interface)
        .map_err(|problem| PortError::Environment { spec: spec.to_string(), problem })
}

fn claim_in(folder: &Path, interface: &str) -> Result<(), String> {
    // Names are those of a network namespace.
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |data| data.ino());
    let name = format!("{namespace}-{interface}.lock");
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    if claimed.contains_key(&name) {
        return Ok(());
    }
    _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // In a folder of somebody else's, names may lead anywhere.
    let is_own = folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user());
    let open = || File::options().create(true).append(true).open(folder.join(&name));
    let Some(file) = is_own.then(open).and_then(Result::ok) else { return Ok(()) };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(format!("another switch has {interface}; stop it, or both would forward each frame"))
        }
        _ => {
            claimed.insert(name, file);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_one_switch_s() {
        let folder = tempfile::tempdir().unwrap();
        let claim = |interface: &str| claim_in(folder.path(), interface);
        claim("claimed0").unwrap();
        // The same process may open it again, for another worker.
        claim("claimed0").unwrap();
        // What another process would do.
        let held = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert!(matches!(File::open(&held).unwrap().try_lock(), Err(TryLockError::WouldBlock)));
        let other =
            held.with_file_name(held.file_name().unwrap().to_str().unwrap().replace("claimed0", "claimed1"));
        let other = File::create(other).unwrap();
        other.lock().unwrap();
        assert!(claim("claimed1").unwrap_err().contains("another switch has claimed1"));
        drop(other);
        claim("claimed1").unwrap();
        // Without a folder there is nothing to be locked.
        claim_in(Path::new("/proc/nowhere"), "claimed2").unwrap();
    }
}
