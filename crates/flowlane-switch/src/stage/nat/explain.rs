//! A decision of address translation as text, with the packet as it continues.

use std::net::SocketAddr;

use flowlane::packet::parse::ip_proto;

use super::config::Refusal;
use super::decide::{NatDecision, Source, rewrite_of};
use super::lookup::{NatLookup, Packet, addresses};
use super::{Nat, OTHER, VERDICTS, ends_of_error};
use crate::packet::Frame;
use crate::stage::{Explanation, REFUSED, Rewritten, StageCall, StagePacket};
use crate::state::conntrack::session::FoundSession;
use crate::state::conntrack::{End, Tuple, rewrite};

/// The ends of a packet.
const ENDS: [&str; 2] = ["src", "dst"];

/// The parts of an explanation.
struct Parts {
    why: String,
    edits: Vec<String>,
    /// The new ends.
    ends: [Option<End>; 2],
    port_is_open: bool,
}

impl Nat {
    pub(super) fn explanation(
        &self,
        call: StageCall,
        seen: StagePacket<'_>,
        decision: NatDecision,
    ) -> Explanation {
        let (packet, verdict) = match (self.read(seen, call.datagram), decision) {
            (_, NatDecision::Other) | (NatLookup::Other, _) => {
                let why = "nat: neither from inside nor to the pool, or to a group: not translated";
                return Explanation::unchanged(OTHER, why.to_owned());
            }
            (NatLookup::Refused(refusal), _) | (_, NatDecision::Refused(refusal)) => return refused(refusal),
            (
                NatLookup::Packet(packet),
                NatDecision::Translate { verdict, .. } | NatDecision::Error { verdict, .. },
            ) => (packet, verdict),
        };
        let Parts { why, mut edits, ends, port_is_open } = self.parts(&packet, decision);
        let (mut frame, mut key, mut headers) = (Frame::default(), seen.key.clone(), *seen.headers);
        frame.fill(seen.frame.bytes());
        (frame.time_ns, frame.counted) = (seen.frame.time_ns, seen.frame.counted);
        let by = rewrite_of(&packet, ends);
        rewrite(&mut frame, &mut headers, &mut key, &by);
        if by.is_error {
            let outer = [seen.key, &key].map(|key| addresses(&headers, key));
            edits.splice(0..0, address_edits(&packet.tuple, outer));
        }
        let why = format!("nat: {why} ({})", VERDICTS[verdict as usize]);
        Explanation {
            verdict,
            why,
            edits,
            rewritten: Some(Rewritten { frame, key, tuple: by.to, port_is_open }),
        }
    }

    fn parts(&self, packet: &Packet, decision: NatDecision) -> Parts {
        match decision {
            NatDecision::Translate { source, destination, .. } => self.ends(packet, source, destination),
            NatDecision::Error { session, .. } => {
                let ends = ends_of_error(packet, &session);
                let side = usize::from(ends[0].is_none());
                let edit = edit(packet, side, session.end);
                Parts {
                    why: format!("ICMP error about a packet of {}", self.named(packet, side, &session)),
                    // In the quoted packet, ends are the other way round.
                    edits: vec![format!("quoted ip {} {edit}", ENDS[1 - side])],
                    ends,
                    port_is_open: false,
                }
            }
            NatDecision::Other | NatDecision::Refused(_) => unreachable!("these have no parts"),
        }
    }

    fn ends(&self, packet: &Packet, source: Option<Source>, destination: Option<FoundSession>) -> Parts {
        let (mut why, mut edits) = (Vec::new(), Vec::new());
        let mut known = |side: usize, found: &FoundSession| {
            why.push(self.named(packet, side, found));
            edits.push(format!("ip {} {}", ENDS[side], edit(packet, side, found.end)));
            found.end
        };
        let (source_end, is_new) = match source {
            Some(Source::Session(found)) => (Some(known(0, &found)), false),
            Some(Source::New(address)) => (Some(End { address, ..packet.tuple.source }), true),
            None => (None, false),
        };
        let destination = destination.map(|found| known(1, &found));
        if let (Some(end), true) = (source_end, is_new) {
            why.insert(0, "a new session would be opened".to_owned());
            let (from, to) = (shown(&packet.tuple, packet.tuple.source), packet.tuple.ip(end));
            edits.insert(0, format!("ip src {from} -> {to} and a port of its own"));
        }
        Parts { why: why.join(", "), edits, ends: [source_end, destination], port_is_open: is_new }
    }

    /// Returns a session's name in traces.
    fn named(&self, packet: &Packet, side: usize, found: &FoundSession) -> String {
        let tuple = &packet.tuple;
        let is_forward = self.config.connections.session(found).is_some_and(|(is_permanent, _)| is_permanent);
        let kind = if is_forward { "forward" } else { "session" };
        let proto = match tuple.proto {
            ip_proto::TCP => "tcp",
            ip_proto::UDP => "udp",
            _ => "icmp",
        };
        let (inside, outside) =
            if side == 0 { (tuple.source, found.end) } else { (found.end, tuple.destination) };
        format!("{proto} {kind} {} <-> {}", shown(tuple, outside), shown(tuple, inside))
    }
}

/// Returns an address and port as text.
fn shown(tuple: &Tuple, end: End) -> SocketAddr {
    SocketAddr::new(tuple.ip(end), end.port)
}

/// Returns the change of a packet's source (0) or destination (1) as text.
fn edit(packet: &Packet, side: usize, to: End) -> String {
    let from = if side == 0 { packet.tuple.source } else { packet.tuple.destination };
    format!("{} -> {}", shown(&packet.tuple, from), shown(&packet.tuple, to))
}

fn refused(refusal: Refusal) -> Explanation {
    Explanation::unchanged(REFUSED, format!("nat: {}", refusal.name()))
}

/// Returns the addresses that differ, before and after, as text.
fn address_edits(tuple: &Tuple, outer: [Option<(bool, u128, u128)>; 2]) -> Vec<String> {
    let [Some((_, source, destination)), Some((_, new_source, new_destination))] = outer else {
        return Vec::new();
    };
    let ip = |address| tuple.ip(End { address, ..End::default() });
    let ends = ENDS.into_iter().zip([(source, new_source), (destination, new_destination)]);
    let changed = ends.filter(|(_, (before, after))| before != after);
    changed.map(|(end, (before, after))| format!("ip {end} {} -> {}", ip(before), ip(after))).collect()
}
