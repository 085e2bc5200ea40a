//! Address translation against a model with maps, whose packets are built from scratch with all checksums.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use flowlane::route::Prefix;

use super::*;
use crate::stage::nat::{Forward, NatCounters, NatError, Refusal};
use crate::state::conntrack::session::IdleTimes;
use crate::state::conntrack::{Connections, Limits, Secret};

pub(super) const INSIDE: u32 = 0x0a00_0000;
pub(super) const POOL: u32 = 0xcb00_7100;
pub(super) const FAR: u32 = 0xc633_6400;

/// Flags: FIN 1, SYN 2, RST 4, ACK 16.
const FLAGS: [u8; 8] = [0x02, 0x02, 0x12, 0x10, 0x11, 0x14, 0x04, 0x18];

pub(super) type End = (u32, u16);

/// A session of the model.
#[derive(Clone, Debug)]
struct Known {
    outside: End,
    used: u64,
    /// SYN and FIN, by direction; whether the inside end has acknowledged the other's SYN; RST.
    syn: [bool; 2],
    fin: [bool; 2],
    acked: bool,
    rst: bool,
    forward: bool,
}

impl Known {
    fn closed(&self) -> bool {
        self.rst || self.fin == [true; 2]
    }

    fn open(&self) -> bool {
        self.syn == [true; 2] && self.acked && !self.closed()
    }

    fn idle(&self, proto: u8, times: IdleTimes) -> u64 {
        match proto {
            6 if self.open() => times.tcp_established,
            6 => times.tcp_transitory,
            17 => times.udp,
            _ => times.icmp,
        }
    }

    fn note(&mut self, flags: Option<u8>, direction: usize, now: u64) {
        let (flags, was_open, outbound) = (flags.unwrap_or(0), self.open(), direction == 0);
        let [syn, fin, rst, ack] = [2, 1, 4, 16].map(|flag| flags & flag != 0);
        if syn {
            if self.closed() {
                (self.syn, self.fin, self.acked, self.rst) = ([false; 2], [false; 2], false, false);
            }
            self.syn[direction] = true;
        }
        self.fin[direction] |= fin;
        self.acked |= outbound && ack && !rst && self.syn[1];
        self.rst = rst || self.rst && !outbound;
        if outbound || was_open && !self.open() {
            self.used = now;
        }
    }
}

struct Model {
    config: NatConfig,
    base: u64,
    /// By protocol and inside end.
    sessions: BTreeMap<(u8, End), Known>,
    events: NatCounters,
    /// Packets by session, outbound and inbound.
    packets: BTreeMap<(u8, End), [u64; 2]>,
}

/// Returns the source of a frame.
pub(super) fn source_of(frame: &[u8]) -> End {
    let l4 = 14 + 4 * usize::from(frame[14] & 15);
    let port_at = if frame[23] == 1 { l4 + 4 } else { l4 };
    let port = u16::from_be_bytes([frame[port_at], frame[port_at + 1]]);
    (u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]), port)
}

impl Model {
    fn is_inside(address: u32) -> bool {
        address >> 24 == INSIDE >> 24
    }

    fn is_pool(&self, address: u32) -> bool {
        self.config.pool.iter().any(|range| range.contains(false, address.into()))
    }

    fn expire(&mut self, now: u64) {
        let times = self.config.idle;
        let before = self.sessions.len();
        self.sessions.retain(|&(proto, _), s| s.forward || now - s.used <= s.idle(proto, times));
        self.events.aged += (before - self.sessions.len()) as u64;
        let sessions = &self.sessions;
        self.packets.retain(|id, _| sessions.contains_key(id));
    }

    fn by_outside(&self, proto: u8, outside: End) -> Option<End> {
        let found = self.sessions.iter().find(|((p, _), s)| *p == proto && s.outside == outside);
        found.map(|((_, inside), _)| *inside)
    }

    /// Returns the outside end of a session. A new session gets that of `got`, which is checked.
    fn outside_of(
        &mut self,
        proto: u8,
        inside: End,
        opens: bool,
        got: &[u8],
        now: u64,
    ) -> Result<End, Refusal> {
        if let Some(known) = self.sessions.get(&(proto, inside)) {
            return Ok(known.outside);
        }
        if !opens {
            return Err(Refusal::TcpWithoutSyn);
        }
        let dynamic = self.sessions.iter().filter(|(_, s)| !s.forward);
        let of_host = dynamic.clone().filter(|((_, i), _)| i.0 == inside.0).count();
        let all = dynamic.count();
        if all >= self.config.sessions_max {
            return Err(Refusal::Full);
        }
        let (low, high) = if proto == 1 { (0, u16::MAX) } else { self.config.ports };
        let used: HashSet<End> =
            self.sessions.iter().filter(|((p, _), _)| *p == proto).map(|(_, s)| s.outside).collect();
        let addresses: u64 = self.config.pool.iter().map(|range| (range.last - range.first) as u64 + 1).sum();
        let in_range = used.iter().filter(|(_, port)| (low..=high).contains(port)).count() as u64;
        if in_range == addresses * (u64::from(high - low) + 1) {
            return Err(Refusal::NoPort);
        }
        let ports = (addresses * (u64::from(high - low) + 1) - in_range) as usize;
        let may_have = match self.config.sessions_per_host_max {
            None => ports.min(self.config.sessions_max - all),
            Some(0) => usize::MAX,
            Some(most) => most as usize,
        };
        if of_host >= may_have {
            return Err(Refusal::HostFull);
        }
        let outside = source_of(got);
        assert!(self.is_pool(outside.0) && (low..=high).contains(&outside.1), "{outside:x?}");
        assert!(!used.contains(&outside), "{outside:x?} is in use");
        let known = Known {
            outside,
            used: now,
            syn: [false; 2],
            fin: [false; 2],
            acked: false,
            rst: false,
            forward: false,
        };
        self.sessions.insert((proto, inside), known);
        self.events.created += 1;
        Ok(outside)
    }

    /// Returns the verdict and the translation of a packet; `got` is the frame that the stage made of it.
    fn step(&mut self, desc: &Desc, now_ns: u64, got: &[u8]) -> (u32, Desc) {
        let now = (now_ns - self.base) / 1_000_000;
        self.expire(now);
        self.translate(desc, now, got).unwrap_or_else(|refusal| {
            self.events.refused[refusal as usize] += 1;
            (REFUSED, desc.clone())
        })
    }

    fn translate(&mut self, desc: &Desc, now: u64, got: &[u8]) -> Result<(u32, Desc), Refusal> {
        let mut out = desc.clone();
        let Net::V4 { src, dst, part, l4, .. } = &mut out.net else { return Ok((3, out)) };
        let verdict = match (Self::is_inside(*src), self.is_pool(*dst)) {
            _ if *dst >> 28 >= 0xe => return Ok((3, out)),
            (false, false) => return Ok((3, out)),
            (true, false) => 0,
            (false, true) => 1,
            (true, true) if !self.config.hairpin => return Err(Refusal::Hairpin),
            (true, true) => 2,
        };
        let (outbound, inbound) = (verdict != 1, verdict != 0);
        if *part != Part::Whole {
            // They wait for each other in front of the stage.
            return Err(Refusal::Fragment);
        }
        if desc.wire.short && !matches!(l4, L4::Raw { .. }) {
            return Err(Refusal::Malformed);
        }
        let (proto, from, to, opens, flags) = match l4 {
            L4::Tcp { src, dst, flags } => (6, src, dst, *flags & 0x17 == 2, Some(*flags)),
            L4::Udp { src, dst, .. } => (17, src, dst, true, None),
            L4::Icmp { kind: 8 | 13, id } if verdict == 0 => (1, &mut id.clone(), id, true, None),
            L4::Icmp { kind: 0 | 14, id } if verdict == 1 => (1, &mut id.clone(), id, false, None),
            L4::Icmp { kind: 0 | 8 | 13 | 14, .. } => return Err(Refusal::NoSession),
            L4::Icmp { .. } => return Err(Refusal::IcmpType),
            L4::Error { .. } if verdict == 2 => return Err(Refusal::Hairpin),
            L4::Error { quoted, len, .. } => {
                self.error(verdict, (src, dst), quoted, *len)?;
                self.events.errors += 1;
                return Ok((verdict, out));
            }
            L4::Raw { .. } => return Err(Refusal::Protocol),
        };
        let icmp = proto == 1;
        let target = self.by_outside(proto, (*dst, *to));
        if inbound && target.is_none() {
            return Err(Refusal::NoSession);
        }
        if outbound {
            let inside = (*src, if icmp { *to } else { *from });
            let outside = self.outside_of(proto, inside, opens, got, now)?;
            self.sessions.get_mut(&(proto, inside)).expect("just so").note(flags, 0, now);
            self.packets.entry((proto, inside)).or_default()[0] += 1;
            (*src, *from) = outside;
            if icmp {
                *to = outside.1;
            }
        }
        if let (true, Some(target)) = (inbound, target) {
            self.sessions.get_mut(&(proto, target)).expect("just so").note(flags, 1, now);
            self.packets.entry((proto, target)).or_default()[1] += 1;
            (*dst, *to) = target;
        }
        Ok((verdict, out))
    }

    fn error(
        &mut self,
        verdict: u32,
        (src, dst): (&mut u32, &mut u32),
        quoted: &mut Desc,
        len: usize,
    ) -> Result<(), Refusal> {
        let options = 4 * quoted.wire.options;
        let Net::V4 { src: from, dst: to, part, l4, .. } = &mut quoted.net else { unreachable!() };
        if len < 28 + options || part.is_later() {
            return Err(Refusal::ErrorAlone);
        }
        let inbound = verdict == 1;
        let (proto, port) = match l4 {
            L4::Tcp { src, dst, .. } => (6, if inbound { src } else { dst }),
            L4::Udp { src, dst, .. } => (17, if inbound { src } else { dst }),
            L4::Icmp { kind: 8 | 13, id } if inbound => (1, id),
            L4::Icmp { kind: 0 | 14, id } if !inbound => (1, id),
            _ => return Err(Refusal::ErrorAlone),
        };
        // An error about a packet must be sent to the address that the packet came from.
        if dst != from {
            return Err(Refusal::ErrorAlone);
        }
        if inbound {
            let inside = self.by_outside(proto, (*from, *port)).ok_or(Refusal::ErrorAlone)?;
            (*from, *port) = inside;
            *dst = inside.0;
        } else {
            let known = self.sessions.get(&(proto, (*to, *port))).ok_or(Refusal::ErrorAlone)?;
            (*to, *port) = known.outside;
            *src = known.outside.0;
        }
        Ok(())
    }

    /// Returns an outside end, mostly one in use.
    fn some_outside(&self, proto: u8, random: &mut Random) -> End {
        let used: Vec<End> =
            self.sessions.iter().filter(|((p, _), _)| *p == proto).map(|(_, s)| s.outside).collect();
        if used.is_empty() || random.chance(0.2) {
            return (POOL + random.below(3) as u32, random.port(1020, 1030));
        }
        used[random.index(used.len())]
    }
}

/// Draws a packet that fits the sessions, or not.
fn draw(model: &Model, random: &mut Random) -> Desc {
    let mut desc = draw_plain(model, random);
    let options = |random: &mut Random| [0, 0, 0, 1, 10][random.index(5)];
    desc.wire =
        Wire { options: options(random), padding: [0, 0, 1, 6][random.index(4)], short: random.chance(0.02) };
    if let Net::V4 { l4: L4::Error { quoted, .. }, .. } = &mut desc.net {
        quoted.wire.options = options(random);
    }
    desc
}

fn draw_plain(model: &Model, random: &mut Random) -> Desc {
    let hosts = 4;
    let inside = |random: &mut Random| (INSIDE + 1 + random.below(hosts) as u32, random.port(5000, 5005));
    let far = |random: &mut Random| (FAR + random.below(3) as u32, random.port(80, 82));
    let proto = [6, 6, 17, 17, 1, 47][random.index(6)];
    let segment = |(src, dst): (u16, u16), request: bool, random: &mut Random| match proto {
        6 => L4::Tcp { src, dst, flags: FLAGS[random.index(8)] },
        17 => L4::Udp { src, dst, checksum: random.chance(0.8) },
        1 if random.chance(0.1) => L4::Icmp { kind: [4, 5, 13, 14][random.index(4)], id: src },
        1 if request => L4::Icmp { kind: 8, id: src },
        1 => L4::Icmp { kind: 0, id: dst },
        proto => L4::Raw { proto },
    };
    let part = match random.below(12) {
        0 | 1 => Part::First,
        2 => Part::Middle,
        3 => Part::Later,
        _ => Part::Whole,
    };
    let between = |from: End, to: End, l4: L4, part: Part, random: &mut Random| Desc {
        mac: 1,
        vlan: None,
        net: Net::V4 { src: from.0, dst: to.0, id: random.port(1, 3), part, l4 },
        wire: Wire::default(),
    };
    let len = [27, 28, 31, 36, 100][random.index(5)];
    match random.below(20) {
        0..8 => {
            let (from, to) = (inside(random), far(random));
            let l4 = segment((from.1, to.1), true, random);
            between(from, to, l4, part, random)
        }
        8..13 => {
            let (from, to) = (far(random), model.some_outside(proto, random));
            let l4 = segment((from.1, to.1), false, random);
            between(from, to, l4, part, random)
        }
        13 | 14 => {
            let (from, to) = (inside(random), model.some_outside(proto, random));
            let l4 = segment((from.1, to.1), random.chance(0.5), random);
            between(from, to, l4, part, random)
        }
        15 | 16 => {
            // From outside, about a packet that went out.
            let (from, to) = (model.some_outside(proto, random), far(random));
            let quoted = segment((from.1, to.1), true, random);
            let quoted = Box::new(between(from, to, quoted, Part::Whole, random));
            let at = if random.chance(0.9) { from.0 } else { POOL };
            let kind = [3, 11, 12][random.index(3)];
            between(far(random), (at, 0), L4::Error { kind, quoted, len }, Part::Whole, random)
        }
        17 => {
            // From inside, about a packet that came in.
            let (from, to) = (far(random), inside(random));
            let quoted = segment((from.1, to.1), false, random);
            let quoted = Box::new(between(from, to, quoted, Part::Whole, random));
            let at = if random.chance(0.9) { from } else { far(random) };
            between(inside(random), at, L4::Error { kind: 3, quoted, len }, Part::Whole, random)
        }
        18 => {
            let l4 = L4::Udp { src: 1, dst: 2, checksum: true };
            Desc { mac: 1, vlan: None, net: Net::V6 { src: 5, dst: 6, l4 }, wire: Wire::default() }
        }
        _ => {
            let (from, to) = (far(random), [(FAR + 9, 1), (0xe000_0001, 2)][random.index(2)]);
            let l4 = segment((from.1, to.1), true, random);
            between(from, to, l4, part, random)
        }
    }
}

fn config(random: &mut Random) -> NatConfig {
    let idle = [100, 500, 4000, 200_000];
    let mut drawn = || idle[random.index(4)];
    let idle = IdleTimes { udp: drawn(), tcp_transitory: drawn(), tcp_established: drawn(), icmp: drawn() };
    NatConfig {
        // Few, so that all are in use at times.
        ports: (1024, [1024, 1027, 2000][random.index(3)]),
        forwards: vec![
            Forward::v4(6, (POOL, 80), (INSIDE + 1, 5000)),
            Forward::v4(17, (POOL + 1, 1024), (INSIDE + 9, 53)),
        ],
        sessions_per_host_max: [None, Some(0), Some(1), Some(3)][random.index(4)],
        hairpin: random.chance(0.7),
        idle,
        ..NatConfig::new(
            vec![Prefix::truncated(INSIDE, 8)],
            vec![(POOL, POOL + 1)],
            [3, 10, 60][random.index(3)],
        )
    }
}

/// Gives a translation a table of its own for its sessions.
pub(super) fn with_own_table(config: &NatConfig, secret: u64) -> NatConfig {
    let limits = Limits { connections: 0, per_zone: None };
    let connections = Arc::new(Connections::with_sessions(limits, 1000, Secret::seeded(secret)));
    NatConfig { connections, ..config.clone() }
}

/// Returns an address of IPv4 and a port.
fn v4(end: SocketAddr) -> End {
    let IpAddr::V4(address) = end.ip() else { panic!("{end} is of IPv6") };
    (address.into(), end.port())
}

/// Returns the session of a forward.
fn permanent(of: &Forward) -> ((u8, End), Known) {
    let end = |end: crate::state::conntrack::End| (end.address as u32, end.port);
    let (syn, fin) = ([false; 2], [false; 2]);
    let outside = end(of.outside);
    let known = Known { outside, used: 0, syn, fin, acked: false, rst: false, forward: true };
    ((of.proto, end(of.inside)), known)
}

#[test]
fn nat_agrees_with_the_reference_model() {
    let mut verdicts: BTreeMap<u32, u64> = BTreeMap::new();
    let mut happened = [0; 3 + Refusal::ALL.len()];
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let config = config(&mut random);
        let mut tables = Vec::new();
        let mut functions = each(|lookups| {
            let config = NatConfig { lookups, ..with_own_table(&config, seed) };
            tables.push(config.connections.clone());
            bare(AnyStage::Nat(Nat::new(config).unwrap()))
        });
        let base = 1_700_000_000_000_000_000;
        let sessions = config.forwards.iter().map(permanent).collect();
        let (events, packets) = (NatCounters::default(), BTreeMap::new());
        let mut model = Model { config, base, sessions, events, packets };
        let mut now = base;
        for step in 0..80 {
            let count = [1, 2, 7, 16, 63, 64][random.index(6)];
            let times = if step > 0 { times(&mut now, count, &mut random) } else { vec![now; count] };
            let descs: Vec<Desc> = (0..count).map(|_| draw(&model, &mut random)).collect();
            let frames: Vec<Vec<u8>> = descs.iter().map(Desc::build).collect();
            let ways = functions.each_mut();
            let [batch, scalar, dry_run] = ways.map(|(function, process)| process(function, &frames, &times));
            assert_eq!(batch, scalar, "seed {seed}, step {step}");
            assert_eq!(batch, dry_run, "seed {seed}, step {step}");
            for (i, (desc, (verdict, frame))) in descs.iter().zip(&batch).enumerate() {
                let (wanted, translated) = model.step(desc, times[i], frame);
                let context = || format!("seed {seed}, step {step}, packet {i}: {desc:x?}");
                assert_eq!(*verdict, wanted, "{}", context());
                assert_eq!(frame, &translated.build(), "{}\n{translated:x?}", context());
                *verdicts.entry(wanted).or_default() += 1;
            }
            tables.iter().for_each(|table| table.sweep(now / 1_000_000, 1000));
            for (function, _) in &functions {
                let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
                let live: BTreeMap<(u8, End), (End, [u64; 2])> = nat
                    .sessions(now)
                    .iter()
                    .map(|s| ((s.proto, v4(s.inside)), (v4(s.outside), s.packets)))
                    .collect();
                let known = |(id, s): (&(u8, End), &Known)| {
                    (*id, (s.outside, model.packets.get(id).copied().unwrap_or_default()))
                };
                assert_eq!(live, model.sessions.iter().map(known).collect(), "seed {seed}, step {step}");
                assert_eq!(nat.counters(), model.events, "seed {seed}, step {step}");
            }
        }
        let NatCounters { created, aged, errors, refused, .. } = model.events;
        let all = [created, aged, errors].into_iter().chain(refused);
        happened.iter_mut().zip(all).for_each(|(sum, n)| *sum += n);
    }
    assert!(verdicts.values().all(|&n| n > 1000) && verdicts.len() == 5, "packets by verdict: {verdicts:?}");
    assert!(happened.iter().all(|&n| n > 100), "what has happened: {happened:?}");
}

#[test]
fn a_flood_of_connections_evicts_no_established_session() {
    let config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 100);
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let tcp =
        |src: End, dst: End, flags| Desc::v4(src.0, dst.0, L4::Tcp { src: src.1, dst: dst.1, flags }).build();
    let (host, server) = ((INSIDE + 1, 4000), (FAR, 443));
    let sent = process(&mut function, &[tcp(host, server, 2)], 0);
    let outside = source_of(&sent[0].1);
    let mut random = Random::new(1);
    let mut now = TICK;
    process(&mut function, &[tcp(server, outside, 0x12), tcp(host, server, 0x10)], now);
    for _ in 0..500 {
        let flood: Vec<Vec<u8>> =
            (0..64).map(|_| tcp((INSIDE | random.below(1 << 24) as u32, 1), server, 2)).collect();
        now += TICK / 100;
        process(&mut function, &flood, now);
        let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
        assert!(nat.len() <= 100);
    }
    // The flood's sessions go after the transitory time; the open one stays.
    let later = now + 300 * 1_000_000_000;
    let back = process(&mut function, &[tcp(server, outside, 0x10)], later);
    assert_eq!(back[0], (1, tcp(server, host, 0x10)));
    let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
    assert_eq!(nat.sessions(later).len(), 1);
    assert_eq!(nat.counters().refused[Refusal::Full as usize], 500 * 64 - 99);
}

/// Returns whether a session that packets from inside have opened exists after `seconds`, in which packets arrive
/// repeatedly from outside.
fn lasts(seconds: u64, made_by: &[L4], from_outside: impl Fn(u16) -> L4) -> bool {
    let config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 100);
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let mut outside = (0, 0);
    for l4 in made_by {
        let sent = process(&mut function, &[Desc::v4(INSIDE + 1, FAR, l4.clone()).build()], 1);
        outside = source_of(&sent[0].1);
    }
    let mut last = 0;
    for second in (10..=seconds).step_by(10) {
        // Each from another host.
        let packet = Desc::v4(FAR + second as u32, outside.0, from_outside(outside.1));
        last = process(&mut function, &[packet.build()], second * 1_000_000_000)[0].0;
    }
    last == 1
}

#[test]
fn packets_from_outside_neither_refresh_nor_open_sessions() {
    let udp = |src, dst| L4::Udp { src, dst, checksum: true };
    assert!(lasts(300, &[udp(5, 53)], |port| udp(53, port)));
    assert!(!lasts(310, &[udp(5, 53)], |port| udp(53, port)));
    assert!(lasts(60, &[L4::Icmp { kind: 8, id: 4 }], |id| L4::Icmp { kind: 0, id }));
    assert!(!lasts(70, &[L4::Icmp { kind: 8, id: 4 }], |id| L4::Icmp { kind: 0, id }));
    let out = |flags| L4::Tcp { src: 5, dst: 80, flags };
    for flags in [0x02, 0x12, 0x10, 0x11, 0x14] {
        let inward = |port| L4::Tcp { src: 80, dst: port, flags };
        assert!(lasts(240, &[out(2)], inward), "{flags:x}");
        assert!(!lasts(250, &[out(2)], inward), "{flags:x}");
        // An inside ACK before the outside SYN establishes nothing either.
        let acked = [out(2), out(0x12), out(0x10)];
        assert!(!lasts(250, &acked, inward), "{flags:x}");
    }
}

#[test]
fn tcp_is_established_by_the_inside_ack_and_closed_by_fin_or_rst() {
    let config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 100);
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let outward = |flags| Desc::v4(INSIDE + 1, FAR, L4::Tcp { src: 5, dst: 80, flags }).build();
    let outside = source_of(&process(&mut function, &[outward(2)], 1)[0].1);
    let inward = |flags| Desc::v4(FAR, outside.0, L4::Tcp { src: 80, dst: outside.1, flags }).build();
    let mut at =
        |seconds: u64, frame: Vec<u8>| process(&mut function, &[frame], seconds * 1_000_000_000)[0].0;
    assert_eq!((at(1, inward(0x12)), at(2, outward(0x10))), (1, 0));
    assert_eq!(at(7400, inward(0x10)), 1);
    // After an RST the other end has some time to show that it was forged.
    assert_eq!((at(7400, inward(0x04)), at(7600, outward(0x10)), at(15_000, inward(0x10))), (1, 0, 1));
    assert_eq!(
        (at(15_000, inward(0x04)), at(15_230, inward(0x10)), at(15_250, inward(0x10))),
        (1, 1, REFUSED)
    );
}

#[test]
fn contradictory_forwards_are_rejected() {
    let new = |forwards: Vec<Forward>| {
        let pool = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 10);
        Nat::new(NatConfig { forwards, ..pool }).map(|nat| nat.len())
    };
    let forward = Forward::v4;
    let first = forward(6, (POOL, 80), (INSIDE, 80));
    assert_eq!(new(vec![first, forward(17, (POOL, 80), (INSIDE, 80))]), Ok(2));
    assert_eq!(new(vec![first, forward(6, (POOL, 80), (INSIDE, 81))]), Err(NatError::Outside(1)));
    assert_eq!(new(vec![first, forward(6, (POOL, 81), (INSIDE, 80))]), Err(NatError::Inside(1)));
    assert_eq!(new(vec![forward(6, (POOL + 1, 80), (INSIDE, 80))]), Err(NatError::Outside(0)));
    assert_eq!(new(vec![forward(6, (POOL, 80), (POOL, 80))]), Err(NatError::NotInside(0)));
}

#[test]
fn idle_sessions_make_room_without_packets() {
    let config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 10);
    let connections = config.connections.clone();
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let packet = Desc::v4(INSIDE + 1, FAR, L4::Udp { src: 40_000, dst: 53, checksum: true });
    process(&mut function, &[packet.build()], 1_000_000_000);
    let left_at = |now_ms: u64| {
        connections.sweep(now_ms, 10);
        let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
        (nat.len(), nat.counters().aged)
    };
    assert_eq!((left_at(301_000), left_at(301_001)), ((1, 0), (0, 1)));
}
