//! The log of the daemon: standard error, and a file in the form that Open vSwitch's has.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use flowlane_switch::mgmt::vswitchd::{DaemonLog, LogDestination, LogLevel, LogLevels, MODULE};

use crate::stderr::note;

/// The log.
pub(super) struct Log {
    path: Option<PathBuf>,
    levels: LogLevels,
    file: Mutex<Option<Numbered>>,
}

/// An open file, and the number of lines that were written by this process.
struct Numbered {
    file: File,
    lines: u64,
}

impl Log {
    /// Opens the log, with a file if there is to be one.
    ///
    /// # Errors
    /// Where the file cannot be opened.
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        // It is opened again when the working directory is another.
        let path = path.map(std::path::absolute).transpose()?;
        let log = Self { path, levels: LogLevels::default(), file: Mutex::default() };
        log.open_file()?;
        Ok(log)
    }

    /// Opens the file again, which may have been renamed. The former one stays where that fails.
    ///
    /// # Errors
    /// Where it cannot be opened.
    fn open_file(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = File::options().create(true).append(true).open(path)?;
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = held.as_ref().map_or(0, |held| held.lines);
        *held = Some(Numbered { file, lines });
        Ok(())
    }

    /// Says something that an operator should know.
    pub(super) fn warn(&self, text: &str) {
        if self.levels.takes(LogDestination::Console, LogLevel::Warning) {
            note!("flowlane: {text}");
        }
        self.write(LogLevel::Warning, text);
    }

    /// Notes something of the daemon's normal course.
    pub(super) fn info(&self, text: &str) {
        if self.levels.takes(LogDestination::Console, LogLevel::Info) {
            note!("flowlane: {text}");
        }
        self.write(LogLevel::Info, text);
    }

    fn write(&self, level: LogLevel, text: &str) {
        if !self.levels.takes(LogDestination::File, level) {
            return;
        }
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Numbered { file, lines }) = &mut *held else { return };
        *lines += 1;
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        // One line each, whatever others have put into the text.
        let text = text.escape_debug();
        // A full disk must not end the daemon.
        _ = file.write_all(format!("{time}|{lines:05}|{MODULE}|{}|{text}\n", level.name()).as_bytes());
    }
}

impl DaemonLog for Log {
    fn reopen(&self) -> Result<(), String> {
        if self.path.is_none() {
            return Err("Logging to file not configured".to_owned());
        }
        self.open_file().map_err(|error| format!("the log cannot be opened again: {error}"))
    }

    fn close(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn levels(&self) -> &LogLevels {
        &self.levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_and_a_renamed_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let log = Log::open(Some(&path)).unwrap();
        log.info("one");
        std::fs::rename(&path, &old).unwrap();
        log.info("two\nlines");
        log.reopen().unwrap();
        log.info("three");
        let lines = |path: &Path| -> Vec<String> {
            std::fs::read_to_string(path).unwrap().lines().map(|line| line[24..].to_owned()).collect()
        };
        assert_eq!(lines(&old), ["|00001|vswitchd|INFO|one", "|00002|vswitchd|INFO|two\\nlines"]);
        assert_eq!(lines(&path), ["|00003|vswitchd|INFO|three"]);
        assert!(Log::open(Some(folder.path())).is_err());
    }
}
