//! The engines of `flowlane classify`, by name; and how one comes to its answer.

use std::cmp::Reverse;
use std::path::Path;

use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::classify::auto::{self, LINEAR_RULES_MAX, TUPLE_RULES_MAX};
use flowlane::classify::{AclSearch, Classifier, Hit, InsertError, LinearSearch, TupleSearch};
use flowlane::isa::Variant;
use flowlane::packet::{Field, FlowKey, FlowMask};
use flowlane::rule::{Match, Priority, Rule, RuleId};
use flowlane_gpu::{Changes, Device, GpuConfig, GpuSearch, Method, Rebuild, SessionConfig, device};
#[cfg(feature = "opencl")]
use flowlane_paper::opencl::{ClDevice, ClMethod, ClSearch};
use serde::Serialize;

use super::classify::List;
use crate::arguments::ClassifyOptions;
use crate::failure::Failure;
use crate::output::{self, Output};

/// Packets with which `auto` measures.
pub(crate) const SAMPLE: usize = 4096;

/// Packets looked up at a time, and between two looks at the clock: their keys stay in the nearest caches. With a device,
/// so many that several batches are under way.
pub(crate) const BATCH: usize = 256;
const BATCHES_FOR_DEVICE: usize = 8;

const NAMES: &str = "auto, linear, tuple, acl, brute, tree, dynamic, gpu, gpu-linear, gpu-tuple, gpu-bloom, gpu-vector, \
     gpu-filtered, gpu-pruned, opencl-linear, opencl-tuple, opencl-bloom";

/// A table of rules.
pub(crate) enum Engine {
    Linear(LinearSearch),
    Tuple(TupleSearch),
    Acl(Box<AclSearch>),
    Gpu(Box<GpuSearch>),
    #[cfg(feature = "opencl")]
    OpenCl(Box<ClSearch>),
}

impl Engine {
    /// The table of the rules that the options name, in the engine of this name.
    pub(crate) fn build(
        rules: &[Rule],
        options: &ClassifyOptions,
        name: &str,
        sample: &[FlowKey],
    ) -> Result<Self, Failure> {
        let chosen = chosen(rules, options, &options.rules.rules)?;
        let sample = &sample[..sample.len().min(SAMPLE)];
        match name {
            "auto" if options.variant.is_none() => Self::fastest(&chosen, options, sample),
            "auto" | "acl" => Self::list(&chosen, options, AclEngine::Auto),
            "linear" => scalar_only(options, name).and_then(|()| Self::linear(&chosen)),
            "tuple" => scalar_only(options, name).and_then(|()| Self::tuple(&chosen)),
            "gpu" => scalar_only(options, name).and_then(|()| Self::gpu(&chosen, options, None, sample)),
            other if other.starts_with("gpu-") => {
                scalar_only(options, name)?;
                let method: Method = other.parse().map_err(|_| unknown(other))?;
                Self::gpu(&chosen, options, Some(method), sample)
            }
            other if other.starts_with("opencl-") => {
                scalar_only(options, name)?;
                Self::opencl(&chosen, options, other)
            }
            other => match other.parse() {
                Ok(engine) => Self::list(&chosen, options, engine),
                Err(_) => Err(unknown(other)),
            },
        }
    }

    /// One table of several lists, a category each; rules are counted through.
    pub(crate) fn of_lists(lists: &[List], options: &ClassifyOptions) -> Result<Self, Failure> {
        let engine = match options.engine.as_str() {
            "auto" | "acl" => AclEngine::Auto,
            name => name.parse().map_err(|_| {
                let message = format!("--also asks several lists at a time, which `{name}` does not");
                Failure::input_help(message, "engines that do: auto, acl, brute, tree, dynamic")
            })?,
        };
        let mut rules = Vec::new();
        for (category, list) in lists.iter().enumerate() {
            let own = chosen(&list.rules, options, &list.path)?;
            rules.extend(own.into_iter().map(|(rule, priority, matches)| {
                (RuleId(list.first + rule.0), priority, matches, 1 << category)
            }));
        }
        let config = list_config(rules.len(), options, engine, variant(options)?);
        let built = AclSearch::build_with_categories(config, rules);
        built.map(|table| Self::Acl(Box::new(table))).map_err(|e| Failure::input(e.to_string()))
    }

    /// For each packet the best rule of each list.
    pub(crate) fn lookup(&self, keys: &[FlowKey], lists: usize, hits: &mut [Option<Hit>]) {
        match self {
            Self::Acl(table) if lists > 1 => table.lookup_categories(keys, lists, hits),
            _ => self.table().lookup_batch(keys, hits),
        }
    }

    fn linear(rules: &[(RuleId, Priority, &Match)]) -> Result<Self, Failure> {
        let mut table = LinearSearch::new(rules.len());
        fill(&mut table, rules)?;
        Ok(Self::Linear(table))
    }

    fn tuple(rules: &[(RuleId, Priority, &Match)]) -> Result<Self, Failure> {
        let mut table = TupleSearch::new(rules.len(), rand::random());
        fill(&mut table, rules)?;
        Ok(Self::Tuple(table))
    }

    fn list(
        rules: &[(RuleId, Priority, &Match)],
        options: &ClassifyOptions,
        engine: AclEngine,
    ) -> Result<Self, Failure> {
        let config = list_config(rules.len(), options, engine, variant(options)?);
        let bar = output::progress(1, "building");
        let built = AclSearch::build(config, rules.iter().copied());
        bar.finish_and_clear();
        built.map(|table| Self::Acl(Box::new(table))).map_err(|e| Failure::input(e.to_string()))
    }

    /// A table on a device.
    fn gpu(
        rules: &[(RuleId, Priority, &Match)],
        options: &ClassifyOptions,
        method: Option<Method>,
        sample: &[FlowKey],
    ) -> Result<Self, Failure> {
        let device = Device::open(options.device)?.with_memory_max(options.memory_max);
        let session = SessionConfig { batch_max: options.batch as usize, ..SessionConfig::default() };
        let list = list_config(rules.len(), options, AclEngine::Auto, None);
        // Rules do not change here.
        let changes = Changes { rebuild: Rebuild::Manual, ..Changes::default() };
        let config = GpuConfig { method, session, list, changes };
        let bar = output::progress(1, "building");
        let built = GpuSearch::build(device, config, rules.iter().copied(), sample);
        bar.finish_and_clear();
        Ok(Self::Gpu(Box::new(built?)))
    }

    /// A table on the cores of the CPU through OpenCL.
    #[cfg(feature = "opencl")]
    fn opencl(
        rules: &[(RuleId, Priority, &Match)],
        options: &ClassifyOptions,
        name: &str,
    ) -> Result<Self, Failure> {
        let method = ClMethod::ALL.into_iter().find(|method| method.name() == name);
        let method = method.ok_or_else(|| unknown(name))?;
        let device = ClDevice::open(options.device)?.with_memory_max(options.memory_max);
        let list = list_config(rules.len(), options, AclEngine::Auto, None);
        let bar = output::progress(1, "building");
        let built = ClSearch::build(device, method, options.batch as usize, list, rules.iter().copied());
        bar.finish_and_clear();
        Ok(Self::OpenCl(Box::new(built?)))
    }

    #[cfg(not(feature = "opencl"))]
    fn opencl(_: &[(RuleId, Priority, &Match)], _: &ClassifyOptions, name: &str) -> Result<Self, Failure> {
        Err(Failure::Environment(format!("{name}: this program is built without the feature `opencl`")))
    }

    /// The one that looks these packets up fastest.
    fn fastest(
        rules: &[(RuleId, Priority, &Match)],
        options: &ClassifyOptions,
        sample: &[FlowKey],
    ) -> Result<Self, Failure> {
        let clock = quanta::Clock::new();
        let Self::Acl(mut list) = Self::list(rules, options, AclEngine::Auto)? else {
            return Err(Failure::input("an access list is always one"));
        };
        list.choose(sample, &mut || clock.raw()).map_err(|e| Failure::input(e.to_string()))?;
        let mut candidates = vec![Self::Acl(list)];
        if rules.len() <= LINEAR_RULES_MAX {
            candidates.push(Self::linear(rules)?);
        }
        if rules.len() <= TUPLE_RULES_MAX {
            candidates.push(Self::tuple(rules)?);
        }
        // Without a device the CPU has engines enough.
        if device::count().is_ok() {
            match Self::gpu(rules, options, None, sample) {
                Ok(table) => candidates.push(table),
                Err(failure) => eprintln!("the CUDA device is left out: {}", failure.message()),
            }
        }
        let tables: Vec<&dyn Classifier> = candidates.iter().map(Self::table).collect();
        // As large as the batches that the one which wants the largest will be given.
        let batch = candidates.iter().map(|table| table.batch(options)).max().unwrap_or(BATCH);
        let chosen = auto::fastest(&tables, batch, sample, &mut || clock.raw());
        Ok(candidates.swap_remove(chosen))
    }

    /// What looks up.
    pub(crate) fn table(&self) -> &dyn Classifier {
        match self {
            Self::Linear(table) => table,
            Self::Tuple(table) => table,
            Self::Acl(table) => &**table,
            Self::Gpu(table) => &**table,
            #[cfg(feature = "opencl")]
            Self::OpenCl(table) => &**table,
        }
    }

    /// Packets that it should be given at a time.
    pub(crate) fn batch(&self, options: &ClassifyOptions) -> usize {
        match self {
            Self::Gpu(_) => BATCHES_FOR_DEVICE * options.batch as usize,
            #[cfg(feature = "opencl")]
            Self::OpenCl(_) => options.batch as usize,
            _ => BATCH,
        }
    }

    /// Whether packets are looked up elsewhere, in batches that take turns.
    pub(crate) fn is_on_device(&self) -> bool {
        !matches!(self, Self::Linear(_) | Self::Tuple(_) | Self::Acl(_))
    }

    /// How many threads look up.
    pub(crate) fn threads(&self, options: &ClassifyOptions) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, Into::into);
        if self.is_on_device() { 1 } else { options.threads.map_or_else(all, Into::into) }
    }

    /// Where it looks up, if not on the CPU; or why no longer.
    pub(crate) fn device(&self) -> Option<String> {
        let (name, failure) = match self {
            Self::Gpu(table) => {
                (&table.device().properties().name, table.failure().map(|error| error.to_string()))
            }
            #[cfg(feature = "opencl")]
            Self::OpenCl(table) => {
                (&table.device().properties().name, table.failure().map(|error| error.to_string()))
            }
            _ => return None,
        };
        Some(failure.map_or_else(|| name.clone(), |error| format!("{name}, then the CPU: {error}")))
    }

    /// The name of the engine that has the rules.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Acl(table) => table.engine().0,
            other => other.table().name(),
        }
    }

    pub(crate) fn variant(&self) -> &'static str {
        match self {
            Self::Acl(table) => table.engine().1.name(),
            Self::Linear(_) | Self::Tuple(_) => "scalar",
            Self::Gpu(_) => "cuda",
            #[cfg(feature = "opencl")]
            Self::OpenCl(_) => "opencl",
        }
    }
}

/// The rules of the table that the options name, best first, which is fastest; the order of equals stays.
fn chosen<'a>(
    rules: &'a [Rule],
    options: &ClassifyOptions,
    path: &Path,
) -> Result<Vec<(RuleId, Priority, &'a Match)>, Failure> {
    let mut chosen: Vec<(RuleId, Priority, &Match)> = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.table == options.table)
        .map(|(position, rule)| (RuleId(position as u32), rule.priority, &rule.matches))
        .collect();
    if chosen.is_empty() && !rules.is_empty() {
        let message = format!("{} has no rules for table {}", path.display(), options.table);
        return Err(Failure::input_help(message, "name another with --table"));
    }
    chosen.sort_by_key(|(_, priority, _)| Reverse(*priority));
    Ok(chosen)
}

fn unknown(engine: &str) -> Failure {
    Failure::input_help(format!("there is no engine `{engine}`"), format!("engines: {NAMES}"))
}

fn list_config(
    rules: usize,
    options: &ClassifyOptions,
    engine: AclEngine,
    variant: Option<Variant>,
) -> AclConfig {
    AclConfig {
        engine,
        variant,
        rules_max: rules,
        memory_max: options.memory_max,
        threads: std::thread::available_parallelism().map_or(1, Into::into),
        seed: rand::random(),
    }
}

fn fill(table: &mut dyn Classifier, rules: &[(RuleId, Priority, &Match)]) -> Result<(), Failure> {
    let bar = output::progress(rules.len() as u64, "building");
    for (id, priority, matches) in rules {
        table.insert(*id, *priority, matches).map_err(|e: InsertError| Failure::input(e.to_string()))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Refuses variants for engines that have none.
fn scalar_only(options: &ClassifyOptions, engine: &str) -> Result<(), Failure> {
    match options.variant.as_deref() {
        // The oracle of another engine is scalar whatever that engine's variant is.
        Some(name) if name != "scalar" && options.engine == engine => {
            let message = format!("the engine `{engine}` has no variant `{name}`");
            Err(Failure::input_help(message, "its variants: scalar"))
        }
        _ => Ok(()),
    }
}

/// The variant that was asked for.
fn variant(options: &ClassifyOptions) -> Result<Option<Variant>, Failure> {
    let Some(name) = options.variant.as_deref() else { return Ok(None) };
    let names = Variant::ALL.map(Variant::name).join(", ");
    let Ok(variant) = name.parse::<Variant>() else {
        let message = format!("the engine `{}` has no variant `{name}`", options.engine);
        return Err(Failure::input_help(message, format!("its variants: {names}")));
    };
    if !variant.available() {
        let why =
            if variant.detected() { "the SIMD width cap forbids it" } else { "the CPU does not have it" };
        return Err(Failure::input(format!("the variant {name} cannot be used here: {why}")));
    }
    Ok(Some(variant))
}

/// What `--explain` says.
#[derive(Serialize)]
struct Explained {
    packet: u64,
    engine: &'static str,
    variant: &'static str,
    /// Positions in the rule file.
    rule: Option<u32>,
    priority: Option<u32>,
    next_rule: Option<u32>,
    next_priority: Option<u32>,
    /// Nodes, hash buckets or filters that were read, and rules that were compared; none where the engine counts none.
    nodes: Option<u32>,
    rules: Option<u32>,
    /// The fields that the answer depends on, and the bits of each.
    depends_on: Vec<Depends>,
}

#[derive(Serialize)]
struct Depends {
    field: &'static str,
    mask: String,
}

/// Says how the answer for a packet comes about.
pub(crate) fn explain(
    engine: &Engine,
    packet: u64,
    key: &FlowKey,
    rules: &[Rule],
    options: &ClassifyOptions,
) -> Result<(), Failure> {
    let mut looked_at = FlowMask::zero();
    let hit = engine.table().lookup_wildcards(key, &mut looked_at);
    let (nodes, compared) = match engine {
        Engine::Acl(table) => {
            let told = table.explain(key);
            (Some(told.nodes), Some(told.rules))
        }
        Engine::Linear(_) => (Some(0), Some(compared_in_order(hit, rules, options))),
        _ => (None, None),
    };
    let next = runner_up(hit, key, rules, options);
    // Of fields that share a place (IPv4 and ARP addresses), the first: the packet is hardly ever ARP.
    let mut taken = Vec::new();
    let fields = Field::all().iter().filter(|info| {
        let place: Vec<_> = info.pieces().collect();
        let first = looked_at.get(info.field) != 0 && !taken.contains(&place);
        taken.extend(first.then_some(place));
        first
    });
    let explained = Explained {
        packet,
        engine: engine.name(),
        variant: engine.variant(),
        rule: hit.map(|h| h.rule.0),
        priority: hit.map(|h| h.priority.0),
        next_rule: next.map(|h| h.rule.0),
        next_priority: next.map(|h| h.priority.0),
        nodes,
        rules: compared,
        depends_on: fields
            .map(|info| Depends { field: info.name, mask: format!("{:#x}", looked_at.get(info.field)) })
            .collect(),
    };
    let text = match options.json {
        true => serde_json::to_string(&explained).expect("plain data") + "\n",
        false => explained.text(),
    };
    let mut output = Output::create(options.output.as_deref())?;
    output.text(&text)?;
    output.finish()
}

/// Whether a rule comes before another, and the order in which both stand.
fn order(rules: &[Rule], rule: usize) -> (Reverse<Priority>, usize) {
    (Reverse(rules[rule].priority), rule)
}

/// The best rule that matches besides the winner.
fn runner_up(hit: Option<Hit>, key: &FlowKey, rules: &[Rule], options: &ClassifyOptions) -> Option<Hit> {
    let hit = hit?;
    let others = (0..rules.len()).filter(|i| *i != hit.rule.0 as usize && rules[*i].table == options.table);
    let next = others.filter(|i| rules[*i].matches.matches(key)).min_by_key(|i| order(rules, *i))?;
    Some(Hit { rule: RuleId(next as u32), priority: rules[next].priority })
}

/// How many rules linear search compares.
fn compared_in_order(hit: Option<Hit>, rules: &[Rule], options: &ClassifyOptions) -> u32 {
    let ours = (0..rules.len()).filter(|i| rules[*i].table == options.table);
    let last = hit.map(|h| order(rules, h.rule.0 as usize));
    ours.filter(|i| last.is_none_or(|last| order(rules, *i) <= last)).count() as u32
}

impl Explained {
    fn text(&self) -> String {
        let rule = |rule: Option<u32>, priority: Option<u32>| match (rule, priority) {
            (Some(rule), Some(priority)) => format!("rule {rule}, priority {priority}"),
            _ => "none".to_owned(),
        };
        let number = |n: Option<u32>| n.map_or("not counted".to_owned(), |n| n.to_string());
        let depends: Vec<String> =
            self.depends_on.iter().map(|d| format!("{}/{}", d.field, d.mask)).collect();
        let rows = [
            ("packet", self.packet.to_string()),
            ("winner", rule(self.rule, self.priority)),
            ("next", rule(self.next_rule, self.next_priority)),
            ("engine", format!("{}, {}", self.engine, self.variant)),
            ("nodes read", number(self.nodes)),
            ("rules compared", number(self.rules)),
            ("depends on", if depends.is_empty() { "nothing".to_owned() } else { depends.join(" ") }),
        ];
        let rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
        output::text_table("", &["explain", ""], &rows)
    }
}
