use std::collections::HashMap;

use flowlane::generate::Random;

use super::*;

#[test]
fn behaves_as_a_map_with_ageing() {
    let mut table = Fdb::new(1 << 20, 300, 7);
    let mut model: HashMap<(u64, u16), (u32, u32)> = HashMap::new();
    let mut state = 1u64;
    for step in 0..50_000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (mac, vid, port) = (1 + (state >> 33) % 500, (state >> 50) as u16 % 3, (state >> 60) as u32);
        let now = step / 10;
        if state >> 40 & 3 == 0 {
            table.learn(mac, vid, PortNo(port), now);
            model.insert((mac, vid), (port, now));
        }
        let wanted = model.get(&(mac, vid)).filter(|(_, seen)| now - seen < 300);
        assert_eq!(table.lookup(mac, vid, now), wanted.map(|(port, _)| PortNo(*port)), "step {step}");
        table.sweep(now, 3);
    }
    assert!(table.counters().aged > 0 && table.counters().moved > 0);
    table.sweep(1_000_000, usize::MAX);
    table.sweep(1_000_000, usize::MAX);
    assert!(table.is_empty());
}

#[test]
fn a_flood_of_addresses_evicts_no_active_host() {
    let mut table = Fdb::new(1000, 300, 9);
    for mac in 1..=500 {
        table.learn(mac, 0, PortNo(1), 0);
    }
    for now in 1..100u32 {
        for mac in 1..=500 {
            table.learn(mac, 0, PortNo(1), now);
        }
        for mac in 0..5000u64 {
            table.learn(0x0200_0000_0000 + u64::from(now) * 5000 + mac, 0, PortNo(2), now);
        }
        assert!(table.len() <= 1000);
    }
    assert!((1..=500).all(|mac| table.lookup(mac, 0, 100) == Some(PortNo(1))));
    assert!(table.counters().refused > 0 && table.counters().replaced > 0);
}

#[test]
fn a_port_that_fills_the_table_takes_no_room_from_others() {
    let mut table = Fdb::new(1000, 300, 9);
    let flood = |table: &mut Fdb, now: u32, count: u64| {
        for mac in 0..count {
            table.learn(0x0200_0000_0000 + mac, 0, PortNo(3), now);
        }
    };
    flood(&mut table, 0, 1000);
    assert_eq!(table.len(), 1000);
    // Hosts of other ports are learned at once, although every address has just been seen, and stay.
    for now in 0..200 {
        for mac in 1..=20 {
            let port = PortNo(1 + (mac % 2) as u32);
            // They are quiet for longer than the time after which an address may be replaced.
            if now % 100 == 0 {
                table.learn(mac, 0, port, now);
            }
            assert_eq!(table.lookup(mac, 0, now), Some(port), "second {now}");
        }
        flood(&mut table, now, 3000);
        assert!(table.len() <= 1000);
    }
    assert_eq!(table.counters().replaced, 20);
    // As many addresses as the table has room for, of two ports: neither gets less than half.
    for now in 200..210 {
        for mac in 0..2000 {
            table.learn(0x0400_0000_0000 + mac, 0, PortNo(4), now);
        }
        flood(&mut table, now, 3000);
    }
    let of = |port: u32| table.entries().iter().filter(|entry| entry.2 == PortNo(port)).count();
    assert!(of(1) + of(2) == 20 && of(3) >= 480 && of(4) >= 480, "{} and {}", of(3), of(4));
}

#[test]
fn a_million_addresses_take_32_mib() {
    let mut table = Fdb::new(1_000_000, 300, 3);
    for mac in 1..=1_000_001u64 {
        table.learn(mac << 1, 5, PortNo(1), 0);
    }
    assert_eq!((table.len(), table.counters().refused), (1_000_000, 1));
    assert!(table.table_bytes() <= 32 << 20);
}

#[test]
fn group_addresses_are_flooded_and_never_learned_and_link_local_ones_dropped() {
    let mut table = Fdb::new(10, 300, 0);
    let frame = |dst: [u8; 6], src: [u8; 6]| [&dst[..], &src, &[8, 0]].concat();
    let (host, group) = ([2, 0, 0, 0, 0, 1], [3, 0, 0, 0, 0, 1]);
    assert_eq!(table.switch(&frame(group, group), PortNo(1), 0), NormalDecision::Flood);
    assert!(table.is_empty());
    assert_eq!(table.switch(&frame(host, host), PortNo(1), 0), NormalDecision::To(PortNo(1)));
    // No station has address zero, not even in an empty table.
    assert_eq!(table.switch(&frame([0; 6], host), PortNo(1), 0), NormalDecision::Flood);
    let reserved = [1, 0x80, 0xc2, 0, 0, 0xe];
    assert_eq!(table.switch(&frame(reserved, host), PortNo(1), 0), NormalDecision::Drop);
    assert_eq!(table.switch(&[0; 5], PortNo(1), 0), NormalDecision::Drop);
}

#[test]
fn trace_predicts_forwarding_and_has_no_side_effects() {
    use NormalDecision::{Drop, Flood, To};
    // Decisions, and those of full tables in which one address replaced another.
    let (mut decisions, mut made_room) = ([0; 3], 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (most, ageing_s) = ([0, 1, 6, 40, 500][random.index(5)], [0, 1, 15, 60][random.index(4)]);
        let mut table = Fdb::new(most, ageing_s, random.bits() as u32);
        let (hosts, mut now) = ([3, 20, 300][random.index(3)], 0);
        for step in 0..2000 {
            now += [0, 0, 0, 1, 1, 4, 40][random.index(7)];
            let mut frame = vec![0; random.index(20).max(random.index(20))];
            for mac in frame.chunks_mut(6).take(2).filter(|mac| mac.len() == 6) {
                let host = random.below(hosts).to_be_bytes();
                mac.copy_from_slice(match random.below(12) {
                    0 => &[0x01, 0x80, 0xc2, 0, 0, 3],
                    1 => &[3, 0, 0, 0, 0, 1],
                    _ => &host[2..],
                });
            }
            if random.chance(0.3) && frame.len() >= 14 {
                frame[12..14].copy_from_slice(&[0x81, 0]);
                frame[14..].fill(random.below(2) as u8);
            }
            let port = PortNo(random.below(3) as u32);
            let before = format!("{table:?}");
            let decided = table.decide(None, &frame, port, now);
            assert_eq!(format!("{table:?}"), before, "seed {seed}, step {step}");
            let replaced = table.counters().replaced;
            assert_eq!(table.switch(&frame, port, now), decided, "seed {seed}, step {step}: {frame:x?}");
            decisions[[Drop, Flood].iter().position(|d| *d == decided).unwrap_or(2)] += 1;
            made_room += u32::from(table.counters().replaced > replaced && matches!(decided, To(_)));
        }
    }
    assert!(decisions.iter().all(|&n| n > 1000) && made_room > 10, "{decisions:?}, {made_room}");
}

#[test]
fn addresses_are_removed_by_vlan_and_port() {
    let mut table = Fdb::new(1 << 16, 300, 5);
    for mac in 1..=20_000u64 {
        table.learn(mac, (mac % 3) as u16, PortNo((mac % 4) as u32), 0);
    }
    table.retain(|vid, port| vid != 1 || port != PortNo(2));
    for mac in 1..=20_000u64 {
        let (vid, port) = ((mac % 3) as u16, PortNo((mac % 4) as u32));
        let kept = (vid != 1 || port != PortNo(2)).then_some(port);
        assert_eq!(table.lookup(mac, vid, 0), kept, "{mac}");
    }
    assert_eq!(table.len(), table.entries().len());
    table.share().retain(|_, _| false);
    assert!(table.is_empty());
    table.learn(7, 1, PortNo(2), 0);
    assert_eq!(table.lookup(7, 1, 0), Some(PortNo(2)));
}

#[test]
fn a_frame_is_switched_in_the_given_vlan() {
    let mut table = Fdb::new(10, 300, 0);
    let frame = |dst: u8, src: u8| [2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0];
    assert_eq!(table.switch_in(10, &frame(1, 2), PortNo(1), 0), NormalDecision::Flood);
    assert_eq!(table.decide(Some(10), &frame(2, 1), PortNo(2), 0), NormalDecision::To(PortNo(1)));
    assert_eq!(table.switch_in(20, &frame(2, 1), PortNo(2), 0), NormalDecision::Flood);
    assert_eq!(table.switch(&frame(2, 1), PortNo(2), 0), NormalDecision::Flood);
}

#[test]
fn static_addresses_neither_age_nor_move_nor_give_way() {
    let mut fdb = Fdb::new(1, 10, 7);
    fdb.add_static(0x0200_0000_0001, 3, PortNo(1));
    fdb.learn(0x0200_0000_0001, 3, PortNo(2), 5);
    assert_eq!(fdb.lookup(0x0200_0000_0001, 3, 1_000_000), Some(PortNo(1)));
    fdb.sweep(1_000_000, 1 << 16);
    // The table is full of what cannot be replaced.
    fdb.learn(0x0200_0000_0002, 3, PortNo(2), 1_000_000);
    assert_eq!((fdb.len(), fdb.counters().refused), (1, 1));
    // A further static address has room all the same; a larger limit makes room for learned ones.
    fdb.add_static(0x0200_0000_0003, 0, PortNo(2));
    fdb.set_limits(3, 10);
    fdb.learn(0x0200_0000_0002, 3, PortNo(2), 1_000_000);
    assert_eq!((fdb.len(), fdb.entries_max()), (3, 3));
    assert!(!fdb.remove_static(0x0200_0000_0002, 3), "it was learned");
    // One that was learned becomes static.
    fdb.add_static(0x0200_0000_0002, 3, PortNo(4));
    assert_eq!(fdb.lookup(0x0200_0000_0002, 3, 2_000_000), Some(PortNo(4)));
    assert!(fdb.remove_static(0x0200_0000_0002, 3) && !fdb.remove_static(0x0200_0000_0002, 3));
    fdb.retain_where(|_, _, seen_s| seen_s == STATIC);
    assert_eq!(fdb.len(), 2);
    fdb.clear_counters();
    assert_eq!((fdb.recent_counters(), fdb.counters().learned), (FdbCounters::default(), 1));
}
