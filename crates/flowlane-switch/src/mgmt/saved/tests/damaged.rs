//! State that was cut off, changed or made up.

use flowlane::generate::Random;
use flowlane::packet::parse::ip_proto;

use super::super::record::{Address, Header, Record};
use super::*;
use crate::state::conntrack::{End, Exchange, SavedConnection, State, Translated, Tuple};

fn busy(seed: u64) -> Bench {
    let mut bench = Bench::new(CONFIG);
    for flow in &mut flows(&mut Random::new(seed), 60) {
        (0..4).for_each(|_| _ = flow.go_on(&mut bench));
    }
    bench
}

#[test]
fn changed_state_is_refused_as_a_whole() {
    let saved = busy(3).saved();
    assert!(saved.len() > 5000);
    for len in (0..saved.len()).step_by(101) {
        assert!(Bench::new(CONFIG).restore(&saved[..len]).is_err(), "{len} of {} bytes", saved.len());
    }
    let mut bench = Bench::new(CONFIG);
    for case in 0..500 {
        let mut random = Random::new(case);
        let mut bytes = saved.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.index(bytes.len());
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => drop(bytes.drain(at..(at + 1 + random.index(40)).min(bytes.len()))),
                _ => bytes.insert(at, random.bits() as u8),
            }
        }
        if bytes == saved {
            continue;
        }
        // Bytes behind the end belong to what follows on a connection.
        let ended = bytes.starts_with(&saved);
        assert_eq!(bench.restore(&bytes).is_ok(), ended, "case {case}");
        bench = if ended { Bench::new(CONFIG) } else { bench };
    }
}

#[test]
fn the_place_of_the_damage_is_named() {
    let saved = busy(4).saved();
    let problem = |bytes: &[u8]| Bench::new(CONFIG).restore(bytes).unwrap_err().to_string();
    let mut changed = saved.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(
        problem(&changed),
        "block 0, which begins at byte 12, has been changed: its checksum is another"
    );
    assert_eq!(problem(&saved[..saved.len() - 1]), "block 0, which begins at byte 12, is cut off");
    assert_eq!(problem(b"PK\x03\x04 another file"), "it is no saved state of Flowlane");
    assert_eq!(problem(b""), "it is no saved state of Flowlane");
    changed[8] = 9;
    assert_eq!(problem(&changed), "its format has version 9, and this program reads version 3");
}

/// State of one block that has another content and the right checksum.
pub(super) fn sealed(saved: &[u8], content: &[u8]) -> Vec<u8> {
    use flowlane::hash::crc32c::update;

    let mut bytes = saved[..12].to_vec();
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes.extend((!update(update(!0, &0u64.to_le_bytes()), content)).to_le_bytes());
    bytes.extend(content);
    bytes
}

/// State of one block, some bytes of which are others, with the right checksum.
pub(super) fn made_up(saved: &[u8], case: u64) -> Vec<u8> {
    let mut random = Random::new(case);
    let mut content = saved[20..].to_vec();
    for _ in 0..1 + random.below(4) {
        let at = 60 + random.index(content.len() - 60);
        content[at] = [0, 255, random.bits() as u8][random.index(3)];
    }
    sealed(saved, &content)
}

/// Records whose checksums are right, and whose content is anything.
#[test]
fn records_that_are_made_up_do_no_harm() {
    let saved = busy(5).saved();
    let mut kept = 0;
    for case in 0..300 {
        let mut bench = Bench::new(CONFIG);
        let Ok(restored) = bench.restore(&made_up(&saved, case)) else { continue };
        kept += restored.connections;
        for flow in &mut flows(&mut Random::new(5), 60) {
            (0..6).for_each(|_| _ = flow.go_on(&mut bench));
        }
    }
    assert!(kept > 1000, "{kept}");
}

pub(super) fn header(clock_s: u64, unix_ms: u64) -> Record {
    Record::Header(Header {
        clock_ns: clock_s * 1_000_000_000,
        unix_ms,
        is_frame_clock: false,
        seed: 1,
        workers: 1,
        shape: String::new(),
    })
}

fn connection(port: u16, zone: u16, expires_ms: u64) -> SavedConnection {
    let end = |address: u128, port| End { address, port, icmp_type: 0 };
    let (source, destination) = (end(1, port), end(2, 53));
    let tuple = Tuple { source, destination, zone, proto: ip_proto::UDP, is_ipv6: false };
    SavedConnection {
        tuples: [tuple, tuple.reversed()],
        begun_ms: 0,
        expires_ms,
        mark: 3,
        label: 1 << 100,
        translated: Translated::default(),
        state: State::Other(Exchange::Both),
        alg: None,
    }
}

pub(super) fn state(records: &[Record]) -> Vec<u8> {
    let mut out = Writer::new(Vec::new()).unwrap();
    records.iter().for_each(|record| out.put(record).unwrap());
    out.finish().unwrap()
}

#[test]
fn time_that_has_passed_counts() {
    let now = collect::unix_ms();
    let address = |seen_s| {
        Record::Address(Address { mac: 0x0200_0000_0001 + u64::from(seen_s), vlan: 0, port: 1, seen_s })
    };
    let records = [
        header(1000, now - 200_000),
        Record::Connection(connection(1, 0, 1_100_000)),
        Record::Connection(connection(2, 0, 1_220_000)),
        // No timeout is that long.
        Record::Connection(connection(3, 0, u64::MAX)),
        address(800),
        address(950),
        address(u32::MAX),
    ];
    let mut bench = Bench::new(CONFIG);
    let restored = bench.restore(&state(&records)).unwrap();
    assert_eq!(
        restored,
        Restored { connections: 2, addresses: 2, left_out: 2, ..Restored::default() },
        "an address is forgotten after 300 s"
    );
    let worker = &bench.switch.workers()[0];
    let mut left = Vec::new();
    worker.egress.connections.for_each(&Wanted::default(), worker.now_ms(), |one| {
        left.push(one.left_ms.div_ceil(1000));
        true
    });
    left.sort_unstable();
    assert_eq!(left, [20, 86_400]);
    // A clock that was set back: no time has passed.
    let mut bench = Bench::new(CONFIG);
    let records = [header(1000, now + 5_000_000), Record::Connection(connection(1, 0, 1_001_000))];
    assert_eq!(bench.restore(&state(&records)).unwrap().connections, 1);
}

#[test]
fn no_limit_is_exceeded() {
    let of = |zone: u16| (1..=50).map(move |port| Record::Connection(connection(port, zone, 30_000)));
    let now = collect::unix_ms();
    let records: Vec<Record> =
        std::iter::once(header(10, now)).chain(of(1)).chain(of(1)).chain(of(2)).collect();
    let with = |section: &str| {
        let mut bench = Bench::new(&format!("{CONFIG}\n[connections]\n{section}\n"));
        let restored = bench.restore(&state(&records)).unwrap();
        assert_eq!(restored.connections + restored.left_out, 150);
        assert_eq!(restored.connections, bench.connections().len() as u64);
        restored.connections
    };
    assert_eq!(with(""), 100, "each is kept once");
    assert_eq!(with("connections_max = 30"), 30);
    assert_eq!(with("per_zone_max = 20"), 40);
}

#[test]
fn records_out_of_place_are_refused() {
    let now = collect::unix_ms();
    let refused = |records: &[Record]| Bench::new(CONFIG).restore(&state(records)).unwrap_err().to_string();
    let connection = Record::Connection(connection(1, 1, 30_000));
    assert!(refused(std::slice::from_ref(&connection)).contains("is no header"));
    assert!(refused(&[header(1, now), header(1, now)]).contains("does not belong there"));
    assert!(refused(&[header(1 << 33, now)]).contains("cannot be read"), "a clock of 272 years");
    // A file has no rules.
    let bytes = Bench::new(CONFIG).saved();
    let reader = Reader::new(&bytes[..]).unwrap();
    let refused = restore(reader, Bench::new(CONFIG).switch.workers_mut(), None).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("does not belong there"), "{refused}");
}
