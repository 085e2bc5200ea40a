//! The blocked Bloom filter next to the crates `fastbloom` (classic, any hash) and `sbbf-rs-safe` (split blocks with
//! AVX2).
//!
//! Every filter holds the same random 64-bit keys, is sized for a false-positive rate of at most 1 %, and answers
//! with one bit a key. The peers get the cheapest hash that mixes 64 bits; ours, MurmurHash3 of the key, is built in.

use std::cell::RefCell;

use fastbloom::BloomFilter as FastBloom;
use flowlane::bloom::BlockedBloomFilter;
use sbbf_rs_safe::Filter as SplitBlock;

use crate::figure::Figure;
use crate::machine::bytes;
use crate::measure::{Contender, Meter};

const RATE: f64 = 0.01;

/// MurmurHash3's 64-bit finaliser.
#[inline(always)]
fn mix(key: u64) -> u64 {
    let key = (key ^ key >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ key >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ key >> 33
}

/// Returns random keys; streams do not overlap.
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

/// The filters, with equal keys.
struct Filters {
    items: usize,
    fast: FastBloom,
    split: SplitBlock,
    ours: BlockedBloomFilter,
}

impl Filters {
    fn new(table_bytes: usize) -> Self {
        let items = ((table_bytes * 8) as f64 * 2f64.ln().powi(2) / -RATE.ln()) as usize;
        let mut fast = FastBloom::with_false_pos(RATE).seed(&1).expected_items(items);
        let mut split = SplitBlock::new(11, items);
        // The same size as the other split block filter, since the scheme and the rate are the same.
        let bits = 8 * split.as_bytes().len() as u64;
        let ours = BlockedBloomFilter::with_bits(bits).expect("at most 4 GiB");
        for key in keys(1, items) {
            fast.insert_hash(mix(key));
            split.insert_hash(mix(key));
            ours.insert_u64(key);
        }
        Self { items, fast, split, ours }
    }
}

/// Measures filters of these sizes, with keys of which none or half were inserted.
pub(crate) fn measure(meter: &mut Meter<'_>, sizes: &[usize], quick: bool) -> Vec<Figure> {
    let figure = |id: &str, what: &str| {
        let about = "One bit of answer a 64-bit key; every filter sized for the same keys and at most 1 % of false positives, \
                     as many as a classic filter of this size can hold.";
        Figure::new(id, format!("Bloom filters of other crates: {what}"), about)
            .over("size of a classic filter", sizes.iter().map(|b| bytes(*b as u64)))
    };
    let mut figures =
        [figure("bloom-peers-misses", "random keys"), figure("bloom-peers-half", "half of the keys are in")];
    for (place, table_bytes) in sizes.iter().enumerate() {
        // Enough keys that branches are not learned and that, beyond the caches, all of the filter is touched.
        let n = if quick { 1 << 12 } else { (table_bytes / 8).clamp(1 << 15, 1 << 20) };
        meter.say(&format!("filling filters of {}", bytes(*table_bytes as u64)));
        let filters = Filters::new(*table_bytes);
        let strangers: Vec<u64> = keys(2, n).collect();
        let members: Vec<u64> = keys(1, filters.items).take(n / 2).collect();
        let half = strangers.iter().enumerate();
        let half: Vec<u64> =
            half.map(|(i, k)| if mix(i as u64) & 1 == 0 { *k } else { members[i % members.len()] }).collect();
        for (figure, probes) in figures.iter_mut().zip([&strangers, &half]) {
            compare(meter, &filters, probes, place, figure);
        }
    }
    for figure in &mut figures {
        figure.gain("flowlane", "sbbf-rs-safe", None);
        figure.gain("flowlane", "fastbloom", None);
    }
    figures.into()
}

fn compare(meter: &mut Meter<'_>, filters: &Filters, probes: &[u64], place: usize, figure: &mut Figure) {
    let Filters { fast, split, ours, .. } = filters;
    let hits = RefCell::new(vec![0u64; probes.len() / 64]);
    let hits = &hits;
    let contenders = vec![
        Contender::new("flowlane", move || ours.contains_batch_u64(probes, &mut hits.borrow_mut())).warm(),
        Contender::new("fastbloom", move || {
            collect(probes, &mut hits.borrow_mut(), |k| fast.contains_hash(mix(k)));
        })
        .warm(),
        Contender::new("sbbf-rs-safe", move || {
            collect(probes, &mut hits.borrow_mut(), |k| split.contains_hash(mix(k)));
        })
        .warm(),
    ];
    for measured in meter.compare("other crates' filters", probes.len() as u64, contenders) {
        figure.add(&measured.name, place, &measured);
    }
}
