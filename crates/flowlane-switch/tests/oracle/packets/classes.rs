//! What packets may be.

use std::fmt;

use strum::{IntoStaticStr, VariantArray};

/// A property or a defect of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub(crate) enum Class {
    /// One or two tags.
    Tags,
    /// Three or four tags.
    ManyTags,
    /// A tag whose drop eligible bit is set.
    Dei,
    /// A tag with VLAN 0 and priority 0.
    ZeroTag,
    /// 802.3 with LLC and a SNAP header that names an EtherType.
    Snap,
    /// 802.3 without an EtherType.
    Llc,
    /// Up to three labels.
    Labels,
    /// Four or five labels.
    ManyLabels,
    /// A label stack entry of 32 zero bits.
    ZeroLabel,
    /// No entry of the stack has the bottom bit.
    NoBottom,
    Arp,
    Rarp,
    /// ARP for something else than Ethernet and IPv4.
    ArpFormat,
    /// An ARP operation other than 1 and 2.
    ArpOperation,
    OtherEtherType,
    Ipv4,
    Ipv4Options,
    Ipv4First,
    Ipv4Later,
    Ipv6,
    HopByHop,
    /// Payload length 0 with a hop-by-hop header (RFC 2675).
    Jumbogram,
    Destination,
    /// A Routing header whose segments have been visited.
    Routing,
    /// A Routing header with segments left: the destination is not the last one.
    RoutingLeft,
    Authentication,
    Mobility,
    Ipv6First,
    Ipv6Later,
    /// A Fragment header of a packet that is whole (RFC 6946).
    Ipv6Atomic,
    /// More extension headers than one may expect.
    LongChain,
    Tcp,
    Udp,
    UdpLite,
    /// UDP-Lite whose checksum covers a part of the datagram.
    UdpLiteCoverage,
    Sctp,
    Icmp,
    Neighbour,
    /// Neighbour discovery with several options, or one that is not 8 bytes long.
    NeighbourOptions,
    OtherProtocol,
    /// Protocol 0 in an IPv4 header.
    ProtocolZero,
    /// TTL or hop limit 0, 1 or 2.
    LowTtl,
    /// A checksum of 0: absent in UDP over IPv4, forbidden in UDP over IPv6, else wrong.
    ZeroChecksum,
    /// A payload by which the right checksum becomes 0 (in UDP: 0xffff).
    EdgeChecksum,
    /// A wrong checksum of IPv4, transport or ICMP.
    WrongChecksum,
    /// Bytes behind the IP packet's end, as in frames padded to 60 bytes.
    Padding,
    Ipv4Version,
    Ipv4HeaderLength,
    Ipv4TotalLength,
    Ipv6Version,
    Ipv6PayloadLength,
    ExtensionLength,
    TcpOffset,
    UdpLength,
    UdpLiteLength,
    NeighbourLength,
    /// A first fragment that ends within its transport header.
    TinyFragment,
    /// Cut off behind the Ethernet header.
    Truncated,
    /// Cut off within the Ethernet header.
    Runt,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether packets of the class may be forwarded by the letter of the standards.
    pub(crate) fn is_sound(self) -> bool {
        !matches!(
            self,
            Self::NoBottom
                | Self::ArpFormat
                | Self::Jumbogram
                | Self::LongChain
                | Self::ZeroChecksum
                | Self::WrongChecksum
        ) && (self as u8) < Self::Ipv4Version as u8
    }
}

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Classes(u64);

const _: () = assert!(Class::VARIANTS.len() <= 64, "a set of classes has 64 bits");

impl Classes {
    pub(crate) fn all() -> Self {
        Class::VARIANTS.iter().fold(Self(0), |all, &class| all.with(class))
    }

    /// All with which a packet is as the standards want it.
    pub(crate) fn sound() -> Self {
        Class::VARIANTS.iter().filter(|c| c.is_sound()).fold(Self(0), |all, &class| all.with(class))
    }

    #[must_use]
    pub(crate) fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class as u8)
    }

    #[must_use]
    pub(crate) fn without(self, class: Class) -> Self {
        Self(self.0 & !(1 << class as u8))
    }

    pub(crate) fn has(self, class: Class) -> bool {
        self.0 >> class as u8 & 1 != 0
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(Class::VARIANTS.iter().filter(|&&c| self.has(c))).finish()
    }
}
