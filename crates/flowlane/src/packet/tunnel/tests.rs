//! Tunnels that are not behind UDP.

use super::super::fields::{Field, TUNNEL_ERSPAN, TUNNEL_GRE};
use super::super::parse::parse;
use super::*;

/// The packet inside: Ethernet, and IPv4 to 198.51.100.7.
const INNER: [u8; 34] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 9, 99, 0, 0, 192, 0, 2, 1, 198, 51,
    100, 7,
];

/// A frame of IPv6 behind whose destination options there is GRE.
fn over_ipv6(gre: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 60, 61]].concat();
    frame[18..20].copy_from_slice(&(8 + gre.len() as u16).to_be_bytes());
    frame.extend([0x20; 32]);
    frame.extend([47, 0, 1, 4, 0, 0, 0, 0]);
    frame.extend(gre);
    frame
}

fn headers_of(frame: &[u8]) -> (FlowKey, Headers) {
    let mut key = FlowKey::zero();
    let headers = parse(frame, 1, &mut key);
    assert_eq!(headers.malformed, None);
    (key, headers)
}

/// The key of the packet inside, and the tunnel.
fn terminated(gre: &[u8]) -> (FlowKey, Tunnel) {
    let frame = over_ipv6(gre);
    let (outer, headers) = headers_of(&frame);
    let found = read(&frame, &headers).unwrap().unwrap();
    let mut inner = FlowKey::zero();
    if found.inner == Inner::Ethernet {
        parse(&frame[found.inner_at..], 7, &mut inner);
        assert_eq!(inner.get(Field::Ipv4Dst), 0xc633_6407);
    }
    found.fill(&outer, &headers, &mut inner);
    (inner, found)
}

#[test]
fn gre_fills_the_tunnel_fields() {
    let (key, found) =
        terminated(&[&[0xb0, 0, 0x65, 0x58, 9, 9, 0, 0, 0, 1, 2, 3, 0, 0, 0, 5][..], &INNER].concat());
    assert_eq!((found.kind, found.inner), (TUNNEL_GRE, Inner::Ethernet));
    assert_eq!([Field::TunId, Field::TunFlags].map(|field| key.get(field)), [0x0001_0203, 0xb000]);
    assert_eq!(key.get(Field::TunIpv6Src), u128::from_be_bytes([0x20; 16]));
    let (key, found) = terminated(&[&[0, 0, 8, 0][..], &INNER[14..]].concat());
    assert_eq!((found.inner, key.get(Field::TunId)), (Inner::Ip(0x0800), 0));
}

#[test]
fn erspan_fills_its_own_fields() {
    let fields =
        [Field::TunId, Field::TunErspanVer, Field::TunErspanIdx, Field::TunErspanDir, Field::TunErspanHwid];
    let version_1 = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0xff, 5, 0xff, 0xfa, 0xbc, 0xde];
    let version_2 = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 6, 1, 2, 3, 4, 9, 9, 0x82, 0xa8];
    for (header, wanted) in [(&version_1[..], [0x305, 1, 0xa_bcde, 0, 0]), (&version_2, [6, 2, 0, 1, 0x2a])] {
        let (key, found) = terminated(&[header, &INNER].concat());
        assert_eq!((found.kind, found.inner), (TUNNEL_ERSPAN, Inner::Ethernet));
        assert_eq!(fields.map(|field| key.get(field)), wanted);
    }
}

#[test]
fn gre_that_is_no_tunnel_is_left_alone_and_malformed_gre_is_told() {
    let read = |body: &[u8], kind: Option<u8>| {
        let frame = over_ipv6(body);
        let headers = headers_of(&frame).1;
        match kind {
            Some(kind) => read_as(kind, &frame, &headers),
            None => read(&frame, &headers),
        }
    };
    // PPTP (version 1), a keepalive, routing, and a header that is cut off.
    for (body, reason) in [
        (&[0x30, 0x81, 0x88, 0x0b, 0, 0, 0, 0][..], Malformed::TunnelFormat),
        (&[0, 0, 0, 0], Malformed::TunnelFormat),
        (&[0x40, 0, 0x65, 0x58, 0, 0, 0, 0], Malformed::TunnelFormat),
        (&[0x20, 0, 0x65, 0x58, 0, 0], Malformed::TunnelTruncated),
    ] {
        assert_eq!(read(body, None), Ok(None));
        assert_eq!(read(body, Some(TUNNEL_GRE)), Err(reason), "{body:?}");
    }
    // Less than its first word.
    assert_eq!(read(&[0, 0, 0x65], Some(TUNNEL_GRE)), Ok(None));
}
