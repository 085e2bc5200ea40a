//! No inside host takes the sessions of others, and no port is left unused.

use flowlane::route::Prefix;

use super::*;

const INSIDE: u32 = 0x0a00_0000;
const POOL: u32 = 0xcb00_7100;
const FAR: u32 = 0xc633_6400;

#[test]
fn no_host_takes_all_sessions_or_all_ports() {
    // Once the table is the limit, once the ports of the only outside address.
    for (sessions_max, ports) in [(300, (1024, u16::MAX)), (10_000, (1024, 1323))] {
        let config = NatConfig {
            ports,
            ..NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], sessions_max)
        };
        let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
        let mut opened = |host: u32, wanted: u16| {
            let udp = |src| Desc::v4(INSIDE + host, FAR, L4::Udp { src, dst: 53, checksum: true }).build();
            let packets: Vec<Vec<u8>> = (0..wanted).map(|n| udp(1000 + n)).collect();
            let verdicts = packets.chunks(64).flat_map(|burst| process(&mut function, burst, 0));
            verdicts.filter(|(verdict, _)| *verdict == 0).count()
        };
        // Half of all, and half of the rest; a host with few gets what it needs.
        assert_eq!(opened(1, 2000), 150);
        assert_eq!(opened(2, 2000), 75);
        assert_eq!(opened(3, 20), 20);
        // Sessions that there are go on.
        assert_eq!(opened(1, 2000), 150);
    }
}

#[test]
fn hosts_with_one_port_get_different_ports() {
    let config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 10_000);
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let udp = |host| Desc::v4(INSIDE + host, FAR, L4::Udp { src: 53, dst: 53, checksum: true }).build();
    let packets: Vec<Vec<u8>> = (0..5000).map(udp).collect();
    let sent = packets.chunks(64).flat_map(|burst| process(&mut function, burst, 0));
    assert_eq!(sent.filter(|(verdict, _)| *verdict == 0).count(), 5000);
}

#[test]
fn every_port_is_used_before_a_session_is_refused() {
    // Two addresses with 501 ports: one more even port than odd ones.
    let config = NatConfig {
        ports: (2000, 2500),
        sessions_per_host_max: Some(0),
        ..NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL + 1)], 10_000)
    };
    let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
    let tcp = |src, dst| L4::Tcp { src, dst, flags: 2 };
    let udp = |src, dst| L4::Udp { src, dst, checksum: true };
    for of_protocol in [&tcp as &dyn Fn(u16, u16) -> L4, &udp] {
        // All from even ports.
        let packet = |n: u32| Desc::v4(INSIDE + 7 * n, FAR, of_protocol(4000, 53)).build();
        let packets: Vec<Vec<u8>> = (0..1100).map(packet).collect();
        let sent = packets.chunks(64).flat_map(|burst| process(&mut function, burst, 0));
        assert_eq!(sent.filter(|(verdict, _)| *verdict == 0).count(), 2 * 501);
    }
}
