//! The tree as `ovs-appctl rstp/show` and `stp/show`, and the columns of status describe it, with Open vSwitch's words.

use std::fmt::Write as _;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Datum, Uuid};

use super::Running;
use crate::state::rstp::{BridgeId, PortState, PortStatus, Role, Times};

/// How often the database hears how long a port has been in its state, in seconds.
const STATUS_S: u64 = 5;

fn role(role: Role, is_rapid: bool) -> &'static str {
    match (role, is_rapid) {
        (Role::Disabled, true) => "Disabled",
        (Role::Root, true) => "Root",
        (Role::Designated, true) => "Designated",
        (Role::Alternate, true) => "Alternate",
        (Role::Backup, true) => "Backup",
        (Role::Disabled, false) => "disabled",
        (Role::Root, false) => "root",
        (Role::Designated, false) => "designated",
        (Role::Alternate | Role::Backup, false) => "alternate",
    }
}

fn state(status: &PortStatus, is_rapid: bool) -> &'static str {
    match (status.state(), status.role, is_rapid) {
        (_, Role::Disabled, true) => "Disabled",
        (PortState::Discarding, _, true) => "Discarding",
        (PortState::Learning, _, true) => "Learning",
        (PortState::Forwarding, _, true) => "Forwarding",
        (_, Role::Disabled, false) => "disabled",
        (PortState::Discarding, Role::Alternate | Role::Backup, false) => "blocking",
        (PortState::Discarding, _, false) => "listening",
        (PortState::Learning, _, false) => "learning",
        (PortState::Forwarding, _, false) => "forwarding",
    }
}

/// An identifier of the 802.1D-2004 kind: 4 bits of priority, 12 of a system, and the address.
fn rapid_id(id: BridgeId) -> String {
    format!("{:x}.{:03x}.{:012x}", id.0 >> 60, id.0 >> 48 & 0xfff, id.mac())
}

fn map(pairs: &[(&str, String)]) -> Datum {
    Datum::map(pairs.iter().map(|(key, value)| (*key, &**value)))
}

fn stp_id(id: BridgeId) -> String {
    format!("{:04x}.{:012x}", id.0 >> 48, id.mac())
}

impl Running {
    pub(super) fn describe(&self, bridge: &str) -> String {
        let is_rapid = self.is_rapid;
        let (root_port, vector, times) = self.rstp.root();
        let mut out = format!("---- {bridge} ----\nRoot ID:\n");
        let identity = |out: &mut String, id: BridgeId, times: Times| {
            let mac =
                id.mac().to_be_bytes()[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
            let priority = if is_rapid { "stp-priority   " } else { "stp-priority " };
            _ = writeln!(out, "  {priority} {}\n  stp-system-id   {}", id.0 >> 48, mac.join(":"));
            _ = writeln!(
                out,
                "  stp-hello-time  {}s\n  stp-max-age     {}s\n  stp-fwd-delay   {}s",
                times.hello, times.max_age, times.forward_delay
            );
        };
        identity(&mut out, vector.root, times);
        match root_port {
            None => out += "  This bridge is the root\n",
            Some(port) => {
                let name = self.ports.get(&port).map_or("", |port| &port.name);
                _ = writeln!(out, "  root-port       {name}\n  root-path-cost  {}", vector.cost);
            }
        }
        out += "\nBridge ID:\n";
        identity(&mut out, self.settings.id, self.settings.times);
        let (cost, dashes) = if is_rapid { ("Cost    ", "--------") } else { ("Cost ", "-----") };
        _ = writeln!(out, "\n  Interface  Role       State      {cost} Pri.Nbr ");
        _ = writeln!(out, "  ---------- ---------- ---------- {dashes} -------");
        for (number, status) in self.rstp.ports() {
            let Some(port) = self.ports.get(&number) else { continue };
            let (name, id, cost) = (&port.name, port.settings.id, port.settings.cost);
            let (role, state) = (role(status.role, is_rapid), state(&status, is_rapid));
            let width = dashes.len();
            _ = writeln!(
                out,
                "  {name:<10.10} {role:<10} {state:<10} {cost:<width$} {}.{}",
                id >> 8,
                id & 0xff
            );
        }
        out + "\n"
    }

    pub(super) fn bridge_status(&self) -> [(&'static str, Datum); 2] {
        let (_, vector, _) = self.rstp.root();
        let cost = vector.cost.to_string();
        if !self.is_rapid {
            let pairs = [
                ("stp_bridge_id", stp_id(self.settings.id)),
                ("stp_designated_root", stp_id(vector.root)),
                ("stp_root_path_cost", cost),
            ];
            return [("status", map(&pairs)), ("rstp_status", Datum::map::<&str>([]))];
        }
        let pairs = [
            ("rstp_bridge_id", rapid_id(self.settings.id)),
            ("rstp_bridge_port_id", format!("{:04x}", vector.bridge_port)),
            ("rstp_designated_id", rapid_id(vector.designated_bridge)),
            ("rstp_designated_port_id", format!("{:04x}", vector.designated_port)),
            ("rstp_root_id", rapid_id(vector.root)),
            ("rstp_root_path_cost", cost),
        ];
        [("status", Datum::map::<&str>([])), ("rstp_status", map(&pairs))]
    }

    pub(super) fn port_status(&self, row: &Uuid, now_ms: u64) -> Option<[(&'static str, Datum); 2]> {
        let (number, port) = self.ports.iter().find(|(_, port)| port.row == *row)?;
        let status = self.rstp.status(*number)?;
        let is_rapid = self.is_rapid;
        let (role, state) = (role(status.role, is_rapid).to_owned(), state(&status, is_rapid).to_owned());
        if !is_rapid {
            let pairs = [
                ("stp_port_id", port.settings.id.to_string()),
                ("stp_role", role),
                ("stp_sec_in_state", self.seconds_in_state(*number, now_ms).to_string()),
                ("stp_state", state),
            ];
            return Some([("status", map(&pairs)), ("rstp_status", Datum::map::<&str>([]))]);
        }
        let pairs = [
            ("rstp_designated_bridge_id", rapid_id(status.vector.designated_bridge)),
            ("rstp_designated_path_cost", status.vector.cost.to_string()),
            ("rstp_designated_port_id", format!("{:04x}", status.vector.designated_port)),
            ("rstp_port_id", format!("{:04x}", port.settings.id)),
            ("rstp_port_role", role),
            ("rstp_port_state", state),
        ];
        Some([("status", Datum::map::<&str>([])), ("rstp_status", map(&pairs))])
    }

    /// The columns `statistics` and `rstp_statistics` of ports, by their rows.
    pub(super) fn counts(&self, now_ms: u64) -> Vec<(Uuid, [(&'static str, Datum); 2])> {
        let number = |value: u64| value.min(i64::MAX as u64) as i64;
        let uptime_s = now_ms.saturating_sub(self.begun_ms) / 1000;
        let of = |(port, status): (PortNo, PortStatus)| {
            let row = self.ports.get(&port)?.row;
            let counts = [status.sent, status.received, status.refused].map(number);
            let none = Datum::map::<i64>([]);
            let columns = match self.is_rapid {
                true => {
                    let keys = ["rstp_tx_count", "rstp_rx_count", "rstp_error_count"];
                    let pairs = keys.into_iter().zip(counts).chain([("rstp_uptime", number(uptime_s))]);
                    [("statistics", none), ("rstp_statistics", Datum::map(pairs))]
                }
                false => {
                    let keys = ["stp_tx_count", "stp_rx_count", "stp_error_count"];
                    [("statistics", Datum::map(keys.into_iter().zip(counts))), ("rstp_statistics", none)]
                }
            };
            Some((row, columns))
        };
        self.rstp.ports().filter_map(of).collect()
    }

    fn seconds_in_state(&self, port: PortNo, now_ms: u64) -> u64 {
        let since_ms = self.states.get(&port).map_or(now_ms, |(_, since_ms)| *since_ms);
        now_ms.saturating_sub(since_ms) / 1000 / STATUS_S * STATUS_S
    }
}
