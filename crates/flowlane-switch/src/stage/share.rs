//! Which worker's share of a function's state a packet is for.
//!
//! Functions change what they know with every packet, so each worker has a share that no other touches, by what packets are looked
//! up by: all packets of a key come to one worker, whoever has received them.

use flowlane::packet::batch::{LANES_MAX, LaneMask};

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

/// Who is to work on lanes' packets.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    /// Lanes that are not for this worker.
    pub elsewhere: LaneMask,
    /// Of those, lanes that another is to do the other half of.
    pub halves: LaneMask,
    /// Of those, lanes that are refused, and counted as such.
    pub nobody: LaneMask,
    /// By lane, the worker that it is for, where it is for another.
    pub worker: [u8; LANES_MAX],
}

impl Owners {
    /// What is said of each of these lanes to the worker at place `me`.
    #[inline]
    pub(super) fn ask(lanes: LaneMask, me: usize, mut owner: impl FnMut(usize) -> Owner) -> Self {
        let none = LaneMask(0);
        let mut owners = Self { elsewhere: none, halves: none, nobody: none, worker: [0; LANES_MAX] };
        for lane in lanes.lanes() {
            // Without a branch on whose it is, which is as good as random.
            let (worker, half, nobody) = match owner(lane) {
                Owner::Anyone => (me, false, false),
                Owner::Worker(worker) => (worker, false, false),
                Owner::OtherHalf(worker) => (worker, true, false),
                Owner::Nobody => (me, false, true),
            };
            owners.worker[lane] = worker as u8;
            owners.halves.0 |= u64::from(half) << lane;
            owners.nobody.0 |= u64::from(nobody) << lane;
            owners.elsewhere.0 |= u64::from(worker != me || nobody) << lane;
        }
        owners
    }
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

    /// That of none of so many workers: whoever has it can be asked whose a packet is.
    pub fn of_nobody(of: usize) -> Self {
        Self { me: usize::MAX, of }
    }

    /// Whether it is [that of none](Self::of_nobody): nothing is ever known there.
    pub fn is_nobodys(self) -> bool {
        self.me == usize::MAX
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
