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
    _file: File,
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
            let is_there = path.metadata().is_ok_and(|there| {
                file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
            });
            if is_there {
                break file;
            }
        };
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { path: path.to_owned(), _file: file })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Removed first: another process may lock it from then on.
        _ = std::fs::remove_file(&self.path);
    }
}
