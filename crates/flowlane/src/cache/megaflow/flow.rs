//! A megaflow as it lies in memory, one cache line, and the counters of all.

use crate::memory::Zeroed;

/// Words of the masked key that lie in the megaflow's own line.
pub(super) const KEY_WORDS: usize = 8;

/// A reference to a megaflow, which may have gone since.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowRef {
    pub(super) index: u32,
    pub(super) serial: u32,
}

impl FlowRef {
    /// Refers to none.
    pub const NONE: FlowRef = FlowRef { index: u32::MAX, serial: 0 };

    /// The place of the megaflow; another may be there by now.
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns whether it refers to no megaflow.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.index == u32::MAX
    }
}

/// A megaflow: its masked key, and what the caller keeps with it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Megaflow {
    /// The masked words in the order of the subtable's terms. Where there are more than fit, the last one
    /// here says where the others are (`Subtable::tail`).
    pub(super) key: [u32; KEY_WORDS],
    /// The caller's.
    pub value: u32,
    /// Of the tables that it was made from.
    pub generation: u32,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When a packet last matched: the caller's clock, in the caller's unit, which may wrap.
    pub used: u32,
    /// Odd while the megaflow is there; increased when it comes and when it goes.
    pub(super) serial: u32,
}

const _: () = assert!(size_of::<Megaflow>() == 64);

// SAFETY: integers; zeros are a place without a megaflow.
unsafe impl Zeroed for Megaflow {}

impl Megaflow {
    /// A place without a megaflow.
    pub(super) const FREE: Self =
        Self { key: [0; KEY_WORDS], value: 0, generation: 0, packets: 0, bytes: 0, used: 0, serial: 0 };

    #[inline(always)]
    pub(super) fn is_live(&self) -> bool {
        self.serial & 1 == 1
    }
}

/// Counters of a megaflow cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MegaflowCounters {
    /// Packets looked up.
    pub lookups: u64,
    /// Of these, found.
    pub hits: u64,
    /// Subtables probed for them.
    pub probes: u64,
    /// Megaflows inserted.
    pub inserted: u64,
    /// Megaflows evicted for others.
    pub evicted: u64,
    /// Megaflows refused for want of a mask.
    pub refused: u64,
}
