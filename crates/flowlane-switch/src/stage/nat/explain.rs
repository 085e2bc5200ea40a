//! What translation would do with a packet.

use std::fmt::{self, Display};
use std::net::{Ipv4Addr, SocketAddrV4};

use flowlane::packet::Headers;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ip_proto;

use super::config::Refusal;
use super::packet::{End, Endpoint, quoted};
use super::reading::{Packet, Reading, Way, What};
use super::{HAIRPIN, Nat, OTHER, VERDICTS, addresses, datagram, write};
use crate::packet::{Burst, Frame, Handover};
use crate::stage::table::Peeked;
use crate::stage::{Explained, REFUSED, Translated};

/// What would be done, while it is being found out.
struct Would {
    verdict: u8,
    why: String,
    edits: Vec<String>,
    port_is_open: bool,
}

/// A copy of a packet, alone in a burst.
pub(super) fn alone(frame: &Frame, key: &FlowKey, headers: &Headers, now_ns: u64) -> Burst {
    let mut packets = Burst::new(1);
    packets.push(frame.bytes(), key, *headers, now_ns);
    (packets.frames[0].time_ns, packets.frames[0].counted) = (frame.time_ns, frame.counted);
    packets
}

impl Nat {
    /// What would be done; of a packet that turns round and whose destination's session is another worker's, this half.
    pub(in crate::stage) fn explain(
        &self,
        frame: &Frame,
        key: &FlowKey,
        headers: &Headers,
        now_ns: u64,
        other_half: bool,
    ) -> Explained {
        let mut packets = alone(frame, key, headers, now_ns);
        packets.handover = if other_half { Handover::Half } else { Handover::No };
        let refused = |refusal: Refusal, more: &str| {
            Explained::unchanged(REFUSED, format!("nat: {}{more}", refusal.name()))
        };
        let packet = match self.read(&packets, 0) {
            Reading::Other => {
                let why = "nat: neither from inside nor to the pool, or to a group: not translated";
                return Explained::unchanged(OTHER, why.to_owned());
            }
            Reading::Refused(refusal) => return refused(refusal, ""),
            Reading::Packet(packet) => packet,
        };
        let now = self.ticks.peek(now_ns);
        let found = self.find(&packet).map(|found| Peeked::of(&self.sessions, found, now));
        let would = match packet.what {
            What::LaterFragment => self.would_follow(&packet, &mut packets, now),
            What::Error => self.would_return(&packet, found, &mut packets),
            What::Opens | What::Goes => self.would_translate(&packet, found, &mut packets, now),
        };
        let Would { verdict, why, edits, port_is_open } = match would {
            Ok(would) => would,
            Err(refusal) if found.iter().any(|found| found.due().is_some()) => {
                return refused(refusal, "; its session has been idle for too long");
            }
            Err(refusal) => return refused(refusal, ""),
        };
        let why = format!("nat: {why} ({})", VERDICTS[usize::from(verdict)]);
        let (frame, key) = (std::mem::take(&mut packets.frames[0]), packets.keys.swap_remove(0));
        Explained { verdict, why, edits, translated: Some(Translated { frame, key, port_is_open }) }
    }

    /// What [`packet`](Self::packet) would do.
    fn would_translate(
        &self,
        packet: &Packet,
        found: [Peeked; 2],
        packets: &mut Burst,
        now: u32,
    ) -> Result<Would, Refusal> {
        let [source, destination] = found.map(Peeked::live);
        if packet.looks_outside() && destination.is_none() && self.other_half(packet).is_none() {
            return Err(Refusal::NoSession);
        }
        let before = addresses(packets, 0);
        let (mut why, mut edits, mut port_is_open) = (Vec::new(), Vec::new(), false);
        if let Some(at) = source {
            let session = self.sessions.get(at);
            why.push(self.named(at));
            edits.push(format!("ip src {} -> {}", session.inside_end(), session.outside_end()));
            write(packets, 0, packet.proto, End::Source, session.outside_end());
        } else if packet.looks_inside() {
            let [inside, port] = packet.inside;
            let address = self.would_open(packet, found[0], now)?;
            let from = Endpoint { address: inside, port: port as u16 };
            why.push("a new session would be made".to_owned());
            let outside = Ipv4Addr::from(address);
            edits.push(format!("ip src {from} -> {outside} and a port of its own"));
            write(packets, 0, packet.proto, End::Source, Endpoint { address, ..from });
            port_is_open = true;
        }
        if let Some(at) = destination {
            let session = self.sessions.get(at);
            why.push(self.named(at));
            edits.push(format!("ip dst {} -> {}", session.outside_end(), session.inside_end()));
            write(packets, 0, packet.proto, End::Destination, session.inside_end());
        }
        let mut why = why.join(", ");
        if packet.first_fragment {
            why.push_str(match self.would_remember(before, packet, packets, now) {
                true => "; the other fragments would follow",
                false => "; the other fragments would be refused, since no more first ones can be remembered",
            });
        }
        let verdict = if packets.handover == Handover::Half { HAIRPIN } else { packet.way.verdict() };
        Ok(Would { verdict, why, edits, port_is_open })
    }

    /// The outside address of the session that [`open`](Self::open) would make; `found` for the packet's source, which is
    /// not live.
    fn would_open(&self, packet: &Packet, found: Peeked, now: u32) -> Result<u32, Refusal> {
        if packet.what != What::Opens {
            return Err(Refusal::TcpWithoutSyn);
        }
        let [inside, _] = packet.inside;
        let gone = self.sessions.would_go_for_new(found.due().as_slice(), now);
        if self.sessions.free() + gone.len() == 0 {
            return Err(Refusal::Full);
        }
        let gone: Vec<_> = gone.into_iter().map(|at| self.sessions.get(at)).collect();
        if let Some(hosts) = &self.hosts
            && let Some(at) = hosts.keys().lookup(&[inside])
        {
            let goes = gone.iter().filter(|session| session.inside == inside).count();
            if hosts.entries.get(at).value as usize - goes >= self.config.sessions_per_host_max as usize {
                return Err(Refusal::HostFull);
            }
        }
        let given_back =
            |outside| gone.iter().any(|session| (session.proto, session.outside) == (packet.proto, outside));
        self.pool.would_draw(packet.proto, inside, given_back).ok_or(Refusal::NoPort)
    }

    /// Whether [`remember_fragment`](Self::remember_fragment) would find room.
    fn would_remember(&self, before: [u32; 2], packet: &Packet, packets: &Burst, now: u32) -> bool {
        let Some(fragments) = &self.fragments else { return false };
        let peeked = fragments.peek(&datagram(before, packet, packets, 0), now);
        peeked.live().is_some() || fragments.places(&[peeked], now) > 0
    }

    /// What [`error`](Self::error) would do.
    fn would_return(
        &self,
        packet: &Packet,
        found: [Peeked; 2],
        packets: &mut Burst,
    ) -> Result<Would, Refusal> {
        let before = addresses(packets, 0);
        let quoted = quoted(packets.frames[0].bytes(), &packets.headers[0]).ok_or(Refusal::ErrorAlone)?;
        let found = found.map(Peeked::live);
        let verdict = self.error(packet, found, packets, 0)?;
        let at = found[usize::from(packet.way == Way::Inbound)].ok_or(Refusal::ErrorAlone)?;
        let session = self.sessions.get(at);
        let mut edits = address_edits(before, addresses(packets, 0));
        edits.push(match packet.way {
            Way::Inbound => format!("quoted ip src {} -> {}", quoted.source, session.inside_end()),
            _ => format!("quoted ip dst {} -> {}", quoted.destination, session.outside_end()),
        });
        let why = format!("ICMP error about a packet of {}", self.named(at));
        Ok(Would { verdict, why, edits, port_is_open: false })
    }

    /// What [`later_fragment`](Self::later_fragment) would do.
    fn would_follow(&self, packet: &Packet, packets: &mut Burst, now: u32) -> Result<Would, Refusal> {
        let before = addresses(packets, 0);
        let fragments = self.fragments.as_ref().ok_or(Refusal::FragmentAlone)?;
        let peeked = fragments.peek(&datagram(before, packet, packets, 0), now);
        let first = fragments.entries.get(peeked.live().ok_or(Refusal::FragmentAlone)?).value;
        first.write(packets, 0);
        let edits = address_edits(before, addresses(packets, 0));
        let why = "a later fragment, which goes where its first went".to_owned();
        Ok(Would { verdict: first.verdict, why, edits, port_is_open: false })
    }

    /// A session, as traces name it.
    fn named(&self, at: u32) -> String {
        let session = self.sessions.get(at);
        let kind = if (at as usize) < self.config.forwards.len() { "forward" } else { "session" };
        let proto = match session.proto {
            ip_proto::TCP => "tcp",
            ip_proto::UDP => "udp",
            _ => "icmp",
        };
        format!("{proto} {kind} {} <-> {}", session.outside_end(), session.inside_end())
    }
}

/// Which addresses differ.
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
