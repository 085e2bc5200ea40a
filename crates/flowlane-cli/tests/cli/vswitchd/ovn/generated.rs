//! Random networks of OVN on a chassis with Flowlane and on one with Open vSwitch: frames that machines send, and the answers of
//! those that they reach, arrive at the same ports with the same bytes.
//!
//! `FLOWLANE_OVN_NETWORKS=FIRST..END` says which networks (their seeds), `FLOWLANE_OVN_ROUNDS` how many rounds in each.

mod plan;
mod traffic;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::Network;
use super::services::replace_daemon;
use super::wire::{Arrived, Wire};
use crate::import::Random;
use plan::Plan;
use traffic::{Sent, Traffic};

/// All frames have arrived when none came for this long, and both sides have the same. Frames that `ovn-controller` sends may be later:
/// they are compared with those of the next exchange.
const QUIET: Duration = Duration::from_millis(8);
/// Frames that have arrived on one side only are a difference after this time.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Conversations that begin in a round.
const OPENINGS: u64 = 8;
/// Answers to answers.
const ANSWERS: usize = 6;

fn chance(random: &mut Random, one_in: u64) -> bool {
    random.below(one_in) == 0
}

/// A network on two chassis: Flowlane's, and Open vSwitch's.
struct Pair {
    networks: [Network; 2],
    wires: [Wire; 2],
    sent: usize,
    arrived: usize,
    /// Frames that Open vSwitch dropped because of its limit of recirculations.
    recirculated: u64,
}

/// Frames that arrived on one side more often than on the other (positive: Flowlane's).
fn difference(sides: &[Vec<Arrived>; 2]) -> BTreeMap<&Arrived, i32> {
    let mut counts = BTreeMap::new();
    for (side, sign) in sides.iter().zip([1, -1]) {
        side.iter().for_each(|one| *counts.entry(one).or_insert(0) += sign);
    }
    counts.retain(|_, count| *count != 0);
    counts
}

impl Pair {
    /// Sends frames on both sides; returns those that arrive on each.
    fn exchange(&mut self, frames: &[Vec<Sent>; 2]) -> [Vec<Arrived>; 2] {
        for (wire, frames) in self.wires.iter_mut().zip(frames) {
            frames.iter().for_each(|(port, frame)| wire.send(port, frame));
        }
        let (mut sides, begun) = ([const { Vec::new() }; 2], Instant::now());
        loop {
            sides.iter_mut().zip(&mut self.wires).for_each(|(side, wire)| side.extend(wire.receive(QUIET)));
            if begun.elapsed() > PATIENCE || difference(&sides).is_empty() || self.excuse(&mut sides) {
                break;
            }
        }
        self.sent += frames[0].len();
        self.arrived += sides[0].len();
        sides
    }

    /// Removes frames that Open vSwitch dropped because they were in its tables more than six times: a limit of its datapath in user
    /// space (`MAX_RECIRC_DEPTH`) that is less than the tracked stages of OVN's switches and routers. Returns whether there are no
    /// other differences.
    fn excuse(&mut self, sides: &mut [Vec<Arrived>; 2]) -> bool {
        let counter = ["coverage/read-counter", "datapath_drop_recirc_error"];
        let dropped: u64 = self.networks[1].chassis[0].appctl(&counter).unwrap().trim().parse().unwrap();
        let mut missing: Vec<Vec<u8>> = Vec::new();
        for (one, count) in difference(sides) {
            if count < 0 {
                return false;
            }
            if !missing.contains(&one.frame) {
                missing.push(one.frame.clone());
            }
        }
        if missing.len() as u64 > dropped - self.recirculated {
            return false;
        }
        self.recirculated = dropped;
        sides[0].retain(|one| !missing.contains(&one.frame));
        true
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn report(seed: u64, round: u64, sent: &[Sent], differences: &BTreeMap<&Arrived, i32>) -> String {
    let mut text = format!("network {seed}, round {round}:\n");
    for (port, frame) in sent {
        _ = writeln!(text, "  sent at {port}: {}", hex(frame));
    }
    for (one, count) in differences {
        let side = if *count > 0 { "Flowlane" } else { "Open vSwitch" };
        _ = writeln!(text, "  only {side} ({}) at {}: {}", count.abs(), one.port, hex(&one.frame));
    }
    text
}

/// Builds a network on both chassis and sends frames there for some rounds. Returns the differences.
fn compare(seed: u64, rounds: u64) -> Option<(Pair, Vec<String>)> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let plan = Plan::new(&mut random);
    let mut networks = [Network::start("fvy", 1)?, Network::start("fvz", 1)?];
    replace_daemon(&mut networks[1].chassis[0]);
    let ports: Vec<String> = plan.machines.iter().map(|machine| machine.port.clone()).collect();
    let wires = networks.each_mut().map(|network| {
        network.nbctl(&plan.commands.join(" -- "));
        Wire::plug(&network.chassis[0], &ports)
    });
    networks.iter().for_each(Network::sync);
    let mut pair = Pair { networks, wires, sent: 0, arrived: 0, recirculated: 0 };
    let mut traffic = Traffic::new(&plan);
    let mut problems = Vec::new();
    for round in 0..rounds {
        let opening: Vec<Sent> = (0..OPENINGS).map(|_| traffic.next(&mut random)).collect();
        let mut frames = [opening.clone(), opening];
        for _ in 0..ANSWERS {
            let sides = pair.exchange(&frames);
            let differences = difference(&sides);
            if !differences.is_empty() {
                problems.push(report(seed, round, &frames[0], &differences));
            }
            frames = sides.map(|side| side.iter().filter_map(|one| traffic.answer(one)).collect());
            if frames.iter().all(Vec::is_empty) {
                break;
            }
        }
    }
    Some((pair, problems))
}

fn wanted() -> (Range<u64>, u64) {
    let variable = |name: &str| std::env::var(name).ok();
    let networks = variable("FLOWLANE_OVN_NETWORKS").map(|text| {
        let (first, end) = text.split_once("..").expect("FIRST..END");
        first.parse().unwrap()..end.parse().unwrap()
    });
    let rounds = variable("FLOWLANE_OVN_ROUNDS").map(|text| text.parse().unwrap());
    (networks.unwrap_or(0..3), rounds.unwrap_or(60))
}

#[test]
fn generated_networks_are_as_on_open_vswitch() {
    let (networks, rounds) = wanted();
    let (mut sent, mut arrived, mut problems) = (0, 0, Vec::new());
    for seed in networks.clone() {
        let Some((pair, found)) = compare(seed, rounds) else { return };
        println!(
            "network {seed}: {} frames sent, {} arrived, {} differences",
            pair.sent,
            pair.arrived,
            found.len()
        );
        sent += pair.sent;
        arrived += pair.arrived;
        problems.extend(found);
    }
    println!("networks {networks:?}: {sent} frames sent, {arrived} arrived, {} differences", problems.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(arrived > sent / 4, "the networks let hardly anything through");
}
