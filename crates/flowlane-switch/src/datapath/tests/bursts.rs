//! What happens to frames depends on the frames and their times, and not on how many come at once.

use std::sync::Arc;

use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;

use super::stateful_stages::{counted, function, rule};
use super::*;
use crate::stage::ageing::idle_ticks;
use crate::stage::nat::Forward;
use crate::stage::{AnyStage, AssetConfig, Assets, Filter, FilterConfig, Nat, NatConfig};
use crate::state::meter::{Meter, Rate};

const SECOND: u64 = 1_000_000_000;

/// A port that gives frames with their times, and notes what it is sent.
pub(super) struct Capture {
    pub(super) frames: std::vec::IntoIter<(u64, Vec<u8>)>,
    pub(super) out: Recorder,
}

impl Port for Capture {
    fn receive(&mut self, frames: &mut Frames) -> Result<Received, PortError> {
        while !frames.is_full() {
            let Some((time_ns, bytes)) = self.frames.next() else { return Ok(Received::Finished) };
            let frame = frames.next_frame().unwrap();
            frame.fill(&bytes);
            frame.time_ns = time_ns;
        }
        Ok(Received::More)
    }

    fn send(&mut self, frame: &Frame) -> Result<bool, PortError> {
        self.out.send(frame)
    }
}

/// A worker whose first ports give these frames.
fn replaying(
    captures: &[Vec<(u64, Vec<u8>)>],
    pipeline: Pipeline,
    burst: usize,
    cache: CacheConfig,
) -> (Worker, Sent) {
    let sent = Sent::default();
    let mut egress = Egress::new(Fdb::new(4, 20, 1), 1);
    egress.controller = Some(Box::new(Recorder(CONTROLLER, sent.clone())));
    egress.add_meter(1, Arc::new(Meter::new(Rate::Pps(1), 1)));
    for number in 1..=4u32 {
        let frames = captures.get(number as usize - 1).cloned().unwrap_or_default().into_iter();
        let port = Capture { frames, out: Recorder(number, sent.clone()) };
        egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(port)));
    }
    (Worker::new(Lookup::new(pipeline, cache), egress, burst, Clock::Frames), sent)
}

/// Rules of all kinds (0 to 2), a filter that learns (5), assets (6), translation (7): each forgets within seconds.
fn pipeline(rules: &[Rule]) -> Pipeline {
    let (out, go) = (|port| Action::Output(PortNo(port)), Action::Goto);
    let mut pipeline = Pipeline::new();
    for number in [0, 1, 2, 9] {
        pipeline.add_table(number, "", By::Tuple.engine(), Miss::Continue);
    }
    let fields = vec![Field::TpSrc, Field::TpDst];
    let filter = FilterConfig { learn: true, idle: idle_ticks(5), ..FilterConfig::new(fields, 3) };
    let filter = AnyStage::Filter(Filter::new(&filter).unwrap());
    pipeline.add_stage(5, function(5, filter, vec![vec![go(6)], vec![out(4), go(6)]]));
    let assets = AnyStage::Assets(Assets::new(AssetConfig { idle: idle_ticks(3), ..AssetConfig::new(3) }));
    pipeline.add_stage(6, function(6, assets, vec![vec![go(7)], vec![Action::Normal, go(7)]]));
    let forward = Forward::v4(ip_proto::UDP, (0x0a01_0001, 53), (0x0a00_0002, 4000));
    let mut nat = NatConfig {
        forwards: vec![forward],
        ports: (50, 60),
        ..NatConfig::new(vec![Prefix::truncated(0x0a00_0000, 16)], vec![(0x0a01_0001, 0x0a01_0001)], 4)
    };
    nat.idle.udp = 10_000;
    let nat = AnyStage::Nat(Nat::new(nat).unwrap());
    let pop = vec![Action::PopVlan, go(9)];
    pipeline.add_stage(7, function(7, nat, vec![vec![out(3)], pop, vec![Action::InPort], vec![go(9)]]));
    for rule in rules {
        let leads = rule.actions.iter().any(|a| matches!(a, Action::Goto(_)));
        let mut actions: Vec<Action> =
            rule.actions.iter().filter(|a| !matches!(a, Action::Goto(_))).cloned().collect();
        match rule.priority.0 {
            0 => actions.insert(0, Action::Meter(1)),
            1 => actions.push(Action::Normal),
            _ => {}
        }
        actions.extend(leads.then_some(go(if rule.table < 2 {
            rule.table + 1
        } else {
            5 + rule.priority.0 as u8 % 3
        })));
        pipeline.add_rule(Rule { actions, ..rule.clone() }).unwrap();
    }
    pipeline.add_rule(rule(9, 1, &[], vec![Action::Meter(1), out(4)])).unwrap();
    pipeline
}

/// Everything that is counted, but for what bursts and caches cost.
fn all_counted(worker: &mut Worker) -> String {
    let (macs, meters) = (worker.egress.macs.counters(), &worker.egress.meters);
    let first = format!("{macs:?} {meters:?} {:?} {:?}", worker.egress.drops, worker.egress.faults.found);
    let ports: Vec<PortCounters> = worker.egress.ports.slots().iter().map(|slot| slot.counters).collect();
    format!("{first} {ports:?} {:?} {:?}", counted(worker), counters(worker))
}

#[test]
fn what_a_capture_gives_does_not_depend_on_bursts() {
    let (mut metered, mut translated) = (0, 0);
    for seed in 0..60u64 {
        let r = &mut Random(seed);
        let rules = random_rules(r, 3);
        let mut capture = |ports: u64| {
            let mut time_ns = 1_000_000 * SECOND;
            let mut frame = || {
                time_ns += r.pick(&[0u64, 0, 0, 1, 300, 1000, 7000]) * SECOND * ports / 1000;
                let mut bytes = packet(r);
                if r.next(20) == 0 {
                    bytes.truncate(bytes.len() - 3);
                }
                (time_ns, bytes)
            };
            (0..200).map(|_| frame()).collect::<Vec<_>>()
        };
        let captures = [capture(1), if seed % 2 == 0 { capture(2) } else { Vec::new() }];
        let mut run = |burst, cache| {
            let (mut worker, sent) = replaying(&captures, pipeline(&rules), burst, cache);
            worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
            metered += worker.egress.drops.metered;
            translated += counted(&worker)[2].1;
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            (sent, all_counted(&mut worker))
        };
        let alone = run(1, no_caches());
        for burst in [2, 8, 33, 64] {
            for cache in [no_caches(), CacheConfig::default()] {
                let together = run(burst, cache);
                assert_eq!(together.0.len(), alone.0.len(), "seed {seed}, bursts of {burst}");
                for (i, (a, b)) in together.0.iter().zip(&alone.0).enumerate() {
                    assert_eq!(a, b, "seed {seed}, bursts of {burst}: frame {i} sent");
                }
                assert_eq!(together.1, alone.1, "seed {seed}, bursts of {burst}");
            }
        }
    }
    assert!(metered > 1000 && translated > 1000, "{metered} metered, {translated} translated");
}

#[test]
fn a_meter_of_a_packet_a_second_passes_packets_that_come_a_second_apart() {
    let actions = vec![Action::Meter(1), Action::Output(PortNo(2))];
    for burst in [1, 8, 64] {
        let mut pipeline = Pipeline::new();
        pipeline.add_table(0, "", By::Tuple.engine(), Miss::Drop);
        pipeline.add_rule(Rule::new(Match::any(), actions.clone())).unwrap();
        let frames = (0..60).map(|i| (i * SECOND, packet(&mut Random(1)))).collect();
        let (mut worker, sent) = replaying(&[frames], pipeline, burst, CacheConfig::default());
        worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        assert_eq!(sent.lock().unwrap().len(), 60, "bursts of {burst}");
    }
}

#[test]
fn no_more_packets_are_taken_than_asked_for() {
    for burst in [1, 8, 64] {
        let mut pipeline = Pipeline::new();
        pipeline.add_table(0, "", By::Tuple.engine(), Miss::Drop);
        pipeline.add_rule(Rule::new(Match::any(), vec![Action::Output(PortNo(3))])).unwrap();
        let frames: Vec<_> = (0..100).map(|i| (i, packet(&mut Random(1)))).collect();
        let captures = [frames.clone(), frames];
        let (mut worker, sent) = replaying(&captures, pipeline, burst, CacheConfig::default());
        let until = Until { packets: Some(131), ..Until::default() };
        worker.run(until, &AtomicBool::new(false), |_| {}).unwrap();
        assert_eq!(sent.lock().unwrap().len(), 131, "bursts of {burst}");
    }
}
