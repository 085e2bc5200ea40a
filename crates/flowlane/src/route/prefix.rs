//! Addresses and prefixes of either family.

use std::fmt::{self, Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{BitAnd, BitOr, BitXor, Not};
use std::str::FromStr;

use crate::memory::Zeroed;

/// An address as a number in host order: `u32` for IPv4, `u128` for IPv6.
///
/// Bits are counted from the most significant one, which is bit 0, as in a prefix's length.
pub trait Address:
    Copy
    + Ord
    + Hash
    + Debug
    + Default
    + Send
    + Sync
    + Zeroed
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + 'static
{
    /// Bits of an address: 32 or 128.
    const BITS: u8;
    /// The first address.
    const ZERO: Self;
    /// The last address.
    const MAX: Self;
    /// The family's name.
    const FAMILY: &'static str;
    /// A prefix as text, for messages.
    const EXAMPLE: &'static str;

    /// Returns the mask of a prefix of this length; lengths beyond [`BITS`](Self::BITS) count as that.
    fn mask(len: u8) -> Self;

    /// Bit `index`; false beyond the last.
    fn bit(self, index: u8) -> bool;

    /// How many first bits this and another address have in common.
    fn common_bits(self, other: Self) -> u8;

    /// Returns the first `bits` bits as a number; at most 32 of them.
    fn first_bits(self, bits: u8) -> u32;

    /// Returns the address whose first `bits` bits are this number, and whose others are zero; at most 32.
    fn from_first_bits(number: u32, bits: u8) -> Self;

    /// Returns the address after this one.
    fn next(self) -> Option<Self>;

    /// Returns the address before this one.
    fn previous(self) -> Option<Self>;

    /// For printing.
    fn to_ip(self) -> IpAddr;

    /// Reads an address of this family.
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! address {
    ($number:ty, $bits:literal, $family:literal, $example:literal, $ip:ident) => {
        impl Address for $number {
            const BITS: u8 = $bits;
            const ZERO: Self = 0;
            const MAX: Self = <$number>::MAX;
            const FAMILY: &'static str = $family;
            const EXAMPLE: &'static str = $example;

            #[inline(always)]
            fn mask(len: u8) -> Self {
                if len == 0 { 0 } else { <$number>::MAX << ($bits - len.min($bits)) }
            }

            #[inline(always)]
            fn bit(self, index: u8) -> bool {
                index < $bits && self >> ($bits - 1 - index) & 1 != 0
            }

            #[inline(always)]
            fn common_bits(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            #[inline(always)]
            fn first_bits(self, bits: u8) -> u32 {
                if bits == 0 { 0 } else { (self >> ($bits - bits.min(32))) as u32 }
            }

            #[inline(always)]
            fn from_first_bits(number: u32, bits: u8) -> Self {
                if bits == 0 { 0 } else { (number as $number) << ($bits - bits.min(32)) }
            }

            #[inline(always)]
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline(always)]
            fn previous(self) -> Option<Self> {
                self.checked_sub(1)
            }

            fn to_ip(self) -> IpAddr {
                IpAddr::from($ip::from_bits(self))
            }

            fn parse(text: &str) -> Option<Self> {
                text.parse::<$ip>().ok().map($ip::to_bits)
            }
        }
    };
}

address!(u32, 32, "IPv4", "10.0.0.0/8", Ipv4Addr);
address!(u128, 128, "IPv6", "2001:db8::/32", Ipv6Addr);

/// A set of addresses that begin with the same bits, as in `10.0.0.0/8`.
///
/// Prefixes are ordered by their first address, and a shorter one precedes those inside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A: Address> {
    address: A,
    len: u8,
}

/// A text or a pair that is no prefix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// Longer than an address.
    #[error("a prefix of {len} bits is longer than an {family} address; the longest has {bits}")]
    Length {
        /// The length given.
        len: u8,
        /// The longest.
        bits: u8,
        /// Of this family.
        family: &'static str,
    },
    /// Bits are set that the length leaves out.
    #[error("{address}/{len} has bits set behind its first {len}; the prefix is {network}/{len}")]
    HostBits {
        /// The address given.
        address: IpAddr,
        /// The length given.
        len: u8,
        /// The address without those bits.
        network: IpAddr,
    },
    /// No prefix at all.
    #[error("`{text}` is no {family} prefix; write an address, a slash and a length, as in {example}")]
    Text {
        /// The text.
        text: String,
        /// The family expected.
        family: &'static str,
        /// How it should look.
        example: &'static str,
    },
}

impl<A: Address> Prefix<A> {
    /// The prefix of all addresses: the default route's.
    pub const ALL: Self = Self { address: A::ZERO, len: 0 };

    /// Returns the prefix of `len` bits at `address`.
    ///
    /// # Errors
    /// Where `len` is longer than an address, or the address has bits set behind it.
    pub fn new(address: A, len: u8) -> Result<Self, PrefixError> {
        if len > A::BITS {
            return Err(PrefixError::Length { len, bits: A::BITS, family: A::FAMILY });
        }
        let network = address & A::mask(len);
        if network != address {
            return Err(PrefixError::HostBits { address: address.to_ip(), len, network: network.to_ip() });
        }
        Ok(Self { address, len })
    }

    /// Returns the prefix of `len` bits that `address` is in; a length beyond an address's counts as that.
    #[inline]
    pub fn truncated(address: A, len: u8) -> Self {
        let len = len.min(A::BITS);
        Self { address: address & A::mask(len), len }
    }

    /// Returns the first address, which is the prefix's own.
    #[inline(always)]
    pub fn first(self) -> A {
        self.address
    }

    /// Returns the last address.
    #[inline(always)]
    pub fn last(self) -> A {
        self.address | !A::mask(self.len)
    }

    /// Its length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a length in bits; no prefix is empty of addresses")]
    #[inline(always)]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Returns whether `address` is in it.
    #[inline(always)]
    pub fn contains(self, address: A) -> bool {
        address & A::mask(self.len) == self.address
    }

    /// Returns whether every address of `other` is in it: `other` is the same or longer.
    #[inline(always)]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

impl<A: Address> Default for Prefix<A> {
    fn default() -> Self {
        Self::ALL
    }
}

impl<A: Address> Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.to_ip(), self.len)
    }
}

impl<A: Address> Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    /// Reads `10.0.0.0/8`; an address alone is the prefix of that address only.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (A::parse(address), len.parse::<u8>().ok()),
            None => (A::parse(text), Some(A::BITS)),
        };
        let (Some(address), Some(len)) = (address, len) else {
            let (family, example) = (A::FAMILY, A::EXAMPLE);
            return Err(PrefixError::Text { text: text.to_owned(), family, example });
        };
        Self::new(address, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_back() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32", "255.255.255.254/31"] {
            assert_eq!(text.parse::<Prefix<u32>>().expect("a prefix").to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().expect("a prefix").to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<Prefix<u32>>().expect("an address").len(), 32);
    }

    #[test]
    fn errors_say_how_to_mend_it() {
        let message = |text: &str| text.parse::<Prefix<u32>>().expect_err("no prefix").to_string();
        assert_eq!(
            message("10.0.0.1/8"),
            "10.0.0.1/8 has bits set behind its first 8; the prefix is 10.0.0.0/8"
        );
        assert!(message("10.0.0.0/33").contains("the longest has 32"));
        assert!(message("2001:db8::/32").contains("is no IPv4 prefix"));
        assert!("10.0.0.0/8".parse::<Prefix<u128>>().expect_err("no").to_string().contains("2001:db8::/32"));
    }

    #[test]
    fn bounds_and_masks_hold_at_both_ends() {
        let all = Prefix::<u32>::ALL;
        assert_eq!((all.first(), all.last()), (0, u32::MAX));
        let host = Prefix::<u128>::truncated(u128::MAX, 128);
        assert_eq!((host.first(), host.last()), (u128::MAX, u128::MAX));
        assert_eq!(Prefix::<u32>::truncated(0x0a01_0203, 8).first(), 0x0a00_0000);
        assert_eq!(<u32 as Address>::first_bits(0x0a01_0203, 16), 0x0a01);
        assert_eq!(<u128 as Address>::from_first_bits(0x2001, 16), 0x2001 << 112);
        assert!(!0u32.bit(32) && 1u32.bit(31) && !u32::MAX.bit(32));
    }

    #[test]
    fn a_shorter_prefix_precedes_those_inside_it() {
        let p = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
        let mut prefixes = [p("10.0.0.0/16"), p("10.0.0.0/8"), p("9.0.0.0/8"), p("10.0.0.0/24")];
        prefixes.sort_unstable();
        assert_eq!(prefixes, [p("9.0.0.0/8"), p("10.0.0.0/8"), p("10.0.0.0/16"), p("10.0.0.0/24")]);
        assert!(prefixes[1].covers(prefixes[3]) && !prefixes[3].covers(prefixes[1]));
    }
}
