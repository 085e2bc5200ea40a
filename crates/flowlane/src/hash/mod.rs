//! Hashes.
pub mod murmur3 {
    //! temporary until the hash branch lands
    /// mix
    #[inline(always)]
    pub fn mix(hash: u32, word: u32) -> u32 {
        let k = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        (hash ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    }
    /// finish
    #[inline(always)]
    pub fn finish(mut hash: u32, len_bytes: u32) -> u32 {
        hash ^= len_bytes;
        hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        hash ^ hash >> 16
    }
}
pub mod crc32c {
    //! temporary until the hash branch lands
    /// CRC32C
    pub fn checksum(bytes: &[u8]) -> u32 {
        let mut crc = !0u32;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
            }
        }
        !crc
    }
}
