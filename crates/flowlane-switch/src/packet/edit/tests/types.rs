//! Headers that change a packet's type.

use flowlane::rule::action::EncapsulateHeader;

use super::*;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// A frame, with its headers as they are parsed after each change.
struct Changed(Frame, Headers);

impl Changed {
    fn new(bytes: &[u8]) -> Self {
        let (frame, headers, _) = frame_of(bytes);
        Self(frame, headers)
    }

    fn put(&mut self, header: &EncapsulateHeader) -> bool {
        let done = encapsulate(&mut self.0, &mut self.1, header);
        self.parse();
        done
    }

    fn take(&mut self, to: Option<(u16, u16)>) -> bool {
        let done = decapsulate(&mut self.0, &mut self.1, to);
        self.parse();
        done
    }

    fn parse(&mut self) -> FlowKey {
        let mut key = FlowKey::zero();
        self.1 = parse(self.0.bytes(), 1, &mut key);
        key
    }
}

const NSH: EncapsulateHeader = EncapsulateHeader::Nsh { metadata_type: 0, tlvs: Vec::new() };

fn udp() -> Vec<u8> {
    let mut out = Vec::new();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(&mut out, b"payload").unwrap();
    out
}

#[test]
fn each_header_that_is_put_around_a_packet_comes_off_again() {
    let udp = udp();
    let mut packet = Changed::new(&udp);
    assert!(packet.put(&NSH) && packet.0.is_bare());
    let (key, nsh) = (packet.parse(), packet.0.packet());
    assert_eq!(nsh[..8], [0x0f, 0xc6, 1, 3, 0, 0, 0, 255]);
    assert_eq!(nsh[24..], udp);
    let fields = [Field::NshTtl, Field::NshSi, Field::NshNp, Field::NshMdtype].map(|field| key.get(field));
    assert_eq!(fields, [63, 255, 3, 1]);
    assert!(packet.put(&EncapsulateHeader::Ethernet) && !packet.0.is_bare());
    assert_eq!(packet.0.bytes()[..14], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x89, 0x4f]);
    assert!(packet.take(None) && packet.take(None));
    assert_eq!((packet.0.bytes(), packet.0.is_bare()), (&udp[..], false));
    // The packet alone, with a label and NSH of the other type.
    assert!(packet.take(None) && packet.0.is_bare());
    assert_eq!(packet.0.packet(), &udp[14..]);
    let tlvs = vec![(0x1000, 10, vec![1, 2, 3, 4, 5])];
    assert!(packet.put(&EncapsulateHeader::Nsh { metadata_type: 2, tlvs }));
    assert_eq!(
        packet.0.packet()[..20],
        [0x0f, 0xc5, 2, 1, 0, 0, 0, 255, 0x10, 0, 10, 5, 1, 2, 3, 4, 5, 0, 0, 0]
    );
    assert!(packet.take(None));
    assert!(packet.put(&EncapsulateHeader::Mpls));
    assert_eq!(packet.0.packet()[..4], [0, 0, 1, 64]);
    assert!(packet.put(&EncapsulateHeader::MplsMulticast));
    assert_eq!(packet.0.packet()[..8], [0, 0, 0, 64, 0, 0, 1, 64]);
    assert!(packet.take(Some((1, 0x8847))) && packet.take(Some((1, 0x0800))));
    assert_eq!(packet.0.packet(), &udp[14..]);
    // Around a whole frame.
    assert!(packet.put(&EncapsulateHeader::Ethernet) && packet.put(&EncapsulateHeader::Mpls));
    assert!(packet.take(Some((0, 0))));
    assert_eq!((packet.0.bytes()[12..].to_vec(), packet.0.is_bare()), (udp[12..].to_vec(), false));
}

#[test]
fn types_that_do_not_fit_are_refused() {
    let mut packet = Changed::new(&udp());
    assert!(!packet.put(&EncapsulateHeader::Ethernet), "it has that header");
    assert!(packet.take(None));
    assert!(!packet.take(None), "nothing of IP comes off");
    assert!(packet.put(&EncapsulateHeader::Mpls));
    assert!(!packet.put(&NSH), "NSH has no number for labels");
    assert!(!packet.take(None), "a label does not name its payload");
    let tagged = [&MACS[..], &[0x81, 0, 0, 5, 0x88, 0xb5, 1, 2, 3, 4]].concat();
    assert!(!Changed::new(&tagged).take(None), "a tag is in the way");
    let mut packet = Changed::new(&tagged);
    assert!(packet.put(&NSH) && packet.take(None));
    assert_eq!(packet.0.bytes(), tagged);
    let long = EncapsulateHeader::Nsh { metadata_type: 2, tlvs: vec![(1, 1, vec![0; 100]); 3] };
    assert!(nsh_bytes(&long) > NSH_BYTES_MAX && !Changed::new(&udp()).put(&long));
}

#[test]
fn fields_of_ethernet_are_left_alone_without_it() {
    let mut packet = Changed::new(&udp());
    assert!(packet.take(None));
    let before = packet.0.bytes().to_vec();
    for field in [Field::EthSrc, Field::EthDst, Field::VlanVid, Field::VlanPcp] {
        assert!(!set_field(&mut packet.0, &mut packet.1, field, 1, 1));
    }
    assert!(!push_vlan(&mut packet.0, &mut packet.1, 0x8100));
    assert_eq!(packet.0.bytes(), before);
}

#[test]
fn fields_of_nsh_are_set_within_their_bits() {
    let mut packet = Changed::new(&udp());
    packet.put(&NSH);
    let set = [
        (Field::NshFlags, 2, 3),
        (Field::NshTtl, 1, 0x3f),
        (Field::NshSpi, 0x12_3456, 0xff_ffff),
        (Field::NshSi, 7, 0xff),
        (Field::NshC4, 0x1111_2222, 0xffff_ffff),
    ];
    for (field, value, mask) in set {
        assert!(set_field(&mut packet.0, &mut packet.1, field, value, mask));
        assert_eq!(packet.parse().get(field), value);
    }
    assert_eq!(packet.0.packet()[..8], [0x20, 0x46, 1, 3, 0x12, 0x34, 0x56, 7]);
    assert_eq!(dec_nsh_ttl(&mut packet.0, &packet.1), Ttl::Expired);
    set_field(&mut packet.0, &mut packet.1, Field::NshTtl, 63, 0x3f);
    assert_eq!(dec_nsh_ttl(&mut packet.0, &packet.1), Ttl::Decremented);
    assert_eq!(packet.parse().get(Field::NshTtl), 62);
    // Metadata of type 2 has no such words.
    packet.take(None);
    packet.put(&EncapsulateHeader::Nsh { metadata_type: 2, tlvs: Vec::new() });
    assert!(!set_field(&mut packet.0, &mut packet.1, Field::NshC1, 1, 1));
    assert!(set_field(&mut packet.0, &mut packet.1, Field::NshSi, 1, 1));
}
