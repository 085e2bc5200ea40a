//! Which buckets a hash belongs to, also while the table grows.
//!
//! Growth is linear hashing (Litwin, *Linear Hashing: A New Tool for File and Table Addressing*, VLDB 1980):
//! of `n` buckets the first `split` have already been split in two, bucket `b` into `b` and `b + n`, by one
//! more bit of the hash.

/// The state of the table's addressing, one word in the shared part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    /// One less than the number of buckets at the last power of two.
    mask: u32,
    /// Number of buckets split since.
    split: u32,
}

impl Geometry {
    /// `buckets` buckets, a power of two.
    pub(super) fn new(buckets: u32) -> Self {
        debug_assert!(buckets.is_power_of_two());
        Self { mask: buckets - 1, split: 0 }
    }

    #[inline(always)]
    pub(super) fn from_word(word: u64) -> Self {
        Self { mask: word as u32, split: (word >> 32) as u32 }
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.split) << 32 | u64::from(self.mask)
    }

    /// Returns the number of buckets in use.
    #[inline(always)]
    pub(super) fn buckets(self) -> u32 {
        self.mask + 1 + self.split
    }

    /// Returns whether no doubling is under way.
    #[inline(always)]
    pub(super) fn is_even(self) -> bool {
        self.split == 0
    }

    /// Returns the next bucket to be split, and the bucket that takes the keys which leave it.
    pub(super) fn next_split(self) -> (u32, u32) {
        (self.split, self.split + self.mask + 1)
    }

    /// Returns the state after that split.
    pub(super) fn after_split(self) -> Self {
        if self.split == self.mask {
            Self { mask: 2 * self.mask + 1, split: 0 }
        } else {
            Self { mask: self.mask, split: self.split + 1 }
        }
    }

    /// Returns the bucket of a hash. A key's primary bucket is that of its hash, its alternate one that of
    /// [`alternate_hash`].
    #[inline(always)]
    pub(super) fn bucket(self, hash: u32) -> u32 {
        let low = hash & self.mask;
        if low < self.split { hash & (2 * self.mask + 1) } else { low }
    }

    /// [`bucket`](Self::bucket) in fewer steps where `EVEN` says that no doubling is under way.
    #[inline(always)]
    pub(super) fn bucket_if<const EVEN: bool>(self, hash: u32) -> u32 {
        if EVEN { hash & self.mask } else { self.bucket(hash) }
    }

    /// Returns the other bucket of a key of which only this bucket and the signature are known; not while a
    /// doubling is under way, when the bucket may tell one bit of the hash too few.
    #[inline(always)]
    pub(super) fn other_bucket(self, bucket: u32, signature: u16) -> u32 {
        debug_assert!(self.is_even());
        (bucket ^ spread(signature)) & self.mask
    }
}

/// Returns the signature of a hash, never 0 (a free slot): the bits that do not select the bucket.
#[inline(always)]
pub(super) fn signature(hash: u32) -> u16 {
    ((hash >> 16) as u16).max(1)
}

/// Returns the hash whose bucket is the alternate one.
#[inline(always)]
pub(super) fn alternate_hash(hash: u32) -> u32 {
    hash ^ spread(signature(hash))
}

/// By what the two buckets of a key differ. Odd, so that they always do.
#[inline(always)]
fn spread(signature: u16) -> u32 {
    u32::from(signature).wrapping_mul(0x5bd1_e995) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_moves_hashes_from_the_split_bucket_only() {
        let mut geometry = Geometry::new(4);
        for _ in 0..12 {
            let (from, to) = geometry.next_split();
            let after = geometry.after_split();
            assert_eq!(after.buckets(), geometry.buckets() + 1);
            for hash in 0..1000u32 {
                let (was, is) = (geometry.bucket(hash), after.bucket(hash));
                assert!(was == is || (was, is) == (from, to));
                assert!(is < after.buckets());
            }
            assert_eq!(Geometry::from_word(after.to_word()), after);
            geometry = after;
        }
        assert_eq!(geometry, Geometry::new(16));
    }

    #[test]
    fn the_two_buckets_of_a_key_lead_to_each_other() {
        let geometry = Geometry::new(1024);
        for i in 0..100_000u32 {
            let hash = i.wrapping_mul(0x9e37_79b9);
            let (primary, alternate) = (geometry.bucket(hash), geometry.bucket(alternate_hash(hash)));
            assert_ne!(primary, alternate);
            assert_eq!(geometry.other_bucket(primary, signature(hash)), alternate);
            assert_eq!(geometry.other_bucket(alternate, signature(hash)), primary);
        }
    }
}
