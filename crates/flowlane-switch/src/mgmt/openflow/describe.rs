//! Descriptions and statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flowlane::packet::Field;
use flowlane::rule::action::Reference;
use flowlane::rule::group::Selection;
use flowlane::rule::{Action, Command, FlowMod, Rule};
use flowlane_openflow::group::{
    Bucket, GROUP_ALL, GroupDescription, GroupFeatures, GroupStats, Selection as SentSelection,
    SelectionField,
};
use flowlane_openflow::message::{Experimenter, Features, Reply, Request};
use flowlane_openflow::stats::{
    ActionId, AggregateStats, Description, FieldId, FlowStats, FlowStatsRequest, PortStats, TableConfig,
    TableFeatures, TableProperty, TableStats, Vacancy,
};
use flowlane_openflow::{ErrorCode, Version};

use super::service::{PortState, Service, TableState};
use super::session::{TABLE_EVICTION, TABLE_VACANCY};
use super::{meters, ports, queues};
use crate::control::FlowStatistics;
use crate::control::{TableSettings, VacancyLimits};
use crate::datapath::GroupCount;

/// The most rules of a table, as reported to controllers.
const FLOWS_MAX: u32 = 1_000_000;

/// The order in which rules make room: by importance, then by the rest of their timeouts, and else (`OFPTMPEF14`).
const EVICTION_FLAGS: u32 = 0b111;

/// Nicira's requests for statistics of IPFIX, which the switch does not export.
const NICIRA: u32 = 0x2320;
const IPFIX_BRIDGE: u32 = 3;
const IPFIX_FLOW: u32 = 4;

/// The switch's features.
pub(super) fn features(service: &Service, version: Version) -> Features {
    // Statistics of flows, tables, ports and queues, and in OpenFlow 1.0 addresses of ARP, later statistics of groups.
    let is_10 = version == Version::OpenFlow10;
    Features {
        datapath_id: service.datapath_id(),
        buffers: 0,
        tables: service.tables().len().min(254) as u8,
        auxiliary_id: 0,
        capabilities: if is_10 { 0b1100_0111 } else { 0b0100_1111 },
        actions: if is_10 { 0xfff } else { 0 },
        ports: if is_10 {
            service.ports().iter().map(|port| ports::description(port, version)).collect()
        } else {
            Vec::new()
        },
    }
}

/// Answers a request for statistics or a description.
pub(super) fn answer(service: &Service, version: Version, request: Request) -> Result<Reply, ErrorCode> {
    Ok(match request {
        Request::Description => Reply::Description(Description {
            manufacturer: "Flowlane".to_owned(),
            hardware: "Flowlane".to_owned(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            serial: service.texts().serial.clone().unwrap_or_else(|| "None".to_owned()),
            datapath: service.texts().datapath.clone().unwrap_or_else(|| service.name().to_owned()),
        }),
        Request::Flow(request) => {
            let flows = selected(service, &request).into_iter().map(flow).collect();
            Reply::Flow { format: request.format, flows }
        }
        Request::Aggregate(request) => {
            let mut stats = AggregateStats::default();
            for flow in selected(service, &request) {
                stats.packets += flow.count.packets;
                stats.bytes += flow.count.bytes;
                stats.flows += 1;
            }
            Reply::Aggregate { format: request.format, stats }
        }
        Request::Table => Reply::Table(table_stats(service)),
        Request::Port(number) => {
            let begun = service.begun().elapsed();
            // A port that does not exist has no statistics, as in Open vSwitch.
            let ports = service.ports();
            let wanted = ports.iter().filter(|port| number.is_none_or(|number| number == port.number));
            Reply::Port(wanted.map(|port| port_stats(port, begun)).collect())
        }
        Request::PortDescription(number) => {
            let ports = service.ports();
            let wanted = ports.iter().filter(|port| number.is_none_or(|number| number == port.number));
            Reply::PortDescription(wanted.map(|port| ports::description(port, version)).collect())
        }
        Request::Queue { port, queue } => Reply::Queue(queues::statistics(service, port, queue)?),
        Request::QueueDescription { port, queue } => {
            Reply::QueueDescription(queues::configurations(service, port, queue)?)
        }
        Request::Group(_) | Request::GroupDescription(_) | Request::GroupFeatures => {
            groups(service, &request)
        }
        Request::Meter(number) => Reply::Meter(meters::statistics(service, number)?),
        Request::MeterConfig(number) => Reply::MeterConfig(meters::configurations(service, number)?),
        Request::MeterFeatures => Reply::MeterFeatures(meters::features()),
        Request::TableFeatures(changes) if !changes.is_empty() => {
            return Err(ErrorCode::TableFeaturesNotPermitted);
        }
        Request::TableFeatures(_) => {
            let tables = service.tables();
            let numbers: Vec<u8> = tables.iter().map(|table| table.number).collect();
            Reply::TableFeatures(tables.iter().map(|table| table_features(table, &numbers)).collect())
        }
        Request::TableDescription => {
            Reply::TableDescription(service.tables().iter().map(table_config).collect())
        }
        Request::FlowMonitor(_) => return Err(ErrorCode::RequestBadStat),
        Request::Experimenter(Experimenter {
            experimenter: NICIRA, kind: IPFIX_BRIDGE | IPFIX_FLOW, ..
        }) => {
            return Err(ErrorCode::NiciraNotConfigured);
        }
        Request::Experimenter(_) => return Err(ErrorCode::RequestBadVendor),
    })
}

fn table_config(table: &TableState) -> TableConfig {
    table_description(table.number, &table.settings, table.vacancy)
}

/// Describes the settings of a table whose free space is `vacancy` percent.
pub(super) fn table_description(table: u8, settings: &TableSettings, vacancy: u8) -> TableConfig {
    let limits = settings.vacancy.map(|events| events.limits);
    let mut config = if settings.evicts { TABLE_EVICTION } else { 0 };
    config |= if limits.is_some() { TABLE_VACANCY } else { 0 };
    let vacancy = limits.map(|VacancyLimits { down, up }| Vacancy { down, up, current: vacancy });
    TableConfig { table, config, eviction: Some(EVICTION_FLAGS), vacancy }
}

/// Answers a request about groups.
fn groups(service: &Service, request: &Request) -> Reply {
    match *request {
        Request::Group(id) => {
            let groups =
                service.groups().into_iter().filter(|(group, _)| id == GROUP_ALL || group.group.id == id);
            let group = |reference| match reference {
                Reference::Group(group) => Some(group),
                _ => None,
            };
            let (duration, references) = (service.begun().elapsed(), references(service, group));
            let stats = groups.map(|(group, count)| GroupStats {
                group: group.group.id,
                references: references.get(&group.group.id).copied().unwrap_or(0),
                packets: count.all.packets,
                bytes: count.all.bytes,
                duration_s: duration.as_secs() as u32,
                duration_ns: duration.subsec_nanos(),
                buckets: bucket_counts(&group.group.buckets, &count),
            });
            Reply::Group(stats.collect())
        }
        Request::GroupDescription(id) => {
            let groups =
                service.groups().into_iter().filter(|(group, _)| id == GROUP_ALL || group.group.id == id);
            Reply::GroupDescription(groups.map(|(group, _)| description(&group.group)).collect())
        }
        _ => Reply::GroupFeatures(GroupFeatures {
            // All kinds; weights, liveness, chains, and checks of chains.
            kinds: 0b1111,
            capabilities: 0b1111,
            groups_max: [1 << 16; 4],
            actions: [0xffff_ffff; 4],
        }),
    }
}

/// The rules that a request asks for.
fn selected(service: &Service, request: &FlowStatsRequest) -> Vec<FlowStatistics> {
    let rule = Rule::new(request.matches.clone(), Vec::new());
    let select = FlowMod {
        table: request.table,
        cookie: (request.cookie_mask != 0)
            .then_some((request.cookie & request.cookie_mask, request.cookie_mask)),
        out_port: request.out_port,
        out_group: request.out_group,
        ..FlowMod::new(Command::Delete, rule)
    };
    service.flows(|table, rule| select.selects(table, rule))
}

fn flow(statistics: FlowStatistics) -> FlowStats {
    FlowStats {
        duration_s: statistics.age.as_secs() as u32,
        duration_ns: statistics.age.subsec_nanos(),
        idle_timeout_s: statistics.idle_timeout_s,
        hard_timeout_s: statistics.hard_timeout_s,
        flags: statistics.flags.0,
        importance: statistics.importance,
        packets: statistics.count.packets,
        bytes: statistics.count.bytes,
        ..FlowStats::new(statistics.rule)
    }
}

fn table_stats(service: &Service) -> Vec<TableStats> {
    let mut matched = [0; 256];
    for flow in service.flows(|_, _| true) {
        matched[usize::from(flow.rule.table)] += flow.count.packets;
    }
    let stats = |table: &TableState| {
        let matched = matched[usize::from(table.number)];
        TableStats {
            table: table.number,
            name: table.name.clone(),
            wildcards: 0x3f_ffff,
            flows_max: FLOWS_MAX,
            flows: table.rules as u32,
            lookups: matched + table.missed,
            matched,
        }
    };
    service.tables().iter().map(stats).collect()
}

fn port_stats(port: &PortState, begun: Duration) -> PortStats {
    let counters = &port.counters;
    PortStats {
        port: port.number,
        rx_packets: counters.rx_packets,
        tx_packets: counters.tx_packets,
        rx_bytes: counters.rx_bytes,
        tx_bytes: counters.tx_bytes,
        rx_dropped: counters.rx_dropped,
        tx_dropped: counters.tx_dropped,
        rx_errors: 0,
        tx_errors: 0,
        rx_frame_errors: 0,
        rx_over_errors: 0,
        rx_crc_errors: 0,
        collisions: 0,
        duration_s: begun.as_secs() as u32,
        duration_ns: begun.subsec_nanos(),
    }
}

/// The numbers of rules that name groups or meters, by what `selects` takes of a reference.
pub(super) fn references(
    service: &Service,
    selects: impl Fn(Reference) -> Option<u32>,
) -> BTreeMap<u32, u32> {
    fn named(actions: &[Action], selects: &impl Fn(Reference) -> Option<u32>, found: &mut BTreeSet<u32>) {
        for action in actions {
            found.extend(action.references().into_iter().filter_map(selects));
            named(action.nested(), selects, found);
        }
    }
    let mut references = BTreeMap::new();
    for flow in service.flows(|_, _| true) {
        let mut found = BTreeSet::new();
        named(&flow.rule.actions, &selects, &mut found);
        found.into_iter().for_each(|number| *references.entry(number).or_default() += 1);
    }
    references
}

fn bucket_counts(buckets: &[Bucket], count: &GroupCount) -> Vec<(u64, u64)> {
    let of = |id: u32| count.buckets.get(&id).map_or((0, 0), |stats| (stats.packets, stats.bytes));
    buckets.iter().map(|bucket| of(bucket.id)).collect()
}

fn description(group: &flowlane::rule::group::Group) -> GroupDescription {
    let field = |part: &flowlane::packet::FieldRef| SelectionField { field: part.field(), mask: part.mask() };
    let selection =
        |method: &str, fields| SentSelection { method: method.to_owned(), parameter: group.basis, fields };
    GroupDescription {
        group: group.id,
        kind: group.kind,
        buckets: group.buckets.clone(),
        selection: match &group.selection {
            Selection::Default => None,
            Selection::DpHash => Some(selection("dp_hash", Vec::new())),
            Selection::Hash(fields) => Some(selection("hash", fields.iter().map(field).collect())),
        },
    }
}

/// Fields of headers that rules may match and set, and that OpenFlow has a number for.
const FIELDS: [Field; 11] = [
    Field::Metadata,
    Field::TunId,
    Field::EthDst,
    Field::EthSrc,
    Field::VlanVid,
    Field::VlanPcp,
    Field::IpDscp,
    Field::IpEcn,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::MplsLabel,
];

fn table_features(table: &TableState, all: &[u8]) -> TableFeatures {
    let ids = |numbers: &[u16]| {
        numbers.iter().map(|&kind| ActionId { kind, experimenter: None }).collect::<Vec<_>>()
    };
    let fields = FIELDS.map(|field| FieldId { field, has_mask: false }).to_vec();
    // Instructions: goto, metadata, write, apply, clear, meter. Actions: output, copies of TTL left out, up to NW_TTL.
    let (instructions, actions) =
        (ids(&[1, 2, 3, 4, 5, 6]), ids(&[0, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25]));
    let next = all.iter().copied().filter(|&number| number > table.number).collect();
    let properties = vec![
        TableProperty::Instructions { miss: false, ids: instructions },
        TableProperty::NextTables { miss: false, tables: next },
        TableProperty::Actions { write: true, miss: false, ids: actions.clone() },
        TableProperty::Actions { write: false, miss: false, ids: actions },
        TableProperty::Match(fields.clone()),
        TableProperty::Wildcards(fields.clone()),
        TableProperty::SetFields { write: true, miss: false, fields: fields.clone() },
        TableProperty::SetFields { write: false, miss: false, fields },
    ];
    TableFeatures {
        table: table.number,
        command: 0,
        features: 0,
        name: table.name.clone(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        capabilities: 0,
        flows_max: FLOWS_MAX,
        properties,
    }
}

#[cfg(test)]
mod tests {
    use flowlane_openflow::Codec;
    use flowlane_openflow::message::{Message, MultipartReply};

    use super::*;

    #[test]
    fn features_of_all_tables_can_be_written_and_read() {
        let numbers: Vec<u8> = (0..254).collect();
        let state = |&number: &u8| TableState {
            number,
            name: String::new(),
            rules: 0,
            missed: 0,
            settings: TableSettings::default(),
            vacancy: 100,
        };
        let features = numbers.iter().map(|number| table_features(&state(number), &numbers)).collect();
        let body = Reply::TableFeatures(features);
        let message = Message::MultipartReply(MultipartReply { more: false, body });
        for version in Version::ALL.into_iter().filter(|version| *version != Version::OpenFlow10) {
            let codec = Codec::new(version);
            let bytes = codec.encode(1, &message).unwrap_or_else(|error| panic!("{version:?}: {error}"));
            let (first, _) = flowlane_openflow::split(&bytes).unwrap().unwrap();
            codec.decode(first).unwrap_or_else(|error| panic!("{version:?}: {error}"));
        }
    }
}
