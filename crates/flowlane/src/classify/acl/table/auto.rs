//! Engine selection by measurement: a contest of engines for the present rules.

use super::{Acl, AclEngine};
use crate::classify::acl::{BuildError, Condition, Engine, MatchId, WordKind};
use crate::classify::auto::{medians, winner};

/// Rounds that count, after one to warm up.
const ROUNDS: usize = 15;
/// Most keys of a round: their table accesses exceed the first-level cache.
const KEYS_MAX: usize = 4096;
/// Keys in a batch.
const BATCH: usize = 64;
/// Rules up to which brute force takes part.
const BRUTE_RULES_MAX: usize = 512;

/// A candidate of a contest.
#[derive(Clone, PartialEq, Debug)]
pub struct AclCandidate {
    /// The engine.
    pub engine: AclEngine,
    /// The median of its rounds, in ticks per key; `None` where it could not be built.
    pub ticks: Option<f64>,
    /// Its size.
    pub table_bytes: usize,
    /// The error of its build.
    pub refused: Option<BuildError>,
}

/// The result of a contest.
#[derive(Clone, PartialEq, Debug)]
pub struct AclContest {
    /// The candidates.
    pub candidates: Vec<AclCandidate>,
    /// The engine that was chosen.
    pub chosen: AclEngine,
}

impl<const W: usize> Acl<W> {
    /// Measures the engines with these keys, or with keys drawn from the rules where there are none, and rebuilds with
    /// the fastest. `clock` may count anything. Does nothing but a rebuild where the engine was named.
    ///
    /// # Errors
    /// Where the budget is too small for every engine; the table is as before.
    #[inline(never)]
    pub fn choose(
        &mut self,
        sample: &[[u32; W]],
        clock: &mut dyn FnMut() -> u64,
    ) -> Result<AclContest, BuildError> {
        if self.config.engine != AclEngine::Auto {
            self.rebuild()?;
            return Ok(AclContest { candidates: Vec::new(), chosen: self.config.engine });
        }
        let own;
        let keys = match sample {
            [] => {
                let live: Vec<_> = self.entries().map(|e| e.condition).collect();
                own = drawn(self.layout.kinds(), &live, KEYS_MAX, self.config.seed);
                &own[..]
            }
            sample => &sample[..sample.len().min(KEYS_MAX)],
        };
        let brute = (self.len() <= BRUTE_RULES_MAX).then_some(AclEngine::Brute);
        let engines: Vec<AclEngine> =
            brute.into_iter().chain([AclEngine::Tree, AclEngine::Dynamic]).collect();
        let built: Vec<_> = engines.iter().map(|engine| self.candidate(*engine)).collect();
        let ticks = compare(&built, keys, clock);
        let default = engines.iter().zip(&ticks).position(|(_, ticks)| ticks.is_some());
        let Some(default) = default else {
            return Err(built.into_iter().find_map(Result::err).expect("every candidate was refused"));
        };
        // Brute force is the default only where it is likely to be best.
        let many = brute.is_some() && self.len() > self.config.brute_rules_max();
        let default = if many { default.max(1) } else { default };
        let chosen = engines[winner(&ticks, default)];
        let candidates = engines.iter().zip(ticks).zip(built).map(|((engine, ticks), built)| AclCandidate {
            engine: *engine,
            ticks,
            table_bytes: built.as_ref().map_or(0, |e| e.table_bytes()),
            refused: built.err(),
        });
        let candidates = candidates.collect();
        self.rebuild_with(chosen)?;
        Ok(AclContest { candidates, chosen })
    }
}

/// Draws keys that these rules match, and a few random ones.
pub(super) fn drawn<const W: usize>(
    kinds: &[WordKind; W],
    rules: &[Condition<W>],
    keys: usize,
    seed: u64,
) -> Vec<[u32; W]> {
    let mut state = seed;
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let one = |_| match rules.get((random() % (rules.len().max(1) as u64)) as usize) {
        Some(condition) if !random().is_multiple_of(20) => condition.drawn(kinds, &mut random()),
        _ => std::array::from_fn(|_| random() as u32),
    };
    (0..keys).map(one).collect()
}

/// Returns the median ticks per key of each engine that was built.
fn compare<const W: usize>(
    engines: &[Result<Box<dyn Engine<W>>, BuildError>],
    keys: &[[u32; W]],
    clock: &mut dyn FnMut() -> u64,
) -> Vec<Option<f64>> {
    let built: Vec<_> = engines.iter().flatten().collect();
    let mut verdicts = [MatchId::NONE; BATCH];
    let medians = medians(built.len(), ROUNDS, clock, |place| {
        for keys in keys.chunks(BATCH) {
            built[place].lookup_batch(keys, &mut verdicts[..keys.len()]);
            std::hint::black_box(&verdicts);
        }
    });
    let mut ticks = medians.into_iter().map(|ticks| ticks as f64 / keys.len().max(1) as f64);
    engines.iter().map(|engine| engine.as_ref().ok().and_then(|_| ticks.next())).collect()
}
