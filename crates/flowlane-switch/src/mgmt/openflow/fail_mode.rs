//! Fail modes: what the switch does while none of its controllers is connected.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Service;
use super::settings::ConnectionSettings;

/// The behaviour of the switch while none of the controllers that it connects to is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// Rules stay as they are.
    #[default]
    Secure,
    /// After 15 seconds all rules are removed, those of the configuration, too, and packets are forwarded by `normal` until a
    /// controller is connected. Without controllers to connect to, packets that no rule of table 0 matches are forwarded by `normal`.
    Standalone,
}

impl FailMode {
    /// The time without a controller after which the switch forwards by `normal`: three times the interval of probes, as in Open
    /// vSwitch.
    pub fn standalone_after(self) -> Option<Duration> {
        match self {
            Self::Secure => None,
            Self::Standalone => Some(3 * ConnectionSettings::PROBE_INTERVAL),
        }
    }
}

#[derive(Debug)]
struct State {
    connected: usize,
    /// When the last one disconnected, or the switch began.
    since: Instant,
    /// The switch forwards by `normal`.
    is_open: bool,
}

/// The controllers that the switch connects to.
#[derive(Debug)]
pub(super) struct Primaries(Mutex<State>);

impl Default for Primaries {
    fn default() -> Self {
        Self(Mutex::new(State { connected: 0, since: Instant::now(), is_open: false }))
    }
}

impl Primaries {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn connected(&self) {
        self.lock().connected += 1;
    }

    pub(super) fn disconnected(&self) {
        let mut state = self.lock();
        state.connected -= 1;
        state.since = Instant::now();
    }

    /// Lets the switch forward by `normal`, or by its controllers' rules again, where the time for it has come. A change that is
    /// refused is tried again by the next call.
    pub(super) fn watch(&self, service: &Service, after: Duration) {
        let mut state = self.lock();
        let is_alone = state.connected == 0 && state.since.elapsed() >= after;
        match (is_alone, state.is_open) {
            (true, false) => state.is_open = service.fail_open(),
            (false, true) if state.connected > 0 => state.is_open = !service.end_fail_open(),
            (true, true) | (false, _) => {}
        }
    }
}
