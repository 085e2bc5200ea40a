//! Numbers of protocols.

/// EtherTypes (IEEE 802 numbers).
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Reverse ARP.
    pub const RARP: u16 = 0x8035;
    /// 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// MPLS unicast.
    pub const MPLS: u16 = 0x8847;
    /// MPLS multicast.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// PPPoE session.
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// NSH (RFC 8300).
    pub const NSH: u16 = 0x894f;
    /// Means an 802.3 frame without an EtherType, as in OpenFlow.
    pub const NONE: u16 = 0x05ff;
    /// Smaller values are 802.3 lengths.
    pub const MIN: u16 = 0x0600;
}

/// IP protocol numbers (IANA).
pub mod ip_proto {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// GRE.
    pub const GRE: u8 = 47;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// IPv6 destination options.
    pub const DESTINATION: u8 = 60;
    /// IPv6 mobility header.
    pub const MOBILITY: u8 = 135;
}
