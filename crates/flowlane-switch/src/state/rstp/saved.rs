//! Ports of a tree that goes on in another process.

use std::collections::BTreeMap;

use flowlane::rule::action::PortNo;
use serde::{Deserialize, Serialize};

use super::bridge::Rstp;
use super::port::{Information, Port};
use super::{BridgeSettings, TICK_MS};

/// Hellos after which a neighbour forgets the last BPDU (IEEE 802.1D-2004 §17.21.23).
const HELLOS: u64 = 3;

/// A port, as it was when a process ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedPort(Port);

impl SavedPort {
    /// Returns the milliseconds for which neighbours certainly hold what the port has said: it has said it up to a hello, and a tick,
    /// before it was saved.
    fn lasts_ms(&self) -> u64 {
        let hello_ms = u64::from(self.0.designated_times.hello) * 1000;
        ((HELLOS - 1) * hello_ms).saturating_sub(TICK_MS)
    }

    /// Returns the port as it is after some seconds without a BPDU.
    fn after(self, seconds: u64) -> Port {
        let mut port = self.0;
        port.port_times = port.port_times.within_bounds();
        port.designated_times = port.designated_times.within_bounds();
        for _ in 0..seconds {
            port.tick();
        }
        // What neighbours have said meanwhile is lost; the next time is within a hello.
        if port.info_is == Information::Received {
            port.rcvd_info_while = port.rcvd_info_while.max(port.port_times.hello + 1);
        }
        // Neighbours hear of it at once.
        (port.hello_when, port.tx_count) = (0, 0);
        port
    }
}

impl Rstp {
    /// Returns the ports whose links are up, for another process.
    pub fn save(&self) -> impl Iterator<Item = (PortNo, SavedPort)> {
        let up = self.ports.iter().filter(|(_, port)| port.is_up);
        up.map(|(number, port)| (*number, SavedPort(port.clone())))
    }

    /// Makes a bridge that goes on with the ports of another process, which were saved some milliseconds ago; it begins without them where
    /// neighbours may have opened other links meanwhile. [`set_ports`](Self::set_ports) with all ports comes next, before time passes.
    pub fn resume(
        settings: BridgeSettings,
        saved: BTreeMap<PortNo, SavedPort>,
        passed_ms: u64,
        now_ms: u64,
    ) -> Self {
        let mut own = Self::new(settings, now_ms);
        if saved.values().all(|port| passed_ms < port.lasts_ms()) {
            let seconds = passed_ms.div_ceil(1000);
            own.ports = saved.into_iter().map(|(number, port)| (number, port.after(seconds))).collect();
        }
        own
    }
}
