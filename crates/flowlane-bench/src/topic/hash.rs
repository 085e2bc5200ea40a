//! Hash functions over keys of 4 words (an IPv4 5-tuple): 1, 8 and 16 keys at a time, by each variant.

use std::hint::black_box;

use flowlane::generate::Random;
use flowlane::hash::crc32c::{self, Crc32c};
use flowlane::hash::multilinear::Multilinear;
use flowlane::hash::murmur3::{self, Murmur3};

use super::Context;
use crate::figure::Figure;
use crate::measure::{Contender, Meter};

/// Keys of a pass: 64 KiB, which L2 delivers to L1 in time.
const KEYS: usize = 4096;
const WORDS: usize = 4;
const SEED: u32 = 7;
/// Keys at a time.
const LANES: [usize; 3] = [1, 8, 16];

pub(super) fn comparisons(_: &Context<'_>) -> usize {
    3
}

/// Returns `KEYS` keys as batches of `N` lanes.
fn batches<const N: usize>() -> Vec<[[u32; N]; WORDS]> {
    let mut random = Random::new(1);
    (0..KEYS / N).map(|_| std::array::from_fn(|_| std::array::from_fn(|_| random.bits() as u32))).collect()
}

fn body<'a, const N: usize>(name: &str, hash: impl Fn(&[[u32; N]], &mut [u32; N]) + 'a) -> Contender<'a> {
    let batches = batches::<N>();
    Contender::new(format!("{name}|{N}"), move || {
        let mut out = [0; N];
        for batch in &batches {
            hash(black_box(batch), &mut out);
            black_box(&out);
        }
    })
}

/// Adds a contender for each number of keys at a time.
macro_rules! contenders {
    ($to:expr, $name:expr, $hash:expr) => {{
        let hash = $hash;
        $to.push(body::<1>($name, move |words, out| hash.hash_lanes(words, SEED, out)));
        $to.push(body::<8>($name, move |words, out| hash.hash_lanes(words, SEED, out)));
        $to.push(body::<16>($name, move |words, out| hash.hash_lanes(words, SEED, out)));
    }};
}

/// Hashes lanes key by key.
fn one_by_one<const N: usize>(words: &[[u32; N]], out: &mut [u32; N], hash: impl Fn(&[u32]) -> u32) {
    for (lane, out) in out.iter_mut().enumerate() {
        let key: [u32; WORDS] = std::array::from_fn(|w| words[w][lane]);
        *out = hash(&key);
    }
}

fn serial<'a>(name: &str, hash: impl Fn(&[u32]) -> u32 + Copy + 'a) -> Vec<Contender<'a>> {
    vec![
        body::<1>(name, move |words, out| one_by_one(words, out, hash)),
        body::<8>(name, move |words, out| one_by_one(words, out, hash)),
        body::<16>(name, move |words, out| one_by_one(words, out, hash)),
    ]
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let variants = context.options.variants();
    let mut murmur = serial("one by one", |key| murmur3::hash_words(key, SEED));
    let mut crc = serial("one by one, by table", |key| crc32c::hash_words(key, SEED));
    for variant in variants {
        let name = variant.name();
        if let Some(hash) = Murmur3::with_variant(variant) {
            contenders!(murmur, name, hash);
        }
        if let Some(hash) = Crc32c::with_variant(variant) {
            contenders!(crc, name, hash);
        }
    }
    let hash = Multilinear::new(SEED.into());
    let multilinear = serial("one by one", |key| hash.hash_words(key));
    let about = "4096 keys of 4 words, by the number of keys a call.";
    vec![
        figure(meter, "hash-murmur3", "MurmurHash3", about, murmur),
        figure(
            meter,
            "hash-crc32c",
            "CRC32C",
            "The same keys. SSE4.2 has an instruction for it, wider registers do not.",
            crc,
        ),
        figure(
            meter,
            "hash-multilinear",
            "Multilinear hash",
            "The same keys, one by one. Its lanes are part of the megaflow cache, which sums what masks share once: see \
             `megaflow`.",
            multilinear,
        ),
    ]
}

fn figure(
    meter: &mut Meter<'_>,
    id: &str,
    title: &str,
    about: &str,
    contenders: Vec<Contender<'_>>,
) -> Figure {
    let mut figure = Figure::new(id, title, about)
        .over("keys at a time", LANES.map(|n| n.to_string()))
        .cycles("key")
        .bars();
    for measured in meter.compare(title, KEYS as u64, contenders) {
        let (name, lanes) = measured.name.split_once('|').expect("`body` writes it so");
        let place = LANES.iter().position(|n| n.to_string() == lanes).expect("one of them");
        figure.add(name, place, &measured);
    }
    let names: Vec<String> = figure.series.iter().skip(1).map(|s| s.name.clone()).collect();
    let first = figure.series[0].name.clone();
    names.iter().for_each(|name| figure.gain(name, &first, None));
    figure
}
