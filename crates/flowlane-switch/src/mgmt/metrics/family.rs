//! The families of metrics: names, units, labels and descriptions. `docs/metrics.md` has the table, which a test compares.

/// The type of a family, as OpenMetrics names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// The suffix of a sample's name, but for histograms.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// A family of metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) kind: Kind,
    /// Without the suffix of samples; ends with the unit, if it has one.
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

/// Declares the families: one variant of [`Metric`] each.
macro_rules! families {
    ($($metric:ident = $kind:ident $name:literal, $unit:literal, [$($label:literal),*], $help:literal;)+) => {
        /// A family of metrics, in the order in which they are written.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub(super) enum Metric {
            $($metric,)+
        }

        impl Metric {
            /// Every family.
            pub(super) const ALL: &[Self] = &[$(Self::$metric),+];

            pub(super) fn family(self) -> Family {
                match self {
                    $(Self::$metric => Family {
                        kind: Kind::$kind,
                        name: $name,
                        unit: $unit,
                        labels: &[$($label),*],
                        help: $help,
                    },)+
                }
            }
        }
    };
}

families! {
    Build = Info "flowlane_build", "", ["version"], "The version of Flowlane.";
    StartTime = Gauge "process_start_time_seconds", "seconds", [], "Unix time at which the switch started.";
    Aggregated = Gauge "flowlane_metrics_aggregated", "", ["list"], "Items of a long list that have the label `(others)` together.";

    PortUp = Gauge "flowlane_port_up", "", ["port", "number"], "1 for a port that is up, 0 for one that a controller or its link has set down.";
    PortReceivePackets = Counter "flowlane_port_receive_packets", "packets", ["port", "number"], "Packets received.";
    PortReceiveBytes = Counter "flowlane_port_receive_bytes", "bytes", ["port", "number"], "Bytes received.";
    PortReceiveDropped = Counter "flowlane_port_receive_dropped_packets", "packets", ["port", "number"], "Packets that came and that the system could not hand over, or that the port's settings refuse.";
    PortTransmitPackets = Counter "flowlane_port_transmit_packets", "packets", ["port", "number"], "Packets sent.";
    PortTransmitBytes = Counter "flowlane_port_transmit_bytes", "bytes", ["port", "number"], "Bytes sent.";
    PortTransmitDropped = Counter "flowlane_port_transmit_dropped_packets", "packets", ["port", "number"], "Packets that the port did not take, or that its settings refuse.";

    QueueReceivePackets = Counter "flowlane_queue_receive_packets", "packets", ["worker", "port", "number"], "Packets that a worker received from its queue of a port.";
    QueueReceiveBytes = Counter "flowlane_queue_receive_bytes", "bytes", ["worker", "port", "number"], "Bytes that a worker received from its queue of a port.";
    QueueReceiveDropped = Counter "flowlane_queue_receive_dropped_packets", "packets", ["worker", "port", "number"], "Packets lost in a worker's queue of a port.";
    QueueBusy = Counter "flowlane_queue_busy_seconds", "seconds", ["worker", "port", "number"], "Time in which a worker was busy with the packets of its queue of a port.";

    Dropped = Counter "flowlane_dropped_packets", "packets", ["reason"], "Packets dropped, by the names of reasons in `switch show --json`.";
    Malformed = Counter "flowlane_malformed_packets", "packets", ["reason"], "Malformed packets, whether dropped or not.";
    TunnelRefused = Counter "flowlane_tunnel_refused_packets", "packets", ["reason"], "Packets of tunnels that were refused.";
    NotLearned = Counter "flowlane_not_learned_packets", "packets", [], "Packets that went on, but whose rule could not be learned.";
    ControllerPackets = Counter "flowlane_controller_packets", "packets", [], "Packets sent to the controller.";

    TableRules = Gauge "flowlane_table_rules", "", ["table", "name"], "Rules of a table.";
    TableMatched = Counter "flowlane_table_matched_packets", "packets", ["table", "name"], "Packets that rules of a table matched. Where rules are deleted, some since the previous reading may be missing. Left out with more than 10,000 rules.";
    TableMissed = Counter "flowlane_table_missed_packets", "packets", ["table", "name"], "Packets that no rule of a table matched.";
    TableMemory = Gauge "flowlane_table_memory_bytes", "bytes", ["table", "name"], "Memory of a table.";
    RouteTableRoutes = Gauge "flowlane_route_table_routes", "", ["table", "name"], "Routes of a table.";
    RouteTableMissed = Counter "flowlane_route_table_missed_packets", "packets", ["table", "name"], "Packets without a route.";
    RouteTableMemory = Gauge "flowlane_route_table_memory_bytes", "bytes", ["table", "name"], "Memory of a table of routes.";
    StageEntries = Gauge "flowlane_stateful_stage_entries", "", ["table", "name", "kind"], "Entries of a stateful stage.";
    StagePackets = Counter "flowlane_stateful_stage_packets", "packets", ["table", "name", "kind"], "Packets through a stateful stage.";
    StageMemory = Gauge "flowlane_stateful_stage_memory_bytes", "bytes", ["table", "name", "kind"], "Memory of a stateful stage.";
    StageVerdict = Counter "flowlane_stateful_stage_verdict_packets", "packets", ["table", "name", "verdict"], "Packets by the verdict of a stateful stage.";

    CacheHits = Counter "flowlane_cache_hits", "", ["cache"], "Lookups that a cache answered: exact-match, signature-match, megaflow.";
    CacheMisses = Counter "flowlane_cache_misses", "", ["cache"], "Lookups that a cache did not answer.";
    CacheMemory = Gauge "flowlane_cache_memory_bytes", "bytes", ["cache"], "Memory of a cache.";
    Megaflows = Gauge "flowlane_megaflows", "", [], "Megaflows in the caches of all workers.";
    MegaflowMasks = Gauge "flowlane_megaflow_masks", "", [], "Masks of megaflows.";
    MegaflowsInserted = Counter "flowlane_megaflows_inserted", "", [], "Megaflows installed.";
    MegaflowsEvicted = Counter "flowlane_megaflows_evicted", "", [], "Megaflows that made room for others.";
    MegaflowsRefused = Counter "flowlane_megaflows_refused", "", [], "Megaflows not installed, for the limit of masks.";
    TranslatedPackets = Counter "flowlane_translated_packets", "packets", [], "Packets translated to a megaflow.";
    TableLookups = Counter "flowlane_table_lookup_packets", "packets", [], "Packets looked up in rule tables without a megaflow, once per table.";
    CacheBursts = Counter "flowlane_bursts", "", ["lookup"], "Bursts by the way of lookup: cache-first or table-first.";

    FdbAddresses = Gauge "flowlane_fdb_addresses", "", [], "Learned MAC addresses.";
    FdbEvents = Counter "flowlane_fdb_events", "", ["event"], "Changes of the FDB: learned, moved, aged, replaced, refused.";
    FdbMemory = Gauge "flowlane_fdb_memory_bytes", "bytes", [], "Memory of the FDB.";

    Connections = Gauge "flowlane_connections", "", [], "Tracked connections.";
    ConnectionsMax = Gauge "flowlane_connections_limit", "", [], "Maximum number of tracked connections.";
    ConnectionsExpected = Gauge "flowlane_connections_expected", "", [], "Connections that control connections have announced.";
    ZoneConnections = Gauge "flowlane_zone_connections", "", ["zone"], "Tracked connections of a zone.";

    MeterPackets = Counter "flowlane_meter_packets", "packets", ["meter", "result"], "Packets of a meter: passed, remarked or dropped.";
    MeterBytes = Counter "flowlane_meter_bytes", "bytes", ["meter", "result"], "Bytes of a meter: passed, remarked or dropped.";
    GroupPackets = Counter "flowlane_group_packets", "packets", ["group"], "Packets of a group.";
    GroupBytes = Counter "flowlane_group_bytes", "bytes", ["group"], "Bytes of a group.";
    CountPackets = Counter "flowlane_count_packets", "packets", ["counter"], "Packets of the action `count`.";
    CountBytes = Counter "flowlane_count_bytes", "bytes", ["counter"], "Bytes of the action `count`.";
    TunnelReceivePackets = Counter "flowlane_tunnel_receive_packets", "packets", ["tunnel", "name"], "Packets received through a tunnel.";
    TunnelReceiveBytes = Counter "flowlane_tunnel_receive_bytes", "bytes", ["tunnel", "name"], "Bytes received through a tunnel.";
    TunnelTransmitPackets = Counter "flowlane_tunnel_transmit_packets", "packets", ["tunnel", "name"], "Packets sent through a tunnel.";
    TunnelTransmitBytes = Counter "flowlane_tunnel_transmit_bytes", "bytes", ["tunnel", "name"], "Bytes sent through a tunnel.";
    MirrorPackets = Counter "flowlane_mirror_packets", "packets", ["mirror"], "Packets that a mirror copied.";
    MirrorBytes = Counter "flowlane_mirror_bytes", "bytes", ["mirror"], "Bytes of the packets that a mirror copied, as they were received.";
    ControllerConnections = Gauge "flowlane_controller_connections", "", ["controller"], "Open connections at an address of OpenFlow controllers.";
    ControllerFailures = Counter "flowlane_controller_failures", "", ["controller"], "Connections with controllers that failed.";

    WorkerTime = Counter "flowlane_worker_run_seconds", "seconds", ["worker"], "Time since a worker began.";
    WorkerBusy = Counter "flowlane_worker_busy_seconds", "seconds", ["worker"], "Time in which a worker processed packets.";
    WorkerHanded = Counter "flowlane_worker_handed_packets", "packets", ["worker"], "Packets that a worker handed off to others.";
    WorkerStageTime = Counter "flowlane_worker_stage_seconds", "seconds", ["worker", "stage"], "Time of a worker in a stage.";
    WorkerStagePackets = Counter "flowlane_worker_stage_packets", "packets", ["worker", "stage"], "Packets of a worker in a stage.";
    PacketLatency = Histogram "flowlane_packet_latency_seconds", "seconds", [], "Time of packets from receive to send, measured in one of eight rounds; only with the machine's clock.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_openmetrics() {
        let mut seen = BTreeSet::new();
        for metric in Metric::ALL {
            let Family { kind, name, unit, labels, help } = metric.family();
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name} ends with its unit");
            assert!(
                ["_total", "_info", "_count", "_sum", "_bucket", "_created"]
                    .iter()
                    .all(|s| !name.ends_with(s)),
                "{name}"
            );
            assert!(name.starts_with("flowlane_") || name == "process_start_time_seconds", "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}: {help}");
            assert!(labels.iter().collect::<BTreeSet<_>>().len() == labels.len(), "{name}");
            assert!(kind != Kind::Info || unit.is_empty(), "{name}");
            assert!(seen.insert(name), "{name} is there twice");
        }
    }

    /// The rows of `docs/metrics.md`, each from the name.
    fn documented() -> Vec<String> {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
        let rows =
            page.lines().filter(|line| line.starts_with("| `flowlane_") || line.starts_with("| `process_"));
        rows.map(str::to_owned).collect()
    }

    #[test]
    fn the_document_has_every_metric_and_no_other() {
        let row = |metric: &Metric| {
            let Family { kind, name, unit, labels, help } = metric.family();
            let unit = if unit.is_empty() { "" } else { unit };
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!(
                "| `{name}{}` | {} | {unit} | {} | {help} |",
                kind.suffix(),
                kind.name(),
                labels.join(", ")
            )
        };
        let rows: Vec<String> = Metric::ALL.iter().map(row).collect();
        assert!(documented() == rows, "the table of docs/metrics.md is to be:\n{}", rows.join("\n"));
    }

    /// Names that the dashboard asks for.
    fn asked(text: &str) -> BTreeSet<String> {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = text
            .split(|c| !is_name(c))
            .filter(|word| word.starts_with("flowlane_") || word.starts_with("process_"));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn the_dashboard_asks_only_for_metrics_that_exist() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana/flowlane.json");
        let dashboard: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let samples: BTreeSet<String> = Metric::ALL
            .iter()
            .flat_map(|metric| {
                let Family { kind, name, .. } = metric.family();
                let suffixes: &[&str] =
                    if kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
                suffixes.iter().map(move |suffix| format!("{name}{}{suffix}", kind.suffix()))
            })
            .collect();
        let mut targets = 0;
        let mut pending = vec![&dashboard];
        while let Some(value) = pending.pop() {
            match value {
                serde_json::Value::Object(object) => {
                    for key in ["expr", "query"] {
                        if let Some(text) = object.get(key).and_then(serde_json::Value::as_str) {
                            let names = asked(text);
                            targets += names.len();
                            let unknown: Vec<_> = names.difference(&samples).collect();
                            assert!(unknown.is_empty(), "{unknown:?} in {text}");
                        }
                    }
                    pending.extend(object.values());
                }
                serde_json::Value::Array(list) => pending.extend(list),
                _ => {}
            }
        }
        assert!(targets >= 20, "{targets} names");
        assert!(dashboard["templating"]["list"][0]["type"] == "datasource", "the data source is a variable");
    }
}
