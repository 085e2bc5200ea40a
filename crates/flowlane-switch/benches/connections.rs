//! Connection tracking: the memory of N connections; packets of established TCP connections through a firewall of two tables, beside the same tables without
//! `ct`; setting connections up; the table of connections by itself, with one and two threads.
//!
//! `cargo bench -p flowlane-switch --bench connections -- [N …] [packets=P]`: N connections are 1000, 100000 and 1000000 where none
//! is given, P 400000 packets of 60 bytes, in random order and both directions.

use std::time::Instant;

use flowlane::classify::TupleSearch;
use flowlane::generate::Random;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Format, ReadOptions, read};
use flowlane_switch::datapath::{CacheConfig, Clock, Egress, Lookup, Pipeline, PortSlot, Worker};
use flowlane_switch::port::NullPort;
use flowlane_switch::ruleset::Miss;
use flowlane_switch::state::conntrack::{
    Connections, End, Limits, Message, Request, Seen, Segment, Tracked, Tuple,
};
use flowlane_switch::state::fdb::Fdb;

const BURST: usize = 64;

/// Repetitions, of which the median is printed.
const ROUNDS: usize = 7;

const STATELESS: &str = "table=0,ip,actions=resubmit(,1)\n\
                         table=1,ip,in_port=1,actions=output:2\ntable=1,ip,in_port=2,actions=output:1\n";
const FIREWALL: &str = "table=0,ip,actions=ct(zone=1,table=1)\n\
                        table=1,priority=2,ip,in_port=1,ct_state=+est+trk,actions=output:2\n\
                        table=1,priority=2,ip,in_port=2,ct_state=+est+trk,actions=output:1\n\
                        table=1,priority=1,ip,in_port=1,ct_state=+new+trk,actions=ct(commit,zone=1),output:2\n";

const SYN: u8 = 2;
const ACK: u8 = 16;

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let sum: u32 = start
        + bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | b.get(1).map_or(0, |b| u32::from(*b))).sum::<u32>();
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

/// A TCP segment without data of connection `n`, in one of its directions.
fn frame(n: u32, reply: bool, flags: u8) -> [u8; 60] {
    let (client, server) = ((0x0a00_0000 + n / 32_768, 1024 + (n % 32_768) as u16), (0xc000_0201u32, 443u16));
    let (from, to) = if reply { (server, client) } else { (client, server) };
    let mut out = [0; 60];
    out[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    out[14..24].copy_from_slice(&[0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6]);
    out[26..30].copy_from_slice(&from.0.to_be_bytes());
    out[30..34].copy_from_slice(&to.0.to_be_bytes());
    let sum = checksum(&out[14..34], 0);
    out[24..26].copy_from_slice(&sum.to_be_bytes());
    out[34..36].copy_from_slice(&from.1.to_be_bytes());
    out[36..38].copy_from_slice(&to.1.to_be_bytes());
    // The handshake takes one number of each end.
    let (sequence, acknowledgement) = match flags {
        SYN => (1000u32, 0u32),
        ACK => (1001, 1001),
        _ => (1000, 1001),
    };
    out[38..42].copy_from_slice(&sequence.to_be_bytes());
    out[42..46].copy_from_slice(&acknowledgement.to_be_bytes());
    out[46..50].copy_from_slice(&[0x50, flags, 0x20, 0]);
    let sum = checksum(&out[34..54], checksum_of_pseudo(from.0, to.0));
    out[50..52].copy_from_slice(&sum.to_be_bytes());
    out
}

fn checksum_of_pseudo(from: u32, to: u32) -> u32 {
    [from >> 16, from & 0xffff, to >> 16, to & 0xffff, 6, 20].iter().sum()
}

fn worker(rules: &str) -> Worker {
    let mut pipeline = Pipeline::new();
    for table in 0..2 {
        pipeline.add_table(table, "", Box::new(TupleSearch::new(16, 7)), Miss::Drop);
    }
    for rule in read(rules, "rules", Some(Format::Flows), &ReadOptions::default()).expect("sound rules") {
        pipeline.add_rule(rule).expect("the table is large enough");
    }
    let mut egress = Egress::new(Fdb::new(16, 300, 1), 1);
    for number in 1..=2 {
        egress.ports.add(PortSlot::new(PortNo(number), "null", "", Box::new(NullPort)));
    }
    Worker::new(Lookup::new(pipeline, CacheConfig::default()), egress, BURST, Clock::Wall)
}

/// The times that a worker took for bursts, in nanoseconds.
#[derive(Default)]
struct Times {
    bursts: Vec<u64>,
    frames: usize,
}

impl Times {
    /// Nanoseconds a frame.
    fn mean(&self) -> f64 {
        self.bursts.iter().sum::<u64>() as f64 / self.frames as f64
    }

    /// The time that one burst of 10,000 exceeds, and the longest, in microseconds.
    fn pauses(&mut self) -> [f64; 2] {
        self.bursts.sort_unstable();
        let last = self.bursts.len() - 1;
        [last - self.bursts.len() / 10_000, last].map(|at| self.bursts[at] as f64 / 1e3)
    }
}

/// Lets a worker receive frames, by port.
fn forward(worker: &mut Worker, bursts: &[(usize, Vec<[u8; 60]>)]) -> Times {
    let mut times = Times::default();
    for (port, burst) in bursts {
        let slices: Vec<&[u8]> = burst.iter().map(|frame| &frame[..]).collect();
        let begun = Instant::now();
        worker.inject(*port, &slices).expect("no port fails");
        times.bursts.push(begun.elapsed().as_nanos() as u64);
        times.frames += burst.len();
    }
    times
}

fn bursts_of(frames: impl Iterator<Item = [u8; 60]>, port: usize) -> Vec<(usize, Vec<[u8; 60]>)> {
    let frames: Vec<[u8; 60]> = frames.collect();
    frames.chunks(BURST).map(|burst| (port, burst.to_vec())).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Packets of established connections, each burst in one direction.
fn established(connections: u32, packets: usize) -> Vec<(usize, Vec<[u8; 60]>)> {
    let mut random = Random::new(7);
    (0..packets / BURST)
        .map(|at| {
            let reply = at % 2 == 1;
            let one = |_| frame(random.below(connections.into()) as u32, reply, ACK);
            (usize::from(reply), (0..BURST).map(one).collect())
        })
        .collect()
}

fn through_the_switch(connections: u32, packets: usize) {
    let traffic = established(connections, packets);
    let (mut firewall, mut stateless) = (worker(FIREWALL), worker(STATELESS));
    firewall.egress.connections.commit_ahead();
    let mut setup = forward(&mut firewall, &bursts_of((0..connections).map(|n| frame(n, false, SYN)), 0));
    let answer = forward(&mut firewall, &bursts_of((0..connections).map(|n| frame(n, true, SYN | ACK)), 1));
    let kept = firewall.egress.connections.len();
    let mut known = Times::default();
    let mut round = || {
        let [with, without] = [&mut firewall, &mut stateless].map(|worker| forward(worker, &traffic));
        known.bursts.extend(&with.bursts);
        known.frames += with.frames;
        [with.mean(), without.mean()]
    };
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| round()).collect();
    let [with, without] = [0, 1].map(|which| median(rounds.iter().map(|round| round[which]).collect()));
    println!(
        "{connections:>8} connections ({kept} kept): {with:6.1} ns a packet with ct, {without:6.1} without ({:.0} %); \
         first packet {:6.1}, answer {:6.1}",
        100.0 * without / with,
        setup.mean(),
        answer.mean()
    );
    for (what, times) in [("first packets", &mut setup), ("known connections", &mut known)] {
        let [most, longest] = times.pauses();
        println!("         bursts of {what}: 99.99 % within {most:.0} µs, all within {longest:.0} µs");
    }
}

/// A packet as connection tracking sees it.
fn seen(n: u32, reply: bool, flags: u16) -> Seen {
    let end = |address: u32, port| End { address: address.into(), port, icmp_type: 0 };
    let (client, server) = (end(0x0a00_0000 + n / 32_768, 1024 + (n % 32_768) as u16), end(0xc000_0201, 443));
    let (source, destination) = if reply { (server, client) } else { (client, server) };
    let tuple = Tuple { source, destination, zone: 0, proto: 6, is_ipv6: false };
    let segment =
        Segment { flags, sequence: 1000, acknowledgement: 1001, window: 8192, ..Segment::default() };
    Seen { tuple, message: Message::Tcp(segment), is_error: false }
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// A table with this many connections, and the nanoseconds that each took.
fn filled(connections: u32) -> (Connections, f64) {
    let all = Connections::new(Limits { connections: connections as usize, per_zone: None });
    let commit = Request { zone: 1, commit: true, ..Request::default() };
    // As a switch does that begins with rules that track.
    all.commit_ahead();
    let begun = Instant::now();
    for n in 0..connections {
        all.track(Some(&seen(n, false, 2)), &commit, &mut Tracked::default(), 0);
    }
    let setup = begun.elapsed().as_nanos() as f64 / f64::from(connections);
    assert_eq!(all.len(), connections as usize);
    (all, setup)
}

/// The memory of a table. Before anything else, since memory that has been given back is used again.
fn memory(connections: u32) {
    let before = resident_bytes();
    let (all, _) = filled(connections);
    let bytes = (resident_bytes() - before) as f64 / all.len() as f64;
    println!("{connections:>8} connections: {bytes:.0} bytes each, both directions");
}

/// The table by itself: threads look at connections of all, in both directions.
fn table(connections: u32, packets: usize) {
    let (all, setup) = filled(connections);
    let look = Request { zone: 1, ..Request::default() };
    for n in 0..connections {
        all.track(Some(&seen(n, true, 18)), &look, &mut Tracked::default(), 0);
    }
    let rate = |threads: u64| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (all, look) = (&all, &look);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..packets {
                        let (n, reply) = (random.below(connections.into()) as u32, random.below(2) == 1);
                        all.track(Some(&seen(n, reply, 16)), look, &mut Tracked::default(), 0);
                    }
                });
            }
        });
        threads as f64 * packets as f64 / begun.elapsed().as_secs_f64() / 1e6
    };
    let rates: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [rate(1), rate(2)]).collect();
    let [one, two] = [0, 1].map(|which| median(rates.iter().map(|round| round[which]).collect()));
    println!(
        "{connections:>8} connections, table alone: {one:5.1} million lookups a second, two threads {two:5.1} \
         ({:.2} ×); added in {setup:5.0} ns",
        two / one
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let packets = arguments.iter().find_map(|a| a.strip_prefix("packets=")?.parse().ok()).unwrap_or(400_000);
    let asked: Vec<u32> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let asked = if asked.is_empty() { vec![1000, 100_000, 1_000_000] } else { asked };
    memory(asked.iter().copied().max().unwrap_or(0));
    asked.iter().for_each(|&connections| through_the_switch(connections, packets));
    asked.iter().for_each(|&connections| table(connections, packets));
}
