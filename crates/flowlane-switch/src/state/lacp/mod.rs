//! The Link Aggregation Control Protocol (LACP, IEEE 802.1AX-2020 §6.4): both ends of some links agree on which of them are one bond.
//!
//! Each end says in every PDU who it is and how it is (*actor*), and what it has heard of the other end (*partner*). A link is used
//! when both say that it is in the group, and have heard each other say so.
//!
//! ```text
//!                ┌──────────────── PDU ────────────────┐
//!                ▼                                     │
//!             Current ── timeout ─► Expired ── timeout ─► Defaulted
//!                                      ▲
//!                       link comes up ─┘
//! ```
//!
//! A [`Lacp`] has neither sockets nor a clock: callers pass frames, links and the time, and send the frames that it returns. Its state
//! has a fixed size for each link, and it sends at most three PDUs a second on each, so that no neighbour makes it grow or flood.
//!
//! Of the standard's machines, those of reception, selection, periodic transmission and, with collecting and distributing coupled, the
//! multiplexer are here. A link joins at once: the standard's wait of 2 seconds for further links has no use where links may join and
//! leave at any time. Markers are counted, and not answered, as in Open vSwitch.

mod group;
mod link;
mod pdu;
mod text;

pub use group::Lacp;
pub use link::SavedLink;
pub use pdu::{Actor, FRAME_BYTES, Flags, Pdu, Refused, SystemId, is_slow_protocol};

/// The interval between PDUs to a neighbour with a short timeout.
pub const FAST_MS: u64 = 1000;
/// The interval between PDUs to a neighbour with a long timeout.
pub const SLOW_MS: u64 = 30_000;

/// The settings of a bond's LACP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LacpSettings {
    /// Speaks first, instead of answering only.
    pub is_active: bool,
    /// Asks its neighbour for PDUs every second.
    pub is_fast: bool,
    pub system: SystemId,
    /// Links without a neighbour that speaks LACP may be used, by a bond that uses one at a time.
    pub falls_back: bool,
}

/// The settings of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkSettings {
    pub name: String,
    /// The Ethernet address that PDUs are sent from.
    pub mac: [u8; 6],
    pub id: u16,
    /// Smaller is better.
    pub priority: u16,
    /// Links with other keys do not join each other; 0: that of the bond's others.
    pub key: u16,
}

#[cfg(test)]
mod tests;
