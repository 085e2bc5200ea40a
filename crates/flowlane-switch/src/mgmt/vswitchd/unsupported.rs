//! What a database asks for in vain: columns whose effect would be missed, with the effect, for the log.

use flowlane_ovsdb::{Replica, Row};

/// Columns of a bridge that name rows, and the effect.
const OF_BRIDGE: [(&str, &str); 4] = [
    ("netflow", "no flow is exported"),
    ("sflow", "no packet is sampled"),
    ("ipfix", "no packet is sampled"),
    ("auto_attach", "no VLAN is negotiated"),
];

/// Returns what the columns of a bridge, its ports and their interfaces ask for in vain.
pub(super) fn read(replica: &Replica, bridge: &Row) -> Vec<String> {
    let mut out = Vec::new();
    let mut note = |column: &dyn std::fmt::Display, effect: &str| {
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
        for row in port.get("interfaces").uuids().filter_map(|uuid| replica.row("Interface", uuid)) {
            let name = row.get("name").text().unwrap_or_default();
            if row.get("cfm_mpid").integer().is_some() {
                note(&format_args!("cfm_mpid of {name}"), "no fault is detected (use BFD)");
            }
            if is_true(row, "lldp", "enable") {
                note(&format_args!("lldp of {name}"), "neighbours hear nothing of this host");
            }
        }
    }
    out
}
