//! Bonds as text: the lines of `ovs-appctl bond/show`, as Open vSwitch 3.1 prints them.

use std::fmt::Write as _;

use super::members::Member;
use super::{Bond, BondMode, LacpState};

impl Bond {
    /// Describes the bond of a name; `mac` is the address of its active member.
    pub fn describe(&mut self, name: &str, mac: [u8; 6], now_ms: u64) -> String {
        self.buckets.measure();
        let settings = &self.settings;
        let mode = settings.mode;
        let active = self.members.iter().find(|member| Some(member.port) == self.active);
        let active = active.map_or("none", |member| &*member.name);
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let is_slb = mode == BondMode::BalanceSlb;
        let lines = [
            Some(format!("---- {name} ----")),
            Some(format!("bond_mode: {}", mode.name())),
            Some("bond may use recirculation: no, Recirc-ID : -1".to_owned()),
            Some(format!("bond-hash-basis: {}", settings.hash_basis)),
            Some("lb_output action: disabled, bond-id: -1".to_owned()),
            is_slb.then(|| format!("all members active: {}", settings.all_members_active)),
            Some(format!("updelay: {} ms", settings.updelay_ms)),
            Some(format!("downdelay: {} ms", settings.downdelay_ms)),
            self.is_balanced()
                .then(|| format!("next rebalance: {} ms", self.rebalance_ms.saturating_sub(now_ms))),
            Some(format!("lacp_status: {}", self.lacp.name())),
            Some(format!("lacp_fallback_ab: {}", settings.falls_back)),
            Some(format!("active-backup primary: {}", settings.primary.as_deref().unwrap_or("<none>"))),
            Some(format!("active member mac: {mac}({active})")),
        ];
        let mut out: String = lines.into_iter().flatten().map(|line| line + "\n").collect();
        self.members.iter().for_each(|member| self.describe_member(&mut out, member, now_ms));
        out + "\n"
    }

    fn describe_member(&self, out: &mut String, member: &Member, now_ms: u64) {
        let state = if member.is_enabled { "enabled" } else { "disabled" };
        _ = writeln!(out, "\nmember {}: {state}", member.name);
        if self.active == Some(member.port) {
            *out += "  active member\n";
        }
        if let Some(due_ms) = member.due_ms {
            let delay = if member.is_enabled { "downdelay" } else { "updelay" };
            _ = writeln!(out, "  {delay} expires in {} ms", due_ms.saturating_sub(now_ms));
        }
        _ = writeln!(out, "  may_enable: {}", member.is_well);
        if self.settings.mode != BondMode::ActiveBackup && self.lacp != LacpState::Configured {
            for (bucket, bytes) in self.buckets.of(member.port).filter(|(_, bytes)| *bytes >= 1024) {
                _ = writeln!(out, "  hash {bucket}: {} kB load", bytes / 1024);
            }
        }
    }

    /// Describes the bond of a name as `ovs-appctl bond/list` does. Nothing is recirculated for a bond: the number is always 0.
    pub fn list(&self, name: &str) -> String {
        let members: Vec<&str> = self.members.iter().map(|member| &*member.name).collect();
        format!("{name}\t{}\t0\t{}", self.settings.mode.name(), members.join(", "))
    }
}
