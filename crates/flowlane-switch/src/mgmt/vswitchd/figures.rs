//! The figures of the daemon: memory, and events with their rates (`memory/show` and `coverage/show` of ovs-vswitchd(8)).

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use flowlane_ovsdb::Uuid;

use super::bridge::Bridge;
use crate::mgmt::report::Report;

/// The time between two samples.
const INTERVAL: Duration = Duration::from_secs(5);
/// The samples of an hour.
const SAMPLES_MAX: usize = 720;

/// Numbers of events by name.
type Events = BTreeMap<&'static str, u64>;

/// The events of the daemon since it began.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Events of the process.
    own: Events,
    /// Events of bridges that are gone.
    gone: Events,
    /// The events of each bridge, when they were last counted.
    of_bridges: BTreeMap<Uuid, Events>,
    /// Counts of the last hour, the latest first.
    samples: VecDeque<(Instant, Events)>,
}

/// The report of a bridge, without its rules.
pub(super) fn report(bridge: &Bridge) -> Option<Report> {
    Report::sum(bridge.served().call_workers(Report::brief).ok()?)
}

/// Packets of all bridges by their lookup: those that a cached path was found for, and those that went through the tables.
pub(super) fn lookups(reports: &[Report]) -> (u64, u64) {
    let found = |report: &Report| {
        let caches = &report.caches;
        caches.exact_hits + caches.signature_hits + caches.megaflow_hits
    };
    let missed = |report: &Report| report.caches.slow_path_packets + report.caches.table_lookups;
    (reports.iter().map(found).sum(), reports.iter().map(missed).sum())
}

fn add(to: &mut Events, other: &Events) {
    other.iter().for_each(|(name, count)| *to.entry(name).or_default() += count);
}

/// The events of a bridge, with the names that Open vSwitch has for them.
fn events(report: &Report) -> Events {
    let (caches, drops, macs) = (&report.caches, &report.drops, &report.macs);
    let ports = |of: fn(&crate::datapath::PortCounters) -> u64| -> u64 {
        report.ports.iter().map(|port| of(&port.counters)).sum()
    };
    Events::from([
        ("datapath_drop_invalid_port", drops.no_such_port),
        ("datapath_drop_meter", drops.metered),
        ("datapath_drop_rx_invalid_packet", drops.malformed),
        ("datapath_drop_tunnel_pop_error", drops.tunnel_refused),
        ("datapath_drop_tunnel_push_error", drops.tunnel_too_long + drops.no_tunnel),
        ("dpif_flow_del", caches.megaflows_evicted),
        ("dpif_flow_put", caches.megaflows_inserted),
        ("drop_action_forwarding_disabled", drops.reserved_address + drops.not_in_vlan + drops.not_by_member),
        ("drop_action_of_pipeline", drops.by_rule),
        ("drop_action_recursion_too_deep", drops.call_depth),
        ("drop_action_ttl_expired", drops.ttl_expired),
        ("mac_learning_evicted", macs.replaced),
        ("mac_learning_expired", macs.aged),
        ("mac_learning_learned", macs.learned),
        ("mac_learning_moved", macs.moved),
        ("mac_learning_refused", macs.refused),
        ("netdev_received", ports(|counters| counters.rx_packets)),
        ("netdev_rx_dropped", ports(|counters| counters.rx_dropped)),
        ("netdev_sent", ports(|counters| counters.tx_packets)),
        ("netdev_tx_dropped", ports(|counters| counters.tx_dropped)),
        ("ofproto_packet_in", report.controller_packets),
        ("xlate_actions", caches.slow_path_packets),
    ])
}

impl Figures {
    /// Counts an event of the process.
    pub(super) fn count(&mut self, event: &'static str) {
        *self.own.entry(event).or_default() += 1;
    }

    /// Takes a sample where it is time.
    pub(super) fn refresh(&mut self, bridges: &BTreeMap<Uuid, Bridge>) {
        if self.samples.front().is_some_and(|(at, _)| at.elapsed() < INTERVAL) {
            return;
        }
        let now = self.events(bridges);
        self.samples.truncate(SAMPLES_MAX - 1);
        self.samples.push_front((Instant::now(), now));
    }

    /// Counts all events.
    fn events(&mut self, bridges: &BTreeMap<Uuid, Bridge>) -> Events {
        let gone: Vec<Uuid> =
            self.of_bridges.keys().filter(|uuid| !bridges.contains_key(uuid)).copied().collect();
        for uuid in gone {
            let events = self.of_bridges.remove(&uuid).expect("it is there");
            add(&mut self.gone, &events);
        }
        let counted = bridges.iter().filter_map(|(uuid, bridge)| Some((*uuid, events(&report(bridge)?))));
        self.of_bridges.extend(counted);
        let mut all = self.gone.clone();
        add(&mut all, &self.own);
        self.of_bridges.values().for_each(|events| add(&mut all, events));
        all
    }

    /// Lists the events that have occurred with their rates, as `coverage/show` does.
    pub(super) fn coverage(&mut self, bridges: &BTreeMap<Uuid, Bridge>) -> String {
        let now = self.events(bridges);
        let (hit, never): (Vec<_>, Vec<_>) = now.iter().partition(|(_, count)| **count > 0);
        // It says which events there are, so that equal lists are known.
        let names = hit.iter().flat_map(|(name, _)| name.bytes());
        let hash =
            names.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let mut out = format!(
            "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n"
        );
        for (name, count) in hit {
            let [seconds, minute, hour] = [5, 60, 3600].map(|seconds| self.rate(name, *count, seconds));
            _ = writeln!(
                out,
                "{name:<24} {seconds:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {count}"
            );
        }
        _ = writeln!(out, "{} events never hit", never.len());
        out
    }

    /// Returns the number of an event's occurrences, if there is such an event.
    pub(super) fn counter(&mut self, name: &str, bridges: &BTreeMap<Uuid, Bridge>) -> Option<u64> {
        let known = self.events(bridges);
        known.get(name).copied()
    }

    /// The rate of an event over the last seconds, as far as there are samples.
    fn rate(&self, name: &str, now: u64, seconds: u64) -> f64 {
        let wanted = Duration::from_secs(seconds);
        let is_old = |(at, _): &&(Instant, Events)| at.elapsed() >= wanted;
        let since = self.samples.iter().find(is_old).or_else(|| self.samples.back());
        let before = since.and_then(|(_, events)| events.get(name)).copied().unwrap_or(0);
        now.saturating_sub(before) as f64 / seconds as f64
    }
}

/// Lists the numbers of things that take memory, as `memory/show` does.
pub(super) fn memory(bridges: &BTreeMap<Uuid, Bridge>) -> String {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for bridge in bridges.values() {
        let Some(report) = report(bridge) else { continue };
        let served = bridge.served();
        let rules = served.control().ruleset().tables().map(|(_, table)| table.len()).sum();
        let connections = served.tracked().map_or(0, |(connections, _)| connections.len());
        for (name, count) in [
            ("connections", connections),
            ("handlers", served.workers_count()),
            ("macs", report.macs.addresses),
            ("megaflows", report.caches.megaflows),
            ("ports", report.ports.len()),
            ("rules", rules),
        ] {
            *all.entry(name).or_default() += count;
        }
    }
    let all: Vec<String> =
        all.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name}:{count}")).collect();
    all.join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_samples() {
        let mut figures = Figures::default();
        let none = BTreeMap::new();
        assert_eq!(figures.counter("unixctl_received", &none), None);
        figures.count("unixctl_received");
        figures.refresh(&none);
        (0..10).for_each(|_| figures.count("unixctl_received"));
        let text = figures.coverage(&none);
        let row = "unixctl_received           2.0/sec     0.167/sec        0.0028/sec   total: 11\n";
        assert!(text.contains(row) && text.ends_with("0 events never hit\n"), "{text}");
        assert_eq!(figures.counter("unixctl_received", &none), Some(11));
        // Another sample is taken after a while only.
        figures.refresh(&none);
        assert_eq!(figures.samples.len(), 1);
    }
}
