//! The rows that the daemon writes: what has become of that which the database asks for.

use std::collections::{BTreeMap, HashMap};

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Datum, Replica, Row, Schema, Uuid};
use serde_json::{Map, Value, json};

use super::bridge::{Bridge, BridgePort};
use super::features;
use super::model::{self, Root};
use super::statistics::Statistics;
use crate::mgmt::openflow::Address;
use crate::mgmt::rpc::{Link, local_mac};
use crate::port::device::{self, Driver};
use crate::state::bfd::Status;

/// The types of interfaces, as far as they are supported.
const KINDS: [&str; 13] = [
    "system",
    "internal",
    "tap",
    "patch",
    "null",
    "dummy",
    "afxdp",
    "geneve",
    "vxlan",
    "gre",
    "ip6gre",
    "erspan",
    "ip6erspan",
];

/// The columns of a row that are to be written, with their values.
type Columns = Vec<(&'static str, Datum)>;

/// Returns the operations that make the database say how the bridges are. `cur_cfg` is the configuration that they follow.
pub(super) fn operations(
    replica: &Replica,
    schema: &Schema,
    bridges: &BTreeMap<Uuid, Bridge>,
    (statistics, drivers): (&Statistics, &Drivers),
    cur_cfg: Option<i64>,
) -> Vec<Value> {
    let mut out = Vec::new();
    for (uuid, bridge) in bridges {
        let id = format!("{:016x}", bridge.datapath_id);
        let columns = vec![
            ("datapath_id", Datum::set([&*id])),
            ("datapath_version", Datum::set([concat!("flowlane ", env!("CARGO_PKG_VERSION"))])),
        ];
        let columns = columns.into_iter().chain(bridge.tree.bridge_status()).collect();
        out.extend(update(replica, schema, "Bridge", *uuid, columns));
        out.extend(controllers(replica, schema, *uuid, bridge));
        for (uuid, port) in &bridge.ports {
            // A port that is none of the system may have the name of one that is.
            let link = bridge.served().link(&port.spec.name).filter(|_| port.spec.has_link());
            let mut columns = interface(port, link, drivers.of(&port.spec.name, link));
            columns.extend(statistics.column(*uuid).map(|column| ("statistics", column)));
            columns.push(("bfd_status", bfd_status(bridge.bfd().status(uuid))));
            let lacp = bridge.bonds().lacp_current(uuid);
            columns.push((
                "lacp_current",
                lacp.map_or_else(Datum::empty, |is_current| Datum::set([is_current])),
            ));
            out.extend(update(replica, schema, "Interface", *uuid, columns));
        }
        for uuid in replica.row("Bridge", *uuid).into_iter().flat_map(|row| row.get("ports").uuids()) {
            let columns = bridge.tree.port_status(&uuid).into_iter().chain(statistics.tree(&uuid)).collect();
            out.extend(update(replica, schema, "Port", uuid, columns));
        }
        for (uuid, mac) in bridge.bonds().active_macs(bridge.served()) {
            let columns = vec![("bond_active_slave", Datum::set([&*text_of(mac)]))];
            out.extend(update(replica, schema, "Port", uuid, columns));
        }
    }
    for (uuid, counters) in statistics.mirrors() {
        out.extend(update(replica, schema, "Mirror", uuid, vec![("statistics", counters)]));
    }
    // Controllers make the rows, one for each type of datapath that they use.
    for (uuid, _) in replica.rows("Datapath") {
        let columns = vec![("capabilities", Datum::map(features::capabilities()))];
        out.extend(update(replica, schema, "Datapath", uuid, columns));
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

/// Says which controllers of a bridge are connected. Those that connect by themselves have no state, as in Open vSwitch.
fn controllers(replica: &Replica, schema: &Schema, uuid: Uuid, bridge: &Bridge) -> Vec<Value> {
    let Some(row) = replica.row("Bridge", uuid) else { return Vec::new() };
    let reports = bridge.served().controllers().report();
    let of_row = |uuid: Uuid| {
        let target = replica.row("Controller", uuid)?.get("target").text()?.parse::<Address>().ok();
        let address = target.filter(Address::is_connected_to).map(|address| address.to_string());
        let connected = |address: &String| {
            reports.iter().any(|report| report.address == *address && report.connections > 0)
        };
        let is_connected = address.as_ref().map(connected);
        let state = is_connected.map(|is_connected| if is_connected { "ACTIVE" } else { "BACKOFF" });
        let columns = vec![
            ("is_connected", Datum::set([is_connected == Some(true)])),
            ("status", Datum::map(state.map(|state| ("state", state)))),
        ];
        update(replica, schema, "Controller", uuid, columns)
    };
    row.get("controller").uuids().filter_map(of_row).collect()
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The MTU of a port without an interface, in bytes; tunnels and patch ports have none.
const MTU_OF_DUMMY: u32 = 1500;

fn interface(port: &BridgePort, link: Option<Link>, driver: Option<&Driver>) -> Columns {
    let state = |is_up: bool| Datum::set([if is_up { "up" } else { "down" }]);
    let optional = |value: Option<i64>| value.map_or_else(Datum::empty, |value| Datum::set([value]));
    match &port.opened {
        Ok(number) => {
            let of_port = (!port.spec.has_link()).then(|| local_mac(PortNo(*number)));
            let mac = link.and_then(|link| link.mac).or(of_port);
            let mac = mac.map(text_of);
            // A port that is no interface of the system is always up.
            let is_up = link.is_none_or(|link| link.is_up);
            let mode = link.and_then(|link| link.mode);
            let speed = mode.and_then(|mode| mode.speed_mbps);
            let duplex = speed.and(mode).map(|mode| if mode.is_full_duplex { "full" } else { "half" });
            let resets = link.map_or(0, |link| link.resets.saturating_sub(port.resets_before));
            let is_dummy = matches!(&*port.spec.kind, "dummy" | "null");
            let mtu = link.map_or(is_dummy.then_some(MTU_OF_DUMMY), |link| link.mtu);
            let status = driver.map(|driver| {
                [
                    ("driver_name", &*driver.name),
                    ("driver_version", &driver.version),
                    ("firmware_version", &driver.firmware),
                ]
            });
            vec![
                ("ofport", Datum::set([i64::from(*number)])),
                ("error", Datum::empty()),
                ("link_state", state(is_up)),
                ("admin_state", state(link.is_none_or(|link| link.is_enabled))),
                ("mac_in_use", mac.as_deref().map_or_else(Datum::empty, |mac| Datum::set([mac]))),
                ("ifindex", Datum::set([link.map_or(0, |link| i64::from(link.index))])),
                ("mtu", optional(mtu.map(i64::from))),
                ("link_speed", optional(speed.map(|mbps| i64::from(mbps) * 1_000_000))),
                ("duplex", duplex.map_or_else(Datum::empty, |duplex| Datum::set([duplex]))),
                ("link_resets", Datum::set([i64::from(resets)])),
                ("status", Datum::map::<&str>(status.into_iter().flatten())),
            ]
        }
        Err(error) => {
            let mut columns = vec![("ofport", Datum::set([-1])), ("error", Datum::set([&**error]))];
            let others = [
                "link_state",
                "admin_state",
                "mac_in_use",
                "ifindex",
                "mtu",
                "link_speed",
                "duplex",
                "link_resets",
                "status",
            ];
            columns.extend(others.map(|column| (column, Datum::empty())));
            columns
        }
    }
}

/// The drivers of interfaces, which are asked once for each.
#[derive(Debug, Default)]
pub(super) struct Drivers(HashMap<(String, u32), Option<Driver>>);

impl Drivers {
    /// Asks the drivers of interfaces that are new, and forgets those of interfaces that are gone.
    pub(super) fn refresh(&mut self, bridges: &BTreeMap<Uuid, Bridge>) {
        let mut there = HashMap::new();
        for bridge in bridges.values() {
            for (_, spec) in bridge.opened() {
                let Some(link) = bridge.served().link(&spec.name) else { continue };
                let key = (spec.name.clone(), link.index);
                let known = self.0.remove(&key).unwrap_or_else(|| device::driver(&spec.name));
                there.insert(key, known);
            }
        }
        self.0 = there;
    }

    fn of(&self, name: &str, link: Option<Link>) -> Option<&Driver> {
        self.0.get(&(name.to_owned(), link?.index))?.as_ref()
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

#[cfg(test)]
mod tests {
    use flowlane_ovsdb::Session;

    use super::*;

    const UUID: &str = "3ac15d72-3a63-4226-b67c-d7ec44d93b2f";

    /// Answers the first request that a session has sent.
    fn answer(session: &mut Session, result: &Value) {
        let sent = session.take_outgoing();
        let request: Value = serde_json::Deserializer::from_slice(&sent).into_iter().next().unwrap().unwrap();
        let message = json!({ "id": request["id"], "result": result, "error": null });
        session.receive(message.to_string().as_bytes()).unwrap();
    }

    #[test]
    fn datapaths_that_controllers_make_get_capabilities() {
        let strings = json!({ "type": { "key": "string", "value": "string", "min": 0, "max": "unlimited" } });
        for (capabilities, is_written) in
            [(json!([]), true), (json!(features::capabilities().collect::<Vec<_>>()), false)]
        {
            let mut session = Session::new("Open_vSwitch", &model::WANTED, None, Replica::default());
            answer(
                &mut session,
                &json!({ "tables": { "Datapath": { "columns": { "capabilities": strings } } } }),
            );
            let row = json!({ "initial": { "capabilities": ["map", capabilities] } });
            answer(&mut session, &json!([false, "t1", { "Datapath": { UUID: row } }]));
            let (bridges, statistics) = (BTreeMap::new(), Statistics::default());
            let written = operations(
                session.replica(),
                session.schema(),
                &bridges,
                (&statistics, &Drivers::default()),
                None,
            );
            assert_eq!(written.len(), usize::from(is_written), "{written:?}");
            if is_written {
                assert_eq!(written[0]["table"], "Datapath");
                let pairs = written[0]["row"]["capabilities"][1].as_array().unwrap();
                assert!(pairs.contains(&json!(["ct_zero_snat", "true"])), "{pairs:?}");
            }
        }
    }
}
