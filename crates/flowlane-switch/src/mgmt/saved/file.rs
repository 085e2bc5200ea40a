//! The file of saved state: written while the switch runs, and read at the next start.

use std::fs::File;
use std::io::{self, BufReader, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::blocks::{Reader, StateError, Writer};
use super::collect::{Workers, save_packets_state, save_rules};
use super::record::Header;
use super::restore::{Restored, WaitingAddresses, check_shape, read_header, restore};
use crate::control::Control;
use crate::datapath::Worker;
use crate::port::runtime_folder::check_folder;

/// The error of a file, or of the folder that it is in.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .file.display())]
pub struct FileError {
    pub file: PathBuf,
    pub error: StateError,
}

/// Where state is saved, and how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateFile {
    pub file: PathBuf,
    /// The least time between two copies.
    pub every: Duration,
}

/// A file whose content has been checked.
pub struct SavedFile {
    file: PathBuf,
    input: File,
    header: Header,
}

impl StateFile {
    fn failed(&self) -> impl Fn(StateError) -> FileError + use<> {
        let file = self.file.clone();
        move |error| FileError { file: file.clone(), error }
    }

    fn folder(&self) -> &Path {
        self.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Reads the file to its end, and checks it. Returns none if there is no file.
    ///
    /// # Errors
    /// Where others can write the file, or it is damaged.
    pub fn read(&self) -> Result<Option<SavedFile>, FileError> {
        let failed = self.failed();
        let folder = check_folder(self.folder()).map_err(|problem| io::Error::other(problem).into());
        folder.map_err(&failed)?;
        // A pipe would not end.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let input = match File::options().read(true).custom_flags(flags).open(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| failed(error.into()))?,
        };
        let header = check(&input).map_err(&failed)?;
        Ok(Some(SavedFile { file: self.file.clone(), input, header }))
    }

    /// Writes the state that packets have made, to another file, which then takes the place of this one: a reader meets a whole state
    /// at any time. The file is not forced to the disk, since it is for a crash of the switch; what a crash of the machine leaves is
    /// found by its checksums. Gives up when `is_over` says so.
    ///
    /// # Errors
    /// Where the file cannot be written, or the switch stops.
    pub fn write(&self, workers: &mut impl Workers, is_over: &dyn Fn() -> bool) -> Result<(), FileError> {
        self.write_state(workers, None, is_over)
    }

    /// Writes the rules and all that they name, too.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with_rules(&self, workers: &mut impl Workers, control: &Control) -> Result<(), FileError> {
        self.write_state(workers, Some(control), &|| false)
    }

    fn write_state(
        &self,
        workers: &mut impl Workers,
        control: Option<&Control>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), FileError> {
        let mut name = self.file.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = self.write_new(&new, workers, control, is_over);
        if written.is_err() {
            // Half a state is of no use.
            _ = std::fs::remove_file(&new);
        }
        written.map_err(|error| self.failed()(error.into()))
    }

    fn write_new(
        &self,
        new: &Path,
        workers: &mut impl Workers,
        control: Option<&Control>,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        check_folder(self.folder()).map_err(io::Error::other)?;
        // The seed of hashes must not be seen by others, even if an older file had another mode.
        match std::fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(new)?;
        let mut out = Writer::new(UntilOver { file, is_over })?;
        save_packets_state(workers, &mut out)?;
        control.map(|control| save_rules(control, &mut out)).transpose()?;
        out.finish()?;
        std::fs::rename(new, &self.file)
    }
}

/// A file that is written block by block, until its writing is given up.
struct UntilOver<'a> {
    file: File,
    is_over: &'a dyn Fn() -> bool,
}

impl Write for UntilOver<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (self.is_over)() {
            true => Err(io::Error::other("the switch has stopped")),
            false => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads a state to its end; returns its header.
fn check(input: &File) -> Result<Header, StateError> {
    if !input.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file").into());
    }
    let mut reader = Reader::new(BufReader::new(input))?;
    let header = read_header(&mut reader)?;
    while reader.next()?.is_some() {}
    Ok(header)
}

impl SavedFile {
    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Checks that the state is of a switch with the ports and stages of this one.
    ///
    /// # Errors
    /// Where it is not.
    pub fn check_shape(&self, worker: &Worker) -> Result<(), FileError> {
        check_shape(&self.header, worker).map_err(|error| FileError { file: self.file.clone(), error })
    }

    /// Restores the state into a switch that does not run yet, with its rules if there is `control`. Addresses of ports that are not there
    /// yet wait for them.
    ///
    /// # Errors
    /// Where the file has been changed since it was checked, is of another clock, or has rules though there is no `control`: the switch
    /// must not run then.
    pub fn restore(
        mut self,
        workers: &mut [Worker],
        control: Option<&mut Control>,
    ) -> Result<(Restored, WaitingAddresses), FileError> {
        let failed = |error| FileError { file: self.file.clone(), error };
        self.input.rewind().map_err(|error| failed(error.into()))?;
        let reader = Reader::new(BufReader::new(&self.input)).map_err(failed)?;
        let taken = restore(reader, workers, control).map_err(failed)?;
        Ok((taken.restored, taken.waiting))
    }
}
