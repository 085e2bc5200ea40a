//! What several workers have counted, together.

use std::collections::BTreeMap;

use super::{
    CacheReport, Counted, CounterReport, DropReport, FilterEntryReport, GroupReport, PortReport, Report,
    RouteTableReport, StageReport, StatefulStageReport, TunnelReport, VerdictReport, WaitingReport,
};

/// Adds fields of another to those of one.
macro_rules! add {
    ($to:expr, $other:expr; $($field:ident),+ $(,)?) => {
        {
            let to = &mut *$to;
            $(to.$field += $other.$field;)+
        }
    };
}

/// Does this for each of `to` and the one at its place in `others`.
fn each<T>(to: &mut [T], others: Vec<T>, merge: impl Fn(&mut T, T)) {
    to.iter_mut().zip(others).for_each(|(to, other)| merge(to, other));
}

/// Returns the mean of two means, weighted by their numbers of samples.
fn mean((a, of_a): (f64, u64), (b, of_b): (f64, u64)) -> f64 {
    (a * of_a as f64 + b * of_b as f64) / (of_a + of_b).max(1) as f64
}

impl Report {
    /// Adds what another worker of the same switch has counted. What workers have in common (rules, addresses, meters) is in both
    /// reports, and stays as it is.
    pub(super) fn add(&mut self, other: Self) {
        each(&mut self.ports, other.ports, |to, other: PortReport| to.counters += other.counters);
        add_groups(&mut self.groups, other.groups);
        each(&mut self.route_tables, other.route_tables, add_routes);
        each(&mut self.stateful_stages, other.stateful_stages, add_stateful_stage);
        each(&mut self.tunnels, other.tunnels, |to, other: TunnelReport| {
            add!(to, other; received_packets, received_bytes, sent_packets, sent_bytes);
        });
        add_counted(&mut self.tunnels_refused, other.tunnels_refused);
        each(&mut self.stages, other.stages, add_stage);
        add_caches(&mut self.caches, other.caches);
        if let (Some(to), Some(other)) = (&mut self.waiting, other.waiting) {
            add_waiting(to, &other);
        }
        add_drops(&mut self.drops, &other.drops);
        add_counted(&mut self.malformed, other.malformed);
        let mut counters: BTreeMap<u32, CounterReport> = BTreeMap::new();
        for counter in self.counters.drain(..).chain(other.counters) {
            let none = CounterReport { number: counter.number, packets: 0, bytes: 0 };
            add!(counters.entry(counter.number).or_insert(none), counter; packets, bytes);
        }
        self.counters = counters.into_values().collect();
        self.controller_packets += other.controller_packets;
    }
}

/// Workers may have counted before and after a change of groups: what both have is added.
fn add_groups(to: &mut [GroupReport], others: Vec<GroupReport>) {
    for other in others {
        let Some(to) = to.iter_mut().find(|to| to.number == other.number) else { continue };
        add!(to, other; packets, bytes);
        for other in other.buckets {
            let bucket = to.buckets.iter_mut().find(|to| to.number == other.number);
            bucket.into_iter().for_each(|to| add!(to, other; packets, bytes));
        }
    }
}

fn add_routes(to: &mut RouteTableReport, other: RouteTableReport) {
    to.missed_packets += other.missed_packets;
    each(&mut to.next_hops, other.next_hops, |to, other| add!(to, other; packets, bytes));
}

fn add_stateful_stage(to: &mut StatefulStageReport, other: StatefulStageReport) {
    let cycles = [(to.cycles_per_packet, to.packets), (other.cycles_per_packet, other.packets)];
    to.cycles_per_packet = mean(cycles[0], cycles[1]);
    add!(to, other; packets, entries, table_bytes);
    each(&mut to.verdicts, other.verdicts, |to, other: VerdictReport| add!(to, other; packets, bytes));
    add_counted(&mut to.events, other.events);
    add_entries(&mut to.filter_entries, other.filter_entries);
    to.assets.extend(other.assets);
    // Hosts before their services, as each worker has them.
    to.assets.sort_by_key(|asset| {
        let service = asset.service.as_deref().and_then(|service| service.split_once('/'));
        let service = service.map(|(protocol, port)| (protocol.to_owned(), port.parse::<u16>().ok()));
        (asset.vlan, asset.address, service, asset.mac.clone())
    });
    to.forwards.extend(other.forwards);
}

/// An entry may be with all workers.
fn add_entries(to: &mut Vec<FilterEntryReport>, others: Vec<FilterEntryReport>) {
    let mut by_key: BTreeMap<String, FilterEntryReport> = BTreeMap::new();
    for entry in to.drain(..).chain(others) {
        let none = FilterEntryReport { key: entry.key.clone(), packets: 0, bytes: 0 };
        add!(by_key.entry(entry.key.clone()).or_insert(none), entry; packets, bytes);
    }
    to.extend(by_key.into_values());
    to.sort_by(|a, b| b.packets.cmp(&a.packets).then_with(|| a.key.cmp(&b.key)));
}

/// Numbers by reason: those of one may lack reasons that the other has.
fn add_counted(to: &mut Vec<Counted>, others: Vec<Counted>) {
    for other in others {
        match to.iter_mut().find(|counted| counted.reason == other.reason) {
            Some(counted) => counted.packets += other.packets,
            None => to.push(other),
        }
    }
}

fn add_stage(to: &mut StageReport, other: StageReport) {
    let cycles = [(to.cycles_per_packet, to.packets), (other.cycles_per_packet, other.packets)];
    to.cycles_per_packet = mean(cycles[0], cycles[1]);
    add!(to, other; calls, packets);
    to.packets_per_call = to.packets as f64 / to.calls.max(1) as f64;
}

fn add_caches(to: &mut CacheReport, other: CacheReport) {
    let probes = [&*to, &other].map(|caches| (caches.megaflow_probes_per_lookup, caches.megaflow_lookups));
    to.megaflow_probes_per_lookup = mean(probes[0], probes[1]);
    add!(
        to, other;
        exact_lookups, exact_hits, exact_bytes, signature_lookups, signature_hits, signature_bytes, mode_switches,
        cache_first_bursts, table_first_bursts, megaflows, megaflow_masks, megaflow_lookups, megaflow_hits,
        megaflows_inserted, megaflows_evicted, megaflows_refused, megaflow_bytes, slow_path_packets, table_lookups,
    );
    let seen = to.flows_seen.into_iter().chain(other.flows_seen);
    to.flows_seen = seen.reduce(|a, b| a + b);
    for asked in other.asked {
        if !to.asked.contains(&asked) {
            to.asked.push(asked);
        }
    }
}

fn add_waiting(to: &mut WaitingReport, other: &WaitingReport) {
    add!(
        to, other;
        asked_packets, held_packets, outdated_packets, batches_full, batches_due, batches_forced, stalls,
        packets_most,
    );
    to.longest_gathering_us = to.longest_gathering_us.max(other.longest_gathering_us);
}

fn add_drops(to: &mut DropReport, other: &DropReport) {
    add!(
        to, other;
        by_rule, malformed, ttl_expired, metered, no_such_port, reserved_address, no_controller, tunnel_refused,
        tunnel_too_long, no_tunnel, stage_refused, not_in_vlan, not_by_member, no_ethernet, wrong_type, call_depth,
        not_learned,
    );
}
