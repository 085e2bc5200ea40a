//! Flowlane's blocked Bloom filter beside the crates `fastbloom` (classic, any hash) and `sbbf-rs-safe` (split
//! blocks with AVX2), interleaved in one run.
//!
//! Every filter holds the same random 64-bit keys, is sized for a false-positive rate of 1% or less, and answers
//! for a million keys, one bit each. The peers get the cheapest hash that mixes 64 bits; ours, MurmurHash3 of the
//! key, is inside. Large allocations of all are put on huge pages, as ours are anyway.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use fastbloom::BloomFilter as FastBloom;
use flowlane::bloom::BlockedBloomFilter;
use sbbf_rs_safe::Filter as SplitBlock;

/// Keys a pass: so many, in a filter that fits a cache, that the branches of a pass are not learnt, and so few
/// that they lie in L2; for larger filters so many that what they touch does not fit L3.
const KEYS: [usize; 4] = [1 << 15, 1 << 15, 1 << 18, 1 << 20];
const RATE: f64 = 0.01;
const ROUNDS: usize = 15;

/// Size of a classic filter for that rate: in L1, L2 and L3 of the machines measured so far, and beyond.
const SIZES_KIB: [usize; 4] = [16, 512, 8 << 10, 128 << 10];

type Body<'a> = (&'a str, usize, Box<dyn Fn(&mut [u64]) + 'a>);

/// The system's allocator, with large allocations on huge pages.
struct OnHugePages;

const HUGE_BYTES: usize = 2 << 20;

#[global_allocator]
static ALLOCATOR: OnHugePages = OnHugePages;

/// The layout that is asked for instead: large ones begin on a huge page.
fn aligned(layout: Layout) -> Layout {
    let large = layout.size() >= HUGE_BYTES;
    layout.align_to(if large { HUGE_BYTES } else { 1 }).unwrap_or(layout)
}

// SAFETY: all is left to the system's allocator, with the same larger alignment for allocation and release.
unsafe impl GlobalAlloc for OnHugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; advice changes nothing but what pages are used.
        unsafe {
            let place = System.alloc(aligned(layout));
            if layout.size() >= HUGE_BYTES && !place.is_null() {
                libc::madvise(place.cast(), layout.size(), libc::MADV_HUGEPAGE);
            }
            place
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; `size` bytes were allocated.
        unsafe {
            let place = self.alloc(layout);
            if !place.is_null() {
                place.write_bytes(0, layout.size());
            }
            place
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: allocated with this layout.
        unsafe { System.dealloc(place, aligned(layout)) }
    }
}

fn main() {
    let wanted: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    for (kib, n) in
        SIZES_KIB.into_iter().zip(KEYS).filter(|(kib, _)| wanted.is_empty() || wanted.contains(kib))
    {
        measure(kib, n);
    }
}

/// MurmurHash3's 64-bit finaliser.
#[inline(always)]
fn mix(key: u64) -> u64 {
    let key = (key ^ key >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ key >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ key >> 33
}

/// Random keys; those of different streams are different.
fn keys(stream: u64, count: usize) -> impl Iterator<Item = u64> {
    (0..count as u64).map(move |i| mix((stream << 40 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[inline(always)]
fn collect(keys: &[u64], hits: &mut [u64], contains: impl Fn(u64) -> bool) {
    for (keys, hits) in keys.chunks(64).zip(hits) {
        let mut word = 0;
        for (i, key) in keys.iter().enumerate() {
            word |= u64::from(contains(*key)) << i;
        }
        *hits = word;
    }
}

fn measure(kib: usize, n: usize) {
    let items = (((kib << 13) as f64) * 2f64.ln().powi(2) / -RATE.ln()) as usize;
    let mut fast = FastBloom::with_false_pos(RATE).seed(&1).expected_items(items);
    let mut split = SplitBlock::new(11, items);
    // As large as the other split block filter: the scheme is the same, and so is the rate.
    let bits = 8 * split.as_bytes().len() as u64;
    let ours = || BlockedBloomFilter::with_bits(bits).expect("a size that there is");
    let (ours, ahead, now) = (ours(), ours().with_prefetch(true), ours().with_prefetch(false));
    for key in keys(1, items) {
        fast.insert_hash(mix(key));
        split.insert_hash(mix(key));
        ours.insert_u64(key);
        ahead.insert_u64(key);
        now.insert_u64(key);
    }
    let strangers: Vec<u64> = keys(2, n).collect();
    let members: Vec<u64> = keys(1, items).take(n / 2).collect();
    let half: Vec<u64> = strangers
        .iter()
        .enumerate()
        .map(|(i, k)| if mix(i as u64) & 1 == 0 { *k } else { members[i % members.len()] })
        .collect();

    let ours_bytes = (ours.bits() / 8) as usize;
    let fast_bytes = fast.num_bits() / 8;
    for (what, probes) in [("random keys", &strangers), ("half of them members", &half)] {
        let bodies: Vec<Body<'_>> = vec![
            ("fastbloom", fast_bytes, Box::new(|hits| collect(probes, hits, |k| fast.contains_hash(mix(k))))),
            (
                "sbbf-rs-safe",
                split.as_bytes().len(),
                Box::new(|hits| collect(probes, hits, |k| split.contains_hash(mix(k)))),
            ),
            ("flowlane", ours_bytes, Box::new(|hits| ours.contains_batch_u64(probes, hits))),
            ("flowlane, asking ahead", ours_bytes, Box::new(|hits| ahead.contains_batch_u64(probes, hits))),
            ("flowlane, not ahead", ours_bytes, Box::new(|hits| now.contains_batch_u64(probes, hits))),
        ];
        compare(&format!("{kib} KiB, {items} items, {n} {what}"), n, &bodies);
    }
}

/// Runs the bodies in turn and prints time-stamp cycles per key, and the median's ratio to the better peer's.
fn compare(title: &str, n: usize, bodies: &[Body<'_>]) {
    let clock = quanta::Clock::new();
    let mut hits = vec![0u64; n / 64];
    let mut passed = vec![0; bodies.len()];
    let mut cycles = vec![vec![]; bodies.len()];
    for round in 0..=ROUNDS {
        for (i, (_, _, body)) in bodies.iter().enumerate() {
            // Once untimed: what the others left in the caches is not this one's doing.
            body(black_box(&mut hits));
            let before = clock.raw();
            body(black_box(&mut hits));
            let taken = clock.raw() - before;
            passed[i] = hits.iter().map(|h| h.count_ones()).sum::<u32>();
            if round > 0 {
                cycles[i].push(taken as f64 / n as f64);
            }
        }
    }
    println!("{title}: cycles per key, least / median; times faster than the best peer; passed; bytes");
    cycles.iter_mut().for_each(|c| c.sort_by(f64::total_cmp));
    let median = |i: usize| cycles[i][ROUNDS / 2];
    let best = (0..2).map(median).fold(f64::INFINITY, f64::min);
    for (i, (name, bytes, _)) in bodies.iter().enumerate() {
        let share = 100.0 * f64::from(passed[i]) / n as f64;
        println!(
            "  {name:<24} {:>7.1} / {:>7.1}  {:>6.2}  {share:>7.3}%  {bytes}",
            cycles[i][0],
            median(i),
            best / median(i)
        );
    }
}
