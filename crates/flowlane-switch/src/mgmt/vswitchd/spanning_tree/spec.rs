//! The spanning tree that a database asks for: columns and keys of the tables Bridge and Port.

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Atom, Datum, Replica, Row, Uuid};

use super::TreePort;
use crate::mgmt::rpc::{ControlServer, local_mac};
use crate::mgmt::setup::read_mac;
use crate::mgmt::vswitchd::model::InterfaceSpec;
use crate::state::rstp::{BridgeId, BridgeSettings, PortSettings, Times};

/// Costs of links by their speed, in Mbit/s at least (802.1D-2004, table 17-3; 802.1D-1998, table 8-5): of RSTP and of STP.
const COSTS: [(u32, u32, u32); 6] = [
    (100_000, 200, 2),
    (10_000, 2_000, 2),
    (1_000, 20_000, 4),
    (100, 200_000, 19),
    (16, 2_000_000, 62),
    (10, 2_000_000, 100),
];

/// A tree that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct TreeSpec {
    /// It is one of RSTP.
    pub(in super::super) is_rapid: bool,
    /// It speaks RSTP.
    speaks_rapid: bool,
    mac: Option<[u8; 6]>,
    priority: u16,
    times: Times,
    hold_count: u8,
    ports: Vec<TreePortSpec>,
}

/// A port that takes part.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TreePortSpec {
    row: Uuid,
    interface: Uuid,
    number: Option<u16>,
    priority: u16,
    cost: Option<u32>,
    is_edge: bool,
    finds_edge: bool,
    is_point_to_point: bool,
}

fn is_true(row: &Row, column: &str) -> bool {
    row.get(column).atoms().any(|atom| *atom == Atom::Boolean(true))
}

fn number<T: std::str::FromStr>(config: &Datum, key: &str) -> Option<T> {
    config.get(key)?.parse().ok()
}

fn flag(config: &Datum, key: &str, default: bool) -> bool {
    config.get(key).map_or(default, |value| value.eq_ignore_ascii_case("true"))
}

impl TreeSpec {
    /// Reads the columns of a bridge and its ports. As in Open vSwitch, RSTP goes before STP.
    pub(in super::super) fn read(replica: &Replica, bridge: &Row) -> Option<Self> {
        let is_rapid = is_true(bridge, "rstp_enable");
        if !is_rapid && !is_true(bridge, "stp_enable") {
            return None;
        }
        let config = bridge.get("other_config");
        let key = |rapid: &'static str, stp: &'static str| if is_rapid { rapid } else { stp };
        let seconds = |key: &str, default: u8| number(config, key).unwrap_or(default);
        let default = Times::default();
        let times = Times {
            message_age: 0,
            max_age: seconds(key("rstp-max-age", "stp-max-age"), default.max_age),
            hello: seconds(key("rstp-hello-time", "stp-hello-time"), default.hello),
            forward_delay: seconds(key("rstp-forward-delay", "stp-forward-delay"), default.forward_delay),
        };
        let ports = bridge.get("ports").uuids().filter_map(|row| Some((row, replica.row("Port", row)?)));
        Some(Self {
            is_rapid,
            speaks_rapid: is_rapid && number(config, "rstp-force-protocol-version") != Some(0),
            mac: config.get(key("rstp-address", "stp-system-id")).and_then(read_mac),
            priority: number(config, key("rstp-priority", "stp-priority")).unwrap_or(0x8000),
            times: times.within_bounds(),
            hold_count: number(config, "rstp-transmit-hold-count").unwrap_or(6).clamp(1, 10),
            ports: ports.filter_map(|(row, port)| TreePortSpec::read(is_rapid, row, port)).collect(),
        })
    }

    /// The settings of the bridge, whose own address is this.
    pub(in super::super) fn settings(&self, own_mac: [u8; 6]) -> BridgeSettings {
        BridgeSettings {
            id: BridgeId::new(self.priority, self.mac.unwrap_or(own_mac)),
            times: self.times,
            hold_count: self.hold_count,
            speaks_rapid: self.speaks_rapid,
        }
    }

    /// Returns the port of the tree that an interface is, if it takes part: those of the bridge itself do not, no bonds, and no outputs of
    /// mirrors.
    pub(in super::super) fn port(
        &self,
        interface: &InterfaceSpec,
        number: u32,
        is_open: bool,
        served: &ControlServer,
    ) -> Option<(PortNo, TreePort)> {
        let own = self.ports.iter().find(|port| port.interface == interface.uuid)?;
        if interface.kind == "internal" {
            return None;
        }
        let port = PortNo(number);
        let link = served.link(&interface.name).filter(|_| interface.has_link());
        let mbits = link.and_then(|link| link.mode?.speed_mbps).unwrap_or(100);
        let of_speed =
            COSTS.iter().find(|(least, ..)| mbits >= *least).map_or((20_000_000, 250), |row| (row.1, row.2));
        let settings = PortSettings {
            mac: link.and_then(|link| link.mac).unwrap_or_else(|| local_mac(port)),
            id: own.priority << 8 | own.number.unwrap_or(number as u16 & 0xff),
            cost: own.cost.unwrap_or(if self.is_rapid { of_speed.0 } else { of_speed.1 }),
            is_edge: own.is_edge,
            finds_edge: own.finds_edge,
            is_point_to_point: own.is_point_to_point,
        };
        let (row, name) = (own.row, interface.name.clone());
        let (has_link, may_hide) = (interface.has_link(), !interface.is_of_system());
        Some((port, TreePort { row, name, settings, is_open, has_link, may_hide }))
    }
}

impl TreePortSpec {
    fn read(is_rapid: bool, row: Uuid, port: &Row) -> Option<Self> {
        let mut interfaces = port.get("interfaces").uuids();
        let (interface, next) = (interfaces.next()?, interfaces.next());
        let config = port.get("other_config");
        let key = |rapid: &'static str, stp: &'static str| if is_rapid { rapid } else { stp };
        let takes_part = next.is_none() && flag(config, key("rstp-enable", "stp-enable"), true);
        takes_part.then(|| Self {
            row,
            interface,
            number: number::<u16>(config, key("rstp-port-num", "stp-port-num"))
                .filter(|number| (1..256).contains(number)),
            priority: number::<u16>(config, key("rstp-port-priority", "stp-port-priority"))
                .filter(|priority| *priority < 256)
                .unwrap_or(128),
            cost: number(config, key("rstp-path-cost", "stp-path-cost")).filter(|cost| *cost > 0),
            is_edge: is_rapid && flag(config, "rstp-port-admin-edge", false),
            finds_edge: is_rapid && flag(config, "rstp-port-auto-edge", true),
            is_point_to_point: flag(config, "rstp-admin-p2p-mac", true),
        })
    }
}
