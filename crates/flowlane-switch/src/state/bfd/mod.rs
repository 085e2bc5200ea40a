//! Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode, between two ports that are neighbours (RFC 5881): each end sends
//! control packets at a rate that both negotiate, and takes the path for broken when as many as the other's multiplier are missing.
//!
//! ```text
//!            ┌─── nothing heard for the detection time, or the other end is down ───┐
//!            ▼                                                                      │
//!          Down ──── other: down ───► Init ──── other: init or up ───► Up ──────────┘
//!            └────────────── other: init ──────────────────────────────▲
//! ```
//!
//! A [`Session`] has neither sockets nor a clock: callers pass frames and the time, and send the frames that it returns. On the wire
//! sessions are as those of Open vSwitch 3.1 (its packets were captured): UDP port 3784, TTL 255, TOS 0xc0, from 169.254.1.1 to
//! 169.254.1.0 and to the Ethernet address 00:23:20:00:00:01, all of which [`Settings`] may change.
//!
//! Sessions differ from those of Open vSwitch where RFC 5880 asks for it: a change of state is sent at once (6.8.7), becoming up begins
//! a poll sequence (6.8.3), and a session that is ended says so (6.8.16). Authentication, demand mode and echoes are not implemented.

mod frame;
mod packet;
mod session;
mod text;

pub use frame::{FRAME_MAX, Filter, PORT, is_control, read};
pub use packet::{ControlPacket, Refused};
pub use session::{SavedSession, Session, Status};

use std::net::Ipv4Addr;

/// The Ethernet address that control packets are sent to, unless another is set.
pub const MAC: [u8; 6] = [0x00, 0x23, 0x20, 0x00, 0x00, 0x01];
/// The addresses that control packets are sent from and to, unless others are set.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(169, 254, 1, 1), Ipv4Addr::new(169, 254, 1, 0)];
/// The lowest source port (RFC 5881, section 4).
pub const SOURCE_PORT_MIN: u16 = 49152;

/// The state of a session (bfd.SessionState), with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum State {
    /// Held down by an administrator.
    AdminDown = 0,
    /// The other end is not heard, or has gone down.
    #[default]
    Down = 1,
    /// The other end is heard, and does not hear this one yet.
    Init = 2,
    /// Both ends hear each other.
    Up = 3,
}

impl State {
    /// Returns the state of a number's lowest two bits.
    fn of(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    /// Returns its name, as Open vSwitch's.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdminDown => "admin_down",
            Self::Down => "down",
            Self::Init => "init",
            Self::Up => "up",
        }
    }
}

/// The reason for the latest change of state (RFC 5880, section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    pub const NONE: Self = Self(0);
    /// The detection time has passed.
    pub const EXPIRED: Self = Self(1);
    /// The other end has gone down.
    pub const NEIGHBOUR_DOWN: Self = Self(3);
    pub const PATH_DOWN: Self = Self(5);
    /// The path beyond the end that says so is broken.
    pub const CONCATENATED_PATH_DOWN: Self = Self(6);
    pub const ADMIN_DOWN: Self = Self(7);
    pub const REVERSE_CONCATENATED_PATH_DOWN: Self = Self(8);

    /// Returns its name, as Open vSwitch's.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        }
    }

    /// Returns whether an end that says so is not to be sent to.
    fn is_of_path(self) -> bool {
        [Self::PATH_DOWN, Self::CONCATENATED_PATH_DOWN, Self::REVERSE_CONCATENATED_PATH_DOWN].contains(&self)
    }
}

/// The settings of a session; the defaults are those of Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The shortest interval between packets sent, at least 1.
    pub min_tx_ms: u32,
    /// The shortest interval between packets that this end accepts, at least 1.
    pub min_rx_ms: u32,
    /// The other end takes the path for broken after as many intervals without packets.
    pub detect_mult: u8,
    /// The interval in the place of `min_rx_ms` while a port is idle; 0: there is none.
    pub decay_min_rx_ms: u32,
    /// Packets of any kind that come in show that the port works.
    pub forwarding_if_rx: bool,
    /// The path beyond this end is broken, which the other end gets to know.
    pub cpath_down: bool,
    /// The source of packets sent.
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    pub source_ip: Ipv4Addr,
    pub destination_ip: Ipv4Addr,
    /// The UDP port of packets sent, from [`SOURCE_PORT_MIN`] on.
    pub source_port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        let [source_ip, destination_ip] = ADDRESSES;
        Self {
            min_tx_ms: 100,
            min_rx_ms: 1000,
            detect_mult: 3,
            decay_min_rx_ms: 0,
            forwarding_if_rx: false,
            cpath_down: false,
            source_mac: [0x02, 0, 0, 0, 0, 1],
            destination_mac: MAC,
            source_ip,
            destination_ip,
            source_port: SOURCE_PORT_MIN,
        }
    }
}

#[cfg(test)]
mod tests;
