//! The cuckoo table with a million entries: batches of 64 keys of all sizes, hits and misses, by each
//! variant; insertion; and readers beside a writer that makes a million changes a second.
//!
//! Words on the command line pick parts: `lookup`, `variants`, `insert`, `writer`.

mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowlane::cuckoo::{BATCH_MAX, CuckooConfig, CuckooReader, CuckooWriter};
use flowlane::isa::Variant;

const ENTRIES: usize = 1_000_000;
/// Keys per call of a body.
const KEYS: usize = 1 << 17;
const ROUNDS: usize = 11;

/// Key number `n`, in no order that a hash or a prefetcher could profit from.
fn key<const W: usize>(n: u32) -> [u32; W] {
    // Odd factors: every word is a permutation of the numbers.
    std::array::from_fn(|w| n.wrapping_mul(0x9e37_79b9 + 2 * w as u32).rotate_left(w as u32))
}

/// `KEYS` numbers below `below`.
fn numbers(below: usize) -> impl Iterator<Item = u32> {
    let mut state = 1u64;
    (0..KEYS).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % below) as u32
    })
}

/// Keys of which `percent` in a hundred are in the table.
fn keys<const W: usize>(percent: u32) -> Vec<[u32; W]> {
    let present = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) >> 16 & 127 < percent * 128 / 100;
    numbers(ENTRIES).enumerate().map(|(i, n)| key(if present(i) { n } else { n + ENTRIES as u32 })).collect()
}

fn filled<const W: usize>(variant: Option<Variant>) -> CuckooWriter<W> {
    let config = CuckooConfig::new(ENTRIES, 0x5eed);
    let config = variant.map_or(config, |v| config.with_variant(v).expect("is available"));
    let mut writer = CuckooWriter::new(&config);
    for n in 0..ENTRIES as u32 {
        writer.insert(&key(n), n.into()).expect("has room");
    }
    writer
}

fn look_up<const W: usize>(reader: &CuckooReader<W>, keys: &[[u32; W]]) {
    let mut values = [0; BATCH_MAX];
    for batch in keys.chunks(BATCH_MAX) {
        black_box(reader.lookup_batch(black_box(batch), &mut values));
        black_box(&values);
    }
}

fn lookups<const W: usize>() {
    let writer = filled::<W>(None);
    let sets = [100, 50, 0].map(|percent| (format!("{percent} % hits, batches"), keys::<W>(percent)));
    let singles = keys::<W>(100);
    let mut bodies: Vec<support::Body<'_>> = vec![];
    for (name, keys) in &sets {
        let reader = writer.reader();
        bodies.push((name, Box::new(move || look_up(&reader, keys))));
    }
    bodies.push(("100 % hits, one at a time", {
        let reader = writer.reader();
        Box::new(move || singles.iter().for_each(|key| _ = black_box(reader.lookup(key))))
    }));
    let title = format!(
        "{} bytes, {} entries, {} MiB, {}",
        4 * W,
        writer.len(),
        writer.table_bytes() >> 20,
        writer.variant()
    );
    support::compare(&title, KEYS as u64, ROUNDS, &mut bodies);
}

fn variants<const W: usize>(percent: u32) {
    let keys = keys::<W>(percent);
    let available: Vec<Variant> = Variant::ALL.into_iter().filter(|v| v.available()).collect();
    let mut bodies: Vec<support::Body<'_>> = vec![];
    for variant in available {
        let writer = filled::<W>(Some(variant));
        let keys = &keys;
        bodies.push((variant.name(), Box::new(move || look_up(&writer.reader(), keys))));
    }
    let title = format!("{} bytes, {percent} % hits, by variant", 4 * W);
    support::compare(&title, KEYS as u64, ROUNDS, &mut bodies);
}

/// Fills empty tables, with memory that was touched before.
fn insertions<const W: usize>() {
    let keys: Vec<[u32; W]> = (0..ENTRIES as u32).map(key).collect();
    let mut writer = filled::<W>(None);
    let clock = quanta::Clock::new();
    let cycles = |part: &[[u32; W]], writer: &mut CuckooWriter<W>| {
        let before = clock.raw();
        for (n, key) in part.iter().enumerate() {
            writer.insert(key, n as u64).expect("has room");
        }
        (clock.raw() - before) as f64 / part.len() as f64
    };
    writer.clear();
    let (most, rest) = keys.split_at(ENTRIES * 3 / 4);
    let (most, rest) = (cycles(most, &mut writer), cycles(rest, &mut writer));
    let replaced = cycles(&keys, &mut writer);
    println!(
        "{} bytes, cycles per insertion: {most:.1} up to 72 % load, {rest:.1} from there to 95 %; \
         replacing {replaced:.1}",
        4 * W
    );
}

/// The rate of one reader, quiet and beside a writer that makes a million changes a second.
fn beside_a_writer() {
    let mut writer = filled::<4>(None);
    // Room for the changes: a tenth of the keys come and go.
    for n in 0..ENTRIES as u32 / 10 {
        writer.remove(&key(n));
    }
    let reader = writer.reader();
    let keys: Vec<[u32; 4]> = numbers(ENTRIES * 9 / 10).map(|n| key(n + ENTRIES as u32 / 10)).collect();
    let rate = |for_ms| {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(for_ms) {
            look_up(&reader, &keys);
            count += keys.len();
        }
        count as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    let mut ratios = vec![];
    for _ in 0..5 {
        let quiet = rate(300);
        let stop = AtomicBool::new(false);
        let (busy, changes) = thread::scope(|scope| {
            let changing = scope.spawn(|| change(&mut writer, &stop));
            let busy = rate(300);
            stop.store(true, Ordering::Relaxed);
            (busy, changing.join().expect("does not panic"))
        });
        println!("quiet {quiet:.1} M/s, beside {changes:.2} M changes/s {busy:.1} M/s: {:.3}", busy / quiet);
        ratios.push(busy / quiet);
    }
    ratios.sort_by(f64::total_cmp);
    println!("a reader beside the writer has {:.3} of its quiet rate (median)", ratios[2]);
}

/// Inserts and removes at a million changes a second until told to stop; returns millions a second.
fn change(writer: &mut CuckooWriter<4>, stop: &AtomicBool) -> f64 {
    let (start, mut changes) = (Instant::now(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        for i in 0..50u64 {
            let n = ((changes / 2 + i / 2) % (ENTRIES as u64 / 10)) as u32;
            if i % 2 == 0 {
                writer.insert(&key(n), n.into()).expect("has room");
            } else {
                writer.remove(&key(n));
            }
        }
        changes += 50;
        while start.elapsed() < Duration::from_micros(changes) && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
    changes as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let asked = |word: &str| words.is_empty() || words.iter().any(|w| w == word);
    if asked("lookup") {
        lookups::<1>();
        lookups::<2>();
        lookups::<4>();
        lookups::<8>();
        lookups::<12>();
        lookups::<16>();
    }
    if asked("variants") {
        variants::<4>(100);
        variants::<4>(0);
    }
    if asked("insert") {
        insertions::<1>();
        insertions::<4>();
        insertions::<16>();
    }
    if asked("writer") {
        beside_a_writer();
    }
}
