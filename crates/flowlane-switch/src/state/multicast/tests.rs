//! Snooping alone: messages, listeners, routers, and their bounds.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::packet::edit::checksum::{fold, sum};

/// Where a message comes from.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A frame of IPv4 to a group, with Router Alert.
fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, content: &[u8]) -> Vec<u8> {
    let [_, b, c, d] = destination.octets();
    let mut frame = vec![1, 0, 0x5e, b & 0x7f, c, d, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x46, 0xc0, 0, 24 + content.len() as u8, 0, 0, 0, 0, 1, protocol, 0, 0]);
    frame.extend([source.octets(), destination.octets(), [0x94, 4, 0, 0]].concat());
    let checksum = !fold(sum(&frame[14..]));
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(content);
    frame.resize(frame.len().max(60), 0xee);
    frame
}

/// A frame of IPv6 to a group, with Router Alert in a hop-by-hop header.
fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, content: &[u8]) -> Vec<u8> {
    let [.., a, b, c, d] = destination.octets();
    let mut frame = vec![0x33, 0x33, a, b, c, d, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 8 + content.len() as u8, 0, 1]);
    frame.extend([source.octets(), destination.octets()].concat());
    frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    frame.extend(content);
    frame
}

fn with_checksum(mut message: Vec<u8>, pseudo: u32) -> Vec<u8> {
    let checksum = !fold(pseudo + sum(&message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A message of IGMP about one group.
pub(crate) fn igmp(kind: u8, group: [u8; 4]) -> Vec<u8> {
    let message = with_checksum([&[kind, 0, 0, 0][..], &group].concat(), 0);
    let destination = if kind == 0x11 { Ipv4Addr::new(224, 0, 0, 1) } else { group.into() };
    ipv4(HOST, destination, 2, &message)
}

/// A packet for a group.
pub(crate) fn to_group(group: [u8; 4]) -> Vec<u8> {
    ipv4(HOST, group.into(), 253, b"payload")
}

/// A report of IGMPv3 or MLDv2 with records: types, numbers of sources, words of auxiliary data, and groups.
fn records(records: &[(u8, u16, u8, IpAddr)]) -> Vec<u8> {
    let is_ipv6 = records.iter().any(|(.., group)| group.is_ipv6());
    let mut message = vec![if is_ipv6 { 143 } else { 0x22 }, 0, 0, 0, 0, 0, 0, records.len() as u8];
    for (kind, sources, auxiliary, group) in records {
        message.extend([*kind, *auxiliary]);
        message.extend(sources.to_be_bytes());
        let address = match group {
            IpAddr::V4(group) => group.octets().to_vec(),
            IpAddr::V6(group) => group.octets().to_vec(),
        };
        message.extend(&address);
        message
            .resize(message.len() + address.len() * usize::from(*sources) + 4 * usize::from(*auxiliary), 7);
    }
    if is_ipv6 {
        mld(LINK_LOCAL, message)
    } else {
        ipv4(HOST, Ipv4Addr::new(224, 0, 0, 22), 2, &with_checksum(message, 0))
    }
}

fn mld(source: Ipv6Addr, message: Vec<u8>) -> Vec<u8> {
    let destination = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
    let addresses = sum(&source.octets()) + sum(&destination.octets());
    let pseudo = addresses + message.len() as u32 + 58;
    ipv6(source, destination, &with_checksum(message, pseudo))
}

fn mld_one(kind: u8, group: Ipv6Addr) -> Vec<u8> {
    mld(LINK_LOCAL, [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat())
}

fn mapped(group: [u8; 4]) -> Ipv6Addr {
    Ipv4Addr::from(group).to_ipv6_mapped()
}

const A: [u8; 4] = [239, 1, 1, 1];
const B: [u8; 4] = [239, 1, 1, 2];

struct Bridge(Snooping);

impl Bridge {
    fn new(change: impl Fn(&mut SnoopingSettings)) -> Self {
        let mut settings = SnoopingSettings::default();
        change(&mut settings);
        Self(Snooping::new(settings))
    }

    /// Receives a frame at a port in a VLAN; returns the ports that it goes to, or none for all.
    fn pass(&self, port: u32, vid: u16, now_s: u32, frame: &[u8]) -> Option<Vec<u32>> {
        let frame = read(frame, true).expect("a frame for a group");
        self.0.learn(&frame, vid, PortNo(port), now_s);
        let mut ports = Vec::new();
        let is_known = self.0.ports_for(&frame, vid, now_s, &mut ports);
        is_known.then(|| ports.iter().map(|port| port.0).collect())
    }

    fn listed(&self, now_s: u32) -> Vec<(Ipv6Addr, u32, u32)> {
        self.0.list(now_s).iter().map(|one| (one.group, one.port.0, one.age_s)).collect()
    }
}

#[test]
fn packets_go_to_listeners_and_routers_of_their_vlan() {
    let bridge = Bridge::new(|_| {});
    assert_eq!(bridge.pass(4, 0, 0, &to_group(A)), None, "it has no listener");
    assert_eq!(bridge.pass(1, 0, 0, &igmp(0x16, A)), Some(vec![]), "there is no router");
    assert_eq!(bridge.pass(4, 0, 0, &to_group(A)), Some(vec![1]));
    assert_eq!(bridge.pass(4, 7, 0, &to_group(A)), None, "the listener is in another VLAN");
    assert_eq!(bridge.pass(4, 0, 0, &to_group(B)), None);
    assert_eq!(bridge.pass(3, 0, 1, &igmp(0x11, [0; 4])), None, "a query goes to all");
    assert_eq!(bridge.pass(2, 0, 2, &igmp(0x12, A)), Some(vec![3]));
    assert_eq!(bridge.pass(3, 0, 2, &igmp(0x16, A)), Some(vec![3]));
    assert_eq!(bridge.pass(4, 0, 2, &to_group(A)), Some(vec![1, 2, 3]));
    assert_eq!(
        bridge.listed(3),
        [(mapped(A), 1, 3), (mapped(A), 2, 1)],
        "routers get all packets in any case"
    );
    assert_eq!(bridge.pass(1, 0, 3, &igmp(0x17, A)), Some(vec![3]));
    assert_eq!(bridge.pass(4, 0, 3, &to_group(A)), Some(vec![2, 3]));
    bridge.pass(2, 0, 3, &igmp(0x17, A));
    assert_eq!((bridge.pass(4, 0, 3, &to_group(A)), bridge.0.len()), (None, 0));
    // Packets of the link, and IGMP of other types.
    assert_eq!(bridge.pass(4, 0, 3, &to_group([224, 0, 0, 5])), None);
    assert_eq!(bridge.pass(4, 0, 3, &igmp(0x1e, A)), None);
}

#[test]
fn settings_say_where_packets_for_unknown_groups_go() {
    let flood = |settings: &mut SnoopingSettings| {
        settings.floods_unregistered = false;
        settings.flood_ports = [PortNo(5)].into();
        settings.report_ports = [PortNo(6)].into();
    };
    let bridge = Bridge::new(flood);
    assert_eq!(bridge.pass(4, 0, 0, &to_group(A)), Some(vec![5]));
    assert_eq!(bridge.pass(1, 0, 0, &igmp(0x16, A)), Some(vec![6]));
    bridge.pass(6, 0, 0, &igmp(0x16, A));
    assert_eq!(bridge.pass(4, 0, 0, &to_group(A)), Some(vec![1, 5, 6]));
    // Nothing is learned of a port that gets all, and one that gets reports may have more hosts.
    bridge.pass(5, 0, 0, &igmp(0x16, A));
    bridge.pass(5, 0, 0, &igmp(0x11, [0; 4]));
    bridge.pass(6, 0, 0, &igmp(0x17, A));
    assert_eq!(bridge.listed(0), [(mapped(A), 1, 0), (mapped(A), 6, 0)]);
    assert_eq!(bridge.0.list_routers(0), []);
    bridge.0.configure(SnoopingSettings::default());
    assert_eq!(bridge.pass(4, 0, 0, &to_group(A)), Some(vec![1, 6]));
    bridge.0.flush();
    assert_eq!(bridge.pass(4, 0, 0, &to_group(A)), None);
}

#[test]
fn listeners_and_routers_age() {
    let bridge = Bridge::new(|_| {});
    bridge.pass(1, 0, 100, &igmp(0x16, A));
    bridge.pass(2, 0, 200, &igmp(0x16, A));
    bridge.pass(3, 0, 100, &igmp(0x11, [0; 4]));
    assert_eq!(bridge.pass(4, 0, 279, &to_group(A)), Some(vec![1, 2, 3]));
    assert_eq!(bridge.pass(4, 0, 280, &to_group(A)), Some(vec![1, 2]));
    assert_eq!(bridge.pass(4, 0, 400, &to_group(A)), Some(vec![2]));
    bridge.0.sweep(499);
    assert_eq!(bridge.0.len(), 1);
    assert_eq!(bridge.pass(4, 0, 500, &to_group(A)), None);
    bridge.0.sweep(500);
    assert_eq!((bridge.0.len(), bridge.0.list_routers(500)), (0, vec![]));
    // A shorter time holds for those that are there.
    bridge.pass(1, 0, 500, &igmp(0x16, A));
    bridge.0.configure(SnoopingSettings { ageing_s: 15, ..SnoopingSettings::default() });
    assert_eq!((bridge.listed(514).len(), bridge.listed(515).len()), (1, 0));
}

#[test]
fn records_of_igmpv3_and_mldv2_join_and_leave() {
    let bridge = Bridge::new(|_| {});
    let v6 = |last: u16| Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 1, last);
    let groups: [IpAddr; 4] = [A.into(), B.into(), v6(1).into(), v6(2).into()];
    for family in [&groups[..2], &groups[2..]] {
        let [one, other] = *family else { unreachable!("two of each") };
        let key = |group: IpAddr| match group {
            IpAddr::V4(group) => group.to_ipv6_mapped(),
            IpAddr::V6(group) => group,
        };
        // Sources and auxiliary data are skipped, and so is a record of an unknown type.
        bridge.pass(1, 0, 0, &records(&[(4, 2, 1, one), (9, 1, 0, other), (1, 1, 0, other), (3, 0, 0, one)]));
        assert_eq!(bridge.listed(0), [(key(other), 1, 0)], "{family:?}");
        bridge.pass(1, 0, 0, &records(&[(2, 0, 0, one), (3, 0, 0, other)]));
        assert_eq!(bridge.listed(0), [(key(one), 1, 0)]);
        bridge.0.flush();
    }
    // MLDv1, and a packet for the group.
    assert_eq!(bridge.pass(1, 0, 0, &mld_one(131, v6(1))), Some(vec![]));
    assert_eq!(bridge.pass(3, 0, 0, &ipv6(LINK_LOCAL, v6(1), &[59, 0, 1, 4, 0, 0, 0, 0])), Some(vec![1]));
    bridge.pass(1, 0, 0, &mld_one(132, v6(1)));
    assert!(bridge.0.is_empty());
    // All nodes, and other neighbours of the link.
    let discovery = [135, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        bridge.pass(1, 0, 0, &ipv6(LINK_LOCAL, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), &discovery)),
        None
    );
    // Queries of routers, and of a switch that has no address.
    for (source, is_of_router) in [(LINK_LOCAL, true), (Ipv6Addr::UNSPECIFIED, false)] {
        let query = mld(source, [&[130][..], &[0; 23]].concat());
        assert_eq!(read(&query, true), Some(GroupFrame::Query { is_of_router }));
    }
}

#[test]
fn messages_that_are_not_sound_change_nothing() {
    let bridge = Bridge::new(|_| {});
    let good = [
        igmp(0x16, A),
        records(&[(4, 0, 0, A.into()), (4, 0, 0, B.into())]),
        mld_one(131, Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9)),
        igmp(0x11, [0; 4]),
    ];
    for frame in &good {
        let message = 14 + if frame[12] == 8 { 24 } else { 48 };
        for at in message..message + 8 {
            let mut wrong = frame.clone();
            wrong[at] ^= 0x10;
            bridge.pass(1, 0, 0, &wrong);
        }
        for len in 0..frame.len().min(message + 8) {
            if let Some(cut) = read(&frame[..len], true) {
                bridge.0.learn(&cut, 0, PortNo(1), 0);
            }
        }
        // A fragment.
        if frame[12] == 8 {
            for flags in [0x20, 1] {
                let mut fragment = frame.clone();
                fragment[20] = flags;
                bridge.pass(1, 0, 0, &fragment);
            }
        }
    }
    // An address that is no group's.
    bridge.pass(1, 0, 0, &igmp(0x16, [10, 0, 0, 9]));
    assert_eq!((bridge.listed(0), bridge.0.list_routers(0)), (vec![], vec![]));
    // The checksum of a frame that a device completes is not looked at.
    let mut incomplete = igmp(0x16, A);
    incomplete[40] ^= 1;
    bridge.0.learn(&read(&incomplete, false).unwrap(), 0, PortNo(1), 0);
    assert_eq!(bridge.0.len(), 1);
    // A report that says more records than it has.
    let mut more = records(&[(4, 0, 0, B.into())]);
    more[14 + 24 + 7] = 2;
    let checksum = !fold(sum(&[&more[38..40], &[0; 2], &more[42..54]].concat()));
    more[40..42].copy_from_slice(&checksum.to_be_bytes());
    bridge.pass(1, 0, 0, &more);
    assert_eq!(bridge.0.len(), 2);
    // Frames for one station, for all, and of other protocols are not for groups.
    for frame in [[2; 60], [0xff; 60], [1; 60]] {
        assert_eq!(read(&frame, true), None);
    }
}

#[test]
fn a_full_table_forgets_the_group_that_was_reported_longest_ago() {
    let bridge = Bridge::new(|settings| settings.groups_max = 10);
    let group = |last: u8| [239, 2, 0, last];
    (0..10).for_each(|last| _ = bridge.pass(1, 0, 0, &igmp(0x16, group(last))));
    bridge.pass(2, 0, 0, &igmp(0x16, group(0)));
    (10..60).for_each(|last| _ = bridge.pass(3, 0, 0, &igmp(0x16, group(last))));
    assert_eq!(bridge.0.len(), 10);
    assert_eq!(bridge.listed(0), (50..60).map(|last| (mapped(group(last)), 3, 0)).collect::<Vec<_>>());
    bridge.0.configure(SnoopingSettings { groups_max: 2, ..SnoopingSettings::default() });
    assert_eq!(bridge.listed(0).len(), 2);
    bridge.0.retain(|_, port| port != PortNo(3));
    assert!(bridge.0.is_empty());
    bridge.pass(1, 0, 0, &igmp(0x16, A));
    assert_eq!(bridge.0.len(), 1, "the order of reports has no traces of groups that are gone");
}

#[test]
fn another_table_goes_on_with_listeners_and_routers() {
    let bridge = Bridge::new(|_| {});
    bridge.pass(1, 5, 100, &igmp(0x16, A));
    bridge.pass(2, 5, 150, &igmp(0x11, [0; 4]));
    let other = Bridge::new(|_| {});
    other.0.restore(&bridge.0.list(200), &bridge.0.list_routers(200), 1000);
    assert_eq!(other.pass(4, 5, 1000, &to_group(A)), Some(vec![1, 2]));
    assert_eq!(other.pass(4, 5, 1130, &to_group(A)), Some(vec![1]));
    assert_eq!(other.pass(4, 5, 1200, &to_group(A)), None);
}
