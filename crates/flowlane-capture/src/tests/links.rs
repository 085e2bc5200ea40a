//! Link types.

use super::*;

/// The beginning of a packet behind each link header.
const IP: [u8; 3] = [0x45, 0x77, 0x88];
const LLC: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
const UNKNOWN: [u8; 2] = [0xff; 2];

/// Link type and header; destination, source and EtherType of the Ethernet header in its place.
type Case = (u32, Vec<u8>, [[u8; 6]; 2], [u8; 2]);

/// Frame control, duration, three addresses, sequence.
fn wireless(control: u8, flags: u8) -> Vec<u8> {
    [&[control, flags, 0, 0][..], &[1; 6], &[2; 6], &[3; 6], &[0, 0]].concat()
}

fn check(cases: Vec<Case>) {
    for (link, header, [destination, source], eth_type) in cases {
        let wanted = [&destination[..], &source, &eth_type, &IP].concat();
        let file = of_link(link, &[&header[..], &IP].concat());
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let packet = reader.next().unwrap().unwrap();
        assert_eq!(packet.bytes, wanted, "link type {link}: {header:02x?}");
        assert_eq!(packet.len as usize, wanted.len(), "link type {link}");
        // Truncated anywhere, such a frame yields its captured part or nothing.
        for captured in 0..header.len() + IP.len() {
            let (read, end) = read_all(&of_link(link, &[&header[..], &IP].concat()[..captured]));
            assert!(end.is_none() && read.len() == 1);
            let converted = &read[0].1;
            assert!(converted.len() <= captured + 14);
            assert!(captured < header.len() || *converted == wanted[..converted.len()]);
        }
    }
}

#[test]
fn other_link_types_become_ethernet_or_are_rejected() {
    let (from, to) = (wireless(8, 2), wireless(8, 1));
    let between = [&wireless(0x88, 3)[..], &[4; 6], &[0, 0]].concat();
    let radiotap = [&[0, 0, 9, 0, 0, 0, 0, 0, 0][..], &from].concat();
    let (llc, unknown, v4) = (LLC, [0; 6], [8, 0]);
    let cases: Vec<Case> = vec![
        (101, vec![], [unknown; 2], v4),
        (12, vec![], [unknown; 2], v4),
        (0, vec![2, 0, 0, 0], [unknown; 2], v4),
        (0, vec![30, 0, 0, 0], [unknown; 2], [0x86, 0xdd]),
        (108, vec![0, 0, 0, 24], [unknown; 2], [0x86, 0xdd]),
        (0, vec![0, 0, 0, 99], [unknown; 2], UNKNOWN),
        (9, vec![0xff, 3, 0, 0x21], [unknown; 2], v4),
        (9, vec![0x21], [unknown; 2], v4),
        (50, vec![0xff, 3, 0, 0x57], [unknown; 2], [0x86, 0xdd]),
        (50, vec![0x0f, 0, 8, 0], [unknown; 2], v4),
        (51, vec![0x11, 0, 0, 7, 0, 5, 0, 0x21], [unknown; 2], v4),
        (104, vec![0x0f, 0, 8, 0], [unknown; 2], v4),
        // A keepalive, which shares its number with RARP.
        (104, vec![0x8f, 0, 0x80, 0x35], [unknown; 2], UNKNOWN),
        (113, vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0], [unknown, [2, 0, 0, 0, 0, 9]], v4),
        (
            276,
            vec![8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0],
            [unknown, [2, 0, 0, 0, 0, 9]],
            v4,
        ),
        (10, [&[0x50][..], &[1; 6], &[2; 6], &llc].concat(), [[1; 6], [2; 6]], v4),
        (105, [&from[..], &llc].concat(), [[1; 6], [3; 6]], v4),
        (105, [&to[..], &llc].concat(), [[3; 6], [2; 6]], v4),
        (105, [&between[..], &llc].concat(), [[3; 6], [4; 6]], v4),
        (127, [&radiotap[..], &llc].concat(), [[1; 6], [3; 6]], v4),
        // HT control; an A-MSDU; a frame without data; SNAP with a length.
        (105, [&wireless(0x88, 0x81)[..], &[0, 0, 1, 2, 3, 4], &llc].concat(), [[3; 6], [2; 6]], v4),
        (105, [&wireless(0x88, 1)[..], &[0x80, 0]].concat(), [[3; 6], [2; 6]], UNKNOWN),
        (105, wireless(0x48, 1), [[1; 6], [2; 6]], UNKNOWN),
        // A beacon; encrypted data.
        (105, wireless(0x80, 0), [[1; 6], [2; 6]], UNKNOWN),
        (105, wireless(8, 0x40), [[1; 6], [2; 6]], UNKNOWN),
    ];
    check(cases);
    let error = read_all(&of_link(147, &[0])).1.unwrap();
    assert!(error.to_string().contains("link type 147"));
}

#[test]
fn the_packets_in_ppi_and_nflog_become_ethernet() {
    let ppi = |link: u32, fields: &[u8]| {
        let len = (8 + fields.len() as u16).to_le_bytes();
        [&[0, 0][..], &len, &link.to_le_bytes(), fields].concat()
    };
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes = [&(4 + value.len() as u16).to_le_bytes()[..], &kind.to_le_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let to = wireless(8, 1);
    let (llc, unknown, v4) = (LLC, [0; 6], [8, 0]);
    check(vec![
        // PPI, with and without fields, before Ethernet, raw IP and IEEE 802.11.
        (192, [&ppi(1, &[])[..], &[1; 6], &[2; 6], &v4].concat(), [[1; 6], [2; 6]], v4),
        (192, ppi(101, &[1, 2, 3, 4]), [unknown; 2], v4),
        (192, [&ppi(105, &[])[..], &to, &llc].concat(), [[3; 6], [2; 6]], v4),
        (192, [ppi(192, &[]), ppi(12, &[])].concat(), [unknown; 2], v4),
        // NFLOG: of IPv4; of a bridge, with packet header, prefix and source.
        (239, [&[2, 0, 0, 0][..], &attribute(9, &IP)[..4]].concat(), [unknown; 2], v4),
        (
            239,
            [
                &[7, 0, 0, 0][..],
                &attribute(1, &[8, 0, 0, 0]),
                &attribute(10, b"drop:\0"),
                &attribute(8, &[0, 6, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0]),
                &attribute(9, &IP)[..4],
            ]
            .concat(),
            [unknown, [2, 0, 0, 0, 0, 9]],
            v4,
        ),
    ]);
}
