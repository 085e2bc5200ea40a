//! Bonds in the actions `normal` and `flood`: frames leave through one member, and are let in by some.

use flowlane::rule::{ReadOptions, flow_syntax};

use super::*;
use crate::datapath::Inlet;
use crate::state::bond::{Bond, BondMode, BondSettings};
use crate::state::lacp::{Actor, Pdu};
use crate::state::vlan::{PortVlan, VlanMode};

/// A switch whose ports 1 and 2 are a bond.
struct Bonded {
    worker: Worker,
    sent: Sent,
    bond: Bond,
}

impl Bonded {
    fn new(rules: &str, mode: BondMode) -> Self {
        let rules = flow_syntax::read(rules, "rules", &ReadOptions::default()).unwrap();
        let (worker, sent) = worker(&rules, 3, CacheConfig::default(), By::Tuple);
        let mut bond = Bond::new(BondSettings { mode, ..BondSettings::default() }, 0);
        bond.set_members(&[(PortNo(1), "m1".to_owned()), (PortNo(2), "m2".to_owned())]);
        let mut bonded = Self { worker, sent, bond };
        bonded.set_links([true, true]);
        bonded
    }

    /// Makes the links of both members so.
    fn set_links(&mut self, links: [bool; 2]) {
        (1..).zip(links).for_each(|(n, is_up)| self.bond.set_well(PortNo(n), is_up));
        self.bond.run(0);
        self.worker.set_bonds(vec![Arc::new(self.bond.view())], &[]);
    }

    /// Receives a frame at a port; returns the ports that it has left through.
    fn pass(&mut self, port: usize, frame: &[u8]) -> Vec<u32> {
        self.worker.inject(port - 1, &[frame]).unwrap();
        self.left()
    }

    fn left(&self) -> Vec<u32> {
        let mut ports: Vec<u32> = self.sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
        ports.sort_unstable();
        ports
    }

    /// Returns the ports that a trace of the frame names.
    fn trace(&self, port: u32, frame: &[u8]) -> Vec<u32> {
        let Ok(Tracing::Ended(trace)) = self.worker.trace(PortNo(port), frame) else {
            panic!("there is one worker, with that port");
        };
        let mut ports: Vec<u32> = trace.sent.iter().filter_map(|sent| sent.port).collect();
        ports.sort_unstable();
        ports
    }

    fn refused(&self) -> u64 {
        self.worker.egress.drops.not_by_member
    }
}

/// A frame between two stations, or to all for 0.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let to = if to == 0 { [0xff; 6] } else { [2, 0, 0, 0, 0, to] };
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, from, 0x88, 0xb5]].concat();
    frame.resize(60, 0);
    frame
}

/// An ARP reply to all: its sender says where it is.
fn gratuitous(from: u8) -> Vec<u8> {
    let mut arp = frame(from, 0);
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    arp
}

const NORMAL: &str = "table=0 actions=normal";

#[test]
fn frames_leave_an_active_backup_bond_once_and_come_back_nowhere() {
    let mut bonded = Bonded::new(NORMAL, BondMode::ActiveBackup);
    assert_eq!(bonded.pass(3, &frame(3, 0)), [1, 4]);
    assert_eq!(bonded.pass(1, &frame(1, 0)), [3, 4]);
    assert_eq!((bonded.pass(2, &frame(1, 0)), bonded.refused()), (vec![], 1));
    // The source was learned under the number of the bond.
    assert_eq!(bonded.worker.egress.macs.lookup(0x0200_0000_0001, 0, 0), Some(PortNo(1)));
    assert_eq!(bonded.pass(3, &frame(3, 1)), [1]);
    assert_eq!(bonded.pass(1, &frame(7, 1)), [0; 0], "it is behind the bond already");
    // The same flow, which is in the caches by now, leaves through the other member when the link is down.
    bonded.set_links([false, true]);
    assert_eq!(bonded.pass(3, &frame(3, 1)), [2]);
    assert_eq!(bonded.pass(2, &frame(1, 3)), [3]);
    assert_eq!(bonded.pass(1, &frame(1, 3)), [0; 0]);
    assert_eq!(bonded.worker.egress.macs.counters().moved, 0);
    bonded.set_links([false, false]);
    assert_eq!((bonded.pass(3, &frame(3, 1)), bonded.refused()), (vec![], 3));
    assert_eq!(bonded.pass(3, &frame(3, 0)), [4]);
    // Without the bond, its members are ports as others.
    bonded.worker.set_bonds(Vec::new(), &[]);
    assert_eq!(bonded.pass(3, &frame(3, 0)), [1, 2, 4]);
    assert!(bonded.worker.egress.ports.is_plain());
}

#[test]
fn rules_name_members_and_flood_takes_a_bond_as_one_port() {
    let rules = "table=0 in_port=3,eth_type=0x88b5 actions=output:2\ntable=0 priority=0 actions=flood";
    let mut bonded = Bonded::new(rules, BondMode::ActiveBackup);
    assert_eq!(bonded.pass(3, &frame(3, 0)), [2], "a backup sends what a rule says");
    assert_eq!(bonded.pass(4, &frame(4, 0)), [1, 3]);
    assert_eq!(bonded.pass(2, &frame(4, 0)), [3, 4]);
    assert_eq!(bonded.trace(4, &frame(4, 0)), [1, 3]);
}

#[test]
fn traces_say_what_bonds_do() {
    for mode in [BondMode::ActiveBackup, BondMode::BalanceSlb] {
        let mut bonded = Bonded::new(NORMAL, mode);
        for (port, from, to) in
            [(1, 1, 0), (3, 3, 0), (3, 3, 1), (4, 4, 1), (2, 1, 3), (2, 9, 0), (1, 3, 4), (1, 7, 1)]
        {
            let traced = bonded.trace(port as u32, &frame(from, to));
            assert_eq!(traced, bonded.pass(port, &frame(from, to)), "{mode:?}, port {port}, {from} to {to}");
        }
    }
}

#[test]
fn a_balanced_bond_refuses_its_own_frames_that_come_back() {
    let mut bonded = Bonded::new(NORMAL, BondMode::BalanceSlb);
    let members: Vec<u32> = (10..30).flat_map(|source| bonded.pass(3, &frame(source, 0))).collect();
    assert!(members.contains(&1) && members.contains(&2), "{members:?}");
    assert_eq!(members.len(), 40, "one member for each frame, and port 4");
    // They come back through the other member, and through the active one.
    for port in [1, 2] {
        assert_eq!(bonded.pass(port, &frame(10, 5)), [0; 0]);
    }
    assert_eq!(bonded.refused(), 2);
    assert_eq!(bonded.pass(2, &frame(40, 0)), [0; 0], "only the active member takes groups");
    assert_eq!(bonded.pass(2, &frame(40, 10)), [3]);
    assert_eq!(bonded.pass(1, &frame(40, 0)), [3, 4]);
    // A station that has moved behind the bond says so.
    assert_eq!(bonded.pass(1, &gratuitous(10)), [3, 4]);
    assert_eq!(bonded.pass(2, &frame(10, 11)), [3]);
    // One that says where it is here is heard again through the bond.
    bonded.pass(3, &gratuitous(12));
    assert_eq!(bonded.pass(1, &gratuitous(12)), [0; 0]);
    assert_eq!(bonded.worker.egress.macs.lookup(0x0200_0000_000c, 0, 0), Some(PortNo(3)));
}

#[test]
fn bonds_have_the_vlans_of_their_port() {
    let mut bonded = Bonded::new(NORMAL, BondMode::ActiveBackup);
    let vlan = |tag, mode| Some(Arc::new(PortVlan::new(mode, tag, &[])));
    for (place, slot) in bonded.worker.egress.ports.iter_mut().enumerate() {
        slot.vlan = if place < 2 { vlan(0, VlanMode::Trunk) } else { vlan(place as u16, VlanMode::Access) };
    }
    bonded.set_links([true, true]);
    assert_eq!(bonded.pass(3, &frame(3, 0)), [1], "port 4 is in another VLAN");
    bonded.worker.inject(2, &[&frame(3, 0)]).unwrap();
    let tagged = bonded.sent.lock().unwrap().pop().unwrap().1;
    assert_eq!(tagged[12..16], [0x81, 0, 0, 2]);
    assert_eq!(bonded.pass(2, &tagged), [0; 0]);
    bonded.set_links([false, true]);
    let mut other = tagged.clone();
    (other[15], other[11]) = (3, 9);
    assert_eq!(bonded.pass(2, &other), [4]);
}

#[test]
fn members_that_come_belong_to_their_bond_at_once() {
    let mut bonded = Bonded::new(NORMAL, BondMode::ActiveBackup);
    let ports = &mut bonded.worker.egress.ports;
    assert!(ports.remove(PortNo(2)).is_some());
    let place = ports.free_place();
    let slot = PortSlot::new(PortNo(2), "port2", "", Box::new(Recorder(2, bonded.sent.clone())));
    assert!(ports.put(place, slot).is_none());
    assert_eq!(bonded.pass(3, &frame(3, 0)), [1, 4]);
    bonded.set_links([false, true]);
    assert_eq!(bonded.pass(3, &frame(3, 0)), [2, 4]);
    // Its addresses have the number of the first, as before.
    assert_eq!(bonded.pass(place + 1, &frame(1, 0)), [3, 4]);
    assert_eq!(bonded.worker.egress.macs.lookup(0x0200_0000_0001, 0, 0), Some(PortNo(1)));
}

#[test]
fn neighbours_hear_where_addresses_are_after_a_change() {
    let mut bonded = Bonded::new(NORMAL, BondMode::ActiveBackup);
    for (port, source) in [(3, 3), (4, 4), (1, 1)] {
        bonded.pass(port, &frame(source, 0));
    }
    bonded.set_links([false, true]);
    let view = Arc::new(bonded.bond.view());
    bonded.worker.set_bonds(vec![view], &[PortNo(2)]);
    let mut announced = std::mem::take(&mut *bonded.sent.lock().unwrap());
    announced.sort();
    let sources: Vec<(u32, u8, [u8; 2])> =
        announced.iter().map(|(port, frame)| (*port, frame[11], [frame[12], frame[13]])).collect();
    assert_eq!(sources, [(2, 3, [0x80, 0x35]), (2, 4, [0x80, 0x35])]);
    assert!(announced.iter().all(|(_, frame)| frame.len() == 60 && frame[..6] == [0xff; 6]));
}

#[test]
fn pdus_of_lacp_leave_the_way_of_packets_where_a_port_speaks_it() {
    let mut bonded = Bonded::new("table=0 actions=output:4", BondMode::ActiveBackup);
    let pdu = Pdu { actor: Actor { port_id: 7, ..Actor::default() }, ..Pdu::default() }.frame([2; 6]);
    let mut marker = pdu.clone();
    marker[14] = 2;
    assert_eq!(bonded.pass(1, &pdu), [4], "the port does not speak LACP");
    let inlet = Arc::new(Inlet::of_lacp(std::thread::current()));
    bonded.worker.set_lacp(&[(PortNo(1), inlet.clone())]);
    bonded.worker.inject(0, &[&pdu, &frame(1, 0), &marker]).unwrap();
    assert_eq!((bonded.left(), inlet.take().len()), (vec![4], 2));
    for _ in 0..20 {
        bonded.worker.inject(0, &[&pdu]).unwrap();
    }
    let waiting: Vec<Vec<u8>> = inlet.take().into_iter().map(|frame| frame.bytes).collect();
    assert_eq!((waiting.len(), &waiting[0]), (16, &pdu));
    assert_eq!(bonded.worker.egress.ports.slots()[0].counters.rx_dropped, 4);
    assert_eq!(bonded.pass(2, &pdu), [4], "another port does not speak LACP");
}
