//! From key to path: exact-match cache, megaflow cache, rule tables.

use std::collections::HashSet;

use flowlane::cache::{ExactMatchCache, FlowRef, MegaflowCache, MegaflowConfig};
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;

use super::stages::{Stage, Stages};
use crate::frame::Frame;
use crate::pipeline::{PathId, Paths, Pipeline, Step};

/// Sizes and policies of the caches.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Entries of the exact-match cache; 0 for none.
    pub exact_entries: usize,
    /// One in so many megaflow hits is inserted into it.
    pub exact_insert_inverse: u32,
    /// Most megaflows; 0 for none: every packet goes through the tables.
    pub megaflows_max: usize,
    /// Most megaflow masks.
    pub masks_max: usize,
    /// A megaflow that no packet has matched for so long is removed.
    pub idle_ns: u64,
    /// Keys the hashes.
    pub seed: u32,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            exact_entries: 8192,
            exact_insert_inverse: 100,
            megaflows_max: 1 << 20,
            masks_max: 1024,
            idle_ns: 10_000_000_000,
            seed: 0,
        }
    }
}

/// Megaflows keep times in units of 2²⁰ ns, about a millisecond: 32 bits of it last 52 days.
const TICK_SHIFT: u32 = 20;

fn ticks(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

/// Caches, tables and paths.
pub struct Lookup {
    /// The rule tables.
    pub pipeline: Pipeline,
    /// Paths that megaflows lead to.
    pub paths: Paths,
    /// The megaflow cache.
    pub megaflows: MegaflowCache,
    /// Packets that the exact-match cache knew.
    pub exact_hits: u64,
    /// Packets that it was asked for.
    pub exact_lookups: u64,
    /// Packets that went through the tables.
    pub slow: u64,
    exact: Option<ExactMatchCache>,
    config: CacheConfig,
    /// Paths above which unused ones are looked for.
    paths_limit: usize,
}

impl Lookup {
    /// Empty caches in front of `pipeline`.
    pub fn new(pipeline: Pipeline, config: CacheConfig) -> Self {
        let exact = (config.exact_entries > 0 && config.megaflows_max > 0).then(|| {
            ExactMatchCache::new(config.exact_entries, config.exact_insert_inverse, config.seed ^ 0x5bd1_e995)
        });
        let megaflows = MegaflowCache::new(MegaflowConfig {
            flows_max: config.megaflows_max,
            masks_max: config.masks_max,
            seed: config.seed.into(),
            ..MegaflowConfig::default()
        });
        Self {
            pipeline,
            paths: Paths::default(),
            megaflows,
            exact_hits: 0,
            exact_lookups: 0,
            slow: 0,
            exact,
            config,
            paths_limit: 4096,
        }
    }

    /// Finds the path of every `live` lane.
    #[inline]
    pub fn resolve(
        &mut self,
        keys: &[FlowKey],
        frames: &[Frame],
        live: LaneMask,
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
        stages: &mut Stages,
    ) {
        let mut timer = stages.start();
        let mut left = live;
        let mut hashes = [0; LANES_MAX];
        if self.exact.is_some() {
            let asked = left.len() as u64;
            left = self.exact_stage(keys, frames, left, now_ns, paths, &mut hashes);
            timer = stages.stop(Stage::ExactMatch, asked, timer);
        }
        if !left.is_empty() && self.config.megaflows_max > 0 {
            let asked = left.len() as u64;
            left = self.megaflow_stage(keys, frames, left, now_ns, paths, &hashes);
            timer = stages.stop(Stage::Megaflow, asked, timer);
        }
        if !left.is_empty() {
            for lane in left.lanes() {
                paths[lane] = self.slow_path(&keys[lane], frames[lane].len(), now_ns);
            }
            stages.stop(Stage::SlowPath, left.len() as u64, timer);
        }
    }

    fn exact_stage(
        &mut self,
        keys: &[FlowKey],
        frames: &[Frame],
        mut left: LaneMask,
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
        hashes: &mut [u32; LANES_MAX],
    ) -> LaneMask {
        let Some(exact) = &self.exact else { return left };
        let generation = self.pipeline.generation();
        self.exact_lookups += left.len() as u64;
        for lane in left.lanes() {
            hashes[lane] = exact.hash(&keys[lane]);
            let Some(found) = exact.lookup(&keys[lane], hashes[lane]) else { continue };
            let Some(flow) = self.megaflows.get_mut(found).filter(|f| f.generation == generation) else {
                continue;
            };
            (flow.packets, flow.bytes) = (flow.packets + 1, flow.bytes + frames[lane].len() as u64);
            flow.used = ticks(now_ns);
            paths[lane] = PathId(flow.value);
            self.paths.prefetch(paths[lane]);
            self.exact_hits += 1;
            left.remove(lane);
        }
        left
    }

    #[inline]
    fn megaflow_stage(
        &mut self,
        keys: &[FlowKey],
        frames: &[Frame],
        asked: LaneMask,
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
        hashes: &[u32; LANES_MAX],
    ) -> LaneMask {
        let mut found = [FlowRef::NONE; LANES_MAX];
        let mut left = self.megaflows.lookup_batch(keys, asked, &mut found);
        let generation = self.pipeline.generation();
        for lane in LaneMask(asked.0 & !left.0).lanes() {
            let flow = self.megaflows.get_mut(found[lane]).filter(|f| f.generation == generation);
            let Some(flow) = flow else {
                left.0 |= 1 << lane;
                continue;
            };
            (flow.packets, flow.bytes) = (flow.packets + 1, flow.bytes + frames[lane].len() as u64);
            flow.used = ticks(now_ns);
            paths[lane] = PathId(flow.value);
            self.paths.prefetch(paths[lane]);
            if let Some(exact) = &mut self.exact {
                exact.offer(&keys[lane], hashes[lane], found[lane]);
            }
        }
        left
    }

    /// Through the tables; the answer becomes a megaflow.
    fn slow_path(&mut self, key: &FlowKey, bytes: usize, now_ns: u64) -> PathId {
        let generation = self.pipeline.generation();
        if self.config.megaflows_max > 0 {
            // A lane before this one may have brought the megaflow; and what the rules have outdated must
            // go, since it may overlap what comes.
            while let Some(found) = self.megaflows.lookup(key) {
                let flow = self.megaflows.get_mut(found).expect("found just now");
                if flow.generation == generation {
                    (flow.packets, flow.bytes) = (flow.packets + 1, flow.bytes + bytes as u64);
                    flow.used = ticks(now_ns);
                    return PathId(flow.value);
                }
                self.megaflows.remove(found);
            }
        }
        self.slow += 1;
        let translation = self.pipeline.translate(key);
        let path = self.paths.intern(translation.steps);
        if let Ok(made) = self.megaflows.insert(key, &translation.mask, path.0, generation, ticks(now_ns))
            && let Some(flow) = self.megaflows.get_mut(made)
        {
            (flow.packets, flow.bytes) = (1, bytes as u64);
        }
        path
    }

    /// Credits the rules of a path up to the step at which a packet left it.
    pub fn credit_until(&mut self, path: PathId, at: usize, bytes: u64) {
        for step in &self.paths.steps(path)[..at] {
            if let Step::Matched { table, rule } = *step {
                self.pipeline.credit(table, rule, 1, bytes);
            }
        }
    }

    /// Moves the paths' counters to the rules.
    pub fn collect_counters(&mut self) {
        let pipeline = &mut self.pipeline;
        self.paths.collect(|table, rule, packets, bytes| pipeline.credit(table, rule, packets, bytes));
    }

    /// Ranks the masks, removes idle and outdated megaflows (of `budget`), discards unused paths.
    pub fn maintain(&mut self, now_ns: u64, budget: usize) {
        self.megaflows.rank();
        let generation = self.pipeline.generation();
        let now = ticks(now_ns);
        let idle = i32::try_from(self.config.idle_ns >> TICK_SHIFT).unwrap_or(i32::MAX);
        // Signed: a clock that was set back makes megaflows young, not ancient.
        let age = |used: u32| now.wrapping_sub(used) as i32;
        self.megaflows.sweep(budget, |f| f.generation != generation || age(f.used) > idle);
        if self.paths.len() > self.paths_limit {
            self.collect_counters();
            let used: HashSet<PathId> = self
                .megaflows
                .flows()
                .filter_map(|f| self.megaflows.get(f))
                .map(|f| PathId(f.value))
                .collect();
            self.paths.retain(&used);
            self.paths_limit = (2 * self.paths.len()).max(4096);
        }
    }

    /// Bytes that the exact-match cache occupies.
    pub fn exact_bytes(&self) -> usize {
        self.exact.as_ref().map_or(0, ExactMatchCache::table_bytes)
    }
}
