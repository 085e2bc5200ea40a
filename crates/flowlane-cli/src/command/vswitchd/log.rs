//! The log of the daemon: standard error, the system's log, and a file in the form that Open vSwitch's has.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use flowlane_switch::mgmt::vswitchd::{DaemonLog, LogDestination, LogLevel, LogLevels, MODULE};

use super::syslog::Syslog;
use crate::repeats::Repeats;
use crate::stderr::{self, Severity};

/// The log.
pub(super) struct Log {
    path: Option<PathBuf>,
    levels: LogLevels,
    syslog: Syslog,
    file: Mutex<Option<Numbered>>,
    repeats: Mutex<Repeats>,
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
    pub(super) fn open(path: Option<&Path>, syslog: Syslog) -> io::Result<Self> {
        let path = path.map(Path::to_owned);
        let log = Self {
            path,
            levels: LogLevels::default(),
            syslog,
            file: Mutex::default(),
            repeats: Mutex::default(),
        };
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
        if self.repeats().admit(text, Instant::now()) {
            self.write(LogLevel::Warning, text);
        }
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports how many messages were left out: to be called now and then.
    pub(super) fn report_left_out(&self) {
        let left_out = self.repeats().end_periods(Instant::now());
        left_out.iter().for_each(|text| self.write(LogLevel::Warning, text));
    }

    /// Notes something of the daemon's normal course.
    pub(super) fn info(&self, text: &str) {
        self.write(LogLevel::Info, text);
    }

    fn write(&self, level: LogLevel, text: &str) {
        let takes = |destination| self.levels.takes(destination, level);
        if takes(LogDestination::Console) {
            let severity = match level {
                LogLevel::Off | LogLevel::Emergency | LogLevel::Error => Severity::Error,
                LogLevel::Warning => Severity::Warning,
                LogLevel::Info | LogLevel::Debug => Severity::Info,
            };
            stderr::write(severity, &format!("flowlane: {text}\n"));
        }
        // One line each, whatever others have put into the text.
        let line = format!("{MODULE}|{}|{}", level.name(), text.escape_debug());
        if takes(LogDestination::Syslog) {
            self.syslog.write(level, &line);
        }
        if takes(LogDestination::File) {
            self.write_file(&line);
        }
    }

    fn write_file(&self, line: &str) {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Numbered { file, lines }) = &mut *held else { return };
        *lines += 1;
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        // A full disk must not end the daemon.
        _ = file.write_all(format!("{time}|{lines:05}|{line}\n").as_bytes());
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
