//! A decision of address translation as text, with the packet as it continues.

use std::fmt::{self, Display};
use std::net::{Ipv4Addr, SocketAddrV4};

use flowlane::packet::parse::ip_proto;

use super::config::Refusal;
use super::decide::{NatDecision, Source, addresses};
use super::lookup::{Direction, NatLookup, Packet};
use super::packet::{Endpoint, quoted};
use super::rewrite::Rewrite;
use super::{Nat, OTHER, VERDICTS};
use crate::packet::Frame;
use crate::stage::table::Found;
use crate::stage::{Explanation, Half, REFUSED, Rewritten, StageCall, StagePacket};

/// The parts of an explanation.
struct Parts {
    why: String,
    edits: Vec<String>,
    rewrite: Rewrite,
    port_is_open: bool,
}

impl Nat {
    pub(super) fn explanation(
        &self,
        call: StageCall,
        seen: StagePacket<'_>,
        decision: NatDecision,
    ) -> Explanation {
        let (packet, verdict) = match (self.read(seen), decision) {
            (_, NatDecision::Other) | (NatLookup::Other, _) => {
                let why = "nat: neither from inside nor to the pool, or to a group: not translated";
                return Explanation::unchanged(OTHER, why.to_owned());
            }
            (NatLookup::Refused(refusal), _) => return refused(refusal, false),
            (NatLookup::Packet(packet), NatDecision::Refused(refusal)) => {
                let now = self.ticks.peek(seen.now_ns);
                let found = self.find(&packet).map(|found| Found::of(&self.sessions, found, now));
                return refused(refusal, found.iter().any(|found| found.expired().is_some()));
            }
            (
                NatLookup::Packet(packet),
                NatDecision::Translate { verdict, .. }
                | NatDecision::Error { verdict, .. }
                | NatDecision::LaterFragment { verdict, .. },
            ) => (packet, verdict),
        };
        let Parts { why, mut edits, rewrite, port_is_open } = self.parts(call.half, &packet, seen, decision);
        let (mut frame, mut key) = (Frame::default(), seen.key.clone());
        frame.fill(seen.frame.bytes());
        (frame.time_ns, frame.counted) = (seen.frame.time_ns, seen.frame.counted);
        rewrite.apply(frame.bytes_mut(), seen.headers, &mut key);
        if !matches!(rewrite, Rewrite::Ends { .. }) {
            edits = [address_edits(addresses(seen.key), addresses(&key)), edits].concat();
        }
        let why = format!("nat: {why} ({})", VERDICTS[verdict as usize]);
        Explanation { verdict, why, edits, rewritten: Some(Rewritten { frame, key, port_is_open }) }
    }

    fn parts(&self, half: Half, packet: &Packet, seen: StagePacket<'_>, decision: NatDecision) -> Parts {
        match decision {
            NatDecision::Translate { source, destination, .. } => {
                let mut parts = self.ends(packet, source, destination);
                if packet.is_fragment && half != Half::Source {
                    parts.why.push_str("; the other fragments would follow");
                }
                parts
            }
            NatDecision::Error { session: at, .. } => {
                let inbound = packet.direction == Direction::Inbound;
                let session = *self.sessions.get(at);
                let edit = quoted(seen.frame.bytes(), seen.headers).map(|quoted| match inbound {
                    true => format!("quoted ip src {} -> {}", quoted.source, session.inside_end()),
                    false => format!("quoted ip dst {} -> {}", quoted.destination, session.outside_end()),
                });
                Parts {
                    why: format!("ICMP error about a packet of {}", self.named(at)),
                    edits: edit.into_iter().collect(),
                    rewrite: Rewrite::Error { inbound, session },
                    port_is_open: false,
                }
            }
            NatDecision::LaterFragment { first, .. } => Parts {
                why: "a later fragment, translated like the first of its datagram".to_owned(),
                edits: Vec::new(),
                rewrite: self.rewrite_of_fragment(first),
                port_is_open: false,
            },
            NatDecision::Other | NatDecision::Refused(_) => unreachable!("these have no parts"),
        }
    }

    fn ends(&self, packet: &Packet, source: Option<Source>, destination: Option<u32>) -> Parts {
        let (mut why, mut edits) = (Vec::new(), Vec::new());
        let source_end = source.map(|source| match source {
            Source::Session(at) => {
                let session = self.sessions.get(at);
                why.push(self.named(at));
                edits.push(format!("ip src {} -> {}", session.inside_end(), session.outside_end()));
                session.outside_end()
            }
            Source::New(address) => {
                let [inside, port] = packet.inside;
                let from = Endpoint { address: inside, port: port as u16 };
                let address = self.pool.address(address);
                why.push("a new session would be opened".to_owned());
                edits.push(format!("ip src {from} -> {} and a port of its own", Ipv4Addr::from(address)));
                Endpoint { address, ..from }
            }
        });
        let destination_end = destination.map(|at| {
            let session = self.sessions.get(at);
            why.push(self.named(at));
            edits.push(format!("ip dst {} -> {}", session.outside_end(), session.inside_end()));
            session.inside_end()
        });
        Parts {
            why: why.join(", "),
            edits,
            rewrite: Rewrite::Ends { proto: packet.proto, source: source_end, destination: destination_end },
            port_is_open: matches!(source, Some(Source::New(_))),
        }
    }

    /// Returns a session's name in traces.
    fn named(&self, at: u32) -> String {
        let session = self.sessions.get(at);
        let kind = if at < self.forwards { "forward" } else { "session" };
        let proto = match session.proto {
            ip_proto::TCP => "tcp",
            ip_proto::UDP => "udp",
            _ => "icmp",
        };
        format!("{proto} {kind} {} <-> {}", session.outside_end(), session.inside_end())
    }
}

fn refused(refusal: Refusal, expired: bool) -> Explanation {
    let more = if expired { "; its session has been idle for too long" } else { "" };
    Explanation::unchanged(REFUSED, format!("nat: {}{more}", refusal.name()))
}

/// Returns the addresses that differ, as text.
fn address_edits(before: [u32; 2], after: [u32; 2]) -> Vec<String> {
    let ends = ["src", "dst"].into_iter().zip(before.into_iter().zip(after));
    let changed = ends.filter(|(_, (before, after))| before != after);
    let edit =
        |(end, (before, after))| format!("ip {end} {} -> {}", Ipv4Addr::from(before), Ipv4Addr::from(after));
    changed.map(edit).collect()
}

impl Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddrV4::new(self.address.into(), self.port).fmt(f)
    }
}
