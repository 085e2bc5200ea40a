//! The worker with and without caches, and against an interpreter that parses the packet again before
//! every table.

mod applications;
mod bfd;
mod bonds;
mod bursts;
mod calls;
mod conjunctions;
mod connections;
mod deferred;
mod fin_timeout;
mod idle;
mod interpreter;
mod lane_steps;
mod learning;
mod mirrors;
mod multicast;
mod offload;
mod pauses;
mod pipeline;
mod port_tunnels;
mod queues;
mod recirculation;
mod routes;
mod several;
mod spanning_tree;
mod stateful_stages;
mod tunnels;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use etherparse::PacketBuilder;
use flowlane::classify::acl::{AclConfig, AclEngine, AclSearch};
use flowlane::classify::{LinearSearch, ReplicatedEngine, TupleSearch};
use flowlane::packet::fields::{Field, word};
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Headers, Malformed, parse};
use flowlane::rule::action::{EncapsulateHeader, PortNo};
use flowlane::rule::{Action, Match, Priority, Rule};

use self::interpreter::{interpret, interpret_with};
use super::*;
use crate::datapath::Pipeline;
use crate::packet::{Frame, Frames, edit};
use crate::port::{Port, PortError, Received};
use crate::ruleset::{Miss, RulesetError};
use crate::state::fdb::Fdb;
use flowlane::packet::batch::LANES_MAX;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The frames sent: (port number, frame).
type Sent = Arc<Mutex<Vec<(u32, Vec<u8>)>>>;

/// A port that records the frames sent to it.
struct Recorder(u32, Sent);

impl Port for Recorder {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        Ok(Received::Finished)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.1.lock().unwrap().push((self.0, frame.bytes().to_vec()));
        Ok(true)
    }
}

const CONTROLLER: u32 = 999;

/// The engine to use: all give the same answers.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Linear,
    Tuple,
    Acl(AclEngine),
    /// Answers later, in batches of this many.
    Later(usize),
}

impl By {
    fn pick(n: u64) -> Self {
        let acl = AclEngine::ALL[(n / 4 % 4) as usize];
        [Self::Linear, Self::Tuple, Self::Tuple, Self::Acl(acl)][(n % 4) as usize]
    }

    fn engine(self) -> Box<dyn ReplicatedEngine> {
        match self {
            By::Linear => Box::new(LinearSearch::new(10_000)),
            By::Tuple => Box::new(TupleSearch::new(10_000, 5)),
            By::Acl(engine) => Box::new(AclSearch::new(AclConfig::default().with_engine(engine))),
            By::Later(_) => unreachable!("not an engine that answers at once"),
        }
    }
}

fn worker(rules: &[Rule], tables: u8, cache: CacheConfig, by: By) -> (Worker, Sent) {
    let mut pipeline = Pipeline::new();
    for number in 0..tables {
        let miss = [Miss::Continue, Miss::Controller, Miss::Drop][usize::from(number) % 3];
        match by {
            // Every third table answers at once, so that walks pass tables of both kinds.
            By::Later(batch_max) if number % 3 != 2 => {
                pipeline.add_deferred_table(number, "", deferred::patient(batch_max), miss);
            }
            By::Later(_) => pipeline.add_table(number, "", By::Tuple.engine(), miss),
            by => pipeline.add_table(number, "", by.engine(), miss),
        }
    }
    routes::add(&mut pipeline, tables);
    for rule in rules {
        pipeline.add_rule(rule.clone()).unwrap();
    }
    let sent = Sent::default();
    let mut egress = Egress::new(Fdb::new(1000, 300, 1), 1);
    egress.controller = Some(Box::new(Recorder(CONTROLLER, sent.clone())));
    for number in 1..=4 {
        let port = Box::new(Recorder(number, sent.clone()));
        egress.ports.add(PortSlot::new(PortNo(number), &format!("port{number}"), "", port));
    }
    (Worker::new(Lookup::new(pipeline, cache), egress, 32, Clock::Frames), sent)
}

fn no_caches() -> CacheConfig {
    CacheConfig { exact_entries: 0, megaflows_max: 0, ..CacheConfig::default() }
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % below
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next(from.len() as u32) as usize]
    }
}

/// Packets of many stacks over few addresses, so that rules hit.
fn packet(r: &mut Random) -> Vec<u8> {
    let mac = |n: u32| [2, 0, 0, 0, 0, n as u8];
    let eth = PacketBuilder::ethernet2(mac(r.next(3)), mac(r.next(3)));
    let (ttl, sport, dport) = (r.pick(&[1, 2, 3, 64]), r.pick(&[80, 443]), r.pick(&[53, 80, 4000]));
    let (a, b) = ([10, 0, r.next(2) as u8, r.next(3) as u8], [10, 1, 0, r.next(3) as u8]);
    let mut wide = [0x20; 16];
    wide[15] = r.next(3) as u8;
    let mut bytes = Vec::new();
    match r.next(5) {
        0 => eth.ipv4(a, b, ttl).tcp(sport, dport, 1, 2).write(&mut bytes, b"x").unwrap(),
        1 => eth.ipv6(wide, [3; 16], ttl).udp(sport, dport).write(&mut bytes, b"xyz").unwrap(),
        2 => eth.ipv4(a, b, ttl).icmpv4_echo_request(1, 2).write(&mut bytes, b"x").unwrap(),
        _ => eth.ipv4(a, b, ttl).udp(sport, dport).write(&mut bytes, b"x").unwrap(),
    }
    if r.next(6) == 0 {
        // A later fragment: no transport header.
        if bytes[12..14] == [8, 0] {
            bytes[20..22].copy_from_slice(&[0, 9]);
        }
    }
    let mut frame = Frame::default();
    frame.fill(&bytes);
    let mut headers = parse(frame.bytes(), 1, &mut FlowKey::zero());
    for _ in 0..r.pick(&[0, 0, 1, 2]) {
        edit::push_mpls(&mut frame, &mut headers, 0x8847);
    }
    for _ in 0..r.pick(&[0, 0, 0, 1, 1, 2, 3]) {
        edit::push_vlan(&mut frame, &mut headers, r.pick(&[0x8100, 0x88a8]));
        edit::set_field(&mut frame, &mut headers, Field::VlanVid, r.pick(&[5, 6]), 0xfff);
    }
    frame.bytes().to_vec()
}

fn random_match(r: &mut Random) -> Match {
    let mut m = Match::any();
    for _ in 0..r.next(4) {
        match r.next(16) {
            0 => _ = m.set(Field::InPort, r.pick(&[1, 2])),
            1 => _ = m.set(Field::EthDst, 0x0200_0000_0000 + u128::from(r.next(3))),
            2 => _ = m.set(Field::EthType, r.pick(&[0x800, 0x86dd, 0x8847, 0x894f])),
            13 => _ = m.set(Field::PacketType, r.pick(&[0, 0x1_0800, 0x1_894f, 0x1_8847])),
            14 => _ = m.set(Field::NshSi, r.pick(&[7, 255])),
            3 => {
                _ = m.set_masked(
                    Field::Ipv4Src,
                    0x0a00_0000 | u128::from(r.next(3)),
                    r.pick(&[0xffff_ff00, 0xffff_ffff]),
                )
            }
            4 => {
                _ = m.set_masked(
                    Field::Ipv4Dst,
                    0x0a01_0000 | u128::from(r.next(3)),
                    r.pick(&[0xffff_ffff, 0xffff_fffe]),
                )
            }
            5 => _ = m.set_range(Field::TpDst, 50, r.pick(&[60, 90, 5000])),
            6 => _ = m.set(Field::NwTtl, r.pick(&[1, 2, 3, 63])),
            7 => _ = m.set(Field::VlanTci, r.pick(&[0, 0x1005, 0x1006, 0x1000])),
            8 => _ = m.set_masked(Field::VlanTci, 0x1000, 0x1000),
            9 => _ = m.set(Field::Reg0, r.pick(&[0, 1, 2])),
            10 => _ = m.set(Field::MplsLabel, r.pick(&[0, 7])),
            11 => _ = m.set(Field::MplsTtl, r.pick(&[1, 2, 63])),
            12 => _ = m.set(Field::NwProto, r.pick(&[6, 17])),
            _ => _ = m.set(Field::VlanTci1, r.pick(&[0, 0x1005])),
        }
    }
    m
}

fn set(field: Field, value: u128) -> Action {
    Action::set_field(field, value, field.info().ones())
}

fn random_action(r: &mut Random) -> Action {
    match r.next(26) {
        0..4 => Action::Output(PortNo(1 + r.next(5))),
        4 => Action::InPort,
        5 => Action::Flood,
        6 => Action::PushVlan(r.pick(&[0x8100, 0x88a8])),
        7 | 8 => Action::PopVlan,
        9 => set(Field::VlanVid, r.pick(&[5, 6])),
        10 => set(Field::Ipv4Dst, 0x0a01_0000 | u128::from(r.next(3))),
        11 => set(Field::TpDst, r.pick(&[53, 80])),
        12 => set(Field::Reg0, r.pick(&[1, 2])),
        13 => Action::Move { from: Field::TpDst.into(), to: Field::TpSrc.into() },
        14 => Action::dec_ttl(),
        15 => Action::set_field(Field::Ipv4Src, 1, 1),
        16 => Action::PopMpls(r.pick(&[0x0800, 0x8847])),
        17 => r.pick(&[Field::NwTtl, Field::MplsTtl]).pipe(|f| set(f, 2)),
        18 => Action::PushMpls(0x8847),
        19 => Action::Move {
            from: r.pick(&[Field::Ipv4Src, Field::Reg0]).into(),
            to: r.pick(&[Field::Ipv4Dst, Field::Reg0]).into(),
        },
        20 => Action::DecMplsTtl,
        21 => Action::EncapsulateHeader(EncapsulateHeader::Nsh { metadata_type: 1, tlvs: Vec::new() }),
        22 if r.next(2) == 0 => Action::EncapsulateHeader(EncapsulateHeader::Mpls),
        22 => Action::EncapsulateHeader(EncapsulateHeader::Ethernet),
        23 => Action::Decapsulate(r.pick(&[None, Some((1, 0x0800)), Some((0, 0))])),
        24 => r.pick(&[(Field::NshTtl, 2), (Field::NshSi, 7), (Field::EthDst, 5)]).pipe(|(f, to)| set(f, to)),
        _ => Action::DecNshTtl,
    }
}

trait Pipe: Sized {
    fn pipe<T>(self, f: impl FnOnce(Self) -> T) -> T {
        f(self)
    }
}

impl Pipe for Field {}

impl Pipe for (Field, u128) {}

fn random_rules(r: &mut Random, tables: u8) -> Vec<Rule> {
    let mut rules = Vec::new();
    for table in 0..tables {
        for _ in 0..r.next(8) {
            let mut actions: Vec<Action> = (0..r.next(5)).map(|_| random_action(r)).collect();
            // The tables of rules are followed by one of routes.
            if r.next(2) == 0 {
                actions.push(Action::Goto(table + 1 + r.next(u32::from(tables - table)) as u8));
            }
            let (matches, priority) = (random_match(r), Priority(r.next(4)));
            rules.push(Rule { table, priority, cookie: 0, matches, actions });
        }
    }
    rules
}

/// Returns the frames that a trace predicts; `None` if a source port that NAT has yet to draw is in them.
fn traced(worker: &Worker, port: usize, bytes: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let Ok(Tracing::Ended(trace)) = worker.trace(PortNo(port as u32 + 1), bytes) else {
        panic!("there is one worker, and this port");
    };
    told_sent(&trace)
}

fn told_sent(trace: &Trace) -> Option<Vec<(u32, Vec<u8>)>> {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let known = !trace.port_is_open;
    let sent = trace.sent.iter().map(|sent| (sent.port.unwrap_or(CONTROLLER), hex(&sent.frame)));
    known.then(|| sent.collect())
}

fn counters(worker: &mut Worker) -> Vec<(u8, u32, u64, u64)> {
    worker.lookup.collect_counters();
    let mut out = Vec::new();
    for (number, table) in worker.lookup.pipeline.tables() {
        out.push((number, u32::MAX, table.missed, 0));
        out.extend(table.rules().map(|(id, e)| (number, id.0, e.packets, e.bytes)));
    }
    for (number, table) in worker.lookup.pipeline.route_tables() {
        out.push((number, u32::MAX, table.missed, 0));
        out.extend((0..).zip(table.next_hops()).map(|(i, h)| (number, i, h.packets, h.bytes)));
    }
    out
}

#[test]
fn caches_change_nothing_and_the_pipeline_is_what_openflow_describes() {
    for seed in 0..300u64 {
        let r = &mut Random(seed);
        let tables = 1 + r.next(4) as u8;
        let rules = random_rules(r, tables);
        let small = CacheConfig {
            exact_entries: r.pick(&[0, 2, 64]),
            exact_insert_inverse: 2,
            signature_entries: r.pick(&[0, 8, 64]),
            signature_insert_inverse: 2,
            adaptive: r.pick(&[false, true]),
            megaflows_max: r.pick(&[1, 20, 1000]),
            masks_max: r.pick(&[1, 5, 100]),
            ..CacheConfig::default()
        };
        let (mut cached, cached_sent) = worker(&rules, tables, small, By::pick(seed));
        if seed % 4 == 0 {
            cached.validate();
        }
        let (mut plain, plain_sent) = worker(&rules, tables, no_caches(), By::pick(seed / 7));
        for round in 0..8 {
            let port = r.next(2) as usize;
            let frames: Vec<Vec<u8>> = (0..40).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            // One at a time, so that the sent frames are known per packet.
            let mut all = Vec::new();
            for (i, bytes) in borrowed.iter().enumerate() {
                let told = traced(&plain, port, bytes);
                plain.inject(port, &[bytes]).unwrap();
                let sent = std::mem::take(&mut *plain_sent.lock().unwrap());
                assert_eq!(told, Some(sent.clone()), "seed {seed} round {round} packet {i} {bytes:02x?}");
                let wanted = interpret(&plain.lookup.pipeline, port as u32 + 1, bytes);
                assert_eq!(sent, wanted, "seed {seed} round {round} packet {i} {bytes:02x?}\n{rules:#?}");
                cached.inject(port, &[bytes]).unwrap();
                let sent = std::mem::take(&mut *cached_sent.lock().unwrap());
                assert_eq!(sent, wanted, "cached: seed {seed} round {round} packet {i} {bytes:02x?}");
                all.extend(wanted);
            }
            // As bursts: the same frames in the same order.
            plain.inject(port, &borrowed).unwrap();
            cached.inject(port, &borrowed).unwrap();
            for sent in [&plain_sent, &cached_sent] {
                assert_eq!(*sent.lock().unwrap(), all, "seed {seed} round {round}");
                sent.lock().unwrap().clear();
            }
            cached.lookup.maintain(0, 10, std::iter::empty);
        }
        assert_eq!(counters(&mut cached), counters(&mut plain), "seed {seed}");
    }
}

#[test]
fn rules_that_change_while_megaflows_exist_take_effect_at_once() {
    for seed in 0..60u64 {
        let r = &mut Random(seed);
        let mut rules = random_rules(r, 3);
        let (mut cached, sent) = worker(&rules, 3, CacheConfig::default(), By::pick(seed));
        for step in 0..60 {
            if r.next(2) == 0 && !rules.is_empty() {
                let rule = rules.swap_remove(r.next(rules.len() as u32) as usize);
                let pipeline = &mut cached.lookup.pipeline;
                if let Some(id) = pipeline.find_rule(rule.table, rule.priority, &rule.matches) {
                    pipeline.remove_rule(rule.table, id);
                }
            } else {
                for rule in random_rules(r, 3).into_iter().take(2) {
                    cached.lookup.pipeline.add_rule(rule.clone()).unwrap();
                    rules.push(rule);
                }
            }
            for _ in 0..10 {
                let bytes = packet(r);
                cached.inject(0, &[&bytes]).unwrap();
                let wanted = interpret(&cached.lookup.pipeline, 1, &bytes);
                assert_eq!(std::mem::take(&mut *sent.lock().unwrap()), wanted, "seed {seed} step {step}");
            }
        }
    }
}

#[test]
fn normal_learns_and_floods() {
    let rules = [Rule::new(Match::any(), vec![Action::Normal])];
    let (mut worker, sent) = worker(&rules, 1, CacheConfig::default(), By::Tuple);
    let frame = |from: u8, to: u8| {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, from], [2, 0, 0, 0, 0, to])
            .ipv4([1; 4], [2; 4], 9)
            .udp(1, 2)
            .write(&mut bytes, &[])
            .unwrap();
        bytes
    };
    let mut ports_of = |port: usize, from, to| -> Vec<u32> {
        worker.inject(port, &[&frame(from, to)]).unwrap();
        std::mem::take(&mut *sent.lock().unwrap()).into_iter().map(|(port, _)| port).collect()
    };
    assert_eq!(ports_of(0, 1, 2), [2, 3, 4]);
    assert_eq!(ports_of(2, 2, 1), [1]);
    assert_eq!(ports_of(0, 1, 2), [3]);
    assert_eq!(ports_of(3, 2, 1), [1]);
    assert_eq!(ports_of(0, 1, 2), [4]);
    assert_eq!(ports_of(3, 9, 2), Vec::<u32>::new());
}

#[test]
fn malformed_frames_are_dropped_or_forwarded_as_configured_and_counted() {
    let rules = [Rule::new(Match::any(), vec![Action::Output(PortNo(2))])];
    for policy in [MalformedPolicy::Drop, MalformedPolicy::Forward] {
        let (mut worker, sent) = worker(&rules, 1, CacheConfig::default(), By::Tuple);
        worker.egress.faults.policy = policy;
        worker.inject(0, &[&[0; 5], &[1; 20], &[0; 13]]).unwrap();
        let forwarded = if policy == MalformedPolicy::Drop { 1 } else { 3 };
        assert_eq!(sent.lock().unwrap().len(), forwarded);
        assert_eq!(worker.egress.faults.found[Malformed::EthernetTruncated as usize], 2);
    }
}

#[test]
fn a_decapsulating_port_matches_on_what_is_inside() {
    let mut matches = Match::any();
    matches.set(Field::TunId, 77).set(Field::TpDst, 53);
    let rules = [Rule::new(matches, vec![Action::Output(PortNo(2))])];
    let (mut worker, sent) = worker(&rules, 1, CacheConfig::default(), By::Tuple);
    worker.egress.ports.slots_mut()[0].decapsulate = true;
    let mut inner = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([1; 4], [2; 4], 9)
        .udp(1, 53)
        .write(&mut inner, b"q")
        .unwrap();
    let outer = |port, body: &[u8]| {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([6; 6], [8; 6])
            .ipv4([3; 4], [4; 4], 9)
            .udp(1, port)
            .write(&mut bytes, body)
            .unwrap();
        bytes
    };
    let vxlan = outer(4789, &[&[8, 0, 0, 0, 0, 0, 77, 0][..], &inner].concat());
    let gtpu = outer(2152, &[&[0x30, 255, 0, 29, 0, 0, 0, 77][..], &inner[14..]].concat());
    worker.inject(0, &[&vxlan, &gtpu]).unwrap();
    worker.inject(2, &[&vxlan]).unwrap();
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    let without_addresses = [&[0; 12][..], &inner[12..]].concat();
    assert_eq!(sent, [(2, inner), (2, without_addresses), (CONTROLLER, vxlan)][..2].to_vec());
}
