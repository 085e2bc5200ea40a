//! Stateful stages in series after the tables of rules, followed by routes and rules again.

use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;

use flowlane::rule::{ReadOptions, read_changes};

use super::*;
use crate::control::Control;
use crate::stage::nat::Forward;
use crate::stage::route::{HopSpec, RouteTable, RouteTableConfig};
use crate::stage::{
    AnyStage, AssetConfig, Assets, Filter, FilterConfig, Lookups, Nat, NatConfig, StageTable,
};

pub(super) fn function(number: u8, kind: AnyStage, actions: Vec<Vec<Action>>) -> StageTable {
    StageTable::new(number, "", kind, actions).expect("the actions are right")
}

pub(super) fn rule(table: u8, priority: u32, matches: &[(Field, u128)], actions: Vec<Action>) -> Rule {
    let mut all = Match::any();
    matches.iter().for_each(|&(field, value)| _ = all.set(field, value));
    Rule { table, priority: Priority(priority), cookie: 0, matches: all, actions }
}

fn add_table(pipeline: &mut Pipeline, number: u8, by: By) {
    match by {
        By::Later(batch_max) => {
            pipeline.add_deferred_table(number, "", deferred::patient(batch_max), Miss::Drop);
        }
        by => pipeline.add_table(number, "", by.engine(), Miss::Drop),
    }
}

/// Rules (0), a filter that learns (5), assets (6), translation (7), routes (8), rules (9).
fn pipeline(lookups: Lookups, by: By) -> Pipeline {
    let (out, go) = (|port| Action::Output(PortNo(port)), Action::Goto);
    let mut pipeline = Pipeline::new();
    add_table(&mut pipeline, 0, by);
    let filter =
        FilterConfig { lookups, learn: true, ..FilterConfig::new(vec![Field::TpSrc, Field::TpDst], 5) };
    let filter = AnyStage::Filter(Filter::new(&filter).unwrap());
    pipeline.add_stage(5, function(5, filter, vec![vec![go(6)], vec![out(4), go(6)]]));
    let assets = AnyStage::Assets(Assets::new(AssetConfig { lookups, ..AssetConfig::new(4) }));
    let to_controller = Action::controller(u16::MAX);
    pipeline.add_stage(6, function(6, assets, vec![vec![go(7)], vec![to_controller, go(7)]]));
    let forward = Forward::v4(ip_proto::UDP, (0x0a01_0001, 53), (0x0a00_0002, 4000));
    let nat = NatConfig {
        lookups,
        hairpin: true,
        forwards: vec![forward],
        ports: (50, 60),
        ..NatConfig::new(vec![Prefix::truncated(0x0a00_0000, 16)], vec![(0x0a01_0001, 0x0a01_0001)], 6)
    };
    let nat = AnyStage::Nat(Nat::new(nat).unwrap());
    let pop = vec![Action::PopVlan, go(9)];
    pipeline.add_stage(7, function(7, nat, vec![vec![go(8)], pop, vec![Action::InPort], vec![go(9)]]));
    let hops = vec![("a".to_owned(), HopSpec::Actions(vec![Action::dec_ttl(), out(2)]))];
    let routes =
        RouteTableConfig { number: 8, routes_max: 1, memory_max: 128 << 20, ..RouteTableConfig::default() };
    pipeline.add_routes(8, RouteTable::new(routes, hops, &[(Prefix::truncated(0, 0), 0)], &[]).unwrap());
    add_table(&mut pipeline, 9, by);
    let tag = vec![Action::PushVlan(0x8100), set(Field::VlanVid, 7), go(5)];
    let mark = vec![set(Field::Reg0, 2), go(5)];
    let rules = [
        rule(0, 3, &[(Field::EthType, 0x800), (Field::NwProto, 6)], tag),
        rule(
            0,
            2,
            &[(Field::EthType, 0x800), (Field::Ipv4Dst, 0x0a01_0002)],
            vec![set(Field::Ipv4Dst, 0x0a01_0001), go(7)],
        ),
        rule(0, 1, &[], mark),
        // Only what translation has made of the packet shows this.
        rule(9, 3, &[(Field::EthType, 0x800), (Field::NwProto, 17), (Field::TpDst, 4000)], vec![out(1)]),
        rule(9, 2, &[(Field::Reg0, 2)], vec![out(3)]),
        rule(9, 1, &[], vec![out(4)]),
    ];
    rules.into_iter().for_each(|rule| _ = pipeline.add_rule(rule).unwrap());
    pipeline
}

fn with_functions(cache: CacheConfig, lookups: Lookups) -> (Worker, Sent) {
    let (mut worker, sent) = worker(&[], 1, cache, By::Tuple);
    worker.lookup = Lookup::new(pipeline(lookups, By::Tuple), cache);
    (worker, sent)
}

/// A stage's number and packets, and the packets and bytes of each verdict.
pub(super) type Counted = (u8, u64, Vec<(u64, u64)>);

/// Returns the counters of all stages.
pub(super) fn counted(worker: &Worker) -> Vec<Counted> {
    let functions = worker.lookup.pipeline.stages();
    let verdicts = |f: &StageTable| f.verdicts().iter().map(|v| (v.packets, v.bytes)).collect();
    functions.map(|(number, f)| (number, f.packets, verdicts(f))).collect()
}

/// Changes to rules before and after the stages.
const CHANGES: [&str; 8] = [
    "add table=0,priority=4,udp,tp_dst=80,actions=goto_table:7",
    "delete table=0,udp,tp_dst=80",
    "add table=0,priority=9,tcp,nw_ttl=3,actions=output:2",
    "delete_strict table=0,priority=9,tcp,nw_ttl=3",
    "add table=9,priority=4,reg0=2,actions=output:1",
    "delete_strict table=9,priority=4,reg0=2",
    "modify_strict table=9,priority=2,reg0=2,actions=output:4",
    "modify_strict table=9,priority=2,reg0=2,actions=output:3",
];

#[test]
fn bursts_through_functions_are_packets_one_after_the_other_with_caches_and_without() {
    for seed in 0..60u64 {
        let changes = seed % 2 == 1;
        let r = &mut Random(seed);
        let (mut alone, alone_sent) = with_functions(no_caches(), Lookups::Scalar);
        let (mut plain, plain_sent) = with_functions(no_caches(), Lookups::Batch);
        let caches = CacheConfig { exact_insert_inverse: 1, ..CacheConfig::default() };
        let (mut cached, cached_sent) = with_functions(caches, Lookups::Batch);
        let mut told_right = 0;
        let mut controls =
            [&mut alone, &mut plain, &mut cached].map(|worker| Control::attach(worker).unwrap());
        for round in 0..20 {
            if changes {
                let mods = read_changes(r.pick(&CHANGES), "changes", &ReadOptions::default()).unwrap();
                let made = controls.each_mut().map(|control| control.change(&mods).unwrap());
                assert!(made[0] == made[1] && made[1] == made[2]);
                alone.lookup.follow(0);
            }
            let port = r.next(2) as usize;
            let frames: Vec<Vec<u8>> = (0..32).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            plain.inject(port, &borrowed).unwrap();
            cached.inject(port, &borrowed).unwrap();
            for frame in &borrowed {
                let (before, told) = (alone_sent.lock().unwrap().len(), traced(&alone, port, frame));
                alone.inject(port, &[frame]).unwrap();
                // The trace predicts the frames sent, unless NAT has yet to draw a source port.
                told_right += usize::from(told.is_some());
                let is = alone_sent.lock().unwrap()[before..].to_vec();
                assert!(
                    told.as_ref().is_none_or(|told| *told == is),
                    "seed {seed} {frame:02x?}\n want {told:02x?}\n   is {is:02x?}"
                );
            }
            let [a, b, c] =
                [&alone_sent, &plain_sent, &cached_sent].map(|s| std::mem::take(&mut *s.lock().unwrap()));
            assert_eq!(b, c, "seed {seed}, round {round}");
            assert_eq!(a, b, "seed {seed}, round {round}");
        }
        assert!(told_right > 300, "{told_right}");
        assert_eq!(counted(&alone), counted(&plain), "seed {seed}");
        assert_eq!(counted(&cached), counted(&plain), "seed {seed}");
        assert_eq!(alone.egress.drops, plain.egress.drops, "seed {seed}");
        assert_eq!(cached.egress.drops, plain.egress.drops, "seed {seed}");
        let counts = counted(&plain);
        let of_rules = [&mut alone, &mut plain, &mut cached].map(counters);
        assert!(of_rules[0] == of_rules[1] && of_rules[1] == of_rules[2], "seed {seed}: {of_rules:?}");
        if changes {
            continue;
        }
        assert!(counts.iter().all(|(_, packets, _)| *packets > 100), "{counts:?}");
        assert!(plain.egress.drops.stage_refused > 0);
    }
}

#[test]
fn functions_behind_tables_that_answer_later_do_what_they_do_behind_others() {
    for seed in 0..20u64 {
        let r = &mut Random(seed);
        let caches = CacheConfig { exact_insert_inverse: 1, ..CacheConfig::default() };
        let (mut plain, plain_sent) = with_functions(no_caches(), Lookups::Batch);
        let (mut later, sent) = with_functions(caches, Lookups::Batch);
        later.lookup = Lookup::new(pipeline(Lookups::Batch, By::Later(r.pick(&[1, 3, 40]))), caches);
        for round in 0..200 {
            let (port, bytes) = (r.next(2) as usize, packet(r));
            plain.inject(port, &[&bytes]).unwrap();
            later.inject(port, &[&bytes]).unwrap();
            later.settle().unwrap();
            later.egress.flush().unwrap();
            let [wanted, sent] = [&plain_sent, &sent].map(|s| std::mem::take(&mut *s.lock().unwrap()));
            assert_eq!(sent, wanted, "seed {seed}, packet {round}");
        }
        assert_eq!(counted(&later), counted(&plain), "seed {seed}");
        assert_eq!((later.egress.drops, later.waiting()), (plain.egress.drops, 0), "seed {seed}");
    }
}

/// Rules (0), a set of ports that stays as it is (5), rules (9).
fn with_a_set(cache: CacheConfig, by: By) -> (Worker, Sent) {
    let (mut worker, sent) = worker(&[], 1, cache, By::Tuple);
    let mut pipeline = Pipeline::new();
    add_table(&mut pipeline, 0, by);
    let mut set = Filter::new(&FilterConfig::new(vec![Field::TpDst], 5)).unwrap();
    let mut key = FlowKey::zero();
    key.set(Field::TpDst, 53);
    set.insert(&key, crate::stage::ageing::NEVER).unwrap();
    let hit = vec![Action::PushVlan(0x8100), Action::Goto(9)];
    let miss = vec![Action::Goto(9)];
    pipeline.add_stage(5, function(5, AnyStage::Filter(set), vec![hit, miss]));
    add_table(&mut pipeline, 9, by);
    let rules = [
        rule(0, 1, &[], vec![Action::Goto(5)]),
        rule(0, 2, &[(Field::EthType, 0x800), (Field::NwProto, 1)], vec![Action::Output(PortNo(3))]),
        rule(9, 1, &[], vec![Action::Output(PortNo(2))]),
        rule(9, 2, &[(Field::VlanTci, 0x1000)], vec![Action::Output(PortNo(4))]),
    ];
    rules.into_iter().for_each(|rule| _ = pipeline.add_rule(rule).unwrap());
    worker.lookup = Lookup::new(pipeline, cache);
    (worker, sent)
}

#[test]
fn bursts_that_have_waited_for_an_answer_go_through_a_function_together() {
    let mut packets = [0; 5];
    for seed in 0..40u64 {
        let r = &mut Random(seed);
        let (mut plain, plain_sent) = with_a_set(no_caches(), By::Tuple);
        let (mut later, sent) = with_a_set(no_caches(), By::Later(r.pick(&[1, 7, 32, 1000])));
        for round in 0..10 {
            let frames: Vec<Vec<u8>> = (0..32).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            plain.inject(0, &borrowed).unwrap();
            later.inject(0, &borrowed).unwrap();
            later.settle().unwrap();
            later.egress.flush().unwrap();
            let [mut a, mut b] = [&plain_sent, &sent].map(|s| std::mem::take(&mut *s.lock().unwrap()));
            a.sort();
            b.sort();
            assert_eq!(a, b, "seed {seed}, round {round}");
            a.iter().for_each(|(port, _)| packets[*port as usize] += 1);
        }
        assert_eq!(counted(&later), counted(&plain), "seed {seed}");
    }
    assert!(packets[2..].iter().all(|&n| n > 100), "packets by port: {packets:?}");
}

/// A port that returns frames with timestamps, after a number of idle rounds.
struct Timed(u32, std::vec::IntoIter<(u64, Vec<u8>)>);

impl Port for Timed {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        if self.0 > 0 {
            self.0 -= 1;
            return Ok(Received::Idle);
        }
        let Some((time_ns, bytes)) = self.1.next() else { return Ok(Received::Finished) };
        let frame = frames.next_frame().expect("a burst has room for one");
        frame.fill(&bytes);
        frame.time_ns = time_ns;
        Ok(Received::More)
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(true)
    }
}

/// A request from inside at these times; gives the outside ports by which it left, and sessions made and gone.
fn asked_at(idle_rounds: u32, times_ns: &[u64]) -> (Vec<[u8; 2]>, u64, u64) {
    let mut request = Vec::new();
    let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 9);
    ip.udp(1000, 53).write(&mut request, b"request").unwrap();
    let (mut worker, sent) = with_functions(CacheConfig::default(), Lookups::Batch);
    let frames: Vec<_> = times_ns.iter().map(|&time| (time, request.clone())).collect();
    worker.egress.ports.slots_mut()[0].port = Box::new(Timed(idle_rounds, frames.into_iter()));
    worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    let sent = sent.lock().unwrap();
    let ports = sent.iter().filter(|(port, _)| *port == 2).map(|(_, f)| [f[34], f[35]]).collect();
    let (_, function) = worker.lookup.pipeline.stages().nth(2).unwrap();
    let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
    (ports, nat.counters().created, nat.counters().aged)
}

#[test]
fn sessions_age_by_the_workers_clock() {
    // 300 s without a packet end a session; those behind the gap are one again.
    let seconds = [0, 10, 250, 549, 900, 1199];
    let ages = |idle_rounds, begin: u64, first: u64| {
        let mut times = seconds.map(|s| begin + s * NS);
        times[0] = first;
        let (ports, created, aged) = asked_at(idle_rounds, &times);
        // The port is free again, so the same end gets it again.
        assert!(ports.len() == 6 && ports.iter().all(|p| *p == ports[0]), "{ports:?}");
        assert_eq!((created, aged), (2, 1));
    };
    let epoch = 1_700_000_000 * NS;
    ages(0, epoch, epoch);
    // The maintenance of the 32nd round comes before the first frame.
    ages(40, epoch, epoch);
    ages(0, 0, 0);
}

/// Nanoseconds in a second.
const NS: u64 = 1_000_000_000;
