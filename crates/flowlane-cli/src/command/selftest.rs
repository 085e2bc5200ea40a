//! `flowlane selftest`: checks every engine against the scalar reference, for a given time.

use std::time::Instant;

use flowlane::check::{PARTS, Part};
use flowlane::isa::Variant;
use serde::Serialize;

use crate::arguments::SelftestOptions;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Checked {
    part: &'static str,
    rounds: u64,
    compared: u64,
}

#[derive(Serialize)]
struct Document {
    first_seed: u64,
    size: usize,
    variants: Vec<&'static str>,
    seconds: f64,
    parts: Vec<Checked>,
}

/// Runs the command.
pub(crate) fn run(options: &SelftestOptions) -> Result<(), Failure> {
    let asked = |part: &&Part| options.parts.is_empty() || options.parts.iter().any(|name| name == part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(asked).collect();
    let mut checked: Vec<Checked> =
        parts.iter().map(|part| Checked { part: part.name, rounds: 0, compared: 0 }).collect();
    let begun = Instant::now();
    let bar = output::progress_share();
    loop {
        for (part, checked) in parts.iter().zip(&mut checked) {
            let seed = options.seed.wrapping_add(checked.rounds);
            checked.compared += (part.run)(seed, options.size).map_err(|difference| {
                bar.finish_and_clear();
                Failure::Check(format!(
                    "{difference}\nplease report this line, with the output of `flowlane cpu` and `flowlane --version`; \
                     reproduce it with: flowlane selftest --part {} --seed {seed} --size {} --seconds 0",
                    difference.part, options.size
                ))
            })?;
            checked.rounds += 1;
        }
        let share = if options.seconds > 0.0 { begun.elapsed().as_secs_f64() / options.seconds } else { 1.0 };
        bar.set_position((share.min(1.0) * bar.length().unwrap_or(0) as f64) as u64);
        if share >= 1.0 {
            break;
        }
    }
    bar.finish_and_clear();
    let variants = Variant::ALL.into_iter().filter(|v| v.available()).map(Variant::name).collect();
    let seconds = begun.elapsed().as_secs_f64();
    let document =
        Document { first_seed: options.seed, size: options.size, variants, seconds, parts: checked };
    if options.json {
        return output::json(&document);
    }
    let row = |c: &Checked| {
        vec![c.part.to_owned(), output::count(c.rounds), output::count(c.compared), "0".to_owned()]
    };
    let rows: Vec<Vec<String>> = document.parts.iter().map(row).collect();
    let title = format!("Variants {}; {seconds:.1} s", document.variants.join(", "));
    output::print(&output::table(&title, &["part", "rule sets", "answers compared", "differences"], &rows))
}
