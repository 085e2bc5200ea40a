//! Hashes of keys: [`murmur3`] (x86, 32 bits) and [`crc32c`].
//!
//! Each hashes byte strings, sequences of 32-bit words, and *lanes*: 8 or 16 keys at a time, transposed, so
//! that word w of all keys lies side by side. The scalar file is the definition; every variant gives the
//! same numbers, which the tests check for all of them.
//!
//! A word is hashed as its four bytes in little-endian order on every machine, so hashing words is hashing
//! the bytes that they would have in an x86 machine's memory.

pub mod crc32c;
pub mod multilinear;
pub mod murmur3;

#[cfg(test)]
mod tests;
