//! Mirrors and policers of ports.

use std::collections::BTreeSet;

use super::bursts::Capture;
use super::*;
use crate::control::Control;
use crate::state::mirror::{MirrorCounters, MirrorOutput, MirrorSettings, Mirrors, PortSelection};
use crate::state::policer::{Policer, PortPolicers, ReceiveLimits, SendLimit};
use crate::state::vlan::{PortVlan, VlanMode};

const SECOND: u64 = 1_000_000_000;

fn selection(ports: &[u32]) -> PortSelection {
    PortSelection::Ports(ports.iter().copied().collect())
}

fn settings(received: &[u32], sent: &[u32], output: MirrorOutput) -> MirrorSettings {
    let (received, sent) = (selection(received), selection(sent));
    MirrorSettings {
        name: String::new(),
        received,
        sent,
        vlans: None,
        output,
        members: BTreeSet::new(),
        bytes_max: None,
    }
}

/// Gives a worker these mirrors; returns their counters.
fn mirror(control: &mut Control, all: &[MirrorSettings]) -> Vec<Arc<MirrorCounters>> {
    let counters: Vec<Arc<MirrorCounters>> = all.iter().map(|_| Arc::default()).collect();
    let mirrors = Mirrors::new(all.iter().cloned().zip(counters.iter().cloned()));
    control.set_mirrors(Some(Arc::new(mirrors)));
    counters
}

fn random_mirrors(r: &mut Random) -> Vec<MirrorSettings> {
    let mirror = |r: &mut Random| {
        let ports = |r: &mut Random| -> PortSelection {
            match r.next(4) {
                0 => PortSelection::All,
                _ => selection(&(1..=4).filter(|_| r.next(3) == 0).collect::<Vec<u32>>()),
            }
        };
        MirrorSettings {
            name: String::new(),
            received: ports(r),
            sent: ports(r),
            vlans: None,
            output: MirrorOutput::Port(PortNo(3 + r.next(3))),
            members: BTreeSet::new(),
            bytes_max: r.pick(&[None, None, Some(20), Some(70)]),
        }
    };
    (0..r.next(5)).map(|_| mirror(r)).collect()
}

/// Mirrors as their documentation has them: one copy of a packet for each output.
struct Model<'a> {
    mirrors: &'a [MirrorSettings],
    done: BTreeSet<u32>,
    sent: Vec<(u32, Vec<u8>)>,
}

impl Model<'_> {
    fn copy(&mut self, frame: &[u8], takes: impl Fn(&MirrorSettings) -> bool) {
        for mirror in self.mirrors.iter().filter(|mirror| takes(mirror)) {
            let MirrorOutput::Port(PortNo(output)) = mirror.output else { unreachable!("ports only") };
            if self.done.insert(output) && output <= 4 {
                let copy = without_empty_tag(frame);
                let bytes = mirror.bytes_max.map_or(copy.len(), |max| copy.len().min(max.into()));
                self.send(output, &copy[..bytes], &copy);
            }
        }
    }

    /// Sends a part of a frame, of which mirrors copy all.
    fn send(&mut self, port: u32, part: &[u8], frame: &[u8]) {
        self.sent.push((port, part.to_vec()));
        if port <= 4 {
            self.copy(frame, |mirror| is_in(&mirror.sent, port));
        }
    }
}

/// A copy, as a trunk sends it: without a tag that has neither a VID nor a priority, unless another one follows.
fn without_empty_tag(frame: &[u8]) -> Vec<u8> {
    let is_tag = |at: usize| frame.len() >= at + 4 && matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xa8]);
    let is_empty = is_tag(12) && !is_tag(16) && frame[14] & 0xef == 0 && frame[15] == 0;
    if is_empty { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() }
}

fn is_in(selection: &PortSelection, port: u32) -> bool {
    match selection {
        PortSelection::All => true,
        PortSelection::Ports(ports) => ports.contains(&port),
    }
}

/// The frames that leave, where `sent` would without mirrors.
fn modelled(
    mirrors: &[MirrorSettings],
    in_port: u32,
    frame: &[u8],
    sent: &[(u32, Vec<u8>)],
) -> Vec<(u32, Vec<u8>)> {
    let mut model = Model { mirrors, done: BTreeSet::new(), sent: Vec::new() };
    model.copy(frame, |mirror| is_in(&mirror.received, in_port));
    sent.iter().for_each(|(port, frame)| model.send(*port, frame, frame));
    model.sent
}

/// Mirrors change while megaflows exist.
#[test]
fn copies_are_those_of_a_model_with_and_without_caches_in_bursts_and_in_traces() {
    let mut copied = 0;
    for seed in 0..60u64 {
        let r = &mut Random(seed);
        let rules = random_rules(r, 3);
        let cached = CacheConfig { adaptive: false, exact_insert_inverse: 2, ..CacheConfig::default() };
        let mut workers = [cached, no_caches()].map(|cache| worker(&rules, 3, cache, By::pick(seed)));
        let mut controls = workers.each_mut().map(|(worker, _)| Control::attach(worker).unwrap());
        for round in 0..6 {
            let mirrors = random_mirrors(r);
            controls.iter_mut().for_each(|control| _ = mirror(control, &mirrors));
            let port = r.next(2) as usize;
            let frames: Vec<Vec<u8>> = (0..30).map(|_| packet(r)).collect();
            let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let mut all = Vec::new();
            for (i, bytes) in borrowed.iter().enumerate() {
                for (worker, sent) in &mut workers {
                    let place = format!("seed {seed}, round {round}, packet {i}: {mirrors:?}");
                    let plain = interpret(&worker.lookup.pipeline, port as u32 + 1, bytes);
                    let wanted = modelled(&mirrors, port as u32 + 1, bytes, &plain);
                    copied += wanted.len() - plain.len();
                    let taken = |sent: &Sent| std::mem::take(&mut *sent.lock().unwrap());
                    if i > 0 {
                        // The worker has these mirrors.
                        assert_eq!(traced(worker, port, bytes).unwrap(), wanted, "trace: {place}");
                    }
                    worker.inject(port, &[bytes]).unwrap();
                    assert_eq!(taken(sent), wanted, "{place}");
                    all.push(wanted);
                }
            }
            for (at, (worker, sent)) in workers.iter_mut().enumerate() {
                worker.inject(port, &borrowed).unwrap();
                let wanted: Vec<_> = all.iter().skip(at).step_by(2).flatten().cloned().collect();
                assert_eq!(*sent.lock().unwrap(), wanted, "seed {seed}, round {round}: {mirrors:?}");
                sent.lock().unwrap().clear();
            }
        }
    }
    assert!(copied > 10_000, "{copied}");
}

/// A frame of 60 bytes, with a tag or without.
fn frame(from: u8, to: u8, tag: Option<u8>) -> Vec<u8> {
    let tag = tag.map_or(Vec::new(), |vid| vec![0x81, 0, 0xa0, vid]);
    let mut frame = [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from], &tag[..], &[0x88, 0xb5]].concat();
    frame.resize(60 + tag.len(), from);
    frame
}

fn normal() -> (Worker, Sent) {
    let rules = [Rule::new(Match::any(), vec![Action::Normal])];
    worker(&rules, 1, CacheConfig::default(), By::Tuple)
}

#[test]
fn normal_leaves_a_mirrors_port_out_and_forgets_its_addresses() {
    let (mut worker, sent) = normal();
    let mut control = Control::attach(&mut worker).unwrap();
    let ports_of = |worker: &mut Worker, port: usize, from, to| -> Vec<u32> {
        worker.inject(port, &[&frame(from, to, None)]).unwrap();
        std::mem::take(&mut *sent.lock().unwrap()).into_iter().map(|(port, _)| port).collect()
    };
    assert_eq!(ports_of(&mut worker, 3, 4, 9), [1, 2, 3]);
    let counters = mirror(&mut control, &[settings(&[1], &[1], MirrorOutput::Port(PortNo(4)))]);
    // The copy, and the flood: the address 4 was learned at port 4.
    assert_eq!(ports_of(&mut worker, 0, 1, 4), [4, 2, 3]);
    assert_eq!(ports_of(&mut worker, 1, 2, 1), [1, 4]);
    assert_eq!(counters[0].get(), (2, 120));
    control.set_mirrors(None);
    assert_eq!(ports_of(&mut worker, 0, 1, 9), [2, 3, 4]);
}

#[test]
fn copies_for_a_vlan_leave_through_its_ports_with_its_header() {
    let (mut worker, sent) = normal();
    let access = Arc::new(PortVlan::new(VlanMode::Access, 9, &[]));
    let trunk = Arc::new(PortVlan::new(VlanMode::Trunk, 0, &[5, 9]));
    let mut control = Control::attach(&mut worker).unwrap();
    let change = |port, vlan: &Arc<PortVlan>| crate::control::VlanChange {
        port: PortNo(port),
        vlan: Some(vlan.clone()),
    };
    let vlans = [change(2, &access), change(3, &trunk)];
    control.change_all(&crate::control::Changes { vlans: &vlans, ..Default::default() }).unwrap();
    let one = MirrorSettings { bytes_max: Some(30), ..settings(&[1], &[], MirrorOutput::Vlan(9)) };
    let counters = mirror(&mut control, &[one]);
    worker.inject(0, &[&frame(1, 7, Some(5))]).unwrap();
    let first = |frame: Vec<u8>| frame[..30].to_vec();
    // The header keeps its priority; the packet's port gets a copy, too.
    let copies = [(1, Some(9)), (2, None), (3, Some(9)), (4, Some(9))];
    let mut wanted: Vec<_> = copies.map(|(port, tag)| (port, first(frame(1, 7, tag)))).to_vec();
    wanted.extend([3, 4].map(|port| (port, frame(1, 7, Some(5)))));
    assert_eq!(std::mem::take(&mut *sent.lock().unwrap()), wanted);
    assert_eq!(counters[0].get(), (1, 64));
    // A packet of that VLAN is not copied, nor is one for the link.
    worker.inject(0, &[&frame(1, 7, Some(9))]).unwrap();
    assert_eq!(sent.lock().unwrap().drain(..).map(|(port, _)| port).collect::<Vec<_>>(), [2, 3, 4]);
    let mut reserved = frame(1, 7, None);
    reserved[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2]);
    worker.inject(0, &[&reserved]).unwrap();
    assert!(sent.lock().unwrap().is_empty());
}

/// Runs a worker to its end, whose first port gives 2000 frames of 1000 bytes in a second, for the second.
fn run_for_a_second(change: impl FnOnce(&mut Control)) -> (PortCounters, PortCounters, usize) {
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", By::Tuple.engine(), Miss::Drop);
    pipeline.add_rule(Rule::new(Match::any(), vec![Action::Output(PortNo(2))])).unwrap();
    let (sent, mut egress) = (Sent::default(), Egress::new(Fdb::new(4, 20, 1), 1));
    let mut bytes = frame(1, 2, None);
    bytes.resize(1000, 0);
    for number in 1..=2u32 {
        let frames = (0..2000).filter(|_| number == 1).map(|i| (i * SECOND / 2000, bytes.clone()));
        let port =
            Capture { frames: frames.collect::<Vec<_>>().into_iter(), out: Recorder(number, sent.clone()) };
        egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(port)));
    }
    let lookup = Lookup::new(pipeline, CacheConfig::default());
    let mut worker = Worker::new(lookup, egress, 32, Clock::Frames);
    let mut control = Control::attach(&mut worker).unwrap();
    change(&mut control);
    worker.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    let of = |place: usize| worker.egress.ports.slots()[place].counters;
    let sent = sent.lock().unwrap().len();
    (of(0), of(1), sent)
}

#[test]
fn a_port_that_is_policed_receives_its_rate_and_counts_the_rest() {
    let limits = ReceiveLimits { rate_kbps: 4000, burst_kbit: 400, ..ReceiveLimits::default() };
    let received = Policer::of_received(&limits);
    let policers = Arc::new(PortPolicers { received, sent: None });
    let (from, to, sent) = run_for_a_second(|control| control.set_policers(PortNo(1), Some(policers)));
    // 4000 kbit and the burst.
    assert!((548..=551).contains(&sent), "{sent}");
    assert_eq!(
        (from.rx_packets, from.rx_dropped, to.tx_packets),
        (sent as u64, 2000 - sent as u64, sent as u64)
    );
    let (from, ..) = run_for_a_second(|control| {
        control.set_policers(PortNo(1), Some(Arc::default()));
        control.set_policers(PortNo(1), None);
    });
    assert_eq!((from.rx_packets, from.rx_dropped), (2000, 0));
}

#[test]
fn a_port_that_polices_what_it_sends_drops_the_rest() {
    let limit = SendLimit { rate_bytes: 98_600, burst_bytes: 9_860 };
    let policers = Arc::new(PortPolicers { received: None, sent: Some(Policer::of_sent(&limit)) });
    let (from, to, sent) = run_for_a_second(|control| control.set_policers(PortNo(2), Some(policers)));
    assert!((107..=112).contains(&sent), "{sent}");
    assert_eq!((from.rx_packets, to.tx_packets, to.tx_dropped), (2000, sent as u64, 2000 - sent as u64));
}

#[test]
fn a_mirrors_port_drops_what_it_receives() {
    let (from, _, sent) = run_for_a_second(|control| {
        mirror(control, &[settings(&[2], &[2], MirrorOutput::Port(PortNo(1)))]);
    });
    assert_eq!((sent, from.rx_packets, from.rx_dropped), (0, 0, 2000));
}
