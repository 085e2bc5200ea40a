//! The file with the process's number, as the programs of Open vSwitch look for a daemon: it is locked while the process runs.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};

/// The file, removed when this is dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

impl PidFile {
    /// Writes the number of this process, once the daemon whose place it takes has ended.
    ///
    /// # Errors
    /// Where another process has the file for as long as this, or it cannot be written.
    pub fn write_within(path: &Path, timeout: Duration) -> io::Result<Self> {
        let begun = Instant::now();
        loop {
            match Self::write(path) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < timeout => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                written => return written,
            }
        }
    }

    /// Writes the number of this process to a new file, even where another process has one of this path.
    ///
    /// # Errors
    /// Where another process is about to do the same, or the file cannot be written.
    pub fn overwrite(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Self::write(path),
        }
    }

    /// Writes the number of this process.
    ///
    /// # Errors
    /// Where another process has the file, or it cannot be written.
    pub fn write(path: &Path) -> io::Result<Self> {
        let mut file = loop {
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
                io::Error::new(ErrorKind::WouldBlock, "another daemon runs, and has locked it")
            })?;
            // A daemon that has just ended has removed the file, and its lock was on that one.
            if is_at(&file, path) {
                break file;
            }
        };
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { path: path.to_owned(), file })
    }
}

/// Returns whether a file is the one of this path.
fn is_at(file: &File, path: &Path) -> bool {
    let (own, there) = (file.metadata(), path.metadata());
    own.is_ok_and(|own| there.is_ok_and(|there| (own.dev(), own.ino()) == (there.dev(), there.ino())))
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have overwritten it. Else it is removed first: another process may lock it from then on.
        if is_at(&self.file, &self.path) {
            _ = std::fs::remove_file(&self.path);
        }
    }
}
