//! Hostile packets through parser, tables, caches and actions, and hostile messages of controllers: recorded, truncated and
//! mutated.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::path::Path;

use flowlane::generate::{Random, build_frame, draw_key};
use flowlane::packet::Field;
use flowlane::rule::Match;
use flowlane_capture::CaptureReader;
use flowlane_openflow::group::{Bucket, GroupCommand, GroupKind, GroupMod};
use flowlane_openflow::message::{Message, PacketOut};
use flowlane_openflow::{Codec, Version, decode};
use flowlane_switch::fuzz_invariants::{self, Pair};

const MUTATIONS: u32 = 1_000_000;

/// A check of some bytes.
type Check = fn(&[u8]);

/// Frames of all kinds, made here.
fn made() -> Vec<Vec<u8>> {
    let mut random = Random::new(3);
    let mut frames = Vec::new();
    for (eth_type, protocols) in [
        (0x0800, &[1u128, 6, 17, 47, 132][..]),
        (0x86dd, &[6, 17, 58, 132]),
        (0x0806, &[0]),
        (0x8847, &[0]),
        (0x88cc, &[0]),
    ] {
        for &protocol in protocols {
            for tags in 0..3 {
                let mut m = Match::any();
                m.set(Field::EthType, eth_type);
                if protocol != 0 {
                    m.set(Field::NwProto, protocol);
                }
                if tags > 0 {
                    m.set(Field::VlanTci, 0x1005);
                }
                if tags > 1 {
                    m.set(Field::VlanTci1, 0x1006);
                }
                for source in 0..4u128 {
                    m.set(Field::EthSrc, 0x0200_0000_0000 + source * 11 + tags);
                    let mut frame = Vec::new();
                    build_frame(&draw_key(&m, &mut random), 60, &mut frame);
                    frames.push(frame);
                }
            }
        }
    }
    frames
}

/// Frames of the captures for tests, where they are there.
fn recorded() -> Vec<Vec<u8>> {
    let Some(folder) = flowlane::testing::data("captures") else { return Vec::new() };
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let Ok(mut reader) = CaptureReader::new(&bytes[..]) else { continue };
        while let Ok(Some(packet)) = reader.next() {
            frames.push(packet.bytes.to_vec());
        }
    }
    println!("{} recorded frames", frames.len());
    frames
}

#[test]
fn every_frame_and_every_truncation_of_it_is_handled_alike_with_and_without_caches() {
    let mut pair = Pair::new();
    let frames = [made(), recorded()].concat();
    let mut count = 0;
    for frame in &frames {
        fuzz_invariants::packet_parse(frame);
        pair.compare(frame);
        for len in 0..frame.len().min(200) {
            fuzz_invariants::packet_parse(&frame[..len]);
            pair.compare(&frame[..len]);
            count += 1;
        }
    }
    println!("{} frames, {count} truncations, (cached, slow) {:?}", frames.len(), pair.hits());
}

#[test]
fn a_million_mutated_packets_are_handled_alike_with_and_without_caches() {
    let mut frames = [made(), recorded()].concat();
    frames.retain(|f| f.len() <= 1600 && !f.is_empty());
    // Each half has tables and caches of its own.
    std::thread::scope(|scope| {
        for seed in [5, 6] {
            let frames = &frames;
            scope.spawn(move || mutated(frames, MUTATIONS / 2, seed));
        }
    });
}

fn mutated(frames: &[Vec<u8>], count: u32, seed: u64) {
    let mut pair = Pair::new();
    let mut random = Random::new(seed);
    let mut mutated = Vec::new();
    for _ in 0..count {
        mutated.clear();
        mutated.extend_from_slice(&frames[random.index(frames.len())]);
        for _ in 0..random.below(8) {
            // Mostly in the headers.
            let within = mutated.len().min(if random.chance(0.9) { 80 } else { 1600 });
            let at = random.index(within);
            mutated[at] = random.bits() as u8;
        }
        if random.chance(0.1) {
            mutated.truncate(1 + random.index(mutated.len()));
        }
        if random.chance(0.05) {
            mutated.resize(mutated.len() + random.index(64), random.bits() as u8);
        }
        fuzz_invariants::packet_parse(&mutated);
        pair.compare(&mutated);
    }
    println!("{count} mutations, (cached, slow) {:?}", pair.hits());
    assert!(pair.hits().0 > 0);
}

/// Messages that `ovs-ofctl` and Open vSwitch have exchanged, by version.
fn messages() -> BTreeMap<u8, Vec<Vec<u8>>> {
    let mut all: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    for line in include_str!("../../../flowlane-openflow/tests/data/messages.txt").lines() {
        let hex = line.trim_start_matches(['<', '>', ' ']).split(' ').next().unwrap();
        let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let Some(bytes) = (0..hex.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>() else { continue };
        if bytes.len() >= 8 {
            let of_version = all.entry(bytes[0]).or_default();
            of_version.extend(with_actions_of(&bytes));
            of_version.push(bytes);
        }
    }
    all
}

/// A packet and a group with the actions of a flow-mod: there are more of these than of the others.
fn with_actions_of(flow_mod: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Message::FlowMod(read)) = decode(flow_mod).map(|decoded| decoded.message) else {
        return Vec::new();
    };
    let actions = read.flow_mod.rule.actions;
    let mut metadata = Match::any();
    metadata.set(Field::InPort, 1);
    let data = made().swap_remove(0);
    let packet = PacketOut { buffer_id: None, metadata, actions: actions.clone(), data };
    let bucket = Bucket { id: 0, weight: 0, watch_port: None, watch_group: None, actions };
    let (command, kind) = (GroupCommand::Add, GroupKind::All);
    let group = GroupMod { command, kind, group: 1, buckets: vec![bucket], selection: None };
    let version = Version::of_number(flow_mod[0]).unwrap();
    let all = [Message::PacketOut(packet), Message::GroupMod(group)];
    all.iter().filter_map(|message| Codec::new(version).encode(9, message).ok()).collect()
}

/// A switch gets them changed, in any order: 10 million of them where `FLOWLANE_LONG_TESTS` is set.
#[test]
fn mutated_messages_of_controllers_end_no_switch() {
    let messages = messages();
    assert!(messages.values().map(Vec::len).sum::<usize>() > 500);
    let count = if std::env::var_os("FLOWLANE_LONG_TESTS").is_some() { 10_000_000 } else { 40_000 };
    let (mut random, mut sent) = (Random::new(8), 0);
    while sent < count {
        for of_version in messages.values() {
            let mut requests = Vec::new();
            for _ in 0..500 {
                requests.extend(mutated_message(&of_version[random.index(of_version.len())], &mut random));
            }
            fuzz_invariants::openflow(&requests);
            sent += 500;
        }
    }
    println!("{sent} messages");
}

/// Changes up to three bytes behind the header's length, and perhaps the length.
fn mutated_message(message: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = message.to_vec();
    for _ in 0..random.below(4) {
        let at = 4 + random.index(out.len() - 4);
        out[at] = match random.below(4) {
            0 => 0,
            1 => 0xff,
            2 => out[at] ^ 1 << random.below(8),
            _ => random.bits() as u8,
        };
    }
    if random.chance(0.1) {
        out.truncate(8 + random.index(out.len() - 7));
    }
    let length = (out.len() as u16).to_be_bytes();
    out[2..4].copy_from_slice(&length);
    out
}

/// Requests to the metrics endpoint, several in a row, of which pieces are changed, cut, repeated or random.
#[test]
fn mutated_requests_for_metrics_have_one_response_each() {
    let seeds: Vec<Vec<u8>> = [
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nAccept: application/openmetrics-text;q=0.5,text/plain;q=0.2\r\n\r\n",
        "HEAD / HTTP/1.0\r\nConnection: close\r\n\r\n",
        "GET /events HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        "POST /trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"flow\":\"tcp,in_port\"}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    let mut random = Random::new(31);
    for _ in 0..2000 {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(4) {
            bytes.extend(&seeds[random.index(seeds.len())]);
        }
        for _ in 0..random.below(6) {
            let at = random.index(bytes.len());
            match random.below(4) {
                0 => bytes[at] = random.bits() as u8,
                1 => bytes[at] = b"\r\n :/;,0\0"[random.index(9)],
                2 => bytes.insert(at, b"\r\n \t9\xff"[random.index(6)]),
                _ => _ = bytes.remove(at),
            }
        }
        if random.chance(0.1) {
            bytes.truncate(random.index(bytes.len()));
        }
        if random.chance(0.1) {
            bytes.extend((0..random.index(20_000)).map(|_| random.bits() as u8));
        }
        fuzz_invariants::metrics(&bytes);
    }
}

#[test]
fn what_fuzzing_found_and_what_it_starts_from_is_replayed() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let targets: [(&str, Check); 18] = [
        ("packet_parse", fuzz_invariants::packet_parse),
        ("capture", fuzz_invariants::capture),
        ("pcapng_options", fuzz_invariants::pcapng_options),
        ("flow_syntax", fuzz_invariants::flow_syntax),
        ("classbench", fuzz_invariants::classbench),
        ("routes", fuzz_invariants::routes),
        ("mrt", fuzz_invariants::mrt),
        ("tunnel", fuzz_invariants::tunnel),
        ("switch", fuzz_invariants::switch),
        ("config", fuzz_invariants::config),
        ("control", fuzz_invariants::control),
        ("metrics", fuzz_invariants::metrics),
        ("openflow", fuzz_invariants::openflow),
        ("connections", fuzz_invariants::connections),
        ("bfd", fuzz_invariants::bfd),
        ("lacp", fuzz_invariants::lacp),
        ("multicast", fuzz_invariants::multicast),
        ("rstp", fuzz_invariants::rstp),
    ];
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(fuzz.join(folder)).into_iter().flatten();
        let name = |entry: std::io::Result<DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        entries.map(name).filter(|name| name != ".gitkeep").collect()
    };
    // Inputs of `trace` are replayed by flowlane-sim, those of `ovsdb` by flowlane-ovsdb.
    let all = targets.iter().map(|(name, _)| *name).chain(["ovsdb", "trace"]);
    let replayed: BTreeSet<String> = all.map(|name| format!("{name}.rs")).collect();
    assert_eq!(names("fuzz_targets"), replayed);
    for (name, check) in targets {
        let mut files = 0;
        for folder in ["regressions", "corpus"] {
            let folder = format!("{folder}/{name}");
            for file in names(&folder) {
                let path = fuzz.join(&folder).join(file);
                println!("{}", path.display());
                check(&std::fs::read(&path).unwrap());
                files += 1;
            }
        }
        assert!(files > 0, "{name} has no input");
    }
}

/// Hours of random operations: `fuzz/run.sh`.
#[test]
fn connections_stay_consistent_whatever_packets_and_requests_come() {
    let mut random = Random::new(17);
    for _ in 0..200 {
        let mut bytes = Vec::new();
        while bytes.len() < 3000 {
            // Mostly sound packets, so that the table is full now and then.
            bytes.push(if random.chance(0.9) { 6 + random.below(10) as u8 } else { random.bits() as u8 });
            bytes.extend((0..7).map(|_| random.bits() as u8));
        }
        fuzz_invariants::connections(&bytes);
    }
}
