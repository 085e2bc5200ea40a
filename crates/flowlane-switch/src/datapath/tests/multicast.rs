//! Multicast snooping in the action `normal`: where frames for groups leave, with caches and without.

use super::*;
use crate::state::bond::{Bond, BondMode, BondSettings};
use crate::state::multicast::tests::{igmp, to_group};
use crate::state::multicast::{Snooping, SnoopingSettings};
use crate::state::vlan::{PortVlan, VlanMode};

const A: [u8; 4] = [239, 1, 1, 1];

/// A switch that snoops.
struct Snooped {
    worker: Worker,
    sent: Sent,
    snooping: Arc<Snooping>,
}

impl Snooped {
    fn new(caches: CacheConfig, settings: SnoopingSettings) -> Self {
        let rules = flowlane::rule::flow_syntax::read(
            "table=0 actions=normal",
            "rules",
            &flowlane::rule::ReadOptions::default(),
        );
        let (mut worker, sent) = worker(&rules.unwrap(), 3, caches, By::Tuple);
        let snooping = Arc::new(Snooping::new(settings));
        worker.set_multicast(Some(snooping.clone()));
        Self { worker, sent, snooping }
    }

    /// Receives a frame at a port; returns the ports that it has left through, as a trace says.
    fn pass(&mut self, port: usize, frame: &[u8]) -> Vec<u32> {
        let Ok(Tracing::Ended(trace)) = self.worker.trace(PortNo(port as u32), frame) else {
            panic!("there is one worker, with that port");
        };
        let mut traced: Vec<u32> = trace.sent.iter().filter_map(|sent| sent.port).collect();
        traced.sort_unstable();
        self.worker.inject(port - 1, &[frame]).unwrap();
        let mut ports: Vec<u32> = self.sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
        ports.sort_unstable();
        assert_eq!(traced, ports, "a trace of {frame:02x?}");
        ports
    }
}

#[test]
fn a_path_in_the_caches_follows_the_listeners() {
    for caches in [CacheConfig::default(), CacheConfig { megaflows_max: 0, ..CacheConfig::default() }] {
        let mut snooped = Snooped::new(caches, SnoopingSettings::default());
        let data = to_group(A);
        for _ in 0..8 {
            assert_eq!(snooped.pass(4, &data), [1, 2, 3]);
        }
        assert_eq!(snooped.pass(1, &igmp(0x16, A)), [0; 0]);
        for _ in 0..8 {
            assert_eq!(snooped.pass(4, &data), [1]);
        }
        assert_eq!(snooped.pass(1, &data), [0; 0], "no packet goes back");
        assert_eq!(snooped.pass(3, &igmp(0x11, [0; 4])), [1, 2, 4]);
        assert_eq!(snooped.pass(2, &igmp(0x16, A)), [3]);
        assert_eq!(snooped.pass(4, &data), [1, 2, 3]);
        assert_eq!(snooped.pass(1, &igmp(0x17, A)), [3]);
        assert_eq!(snooped.pass(4, &data), [2, 3]);
        // Broadcasts, and groups of other protocols, go to all.
        let mut other = data.clone();
        other[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert_eq!(snooped.pass(4, &other), [1, 2, 3]);
        other[..6].fill(0xff);
        assert_eq!(snooped.pass(4, &other), [1, 2, 3]);
        snooped.worker.set_multicast(None);
        assert!(snooped.worker.egress.ports.is_plain());
        assert_eq!(snooped.pass(4, &data), [1, 2, 3]);
    }
}

#[test]
fn a_bond_gets_a_packet_once_and_a_port_outside_of_the_vlan_never() {
    let settings = SnoopingSettings { flood_ports: [PortNo(3)].into(), ..SnoopingSettings::default() };
    let mut snooped = Snooped::new(CacheConfig::default(), settings);
    let mut bond = Bond::new(BondSettings { mode: BondMode::ActiveBackup, ..BondSettings::default() }, 0);
    bond.set_members(&[(PortNo(1), "m1".to_owned()), (PortNo(2), "m2".to_owned())]);
    [1, 2].iter().for_each(|port| bond.set_well(PortNo(*port), true));
    bond.run(0);
    snooped.worker.set_bonds(vec![Arc::new(bond.view())], &[]);
    let data = to_group(A);
    // It was learned by one member, and then by the other.
    snooped.snooping.learn(&crate::state::multicast::read(&igmp(0x16, A), true).unwrap(), 0, PortNo(2), 0);
    snooped.pass(1, &igmp(0x16, A));
    assert_eq!(snooped.snooping.list(0).len(), 2);
    assert_eq!(snooped.pass(4, &data), [1, 3]);
    assert_eq!(snooped.pass(1, &data), [3], "no packet goes back through the other member");
    // Port 3 is in another VLAN.
    let place = snooped.worker.egress.ports.place(PortNo(3)).unwrap();
    let vlan = Arc::new(PortVlan::new(VlanMode::Access, 9, &[]));
    snooped.worker.egress.ports.slots_mut()[place].vlan = Some(vlan);
    assert_eq!(snooped.pass(4, &data).len(), 1);
    // There is no listener in VLAN 9: the packet goes to all.
    assert_eq!(snooped.pass(4, &[&data[..12], &[0x81, 0, 0, 9], &data[12..]].concat()).len(), 2);
}
