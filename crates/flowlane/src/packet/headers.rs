//! Offsets of a frame's headers, and the reasons for which a frame is malformed.

use strum::{Display, IntoStaticStr, VariantArray};

use crate::named_enum;

/// The network header that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Network {
    /// None that is parsed (another EtherType, MPLS, malformed).
    #[default]
    None,
    /// IPv4 (RFC 791).
    Ipv4,
    /// IPv6 (RFC 8200).
    Ipv6,
    /// ARP or RARP over Ethernet and IPv4 (RFC 826, 903).
    Arp,
    /// NSH (RFC 8300).
    Nsh,
}

/// The transport header that was found complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Transport {
    /// None that is parsed (another protocol, a later fragment, malformed).
    #[default]
    None,
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// SCTP (RFC 9260).
    Sctp,
    /// UDP-Lite (RFC 3828). Its ports are in no key, as in Open vSwitch.
    UdpLite,
    /// ICMP (RFC 792).
    Icmpv4,
    /// ICMPv6 (RFC 4443).
    Icmpv6,
    /// GRE (RFC 2784): its first four bytes. The key has nothing of it.
    Gre,
}

/// The places of a frame's headers, in bytes from its first: found once by the parser, so that actions
/// need no second parse. Every offset with a header behind it lies within the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// The network header, where [`network`](Self::network) is not `None`.
    pub l3: u16,
    /// The transport header, where [`transport`](Self::transport) is not `None`; else where it would be.
    pub l4: u16,
    /// Offset of the bytes after the transport header, if there is one.
    pub payload: u16,
    /// The header at `l3`.
    pub network: Network,
    /// The header at `l4`.
    pub transport: Transport,
    /// VLAN tags behind the addresses, 0 to 2 (further ones are not parsed).
    pub vlan_tags: u8,
    /// MPLS label stack entries behind the EtherType, 0 to 3 (further ones are not parsed).
    pub mpls_labels: u8,
    /// Whether the EtherType is that of a SNAP header (an 802.3 frame, RFC 1042).
    pub snap: bool,
    /// The field `ip_frag`: 0 of a whole packet, 1 of a first fragment, 3 of a later one.
    pub fragment: u8,
    /// Whether a Routing header has segments left: the packet does not go to its IPv6 destination in the end, and the
    /// pseudo header of its transport checksum has another (RFC 8200 §8.1). So it is for every type of Routing header,
    /// known or not: 0 (RFC 5095 deprecates it), 2 (RFC 6275 §6.4), 3 (RFC 6554), 4 (RFC 8754).
    pub segments_left: bool,
    /// The first thing that was found wrong. The key then holds what came before it.
    pub malformed: Option<Malformed>,
}

/// Bytes of LLC (DSAP, SSAP, control) and SNAP (organisation, EtherType).
pub(super) const SNAP_BYTES: usize = 8;

impl Headers {
    /// Returns the offset of the field after the VLAN tags: the EtherType, or the length of an 802.3 frame.
    #[inline]
    pub fn type_or_length_at(&self) -> usize {
        12 + 4 * usize::from(self.vlan_tags)
    }

    /// Offset of the innermost EtherType: behind the VLAN tags, or the last two bytes of LLC and SNAP behind the length.
    /// An 802.3 frame without SNAP has its length there.
    #[inline]
    pub fn eth_type_at(&self) -> usize {
        self.type_or_length_at() + if self.snap { SNAP_BYTES } else { 0 }
    }

    /// Offset of the first label stack entry, where there are any.
    #[inline]
    pub fn mpls_at(&self) -> usize {
        self.eth_type_at() + 2
    }
}

/// The layers of a frame, as far as it is parsed. As a number it is the key's `malformed`: the first layer of which the key
/// has nothing, or not all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Layer {
    /// Addresses and EtherType.
    Ethernet = 1,
    /// Label, ARP or IP header: what the EtherType says.
    Network = 2,
    /// The layer of the IP header's protocol.
    Transport = 3,
    /// Behind the transport header: neighbour discovery, tunnels. Labels behind the first are here, too.
    Message = 4,
}

/// The reason for which a frame is malformed. Counted by reason; no packet is an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer than 14 bytes.
    EthernetTruncated,
    /// The frame ends within a VLAN tag.
    VlanTruncated,
    /// The frame ends within a label stack entry.
    MplsTruncated,
    /// The frame ends within NSH.
    NshTruncated,
    /// NSH of another version than 0, with metadata of another type than 1 or 2, or of a length that does not fit its type.
    NshFormat,
    /// The frame ends within an ARP packet.
    ArpTruncated,
    /// ARP for hardware or protocol other than Ethernet and IPv4.
    ArpFormat,
    /// The frame ends within the IPv4 header.
    Ipv4Truncated,
    /// EtherType 0x0800 but version other than 4.
    Ipv4Version,
    /// Header length below 20 bytes or beyond the total length.
    Ipv4HeaderLength,
    /// Total length beyond the frame.
    Ipv4TotalLength,
    /// The frame ends within the IPv6 header.
    Ipv6Truncated,
    /// EtherType 0x86dd but version other than 6.
    Ipv6Version,
    /// Payload length beyond the frame.
    Ipv6PayloadLength,
    /// The packet ends within an extension header.
    Ipv6ExtensionTruncated,
    /// More extension headers than are followed.
    Ipv6ExtensionLimit,
    /// The packet ends within the TCP header. (A first fragment may do so, as with the headers below.)
    TcpTruncated,
    /// TCP data offset below 20 bytes or beyond the packet (or, of a first fragment, below 20 bytes).
    TcpHeaderLength,
    /// The packet ends within the UDP header.
    UdpTruncated,
    /// UDP length below 8 (and not 0) or beyond the packet.
    UdpLength,
    /// The packet ends within the SCTP header.
    SctpTruncated,
    /// The packet ends within the ICMP header.
    IcmpTruncated,
    /// The packet ends within the ICMPv6 header.
    Icmpv6Truncated,
    /// A neighbour discovery message without target, or with an option of length 0 or beyond the packet.
    NeighbourDiscovery,
    /// A frame to a tunnel's port whose tunnel header is cut off.
    TunnelTruncated,
    /// A tunnel header of unknown version, with unknown critical options, or that carries no Ethernet or IP.
    TunnelFormat,
    /// Nothing is wrong as far as the frame was captured, but that ends within its headers.
    NotCaptured,
}

impl Malformed {
    /// Every reason.
    pub const ALL: [Self; 27] = named_enum::all();

    /// The reason's name in counters and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The first layer that is not fully known; of a truncated frame, the first layer that may be.
    #[doc(hidden)]
    pub fn layer(self) -> Layer {
        match self {
            Self::EthernetTruncated => Layer::Ethernet,
            Self::VlanTruncated
            | Self::MplsTruncated
            | Self::NshTruncated
            | Self::NshFormat
            | Self::ArpTruncated
            | Self::ArpFormat
            | Self::Ipv4Truncated
            | Self::Ipv4Version
            | Self::Ipv4HeaderLength
            | Self::Ipv4TotalLength
            | Self::Ipv6Truncated
            | Self::Ipv6Version
            | Self::Ipv6PayloadLength => Layer::Network,
            Self::Ipv6ExtensionTruncated
            | Self::Ipv6ExtensionLimit
            | Self::TcpTruncated
            | Self::TcpHeaderLength
            | Self::UdpTruncated
            | Self::UdpLength
            | Self::SctpTruncated
            | Self::IcmpTruncated
            | Self::Icmpv6Truncated => Layer::Transport,
            Self::NeighbourDiscovery | Self::TunnelTruncated | Self::TunnelFormat => Layer::Message,
            // The key says which it is.
            Self::NotCaptured => Layer::Ethernet,
        }
    }
}
