//! A packet socket beside the rings of an interface without a device, for what rings cannot carry.
//!
//! Such an interface exchanges segments of up to 64 KiB with its neighbour, as long as it has no program. With one, its neighbour cuts
//! them into frames of its MTU, each of which takes a descriptor, a packet of the kernel and its way through both network stacks (veth
//! turns segmentation off). And no ring says into what a frame is to be cut. A packet socket exchanges whole segments with their
//! metadata. So:
//!
//! - **What leaves** goes through the ring, unless it is to be cut: the ring is emptied into the kernel first, so that nothing overtakes.
//! - **What comes** comes through the ring. While much of it is TCP in long frames, the program is detached, and frames come to the
//!   packet socket; when that has ended for a while, it is attached again. Frames are received from the way that they came on
//!   before until that has none left, so the order is kept.
//!
//! ```text
//!           much TCP: open the socket, detach          little TCP for a second: attach
//!  Ring ────────────────────────────────────▶ RingFirst ─────────────────────────────▶ SocketFirst ──▶ Ring
//!  (program attached)                        (detached)                               (is being attached)
//! ```
//!
//! The program is detached only where a worker receives all of the interface's frames, and the mode is not given.

use flowlane::packet::parse::{ether_type, ip_proto};

use crate::packet::{Frame, Frames};
use crate::port::afpacket::AfPacketPort;
use crate::port::{Port, PortError, Received};

/// Where received frames are looked for first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// Only in the ring.
    Ring,
    /// In the ring, then in the socket: the program is detached, or being detached.
    RingFirst,
    /// In the socket, then in the ring: the program is being attached, or has been, at this time.
    SocketFirst(Option<u64>),
}

/// A packet socket beside the rings.
pub(super) struct Companion {
    socket: AfPacketPort,
    order: Order,
    traffic: Traffic,
}

/// How long the socket is looked into after the program has been attached again, in nanoseconds.
const DRAINED_NS: u64 = 100_000_000;

impl Companion {
    /// Opens a packet socket for each worker; none where the system has none with metadata, or refuses them.
    pub(super) fn open_all(interface: &str, workers: usize) -> Vec<Option<Self>> {
        let open = |_| {
            let mut socket = AfPacketPort::open(interface).ok()?;
            socket.shut();
            Some(Self { socket, order: Order::Ring, traffic: Traffic::default() })
        };
        (0..workers).map(open).collect()
    }

    /// Begins again: the program of the interface has just been attached.
    pub(super) fn restart(&mut self) {
        self.socket.shut();
        (self.order, self.traffic) = (Order::Ring, Traffic::default());
    }

    /// The socket, to send through, and for what a port does beside receiving.
    pub(super) fn socket(&mut self) -> &mut AfPacketPort {
        &mut self.socket
    }

    /// Returns whether frames may be in the socket.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.order != Order::Ring
    }

    /// Receives from the socket, if it is the turn before the ring (`first`) or behind it.
    #[inline]
    pub(super) fn receive(&mut self, frames: &mut Frames, first: bool) -> Result<Received, PortError> {
        match self.order {
            Order::RingFirst if !first => self.socket.receive(frames),
            Order::SocketFirst(_) if first => self.socket.receive(frames),
            _ => Ok(Received::Idle),
        }
    }

    /// Counts the frames that have just been received. Returns whether the program is to be detached or attached, if so.
    #[inline]
    pub(super) fn steer(&mut self, frames: &[Frame], now_ns: u64, is_detached: bool) -> Option<bool> {
        let is_bulk = self.traffic.count(frames, now_ns)?;
        match (self.order, is_bulk) {
            (Order::Ring, true) => {
                self.socket.resume_arrivals();
                self.order = Order::RingFirst;
                Some(true)
            }
            // It may have been refused.
            (Order::RingFirst, true) => (!is_detached).then_some(true),
            (Order::RingFirst, false) => {
                self.order = Order::SocketFirst(None);
                Some(false)
            }
            (Order::SocketFirst(None), _) if is_detached => Some(false),
            (Order::SocketFirst(None), _) => {
                self.order = Order::SocketFirst(Some(now_ns));
                None
            }
            (Order::SocketFirst(Some(since)), _) if now_ns.saturating_sub(since) > DRAINED_NS => {
                self.restart();
                None
            }
            _ => None,
        }
    }
}

/// The time over which traffic is measured, in nanoseconds.
const WINDOW_NS: u64 = 20_000_000;

/// Bytes of TCP in long frames within a window from which on whole segments cost less: 400 Mbit/s. A frame of an MTU costs a microsecond
/// of a core in the ring, so that this is 4 % of one; to detach a program takes some milliseconds.
const MUCH: u64 = 1_000_000;

/// Windows with less than a quarter of that after which the traffic has ended.
const QUIET_WINDOWS: u32 = 50;

/// Frames from this length on are long: those of a sender that fills its segments.
const LONG: usize = 1000;

/// How much TCP comes in long frames.
#[derive(Debug, Default)]
struct Traffic {
    since_ns: u64,
    bytes: u64,
    is_bulk: bool,
    quiet: u32,
}

impl Traffic {
    /// Counts frames. At the end of a window, returns whether there is much TCP.
    #[inline]
    fn count(&mut self, frames: &[Frame], now_ns: u64) -> Option<bool> {
        self.bytes +=
            frames.iter().filter(|frame| is_long_tcp(frame)).map(|frame| frame.len() as u64).sum::<u64>();
        (now_ns.saturating_sub(self.since_ns) >= WINDOW_NS).then(|| self.close(now_ns))
    }

    fn close(&mut self, now_ns: u64) -> bool {
        // A window during which the worker slept is longer.
        let windows = (now_ns.saturating_sub(self.since_ns) / WINDOW_NS).max(1);
        let bytes = std::mem::take(&mut self.bytes) / windows;
        self.since_ns = now_ns;
        self.quiet = match bytes < MUCH / 4 {
            true => self.quiet.saturating_add(u32::try_from(windows).unwrap_or(u32::MAX)),
            false => 0,
        };
        self.is_bulk = bytes >= MUCH || self.is_bulk && self.quiet < QUIET_WINDOWS;
        self.is_bulk
    }
}

/// Returns whether a frame is a long one of TCP, with one tag at most.
#[inline]
fn is_long_tcp(frame: &Frame) -> bool {
    let bytes = frame.bytes();
    if bytes.len() < LONG {
        return false;
    }
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let at = if word(12) == ether_type::VLAN { 18 } else { 14 };
    match word(at - 2) {
        ether_type::IPV4 => bytes[at + 9] == ip_proto::TCP,
        ether_type::IPV6 => bytes[at + 6] == ip_proto::TCP,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(eth_type: u16, protocol_at: usize, protocol: u8, len: usize) -> Frame {
        let mut frame = Frame::default();
        frame.space(len).fill(0);
        let bytes = frame.bytes_mut();
        bytes[12..14].copy_from_slice(&eth_type.to_be_bytes());
        bytes[protocol_at] = protocol;
        frame
    }

    #[test]
    fn only_long_frames_of_tcp_count() {
        assert!(is_long_tcp(&frame(ether_type::IPV4, 23, ip_proto::TCP, 1514)));
        assert!(is_long_tcp(&frame(ether_type::IPV6, 20, ip_proto::TCP, 1514)));
        let mut tagged = frame(ether_type::VLAN, 27, ip_proto::TCP, 1518);
        tagged.bytes_mut()[16..18].copy_from_slice(&ether_type::IPV4.to_be_bytes());
        assert!(is_long_tcp(&tagged));
        assert!(!is_long_tcp(&frame(ether_type::IPV4, 23, ip_proto::UDP, 1514)));
        assert!(!is_long_tcp(&frame(ether_type::IPV4, 23, ip_proto::TCP, 999)));
        assert!(!is_long_tcp(&frame(0x0806, 23, ip_proto::TCP, 1514)));
        assert!(!is_long_tcp(&frame(ether_type::IPV4, 13, 0, 14)) && !is_long_tcp(&Frame::default()));
    }

    #[test]
    fn traffic_is_much_at_once_and_little_only_after_a_while() {
        let long = frame(ether_type::IPV4, 23, ip_proto::TCP, 1514);
        let burst: Vec<Frame> = (0..64).map(|_| frame(ether_type::IPV4, 23, ip_proto::TCP, 1514)).collect();
        let (mut traffic, mut now_ns) = (Traffic::default(), 5 * WINDOW_NS);
        assert_eq!(traffic.count(&[], now_ns), Some(false));
        // 12 bursts a window are much, a quarter of that is not, but goes on to be.
        let mut window = |bursts: u32| {
            (0..bursts).for_each(|_| assert_eq!(traffic.count(&burst, now_ns), None));
            now_ns += WINDOW_NS;
            traffic.count(&[], now_ns).unwrap()
        };
        assert!(!window(5) && window(12) && window(4));
        assert!((1..QUIET_WINDOWS).all(|_| window(1)));
        assert!(window(4));
        assert!((1..QUIET_WINDOWS).all(|_| window(0)) && !window(0) && !window(5));
        // A worker that has slept meanwhile: the bytes are of all that time.
        assert!(window(12));
        assert_eq!(traffic.count(std::slice::from_ref(&long), now_ns), None);
        assert_eq!(traffic.count(&[], now_ns + 10_000_000_000), Some(false));
        // A clock that goes back delays.
        assert_eq!(traffic.count(&burst, 0), None);
    }
}
