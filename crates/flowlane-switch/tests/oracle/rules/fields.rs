//! Fields that rules match and set, and their values.

use super::Needs;
use super::Needs::{Advertisement, Neighbour, Solicitation};
use super::Needs::{Arp, Icmp, Icmp6, Ip, Ipv4, Ipv6, Mpls, Nothing, Sctp, Tcp, Udp, Vlan};

/// A field: name, prerequisite, values to match, values to set.
pub(super) type Row = (&'static str, Needs, &'static [&'static str], &'static [&'static str]);

const MACS: &[&str] = &[
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "00:00:00:00:00:01/00:00:00:00:00:01",
    "01:00:00:00:00:00/01:00:00:00:00:00",
    "02:00:00:00:00:00/ff:ff:ff:ff:ff:00",
];
const MACS_SET: &[&str] = &["02:00:00:00:00:02", "0a:0b:0c:0d:0e:0f", "00:00:00:00:00:02/00:00:00:00:00:ff"];
const IPV4: &[&str] = &["10.0.0.1", "10.0.0.2", "192.0.2.7", "10.0.0.0/8", "10.0.0.0/24", "0.0.0.1/0.0.0.1"];
const IPV4_SET: &[&str] = &["10.0.0.2", "9.9.9.9", "0.0.0.2/0.0.0.255", "255.255.0.0/255.255.0.0"];
const IPV6: &[&str] = &["2001:db8::1", "2001:db8::2", "2001:db8::/64", "2001:db8::/32", "::1/::1"];
const IPV6_SET: &[&str] = &["2001:db8::2", "fe80::9", "::7/::f"];
const PORTS: &[&str] = &["80", "443", "53", "40000", "0x40/0xffc0", "1/1"];
const PORTS_SET: &[&str] = &["53", "80", "65535", "0x1/0xff"];
const REGISTERS: &[&str] = &["0", "1", "2", "0x1/0x1", "0x10/0xf0"];
const REGISTERS_SET: &[&str] = &["1", "2", "0x12", "0x1/0x3", "0x20/0xf0"];

pub(super) const FIELDS: [Row; 51] = [
    ("in_port", Nothing, &["1", "2"], &[]),
    ("dl_src", Nothing, MACS, MACS_SET),
    ("dl_dst", Nothing, MACS, MACS_SET),
    ("metadata", Nothing, REGISTERS, REGISTERS_SET),
    ("reg0", Nothing, REGISTERS, REGISTERS_SET),
    ("reg1", Nothing, REGISTERS, REGISTERS_SET),
    ("reg9", Nothing, REGISTERS, REGISTERS_SET),
    ("reg15", Nothing, REGISTERS, REGISTERS_SET),
    ("pkt_mark", Nothing, REGISTERS, REGISTERS_SET),
    ("tun_metadata0", Nothing, REGISTERS, REGISTERS_SET),
    ("tun_metadata6", Nothing, REGISTERS, REGISTERS_SET),
    ("vlan_vid", Vlan, &["0x1005", "0x1006", "0x1001/0x1001"], &["0x1005", "0x1006", "0x1000"]),
    ("vlan_tci", Vlan, &["0x1005", "0x7005", "0x1006/0x1fff", "0x3000/0x3000"], &["0x1005", "0x7006", "0"]),
    ("dl_vlan_pcp", Vlan, &["0", "3", "7"], &[]),
    ("vlan_pcp", Vlan, &[], &["0", "3", "5"]),
    ("arp_op", Arp, &["1", "2"], &["2", "1"]),
    ("arp_spa", Arp, IPV4, IPV4_SET),
    ("arp_tpa", Arp, IPV4, IPV4_SET),
    ("arp_sha", Arp, MACS, MACS_SET),
    ("arp_tha", Arp, MACS, MACS_SET),
    ("nw_src", Ipv4, IPV4, IPV4_SET),
    ("nw_dst", Ipv4, IPV4, IPV4_SET),
    ("nw_tos", Ip, &["0", "32", "184"], &["0", "32", "184"]),
    ("ip_dscp", Ip, &["0", "8", "46"], &["8", "46"]),
    ("nw_ecn", Ip, &["0", "1", "3"], &["0", "2", "3"]),
    ("nw_ttl", Ip, &["0", "1", "2", "3", "63", "64"], &["0", "1", "2", "64"]),
    ("ip_frag", Ip, &["no", "yes", "first", "later", "not_later"], &[]),
    ("ipv6_src", Ipv6, IPV6, IPV6_SET),
    ("ipv6_dst", Ipv6, IPV6, IPV6_SET),
    ("ipv6_label", Ipv6, &["0", "5", "0xfffff", "0x1/0x1"], &["0", "7", "0x2/0xf"]),
    ("tcp_src", Tcp, PORTS, PORTS_SET),
    ("tcp_dst", Tcp, PORTS, PORTS_SET),
    ("tcp_flags", Tcp, &["+syn-ack", "+rst", "0x12/0x3f", "0x800/0xe00", "0x10"], &[]),
    ("udp_src", Udp, PORTS, PORTS_SET),
    ("udp_dst", Udp, PORTS, PORTS_SET),
    ("sctp_src", Sctp, PORTS, PORTS_SET),
    ("sctp_dst", Sctp, PORTS, PORTS_SET),
    ("icmp_type", Icmp, &["8", "0", "3"], &["0", "9"]),
    ("icmp_code", Icmp, &["0", "1"], &["0", "5"]),
    ("icmpv6_type", Icmp6, &["128", "1", "135"], &["129", "135"]),
    ("icmpv6_code", Icmp6, &["0", "4"], &["0", "1"]),
    ("nd_target", Neighbour, IPV6, IPV6_SET),
    ("nd_reserved", Neighbour, &["0", "0x60000000", "0xa0000000"], &["0", "0x20000000", "0x60000000"]),
    ("nd_options_type", Neighbour, &["0", "1", "2"], &["1", "2"]),
    ("nd_sll", Solicitation, MACS, MACS_SET),
    ("nd_tll", Advertisement, MACS, MACS_SET),
    ("mpls_label", Mpls, &["3", "7", "16", "1048575"], &["7", "99", "1048575"]),
    ("mpls_tc", Mpls, &["0", "3", "7"], &["1", "7"]),
    ("mpls_bos", Mpls, &["0", "1"], &[]),
    ("mpls_ttl", Mpls, &["0", "1", "2", "64"], &["1", "2", "77"]),
    ("nw_proto", Ip, &["1", "6", "17", "44", "58", "132", "136"], &[]),
];
