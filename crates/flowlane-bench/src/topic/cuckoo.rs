//! The cuckoo table: batches of 64 lookups by table size, key size, hit ratio and variant; insertion; readers with a
//! concurrent writer. With the feature `peers-dpdk`, DPDK's `rte_hash` is measured as well.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowlane::cuckoo::{BATCH_MAX, CuckooConfig, CuckooReader, CuckooTable, CuckooWriter};
use flowlane::generate::Random;
use flowlane::isa::Variant;
use flowlane::memory::prefetch;

use super::Context;
use crate::figure::Figure;
use crate::measure::{Contender, Measured, Meter};
use crate::options::BenchError;
#[cfg(feature = "peers-dpdk")]
use crate::peers::dpdk::{self, RteHash};

/// Hits in a hundred lookups.
const HITS: [u64; 3] = [100, 50, 0];
/// Key sizes that are measured.
const KEY_BYTES: [usize; 6] = [4, 8, 16, 32, 48, 64];
/// The load in percent of the slots.
const LOAD: usize = 95;
const SEED: u32 = 0x5eed;

/// The workload, scaled to the available time.
#[derive(Clone, Copy)]
struct Work {
    /// Keys of a pass.
    keys: usize,
    /// Slots of the table, where they are not varied.
    slots: usize,
}

impl Work {
    fn of(context: &Context<'_>) -> Self {
        match context.quick() {
            true => Self { keys: 1 << 11, slots: 1 << 13 },
            false => Self { keys: 1 << 18, slots: 1 << 20 },
        }
    }

    fn entries(self) -> usize {
        self.slots * LOAD / 100
    }
}

/// Returns the numbers of slots of the first figure, from L1 to beyond L3.
fn table_slots(context: &Context<'_>) -> &'static [usize] {
    const ALL: [usize; 6] = [1 << 8, 1 << 11, 1 << 14, 1 << 17, 1 << 20, 1 << 22];
    if context.quick() { &ALL[..2] } else { &ALL }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    table_slots(context).len() + 2 * KEY_BYTES.len() + HITS.len() + 1
}

/// Returns key number `n`; consecutive keys have no order that a hash or a prefetcher could exploit.
fn key<const W: usize>(n: u32) -> [u32; W] {
    // With odd factors, every word is a permutation of the numbers.
    std::array::from_fn(|w| n.wrapping_mul(0x9e37_79b9 + 2 * w as u32).rotate_left(w as u32))
}

/// Draws keys, of which `hits` percent are among the first `entries`.
fn keys<const W: usize>(count: usize, entries: usize, hits: u64) -> Vec<[u32; W]> {
    let mut random = Random::new(1);
    let mut one = || {
        let n = random.index(entries);
        key(if random.below(100) < hits { n } else { n + entries } as u32)
    };
    (0..count).map(|_| one()).collect()
}

fn filled<const W: usize>(entries: usize, variant: Option<Variant>) -> CuckooWriter<W> {
    let config = CuckooConfig::new(entries, SEED);
    let config = variant.and_then(|v| config.with_variant(v)).unwrap_or(config);
    let mut writer = CuckooWriter::new(&config);
    let (keys, values): (Vec<_>, Vec<_>) = (0..entries as u32).map(|n| (key(n), n)).unzip();
    assert_eq!(writer.insert_batch(&keys, &values), entries, "it has room");
    writer
}

/// Prefetches the keys of the batch after `batch`, as a parser would have left them in the cache.
#[inline(always)]
fn ask_for_next<const W: usize>(keys: &[[u32; W]], batch: usize) {
    let words = keys.as_flattened();
    let from = (batch + 1) * BATCH_MAX * W;
    (from..from + BATCH_MAX * W).step_by(16).for_each(|word| prefetch(words, word));
}

fn look_up<const W: usize>(table: &CuckooTable<W>, keys: &[[u32; W]]) {
    let mut values = [0; BATCH_MAX];
    for (i, batch) in keys.chunks(BATCH_MAX).enumerate() {
        ask_for_next(keys, i);
        black_box(table.lookup_batch(black_box(batch), &mut values));
        black_box(&values);
    }
}

/// Looks up keys in batches of 256, the size of DPDK's and VPP's vectors of packets.
fn look_up_many<const W: usize>(table: &CuckooTable<W>, keys: &[[u32; W]]) {
    const MANY: usize = 4 * BATCH_MAX;
    let (mut values, mut hits) = ([0; MANY], [0; MANY / BATCH_MAX]);
    for (i, many) in keys.chunks(MANY).enumerate() {
        (4 * i + 3..4 * i + 7).for_each(|batch| ask_for_next(keys, batch));
        table.lookup_many(black_box(many), &mut values, &mut hits);
        black_box((&values, &hits));
    }
}

/// Invokes a function with the number of words of each of [`KEY_BYTES`].
macro_rules! for_each_key_size {
    ($function:ident($($argument:expr),*)) => {{
        $function::<1>($($argument),*, 0)?;
        $function::<2>($($argument),*, 1)?;
        $function::<4>($($argument),*, 2)?;
        $function::<8>($($argument),*, 3)?;
        $function::<12>($($argument),*, 4)?;
        $function::<16>($($argument),*, 5)?;
    }};
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Result<Vec<Figure>, BenchError> {
    #[cfg(feature = "peers-dpdk")]
    dpdk::start()?;
    let work = Work::of(context);
    let sizes = by_table_size(meter, context, work)?;
    let mut key_sizes = Figure::new(
        "cuckoo-key-size",
        "Cuckoo table: batches, by size of the key",
        format!(
            "Batches of 64 in a table of {} entries, {LOAD} % full, by size of the key and share of hits.",
            work.entries()
        ),
    )
    .over("key", KEY_BYTES.map(|n| format!("{n} B")));
    for_each_key_size!(by_key_size(meter, work, &mut key_sizes));
    let variants = by_variant(meter, context, work);
    let mut insertions = Figure::new(
        "cuckoo-insert",
        "Cuckoo table: insertion",
        "One at a time, and in batches, in memory that was touched before: to 72 % of the slots, from there to 95 %, and replacing the \
         values of all.",
    )
    .over("key", KEY_BYTES.map(|n| format!("{n} B")))
    .cycles("insertion");
    for_each_key_size!(insert(meter, work, &mut insertions));
    let with_writer = with_concurrent_writer(meter, work);
    for (figure, ours) in [(&mut key_sizes, "flowlane, "), (&mut insertions, "")] {
        against_rte_hash(figure, ours);
    }
    Ok(vec![sizes, key_sizes, variants, insertions, with_writer])
}

/// Adds ratios to DPDK's table, if measured.
fn against_rte_hash(figure: &mut Figure, ours: &str) {
    let names: Vec<String> = figure.series.iter().map(|s| s.name.clone()).collect();
    figure.paint(|name| {
        let peer = name.strip_prefix("rte_hash, ")?;
        let twin = names.iter().position(|n| n.strip_prefix(ours) == Some(peer))?;
        Some((twin, true))
    });
    #[cfg(feature = "peers-dpdk")]
    figure.about.push_str(dpdk::conditions());
    for peer in names.iter().filter(|name| name.starts_with("rte_hash, ")) {
        let same = peer.trim_start_matches("rte_hash, ");
        // The peer has no counterpart for batches of 256 and batched insertion; these are compared with its single
        // operations.
        for more in ["", "256 at a time, ", "in batches, "] {
            let ours = format!("{ours}{more}{same}");
            if names.contains(&ours) {
                figure.gain(&ours, peer, None);
            }
        }
    }
}

fn add(figure: &mut Figure, place: usize, measured: &[Measured]) {
    measured.iter().for_each(|m| figure.add(&m.name, place, m));
}

fn by_table_size(meter: &mut Meter<'_>, context: &Context<'_>, work: Work) -> Result<Figure, BenchError> {
    let sizes = table_slots(context);
    let name = |slots: &usize| match slots {
        0..1024 => slots.to_string(),
        1024..0x10_0000 => format!("{}K", slots >> 10),
        _ => format!("{}M", slots >> 20),
    };
    let about = "Keys of 16 bytes, 95 % of the slots full (small tables less), batches of 64 and one at a time, against the \
                 size of the table.";
    let mut figure = Figure::new("cuckoo-table-size", "Cuckoo table: batches, by size of the table", about)
        .over("slots", sizes.iter().map(name));
    for (place, slots) in sizes.iter().enumerate() {
        let entries = slots * LOAD / 100;
        meter.say(&format!("filling a table of {entries}"));
        let table = filled::<4>(entries, None);
        let sets = HITS.map(|hits| keys::<4>(work.keys, entries, hits));
        #[cfg(feature = "peers-dpdk")]
        let theirs = dpdk::filled(entries, key::<4>)?;
        let mut contenders = Vec::new();
        for (hits, keys) in HITS.iter().zip(&sets) {
            let name = format!("flowlane, {hits} % hits");
            let table = &table;
            contenders.push(Contender::new(name, move || look_up(table, keys)).warm());
        }
        for (hits, keys) in HITS.iter().zip(&sets) {
            let name = format!("flowlane, 256 at a time, {hits} % hits");
            let table = &table;
            contenders.push(Contender::new(name, move || look_up_many(table, keys)).warm());
        }
        contenders.push(
            Contender::new("flowlane, one at a time, 100 % hits", || {
                sets[0].iter().for_each(|key| _ = black_box(table.lookup(key)));
            })
            .warm(),
        );
        #[cfg(feature = "peers-dpdk")]
        contenders.extend(rte_lookups(&theirs, &sets));
        add(&mut figure, place, &meter.compare(&format!("{entries} entries"), work.keys as u64, contenders));
    }
    against_rte_hash(&mut figure, "flowlane, ");
    Ok(figure)
}

fn by_key_size<const W: usize>(
    meter: &mut Meter<'_>,
    work: Work,
    figure: &mut Figure,
    place: usize,
) -> Result<(), BenchError> {
    let entries = work.entries();
    meter.say(&format!("filling a table with keys of {} bytes", 4 * W));
    let table = filled::<W>(entries, None);
    let sets = HITS.map(|hits| keys::<W>(work.keys, entries, hits));
    let table = &table;
    let ours = HITS.iter().zip(&sets).map(|(hits, keys)| {
        Contender::new(format!("flowlane, {hits} % hits"), move || look_up(table, keys)).warm()
    });
    let contenders: Vec<Contender<'_>> = ours.collect();
    #[cfg(feature = "peers-dpdk")]
    let theirs = dpdk::filled(entries, key::<W>)?;
    #[cfg(feature = "peers-dpdk")]
    let contenders = contenders.into_iter().chain(rte_lookups(&theirs, &sets)).collect();
    let what = format!("keys of {} bytes", 4 * W);
    add(figure, place, &meter.compare(&what, work.keys as u64, contenders));
    Ok(())
}

/// Returns contenders for `rte_hash_lookup_bulk`.
#[cfg(feature = "peers-dpdk")]
fn rte_lookups<'a, const W: usize>(
    table: &'a RteHash<W>,
    sets: &'a [Vec<[u32; W]>; HITS.len()],
) -> impl Iterator<Item = Contender<'a>> {
    HITS.iter().zip(sets).map(move |(hits, keys)| {
        Contender::new(format!("rte_hash, {hits} % hits"), move || {
            let mut at = [0; BATCH_MAX];
            for (i, batch) in keys.chunks(BATCH_MAX).enumerate() {
                ask_for_next(keys, i);
                table.lookup_bulk(black_box(batch), &mut at);
                black_box(&at);
            }
        })
        .warm()
    })
}

fn by_variant(meter: &mut Meter<'_>, context: &Context<'_>, work: Work) -> Figure {
    let about =
        format!("Keys of 16 bytes in a table of {} entries, batches of 64, by variant.", work.entries());
    let mut figure = Figure::new("cuckoo-variants", "Cuckoo table: variants", about)
        .over("hits", HITS.map(|hits| format!("{hits} %")))
        .bars();
    let tables: Vec<CuckooWriter<4>> =
        context.options.variants().into_iter().map(|v| filled(work.entries(), Some(v))).collect();
    for (place, hits) in HITS.into_iter().enumerate() {
        let keys = keys::<4>(work.keys, work.entries(), hits);
        let keys = &keys;
        let contenders = tables
            .iter()
            .map(|table| Contender::new(table.variant().name(), move || look_up(table, keys)).warm());
        add(&mut figure, place, &meter.compare("variants", work.keys as u64, contenders.collect()));
    }
    let names: Vec<String> = figure.series.iter().map(|s| s.name.clone()).collect();
    names.iter().filter(|name| *name != "scalar").for_each(|name| figure.gain(name, "scalar", None));
    figure
}

fn insert<const W: usize>(
    meter: &mut Meter<'_>,
    work: Work,
    figure: &mut Figure,
    place: usize,
) -> Result<(), BenchError> {
    let entries = work.entries();
    let all: Vec<[u32; W]> = (0..entries as u32).map(key).collect();
    let (most, rest) = all.split_at(entries * 3 / 4);
    let writer = RefCell::new(filled::<W>(entries, None));
    let put = |part: &[[u32; W]]| {
        let mut writer = writer.borrow_mut();
        part.iter().for_each(|key| _ = black_box(writer.insert(key, 7).expect("has room")));
    };
    let values = vec![7; entries];
    let put_batch = |part: &[[u32; W]]| {
        assert_eq!(black_box(writer.borrow_mut().insert_batch(part, &values)), part.len(), "it has room");
    };
    let clear = || writer.borrow_mut().clear();
    let contenders = vec![
        Contender::new("in batches, to 72 %", || put_batch(most)).after(clear).operations(most.len()),
        Contender::new("in batches, from 72 to 95 %", || put_batch(rest))
            .after(|| {
                clear();
                put(most);
            })
            .operations(rest.len()),
        Contender::new("in batches, replacing", || put_batch(&all)),
        Contender::new("to 72 %", || put(most)).after(clear).operations(most.len()),
        Contender::new("from 72 to 95 %", || put(rest))
            .after(|| {
                clear();
                put(most);
            })
            .operations(rest.len()),
        Contender::new("replacing", || put(&all)),
    ];
    #[cfg(feature = "peers-dpdk")]
    let theirs = RefCell::new(dpdk::filled(entries, key::<W>)?);
    #[cfg(feature = "peers-dpdk")]
    let contenders = contenders.into_iter().chain(rte_insertions(&theirs, most, rest)).collect();
    let what = format!("insertion, keys of {} bytes", 4 * W);
    add(figure, place, &meter.compare(&what, entries as u64, contenders));
    Ok(())
}

#[cfg(feature = "peers-dpdk")]
fn rte_insertions<'a, const W: usize>(
    table: &'a RefCell<RteHash<W>>,
    most: &'a [[u32; W]],
    rest: &'a [[u32; W]],
) -> [Contender<'a>; 2] {
    let put = |part: &[[u32; W]]| {
        let mut table = table.borrow_mut();
        part.iter().for_each(|key| _ = black_box(table.insert(key, 7)));
    };
    let clear = || table.borrow_mut().clear();
    [
        Contender::new("rte_hash, to 72 %", move || put(most)).after(clear).operations(most.len()),
        Contender::new("rte_hash, from 72 to 95 %", move || put(rest))
            .after(move || {
                clear();
                put(most);
            })
            .operations(rest.len()),
    ]
}

/// Measures one reader, alone and while a writer makes a million changes a second.
fn with_concurrent_writer(meter: &mut Meter<'_>, work: Work) -> Figure {
    let about = "A reader's batches of 64, keys of 16 bytes, all present: quiet, and beside a thread that inserts and removes a \
                 tenth of the entries at a million changes a second. Says little where there is one core.";
    let mut figure = Figure::new("cuckoo-writer", "Cuckoo table: beside a writer", about)
        .over("reader", ["one".to_owned()])
        .bars();
    let entries = work.entries();
    let mut writer = filled::<4>(entries, None);
    // Makes room for the changes: a tenth of the keys are inserted and removed.
    let come_and_go = entries as u32 / 10;
    (0..come_and_go).for_each(|n| _ = writer.remove(&key(n)));
    let reader: CuckooReader<4> = writer.reader();
    let mut random = Random::new(1);
    let stay = entries - come_and_go as usize;
    let keys: Vec<[u32; 4]> = (0..work.keys).map(|_| key(random.index(stay) as u32 + come_and_go)).collect();
    let (busy, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let measured = thread::scope(|scope| {
        scope.spawn(|| change(&mut writer, come_and_go, &busy, &stop));
        let (reader, keys, busy) = (&reader, &keys, &busy);
        let set = |value: bool| {
            move || {
                busy.store(value, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        };
        let contenders = vec![
            Contender::new("quiet", move || look_up(reader, keys)).warm().after(set(false)),
            Contender::new("beside a writer", move || look_up(reader, keys)).warm().after(set(true)),
        ];
        let measured = meter.compare("beside a writer", work.keys as u64, contenders);
        stop.store(true, Ordering::Relaxed);
        measured
    });
    add(&mut figure, 0, &measured);
    figure.gain("beside a writer", "quiet", None);
    figure
}

/// Inserts and removes keys at a million changes a second while `busy` is set, until `stop` is set.
fn change(writer: &mut CuckooWriter<4>, keys: u32, busy: &AtomicBool, stop: &AtomicBool) {
    const STEP: u64 = 50;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        if !busy.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(100));
            continue;
        }
        let start = Instant::now();
        for _ in 0..STEP / 2 {
            n = (n + 1) % keys;
            writer.insert(&key(n), n).expect("has room");
            writer.remove(&key(n));
        }
        while start.elapsed() < Duration::from_micros(STEP) {
            std::hint::spin_loop();
        }
    }
}
