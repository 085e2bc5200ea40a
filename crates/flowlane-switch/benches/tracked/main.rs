//! Connection tracking beside Open vSwitch's userspace datapath, in one run: connections that begin, packets of established
//! connections, and the switch with two workers beside one.
//!
//! `cargo bench -p flowlane-switch --bench tracked -- [rounds=N] [seconds=N] [connections=N]`: by default 3 rounds, 3 seconds of
//! established packets in each, and 200,000 connections. As root with Debian's packages `openvswitch-switch-dpdk librte-net-pcap23
//! librte-net-null23 librte-mempool-ring23` (DPDK's drivers for captures and for nothing), both switches read the same captures, each
//! with one thread; the lines of Open vSwitch are left out where it is not there. Takes 700 huge pages of 2 MiB meanwhile. The machine
//! must be quiet: the switch's figures are those of the wall clock.
//!
//! *Flood*: packets of 10,000 established connections, 200,000 a second, beside a million SYNs a second, in a full table.
//!
//! *Beginning*: SYNs, each of another connection, which is kept. *Established*: UDP packets of 60 bytes in random order and both
//! directions, of at most 50,000 connections (DPDK keeps the capture in buffers). Both switches have the rules in `RULES`. Cycles are
//! those of the time-stamp counter: Open vSwitch's are of its own accounting (`pmd-stats-show`), without the time in which it waits.

mod captures;
mod ovs;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use flowlane_switch::datapath::Until;
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::setup::Setup;

/// The rules of both switches.
pub(crate) const RULES: [&str; 4] = [
    "table=0,ip,actions=ct(zone=1,table=1)",
    "table=1,priority=2,ip,ct_state=+est+trk,actions=output:2",
    "table=1,priority=1,ip,ct_state=+new+trk,actions=ct(commit,zone=1),output:2",
    "table=1,priority=0,actions=drop",
];

/// Opens the switch with a capture.
fn open(folder: &Path, capture: &str, workers: usize) -> flowlane_switch::datapath::Switch {
    let rules = |table: u8| {
        let own = RULES.iter().filter(|rule| rule.starts_with(&format!("table={table},")));
        own.map(|rule| format!("\"{rule}\"")).collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "[switch]\nworkers = {workers}\n[[port]]\nnumber = 1\nopen = \"pcap:{capture}\"\n[[port]]\nnumber = 2\nopen = \"null\"\n\
         [[table]]\nnumber = 0\nrules = [{}]\n[[table]]\nnumber = 1\nrules = [{}]\n",
        rules(0),
        rules(1)
    );
    let file = folder.join("switch.toml");
    std::fs::write(&file, text).expect("the folder is there");
    let opened = Setup::read(&file).and_then(|setup| setup.open_controlled(5));
    opened.unwrap_or_else(|error| panic!("{error}")).0
}

fn received(switch: &mut flowlane_switch::datapath::Switch) -> u64 {
    Report::of_all(switch.workers_mut()).expect("there is a worker").ports[0].counters.rx_packets
}

/// Returns the million connections a second that begin.
fn beginning(folder: &Path, workers: usize) -> f64 {
    let mut switch = open(folder, "syns.pcap", workers);
    let begun = Instant::now();
    switch.run(Until::default(), &AtomicBool::new(false), |_| {}).expect("no port fails");
    let seconds = begun.elapsed().as_secs_f64();
    let kept = switch.workers()[0].egress.connections.len();
    let packets = received(&mut switch);
    assert_eq!(kept as u64, packets, "each packet begins a connection");
    packets as f64 / seconds / 1e6
}

/// Returns the million established packets a second.
fn established(folder: &Path, workers: usize, seconds: u64) -> f64 {
    let mut switch = open(folder, "datagrams.pcap,loop=0", workers);
    let until = |duration| Until { duration: Some(duration), packets: None };
    let stop = AtomicBool::new(false);
    // All connections begin, the caches fill, and the cache policy settles.
    switch.run(until(Duration::from_secs(1)), &stop, |_| {}).expect("no port fails");
    let before = received(&mut switch);
    switch.run(until(Duration::from_secs(seconds)), &stop, |_| {}).expect("no port fails");
    (received(&mut switch) - before) as f64 / seconds as f64 / 1e6
}

/// Packets a second of established connections beside a flood of SYNs, and those SYNs.
const OFFERED: [u64; 2] = [200_000, 1_000_000];

/// Returns the shares of packets that two workers have taken beside a flood, of 10,000 established connections and of SYNs, and how many
/// of the first began a connection once more. The table has room for 100,000.
fn beside_flood(folder: &Path) -> ([f64; 2], u64) {
    let [known, syns] = OFFERED;
    let text = format!(
        "[switch]\nworkers = 2\n[connections]\nconnections_max = 100000\n\
         [[port]]\nnumber = 1\nopen = \"pcap:datagrams.pcap,loop=0,rate={known}\"\n[[port]]\nnumber = 2\nopen = \"null\"\n\
         [[port]]\nnumber = 3\nopen = \"pcap:syns.pcap,loop=0,rate={syns}\"\n[[table]]\nnumber = 0\nrules = [\"{}\"]\n\
         [[table]]\nnumber = 1\nrules = [\"{}\", \"in_port=1,ip,ct_state=+new+trk,actions=ct(commit,zone=1),output:2\", \"{}\"]\n",
        RULES[0], RULES[1], RULES[2]
    );
    let file = folder.join("flood.toml");
    std::fs::write(&file, text).expect("the folder is there");
    let opened = Setup::read(&file).and_then(|setup| setup.open_controlled(5));
    let mut switch = opened.unwrap_or_else(|error| panic!("{error}")).0;
    let stop = AtomicBool::new(false);
    let mut run = |duration| {
        let until = Until { duration: Some(duration), packets: None };
        switch.run(until, &stop, |_| {}).expect("no port fails");
        let report = Report::of_all(switch.workers_mut()).expect("there is a worker");
        let taken = [0, 2].map(|port| report.ports[port].counters.rx_packets);
        let again = report.tables[1].rules.iter().filter(|rule| rule.matches.contains("in_port=1"));
        (taken, again.map(|rule| rule.packets).sum::<u64>())
    };
    // The connections begin.
    let (before, begun) = run(Duration::from_millis(500));
    assert!(begun >= 10_000, "all connections have begun: {begun}");
    let seconds = 1.5;
    let (after, again) = run(Duration::from_secs_f64(seconds));
    let share = |at: usize| (after[at] - before[at]) as f64 / (OFFERED[at] as f64 * seconds);
    ([0, 1].map(share), again - begun)
}

/// The frequency of the time-stamp counter, in MHz.
fn counter_mhz() -> f64 {
    let clock = quanta::Clock::new();
    let (begun, raw) = (Instant::now(), clock.raw());
    std::thread::sleep(Duration::from_millis(200));
    (clock.raw() - raw) as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.parse::<u64>().ok());
    let (rounds, seconds) = (number("rounds=").unwrap_or(3), number("seconds=").unwrap_or(3));
    let connections = number("connections=").unwrap_or(200_000) as u32;
    let folder = tempfile::tempdir().expect("a temporary folder");
    captures::write(folder.path(), connections);
    let mhz = counter_mhz();
    let flood = tempfile::tempdir().expect("a temporary folder");
    captures::write(flood.path(), 2_000_000);
    let syns = std::fs::read(flood.path().join("syns.pcap")).expect("it has been written");
    captures::write(flood.path(), 10_000);
    std::fs::write(flood.path().join("syns.pcap"), syns).expect("the folder is there");
    for _ in 0..rounds {
        let ([known, syns], again) = beside_flood(flood.path());
        println!(
            "beside {} SYNs a second, of which {:.0} % were taken: {:.1} % of the packets of 10,000 connections; {again} lost theirs",
            OFFERED[1],
            100.0 * syns,
            100.0 * known
        );
    }
    let used = connections.min(captures::ESTABLISHED_MAX);
    println!(
        "{connections} connections begin, {used} are established; a million/s is {mhz:.0} cycles a packet"
    );
    println!("                                 beginning, million/s   established, million/s");
    for round in 0..rounds {
        let own = [1, 2].map(|workers| {
            let measured = [beginning(folder.path(), workers), established(folder.path(), workers, seconds)];
            println!(
                "round {round}  switch, {workers} worker(s) {:>21.2} {:>24.2}",
                measured[0], measured[1]
            );
            measured
        });
        let times = |a: [f64; 2], b: [f64; 2]| [a[0] / b[0], a[1] / b[1]];
        let [first, second] = times(own[1], own[0]);
        println!("round {round}  two workers × one   {first:>21.2} {second:>24.2}");
        match ovs::measure(folder.path(), connections, seconds) {
            Ok(cycles) => {
                let other = cycles.map(|cycles| mhz / cycles);
                println!(
                    "round {round}  Open vSwitch        {:>21.2} {:>24.2}   ({:.0} and {:.0} cycles)",
                    other[0], other[1], cycles[0], cycles[1]
                );
                let [first, second] = times(own[0], other);
                println!("round {round}  switch × Open vSwitch {first:>19.2} {second:>24.2}");
            }
            Err(why) => println!("round {round}  skipped: Open vSwitch: {why}"),
        }
    }
}
