//! From the counters of a switch to samples.
//!
//! Labels have configured things only. A list that is longer than its bound has the rest under `(others)`, all together, and
//! `flowlane_metrics_aggregated` says of how many items.

use flowlane::packet::Malformed;
use flowlane::tunnel::Refused;

use super::exposition::Exposition;
use super::family::Metric;
use crate::datapath::PortCounters;
use crate::mgmt::report::{CacheReport, Counted, DropReport, MacReport, Report, WorkerReport};
use crate::mgmt::rpc::{Brief, ControllerReport};

/// Maximum number of ports, queues, tunnels, meters, groups, counters, mirrors or controllers with labels of their own.
pub(super) const ITEMS_MAX: usize = 512;
/// Maximum number of zones with labels of their own.
pub(super) const ZONES_MAX: usize = 256;
/// The label of the others.
const OTHERS: &str = "(others)";

/// Cycles of the time-stamp counter as time.
#[derive(Clone, Debug)]
pub(super) struct Cycles(quanta::Clock);

impl Default for Cycles {
    fn default() -> Self {
        Self(quanta::Clock::new())
    }
}

impl Cycles {
    pub(super) fn seconds(&self, cycles: u64) -> f64 {
        self.0.delta_as_nanos(0, cycles) as f64 * 1e-9
    }
}

/// Makes the samples of a switch that started at a Unix time.
pub(super) fn collect(brief: &Brief, started_s: f64, cycles: &Cycles) -> Exposition {
    let mut out = Exposition::default();
    let Brief { report, workers, .. } = brief;
    out.count(Metric::Build, &[env!("CARGO_PKG_VERSION")], 1);
    out.real(Metric::StartTime, &[], started_s);
    ports(&mut out, &report.report);
    drops(&mut out, &report.report);
    tables(&mut out, brief);
    caches(&mut out, &report.report.caches);
    fdb(&mut out, &report.report.macs);
    connections(&mut out, brief);
    numbered(&mut out, &report.report);
    tunnels(&mut out, &report.report);
    controllers(&mut out, &report.controllers);
    queues(&mut out, workers, cycles);
    workers.iter().for_each(|worker| of_worker(&mut out, worker, cycles));
    out
}

/// Does this for each item, with its label or that of the others.
fn each<T>(
    out: &mut Exposition,
    (list, items_max): (&str, usize),
    items: impl IntoIterator<Item = T>,
    mut add: impl FnMut(&mut Exposition, T, Option<&str>),
) {
    let mut others = 0;
    for (n, item) in items.into_iter().enumerate() {
        let label = (n >= items_max).then_some(OTHERS);
        others += u64::from(label.is_some());
        add(out, item, label);
    }
    out.count(Metric::Aggregated, &[list], others);
}

fn ports(out: &mut Exposition, report: &Report) {
    each(out, ("ports", ITEMS_MAX), &report.ports, |out, port, others| {
        let number = port.number.to_string();
        let labels = others.map_or([port.name.as_str(), &number], |others| [others, ""]);
        let PortCounters { rx_packets, rx_bytes, tx_packets, tx_bytes, tx_dropped, rx_dropped } =
            port.counters;
        for (metric, count) in [
            (Metric::PortUp, u64::from(!port.is_down)),
            (Metric::PortReceivePackets, rx_packets),
            (Metric::PortReceiveBytes, rx_bytes),
            (Metric::PortReceiveDropped, rx_dropped),
            (Metric::PortTransmitPackets, tx_packets),
            (Metric::PortTransmitBytes, tx_bytes),
            (Metric::PortTransmitDropped, tx_dropped),
        ] {
            out.count(metric, &labels, count);
        }
    });
}

fn drops(out: &mut Exposition, report: &Report) {
    for (reason, packets) in dropped(&report.drops) {
        out.count(Metric::Dropped, &[reason], packets);
    }
    out.count(Metric::NotLearned, &[], report.drops.not_learned);
    let all = |out: &mut Exposition, metric, names: &[&str], counted: &[Counted]| {
        names.iter().for_each(|name| out.count(metric, &[name], 0));
        counted.iter().for_each(|one| out.count(metric, &[&one.reason], one.packets));
    };
    all(out, Metric::Malformed, &Malformed::ALL.map(Malformed::name), &report.malformed);
    all(out, Metric::TunnelRefused, &Refused::ALL.map(Refused::name), &report.tunnels_refused);
    out.count(Metric::ControllerPackets, &[], report.controller_packets);
}

/// Returns the reasons of drops by their names in JSON. A packet whose rule is not learned is not dropped.
fn dropped(drops: &DropReport) -> [(&'static str, u64); 16] {
    let DropReport {
        by_rule,
        malformed,
        ttl_expired,
        metered,
        no_such_port,
        reserved_address,
        no_controller,
        tunnel_refused,
        tunnel_too_long,
        no_tunnel,
        stage_refused,
        not_in_vlan,
        not_by_member,
        no_ethernet,
        wrong_type,
        call_depth,
        not_learned: _,
    } = *drops;
    [
        ("by_rule", by_rule),
        ("malformed", malformed),
        ("ttl_expired", ttl_expired),
        ("metered", metered),
        ("no_such_port", no_such_port),
        ("reserved_address", reserved_address),
        ("no_controller", no_controller),
        ("tunnel_refused", tunnel_refused),
        ("tunnel_too_long", tunnel_too_long),
        ("no_tunnel", no_tunnel),
        ("stage_refused", stage_refused),
        ("not_in_vlan", not_in_vlan),
        ("not_by_member", not_by_member),
        ("no_ethernet", no_ethernet),
        ("wrong_type", wrong_type),
        ("call_depth", call_depth),
    ]
}

/// Adds tables of all kinds, of which there are at most 255.
fn tables(out: &mut Exposition, brief: &Brief) {
    let report = &brief.report.report;
    for table in &report.tables {
        let number = table.number.to_string();
        let labels = [number.as_str(), &table.name];
        let rules = brief.rules.get(&table.number).copied().unwrap_or_default();
        out.count(Metric::TableRules, &labels, rules.rules as u64);
        if let Some(packets) = rules.matched_packets {
            out.count(Metric::TableMatched, &labels, packets);
        }
        out.count(Metric::TableMissed, &labels, table.missed_packets);
        out.count(Metric::TableMemory, &labels, table.table_bytes as u64);
    }
    for table in &report.route_tables {
        let number = table.number.to_string();
        let labels = [number.as_str(), &table.name];
        out.count(Metric::RouteTableRoutes, &labels, table.routes as u64);
        out.count(Metric::RouteTableMissed, &labels, table.missed_packets);
        out.count(Metric::RouteTableMemory, &labels, table.table_bytes as u64);
    }
    for stage in &report.stateful_stages {
        let number = stage.number.to_string();
        let labels = [number.as_str(), &stage.name, &stage.kind];
        out.count(Metric::StageEntries, &labels, stage.entries as u64);
        out.count(Metric::StagePackets, &labels, stage.packets);
        out.count(Metric::StageMemory, &labels, stage.table_bytes as u64);
        for verdict in &stage.verdicts {
            out.count(Metric::StageVerdict, &[&number, &stage.name, &verdict.verdict], verdict.packets);
        }
    }
}

fn caches(out: &mut Exposition, caches: &CacheReport) {
    for (cache, lookups, hits, bytes) in [
        ("exact-match", caches.exact_lookups, caches.exact_hits, caches.exact_bytes),
        ("signature-match", caches.signature_lookups, caches.signature_hits, caches.signature_bytes),
        ("megaflow", caches.megaflow_lookups, caches.megaflow_hits, caches.megaflow_bytes),
    ] {
        out.count(Metric::CacheHits, &[cache], hits);
        out.count(Metric::CacheMisses, &[cache], lookups.saturating_sub(hits));
        out.count(Metric::CacheMemory, &[cache], bytes as u64);
    }
    for (metric, count) in [
        (Metric::Megaflows, caches.megaflows as u64),
        (Metric::MegaflowMasks, caches.megaflow_masks as u64),
        (Metric::MegaflowsInserted, caches.megaflows_inserted),
        (Metric::MegaflowsEvicted, caches.megaflows_evicted),
        (Metric::MegaflowsRefused, caches.megaflows_refused),
        (Metric::TranslatedPackets, caches.slow_path_packets),
        (Metric::TableLookups, caches.table_lookups),
    ] {
        out.count(metric, &[], count);
    }
    out.count(Metric::CacheBursts, &["cache-first"], caches.cache_first_bursts);
    out.count(Metric::CacheBursts, &["table-first"], caches.table_first_bursts);
}

fn fdb(out: &mut Exposition, macs: &MacReport) {
    let MacReport { addresses, learned, moved, aged, replaced, refused, table_bytes } = *macs;
    out.count(Metric::FdbAddresses, &[], addresses as u64);
    out.count(Metric::FdbMemory, &[], table_bytes as u64);
    for (event, count) in
        [("learned", learned), ("moved", moved), ("aged", aged), ("replaced", replaced), ("refused", refused)]
    {
        out.count(Metric::FdbEvents, &[event], count);
    }
}

fn connections(out: &mut Exposition, brief: &Brief) {
    let counts = &brief.connections;
    out.count(Metric::Connections, &[], counts.total);
    out.count(Metric::ConnectionsMax, &[], counts.limit);
    out.count(Metric::ConnectionsExpected, &[], counts.expected);
    each(out, ("zones", ZONES_MAX), &counts.by_zone, |out, (zone, connections), others| {
        let zone = zone.to_string();
        out.count(Metric::ZoneConnections, &[others.unwrap_or(&zone)], u64::from(*connections));
    });
}

/// Adds meters, groups, counters and mirrors.
fn numbered(out: &mut Exposition, report: &Report) {
    each(out, ("meters", ITEMS_MAX), &report.meters, |out, meter, others| {
        let number = meter.number.to_string();
        for (result, packets, bytes) in [
            ("passed", meter.passed_packets, meter.passed_bytes),
            ("remarked", meter.remarked_packets, meter.remarked_bytes),
            ("dropped", meter.dropped_packets, meter.dropped_bytes),
        ] {
            let labels = [others.unwrap_or(&number), result];
            out.count(Metric::MeterPackets, &labels, packets);
            out.count(Metric::MeterBytes, &labels, bytes);
        }
    });
    each(out, ("groups", ITEMS_MAX), &report.groups, |out, group, others| {
        let number = group.number.to_string();
        out.count(Metric::GroupPackets, &[others.unwrap_or(&number)], group.packets);
        out.count(Metric::GroupBytes, &[others.unwrap_or(&number)], group.bytes);
    });
    each(out, ("counters", ITEMS_MAX), &report.counters, |out, counter, others| {
        let number = counter.number.to_string();
        out.count(Metric::CountPackets, &[others.unwrap_or(&number)], counter.packets);
        out.count(Metric::CountBytes, &[others.unwrap_or(&number)], counter.bytes);
    });
    each(out, ("mirrors", ITEMS_MAX), &report.mirrors, |out, mirror, others| {
        let name = others.unwrap_or(&mirror.name);
        out.count(Metric::MirrorPackets, &[name], mirror.packets);
        out.count(Metric::MirrorBytes, &[name], mirror.bytes);
    });
}

fn tunnels(out: &mut Exposition, report: &Report) {
    each(out, ("tunnels", ITEMS_MAX), &report.tunnels, |out, tunnel, others| {
        let number = tunnel.number.to_string();
        let labels = others.map_or([number.as_str(), &tunnel.name], |others| [others, ""]);
        out.count(Metric::TunnelReceivePackets, &labels, tunnel.received_packets);
        out.count(Metric::TunnelReceiveBytes, &labels, tunnel.received_bytes);
        out.count(Metric::TunnelTransmitPackets, &labels, tunnel.sent_packets);
        out.count(Metric::TunnelTransmitBytes, &labels, tunnel.sent_bytes);
    });
}

fn controllers(out: &mut Exposition, controllers: &[ControllerReport]) {
    each(out, ("controllers", ITEMS_MAX), controllers, |out, controller, others| {
        let labels = [others.unwrap_or(&controller.address)];
        out.count(Metric::ControllerConnections, &labels, controller.connections as u64);
        out.count(Metric::ControllerFailures, &labels, controller.failed);
    });
}

fn queues(out: &mut Exposition, workers: &[WorkerReport], cycles: &Cycles) {
    let all = workers.iter().flat_map(|worker| worker.queues.iter().map(move |queue| (worker.worker, queue)));
    each(out, ("queues", ITEMS_MAX), all, |out, (worker, queue), others| {
        let [worker, number] = [worker.to_string(), queue.number.to_string()];
        let labels = others.map_or([worker.as_str(), &queue.name, &number], |others| [others, "", ""]);
        out.count(Metric::QueueReceivePackets, &labels, queue.counters.rx_packets);
        out.count(Metric::QueueReceiveBytes, &labels, queue.counters.rx_bytes);
        out.count(Metric::QueueReceiveDropped, &labels, queue.counters.rx_dropped);
        out.real(Metric::QueueBusy, &labels, cycles.seconds(queue.cycles));
    });
}

/// Adds the load of a worker, of which there are at most 64.
fn of_worker(out: &mut Exposition, worker: &WorkerReport, cycles: &Cycles) {
    let number = worker.worker.to_string();
    out.real(Metric::WorkerTime, &[&number], cycles.seconds(worker.cycles));
    out.count(Metric::WorkerHanded, &[&number], worker.handed_packets);
    out.real(Metric::WorkerBusy, &[&number], cycles.seconds(worker.busy_cycles()));
    for stage in &worker.stages {
        out.real(Metric::WorkerStageTime, &[&number, &stage.stage], cycles.seconds(stage.cycles()));
        out.count(Metric::WorkerStagePackets, &[&number, &stage.stage], stage.packets);
    }
    worker.latency_ns.iter().for_each(|time| out.time(*time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_drops_have_their_names_in_json() {
        let zeros = r#"{"by_rule":0,"malformed":0,"ttl_expired":0,"metered":0,"no_such_port":0,"reserved_address":0,
            "no_controller":0,"tunnel_refused":0,"tunnel_too_long":0,"no_tunnel":0,"stage_refused":0}"#;
        let drops: DropReport = serde_json::from_str(zeros).unwrap();
        let mut json = serde_json::to_value(drops).unwrap();
        // Each reason has a number of its own.
        (1..).zip(json.as_object_mut().unwrap().values_mut()).for_each(|(n, value)| *value = n.into());
        let drops: DropReport = serde_json::from_value(json.clone()).unwrap();
        for (reason, packets) in dropped(&drops) {
            assert_eq!(json[reason], packets, "{reason}");
        }
        assert_eq!(dropped(&drops).len() + 1, json.as_object().unwrap().len());
    }

    #[test]
    fn items_beyond_the_bound_are_added_up_and_counted() {
        let mut out = Exposition::default();
        each(&mut out, ("zones", 3), 0..10u64, |out, n, others| {
            out.count(Metric::ZoneConnections, &[others.unwrap_or(&n.to_string())], n);
        });
        let text = out.text(super::super::exposition::Format::OpenMetrics);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "flowlane_metrics_aggregated{list=\"zones\"} 7",
                "flowlane_zone_connections{zone=\"(others)\"} 42",
                "flowlane_zone_connections{zone=\"0\"} 0",
                "flowlane_zone_connections{zone=\"1\"} 1",
                "flowlane_zone_connections{zone=\"2\"} 2",
            ]
        );
    }
}
