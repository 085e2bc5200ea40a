//! Classifiers on a CUDA device, for figures 5 to 11 of *Multi-Layer Packet Classification with Graphics Processing
//! Units* (Varvello and others, ToN 2016), with upper bounds of the device and the engines of this machine's CPU.
//! Without a device, only figure 6 remains, with the CPU alone.

mod changing;
mod forwarding;
mod multicore;
mod set;

use std::hint::black_box;
use std::sync::Arc;

use flowlane_gpu::ceilings::{Copies, Gather};
use flowlane_gpu::{Device, GpuError, GpuTable, Method, ResidentKeys, Session, SessionConfig, device};

use self::set::{Crossing, Set, Shape};
use super::Context;
use crate::figure::Figure;
use crate::measure::{Clock, Contender, Measured, Meter, Spread, TimeStampCounter};
use crate::options::BenchError;

/// The paper's batch.
const BATCH: usize = 8192;
/// Bits on the wire of a frame of 64 bytes, with 20 bytes of preamble and gap.
const BITS_A_FRAME: f64 = 8.0 * 84.0;
/// The most rules for linear search.
const LINEAR_RULES_MAX: usize = 128 << 10;

/// The scale of the measurements.
struct Scale {
    /// The number of distinct tuples.
    keys: usize,
    batches: Vec<usize>,
    classes: Vec<usize>,
    rules_a_class: usize,
    /// The number of rules and of classes of figure 8.
    by_classes: Vec<(usize, Vec<usize>)>,
    /// Rules, classes, and numbers of full and of overlapping classes of figure 9.
    ninth: (usize, usize, Vec<usize>, Vec<usize>),
    delays_us: Vec<f64>,
    /// Batches that are timed one by one.
    single_batches: usize,
    tables: Vec<usize>,
    copy_bytes: usize,
    /// Rules and classes for tuples that pass every filter.
    adversarial: (usize, usize),
    /// Rules that change, distinct packets, and repetitions of these in a pass: changes must occur in every pass.
    changing: (usize, usize, usize),
}

impl Scale {
    fn of(context: &Context<'_>) -> Self {
        if context.quick() {
            // Small enough for a simulated device.
            return Self {
                keys: 128,
                batches: vec![32, 128],
                classes: vec![1, 4],
                rules_a_class: 8,
                by_classes: vec![(32, vec![4, 8])],
                ninth: (32, 8, vec![2, 8], vec![1, 4]),
                delays_us: vec![100.0],
                single_batches: 3,
                tables: vec![1 << 16],
                copy_bytes: 1 << 16,
                adversarial: (32, 4),
                changing: (40, 128, 1),
            };
        }
        let powers = |from: u32, to: u32| (from..=to).map(|p| 1usize << p).collect::<Vec<_>>();
        Self {
            keys: 1 << 20,
            batches: powers(8, 20),
            classes: powers(0, 10),
            rules_a_class: 256,
            by_classes: vec![(1 << 10, powers(2, 10)), (8 << 10, powers(5, 10)), (32 << 10, powers(7, 10))],
            ninth: (1 << 10, 128, powers(2, 7), powers(0, 7)),
            delays_us: vec![100.0, 200.0, 500.0, 1000.0, 2000.0],
            single_batches: 2000,
            tables: powers(20, 29),
            copy_bytes: 64 << 20,
            adversarial: (128 << 10, 512),
            changing: (128 << 10, 1 << 17, 16),
        }
    }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    let scale = Scale::of(context);
    let eighth: usize = scale.by_classes.iter().map(|(_, classes)| classes.len()).sum();
    let ninth = scale.ninth.2.len() + scale.ninth.3.len() + 2;
    let device = device::count().is_ok();
    let sixth = multicore::comparisons(context) + forwarding::Scale::of(context.quick()).comparisons(device);
    if !device {
        return sixth;
    }
    sixth
        + 2
        + scale.tables.len()
        + 2 * scale.batches.len()
        + 2 * scale.classes.len()
        + eighth
        + ninth
        + scale.delays_us.len()
        + 2 * Crossing::ALL.len()
        + graph_batches(&scale).count()
        + changing::RATES.len()
}

/// Returns the batch sizes for graphs, which save nothing on larger batches.
fn graph_batches(scale: &Scale) -> impl Iterator<Item = usize> + '_ {
    scale.batches.iter().copied().filter(|batch| *batch <= 1 << 16)
}

/// The state of this topic's comparisons.
struct Bench<'a, 'b> {
    meter: &'a mut Meter<'b>,
    device: Device,
    scale: Scale,
}

fn failed(error: GpuError) -> BenchError {
    BenchError::Gpu(error.to_string())
}

/// Reports wrong answers, whose time would be meaningless.
fn otherwise(what: &str, method: Method) -> BenchError {
    BenchError::Gpu(format!("{what}: {method} answers otherwise than others"))
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Result<Vec<Figure>, BenchError> {
    let device = Device::open(0);
    let mut figures = match &device {
        Ok(device) => on_device(meter, context, device)?,
        Err(error) if error.is_absence() => Vec::new(),
        Err(error) => return Err(failed(error.clone())),
    };
    let forwarding = forwarding::Scale::of(context.quick());
    if let Ok(device) = &device {
        figures.push(forwarding::by_delay(meter, device, &forwarding)?);
    }
    figures.push(forwarding::by_engine(meter, device.as_ref().ok(), &forwarding)?);
    figures.extend(multicore::measure(meter, context, device)?);
    Ok(figures)
}

fn on_device(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    device: &Device,
) -> Result<Vec<Figure>, BenchError> {
    let mut bench = Bench { meter, device: device.clone(), scale: Scale::of(context) };
    let mut figures = vec![bench.copies()?, bench.launch()?, bench.gather()?];
    figures.extend(bench.by_batch()?);
    figures.push(bench.by_rules::<9>("figure-7", "Figure 7: rules of twelve fields")?);
    figures.push(bench.by_rules::<4>("figure-7-five", "Rules of five fields")?);
    figures.extend(bench.by_classes()?);
    figures.extend(bench.by_shape()?);
    figures.push(bench.adversarial()?);
    figures.push(bench.by_delay()?);
    figures.push(bench.graphs()?);
    figures.push(bench.changing()?);
    figures.push(bench.latency()?);
    Ok(figures)
}

fn labels(numbers: &[usize]) -> impl Iterator<Item = String> + '_ {
    numbers
        .iter()
        .map(|n| if *n >= 1024 && n.is_multiple_of(1024) { format!("{}K", n / 1024) } else { n.to_string() })
}

/// Returns the methods for a number of rules.
fn methods(rules: usize) -> impl Iterator<Item = Method> {
    Method::ALL.into_iter().filter(move |m| rules <= LINEAR_RULES_MAX || !matches!(m, Method::Linear))
}

impl Bench<'_, '_> {
    fn copies(&mut self) -> Result<Figure, BenchError> {
        let bytes = self.scale.copy_bytes;
        let about = "Copies of pinned memory in each direction by themselves: a thousand million bytes is a gigabyte.";
        let mut figure = Figure::new("gpu-copies", "Copies between host and device", about)
            .over("direction", ["to the device", "to the host"].map(str::to_owned))
            .millions_of("bytes")
            .bars();
        let mut copies = Copies::new(&self.device, bytes).map_err(failed)?;
        copies.to_device().and_then(|()| copies.to_host()).map_err(failed)?;
        let copies = std::cell::RefCell::new(copies);
        let contenders = vec![
            Contender::new("to the device", || copies.borrow_mut().to_device().expect("it worked before")),
            Contender::new("to the host", || copies.borrow_mut().to_host().expect("it worked before")),
        ];
        for (place, measured) in self.meter.compare("copies", bytes as u64, contenders).iter().enumerate() {
            figure.add("one stream", place, measured);
        }
        Ok(figure)
    }

    fn launch(&mut self) -> Result<Figure, BenchError> {
        let about = "A kernel that does nothing: launched, and waited for.";
        let mut figure = Figure::new("gpu-launch", "Launch", about)
            .over("kernel", ["nothing".to_owned()])
            .cycles("launch")
            .bars();
        let gather = Gather::new(&self.device, 32).map_err(failed)?;
        gather.launch_nothing().map_err(failed)?;
        let body = Contender::new("nothing", || gather.launch_nothing().expect("it worked before"));
        for measured in self.meter.compare("launches", 1, vec![body]) {
            figure.add("launch and wait", 0, &measured);
        }
        Ok(figure)
    }

    fn gather(&mut self) -> Result<Figure, BenchError> {
        let tables = self.scale.tables.clone();
        let about = "Reads of 32 bytes at random places of a table, by all threads of the device.";
        let mut figure = Figure::new("gpu-reads", "Random reads", about)
            .over("KiB", labels(&tables.iter().map(|bytes| bytes / 1024).collect::<Vec<_>>()))
            .millions_of("reads");
        for (place, bytes) in tables.iter().enumerate() {
            let mut gather = Gather::new(&self.device, *bytes).map_err(failed)?;
            gather.run().map_err(failed)?;
            let reads = gather.reads() as u64;
            let body = Contender::new("reads", || gather.run().expect("it worked before")).warm();
            for measured in self.meter.compare(&format!("random reads in {bytes} bytes"), reads, vec![body]) {
                figure.add("32 bytes", place, &measured);
            }
        }
        Ok(figure)
    }

    fn tables<const W: usize>(&mut self, set: &Set<W>) -> Result<Vec<Arc<GpuTable<W>>>, BenchError> {
        self.meter.say(&format!("bringing {} rules to the device", set.entries.len()));
        let build =
            |method| GpuTable::build(&self.device, method, &set.kinds, &set.entries, 0x5eed, 0).map(Arc::new);
        // Tables that do not fit the device are left out.
        Ok(methods(set.entries.len()).filter_map(|method| build(method).ok()).collect())
    }

    /// Measures all methods on keys that stay on the device.
    fn resident<const W: usize>(
        &mut self,
        what: &str,
        set: &Set<W>,
        batch: usize,
        figure: &mut Figure,
        place: usize,
    ) -> Result<(), BenchError> {
        let tables = self.tables(set)?;
        let mut keys = ResidentKeys::new(&self.device, &set.keys, batch).map_err(failed)?;
        let mut answers = None;
        for table in &tables {
            keys.look_up(table).map_err(failed)?;
            let hits = keys.last_hits(table).map_err(failed)?;
            if *answers.get_or_insert_with(|| hits.clone()) != hits {
                return Err(otherwise(what, table.method()));
            }
        }
        let keys = std::cell::RefCell::new(keys);
        let body = |table: &Arc<GpuTable<W>>| {
            let (table, keys) = (table.clone(), &keys);
            let name = table.method().name();
            Contender::new(name, move || keys.borrow_mut().look_up(&table).expect("it worked before")).warm()
        };
        for measured in self.meter.compare(what, set.keys.len() as u64, tables.iter().map(body).collect()) {
            figure.add(&measured.name, place, &measured);
        }
        Ok(())
    }

    /// Measures all methods on keys that come from the host and winners that return to it.
    fn end_to_end<const W: usize>(
        &mut self,
        what: &str,
        set: &Set<W>,
        tables: &[Arc<GpuTable<W>>],
        batch: usize,
        figure: &mut Figure,
        place: usize,
    ) -> Result<(), BenchError> {
        let config = SessionConfig { batch_max: batch, ..SessionConfig::default() };
        let (mut session, mut hits) =
            (Session::new(&self.device, config).map_err(failed)?, vec![None; set.keys.len()]);
        for table in tables {
            session.lookup_batch(table, &set.keys, &mut hits).map_err(failed)?;
        }
        let (session, hits) = (std::cell::RefCell::new(session), std::cell::RefCell::new(hits));
        let body = |table: &Arc<GpuTable<W>>| {
            let (table, session, hits, keys) = (table.clone(), &session, &hits, &set.keys);
            let name = table.method().name();
            let run = move || {
                let looked_up = session.borrow_mut().lookup_batch(&table, keys, &mut hits.borrow_mut());
                looked_up.expect("it worked before");
                black_box(&*hits.borrow());
            };
            Contender::new(name, run).warm()
        };
        for measured in self.meter.compare(what, set.keys.len() as u64, tables.iter().map(body).collect()) {
            figure.add(&measured.name, place, &measured);
        }
        Ok(())
    }

    fn by_batch(&mut self) -> Result<[Figure; 2], BenchError> {
        let batches = self.scale.batches.clone();
        let (rules, classes) = (self.scale.rules_a_class * 32, 32.min(self.scale.rules_a_class));
        let shape = Shape::even(rules, classes);
        let about = format!(
            "{rules} rules of twelve fields (288 bits) in {classes} classes, by the size of batches."
        );
        let mut resident = Figure::new("figure-5", "Figure 5: batch size, keys on the device", &about)
            .over("batch", labels(&batches));
        let mut whole = Figure::new("figure-5-end-to-end", "Batch size, from host to host", &about)
            .over("batch", labels(&batches));
        let set = Set::<9>::new(shape, self.scale.keys, 5);
        let tables = self.tables(&set)?;
        for (place, batch) in batches.iter().enumerate() {
            self.resident(&format!("batches of {batch}"), &set, *batch, &mut resident, place)?;
            self.end_to_end(
                &format!("batches of {batch}, end to end"),
                &set,
                &tables,
                *batch,
                &mut whole,
                place,
            )?;
        }
        Ok([resident, whole])
    }

    fn by_rules<const W: usize>(&mut self, id: &str, title: &str) -> Result<Figure, BenchError> {
        let classes = self.scale.classes.clone();
        let rules: Vec<usize> = classes.iter().map(|c| c * self.scale.rules_a_class).collect();
        let about = format!(
            "Rules on keys of {} bytes, as many in every class, keys on the device. The paper states 14.88 million lookups a second \
             (Bloom, 128K rules of 36 bytes in 512 classes).",
            4 * W
        );
        let mut figure = Figure::new(id, title, about).over("rules", labels(&rules));
        for (place, (rules, classes)) in rules.iter().zip(classes).enumerate() {
            let set = Set::<W>::new(Shape::even(*rules, classes), self.scale.keys, 7);
            self.resident(
                &format!("{rules} rules"),
                &set,
                BATCH.max(self.scale.keys / 8),
                &mut figure,
                place,
            )?;
        }
        Ok(figure)
    }

    fn by_classes(&mut self) -> Result<Vec<Figure>, BenchError> {
        let mut figures = Vec::new();
        for (letter, (rules, classes)) in ["a", "b", "c"].iter().zip(self.scale.by_classes.clone()) {
            let about =
                format!("{rules} rules of twelve fields, by the number of classes, keys on the device.");
            let title = format!("Figure 8({letter}): classes, {rules} rules");
            let mut figure =
                Figure::new(format!("figure-8{letter}"), title, about).over("classes", labels(&classes));
            for (place, classes) in classes.iter().enumerate() {
                let set = Set::<9>::new(Shape::even(rules, *classes), self.scale.keys, 8);
                self.resident(&format!("{rules} rules, {classes} classes"), &set, BATCH, &mut figure, place)?;
            }
            figures.push(figure);
        }
        Ok(figures)
    }

    fn by_shape(&mut self) -> Result<[Figure; 3], BenchError> {
        let (rules, classes, full, overlap) = self.scale.ninth.clone();
        let about = format!("{rules} rules in {classes} classes, keys on the device.");
        let mut distribution =
            Figure::new("figure-9a", "Figure 9(a): full classes", &about).over("full", labels(&full));
        for (place, full) in full.iter().enumerate() {
            let set = Set::<9>::new(Shape { full: *full, ..Shape::even(rules, classes) }, self.scale.keys, 9);
            self.resident(&format!("{full} full classes"), &set, BATCH, &mut distribution, place)?;
        }
        let mut overlapping = Figure::new("figure-9b", "Figure 9(b): classes that match a tuple", &about)
            .over("matching classes", labels(&overlap));
        for (place, overlap) in overlap.iter().enumerate() {
            let set = Set::<9>::new(
                Shape { overlap: *overlap, ..Shape::even(rules, classes) },
                self.scale.keys,
                10,
            );
            self.resident(&format!("{overlap} overlapping classes"), &set, BATCH, &mut overlapping, place)?;
        }
        let mut fields = Figure::new("figure-9c", "Figure 9(c): fields", &about)
            .over("fields", ["5", "12"].map(str::to_owned))
            .bars();
        let five = Set::<4>::new(Shape::even(rules, classes), self.scale.keys, 11);
        self.resident("5 fields", &five, BATCH, &mut fields, 0)?;
        let twelve = Set::<9>::new(Shape::even(rules, classes), self.scale.keys, 11);
        self.resident("12 fields", &twelve, BATCH, &mut fields, 1)?;
        Ok([distribution, overlapping, fields])
    }

    /// Measures tuples that pass every filter.
    fn adversarial(&mut self) -> Result<Figure, BenchError> {
        let (rules, classes) = self.scale.adversarial;
        let about = format!(
            "{rules} rules in {classes} classes, made from {} tuples, keys on the device. All match: each of those tuples has a rule in \
             every class, so that every filter rightly says that it may match, and every class's table is read. None matches: the last \
             word is another tuple's, so that each word by itself is one of which every class has a rule, and no rule has both; what \
             asks for one word after the other is left with all classes. (A filter of whole values says no but for its errors, which \
             cannot be aimed at without its key.) The target is 100 million lookups a second.",
            rules / classes
        );
        let places: Vec<String> = [16, 36]
            .iter()
            .flat_map(|bytes| Crossing::ALL.map(|crossing| format!("{bytes} bytes, {}", crossing.name())))
            .collect();
        let mut figure = Figure::new("gpu-adversarial", "Tuples that pass every filter", about)
            .over("", places.clone())
            .bars();
        for (place, crossing) in Crossing::ALL.into_iter().enumerate() {
            let batch = BATCH.max(self.scale.keys / 8);
            let five = Set::<4>::adversarial(rules, classes, crossing, self.scale.keys, 16);
            self.resident(&places[place], &five, batch, &mut figure, place)?;
            let twelve = Set::<9>::adversarial(rules, classes, crossing, self.scale.keys, 16);
            let behind = place + Crossing::ALL.len();
            self.resident(&places[behind], &twelve, batch, &mut figure, behind)?;
        }
        Ok(figure)
    }

    /// Measures lookups from host to host, with and without graphs.
    fn graphs(&mut self) -> Result<Figure, BenchError> {
        let rules = self.scale.rules_a_class * 8;
        let batches: Vec<usize> = graph_batches(&self.scale).collect();
        let about = format!(
            "{rules} rules of 5-tuples in 8 classes, from host to host: the work of a batch call by call, and as one graph."
        );
        let mut figure = Figure::new("gpu-graphs", "Graphs", about).over("batch", labels(&batches));
        let set = Set::<4>::new(Shape::even(rules, 8), self.scale.keys, 17);
        let mut tables = self.tables(&set)?;
        tables.retain(|table| matches!(table.method(), Method::Filtered | Method::Pruned));
        for (place, batch) in batches.into_iter().enumerate() {
            let mut contenders = Vec::new();
            let mut answers: Option<Vec<_>> = None;
            for (table, graphs) in tables.iter().flat_map(|table| [(table, false), (table, true)]) {
                let config = SessionConfig { batch_max: batch, graphs, ..SessionConfig::default() };
                let mut session = Session::new(&self.device, config).map_err(failed)?;
                let mut hits = vec![None; set.keys.len()];
                // A slot records its second full batch.
                for _ in 0..3 {
                    session.lookup_batch(table, &set.keys, &mut hits).map_err(failed)?;
                }
                if *answers.get_or_insert_with(|| hits.clone()) != hits {
                    return Err(otherwise(&format!("batches of {batch}, graphs: {graphs}"), table.method()));
                }
                let keys = &set.keys;
                let run = move || {
                    session.lookup_batch(table, keys, &mut hits).expect("it worked before");
                    black_box(&hits);
                };
                let name = format!("{}{}", table.method(), if graphs { ", graphs" } else { "" });
                contenders.push(Contender::new(name, run).warm());
            }
            for measured in
                self.meter.compare(&format!("graphs, batches of {batch}"), set.keys.len() as u64, contenders)
            {
                figure.add(&measured.name, place, &measured);
            }
        }
        Ok(figure)
    }

    /// Measures batches of the packets that arrive within a delay.
    fn by_delay(&mut self) -> Result<Figure, BenchError> {
        let delays = self.scale.delays_us.clone();
        let rules = self.scale.rules_a_class * 8;
        let about = format!(
            "{rules} rules of 5-tuples in 8 classes, from host to host, in batches of what arrives within the delay in frames of 64 bytes \
             at 40 Gbit/s (figures 10 and 11; the paper forwards at most 27 Gbit/s, which is 40 million a second)."
        );
        let mut figure = Figure::new("figure-11", "Figures 10 and 11: delay", about)
            .over("microseconds", delays.iter().map(|d| d.to_string()));
        let set = Set::<4>::new(Shape::even(rules, 8), self.scale.keys, 12);
        let tables = self.tables(&set)?;
        for (place, delay) in delays.iter().enumerate() {
            let batch = (delay * 40e3 / BITS_A_FRAME) as usize;
            self.end_to_end(&format!("a delay of {delay} µs"), &set, &tables, batch, &mut figure, place)?;
        }
        Ok(figure)
    }

    /// Measures the latency of one batch from host to host, with no other in flight.
    fn latency(&mut self) -> Result<Figure, BenchError> {
        let (rules, batches) = (self.scale.rules_a_class * 8, self.scale.single_batches);
        let batch = BATCH.min(self.scale.keys);
        let about = format!(
            "{rules} rules of 5-tuples in 8 classes: a batch of {batch} from host to host, one after the other, {batches} of each."
        );
        let shares = [("median", 0.5), ("99th percentile", 0.99)];
        let mut figure = Figure::new("gpu-latency", "One batch at a time", about)
            .over("", shares.map(|(name, _)| name.to_owned()))
            .cycles("batch")
            .bars();
        let set = Set::<4>::new(Shape::even(rules, 8), self.scale.keys, 13);
        let clock = TimeStampCounter::new();
        let config = SessionConfig { batch_max: batch, slots: 1, graphs: false };
        let mut session = Session::new(&self.device, config).map_err(failed)?;
        let mut hits = vec![None; batch];
        for table in self.tables(&set)? {
            self.meter.say(&format!("one batch at a time, {}", table.method()));
            let mut taken = Vec::with_capacity(batches);
            // The first is not counted.
            for keys in set.keys.chunks_exact(batch).cycle().take(batches + 1) {
                let begun = clock.ticks();
                session.lookup_batch(&table, keys, &mut hits).map_err(failed)?;
                taken.push(clock.ticks().wrapping_sub(begun));
            }
            taken.remove(0);
            taken.sort_unstable();
            for (place, (_, share)) in shares.iter().enumerate() {
                let at = ((taken.len() - 1) as f64 * share).round() as usize;
                let cycles = Spread::of(&[taken[at] as f64]);
                let ns = cycles.map(|ticks| clock.nanoseconds(ticks));
                let name = table.method().name().to_owned();
                let measured = Measured { name, cycles, ns, rounds: taken.len() };
                figure.add(&measured.name, place, &measured);
            }
        }
        Ok(figure)
    }
}
