//! PDUs of LACP, version 1 (IEEE 802.1AX-2020 §6.4.2.3).

use serde::{Deserialize, Serialize};

/// The bytes of a frame with a PDU.
pub const FRAME_BYTES: usize = ETHERNET + PDU;

const ETHERNET: usize = 14;
const PDU: usize = 110;
/// The address of slow protocols.
const ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x02];
const ETHER_TYPE: [u8; 2] = [0x88, 0x09];
const SUBTYPE_LACP: u8 = 1;
const SUBTYPE_MARKER: u8 = 2;
/// Types and lengths of the parts that each PDU has, in their order.
const PARTS: [[u8; 2]; 3] = [[1, 20], [2, 20], [3, 16]];

/// A system: smaller ones decide which links join.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct SystemId {
    pub priority: u16,
    pub mac: [u8; 6],
}

/// The state of one end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Flags(pub u8);

impl Flags {
    /// Sends PDUs unasked.
    pub const ACTIVITY: Self = Self(1);
    /// Takes a neighbour for lost after 3 seconds, instead of 90.
    pub const SHORT_TIMEOUT: Self = Self(1 << 1);
    /// May join other links.
    pub const AGGREGATION: Self = Self(1 << 2);
    /// Is in the group.
    pub const SYNCHRONISED: Self = Self(1 << 3);
    /// Receives.
    pub const COLLECTING: Self = Self(1 << 4);
    /// Sends.
    pub const DISTRIBUTING: Self = Self(1 << 5);
    /// Does not hear its neighbour.
    pub const DEFAULTED: Self = Self(1 << 6);
    /// Has not heard its neighbour for the timeout.
    pub const EXPIRED: Self = Self(1 << 7);

    /// Their names, in the order in which Open vSwitch shows them.
    pub(super) const NAMES: [(Self, &'static str); 8] = [
        (Self::ACTIVITY, "activity"),
        (Self::SHORT_TIMEOUT, "timeout"),
        (Self::AGGREGATION, "aggregation"),
        (Self::SYNCHRONISED, "synchronized"),
        (Self::COLLECTING, "collecting"),
        (Self::DISTRIBUTING, "distributing"),
        (Self::DEFAULTED, "defaulted"),
        (Self::EXPIRED, "expired"),
    ];

    /// Returns whether it has a flag.
    pub fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// Returns these flags with one more, if `is_set`, or without it.
    #[must_use]
    pub fn with(self, flag: Self, is_set: bool) -> Self {
        Self(if is_set { self.0 | flag.0 } else { self.0 & !flag.0 })
    }
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Actor {
    pub system: SystemId,
    pub key: u16,
    pub port_priority: u16,
    pub port_id: u16,
    pub flags: Flags,
}

impl Actor {
    /// Returns whether this is the port of another description, however it is.
    pub fn is_port_of(&self, other: &Self) -> bool {
        let port = |of: &Self| (of.system, of.key, of.port_priority, of.port_id);
        port(self) == port(other)
    }

    fn read(bytes: &[u8; 15]) -> Self {
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let [_, _, a, b, c, d, e, f, ..] = *bytes;
        Self {
            system: SystemId { priority: u16_at(0), mac: [a, b, c, d, e, f] },
            key: u16_at(8),
            port_priority: u16_at(10),
            port_id: u16_at(12),
            flags: Flags(bytes[14]),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.system.priority.to_be_bytes());
        out.extend(self.system.mac);
        [self.key, self.port_priority, self.port_id].iter().for_each(|word| out.extend(word.to_be_bytes()));
        // 3 bytes are reserved.
        out.extend([self.flags.0, 0, 0, 0]);
    }
}

/// A PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pdu {
    /// The end that sends it.
    pub actor: Actor,
    /// The other end, as far as the sender knows it.
    pub partner: Actor,
}

/// Why a received frame is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is no frame of LACP.
    #[error("it is no PDU of LACP")]
    NotLacp,
    /// It is a request of the marker protocol.
    #[error("it is a marker")]
    Marker,
    /// It is shorter than a PDU.
    #[error("it is too short")]
    Length,
    /// A part has another type or length.
    #[error("part {0} is of another type or length")]
    Part(usize),
    /// It is of the port that has received it.
    #[error("it has come back")]
    Own,
    /// The link is not of this bond.
    #[error("there is no such link")]
    NoLink,
}

/// Returns whether a frame is of LACP or its markers, sound or not.
#[inline]
pub fn is_slow_protocol(frame: &[u8]) -> bool {
    frame.len() > ETHERNET
        && frame[..6] == ADDRESS
        && frame[12..14] == ETHER_TYPE
        && matches!(frame[14], SUBTYPE_LACP | SUBTYPE_MARKER)
}

impl Pdu {
    /// Reads the PDU of a frame. Versions after 1 add to it, and change nothing of it.
    ///
    /// # Errors
    /// Why it is to be discarded.
    pub fn read(frame: &[u8]) -> Result<Self, Refused> {
        if !is_slow_protocol(frame) {
            return Err(Refused::NotLacp);
        }
        if frame[14] == SUBTYPE_MARKER {
            return Err(Refused::Marker);
        }
        let pdu: &[u8; PDU] = frame[ETHERNET..].first_chunk().ok_or(Refused::Length)?;
        let mut at = 2;
        let mut ends = [Actor::default(); 2];
        for (number, part) in PARTS.iter().enumerate() {
            if pdu[at..at + 2] != *part {
                return Err(Refused::Part(number + 1));
            }
            if let Some(end) = ends.get_mut(number) {
                *end = Actor::read(pdu[at + 2..].first_chunk().expect("the parts are within the PDU"));
            }
            at += usize::from(part[1]);
        }
        let [actor, partner] = ends;
        Ok(Self { actor, partner })
    }

    /// Returns a frame with the PDU.
    pub fn frame(&self, source: [u8; 6]) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_BYTES);
        out.extend(ADDRESS);
        out.extend(source);
        out.extend(ETHER_TYPE);
        out.extend([SUBTYPE_LACP, 1]);
        for (part, end) in PARTS.iter().zip([&self.actor, &self.partner]) {
            out.extend(part);
            end.write(&mut out);
        }
        out.extend(PARTS[2]);
        // The collector does not wait; the rest is reserved.
        out.resize(FRAME_BYTES, 0);
        out
    }
}
