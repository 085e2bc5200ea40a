//! The engines of `flowlane classify`, by name, and `--explain`.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use flowlane::classify::acl::{AclConfig, AclEngine, HasMatch};
use flowlane::classify::auto::{self, LINEAR_RULES_MAX, TUPLE_RULES_MAX};
use flowlane::classify::{AclSearch, Hit, InsertError, LinearSearch, RuleEngine, TupleSearch};
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
use crate::stderr::note;

/// Number of packets on which `auto` measures.
pub(crate) const SAMPLE: usize = 4096;

/// Packets per lookup and clock reading, few enough for their keys to stay in L1 or L2. A device gets several batches at a
/// time, so that they overlap.
pub(crate) const BATCH: usize = 256;
const BATCHES_FOR_DEVICE: usize = 8;

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
    /// Builds the engine of this name from the rules that the options select.
    pub(crate) fn build(
        rules: &[Rule],
        options: &ClassifyOptions,
        name: &str,
        sample: &[FlowKey],
    ) -> Result<Self, Failure> {
        let rules = &table_rules(rules, options, &options.rules.rules)?;
        let sample = &sample[..sample.len().min(SAMPLE)];
        match name {
            "auto" if options.variant.is_none() => Self::fastest(rules, options, sample),
            "auto" | "acl" => Self::list(rules, options, AclEngine::Auto),
            "linear" => scalar_only(options, name).and_then(|()| Self::linear(rules)),
            "tuple" => scalar_only(options, name).and_then(|()| Self::tuple(rules)),
            "gpu" => scalar_only(options, name).and_then(|()| Self::gpu(rules, options, None, sample)),
            other if other.starts_with("gpu-") => {
                scalar_only(options, name)?;
                let method: Method = other.parse().map_err(|_| unknown(other))?;
                Self::gpu(rules, options, Some(method), sample)
            }
            other if other.starts_with("opencl-") => {
                scalar_only(options, name)?;
                Self::opencl(rules, options, other)
            }
            other => match other.parse() {
                Ok(engine) => Self::list(rules, options, engine),
                Err(_) => Err(unknown(other)),
            },
        }
    }

    /// Builds one table of several lists, one category per list.
    pub(crate) fn of_lists(lists: &[List], options: &ClassifyOptions) -> Result<Self, Failure> {
        let engine = match options.engine.as_str() {
            "auto" | "acl" => AclEngine::Auto,
            name => name.parse().map_err(|_| {
                let message = format!("`{name}` does not support several lists (--also)");
                Failure::input_help(message, "supporting engines: auto, acl, brute, tree, dynamic")
            })?,
        };
        let mut rules = Vec::new();
        for (category, list) in lists.iter().enumerate() {
            let own = table_rules(&list.rules, options, &list.path)?;
            rules.extend(own.into_iter().map(|(rule, priority, matches)| {
                let matches: Arc<dyn HasMatch> = Arc::new(matches.clone());
                (RuleId(list.first + rule.0), priority, matches, 1 << category)
            }));
        }
        let config = list_config(rules.len(), options, engine, variant(options)?);
        let built = AclSearch::build_with_categories(config, rules);
        built.map(|table| Self::Acl(Box::new(table))).map_err(|e| Failure::input(e.to_string()))
    }

    /// Looks up the best rule of each list for each packet.
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

    /// Builds a table on a CUDA device.
    fn gpu(
        rules: &[(RuleId, Priority, &Match)],
        options: &ClassifyOptions,
        method: Option<Method>,
        sample: &[FlowKey],
    ) -> Result<Self, Failure> {
        let device = Device::open(options.device)?.with_memory_max(options.memory_max);
        let session = SessionConfig { batch_max: options.batch as usize, ..SessionConfig::default() };
        let list = list_config(rules.len(), options, AclEngine::Auto, None);
        // Rules are static here.
        let changes = Changes { rebuild: Rebuild::Manual, ..Changes::default() };
        let config = GpuConfig { method, session, list, changes };
        let bar = output::progress(1, "building");
        let built = GpuSearch::build(device, config, rules.iter().copied(), sample);
        bar.finish_and_clear();
        Ok(Self::Gpu(Box::new(built?)))
    }

    /// Builds a table on the CPU cores through OpenCL.
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

    /// Returns the engine that looks up the sample fastest.
    fn fastest(
        rules: &[(RuleId, Priority, &Match)],
        options: &ClassifyOptions,
        sample: &[FlowKey],
    ) -> Result<Self, Failure> {
        let clock = quanta::Clock::new();
        let Self::Acl(mut list) = Self::list(rules, options, AclEngine::Auto)? else {
            return Err(Failure::input("internal error: not an access list"));
        };
        list.choose(sample, &mut || clock.raw()).map_err(|e| Failure::input(e.to_string()))?;
        let mut candidates = vec![Self::Acl(list)];
        if rules.len() <= LINEAR_RULES_MAX {
            candidates.push(Self::linear(rules)?);
        }
        if rules.len() <= TUPLE_RULES_MAX {
            candidates.push(Self::tuple(rules)?);
        }
        // A missing device is not an error: the CPU has enough engines.
        if device::count().is_ok() {
            match Self::gpu(rules, options, None, sample) {
                Ok(table) => candidates.push(table),
                Err(failure) => note!("not using the CUDA device: {}", failure.message()),
            }
        }
        let tables: Vec<&dyn RuleEngine> = candidates.iter().map(Self::table).collect();
        // The largest batch that any of the candidates will be given.
        let batch = candidates.iter().map(|table| table.batch(options)).max().unwrap_or(BATCH);
        let fastest = auto::fastest(&tables, batch, sample, &mut || clock.raw());
        Ok(candidates.swap_remove(fastest))
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> &dyn RuleEngine {
        match self {
            Self::Linear(table) => table,
            Self::Tuple(table) => table,
            Self::Acl(table) => &**table,
            Self::Gpu(table) => &**table,
            #[cfg(feature = "opencl")]
            Self::OpenCl(table) => &**table,
        }
    }

    /// Returns the number of packets to pass per lookup.
    pub(crate) fn batch(&self, options: &ClassifyOptions) -> usize {
        match self {
            Self::Gpu(_) => BATCHES_FOR_DEVICE * options.batch as usize,
            #[cfg(feature = "opencl")]
            Self::OpenCl(_) => options.batch as usize,
            _ => BATCH,
        }
    }

    /// Returns whether lookups run on a device, in overlapping batches.
    pub(crate) fn is_on_device(&self) -> bool {
        !matches!(self, Self::Linear(_) | Self::Tuple(_) | Self::Acl(_))
    }

    /// Returns the number of lookup threads.
    pub(crate) fn threads(&self, options: &ClassifyOptions) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, Into::into);
        if self.is_on_device() { 1 } else { options.threads.map_or_else(all, Into::into) }
    }

    /// Returns the device that looks up, and why it was given up if it failed.
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

    /// Returns the name of the engine that holds the rules.
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

/// Returns the rules of the selected OpenFlow table, best first, which builds fastest; the sort is stable.
fn table_rules<'a>(
    rules: &'a [Rule],
    options: &ClassifyOptions,
    path: &Path,
) -> Result<Vec<(RuleId, Priority, &'a Match)>, Failure> {
    let mut selected: Vec<(RuleId, Priority, &Match)> = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.table == options.table)
        .map(|(position, rule)| (RuleId(position as u32), rule.priority, &rule.matches))
        .collect();
    if selected.is_empty() && !rules.is_empty() {
        let message = format!("{} has no rules for table {}", path.display(), options.table);
        return Err(Failure::input_help(message, "select another table with --table"));
    }
    selected.sort_by_key(|(_, priority, _)| Reverse(*priority));
    Ok(selected)
}

fn unknown(engine: &str) -> Failure {
    let lists = AclEngine::ALL.map(AclEngine::name).into_iter().filter(|name| *name != "auto");
    let names = ["auto", "linear", "tuple", "acl"].into_iter().chain(lists).chain(["gpu"]);
    let names = names.chain(Method::ALL.map(Method::name));
    #[cfg(feature = "opencl")]
    let names = names.chain(ClMethod::ALL.map(ClMethod::name));
    let names = names.collect::<Vec<_>>().join(", ");
    Failure::input_help(format!("there is no engine `{engine}`"), format!("engines: {names}"))
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

fn fill(table: &mut dyn RuleEngine, rules: &[(RuleId, Priority, &Match)]) -> Result<(), Failure> {
    let bar = output::progress(rules.len() as u64, "building");
    for (id, priority, matches) in rules {
        table.insert(*id, *priority, matches).map_err(|e: InsertError| Failure::input(e.to_string()))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Rejects variants of engines that have none.
fn scalar_only(options: &ClassifyOptions, engine: &str) -> Result<(), Failure> {
    match options.variant {
        // An engine used as oracle of another one ignores that engine's variant.
        Some(variant) if variant != Variant::Scalar && options.engine == engine => {
            let message = format!("the engine `{engine}` has no variant `{variant}`");
            Err(Failure::input_help(message, "its variants: scalar"))
        }
        _ => Ok(()),
    }
}

/// Returns the requested variant, if this machine can run it.
fn variant(options: &ClassifyOptions) -> Result<Option<Variant>, Failure> {
    match options.variant {
        Some(variant) if !variant.available() => {
            let why = match variant.detected() {
                true => "the SIMD width cap forbids it",
                false => "the CPU does not support it",
            };
            Err(Failure::input(format!("the variant {variant} cannot be used here: {why}")))
        }
        variant => Ok(variant),
    }
}

/// Output of `--explain`.
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
    /// Nodes, hash buckets or filters read, and rules compared; `None` if the engine does not count them.
    nodes: Option<u32>,
    rules: Option<u32>,
    /// The fields and bits that the result depends on.
    depends_on: Vec<Depends>,
}

#[derive(Serialize)]
struct Depends {
    field: &'static str,
    mask: String,
}

/// Explains the lookup of one packet.
pub(crate) fn explain(
    engine: &Engine,
    packet: u64,
    key: &FlowKey,
    rules: &[Rule],
    options: &ClassifyOptions,
) -> Result<(), Failure> {
    let mut wildcards = FlowMask::zero();
    let hit = engine.table().lookup_wildcards(key, &mut wildcards);
    let (nodes, compared) = match engine {
        Engine::Acl(table) => {
            let explanation = table.explain(key);
            (Some(explanation.nodes), Some(explanation.rules))
        }
        Engine::Linear(_) => (Some(0), Some(compared_in_order(hit, rules, options))),
        _ => (None, None),
    };
    let next = runner_up(hit, key, rules, options);
    // Of fields that share key words (IPv4 and ARP addresses), report the first: ARP packets are rare.
    let mut taken = Vec::new();
    let fields = Field::all().iter().filter(|info| {
        let place: Vec<_> = info.pieces().collect();
        let first = wildcards.get(info.field) != 0 && !taken.contains(&place);
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
            .map(|info| Depends { field: info.name, mask: format!("{:#x}", wildcards.get(info.field)) })
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

/// Sort key of a rule: priority, then position.
fn order(rules: &[Rule], rule: usize) -> (Reverse<Priority>, usize) {
    (Reverse(rules[rule].priority), rule)
}

/// Returns the best matching rule other than the winner.
fn runner_up(hit: Option<Hit>, key: &FlowKey, rules: &[Rule], options: &ClassifyOptions) -> Option<Hit> {
    let hit = hit?;
    let others = (0..rules.len()).filter(|i| *i != hit.rule.0 as usize && rules[*i].table == options.table);
    let next = others.filter(|i| rules[*i].matches.matches(key)).min_by_key(|i| order(rules, *i))?;
    Some(Hit { rule: RuleId(next as u32), priority: rules[next].priority })
}

/// Returns the number of rules that linear search compares.
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
            ("next best", rule(self.next_rule, self.next_priority)),
            ("engine", format!("{}, {}", self.engine, self.variant)),
            ("nodes read", number(self.nodes)),
            ("rules compared", number(self.rules)),
            ("depends on", if depends.is_empty() { "nothing".to_owned() } else { depends.join(" ") }),
        ];
        let rows: Vec<Vec<String>> = rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
        output::text_table("", &["explain", ""], &rows)
    }
}
