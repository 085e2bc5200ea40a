//! Scaling with workers: million packets a second of the whole switch with one worker and with more, in turn. Each worker reads
//! its share of the captures.
//!
//! `cargo bench -p flowlane-switch --bench workers -- [rounds=N] [seconds=N] [most=N] [spread=auto|flow] [NAME …]`: by default 3
//! rounds of one second each and as many workers as cores; only workloads whose names contain a NAME, if any is given. *Handed*
//! is the percentage of packets handed off to another worker. With `spread=flow`, packets for a stage arrive at any worker, as a
//! network card distributes them.

mod large;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flowlane::generate::{Profile, Random};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::Action;
use flowlane_switch::datapath::Until;
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::setup::Setup;

use large::{Workload, generated, masks, matching, rule, udp, write};

/// A workload, and the stages of its configuration.
struct Work {
    workload: Workload,
    stages: &'static str,
}

/// Returns packets of 2500 inside hosts with eight ports each, all sent to table 5.
fn through(name: &str, stages: &'static str) -> Work {
    let (mut random, mut keys) = (Random::new(3), Vec::new());
    for packet in 0..100_000u32 {
        let mut key: FlowKey = matching(&[rule(0, 1, udp(), Vec::new())], 1, &mut random).remove(0);
        let flow = (packet * 7919) % 20_000;
        key.set(Field::Ipv4Src, (0x0a00_0000 + flow / 8).into());
        key.set(Field::TpSrc, (1024 + flow % 8).into());
        key.set(Field::Ipv4Dst, (0x0808_0000 + flow % 251).into());
        key.set(Field::TpDst, 443);
        keys.push(key);
    }
    let rules = vec![rule(0, 1, udp(), vec![Action::Goto(5)])];
    Work { workload: Workload { name: name.to_owned(), rules, keys }, stages }
}

struct Measured {
    million_per_s: f64,
    /// In percent.
    handed: f64,
}

fn measure(work: &Work, folder: &Path, workers: usize, spread: &str, seconds: u64) -> Measured {
    let path = write(&work.workload, folder);
    let config = std::fs::read_to_string(&path).expect("it has just been written");
    let config = format!("[switch]\nworkers = {workers}\nspread = \"{spread}\"\n{config}{}", work.stages);
    std::fs::write(&path, config).expect("a temporary file");
    let setup = Setup::read(&path).and_then(|setup| setup.open_controlled(5));
    let (mut switch, _control) = setup.expect("the configuration is right");
    let stop = AtomicBool::new(false);
    let until = Until { duration: Some(Duration::from_secs(seconds)), packets: None };
    // The caches fill first, and the cache policy settles.
    let warm = Until { duration: Some(Duration::from_millis(300)), packets: None };
    switch.run(warm, &stop, |_| {}).expect("no port fails");
    let received = |switch: &mut flowlane_switch::datapath::Switch| {
        let report = Report::of_all(switch.workers_mut()).expect("there is a worker");
        let handed: u64 = switch.workers().iter().map(|worker| worker.handed).sum();
        [report.ports[0].counters.rx_packets, handed]
    };
    let before = received(&mut switch);
    switch.run(until, &stop, |_| {}).expect("no port fails");
    let after = received(&mut switch);
    let [packets, handed] = [0, 1].map(|i| (after[i] - before[i]) as f64);
    Measured { million_per_s: packets / seconds as f64 / 1e6, handed: 100.0 * handed / packets }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.parse::<u64>().ok());
    let (rounds, seconds) = (number("rounds=").unwrap_or(3), number("seconds=").unwrap_or(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = number("most=").map_or(cores, |most| most as usize);
    let spread = arguments.iter().find_map(|a| a.strip_prefix("spread=")).unwrap_or("auto");
    let names: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = |workload| Work { workload, stages: "" };
    let all = [
        plain(masks(1, 1024)),
        plain(masks(160, 40)),
        plain(generated(Profile::Acl, 10_000, 21)),
        plain(generated(Profile::Fw, 10_000, 21)),
        through(
            "filter that learns",
            "[[filter_table]]\nnumber = 5\nkey = [\"nw_src\", \"tp_src\"]\nlearn = true\ntimeout_s = 60\n\
             refresh = true\nhit = \"output:2\"\nmiss = \"output:2\"\n",
        ),
        through("assets", "[[asset_table]]\nnumber = 5\nknown = \"output:2\"\n"),
        through(
            "translation",
            "[[nat_table]]\nnumber = 5\ninside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.1-203.0.113.8\"]\n\
             outbound = \"output:2\"\ninbound = \"output:1\"\n",
        ),
    ];
    println!("                                       workers   million/s   × one   handed, %");
    for round in 0..rounds {
        for work in &all {
            let name = &work.workload.name;
            if !names.is_empty() && !names.iter().any(|wanted| name.contains(wanted.as_str())) {
                continue;
            }
            let mut one = f64::NAN;
            for workers in 1..=most {
                let Measured { million_per_s, handed } =
                    measure(work, folder.path(), workers, spread, seconds);
                if workers == 1 {
                    one = million_per_s;
                }
                let times = million_per_s / one;
                println!(
                    "round {round}  {name:<30} {workers:>6} {million_per_s:>11.2} {times:>7.2} {handed:>11.1}"
                );
            }
        }
    }
}
