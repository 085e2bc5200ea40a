//! Which worker has the part of a stage's state that a packet needs.
//!
//! Packets change a stage's state, so each worker owns a shard of it that no other worker touches. The lookup key says
//! which shard: all packets of one key reach one worker, no matter which worker received them.

use flowlane::packet::batch::{LANES_MAX, LaneMask};

/// One worker's part of a stage's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// The index of the worker that owns it.
    pub me: usize,
    /// The number of workers; with 1, the shard is the whole state.
    pub of: usize,
}

/// The worker that processes a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The worker that has the packet.
    Any,
    /// This worker.
    Worker(usize),
}

/// The workers that process the packets of some lanes.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    /// Lanes that leave this worker.
    pub elsewhere: LaneMask,
    /// The worker of each lane that leaves.
    pub worker: [u8; LANES_MAX],
}

impl Owners {
    /// Collects the owners of lanes, as seen by worker `me`.
    #[inline]
    pub(super) fn collect(lanes: LaneMask, me: usize, mut owner: impl FnMut(usize) -> Owner) -> Self {
        let mut owners = Self { elsewhere: LaneMask(0), worker: [0; LANES_MAX] };
        for lane in lanes.lanes() {
            // Branch-free in the owner, which is as good as random.
            let worker = if let Owner::Worker(worker) = owner(lane) { worker } else { me };
            owners.worker[lane] = worker as u8;
            owners.elsewhere.0 |= u64::from(worker != me) << lane;
        }
        owners
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self { me: 0, of: 1 }
    }
}

impl Shard {
    /// Returns the worker of a key with this hash, which must be uniform in all 32 bits.
    #[inline]
    pub fn owner(self, hash: u32) -> usize {
        ((u64::from(hash) * self.of as u64) >> 32) as usize
    }

    /// An empty shard beside those of `of` workers: it holds no state and still knows the owner of each packet.
    pub fn none_of(of: usize) -> Self {
        Self { me: usize::MAX, of }
    }

    /// Returns whether this is the [empty shard](Self::none_of).
    pub fn is_none(self) -> bool {
        self.me == usize::MAX
    }

    /// Returns the capacity of this shard, of `all` entries of all workers together.
    pub fn part(self, all: usize) -> usize {
        all.div_ceil(self.of)
    }

    /// Returns whether other workers have shards, too.
    pub fn is_part(self) -> bool {
        self.of > 1
    }
}
