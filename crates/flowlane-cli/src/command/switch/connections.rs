//! `flowlane switch connections`.

use std::io;

use flowlane_switch::mgmt::rpc::{ConnectionEventReport, ConnectionReport, ConnectionsReport, EndsReport};
use serde_json::{Value, json};

use super::client::{Call, print_reply};
use crate::arguments::{RunningSwitch, SwitchVerb};
use crate::failure::Failure;
use crate::output::{self, count};

/// Lists, counts, follows or removes connections.
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
        follow: follows,
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
    if *follows {
        params["limit"] = json!(limit);
        return follow(running, params, *as_text);
    }
    params["limit"] = if *counts { json!(0) } else { json!(limit) };
    let reply = Call::of(running).make("connections", params)?;
    print_reply(running, &reply, |report: ConnectionsReport| match (*counts, *as_text) {
        (true, _) => counted(&report),
        (_, true) => report.connections.iter().map(|connection| connection.text.clone() + "\n").collect(),
        _ => listed(&report),
    })
}

/// Prints changes as they come.
fn follow(running: &RunningSwitch, params: Value, as_text: bool) -> Result<(), Failure> {
    let mut failed = None;
    let followed = Call::of(running).make_noticing("follow_connections", params, |method, params| {
        let line = match (method, running.json) {
            ("following", false) => return Ok(()),
            (_, true) => json!({ "method": method, "params": params }).to_string() + "\n",
            ("connection", false) => changed(&params, as_text)?,
            ("connections_lost", false) => {
                format!("{} events were lost\n", count(params["events"].as_u64().unwrap_or_default()))
            }
            (other, false) => return Err(io::Error::other(format!("a notification `{other}`"))),
        };
        output::print(&line).map_err(|failure| {
            failed = Some(failure);
            io::ErrorKind::WriteZero.into()
        })
    });
    // A reader that is gone ends the command as any other.
    match failed {
        Some(failure) => Err(failure),
        None => followed.map(drop),
    }
}

/// A line about a change.
fn changed(params: &Value, as_text: bool) -> io::Result<String> {
    let event: ConnectionEventReport = serde_json::from_value(params.clone())?;
    let ConnectionEventReport { event, reason, time_s, connection } = &event;
    let what = reason.as_ref().map_or_else(|| event.clone(), |reason| format!("{event} ({reason})"));
    let cells = cells(connection);
    let parts = match as_text {
        true => vec![connection.text.clone()],
        false => {
            let [zone, proto, ends, translated, state, mark, label] = cells;
            let named = |name: &str, value: String| {
                if value.is_empty() { value } else { format!("{name} {value}") }
            };
            let zone = if zone == "0" { String::new() } else { zone };
            let age = format!("after {:.1} s", connection.age_s);
            let age = if event == "new" { String::new() } else { age };
            let replies = named("replies", translated);
            vec![
                proto,
                ends,
                replies,
                state,
                named("zone", zone),
                named("mark", mark),
                named("label", label),
                age,
            ]
        }
    };
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Ok(format!("{time_s:.3} {what} {}\n", parts.join(" ")))
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

/// Zone, protocol, ends, those of translated replies, state, mark and label of a connection.
fn cells(connection: &ConnectionReport) -> [String; 7] {
    let ConnectionReport { original, reply, .. } = connection;
    let EndsReport { source, destination, source_port, destination_port } = original;
    let is_icmp = connection.proto.starts_with("icmp");
    let to_port = if is_icmp { *source_port } else { *destination_port };
    // Replies show where an end is translated.
    let reply_to_port = if is_icmp { reply.source_port } else { reply.destination_port };
    let is_translated = (reply.source, reply.destination) != (*destination, *source)
        || (reply.source_port, reply_to_port) != (to_port, *source_port);
    let between = |from: String, to: String| format!("{from} \u{2192} {to}");
    [
        connection.zone.to_string(),
        connection.proto.clone(),
        between(end(*source, *source_port), end(*destination, to_port)),
        match is_translated {
            true => between(end(reply.source, reply.source_port), end(reply.destination, reply_to_port)),
            false => String::new(),
        },
        connection.state.clone(),
        if connection.mark == 0 { String::new() } else { format!("{:#x}", connection.mark) },
        if connection.label == "0x0" { String::new() } else { connection.label.clone() },
    ]
}

fn listed(report: &ConnectionsReport) -> String {
    let row = |connection: &ConnectionReport| {
        let times = [connection.age_s, connection.expires_s].map(|seconds| format!("{seconds:.0} s"));
        cells(connection).into_iter().chain(times).collect()
    };
    let rows: Vec<Vec<String>> = report.connections.iter().map(row).collect();
    let header =
        ["zone", "proto", "connection", "translated replies", "state", "mark", "label", "age", "ends in"];
    output::table("", &header, &rows) + &summary(report)
}
