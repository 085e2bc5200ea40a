//! Why a packet to a tunnel's port was not handed on.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Why a packet that came to a tunnel's port was not terminated. Counted by reason; no packet is an
        /// error.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Refused {
            $($(#[$doc])* $variant,)*
        }

        impl Refused {
            /// Every reason.
            pub const ALL: &'static [Refused] = &[$(Refused::$variant,)*];

            /// The reason's name in counters and reports.
            pub fn name(self) -> &'static str {
                match self { $(Refused::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// The outer IPv4 header's checksum is wrong.
    Ipv4Checksum = "ipv4-checksum",
    /// The outer UDP checksum is wrong.
    UdpChecksum = "udp-checksum",
    /// There is no outer UDP checksum over IPv6, and the policy does not allow that (RFC 6935, 6936).
    UdpChecksumMissing = "udp-checksum-missing",
    /// The UDP datagram ends within the tunnel header.
    Truncated = "tunnel-truncated",
    /// VXLAN without a valid VNI: the I flag is clear.
    VxlanFlags = "vxlan-flags",
    /// GENEVE of another version than 0.
    GeneveVersion = "geneve-version",
    /// A GENEVE option reaches beyond the options, or these beyond the datagram.
    GeneveOptionLength = "geneve-option-length",
    /// A critical GENEVE option that the policy does not list as understood (RFC 8926 §3.5).
    GeneveCriticalOption = "geneve-critical-option",
    /// A GENEVE control packet (O flag): for the control plane, never for a tenant.
    GeneveControl = "geneve-control",
    /// GTP of another version than 1, or GTP'.
    GtpuVersion = "gtpu-version",
    /// A GTP-U message other than a G-PDU: for the control plane.
    GtpuSignalling = "gtpu-signalling",
    /// GTP-U's length is not that of the datagram.
    GtpuLength = "gtpu-length",
    /// A GTP-U extension header of length 0 or beyond the packet.
    GtpuExtensionLength = "gtpu-extension-length",
    /// A GTP-U extension header that must be understood, and is not (TS 29.281 §5.2.1).
    GtpuExtension = "gtpu-extension",
    /// What is inside is neither Ethernet nor IP.
    InnerProtocol = "inner-protocol",
    /// No endpoint of this source, destination, id and VRF.
    UnknownEndpoint = "unknown-endpoint",
}

impl Refused {
    /// Whether the packet is well-formed and for the control plane.
    pub fn is_control(self) -> bool {
        matches!(self, Self::GeneveControl | Self::GtpuSignalling)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
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
    /// The packets refused for this reason.
    pub fn of(&self, reason: Refused) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason that occurred, with its packets.
    pub fn iter(&self) -> impl Iterator<Item = (Refused, u64)> + '_ {
        Refused::ALL.iter().zip(self.0).filter(|(_, n)| *n != 0).map(|(reason, n)| (*reason, n))
    }

    #[inline]
    pub(super) fn count(&mut self, reason: Refused) {
        self.0[reason as usize] += 1;
    }
}
