//! Errors about frames that are too long for a tunnel whose switch is no router: as Linux sends them under a bridge
//! (`iptunnel_pmtud_check_icmp`, `iptunnel_pmtud_check_icmpv6`), they are from the packet's own destination.

use std::net::IpAddr;

use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ether_type;
use flowlane::packet::{Headers, Network, parse};

use super::icmp::{Reason, addresses, error, may_be_answered};
use super::wire::is_group;

/// The flag "don't fragment" in the first byte of flags and fragment offset of IPv4.
const DONT_FRAGMENT: u8 = 0x40;
/// Bytes of two Ethernet addresses.
const MACS: usize = 12;
/// The least MTU that is announced: every link of IPv4 (RFC 791) and IPv6 (RFC 8200, section 5) takes as much.
const LEAST_V4: usize = 68;
const LEAST_V6: usize = 1280;

/// A frame with a packet whose sender is to hear that it is too long.
#[derive(Debug)]
pub struct TooLongFrame<'a> {
    bytes: &'a [u8],
    headers: Headers,
    source: IpAddr,
    destination: IpAddr,
}

impl<'a> TooLongFrame<'a> {
    /// Reads a frame; `None` where its sender is not to hear of it: it has no IP, may be cut, or is no packet that errors are about.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let headers = parse(bytes, 0, &mut FlowKey::zero());
        let (source, destination) = addresses(bytes, &headers)?;
        let l3 = usize::from(headers.l3);
        let is_whole = match headers.network {
            Network::Ipv4 => bytes.get(l3 + 6).is_some_and(|flags| flags & DONT_FRAGMENT != 0),
            Network::Ipv6 => true,
            Network::None | Network::Arp | Network::Nsh => false,
        };
        // Within labels, nothing says that the sender would hear of it.
        let has_tags = matches!(
            u16::from_be_bytes([bytes[MACS], bytes[MACS + 1]]),
            ether_type::VLAN | ether_type::QINQ | ether_type::IPV4 | ether_type::IPV6
        );
        let is_answered = may_be_answered(bytes, &headers, Reason::TooLong(0)) && !is_group(destination);
        (is_whole && has_tags && is_answered && headers.malformed.is_none()).then_some(Self {
            bytes,
            headers,
            source,
            destination,
        })
    }

    /// The address that the error goes to.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Returns the error, in the VLAN of the frame, where frames of up to `room` bytes are sent.
    pub fn answer(&self, room: usize) -> Option<Vec<u8>> {
        let l3 = usize::from(self.headers.l3);
        let least = if self.source.is_ipv6() { LEAST_V6 } else { LEAST_V4 };
        let mtu = u16::try_from(room.saturating_sub(l3).max(least)).ok()?;
        let mac = self.bytes.first_chunk()?;
        let mut frame = error(self.bytes, &self.headers, Reason::TooLong(mtu), (*mac, self.destination))?;
        let tags = &self.bytes[MACS..l3 - 2];
        frame.splice(MACS..MACS, tags.iter().copied());
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::Field;

    use super::*;

    /// A frame of UDP over IPv4 with these flags, or IPv6, behind these tags.
    fn frame(tags: &[u8], flags: Option<u8>, len: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend_from_slice(tags);
        let content = vec![0xaa; len];
        match flags {
            Some(flags) => {
                frame.extend_from_slice(&[8, 0, 0x45, 0]);
                frame.extend_from_slice(&(28 + len as u16).to_be_bytes());
                frame.extend_from_slice(&[0, 0, flags, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            }
            None => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend_from_slice(&(8 + len as u16).to_be_bytes());
                frame.extend_from_slice(&[17, 64]);
                for end in [1, 2] {
                    frame.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
                }
            }
        }
        frame.extend_from_slice(&[0x10, 0, 0x20, 0]);
        frame.extend_from_slice(&(8 + len as u16).to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(&content);
        frame
    }

    #[test]
    fn the_sender_hears_of_it_from_the_destination_in_its_vlan() {
        for (tags, flags, kind, mtu) in [
            (&[][..], Some(0x40), 3, 1386),
            (&[0x81, 0, 0, 9], Some(0x40), 3, 1382),
            (&[0x88, 0xa8, 0, 8, 0x81, 0, 0, 9], Some(0x40), 3, 1378),
            (&[], None, 2, 1386),
            (&[0x81, 0, 0x20, 9], None, 2, 1382),
        ] {
            let frame = frame(tags, flags, 1472);
            let answer = TooLongFrame::read(&frame).unwrap().answer(1400).unwrap();
            assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
            assert_eq!(&answer[12..12 + tags.len()], tags);
            let mut key = FlowKey::zero();
            let headers = parse(&answer, 1, &mut key);
            assert_eq!(headers.malformed, None);
            let message = &answer[usize::from(headers.l4)..];
            assert_eq!(message[0], kind);
            assert_eq!(message[6..8], u16::to_be_bytes(mtu));
            if flags.is_some() {
                assert_eq!([key.get(Field::Ipv4Src), key.get(Field::Ipv4Dst)], [0x0a00_0002, 0x0a00_0001]);
            }
            assert_eq!(
                TooLongFrame::read(&answer).map(|error| error.source),
                None,
                "no error about an error"
            );
        }
    }

    #[test]
    fn packets_that_may_be_cut_and_others_are_not_answered() {
        assert!(TooLongFrame::read(&frame(&[], Some(0), 1472)).is_none(), "it may be cut");
        let whole = frame(&[], Some(0x40), 1472);
        for (at, byte) in [(0, 1), (30, 224), (26, 224), (12, 9)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert!(TooLongFrame::read(&other).is_none(), "byte {at}");
        }
        for len in 0..whole.len() {
            // Damaged ones are data.
            _ = TooLongFrame::read(&whole[..len]).and_then(|frame| frame.answer(1400));
        }
        assert!(TooLongFrame::read(&whole).unwrap().answer(usize::MAX).is_none());
        let least = TooLongFrame::read(&whole).unwrap().answer(0).unwrap();
        assert_eq!(least[40..42], 68u16.to_be_bytes());
    }
}
