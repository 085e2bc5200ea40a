//! The Rapid Spanning Tree Protocol (RSTP, IEEE 802.1D-2004 §17): bridges agree on a tree of links without loops, and speak the older
//! STP with neighbours that know nothing else.
//!
//! Each bridge says in BPDUs which bridge it takes for the *root*, and how far away that is. Of the vectors that it hears, the best one
//! (smaller is better, field by field) makes one port the root port; a port that would send a better vector than it hears is designated
//! for its link; the others are blocked:
//!
//! | role | hears | state |
//! |---|---|---|
//! | root | the best vector of all ports | forwards, once other ports are in step |
//! | designated | nothing, or worse than it sends | forwards when its neighbour agrees, or after twice the forward delay |
//! | alternate, backup | better than it would send, from another bridge or this one | discards |
//!
//! ```text
//!  designated ── proposal ──► root        all other ports of that bridge stop forwarding ("sync"),
//!             ◄── agreement ──             then it agrees: the link forwards at once, without timers
//! ```
//!
//! A change of the topology goes from bridge to bridge: addresses learned at other ports are forgotten.
//!
//! An [`Rstp`] has neither sockets nor a clock: callers pass frames, links and the time, and send the frames that it returns. Its variables
//! and machines have the standard's names where a reader would look for them there. Its state has a fixed size for each port, times of
//! neighbours are kept within the standard's bounds, and a port sends no more than `hold_count` BPDUs at once and then one a second.
//!
//! Another process may [go on](Rstp::resume) with the ports of one, if it is there before neighbours miss the BPDUs.
//!
//! With `speaks_rapid` off it is the STP: it sends configuration BPDUs, and its ports wait for timers.

mod bpdu;
mod bridge;
mod information;
mod port;
mod roles;
mod saved;
mod transitions;

pub use bpdu::{BRIDGES, Bpdu, Flags, Refused, SenderRole, is_bpdu};
pub use bridge::Rstp;
pub use port::{PortState, PortStatus, Role};
pub use saved::SavedPort;

use serde::{Deserialize, Serialize};

/// Milliseconds between two steps of all timers.
pub const TICK_MS: u64 = 1000;

/// The identifier of a bridge: priority and Ethernet address. Smaller is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct BridgeId(pub u64);

impl BridgeId {
    /// Makes an identifier.
    pub fn new(priority: u16, mac: [u8; 6]) -> Self {
        let mac = mac.iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
        Self(u64::from(priority) << 48 | mac)
    }

    /// Returns the Ethernet address.
    pub fn mac(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }
}

/// A priority vector (§17.5). Smaller is better, field by field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Vector {
    pub root: BridgeId,
    /// The cost of the way to the root.
    pub cost: u32,
    /// The bridge that says so, and its port.
    pub designated_bridge: BridgeId,
    pub designated_port: u16,
    /// The port that hears it.
    pub bridge_port: u16,
}

/// The times of a tree, in seconds, as its root has set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Times {
    /// The bridges that the information has passed, roughly.
    pub message_age: u8,
    pub max_age: u8,
    pub hello: u8,
    pub forward_delay: u8,
}

impl Default for Times {
    fn default() -> Self {
        Self { message_age: 0, max_age: 20, hello: 2, forward_delay: 15 }
    }
}

impl Times {
    /// Returns these times within the bounds of the standard (table 17-1), so that no neighbour stops a timer.
    #[must_use]
    pub fn within_bounds(self) -> Self {
        Self {
            message_age: self.message_age.min(40),
            max_age: self.max_age.clamp(6, 40),
            hello: self.hello.clamp(1, 10),
            forward_delay: self.forward_delay.clamp(4, 30),
        }
    }
}

/// The settings of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeSettings {
    pub id: BridgeId,
    pub times: Times,
    /// BPDUs that a port sends at once.
    pub hold_count: u8,
    /// Off: the bridge speaks the STP to all neighbours.
    pub speaks_rapid: bool,
}

/// The settings of a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortSettings {
    /// The Ethernet address that BPDUs are sent from.
    pub mac: [u8; 6],
    /// Priority (the high byte) and number.
    pub id: u16,
    pub cost: u32,
    /// No bridge is expected there: it forwards at once, until a BPDU comes.
    pub is_edge: bool,
    /// It becomes such a port if no BPDU comes for 3 seconds.
    pub finds_edge: bool,
    /// The link has two ends: its neighbour may agree.
    pub is_point_to_point: bool,
}

#[cfg(test)]
mod tests;
