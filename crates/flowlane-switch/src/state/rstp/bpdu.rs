//! Bridge protocol data units (BPDUs) in Ethernet frames (IEEE 802.1D-2004 §9.3, §7.12).

use super::{BridgeId, Times, Vector};

/// The address of all bridges.
pub const BRIDGES: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

/// The header of LLC: the service access points of bridges, unnumbered information.
const LLC: [u8; 3] = [0x42, 0x42, 0x03];
const ETHERNET: usize = 14;
/// Bytes of a configuration BPDU; an RST BPDU has one more.
const CONFIGURATION: usize = 35;
/// Units of time on the wire in a second.
const PER_SECOND: u16 = 256;

const TYPE_CONFIGURATION: u8 = 0;
const TYPE_RAPID: u8 = 2;
const TYPE_CHANGE: u8 = 0x80;

/// The bits of flags in a BPDU.
mod flag {
    pub(super) const CHANGE: u8 = 1;
    pub(super) const PROPOSAL: u8 = 1 << 1;
    pub(super) const LEARNING: u8 = 1 << 4;
    pub(super) const FORWARDING: u8 = 1 << 5;
    pub(super) const AGREEMENT: u8 = 1 << 6;
    pub(super) const ACKNOWLEDGEMENT: u8 = 1 << 7;
}

/// The role of the port that sends a BPDU, as it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderRole {
    Unknown,
    /// Alternate or backup: not distinguished on the wire.
    Blocked,
    Root,
    Designated,
}

/// The flags of a BPDU: of the STP, only the two bits of topology changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    pub is_change: bool,
    pub is_acknowledgement: bool,
    pub is_proposal: bool,
    pub is_agreement: bool,
    pub learns: bool,
    pub forwards: bool,
}

/// A BPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bpdu {
    /// A topology change notification of the STP.
    Change,
    /// A configuration BPDU of the STP, or an RST BPDU.
    Tree {
        is_rapid: bool,
        role: SenderRole,
        flags: Flags,
        /// Without the port that receives it.
        vector: Vector,
        times: Times,
    },
}

/// Why a received frame is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is no frame of bridges.
    #[error("it is no BPDU")]
    NotBpdu,
    /// It is shorter than its type says.
    #[error("it is too short")]
    Length,
    /// Its version and type are unknown.
    #[error("type {0:#04x} is unknown")]
    Type(u8),
    /// It is older than its information lasts.
    #[error("it is too old")]
    Age,
    /// The port does not take part.
    #[error("the port has no spanning tree")]
    NoPort,
}

/// Returns whether a frame is for the bridges of a link.
pub fn is_bpdu(frame: &[u8]) -> bool {
    frame.starts_with(&BRIDGES)
}

impl Bpdu {
    /// Reads a frame.
    ///
    /// # Errors
    /// Why it is to be discarded.
    pub fn read(frame: &[u8]) -> Result<Self, Refused> {
        let length = frame.get(12..ETHERNET).filter(|_| is_bpdu(frame)).ok_or(Refused::NotBpdu)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let content = frame.get(ETHERNET..ETHERNET + length).ok_or(Refused::Length)?;
        let content = content.strip_prefix(&LLC).ok_or(Refused::NotBpdu)?;
        let (&[high, low, version, kind], rest) = content.split_first_chunk().ok_or(Refused::Length)?;
        if (high, low) != (0, 0) {
            return Err(Refused::NotBpdu);
        }
        match kind {
            TYPE_CHANGE => Ok(Self::Change),
            TYPE_CONFIGURATION => Self::read_tree(rest, false),
            TYPE_RAPID if version >= 2 => Self::read_tree(rest, true),
            other => Err(Refused::Type(other)),
        }
    }

    fn read_tree(rest: &[u8], is_rapid: bool) -> Result<Self, Refused> {
        let bytes: &[u8; CONFIGURATION - 4] = rest.first_chunk().ok_or(Refused::Length)?;
        if is_rapid && rest.len() < CONFIGURATION - 3 {
            return Err(Refused::Length);
        }
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let u64_at = |at: usize| bytes[at..at + 8].iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
        let seconds = |at: usize| u16_at(at).div_ceil(PER_SECOND).min(255) as u8;
        let times = Times {
            message_age: seconds(23),
            max_age: seconds(25),
            hello: seconds(27),
            forward_delay: seconds(29),
        };
        // Of RST BPDUs, the port lets it age at once.
        if !is_rapid && u16_at(23) >= u16_at(25) {
            return Err(Refused::Age);
        }
        let has = |bit: u8| bytes[0] & bit != 0;
        let only_rapid = |bit: u8| is_rapid && has(bit);
        let flags = Flags {
            is_change: has(flag::CHANGE),
            is_acknowledgement: !is_rapid && has(flag::ACKNOWLEDGEMENT),
            is_proposal: only_rapid(flag::PROPOSAL),
            is_agreement: only_rapid(flag::AGREEMENT),
            learns: only_rapid(flag::LEARNING),
            forwards: only_rapid(flag::FORWARDING),
        };
        let role = match bytes[0] >> 2 & 3 {
            _ if !is_rapid => SenderRole::Designated,
            0 => SenderRole::Unknown,
            1 => SenderRole::Blocked,
            2 => SenderRole::Root,
            _ => SenderRole::Designated,
        };
        let cost = u32::from_be_bytes([bytes[9], bytes[10], bytes[11], bytes[12]]);
        let vector = Vector {
            root: BridgeId(u64_at(1)),
            cost,
            designated_bridge: BridgeId(u64_at(13)),
            designated_port: u16_at(21),
            bridge_port: 0,
        };
        Ok(Self::Tree { is_rapid, role, flags, vector, times: times.within_bounds() })
    }

    /// Writes a frame from an Ethernet address.
    pub fn frame(&self, source: [u8; 6]) -> Vec<u8> {
        let mut content = LLC.to_vec();
        match *self {
            Self::Change => content.extend([0, 0, 0, TYPE_CHANGE]),
            Self::Tree { is_rapid, role, flags, vector, times } => {
                content.extend(if is_rapid { [0, 0, 2, TYPE_RAPID] } else { [0, 0, 0, TYPE_CONFIGURATION] });
                content.push(flags.byte(is_rapid, role));
                content.extend(vector.root.0.to_be_bytes());
                content.extend(vector.cost.to_be_bytes());
                content.extend(vector.designated_bridge.0.to_be_bytes());
                content.extend(vector.designated_port.to_be_bytes());
                for seconds in [times.message_age, times.max_age, times.hello, times.forward_delay] {
                    content.extend((u16::from(seconds) * PER_SECOND).to_be_bytes());
                }
                // The length of further versions.
                content.extend(is_rapid.then_some(0));
            }
        }
        let length = content.len() as u16;
        let mut frame = [&BRIDGES[..], &source, &length.to_be_bytes(), &content].concat();
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

impl Flags {
    fn byte(self, is_rapid: bool, role: SenderRole) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let of_stp = bit(self.is_change, flag::CHANGE) | bit(self.is_acknowledgement, flag::ACKNOWLEDGEMENT);
        if !is_rapid {
            return of_stp;
        }
        let role = match role {
            SenderRole::Unknown => 0,
            SenderRole::Blocked => 1,
            SenderRole::Root => 2,
            SenderRole::Designated => 3,
        };
        of_stp
            | bit(self.is_proposal, flag::PROPOSAL)
            | role << 2
            | bit(self.learns, flag::LEARNING)
            | bit(self.forwards, flag::FORWARDING)
            | bit(self.is_agreement, flag::AGREEMENT)
    }
}
