//! The definition.

/// The polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The change of the remainder by each byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Returns the remainder after further bytes; neither begun nor ended with an inversion.
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// Returns the checksum of a byte string, as it is sent.
pub fn checksum(bytes: &[u8]) -> u32 {
    !update(!0, bytes)
}

/// Returns the hash of a sequence of words.
pub fn hash_words(words: &[u32], seed: u32) -> u32 {
    words.iter().fold(seed, |crc, word| update(crc, &word.to_le_bytes()))
}

/// `N` keys, one after the other.
pub(super) fn hash_lanes<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    for (lane, out) in out.iter_mut().enumerate() {
        *out = words.iter().fold(seed, |crc, word| update(crc, &word[lane].to_le_bytes()));
    }
}
