//! The counters of interfaces, which the database gets every few seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flowlane_ovsdb::{Datum, Replica, Uuid};

use super::bridge::Bridge;
use crate::datapath::{PortCounters, Worker};

/// The least time between two readings, and the usual one.
const INTERVAL: Duration = Duration::from_secs(5);

/// The counters of interfaces, as they were read last.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    read: Option<Instant>,
    /// By the rows of interfaces.
    of: BTreeMap<Uuid, PortCounters>,
}

impl Statistics {
    /// Reads the counters again where it is time.
    pub(super) fn refresh(&mut self, replica: &Replica, bridges: &BTreeMap<Uuid, Bridge>) {
        if self.read.is_some_and(|read| read.elapsed() < interval(replica)) {
            return;
        }
        self.read = Some(Instant::now());
        self.of.clear();
        for bridge in bridges.values() {
            let counters = bridge.counters();
            let of = |(uuid, number): (Uuid, u32)| Some((uuid, *counters.get(&number)?));
            self.of.extend(bridge.numbers().filter_map(of));
        }
    }

    /// The value of an interface's column.
    pub(super) fn column(&self, interface: Uuid) -> Option<Datum> {
        let counters = self.of.get(&interface)?;
        let pairs = [
            ("rx_bytes", counters.rx_bytes),
            ("rx_dropped", counters.rx_dropped),
            ("rx_packets", counters.rx_packets),
            ("tx_bytes", counters.tx_bytes),
            ("tx_dropped", counters.tx_dropped),
            ("tx_packets", counters.tx_packets),
        ];
        Some(Datum::map(pairs.map(|(name, value)| (name, value.min(i64::MAX as u64) as i64))))
    }
}

/// `other_config:stats-update-interval`, in milliseconds, of at least five seconds.
fn interval(replica: &Replica) -> Duration {
    let root = replica.rows("Open_vSwitch").next();
    let asked = root.and_then(|(_, row)| row.get("other_config").get("stats-update-interval")?.parse().ok());
    asked.map_or(INTERVAL, Duration::from_millis).max(INTERVAL)
}

/// The counters of a worker's ports, by number.
pub(super) fn of_worker(worker: &mut Worker) -> BTreeMap<u32, PortCounters> {
    worker.egress.ports.iter().map(|slot| (slot.number.0, slot.counters)).collect()
}
