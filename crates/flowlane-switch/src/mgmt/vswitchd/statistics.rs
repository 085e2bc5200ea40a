//! The counters of interfaces, which the database gets every few seconds.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use flowlane_ovsdb::{Datum, Replica, Uuid};

use super::bridge::Bridge;
use crate::datapath::{PortCounters, Worker};
use crate::mgmt::links::{LinkCounters, count_links};

/// The least time between two readings, and the usual one.
const INTERVAL: Duration = Duration::from_secs(5);

/// The counters of an interface.
#[derive(Clone, Copy, Debug)]
struct Counters {
    of_port: PortCounters,
    /// Those that only the system knows, of an interface that it has.
    of_link: Option<LinkCounters>,
    /// Its port is one that drops nothing of its own, so that there are no such counters.
    is_virtual: bool,
}

/// The counters of interfaces, as they were read last.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    read: Option<Instant>,
    /// By the rows of interfaces.
    of: BTreeMap<Uuid, Counters>,
    /// The packets and bytes of mirrors, by their rows.
    of_mirrors: BTreeMap<Uuid, (u64, u64)>,
    /// The columns of ports in spanning trees, by their rows.
    of_trees: BTreeMap<Uuid, [(&'static str, Datum); 2]>,
}

impl Statistics {
    /// Reads the counters again where it is time, or an interface is new.
    pub(super) fn refresh(&mut self, replica: &Replica, bridges: &BTreeMap<Uuid, Bridge>) {
        let is_new = |uuid: &Uuid| !self.of.contains_key(uuid);
        let has_new = bridges.values().any(|bridge| bridge.numbers().any(|(uuid, _)| is_new(&uuid)));
        if !has_new && self.read.is_some_and(|read| read.elapsed() < interval(replica)) {
            return;
        }
        self.read = Some(Instant::now());
        self.of.clear();
        self.of_mirrors = bridges.values().flat_map(|bridge| bridge.mirrors.counts()).collect();
        self.of_trees = bridges.values().flat_map(|bridge| bridge.tree.counts()).collect();
        // Without the system's, interfaces have their own.
        let links: HashMap<String, LinkCounters> = count_links().unwrap_or_default();
        for bridge in bridges.values() {
            let counters = bridge.counters();
            for (number, spec) in bridge.opened() {
                let of_port = counters.get(&number).copied().unwrap_or_default();
                let of_link = links.get(&spec.name).filter(|_| spec.has_link()).copied();
                self.of.insert(spec.uuid, Counters { of_port, of_link, is_virtual: !spec.has_link() });
            }
        }
    }

    /// The value of an interface's column.
    pub(super) fn column(&self, interface: Uuid) -> Option<Datum> {
        let Counters { of_port, of_link, is_virtual } = self.of.get(&interface)?;
        let mut pairs = vec![
            ("rx_bytes", of_port.rx_bytes),
            ("rx_packets", of_port.rx_packets),
            ("tx_bytes", of_port.tx_bytes),
            ("tx_packets", of_port.tx_packets),
        ];
        if !is_virtual || of_port.rx_dropped + of_port.tx_dropped > 0 {
            pairs.extend([("rx_dropped", of_port.rx_dropped), ("tx_dropped", of_port.tx_dropped)]);
        }
        if let Some(link) = of_link {
            pairs.extend([
                ("collisions", link.collisions),
                ("rx_crc_err", link.rx_crc_errors),
                ("rx_errors", link.rx_errors),
                ("rx_frame_err", link.rx_frame_errors),
                ("rx_missed_errors", link.rx_missed_errors),
                ("rx_multicast_packets", link.rx_multicast),
                ("rx_over_err", link.rx_over_errors),
                ("tx_errors", link.tx_errors),
            ]);
        }
        Some(map_of(pairs))
    }

    /// The columns `statistics` and `rstp_statistics` of the row of a port: those of its spanning tree.
    pub(super) fn tree(&self, port: &Uuid) -> [(&'static str, Datum); 2] {
        let none = || ["statistics", "rstp_statistics"].map(|column| (column, Datum::map::<i64>([])));
        self.of_trees.get(port).cloned().unwrap_or_else(none)
    }

    /// The rows of mirrors, with the value of their column.
    pub(super) fn mirrors(&self) -> impl Iterator<Item = (Uuid, Datum)> {
        self.of_mirrors
            .iter()
            .map(|(uuid, (packets, bytes))| (*uuid, map_of([("tx_bytes", *bytes), ("tx_packets", *packets)])))
    }
}

/// Makes a value of the column of counters.
fn map_of<'a>(pairs: impl IntoIterator<Item = (&'a str, u64)>) -> Datum {
    Datum::map(pairs.into_iter().map(|(name, value)| (name, value.min(i64::MAX as u64) as i64)))
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
