//! Lookup of the path for a key: exact-match cache, signature-match cache, megaflow cache, rule tables.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::collections::HashSet;

use flowlane::cache::{ExactMatchCache, FlowRef, MegaflowCache, MegaflowConfig, SignatureCache};
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::{Field, word};
use flowlane::packet::key::{FlowKey, FlowMask};

use super::admission::Admission;
use super::cache_policy::CacheSet;
use super::hybrid::{Hybrid, HybridCounters, Mode};
use super::path::{PathId, Paths};
use super::pipeline::Pipeline;
use super::stages::{Stage, Stages};
use super::validate::{Difference, Validator};
use super::xlate::{Walk, advance, translate};
use crate::packet::recirculate::{entry, is_bare};
use crate::packet::{Burst, Frame};
use crate::ruleset::Steps;

/// Sizes and policies of the flow caches.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Entries of the exact-match cache (128 bytes each); 0 disables it.
    pub exact_entries: usize,
    /// Inverse of the share of megaflow hits that are inserted into the exact-match cache.
    pub exact_insert_inverse: u32,
    /// Entries of the signature-match cache (8 bytes each); 0 disables it.
    pub signature_entries: usize,
    /// Inverse of the share of megaflow hits that are inserted into the signature-match cache.
    pub signature_insert_inverse: u32,
    /// Probe caches only while that is cheaper than the tables, which is measured continuously, and install megaflows only
    /// for flows that recur. If not set, probe all caches always, and install a megaflow for every packet that misses them.
    pub adaptive: bool,
    /// Tune low- and high-flow-count traffic separately: changes between the two are followed at once, at most once a second.
    pub hybrid: bool,
    /// The maximum number of megaflows (about 100 bytes each); 0 for none: every packet goes through the tables.
    pub megaflows_max: usize,
    /// The maximum number of distinct megaflow masks.
    pub masks_max: usize,
    /// The time after which a megaflow that no packet has matched is removed; in the configuration, seconds.
    #[serde(rename = "idle_s", deserialize_with = "seconds")]
    #[schemars(with = "u64", extend("default" = IDLE_S))]
    pub idle_ns: u64,
    /// Keys the hashes.
    #[serde(skip)]
    pub seed: u32,
}

/// The default of [`CacheConfig::idle_ns`], in seconds.
const IDLE_S: u64 = 10;

/// Reads seconds as nanoseconds.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    u64::deserialize(deserializer).map(|seconds| seconds.saturating_mul(1_000_000_000))
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            exact_entries: 8192,
            exact_insert_inverse: 100,
            signature_entries: 1 << 18,
            signature_insert_inverse: 8,
            adaptive: true,
            hybrid: true,
            megaflows_max: MegaflowConfig::FLOWS_MAX_DEFAULT,
            masks_max: MegaflowConfig::MASKS_MAX_DEFAULT,
            idle_ns: IDLE_S * 1_000_000_000,
            seed: 0,
        }
    }
}

/// Inverse of the share of cycles for installing megaflows: while caches are probed, and while packets go to the tables first.
const SPENT_INVERSE: u32 = 4;
const SPENT_INVERSE_TABLES: u32 = 32;

/// Cycles a packet from which on tables are dear: a megaflow pays after a few packets.
const DEAR_CYCLES: u64 = 2000;
/// Inverse of the share of cycles for installing megaflows while packets go to dear tables first.
const SPENT_INVERSE_DEAR: u32 = 8;

/// Maximum comparisons of a burst's megaflows with rule changes: some microseconds.
const COMPARISONS: u32 = 512;

/// Megaflows keep times in units of 2²⁰ ns, about a millisecond: 32 bits last 52 days.
const TICK_SHIFT: u32 = 20;

pub(super) fn ticks(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

/// A cache in front of the megaflow cache.
#[derive(Clone, Copy)]
enum Front {
    Exact,
    Signature,
}

impl Front {
    fn name(self) -> &'static str {
        match self {
            Front::Exact => "exact-match",
            Front::Signature => "signature-match",
        }
    }
}

/// The state of a packet's upcall.
pub(super) enum Upcall {
    /// Complete: the packet's path.
    Path(PathId),
    /// Waiting for an offloaded table. `walk` is `None` if that is the packet's first table.
    Waits { table: u8, walk: Option<Box<Walk>> },
}

/// Caches, tables and paths.
pub struct Lookup {
    /// The rule tables.
    pub pipeline: Pipeline,
    /// The paths that megaflows point to.
    pub paths: Paths,
    /// The megaflow cache.
    pub megaflows: MegaflowCache,
    /// Hits of the exact-match cache.
    pub exact_hits: u64,
    /// Packets that it was asked for.
    pub exact_lookups: u64,
    /// Hits of the signature-match cache.
    pub signature_hits: u64,
    /// Packets that it was asked for.
    pub signature_lookups: u64,
    /// Upcalls: packets that missed all caches and were translated.
    pub slow: u64,
    /// Cycles that upcalls took.
    pub slow_cycles: u64,
    /// Megaflows of earlier generations that were found still valid.
    pub restamped: u64,
    /// Comparisons with rule changes left in this burst.
    comparisons_left: u32,
    /// Look packets of this burst up in the tables, not in caches.
    pub(super) tables_first: bool,
    /// Check the results of the caches (`--validate-simd`).
    pub(super) validate: bool,
    /// The first difference found.
    pub(super) difference: Option<Difference>,
    exact: Option<ExactMatchCache>,
    signature: Option<SignatureCache>,
    hybrid: Hybrid,
    admission: Admission,
    config: CacheConfig,
    /// Number of paths above which unused ones are discarded.
    paths_limit: usize,
    /// Steps of packets that enter a table that does not exist: none.
    pub(super) nothing: Steps,
}

impl Lookup {
    /// Makes empty caches in front of `pipeline`.
    pub fn new(pipeline: Pipeline, config: CacheConfig) -> Self {
        let cached = config.megaflows_max > 0;
        let exact = (config.exact_entries > 0 && cached).then(|| {
            let seed = u64::from(config.seed ^ 0x5bd1_e995);
            ExactMatchCache::new(config.exact_entries, config.exact_insert_inverse, seed)
        });
        let signature = (config.signature_entries > 0 && cached).then(|| {
            let seed = u64::from(config.seed ^ 0x1b87_3593);
            SignatureCache::new(config.signature_entries, config.signature_insert_inverse, seed)
        });
        let all = CacheSet(u8::from(exact.is_some()) | u8::from(signature.is_some()) << 1);
        let mut sets: Vec<CacheSet> = (0..4).map(CacheSet).filter(|set| set.0 & !all.0 == 0).collect();
        match (config.adaptive, cached) {
            (_, false) => sets = vec![CacheSet::TABLES],
            (false, true) => sets = vec![all],
            // Packets that wait for an answer must install a megaflow.
            (true, true) if pipeline.defers() => {}
            (true, true) => sets.insert(0, CacheSet::TABLES),
        }
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
            signature_hits: 0,
            signature_lookups: 0,
            slow: 0,
            slow_cycles: 0,
            restamped: 0,
            comparisons_left: COMPARISONS,
            tables_first: false,
            validate: false,
            difference: None,
            exact,
            signature,
            hybrid: Hybrid::new(sets, config.hybrid, u64::from(config.seed ^ 0x85eb_ca6b)),
            admission: Admission::new(u64::from(config.seed ^ 0xc2b2_ae35)),
            config,
            paths_limit: 4096,
            nothing: Steps::default(),
        }
    }

    /// Begins a burst: decides how its packets are looked up.
    #[inline]
    pub(super) fn begin_burst(&mut self, burst: &Burst, live: LaneMask) {
        self.comparisons_left = COMPARISONS;
        self.hybrid.see(&burst.keys, live, burst.times_ns[burst.len() - 1]);
        // Validation needs the cache path, and offloaded tables need an upcall.
        let compared = self.validate && self.config.megaflows_max > 0;
        self.tables_first =
            self.hybrid.selector().cache_set().tables() && !compared && !self.pipeline.defers();
    }

    /// Ends a burst: reports its cost to the cache selection and admission. `cycles` excludes parsing and upcalls.
    #[inline]
    pub(super) fn end_burst(&mut self, packets: usize, cycles: u64) {
        self.hybrid.selector_mut().report(packets, cycles);
        let inverse = match self.hybrid.selector().best().tables() {
            true if cycles > DEAR_CYCLES * packets as u64 => SPENT_INVERSE_DEAR,
            true => SPENT_INVERSE_TABLES,
            false => SPENT_INVERSE,
        };
        self.admission.earn(cycles, inverse);
    }

    /// Finds the paths of `live` lanes that hit a cache, or for which a megaflow is installed. Returns the other lanes, which
    /// must go through the tables.
    #[inline]
    pub(super) fn resolve(
        &mut self,
        burst: &Burst,
        live: LaneMask,
        paths: &mut [PathId; LANES_MAX],
        stages: &mut Stages,
    ) -> LaneMask {
        let mut left = live;
        // Caches use one time for the whole burst: the last live frame's.
        let now_ns = burst.times_ns[LANES_MAX - 1 - live.0.leading_zeros() as usize];
        if !self.tables_first {
            left = self.ask_caches(burst, left, now_ns, paths, stages);
        }
        if left.is_empty() || self.config.megaflows_max == 0 || self.pipeline.defers() {
            return left;
        }
        if self.tables_first && !(self.admission.has_credit() && self.hybrid.selector().offers(false)) {
            return left;
        }
        let timer = stages.start();
        let mut slow = 0;
        for lane in left.lanes() {
            if self.config.adaptive && !self.admission.admits(&burst.keys[lane]) {
                continue;
            }
            let began = stages.start();
            paths[lane] = self.slow_path(&burst.keys[lane], burst.frames[lane].len(), now_ns);
            left.remove(lane);
            slow += 1;
            self.admission.spend(stages.start().since(began));
            if self.config.adaptive && !self.admission.has_credit() {
                break;
            }
        }
        if slow > 0 {
            self.slow_cycles += stages.stop(Stage::SlowPath, slow, timer).since(timer);
        }
        left
    }

    /// Finds the paths of the lanes that hit a cache; returns the others.
    #[inline]
    fn ask_caches(
        &mut self,
        burst: &Burst,
        mut left: LaneMask,
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
        stages: &mut Stages,
    ) -> LaneMask {
        let mut timer = stages.start();
        let caches = self.hybrid.selector().cache_set();
        if caches.exact() {
            let asked = left;
            left = self.front_stage(Front::Exact, burst, left, now_ns, paths);
            timer = stages.stop(Stage::ExactMatch, asked.len() as u64, timer);
        }
        if caches.signature() && !left.is_empty() {
            let asked = left;
            left = self.front_stage(Front::Signature, burst, left, now_ns, paths);
            timer = stages.stop(Stage::SignatureMatch, asked.len() as u64, timer);
        }
        if !left.is_empty() && self.config.megaflows_max > 0 {
            let asked = left;
            left = self.megaflow_stage(burst, left, now_ns, paths);
            stages.stop(Stage::Megaflow, asked.len() as u64, timer);
        }
        left
    }

    /// Returns the secret seed of the caches.
    pub(crate) fn seed(&self) -> u64 {
        self.config.seed.into()
    }

    /// Returns the set of caches that is probed between trials.
    pub fn asked(&self) -> CacheSet {
        self.hybrid.selector().best()
    }

    /// Returns the hybrid mode; `None` if there is only one.
    pub fn mode(&self) -> Option<Mode> {
        self.hybrid.mode()
    }

    /// Returns the counters of the hybrid modes.
    pub fn hybrid_counters(&self) -> HybridCounters {
        self.hybrid.counters
    }

    /// Probes a cache in front of the megaflow cache.
    fn front_stage(
        &mut self,
        front: Front,
        burst: &Burst,
        asked: LaneMask,
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
    ) -> LaneMask {
        let mut found = [FlowRef::NONE; LANES_MAX];
        let megaflows = &self.megaflows;
        let left = match (front, &self.exact, &self.signature) {
            (Front::Exact, Some(exact), _) => exact.lookup_batch(megaflows, &burst.keys, asked, &mut found),
            (Front::Signature, _, Some(signature)) => {
                signature.lookup_batch(megaflows, &burst.keys, asked, &mut found)
            }
            _ => return asked,
        };
        if self.validate && self.difference.is_none() {
            let hit = LaneMask(asked.0 & !left.0);
            let (keys, frames) = (&burst.keys, &burst.frames);
            let in_port = keys[0].word(word::IN_PORT);
            let checked = Validator::hits(front.name(), megaflows, keys, frames, (hit, &found), in_port);
            self.difference = checked.err();
        }
        let left = self.credit(&burst.frames, asked, left, &found, now_ns, paths);
        let (lookups, hits) = match front {
            Front::Exact => (&mut self.exact_lookups, &mut self.exact_hits),
            Front::Signature => (&mut self.signature_lookups, &mut self.signature_hits),
        };
        *lookups += asked.len() as u64;
        *hits += (asked.len() - left.len()) as u64;
        left
    }

    #[inline]
    fn megaflow_stage(
        &mut self,
        burst: &Burst,
        asked: LaneMask,
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
    ) -> LaneMask {
        if self.validate && self.difference.is_none() {
            let (keys, frames) = (&burst.keys, &burst.frames);
            let in_port = keys[0].word(word::IN_PORT);
            let compared = Validator::megaflows(&mut self.megaflows, keys, frames, asked, in_port);
            self.difference = compared.err();
        }
        let mut found = [FlowRef::NONE; LANES_MAX];
        let left = self.megaflows.lookup_batch(&burst.keys, asked, &mut found);
        let left = self.credit(&burst.frames, asked, left, &found, now_ns, paths);
        let hit = LaneMask(asked.0 & !left.0);
        let selector = self.hybrid.selector();
        let asked = selector.best();
        if let Some(exact) = &mut self.exact
            && selector.offers(asked.exact())
        {
            exact.offer_batch(&burst.keys, hit, &found);
        }
        if let Some(signature) = &mut self.signature
            && selector.offers(asked.signature())
        {
            signature.offer_batch(&burst.keys, hit, &found);
        }
        left
    }

    /// Credits the megaflows of the lanes that were `asked` and are not `left`, and writes their `paths`. Returns the misses:
    /// `left`, and lanes whose megaflow is of an earlier generation and may not [hold](Self::still_holds) any more.
    #[inline]
    fn credit(
        &mut self,
        frames: &[Frame],
        asked: LaneMask,
        mut left: LaneMask,
        found: &[FlowRef; LANES_MAX],
        now_ns: u64,
        paths: &mut [PathId; LANES_MAX],
    ) -> LaneMask {
        let generation = self.pipeline.generation();
        let used = ticks(now_ns);
        for lane in LaneMask(asked.0 & !left.0).lanes() {
            let current = self.megaflows.get(found[lane]).is_some_and(|flow| flow.generation == generation);
            if !current && !self.still_holds(found[lane]) {
                left.0 |= 1 << lane;
                continue;
            }
            let flow = self.megaflows.get_mut(found[lane]).expect("it is current");
            (flow.packets, flow.bytes) = (flow.packets + 1, flow.bytes + frames[lane].len() as u64);
            flow.used = used;
            paths[lane] = PathId(flow.value);
            self.paths.prefetch(paths[lane]);
        }
        left
    }

    /// Returns whether no rule change since its generation concerns a megaflow, and moves it to the current generation then.
    /// Returns false where the check would take too long: its packets go through the tables meanwhile.
    #[cold]
    fn still_holds(&mut self, found: FlowRef) -> bool {
        let Some(flow) = self.megaflows.get(found) else { return false };
        let path = PathId(flow.value);
        let ruleset = self.pipeline.ruleset();
        let Some(events) = ruleset.events_since_generation(flow.generation) else { return false };
        let Some((key, mask)) = self.megaflows.matching(found) else { return false };
        let steps = self.paths.steps(path);
        for event in events {
            let Some(left) = self.comparisons_left.checked_sub(1) else { return false };
            self.comparisons_left = left;
            if event.concerns(steps, &key, &mask) {
                return false;
            }
        }
        let generation = ruleset.generation();
        self.megaflows.get_mut(found).expect("it was there just now").generation = generation;
        self.restamped += 1;
        true
    }

    /// Translates a packet through the tables, and installs a megaflow.
    pub(super) fn slow_path(&mut self, key: &FlowKey, bytes: usize, now_ns: u64) -> PathId {
        if let Some(path) = self.known(key, bytes, now_ns) {
            return path;
        }
        self.slow += 1;
        let translation = translate(&self.pipeline, key);
        let path = self.paths.intern(translation.steps);
        self.insert(key, &translation.mask, path, bytes, now_ns);
        path
    }

    /// Begins an upcall: follows a packet up to the first offloaded table.
    pub(super) fn begin(&mut self, key: &FlowKey, bytes: usize, now_ns: u64) -> Upcall {
        if let Some(path) = self.known(key, bytes, now_ns) {
            return Upcall::Path(path);
        }
        self.slow += 1;
        let table = entry(key);
        if self.pipeline.deferred(table).is_some() && !is_bare(key) {
            return Upcall::Waits { table, walk: None };
        }
        let mut walk = Box::new(Walk::new(key));
        if let Some(table) = advance(&self.pipeline, &mut walk, None) {
            return Upcall::Waits { table, walk: Some(walk) };
        }
        let end = walk.end();
        let path = self.paths.intern(end.steps);
        self.insert(key, &end.mask, path, bytes, now_ns);
        Upcall::Path(path)
    }

    /// Installs a megaflow after a late answer, and returns its path; if another packet has installed one meanwhile, that one's.
    pub(super) fn remember(
        &mut self,
        key: &FlowKey,
        mut mask: FlowMask,
        path: PathId,
        bytes: usize,
        now_ns: u64,
    ) -> PathId {
        if let Some(path) = self.known(key, bytes, now_ns) {
            return path;
        }
        mask.add_field(Field::RecircId);
        mask.add_field(Field::Malformed);
        self.insert(key, &mask, path, bytes, now_ns);
        path
    }

    /// Returns the path of a megaflow that an earlier lane may have installed. Removes outdated ones, which may overlap the new
    /// one.
    fn known(&mut self, key: &FlowKey, bytes: usize, now_ns: u64) -> Option<PathId> {
        if self.config.megaflows_max == 0 {
            return None;
        }
        let generation = self.pipeline.generation();
        while let Some(found) = self.megaflows.lookup(key) {
            let current = self.megaflows.get(found).is_some_and(|flow| flow.generation == generation);
            if current || self.still_holds(found) {
                let flow = self.megaflows.get_mut(found).expect("found just now");
                (flow.packets, flow.bytes) = (flow.packets + 1, flow.bytes + bytes as u64);
                flow.used = ticks(now_ns);
                return Some(PathId(flow.value));
            }
            self.megaflows.remove(found);
        }
        None
    }

    fn insert(&mut self, key: &FlowKey, mask: &FlowMask, path: PathId, bytes: usize, now_ns: u64) {
        let generation = self.pipeline.generation();
        if let Ok(made) = self.megaflows.insert(key, mask, path.0, generation, ticks(now_ns))
            && let Some(flow) = self.megaflows.get_mut(made)
        {
            (flow.packets, flow.bytes) = (1, bytes as u64);
        }
    }

    /// Credits the rules of a path up to the step `at` which a packet left it.
    pub fn credit_until(&mut self, path: PathId, at: usize, bytes: u64) {
        for (table, rule) in self.paths.marks_until(path, at) {
            self.pipeline.credit(table, rule, 1, bytes);
        }
    }

    /// Moves the paths' counters to the rules.
    pub fn collect_counters(&mut self) {
        let pipeline = &mut self.pipeline;
        let wanted = pipeline.wanted();
        self.paths.collect(|table, rule, packets, bytes| pipeline.credit(table, rule, packets, bytes));
        pipeline.release(wanted);
    }

    /// Takes the newest ruleset between two bursts, and flushes the paths' counters if they are wanted. Returns whether the ruleset
    /// has changed.
    #[inline]
    pub(super) fn follow(&mut self, now_ns: u64) -> bool {
        let is_new = self.pipeline.follow(now_ns);
        if self.pipeline.wants_counters() {
            self.collect_counters();
        }
        is_new
    }

    /// Ranks the masks, removes idle and outdated megaflows (checks up to `budget`), and discards unused paths: those that no
    /// megaflow points to and that `others` does not name.
    pub fn maintain<I: Iterator<Item = PathId>>(
        &mut self,
        now_ns: u64,
        budget: usize,
        others: impl FnOnce() -> I,
    ) {
        self.megaflows.rank();
        let generation = self.pipeline.generation();
        let now = ticks(now_ns);
        let idle = i32::try_from(self.config.idle_ns >> TICK_SHIFT).unwrap_or(i32::MAX);
        // Signed: after the clock was set back, megaflows are young, not ancient.
        let age = |used: u32| now.wrapping_sub(used) as i32;
        // Those of an earlier generation may still hold while the changes since are known.
        let ruleset = self.pipeline.ruleset();
        let lost = |generation: u32| ruleset.events_since_generation(generation).is_none();
        self.megaflows
            .sweep(budget, |f| age(f.used) > idle || f.generation != generation && lost(f.generation));
        if self.paths.len() > self.paths_limit {
            self.collect_counters();
            let of_megaflows = self.megaflows.flows().filter_map(|f| self.megaflows.get(f));
            let used: HashSet<PathId> = of_megaflows.map(|f| PathId(f.value)).chain(others()).collect();
            self.paths.retain(&used);
            self.paths_limit = (2 * self.paths.len()).max(4096);
        }
    }

    /// Returns the size of the signature-match cache in bytes.
    pub fn signature_bytes(&self) -> usize {
        self.signature.as_ref().map_or(0, SignatureCache::table_bytes)
    }

    /// Returns the size of the exact-match cache in bytes.
    pub fn exact_bytes(&self) -> usize {
        self.exact.as_ref().map_or(0, ExactMatchCache::table_bytes)
    }
}
