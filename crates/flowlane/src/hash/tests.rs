use proptest::prelude::*;

use super::crc32c::Crc32c;
use super::murmur3::Murmur3;
use super::*;
use crate::isa::testing::for_each_variant;

/// Vectors of SMHasher and of the algorithm's public descriptions.
#[test]
fn murmur3_gives_the_published_values() {
    let cases: [(&[u8], u32, u32); 12] = [
        (b"", 0, 0),
        (b"", 1, 0x514e_28b7),
        (b"", 0xffff_ffff, 0x81f1_6f39),
        (&[0xff; 4], 0, 0x7629_3b50),
        (&[0x21, 0x43, 0x65, 0x87], 0, 0xf55b_516b),
        (&[0x21, 0x43, 0x65, 0x87], 0x5082_edee, 0x2362_f9de),
        (&[0x21, 0x43, 0x65], 0, 0x7e4a_8634),
        (&[0x21, 0x43], 0, 0xa0f7_b07a),
        (&[0x21], 0, 0x7266_1cf4),
        (&[0; 4], 0, 0x2362_f9de),
        (&[0; 3], 0, 0x85f0_b427),
        (b"Hello, world!", 0x9747_b28c, 0x2488_4cba),
    ];
    for (bytes, seed, wanted) in cases {
        assert_eq!(murmur3::hash_bytes(bytes, seed), wanted, "{bytes:02x?} seed {seed:#x}");
    }
}

/// SMHasher's verification: hashes of the keys {}, {0}, {0,1}, … with seed 256 − length, hashed again.
#[test]
fn murmur3_passes_the_verification_of_smhasher() {
    let keys: Vec<u8> = (0..=255).collect();
    let hashes: Vec<u8> =
        (0..256).flat_map(|n| murmur3::hash_bytes(&keys[..n], 256 - n as u32).to_le_bytes()).collect();
    assert_eq!(murmur3::hash_bytes(&hashes, 0), 0xb0f5_7ee3);
}

/// RFC 3720, appendix B.4; the last one from the catalogue of CRC algorithms.
#[test]
fn crc32c_gives_the_published_values() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    assert_eq!(crc32c::checksum(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c::checksum(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c::checksum(&ascending), 0x46dd_794e);
    assert_eq!(crc32c::checksum(&descending), 0x113f_db5c);
    assert_eq!(crc32c::checksum(b"123456789"), 0xe306_9283);
}

/// Every variant's hashes of `N` keys against the hash of each key alone.
fn lanes_agree<const N: usize>(words: &[[u32; N]], seed: u32) {
    let key = |lane: usize| words.iter().map(|w| w[lane]).collect::<Vec<u32>>();
    let by =
        |hash: fn(&[u32], u32) -> u32| -> [u32; N] { std::array::from_fn(|lane| hash(&key(lane), seed)) };
    let (murmur, crc) = (by(murmur3::hash_words), by(crc32c::hash_words));
    for_each_variant(|variant| {
        let mut out = [0; N];
        Murmur3::with_variant(variant).expect("is available").hash_lanes(words, seed, &mut out);
        assert_eq!(out, murmur, "murmur3 {variant}, {N} keys of {} words, seed {seed:#x}", words.len());
        let Some(crc32c) = Crc32c::with_variant(variant) else { return };
        crc32c.hash_lanes(words, seed, &mut out);
        assert_eq!(out, crc, "crc32c {variant}, {N} keys of {} words, seed {seed:#x}", words.len());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_variant_hashes_lanes_as_the_scalar_one_hashes_keys(
        words in prop::collection::vec(any::<[u32; 16]>(), 0..20),
        seed in any::<u32>(),
    ) {
        lanes_agree(&words, seed);
        lanes_agree(&words.iter().map(|w| *w.first_chunk::<8>().unwrap()).collect::<Vec<_>>(), seed);
        lanes_agree(&words.iter().map(|w| [w[0]]).collect::<Vec<_>>(), seed);
    }

    #[test]
    fn words_are_their_little_endian_bytes(words in prop::collection::vec(any::<u32>(), 0..40), seed in any::<u32>()) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        prop_assert_eq!(murmur3::hash_words(&words, seed), murmur3::hash_bytes(&bytes, seed));
        prop_assert_eq!(crc32c::hash_words(&words, seed), crc32c::update(seed, &bytes));
    }
}
