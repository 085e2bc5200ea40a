//! How long packets may be on their way through a tunnel: path MTU discovery (RFC 1191, RFC 8201) for the packets outside.
//!
//! Packets of tunnels must not be cut on their way. Where one is too long for a link, a router there says so to the tunnel's end, which
//! is this router. It lets shorter packets into the tunnel then, and tells their senders.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::packet::Network;
use flowlane::packet::parse::ip_proto;

use super::interface::{Interface, TunnelEnds};
use crate::sync::{AtomicU64, Ordering};

/// The time for which a shorter length holds.
const HOLDS_S: u64 = 600;

/// No shorter length is believed: any host may have sent the message. That of IPv4 is what each host must take (RFC 791), that of IPv6
/// what each link must carry (RFC 8200, section 5).
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// The lengths of inner packets, by interface: the length in 16 bits, and the time until which it holds above.
#[derive(Debug)]
pub(super) struct PathMtus(Vec<AtomicU64>);

impl PathMtus {
    pub(super) fn of(interfaces: &[Interface]) -> Self {
        Self(interfaces.iter().map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the length that an interface's packets have at most on their way, if that is known.
    #[inline]
    pub(super) fn get(&self, interface: u16, now_s: u64) -> Option<u16> {
        let known = self.0[usize::from(interface)].load(Ordering::Relaxed);
        (known >> 16 > now_s).then_some(known as u16)
    }

    /// Takes note of a length, unless a shorter one is known.
    pub(super) fn lower(&self, interface: u16, mtu: u16, now_s: u64) {
        if self.get(interface, now_s).is_none_or(|known| mtu <= known) {
            let until = now_s.saturating_add(HOLDS_S).min(u64::MAX >> 16);
            self.0[usize::from(interface)].store(until << 16 | u64::from(mtu), Ordering::Relaxed);
        }
    }
}

/// Returns the length of inner packets whose outer packets may have this length. Each link carries packets of IPv6 of the least length
/// (RFC 8200, section 5): a tunnel between networks of IPv6 admits these, whatever any host says of its way.
pub(super) fn inner(ends: &TunnelEnds, outer: u16, carries_ipv6: bool) -> u16 {
    let least = if ends.remote.is_ipv6() { LEAST_V6 } else { LEAST_V4 };
    let inner = outer.max(least) - ends.headers;
    if carries_ipv6 { inner.max(LEAST_V6) } else { inner }
}

/// Reads an ICMP error that says that a packet was too long: the packet's addresses, and the length that it may have.
pub(super) fn read(message: &[u8], network: Network) -> Option<((IpAddr, IpAddr), u16)> {
    let quoted = message.get(8..)?;
    match (network, message.first_chunk::<2>()?) {
        (Network::Ipv4, [3, 4]) => {
            let header = quoted.first_chunk::<20>()?;
            let address = |at: usize| {
                let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
                IpAddr::V4(Ipv4Addr::from(bytes))
            };
            let mtu = u16::from_be_bytes([message[6], message[7]]);
            // Routers older than RFC 1191 do not say it.
            let mtu = if mtu == 0 { LEAST_V4 } else { mtu };
            let is_quoted = header[0] >> 4 == 4 && header[9] == ip_proto::UDP;
            is_quoted.then_some(((address(12), address(16)), mtu))
        }
        (Network::Ipv6, [2, _]) => {
            let header = quoted.first_chunk::<40>()?;
            let address = |at: usize| {
                let bytes: [u8; 16] = header[at..at + 16].try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(bytes)))
            };
            let mtu = u32::from_be_bytes(*message[4..].first_chunk::<4>()?).min(u16::MAX.into());
            let is_quoted = header[0] >> 4 == 6 && header[6] == ip_proto::UDP;
            Some(((address(8)?, address(24)?), mtu as u16)).filter(|_| is_quoted)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(local: &str, remote: &str) -> TunnelEnds {
        TunnelEnds { number: 1, local: local.parse().unwrap(), remote: remote.parse().unwrap(), headers: 50 }
    }

    #[test]
    fn a_shorter_length_holds_for_ten_minutes_and_a_longer_one_changes_nothing() {
        let mtus = PathMtus(vec![AtomicU64::new(0), AtomicU64::new(0)]);
        assert_eq!(mtus.get(0, 0), None);
        mtus.lower(0, 1300, 10);
        mtus.lower(0, 1400, 20);
        assert_eq!((mtus.get(0, 609), mtus.get(0, 610), mtus.get(1, 100)), (Some(1300), None, None));
        mtus.lower(0, 1200, 30);
        assert_eq!((mtus.get(0, 629), mtus.get(0, 630)), (Some(1200), None));
        mtus.lower(0, 1400, 700);
        assert_eq!(mtus.get(0, 701), Some(1400));
    }

    #[test]
    fn lengths_below_what_all_links_carry_are_not_believed() {
        let v4 = ends("192.0.2.1", "192.0.2.2");
        assert_eq!([68, 576, 1400].map(|outer| inner(&v4, outer, false)), [526, 526, 1350]);
        assert_eq!([68, 576, 1400].map(|outer| inner(&v4, outer, true)), [1280, 1280, 1350]);
        let v6 = ends("2001:db8::1", "2001:db8::2");
        assert_eq!([0, 1280, 1400].map(|outer| inner(&v6, outer, false)), [1230, 1230, 1350]);
    }

    #[test]
    fn messages_are_read_and_others_are_not() {
        let mut message = vec![3, 4, 0, 0, 0, 0, 5, 120];
        let mut header = [0u8; 20];
        (header[0], header[9]) = (0x45, ip_proto::UDP);
        header[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        message.extend(header);
        let of = ends("192.0.2.1", "192.0.2.2");
        assert_eq!(read(&message, Network::Ipv4), Some(((of.local, of.remote), 1400)));
        assert_eq!(read(&message, Network::Ipv6), None);
        assert_eq!(read(&message[..27], Network::Ipv4), None);
        message[1] = 1;
        assert_eq!(read(&message, Network::Ipv4), None);
        let mut message = vec![2, 0, 0, 0, 0, 1, 0, 0];
        let mut header = [0u8; 40];
        (header[0], header[6], header[23], header[39]) = (0x60, ip_proto::UDP, 1, 2);
        message.extend(header);
        assert_eq!(
            read(&message, Network::Ipv6),
            Some((("::1".parse().unwrap(), "::2".parse().unwrap()), u16::MAX))
        );
        message[8 + 6] = ip_proto::TCP;
        assert_eq!(read(&message, Network::Ipv6), None);
    }
}
