//! Meters, settings and VLANs of ports, and the fields of GENEVE options, which workers take with the ruleset.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowlane::tunnel::OptionMap;

use super::SharedMap;
use crate::state::meter::Meter;
use crate::state::mirror::Mirrors;
use crate::state::policer::PortPolicers;
use crate::state::rstp::is_bpdu;
use crate::state::vlan::PortVlan;

/// Meters by number, which all workers share.
pub type Meters = SharedMap<Arc<Meter>>;

/// VLAN settings of ports, by number.
pub type PortVlans = BTreeMap<u32, Arc<PortVlan>>;

/// Policers of ports, by number, which all workers share.
pub type Policing = BTreeMap<u32, Arc<PortPolicers>>;

/// The resources of a ruleset. Packets meet them when they are received, or an action is executed. A path depends only on whether its meters
/// change packets.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    pub meters: Meters,
    /// The settings of ports, by number.
    pub ports: BTreeMap<u32, PortFlags>,
    /// The fields of GENEVE options.
    pub options: OptionMap,
    /// The VLAN settings of the ports that have any.
    pub vlans: PortVlans,
    /// The mirrors, if there are any.
    pub mirrors: Option<Arc<Mirrors>>,
    /// The policers of the ports that have any.
    pub policing: Policing,
}

/// Settings of a port by its administrator, the bits of OpenFlow's `ofp_port_config`, and whether its link or path is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortFlags(pub u16);

impl PortFlags {
    /// Nothing is received or sent.
    pub const DOWN: Self = Self(1);
    /// The port takes no part in spanning trees. It is kept for controllers: the database says which ports take part.
    pub const NO_STP: Self = Self(1 << 1);
    /// Received frames are dropped, but those of spanning trees.
    pub const NO_RECEIVE: Self = Self(1 << 2);
    /// Received frames of spanning trees are dropped.
    pub const NO_RECEIVE_STP: Self = Self(1 << 3);
    /// `flood`, and `normal` where it floods, leave the port out.
    pub const NO_FLOOD: Self = Self(1 << 4);
    /// Frames for the port are dropped.
    pub const NO_FORWARD: Self = Self(1 << 5);
    /// Packets that match no rule are not sent to controllers.
    pub const NO_PACKET_IN: Self = Self(1 << 6);
    /// The link of its interface is down: frames are sent all the same, but no group chooses a bucket that watches the port. The
    /// system sets it, not an administrator.
    pub const NO_LINK: Self = Self(1 << 7);
    /// A session of BFD says that the other end of the port is not reached; as for a link that is down, but the port is up.
    pub const NO_PATH: Self = Self(1 << 8);
    /// The spanning tree lets the port receive and send control packets only: BPDUs, and those of BFD and LACP. A worker derives this flag and the next one from the tree.
    pub const DISCARDS: Self = Self(1 << 10);
    /// In a port that discards: the sources of received frames are learned.
    pub const LEARNS: Self = Self(1 << 11);
    /// Mirrors take frames that the port sends. A worker derives this flag and the following ones from other resources.
    pub const MIRRORED: Self = Self(1 << 12);
    /// The port is the output of a mirror: received frames are dropped, and `normal` leaves the port out.
    pub const MIRROR_OUTPUT: Self = Self(1 << 13);
    /// A policer limits the frames that the port receives.
    pub const POLICES_RECEIVED: Self = Self(1 << 14);
    /// A policer limits the frames that the port sends.
    pub const POLICES_SENT: Self = Self(1 << 15);

    /// With any of these, the port is not up.
    pub const NOT_UP: Self = Self(Self::DOWN.0 | Self::NO_LINK.0);
    /// With any of these, no group chooses a bucket that watches the port.
    pub const NOT_LIVE: Self = Self(Self::NOT_UP.0 | Self::NO_PATH.0);
    /// Those that the system sets.
    pub const STATES: Self = Self(Self::NO_LINK.0 | Self::NO_PATH.0);
    /// Those of the spanning tree.
    pub const OF_TREE: Self = Self(Self::DISCARDS.0 | Self::LEARNS.0);
    /// Those that a worker derives from other resources.
    pub const DERIVED: Self = Self(
        Self::OF_TREE.0
            | Self::MIRRORED.0
            | Self::MIRROR_OUTPUT.0
            | Self::POLICES_RECEIVED.0
            | Self::POLICES_SENT.0,
    );
    /// Those that an administrator sets.
    pub const SETTINGS: Self = Self(!(Self::STATES.0 | Self::DERIVED.0));

    /// With any of these, received frames may be dropped.
    pub const REFUSES_RECEIVED: Self = Self(
        Self::DOWN.0
            | Self::NO_RECEIVE.0
            | Self::NO_RECEIVE_STP.0
            | Self::MIRROR_OUTPUT.0
            | Self::POLICES_RECEIVED.0,
    );
    /// With any of these, frames for the port are dropped; where the spanning tree alone says so, BPDUs are sent.
    pub const REFUSES_SENT: Self = Self(Self::DOWN.0 | Self::NO_FORWARD.0 | Self::DISCARDS.0);
    /// With any of these, more is to be done for a frame for the port than to send it.
    pub const SENDS_WITH_CARE: Self = Self(Self::REFUSES_SENT.0 | Self::MIRRORED.0 | Self::POLICES_SENT.0);
    /// With any of these, the port is left out where frames are flooded.
    pub const NOT_FLOODED: Self = Self(Self::REFUSES_SENT.0 | Self::NO_FLOOD.0);
    /// With any of these, the port is left out where `normal` floods frames.
    pub const NOT_SWITCHED: Self = Self(Self::NOT_FLOODED.0 | Self::MIRROR_OUTPUT.0);

    /// Returns whether it has any of some flags.
    #[inline]
    pub fn has_any(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// Returns these flags with those in `mask` as in `new`.
    #[must_use]
    pub fn with(self, new: Self, mask: Self) -> Self {
        Self(self.0 & !mask.0 | new.0 & mask.0)
    }

    /// Returns whether a received frame is dropped.
    pub fn refuses(self, frame: &[u8]) -> bool {
        let of_kind = if is_bpdu(frame) { Self::NO_RECEIVE_STP } else { Self::NO_RECEIVE };
        self.has_any(Self(Self::DOWN.0 | Self::MIRROR_OUTPUT.0 | of_kind.0))
    }

    /// Returns whether a frame for the port is dropped.
    pub fn refuses_sent(self, frame: &[u8]) -> bool {
        let of_settings = Self(Self::DOWN.0 | Self::NO_FORWARD.0);
        self.has_any(of_settings) || self.has_any(Self::DISCARDS) && !is_bpdu(frame)
    }
}
