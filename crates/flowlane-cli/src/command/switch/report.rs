//! Formatting of switch reports.

use flowlane_switch::mgmt::report::{
    AssetReport, BucketReport, FilterEntryReport, ForwardReport, GroupReport, NextHopReport, Report,
    RouteTableReport, StatefulStageReport, TableReport, TunnelReport, WaitingReport,
};
use flowlane_switch::mgmt::rpc::ControllerReport;

use super::workers::stage_row;
use crate::output::{self, bytes, count};

/// Formats a report, with at most `rules_shown` rules per table, those with most packets first.
pub(super) fn text(report: &Report, seconds: f64, rules_shown: usize) -> String {
    let mut out = ports(report);
    for table in &report.tables {
        out += &rules(table, rules_shown);
    }
    out += &groups(report, rules_shown);
    for table in &report.route_tables {
        out += &routes(table, rules_shown);
    }
    for one in &report.stateful_stages {
        out += &stateful_stage(one, rules_shown);
    }
    if !report.tunnels.is_empty() {
        out += &tunnels(report, rules_shown);
    }
    out += &stages(report);
    out += &caches(report);
    out += &report.waiting.as_ref().map_or_else(String::new, waiting);
    out += &others(report);
    let packets: u64 = report.ports.iter().map(|p| p.counters.rx_packets).sum();
    out + &format!("{} packets in {seconds:.3} s\n", count(packets))
}

/// Formats the connections with controllers, if there may be any.
pub(super) fn controllers(controllers: &[ControllerReport]) -> String {
    if controllers.is_empty() {
        return String::new();
    }
    let row = |one: &ControllerReport| {
        let error = one.last_error.clone().unwrap_or_default();
        vec![one.address.clone(), count(one.connections as u64), count(one.failed), error]
    };
    let rows: Vec<Vec<String>> = controllers.iter().map(row).collect();
    output::table("", &["controllers", "connected", "failed", "latest failure"], &rows)
}

fn ports(report: &Report) -> String {
    let has_vlans = report.ports.iter().any(|port| !port.vlan.is_empty());
    let has_state = report.ports.iter().any(|port| !port.state.is_empty());
    let has_down = report.ports.iter().any(|port| port.is_down);
    let rows: Vec<Vec<String>> = report
        .ports
        .iter()
        .map(|p| {
            let c = &p.counters;
            let numbers = [c.rx_packets, c.rx_bytes, c.rx_dropped, c.tx_packets, c.tx_bytes, c.tx_dropped];
            let mut row = vec![format!("{} {}", p.number, p.name)];
            row.extend(numbers.map(count));
            if has_vlans {
                row.push(if p.vlan.is_empty() { "trunk".to_owned() } else { p.vlan.clone() });
            }
            if has_state {
                row.push(p.state.clone());
            }
            if has_down {
                row.push(if p.is_down { "down" } else { "up" }.to_owned());
            }
            row
        })
        .collect();
    let mut header = vec!["port", "received", "bytes", "lost", "sent", "bytes", "not sent"];
    if has_vlans {
        header.push("VLANs");
    }
    if has_state {
        header.push("frames by");
    }
    if has_down {
        header.push("link");
    }
    output::table("", &header, &rows)
}

fn groups(report: &Report, shown: usize) -> String {
    let group = |group: &GroupReport| {
        let row = |bucket: &BucketReport| {
            let weight = bucket.weight.map_or_else(String::new, |weight| format!(", weight {weight}"));
            let name = format!("bucket {}{weight} \u{2192} {}", bucket.number, bucket.actions);
            vec![name, count(bucket.packets), count(bucket.bytes)]
        };
        let mut rows = vec![vec!["all".to_owned(), count(group.packets), count(group.bytes)]];
        rows.extend(group.buckets.iter().take(shown).map(row));
        more(&mut rows, group.buckets.len(), shown, "buckets");
        output::table("", &[&format!("group {} {}", group.number, group.kind), "packets", "bytes"], &rows)
    };
    let mut groups: Vec<&GroupReport> = report.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.packets));
    let more = groups.len().saturating_sub(shown);
    let out: String = groups.into_iter().take(shown).map(group).collect();
    if more > 0 { out + &format!("… {} more groups\n", count(more as u64)) } else { out }
}

fn rules(table: &TableReport, shown: usize) -> String {
    let mut rules: Vec<_> = table.rules.iter().collect();
    rules.sort_by_key(|r| std::cmp::Reverse(r.packets));
    let mut rows: Vec<Vec<String>> = rules
        .iter()
        .take(shown)
        .map(|r| {
            let matches = if r.matches.is_empty() { "(any)" } else { &r.matches };
            vec![
                format!("{matches} \u{2192} {}", r.actions),
                r.priority.to_string(),
                count(r.packets),
                count(r.bytes),
            ]
        })
        .collect();
    if rules.len() > shown {
        let (packets, bytes) = rules[shown..].iter().fold((0, 0), |(p, b), r| (p + r.packets, b + r.bytes));
        let more = format!("… {} more rules", rules.len() - shown);
        rows.push(vec![more, String::new(), count(packets), count(bytes)]);
    }
    rows.push(vec!["no rule".to_owned(), String::new(), count(table.missed_packets), String::new()]);
    let memory = bytes(table.table_bytes as u64);
    let title = format!("table {} {} ({}, {memory})", table.number, table.name, table.engine);
    output::table("", &[&title, "priority", "packets", "bytes"], &rows)
}

fn routes(table: &RouteTableReport, shown: usize) -> String {
    let mut hops: Vec<_> = table.next_hops.iter().collect();
    hops.sort_by_key(|h| std::cmp::Reverse(h.packets));
    let row = |h: &&NextHopReport| {
        vec![format!("{} \u{2192} {}", h.name, h.actions), count(h.packets), count(h.bytes)]
    };
    let mut rows: Vec<Vec<String>> = hops.iter().take(shown).map(row).collect();
    if hops.len() > shown {
        let (packets, bytes) = hops[shown..].iter().fold((0, 0), |(p, b), h| (p + h.packets, b + h.bytes));
        rows.push(vec![format!("… {} more next hops", hops.len() - shown), count(packets), count(bytes)]);
    }
    rows.push(vec!["no route".to_owned(), count(table.missed_packets), String::new()]);
    let (routes, memory) = (count(table.routes as u64), bytes(table.table_bytes as u64));
    let title =
        format!("table {} {} ({routes} routes, {}, {memory})", table.number, table.name, table.engines);
    output::table("", &[&title, "packets", "bytes"], &rows)
}

fn stateful_stage(f: &StatefulStageReport, shown: usize) -> String {
    let mut rows: Vec<Vec<String>> = f
        .verdicts
        .iter()
        .map(|v| {
            let actions = if v.actions.is_empty() { "drop" } else { &v.actions };
            vec![format!("{} \u{2192} {actions}", v.verdict), count(v.packets), count(v.bytes)]
        })
        .collect();
    rows.extend(f.events.iter().map(|e| vec![e.reason.to_string(), count(e.packets), String::new()]));
    let cycles = format!("{:.1}", f.cycles_per_packet);
    rows.push(vec!["cycles/packet, without actions".to_owned(), cycles, String::new()]);
    let entries = count(f.entries as u64);
    let memory = bytes(f.table_bytes as u64);
    let title = format!("{} {} {} ({entries} entries, {memory})", f.kind, f.number, f.name);
    let mut out = output::table("", &[&title, "packets", "bytes"], &rows);
    if !f.filter_entries.is_empty() {
        let row = |e: &FilterEntryReport| vec![e.key.clone(), count(e.packets), count(e.bytes)];
        let mut rows: Vec<Vec<String>> = f.filter_entries.iter().take(shown).map(row).collect();
        more(&mut rows, f.filter_entries.len(), shown, "entries");
        out += &output::table("", &["entry", "packets", "bytes"], &rows);
    }
    if !f.forwards.is_empty() {
        let row = |w: &ForwardReport| {
            let way = format!("{} {} \u{2192} {}", w.protocol, w.outside, w.inside);
            vec![way, count(w.inbound_packets), count(w.outbound_packets)]
        };
        let mut rows: Vec<Vec<String>> = f.forwards.iter().take(shown).map(row).collect();
        more(&mut rows, f.forwards.len(), shown, "forwards");
        out += &output::table("", &["forward", "inbound", "outbound"], &rows);
    }
    if !f.assets.is_empty() {
        let mut rows: Vec<Vec<String>> = f.assets.iter().take(shown).map(asset).collect();
        more(&mut rows, f.assets.len(), shown, "assets");
        let header = ["address", "VLAN", "MAC address or service", "first seen", "last seen", "packets"];
        out += &output::table("", &header, &rows);
    }
    out
}

fn asset(a: &AssetReport) -> Vec<String> {
    vec![
        a.address.to_string(),
        a.vlan.map_or_else(String::new, |vlan| vlan.to_string()),
        a.mac.clone().or_else(|| a.service.clone()).unwrap_or_default(),
        format!("{:.1} s", a.first_seen_s),
        format!("{:.1} s", a.last_seen_s),
        count(a.packets),
    ]
}

/// Adds a row with the number of rows not shown.
fn more(rows: &mut Vec<Vec<String>>, len: usize, shown: usize, what: &str) {
    if let (true, Some(columns)) = (len > shown, rows.first().map(Vec::len)) {
        let mut row = vec![String::new(); columns];
        row[0] = format!("… {} more {what}", len - shown);
        rows.push(row);
    }
}

fn tunnels(report: &Report, shown: usize) -> String {
    let mut tunnels: Vec<_> = report.tunnels.iter().collect();
    tunnels.sort_by_key(|t| std::cmp::Reverse(t.received_packets + t.sent_packets));
    let row = |name: String, of: &[&TunnelReport]| {
        let sum = |f: fn(&TunnelReport) -> u64| count(of.iter().map(|t| f(t)).sum());
        vec![
            name,
            sum(|t| t.received_packets),
            sum(|t| t.received_bytes),
            sum(|t| t.sent_packets),
            sum(|t| t.sent_bytes),
        ]
    };
    let (first, rest) = tunnels.split_at(shown.min(tunnels.len()));
    let mut rows: Vec<Vec<String>> =
        first.iter().map(|t| row(format!("{} {}", t.number, t.name), &[t])).collect();
    if !rest.is_empty() {
        rows.push(row(format!("… {} more tunnels", rest.len()), rest));
    }
    output::table("", &["tunnel", "received", "bytes", "sent", "bytes"], &rows)
}

fn stages(report: &Report) -> String {
    let used = report.stages.iter().filter(|s| s.packets > 0);
    let mut rows: Vec<Vec<String>> = used.clone().map(stage_row).collect();
    let received = report.ports.iter().map(|p| p.counters.rx_packets).sum::<u64>().max(1) as f64;
    let all: f64 = used.map(|s| s.cycles_per_packet * s.packets as f64).sum();
    let blank = String::new;
    rows.push(vec![
        "all, per received packet".to_owned(),
        blank(),
        blank(),
        blank(),
        format!("{:.1}", all / received),
    ]);
    output::table("", &["stage", "calls", "packets", "packets/call", "cycles/packet"], &rows)
}

fn caches(report: &Report) -> String {
    let c = &report.caches;
    let rows = [
        vec![
            "exact match".to_owned(),
            count(c.exact_lookups),
            count(c.exact_hits),
            String::new(),
            String::new(),
            bytes(c.exact_bytes as u64),
        ],
        vec![
            "signature match".to_owned(),
            count(c.signature_lookups),
            count(c.signature_hits),
            String::new(),
            String::new(),
            bytes(c.signature_bytes as u64),
        ],
        vec![
            "megaflow".to_owned(),
            count(c.megaflow_lookups),
            count(c.megaflow_hits),
            format!("{} in {} masks", count(c.megaflows as u64), c.megaflow_masks),
            format!("{:.1}", c.megaflow_probes_per_lookup),
            bytes(c.megaflow_bytes as u64),
        ],
        vec![
            "tables".to_owned(),
            count(c.table_lookups),
            String::new(),
            String::new(),
            String::new(),
            bytes(report.tables.iter().map(|t| t.table_bytes as u64).sum()),
        ],
    ];
    output::table("", &["cache", "lookups", "hits", "flows", "probes/lookup", "memory"], &rows)
}

fn waiting(w: &WaitingReport) -> String {
    let row = |name: &str, n: String| vec![name.to_owned(), n];
    let rows = [
        row("packets sent to the device", count(w.asked_packets)),
        row("packets held behind their flow", count(w.held_packets)),
        row("packets looked up again after rule changes", count(w.outdated_packets)),
        row("full batches", count(w.batches_full)),
        row("batches sent at max delay", count(w.batches_due)),
        row("batches flushed early", count(w.batches_forced)),
        row("stalls with all batches in flight", count(w.stalls)),
        row("maximum packets waiting", count(w.packets_most as u64)),
        row("longest batch assembly", format!("{:.0} µs", w.longest_gathering_us)),
    ];
    output::table("", &["device", ""], &rows)
}

/// Formats rare events; only those that occurred are shown.
fn others(report: &Report) -> String {
    let mut rows = Vec::new();
    for table in &report.tables {
        if let Some(trouble) = &table.trouble {
            rows.push(vec![
                format!("table {}: fell back to the CPU: {trouble}", table.number),
                String::new(),
            ]);
        }
    }
    let mut add = |name: String, n: u64| {
        if n > 0 {
            rows.push(vec![name, count(n)]);
        }
    };
    for (reason, packets) in report.drops.reasons() {
        add(reason.to_owned(), packets);
    }
    for reason in &report.malformed {
        add(format!("malformed: {}", reason.reason), reason.packets);
    }
    for reason in &report.tunnels_refused {
        add(format!("tunnel packet refused: {}", reason.reason), reason.packets);
    }
    add("to the controller".to_owned(), report.controller_packets);
    add("changes between cache-first and table-first".to_owned(), report.caches.mode_switches);
    add("megaflows evicted".to_owned(), report.caches.megaflows_evicted);
    add("megaflows rejected, mask limit".to_owned(), report.caches.megaflows_refused);
    add("MAC addresses learned".to_owned(), report.macs.learned);
    add("MAC addresses moved".to_owned(), report.macs.moved);
    add("MAC addresses not learned, FDB full".to_owned(), report.macs.refused);
    for m in &report.mirrors {
        add(format!("mirror {}: copied", m.name), m.packets);
    }
    for m in &report.meters {
        add(format!("meter {}: passed", m.number), m.passed_packets);
        add(format!("meter {}: remarked", m.number), m.remarked_packets);
        add(format!("meter {}: dropped", m.number), m.dropped_packets);
    }
    for c in &report.counters {
        add(format!("counter {}", c.number), c.packets);
    }
    if rows.is_empty() { String::new() } else { output::table("", &["event", "packets"], &rows) }
}
