//! LACP as text: the lines of `ovs-appctl lacp/show` and `lacp/show-stats`, as Open vSwitch 3.1 prints them.

use std::fmt::Write as _;

use super::Lacp;
use super::link::Link;
use super::pdu::{Actor, Flags};

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn flags(flags: Flags) -> String {
    Flags::NAMES.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, name)| format!(" {name}")).collect()
}

fn describe_end(out: &mut String, name: &str, end: &Actor) {
    let lines = [
        format!("sys_id: {}", mac(end.system.mac)),
        format!("sys_priority: {}", end.system.priority),
        format!("port_id: {}", end.port_id),
        format!("port_priority: {}", end.port_priority),
        format!("key: {}", end.key),
        format!("state:{}", flags(end.flags)),
    ];
    lines.iter().for_each(|line| _ = writeln!(out, "  {name} {line}"));
}

impl Lacp {
    /// Describes the LACP of a bond.
    pub fn describe(&self, name: &str) -> String {
        let settings = &self.settings;
        let activity = if settings.is_active { "active" } else { "passive" };
        let negotiated = if self.is_negotiated() { " negotiated" } else { "" };
        let lines = [
            format!("---- {name} ----"),
            format!("  status: {activity}{negotiated}"),
            format!("  sys_id: {}", mac(settings.system.mac)),
            format!("  sys_priority: {}", settings.system.priority),
            format!("  aggregation key: {}", self.key()),
            format!("  lacp_time: {}", if settings.is_fast { "fast" } else { "slow" }),
        ];
        let mut out: String = lines.into_iter().map(|line| line + "\n").collect();
        self.links.values().for_each(|link| self.describe_link(&mut out, link));
        out
    }

    fn describe_link(&self, out: &mut String, link: &Link) {
        let attached = if link.is_attached { "attached" } else { "detached" };
        let settings = &link.settings;
        _ = writeln!(out, "\nmember: {}: {} {attached}", settings.name, link.status.name());
        _ = writeln!(out, "  port_id: {}\n  port_priority: {}", settings.id, settings.priority);
        _ = writeln!(out, "  may_enable: {}\n", self.allows(link));
        describe_end(out, "actor", &self.actor(link));
        out.push('\n');
        describe_end(out, "partner", &link.partner);
    }

    /// Describes the counters of a bond's links.
    pub fn describe_counters(&self, name: &str) -> String {
        let mut out = format!("---- {name} statistics ----\n");
        for link in self.links.values() {
            let counters = &link.counters;
            _ = writeln!(out, "\nmember: {}:", link.settings.name);
            for (name, count) in [
                ("TX PDUs", counters.sent),
                ("RX PDUs", counters.received + counters.refused + counters.markers),
                ("RX Bad PDUs", counters.refused),
                ("RX Marker Request PDUs", counters.markers),
                ("Link Expired", counters.expired),
                ("Link Defaulted", counters.defaulted),
                ("Carrier Status Changed", counters.link_changes),
            ] {
                _ = writeln!(out, "  {name}: {count}");
            }
        }
        out
    }
}
