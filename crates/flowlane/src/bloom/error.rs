//! Errors of filter parameters.

/// A filter that cannot be had.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BloomError {
    /// More bits than a 32-bit hash tells apart.
    #[error("a filter of {bits} bits is too large; a 32-bit hash reaches 2^32 bits (512 MiB)")]
    TooManyBits {
        /// The requested number.
        bits: u64,
    },
    /// Not 1 to 16 hashes a key.
    #[error("{hashes} hashes a key cannot be had; there are 1 to 16")]
    Hashes {
        /// The requested number.
        hashes: usize,
    },
    /// Not a probability that a filter can have.
    #[error("a false-positive rate of {rate} cannot be had; it lies between 0 and 1, both excluded")]
    Rate {
        /// The requested number.
        rate: f64,
    },
    /// 16 hashes and as many bits as there are do not suffice.
    #[error("no filter holds {items} items with a false-positive rate of {rate}; allow a larger one")]
    OutOfReach {
        /// Items expected.
        items: u64,
        /// The requested rate.
        rate: f64,
    },
}
