//! Which worker's share of a function's state a packet is for.
//!
//! Functions change what they know with every packet, so each worker has a share that no other touches, by what packets are looked
//! up by: all packets of a key come to one worker, whoever has received them.

/// One worker's share among those of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its worker's place.
    pub me: usize,
    /// Workers; 1: all is one's.
    pub of: usize,
}

/// Who is to work on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Whoever has it.
    Anyone,
    /// This worker.
    Worker(usize),
    /// This worker is to do the other half: the packet has one session here, and one there.
    OtherHalf(usize),
    /// Nobody: it is refused, and that has been counted.
    Nobody,
}

impl Default for Share {
    fn default() -> Self {
        Self { me: 0, of: 1 }
    }
}

impl Share {
    /// Whose share something is, by a hash of it that is spread over all 32 bits.
    #[inline]
    pub fn owner(self, hash: u32) -> usize {
        ((u64::from(hash) * self.of as u64) >> 32) as usize
    }

    /// As many of so many things as this share is to hold.
    pub fn part(self, all: usize) -> usize {
        all.div_ceil(self.of)
    }

    /// Whether there are others.
    pub fn is_part(self) -> bool {
        self.of > 1
    }
}
