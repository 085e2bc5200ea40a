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
mod validate;

#[cfg(test)]
mod tests;

pub use cache::EndpointCache;
pub use decapsulate::{BATCH_MAX, Decapsulated, Decapsulator};
pub use ecn::decapsulated_ecn;
pub use encapsulate::{Encapsulation, EncapsulationError, Encapsulator, Oversize, Tos};
pub use endpoint::{
    Endpoint, EndpointConfig, EndpointError, EndpointId, EndpointReader, EndpointTable, V4Key, V6Key,
    VNI_MAX, VRF_MAX,
};
pub use options::{MappedOption, OPTION_BYTES_MAX, OptionArea, OptionMap, OptionMapError, OptionValues};
pub use reason::{Refused, RefusedCounts};
pub use validate::{Policy, geneve_header};

/// Classification of single packets, for the packet-by-packet nodes of `flowlane-paper`.
#[doc(hidden)]
pub mod one_by_one {
    pub use super::endpoint::Key;
    pub use super::plain::{Plain, PlainPacket};
    pub use super::validate::{Valid, validate};
}

use strum::{IntoStaticStr, VariantArray};

use crate::named_enum;
use crate::packet::fields::{TUNNEL_GENEVE, TUNNEL_GTPU, TUNNEL_VXLAN};

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
}

impl TunnelKind {
    /// All of them.
    pub const ALL: [Self; 3] = named_enum::all();

    /// Returns the name, in configurations and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
