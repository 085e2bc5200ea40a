//! The copies of a traced packet that mirrors would get.

use super::Tracer;
use crate::state::mirror::MirrorSet;

impl Tracer<'_> {
    /// Copies the packet as received.
    pub(super) fn mirror_received(&mut self) {
        let place = self.packet.place;
        let mirrors = self.worker.egress.ports.slots()[place].mirrors.received;
        let frame = self.packet.frame.bytes().to_vec();
        self.mirror(mirrors, place, &frame);
    }

    /// Copies a frame that passes the port at a place to those of some mirrors that take it.
    pub(super) fn mirror(&mut self, mirrors: MirrorSet, place: usize, frame: &[u8]) {
        let egress = &self.worker.egress;
        let all = egress.mirroring.mirrors();
        let (Some(all), Some(in_vlan)) = (all, egress.ports.in_vlan_of(place, frame)) else { return };
        while let Some(mirror) = all.take(mirrors, in_vlan.vid, &mut self.packet.mirrored) {
            for to in egress.ports.places_of(mirror, &in_vlan, frame) {
                let Some(retag) = egress.ports.copy_at(to, mirror, &in_vlan, frame) else { continue };
                let change = retag.unwrap_or_default();
                let mut copy = vec![0; change.sent_len(frame.len())];
                change.write(frame, &mut copy);
                let bytes_max = mirror.settings.bytes_max.map_or(usize::MAX, usize::from);
                let number = egress.ports.slots()[to].number;
                let why = "a copy of the packet";
                self.send_bytes("mirror", number, why, (&copy[..copy.len().min(bytes_max)], &copy));
            }
        }
    }
}
