//! Labels and tags, pushed, popped and changed.

use flowlane::packet::fields::Field;
use flowlane::packet::{FlowKey, Headers, parse};

use super::frame_of;
use super::reference::{Body, Packet, Random};
use crate::packet::edit::{Ttl, dec_mpls_ttl, pop_mpls, pop_vlan, push_mpls, push_vlan, set_field};

impl Packet {
    /// As OpenFlow 1.3.5 §5.12.1 has it; an 802.3 frame gets no label.
    fn push_label(&mut self, eth_type: u16) -> bool {
        if self.snap {
            return false;
        }
        let ttl = self.ip().map_or(64, |ip| ip.ttl.into());
        let entry = self.labels.first().map_or(0x100 | ttl, |first| first & !0x100);
        // Behind labels a packet is bytes.
        let inside = Packet { labels: Vec::new(), tags: Vec::new(), padding: Vec::new(), ..self.clone() };
        self.body = Body::Bytes(inside.build().split_off(14));
        self.labels.insert(0, entry);
        self.eth_type = eth_type;
        true
    }

    fn pop_label(&mut self, eth_type: u16) -> bool {
        let popped = !self.labels.is_empty();
        if popped {
            self.labels.remove(0);
            self.eth_type = eth_type;
        }
        popped
    }
}

/// An 802.3 frame with labels behind SNAP.
fn labelled(tags: usize) -> Packet {
    Packet {
        macs: [2; 12],
        tags: vec![(0x8100, 7); tags],
        snap: true,
        labels: vec![0x0001_2040, 0x0003_4141],
        eth_type: 0x8847,
        body: Body::Bytes(vec![0x45, 1, 2, 3]),
        padding: vec![9; 5],
    }
}

#[test]
fn labels_behind_snap_are_where_the_snap_header_ends() {
    for tags in 0..3 {
        let mut packet = labelled(tags);
        let (mut frame, mut headers, key) = frame_of(&packet.build());
        assert_eq!((key.get(Field::MplsLabel), key.get(Field::MplsTtl)), (0x12, 0x40));
        assert!(set_field(&mut frame, &mut headers, Field::MplsLabel, 0xfedcb, 0xfffff));
        assert!(set_field(&mut frame, &mut headers, Field::MplsTc, 5, 7));
        packet.labels[0] = 0xfedc_ba40;
        assert_eq!(frame.bytes(), packet.build());
        assert_eq!(dec_mpls_ttl(&mut frame, &headers), Ttl::Decremented);
        packet.labels[0] = 0xfedc_ba3f;
        assert_eq!(frame.bytes(), packet.build());
        // The length of an 802.3 frame is that of the remaining bytes.
        assert!(pop_mpls(&mut frame, &mut headers, 0x8848));
        assert!(packet.pop_label(0x8848));
        assert_eq!(frame.bytes(), packet.build());
        assert!(pop_mpls(&mut frame, &mut headers, 0x0800));
        assert!(packet.pop_label(0x0800));
        assert_eq!(frame.bytes(), packet.build());
        assert!(!pop_mpls(&mut frame, &mut headers, 0x0800));
        assert_eq!(frame.bytes(), packet.build());
    }
}

#[test]
fn frames_with_a_length_get_no_label() {
    let mut plain = [&[2; 12][..], &[0, 3, 0x42, 0x42, 3]].concat();
    plain.resize(60, 0);
    for bytes in [labelled(0).build(), labelled(1).build(), plain] {
        let (mut frame, mut headers, _) = frame_of(&bytes);
        assert!(!push_mpls(&mut frame, &mut headers, 0x8847));
        assert_eq!(frame.bytes(), bytes);
    }
}

#[test]
fn labels_and_tags_go_on_and_off_as_in_a_packet_put_together_anew() {
    let mut r = Random(5);
    let mut behind_snap = 0;
    for round in 0..20_000 {
        let mut packet = Packet::random(&mut r);
        packet.snap = packet.snap || r.one_in(4);
        let bytes = packet.build();
        let (mut frame, mut headers, _) = frame_of(&bytes);
        for _ in 0..r.below(6) {
            let eth_type = r.pick(&[0x8847, 0x8848]);
            match r.below(6) {
                0 if packet.labels.len() < 3 => {
                    assert_eq!(push_mpls(&mut frame, &mut headers, eth_type), packet.push_label(eth_type));
                }
                1 => {
                    behind_snap += usize::from(packet.snap && !packet.labels.is_empty());
                    assert_eq!(pop_mpls(&mut frame, &mut headers, eth_type), packet.pop_label(eth_type));
                }
                2 if packet.tags.len() < 2 => {
                    assert!(push_vlan(&mut frame, &mut headers, 0x88a8));
                    packet.tags.insert(0, (0x88a8, 0));
                }
                3 => {
                    assert_eq!(pop_vlan(&mut frame, &mut headers), !packet.tags.is_empty());
                    packet.tags.drain(..packet.tags.len().min(1));
                }
                4 => {
                    let value = u128::from(r.next());
                    let set = set_field(&mut frame, &mut headers, Field::MplsLabel, value & 0xfffff, 0xfffff);
                    assert_eq!(set, packet.set(Field::MplsLabel, value & 0xfffff, 0xfffff), "{round}");
                }
                _ => {
                    let ttl = packet.labels.first().map(|entry| entry & 0xff);
                    let wanted = match ttl {
                        None => Ttl::None,
                        Some(0 | 1) => Ttl::Expired,
                        Some(_) => {
                            packet.labels[0] -= 1;
                            Ttl::Decremented
                        }
                    };
                    assert_eq!(dec_mpls_ttl(&mut frame, &headers), wanted, "{round}");
                }
            }
        }
        assert_eq!(frame.bytes(), packet.build(), "{round}: {packet:02x?}");
        if packet.eth_type == 0x8847 && !packet.labels.is_empty() {
            let anew = parse(frame.bytes(), 1, &mut FlowKey::zero());
            let places = |h: &Headers| (h.l3, h.vlan_tags, h.mpls_labels, h.snap, h.eth_type_at());
            assert_eq!(places(&anew), places(&headers), "{round}");
        }
    }
    assert!(behind_snap > 100, "{behind_snap}");
}
