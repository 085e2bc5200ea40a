//! The actions of a rule.

use crate::packet::{Field, FieldRef};

/// A port of the switch, by number. Numbers from [`PortNo::MAX`] on have other meanings in OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortNo(pub u32);

impl PortNo {
    /// The largest number that a port may have (OpenFlow 1.0 reserves 0xff00 and above).
    pub const MAX: PortNo = PortNo(0xfeff);

    /// OpenFlow's port of the switch's own host. Flowlane has none, unless a port is configured with the name `LOCAL`.
    pub const LOCAL: PortNo = PortNo(0xfffe);
}

/// The most headers that a list of actions puts on a packet, by `push_vlan`, `push_mpls` and `encap` together. No network
/// stacks as many; each is work and bytes for every packet, and offsets of headers have 16 bits.
pub const HEADERS_PUSHED_MAX: usize = 32;

/// One step of a rule. Steps happen in order; changes to the packet are seen by the steps after them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send a copy of the packet, as it is now, to a port. Nothing happens where that is the port that
    /// the packet came from (use [`Action::InPort`]), as in OpenFlow.
    Output(PortNo),
    /// Send it back to the port that it came from.
    InPort,
    /// Send it to every port but the one that it came from.
    Flood,
    /// Switch it as a learning bridge does: to the port where its destination was last seen in its VLAN.
    Normal,
    /// Hand the first `max_len` bytes to the controller port.
    Controller {
        /// Bytes kept of each packet; 65535 for all.
        max_len: u16,
    },
    /// Hand every packet to the controller port with a probability.
    Sample {
        /// 0 (never) to 65535 (always), as in Open vSwitch.
        probability: u16,
    },
    /// Add an outermost VLAN tag of this TPID (0x8100 or 0x88a8) with VID 0 and priority 0.
    PushVlan(u16),
    /// Remove the outermost VLAN tag, if there is one.
    PopVlan,
    /// Add an MPLS label stack entry and set the EtherType (0x8847 or 0x8848).
    PushMpls(u16),
    /// Remove the outermost label stack entry and set the EtherType.
    PopMpls(u16),
    /// Set the bits `mask` of a field to `value`; checksums follow. A field that the packet does not
    /// have is left alone.
    SetField {
        /// A writable field.
        field: Field,
        /// Right-aligned, no bit outside `mask`.
        value: u128,
        /// Right-aligned, within the field's width.
        mask: u128,
    },
    /// Copy a field, or some of its bits, to another of the same width.
    Move {
        /// Read.
        from: FieldRef,
        /// Written; of a writable field.
        to: FieldRef,
    },
    /// Decrement the IP TTL or hop limit. A packet whose TTL is 0 or 1 goes to the controller port, and
    /// the rest of its steps are left out, as in Open vSwitch.
    DecTtl,
    /// Decrement the TTL of the outermost label, likewise.
    DecMplsTtl,
    /// Drop the packet where it exceeds the meter's rate.
    Meter(u32),
    /// Count the packet and its bytes in a counter of this number.
    Count(u32),
    /// Put the outer headers of the tunnel of this number in front of the packet. What follows sees these. A packet
    /// that does not fit into the tunnel is dropped, and the rest of its steps are left out.
    Encapsulate(u32),
    /// Go on in a later table. The last step of a rule.
    Goto(u8),
}

impl Action {
    /// Returns whether the action puts a header on the packet: see [`HEADERS_PUSHED_MAX`].
    pub fn pushes_header(&self) -> bool {
        match self {
            Self::PushVlan(_) | Self::PushMpls(_) | Self::Encapsulate(_) => true,
            Self::Output(_)
            | Self::InPort
            | Self::Flood
            | Self::Normal
            | Self::Controller { .. }
            | Self::Sample { .. }
            | Self::PopVlan
            | Self::PopMpls(_)
            | Self::SetField { .. }
            | Self::Move { .. }
            | Self::DecTtl
            | Self::DecMplsTtl
            | Self::Meter(_)
            | Self::Count(_)
            | Self::Goto(_) => false,
        }
    }
}
