//! VLANs that a switch floods, whatever it knows: it learns no addresses there.

use std::sync::Arc;

use super::{Ends, Fdb, NormalDecision, STATIC};
use crate::state::vlan::Vlans;

impl Fdb {
    /// Floods all frames of some VLANs, for this worker; `None`: of none. A change forgets all learned addresses, as in Open vSwitch; the
    /// first time, those that another process has left, in these VLANs.
    pub fn flood_vlans(&mut self, vlans: Option<Arc<Vlans>>) {
        let is_change = std::mem::replace(&mut self.flooded_is_set, true);
        if self.flooded == vlans {
            return;
        }
        self.flooded = vlans;
        let flooded = self.flooded.clone().filter(|_| !is_change);
        let stays = |vid| flooded.as_ref().is_some_and(|flooded| !flooded.has(vid));
        self.retain_where(|vid, _, seen_s| seen_s == STATIC || stays(vid));
    }

    #[inline]
    pub(super) fn is_flooded(&self, vid: u16) -> bool {
        self.flooded.as_ref().is_some_and(|vlans| vlans.has(vid))
    }
}

impl Ends {
    /// The destination of a frame in such a VLAN.
    pub(super) fn flooded(&self) -> NormalDecision {
        if self.is_reserved() { NormalDecision::Drop } else { NormalDecision::Flood }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::rule::action::PortNo;

    use super::*;

    /// A frame of station `from` to station `to`, in the VLAN of a header.
    fn frame(from: u8, to: u8, vid: u8) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x81, 0, 0, vid, 8, 0][..], &[0; 46]].concat()
    }

    #[test]
    fn addresses_of_flooded_vlans_are_forgotten_and_not_learned() {
        let mut fdb = Fdb::new(100, 300, 1);
        for vid in [5, 6] {
            assert_eq!(fdb.switch(&frame(1, 2, vid), PortNo(1), 1), NormalDecision::Flood);
        }
        let flooded = || Some(Arc::new(Vlans::of([5])));
        fdb.flood_vlans(flooded());
        let left: Vec<u16> = fdb.entries().iter().map(|(_, vid, ..)| *vid).collect();
        assert_eq!(left, [6], "at first, those of other VLANs stay");
        fdb.flood_vlans(None);
        assert!(fdb.is_empty());
        fdb.flood_vlans(flooded());
        fdb.switch(&frame(1, 2, 6), PortNo(1), 1);
        fdb.flood_vlans(flooded());
        assert_eq!(fdb.len(), 1, "no change");
        for (vid, decision) in [(5, NormalDecision::Flood), (6, NormalDecision::To(PortNo(1)))] {
            assert_eq!(fdb.decide(None, &frame(2, 1, vid), PortNo(2), 2), decision);
            assert_eq!(fdb.switch(&frame(2, 1, vid), PortNo(2), 2), decision);
            assert_eq!(fdb.switch_in(vid.into(), &frame(2, 1, 9), PortNo(2), 2), decision);
            fdb.learn(0x0200_0000_0003, vid.into(), PortNo(3), 2);
        }
        assert!(fdb.entries().iter().all(|(_, vid, ..)| *vid == 6));
        let mut to_bridges = frame(2, 1, 5);
        to_bridges[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
        assert_eq!(fdb.switch(&to_bridges, PortNo(2), 2), NormalDecision::Drop);
        fdb.flood_vlans(None);
        fdb.switch(&frame(1, 2, 5), PortNo(1), 3);
        assert_eq!(fdb.switch(&frame(2, 1, 5), PortNo(2), 3), NormalDecision::To(PortNo(1)));
    }
}
