//! The Internet checksum (RFC 1071) of bytes as they lie in memory: ones' complement addition does not mind the
//! byte order, as long as the result is stored in the order in which the words were read.

/// Sums `bytes` onto `sum`. An odd last byte is padded with zero: only the last piece of several may be odd.
///
/// A loop that the compiler makes lanes of. The sum of 64 KiB and more pieces does not overflow.
#[inline(always)]
pub(super) fn add(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Folds a sum to 16 bits, not inverted.
#[inline(always)]
pub(super) fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Returns the word of a number in network order, for [`add`]'s sums.
#[inline(always)]
pub(super) fn word_be(value: u16) -> u64 {
    u64::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// Returns the checksum field for a sum, as bytes on the wire.
#[inline(always)]
pub(super) fn field(sum: u64) -> [u8; 2] {
    (!fold(sum)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_and_odd_lengths() {
        let sum = add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(field(sum), (!0xddf2u16).to_be_bytes());
        assert_eq!(fold(add(0, &[0x12, 0x34, 0x56])), fold(word_be(0x1234) + word_be(0x5600)));
        assert_eq!(fold(add(0, &[0xff; 65_536])), 0xffff);
        assert_eq!(fold(0), 0);
    }
}
