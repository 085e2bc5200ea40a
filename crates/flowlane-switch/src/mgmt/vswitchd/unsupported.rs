//! Unsupported settings of a database whose effect would be missed, for the log.

use std::fmt::Display;

use flowlane_ovsdb::{Replica, Row};

/// Columns of a bridge that name rows, and the effect.
const OF_BRIDGE: [(&str, &str); 4] = [
    ("netflow", "no flow is exported"),
    ("sflow", "no packet is sampled"),
    ("ipfix", "no packet is sampled"),
    ("auto_attach", "no VLAN is negotiated"),
];

/// Reads the rows of a bridge's controllers.
fn note_controllers(replica: &Replica, bridge: &Row, note: &mut dyn FnMut(&dyn Display, &str)) {
    for row in bridge.get("controller").uuids().filter_map(|uuid| replica.row("Controller", uuid)) {
        let name = row.get("target").text().unwrap_or_default().escape_debug();
        let mut note = |column: &str, effect| note(&format_args!("{column} of controller {name}"), effect);
        if row.get("connection_mode").text() == Some("in-band") {
            note("connection_mode=in-band", "rules must let the controller's own packets pass");
        }
        if row.get("local_ip").text().is_some() {
            note("local_ip", "the bridge's interface keeps its address");
        }
        if row.get("controller_rate_limit").integer().is_some() {
            note("controller_rate_limit", "packets are sent to the controller without a limit of their rate");
        }
        if row.get("controller_queue_size").integer().is_some() {
            note("controller_queue_size", "the queue of packets for the controller has its usual length");
        }
        if row.get("enable_async_messages").boolean() == Some(false) {
            note(
                "enable_async_messages",
                "the controller is sent messages of all kinds until it refuses them",
            );
        }
        if row.get("other_config").get("dscp").is_some() {
            note("other_config:dscp", "packets of the connection have DSCP 0");
        }
    }
}

/// Returns the unsupported settings of a bridge, its ports and their interfaces.
pub(super) fn read(replica: &Replica, bridge: &Row) -> Vec<String> {
    let mut out = Vec::new();
    let mut note = |column: &dyn Display, effect: &str| {
        out.push(format!("column {column} is set, which is not supported: {effect}"));
    };
    for (column, effect) in OF_BRIDGE {
        if bridge.get(column).uuids().next().is_some() {
            note(&column, effect);
        }
    }
    let is_true = |row: &Row, column, key| row.get(column).get(key).is_some_and(|value| value == "true");
    if is_true(bridge, "other_config", "forward-bpdu") {
        note(&"other_config:forward-bpdu", "`normal` drops frames to reserved addresses");
    }
    if bridge.get("other_config").get("in-band-queue").is_some() {
        note(&"other_config:in-band-queue", "there are no rules of in-band control");
    }
    note_controllers(replica, bridge, &mut note);
    if replica.rows("Flow_Table").any(|(_, table)| table.get("flow_limit").integer().is_some()) {
        note(&"flow_limit of Flow_Table", "tables have no limit of their own");
    }
    if replica.rows("Datapath").any(|(_, row)| !row.get("ct_zones").is_empty()) {
        note(&"ct_zones of Datapath", "connections of all zones have the usual time-outs");
    }
    for port in bridge.get("ports").uuids().filter_map(|uuid| replica.row("Port", uuid)) {
        let name = port.get("name").text().unwrap_or_default();
        let tags = port.get("other_config").get("priority-tags");
        if tags.is_some_and(|tags| !matches!(tags, "never" | "no" | "false")) {
            note(
                &format_args!("other_config:priority-tags of {name}"),
                "VLAN 0 has a header with a priority alone",
            );
        }
        if port.get("mac").text().is_some() {
            note(&format_args!("mac of port {name}"), "the bridge's address is not taken from it");
        }
        if port.get("other_config").get("bond-detect-mode") == Some("miimon") {
            let column = format_args!("other_config:bond-detect-mode=miimon of {name}");
            note(&column, "members are up while their carriers are");
        }
        for row in port.get("interfaces").uuids().filter_map(|uuid| replica.row("Interface", uuid)) {
            let name = row.get("name").text().unwrap_or_default();
            if row.get("cfm_mpid").integer().is_some() {
                note(&format_args!("cfm_mpid of {name}"), "no fault is detected (use BFD)");
            }
            if is_true(row, "bfd", "oam") {
                note(&format_args!("bfd:oam of {name}"), "packets of BFD are not marked as OAM");
            }
            if is_true(row, "lldp", "enable") {
                note(&format_args!("lldp of {name}"), "neighbours hear nothing of this host");
            }
        }
    }
    out
}
