//! Exclusive interface locks, so that two switch processes never bind the same interface: both would forward each frame.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::PortError;

/// The interfaces of this process, each with the file that is locked for it until the process ends.
static LOCKED: Mutex<BTreeMap<String, File>> = Mutex::new(BTreeMap::new());

/// Returns the folder of a user's locks and control socket: `/run/flowlane` for root, `$XDG_RUNTIME_DIR/flowlane` for other users, or
/// a folder of their own under the temporary one.
pub(crate) fn runtime_folder() -> PathBuf {
    let user = user();
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    match (user, own) {
        (0, _) => PathBuf::from("/run/flowlane"),
        (_, Some(folder)) => Path::new(&folder).join("flowlane"),
        (user, None) => std::env::temp_dir().join(format!("flowlane-{user}")),
    }
}

/// Returns the user of this process.
fn user() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |of_process| of_process.uid())
}

/// Locks an interface until this process ends; where no file can be locked, there is no exclusion.
///
/// # Errors
/// Where another process has it.
pub(super) fn lock(interface: &str, spec: &dyn std::fmt::Display) -> Result<(), PortError> {
    lock_in(&runtime_folder(), interface)
        .map_err(|problem| PortError::Environment { spec: spec.to_string(), problem })
}

fn lock_in(folder: &Path, interface: &str) -> Result<(), String> {
    // Interface names are unique per network namespace.
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |data| data.ino());
    let name = format!("{namespace}-{interface}.lock");
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    if locked.contains_key(&name) {
        return Ok(());
    }
    _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // In a folder of another user, names may be links to anywhere.
    let is_own = folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user());
    let open = || File::options().create(true).append(true).open(folder.join(&name));
    let Some(file) = is_own.then(open).and_then(Result::ok) else { return Ok(()) };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(format!("another switch has {interface}; stop it, or both would forward each frame"))
        }
        _ => {
            locked.insert(name, file);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_belongs_to_one_switch() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |interface: &str| lock_in(folder.path(), interface);
        lock("eth0").unwrap();
        // The same process may open it again, for another worker.
        lock("eth0").unwrap();
        // As another process would.
        let held = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert!(matches!(File::open(&held).unwrap().try_lock(), Err(TryLockError::WouldBlock)));
        let other = held.with_file_name(held.file_name().unwrap().to_str().unwrap().replace("eth0", "eth1"));
        let other = File::create(other).unwrap();
        other.lock().unwrap();
        assert!(lock("eth1").unwrap_err().contains("another switch has eth1"));
        drop(other);
        lock("eth1").unwrap();
        // Without a folder there is no lock.
        lock_in(Path::new("/proc/nowhere"), "eth2").unwrap();
    }
}
