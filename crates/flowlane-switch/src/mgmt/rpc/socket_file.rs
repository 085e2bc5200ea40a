//! The file of the control socket: made where nothing is, and removed only by the switch that made it.
//!
//! A switch that was killed leaves its socket. A socket file of this user that no program has open is therefore replaced. The
//! kernel knows that: a datagram socket is refused by such a file, and meets another error, or none, where a program has the socket
//! open, whatever its type.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::SocketError;
use crate::port::runtime_folder::{check_folder, user};

/// Connections that may wait until they are accepted.
const BACKLOG: i32 = 64;
/// Attempts to lock the folder, and the time between two of them.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The file of a socket that this process has bound. Dropping it removes the file, unless another is in its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// Keeps the inode's number from being given to another file after this one is removed.
    _held: Option<File>,
}

impl SocketFile {
    /// Binds a socket that only this user may connect to, and listens. Creates the folder if it is missing.
    ///
    /// # Errors
    /// Where something is at the path that no dead switch has left, others may write in the folder, or the system rejects it.
    pub(crate) fn listen(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let failed = |source: io::Error| SocketError::Io { path: path.to_owned(), source };
        let folder = folder_of(path);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        check_folder(folder).map_err(|problem| SocketError::Folder { path: path.to_owned(), problem })?;
        // Two switches that start at once must not remove each other's socket.
        let _turn = lock(folder);
        let socket = match bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let occupied = |what| SocketError::Occupied { path: path.to_owned(), what };
                match occupant(path).map_err(failed)? {
                    Some(what) => return Err(occupied(what)),
                    None => std::fs::remove_file(path).and_then(|()| bind(path)),
                }
            }
            other => other,
        }
        .map_err(failed)?;
        let metadata = path.symlink_metadata().map_err(failed)?;
        let (identity, _held) = ((metadata.dev(), metadata.ino()), hold(path));
        let file = Self { path: path.to_owned(), identity, _held };
        // No client can connect before the socket listens.
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG).map_err(|error| failed(error.into()))?;
        Ok((file, UnixListener::from(socket)))
    }

    /// Moves the file to another path in its folder, whatever is there.
    pub(super) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        let _turn = lock(folder_of(path));
        std::fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _turn = lock(folder_of(&self.path));
        let own = |file: std::fs::Metadata| (file.dev(), file.ino()) == self.identity;
        if self.path.symlink_metadata().is_ok_and(own) {
            // The switch ends; a socket that stays is found dead by the next one.
            _ = std::fs::remove_file(&self.path);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn bind(path: &Path) -> io::Result<OwnedFd> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is empty"));
    }
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Opens the file of a socket without connecting; `None` where the system cannot.
#[cfg(target_os = "linux")]
fn hold(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;

    File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn hold(_: &Path) -> Option<File> {
    None
}

/// Locks a folder among switches. Where that is not possible, for example because another user keeps it locked, switches that start
/// at the same moment are not kept apart.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            Err(std::fs::TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Describes what occupies a path; `None` for a socket of this user that no program has open.
fn occupant(path: &Path) -> io::Result<Option<&'static str>> {
    let metadata = path.symlink_metadata()?;
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_socket() => {
            // Connecting a datagram socket sends nothing.
            match UnixDatagram::unbound()?.connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let is_own = metadata.uid() == user();
                    return Ok((!is_own).then_some("a socket of another user"));
                }
                _ => "the socket of a program that runs, which may be another switch",
            }
        }
        () if kind.is_file() => "a file",
        () if kind.is_dir() => "a folder",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_fifo() => "a named pipe",
        () => "a device",
    };
    Ok(Some(what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Everything that a path can name, by who made it.
    fn occupants(folder: &Path) -> Vec<(PathBuf, Box<dyn std::any::Any>)> {
        let path = |name: &[u8]| folder.join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path(b"file"), "precious").unwrap();
        std::fs::write(path(b"not \xff UTF-8"), "precious").unwrap();
        std::fs::create_dir(path(b"folder")).unwrap();
        for (link, target) in [("link", "file"), ("dangling", "nowhere"), ("device", "/dev/null")] {
            std::os::unix::fs::symlink(target, path(link.as_bytes())).unwrap();
        }
        assert!(std::process::Command::new("mkfifo").arg(path(b"pipe")).status().unwrap().success());
        let listening = UnixListener::bind(path(b"listening")).unwrap();
        let datagram = UnixDatagram::bind(path(b"datagram")).unwrap();
        let bound = bind(&path(b"bound")).unwrap();
        std::os::unix::fs::symlink("listening", path(b"socket link")).unwrap();
        let mut all: Vec<(PathBuf, Box<dyn std::any::Any>)> = vec![
            (path(b"listening"), Box::new(listening)),
            (path(b"datagram"), Box::new(datagram)),
            (path(b"bound"), Box::new(bound)),
        ];
        let others: [&[u8]; 8] =
            [b"file", b"not \xff UTF-8", b"folder", b"link", b"dangling", b"device", b"pipe", b"socket link"];
        all.extend(others.into_iter().map(|name| (path(name), Box::new(()) as Box<dyn std::any::Any>)));
        all
    }

    fn identity(path: &Path) -> (u64, u64, u32) {
        let metadata = path.symlink_metadata().unwrap();
        (metadata.dev(), metadata.ino(), metadata.mode())
    }

    #[test]
    fn nothing_is_replaced_that_no_dead_switch_has_left() {
        let folder = tempfile::tempdir().unwrap();
        for (path, _open) in occupants(folder.path()) {
            let before = identity(&path);
            let refused = SocketFile::listen(&path).err();
            assert!(matches!(refused, Some(SocketError::Occupied { .. })), "{}: {refused:?}", path.display());
            assert_eq!(identity(&path), before, "{}", path.display());
        }
        assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"precious");
    }

    #[test]
    fn what_has_taken_the_place_of_the_socket_stays() {
        for nth in 0..11 {
            let folder = tempfile::tempdir().unwrap();
            let ours = folder.path().join("ours");
            let (file, _listening) = SocketFile::listen(&ours).unwrap();
            let (other, _open) = occupants(folder.path()).swap_remove(nth);
            std::fs::remove_file(&ours).unwrap();
            std::fs::rename(&other, &ours).unwrap();
            let before = identity(&ours);
            drop(file);
            assert_eq!(identity(&ours), before, "{}", other.display());
        }
        // The folder has gone, or the socket has.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/sub/ours");
        let (file, _listening) = SocketFile::listen(&path).unwrap();
        std::fs::remove_dir_all(folder.path().join("new")).unwrap();
        drop(file);
    }

    #[test]
    fn only_this_user_may_connect_and_a_dead_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let (file, listening) = SocketFile::listen(&path).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o600);
        assert!(matches!(SocketFile::listen(&path), Err(SocketError::Occupied { .. })));
        // As a killed switch leaves it.
        drop(listening);
        let (again, _listening) = SocketFile::listen(&path).unwrap();
        drop(file);
        assert!(path.exists(), "the first may not remove the socket of the second");
        drop(again);
        assert!(!path.exists());
    }

    #[test]
    fn paths_that_no_socket_can_have_are_errors() {
        for path in ["", "/proc/nowhere/socket", "/dev/null/socket", &format!("/tmp/{}", "x".repeat(200))] {
            let refused = SocketFile::listen(Path::new(path)).err();
            assert!(matches!(refused, Some(SocketError::Io { .. })), "{path}: {refused:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let refused = SocketFile::listen(&open.join("ours")).err();
        assert!(matches!(refused, Some(SocketError::Folder { .. })), "{refused:?}");
    }
}
