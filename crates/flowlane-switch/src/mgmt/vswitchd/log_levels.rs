//! How much the log says, by destination, as `ovs-appctl vlog/set` and `vlog/list` have it (ovs-vswitchd(8)).

use std::sync::atomic::{AtomicU8, Ordering};

/// The part of the daemon that all messages are of.
pub const MODULE: &str = "vswitchd";

/// The weight of a message, and the least weight that a destination takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Of no message: a destination takes none.
    Off,
    /// The daemon cannot go on.
    Emergency,
    /// An operation has failed.
    Error,
    /// An operator should know.
    Warning,
    /// The daemon's normal course.
    Info,
    /// Everything.
    Debug,
}

impl LogLevel {
    const ALL: [Self; 6] = [Self::Off, Self::Emergency, Self::Error, Self::Warning, Self::Info, Self::Debug];

    /// Returns the name that Open vSwitch gives the level.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Emergency => "EMER",
            Self::Error => "ERR",
            Self::Warning => "WARN",
            Self::Info => "INFO",
            Self::Debug => "DBG",
        }
    }
}

/// Where messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogDestination {
    /// Standard error.
    Console,
    /// The system's log.
    Syslog,
    /// The log file.
    File,
}

const DESTINATIONS: [(&str, LogDestination); 3] = [
    ("console", LogDestination::Console),
    ("syslog", LogDestination::Syslog),
    ("file", LogDestination::File),
];

/// The levels of the destinations.
#[derive(Debug)]
pub struct LogLevels([AtomicU8; 3]);

impl Default for LogLevels {
    fn default() -> Self {
        let start = [LogLevel::Warning, LogLevel::Off, LogLevel::Info];
        Self(start.map(|level| AtomicU8::new(level as u8)))
    }
}

impl LogLevels {
    /// Returns whether a destination takes a message.
    pub fn takes(&self, destination: LogDestination, level: LogLevel) -> bool {
        level as u8 <= self.0[destination as usize].load(Ordering::Relaxed)
    }

    fn level(&self, destination: LogDestination) -> LogLevel {
        LogLevel::ALL[usize::from(self.0[destination as usize].load(Ordering::Relaxed))]
    }

    /// Lists the levels, as `vlog/list` does.
    pub(super) fn list(&self) -> String {
        let [console, syslog, file] = DESTINATIONS.map(|(_, destination)| self.level(destination).name());
        format!(
            "                 console    syslog    file\n                 -------    ------    ------\n\
             {MODULE:<16}  {console:>4}       {syslog:>4}       {file:>4}\n"
        )
    }

    /// Sets levels as a specification asks for: words for a module, a destination and a level in any order.
    ///
    /// # Errors
    /// A word that is none of these; nothing has changed.
    pub fn set(&self, specification: &str) -> Result<(), String> {
        let (mut wanted, mut level) = (None, LogLevel::Debug);
        let words = specification.split([':', ' ', ',']).filter(|word| !word.is_empty());
        for word in words {
            let is = |name: &str| name.eq_ignore_ascii_case(word);
            if let Some(known) = LogLevel::ALL.into_iter().find(|level| is(level.name())) {
                level = known;
            } else if let Some((_, known)) = DESTINATIONS.iter().find(|(name, _)| is(name)) {
                wanted = Some(*known);
            } else if !is("ANY") && !is(MODULE) {
                return Err(format!("no destination, level, or module \"{word}\""));
            }
        }
        let all = DESTINATIONS.iter().map(|(_, destination)| *destination);
        for destination in all.filter(|one| wanted.is_none_or(|wanted| wanted == *one)) {
            self.0[destination as usize].store(level as u8, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_set_as_open_vswitch_sets_them() {
        let levels = LogLevels::default();
        assert!(levels.takes(LogDestination::Console, LogLevel::Warning));
        assert!(!levels.takes(LogDestination::Console, LogLevel::Info));
        for specification in ["ANY:console:info", "vswitchd:FILE:err", "syslog"] {
            assert_eq!(levels.set(specification), Ok(()));
        }
        assert!(
            levels.list().ends_with("vswitchd          INFO        DBG        ERR\n"),
            "{}",
            levels.list()
        );
        let refused = levels.set("file:loud").unwrap_err();
        assert_eq!(refused, "no destination, level, or module \"loud\"");
        levels.set("off").unwrap();
        assert!(!levels.takes(LogDestination::File, LogLevel::Emergency));
        // A refused specification changes nothing.
        assert!(levels.set("file:info:nothing").is_err());
        assert!(!levels.takes(LogDestination::File, LogLevel::Emergency));
    }
}
