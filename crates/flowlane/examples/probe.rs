//! Probe.
use flowlane::cuckoo::*;
use std::hint::black_box;
fn key(n: u32) -> [u32; 4] {
    std::array::from_fn(|w| n.wrapping_mul(0x9e37_79b9 + 2 * w as u32).rotate_left(w as u32))
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: u32 = a[1].parse().unwrap();
    let hit: u32 = a[2].parse().unwrap();
    let secs: u64 = a[3].parse().unwrap();
    let mut w = CuckooWriter::<4>::new(&CuckooConfig::new(n as usize, 1));
    for i in 0..n {
        w.insert(&key(i), 1).unwrap();
    }
    let mut s = 1u64;
    let keys: Vec<[u32; 4]> = (0..1usize << a[5].parse::<u32>().unwrap())
        .map(|_| {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let x = (s >> 33) as u32 % n;
            key(if hit == 1 { x } else { x + n })
        })
        .collect();
    let t = std::time::Instant::now();
    let mut best = f64::MAX;
    let mut v = [0u64; 64];
    let clock = quanta::Clock::new();
    let mut hashes = vec![0u32; keys.len()];
    w.hash_batch(&keys, &mut hashes);
    while t.elapsed().as_secs() < secs {
        let b = clock.raw();
        match a[4].as_str() {
            "hash" => {
                for (k, h) in keys.chunks(64).zip(hashes.chunks_mut(64)) {
                    w.hash_batch(black_box(k), h);
                }
            }
            "with" => {
                for (k, h) in keys.chunks(64).zip(hashes.chunks(64)) {
                    black_box(w.lookup_batch_with_hashes(black_box(k), h, &mut v));
                }
            }
            _ => {
                for k in keys.chunks(64) {
                    black_box(w.lookup_batch(black_box(k), &mut v));
                }
            }
        }
        best = best.min((clock.raw() - b) as f64 / keys.len() as f64);
    }
    println!("{n} hit {hit} {}: {best:.1}", a[4]);
}
