//! The definition.

/// Returns the hash after one more word.
#[inline(always)]
pub fn mix(hash: u32, word: u32) -> u32 {
    (hash ^ scramble(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[inline(always)]
fn scramble(word: u32) -> u32 {
    word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

/// Returns the hash of all words mixed in, `len` bytes in total.
#[inline(always)]
pub fn finish(hash: u32, len: u32) -> u32 {
    let mut hash = hash ^ len;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Returns the hash of a byte string.
pub fn hash_bytes(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = words.iter().fold(seed, |hash, word| mix(hash, u32::from_le_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    // With no bytes left this is the hash of 0, which is 0.
    hash ^= scramble(u32::from_le_bytes(last));
    finish(hash, bytes.len() as u32)
}

/// Returns the hash of a sequence of words.
#[inline]
pub fn hash_words(words: &[u32], seed: u32) -> u32 {
    finish(words.iter().fold(seed, |hash, word| mix(hash, *word)), 4 * words.len() as u32)
}

/// `N` keys, one after the other.
pub(super) fn hash_lanes<const N: usize>(words: &[[u32; N]], seed: u32, out: &mut [u32; N]) {
    for (lane, out) in out.iter_mut().enumerate() {
        let hash = words.iter().fold(seed, |hash, word| mix(hash, word[lane]));
        *out = finish(hash, 4 * words.len() as u32);
    }
}
