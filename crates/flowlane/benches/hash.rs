//! Hashing 16 keys of 4 words (an IPv4 5-tuple), by each variant, 1, 8 and 16 keys at a time.

mod support;

use std::hint::black_box;

use flowlane::hash::crc32c::{self, Crc32c};
use flowlane::hash::murmur3::{self, Murmur3};
use flowlane::isa::Variant;

/// Keys per call of a body.
const KEYS: usize = 4096;
const WORDS: usize = 4;

/// `KEYS` keys as batches of `N` lanes.
fn batches<const N: usize>() -> Vec<[[u32; N]; WORDS]> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    (0..KEYS / N).map(|_| std::array::from_fn(|_| std::array::from_fn(|_| next()))).collect()
}

fn body<'a, const N: usize>(hash: impl Fn(&[[u32; N]], &mut [u32; N]) + 'a) -> Box<dyn FnMut() + 'a> {
    let batches = batches::<N>();
    Box::new(move || {
        let mut out = [0; N];
        for batch in &batches {
            hash(black_box(batch), &mut out);
            black_box(&out);
        }
    })
}

fn main() {
    let names: Vec<String> = Variant::ALL
        .into_iter()
        .filter(|v| v.available())
        .flat_map(|v| ["1", "8", "16"].map(|n| format!("{v}, {n} at a time")))
        .collect();
    let available = || Variant::ALL.into_iter().filter(|v| v.available());
    let mut bodies: Vec<support::Body<'_>> =
        vec![("scalar words", body::<1>(|w, out| out[0] = murmur3::hash_words(w.as_flattened(), 7)))];
    for (variant, names) in available().zip(names.chunks(3)) {
        let hash = Murmur3::with_variant(variant).expect("is available");
        bodies.push((&names[0], body::<1>(move |w, out| hash.hash_lanes(w, 7, out))));
        bodies.push((&names[1], body::<8>(move |w, out| hash.hash_lanes(w, 7, out))));
        bodies.push((&names[2], body::<16>(move |w, out| hash.hash_lanes(w, 7, out))));
    }
    support::compare("murmur3, keys of 4 words", KEYS as u64, 501, &mut bodies);
    let mut bodies: Vec<support::Body<'_>> =
        vec![("scalar words", body::<1>(|w, out| out[0] = crc32c::hash_words(w.as_flattened(), 7)))];
    for (variant, names) in available().zip(names.chunks(3)) {
        let hash = Crc32c::with_variant(variant).expect("is available");
        bodies.push((&names[0], body::<1>(move |w, out| hash.hash_lanes(w, 7, out))));
        bodies.push((&names[1], body::<8>(move |w, out| hash.hash_lanes(w, 7, out))));
        bodies.push((&names[2], body::<16>(move |w, out| hash.hash_lanes(w, 7, out))));
    }
    support::compare("crc32c, keys of 4 words", KEYS as u64, 501, &mut bodies);
}
