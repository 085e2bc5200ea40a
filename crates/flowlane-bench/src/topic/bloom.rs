//! Bloom filters: all kernels on the paper's workload (*Leveraging SIMD Parallelism for Accelerating Network
//! Applications*, §4.1) for its figures 5 to 7; then classic and blocked filters that answer with one bit a key.
//!
//! 2^20 random keys with payloads, 3 hashes, a filter of 10 bits an item. All kernels read one filter; the sizes
//! follow the caches of the machine.

use std::cell::RefCell;
use std::fmt;
use std::hint::black_box;

use flowlane::bloom::{self, BlockedBloomFilter, BloomFilter, BloomKernel, UNROLLS};
use flowlane::generate::Random;
use flowlane::isa::Variant;
use flowlane_paper::bloom as paper;

use super::Context;
use crate::figure::{Extreme, Figure, Ratio};
use crate::machine::bytes;
use crate::measure::{Contender, Measured, Meter};

const HASHES: usize = 3;

/// An algorithm of the library or of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Library(bloom::Algorithm),
    Paper(paper::Algorithm),
}

impl Algorithm {
    /// Returns all algorithms, the narrower first.
    fn all() -> Vec<Self> {
        let library = bloom::Algorithm::ALL.map(Self::Library);
        let mut all: Vec<Self> = paper::Algorithm::ALL.map(Self::Paper).into_iter().chain(library).collect();
        all.sort_by_key(|algorithm| algorithm.variant().width_bits());
        all
    }

    fn name(self) -> &'static str {
        match self {
            Self::Library(algorithm) => algorithm.name(),
            Self::Paper(algorithm) => algorithm.name(),
        }
    }

    fn variant(self) -> Variant {
        match self {
            Self::Library(algorithm) => algorithm.variant(),
            Self::Paper(algorithm) => algorithm.variant(),
        }
    }
}

const SCALAR: Algorithm = Algorithm::Library(bloom::Algorithm::Scalar);
const TABLE: Algorithm = Algorithm::Paper(paper::Algorithm::Avx2Table);
const EXPAND_LOAD: Algorithm = Algorithm::Paper(paper::Algorithm::Avx512ExpandLoad);

/// A kernel of the library or of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kernel {
    algorithm: Algorithm,
    unroll: u8,
    prefetch: bool,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefetch = if self.prefetch { "/prefetch" } else { "" };
        write!(f, "{}/u{}{prefetch}", self.algorithm.name(), self.unroll)
    }
}

impl From<BloomKernel> for Kernel {
    fn from(BloomKernel { algorithm, unroll, prefetch }: BloomKernel) -> Self {
        Self { algorithm: Algorithm::Library(algorithm), unroll, prefetch }
    }
}

impl Kernel {
    /// Returns every kernel that this CPU supports.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for algorithm in Algorithm::all().into_iter().filter(|a| a.variant().available()) {
            for unroll in UNROLLS {
                all.extend([false, true].map(|prefetch| kernel(algorithm, unroll, prefetch)));
            }
        }
        all
    }

    /// Returns the instruction set that the kernel needs.
    pub(super) fn variant(self) -> Variant {
        self.algorithm.variant()
    }
}

fn baseline() -> Kernel {
    let paper::Kernel { algorithm, unroll, prefetch } = paper::Kernel::BASELINE;
    kernel(Algorithm::Paper(algorithm), unroll, prefetch)
}

/// Returns the library's choice for a filter of this size.
fn chosen(table_bytes: usize) -> Kernel {
    BloomKernel::default_for(table_bytes).into()
}

/// Colours series by algorithm, equally in all figures; prefetching ones are dashed.
fn paint(figure: &mut Figure) {
    figure.paint(|name| {
        let (name, ahead) = name.strip_suffix(AHEAD).map_or((name, false), |name| (name, true));
        Algorithm::all().iter().position(|a| a.name() == name).map(|place| (place, ahead))
    });
}

/// The suffix of the names of prefetching series.
const AHEAD: &str = ", ahead";

/// Ratios that the paper's text states.
mod stated {
    /// Figure 5: expand and compress over 256 bits, neither unrolled.
    pub(super) const WIDER: f64 = 1.94;
    /// Figure 6: expand and compress, unrolled, over 256 bits with a factor of 2.
    pub(super) const UNROLLED: f64 = 2.62;
    /// Figure 7: prefetching, over 256 bits with a factor of 2.
    pub(super) const AHEAD: f64 = 1.65;
    /// Figure 7: prefetching, over the same unrolling without it.
    pub(super) const AHEAD_OVER_NOT: f64 = 1.25;
}

fn kernel(algorithm: Algorithm, unroll: u8, prefetch: bool) -> Kernel {
    Kernel { algorithm, unroll, prefetch }
}

/// The measurements of a filter size.
struct Size {
    bytes: usize,
    kernels: Vec<Kernel>,
    measured: Vec<Measured>,
}

impl Size {
    fn of(&self, kernel: Kernel) -> Option<&Measured> {
        let name = kernel.to_string();
        self.measured.iter().find(|m| m.name == name)
    }

    /// Returns the fastest of the kernels that `wanted` selects.
    fn best(&self, wanted: impl Fn(Kernel) -> bool) -> Option<(Kernel, f64)> {
        let measured = |k: &Kernel| Some((*k, self.of(*k)?.ns.median));
        let candidates = self.kernels.iter().filter(|k| wanted(**k)).filter_map(measured);
        candidates.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Returns the sizes of figure 5, and those four whose kernels are measured with all factors.
fn sizes(context: &Context<'_>) -> (Vec<usize>, Vec<usize>) {
    let levels = context.levels();
    if context.quick() {
        return (levels[..2].to_vec(), levels[..2].to_vec());
    }
    let mut all: Vec<usize> = levels.to_vec();
    all.extend(levels.windows(2).map(|pair| {
        // Halfway between two levels, in powers of two.
        1 << ((pair[0].ilog2() + pair[1].ilog2()) / 2)
    }));
    all.sort_unstable();
    all.dedup();
    (all, levels.to_vec())
}

/// Returns whether prefetching kernels are measured on a filter of this size, for figure 7.
fn large(context: &Context<'_>, bytes: usize) -> bool {
    context.quick() || bytes > context.machine.cache_bytes(3)
}

/// Returns the kernels for a size; `full` includes all factors.
fn kernels(context: &Context<'_>, bytes: usize, full: bool) -> Vec<Kernel> {
    let wanted = |k: &Kernel| {
        let plain = k.unroll == 1 && !k.prefetch || *k == chosen(bytes);
        let unrolled = full && !k.prefetch && k.algorithm != SCALAR;
        let ahead = full && k.prefetch && large(context, bytes) && k.algorithm != SCALAR;
        (plain || unrolled || ahead) && context.options.has_kernel(*k)
    };
    let always = [BloomKernel::SCALAR.into(), baseline(), kernel(TABLE, 1, false)];
    let mut kernels: Vec<Kernel> = always.into_iter().filter(|k| k.variant().available()).collect();
    kernels.extend(Kernel::all().into_iter().filter(|k| wanted(k) && !always.contains(k)));
    kernels
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    let (all, full) = sizes(context);
    all.len() + full.len() + if cfg!(feature = "peers") { 2 * full.len() } else { 0 }
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let (all, full) = sizes(context);
    let count = if context.quick() { 1 << 13 } else { 1 << 20 };
    let mut random = Random::new(1);
    let keys: Vec<u32> = (0..count).map(|_| random.bits() as u32).collect();
    let mut answers = answers_figure(&full);
    let mut measured: Vec<Size> = Vec::new();
    for table_bytes in all {
        let is_full = full.contains(&table_bytes);
        let kernels = kernels(context, table_bytes, is_full);
        meter.say(&format!("filling a filter of {}", bytes(table_bytes as u64)));
        let mut filter = BloomFilter::with_bits(table_bytes as u64 * 8, HASHES).expect("at most 512 MiB");
        items(&filter).for_each(|key| filter.insert(key));
        let readings = survivors(meter, &mut filter, &keys, &kernels);
        measured.push(Size { bytes: table_bytes, kernels, measured: readings });
        if let Some(place) = full.iter().position(|b| *b == table_bytes) {
            add_answers(meter, context, &filter, &keys, place, &mut answers);
        }
    }
    let default = chosen(0).algorithm;
    let mut figures = vec![figure_5(&measured)];
    for size in measured.iter().filter(|s| full.contains(&s.bytes)) {
        figures.push(figure_6(size, default));
    }
    let mut all_levels = measured.iter().filter(|s| full.contains(&s.bytes));
    figures.extend(all_levels.rfind(|s| large(context, s.bytes)).map(|size| figure_7(size, default)));
    figures.push(answers);
    #[cfg(feature = "peers")]
    figures.extend(crate::peers::bloom::measure(meter, &full, context.quick()));
    figures
}

/// Returns the keys of a full filter, one for 10 bits.
fn items(filter: &BloomFilter) -> impl Iterator<Item = u32> + use<> {
    let mut random = Random::new(2);
    (0..filter.bits() / 10).map(move |_| random.bits() as u32)
}

fn survivors(
    meter: &mut Meter<'_>,
    filter: &mut BloomFilter,
    keys: &[u32],
    kernels: &[Kernel],
) -> Vec<Measured> {
    let payloads: Vec<u32> = (0..keys.len() as u32).collect();
    let what = format!("filter of {}", bytes(filter.table_bytes() as u64));
    let shared = RefCell::new((filter, vec![0; keys.len()], vec![0; keys.len()]));
    let (shared, payloads) = (&shared, &payloads);
    let contender = |kernel: &Kernel| {
        let Kernel { algorithm, unroll, prefetch } = *kernel;
        match algorithm {
            Algorithm::Library(algorithm) => Contender::new(kernel.to_string(), move || {
                let (filter, out_keys, out_payloads) = &mut *shared.borrow_mut();
                filter.set_kernel(BloomKernel { algorithm, unroll, prefetch }).expect("is available");
                black_box(filter.survivors(keys, payloads, out_keys, out_payloads));
            }),
            Algorithm::Paper(algorithm) => {
                let paper = paper::Kernel { algorithm, unroll, prefetch };
                let baseline = paper::Baseline::new(paper).expect("is available");
                Contender::new(kernel.to_string(), move || {
                    let (filter, out_keys, out_payloads) = &mut *shared.borrow_mut();
                    black_box(baseline.survivors(filter, keys, payloads, out_keys, out_payloads));
                })
            }
        }
    };
    meter.compare(&what, keys.len() as u64, kernels.iter().map(contender).collect())
}

fn figure_5(sizes: &[Size]) -> Figure {
    let about = "Throughput against the size of the filter, by implementation, one vector at a time (u1), and by the \
                 kernel that the library chooses. 2^20 random keys with payloads, 3 hashes, 10 bits an item. The paper's \
                 baseline is avx2-table, its own implementation avx512-expandload; avx512-table is its naive widening, which \
                 gains little by its text.";
    let mut figure = Figure::new("figure-5", "Figure 5: Bloom filter, by implementation", about)
        .over("filter size", sizes.iter().map(|s| bytes(s.bytes as u64)));
    for algorithm in Algorithm::all() {
        let kernel = kernel(algorithm, 1, false);
        for (place, size) in sizes.iter().enumerate() {
            if let Some(m) = size.of(kernel) {
                figure.add(algorithm.name(), place, m);
            }
        }
    }
    for (place, size) in sizes.iter().enumerate() {
        if let Some(m) = size.of(chosen(size.bytes)) {
            figure.add("chosen by the library", place, m);
        }
    }
    figure.gain("avx512-expandload", "avx2-table", Some(stated::WIDER));
    figure.gain("avx512-table", "avx2-table", None);
    figure.gain("avx512-staged", "avx2-table", None);
    figure.gain("chosen by the library", "avx2-table", None);
    figure.gain("chosen by the library", "scalar", None);
    paint(&mut figure);
    figure.guide("paper: up to +94 % over avx2-table", "avx2-table", stated::WIDER);
    figure
}

/// Adds series by algorithm over the factor.
fn by_factor(figure: &mut Figure, size: &Size, series: &str, algorithm: Algorithm, prefetch: bool) {
    for (place, unroll) in UNROLLS.into_iter().enumerate() {
        if let Some(m) = size.of(kernel(algorithm, unroll, prefetch)) {
            figure.add(series, place, m);
        }
    }
}

/// Adds the ratio of the fastest kernels of two groups.
fn ratio(
    size: &Size,
    what: String,
    of: Option<(Kernel, f64)>,
    over: Option<f64>,
    stated: Option<f64>,
) -> Ratio {
    let most = of.and_then(|(kernel, ns)| Some(Extreme { ratio: over? / ns, at: kernel.to_string() }));
    Ratio { what: format!("{what}, {}", bytes(size.bytes as u64)), most, least: None, mean: None, stated }
}

fn factors() -> impl Iterator<Item = String> {
    UNROLLS.into_iter().map(|u| u.to_string())
}

/// Adds a line at the baseline times the stated ratio.
fn stated_line(figure: &mut Figure, size: &Size, name: &str, times: f64) {
    if let Some(baseline) = size.of(baseline()) {
        let value = Some(1e3 / baseline.ns.median * times);
        figure
            .guides
            .push(crate::figure::Guide { name: name.into(), values: vec![value; figure.places.len()] });
    }
}

fn figure_6(size: &Size, default: Algorithm) -> Figure {
    let name = bytes(size.bytes as u64);
    let about = "Throughput against the number of vectors side by side (the unroll factor), without asking ahead. The \
                 paper's baseline is avx2-table with a factor of 2; scalar code has none.";
    let id = format!("figure-6-{}", name.replace(' ', "").to_lowercase());
    let mut figure = Figure::new(id, format!("Figure 6: unrolling, filter of {name}"), about)
        .over("unroll factor", factors());
    for algorithm in Algorithm::all().into_iter().filter(|a| *a != SCALAR) {
        by_factor(&mut figure, size, algorithm.name(), algorithm, false);
    }
    let over = size.of(baseline()).map(|m| m.ns.median);
    let papers = size.best(|k| k.algorithm == EXPAND_LOAD && !k.prefetch);
    let ours = size.best(|k| k.algorithm == default && !k.prefetch);
    let over_baseline = |name: &str| format!("{name}, best factor, over avx2-table/u2");
    figure.ratios = vec![
        ratio(size, over_baseline("avx512-expandload"), papers, over, Some(stated::UNROLLED)),
        ratio(size, over_baseline(default.name()), ours, over, None),
    ];
    paint(&mut figure);
    stated_line(&mut figure, size, "paper: up to +162 % over avx2-table/u2", stated::UNROLLED);
    figure
}

fn figure_7(size: &Size, default: Algorithm) -> Figure {
    let name = bytes(size.bytes as u64);
    let about = "Throughput for a filter beyond the caches, with and without asking for words ahead, against the number \
                 of vectors side by side.";
    let mut figure = Figure::new("figure-7", format!("Figure 7: asking ahead, filter of {name}"), about)
        .over("unroll factor", factors());
    for algorithm in [TABLE, EXPAND_LOAD, default] {
        for (prefetch, after) in [(false, ""), (true, AHEAD)] {
            by_factor(&mut figure, size, &format!("{}{after}", algorithm.name()), algorithm, prefetch);
        }
    }
    let over = size.of(baseline()).map(|m| m.ns.median);
    for algorithm in [EXPAND_LOAD, default] {
        let papers = algorithm == EXPAND_LOAD;
        let ahead = size.best(|k| k.algorithm == algorithm && k.prefetch);
        let not = size.best(|k| k.algorithm == algorithm && !k.prefetch).map(|(_, ns)| ns);
        let stated = |number: f64| papers.then_some(number);
        let what = format!("{}, ahead, over avx2-table/u2", algorithm.name());
        figure.ratios.push(ratio(size, what, ahead, over, stated(stated::AHEAD)));
        let what = format!("{}, ahead, over the same without", algorithm.name());
        figure.ratios.push(ratio(size, what, ahead, not, stated(stated::AHEAD_OVER_NOT)));
    }
    paint(&mut figure);
    stated_line(&mut figure, size, "paper: up to +65 % over avx2-table/u2", stated::AHEAD);
    figure
}

fn answers_figure(sizes: &[usize]) -> Figure {
    let about = "One bit of answer a key, for the same keys, against the size of the filter: the classic filter key by key \
                 and in batches, and the blocked filter, which touches 32 bytes a key, by variant.";
    Figure::new("bloom-answers", "One bit a key: classic and blocked filters", about)
        .over("filter size", sizes.iter().map(|b| bytes(*b as u64)))
}

fn add_answers(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    classic: &BloomFilter,
    keys: &[u32],
    place: usize,
    figure: &mut Figure,
) {
    let bits = classic.bits();
    meter.say(&format!("filling a blocked filter of {}", bytes(bits / 8)));
    let blocked = BlockedBloomFilter::with_bits(bits).expect("at most 512 MiB");
    items(classic).for_each(|key| blocked.insert(key));
    let blocked = RefCell::new(Some(blocked));
    let blocked = &blocked;
    let long: Vec<u64> = keys.iter().map(|k| u64::from(*k) << 20).collect();
    let hits = RefCell::new(vec![0; keys.len() / 64]);
    let (hits, long) = (&hits, &long);
    let mut contenders = vec![
        Contender::new("classic, one by one", move || {
            for (keys, hits) in keys.chunks(64).zip(hits.borrow_mut().iter_mut()) {
                *hits = keys.iter().fold(0, |word, key| word << 1 | u64::from(classic.contains(*key)));
            }
        }),
        Contender::new("classic, batch", move || classic.contains_batch(keys, &mut hits.borrow_mut())),
        Contender::new("classic, batch of 64-bit keys", move || {
            classic.contains_batch_u64(long, &mut hits.borrow_mut());
        }),
    ];
    // The blocked filter has a contender for these.
    let has = |variant: &Variant| *variant != Variant::Sse42;
    for variant in context.options.variants().into_iter().filter(has) {
        contenders.push(Contender::new(format!("blocked, batch, {variant}"), move || {
            let filter =
                blocked.take().and_then(|filter| filter.with_variant(variant)).expect("is available");
            filter.contains_batch(keys, &mut hits.borrow_mut());
            blocked.replace(Some(filter));
        }));
    }
    for measured in meter.compare("one bit a key", keys.len() as u64, contenders) {
        figure.add(&measured.name, place, &measured);
    }
}
