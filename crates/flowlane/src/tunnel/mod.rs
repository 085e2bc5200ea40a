#![doc = include_str!("README.md")]

mod cache;
mod checksum;
mod decapsulate;
mod ecn;
mod encapsulate;
mod endpoint;
mod options;
mod plain;
mod reason;
mod sequence;
mod validate;

#[cfg(test)]
mod tests;

pub use cache::EndpointCache;
pub use decapsulate::{BATCH_MAX, Decapsulated, Decapsulator};
pub use ecn::decapsulated_ecn;
pub use encapsulate::{Encapsulation, EncapsulationError, Encapsulator, Oversize, PerPacket, Tos};
pub use endpoint::{
    Endpoint, EndpointConfig, EndpointError, EndpointId, EndpointReader, EndpointTable, V4Key, V6Key,
    VNI_MAX, VRF_MAX,
};
pub use options::{MappedOption, OPTION_BYTES_MAX, OptionArea, OptionMap, OptionMapError, OptionValues};
pub use reason::{Refused, RefusedCounts};
pub use sequence::Sequence;
pub use validate::{Policy, erspan_header, geneve_header, gre_header};

/// Classification of single packets, for the packet-by-packet nodes of `flowlane-paper`.
#[doc(hidden)]
pub mod one_by_one {
    pub use super::endpoint::Key;
    pub use super::plain::{Plain, PlainPacket};
    pub use super::validate::{Valid, validate};
}

use strum::{IntoStaticStr, VariantArray};

use crate::named_enum;
use crate::packet::fields::{TUNNEL_ERSPAN, TUNNEL_GENEVE, TUNNEL_GRE, TUNNEL_GTPU, TUNNEL_VXLAN};
use crate::packet::parse::ip_proto;
use crate::packet::tunnel::{GENEVE_PORT, GTPU_PORT, VXLAN_PORT, erspan};

/// A tunnel's protocol; as a number it is the key's `tun_type`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum TunnelKind {
    /// VXLAN (RFC 7348).
    Vxlan = TUNNEL_VXLAN,
    /// GENEVE (RFC 8926).
    Geneve = TUNNEL_GENEVE,
    /// GTP-U (3GPP TS 29.281).
    Gtpu = TUNNEL_GTPU,
    /// GRE (RFC 2784).
    Gre = TUNNEL_GRE,
    /// ERSPAN in GRE (draft-foschiano-erspan-03).
    Erspan = TUNNEL_ERSPAN,
}

impl TunnelKind {
    /// All of them.
    pub const ALL: [Self; 5] = named_enum::all();

    /// Returns the name, in configurations and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the largest id: VNI, TEID, key or session.
    pub fn id_max(self) -> u32 {
        match self {
            Self::Vxlan | Self::Geneve => VNI_MAX,
            Self::Gtpu | Self::Gre => u32::MAX,
            Self::Erspan => erspan::SESSION_MAX,
        }
    }

    /// Returns the UDP port that is assigned to the protocol; none where it is not behind UDP.
    pub fn own_port(self) -> Option<u16> {
        match self {
            Self::Vxlan => Some(VXLAN_PORT),
            Self::Geneve => Some(GENEVE_PORT),
            Self::Gtpu => Some(GTPU_PORT),
            Self::Gre | Self::Erspan => None,
        }
    }

    /// Returns the IP protocol of outer packets: UDP, or the tunnel's own, which has no ports.
    pub fn ip_protocol(self) -> u8 {
        match self {
            Self::Vxlan | Self::Geneve | Self::Gtpu => ip_proto::UDP,
            Self::Gre | Self::Erspan => ip_proto::GRE,
        }
    }
}
