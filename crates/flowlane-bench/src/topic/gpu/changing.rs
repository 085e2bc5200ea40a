//! Lookups while rules change.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

use flowlane::classify::acl::AclConfig;
use flowlane::classify::{AclSearch, AsyncEngine, Hit, RuleEngine};
use flowlane::generate::{Profile, Random, RuleConfig, draw_key, generate_rules};
use flowlane::packet::FlowKey;
use flowlane::rule::{Match, Priority, RuleId};
use flowlane_gpu::{Changes, GpuConfig, GpuSearch, Method, SessionConfig};

use super::{Bench, failed, otherwise};
use crate::figure::Figure;
use crate::measure::Contender;
use crate::options::BenchError;

/// Changes a second.
pub(super) const RATES: [u32; 3] = [0, 1000, 10_000];
/// Changes that are applied together.
const GROUP: u64 = 10;
const METHOD: Method = Method::Pruned;

/// A rule, as passed to tables.
type Given = (RuleId, Priority, Match);

/// Rules that are removed and inserted again, behind rules of equal priority.
struct Churn<'a> {
    rules: &'a [Given],
    /// The rule that is currently removed.
    gone: Option<usize>,
    random: Random,
    /// Changes a second.
    rate: u32,
    made: u64,
    /// The duration of previous passes.
    seconds: f64,
}

impl Churn<'_> {
    /// Applies the changes that are due since the pass began, in groups.
    fn follow(&mut self, begun: Instant, table: &mut dyn RuleEngine) {
        let seconds = self.seconds + begun.elapsed().as_secs_f64();
        let due = (seconds * f64::from(self.rate)) as u64 / GROUP * GROUP;
        while self.made < due {
            match self.gone.take() {
                Some(place) => {
                    let (id, priority, matches) = &self.rules[place];
                    table.insert(*id, *priority, matches).expect("it was there before");
                }
                None => {
                    let place = self.random.index(self.rules.len());
                    table.remove(self.rules[place].0);
                    self.gone = Some(place);
                }
            }
            self.made += 1;
        }
    }

    fn end(&mut self, begun: Instant) {
        self.seconds += begun.elapsed().as_secs_f64();
    }
}

/// Looks up all keys on a device in batches, with changes between them.
fn deferred(
    table: &mut GpuSearch,
    batches: &[&[FlowKey]],
    churn: &mut Churn<'_>,
    hits: &mut Vec<Option<Hit>>,
) {
    let begun = Instant::now();
    for batch in batches {
        batch.iter().for_each(|key| table.gather(key));
        while !table.send() {
            table.receive(true, hits);
            black_box(&*hits);
        }
        churn.follow(begun, table);
    }
    while table.receive(true, hits).is_some() {
        black_box(&*hits);
    }
    churn.end(begun);
}

/// Looks up all keys on the CPU, with changes between batches.
fn at_once(
    table: &mut AclSearch,
    batches: &[&[FlowKey]],
    churn: &mut Churn<'_>,
    hits: &mut Vec<Option<Hit>>,
) {
    let begun = Instant::now();
    for batch in batches {
        hits.resize(batch.len(), None);
        table.lookup_batch(batch, hits);
        black_box(&*hits);
        churn.follow(begun, table);
    }
    churn.end(begun);
}

impl Bench<'_, '_> {
    /// Measures lookups by the rate of changes; the time includes the changes.
    pub(super) fn changing(&mut self) -> Result<Figure, BenchError> {
        let (count, key_count, times) = self.scale.changing;
        let about = format!(
            "{count} rules of a generated set, of which one goes and comes again, {GROUP} changes at a time: from host to host by \
             {METHOD}, with tables made in the background, and by the access list on one core. What changes cost is in the time."
        );
        let mut figure = Figure::new("gpu-changes", "Lookups while rules change", about)
            .over("changes a second", RATES.map(|rate| rate.to_string()))
            .bars();
        self.meter.say(&format!("making {count} rules"));
        let generated = generate_rules(&RuleConfig::new(Profile::Acl, count));
        let rule = |(i, rule): (usize, flowlane::rule::Rule)| (RuleId(i as u32), rule.priority, rule.matches);
        let rules: Vec<Given> = generated
            .map_err(|error| BenchError::Gpu(error.to_string()))?
            .into_iter()
            .enumerate()
            .map(rule)
            .collect();
        let mut random = Random::for_purpose(14, "lookups while rules change");
        let keys: Vec<FlowKey> =
            (0..key_count).map(|_| draw_key(&rules[random.index(rules.len())].2, &mut random)).collect();
        let given = || rules.iter().map(|(id, priority, matches)| (*id, *priority, matches));
        let list = AclConfig { memory_max: 4 << 30, seed: 0x5eed, ..AclConfig::default() };
        let session = SessionConfig { batch_max: super::BATCH.min(key_count), ..SessionConfig::default() };
        let batches: Vec<&[FlowKey]> = (0..times).flat_map(|_| keys.chunks(session.batch_max)).collect();
        let config = GpuConfig { method: Some(METHOD), session, list, changes: Changes::default() };
        for (place, rate) in RATES.into_iter().enumerate() {
            let device =
                GpuSearch::build(self.device.clone(), config.clone(), given(), &keys[..key_count.min(64)]);
            let device = RefCell::new(device.map_err(failed)?);
            let mut cpu =
                AclSearch::build(list, given()).map_err(|error| BenchError::Gpu(error.to_string()))?;
            let random = || Random::new(15);
            let churn = || Churn { rules: &rules, gone: None, random: random(), rate, made: 0, seconds: 0.0 };
            let (mut first, mut second) = (churn(), churn());
            let (mut hits, mut other_hits) = (Vec::new(), Vec::new());
            let contenders = vec![
                Contender::new(METHOD.name(), || {
                    deferred(&mut device.borrow_mut(), &batches, &mut first, &mut hits);
                }),
                Contender::new("CPU, one core", || at_once(&mut cpu, &batches, &mut second, &mut other_hits)),
            ];
            let (what, operations) = (format!("{rate} changes a second"), (times * key_count) as u64);
            for measured in self.meter.compare(&what, operations, contenders) {
                figure.add(&measured.name, place, &measured);
            }
            let device = device.into_inner();
            let mut answers = [vec![None; keys.len()], vec![None; keys.len()]];
            device.lookup_batch(&keys, &mut answers[0]);
            device.list().lookup_batch(&keys, &mut answers[1]);
            if let Some(error) = device.failure() {
                return Err(failed(error));
            }
            if answers[0] != answers[1] {
                return Err(otherwise(&what, METHOD));
            }
        }
        Ok(figure)
    }
}
