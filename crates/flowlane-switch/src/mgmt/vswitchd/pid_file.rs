//! The file with the process's number, as the programs of Open vSwitch look for a daemon: it is locked while the process runs.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};

/// The file, removed when this is dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl PidFile {
    /// Writes the number of this process.
    ///
    /// # Errors
    /// Where another process has the file, or it cannot be written.
    pub fn write(path: &Path) -> io::Result<Self> {
        let mut file = File::options().create(true).truncate(false).write(true).open(path)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other("another daemon runs, and has locked it"))?;
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
