//! What functions would do with a packet, told without doing it: no entry comes, goes, or is used.

use std::net::Ipv4Addr;

use flowlane::packet::fields::word;
use flowlane::rule::flow_syntax::print_value;

use super::assets::{self, Assets};
use super::burst::Packets;
use super::filter::{self, Filter};
use super::nat::{Meant, Nat};
use super::{Function, Kind, REFUSED};

/// What a function would do with a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The number of the verdict; [`REFUSED`] where it refuses the packet.
    pub verdict: u8,
    /// In a line.
    pub why: String,
}

impl Function {
    /// What would become of the first of some packets. Translation changes the packet as it would then, as far as that is
    /// known: a new session has a port of its own, which nobody knows before.
    pub fn explain(&self, packets: &mut Packets<'_>) -> Explained {
        match &self.kind {
            Kind::Filter(filter) => filter.explain(packets),
            Kind::Assets(assets) => assets.explain(packets),
            Kind::Nat(nat) => nat.explain(packets),
        }
    }
}

impl Filter {
    fn explain(&self, packets: &Packets<'_>) -> Explained {
        let Some(found) = self.would_find(packets) else {
            let why = "it lacks a field of the filter's key".to_owned();
            return Explained { verdict: filter::MISS, why };
        };
        let key = &packets.keys[0];
        let values =
            self.fields().iter().map(|&f| format!("{}={}", f.info().name, print_value(f, key.get(f))));
        let values = values.collect::<Vec<_>>().join(",");
        let (verdict, why) = match (found, self.learns()) {
            (true, _) => (filter::HIT, format!("there is an entry {values}")),
            (false, true) => (filter::MISS, format!("there is no entry {values}: it would be learnt")),
            (false, false) => (filter::MISS, format!("there is no entry {values}")),
        };
        Explained { verdict, why }
    }
}

impl Assets {
    fn explain(&self, packets: &Packets<'_>) -> Explained {
        let told = |known: bool| if known { "known" } else { "new" };
        let (host, service) = self.would_know(packets);
        let new = host == Some(false) || service == Some(false);
        let why = match (host, service) {
            (None, _) => "it shows no host".to_owned(),
            (Some(host), None) => format!("its host is {}", told(host)),
            (Some(host), Some(service)) => {
                format!("its host is {}, its service {}", told(host), told(service))
            }
        };
        Explained { verdict: if new { assets::NEW } else { assets::KNOWN }, why }
    }
}

impl Nat {
    fn explain(&self, packets: &mut Packets<'_>) -> Explained {
        let ends = |packets: &Packets<'_>| {
            let key = &packets.keys[0];
            let [source, destination] = [word::IPV4_SRC, word::IPV4_DST].map(|w| Ipv4Addr::from(key.word(w)));
            let ports = key.word(word::PORTS);
            format!("{source}:{} \u{2192} {destination}:{}", ports >> 16, ports & 0xffff)
        };
        let before = ends(packets);
        match self.would(packets) {
            Meant::Left(verdict) => Explained { verdict, why: "it is not to be translated".to_owned() },
            Meant::Refused(refusal) => Explained { verdict: REFUSED, why: refusal.name().to_owned() },
            Meant::Opened(verdict) => {
                let why = format!("{before}: a new session, with an outside port of its own");
                Explained { verdict, why }
            }
            Meant::Translated(verdict) => {
                Explained { verdict, why: format!("{before} becomes {}, as its session says", ends(packets)) }
            }
        }
    }
}
