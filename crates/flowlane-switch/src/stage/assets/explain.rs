//! A decision of asset detection as text.

use flowlane::packet::fields::word;
use flowlane::packet::parse::ip_proto;

use super::{Asset, AssetDecision, Assets, Key, is_new, named};
use crate::stage::StagePacket;
use crate::stage::table::Found;

impl Assets {
    /// Returns the reason for a decision.
    pub(super) fn reason(&self, packet: StagePacket<'_>, decision: &AssetDecision) -> String {
        let found: Vec<Found> = decision.shown().map(|(_, found)| *found).collect();
        if found.is_empty() {
            return "the packet shows no asset".to_owned();
        }
        let new = found.iter().filter(|&&found| is_new(found)).count();
        let port = packet.key.word(word::IN_PORT);
        let recorded = match self.table.room(&found, self.ticks.peek(packet.now_ns), port) {
            _ if new == 0 => "",
            0 => "; the table is full, or the port has its share of it",
            room if room < new => {
                "; only the first would be recorded, then the table is full, or the port has its share of it"
            }
            _ => "; new assets would be recorded",
        };
        let shown: Vec<String> = decision.shown().map(|(key, found)| described(key, *found)).collect();
        format!("{}{recorded}", shown.join(", "))
    }
}

/// Returns an asset and its state as text.
fn described(key: &Key, found: Found) -> String {
    let (vlan, address, asset) = named(key);
    let asset = match asset {
        Asset::Host(mac) => {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("host {address} at {}", mac.join(":"))
        }
        Asset::Service(ip_proto::TCP, port) => format!("service tcp/{port} of {address}"),
        Asset::Service(_, port) => format!("service udp/{port} of {address}"),
    };
    let place = vlan.map_or(String::new(), |vlan| format!(" in VLAN {vlan}"));
    let state = match found {
        Found::Live(_) => "known",
        Found::Expired(_) => "new, since it has not been seen for too long",
        Found::Absent => "new",
    };
    format!("{asset}{place} is {state}")
}
