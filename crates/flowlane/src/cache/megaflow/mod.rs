//! Megaflow cache: masked keys with the paths of the packets that match them.
//!
//! One hash table per distinct mask (a *subtable*), tried in order of their hits, so that the masks that
//! most packets need come first. All megaflows that match a packet give the same answer, so the first one
//! found ends the search.
//!
//! ```text
//! subtable   filter: 2 bits a megaflow      slots: (hash, megaflow)       one set a mask
//! megaflow   masked key | value, generation, counters, time | serial      one cache line each
//! ```
//!
//! **A batch.** All packets' words lie side by side in fixed columns, all
//! lanes are hashed under a mask at once (multilinear hashing, what masks have in common only once), and a
//! filter of two bits a megaflow rejects nearly every mask that has nothing, so that no bucket is touched.
//! There is a body per instruction set; the scalar one is the definition, and all give the same answers. The lookup of
//! *Leveraging SIMD parallelism*, §3.2, which this is compared with, is in the crate `flowlane-paper`.
//!
//! **Few packets** are looked up one by one. Each is looked for under several masks at once, so that their
//! filters are under way together (`interleaved.rs`; HALO's non-blocking lookups); how many is
//! [`MegaflowConfig::in_flight`].
//!
//! **Bounds.** At most `flows_max` megaflows: inserting into a full cache evicts the least recently used of
//! [`EVICT_SAMPLE`] in turn. Each mask costs every missing packet a probe. So the first
//! [`join_from`](MegaflowConfig::join_from) masks are kept as they are, and further megaflows are inserted under the union of
//! all masks: they match fewer packets, but under one mask. (Rules in dozens of tables give nearly each flow a mask of its
//! own.) At most `masks_max` masks in all: a megaflow that needs a further one is refused, and its packets go the slow way.
//! The hash is keyed by a secret seed, and no choice of packets makes keys collide more often than chance
//! (`hash::multilinear`).
//!
//! Cost: about 90 bytes a megaflow of up to 8 words (64 of line, 13 to 26 in slots, 2 to 3 of filter).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod choice;
mod flow;
mod interleaved;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod subtable;
mod wide;

pub use choice::{MegaflowChoice, MegaflowChoiceError};
pub use flow::{FlowRef, Megaflow, MegaflowCounters};

use crate::dispatch::AdaptiveDispatch;
use crate::hash::multilinear::Multilinear;
use crate::isa::cpu::Cpu;
use crate::isa::{Backend, Variant};
use crate::memory::{Memory, prefetch};
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::key::{FlowKey, FlowMask};
use choice::Way;
use interleaved::{ALONE_MASKS, Ahead, GROUP, Groups, MASKS_MAX, Room};
use subtable::Subtable;
use wide::Scratch;

/// More megaflows than that are not numbered.
const FLOWS_MAX: usize = u32::MAX as usize - 1;

/// Megaflows looked at to find one to evict.
pub const EVICT_SAMPLE: usize = 16;

/// Of filter for a megaflow, about: 13 to 26 bits.
const FILTER_BYTES: usize = 2;

/// Limits of a megaflow cache, and how it works.
#[derive(Clone, Copy, Debug)]
pub struct MegaflowConfig {
    /// The most megaflows; [`FLOWS_MAX_DEFAULT`](Self::FLOWS_MAX_DEFAULT) by default.
    pub flows_max: usize,
    /// The most distinct masks; [`MASKS_MAX_DEFAULT`](Self::MASKS_MAX_DEFAULT) by default.
    pub masks_max: usize,
    /// From this number of masks on, a megaflow of another mask gets the union of all masks instead;
    /// [`JOIN_FROM_DEFAULT`](Self::JOIN_FROM_DEFAULT) by default.
    pub join_from: usize,
    /// Keys the hashes; secret where the traffic may be hostile.
    pub seed: u64,
    /// The variant, if it is usable here; otherwise, and if it is `None`, the one selected for this machine, or the one that
    /// the first batches find to be the fastest ([`dispatch`](crate::dispatch)).
    pub variant: Option<Variant>,
    /// Batches of fewer packets are looked up one by one; `None` selects the threshold for this machine.
    pub threshold: Option<usize>,
    /// Masks under which a packet is looked for at once where packets are looked up one by one, 4 to 16, in steps of 4.
    /// With fewer, and for a single packet under up to 16 masks, it is one mask after the other.
    /// `None` selects the number for this machine.
    pub in_flight: Option<usize>,
}

impl MegaflowConfig {
    /// The default of [`flows_max`](Self::flows_max): Open vSwitch's `flow-limit`. At most 20 MiB, committed as they come.
    pub const FLOWS_MAX_DEFAULT: usize = 200_000;
    /// The default of [`masks_max`](Self::masks_max): a packet that nothing matches probes them all, at about 8 cycles each.
    pub const MASKS_MAX_DEFAULT: usize = 1024;
    /// The default of [`join_from`](Self::join_from): a missing packet costs about as much as a few tables.
    pub const JOIN_FROM_DEFAULT: usize = 64;
}

impl Default for MegaflowConfig {
    fn default() -> Self {
        Self {
            flows_max: Self::FLOWS_MAX_DEFAULT,
            masks_max: Self::MASKS_MAX_DEFAULT,
            join_from: Self::JOIN_FROM_DEFAULT,
            seed: 0,
            variant: None,
            threshold: None,
            in_flight: None,
        }
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

/// The parts that lookups read and write.
#[derive(Debug)]
struct Tables {
    /// By id; those that are not in `order` are free.
    subtables: Vec<Subtable>,
    /// Ids of the subtables in use: those that hit most come first.
    order: Vec<u32>,
    /// The bits of their masks, and perhaps of some that are not in use any more.
    union: FlowMask,
    /// Reserved for `flows_max`; the system commits pages as they are touched.
    flows: Memory<Megaflow>,
    scratch: Scratch,
    groups: Groups,
    room: Box<Room>,
}

/// The cache.
///
/// ```
/// use flowlane::cache::{MegaflowCache, MegaflowConfig};
/// use flowlane::packet::{Field, FlowKey, FlowMask};
///
/// let mut cache = MegaflowCache::new(MegaflowConfig { flows_max: 1000, ..MegaflowConfig::default() });
/// let (mut key, mut looked_at) = (FlowKey::zero(), FlowMask::zero());
/// key.set(Field::Ipv4Dst, 0xc000_0207); // 192.0.2.7
/// looked_at.set(Field::Ipv4Dst, 0xffff_ff00);
/// let (value, generation, now) = (7, 1, 0);
/// cache.insert(&key, &looked_at, value, generation, now)?;
/// key.set(Field::Ipv4Dst, 0xc000_0208); // another host of that network
/// let flow = cache.lookup(&key).expect("it agrees in what was looked at");
/// assert_eq!(cache.get(flow).map(|flow| flow.value), Some(7));
/// # Ok::<(), flowlane::cache::megaflow::MegaflowError>(())
/// ```
#[derive(Debug)]
pub struct MegaflowCache {
    tables: Tables,
    free_subtables: Vec<u32>,
    /// Megaflow → subtable id.
    owners: Vec<u32>,
    free: Vec<u32>,
    hand: usize,
    config: MegaflowConfig,
    hash: Multilinear,
    way: AdaptiveDispatch<Way>,
    /// The number of megaflows from which on filters are beyond the second-level cache.
    pub(super) far_from: usize,
    /// The scratch does not fit the masks, or their order, any more.
    stale: bool,
    counters: MegaflowCounters,
}

impl MegaflowCache {
    /// An empty cache.
    pub fn new(config: MegaflowConfig) -> Self {
        let way = choice::choose(&config);
        let tables = Tables {
            subtables: Vec::new(),
            order: Vec::new(),
            union: FlowMask::zero(),
            flows: Memory::zeroed(config.flows_max.min(FLOWS_MAX)),
            scratch: Scratch::new(std::iter::empty()).0,
            groups: Groups::default(),
            room: Room::boxed(),
        };
        Self {
            tables,
            free_subtables: Vec::new(),
            owners: Vec::new(),
            free: Vec::new(),
            hand: 0,
            config,
            hash: Multilinear::new(config.seed),
            way,
            far_from: Cpu::this().cache_bytes[1] as usize / FILTER_BYTES / 2,
            stale: false,
            counters: MegaflowCounters::default(),
        }
    }

    /// Which variant looks up batches.
    pub fn variant(&self) -> Variant {
        self.way.get().body.variant()
    }

    /// Below how many packets a batch is looked up one by one.
    pub fn threshold(&self) -> usize {
        self.way.get().threshold
    }

    /// Under how many masks at once a packet is looked for where packets are looked up one by one.
    pub fn in_flight(&self) -> usize {
        self.way.get().in_flight
    }

    /// Looks up with another variant from now on, where it can be used here. Says whether it can.
    pub fn set_variant(&mut self, variant: Variant) -> bool {
        let Some(body) = Backend::of(variant) else { return false };
        self.way = AdaptiveDispatch::named(Way { body, ..self.way.get() });
        true
    }

    /// Looks batches of fewer packets up one by one from now on.
    pub fn set_threshold(&mut self, packets: usize) {
        self.way = AdaptiveDispatch::named(Way { threshold: packets, ..self.way.get() });
    }

    /// Sets the number of masks under which a packet is looked up at once ([`MegaflowConfig::in_flight`]).
    pub fn set_in_flight(&mut self, masks: usize) {
        self.way = AdaptiveDispatch::named(Way { in_flight: masks.clamp(1, MASKS_MAX), ..self.way.get() });
    }

    /// The megaflow that matches `key`.
    pub fn lookup(&mut self, key: &FlowKey) -> Option<FlowRef> {
        let mut found = [FlowRef::NONE; 1];
        if self.stale {
            // Fitting the scratch takes longer than this, and is for batches.
            let (left, probes) =
                scalar::lookup(&mut self.tables, std::slice::from_ref(key), LaneMask(1), &mut found);
            self.counters.lookups += 1;
            self.counters.hits += u64::from(left.is_empty());
            self.counters.probes += probes;
        } else {
            self.lookup_batch(std::slice::from_ref(key), LaneMask(1), &mut found);
        }
        (found[0] != FlowRef::NONE).then_some(found[0])
    }

    /// Looks up the keys of the `live` lanes; writes hits to their places in `found`, and returns
    /// the lanes that missed.
    ///
    /// # Panics
    /// Where a lane has no place in `keys` or `found`.
    #[inline]
    pub fn lookup_batch(&mut self, keys: &[FlowKey], live: LaneMask, found: &mut [FlowRef]) -> LaneMask {
        if self.stale {
            self.fit_scratch();
        }
        let far = self.len() >= self.far_from;
        let tables = &mut self.tables;
        let is_empty = tables.order.is_empty();
        let timed = || if is_empty { 0 } else { live.len() };
        let (left, probes) = self.way.run_batch(timed, |Way { body, threshold, in_flight }| match body {
            _ if live.len() < threshold || is_empty => {
                one_by_one(body, tables, keys, live, found, Ahead { masks: in_flight, far })
            }
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(witness) => {
                // SAFETY: the witness proves that the CPU has AVX2.
                unsafe { avx2::lookup(witness, tables, keys, live, found) }
            }
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(witness) => {
                // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
                unsafe { avx512::lookup(witness, tables, keys, live, found) }
            }
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(witness) => {
                // SAFETY: the witness proves that the CPU has NEON.
                unsafe { neon::lookup(witness, tables, keys, live, found) }
            }
            _ => one_by_one(body, tables, keys, live, found, Ahead { masks: in_flight, far }),
        });
        self.counters.lookups += live.len() as u64;
        self.counters.hits += (live.len() - left.len()) as u64;
        self.counters.probes += probes;
        left
    }

    /// Looks up one by one, one mask after the other, then with every variant that can be used here, and leaves all
    /// counters as they were: a check of this library on live traffic.
    ///
    /// # Errors
    /// The first variant and lane whose result differs from that of the first variant.
    ///
    /// # Panics
    /// Where a lane has no key.
    pub fn compare_variants(&mut self, keys: &[FlowKey], live: LaneMask) -> Result<(), (Variant, usize)> {
        let hits: Vec<u64> = self.tables.subtables.iter().map(|s| s.hits).collect();
        let (counters, way) = (self.counters, self.way.get());
        let own = std::mem::replace(&mut self.way, AdaptiveDispatch::named(way));
        let mut wanted = None;
        let mut result = Ok(());
        let definition = [(Variant::Scalar, 1)];
        for (variant, masks) in definition.into_iter().chain(Variant::ALL.map(|v| (v, way.in_flight))) {
            self.set_in_flight(masks);
            if !self.set_variant(variant) {
                continue;
            }
            let mut found = [FlowRef::NONE; LANES_MAX];
            self.lookup_batch(keys, live, &mut found);
            let wanted = wanted.get_or_insert(found);
            if let Some(lane) = live.lanes().find(|&lane| found[lane] != wanted[lane]) {
                result = Err((variant, lane));
                break;
            }
        }
        (self.way, self.counters) = (own, counters);
        self.tables.subtables.iter_mut().zip(hits).for_each(|(s, hits)| s.hits = hits);
        result
    }

    /// Adds the megaflow of the packets that agree with `key` in the bits of `mask`, or in more
    /// ([`join_from`](MegaflowConfig::join_from)). Where there is one already it gets the new value and generation and keeps its
    /// counters. `now` is when it is used.
    ///
    /// # Errors
    /// Where the mask would be one too many; the cache is as before.
    pub fn insert(
        &mut self,
        key: &FlowKey,
        mask: &FlowMask,
        value: u32,
        generation: u32,
        now: u32,
    ) -> Result<FlowRef, MegaflowError> {
        if self.tables.flows.is_empty() {
            return Err(MegaflowError::NoFlows);
        }
        let joined;
        let (mask, existing) = match self.subtable_of(mask) {
            None if self.tables.order.len() >= self.config.join_from => {
                let mut union = self.tables.union.clone();
                union.add(mask);
                joined = union;
                (&joined, self.subtable_of(&joined))
            }
            existing => (mask, existing),
        };
        if let Some(id) = existing {
            let subtable = &self.tables.subtables[id as usize];
            if let Some(index) = subtable.find(&self.tables.flows, key, subtable.hash(key)) {
                let flow = &mut self.tables.flows[index as usize];
                (flow.value, flow.generation, flow.used) = (value, generation, now);
                return Ok(FlowRef { index, serial: flow.serial });
            }
        } else if self.tables.order.len() >= self.config.masks_max {
            self.counters.refused += 1;
            return Err(MegaflowError::Masks { masks_max: self.config.masks_max });
        }
        let id = if self.len() >= self.tables.flows.len() {
            self.evict(now);
            // It may have removed the subtable.
            self.subtable_of(mask)
        } else {
            existing
        };
        let id = id.unwrap_or_else(|| self.add_subtable(mask));
        let index = self.free.pop().unwrap_or_else(|| {
            self.owners.push(0);
            (self.owners.len() - 1) as u32
        });
        let flow = &mut self.tables.flows[index as usize];
        let serial = flow.serial.wrapping_add(1);
        *flow = Megaflow { value, generation, used: now, serial, ..Megaflow::FREE };
        self.tables.subtables[id as usize].insert(key, index, flow);
        self.owners[index as usize] = id;
        self.counters.inserted += 1;
        Ok(FlowRef { index, serial })
    }

    /// Returns whether the megaflow still exists.
    #[inline]
    pub fn is_live(&self, flow: FlowRef) -> bool {
        self.get(flow).is_some()
    }

    /// The megaflow, where it is still there.
    #[inline]
    pub fn get(&self, flow: FlowRef) -> Option<&Megaflow> {
        self.tables.flows.get(flow.index as usize).filter(|f| f.serial == flow.serial)
    }

    /// The megaflow, to be counted in.
    #[inline]
    pub fn get_mut(&mut self, flow: FlowRef) -> Option<&mut Megaflow> {
        self.tables.flows.get_mut(flow.index as usize).filter(|f| f.serial == flow.serial)
    }

    /// The key and mask of a megaflow.
    pub fn matching(&self, flow: FlowRef) -> Option<(FlowKey, FlowMask)> {
        let found = self.get(flow)?;
        let subtable = &self.tables.subtables[self.owners[flow.index as usize] as usize];
        Some((subtable.key(found), subtable.mask.clone()))
    }

    /// Returns whether the megaflow still exists and matches `key`.
    #[inline]
    pub fn matches(&self, flow: FlowRef, key: &FlowKey) -> bool {
        self.matching_at(flow.index, key) == Some(flow)
    }

    /// The megaflow at a place, where there is one and it matches `key`.
    #[inline(always)]
    pub fn matching_at(&self, index: u32, key: &FlowKey) -> Option<FlowRef> {
        let flow = self.tables.flows.get(index as usize).filter(|f| f.is_live())?;
        let subtable = &self.tables.subtables[*self.owners.get(index as usize)? as usize];
        subtable.matches(flow, key).then_some(FlowRef { index, serial: flow.serial })
    }

    /// Asks for what [`matching_at`](Self::matching_at) will touch.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        prefetch(&self.tables.flows, index as usize);
        prefetch(&self.owners, index as usize);
    }

    /// Removes a megaflow and returns what it was.
    pub fn remove(&mut self, flow: FlowRef) -> Option<Megaflow> {
        let found = *self.get(flow)?;
        self.tables.flows[flow.index as usize].serial = found.serial.wrapping_add(1);
        self.free.push(flow.index);
        let id = self.owners[flow.index as usize];
        let subtable = &mut self.tables.subtables[id as usize];
        subtable.remove(flow.index, &found);
        if subtable.is_empty() {
            self.tables.order.retain(|&other| other != id);
            self.free_subtables.push(id);
            self.stale = true;
        }
        Some(found)
    }

    /// Removes the megaflows for which `drop` says so; looks at up to `budget`, going on where the last
    /// call ended, so that a caller can spread the work. Returns how many were removed.
    pub fn sweep(&mut self, budget: usize, mut drop: impl FnMut(&Megaflow) -> bool) -> usize {
        let flows = self.owners.len();
        let mut removed = 0;
        for _ in 0..budget.min(flows) {
            self.hand = (self.hand + 1) % flows;
            let flow = self.tables.flows[self.hand];
            if flow.is_live() && drop(&flow) {
                self.remove(FlowRef { index: self.hand as u32, serial: flow.serial });
                removed += 1;
            }
        }
        removed
    }

    /// Puts the subtables in order of their hits since the last few calls: each call halves what came
    /// before. To be called now and then.
    pub fn rank(&mut self) {
        let subtables = &mut self.tables.subtables;
        let by_hits = |&id: &u32| std::cmp::Reverse(subtables[id as usize].hits);
        if !self.tables.order.is_sorted_by_key(by_hits) {
            self.tables.order.sort_by_key(by_hits);
            self.stale = true;
        }
        subtables.iter_mut().for_each(|s| s.hits /= 2);
    }

    /// Every megaflow.
    pub fn flows(&self) -> impl Iterator<Item = FlowRef> {
        let live = self.tables.flows[..self.owners.len()].iter().enumerate().filter(|(_, f)| f.is_live());
        live.map(|(i, f)| FlowRef { index: i as u32, serial: f.serial })
    }

    /// Number of megaflows.
    pub fn len(&self) -> usize {
        self.owners.len() - self.free.len()
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The masks in use with the number of megaflows of each, in the order in which they are tried.
    pub fn masks(&self) -> impl Iterator<Item = (&FlowMask, usize)> {
        self.tables.order.iter().map(|&id| {
            let subtable = &self.tables.subtables[id as usize];
            (&subtable.mask, subtable.len())
        })
    }

    /// Counters since the cache was made.
    pub fn counters(&self) -> MegaflowCounters {
        self.counters
    }

    /// Bytes in use; room reserved for further megaflows is not counted.
    pub fn table_bytes(&self) -> usize {
        self.owners.len() * size_of::<Megaflow>()
            + (self.free.capacity() + self.owners.capacity()) * 4
            + self.tables.subtables.capacity() * size_of::<Subtable>()
            + self.tables.subtables.iter().map(Subtable::table_bytes).sum::<usize>()
    }

    fn subtable_of(&self, mask: &FlowMask) -> Option<u32> {
        let digest = subtable::digest(mask);
        let is = |id: &u32| {
            let subtable = &self.tables.subtables[*id as usize];
            subtable.digest == digest && subtable.mask == *mask
        };
        self.tables.order.iter().copied().find(is)
    }

    fn add_subtable(&mut self, mask: &FlowMask) -> u32 {
        let made = Subtable::new(mask, &self.hash);
        self.tables.union.add(mask);
        let id = match self.free_subtables.pop() {
            Some(id) => {
                self.tables.subtables[id as usize] = made;
                id
            }
            None => {
                self.tables.subtables.push(made);
                (self.tables.subtables.len() - 1) as u32
            }
        };
        self.tables.order.push(id);
        self.stale = true;
        id
    }

    /// The columns of the batch follow the masks: once for all changes between two batches.
    #[cold]
    fn fit_scratch(&mut self) {
        let mut in_use = vec![false; self.tables.subtables.len()];
        self.tables.order.iter().for_each(|&id| in_use[id as usize] = true);
        let subtables = self.tables.subtables.iter_mut().zip(in_use);
        (self.tables.scratch, self.tables.union) =
            Scratch::new(subtables.filter(|(_, used)| *used).map(|(s, _)| s));
        self.tables.groups = Groups::new(&self.tables.order, &self.tables.subtables);
        self.stale = false;
    }

    /// Removes the least recently used of the next few megaflows.
    fn evict(&mut self, now: u32) {
        let flows = &self.tables.flows[..self.owners.len()];
        // Signed: a clock that was set back makes megaflows young, not ancient.
        let age = |at: usize| now.wrapping_sub(flows[at].used) as i32;
        let mut oldest: Option<usize> = None;
        let mut seen = 0;
        while seen < EVICT_SAMPLE.min(self.len()) {
            self.hand = (self.hand + 1) % flows.len();
            if flows[self.hand].is_live() {
                seen += 1;
                if oldest.is_none_or(|o| age(self.hand) > age(o)) {
                    oldest = Some(self.hand);
                }
            }
        }
        if let Some(at) = oldest {
            self.remove(FlowRef { index: at as u32, serial: self.tables.flows[at].serial });
            self.counters.evicted += 1;
        }
    }
}

/// Looks up few packets, or any number by the portable body.
#[inline]
fn one_by_one(
    body: Backend,
    tables: &mut Tables,
    keys: &[FlowKey],
    live: LaneMask,
    found: &mut [FlowRef],
    ahead: Ahead,
) -> (LaneMask, u64) {
    let enough = live.len() > 1 || tables.order.len() > ALONE_MASKS;
    if ahead.masks >= GROUP && enough {
        interleaved::lookup(body, tables, keys, live, found, ahead)
    } else {
        scalar::lookup(tables, keys, live, found)
    }
}
