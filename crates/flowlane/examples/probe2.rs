//! Probe.
use flowlane::memory::*;
use std::hint::black_box;
fn main() {
    let clock = quanta::Clock::new();
    for mb in [1usize, 8, 16, 32, 64, 128] {
        let mut m = Memory::<[u64; 8]>::zeroed(mb << 14);
        for (i, l) in m.iter_mut().enumerate() {
            l[0] = i as u64;
        }
        let mut s = 1u64;
        let idx: Vec<u32> = (0..1usize << 18)
            .map(|_| {
                s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((s >> 33) as usize % (mb << 14)) as u32
            })
            .collect();
        let (mut best, mut best2) = (f64::MAX, f64::MAX);
        for _ in 0..30 {
            let b = clock.raw();
            let mut sum = 0u64;
            for c in idx.chunks(64) {
                for i in c {
                    prefetch(&m, *i as usize);
                }
                for i in c {
                    sum = sum.wrapping_add(m[*i as usize][0]);
                }
                black_box(sum);
            }
            best = best.min((clock.raw() - b) as f64 / idx.len() as f64);
            let b = clock.raw();
            for i in &idx {
                sum = sum.wrapping_add(m[*i as usize][0]);
            }
            black_box(sum);
            best2 = best2.min((clock.raw() - b) as f64 / idx.len() as f64);
        }
        let mut at = 0usize;
        let b = clock.raw();
        for _ in 0..1 << 16 {
            at = (m[idx[at % idx.len()] as usize][0] as usize).wrapping_add(at + 77);
        }
        black_box(at);
        println!(
            "{mb} MB: {best:.1} prefetched batches, {best2:.1} plain, latency {:.1}",
            (clock.raw() - b) as f64 / 65536.0
        );
    }
}
