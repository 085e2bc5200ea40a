use std::collections::BTreeMap;

use flowlane::rule::action::PortNo;

use super::*;

/// A bond of members `m1`, `m2` and so on, whose links are up, after its first run.
fn bond(settings: BondSettings, members: u32) -> Bond {
    let mut bond = Bond::new(settings, 0);
    let all: Vec<(PortNo, String)> = (1..=members).map(|n| (PortNo(n), format!("m{n}"))).collect();
    bond.set_members(&all);
    (1..=members).for_each(|n| bond.set_well(PortNo(n), true));
    bond.run(0);
    bond
}

fn settings(mode: BondMode) -> BondSettings {
    BondSettings { mode, ..BondSettings::default() }
}

/// A frame of a source to a station or a group, without a payload.
fn frame(source: u8, is_group: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 0, source, 0x88, 0xb5];
    frame[0] = if is_group { 3 } else { 2 };
    frame.resize(60, 0);
    frame
}

/// The members that frames of many sources leave through, with their numbers of frames.
fn spread(view: &BondView) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for source in 0..=255 {
        if let Some((port, _)) = view.member_for(&frame(source, false), 0) {
            *counts.entry(port.0).or_default() += 1;
        }
    }
    counts
}

/// The members that let a frame in.
fn let_in(view: &BondView, is_group: bool) -> Vec<(u32, Admission)> {
    let of = |port: &BondMember| (port.port.0, view.admission(port.port, &frame(1, is_group)));
    view.members().iter().map(of).filter(|(_, admission)| *admission != Admission::Drop).collect()
}

#[test]
fn an_active_backup_bond_uses_one_member() {
    let mut bond = bond(settings(BondMode::ActiveBackup), 3);
    let view = bond.take_change().unwrap();
    assert_eq!((spread(&view), view.lead()), (BTreeMap::from([(1, 256)]), Some(PortNo(1))));
    for is_group in [false, true] {
        assert_eq!(let_in(&view, is_group), [(1, Admission::Accept)]);
    }
    bond.run(5);
    assert!(bond.take_change().is_none(), "nothing has changed");
    assert!(bond.take_announcement() && !bond.take_announcement());
    bond.set_well(PortNo(1), false);
    bond.run(10);
    let view = bond.take_change().unwrap();
    assert_eq!(
        (spread(&view), let_in(&view, false)),
        (BTreeMap::from([(2, 256)]), vec![(2, Admission::Accept)])
    );
    assert!(bond.take_announcement(), "neighbours are to learn it");
    // The first comes again, and stays a backup.
    bond.set_well(PortNo(1), true);
    bond.run(20);
    assert_eq!((bond.active(), bond.take_announcement()), (Some(PortNo(2)), false));
    // None is left.
    (1..=3).for_each(|n| bond.set_well(PortNo(n), false));
    bond.run(30);
    let view = bond.take_change().unwrap();
    assert_eq!((bond.active(), spread(&view).len(), let_in(&view, true).len()), (None, 0, 0));
}

#[test]
fn ports_that_are_held_have_no_part_in_a_bond() {
    for mode in [BondMode::ActiveBackup, BondMode::BalanceSlb] {
        let mut bond = Bond::new(settings(mode), 0);
        bond.set_members(&[(PortNo(2), "m2".to_owned())]);
        bond.set_well(PortNo(2), true);
        bond.run(0);
        let mut view = bond.view();
        view.hold([PortNo(1)]);
        assert!(view.has(PortNo(1)) && view.lead() == Some(PortNo(2)));
        assert_eq!(spread(&view), BTreeMap::from([(2, 256)]));
        assert_eq!(view.admission(PortNo(1), &frame(1, true)), Admission::Drop);
    }
}

#[test]
fn the_primary_member_is_active_while_it_is_enabled() {
    let primary = BondSettings { primary: Some("m2".to_owned()), ..settings(BondMode::ActiveBackup) };
    let mut bond = bond(primary, 2);
    assert_eq!(bond.active(), Some(PortNo(2)));
    bond.set_well(PortNo(2), false);
    bond.run(1);
    assert_eq!(bond.active(), Some(PortNo(1)));
    bond.set_well(PortNo(2), true);
    bond.run(2);
    assert_eq!(bond.active(), Some(PortNo(2)));
    // As in Open vSwitch, an operator's choice does not last against it.
    assert_eq!(bond.set_active("m1"), Ok(true));
    bond.run(3);
    assert_eq!(bond.active(), Some(PortNo(2)));
    assert_eq!(bond.set_active("m9"), Err(NoMember));
}

#[test]
fn the_member_that_was_active_is_so_again() {
    let mut bond = bond(settings(BondMode::ActiveBackup), 2);
    assert_eq!(bond.active(), Some(PortNo(1)));
    bond.prefer(PortNo(2));
    bond.run(1);
    assert_eq!(bond.active(), Some(PortNo(2)));
    // One that does not send is not.
    bond.set_well(PortNo(1), false);
    bond.run(2);
    bond.prefer(PortNo(1));
    bond.run(3);
    assert_eq!(bond.active(), Some(PortNo(2)));
}

#[test]
fn delays_hold_unless_no_member_is_enabled() {
    let delays = BondSettings { updelay_ms: 300, downdelay_ms: 200, ..settings(BondMode::ActiveBackup) };
    let mut bond = bond(delays, 2);
    // The first is enabled at once, the other after the delay.
    assert_eq!((bond.active(), bond.deadline_ms()), (Some(PortNo(1)), 300));
    bond.run(299);
    assert!(!bond.view().members()[1].is_enabled);
    bond.run(300);
    assert!(bond.view().members()[1].is_enabled && bond.deadline_ms() == u64::MAX);
    // A link that is down for less than its delay.
    bond.set_well(PortNo(1), false);
    bond.run(400);
    assert_eq!((bond.active(), bond.deadline_ms()), (Some(PortNo(1)), 600));
    bond.set_well(PortNo(1), true);
    bond.run(599);
    bond.run(700);
    assert_eq!((bond.active(), bond.deadline_ms()), (Some(PortNo(1)), u64::MAX));
    bond.set_well(PortNo(1), false);
    bond.run(1000);
    bond.run(1200);
    assert_eq!(bond.active(), Some(PortNo(2)));
    // The last goes; the first that comes again does not wait.
    bond.set_well(PortNo(2), false);
    bond.run(1300);
    bond.run(1500);
    assert_eq!(bond.active(), None);
    bond.set_well(PortNo(1), true);
    bond.run(1600);
    assert_eq!(bond.active(), Some(PortNo(1)));
}

#[test]
fn a_balanced_bond_spreads_sources_and_keeps_them_where_they_are() {
    let mut bond = bond(settings(BondMode::BalanceSlb), 3);
    let view = bond.take_change().unwrap();
    let counts = spread(&view);
    assert!(counts.len() == 3 && counts.values().all(|count| *count > 50), "{counts:?}");
    let elsewhere = Admission::AcceptUnlessLearnedElsewhere;
    assert_eq!(let_in(&view, false), [(1, elsewhere), (2, elsewhere), (3, elsewhere)]);
    assert_eq!(let_in(&view, true), [(1, elsewhere)]);
    let of = |view: &BondView| -> Vec<u32> {
        (0..=255).map(|source| view.member_for(&frame(source, false), 0).unwrap().0.0).collect()
    };
    let before = of(&view);
    bond.set_well(PortNo(3), false);
    bond.run(1);
    let view = bond.take_change().unwrap();
    let after = of(&view);
    let is_kept = |(before, after): (&u32, &u32)| *after != 3 && (*before == 3 || before == after);
    assert!(before.iter().zip(&after).all(is_kept), "only those of the lost member move");
    // It comes again, and gets buckets that are idle.
    let busy = view.member_for(&frame(1, false), 0).unwrap();
    view.count(busy.1, 1000);
    bond.set_well(PortNo(3), true);
    bond.run(1);
    let view = bond.take_change().unwrap();
    let counts = spread(&view);
    assert!(counts.len() == 3 && counts.values().all(|count| *count > 50), "{counts:?}");
    assert_eq!(view.member_for(&frame(1, false), 0), Some(busy), "one with a load stays");
    // A VLAN and a basis make another hash.
    let vlans: Vec<_> = (0..64).map(|vid| view.member_for(&frame(1, false), vid).unwrap().1).collect();
    assert!(vlans.iter().any(|bucket| *bucket != vlans[0]));
    // All members let groups in if they are to.
    bond.configure(BondSettings { all_members_active: true, ..settings(BondMode::BalanceSlb) }, 2);
    assert_eq!(let_in(&bond.take_change().unwrap(), true).len(), 3);
}

#[test]
fn flows_are_spread_where_lacp_is_negotiated() {
    let mut bond = bond(settings(BondMode::BalanceTcp), 2);
    let view = bond.take_change().unwrap();
    assert_eq!((spread(&view).len(), let_in(&view, false).len()), (0, 0), "without LACP, nothing passes");
    bond.set_lacp(LacpState::Negotiated);
    bond.run(1);
    let view = bond.take_change().unwrap();
    assert_eq!(let_in(&view, true), [(1, Admission::Accept), (2, Admission::Accept)]);
    let udp = |port: u16, fragment: u16| {
        let mut frame = frame(1, false);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, (fragment >> 8) as u8, fragment as u8, 64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
        view.member_for(&frame, 0).unwrap().1.unwrap()
    };
    let buckets: Vec<u8> = (0..64).map(|port| udp(1000 + port, 0)).collect();
    assert!(buckets.iter().filter(|bucket| **bucket != buckets[0]).count() > 32);
    // More fragments, and a later one, whose bytes are no ports.
    assert_eq!(udp(1, 0x2000), udp(2, 3));
}

#[test]
fn without_a_neighbour_that_speaks_lacp_a_bond_passes_nothing_or_falls_back() {
    for mode in BondMode::ALL {
        for falls_back in [false, true] {
            let mut bond = bond(BondSettings { falls_back, ..settings(mode) }, 2);
            bond.set_lacp(LacpState::Configured);
            bond.run(1);
            let view = bond.take_change().unwrap();
            let expected = if falls_back { vec![(1, Admission::Accept)] } else { vec![] };
            assert_eq!(let_in(&view, true), expected, "{mode:?} {falls_back}");
            let expected: BTreeMap<u32, usize> = if falls_back { [(1, 256)].into() } else { [].into() };
            assert_eq!(spread(&view), expected, "{mode:?} {falls_back}");
        }
    }
}

#[test]
fn buckets_move_from_loaded_members_to_others() {
    let mut bond = bond(settings(BondMode::BalanceSlb), 2);
    let view = bond.take_change().unwrap();
    // Two sources of one member have all the load, and further ones nearly none.
    let of_first = |source: &u8| view.member_for(&frame(*source, false), 0).unwrap().0 == PortNo(1);
    let heavy: Vec<u8> = (0..=255).filter(of_first).take(2).collect();
    let send = |view: &BondView, source: u8, bytes: usize| {
        let (port, bucket) = view.member_for(&frame(source, false), 0).unwrap();
        view.count(bucket, bytes);
        port.0
    };
    send(&view, heavy[0], 60_000_000);
    send(&view, heavy[1], 50_000_000);
    bond.run(REBALANCE_MS - 1);
    assert!(bond.take_change().is_none());
    bond.run(REBALANCE_MS);
    let view = bond.take_change().unwrap();
    assert_eq!(heavy.iter().map(|source| send(&view, *source, 0)).sum::<u32>(), 3, "one each");
    // Buckets with an even load stay.
    bond.run(2 * REBALANCE_MS);
    assert!(bond.take_change().is_none());
    // One source that has all the load cannot be divided.
    send(&view, heavy[0], 900_000_000);
    bond.run(3 * REBALANCE_MS);
    bond.run(4 * REBALANCE_MS);
    assert!(bond.deadline_ms() == 5 * REBALANCE_MS);
}

#[test]
fn hashes_are_those_of_open_vswitch() {
    // `ovs-appctl bond/hash MAC VLAN BASIS` of Open vSwitch 3.1.
    for (mac, vid, basis, bucket) in [
        (0x0200_0000_0001, 0, 0, 38),
        (0x0200_0000_0001, 5, 0, 37),
        (0x0200_0000_0001, 5, 7, 18),
        (0x0200_0000_0002, 0, 0, 235),
        (0xaabb_ccdd_eeff, 100, 77, 31),
    ] {
        assert_eq!(source_hash(mac, vid, basis) as u8, bucket, "{mac:012x} {vid} {basis}");
    }
}

#[test]
fn gratuitous_arps_are_replies_to_all_and_requests_for_oneself() {
    let arp = |operation: u8, target: u8, tags: usize| {
        let mut frame = [vec![0xff; 6], vec![2, 0, 0, 0, 0, 1]].concat();
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        frame.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, target]);
        frame
    };
    for tags in 0..=2 {
        for (operation, target, expected) in [(1, 1, true), (1, 2, false), (2, 2, true), (3, 1, false)] {
            assert_eq!(is_gratuitous_arp(&arp(operation, target, tags)), expected);
        }
        let mut to_one = arp(2, 1, tags);
        to_one[0] = 2;
        assert!(!is_gratuitous_arp(&to_one));
        let whole = arp(2, 1, tags);
        assert!((0..whole.len()).all(|len| !is_gratuitous_arp(&whole[..len])));
    }
}

#[test]
fn bonds_are_described_as_open_vswitch_does() {
    let balanced = BondSettings { hash_basis: 5, updelay_ms: 100, ..settings(BondMode::BalanceSlb) };
    let mut bond = bond(balanced, 2);
    bond.view().count(Some(7), 5000);
    bond.buckets.migrate(7, PortNo(1));
    let expected = "---- bond0 ----
bond_mode: balance-slb
bond may use recirculation: no, Recirc-ID : -1
bond-hash-basis: 5
lb_output action: disabled, bond-id: -1
all members active: false
updelay: 100 ms
downdelay: 0 ms
next rebalance: 9970 ms
lacp_status: off
lacp_fallback_ab: false
active-backup primary: <none>
active member mac: 02:00:00:00:00:01(m1)

member m1: enabled
  active member
  may_enable: true
  hash 7: 4 kB load

member m2: disabled
  updelay expires in 70 ms
  may_enable: true

";
    assert_eq!(bond.describe("bond0", [2, 0, 0, 0, 0, 1], 30), expected);
    assert_eq!(bond.list("bond0"), "bond0\tbalance-slb\t0\tm1, m2");
}
