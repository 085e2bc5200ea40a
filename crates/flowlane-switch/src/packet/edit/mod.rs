//! Changing a frame in place, by the header offsets that the parser found.
//!
//! Checksums follow by their difference (RFC 1624, equation 3): a packet whose checksum was wrong stays
//! wrong, so that a corrupted packet is never made to look sound. SCTP's CRC32c (RFC 9260 §6.8) is no sum
//! and is computed again.
//!
//! The pseudo header has the destination where the packet goes in the end: where a Routing header has segments left, that
//! is not the IPv6 header's, and a change of this one is none of the checksum's (RFC 8200 §8.1), whatever the type of
//! the Routing header. The last address, in the Routing header, is no field. Without segments left the two are one.
//!
//! A first fragment's checksum covers the whole datagram and is adjusted like any other; later fragments
//! have no transport header, and an address change needs nothing more in them.
//!
//! Nothing here panics, whatever the frame holds: a header that is not where it should be is left alone.

pub mod checksum;
mod fields;
mod headers;
mod presence;
mod types;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use fields::bits;
pub use fields::{has_protocol, packet_end, set_field};
pub use headers::{pop_mpls, pop_vlan, push_mpls, push_vlan};
pub use presence::{has, is_neighbour_discovery};
pub(crate) use types::{NSH_BYTES_MAX, nsh_bytes};
pub use types::{decapsulate, encapsulate};

use flowlane::packet::{Headers, Network};

use crate::packet::Frame;
use checksum::Delta;

/// The result of decrementing a TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ttl {
    /// It is one less.
    Decremented,
    /// It was 0 or 1, and is as it was.
    Expired,
    /// The packet has none.
    None,
}

/// Decrements the IPv4 TTL or IPv6 hop limit.
#[inline]
pub fn dec_ttl(frame: &mut Frame, headers: &Headers) -> Ttl {
    let l3 = usize::from(headers.l3);
    let at = match headers.network {
        Network::Ipv4 => l3 + 8,
        Network::Ipv6 => l3 + 7,
        Network::Arp | Network::Nsh | Network::None => return Ttl::None,
    };
    let bytes = frame.bytes_mut();
    match bytes.get(at) {
        None => Ttl::None,
        Some(0 | 1) => Ttl::Expired,
        Some(&ttl) => {
            let delta = Delta::of_write(bytes, at, &[ttl - 1]);
            if headers.network == Network::Ipv4 {
                delta.apply(bytes, l3 + 10);
            }
            Ttl::Decremented
        }
    }
}

/// Returns the DSCP (RFC 2474 §3) of an IP packet.
pub fn dscp(frame: &Frame, headers: &Headers) -> Option<u8> {
    let first = frame.bytes().get(usize::from(headers.l3)..)?.first_chunk::<2>()?;
    match headers.network {
        Network::Ipv4 => Some(first[1] >> 2),
        // The traffic class is the second and the third digit.
        Network::Ipv6 => Some((u16::from_be_bytes(*first) >> 6 & 0x3f) as u8),
        Network::Arp | Network::Nsh | Network::None => None,
    }
}

/// Decrements the TTL of NSH (RFC 8300 §2.2).
pub fn dec_nsh_ttl(frame: &mut Frame, headers: &Headers) -> Ttl {
    let at = usize::from(headers.l3);
    let first = frame.bytes_mut().get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<2>());
    let Some(first) = first.filter(|_| headers.network == Network::Nsh) else { return Ttl::None };
    let word = u16::from_be_bytes(*first);
    if word >> 6 & 0x3f <= 1 {
        return Ttl::Expired;
    }
    *first = (word - (1 << 6)).to_be_bytes();
    Ttl::Decremented
}

/// Decrements the TTL of the outermost label.
#[inline]
pub fn dec_mpls_ttl(frame: &mut Frame, headers: &Headers) -> Ttl {
    if headers.mpls_labels == 0 {
        return Ttl::None;
    }
    match frame.bytes_mut().get_mut(headers.mpls_at() + 3) {
        None => Ttl::None,
        Some(0 | 1) => Ttl::Expired,
        Some(ttl) => {
            *ttl -= 1;
            Ttl::Decremented
        }
    }
}
