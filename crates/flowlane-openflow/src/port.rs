//! Ports: their description, their changes and their configuration.

use flowlane::PortNo;

/// Bits of a port's configuration. Those of OpenFlow 1.0 only keep their place there: no version has others in it.
pub mod config {
    /// The port is administratively down.
    pub const PORT_DOWN: u32 = 1;
    /// The port takes no part in 802.1D (OpenFlow 1.0).
    pub const NO_STP: u32 = 1 << 1;
    /// Received packets are dropped.
    pub const NO_RECV: u32 = 1 << 2;
    /// Received packets of 802.1D are dropped (OpenFlow 1.0).
    pub const NO_RECV_STP: u32 = 1 << 3;
    /// `flood` leaves the port out (OpenFlow 1.0).
    pub const NO_FLOOD: u32 = 1 << 4;
    /// Packets that are sent to the port are dropped.
    pub const NO_FWD: u32 = 1 << 5;
    /// No packet-in for packets that no rule matches.
    pub const NO_PACKET_IN: u32 = 1 << 6;
}

/// Bits of a port's state.
pub mod state {
    /// There is no physical link.
    pub const LINK_DOWN: u32 = 1;
    /// A protocol blocks the port (OpenFlow 1.1 and later).
    pub const BLOCKED: u32 = 1 << 1;
    /// Fast failover groups may use the port (OpenFlow 1.1 and later).
    pub const LIVE: u32 = 1 << 2;
    /// The two bits of 802.1D's state (OpenFlow 1.0).
    pub const STP_MASK: u32 = 3 << 8;
}

/// Bits of a port's speeds and media, as OpenFlow 1.1 and later place them (1.3.5 7.2.1).
pub mod features {
    /// 10 Mb/s half duplex.
    pub const HALF_10MB: u32 = 1;
    /// 10 Mb/s full duplex.
    pub const FULL_10MB: u32 = 1 << 1;
    /// 100 Mb/s half duplex.
    pub const HALF_100MB: u32 = 1 << 2;
    /// 100 Mb/s full duplex.
    pub const FULL_100MB: u32 = 1 << 3;
    /// 1 Gb/s half duplex.
    pub const HALF_1GB: u32 = 1 << 4;
    /// 1 Gb/s full duplex.
    pub const FULL_1GB: u32 = 1 << 5;
    /// 10 Gb/s full duplex.
    pub const FULL_10GB: u32 = 1 << 6;
    /// 40 Gb/s full duplex; not in OpenFlow 1.0, as are the next three.
    pub const FULL_40GB: u32 = 1 << 7;
    /// 100 Gb/s full duplex.
    pub const FULL_100GB: u32 = 1 << 8;
    /// 1 Tb/s full duplex.
    pub const FULL_1TB: u32 = 1 << 9;
    /// Another speed.
    pub const OTHER: u32 = 1 << 10;
    /// Copper.
    pub const COPPER: u32 = 1 << 11;
    /// Fibre.
    pub const FIBER: u32 = 1 << 12;
    /// Auto-negotiation.
    pub const AUTONEG: u32 = 1 << 13;
    /// Pause frames.
    pub const PAUSE: u32 = 1 << 14;
    /// Asymmetric pause frames.
    pub const PAUSE_ASYM: u32 = 1 << 15;
}

/// A description of a port (OpenFlow 1.0 5.2.1, 1.3.5 7.2.1, 1.4.1 7.2.1.1).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// Its number.
    pub number: PortNo,
    /// Its Ethernet address.
    pub hw_addr: [u8; 6],
    /// Its name, of which 15 bytes are sent.
    pub name: String,
    /// Bits of [`config`].
    pub config: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// Bits of [`features`] in use.
    pub current: u32,
    /// Bits of [`features`] that the port advertises.
    pub advertised: u32,
    /// Bits of [`features`] that the port supports.
    pub supported: u32,
    /// Bits of [`features`] that the other end advertises.
    pub peer: u32,
    /// The speed in kb/s; not sent by OpenFlow 1.0.
    pub speed_kbps: u32,
    /// The largest speed in kb/s; not sent by OpenFlow 1.0.
    pub max_speed_kbps: u32,
}

/// Why a port's description is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortReason {
    /// The port is new.
    Add,
    /// The port is gone.
    Delete,
    /// The port changed.
    Modify,
}

/// Tells a controller of a change of a port (OpenFlow 1.3.5 7.4.3).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortStatus {
    /// The change.
    pub reason: PortReason,
    /// The port.
    pub port: Port,
}

/// Changes a port's configuration (OpenFlow 1.3.5 7.3.4.3).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortMod {
    /// The port.
    pub port: PortNo,
    /// Its Ethernet address, by which the switch checks that it is the port.
    pub hw_addr: [u8; 6],
    /// Bits of [`config`].
    pub config: u32,
    /// The bits that change.
    pub mask: u32,
    /// Bits of [`features`] to advertise; 0: as they are. Of OpenFlow 1.4 and later, `None` if they are not sent.
    pub advertise: Option<u32>,
}
