//! The rows that the daemon writes: what has become of that which the database asks for.

use std::collections::BTreeMap;

use flowlane_ovsdb::{Datum, Replica, Row, Schema, Uuid};
use serde_json::{Map, Value, json};

use super::bridge::{Bridge, BridgePort};
use super::model::{self, Root};
use super::statistics::Statistics;
use crate::mgmt::rpc::Link;
use crate::state::bfd::Status;

/// The types of interfaces, as far as they are supported.
const KINDS: [&str; 9] = ["system", "internal", "tap", "patch", "null", "dummy", "afxdp", "geneve", "vxlan"];

/// The columns of a row that are to be written, with their values.
type Columns = Vec<(&'static str, Datum)>;

/// Returns the operations that make the database say how the bridges are. `cur_cfg` is the configuration that they follow.
pub(super) fn operations(
    replica: &Replica,
    schema: &Schema,
    bridges: &BTreeMap<Uuid, Bridge>,
    statistics: &Statistics,
    cur_cfg: Option<i64>,
) -> Vec<Value> {
    let mut out = Vec::new();
    for (uuid, bridge) in bridges {
        let id = format!("{:016x}", bridge.datapath_id);
        let columns = vec![
            ("datapath_id", Datum::set([&*id])),
            ("datapath_version", Datum::set([concat!("flowlane ", env!("CARGO_PKG_VERSION"))])),
        ];
        out.extend(update(replica, schema, "Bridge", *uuid, columns));
        for (uuid, port) in &bridge.ports {
            let link = bridge.served().link(&port.spec.name);
            let mut columns = interface(port, link);
            columns.extend(statistics.column(*uuid).map(|column| ("statistics", column)));
            columns.push(("bfd_status", bfd_status(bridge.bfd().status(uuid))));
            out.extend(update(replica, schema, "Interface", *uuid, columns));
        }
    }
    if let (Some(Root { uuid, .. }), Some(cur_cfg)) = (model::root(replica), cur_cfg) {
        let columns = vec![
            ("cur_cfg", Datum::set([cur_cfg])),
            ("datapath_types", Datum::set(["netdev", "system"])),
            ("iface_types", Datum::set(KINDS)),
        ];
        out.extend(update(replica, schema, "Open_vSwitch", uuid, columns));
    }
    out
}

fn interface(port: &BridgePort, link: Option<Link>) -> Columns {
    let state = |is_up: bool| Datum::set([if is_up { "up" } else { "down" }]);
    match &port.opened {
        Ok(number) => {
            let mac =
                link.and_then(|link| link.mac).map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
            // A port that is no interface of the system is always up.
            let is_up = link.is_none_or(|link| link.is_up);
            vec![
                ("ofport", Datum::set([i64::from(*number)])),
                ("error", Datum::empty()),
                ("link_state", state(is_up)),
                ("admin_state", state(link.is_none_or(|link| link.is_enabled))),
                ("mac_in_use", mac.as_deref().map_or_else(Datum::empty, |mac| Datum::set([mac]))),
            ]
        }
        Err(error) => vec![
            ("ofport", Datum::set([-1])),
            ("error", Datum::set([&**error])),
            ("link_state", Datum::empty()),
            ("admin_state", Datum::empty()),
            ("mac_in_use", Datum::empty()),
        ],
    }
}

fn bfd_status(status: Option<Status>) -> Datum {
    let Some(status) = status else { return Datum::map::<&str>([]) };
    Datum::map([
        ("diagnostic", status.diagnostic.name()),
        ("flap_count", &*status.flaps.to_string()),
        ("forwarding", if status.is_forwarding { "true" } else { "false" }),
        ("remote_diagnostic", status.remote_diagnostic.name()),
        ("remote_state", status.remote_state.name()),
        ("state", status.state.name()),
    ])
}

/// An operation that writes those columns of a row that the schema has and whose values differ.
fn update(replica: &Replica, schema: &Schema, table: &str, uuid: Uuid, columns: Columns) -> Option<Value> {
    let row: &Row = replica.row(table, uuid)?;
    let different = columns
        .into_iter()
        // A map without pairs is read as an empty set, or is not there.
        .filter(|(column, value)| {
            let is_empty = |value: &Datum| [Datum::empty(), Datum::map::<&str>([])].contains(value);
            let now = row.get(column);
            schema.column(table, column).is_some() && now != value && !(is_empty(now) && is_empty(value))
        });
    let different: Map<String, Value> =
        different.map(|(column, value)| (column.to_owned(), value.to_json())).collect();
    let condition = json!([["_uuid", "==", ["uuid", uuid.to_string()]]]);
    (!different.is_empty())
        .then(|| json!({ "op": "update", "table": table, "where": condition, "row": different }))
}
