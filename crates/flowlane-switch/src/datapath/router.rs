//! The router's part of a packet's way: the step of a lane that a table of routes leads to.
//!
//! A packet whose neighbour is known leaves with the addresses of the next link and a TTL that is one less. All else is decided in
//! [`state::router`](crate::state::router): packets that wait, answers and errors. Whatever these send is sent at once, in the order of
//! the packets.

use std::net::IpAddr;

use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, Headers, Network, parse};
use flowlane::rule::action::{Nat, PortNo};

use super::calls::{Calls, PausedCalls};
use super::egress::{Egress, NS, NS_PER_MS};
use super::execute::StepResult;
use super::lane_steps::finish_alone;
use super::validate::RunError;
use super::worker::{Clock, Worker};
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{entry, parse_again};
use crate::packet::{Burst, Frame};
use crate::ruleset::{Return, Routing, compile_packet_out};
use crate::state::conntrack::{Request, Tracked, rewrite, seen};
use crate::state::router::{
    Answers, Arrived, Interface, Link, Name, OWN_PACKETS, Reason, Router, Waiting, Way, addresses, cut,
    has_right_header, is_host,
};

/// A packet that waits for its neighbour.
#[derive(Debug)]
pub struct HeldPacket {
    /// Its place in the steps, and its open calls.
    calls: PausedCalls,
    frame: Frame,
    headers: Headers,
    key: FlowKey,
    /// The place of the port that it came in through.
    port: usize,
    source: Option<PortNo>,
}

impl Waiting for HeldPacket {
    fn arrived(&self, now_ns: u64) -> Arrived<'_> {
        let in_port = self.key.get(Field::InPort) as u32;
        Arrived { bytes: self.frame.bytes(), headers: &self.headers, in_port, now_ns }
    }
}

/// No port has this number.
pub(super) const NO_PORT: PortNo = PortNo(OWN_PACKETS);

/// The first 10 bits of addresses of a link alone: fe80::/10.
const LINK_LOCAL: u128 = 0xfe80 >> 6;

/// The fate of a packet that is to leave for a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// It leaves this way.
    By(Way),
    /// It waits for its neighbour.
    Waits(Name),
    /// It is cut into fragments that fit.
    Cut(u16),
    /// It is not forwarded.
    Refused(Reason),
    /// It stays on its link: it came to all stations (RFC 1812, section 5.3.4), or its source is an address of the link alone (RFC
    /// 4291, section 2.5.6) or of no host (RFC 1812, section 5.3.7; RFC 4291, section 2.5.2).
    StaysOnLink,
}

/// Decides the fate of a packet that is to leave for a neighbour. `way` finds the neighbour's Ethernet address.
pub(super) fn leave(
    router: &Router<HeldPacket>,
    (interface, via): (u16, Option<IpAddr>),
    (frame, headers, key): (&Frame, &Headers, &FlowKey),
    now_ns: u64,
    way: impl FnOnce(Name) -> Option<Way>,
) -> Leaving {
    let (l3, bytes) = (usize::from(headers.l3), frame.bytes());
    let v4 = |field| IpAddr::from((key.get(field) as u32).to_be_bytes());
    let v6 = |field| IpAddr::from(key.get(field).to_be_bytes());
    let (ttl, source, destination) = match headers.network {
        Network::Ipv4 => (bytes.get(l3 + 8), v4(Field::Ipv4Src), v4(Field::Ipv4Dst)),
        _ => (bytes.get(l3 + 7), v6(Field::Ipv6Src), v6(Field::Ipv6Dst)),
    };
    let is_of_link = headers.network == Network::Ipv6 && key.get(Field::Ipv6Src) >> 118 == LINK_LOCAL;
    if is_of_link || !is_host(source) || bytes.first().is_none_or(|first| first & 1 == 1) {
        return Leaving::StaysOnLink;
    }
    if ttl.is_none_or(|ttl| *ttl <= 1) {
        return Leaving::Refused(Reason::Expired);
    }
    let mtu = router.mtu(interface, now_ns);
    let len = edit::packet_end(bytes, headers).unwrap_or(l3) - l3;
    if len > mtu.into() {
        let dont_cut = bytes.get(l3 + 6).is_none_or(|flags| flags & 0x40 != 0);
        return match headers.network {
            Network::Ipv4 if !dont_cut => Leaving::Cut(mtu),
            _ => Leaving::Refused(Reason::TooLong(mtu)),
        };
    }
    let name = Name { interface, address: via.unwrap_or(destination) };
    way(name).map_or(Leaving::Waits(name), Leaving::By)
}

/// Writes the addresses of the next link, and decrements the TTL. The key does not follow: the packet leaves, or is parsed again.
pub(super) fn forward(frame: &mut Frame, headers: &Headers, way: Way) {
    let ttl = edit::dec_ttl(frame, headers);
    debug_assert_eq!(ttl, Ttl::Decremented, "a packet with less does not leave");
    if let Some((destination, rest)) = frame.bytes_mut().split_first_chunk_mut::<6>() {
        *destination = way.destination;
        rest[..6].copy_from_slice(&way.source);
    }
}

/// Takes a lane's packet to the router; if it leaves, it goes on at `here`.
pub(super) fn route_lane(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    routing: Routing,
    (here, moved): (Return, bool),
) -> Result<StepResult, RunError> {
    // Its fate is counted by the router.
    burst.sent.0 |= 1 << lane;
    let Some(router) = worker.egress.router.clone() else {
        worker.calls.clear(lane);
        return Ok(StepResult::End);
    };
    let now_ns = burst.times_ns[lane];
    if worker.clock() == Clock::Frames && router.is_due(now_ns) {
        tick(worker, now_ns)?;
    }
    let (mut answers, headers) = (Answers::default(), burst.headers[lane]);
    if !has_right_header(burst.frames[lane].bytes(), &headers) {
        router.ignore();
        worker.calls.clear(lane);
        return Ok(StepResult::End);
    }
    learn_sender(&mut worker.egress, &router, burst, lane);
    let arrived = arrived_of(burst, lane, &headers);
    match routing {
        Routing::Receive => router.receive(&arrived, &mut answers),
        Routing::Refuse(reason) => router.refuse(&arrived, reason, &mut answers),
        Routing::ReversePath => router.refuse_reverse_path(),
        Routing::Forward { interface, via } => {
            let (frame, key) = (&mut burst.frames[lane], &burst.keys[lane]);
            let way = |name| router.way(name);
            match leave(&router, (interface, via), (frame, &headers, key), now_ns, way) {
                Leaving::By(way) => {
                    forward(frame, &headers, way);
                    leave_by_any_port(burst, lane, &router.interfaces()[usize::from(interface)]);
                    worker.calls.resume_at(lane, here, moved);
                    return Ok(StepResult::Resumed);
                }
                Leaving::Waits(name) => {
                    let held = held(worker, burst, lane, &here);
                    router.hold(name, held, now_ns, &mut answers);
                }
                Leaving::Cut(mtu) => match cut(frame.bytes(), &headers, mtu) {
                    Some(frames) => {
                        router.note_cut();
                        return go_on_in_parts(worker, burst, lane, here, &frames);
                    }
                    None => {
                        router.refuse(&arrived_of(burst, lane, &headers), Reason::TooLong(mtu), &mut answers)
                    }
                },
                Leaving::StaysOnLink => router.ignore(),
                Leaving::Refused(reason) => {
                    let arrived = arrived_of(burst, lane, &headers);
                    note_path_mtu(&router, &arrived, reason);
                    router.refuse(&arrived, reason, &mut answers);
                }
            }
        }
    }
    let zone = worker.calls.tracked(lane).zone;
    worker.calls.clear(lane);
    carry_out(worker, answers, zone, now_ns)?;
    Ok(StepResult::End)
}

/// Lets a routed packet leave through the port that it came in through: an `output` there would not send it.
fn leave_by_any_port(burst: &mut Burst, lane: usize, interface: &Interface) {
    if leaves_by_any_port(interface.link, burst.port) {
        burst.sources.insert(lane, NO_PORT);
    }
}

/// Returns whether a packet that came in through a port and leaves by a link may leave through that port, unless the link's actions say
/// so themselves.
pub(super) fn leaves_by_any_port(link: Link, place: usize) -> bool {
    match link {
        Link::Port(own) => own == place,
        Link::Vlan(_) => true,
        Link::Tunnel(_) => false,
    }
}

/// Learns the port of a packet that comes from a VLAN: `normal` sees none of the packets that are for the router alone.
fn learn_sender(egress: &mut Egress, router: &Router<HeldPacket>, burst: &Burst, lane: usize) {
    let in_port = burst.keys[lane].get(Field::InPort) as u32;
    let link = router.interface_of(in_port).map(|(_, interface)| interface.link);
    if let Some(Link::Vlan(vid)) = link
        && let Some([a, b, c, d, e, f]) =
            burst.frames[lane].bytes().get(6..).and_then(|bytes| bytes.first_chunk::<6>())
    {
        let mac = u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]);
        let port = egress.ports.slots()[burst.port].number;
        egress.macs.learn(mac, vid, port, (burst.times_ns[lane] / NS) as u32);
    }
}

/// Takes note of a tunnel's packet that is too long for the link that it is to leave by.
fn note_path_mtu(router: &Router<HeldPacket>, packet: &Arrived<'_>, reason: Reason) {
    if let (OWN_PACKETS, Reason::TooLong(mtu)) = (packet.in_port, reason)
        && let Some(ends) = addresses(packet.bytes, packet.headers)
    {
        router.note_path_mtu(ends, mtu, packet.now_ns);
    }
}

fn arrived_of<'a>(burst: &'a Burst, lane: usize, headers: &'a Headers) -> Arrived<'a> {
    let (bytes, now_ns) = (burst.frames[lane].bytes(), burst.times_ns[lane]);
    Arrived { bytes, headers, in_port: burst.keys[lane].get(Field::InPort) as u32, now_ns }
}

/// A lane's packet, which waits before the step in front of `here`.
fn held(worker: &mut Worker, burst: &Burst, lane: usize, here: &Return) -> HeldPacket {
    let mut frame = Frame::default();
    frame.copy_from(&burst.frames[lane]);
    let calls = worker.calls.pause(lane, Return { at: here.at - 1, ..here.clone() });
    HeldPacket {
        calls,
        frame,
        headers: burst.headers[lane],
        key: burst.keys[lane].clone(),
        port: burst.port,
        source: burst.source(lane),
    }
}

/// Sends the router's answers, and lets packets go on whose neighbour is known.
fn carry_out(
    worker: &mut Worker,
    answers: Answers<HeldPacket>,
    zone: u16,
    now_ns: u64,
) -> Result<(), RunError> {
    send_answers(worker, &answers.frames, zone, now_ns)?;
    answers.released.into_iter().try_for_each(|held| go_on_alone(worker, held, now_ns))
}

/// Sends frames that the router has made, each by the actions of its interface.
fn send_answers(
    worker: &mut Worker,
    frames: &[(u16, Vec<u8>)],
    zone: u16,
    now_ns: u64,
) -> Result<(), RunError> {
    let Some(router) = worker.egress.router.clone().filter(|_| !frames.is_empty()) else { return Ok(()) };
    let mut frame = Frame::default();
    for (interface, bytes) in frames {
        frame.fill(bytes);
        frame.time_ns = now_ns;
        worker.egress.translate_back(&mut frame, zone, now_ns);
        let actions = &router.interfaces()[usize::from(*interface)].out;
        let mut burst = worker.burst_of_controller(NO_PORT, frame.bytes(), 0);
        (burst.times_ns[0], burst.frames[0].time_ns) = (now_ns, now_ns);
        let calls = Calls::alone(Return::to(compile_packet_out(actions), 0, 0));
        finish_apart(worker, calls, &mut burst)?;
    }
    Ok(())
}

impl Egress {
    /// Gives an error about a packet that has been translated the addresses that the packet came with: it is one of the packet's
    /// connection, and goes the other way.
    fn translate_back(&self, frame: &mut Frame, zone: u16, now_ns: u64) {
        if self.connections.is_empty() {
            return;
        }
        let mut key = FlowKey::zero();
        let mut headers = parse(frame.bytes(), 0, &mut key);
        let Some(seen) = seen(frame.bytes(), &headers, &key).filter(|seen| seen.is_error) else { return };
        let nat = Nat { range: None, persistent: false, hash: false, random: false };
        let request = Request { zone, nat: Some(&nat), is_dry_run: true, ..Request::default() };
        let by = self.connections.track(Some(&seen), &request, &mut Tracked::default(), now_ns / NS_PER_MS);
        if let Some(by) = by {
            rewrite(frame, &mut headers, &mut key, &by);
        }
    }
}

/// Takes a packet on from where it has waited, to its end.
fn go_on_alone(worker: &mut Worker, held: HeldPacket, now_ns: u64) -> Result<(), RunError> {
    let mut burst = Burst::new(1);
    burst.clear_for(held.port, 1);
    burst.frames.next_frame().expect("there is room").copy_from(&held.frame);
    burst.frames[0].time_ns = now_ns;
    burst.keys[0] = held.key;
    (burst.headers[0], burst.times_ns[0]) = (held.headers, now_ns);
    burst.sources.extend(held.source.map(|source| (0, source)));
    finish_apart(worker, Calls::of_paused(&held.calls), &mut burst)
}

/// Takes the only packet of a burst on from the place in its calls, to its end, while another packet is under way.
fn finish_apart(worker: &mut Worker, calls: Calls, burst: &mut Burst) -> Result<(), RunError> {
    let outer = std::mem::replace(&mut worker.calls, calls);
    // The current packet may be a controller's.
    let in_packet_out = std::mem::take(&mut worker.egress.in_packet_out);
    let ended = finish_alone(worker, burst);
    worker.calls = outer;
    worker.egress.in_packet_out = in_packet_out;
    ended
}

/// Takes the fragments of a lane's packet on, each by itself.
fn go_on_in_parts(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    here: Return,
    frames: &[Vec<u8>],
) -> Result<StepResult, RunError> {
    let now_ns = burst.times_ns[lane];
    let mut whole = held(worker, burst, lane, &here);
    for bytes in frames {
        whole.frame.fill(bytes);
        let (mut key, mut headers) = (whole.key.clone(), whole.headers);
        let in_port = key.get(Field::InPort) as u32;
        parse_again(&whole.frame, in_port, entry(&key), &[], &mut headers, &mut key);
        let mut frame = Frame::default();
        frame.copy_from(&whole.frame);
        frame.counted = bytes.len() as u32;
        let (calls, port, source) = (whole.calls.clone(), whole.port, whole.source);
        go_on_alone(worker, HeldPacket { calls, frame, headers, key, port, source }, now_ns)?;
    }
    Ok(StepResult::End)
}

/// Lets the router act, if it is due.
pub(super) fn tick(worker: &mut Worker, now_ns: u64) -> Result<(), RunError> {
    let Some(router) = worker.egress.router.clone().filter(|router| router.is_due(now_ns)) else {
        return Ok(());
    };
    let mut answers = Answers::default();
    router.tick(now_ns, &mut answers);
    // The firewall's connections have zone 0.
    carry_out(worker, answers, 0, now_ns)
}
