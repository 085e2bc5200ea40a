//! Forwarding while rules change: the packet rate with ten and with 100,000 flow-mods a second, as a share of the rate without
//! any; and the delay from when a change was due until it was in force.
//!
//! `cargo bench -p flowlane-switch --bench changes -- [rounds=N] [seconds=N] [NAME …]`: by default 3 rounds of 3 seconds each;
//! only workloads whose names contain a NAME, if any is given. Each flow-mod removes a random rule, or adds it again. A second
//! core has to be free for the thread that changes the rules, a third for engines that are rebuilt. The three rates take turns at being
//! first, and the medians of the rounds are what counts: on a shared machine one round says little.

mod large;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane::generate::{Profile, Random};
use flowlane::rule::{Command, FlowMod, Rule};
use flowlane_switch::control::Control;
use flowlane_switch::datapath::Until;
use flowlane_switch::mgmt::setup::Setup;

use large::{Workload, generated, masks, write};

/// Changes a second: none, few and many.
const RATES: [u32; 3] = [0, 10, 100_000];

/// The figures of one rate: packets kept, as a share, and delays in µs, of 50 and of 99 in 100.
#[derive(Clone, Copy)]
struct Row {
    share: f64,
    in_force_us: [f64; 2],
}

impl Row {
    fn of(measured: &Measured, quiet: &Measured) -> Self {
        let share = measured.packets_per_s / quiet.packets_per_s;
        Self { share, in_force_us: [0.5, 0.99].map(|share| measured.at(share) as f64) }
    }

    fn median(rows: impl Iterator<Item = Self> + Clone) -> Self {
        let in_force_us = [0, 1].map(|i| median(rows.clone().map(|row| row.in_force_us[i])));
        Self { share: median(rows.map(|row| row.share)), in_force_us }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn line(label: &str, workload: &Workload, quiet: f64, rows: [Row; 2]) -> String {
    let [few, many] = rows.map(|row| {
        let [half, most] = row.in_force_us;
        format!("{:>6.1} %  {half:>8.0} µs {most:>8.0} µs", 100.0 * row.share)
    });
    format!("{label:<8} {:<32} {:>8.1}     {few}       {many}", workload.name, quiet / 1e6)
}

/// The results of one run.
struct Measured {
    packets_per_s: f64,
    /// Delays in µs from when a change was due until it was in force, sorted.
    in_force_us: Vec<u64>,
}

impl Measured {
    fn at(&self, share: f64) -> u64 {
        let last = self.in_force_us.len().saturating_sub(1);
        self.in_force_us.get((last as f64 * share) as usize).copied().unwrap_or(0)
    }
}

fn flow_mod(command: Command, rule: &Rule) -> FlowMod {
    FlowMod::new(command, rule.clone())
}

/// Makes `per_s` changes a second, in batches of a millisecond, until `stop` is set; returns their delays in µs, sorted.
fn change(control: &mut Control, rules: &[Rule], per_s: u32, stop: &AtomicBool) -> Vec<u64> {
    control.wake(std::thread::current());
    let mut random = Random::new(7);
    let mut gone: Option<usize> = None;
    let (begun, mut made, mut took) = (Instant::now(), 0u64, Vec::new());
    let due = |n: u64| Duration::from_secs_f64((n as f64 + 1.0) / f64::from(per_s.max(1)));
    while !stop.load(Ordering::Relaxed) {
        let together = begun.elapsed();
        let mut mods = Vec::new();
        let first = made;
        while per_s > 0 && due(made) <= together {
            mods.push(match gone.take() {
                Some(at) => flow_mod(Command::Add, &rules[at]),
                None => {
                    let at = random.index(rules.len());
                    gone = Some(at);
                    flow_mod(Command::DeleteStrict, &rules[at])
                }
            });
            made += 1;
        }
        if !mods.is_empty() {
            control.change(&mods).expect("rules that were there may come again");
            let now = begun.elapsed();
            took.extend((first..made).map(|n| now.saturating_sub(due(n)).as_micros() as u64));
            drop(control.take_flow_removed());
        }
        control.rebuild_engines();
        let next = if per_s > 0 { due(made + u64::from(per_s) / 1000) } else { Duration::MAX };
        std::thread::park_timeout(next.saturating_sub(begun.elapsed()).min(Duration::from_millis(50)));
    }
    took.sort_unstable();
    took
}

fn measure(config: &Path, rules: &[Rule], per_s: u32, seconds: u64) -> Measured {
    let (mut switch, mut control) =
        Setup::read(config).and_then(|setup| setup.open_controlled(5)).expect("the configuration is right");
    let (stop, changing) = (AtomicBool::new(false), AtomicBool::new(false));
    let mail = control.mailboxes()[0].clone();
    let received =
        || mail.call(|worker| worker.egress.ports.slots()[0].counters.rx_packets).expect("it runs");
    std::thread::scope(|scope| {
        scope.spawn(|| switch.run(Until::default(), &stop, |_| {}).expect("no port fails"));
        // The caches fill first, and the cache policy settles.
        std::thread::sleep(Duration::from_secs(1));
        let rate = scope.spawn(|| {
            let (before, begun) = (received(), Instant::now());
            std::thread::sleep(Duration::from_secs(seconds));
            let rate = (received() - before) as f64 / begun.elapsed().as_secs_f64();
            changing.store(true, Ordering::Relaxed);
            rate
        });
        let in_force_us = change(&mut control, rules, per_s, &changing);
        let packets_per_s = rate.join().expect("it does not panic");
        stop.store(true, Ordering::Relaxed);
        Measured { packets_per_s, in_force_us }
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.parse::<u64>().ok());
    let (rounds, seconds) = (number("rounds=").unwrap_or(3), number("seconds=").unwrap_or(3));
    let names: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut all: Vec<Workload> = vec![masks(1, 1024), masks(40, 40), masks(160, 40)];
    for (profile, count) in [
        (Profile::Acl, 1000),
        (Profile::Fw, 1000),
        (Profile::Ipc, 1000),
        (Profile::Acl, 10_000),
        (Profile::Fw, 10_000),
        (Profile::Ipc, 10_000),
        (Profile::Acl, 100_000),
    ] {
        all.push(generated(profile, count, 21));
    }
    let wanted = |w: &&Workload| names.is_empty() || names.iter().any(|name| w.name.contains(name.as_str()));
    println!(
        "                                          quiet, M/s   10/s: share, in force 50 %, 99 %   100,000/s: share, in force 50 %, 99 %"
    );
    let mut medians = Vec::new();
    for workload in all.iter().filter(wanted) {
        let config = write(workload, folder.path());
        let mut rows = Vec::new();
        for round in 0..rounds as usize {
            let mut measured = [const { None }; 3];
            for i in (0..RATES.len()).map(|i| (i + round) % RATES.len()) {
                measured[i] = Some(measure(&config, &workload.rules, RATES[i], seconds));
            }
            let [quiet, few, many] = measured.map(|measured| measured.expect("each rate has had its turn"));
            let row = [&few, &many].map(|m| Row::of(m, &quiet));
            println!("{}", line(&format!("round {round}"), workload, quiet.packets_per_s, row));
            rows.push((quiet.packets_per_s, row));
        }
        let rate = median(rows.iter().map(|(rate, _)| *rate));
        let row = [0, 1].map(|i| Row::median(rows.iter().map(|(_, row)| row[i])));
        println!("{}", line("median", workload, rate, row));
        medians.push(row);
    }
    for (i, rate) in RATES[1..].iter().enumerate() {
        let column = |of: fn(&Row) -> f64| medians.iter().map(move |row| of(&row[i]));
        let mean = (column(|row| row.share.ln()).sum::<f64>() / medians.len() as f64).exp();
        let least = column(|row| row.share).fold(f64::INFINITY, f64::min);
        let longest = column(|row| row.in_force_us[1]).fold(0.0, f64::max);
        println!(
            "{rate}/s: packets kept, medians of {rounds}: mean {:.1} %, least {:.1} %; in force, 99 of 100, at most {longest:.0} µs",
            100.0 * mean,
            100.0 * least,
        );
    }
}
