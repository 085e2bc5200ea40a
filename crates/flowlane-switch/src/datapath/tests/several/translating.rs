//! Translation by several workers: any worker finds the session of a packet.

use std::collections::{HashMap, HashSet};

use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;

use super::*;
use crate::stage::nat::Forward;
use crate::stage::{Nat, NatConfig};
use crate::state::conntrack::{Connections, Limits, Secret};

const POOL: u32 = 0xcb00_7101;

/// A worker's NAT (5): inside behind port 1, outside behind port 2.
fn translation(connections: &Arc<Connections>, is_first: bool, hairpin: bool) -> StageTable {
    let out = |port| Action::Output(PortNo(port));
    let forward = Forward::v4(ip_proto::UDP, (POOL, 53), (0x0a00_0002, 4000));
    let nat = NatConfig {
        connections: connections.clone(),
        is_first,
        hairpin,
        forwards: vec![forward],
        sessions_per_host_max: Some(40),
        ..NatConfig::new(vec![Prefix::truncated(0x0a00_0000, 16)], vec![(POOL, POOL)], 4000)
    };
    function(
        5,
        AnyStage::Nat(Nat::new(nat).unwrap()),
        vec![vec![out(2)], vec![out(1)], vec![Action::InPort], vec![]],
    )
}

/// Returns the workers' pipelines: rules (0) and NAT (5).
fn translating(workers: usize, hairpin: bool) -> Vec<Pipeline> {
    let limits = Limits { connections: 0, per_zone: None };
    let connections = Arc::new(Connections::with_sessions(limits, 4001, Secret::random()));
    let nat = |me| translation(&connections, me == 0, hairpin);
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", By::Tuple.engine(), Miss::Drop);
    pipeline.add_stage(5, nat(0));
    pipeline.add_rule(rule(0, 1, &[], vec![Action::Goto(5)])).unwrap();
    let mut all = forked(pipeline, workers);
    all.iter_mut().enumerate().skip(1).for_each(|(me, pipeline)| pipeline.set_stage(5, nat(me)));
    all
}

/// Returns the source's and the destination's address and port of a UDP packet without options.
fn ends(frame: &[u8]) -> [(u32, u16); 2] {
    let address = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
    let port = |at: usize| u16::from_be_bytes(*frame[at..].first_chunk().unwrap());
    [(address(26), port(34)), (address(30), port(36))]
}

/// Returns the peer's echo of a frame.
fn echo(frame: &[u8]) -> Vec<u8> {
    let [source, destination] = ends(frame);
    udp(destination, source, &frame[42..])
}

/// Returns the frames that a trace predicts, and checks that the first worker does not matter.
fn traced_from_any(switch: &Switch, port: u32, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let workers = switch.workers();
    let from = |first: &Worker| {
        let mut tracing = first.trace(PortNo(port), bytes).unwrap();
        loop {
            tracing = match tracing {
                Tracing::Ended(trace) => return told_sent(&trace).expect("its session is known"),
                Tracing::On { worker, packet, stage } => workers[worker].trace_on(packet, stage),
            };
        }
    };
    let mut told = workers.iter().map(from);
    let first = told.next().expect("there is a worker");
    assert!(told.all(|told| told == first), "{} workers", workers.len());
    first
}

#[test]
fn sessions_are_found_from_either_side_whatever_worker_a_packet_comes_to() {
    for (workers, how) in
        [(1, Spreading::ByOne), (2, Spreading::ByOne), (3, Spreading::ByOne), (4, Spreading::ByOne)]
    {
        let sent = Sent::default();
        // Twenty hosts, thirty ports each, three peers each; and a forward's answers.
        let flows = (0..20u32).flat_map(|host| (0..30u16).map(move |port| (0x0a00_0010 + host, 5000 + port)));
        let frames: Vec<Vec<u8>> = flows
            .flat_map(|inside| (0..3).map(move |peer| (inside, (0x0808_0808 + peer, 53))))
            .chain([((0x0a00_0002, 4000), (0x0808_0808, 99))])
            .enumerate()
            .map(|(number, (inside, peer))| udp(inside, peer, &(number as u32).to_be_bytes()))
            .collect();
        let inside = Source::new(1, frames.iter().map(|frame| (0, frame.clone())), &sent);
        let mut outside = Source::new(2, [], &sent);
        outside.answer = Some(echo);
        outside.open = frames.len() as u64;
        let egresses = egresses(vec![inside, outside], &sent, workers, how);
        let mut switch = switch(translating(workers, false), egresses, CacheConfig::default(), Clock::Wall);
        switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        let (back, out): (Vec<_>, Vec<_>) = sent.into_iter().partition(|(port, _)| *port == 1);
        assert_eq!((out.len(), back.len()), (frames.len(), frames.len()), "{workers} workers");
        let mut outside_of: HashMap<(u32, u16), (u32, u16)> = HashMap::new();
        for (_, frame) in &out {
            let number = number_of(frame);
            let ([inside, peer], [outside, to]) = (ends(&frames[number]), ends(frame));
            assert_eq!((peer, outside.0), (to, POOL));
            assert_eq!(*outside_of.entry(inside).or_insert(outside), outside, "one end, one outside end");
            assert!(inside.1 % 2 == outside.1 % 2 || outside.1 == 53, "even stays even");
        }
        for (port, frame) in out.iter().step_by(97) {
            let told = traced_from_any(&switch, 1, &frames[number_of(frame)]);
            assert_eq!(told, [(*port, frame.clone())], "{workers} workers");
            let [(1, back)] = &traced_from_any(&switch, 2, &echo(frame))[..] else {
                panic!("it goes inside")
            };
            assert_eq!(ends(back)[1], ends(&frames[number_of(frame)])[0], "{workers} workers");
        }
        let distinct: HashSet<_> = outside_of.values().collect();
        assert_eq!(distinct.len(), outside_of.len(), "no outside end is two's");
        assert_eq!(outside_of[&(0x0a00_0002, 4000)], (POOL, 53));
        for (_, frame) in &back {
            let [peer, inside] =
                ends(&frames[number_of(frame)]).map(|end| end).into_iter().rev().collect::<Vec<_>>()[..]
            else {
                unreachable!()
            };
            assert_eq!(ends(frame), [peer, inside], "{workers} workers");
        }
        let report = Report::of_all(switch.workers_mut()).expect("there is one");
        assert_eq!(report.stateful_stages[0].entries, 601, "{workers} workers");
        assert_eq!(report.stateful_stages[0].forwards.len(), 1);
        assert_eq!(report.drops.stage_refused, 0);
    }
}

#[test]
fn packets_that_turn_round_between_workers_are_translated_both_ways() {
    for workers in [1, 2, 4] {
        let sent = Sent::default();
        // Hosts send to the forward, which answers to their outside addresses.
        let hosts: Vec<(u32, u16)> = (0..64).map(|host| (0x0a00_0100 + host, 7000)).collect();
        let frames: Vec<Vec<u8>> =
            hosts.iter().zip(0u32..).map(|(&host, n)| udp(host, (POOL, 53), &n.to_be_bytes())).collect();
        let mut inside = Source::new(1, frames.iter().map(|frame| (0, frame.clone())), &sent);
        // The service answers; hosts do not.
        inside.answer =
            Some(|frame| if ends(frame)[1] == (0x0a00_0002, 4000) { echo(frame) } else { vec![0; 60] });
        inside.open = 2 * hosts.len() as u64;
        let egresses = egresses(vec![inside, Source::new(2, [], &sent)], &sent, workers, Spreading::ByOne);
        let mut switch = switch(translating(workers, true), egresses, CacheConfig::default(), Clock::Wall);
        switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        assert_eq!(sent.len(), 2 * hosts.len(), "{workers} workers");
        let (to_service, to_hosts): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|(_, frame)| ends(frame)[1] == (0x0a00_0002, 4000));
        assert!(to_service.iter().all(|(port, frame)| *port == 1 && ends(frame)[0].0 == POOL));
        for (port, frame) in to_service.iter().step_by(7) {
            let asked = frames.iter().find(|asked| asked[42..46] == frame[42..46]).unwrap();
            assert_eq!(traced_from_any(&switch, 1, asked), [(*port, frame.clone())], "{workers} workers");
        }
        let answered: HashSet<_> = to_hosts.iter().map(|(_, frame)| ends(frame)).collect();
        let wanted: HashSet<_> = hosts.iter().map(|&host| [(POOL, 53), host]).collect();
        assert_eq!(answered, wanted, "{workers} workers");
        let report = Report::of_all(switch.workers_mut()).expect("there is one");
        assert_eq!(report.stateful_stages[0].verdicts[2].packets, 2 * hosts.len() as u64, "all turned round");
    }
}

#[test]
fn fragments_meet_whatever_workers_they_come_to() {
    for (workers, how) in
        [(1, Spreading::ByPort), (2, Spreading::ByPort), (4, Spreading::ByOne), (2, Spreading::Wrong)]
    {
        let sent = Sent::default();
        let mut frames = Vec::new();
        for host in 0..50u32 {
            let whole = udp((0x0a00_0100 + host, 6000), (0x0808_0808, 53), &[7; 64]);
            for (offset, more, part) in [(0u16, 0x2000, &whole[34..66]), (4, 0, &whole[66..])] {
                let mut frame = [&whole[..34], part].concat();
                frame[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
                frame[18..20].copy_from_slice(&(host as u16).to_be_bytes());
                frame[20..22].copy_from_slice(&(more | offset).to_be_bytes());
                // Recompute the header's checksum.
                frame[24..26].fill(0);
                let sum: u32 = frame[14..34]
                    .chunks(2)
                    .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
                    .sum();
                let folded = (sum & 0xffff) + (sum >> 16);
                frame[24..26].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
                frames.push(frame);
            }
            if host % 2 == 1 {
                // The last comes first.
                let last = frames.len() - 1;
                frames.swap(last - 1, last);
            }
        }
        let sources =
            vec![Source::new(1, frames.iter().map(|f| (0, f.clone())), &sent), Source::new(2, [], &sent)];
        let egresses = egresses(sources, &sent, workers, how);
        let mut switch = switch(translating(workers, false), egresses, CacheConfig::default(), Clock::Wall);
        switch.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        assert_eq!(sent.len(), frames.len(), "{workers} workers, {how:?}");
        // The first before the others, of each datagram.
        let mut seen: HashMap<[u8; 2], u16> = HashMap::new();
        for (_, frame) in &sent {
            assert_eq!(frame[26..30], POOL.to_be_bytes());
            let offset = u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff;
            let before = seen.insert([frame[18], frame[19]], offset);
            assert_eq!(before.is_none(), offset == 0);
        }
    }
}
