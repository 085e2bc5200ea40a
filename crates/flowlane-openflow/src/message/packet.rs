//! Messages that carry packets.

use flowlane::{Action, Match, PortNo};

/// Why a packet is sent to controllers (OpenFlow 1.5.1 7.4.1).
pub mod reason {
    /// No flow matched, or the table-miss flow did.
    pub const NO_MATCH: u8 = 0;
    /// An action of a flow.
    pub const ACTION: u8 = 1;
    /// The TTL or hop limit is used up.
    pub const INVALID_TTL: u8 = 2;
    /// An action of the action set (OpenFlow 1.4; sent as `ACTION` before).
    pub const ACTION_SET: u8 = 3;
    /// A bucket of a group (OpenFlow 1.4; sent as `ACTION` before).
    pub const GROUP: u8 = 4;
    /// A packet-out (OpenFlow 1.4; sent as `ACTION` before).
    pub const PACKET_OUT: u8 = 5;
}

/// The layout of a packet-in (nicira-ext 16).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PacketInFormat {
    /// The version's own.
    #[default]
    Standard,
    /// `NXT_PACKET_IN` (nicira-ext 17).
    Nxt,
    /// `NXT_PACKET_IN2` (nicira-ext 30).
    Nxt2,
}

/// A packet for controllers (OpenFlow 1.0 5.4.1, 1.3.5 7.4.1, nicira-ext 17 and 30).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketIn {
    /// The layout.
    pub format: PacketInFormat,
    /// Why it is sent: a number of [`reason`].
    pub reason: u8,
    /// The table; not sent by OpenFlow 1.0.
    pub table: u8,
    /// The cookie of the flow, all ones: none; not sent by OpenFlow 1.0.
    pub cookie: u64,
    /// The buffer in which the packet waits.
    pub buffer_id: Option<u32>,
    /// The packet's bytes, of which `data` may be a part.
    pub total_len: u32,
    /// The metadata: the port ([`Field::InPort`](flowlane::Field::InPort)), and except in OpenFlow 1.0 registers, the tunnel and
    /// others.
    pub metadata: Match,
    /// The packet.
    pub data: Vec<u8>,
    /// The `controller` action's bytes (`Nxt2` only).
    pub userdata: Vec<u8>,
    /// Properties of the switch's own, which come back in [`Resume`] (`Nxt2` only).
    pub continuation: Vec<u8>,
}

/// A packet that was paused goes on (nicira-ext 28): the controller's copy of the packet-in, perhaps changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resume(pub PacketIn);

/// A packet to send (OpenFlow 1.3.5 7.3.7, 1.5.1 7.3.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut {
    /// The buffer of the packet; `None`: it is `data`.
    pub buffer_id: Option<u32>,
    /// The port ([`Field::InPort`](flowlane::Field::InPort)) and, in OpenFlow 1.5, other metadata. A port of 0xfffd is the controller.
    pub metadata: Match,
    /// The actions.
    pub actions: Vec<Action>,
    /// The packet.
    pub data: Vec<u8>,
}

impl PacketOut {
    /// The port that the packet is said to come from.
    pub fn in_port(&self) -> PortNo {
        PortNo(self.metadata.get(flowlane::Field::InPort).0 as u32)
    }
}
