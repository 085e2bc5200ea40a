//! Figure 6: the paper's kernels on a device and, through OpenCL, on the cores of the CPU, next to our engines on as
//! many cores.
//!
//! Contenders that this machine does not support are left out, and the figures say so. The engines of the CPU are
//! always present.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use flowlane::classify::Hit;
use flowlane::classify::acl::{Acl, AclConfig, AclEngine, Condition, Layout};
use flowlane_gpu::{Device, GpuError, GpuTable, Method, Session, SessionConfig};
#[cfg(feature = "opencl")]
use flowlane_paper::opencl::{ClDevice, ClError, ClMethod, ClTable};

use super::set::{Set, Shape};
use super::{BATCH, failed, labels};
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
use crate::options::BenchError;
use crate::topic::Context;

/// The twelve fields of OpenFlow.
const W: usize = 9;
/// The width in which our engines take the twelve fields: that of any list of nine words.
const WIDE: usize = 10;
/// Engines that support this number of rules and classes.
const ENGINES: [AclEngine; 2] = [AclEngine::Tree, AclEngine::Dynamic];
/// Speedups of the paper's device over eight cores.
const STATED: [(Method, &str, f64); 3] = [
    (Method::Linear, "opencl-linear", 7.0),
    (Method::Tuple, "opencl-tuple", 11.0),
    (Method::Bloom, "opencl-bloom", 12.0),
];

/// The baseline of our engines.
const OPENCL_BEST: &str = "opencl-bloom";

/// The scale of the measurements.
struct Scale {
    rules: usize,
    classes: usize,
    keys: usize,
    /// The batch size of the figure by cores.
    batch: usize,
    batches: Vec<usize>,
    cores: Vec<usize>,
}

impl Scale {
    fn of(context: &Context<'_>) -> Self {
        if context.quick() {
            return Self {
                rules: 64,
                classes: 4,
                keys: 256,
                batch: 128,
                batches: vec![32, 128],
                cores: vec![1],
            };
        }
        let there = cores();
        let fewer = (0..).map(|power| 1 << power).take_while(|cores| *cores < there);
        Self {
            rules: 128 << 10,
            classes: 512,
            keys: 16 << 10,
            batch: BATCH,
            batches: (8..=14).map(|power| 1 << power).collect(),
            cores: fewer.chain([there]).collect(),
        }
    }
}

/// Returns the numbers of cores to measure.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    let scale = Scale::of(context);
    scale.cores.len() + scale.batches.len()
}

/// The available contenders.
struct Contest {
    scale: Scale,
    set: Set<W>,
    lists: Vec<Acl<WIDE>>,
    device: Option<Device>,
    tables: Vec<Arc<GpuTable<W>>>,
    /// Missing contenders, and the reasons.
    left_out: Vec<String>,
}

pub(super) fn measure(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    device: Result<Device, GpuError>,
) -> Result<[Figure; 2], BenchError> {
    let scale = Scale::of(context);
    meter.say(&format!("building tables of {} rules", scale.rules));
    let set = Set::<W>::new(Shape::even(scale.rules, scale.classes), scale.keys, 6);
    let mut contest =
        Contest { scale, set, lists: Vec::new(), device: None, tables: Vec::new(), left_out: Vec::new() };
    contest.build_lists();
    match device {
        Ok(device) => contest.bring_to(device),
        Err(error) => contest.left_out.push(error.to_string()),
    }
    Ok([contest.by_cores(meter)?, contest.by_batch(meter)?])
}

impl Contest {
    fn build_lists(&mut self) {
        for engine in ENGINES {
            let config = AclConfig { memory_max: 4 << 30, threads: cores(), ..AclConfig::default() };
            let words: [_; W] = std::array::from_fn(|w| (w as u8, self.set.kinds[w]));
            let wide = |of: &Condition<W>| Condition { low: widened(&of.low), high: widened(&of.high) };
            let entries = self.set.entries.iter();
            let entries = entries.map(|e| (e.rule, e.rank.priority(), wide(&e.condition), e.categories));
            match Acl::build(Layout::of_words_as(&words), config.with_engine(engine), entries) {
                Ok(list) => self.lists.push(list),
                Err(error) => self.left_out.push(format!("{}: {error}", engine.name())),
            }
        }
    }

    fn bring_to(&mut self, device: Device) {
        for method in Method::ALL {
            match GpuTable::build(&device, method, &self.set.kinds, &self.set.entries, 0x5eed, 0) {
                Ok(table) => self.tables.push(Arc::new(table)),
                Err(error) => self.left_out.push(format!("{method}: {error}")),
            }
        }
        self.device = Some(device);
    }

    /// Returns the figure's description: `what`, and the missing contenders.
    fn about(&self, what: &str) -> String {
        let Scale { rules, classes, .. } = self.scale;
        let mut about = format!(
            "{rules} rules of twelve fields (288 bits) in {classes} classes, from host to host (our own engines take them in ten \
             words); {what} The paper states 7 times \
             (linear), 11 times (tuple) and 12 times (Bloom) the throughput of eight cores of an equally priced CPU."
        );
        for left_out in &self.left_out {
            about += &format!(" Left out: {left_out}.");
        }
        about
    }

    fn by_cores(&mut self, meter: &mut Meter<'_>) -> Result<Figure, BenchError> {
        let (cores, batch) = (self.scale.cores.clone(), self.scale.batch);
        let mut figure = Figure::new("figure-6a", "Figure 6(a): cores", "").over("cores", labels(&cores));
        for (place, cores) in cores.iter().enumerate() {
            self.compare(meter, *cores, batch, &mut figure, place)?;
        }
        figure.about = self.about(&format!("batches of {batch}; a device is measured beside each."));
        self.gains(&mut figure);
        Ok(figure)
    }

    fn by_batch(&mut self, meter: &mut Meter<'_>) -> Result<Figure, BenchError> {
        let (batches, cores) = (self.scale.batches.clone(), self.scale.cores.last().copied().unwrap_or(1));
        let mut figure =
            Figure::new("figure-6b", "Figure 6(b): batch size", "").over("batch", labels(&batches));
        for (place, batch) in batches.iter().enumerate() {
            self.compare(meter, cores, *batch, &mut figure, place)?;
        }
        figure.about = self.about(&format!("cores of the CPU: {cores}."));
        self.gains(&mut figure);
        Ok(figure)
    }

    /// Measures every available contender, the CPU with a number of cores.
    fn compare(
        &mut self,
        meter: &mut Meter<'_>,
        cores: usize,
        batch: usize,
        figure: &mut Figure,
        place: usize,
    ) -> Result<(), BenchError> {
        #[cfg(feature = "opencl")]
        let opencl = self.opencl(cores, batch);
        let session = self.device.as_ref().map(|device| {
            let config = SessionConfig { batch_max: batch, ..SessionConfig::default() };
            Session::<W>::new(device, config).map(RefCell::new).map_err(failed)
        });
        let session = session.transpose()?;
        let keys = &self.set.keys;
        let wide_keys: &Vec<_> = &keys.iter().map(widened).collect();
        let mut all: Vec<LookUp<'_>> = Vec::new();
        for list in &self.lists {
            let run = move |hits: &mut [Option<Hit>]| {
                on_cores(list, wide_keys, hits, cores, batch);
                Ok(())
            };
            all.push(LookUp { name: list.engine_name(), keys: keys.len(), run: Box::new(run) });
        }
        #[cfg(feature = "opencl")]
        for table in &opencl {
            // Linear search takes seconds, so one batch is enough.
            let linear = table.method() == ClMethod::Linear;
            let keys = if linear { &keys[..batch.min(keys.len())] } else { &keys[..] };
            let failed = |error: ClError| BenchError::Gpu(error.to_string());
            let run = move |hits: &mut [Option<Hit>]| table.lookup_batch(keys, hits).map_err(failed);
            all.push(LookUp { name: table.method().name(), keys: keys.len(), run: Box::new(run) });
        }
        for (table, session) in self.tables.iter().flat_map(|table| session.iter().map(move |s| (table, s))) {
            let run = move |hits: &mut [Option<Hit>]| {
                session.borrow_mut().lookup_batch(table, keys, hits).map_err(failed)
            };
            all.push(LookUp { name: table.method().name(), keys: keys.len(), run: Box::new(run) });
        }
        let what = format!("{cores} cores, batches of {batch}");
        for measured in meter.compare(&what, keys.len() as u64, contenders(all)?) {
            figure.add(&measured.name, place, &measured);
        }
        Ok(())
    }

    /// Builds tables for a number of cores. The reason for their absence is recorded once.
    #[cfg(feature = "opencl")]
    fn opencl(&mut self, cores: usize, batch: usize) -> Vec<ClTable<W>> {
        let open = || match ClDevice::open(0)? {
            whole if whole.properties().cores == cores => Ok(whole),
            _ => ClDevice::open_cores(0, cores),
        };
        let mut left_out = |what: String| {
            if !self.left_out.contains(&what) {
                self.left_out.push(what);
            }
        };
        let device = match open() {
            Ok(device) => device,
            Err(error) => {
                left_out(error.to_string());
                return Vec::new();
            }
        };
        let mut tables = Vec::new();
        for method in ClMethod::ALL {
            match ClTable::build(&device, method, &self.set.kinds, &self.set.entries, 0x5eed, batch) {
                Ok(table) => tables.push(table),
                Err(error) => left_out(format!("{method}: {error}")),
            }
        }
        tables
    }

    fn gains(&self, figure: &mut Figure) {
        let has = |name: &str| figure.series.iter().any(|series| series.name == name);
        let opencl = has(OPENCL_BEST);
        let stated: Vec<_> = STATED.iter().filter(|(m, opencl, _)| has(m.name()) && has(opencl)).collect();
        for (method, opencl, stated) in stated {
            figure.gain(method.name(), opencl, Some(*stated));
        }
        for list in self.lists.iter().filter(|_| opencl) {
            figure.gain(list.engine_name(), OPENCL_BEST, None);
        }
    }
}

/// A lookup method.
struct LookUp<'a> {
    name: &'static str,
    /// The number of keys that it looks up, from the first.
    keys: usize,
    run: Run<'a>,
}

type Run<'a> = Box<dyn FnMut(&mut [Option<Hit>]) -> Result<(), BenchError> + 'a>;

/// Checks that all methods give the answers of the first, and returns them as contenders.
fn contenders(all: Vec<LookUp<'_>>) -> Result<Vec<Contender<'_>>, BenchError> {
    let mut expected: Option<Vec<Option<Hit>>> = None;
    let mut out = Vec::with_capacity(all.len());
    for LookUp { name, keys, mut run } in all {
        let mut hits = vec![None; keys];
        run(&mut hits)?;
        let mut pairs = expected.get_or_insert_with(|| hits.clone()).iter().zip(&hits);
        if !pairs.all(|(expected, hit)| expected == hit) {
            return Err(BenchError::Gpu(format!("{name} answers otherwise than others")));
        }
        let again = move || {
            run(&mut hits).expect("it worked before");
            black_box(&hits);
        };
        out.push(Contender::new(name, again).warm().operations(keys));
    }
    Ok(out)
}

/// Widens the words to a key in which no condition uses the added words.
fn widened(words: &[u32; W]) -> [u32; WIDE] {
    std::array::from_fn(|w| words.get(w).copied().unwrap_or(0))
}

/// Looks up keys, a share of them on each core.
fn on_cores(list: &Acl<WIDE>, keys: &[[u32; WIDE]], hits: &mut [Option<Hit>], cores: usize, batch: usize) {
    let look_up = |keys: &[[u32; WIDE]], hits: &mut [Option<Hit>]| {
        for (keys, hits) in keys.chunks(batch).zip(hits.chunks_mut(batch)) {
            list.lookup_hits(keys, 1, hits);
        }
    };
    let share = keys.len().div_ceil(cores).max(1);
    let mut shares: Vec<_> = keys.chunks(share).zip(hits.chunks_mut(share)).collect();
    let own = shares.pop();
    std::thread::scope(|scope| {
        for (keys, hits) in shares {
            scope.spawn(move || look_up(keys, hits));
        }
        own.into_iter().for_each(|(keys, hits)| look_up(keys, hits));
    });
}
