//! The properties of packets that a rule fixes, and the prerequisites of fields.
//!
//! As in ovs-ofctl, `set_field`, `load` and `move` need their fields' prerequisites in the match; the older actions
//! (`mod_nw_src`, `mod_tp_dst`, `dec_ttl`, …) do not, and leave alone a packet that lacks the field.

use super::super::action::EncapsulateHeader;
use super::super::{Action, Match};
use crate::packet::FieldRef;
use crate::packet::fields::{Field, Form, PACKET_TYPE_ETHERTYPE, Prerequisite, VLAN_PRESENT};
use crate::packet::parse::{ether_type, ip_proto};

/// The bits of `ct_state` that say `inv` and `trk`.
const CT_INVALID: u128 = 0x10;
const CT_TRACKED: u128 = 0x20;

/// The bits of `ct_state` that only packets of a connection have: all but `inv` and `trk`.
const CT_OF_CONNECTION: u128 = 0xcf;

/// The properties of packets that a rule fixes, at some point of its actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    tagged: bool,
    eth_type: Option<u16>,
    proto: Option<u8>,
    icmp_type: Option<u8>,
    /// A fragment other than the first: it has no L4 header.
    later: bool,
    /// Actions have added or removed headers.
    changed: bool,
    /// Nothing is known, and everything may be: the actions stand alone, or behind an outer header.
    anything: bool,
    /// Actions have taken the Ethernet header off, put another one around it, or left the outermost header unknown.
    is_bare: bool,
    /// The actions are those of `ct(exec(…))`.
    in_connection: bool,
    /// Connection tracking has found the packets invalid.
    is_invalid: bool,
    /// It has found their connections.
    is_of_connection: bool,
}

/// The protocols that the names of some fields depend on, as Open vSwitch reads them: there, `tp_dst` is `tcp_dst` to actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Names {
    tagged: bool,
    proto: Option<u8>,
    /// An action is for TCP, and the match is not.
    is_other_tcp: bool,
}

/// Returns whether a part of a field is `in_port`, of which actions have 16 bits by this name.
pub(super) fn is_whole_port(part: FieldRef) -> bool {
    part.field() == Field::InPort && part.first_bit() == 0 && part.bits() == 16
}

impl Names {
    /// The name of a field for actions.
    pub(super) fn of(self, field: Field) -> &'static str {
        match (field, self.proto) {
            (Field::TpSrc, _) if self.is_other_tcp => "tcp_src",
            (Field::TpDst, _) if self.is_other_tcp => "tcp_dst",
            (Field::TpSrc, Some(ip_proto::UDP)) => "udp_src",
            (Field::TpDst, Some(ip_proto::UDP)) => "udp_dst",
            (Field::TpSrc, Some(ip_proto::SCTP)) => "sctp_src",
            (Field::TpDst, Some(ip_proto::SCTP)) => "sctp_dst",
            (Field::IcmpType, Some(ip_proto::ICMPV6)) => "icmpv6_type",
            (Field::IcmpCode, Some(ip_proto::ICMPV6)) => "icmpv6_code",
            (Field::VlanVid, _) if self.tagged => "vlan_vid",
            (Field::VlanPcp, _) if self.tagged => "vlan_pcp",
            (field, _) => field.info().name,
        }
    }

    /// The names where an action says the protocol.
    pub(super) fn with_protocol(self, protocol: Option<u8>) -> Self {
        let is_other_tcp = protocol == Some(ip_proto::TCP) && self.proto != protocol;
        Self { proto: protocol.or(self.proto), is_other_tcp, ..self }
    }

    /// Some bits of a field that are given a value, as actions name them.
    pub(super) fn assigned(self, part: FieldRef) -> String {
        match part.field().tun_metadata_number() {
            Some(_) if part.is_whole() => self.of(part.field()).to_owned(),
            _ => self.part(part),
        }
    }

    /// Some bits of a field, as actions name them.
    pub(super) fn part(self, part: FieldRef) -> String {
        let info = part.field().info();
        // `in_port` has 16 bits there, and `nw_tos` eight, of which the lowest two are not part of the field.
        let name = match part.field() {
            Field::InPort if part.first_bit() + part.bits() > 16 => "in_port_oxm",
            field => self.of(field),
        };
        match info.form {
            Form::Tos => format!("{name}[{}..{}]", part.first_bit() + 2, part.first_bit() + part.bits() + 1),
            // There, an option has as many bits as it has bytes for, or 992.
            _ if part.field().tun_metadata_number().is_none() && part.is_whole() => name.to_owned(),
            _ if is_whole_port(part) => name.to_owned(),
            _ => format!("{name}[{}..{}]", part.first_bit(), part.first_bit() + part.bits() - 1),
        }
    }
}

impl Known {
    /// The properties that a match fixes.
    pub(super) fn of(matches: &Match) -> Self {
        let exactly = |field: Field| {
            let (value, mask) = matches.get(field);
            (mask == field.info().ones()).then_some(value)
        };
        let (tci, tci_mask) = matches.get(Field::VlanTci);
        let (ct_state, ct_state_mask) = matches.get(Field::CtState);
        let packet_type = exactly(Field::PacketType).map(|v| v as u32);
        let of_packet_type = packet_type.filter(|kind| kind >> 16 == PACKET_TYPE_ETHERTYPE >> 16);
        Self {
            tagged: tci & tci_mask & u128::from(VLAN_PRESENT) != 0,
            eth_type: exactly(Field::EthType).map(|v| v as u16).or(of_packet_type.map(|kind| kind as u16)),
            proto: exactly(Field::NwProto).map(|v| v as u8),
            icmp_type: exactly(Field::IcmpType).map(|v| v as u8),
            later: exactly(Field::IpFrag) == Some(3),
            is_invalid: ct_state & CT_INVALID != 0,
            is_of_connection: ct_state & CT_OF_CONNECTION != 0
                || ct_state & CT_TRACKED != 0 && ct_state_mask & !ct_state & CT_INVALID != 0,
            ..Self::default()
        }
    }

    /// Nothing, where actions stand without a match: the rules that lead to them know more.
    pub(super) fn anything() -> Self {
        Self { anything: true, ..Self::default() }
    }

    /// The names of fields here.
    pub(super) fn names(&self) -> Names {
        let proto = self.proto.filter(|_| self.is(&IP));
        let is_icmpv6 = proto == Some(ip_proto::ICMPV6) && self.eth_type == Some(ether_type::IPV6);
        let proto = proto.filter(|proto| *proto != ip_proto::ICMPV6 || is_icmpv6);
        Names { tagged: self.tagged, proto, is_other_tcp: false }
    }

    /// The protocol of a field that is written, by its name or that of the packets, where fields of several protocols are one.
    pub(super) fn protocol_of(&self, field: Field, name: &str) -> Option<u8> {
        let of_packets = self.proto.filter(|_| self.is(&IP));
        match field.info().prerequisite {
            Prerequisite::Ports => protocol_in(name).map(|(protocols, _)| protocols[0]).or(of_packets),
            Prerequisite::Icmp if icmp_name(name, "icmpv6", "NX_ICMPV6") => Some(ip_proto::ICMPV6),
            Prerequisite::Icmp => of_packets.or(Some(ip_proto::ICMP)),
            _ => None,
        }
    }

    /// For the actions of `ct(exec(…))`.
    pub(super) fn into_connection(self) -> Self {
        Self { in_connection: true, ..self }
    }

    /// Returns whether the actions are those of `ct(exec(…))`.
    pub(super) fn in_connection(&self) -> bool {
        self.in_connection
    }

    /// Returns whether the match asks for packets that connection tracking has found invalid.
    pub(super) fn is_invalid(&self) -> bool {
        self.is_invalid
    }

    /// Returns whether the match asks for packets of connections, or the actions stand without a match.
    pub(super) fn may_show_connection(&self) -> bool {
        self.is_of_connection || self.anything
    }

    /// Returns whether the packets are IP, as far as is known.
    pub(super) fn is_ip(&self) -> bool {
        self.anything || self.is(&IP)
    }

    /// Returns whether the packets are IP of a version, as far as is known.
    pub(super) fn may_be(&self, eth_type: u16) -> bool {
        self.anything || self.is(&[eth_type])
    }

    /// Returns whether the packets have a protocol over IP, as far as is known.
    pub(super) fn is_over_ip(&self, protocol: u8) -> bool {
        self.anything || self.over_ip(&[protocol])
    }

    /// Returns whether an action in front has changed what the match said.
    pub(super) fn changed(&self) -> bool {
        self.changed
    }

    /// Follows an action.
    pub(super) fn after(&mut self, action: &Action) {
        let present = u128::from(VLAN_PRESENT);
        match action {
            Action::PushVlan(_) | Action::SetField { field: Field::VlanVid | Field::VlanPcp, .. } => {
                self.tagged = true;
            }
            Action::SetField { field: Field::VlanTci, value, mask, .. } if mask & present != 0 => {
                self.tagged = value & present != 0;
            }
            Action::PopVlan => (self.tagged, self.changed) = (false, true),
            // The bytes behind a label are opaque, also when the label has been removed.
            Action::PushMpls(eth_type) | Action::PopMpls(eth_type) => {
                (self.eth_type, self.proto, self.icmp_type) = (Some(*eth_type), None, None);
                (self.later, self.changed) = (false, true);
            }
            Action::Encapsulate(_) | Action::EncapsulateHeader(EncapsulateHeader::Ethernet) => {
                *self = Self::anything();
            }
            Action::EncapsulateHeader(_) | Action::Decapsulate(_) => {
                *self = Self { is_bare: true, ..Self::anything() };
            }
            // They leave the headers that there are, and their types.
            Action::SetField { .. }
            | Action::Move { .. }
            | Action::Push(_)
            | Action::Pop(_)
            | Action::DeleteField(_)
            | Action::DecTtl(_)
            | Action::DecMplsTtl
            | Action::DecNshTtl
            | Action::Output(_)
            | Action::OutputTruncated { .. }
            | Action::OutputMaxLen { .. }
            | Action::OutputField { .. }
            | Action::Enqueue { .. }
            | Action::InPort
            | Action::Flood
            | Action::All
            | Action::Normal
            | Action::Controller(_)
            | Action::Sample(_)
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::Meter(_)
            | Action::Count(_)
            | Action::Resubmit { .. }
            | Action::Clone(_)
            | Action::WriteActions(_)
            | Action::ClearActions
            | Action::Group(_)
            | Action::Learn(_)
            | Action::Conjunction { .. }
            | Action::Multipath(_)
            | Action::Bundle(_)
            | Action::FinTimeout { .. }
            | Action::CheckPacketLarger { .. }
            | Action::ConnectionTracking(_)
            | Action::Nat(_)
            | Action::ClearConnection
            | Action::Note(_)
            | Action::Exit
            | Action::Goto(_) => {}
        }
    }

    fn is(&self, types: &[u16]) -> bool {
        self.eth_type.is_some_and(|t| types.contains(&t))
    }

    fn over_ip(&self, protocols: &[u8]) -> bool {
        self.is(&IP) && self.proto.is_some_and(|p| protocols.contains(&p))
    }

    /// Returns whether the packets are ARP or RARP.
    pub(super) fn is_arp(&self) -> bool {
        self.is(&[ether_type::ARP, ether_type::RARP])
    }

    /// Returns whether they are ICMP or ICMPv6.
    pub(super) fn is_icmp(&self) -> bool {
        let over = |eth_type, proto| self.is(&[eth_type]) && self.proto == Some(proto);
        over(ether_type::IPV4, ip_proto::ICMP) || over(ether_type::IPV6, ip_proto::ICMPV6)
    }

    /// The condition that a match on `field`, by the name `name`, lacks; `None` if it lacks none.
    ///
    /// Ports may be looked at for any protocol over IP, by the names `tp_src` and `tp_dst`: packets without ports have 0
    /// there. VLAN fields ask for a tag themselves.
    pub(super) fn lacks_to_match(&self, field: Field, name: &str) -> Option<&'static str> {
        let info = field.info();
        let any_ports = "`tcp`, `udp` or `sctp` (or `ip`, for any of them)";
        match info.prerequisite {
            Prerequisite::Vlan => None,
            Prerequisite::Ports if protocol_in(name).is_none() => {
                (!self.is(&IP) || self.is_icmp()).then_some(any_ports)
            }
            // Later fragments have 0 where others have L4 fields.
            _ => Self { later: false, ..self.clone() }.lacks_to_act(field, name),
        }
    }

    /// Returns whether a field is of an Ethernet header that the packets lack, or are not known to have, behind `encap` or `decap`.
    pub(super) fn lacks_ethernet(&self, field: Field) -> bool {
        let is_of_ethernet = matches!(field, Field::EthSrc | Field::EthDst | Field::VlanTci)
            || field.info().prerequisite == Prerequisite::Vlan;
        self.is_bare && is_of_ethernet
    }

    /// The condition that an action on `field`, by the name `name`, lacks to have an effect; `None` if it lacks none.
    pub(super) fn lacks_to_act(&self, field: Field, name: &str) -> Option<&'static str> {
        if self.anything {
            return None;
        }
        let (holds, wanted) = match field.info().prerequisite {
            Prerequisite::None | Prerequisite::Tunnel => (true, ""),
            // By its names in OpenFlow 1.0, a VLAN field adds the tag that it needs.
            Prerequisite::Vlan => {
                (self.tagged || name.starts_with("dl_"), "a VLAN tag (`dl_vlan=…`, or push_vlan in front)")
            }
            Prerequisite::Nsh => (self.is(&[ether_type::NSH]), "`dl_type=0x894f`"),
            Prerequisite::Mpls => {
                (self.is(&[ether_type::MPLS, ether_type::MPLS_MULTICAST]), "`mpls` or `mplsm`")
            }
            Prerequisite::Arp => (self.is_arp(), "`arp` or `rarp`"),
            Prerequisite::Ip => (self.is(&IP), "`ip` or `ipv6`"),
            Prerequisite::Ipv4 => (self.is(&[ether_type::IPV4]), "`ip`"),
            Prerequisite::Ipv6 => (self.is(&[ether_type::IPV6]), "`ipv6`"),
            Prerequisite::Ports | Prerequisite::Tcp | Prerequisite::Icmp if self.later => {
                (false, "packets with an L4 header: a later fragment has none, `ip_frag=not_later` does")
            }
            Prerequisite::Ports => {
                let any: &[u8] = &[ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP];
                let (protocols, wanted) =
                    protocol_in(name).unwrap_or((any, "`tcp`, `udp` or `sctp`, or that over IPv6,"));
                (self.over_ip(protocols), wanted)
            }
            Prerequisite::Tcp => (self.over_ip(&[ip_proto::TCP]), "`tcp` or `tcp6`"),
            Prerequisite::Icmp => {
                let (v4, v6) =
                    (icmp_name(name, "icmpv4", "NXM_OF_ICMP"), icmp_name(name, "icmpv6", "NX_ICMPV6"));
                let right = match self.eth_type {
                    Some(ether_type::IPV4) => !v6,
                    _ => !v4,
                };
                let wanted = if v6 {
                    "`icmp6`"
                } else if v4 {
                    "`icmp`"
                } else {
                    "`icmp` or `icmp6`"
                };
                (self.is_icmp() && right, wanted)
            }
            Prerequisite::NeighbourDiscovery => {
                let (types, wanted): (&[u8], _) = match field {
                    Field::NdSll => (&[135], "`icmp6,icmp_type=135`"),
                    Field::NdTll => (&[136], "`icmp6,icmp_type=136`"),
                    _ => (&[135, 136], "`icmp6,icmp_type=135` or 136"),
                };
                let nd = self.is(&[ether_type::IPV6]) && self.proto == Some(ip_proto::ICMPV6);
                (nd && self.icmp_type.is_some_and(|t| types.contains(&t)), wanted)
            }
        };
        (!holds).then_some(wanted)
    }
}

const IP: [u16; 2] = [ether_type::IPV4, ether_type::IPV6];

/// The protocol that a port is of by its name, as `tcp_dst` or `NXM_OF_UDP_SRC`.
fn protocol_in(name: &str) -> Option<(&'static [u8], &'static str)> {
    let name = name.to_ascii_lowercase();
    let of: [(_, &'static [u8], _); 3] = [
        ("tcp_", &[ip_proto::TCP], "`tcp` or `tcp6`"),
        ("udp_", &[ip_proto::UDP], "`udp` or `udp6`"),
        ("sctp_", &[ip_proto::SCTP], "`sctp` or `sctp6`"),
    ];
    of.into_iter()
        .rev()
        .find(|(part, ..)| name.contains(part))
        .map(|(_, protocols, wanted)| (protocols, wanted))
}

fn icmp_name(name: &str, part: &str, other: &str) -> bool {
    name.to_ascii_lowercase().contains(part) || name.contains(other)
}
