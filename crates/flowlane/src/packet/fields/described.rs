//! Words about fields, for documents.

use super::{FieldInfo, Form, Prerequisite};

impl FieldInfo {
    /// The packets that have the field.
    pub fn of_packets(&self) -> &'static str {
        match self.prerequisite {
            Prerequisite::None => "all",
            Prerequisite::Vlan => "with a VLAN tag",
            Prerequisite::Mpls => "with a label",
            Prerequisite::Arp => "ARP",
            Prerequisite::Ip => "IPv4, IPv6",
            Prerequisite::Ipv4 => "IPv4",
            Prerequisite::Ipv6 => "IPv6",
            Prerequisite::Ports => "TCP, UDP, SCTP",
            Prerequisite::Tcp => "TCP",
            Prerequisite::Icmp => "ICMP, ICMPv6",
            Prerequisite::NeighbourDiscovery => "neighbour discovery",
            Prerequisite::Nsh => "NSH",
            Prerequisite::Tunnel => "out of a tunnel",
        }
    }

    /// How a value is written in a rule.
    pub fn written(&self) -> &'static str {
        match self.form {
            Form::Decimal => "number",
            Form::Tos => "octet, the DSCP in its upper six bits",
            Form::Hex => "hexadecimal number",
            Form::Port => "name or number of a port",
            Form::Ipv4 => "`192.0.2.1`",
            Form::Ipv6 => "`2001:db8::1`",
            Form::Mac => "`02:00:00:00:00:01`",
            Form::Frag => "`no`, `yes`, `first`, `later`, `not_later`",
            Form::TcpFlags => "`+syn-ack`",
            Form::CtState => "`+trk-new`",
            Form::TunFlags => "`+oam`",
            Form::PacketType => "`(1,0x800)`",
        }
    }
}
