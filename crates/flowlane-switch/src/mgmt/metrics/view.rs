//! The counters for the page, as JSON: names and numbers of `switch show --json`, without its long lists.

use std::collections::BTreeMap;

use serde::Serialize;

use super::collect::Cycles;
use crate::mgmt::report::{
    CacheReport, Counted, DropReport, MacReport, MeterReport, MirrorReport, PortReport, TableReport,
    WorkerReport,
};
use crate::mgmt::rpc::{Brief, ConnectionCounts, RuleCounts};

/// Maximum number of ports, of meters and of mirrors on the page.
const SHOWN_MAX: usize = 256;

/// The parts of the page.
#[derive(Serialize)]
struct View<'a> {
    version: &'static str,
    seconds: f64,
    ports: &'a [PortReport],
    /// Ports that are not shown.
    ports_left: usize,
    /// With the rules that have most packets.
    tables: &'a [TableReport],
    rules: &'a BTreeMap<u8, RuleCounts>,
    drops: &'a DropReport,
    malformed: &'a [Counted],
    tunnels_refused: &'a [Counted],
    caches: &'a CacheReport,
    macs: &'a MacReport,
    meters: &'a [MeterReport],
    mirrors: &'a [MirrorReport],
    connections: &'a ConnectionCounts,
    workers: Vec<WorkerView>,
}

/// The load of a worker.
#[derive(Serialize)]
struct WorkerView {
    worker: usize,
    run_s: f64,
    busy_s: f64,
    packets: u64,
}

/// Returns the view as JSON, in one line.
pub(super) fn view(brief: &Brief, cycles: &Cycles) -> String {
    let Brief { report, workers, rules, connections } = brief;
    let (seconds, report) = (report.seconds, &report.report);
    let ports = &report.ports[..report.ports.len().min(SHOWN_MAX)];
    let worker = |one: &WorkerReport| WorkerView {
        worker: one.worker,
        run_s: cycles.seconds(one.cycles),
        busy_s: cycles.seconds(one.busy_cycles()),
        packets: one.queues.iter().map(|queue| queue.counters.rx_packets).sum(),
    };
    let view = View {
        version: env!("CARGO_PKG_VERSION"),
        seconds,
        ports,
        ports_left: report.ports.len() - ports.len(),
        tables: &report.tables,
        rules,
        drops: &report.drops,
        malformed: &report.malformed,
        tunnels_refused: &report.tunnels_refused,
        caches: &report.caches,
        macs: &report.macs,
        meters: &report.meters[..report.meters.len().min(SHOWN_MAX)],
        mirrors: &report.mirrors[..report.mirrors.len().min(SHOWN_MAX)],
        connections,
        workers: workers.iter().map(worker).collect(),
    };
    serde_json::to_string(&view).expect("numbers and texts are JSON")
}
