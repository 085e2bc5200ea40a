//! Counters of stateful stages.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use flowlane::packet::parse::ip_proto;
use flowlane::rule::flow_syntax::{print_actions, print_value};
use serde::{Deserialize, Serialize};

use super::Counted;
use crate::datapath::Worker;
use crate::stage::assets::{Asset, Listed};
use crate::stage::nat::Refusal;
use crate::stage::{AnyStage, Assets, Filter, Nat, StageTable, Verdict};

/// Counters and entries of a stateful stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatefulStageReport {
    pub number: u8,
    pub name: String,
    pub kind: Cow<'static, str>,
    pub packets: u64,
    pub cycles_per_packet: f64,
    pub entries: usize,
    pub table_bytes: usize,
    pub verdicts: Vec<VerdictReport>,
    /// Events that have occurred, by name.
    pub events: Vec<Counted>,
    /// A filter's entries, where they are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter_entries: Vec<FilterEntryReport>,
    /// The assets that are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assets: Vec<AssetReport>,
    /// The packets of services that are reached from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwards: Vec<ForwardReport>,
}

/// The counters of a verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictReport {
    pub verdict: Cow<'static, str>,
    pub actions: String,
    pub packets: u64,
    pub bytes: u64,
}

/// An entry of a filter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilterEntryReport {
    pub key: String,
    pub packets: u64,
    pub bytes: u64,
}

/// A host or a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AssetReport {
    pub vlan: Option<u16>,
    pub address: IpAddr,
    /// A host's.
    pub mac: Option<String>,
    /// A service's: `tcp/443`.
    pub service: Option<String>,
    /// By the switch's clock: the frames' times, or seconds since it began.
    pub first_seen_s: f64,
    pub last_seen_s: f64,
    pub packets: u64,
}

/// A service that is reached from outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForwardReport {
    pub protocol: Cow<'static, str>,
    pub outside: SocketAddr,
    pub inside: SocketAddr,
    pub inbound_packets: u64,
    pub outbound_packets: u64,
}

/// `lists`: with the entries of each stage.
pub(super) fn reports(worker: &Worker, lists: bool) -> Vec<StatefulStageReport> {
    let tables = worker.lookup.pipeline.stages();
    tables.map(|(number, table)| report(number, table, lists)).collect()
}

fn report(number: u8, table: &StageTable, lists: bool) -> StatefulStageReport {
    let mut report = StatefulStageReport {
        number,
        name: table.name.clone(),
        kind: table.stage.kind().into(),
        packets: table.packets,
        cycles_per_packet: table.cycles as f64 / table.packets.max(1) as f64,
        entries: 0,
        table_bytes: table.table_bytes(),
        verdicts: table.verdicts().iter().map(verdict).collect(),
        events: Vec::new(),
        filter_entries: Vec::new(),
        assets: Vec::new(),
        forwards: Vec::new(),
    };
    match &table.stage {
        AnyStage::Filter(filter) => fill_filter(filter, &mut report, lists),
        AnyStage::Assets(assets) => fill_assets(assets, &mut report, lists),
        AnyStage::Nat(nat) => fill_nat(nat, &mut report, lists),
        // Route tables have a report of their own.
        AnyStage::Routes(_) => {}
    }
    report.events.retain(|event| event.packets > 0);
    report
}

fn verdict(verdict: &Verdict) -> VerdictReport {
    VerdictReport {
        verdict: verdict.name.into(),
        actions: print_actions(&verdict.actions),
        packets: verdict.packets,
        bytes: verdict.bytes,
    }
}

fn fill_filter(filter: &Filter, report: &mut StatefulStageReport, lists: bool) {
    let counters = filter.counters();
    // Where all workers have all, the first tells.
    report.entries = if filter.is_replica() { 0 } else { filter.len() };
    report.events = vec![
        Counted::new("without a field of the key", counters.without_key),
        Counted::new("entries learnt", counters.learnt),
        Counted::new("entries refused, set or share full", counters.refused),
        Counted::new("entries aged", filter.aged()),
    ];
    if !lists || !filter.counts() {
        return;
    }
    let mut entries: Vec<FilterEntryReport> = filter
        .list()
        .iter()
        .map(|entry| {
            let values = filter.fields().iter().map(|&field| print_value(field, entry.key.get(field)));
            let key = values.collect::<Vec<String>>().join(",");
            FilterEntryReport { key, packets: entry.packets, bytes: entry.bytes }
        })
        .collect();
    entries.sort_by(|a, b| b.packets.cmp(&a.packets).then_with(|| a.key.cmp(&b.key)));
    report.filter_entries = entries;
}

fn print_mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<String>>().join(":")
}

fn fill_assets(assets: &Assets, report: &mut StatefulStageReport, lists: bool) {
    let counters = assets.counters();
    report.entries = assets.len();
    report.events = vec![
        Counted::new("new hosts", counters.hosts),
        Counted::new("new services", counters.services),
        Counted::new("assets not noted, table or share full", counters.refused),
        Counted::new("assets aged", assets.aged()),
        Counted::new("packets that show none", counters.without),
    ];
    if !lists {
        return;
    }
    report.assets = assets.list().iter().map(asset).collect();
}

fn asset(listed: &Listed) -> AssetReport {
    let (mac, service) = match listed.asset {
        Asset::Host(mac) => (Some(print_mac(&mac)), None),
        Asset::Service(ip_proto::TCP, port) => (None, Some(format!("tcp/{port}"))),
        Asset::Service(_, port) => (None, Some(format!("udp/{port}"))),
    };
    AssetReport {
        vlan: listed.vlan,
        address: listed.address,
        mac,
        service,
        first_seen_s: listed.first_ns as f64 / 1e9,
        last_seen_s: listed.last_ns as f64 / 1e9,
        packets: listed.packets,
    }
}

fn fill_nat(nat: &Nat, report: &mut StatefulStageReport, lists: bool) {
    let counters = nat.counters();
    report.entries = nat.len();
    report.events = vec![
        Counted::new("sessions made", counters.created),
        Counted::new("sessions aged", counters.aged),
        Counted::new("ICMP errors translated", counters.errors),
        Counted::new("fragments translated", counters.fragments),
    ];
    let refused = Refusal::ALL.iter().zip(counters.refused);
    report.events.extend(refused.map(|(reason, packets)| Counted::new(reason.name(), packets)));
    if !lists {
        return;
    }
    report.forwards = nat
        .forwards()
        .into_iter()
        .map(|session| ForwardReport {
            protocol: if session.proto == ip_proto::TCP { "tcp" } else { "udp" }.into(),
            outside: session.outside,
            inside: session.inside,
            inbound_packets: session.packets[1],
            outbound_packets: session.packets[0],
        })
        .collect();
}
