//! Why a packet to a tunnel's port was not handed on.

use strum::{Display, IntoStaticStr, VariantArray};

use crate::named_enum;

/// Why a packet that came to a tunnel's port was not terminated. Counted by reason; no packet is an
/// error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Refused {
    /// The outer IPv4 header's checksum is wrong.
    Ipv4Checksum,
    /// The outer UDP checksum is wrong.
    UdpChecksum,
    /// There is no outer UDP checksum over IPv6, and the policy does not allow that (RFC 6935, 6936).
    UdpChecksumMissing,
    /// The packet ends within the tunnel header.
    #[strum(to_string = "tunnel-truncated")]
    Truncated,
    /// VXLAN without a valid VNI: the I flag is clear.
    VxlanFlags,
    /// GENEVE of another version than 0.
    GeneveVersion,
    /// A GENEVE option reaches beyond the options, or these beyond the datagram, or it has another length than its field.
    GeneveOptionLength,
    /// A critical GENEVE option that the policy does not list as understood (RFC 8926 §3.5).
    GeneveCriticalOption,
    /// A GENEVE control packet (O flag): for the control plane, never for a tenant.
    GeneveControl,
    /// GTP of another version than 1, or GTP'.
    GtpuVersion,
    /// A GTP-U message other than a G-PDU: for the control plane.
    GtpuSignalling,
    /// GTP-U's length is not that of the datagram.
    GtpuLength,
    /// A GTP-U extension header of length 0 or beyond the packet.
    GtpuExtensionLength,
    /// A GTP-U extension header that must be understood, and is not (TS 29.281 §5.2.1).
    GtpuExtension,
    /// GRE of another version than 0, or with flags other than those of a checksum, a key and a sequence number.
    GreFormat,
    /// ERSPAN of an unknown version, without a sequence number, or around something else than an Ethernet frame.
    ErspanFormat,
    /// The checksum of GRE is wrong.
    GreChecksum,
    /// The inner packet is neither Ethernet nor IP.
    InnerProtocol,
    /// Congestion was experienced in the tunnel, and the packet inside is not capable of saying so (RFC 6040 §4.2).
    EcnNotCapable,
    /// No endpoint of this source, destination, id and VRF.
    UnknownEndpoint,
}

impl Refused {
    /// Every reason.
    pub const ALL: [Self; 20] = named_enum::all();

    /// Returns the reason's name in counters and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether the packet is well-formed and for the control plane.
    pub fn is_control(self) -> bool {
        matches!(self, Self::GeneveControl | Self::GtpuSignalling)
    }
}

/// How many packets were refused for each reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedCounts([u64; Refused::ALL.len()]);

impl Default for RefusedCounts {
    fn default() -> Self {
        Self([0; Refused::ALL.len()])
    }
}

impl RefusedCounts {
    /// Returns the packets refused for this reason.
    pub fn of(&self, reason: Refused) -> u64 {
        self.0[reason as usize]
    }

    /// Returns every reason that occurred, with its packets.
    pub fn iter(&self) -> impl Iterator<Item = (Refused, u64)> + '_ {
        Refused::ALL.into_iter().zip(self.0).filter(|(_, n)| *n != 0)
    }

    #[inline]
    pub(super) fn count(&mut self, reason: Refused) {
        self.0[reason as usize] += 1;
    }
}
