//! What asset detection would say of a packet.

use flowlane::packet::Headers;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ip_proto;

use super::{Asset, Assets, KNOWN, Key, NEW, named};
use crate::stage::Explained;
use crate::stage::table::Peeked;

impl Assets {
    pub(in crate::stage) fn explain(&self, key: &FlowKey, headers: &Headers, now_ns: u64) -> Explained {
        let (host, service) = self.shown(key, headers);
        if host.is_none() {
            return Explained::unchanged(KNOWN, "assets: the packet shows no asset".to_owned());
        }
        let now = self.ticks.peek(now_ns);
        let keys: Vec<Key> = host.into_iter().chain(service).collect();
        let peeked: Vec<Peeked> = keys.iter().map(|key| self.table.peek(key, now)).collect();
        let new = peeked.iter().filter(|peeked| peeked.live().is_none()).count();
        let shown = keys.iter().zip(&peeked).map(|(key, peeked)| said(key, *peeked));
        let noted = match self.table.places(&peeked, now) {
            _ if new == 0 => "",
            0 => "; the table is full",
            places if places < new => "; only the first would be noted, then the table is full",
            _ => "; what is new would be noted",
        };
        let why = format!("assets: {}{noted}", shown.collect::<Vec<String>>().join(", "));
        Explained::unchanged(if new > 0 { NEW } else { KNOWN }, why)
    }
}

/// An asset, and whether it is known.
fn said(key: &Key, peeked: Peeked) -> String {
    let (vlan, address, asset) = named(key);
    let what = match asset {
        Asset::Host(mac) => {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("host {address} at {}", mac.join(":"))
        }
        Asset::Service(ip_proto::TCP, port) => format!("service tcp/{port} of {address}"),
        Asset::Service(_, port) => format!("service udp/{port} of {address}"),
    };
    let place = vlan.map_or(String::new(), |vlan| format!(" in VLAN {vlan}"));
    let known = match peeked {
        Peeked::Live(_) => "known",
        Peeked::Due(_) => "new, since it has not been seen for too long",
        Peeked::Absent => "new",
    };
    format!("{what}{place} is {known}")
}
