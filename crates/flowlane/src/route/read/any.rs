//! A prefix of either family.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::super::{Address, Prefix, PrefixError};

/// A prefix of either family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AnyPrefix {
    /// Of IPv4 addresses.
    V4(Prefix<u32>),
    /// Of IPv6 addresses.
    V6(Prefix<u128>),
}

impl AnyPrefix {
    /// Returns the prefix of this length that an address is in; a length beyond an address's counts as that.
    pub fn truncated(address: IpAddr, len: u8) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(Prefix::truncated(address.to_bits(), len)),
            IpAddr::V6(address) => Self::V6(Prefix::truncated(address.to_bits(), len)),
        }
    }

    /// Bits of an address: 32 or 128.
    pub fn bits(address: IpAddr) -> u8 {
        if address.is_ipv4() { u32::BITS as u8 } else { u128::BITS as u8 }
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl FromStr for AnyPrefix {
    type Err = PrefixError;

    /// Reads a prefix; an address alone is the prefix of that address only.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        match text.contains(':') {
            false => text.parse().map(Self::V4),
            true => text.parse().map(Self::V6),
        }
    }
}

impl<A: Address> From<Prefix<A>> for AnyPrefix {
    fn from(prefix: Prefix<A>) -> Self {
        Self::truncated(prefix.first().to_ip(), prefix.len())
    }
}
