//! The latest counters, which all clients share: however many ask, workers are interrupted a few times a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::collect::{Cycles, collect};
use super::exposition::{Exposition, Format};
use super::view::view;
use crate::mgmt::rpc::{Brief, ControlServer, RpcError};

/// Counters are read at most this often.
pub(super) const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);

/// The counters of a moment, and texts made from them.
pub(super) struct Snapshot {
    brief: Brief,
    cycles: Cycles,
    exposition: Exposition,
    texts: [OnceLock<Arc<str>>; Format::ALL.len()],
    view: OnceLock<Arc<str>>,
}

impl Snapshot {
    /// Returns the samples as text.
    pub(super) fn text(&self, format: Format) -> Arc<str> {
        self.texts[format as usize].get_or_init(|| self.exposition.text(format).into()).clone()
    }

    /// Returns the counters for the page, as JSON in one line.
    pub(super) fn view(&self) -> Arc<str> {
        self.view.get_or_init(|| view(&self.brief, &self.cycles).into()).clone()
    }
}

/// The latest snapshot of a switch.
pub(super) struct Snapshots {
    served: Arc<ControlServer>,
    cycles: Cycles,
    /// Unix time.
    started_s: f64,
    state: Mutex<State>,
}

/// The latest snapshot, and what the next one continues.
#[derive(Default)]
struct State {
    latest: Option<(Instant, Arc<Snapshot>)>,
    /// By table.
    matched: BTreeMap<u8, Matched>,
}

/// The packets that a table's rules have matched, which do not become fewer when rules are deleted: collectors would take that for a
/// restart, and count all others once more.
#[derive(Clone, Copy, Debug, Default)]
struct Matched {
    /// Of the rules that were there.
    of_rules: u64,
    /// Of rules that were deleted, as far as others have not matched meanwhile.
    of_deleted: u64,
}

impl Matched {
    /// Returns the packets with those of deleted rules, for the packets of the rules that are there.
    fn with_deleted(&mut self, of_rules: u64) -> u64 {
        self.of_deleted += self.of_rules.saturating_sub(of_rules);
        self.of_rules = of_rules;
        of_rules + self.of_deleted
    }
}

impl Snapshots {
    pub(super) fn new(served: Arc<ControlServer>) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started_s = now.saturating_sub(served.uptime()).as_secs_f64();
        Self { served, cycles: Cycles::default(), started_s, state: Mutex::default() }
    }

    pub(super) fn served(&self) -> &ControlServer {
        &self.served
    }

    /// Returns counters that are at most [`SNAPSHOT_INTERVAL`] old. One thread reads them, for which others wait.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(super) fn latest(&self) -> Result<Arc<Snapshot>, RpcError> {
        // A snapshot is stored whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((taken, snapshot)) = &state.latest
            && taken.elapsed() < SNAPSHOT_INTERVAL
        {
            return Ok(snapshot.clone());
        }
        let mut brief = self.served.brief()?;
        for (table, rules) in &mut brief.rules {
            let matched = state.matched.entry(*table).or_default();
            rules.matched_packets = rules.matched_packets.map(|packets| matched.with_deleted(packets));
        }
        let exposition = collect(&brief, self.started_s, &self.cycles);
        let (texts, view) = (Default::default(), OnceLock::new());
        let snapshot = Arc::new(Snapshot { brief, cycles: self.cycles.clone(), exposition, texts, view });
        state.latest = Some((Instant::now(), snapshot.clone()));
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_rules_do_not_lower_the_packets_of_a_table() {
        let mut matched = Matched::default();
        let seen = [10, 30, 5, 7, 7, 0, 1].map(|of_rules| matched.with_deleted(of_rules));
        assert_eq!(seen, [10, 30, 30, 32, 32, 32, 33]);
    }
}
