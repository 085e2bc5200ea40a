//! `flowlane switch connections`.

use flowlane_switch::mgmt::rpc::{ConnectionReport, ConnectionsReport, EndsReport};
use serde_json::json;

use super::client::{Call, print_reply};
use crate::arguments::SwitchVerb;
use crate::failure::Failure;
use crate::output::{self, count};

/// Lists, counts or removes connections.
pub(super) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    let SwitchVerb::Connections {
        running,
        zone,
        proto,
        address,
        port,
        mark,
        limit,
        count: counts,
        text: as_text,
        flush,
    } = verb
    else {
        unreachable!("another command")
    };
    let mut params = json!({ "zone": zone, "proto": proto, "address": address, "port": port, "mark": mark });
    if *flush {
        let reply = Call::of(running).make("flush_connections", params)?;
        return print_reply(running, &reply, |removed: u64| {
            format!("{} connections removed\n", count(removed))
        });
    }
    params["limit"] = if *counts { json!(0) } else { json!(limit) };
    let reply = Call::of(running).make("connections", params)?;
    print_reply(running, &reply, |report: ConnectionsReport| match (*counts, *as_text) {
        (true, _) => counted(&report),
        (_, true) => report.connections.iter().map(|connection| connection.text.clone() + "\n").collect(),
        _ => listed(&report),
    })
}

fn counted(report: &ConnectionsReport) -> String {
    let zones = report.zones.iter().map(|(zone, number)| vec![zone.to_string(), count(*number)]);
    let states = report.states.iter().map(|(state, number)| vec![state.clone(), count(*number)]);
    output::table("", &["zone", "connections"], &zones.collect::<Vec<_>>())
        + &output::table("", &["state", "connections"], &states.collect::<Vec<_>>())
        + &summary(report)
}

fn summary(report: &ConnectionsReport) -> String {
    let ConnectionsReport { connections, wanted, total, expected, .. } = report;
    let listed = connections.len() as u64;
    let mut out = format!("{} of {} connections", count(*wanted), count(*total));
    if listed > 0 && listed < *wanted {
        out += &format!(", {} listed; --limit lists more", count(listed));
    }
    if *expected > 0 {
        out += &format!(", {} expected by control connections", count(*expected));
    }
    out + "\n"
}

/// An address and a port; of ICMP, the identifier.
fn end(address: std::net::IpAddr, port: u16) -> String {
    match address {
        std::net::IpAddr::V4(address) => format!("{address}:{port}"),
        std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

fn listed(report: &ConnectionsReport) -> String {
    let row = |connection: &ConnectionReport| {
        let ConnectionReport { original, reply, .. } = connection;
        let EndsReport { source, destination, source_port, destination_port } = original;
        let is_icmp = connection.proto.starts_with("icmp");
        let to_port = if is_icmp { *source_port } else { *destination_port };
        // Replies show where an end is translated.
        let reply_to_port = if is_icmp { reply.source_port } else { reply.destination_port };
        let is_translated = (reply.source, reply.destination) != (*destination, *source)
            || (reply.source_port, reply_to_port) != (to_port, *source_port);
        let translated = match is_translated {
            true => format!(
                "{} \u{2192} {}",
                end(reply.source, reply.source_port),
                end(reply.destination, reply_to_port)
            ),
            false => String::new(),
        };
        vec![
            connection.zone.to_string(),
            connection.proto.clone(),
            format!("{} \u{2192} {}", end(*source, *source_port), end(*destination, to_port)),
            translated,
            connection.state.clone(),
            if connection.mark == 0 { String::new() } else { format!("{:#x}", connection.mark) },
            if connection.label == "0x0" { String::new() } else { connection.label.clone() },
            format!("{:.0} s", connection.age_s),
            format!("{:.0} s", connection.expires_s),
        ]
    };
    let rows: Vec<Vec<String>> = report.connections.iter().map(row).collect();
    let header =
        ["zone", "proto", "connection", "translated replies", "state", "mark", "label", "age", "ends in"];
    output::table("", &header, &rows) + &summary(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_expected_connections_where_there_are_any() {
        let mut report = ConnectionsReport {
            connections: Vec::new(),
            wanted: 2,
            total: 7,
            expected: 0,
            zones: Default::default(),
            states: Default::default(),
        };
        assert_eq!(summary(&report), "2 of 7 connections\n");
        report.expected = 3;
        assert_eq!(summary(&report), "2 of 7 connections, 3 expected by control connections\n");
    }
}
