//! Sessions as text: the lines of `ovs-appctl bfd/show`, as Open vSwitch 3.1 prints them.

use std::fmt::Write as _;

use super::Session;
use super::packet::Flags;

fn names(flags: Flags) -> String {
    let names = Flags::NAMES.into_iter().filter(|(bit, _)| flags.0 & bit != 0).map(|(_, name)| name);
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

impl Session {
    /// Describes the session. A line follows those of Open vSwitch where packets have been refused.
    pub fn describe(&self, now_ms: u64) -> String {
        let until = |at_ms: u64| {
            let difference = i128::from(at_ms) - i128::from(now_ms);
            format!("now {difference:+}ms")
        };
        let [min_tx, min_rx] = self.said_ms();
        let remote = &self.remote;
        let local = [
            ("Forwarding", self.is_forwarding(now_ms).to_string()),
            ("Detect Multiplier", self.settings().detect_mult.to_string()),
            ("Concatenated Path Down", self.settings().cpath_down.to_string()),
            ("TX Interval", format!("Approx {}ms", self.tx_interval())),
            ("RX Interval", format!("Approx {}ms", self.rx_interval())),
            ("Detect Time", until(self.expires_ms)),
            ("Next TX Time", until(self.next_tx_ms)),
            ("Last TX Time", until(self.sent_ms.unwrap_or(0))),
            ("", String::new()),
            ("Local Flags", names(self.flags())),
            ("Local Session State", self.state.name().to_owned()),
            ("Local Diagnostic", self.diagnostic().name().to_owned()),
            ("Local Discriminator", format!("{:#x}", self.discriminator)),
            ("Local Minimum TX Interval", format!("{min_tx}ms")),
            ("Local Minimum RX Interval", format!("{min_rx}ms")),
            ("", String::new()),
            ("Remote Flags", names(remote.flags)),
            ("Remote Session State", remote.state.name().to_owned()),
            ("Remote Diagnostic", remote.diagnostic.name().to_owned()),
            ("Remote Discriminator", format!("{:#x}", remote.discriminator)),
            ("Remote Minimum TX Interval", format!("{}ms", remote.min_tx_ms())),
            ("Remote Minimum RX Interval", format!("{}ms", remote.min_rx_ms())),
            ("Remote Detect Multiplier", remote.detect_mult.to_string()),
        ];
        let mut out = String::new();
        for (name, value) in local {
            _ = if name.is_empty() { writeln!(out) } else { writeln!(out, "  {name}: {value}") };
        }
        if let Some((count, latest)) = self.refused {
            _ = writeln!(out, "\n  Refused: {count}, the latest since {latest}");
        }
        out
    }
}
