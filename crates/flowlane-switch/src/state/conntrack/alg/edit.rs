//! The part of a frame that an application's protocol looks at, and changes of it.

use std::ops::Range;

use flowlane::packet::parse::ip_proto;
use flowlane::packet::{Headers, Network, Transport};

use super::super::tcp::flags::ACK;
use super::skew::Skew;
use crate::packet::Frame;
use crate::packet::edit::checksum::{Delta, sum};
use crate::packet::edit::packet_end;

const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// Places within the header of TCP.
const SEQUENCE_AT: usize = 4;
const ACKNOWLEDGEMENT_AT: usize = 8;
const CHECKSUM_AT: usize = 16;

/// The option of TCP with ranges that have been received (RFC 2018).
const SACK: u8 = 5;

/// Where the transport header of a packet and its payload begin, and where they end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    l4: usize,
    payload: usize,
    end: usize,
}

impl Layout {
    /// Finds the parts of a packet of TCP or UDP. Rules may have made a packet of another protocol of it since it was tracked.
    pub(super) fn of(bytes: &[u8], headers: &Headers, proto: u8) -> Option<Self> {
        let is_right = match headers.transport {
            Transport::Tcp => proto == ip_proto::TCP,
            Transport::Udp => proto == ip_proto::UDP,
            _ => false,
        };
        if headers.fragment != 0 || !is_right {
            return None;
        }
        let l4 = usize::from(headers.l4);
        let end = packet_end(bytes, headers).filter(|end| *end <= bytes.len())?;
        let header = match proto {
            ip_proto::TCP => (usize::from(bytes.get(l4 + 12)? >> 4) * 4).max(TCP_BYTES),
            _ => UDP_BYTES,
        };
        (l4 + header <= end).then_some(Self { l4, payload: l4 + header, end })
    }

    /// Returns the payload.
    pub(super) fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.payload..self.end]
    }

    /// Returns the sequence number of a segment.
    pub(super) fn sequence(&self, bytes: &[u8]) -> u32 {
        number(bytes, self.l4 + SEQUENCE_AT)
    }

    /// Returns whether the packet may be longer by some bytes: its length is in the IP header, and stays one.
    pub(super) fn may_grow(&self, bytes: &[u8], headers: &Headers, by: i32) -> bool {
        let at = length_at(headers);
        let length = i32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        // A jumbogram of IPv6 has length 0.
        length > 0 && (1..=u16::MAX.into()).contains(&(length + by))
    }
}

/// A change of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Edit {
    /// The skews of what the sender of the segment sends, and of what its receiver does.
    pub(super) skews: [Skew; 2],
    /// A part of the payload, and the text in its place.
    pub(super) text: Option<(Range<usize>, String)>,
}

impl Edit {
    /// Changes the frame, whose checksums are right.
    pub(super) fn apply(&self, frame: &mut Frame, headers: &Headers, layout: &Layout) {
        if self.text.is_none() && self.skews.iter().all(Skew::is_none) {
            return;
        }
        let Layout { l4, payload, end } = *layout;
        let before = sum(&frame.bytes()[l4..end]) + (end - l4) as u32;
        let [own, other] = &self.skews;
        let bytes = frame.bytes_mut();
        change(bytes, l4 + SEQUENCE_AT, |sequence| own.add_to(sequence));
        if u16::from(bytes[l4 + 13]) & ACK != 0 {
            change(bytes, l4 + ACKNOWLEDGEMENT_AT, |number| other.take_from(number));
        }
        change_received(&mut bytes[l4 + TCP_BYTES..payload], other);
        let mut after_end = end;
        if let Some((part, text)) = &self.text {
            frame.replace(payload + part.start..payload + part.end, text.as_bytes());
            after_end = end + text.len() - part.len();
            write_length(frame.bytes_mut(), headers, (after_end as i64 - end as i64) as i16);
        }
        let after = sum(&frame.bytes()[l4..after_end]) + (after_end - l4) as u32;
        Delta::between(before, after).apply(frame.bytes_mut(), l4 + CHECKSUM_AT);
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn change(bytes: &mut [u8], at: usize, to: impl Fn(u32) -> u32) {
    let new = to(number(bytes, at));
    bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
}

/// Changes the ranges that the sender says it has received.
fn change_received(mut options: &mut [u8], skew: &Skew) {
    loop {
        let len = match *options {
            [] | [0, ..] => return,
            [1, ..] => 1,
            [_, len, ..] if len >= 2 => usize::from(len),
            _ => return,
        };
        let Some((option, rest)) = options.split_at_mut_checked(len) else { return };
        if option[0] == SACK {
            (2..len.saturating_sub(3)).step_by(4).for_each(|at| change(option, at, |n| skew.take_from(n)));
        }
        options = rest;
    }
}

/// Returns where the IP header has its length.
fn length_at(headers: &Headers) -> usize {
    usize::from(headers.l3) + if headers.network == Network::Ipv4 { 2 } else { 4 }
}

fn write_length(bytes: &mut [u8], headers: &Headers, by: i16) {
    let at = length_at(headers);
    let length = u16::from_be_bytes([bytes[at], bytes[at + 1]]).wrapping_add_signed(by);
    let delta = Delta::of_write(bytes, at, &length.to_be_bytes());
    if headers.network == Network::Ipv4 {
        delta.apply(bytes, usize::from(headers.l3) + 10);
    }
}
