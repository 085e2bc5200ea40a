//! The counters of a switch, as data: the command line prints them as tables or as JSON.

mod group;
mod merge;
mod mirror;
mod stateful_stage;
mod worker;

use std::borrow::Cow;
use std::sync::Arc;

use flowlane::packet::Malformed;
use flowlane::tunnel::Refused;
use serde::{Deserialize, Serialize};

pub use self::group::{BucketReport, GroupReport};
pub use self::mirror::MirrorReport;
pub use self::stateful_stage::{
    AssetReport, FilterEntryReport, ForwardReport, StatefulStageReport, VerdictReport,
};
pub use self::worker::{QueueReport, WorkerReport};

use crate::datapath::{PortCounters, Stage, Worker};
use crate::ruleset::PortFlags;
use crate::stage::StatefulStage;
use crate::stage::route::{HopSpec, NextHop, RouteTable};
use crate::state::meter::{Meter, MeterCounters};
use crate::tunnel::{Tunnel, Tunnels};

/// All counters of a switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub ports: Vec<PortReport>,
    pub tables: Vec<TableReport>,
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    pub route_tables: Vec<RouteTableReport>,
    pub stateful_stages: Vec<StatefulStageReport>,
    pub tunnels: Vec<TunnelReport>,
    pub tunnels_refused: Vec<Counted>,
    #[serde(default)]
    pub mirrors: Vec<MirrorReport>,
    pub stages: Vec<StageReport>,
    pub caches: CacheReport,
    /// For offloaded tables only.
    pub waiting: Option<WaitingReport>,
    pub drops: DropReport,
    pub malformed: Vec<Counted>,
    pub macs: MacReport,
    pub meters: Vec<MeterReport>,
    pub counters: Vec<CounterReport>,
    pub controller_packets: u64,
}

/// A port's counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortReport {
    pub number: u32,
    pub name: String,
    pub open: String,
    /// Its VLAN settings in words; empty without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vlan: String,
    /// How frames are exchanged, in words; empty where there is one way only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// A controller has set it down, or its link is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_down: bool,
    #[serde(flatten)]
    pub counters: PortCounters,
}

/// A table's rules with their counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableReport {
    pub number: u8,
    pub name: String,
    pub engine: Cow<'static, str>,
    /// The problem of an offloaded table that the CPU answers for.
    pub trouble: Option<String>,
    pub table_bytes: usize,
    pub missed_packets: u64,
    pub rules: Vec<RuleReport>,
}

/// A rule's counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleReport {
    pub priority: u32,
    pub matches: String,
    pub actions: String,
    pub packets: u64,
    pub bytes: u64,
}

/// A table of routes: its next hops with their counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteTableReport {
    pub number: u8,
    pub name: String,
    /// The engines of IPv4 and IPv6; one name where they are equal.
    #[serde(default)]
    pub engines: String,
    pub routes: usize,
    pub table_bytes: usize,
    pub missed_packets: u64,
    pub next_hops: Vec<NextHopReport>,
}

/// A next hop's counters; those of a group are its members'.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NextHopReport {
    pub name: String,
    pub actions: String,
    pub packets: u64,
    pub bytes: u64,
}

/// A tunnel's counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TunnelReport {
    pub number: u32,
    pub name: String,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
}

/// A stage's cycles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageReport {
    pub stage: Cow<'static, str>,
    pub calls: u64,
    pub packets: u64,
    pub packets_per_call: f64,
    pub cycles_per_packet: f64,
}

/// The caches' counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReport {
    pub exact_lookups: u64,
    pub exact_hits: u64,
    pub exact_bytes: usize,
    pub signature_lookups: u64,
    pub signature_hits: u64,
    pub signature_bytes: usize,
    /// The lookups in use at the end: the caches in front of the megaflow cache, or only the tables.
    pub asked: Vec<Cow<'static, str>>,
    /// The mode at the end, low or high flow count; none where one setting serves both.
    pub mode: Option<Cow<'static, str>>,
    pub mode_switches: u64,
    pub cache_first_bursts: u64,
    pub table_first_bursts: u64,
    /// An estimate of the number of flows among the last few hundred packets.
    pub flows_seen: Option<f64>,
    pub megaflows: usize,
    pub megaflow_masks: usize,
    pub megaflow_lookups: u64,
    pub megaflow_hits: u64,
    pub megaflow_probes_per_lookup: f64,
    pub megaflows_inserted: u64,
    pub megaflows_evicted: u64,
    pub megaflows_refused: u64,
    pub megaflow_bytes: usize,
    /// Packets that were translated, and installed a megaflow if there was room.
    pub slow_path_packets: u64,
    /// Packets looked up in rule tables without a megaflow, counted once per table.
    pub table_lookups: u64,
}

/// Packets that waited for offloaded tables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitingReport {
    pub asked_packets: u64,
    pub held_packets: u64,
    pub outdated_packets: u64,
    pub batches_full: u64,
    pub batches_due: u64,
    pub batches_forced: u64,
    pub stalls: u64,
    pub packets_most: usize,
    pub longest_gathering_us: f64,
}

/// Dropped packets, by reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DropReport {
    pub by_rule: u64,
    pub malformed: u64,
    pub ttl_expired: u64,
    pub metered: u64,
    pub no_such_port: u64,
    pub reserved_address: u64,
    pub no_controller: u64,
    pub tunnel_refused: u64,
    pub tunnel_too_long: u64,
    pub no_tunnel: u64,
    pub stage_refused: u64,
    /// For the `normal` action, in a VLAN that the port does not carry.
    #[serde(default)]
    pub not_in_vlan: u64,
    /// For the `normal` action, where a bond lets nothing in or out.
    #[serde(default)]
    pub not_by_member: u64,
    /// For a port or a tunnel, but without an Ethernet header.
    #[serde(default)]
    pub no_ethernet: u64,
    /// Of a type that a header cannot be put around, or taken off.
    #[serde(default)]
    pub wrong_type: u64,
    #[serde(default)]
    pub call_depth: u64,
    /// Packets that went on, but whose rule could not be learned, or whose rule kept its timeouts.
    #[serde(default)]
    pub not_learned: u64,
}

impl StageReport {
    /// Returns its cycles, of which the report has the quotient.
    pub(crate) fn cycles(&self) -> u64 {
        (self.cycles_per_packet * self.packets as f64).round() as u64
    }
}

impl DropReport {
    /// Returns each reason in words, and its packets.
    pub fn reasons(&self) -> [(&'static str, u64); 17] {
        let Self {
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
            not_learned,
        } = *self;
        [
            ("sent nowhere by rule", by_rule),
            ("malformed", malformed),
            ("TTL expired", ttl_expired),
            ("over a meter's rate", metered),
            ("for a port that does not exist", no_such_port),
            ("for a reserved address", reserved_address),
            ("for the controller, not taken", no_controller),
            ("tunnel packet refused", tunnel_refused),
            ("too long for their tunnel", tunnel_too_long),
            ("not what their tunnel carries", no_tunnel),
            ("refused by a stage", stage_refused),
            ("in a VLAN that their port does not carry", not_in_vlan),
            ("not by this member of a bond", not_by_member),
            ("without an Ethernet header, for a port", no_ethernet),
            ("of the wrong type for encap or decap", wrong_type),
            ("too many calls of tables", call_depth),
            ("rule not learned", not_learned),
        ]
    }
}

/// A name and a number of packets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    pub reason: Cow<'static, str>,
    pub packets: u64,
}

impl Counted {
    fn new(reason: &'static str, packets: u64) -> Self {
        Self { reason: reason.into(), packets }
    }
}

/// The address table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MacReport {
    pub addresses: usize,
    pub learned: u64,
    pub moved: u64,
    pub aged: u64,
    pub replaced: u64,
    pub refused: u64,
    pub table_bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeterReport {
    pub number: u32,
    pub passed_packets: u64,
    pub passed_bytes: u64,
    /// With a higher drop precedence than they came with.
    #[serde(default)]
    pub remarked_packets: u64,
    #[serde(default)]
    pub remarked_bytes: u64,
    pub dropped_packets: u64,
    pub dropped_bytes: u64,
}

/// A `count` action's counter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CounterReport {
    pub number: u32,
    pub packets: u64,
    pub bytes: u64,
}

impl Report {
    /// Reports the current counters of `worker`.
    pub fn of(worker: &mut Worker) -> Self {
        worker.lookup.collect_counters();
        let tables = tables(worker, true);
        let stateful_stages = stateful_stage::reports(worker, true);
        Self { tables, stateful_stages, ..Self::brief(worker) }
    }

    /// Reports the counters of all workers of a switch.
    pub fn of_all(workers: &mut [Worker]) -> Option<Self> {
        // Shared counters are in the first report, and must be complete.
        workers.iter_mut().for_each(|worker| worker.lookup.collect_counters());
        Self::sum(workers.iter_mut().map(Self::of))
    }

    /// Adds the reports of several workers; `None` for no worker.
    pub fn sum(reports: impl IntoIterator<Item = Self>) -> Option<Self> {
        reports.into_iter().reduce(|mut sum, report| {
            sum.add(report);
            sum
        })
    }

    /// Reports the counters of `worker` without long lists (rules, entries of stateful stages), since packets wait for it.
    pub fn brief(worker: &mut Worker) -> Self {
        let malformed = malformed(worker);
        Self {
            ports: ports(worker),
            tables: tables(worker, false),
            groups: group::reports(worker),
            route_tables: route_tables(worker),
            stateful_stages: stateful_stage::reports(worker, false),
            tunnels: tunnels(worker),
            tunnels_refused: tunnels_refused(worker),
            mirrors: mirror::reports(worker),
            stages: stages(worker),
            caches: caches(worker),
            waiting: worker.lookup.pipeline.defers().then(|| waiting(worker)),
            drops: drops(worker, malformed.iter().map(|m| m.packets).sum()),
            malformed,
            macs: macs(worker),
            meters: meters(worker),
            counters: worker
                .egress
                .counts
                .iter()
                .map(|(&number, &(packets, bytes))| CounterReport { number, packets, bytes })
                .collect(),
            controller_packets: worker.egress.controller_packets,
        }
    }
}

fn malformed(worker: &Worker) -> Vec<Counted> {
    let reasons = Malformed::ALL.iter().zip(worker.egress.faults.found);
    let found = reasons.filter(|(_, packets)| *packets > 0);
    found.map(|(reason, packets)| Counted::new(reason.name(), packets)).collect()
}

fn ports(worker: &Worker) -> Vec<PortReport> {
    let slots = worker.egress.ports.in_order().into_iter();
    slots
        .map(|slot| PortReport {
            number: slot.number.0,
            name: slot.name.clone(),
            open: slot.spec.clone(),
            vlan: slot.vlan.as_ref().map_or_else(String::new, |vlan| vlan.to_string()),
            state: slot.port.state(),
            is_down: slot.flags.has_any(PortFlags::NOT_UP),
            counters: slot.counters,
        })
        .collect()
}

/// More tables than these are shown only if they have a name, a rule or a packet.
const TABLES_SHOWN: usize = 64;

fn tables(worker: &Worker, rules: bool) -> Vec<TableReport> {
    let rule = |entry: crate::datapath::RuleEntry<&flowlane::rule::Rule>| RuleReport {
        priority: entry.rule.priority.0,
        matches: entry.rule.matches.to_string(),
        actions: flowlane::rule::flow_syntax::print_actions(&entry.rule.actions),
        packets: entry.packets,
        bytes: entry.bytes,
    };
    // Of the tables that controllers may use, those that they have used.
    let tables = worker.lookup.pipeline.tables();
    let many = tables.count() > TABLES_SHOWN;
    let tables = worker.lookup.pipeline.tables();
    tables
        .filter(|(_, table)| {
            !many || !table.name.is_empty() || table.rules().next().is_some() || table.missed > 0
        })
        .map(|(number, table)| TableReport {
            number,
            name: table.name.to_owned(),
            engine: table.classifier().name().into(),
            trouble: table.deferred().and_then(|deferred| deferred.trouble()),
            table_bytes: table.table_bytes(),
            missed_packets: table.missed,
            rules: if rules { table.rules().map(|(_, entry)| rule(entry)).collect() } else { Vec::new() },
        })
        .collect()
}

fn route_tables(worker: &Worker) -> Vec<RouteTableReport> {
    let report = |(number, table): (u8, &RouteTable)| RouteTableReport {
        number,
        name: table.name.clone(),
        engines: table.engines(),
        routes: table.len(),
        table_bytes: table.table_bytes(),
        missed_packets: table.missed,
        next_hops: table.next_hops().iter().filter_map(next_hop).collect(),
    };
    worker.lookup.pipeline.route_tables().map(report).collect()
}

fn next_hop(hop: &NextHop) -> Option<NextHopReport> {
    let HopSpec::Actions(actions) = &hop.spec else { return None };
    Some(NextHopReport {
        name: hop.name.clone(),
        actions: flowlane::rule::flow_syntax::print_actions(actions),
        packets: hop.packets,
        bytes: hop.bytes,
    })
}

fn tunnels(worker: &Worker) -> Vec<TunnelReport> {
    let report = |tunnel: &Tunnel| TunnelReport {
        number: tunnel.spec.number,
        name: tunnel.spec.name.clone(),
        received_packets: tunnel.received_packets,
        received_bytes: tunnel.received_bytes,
        sent_packets: tunnel.sent_packets,
        sent_bytes: tunnel.sent_bytes,
    };
    worker.egress.tunnels.iter().flat_map(|t| t.tunnels().iter().map(report)).collect()
}

fn tunnels_refused(worker: &Worker) -> Vec<Counted> {
    let egress = &worker.egress;
    let of_others = |reason: Refused| {
        egress.tunnels.iter().flat_map(Tunnels::refused).find(|(other, _)| *other == reason)
    };
    let refused = egress
        .port_tunnels
        .refused()
        .map(|(reason, packets)| (reason, packets + of_others(reason).map_or(0, |(_, packets)| packets)));
    let counted = |(reason, packets): (Refused, u64)| Counted::new(reason.name(), packets);
    refused.filter(|(_, packets)| *packets > 0).map(counted).collect()
}

fn stages(worker: &Worker) -> Vec<StageReport> {
    let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    Stage::ALL
        .iter()
        .map(|&stage| {
            let c = worker.stages.get(stage);
            StageReport {
                stage: stage.name().into(),
                calls: c.calls,
                packets: c.packets,
                packets_per_call: ratio(c.packets, c.calls),
                cycles_per_packet: ratio(c.cycles, c.packets),
            }
        })
        .collect()
}

fn caches(worker: &Worker) -> CacheReport {
    let lookup = &worker.lookup;
    let counters = lookup.megaflows.counters();
    let asked = lookup.asked();
    let hybrid = lookup.hybrid_counters();
    CacheReport {
        exact_lookups: lookup.exact_lookups,
        exact_hits: lookup.exact_hits,
        exact_bytes: lookup.exact_bytes(),
        signature_lookups: lookup.signature_lookups,
        signature_hits: lookup.signature_hits,
        signature_bytes: lookup.signature_bytes(),
        asked: [
            ("exact-match", asked.exact()),
            ("signature-match", asked.signature()),
            ("tables", asked.tables()),
        ]
        .into_iter()
        .filter_map(|(name, is)| is.then_some(name.into()))
        .collect(),
        mode: lookup.mode().map(|mode| mode.name().into()),
        mode_switches: hybrid.switches,
        cache_first_bursts: hybrid.bursts[0],
        table_first_bursts: hybrid.bursts[1],
        flows_seen: hybrid.flows.is_finite().then_some(hybrid.flows),
        megaflows: lookup.megaflows.len(),
        megaflow_masks: lookup.megaflows.masks().count(),
        megaflow_lookups: counters.lookups,
        megaflow_hits: counters.hits,
        megaflow_probes_per_lookup: counters.probes as f64 / counters.lookups.max(1) as f64,
        megaflows_inserted: counters.inserted,
        megaflows_evicted: counters.evicted,
        megaflows_refused: counters.refused,
        megaflow_bytes: lookup.megaflows.table_bytes(),
        slow_path_packets: lookup.slow,
        table_lookups: worker.stages.get(Stage::Tables).packets,
    }
}

fn waiting(worker: &Worker) -> WaitingReport {
    let counters = worker.waiting_counters();
    WaitingReport {
        asked_packets: counters.asked,
        held_packets: counters.held,
        outdated_packets: counters.outdated,
        batches_full: counters.batches_full,
        batches_due: counters.batches_due,
        batches_forced: counters.batches_forced,
        stalls: counters.stalls,
        packets_most: counters.most,
        longest_gathering_us: counters.longest_gathering_ns as f64 / 1000.0,
    }
}

fn drops(worker: &Worker, malformed: u64) -> DropReport {
    let drops = worker.egress.drops;
    let dropped = worker.egress.faults.policy == crate::datapath::MalformedPolicy::Drop;
    DropReport {
        by_rule: drops.by_rule,
        malformed: if dropped { malformed } else { 0 },
        ttl_expired: drops.ttl_expired,
        metered: drops.metered,
        no_such_port: drops.no_port,
        reserved_address: drops.reserved_address,
        no_controller: drops.no_controller,
        tunnel_refused: drops.tunnel_refused,
        tunnel_too_long: drops.tunnel_too_long,
        no_tunnel: drops.no_tunnel,
        stage_refused: drops.stage_refused,
        not_in_vlan: drops.not_in_vlan,
        not_by_member: drops.not_by_member,
        no_ethernet: drops.no_ethernet,
        wrong_type: drops.wrong_type,
        call_depth: drops.call_depth,
        not_learned: worker.egress.learning.lost(),
    }
}

fn macs(worker: &Worker) -> MacReport {
    let macs = &worker.egress.macs;
    let counters = macs.counters();
    MacReport {
        addresses: macs.len(),
        learned: counters.learned,
        moved: counters.moved,
        aged: counters.aged,
        replaced: counters.replaced,
        refused: counters.refused,
        table_bytes: macs.table_bytes(),
    }
}

fn meters(worker: &Worker) -> Vec<MeterReport> {
    let meters = worker.egress.meters.iter();
    let report = |(number, meter): (u32, &Arc<Meter>)| {
        let MeterCounters { passed, remarked, dropped } = meter.counters();
        MeterReport {
            number,
            passed_packets: passed.0,
            passed_bytes: passed.1,
            remarked_packets: remarked.0,
            remarked_bytes: remarked.1,
            dropped_packets: dropped.0,
            dropped_bytes: dropped.1,
        }
    };
    meters.map(report).collect()
}
