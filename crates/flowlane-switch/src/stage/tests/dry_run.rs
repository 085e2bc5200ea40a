//! Dry runs against the live packets that follow them.

use flowlane::packet::fields::Field;
use flowlane::route::Prefix;

use super::*;
use crate::stage::nat::{NatCounters, Refusal};
use crate::state::conntrack::session::IdleTimes;

/// Returns a stage's counters, by the words that announce them in a dry run.
fn counted(function: &StageTable) -> Vec<(&'static str, u64)> {
    match &function.stage {
        AnyStage::Filter(filter) => {
            let c = filter.counters();
            let lacking = [("lacks a field", c.without_key)];
            let would = [("would be learned", c.learnt + c.refused), ("but the set is full", c.refused)];
            lacking.into_iter().chain(would).collect()
        }
        AnyStage::Assets(assets) => {
            let c = assets.counters();
            vec![
                ("shows no asset", c.without),
                ("would be recorded", c.hosts + c.services),
                ("the table is full", c.refused),
            ]
        }
        AnyStage::Nat(nat) => {
            let c = nat.counters();
            let refused = Refusal::ALL.map(Refusal::name).into_iter().zip(c.refused);
            let done = [("new session", c.created), ("ICMP error about", c.errors)];
            refused.chain(done).collect()
        }
        AnyStage::Routes(_) => unreachable!("route tables have tests of their own"),
    }
}

/// The frame from the network header on, without what a drawn port changes.
fn without_port(frame: &[u8]) -> Vec<u8> {
    let l4 = 14 + 4 * usize::from(frame[14] & 15);
    let skipped = match frame[23] {
        1 => [l4 + 2..l4 + 4, l4 + 4..l4 + 6],
        6 => [l4..l4 + 2, l4 + 16..l4 + 18],
        _ => [l4..l4 + 2, l4 + 6..l4 + 8],
    };
    let rest = frame.iter().enumerate().filter(|(at, _)| !skipped.iter().any(|bytes| bytes.contains(at)));
    rest.map(|(_, byte)| *byte).collect()
}

/// The frame, key and headers of a packet.
struct Parsed {
    frame: Frame,
    key: FlowKey,
    headers: Headers,
    now_ns: u64,
}

impl Parsed {
    fn new(bytes: &[u8], now_ns: u64) -> Self {
        let (mut frame, mut key) = (Frame::default(), FlowKey::zero());
        frame.fill(bytes);
        let headers = parse(bytes, 1, &mut key);
        Self { frame, key, headers, now_ns }
    }

    fn packet(&self) -> StagePacket<'_> {
        StagePacket { frame: &self.frame, key: &self.key, headers: &self.headers, now_ns: self.now_ns }
    }
}

const CALL: StageCall = StageCall { table: 1, port: 0, datagram: None };

fn dry_run(function: &StageTable, bytes: &[u8], now_ns: u64) -> Explanation {
    function.dry_run(CALL, Parsed::new(bytes, now_ns).packet())
}

/// Processes frames one at a time, each after a dry run whose verdict, text and rewritten packet must agree with the result.
pub(super) fn process_after_dry_run(
    function: &mut StageTable,
    frames: &[Vec<u8>],
    times_ns: &[u64],
) -> Vec<(u32, Vec<u8>)> {
    let mut out = Vec::new();
    for (bytes, &time_ns) in frames.iter().zip(times_ns) {
        let before = counted(function);
        let explained = dry_run(function, bytes, time_ns);
        assert_eq!(counted(function), before);
        assert_eq!(dry_run(function, bytes, time_ns).why, explained.why);
        let (verdict, got) = process_at(function, std::slice::from_ref(bytes), &[time_ns]).remove(0);
        let context = format!("{bytes:x?}, {explained:x?}");
        assert_eq!(verdict, explained.verdict, "{context}");
        assert!(explained.why.starts_with(function.stage.kind()), "{context}");
        for ((words, before), (_, after)) in before.iter().zip(counted(function)) {
            assert_eq!(explained.why.contains(words), after > *before, "`{words}`: {context}");
        }
        match &explained.rewritten {
            Some(said) if said.port_is_open => {
                assert_eq!(without_port(said.frame.bytes()), without_port(&got), "{context}");
            }
            Some(said) => {
                assert_eq!(said.frame.bytes(), got, "{context}");
                let mut key = FlowKey::zero();
                parse(&got, 1, &mut key);
                assert!(
                    [word::IPV4_SRC, word::IPV4_DST, word::PORTS].map(|w| said.key.word(w) == key.word(w))
                        == [true; 3],
                    "{context}"
                );
            }
            None => assert_eq!(&got, bytes, "{context}"),
        }
        assert_eq!(explained.edits.is_empty(), got == *bytes, "{context}");
        out.push((verdict, got));
    }
    out
}

fn nat(function: &StageTable) -> &Nat {
    let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
    nat
}

#[test]
fn decide_changes_nothing() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let idle = [1, 30][random.index(2)];
        let filter = FilterConfig {
            learn: true,
            refresh: true,
            count: true,
            idle,
            ..FilterConfig::new(vec![Field::Ipv4Src, Field::TpDst], 3)
        };
        let assets = AssetConfig { idle, ..AssetConfig::new(3) };
        let nat = NatConfig {
            hairpin: true,
            idle: {
                let ms = u64::from(idle) * 134;
                IdleTimes { udp: ms, tcp_transitory: ms, tcp_established: ms, icmp: ms }
            },
            sessions_per_host_max: Some(3),
            ..NatConfig::new(vec![Prefix::truncated(0x0a00_0000, 31)], vec![(0x0a00_0003, 0x0a00_0003)], 5)
        };
        let kinds = [
            AnyStage::Filter(Filter::new(&filter).unwrap()),
            AnyStage::Assets(Assets::new(assets)),
            AnyStage::Nat(Nat::new(nat).unwrap()),
        ];
        for mut function in kinds.map(bare) {
            for (times, descs) in bursts(&mut random, 5, filter::draw) {
                let frames: Vec<Vec<u8>> = descs.iter().map(Desc::build).collect();
                process_at(&mut function, &frames, &times);
                let last = times[times.len() - 1];
                let state = |function: &StageTable| match &function.stage {
                    // A dry run removes sessions whose time is over, which no packet finds.
                    AnyStage::Nat(nat) => {
                        let counters = NatCounters { aged: 0, ..nat.counters() };
                        format!("{counters:?} {:?}", nat.sessions(last))
                    }
                    _ => format!("{function:?}"),
                };
                let before = state(&function);
                for bytes in &frames {
                    // Connections have no time before.
                    let is_nat = matches!(function.stage, AnyStage::Nat(_));
                    let later = if is_nat { 0 } else { random.below(100) * TICK };
                    dry_run(&function, bytes, last + later);
                    function.decide_owner(Parsed::new(bytes, last).packet());
                }
                assert!(state(&function) == before, "seed {seed}");
            }
        }
    }
}

#[test]
fn dry_run_predicts_the_room_that_ageing_makes_in_a_full_table() {
    let (mut refused, mut found_room) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let idle = IdleTimes { udp: 10 * TICK / 1_000_000, ..IdleTimes::default() };
        let pool = NatConfig::new(vec![Prefix::truncated(0x0a00_0000, 8)], vec![(1, 1)], 400);
        let mut function = bare(AnyStage::Nat(
            Nat::new(NatConfig { idle, sessions_per_host_max: Some(0), ..pool }).unwrap(),
        ));
        let packet = |port: u16| {
            Desc::v4(0x0a00_0001, 0xc633_6401, L4::Udp { src: port, dst: 53, checksum: true }).build()
        };
        let first: Vec<Vec<u8>> = (0..400).map(packet).collect();
        let mut now = 0;
        first.chunks(64).for_each(|burst| _ = process(&mut function, burst, 0));
        for _ in 0..10 {
            now += 9 * TICK;
            // All but a few are used.
            let mut used: Vec<u16> =
                nat(&function).sessions(now).iter().map(|session| session.inside.port()).collect();
            random.shuffle(&mut used);
            used.truncate(400 - random.index(6));
            let used: Vec<Vec<u8>> = used.into_iter().map(packet).collect();
            used.chunks(64).for_each(|burst| _ = process(&mut function, burst, now));
            now += 2 * TICK;
            for _ in 0..4 {
                let was_full = nat(&function).len() == 400;
                let new = [packet(random.port(1000, u16::MAX))];
                let verdict = process_after_dry_run(&mut function, &new, &[now])[0].0;
                refused += u32::from(verdict == REFUSED);
                found_room += u32::from(was_full && verdict != REFUSED);
            }
        }
    }
    assert!(refused > 50 && found_room > 50, "{refused} refused, {found_room} found room");
}

#[test]
fn explanations_name_the_reason_and_the_edits() {
    let udp = |src: (u32, u16), dst: (u32, u16)| {
        Desc::v4(src.0, dst.0, L4::Udp { src: src.1, dst: dst.1, checksum: true }).build()
    };
    let ask = |function: &StageTable, bytes: &[u8]| {
        let Explanation { verdict, why, edits, .. } = dry_run(function, bytes, 1);
        (verdict, why, edits.join("; "))
    };
    let said = |verdict, why: &str, edits: &str| (verdict, why.to_owned(), edits.to_owned());
    let (host, server, outside) = ((0x0a00_0005, 4242), (0xc633_6401, 53), 0xcb00_7101);
    let (packet, alien) = (udp(host, server), udp(server, (outside, 9)));
    let fields = vec![Field::Ipv4Src, Field::TpDst];
    let filter = FilterConfig { learn: true, ..FilterConfig::new(fields, 1) };
    let mut function = bare(AnyStage::Filter(Filter::new(&filter).unwrap()));
    let why = "filter: no entry for nw_src=10.0.0.5,tp_dst=53; it would be learned";
    assert_eq!(ask(&function, &packet), said(1, why, ""));
    process(&mut function, std::slice::from_ref(&packet), 1);
    assert_eq!(ask(&function, &packet), said(0, "filter: an entry for nw_src=10.0.0.5,tp_dst=53", ""));
    let function = bare(AnyStage::Assets(Assets::new(AssetConfig::new(10))));
    let why = "assets: host 10.0.0.5 at 02:00:00:00:00:01 is new, service udp/4242 of 10.0.0.5 is new; \
               new assets would be recorded";
    assert_eq!(ask(&function, &packet), said(1, why, ""));
    let config = NatConfig::new(vec![Prefix::truncated(0x0a00_0000, 8)], vec![(outside, outside)], 10);
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let edit = "ip src 10.0.0.5:4242 -> 203.0.113.1 and a port of its own";
    assert_eq!(ask(&function, &packet), said(0, "nat: a new session would be opened (outbound)", edit));
    assert_eq!(ask(&function, &alien), said(REFUSED, "nat: refused: no session", ""));
    process(&mut function, std::slice::from_ref(&packet), 1);
    let port = nat(&function).sessions(1)[0].outside.port();
    let why = |way| format!("nat: udp session 203.0.113.1:{port} <-> 10.0.0.5:4242 ({way})");
    let edit = format!("ip src 10.0.0.5:4242 -> 203.0.113.1:{port}");
    assert_eq!(ask(&function, &packet), said(0, &why("outbound"), &edit));
    let edit = format!("ip dst 203.0.113.1:{port} -> 10.0.0.5:4242");
    assert_eq!(ask(&function, &udp(server, (outside, port))), said(1, &why("inbound"), &edit));
}
