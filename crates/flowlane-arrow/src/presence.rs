//! Presence of fields in packets.

use flowlane::packet::fields::{ND_SLL_PRESENT, ND_TLL_PRESENT, Prerequisite, word};
use flowlane::packet::{Field, FlowKey, Headers, Network};

/// Criterion for the presence of a field.
#[derive(Clone, Copy)]
pub(crate) enum Presence {
    Always,
    /// Decapsulated packets.
    Tunnel,
    /// At least this number of VLAN tags.
    Tags(u8),
    Labels(u8),
    Network(Network),
    Ip,
    /// The parser has set this word of the key.
    Word(usize),
    /// The parser has set this word, and the protocol is one of these.
    WordOf(usize, [u8; 2]),
    /// The message has one of these options of neighbour discovery.
    Option(u8),
}

impl Presence {
    pub(crate) fn of(field: Field) -> Self {
        match field {
            Field::VlanTci => return Self::Tags(1),
            Field::VlanTci1 => return Self::Tags(2),
            Field::MplsLse1 => return Self::Labels(2),
            Field::MplsLse2 => return Self::Labels(3),
            Field::EthDst | Field::EthSrc => return Self::Word(word::ETH),
            Field::EthType => return Self::Word(word::VLAN_ETH_TYPE),
            Field::NdSll => return Self::Option(ND_SLL_PRESENT),
            Field::NdTll => return Self::Option(ND_TLL_PRESENT),
            Field::NdReserved => return Self::Word(word::ND_RESERVED),
            Field::NdOptionsType => return Self::Option(ND_SLL_PRESENT | ND_TLL_PRESENT),
            _ => {}
        }
        match field.info().prerequisite {
            Prerequisite::None => Self::Always,
            Prerequisite::Vlan => Self::Tags(1),
            Prerequisite::Mpls => Self::Labels(1),
            Prerequisite::Arp => Self::Network(Network::Arp),
            Prerequisite::Ip => Self::Ip,
            Prerequisite::Ipv4 => Self::Network(Network::Ipv4),
            Prerequisite::Ipv6 => Self::Network(Network::Ipv6),
            Prerequisite::Ports => Self::Word(word::PORTS),
            Prerequisite::Tcp => Self::WordOf(word::FLAGS, [6, 6]),
            Prerequisite::Icmp => Self::WordOf(word::FLAGS, [1, 58]),
            Prerequisite::NeighbourDiscovery => Self::Word(word::ND_TARGET),
            Prerequisite::Tunnel => Self::Tunnel,
            Prerequisite::Nsh => Self::Network(Network::Nsh),
        }
    }

    /// Determines for each packet whether it has the field, replacing the contents of `valid`.
    pub(crate) fn of_packets(self, keys: &[FlowKey], headers: &[Headers], valid: &mut Vec<bool>) {
        let has = |key: &FlowKey, w: usize| key.present().contains(w);
        valid.clear();
        // One loop per criterion, which is the same for all packets.
        match self {
            Self::Always => valid.resize(headers.len(), true),
            Self::Tunnel => valid.extend(keys.iter().map(|key| key.get(Field::TunType) != 0)),
            Self::Tags(tags) => valid.extend(headers.iter().map(|h| h.vlan_tags >= tags)),
            Self::Labels(labels) => valid.extend(headers.iter().map(|h| h.mpls_labels >= labels)),
            Self::Network(network) => valid.extend(headers.iter().map(|h| h.network == network)),
            Self::Ip => {
                let is_ip = |h: &Headers| matches!(h.network, Network::Ipv4 | Network::Ipv6);
                valid.extend(headers.iter().map(is_ip));
            }
            Self::Word(w) => valid.extend(keys.iter().map(|key| has(key, w))),
            Self::WordOf(w, protocols) => {
                let protocol = |key: &FlowKey| (key.word(word::NW_PROTO) >> 24) as u8;
                valid.extend(keys.iter().map(|key| has(key, w) && protocols.contains(&protocol(key))));
            }
            Self::Option(bit) => {
                valid.extend(keys.iter().map(|key| key.get(Field::NdOptions) as u8 & bit != 0));
            }
        }
    }
}
