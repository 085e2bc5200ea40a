//! Random packets of every class.

use super::reference::{Body, Ip, Packet, Random, Stored};

impl Packet {
    /// Tags, SNAP, labels, ARP, IP of both versions.
    pub(crate) fn random(r: &mut Random) -> Self {
        let tags =
            (0..r.pick(&[0, 0, 0, 1, 1, 2])).map(|_| (r.pick(&[0x8100, 0x88a8]), r.next() as u16)).collect();
        let (eth_type, labels, body) = match r.below(12) {
            0 => {
                let count = 1 + r.below(3);
                let entry = |i| r.next() as u32 & !0x100 | if i + 1 == count { 0x100 } else { 0 };
                (0x8847, (0..count).map(entry).collect(), Body::Bytes(r.bytes(31)))
            }
            1 => {
                let mut arp = [0, 1, 8, 0, 6, 4].to_vec();
                arp.extend(r.bytes(22));
                (r.pick(&[0x0806, 0x8035]), Vec::new(), Body::Arp(arp.try_into().expect("28 bytes")))
            }
            2 => (0x88b5, Vec::new(), Body::Bytes(r.bytes(20))),
            _ => {
                let ip = Ip::random(r);
                (if ip.v6 { 0x86dd } else { 0x0800 }, Vec::new(), Body::Ip(ip))
            }
        };
        let macs = r.bytes(12).try_into().expect("twelve bytes");
        let padding = r.pick(&[0, 0, 3, 64]);
        Self { macs, tags, snap: r.one_in(5), labels, eth_type, body, padding: r.bytes(padding) }
    }
}

impl Ip {
    pub(crate) fn random(r: &mut Random) -> Self {
        let v6 = r.one_in(2);
        let proto = r.pick(&[6, 6, 17, 17, 132, 136, if v6 { 58 } else { 1 }, if v6 { 58 } else { 1 }, 47]);
        let mut nd = None;
        let datagram = datagram(r, proto, v6, &mut nd);
        let address = |r: &mut Random| r.bytes(16).try_into().expect("16 bytes");
        let mut ip = Self {
            v6,
            tos: r.next() as u8,
            ttl: r.pick(&[0, 1, 2, 64, 255]),
            flow: r.next() as u32 & 0xf_ffff,
            src: address(r),
            dst: address(r),
            last: None,
            options: if r.one_in(4) { vec![1; 4 * (1 + r.below(10))] } else { Vec::new() },
            extensions: Vec::new(),
            fragment: None,
            header_checksum: Stored::random(r, false),
            proto,
            part: (0, datagram.len()),
            datagram,
            checksum: Stored::random(r, matches!(proto, 17 | 136)),
            nd,
        };
        if v6 && r.one_in(2) {
            for _ in 0..1 + r.below(3) {
                ip.push_extension(r);
            }
        }
        if r.one_in(3) {
            ip.cut(r);
        }
        ip
    }

    fn push_extension(&mut self, r: &mut Random) {
        match r.below(4) {
            0 => self.extensions.push((r.pick(&[0, 60]), vec![0, 0, 1, 4, 0, 0, 0, 0])),
            1 => self.extensions.push((60, [&[0, 1, 1, 12][..], &[0; 12]].concat())),
            // Authentication: counted in units of 4 bytes, less 2.
            2 => self.extensions.push((51, [&[0, 4, 0, 0][..], &r.bytes(20)].concat())),
            _ => {
                let left = r.pick(&[0, 0, 1, 2]);
                self.push_routing(r.pick(&[0, 2, 3, 4, 99]), left, r);
            }
        }
    }

    /// A Routing header of this type with this number of segments left, after the earlier headers.
    pub(crate) fn push_routing(&mut self, kind: u8, left: u8, r: &mut Random) {
        // Type 2 has one address, the home address (RFC 6275 §6.4).
        let (left, addresses) = if kind == 2 { (left.min(1), 1) } else { (left, 2) };
        let list = r.bytes(16 * addresses);
        // Words of 8 bytes behind the first; the segments left stand in the fourth byte in all types.
        let mut bytes = vec![0, 2 * addresses as u8, kind, left, 0, 0, 0, 0];
        bytes[4] = if kind == 4 { addresses as u8 - 1 } else { 0 };
        bytes.extend(&list);
        self.extensions.push((43, bytes));
        // Types 0 (RFC 2460 §4.4) and 3 (RFC 6554 §3) end with the last address, type 4 begins with it (RFC 8754 §2).
        let last = if kind == 4 { &list[..16] } else { &list[list.len() - 16..] };
        if left > 0 && self.last.is_none() {
            self.last = Some(last.try_into().expect("16 bytes"));
        }
    }

    /// Makes it a fragment: the first, a later one, or an atomic one (RFC 6946).
    pub(crate) fn cut(&mut self, r: &mut Random) {
        let units = self.datagram.len() / 8;
        let least = if self.proto == 6 { 3 } else { 2 };
        match r.below(3) {
            0 if self.v6 => self.fragment = Some((0, false)),
            0 | 1 if units > least => {
                self.fragment = Some((0, true));
                self.part = (0, 8 * least);
            }
            _ => {
                self.fragment = Some((1, r.one_in(2)));
                self.part = (8, self.datagram.len());
            }
        }
    }
}

/// A transport header with an even or odd number of bytes behind it.
fn datagram(r: &mut Random, proto: u8, v6: bool, nd: &mut Option<[Option<usize>; 2]>) -> Vec<u8> {
    let payload = r.pick(&[0, 1, 7, 8, 33, 100]);
    let mut out = r.bytes(match proto {
        6 => 20,
        132 => 12,
        _ => 8,
    });
    out.extend(r.bytes(payload));
    let len = out.len() as u16;
    match proto {
        6 => (out[12], out[13]) = (0x50, 0x10),
        17 => out[4..6].copy_from_slice(&len.to_be_bytes()),
        // Coverage: all, the header only, or some.
        136 => out[4..6].copy_from_slice(&r.pick(&[0, 8, len, 8 + (len - 8) / 2]).to_be_bytes()),
        1 => out[0] = 8,
        58 if v6 && r.one_in(2) => {
            out.truncate(8);
            (out[0], out[1]) = (r.pick(&[135, 136]), 0);
            out.extend(r.bytes(16));
            let mut places = [None; 2];
            for (kind, place) in places.iter_mut().enumerate() {
                if r.one_in(3) {
                    out.extend([14, 1, 0, 0, 0, 0, 0, 0]); // a nonce (RFC 3971 §5.3.2)
                }
                if !r.one_in(3) {
                    *place = Some(out.len() + 2);
                    out.extend([kind as u8 + 1, 1]);
                    out.extend(r.bytes(5));
                    out.push(1);
                }
            }
            *nd = Some(places);
        }
        58 => (out[0], out[1]) = (128, 0),
        _ => {}
    }
    out
}
