//! Comparison of bodies within one run: they take turns, so that what the machine does beside hits all
//! alike, and the ratio of their medians is worth quoting where single figures are not.

/// A body under measurement: does its work once, on a number of packets.
pub(crate) type Body<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// Runs the bodies in turn, `rounds` times each after a warm-up, and prints for each the time-stamp
/// cycles per packet (least and median) and the ratio of its median to the first body's.
pub(crate) fn compare(title: &str, packets: u64, rounds: usize, bodies: &mut [Body<'_>]) {
    let clock = quanta::Clock::new();
    let mut cycles: Vec<Vec<f64>> = vec![Vec::with_capacity(rounds); bodies.len()];
    for round in 0..rounds + rounds / 10 + 1 {
        for (samples, (_, body)) in cycles.iter_mut().zip(bodies.iter_mut()) {
            let before = clock.raw();
            body();
            let taken = clock.raw() - before;
            if round > rounds / 10 {
                samples.push(taken as f64 / packets as f64);
            }
        }
    }
    println!("{title}: cycles per packet, least / median, and the median's ratio to the first");
    let mut first = None;
    for (samples, (name, _)) in cycles.iter_mut().zip(bodies.iter()) {
        samples.sort_by(f64::total_cmp);
        let median = samples[samples.len() / 2];
        let first = *first.get_or_insert(median);
        println!("  {name:<28} {:>8.1} / {median:>8.1}   {:>6.2}", samples[0], median / first);
    }
}
