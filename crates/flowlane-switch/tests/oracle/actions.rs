//! Each action in each form of its arguments, through Open vSwitch and through the switch: what leaves by each port must be the same.
//!
//! `actions.txt` has the rules: those between two empty lines belong together. Packets are random, of the classes that the rules have no
//! known difference for.

use flowlane_switch::datapath::MalformedPolicy;

use super::differences::{Asked, left_out};
use super::ovs::{Ovs, OvsPrograms, Sent};
use super::packets::{Class, Classes, Random, packet_of};
use super::rules::Rules;
use super::shape::Shape;
use super::switch::Flowlane;

/// Packets for each block of rules.
const PACKETS: usize = 40;

/// The tables that the rules are in.
const TABLES: u8 = 5;

/// Returns the blocks of the file, each with its groups and rules.
fn blocks() -> Vec<Rules> {
    let is_rule = |line: &&str| !line.starts_with('#');
    let block = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(is_rule).collect();
        let (groups, rules): (Vec<&str>, Vec<&str>) =
            lines.into_iter().partition(|line| line.starts_with("group_id"));
        let all = |lines: Vec<&str>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        Rules::new(all(rules), all(groups), TABLES)
    };
    include_str!("actions.txt").split("\n\n").map(block).filter(|rules| !rules.text.is_empty()).collect()
}

/// Returns sound packets whose handling by these rules is compared.
fn packets(rules: &Rules, seed: u64) -> Vec<Vec<u8>> {
    let mut r = Random::new(seed);
    let (classes, policy) = (Classes::all().without(Class::Runt), MalformedPolicy::Drop);
    let mut next = || {
        let packet = packet_of(&mut r, classes);
        left_out(Asked { rules, policy, shape: &Shape::of(&packet) }, None).is_none().then_some(packet)
    };
    (0..PACKETS * 10).filter_map(|_| next()).take(PACKETS).collect()
}

#[test]
fn every_action_changes_packets_as_in_open_vswitch() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    let (mut wrong, mut sent, mut blocks_sent) = (Vec::new(), 0, 0);
    let blocks = blocks();
    for (seed, rules) in (0..).zip(&blocks) {
        let ours = Flowlane::new(rules, MalformedPolicy::Drop, seed);
        let (mut ours, theirs) = match (ours, ovs.set_rules(rules)) {
            (Ok(ours), Ok(())) => (ours, &mut ovs),
            (ours, theirs) => {
                wrong.push(format!("{}{}: refused: {:?}, {theirs:?}", rules.groups, rules.text, ours.err()));
                continue;
            }
        };
        let mut left: Sent = Sent::default();
        let mut sound = Vec::new();
        for packet in packets(rules, seed) {
            let (frames, malformed) = ours.forward(1, &packet);
            if malformed == 0 {
                left.iter_mut().zip(frames).for_each(|(all, frames)| all.extend(frames));
                sound.push(packet);
            }
        }
        let frames: usize = left.iter().map(Vec::len).sum();
        (sent, blocks_sent) = (sent + frames, blocks_sent + usize::from(frames > 0));
        let theirs = theirs.forward(1, &sound);
        if left != theirs {
            let alone = |packet: &&Vec<u8>| {
                let ours = Flowlane::new(rules, MalformedPolicy::Drop, seed);
                ours.is_ok_and(|mut ours| ours.forward(1, packet).0 != ovs.forward(1, &[packet.as_slice()]))
            };
            let first = sound.iter().find(alone);
            wrong.push(format!("{}{}: frames differ, alone: {first:02x?}", rules.groups, rules.text));
        }
    }
    println!("{} blocks of rules, {sent} frames sent", blocks.len());
    assert!(wrong.is_empty(), "{} blocks are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(blocks_sent * 10 > blocks.len() * 9, "{blocks_sent} of {} send frames", blocks.len());
}
