//! Whether a packet has a field.

use flowlane::packet::fields::{Prerequisite, word};
use flowlane::packet::{Field, FlowKey, Headers, Network};

/// What says whether a packet has a field.
#[derive(Clone, Copy)]
pub(crate) enum Presence {
    Always,
    /// It has come out of a tunnel.
    Tunnel,
    /// So many tags, or labels, at least.
    Tags(u8),
    Labels(u8),
    Network(Network),
    Ip,
    /// The parser has set this word of the key.
    Word(usize),
    /// The same, and the protocol is one of these.
    WordOf(usize, [u8; 2]),
    /// The same, and the field is not 0.
    Option(usize),
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
            Field::NdSll | Field::NdTll => return Self::Option(word::ND_TARGET),
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
        }
    }

    #[inline(always)]
    pub(crate) fn holds(self, key: &FlowKey, headers: &Headers, value: impl FnOnce() -> u128) -> bool {
        let has = |w: usize| key.present() >> w & 1 == 1;
        match self {
            Self::Always => true,
            Self::Tunnel => key.get(Field::TunType) != 0,
            Self::Tags(tags) => headers.vlan_tags >= tags,
            Self::Labels(labels) => headers.mpls_labels >= labels,
            Self::Network(network) => headers.network == network,
            Self::Ip => matches!(headers.network, Network::Ipv4 | Network::Ipv6),
            Self::Word(w) => has(w),
            Self::WordOf(w, protocols) => {
                has(w) && protocols.contains(&((key.word(word::NW_PROTO) >> 24) as u8))
            }
            Self::Option(w) => has(w) && value() != 0,
        }
    }
}
