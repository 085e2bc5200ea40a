//! Rules that change while packets go through them, on two threads that hinder each other as they can.

mod catching_up;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etherparse::PacketBuilder;
use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::classify::{AclSearch, LinearSearch, ReplicatedEngine, TupleSearch};
use flowlane::packet::Field;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Command, FlowMod, Match, Priority, ReadOptions, Rule, read, read_changes};
use flowlane_switch::control::{ChurnClass, Control, Reason};
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, PortSlot, Until, Worker};
use flowlane_switch::datapath::{Given, Pipeline};
use flowlane_switch::packet::{Frame, Frames};
use flowlane_switch::port::{MemoryPort, Port, PortError, Received};
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::fdb::Fdb;

/// Destination ports of packets, each of which has a rule or none.
const SLOTS: u16 = 6;

#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Lets the other thread go ahead, now and then, for a while.
    fn hinder(&mut self) {
        match self.below(40) {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(Duration::from_micros(self.below(50))),
            2 => (0..self.below(2000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

/// The acknowledged version of each slot's rule, for all threads.
type Acknowledged = Arc<[AtomicU64; SLOTS as usize]>;

/// Packets to all slots.
struct Source {
    random: Random,
    made: Arc<AtomicU64>,
}

impl Port for Source {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        for _ in 0..=self.random.below(63) {
            let Some(frame) = frames.next_frame() else { break };
            let slot = self.random.below(SLOTS.into()) as u16;
            // Some flows come again, others never.
            let source =
                if self.random.below(2) == 0 { self.random.below(20) } else { self.random.below(1 << 24) };
            let [_, a, b, c] = (source as u32).to_be_bytes();
            let mut bytes = Vec::new();
            let packet = PacketBuilder::ethernet2([0; 6], [2; 6]).ipv4([10, a, b, c], [10, 0, 0, 1], 64);
            packet.udp(1000, slot).write(&mut bytes, &[]).expect("it fits");
            frame.fill(&bytes);
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        self.random.hinder();
        Ok(Received::More)
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(false)
    }
}

/// A packet that was sent: its slot, the version that had been acknowledged then, and that of the rule that sent it; none: it
/// matched no rule.
type Sent = Arc<Mutex<Vec<(u16, u64, Option<u64>)>>>;

struct Sink {
    acknowledged: Acknowledged,
    sent: Sent,
    controller: bool,
    random: Random,
}

impl Port for Sink {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        Ok(Received::Idle)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        let bytes = frame.bytes();
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let version = (!self.controller).then(|| number(&bytes[6..12]));
        let slot = number(&bytes[36..38]) as u16;
        let acknowledged = self.acknowledged[usize::from(slot)].load(Ordering::SeqCst);
        self.sent.lock().unwrap().push((slot, acknowledged, version));
        if self.random.below(20) == 0 {
            self.random.hinder();
        }
        Ok(true)
    }
}

fn rule(table: u8, priority: u32, slot: u16, version: u64) -> Rule {
    let mut matches = Match::any();
    matches.set(Field::EthType, 0x0800).set(Field::NwProto, 17).set(Field::TpDst, slot.into());
    let mark = Action::set_field(Field::EthSrc, version.into(), Field::EthSrc.info().ones());
    Rule {
        table,
        priority: Priority(priority),
        cookie: version,
        matches,
        actions: vec![mark, Action::Output(PortNo(2))],
    }
}

fn flow_mod(command: Command, rule: Rule) -> FlowMod {
    FlowMod { new_cookie: Some(rule.cookie), line: 1, ..FlowMod::new(command, rule) }
}

/// Stops a worker, whatever happens.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An access list that is rebuilt when its rules have changed.
fn tree() -> AclConfig {
    AclConfig::default().with_engine(AclEngine::Tree)
}

/// A switch whose last table has the rules; there may be one in front. Gives that table.
fn switch(seed: u64, acknowledged: &Acknowledged) -> (Worker, u8, Arc<AtomicU64>, Sent) {
    let mut pipeline = Pipeline::new();
    let engine = |tuple: bool| -> Box<dyn ReplicatedEngine> {
        match tuple {
            true => Box::new(TupleSearch::new(100, 7)),
            false => Box::new(AclSearch::new(tree())),
        }
    };
    let last = u8::from(seed % 2 == 1);
    for table in 0..=last {
        pipeline.add_table(table, "", engine((seed / 2).is_multiple_of(2)), Miss::Controller);
    }
    if last == 1 {
        let metadata = Action::set_field(Field::Metadata, 7, Field::Metadata.info().ones());
        pipeline.add_rule(Rule::new(Match::any(), vec![metadata, Action::Goto(1)])).unwrap();
    }
    let caches = match seed / 4 % 3 {
        0 => CacheConfig::default(),
        1 => CacheConfig {
            adaptive: false,
            exact_insert_inverse: 1,
            signature_insert_inverse: 1,
            ..CacheConfig::default()
        },
        _ => CacheConfig { megaflows_max: 0, ..CacheConfig::default() },
    };
    let (sent, made) = (Sent::default(), Arc::default());
    let mut egress = Egress::new(Fdb::new(100, 300, 1), 1);
    let sink = |controller| {
        let (acknowledged, sent) = (acknowledged.clone(), sent.clone());
        Sink { acknowledged, sent, controller, random: Random(seed + 9) }
    };
    egress.controller = Some(Box::new(sink(true)));
    let source = Source { random: Random(seed), made: Arc::clone(&made) };
    egress.ports.add(PortSlot::new(PortNo(1), "in", "", Box::new(source)));
    egress.ports.add(PortSlot::new(PortNo(2), "out", "", Box::new(sink(false))));
    (Worker::new(Lookup::new(pipeline, caches), egress, 64, Clock::Wall), last, made, sent)
}

/// The history of a slot: the versions in which it had no rule, and the priority of its rule now.
#[derive(Default)]
struct Slot {
    absent: BTreeSet<u64>,
    priority: Option<u32>,
}

/// Changes slots at random, for `steps` steps, and acknowledges versions in force. Returns the history of the slots.
fn change_at_random(
    control: &mut Control,
    table: u8,
    seed: u64,
    steps: u64,
    acknowledged: &Acknowledged,
) -> Vec<Slot> {
    let mut random = Random(seed ^ 0xabcd);
    let mut slots: Vec<Slot> =
        (0..SLOTS).map(|_| Slot { absent: BTreeSet::from([0]), priority: None }).collect();
    for version in 1..=steps {
        let mut mods = Vec::new();
        let mut changed = Vec::new();
        for _ in 0..=random.below(3) {
            let number = random.below(SLOTS.into()) as u16;
            let slot = &mut slots[usize::from(number)];
            if changed.contains(&number) {
                continue;
            }
            changed.push(number);
            let new = |priority| rule(table, priority, number, version);
            match (slot.priority, random.below(4)) {
                (Some(before), 0) => {
                    mods.push(flow_mod(Command::DeleteStrict, new(before)));
                    slot.priority = None;
                    slot.absent.insert(version);
                }
                (Some(before), 1) => {
                    // Another rule in its place.
                    let priority = 1 + random.below(1000) as u32;
                    mods.push(flow_mod(Command::DeleteStrict, new(before)));
                    mods.push(flow_mod(Command::Add, new(priority)));
                    slot.priority = Some(priority);
                }
                (Some(before), 2) => mods.push(flow_mod(Command::ModifyStrict, new(before))),
                (Some(before), _) => mods.push(flow_mod(Command::Add, new(before))),
                (None, _) => {
                    let priority = 1 + random.below(1000) as u32;
                    mods.push(flow_mod(Command::Add, new(priority)));
                    slot.priority = Some(priority);
                }
            }
        }
        if random.below(10) == 0 {
            // Not to be: the port is not there. Nothing of it may be seen.
            let mut bad = rule(table, 3, 0, 1 << 40);
            bad.actions.push(Action::Output(PortNo(77)));
            let mut refused = vec![
                flow_mod(Command::Add, rule(table, 4, 1, 1 << 40)),
                flow_mod(Command::Delete, rule(table, 0, 0, 0)),
            ];
            refused.push(flow_mod(Command::Add, bad));
            assert_eq!(control.change(&refused).unwrap_err().at, 2);
        }
        control.change(&mods).unwrap();
        if random.below(3) == 0 {
            control.rebuild_engines();
        }
        changed.iter().for_each(|slot| acknowledged[usize::from(*slot)].store(version, Ordering::SeqCst));
        random.hinder();
    }
    slots
}

#[test]
fn no_packet_meets_a_rule_that_is_gone_and_none_is_lost_or_counted_twice() {
    for seed in 0..12 {
        let acknowledged: Acknowledged = Arc::default();
        let (mut worker, table, made, sent) = switch(seed, &acknowledged);
        let mut control = Control::attach(&mut worker).unwrap();
        let built = Arc::new(AtomicU64::new(0));
        let count = built.clone();
        let build = move |rules: &[Given<'_>], _| -> Option<Box<dyn ReplicatedEngine>> {
            count.fetch_add(1, Ordering::Relaxed);
            Some(Box::new(AclSearch::build(tree(), rules.iter().copied()).unwrap()))
        };
        control.rebuild_with(table, Arc::new(build));
        control.set_rebuild_interval(Duration::ZERO);
        let stop = AtomicBool::new(false);
        let (slots, gone, statistics, missed) = std::thread::scope(|scope| {
            let running = scope.spawn(|| worker.run(Until::default(), &stop, |_| {}));
            let stopping = Stopping(&stop);
            let slots = change_at_random(&mut control, table, seed, 400, &acknowledged);
            let gone = control.wait_for_flow_removed();
            drop(stopping);
            running.join().unwrap().unwrap();
            let statistics = control.statistics(|_, _| true);
            let missed: u64 = (0..=table).map(|table| control.missed(table).unwrap()).sum();
            (slots, gone, statistics, missed)
        });
        let trees = seed / 2 % 2 == 1;
        assert!(!trees || built.load(Ordering::Relaxed) > 0, "seed {seed}: {built:?}");
        let made = made.load(Ordering::Relaxed);
        let sent = sent.lock().unwrap();
        assert_eq!(sent.len() as u64, made, "seed {seed}: every packet goes somewhere");
        for &(slot, acknowledged, version) in sent.iter() {
            match version {
                Some(version) => {
                    assert!(
                        version >= acknowledged && version < 1 << 40,
                        "seed {seed}: {version} {acknowledged}"
                    );
                }
                None => {
                    let absent = &slots[usize::from(slot)].absent;
                    assert!(
                        absent.range(acknowledged..).next().is_some(),
                        "seed {seed}: {slot} {acknowledged}"
                    );
                }
            }
        }
        let in_table = |n: u8| statistics.iter().filter(move |flow| flow.rule.table == n);
        assert_eq!(in_table(table).count(), slots.iter().filter(|slot| slot.priority.is_some()).count());
        let live: u64 = in_table(table).map(|flow| flow.count.packets).sum();
        let lost: u64 = gone.iter().map(|gone| gone.count.packets).sum();
        assert!(gone.iter().all(|gone| gone.reason == Reason::Deleted));
        assert_eq!(live + lost + missed, made, "seed {seed}: every packet is counted once");
        let unmatched = sent.iter().filter(|(.., version)| version.is_none()).count() as u64;
        assert_eq!(missed, unmatched, "seed {seed}");
    }
}

#[test]
fn a_tree_that_takes_changes_in_place_is_built_once_for_all_of_them() {
    let text = |n: u32| {
        format!(
            "priority={},tcp,nw_dst=10.{}.{}.0/24,tp_dst={},actions=output:2\n",
            n % 90,
            n / 256,
            n % 256,
            n
        )
    };
    let rules =
        read(&(0..1500).map(text).collect::<String>(), "rules", None, &ReadOptions::default()).unwrap();
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", Box::new(AclSearch::new(tree())), Miss::Drop);
    rules.iter().for_each(|rule| _ = pipeline.add_rule(rule.clone()).unwrap());
    let mut egress = Egress::new(Fdb::new(100, 300, 1), 1);
    for number in 1..=3 {
        egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(MemoryPort::new().0)));
    }
    let mut worker = Worker::new(Lookup::new(pipeline, CacheConfig::default()), egress, 64, Clock::Frames);
    let mut control = Control::attach(&mut worker).unwrap();
    let built = Arc::new(Mutex::new(Vec::new()));
    let classes = built.clone();
    let build = move |rules: &[Given<'_>], churn: ChurnClass| -> Option<Box<dyn ReplicatedEngine>> {
        classes.lock().unwrap().push(churn);
        Some(Box::new(AclSearch::build(tree(), rules.iter().copied()).unwrap()))
    };
    control.rebuild_with(0, Arc::new(build));
    control.set_rebuild_interval(Duration::ZERO);
    let change = |control: &mut Control, n: u32| {
        control
            .change(&changes(&format!("delete_strict {}", text(n).replace(",actions=output:2", ""))))
            .unwrap();
        control.change(&changes(&text(n))).unwrap();
    };
    let settle = |control: &mut Control| {
        for _ in 0..100 {
            control.rebuild_engines();
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    // The first changes wait until a tree has been built that takes changes.
    change(&mut control, 7);
    settle(&mut control);
    let first = built.lock().unwrap().len();
    assert!(first >= 1);
    // More than an eighth of the rules: none waits, and none leads to another build.
    for n in 0..600 {
        change(&mut control, n * 2);
        control.rebuild_engines();
    }
    settle(&mut control);
    let built = built.lock().unwrap();
    assert_eq!(built.len(), first, "{built:?}");
    assert!(!built.contains(&ChurnClass::High), "{built:?}");
}

/// A worker that does not run, with these rules in two tables of linear search, and every packet brings a megaflow.
fn still(rules: &str) -> (Worker, Control) {
    let mut pipeline = Pipeline::new();
    for table in 0..2 {
        pipeline.add_table(table, "", Box::new(LinearSearch::new(10)), Miss::Drop);
    }
    for rule in read(rules, "rules", None, &ReadOptions::default()).unwrap() {
        pipeline.add_rule(rule).unwrap();
    }
    let mut egress = Egress::new(Fdb::new(100, 300, 1), 1);
    for number in 1..=3 {
        egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(MemoryPort::new().0)));
    }
    let caches = CacheConfig { adaptive: false, ..CacheConfig::default() };
    let mut worker = Worker::new(Lookup::new(pipeline, caches), egress, 64, Clock::Frames);
    let control = Control::attach(&mut worker).unwrap();
    (worker, control)
}

fn udp(to: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet =
        PacketBuilder::ethernet2([0; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1000, to);
    packet.write(&mut bytes, b"x").unwrap();
    bytes
}

fn changes(text: &str) -> Vec<FlowMod> {
    read_changes(text, "changes", &ReadOptions::default()).unwrap()
}

#[test]
fn a_change_leaves_megaflows_alone_that_it_does_not_concern() {
    let (mut worker, mut control) =
        still("priority=1,udp,tp_dst=53,actions=output:2\npriority=1,udp,tp_dst=80,actions=output:2");
    let both = [udp(53), udp(80)];
    let both: Vec<&[u8]> = both.iter().map(Vec::as_slice).collect();
    worker.inject(0, &both).unwrap();
    assert_eq!((worker.lookup.slow, worker.lookup.restamped), (2, 0));
    control.change(&changes("add priority=7,udp,tp_dst=80,actions=output:3\ntcp,actions=drop")).unwrap();
    worker.inject(0, &both).unwrap();
    assert_eq!((worker.lookup.slow, worker.lookup.restamped), (3, 1));
    worker.inject(0, &both).unwrap();
    assert_eq!((worker.lookup.slow, worker.lookup.restamped), (3, 1));
    worker.lookup.collect_counters();
    let counted =
        control.statistics(|_, _| true).into_iter().map(|flow| (flow.rule.to_string(), flow.count.packets));
    let counted: Vec<(String, u64)> = counted.collect();
    let packets: Vec<u64> = counted.iter().map(|(_, packets)| *packets).collect();
    assert_eq!(packets, [3, 1, 2, 0], "{counted:?}");
}

#[test]
fn what_a_rule_has_written_is_what_a_change_to_a_later_table_is_about() {
    // The megaflow asks for metadata of zero, as packets come; the second table sees another.
    let (mut worker, mut control) =
        still("metadata=0,actions=set_field:5->metadata,goto_table:1\ntable=1,priority=1,actions=output:2");
    worker.inject(0, &[&udp(53)]).unwrap();
    control.change(&changes("table=1,priority=2,metadata=5,actions=output:3")).unwrap();
    worker.inject(0, &[&udp(53)]).unwrap();
    worker.lookup.collect_counters();
    let counted = control.statistics(|table, _| table == 1).into_iter().map(|flow| flow.count.packets);
    assert_eq!((counted.collect::<Vec<u64>>(), worker.lookup.restamped), (vec![1, 1], 0));
}

#[test]
fn flow_mods_do_what_openflow_says() {
    let (_, mut control) = still(
        "priority=5,udp,actions=output:2\npriority=5,udp,tp_dst=53,cookie=7,actions=output:2\ntcp,actions=drop",
    );
    let rules = |control: &Control| -> Vec<String> {
        control.statistics(|_, _| true).into_iter().map(|flow| flow.rule.to_string()).collect()
    };
    let mut change = |text: &str| control.change(&changes(text)).map(|a| (a.added, a.modified, a.removed));
    // Of one priority and match: in its place. As specific as: others, too.
    assert_eq!(change("priority=5,udp,actions=output:3"), Ok((0, 1, 0)));
    assert_eq!(change("modify udp,actions=in_port"), Ok((0, 2, 0)));
    assert_eq!(change("modify_strict priority=5,udp,actions=output:3"), Ok((0, 1, 0)));
    assert_eq!(change("modify_strict priority=6,udp,actions=output:3"), Ok((0, 0, 0)));
    assert_eq!(change("modify cookie=7/-1,actions=output:1"), Ok((0, 1, 0)));
    assert_eq!(change("delete out_port=2"), Ok((0, 0, 0)));
    assert_eq!(change("delete out_port=1"), Ok((0, 0, 1)));
    assert_eq!(change("delete_strict priority=5,udp"), Ok((0, 0, 1)));
    // All or none.
    let refused = change("priority=9,udp,actions=output:1\n\ndelete tcp\npriority=9,icmp,actions=output:9")
        .unwrap_err();
    assert_eq!((refused.at, refused.line), (2, 4));
    assert_eq!(refused.to_string(), "line 4: there is no port 9; those that there are: 1, 2, 3");
    assert!(change("table=3,actions=drop").unwrap_err().to_string().contains("no table 3"));
    assert!(change("actions=goto_table:2").unwrap_err().to_string().contains("does not exist"));
    let one_by_one: String = (0..20).map(|n| format!("priority={n},arp,actions=drop\n")).collect();
    assert!(change(&one_by_one).unwrap_err().to_string().contains("limit of 10 rules"));
    assert_eq!(rules(&control), ["table=0,priority=32768,tcp actions=drop"]);
    assert_eq!(control.change(&changes("delete")).map(|a| a.removed), Ok(1));
    assert!(rules(&control).is_empty());
}

#[test]
fn rules_are_removed_by_hard_and_idle_timeouts() {
    let (mut worker, mut control) = still("");
    let second = 1_000_000_000;
    let mut at = |control: &mut Control, s: u64, to: Option<u16>| {
        let frame = udp(to.unwrap_or(1));
        worker.inject_at(0, [(s * second, &frame[..])]).unwrap();
        worker.lookup.collect_counters();
        control.expire()
    };
    at(&mut control, 1, None);
    let rule = |to: u16, timeouts: &str| format!("udp,tp_dst={to},{timeouts},actions=output:2\n");
    let rules = [
        rule(10, "idle_timeout=10"),
        rule(20, "hard_timeout=25"),
        rule(30, "idle_timeout=5,hard_timeout=60"),
    ];
    control.change(&changes(&rules.concat())).unwrap();
    assert_eq!(at(&mut control, 4, Some(30)), 0);
    assert_eq!(at(&mut control, 8, Some(10)), 0);
    // 30 has been idle since second 4.
    assert_eq!(at(&mut control, 9, Some(20)), 1);
    assert_eq!(at(&mut control, 17, Some(20)), 0);
    assert_eq!(at(&mut control, 18, Some(20)), 1);
    assert_eq!(at(&mut control, 25, Some(20)), 0);
    assert_eq!(at(&mut control, 26, Some(20)), 1);
    at(&mut control, 27, None);
    at(&mut control, 28, None);
    let gone: Vec<_> = control
        .take_flow_removed()
        .into_iter()
        .map(|g| (g.reason, g.count.packets, g.duration.as_secs()))
        .collect();
    let expected = [(Reason::IdleTimeout, 1, 8), (Reason::IdleTimeout, 1, 17), (Reason::HardTimeout, 5, 25)];
    assert_eq!(gone, expected);
}

#[test]
fn a_large_change_is_repeated_in_slices_and_others_may_come_in_between() {
    let (_worker, mut control) = still("");
    let many = "udp,tp_dst=9,actions=drop\ndelete udp,tp_dst=9\n".repeat(5000);
    for n in 1..3 {
        control.change(&changes(&many)).unwrap();
        // It repeats the ten thousand, and leaves itself.
        control.change(&changes(&format!("udp,tp_dst={n},actions=drop"))).unwrap();
        assert!(control.catch_up_slice());
        control.change(&changes(&many)).unwrap();
        let slices = std::iter::repeat_with(|| control.catch_up_slice()).take_while(|done| !done).count();
        assert_eq!(slices, 2, "10,000 changes, 4,096 in a slice");
        assert_eq!(control.ruleset().table(0).unwrap().len(), n);
    }
}

#[test]
fn a_hundred_thousand_changes_leave_nothing_behind() {
    let (mut worker, mut control) = still("udp,actions=output:2");
    let mut random = Random(3);
    let frame = udp(5);
    let mut there = BTreeSet::new();
    for _ in 0..10_000 {
        let mods: String = (0..10)
            .map(|_| {
                let slot = random.below(8);
                match there.remove(&slot) {
                    true => format!("delete_strict priority=9,udp,tp_dst={slot}\n"),
                    false => {
                        there.insert(slot);
                        format!("priority=9,udp,tp_dst={slot},actions=output:3\n")
                    }
                }
            })
            .collect();
        control.change(&changes(&mods)).unwrap();
        worker.inject(0, &[&frame]).unwrap();
        control.take_flow_removed();
    }
    assert_eq!(control.ruleset().tables().map(|(_, table)| table.len()).sum::<usize>(), 1 + there.len());
    // Handles are used again: as many as went before the worker had brought its counters, at most.
    let end = control.ruleset().table(0).unwrap().rules().map(|(id, _)| id.0).max().unwrap();
    assert!(end < 1000, "{end}");
    assert!(worker.lookup.paths.len() < 10_000);
}
