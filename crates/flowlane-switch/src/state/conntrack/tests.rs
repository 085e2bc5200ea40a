use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::Relaxed;

use flowlane::generate::Random;
use flowlane::packet::parse::ip_proto;
use flowlane::rule::action::{Nat, NatRange};

use super::ct_state::{
    DESTINATION_TRANSLATED, ESTABLISHED, INVALID, NEW, RELATED, REPLY, SOURCE_TRANSLATED, TRACKED,
};
use super::tcp::flags::{ACK, FIN, RST, SYN};
use super::*;

/// A UDP packet from one host to another.
fn udp(from: (u32, u16), to: (u32, u16)) -> Seen {
    let end = |(address, port): (u32, u16)| End { address: address.into(), port, icmp_type: 0 };
    let tuple =
        Tuple { source: end(from), destination: end(to), zone: 0, proto: ip_proto::UDP, is_ipv6: false };
    Seen { tuple, message: Message::Other, is_error: false }
}

fn tcp(from: (u32, u16), to: (u32, u16), flags: u16, sequence: u32, acknowledgement: u32) -> Seen {
    let segment = Segment { flags, sequence, acknowledgement, window: 1000, ..Segment::default() };
    let seen = udp(from, to);
    Seen { tuple: Tuple { proto: ip_proto::TCP, ..seen.tuple }, message: Message::Tcp(segment), ..seen }
}

fn back(seen: Seen) -> Seen {
    Seen { tuple: seen.tuple.reversed(), ..seen }
}

const COMMIT: Request<'static> = Request {
    zone: 3,
    commit: true,
    force: false,
    nat: None,
    mark: None,
    label: None,
    application: None,
    is_dry_run: false,
};
const LOOK: Request<'static> = Request { commit: false, ..COMMIT };

/// The state that a packet is found in.
fn state(connections: &Connections, seen: &Seen, request: &Request<'_>, now_ms: u64) -> u32 {
    let mut tracked = Tracked::default();
    connections.track(Some(seen), request, &mut tracked, now_ms);
    tracked.state
}

fn small(connections: usize) -> Connections {
    Connections::new(Limits { connections, per_zone: None })
}

fn nat(is_source: bool, low: u32, high: u32, ports: Option<(u16, u16)>) -> Nat {
    let ip = |address: u32| IpAddr::V4(Ipv4Addr::from(address));
    let range = NatRange { is_source, addresses: Some((ip(low), ip(high))), ports };
    Nat { range: Some(range), ..Nat::default() }
}

#[test]
fn a_tcp_connection_goes_through_its_states() {
    let connections = small(10);
    let (client, server) = ((1, 1000), (2, 80));
    let there = |flags, sequence, acknowledgement| tcp(client, server, flags, sequence, acknowledgement);
    let here = |flags, sequence, acknowledgement| tcp(server, client, flags, sequence, acknowledgement);
    let look = |seen: Seen| state(&connections, &seen, &LOOK, 0);
    assert_eq!(look(there(SYN, 100, 0)), NEW | TRACKED);
    assert_eq!(look(here(SYN | ACK, 500, 101)), INVALID | TRACKED, "nothing has been kept");
    assert_eq!(state(&connections, &there(SYN, 100, 0), &COMMIT, 0), NEW | TRACKED);
    assert_eq!(look(there(SYN, 100, 0)), NEW | TRACKED, "sent again");
    assert_eq!(look(here(SYN | ACK, 500, 101)), ESTABLISHED | REPLY | TRACKED);
    assert_eq!(look(there(ACK, 101, 501)), ESTABLISHED | TRACKED);
    assert_eq!(look(there(ACK, 900_000, 501)), ESTABLISHED | TRACKED, "without data it is not checked");
    assert_eq!(look(there(RST, 90_000, 0)), INVALID | TRACKED, "a reset out of order");
    assert_eq!(look(there(SYN | FIN, 101, 0)), INVALID | TRACKED);
    assert_eq!(look(there(FIN | ACK, 101, 501)), ESTABLISHED | TRACKED);
    assert_eq!(look(here(FIN | ACK, 501, 102)), ESTABLISHED | REPLY | TRACKED);
    assert_eq!(look(there(ACK, 102, 502)), ESTABLISHED | TRACKED);
    assert_eq!(state(&connections, &there(SYN, 7000, 0), &COMMIT, 0), NEW | TRACKED, "another one");
    assert_eq!(connections.len(), 1);
    let in_zone = |zone| Request { zone, ..LOOK };
    assert_eq!(state(&connections, &here(ACK, 1, 1), &in_zone(4), 0), NEW | TRACKED, "zones are apart");
}

#[test]
fn errors_are_related_and_invalid_packets_say_so() {
    let connections = small(10);
    let packet = udp((1, 1000), (2, 53));
    state(&connections, &packet, &COMMIT, 0);
    let error = Seen { is_error: true, ..back(packet) };
    assert_eq!(state(&connections, &error, &LOOK, 0), RELATED | REPLY | TRACKED);
    let other = Seen { is_error: true, ..udp((7, 7), (8, 8)) };
    assert_eq!(state(&connections, &other, &COMMIT, 0), INVALID | TRACKED);
    let mut tracked = Tracked::default();
    connections.track(None, &COMMIT, &mut tracked, 0);
    assert_eq!((tracked.state, tracked.zone, connections.len()), (INVALID | TRACKED, 3, 1));
}

/// Its numbers are older than the segments that its ends have sent since.
#[test]
fn a_restored_connection_goes_on_where_its_ends_are() {
    let (client, server) = ((1, 1000), (2, 80));
    let there = |flags, sequence, acknowledgement| tcp(client, server, flags, sequence, acknowledgement);
    let here = |flags, sequence, acknowledgement| tcp(server, client, flags, sequence, acknowledgement);
    let (before, after) = (small(10), small(10));
    state(&before, &there(SYN, 100, 0), &COMMIT, 0);
    for seen in [here(SYN | ACK, 500, 101), there(ACK, 101, 501), here(ACK, 501, 101)] {
        assert_ne!(state(&before, &seen, &LOOK, 0) & ESTABLISHED, 0);
    }
    before.save(0, 10, 0, |saved| after.restore(saved, 0).unwrap());
    let is_sound = |on: &Connections, seen: Seen| state(on, &seen, &LOOK, 0) & (ESTABLISHED | INVALID);
    // Megabytes have passed since.
    let far = 9_000_000;
    assert_eq!(is_sound(&before, there(ACK, 101, 501 + far)), INVALID);
    for seen in [here(ACK, 501 + far, 101), there(ACK, 101, 501 + far), here(ACK, 601 + far, 101)] {
        assert_eq!(is_sound(&after, seen), ESTABLISHED);
    }
    for seen in [there(ACK, 101, 501 + 3 * far), here(ACK, 601 + far, 101 + far)] {
        assert_eq!(is_sound(&after, seen), INVALID, "numbers are checked again");
    }
}

#[test]
fn marks_and_labels_are_of_the_connection() {
    let connections = small(10);
    let packet = udp((1, 1000), (2, 53));
    let set = Request { mark: Some((0x12, 0xff)), label: Some((5 << 100, u128::MAX)), ..COMMIT };
    state(&connections, &packet, &set, 0);
    state(&connections, &back(packet), &Request { mark: Some((0x300, 0xf00)), ..COMMIT }, 0);
    let mut tracked = Tracked::default();
    connections.track(Some(&packet), &LOOK, &mut tracked, 0);
    assert_eq!((tracked.mark, tracked.label), (0x312, 5 << 100));
    let mut dry = Tracked::default();
    let request = Request { mark: Some((9, u32::MAX)), is_dry_run: true, ..COMMIT };
    connections.track(Some(&packet), &request, &mut dry, 0);
    connections.track(Some(&packet), &LOOK, &mut tracked, 0);
    assert_eq!((dry.mark, tracked.mark), (9, 0x312), "a dry run changes nothing");
    let (new, mut dry) = (udp((1, 1001), (2, 53)), Tracked::default());
    connections.track(Some(&new), &request, &mut dry, 0);
    assert_eq!((dry.mark, connections.len()), (9, 1), "the first packet would see its mark");
    let mut dry = Tracked::default();
    connections.track(Some(&back(packet)), &Request { force: true, ..request }, &mut dry, 0);
    assert_eq!(
        (dry.state, dry.mark, connections.len()),
        (NEW | TRACKED, 9, 1),
        "a replaced one is not in the way"
    );
}

#[test]
fn a_packet_whose_connection_is_removed_sees_what_is_set() {
    let connections = small(10);
    let packet = udp((1, 1000), (2, 53));
    let mut tracked = Tracked::default();
    connections.track(Some(&packet), &Request { mark: Some((3, u32::MAX)), ..COMMIT }, &mut tracked, 0);
    assert_eq!(connections.flush(&Wanted::default(), 0), 1);
    let set = Request { mark: Some((0x100, 0xf00)), label: Some((7, 0xff)), ..COMMIT };
    connections.track(Some(&packet), &set, &mut tracked, 0);
    assert_eq!((tracked.mark, tracked.label, connections.len()), (0x103, 7, 0));
}

#[test]
fn connections_expire_and_are_swept() {
    let connections = small(100);
    for port in 0..50 {
        state(&connections, &udp((1, port), (2, 53)), &COMMIT, 0);
    }
    let kept = udp((1, 7), (2, 53));
    state(&connections, &back(kept), &LOOK, 40_000);
    assert_eq!(state(&connections, &udp((1, 8), (2, 53)), &LOOK, 59_999), NEW | TRACKED);
    // That has begun its time again; the answered one has 30 s.
    connections.sweep(65_000, 1000);
    assert_eq!(connections.len(), 2);
    assert_eq!(state(&connections, &kept, &LOOK, 70_000), NEW | TRACKED, "expired before it is swept");
    assert_eq!(connections.counters.expired.load(Relaxed), 49);
}

#[test]
fn a_full_table_keeps_answered_connections() {
    let connections = small(64);
    let host = |n: u16| udp((1, n), (2, 53));
    for n in 0..32 {
        state(&connections, &host(n), &COMMIT, 0);
        state(&connections, &back(host(n)), &COMMIT, 0);
    }
    // A flood of packets without answers.
    for n in 1000..5000 {
        state(&connections, &host(n), &COMMIT, 1);
    }
    assert_eq!(connections.len(), 64);
    assert!((0..32).all(|n| state(&connections, &host(n), &LOOK, 2) & ESTABLISHED != 0));
    let counters = &connections.counters;
    let missing = counters.evicted.load(Relaxed) + counters.refused_full.load(Relaxed);
    assert_eq!(missing, 4000 - 32);
    let wanted = Wanted { port: Some(31), ..Wanted::default() };
    assert_eq!((connections.flush(&wanted, 0), connections.flush(&wanted, 0)), (1, 0));
    assert_eq!(connections.flush(&Wanted::default(), 0), 63);
    assert!(connections.is_empty());
}

#[test]
fn a_zone_has_its_limit() {
    let connections = Connections::new(Limits { connections: 100, per_zone: Some(5) });
    for n in 0..20 {
        state(&connections, &udp((1, n), (2, 53)), &COMMIT, 0);
        state(&connections, &udp((1, n), (2, 53)), &Request { zone: 4, ..COMMIT }, 0);
    }
    assert_eq!(connections.len(), 10);
    assert_eq!(connections.flush(&Wanted { zone: Some(4), ..Wanted::default() }, 0), 5);
}

#[test]
fn translated_connections_have_replies_of_their_own() {
    let connections = small(10_000);
    let translation = nat(true, 100, 103, Some((2000, 2099)));
    let request = Request { nat: Some(&translation), ..COMMIT };
    let mut seen_as = HashSet::new();
    for n in 0..100 {
        let packet = udp((1, n), (2, 53));
        let mut tracked = Tracked::default();
        let by = connections.track(Some(&packet), &request, &mut tracked, 0).expect("translated");
        assert_eq!(tracked.state, NEW | TRACKED | SOURCE_TRANSLATED);
        let source = by.to.source;
        assert!((100..=103).contains(&source.address) && (2000..=2099).contains(&source.port));
        assert_eq!(by.to.destination, packet.tuple.destination);
        assert!(seen_as.insert(source), "two connections with one source");
        let mut tracked = Tracked::default();
        let reply = Seen { tuple: by.to.reversed(), ..packet };
        let plain = Nat::default();
        let request = Request { nat: Some(&plain), ..LOOK };
        let by = connections.track(Some(&reply), &request, &mut tracked, 0).expect("translated back");
        assert_eq!(tracked.state, ESTABLISHED | REPLY | TRACKED | DESTINATION_TRANSLATED);
        assert_eq!(by.to, Tuple { zone: 3, ..packet.tuple.reversed() });
    }
}

#[test]
fn a_translated_packet_is_of_its_connection_where_another_has_its_ends() {
    let connections = small(100);
    let translation = nat(true, 100, 100, None);
    let translate = Request { nat: Some(&translation), ..COMMIT };
    let packet = udp((1, 2000), (2, 53));
    let by = connections.track(Some(&packet), &translate, &mut Tracked::default(), 0).expect("translated");
    let alike = udp((100, 2000), (2, 53));
    assert_eq!(by.to, Tuple { zone: 3, ..alike.tuple });
    connections.track(Some(&alike), &translate, &mut Tracked::default(), 0).expect("another port");
    assert_eq!(connections.len(), 2);

    let mut tracked = Tracked::default();
    let by = connections.track(Some(&packet), &translate, &mut tracked, 0).expect("translated");
    let translated = Seen { tuple: by.to, ..packet };
    connections.track(Some(&translated), &translate, &mut tracked, 0);
    assert_eq!(tracked.original, Some(Tuple { zone: 3, ..packet.tuple }));
    assert_eq!(tracked.state, NEW | TRACKED | SOURCE_TRANSLATED);
}

#[test]
fn addresses_of_the_other_version_translate_nothing() {
    let connections = small(100);
    let ip = IpAddr::V6(1.into());
    let range = NatRange { is_source: true, addresses: Some((ip, ip)), ports: None };
    let translation = Nat { range: Some(range), ..Nat::default() };
    let request = Request { nat: Some(&translation), ..COMMIT };
    for is_dry_run in [true, false] {
        let request = Request { is_dry_run, ..request };
        let by = connections.track(Some(&udp((1, 1), (2, 53))), &request, &mut Tracked::default(), 0);
        assert!(by.is_none());
    }
    assert_eq!((connections.len(), connections.counters.refused_nat.load(Relaxed)), (0, 1));
}

#[test]
fn many_hosts_with_one_port_are_translated_to_one_address() {
    for ports in [None, Some((1024, u16::MAX))] {
        let (connections, nat) = (small(5000), nat(true, 99, 99, ports));
        let request = Request { nat: Some(&nat), ..COMMIT };
        let state = |host: u32| state(&connections, &udp((1000 + host, 5000), (2, 80)), &request, 0);
        let translated = (0..3000).filter(|&host| state(host) & SOURCE_TRANSLATED != 0).count();
        let refused = connections.counters.refused_nat.load(Relaxed);
        assert_eq!((translated, connections.len(), refused), (3000, 3000, 0), "{ports:?}");
    }
}

#[test]
fn where_no_port_is_left_nothing_is_kept() {
    let connections = small(100);
    let translation = nat(true, 100, 100, Some((2000, 2001)));
    let request = Request { nat: Some(&translation), ..COMMIT };
    let rewritten = (0..5).filter(|&n| {
        let packet = udp((1, n), (2, 53));
        connections.track(Some(&packet), &request, &mut Tracked::default(), 0).is_some()
    });
    assert_eq!(rewritten.count(), 2);
    assert_eq!((connections.len(), connections.counters.refused_nat.load(Relaxed)), (2, 3));
}

/// Threads add, find, answer and remove connections; each connection is of one thread, and the chains of all mix.
#[test]
fn threads_find_their_connections_while_others_change_the_chains() {
    let (connections, threads, rounds) = (small(600), 4, 3000);
    let work = |thread: u32| {
        let mut random = Random::for_purpose(thread.into(), "connections");
        let mut own: HashSet<u16> = HashSet::new();
        for _ in 0..rounds {
            let port = random.below(100) as u16;
            let packet = udp((thread, port), (99, 53));
            let has = own.contains(&port);
            let (source, source_port) = (Some(packet.tuple.ip(packet.tuple.source)), Some(port));
            let ends = WantedEnds { source, source_port, ..WantedEnds::default() };
            let wanted = Wanted { ends: [ends, WantedEnds::default()], ..Wanted::default() };
            match random.below(4) {
                0 => {
                    let before = state(&connections, &packet, &COMMIT, 0) & NEW == 0;
                    assert!(!before || has);
                    own.insert(port);
                }
                1 if has => {
                    let found = state(&connections, &back(packet), &LOOK, 0);
                    assert_eq!(found, ESTABLISHED | REPLY | TRACKED);
                }
                2 => assert_eq!(connections.flush(&wanted, 0) == 1, own.remove(&port)),
                _ => {
                    let tuple = &Tuple { zone: 3, ..packet.tuple };
                    assert_eq!(connections.find(&connections.prepare(tuple), 0).is_some(), has);
                }
            }
        }
        own.len()
    };
    let left: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        all.into_iter().map(|thread| thread.join().expect("it does not fail")).sum()
    });
    assert_eq!(connections.len(), left);
    assert_eq!(connections.flush(&Wanted::default(), 0), left);
}

#[test]
fn an_entry_is_small() {
    // Three cache lines, with a place for an application's protocol.
    assert_eq!(size_of::<entry::Entry>(), 192);
}

#[test]
fn zones_have_limits_and_timeouts_of_their_own() {
    let connections = Connections::new(Limits { connections: 100, per_zone: Some(5) });
    let udp_first = |seconds| ZoneSettings {
        connections_max: Some(2),
        timeouts: [(Timeout::UdpFirst, seconds)].into_iter().collect(),
    };
    connections.zones().set(4, &udp_first(7));
    let of_zone = |zone| Request { zone, ..COMMIT };
    let begin = |n, zone, now_ms| state(&connections, &udp((1, n), (2, 53)), &of_zone(zone), now_ms);
    (0..20).for_each(|n| _ = [3, 4].map(|zone| begin(n, zone, 0)));
    assert_eq!(connections.by_zone(), [(3, 5), (4, 2)].into_iter().collect());
    let left = |zone, now_ms| {
        let (wanted, mut left) = (Wanted { zone: Some(zone), ..Wanted::default() }, Vec::new());
        connections.for_each(&wanted, now_ms, |listed| {
            left.push(listed.left_ms);
            true
        });
        left
    };
    assert_eq!((left(3, 1000), left(4, 1000)), (vec![59_000; 5], vec![6000; 2]));
    // Connections notice other timeouts with their next packets, and a smaller limit removes none.
    connections.zones().set(4, &ZoneSettings { connections_max: Some(1), ..udp_first(7) });
    connections.zones().set_all(&ZoneSettings {
        connections_max: None,
        timeouts: [(Timeout::UdpMultiple, 9)].into_iter().collect(),
    });
    begin(0, 4, 2000);
    assert_eq!((left(3, 2000), left(4, 2000)), (vec![58_000; 5], vec![9000, 5000]));
    (0..20).for_each(|n| _ = [3, 4].map(|zone| begin(n, zone, 8000)));
    assert_eq!((left(3, 8000).len(), left(4, 8000).len()), (20, 1), "one of zone 4 has expired");
}

/// The changes that a subscriber has got: event, state and mark.
fn events_of(subscription: &Subscription) -> Vec<(Change, &'static str, u32)> {
    let (events, lost) = subscription.take(std::time::Duration::ZERO);
    assert_eq!(lost, 0);
    let of = |event: &Event| (event.change, event.connection.state.name(), event.connection.mark);
    events.iter().map(of).collect()
}

#[test]
fn subscribers_get_the_events_of_connections() {
    let connections = std::sync::Arc::new(small(3));
    let all = connections.subscribe(Wanted::default()).unwrap();
    let in_zone_4 = connections.subscribe(Wanted { zone: Some(4), ..Wanted::default() }).unwrap();
    let (client, server) = ((1, 1000), (2, 80));
    let there = |flags, sequence, acknowledgement| tcp(client, server, flags, sequence, acknowledgement);
    let here = |flags, sequence, acknowledgement| tcp(server, client, flags, sequence, acknowledgement);
    let (new, updated, ended) = (Change::New, Change::Updated, Change::Ended);
    let marked = Request { mark: Some((7, u32::MAX)), ..COMMIT };
    let dry = Request { is_dry_run: true, ..marked };
    state(&connections, &there(SYN, 100, 0), &dry, 0);
    state(&connections, &there(SYN, 100, 0), &COMMIT, 0);
    state(&connections, &here(SYN | ACK, 500, 101), &dry, 0);
    assert_eq!(events_of(&all), [(new, "SYN_SENT", 0)]);
    state(&connections, &here(SYN | ACK, 500, 101), &LOOK, 0);
    state(&connections, &there(ACK, 101, 501), &marked, 0);
    state(&connections, &there(ACK, 101, 501), &marked, 0);
    let mut tracked = Tracked::default();
    connections.track(Some(&there(ACK, 101, 501)), &LOOK, &mut tracked, 0);
    connections.track(None, &Request { mark: Some((8, u32::MAX)), ..COMMIT }, &mut tracked, 0);
    let between = events_of(&all);
    assert!(between.iter().all(|(change, ..)| *change == updated), "{between:?}");
    let states: Vec<_> = between.iter().map(|(_, state, mark)| (*state, *mark)).collect();
    assert_eq!(states, [("ESTABLISHED", 0), ("ESTABLISHED", 7), ("ESTABLISHED", 8)]);
    // Both ends close it, and another one begins.
    state(&connections, &there(FIN | ACK, 101, 501), &LOOK, 0);
    state(&connections, &here(FIN | ACK, 501, 102), &LOOK, 0);
    state(&connections, &there(ACK, 102, 502), &LOOK, 0);
    events_of(&all);
    state(&connections, &there(SYN, 7000, 0), &COMMIT, 0);
    let closed = events_of(&all);
    assert_eq!((closed[0].0, closed[1].0), (ended(Ended::Closed), new));
    state(&connections, &here(ACK, 1, 7001), &Request { force: true, ..COMMIT }, 0);
    assert_eq!(events_of(&all)[0].0, ended(Ended::Replaced));
    (0..2).for_each(|n| _ = state(&connections, &udp((1, n), (2, 53)), &COMMIT, 0));
    state(&connections, &udp((1, 9), (2, 53)), &COMMIT, 1);
    let evicted = events_of(&all);
    assert_eq!(evicted.iter().filter(|(change, ..)| *change == ended(Ended::Evicted)).count(), 1);
    connections.sweep(86_500_000, 10);
    let expired = events_of(&all);
    assert_eq!(expired.len(), 3);
    assert!(expired.iter().all(|(change, ..)| *change == ended(Ended::Expired)), "{expired:?}");
    assert_eq!(events_of(&in_zone_4), []);
    state(&connections, &udp((1, 1), (2, 53)), &Request { zone: 4, ..COMMIT }, 86_500_000);
    assert_eq!(connections.flush(&Wanted::default(), 86_501_500), 1);
    let (events, _) = in_zone_4.take(std::time::Duration::ZERO);
    let changes: Vec<_> = events.iter().map(|event| (event.change, event.connection.age_ms)).collect();
    assert_eq!(changes, [(new, 0), (ended(Ended::Flushed), 1500)]);
}

#[test]
fn events_that_nobody_takes_are_lost_and_counted() {
    let connections = std::sync::Arc::new(small(100_000));
    let first = connections.subscribe(Wanted::default()).unwrap();
    let others: Vec<Subscription> = std::iter::from_fn(|| connections.subscribe(Wanted::default())).collect();
    assert_eq!(others.len(), 7, "there are no more subscribers than eight");
    drop(others);
    let begin = |n: u32| state(&connections, &udp((n, 1), (2, 53)), &COMMIT, 0);
    (0..10_000).for_each(|n| _ = begin(n));
    let (events, lost) = first.take(std::time::Duration::ZERO);
    assert_eq!(events.len() as u64 + lost, 10_000);
    assert!(lost > 0 && events.iter().zip(0u128..).all(|(e, n)| e.connection.original.source.address == n));
    begin(20_000);
    let (events, lost) = first.take(std::time::Duration::ZERO);
    assert_eq!((events.len(), lost), (1, 0));
    drop(first);
    begin(20_001);
    assert_eq!(connections.len(), 10_002);
}
