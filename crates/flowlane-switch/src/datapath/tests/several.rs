//! Several workers send the same frames as one, in the order of each flow.

mod connections;
mod translating;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use flowlane::rule::{ReadOptions, read_changes};

use super::stateful_stages::{function, rule};
use super::*;
use crate::control::Control;
use crate::mgmt::report::Report;
use crate::packet::spread::flow_of;
use crate::packet::{Spread, Steer};
use crate::port::SharedPort;
use crate::stage::{AnyStage, AssetConfig, Assets, Filter, FilterConfig, Shard, ShardAwareRss, StageTable};
use crate::state::meter::{Meter, Rate};

/// Makes the answer to a frame.
type Answer = fn(&[u8]) -> Vec<u8>;

/// A port that returns frames, records those sent to it, and may answer them.
struct Source {
    number: u32,
    frames: VecDeque<(u64, Vec<u8>)>,
    sent: Sent,
    /// The answer to each frame that is sent here.
    answer: Option<Answer>,
    /// Answers that are still expected.
    open: u64,
    /// Number of frames at the end of `frames` that are held back for now.
    held: Arc<AtomicUsize>,
}

impl Source {
    fn new(number: u32, frames: impl IntoIterator<Item = (u64, Vec<u8>)>, sent: &Sent) -> Self {
        let frames = frames.into_iter().collect();
        Self { number, frames, sent: sent.clone(), answer: None, open: 0, held: Arc::default() }
    }
}

impl Port for Source {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        while self.frames.len() > self.held.load(Ordering::Relaxed) {
            let Some(frame) = frames.next_frame() else { return Ok(Received::More) };
            let (time_ns, bytes) = self.frames.pop_front().expect("there is one");
            frame.fill(&bytes);
            frame.time_ns = time_ns;
        }
        Ok(if self.open == 0 && self.frames.is_empty() { Received::Finished } else { Received::Idle })
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.sent.lock().unwrap().push((self.number, frame.bytes().to_vec()));
        if let Some(answer) = self.answer {
            self.frames.push_back((frame.time_ns, answer(frame.bytes())));
            self.open = self.open.saturating_sub(1);
        }
        Ok(true)
    }
}

/// Makes a stage for a number of workers, with a shard that none of them owns.
type Asked = fn(usize) -> StageTable;

/// The distribution of frames to workers.
#[derive(Clone, Copy, Debug)]
enum Spreading {
    /// One worker receives, and hands frames over.
    ByOne,
    /// One worker receives, and hands frames over to the worker that owns their shard of this stage.
    ByOneSteered(Asked),
    /// Each has its own queue, with the frames whose shard of this stage it owns.
    Steered(Asked),
    /// Each has its own queue.
    ByPort,
    /// Each has its own queue, with arbitrary frames, so that other workers own their shards.
    Wrong,
}

fn queues(source: Source, workers: usize, how: Spreading) -> Vec<Box<dyn Port>> {
    if matches!(how, Spreading::ByOne | Spreading::ByOneSteered(_)) {
        let handles = SharedPort::handles(Box::new(source), workers);
        return handles.into_iter().map(|handle| Box::new(handle) as _).collect();
    }
    let queue = |me| {
        let mut spread = spread(how, source.number, me, workers);
        let mut mine = |bytes: &[u8]| match how {
            Spreading::Wrong => flow_of(bytes) as usize % 7 % workers == me,
            _ => spread.is_mine(bytes, 0),
        };
        let frames = source.frames.iter().filter(|(_, bytes)| mine(bytes)).cloned();
        Box::new(Source::new(source.number, frames, &source.sent)) as _
    };
    (0..workers).map(queue).collect()
}

fn spread(how: Spreading, port: u32, me: usize, workers: usize) -> Spread {
    let steer = match how {
        Spreading::Steered(function) | Spreading::ByOneSteered(function) => {
            Some(Box::new(ShardAwareRss::new(function(workers), port)) as Box<dyn Steer>)
        }
        _ => None,
    };
    Spread::new(me, workers).steered(steer)
}

fn egresses(sources: Vec<Source>, sent: &Sent, workers: usize, how: Spreading) -> Vec<Egress> {
    let macs = Fdb::new(1000, 300, 1);
    let mut egresses: Vec<Egress> = (0..workers).map(|_| Egress::new(macs.share(), 1)).collect();
    for source in sources {
        let number = source.number;
        for (egress, queue) in egresses.iter_mut().zip(queues(source, workers, how)) {
            let mut slot = PortSlot::new(PortNo(number), &format!("port{number}"), "", queue);
            slot.spread = slot.port.needs_software_rss().then(|| spread(how, number, 0, workers));
            egress.ports.add(slot);
        }
    }
    for egress in &mut egresses {
        egress.controller = Some(Box::new(Recorder(CONTROLLER, sent.clone())));
    }
    egresses
}

fn switch(pipelines: Vec<Pipeline>, egresses: Vec<Egress>, cache: CacheConfig, clock: Clock) -> Switch {
    let both = pipelines.into_iter().zip(egresses);
    Switch::new(both.map(|(p, e)| Worker::new(Lookup::new(p, cache), e, 32, clock)).collect())
}

fn forked(mut pipeline: Pipeline, workers: usize) -> Vec<Pipeline> {
    let others = pipeline.fork(workers - 1);
    std::iter::once(pipeline).chain(others).collect()
}

/// Appends a frame's number as its last bytes, after the IP packet.
fn numbered(mut bytes: Vec<u8>, number: usize) -> Vec<u8> {
    bytes.extend((number as u32).to_be_bytes());
    bytes
}

fn number_of(bytes: &[u8]) -> usize {
    u32::from_be_bytes(*bytes.last_chunk().expect("it is numbered")) as usize
}

/// Groups the frames sent by flow and port, in order.
fn by_flow(frames: &[Vec<u8>], sent: Vec<(u32, Vec<u8>)>) -> HashMap<(u64, u32), Vec<Vec<u8>>> {
    let mut flows: HashMap<(u64, u32), Vec<Vec<u8>>> = HashMap::new();
    for (port, bytes) in sent {
        flows.entry((flow_of(&frames[number_of(&bytes)]), port)).or_default().push(bytes);
    }
    flows
}

/// Returns the counters that do not depend on which worker did the work.
fn told(switch: &mut Switch) -> serde_json::Value {
    let report = Report::of_all(switch.workers_mut()).expect("there is one");
    let ports: Vec<_> = report.ports.iter().map(|p| p.counters).collect();
    let rules: Vec<_> = report
        .tables
        .iter()
        .map(|t| (t.missed_packets, t.rules.iter().map(|r| (r.packets, r.bytes)).collect::<Vec<_>>()))
        .collect();
    let routes: Vec<_> = report
        .route_tables
        .iter()
        .map(|t| (t.missed_packets, t.next_hops.iter().map(|h| (h.packets, h.bytes)).collect::<Vec<_>>()))
        .collect();
    let mut malformed: Vec<_> = report.malformed.iter().map(|m| (m.reason.to_string(), m.packets)).collect();
    malformed.sort();
    serde_json::json!([
        ports,
        rules,
        routes,
        report.drops,
        malformed,
        report.controller_packets,
        report.counters
    ])
}

#[test]
fn any_number_of_workers_sends_the_same_of_each_flow_in_the_same_order() {
    // Fewer where each takes long: `.ci/threads`.
    let seeds = std::env::var("FLOWLANE_SEEDS").map_or(60, |seeds| seeds.parse().expect("a number"));
    let mut handed = 0;
    for seed in 0..seeds {
        let r = &mut Random(seed);
        let tables = 1 + r.next(4) as u8;
        let rules = random_rules(r, tables);
        let frames: Vec<Vec<u8>> = (0..400).map(|number| numbered(packet(r), number)).collect();
        let port_of = |number: usize| 1 + (number as u32 / 7) % 2;
        let cache = r.pick(&[
            no_caches(),
            CacheConfig { adaptive: false, ..CacheConfig::default() },
            CacheConfig::default(),
        ]);
        let mut before = None;
        for (workers, how) in
            [(1, Spreading::ByPort), (2, Spreading::ByOne), (2, Spreading::ByPort), (4, Spreading::ByOne)]
        {
            let (worker, _) = worker(&rules, tables, cache, By::pick(seed));
            let pipelines = forked(worker.lookup.pipeline, workers);
            let sent = Sent::default();
            let source = |port| {
                let mine = (0..frames.len()).filter(|&number| port_of(number) == port);
                Source::new(port, mine.map(|number| (0, frames[number].clone())), &sent)
            };
            let wanted: Vec<_> = (1..=2)
                .flat_map(|port| (0..frames.len()).filter(move |&number| port_of(number) == port))
                .flat_map(|number| interpret(&pipelines[0], port_of(number), &frames[number]))
                .collect();
            let egresses = egresses((1..=4).map(source).collect(), &sent, workers, how);
            let mut switch = switch(pipelines, egresses, cache, Clock::Wall);
            switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
            handed += switch.workers().iter().map(|worker| worker.handed).sum::<u64>();
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            // Ports take turns, so that frames of flows from both ports interleave.
            let by_port = |all: Vec<(u32, Vec<u8>)>| {
                let (one, two): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|(_, bytes)| port_of(number_of(bytes)) == 1);
                [by_flow(&frames, one), by_flow(&frames, two)]
            };
            assert!(by_port(sent) == by_port(wanted), "seed {seed}, {workers} workers, {how:?}");
            let told = told(&mut switch);
            assert_eq!(
                *before.get_or_insert_with(|| told.clone()),
                told,
                "seed {seed}, {workers} workers, {how:?}"
            );
        }
    }
    assert!(handed > 80 * seeds, "{handed}");
}

/// Returns a worker's shards of a learning filter (5) and of assets (6).
fn learning(shard: Shard) -> (StageTable, StageTable) {
    let (out, go) = (|port| Action::Output(PortNo(port)), Action::Goto);
    let fields = vec![Field::Ipv4Src, Field::TpSrc, Field::TpDst];
    let filter = FilterConfig { learn: true, shard, ..FilterConfig::new(fields, 500) };
    let filter = AnyStage::Filter(Filter::new(&filter).unwrap());
    let assets = AnyStage::Assets(Assets::new(AssetConfig { shard, ..AssetConfig::new(500) }));
    let to_controller = Action::controller(u16::MAX);
    (
        function(5, filter, vec![vec![go(6)], vec![out(4), go(6)]]),
        function(6, assets, vec![vec![go(9)], vec![to_controller, go(9)]]),
    )
}

/// Returns the workers' pipelines: rules (0), the learning filter (5), assets (6), and rules (9).
fn learning_pipelines(workers: usize) -> Vec<Pipeline> {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", By::Tuple.engine(), Miss::Drop);
    pipeline.add_table(9, "", By::Tuple.engine(), Miss::Drop);
    let (filter, assets) = learning(Shard { me: 0, of: workers });
    pipeline.add_stage(5, filter);
    pipeline.add_stage(6, assets);
    let tag = vec![Action::PushVlan(0x8100), set(Field::VlanVid, 7), Action::Goto(5)];
    let rules = [
        rule(0, 2, &[(Field::EthType, 0x800), (Field::NwProto, 6)], tag),
        rule(0, 1, &[], vec![Action::Goto(5)]),
        rule(9, 1, &[], vec![Action::Output(PortNo(3))]),
    ];
    rules.into_iter().for_each(|rule| _ = pipeline.add_rule(rule).unwrap());
    let mut all = forked(pipeline, workers);
    for (me, pipeline) in all.iter_mut().enumerate().skip(1) {
        let (filter, assets) = learning(Shard { me, of: workers });
        pipeline.set_stage(5, filter);
        pipeline.set_stage(6, assets);
    }
    all
}

fn udp(source: (u32, u16), destination: (u32, u16), payload: &[u8]) -> Vec<u8> {
    let eth = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ip = eth.ipv4(source.0.to_be_bytes(), destination.0.to_be_bytes(), 64);
    let mut bytes = Vec::new();
    ip.udp(source.1, destination.1).write(&mut bytes, payload).unwrap();
    bytes
}

#[test]
fn what_one_learns_is_known_whatever_worker_the_next_packet_comes_to() {
    let r = &mut Random(5);
    let frames: Vec<Vec<u8>> = (0..3000).map(|number| numbered(packet(r), number)).collect();
    let mut before = None;
    let (filter, assets): (Asked, Asked) =
        (|workers| learning(Shard::none_of(workers)).0, |workers| learning(Shard::none_of(workers)).1);
    for (workers, how) in [
        (1, Spreading::ByPort),
        (2, Spreading::ByOne),
        (3, Spreading::Wrong),
        (4, Spreading::ByPort),
        (2, Spreading::Steered(filter)),
        (4, Spreading::Steered(assets)),
        (3, Spreading::ByOneSteered(filter)),
    ] {
        let sent = Sent::default();
        let numbered =
            |port, on: bool| Source::new(port, frames.iter().filter(|_| on).map(|f| (0, f.clone())), &sent);
        let sources = (1..=4).map(|port| numbered(port, port == 1)).collect();
        let egresses = egresses(sources, &sent, workers, how);
        let mut switch = switch(learning_pipelines(workers), egresses, CacheConfig::default(), Clock::Wall);
        switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        let report = Report::of_all(switch.workers_mut()).expect("there is one");
        let stateful_stages: Vec<_> = report
            .stateful_stages
            .iter()
            .map(|f| {
                // Whether a new host comes with a new service depends on which of two flows is first.
                let flows = if f.kind == "filter" { &f.verdicts[..] } else { &[] };
                let verdicts: Vec<_> = flows.iter().map(|v| v.packets).collect();
                let mut events: Vec<_> = f.events.iter().map(|e| (e.reason.to_string(), e.packets)).collect();
                events.sort();
                let assets: Vec<_> = f
                    .assets
                    .iter()
                    .map(|a| (a.address, a.mac.clone(), a.service.clone(), a.packets))
                    .collect();
                (f.packets, f.entries, verdicts, events, assets)
            })
            .collect();
        let told = format!("{stateful_stages:?} {:?}", report.ports[0].counters.rx_bytes);
        assert_eq!(*before.get_or_insert_with(|| told.clone()), told, "{workers} workers, {how:?}");
        assert_eq!(switch.workers().iter().any(|worker| worker.handed > 0), workers > 1);
    }
}

#[test]
fn a_meter_keeps_one_rate_for_all_workers() {
    let rules = [rule(0, 1, &[], vec![Action::Meter(1), Action::Output(PortNo(2))])];
    for workers in [1, 2, 4] {
        let (worker, _) = worker(&rules, 1, CacheConfig::default(), By::Tuple);
        let sent = Sent::default();
        let frames =
            (0..20_000u32).map(|n| (0, udp((0x0a00_0000 + n % 500, 1), (0x0a01_0000, 2), &n.to_be_bytes())));
        let sources = vec![Source::new(1, frames, &sent), Source::new(2, [], &sent)];
        let mut egresses = egresses(sources, &sent, workers, Spreading::ByOne);
        let meter = Arc::new(Meter::new(Rate::Pps(1), 1000));
        egresses.iter_mut().for_each(|egress| egress.add_meter(1, meter.clone()));
        let mut switch =
            switch(forked(worker.lookup.pipeline, workers), egresses, CacheConfig::default(), Clock::Frames);
        switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        let passed = sent.lock().unwrap().len();
        assert_eq!((passed, meter.counters().passed.0, meter.counters().dropped.0), (1000, 1000, 19_000));
        let report = Report::of_all(switch.workers_mut()).expect("there is one");
        assert_eq!(
            (report.drops.metered, report.meters[0].passed_packets),
            (19_000, 1000),
            "{workers} workers"
        );
    }
}

#[test]
fn an_address_that_one_worker_has_learnt_all_know() {
    let mut tables = vec![Fdb::new(100_000, 300, 3)];
    tables.extend((1..4).map(|_| tables[0].share()).collect::<Vec<_>>());
    // While all learn and the table grows, a lookup finds a station's current or former port.
    std::thread::scope(|scope| {
        for (place, table) in (0u64..).zip(&mut tables) {
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let mac = 1 + (round * 4 + place) * 2;
                    table.learn(mac, 0, PortNo(mac as u32 % 97), 1);
                    let other = 1 + (round * 7 % (round * 4 + 4)) * 2;
                    if let Some(port) = table.lookup(other, 0, 1) {
                        assert_eq!(port, PortNo(other as u32 % 97));
                    }
                    if round % 64 == 0 {
                        table.sweep(1, 64);
                    }
                }
            });
        }
    });
    for table in &mut tables {
        // A handle takes the slots of the grown table when it next learns.
        table.learn(1, 0, PortNo(1), 1);
        assert_eq!(table.len(), 80_000);
        assert!(
            (0..80_000u64).all(|n| table.lookup(1 + n * 2, 0, 1) == Some(PortNo((1 + n * 2) as u32 % 97)))
        );
    }
    assert_eq!(tables[2].counters().learned, 80_000);
}

#[test]
fn rules_change_for_all_workers_at_once_and_counters_are_kept() {
    // Frames released with every change, so that rules change while frames flow.
    const FRAMES_A_CHANGE: usize = 10_000;
    let rules = [rule(0, 1, &[], vec![Action::Output(PortNo(2))])];
    for workers in [2, 4] {
        let (worker, _) = worker(&rules, 1, CacheConfig::default(), By::Tuple);
        let sent = Sent::default();
        let frames =
            (0..400_000u32).map(|n| (0, udp((0x0a00_0000 + n % 500, 1), (0x0a01_0000, 2), &n.to_be_bytes())));
        let sources =
            vec![Source::new(1, frames, &sent), Source::new(2, [], &sent), Source::new(3, [], &sent)];
        let held = sources[0].held.clone();
        held.store(400_000 - FRAMES_A_CHANGE, Ordering::Relaxed);
        let egresses = egresses(sources, &sent, workers, Spreading::ByPort);
        let mut switch =
            switch(forked(worker.lookup.pipeline, workers), egresses, CacheConfig::default(), Clock::Wall);
        let mut control = Control::attach_all(switch.workers_mut()).expect("no other control is attached");
        let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut changes = 0;
        let gone = std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                switch.run(Until::default(), &stop, |_| {}).unwrap();
                ended.store(true, Ordering::Relaxed);
            });
            let mut gone = 0;
            while !ended.load(Ordering::Relaxed) {
                let port = 2 + changes % 2;
                let line = if changes % 4 < 2 { "add" } else { "delete_strict" };
                let text = match line {
                    "add" => {
                        format!("add priority=5,ip,nw_src=10.0.0.{} actions=output:{port}", changes / 4 % 5)
                    }
                    _ => format!("delete_strict priority=5,ip,nw_src=10.0.0.{}", changes / 4 % 5),
                };
                let mods = read_changes(&text, "", &ReadOptions::default()).unwrap();
                // Where a change fails, the run ends all the same.
                control.change(&mods).inspect_err(|_| held.store(0, Ordering::Relaxed)).unwrap();
                gone += control.take_flow_removed().iter().map(|gone| gone.count.packets).sum::<u64>();
                changes += 1;
                held.store(held.load(Ordering::Relaxed).saturating_sub(FRAMES_A_CHANGE), Ordering::Relaxed);
            }
            running.join().unwrap();
            gone + control.wait_for_flow_removed().iter().map(|gone| gone.count.packets).sum::<u64>()
        });
        assert_eq!(sent.lock().unwrap().len(), 400_000);
        let counted: u64 = control.statistics(|_, _| true).iter().map(|flow| flow.count.packets).sum();
        assert_eq!(
            counted + gone,
            400_000,
            "{workers} workers, {changes} changes: every packet counts for one rule"
        );
    }
}

/// Panics when it is asked.
struct Broken;

impl Port for Broken {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        panic!("a port is broken")
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(true)
    }
}

/// Never ends by itself.
struct Endless;

impl Port for Endless {
    fn receive(&mut self, _: &mut Frames) -> Result<Received, PortError> {
        Ok(Received::Idle)
    }

    fn send(&mut self, _: &Frame) -> Result<bool, PortError> {
        Ok(true)
    }
}

#[test]
fn where_one_worker_panics_the_others_stop_and_it_is_said() {
    let pipelines = forked(Pipeline::new(), 3);
    let egress = |place| {
        let mut egress = Egress::new(Fdb::new(10, 300, 1), 1);
        let port: Box<dyn Port> = if place == 1 { Box::new(Broken) } else { Box::new(Endless) };
        egress.ports.add(PortSlot::new(PortNo(1), "a", "", port));
        egress
    };
    let mut switch = switch(pipelines, (0..3).map(egress).collect(), no_caches(), Clock::Wall);
    let error = switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap_err();
    let RunError::Panicked { worker, message } = error else { panic!("{error}") };
    assert_eq!((worker, message.as_str()), (1, "a port is broken"));
}

#[test]
fn so_many_packets_are_taken_as_were_asked_for_whatever_worker_takes_them() {
    for (workers, how) in [(2, Spreading::ByOne), (4, Spreading::ByPort), (3, Spreading::ByPort)] {
        let sent = Sent::default();
        let frames =
            (0..50_000u32).map(|n| (0, udp((0x0a00_0000 + n, 1), (0x0a01_0000, 2), &n.to_be_bytes())));
        let egresses = egresses(vec![Source::new(1, frames, &sent)], &sent, workers, how);
        let mut switch = switch(forked(Pipeline::new(), workers), egresses, no_caches(), Clock::Wall);
        let until = Until { packets: Some(12_345), duration: None };
        let told = Mutex::new(0);
        switch.run(until, &AtomicBool::new(false), |n| *told.lock().unwrap() = n).unwrap();
        let report = Report::of_all(switch.workers_mut()).expect("there is one");
        assert_eq!(report.ports[0].counters.rx_packets, 12_345, "{workers} workers, {how:?}");
        // Once more, to the end.
        switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        let report = Report::of_all(switch.workers_mut()).expect("there is one");
        assert_eq!(
            (report.ports[0].counters.rx_packets, report.drops.by_rule),
            (50_000, 50_000),
            "{workers}, {how:?}"
        );
    }
}
