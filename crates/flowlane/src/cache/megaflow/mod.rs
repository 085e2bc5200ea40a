//! Megaflow cache: masked keys with what is to be done with the packets that match them.
//!
//! One hash table per distinct mask (a *subtable*), tried in order of their hits, so that the masks that
//! most packets need come first. All megaflows that match a packet give the same answer, so the first one
//! found ends the search.
//!
//! A batch is looked up subtable by subtable: all lanes still unresolved are hashed and their slots
//! prefetched, then probed; resolved lanes leave.
//!
//! **Bounds.** At most `flows_max` megaflows: inserting into a full cache evicts the least recently used of
//! [`EVICT_SAMPLE`] in turn. At most `masks_max` masks, since each costs every missing packet a probe: a
//! megaflow that needs a further one is refused, and its packets go the slow way.
//!
//! Cost: about 100 bytes a megaflow of 6 words (16 to 32 in slots, 28 of key and value, 40 of counters).

use crate::masked::MaskedTable;
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::key::{FlowKey, FlowMask};

/// Megaflows looked at to find one to evict.
pub const EVICT_SAMPLE: usize = 16;

/// A reference to a megaflow, which may have gone since.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowRef {
    index: u32,
    serial: u32,
}

impl FlowRef {
    /// Refers to none.
    pub const NONE: FlowRef = FlowRef { index: u32::MAX, serial: 0 };
}

/// Limits of a megaflow cache.
#[derive(Clone, Copy, Debug)]
pub struct MegaflowConfig {
    /// The most megaflows.
    pub flows_max: usize,
    /// The most distinct masks.
    pub masks_max: usize,
    /// Keys the hashes; secret where the traffic may be hostile.
    pub seed: u32,
}

impl Default for MegaflowConfig {
    fn default() -> Self {
        Self { flows_max: 1 << 20, masks_max: 1024, seed: 0 }
    }
}

/// Why a megaflow was not inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MegaflowError {
    /// Its mask would be one more than `masks_max`.
    #[error("the cache holds its limit of {masks_max} masks")]
    Masks {
        /// The limit.
        masks_max: usize,
    },
    /// `flows_max` is 0.
    #[error("the cache holds no megaflows by configuration")]
    NoFlows,
}

/// A megaflow's content.
#[derive(Clone, Copy, Debug)]
pub struct Megaflow {
    /// The caller's.
    pub value: u32,
    /// Of the tables that it was made from.
    pub generation: u32,
    /// When a packet last matched, by the caller's clock.
    pub used: u64,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    subtable: u32,
    entry: u32,
    serial: u32,
    live: bool,
}

#[derive(Debug)]
struct Subtable {
    mask: FlowMask,
    table: MaskedTable,
    /// Since the last ranking; halved there.
    hits: u64,
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

/// The cache.
#[derive(Debug)]
pub struct MegaflowCache {
    /// Those that hit most come first; `Megaflow::subtable` refers to `ids`.
    subtables: Vec<Subtable>,
    /// Subtable id → position. `u32::MAX` where the id is free.
    positions: Vec<u32>,
    /// Position → subtable id.
    ids: Vec<u32>,
    flows: Vec<Megaflow>,
    free: Vec<u32>,
    hand: usize,
    config: MegaflowConfig,
    counters: MegaflowCounters,
}

impl MegaflowCache {
    /// An empty cache.
    pub fn new(config: MegaflowConfig) -> Self {
        Self {
            subtables: Vec::new(),
            positions: Vec::new(),
            ids: Vec::new(),
            flows: Vec::new(),
            free: Vec::new(),
            hand: 0,
            config,
            counters: MegaflowCounters::default(),
        }
    }

    /// The megaflow that matches `key`.
    pub fn lookup(&mut self, key: &FlowKey) -> Option<FlowRef> {
        let mut found = [FlowRef::NONE; 1];
        self.lookup_batch(std::slice::from_ref(key), LaneMask(1), &mut found);
        (found[0] != FlowRef::NONE).then_some(found[0])
    }

    /// Looks up the keys of the `live` lanes; writes what is found to their places in `found`, and returns
    /// the lanes for which nothing was.
    ///
    /// # Panics
    /// Where a lane has no place in `keys` or `found`.
    #[inline]
    pub fn lookup_batch(&mut self, keys: &[FlowKey], live: LaneMask, found: &mut [FlowRef]) -> LaneMask {
        let mut left = live;
        let mut hashes = [0u32; LANES_MAX];
        let mut probes = 0;
        for subtable in &mut self.subtables {
            if left.is_empty() {
                break;
            }
            probes += left.len() as u64;
            for lane in left.lanes() {
                let hash = subtable.table.hash(&keys[lane]);
                subtable.table.prefetch(hash);
                hashes[lane] = hash;
            }
            let before = left.len();
            for lane in left.lanes() {
                if let Some(entry) = subtable.table.find(&keys[lane], hashes[lane]) {
                    let index = subtable.table.value(entry);
                    found[lane] = FlowRef { index, serial: self.flows[index as usize].serial };
                    left.remove(lane);
                }
            }
            subtable.hits += (before - left.len()) as u64;
        }
        self.counters.lookups += live.len() as u64;
        self.counters.hits += (live.len() - left.len()) as u64;
        self.counters.probes += probes;
        left
    }

    /// Adds the megaflow of the packets that agree with `key` in the bits of `mask`. Where there is one
    /// already it gets the new value and generation and keeps its counters.
    ///
    /// # Errors
    /// Where the mask would be one too many; the cache is as before.
    pub fn insert(
        &mut self,
        key: &FlowKey,
        mask: &FlowMask,
        value: u32,
        generation: u32,
        now: u64,
    ) -> Result<FlowRef, MegaflowError> {
        if self.config.flows_max == 0 {
            return Err(MegaflowError::NoFlows);
        }
        if let Some(at) = self.position(mask) {
            let table = &self.subtables[at].table;
            if let Some(entry) = table.find(key, table.hash(key)) {
                let index = table.value(entry);
                let flow = &mut self.flows[index as usize];
                (flow.value, flow.generation, flow.used) = (value, generation, now);
                return Ok(FlowRef { index, serial: flow.serial });
            }
        } else if self.subtables.len() >= self.config.masks_max {
            self.counters.refused += 1;
            return Err(MegaflowError::Masks { masks_max: self.config.masks_max });
        }
        if self.len() >= self.config.flows_max {
            self.evict();
        }
        // Only now: evicting may have removed the subtable.
        let at = self.position(mask).unwrap_or_else(|| self.add_subtable(mask));
        let index = self.free.pop().unwrap_or(self.flows.len() as u32);
        let entry = self.subtables[at].table.insert(key, index);
        let subtable = self.ids[at];
        let flow = |serial| Megaflow {
            value,
            generation,
            used: now,
            packets: 0,
            bytes: 0,
            subtable,
            entry,
            serial,
            live: true,
        };
        match self.flows.get_mut(index as usize) {
            Some(old) => *old = flow(old.serial.wrapping_add(1)),
            None => self.flows.push(flow(0)),
        }
        self.counters.inserted += 1;
        Ok(FlowRef { index, serial: self.flows[index as usize].serial })
    }

    /// Whether the megaflow is still there.
    #[inline]
    pub fn is_live(&self, flow: FlowRef) -> bool {
        self.flows.get(flow.index as usize).is_some_and(|f| f.live && f.serial == flow.serial)
    }

    /// The megaflow, where it is still there.
    #[inline]
    pub fn get(&self, flow: FlowRef) -> Option<&Megaflow> {
        self.flows.get(flow.index as usize).filter(|f| f.live && f.serial == flow.serial)
    }

    /// The megaflow, to be counted in.
    #[inline]
    pub fn get_mut(&mut self, flow: FlowRef) -> Option<&mut Megaflow> {
        self.flows.get_mut(flow.index as usize).filter(|f| f.live && f.serial == flow.serial)
    }

    /// The key and mask of a megaflow.
    pub fn matching(&self, flow: FlowRef) -> Option<(FlowKey, FlowMask)> {
        let found = self.get(flow)?;
        let subtable = &self.subtables[self.positions[found.subtable as usize] as usize];
        Some((subtable.table.key(found.entry), subtable.mask.clone()))
    }

    /// Removes a megaflow and returns what it was.
    pub fn remove(&mut self, flow: FlowRef) -> Option<Megaflow> {
        let found = *self.get(flow)?;
        self.flows[flow.index as usize].live = false;
        self.free.push(flow.index);
        let at = self.positions[found.subtable as usize] as usize;
        self.subtables[at].table.remove(found.entry);
        if self.subtables[at].table.is_empty() {
            self.subtables.remove(at);
            self.ids.remove(at);
            self.positions[found.subtable as usize] = u32::MAX;
            self.renumber();
        }
        Some(found)
    }

    /// Removes the megaflows for which `drop` says so; looks at up to `budget`, going on where the last
    /// call ended, so that a caller can spread the work. Returns how many were removed.
    pub fn sweep(&mut self, budget: usize, mut drop: impl FnMut(&Megaflow) -> bool) -> usize {
        let mut removed = 0;
        for _ in 0..budget.min(self.flows.len()) {
            self.hand = (self.hand + 1) % self.flows.len();
            let flow = self.flows[self.hand];
            if flow.live && drop(&flow) {
                self.remove(FlowRef { index: self.hand as u32, serial: flow.serial });
                removed += 1;
            }
        }
        removed
    }

    /// Puts the subtables in order of their hits since the last few calls: each call halves what came
    /// before. To be called now and then.
    pub fn rank(&mut self) {
        let mut order: Vec<usize> = (0..self.subtables.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(self.subtables[at].hits));
        if order.is_sorted() {
            self.subtables.iter_mut().for_each(|s| s.hits /= 2);
            return;
        }
        let mut old: Vec<Option<Subtable>> = self.subtables.drain(..).map(Some).collect();
        self.subtables.extend(order.iter().map(|&at| old[at].take().expect("each position once")));
        self.ids = order.iter().map(|&at| self.ids[at]).collect();
        self.subtables.iter_mut().for_each(|s| s.hits /= 2);
        self.renumber();
    }

    /// Every megaflow.
    pub fn flows(&self) -> impl Iterator<Item = FlowRef> {
        let refs = self.flows.iter().enumerate().filter(|(_, f)| f.live);
        refs.map(|(i, f)| FlowRef { index: i as u32, serial: f.serial })
    }

    /// Number of megaflows.
    pub fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The masks in use with the number of megaflows of each, in the order in which they are tried.
    pub fn masks(&self) -> impl Iterator<Item = (&FlowMask, usize)> {
        self.subtables.iter().map(|s| (&s.mask, s.table.len()))
    }

    /// What has happened so far.
    pub fn counters(&self) -> MegaflowCounters {
        self.counters
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.flows.capacity() * size_of::<Megaflow>()
            + self.free.capacity() * 4
            + self.subtables.capacity() * size_of::<Subtable>()
            + self.subtables.iter().map(|s| s.table.table_bytes()).sum::<usize>()
    }

    fn position(&self, mask: &FlowMask) -> Option<usize> {
        self.subtables.iter().position(|s| s.mask == *mask)
    }

    fn add_subtable(&mut self, mask: &FlowMask) -> usize {
        let table = MaskedTable::new(mask, self.config.seed);
        self.subtables.push(Subtable { mask: table.mask(), table, hits: 0 });
        let id = self.positions.iter().position(|&p| p == u32::MAX).unwrap_or(self.positions.len());
        if id == self.positions.len() {
            self.positions.push(u32::MAX);
        }
        self.ids.push(id as u32);
        self.renumber();
        self.subtables.len() - 1
    }

    fn renumber(&mut self) {
        for (at, &id) in self.ids.iter().enumerate() {
            self.positions[id as usize] = at as u32;
        }
    }

    /// Removes the least recently used of the next few megaflows.
    fn evict(&mut self) {
        let mut oldest: Option<usize> = None;
        let mut seen = 0;
        while seen < EVICT_SAMPLE.min(self.len()) {
            self.hand = (self.hand + 1) % self.flows.len();
            if self.flows[self.hand].live {
                seen += 1;
                if oldest.is_none_or(|o| self.flows[self.hand].used < self.flows[o].used) {
                    oldest = Some(self.hand);
                }
            }
        }
        if let Some(at) = oldest {
            self.remove(FlowRef { index: at as u32, serial: self.flows[at].serial });
            self.counters.evicted += 1;
        }
    }
}
