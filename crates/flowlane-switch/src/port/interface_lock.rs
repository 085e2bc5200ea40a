//! Exclusive interface locks, so that two switch processes never bind the same interface: both would forward each frame.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::PortError;
use super::runtime_folder::{check_folder, runtime_folder};

/// The interfaces of this process, each with the file that is locked for it until the process ends.
static LOCKED: Mutex<BTreeMap<String, File>> = Mutex::new(BTreeMap::new());

/// Locks an interface until this process ends; where no file can be locked, there is no exclusion.
///
/// # Errors
/// Where another process has it.
pub(super) fn lock(interface: &str, spec: &dyn std::fmt::Display) -> Result<(), PortError> {
    lock_in(&runtime_folder(), interface)
        .map_err(|problem| PortError::Environment { spec: spec.to_string(), problem })
}

/// Returns whether this process has locked an interface.
pub(crate) fn is_locked(interface: &str) -> bool {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&lock_name(interface))
}

/// The lock of an interface that a port has: when this is dropped, another port, or another process, may have it.
#[derive(Debug)]
pub(crate) struct Held(String);

impl Held {
    pub(crate) fn of(interface: &str) -> Self {
        Self(interface.to_owned())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        LOCKED.lock().unwrap_or_else(PoisonError::into_inner).remove(&lock_name(&self.0));
    }
}

/// Lets another process lock interfaces of this one. Returns their lock files, by which [`lock_again`] takes them back.
pub(crate) fn unlock(interfaces: &[String]) -> Vec<String> {
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    let names = interfaces.iter().map(|interface| lock_name(interface));
    names.filter(|name| locked.remove(name).is_some()).collect()
}

/// Takes interfaces back that [`unlock`] has left to others.
///
/// # Errors
/// Where another process has one of them.
pub(crate) fn lock_again(names: &[String]) -> Result<(), String> {
    names.iter().try_for_each(|name| lock_file(&runtime_folder(), name, name))
}

fn lock_in(folder: &Path, interface: &str) -> Result<(), String> {
    lock_file(folder, &lock_name(interface), interface)
}

fn lock_name(interface: &str) -> String {
    // Interface names are unique per network namespace.
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |data| data.ino());
    format!("{namespace}-{interface}.lock")
}

fn lock_file(folder: &Path, name: &str, interface: &str) -> Result<(), String> {
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    if locked.contains_key(name) {
        return Ok(());
    }
    _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // In a folder that others may write, each of them could lock the file first.
    let Some(file) = check_folder(folder).ok().and_then(|()| open(&folder.join(name)).ok()) else {
        return Ok(());
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(format!("another switch has {interface}; stop it, or both would forward each frame"))
        }
        _ => {
            locked.insert(name.to_owned(), file);
            Ok(())
        }
    }
}

/// Opens a lock file, or makes it. It is not changed; opening a pipe or a device does not wait.
fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().create(true).append(true).mode(0o600).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_lock_file_is_left_alone_and_does_not_hold_the_switch_up() {
        use std::os::unix::net::UnixListener;

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let fifo = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(fifo.success());
        std::fs::write(path("target"), "precious").unwrap();
        std::os::unix::fs::symlink("target", path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/null", path("device")).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        let _bound = UnixListener::bind(path("socket")).unwrap();
        for name in ["pipe", "link", "device", "folder", "socket"] {
            let before = path(name).symlink_metadata().unwrap().file_type();
            assert!(open(&path(name)).is_err(), "{name}");
            assert_eq!(path(name).symlink_metadata().unwrap().file_type(), before, "{name}");
        }
        assert!(open(&path("target")).is_ok());
        assert_eq!(std::fs::read(path("target")).unwrap(), b"precious");
    }

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
