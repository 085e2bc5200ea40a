//! The Network Service Header (RFC 8300 §2): a base header, the service path, and metadata of one of two types.
//!
//! ```text
//!  0                   1                   2                   3
//!  ver|O|U|  TTL (6) | length (6) | U U U U | MD type | next protocol
//!  service path identifier (24)                       | service index
//!  type 1: four words of context      type 2: options of variable length, which are in no key
//! ```
//!
//! The parser does not look behind the header, as Open vSwitch does not.

use super::{Captured, End, Headers, Malformed, Network, Words, be32, take, word};

/// Bytes of the base header and the service path.
const BASE_BYTES: usize = 8;

/// Bytes of a header with metadata of type 1.
const FIXED_BYTES: usize = 24;

/// Parses the header at `at`.
#[cold]
pub(super) fn nsh(
    frame: Captured<'_>,
    at: usize,
    out: &mut Words<'_>,
    headers: &mut Headers,
) -> Result<(), End> {
    let base: &[u8; BASE_BYTES] = take(frame, at, Malformed::NshTruncated)?;
    let first = be32(base, 0);
    let len = (first >> 16 & 0x3f) as usize * 4;
    let (metadata_type, next_protocol) = (first >> 8 & 0xf, first & 0xff);
    let fits = match metadata_type {
        1 => len == FIXED_BYTES,
        2 => len >= BASE_BYTES,
        _ => false,
    };
    if first >> 30 != 0 || !fits {
        return Err(Malformed::NshFormat.into());
    }
    if at + len > frame.bytes().len() {
        return Err(End { reason: Malformed::NshTruncated, captured: at + len > frame.len() });
    }
    let (flags, ttl) = (first >> 28 & 3, first >> 22 & 0x3f);
    let mut words = [0; 6];
    words[0] = flags << 24 | ttl << 16 | next_protocol << 8 | metadata_type;
    words[1] = be32(base, 4);
    if metadata_type == 1 {
        for (i, context) in words[2..].iter_mut().enumerate() {
            *context = be32(frame.bytes(), at + BASE_BYTES + 4 * i);
        }
    }
    for (i, value) in words.into_iter().enumerate() {
        out.words[word::NSH + i] = value;
        out.high |= 1 << (word::NSH + i - 64);
    }
    headers.l3 = at as u16;
    headers.network = Network::Nsh;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::fields::Field;
    use crate::packet::key::FlowKey;
    use crate::packet::parse;
    use crate::packet::tests::{every_kind, expect, parsed};

    #[test]
    fn nsh_with_metadata_of_both_types() {
        let kinds = every_kind();
        let path = [(Field::NshTtl, 63), (Field::NshSpi, 0x12_3456), (Field::NshSi, 9), (Field::NshNp, 3)];
        let context = [(Field::NshFlags, 1), (Field::NshMdtype, 1), (Field::NshC1, 0x0102_0304)];
        let headers = expect(&kinds[11], &[&path[..], &context, &[(Field::NshC4, 0x0d0e_0f10)]].concat());
        assert_eq!((headers.network, headers.l3, headers.malformed), (Network::Nsh, 14, None));
        let of_type_2 = [(Field::NshFlags, 2), (Field::NshMdtype, 2), (Field::NshSpi, 7), (Field::NshC1, 0)];
        assert_eq!(expect(&kinds[12], &of_type_2).l3, 18);
        let fault = |at: usize, value: u8| {
            let mut frame = kinds[11].clone();
            frame[at] = value;
            let (key, headers) = parsed(&frame);
            assert_eq!((key.get(Field::EthType), key.get(Field::NshSpi)), (0x894f, 0));
            headers.malformed
        };
        // Another version, another type, and lengths that fit neither the type nor the frame.
        assert_eq!(fault(14, 0x4f), Some(Malformed::NshFormat));
        assert_eq!(fault(16, 3), Some(Malformed::NshFormat));
        assert_eq!(fault(15, 0xc5), Some(Malformed::NshFormat));
        assert_eq!(parsed(&kinds[11][..30]).1.malformed, Some(Malformed::NshTruncated));
        // The next packet has no NSH.
        let mut key = FlowKey::zero();
        parse(&kinds[11], 7, &mut key);
        parse(&kinds[0], 7, &mut key);
        assert!(key.get(Field::NshSpi) == 0 && key.present().high() == 0);
    }
}
