//! The switch against the model: random rules and random packets, with caches and without, by every engine,
//! one packet at a time and in bursts.

mod directed;
mod wild;
mod worker;

use std::collections::BTreeMap;

use flowlane::rule::{Format, ReadOptions, Rule, read};

use crate::model::{CONTROLLER, Miss, Model};
use crate::packets::{Class, Classes, Random, packet_of};
use crate::rules::{self, Labels, Limits};
use worker::{Options, PORTS, Switch};

/// What is compared in one case.
struct Case {
    rules: Vec<Rule>,
    misses: Vec<Miss>,
    forward_malformed: bool,
    /// (port that it comes in through, bytes).
    packets: Vec<(u32, Vec<u8>)>,
}

impl Case {
    fn random(r: &mut Random, classes: Classes) -> Self {
        let misses: Vec<Miss> =
            (0..1 + r.below(4)).map(|_| r.pick(&[Miss::Drop, Miss::Continue, Miss::Controller])).collect();
        let rules = wild::rules(r, misses.len() as u8);
        let left = std::env::var("LEAVE").unwrap_or_default(); //DEV
        let mut rules = rules; //DEV
        for rule in &mut rules {
            rule.actions.retain(|a| {
                !left.split(',').any(|l| {
                    !l.is_empty()
                        && flowlane::rule::flow_syntax::print_actions(std::slice::from_ref(a)).contains(l)
                })
            });
        } //DEV
        let packets = (0..50).map(|_| (r.pick(&[1, 2]), packet_of(r, classes))).collect();
        Self { rules, misses, forward_malformed: r.one_in(2), packets }
    }

    /// Rules as they are written for Open vSwitch, each of whose fields the packets that it is for have.
    fn written(r: &mut Random, classes: Classes) -> Self {
        let labels = r.pick(&[Labels::Push, Labels::Pop, Labels::Neither]);
        let limits = Limits { labels, sets_options: r.one_in(2) };
        let written = rules::rules(r, limits);
        let options = ReadOptions::default();
        let rules = read(&written.text, "rules", Some(Format::Flows), &options);
        let rules = rules.unwrap_or_else(|error| panic!("{error}\n{}", written.text));
        let misses = vec![Miss::Drop; written.tables.into()];
        let packets = (0..50).map(|_| (r.pick(&[1, 2]), packet_of(r, classes))).collect();
        Self { rules, misses, forward_malformed: r.one_in(2), packets }
    }

    /// Runs it on a switch and on the model. The first difference is the answer.
    fn run(&self, options: Options) -> Result<Undecided, String> {
        let mut switch = Switch::new(&self.misses, options);
        let mut model = Model::new(&self.misses, &PORTS);
        model.forward_malformed = self.forward_malformed;
        switch.forward_malformed(self.forward_malformed);
        for rule in &self.rules {
            // What a switch refuses when rules are read, it need not do.
            if switch.add(rule) {
                model.add(rule);
            }
        }
        let mut undecided = Undecided::new();
        let mut sent: Vec<(u32, &[u8])> = Vec::new();
        let mut wanted = Vec::new();
        for (in_port, bytes) in &self.packets {
            match model.switch(*in_port, bytes) {
                Ok(frames) => {
                    sent.push((*in_port, bytes));
                    wanted.push(frames);
                }
                Err(why) => *undecided.entry(why).or_default() += 1,
            }
        }
        let found = switch.run(&sent);
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            if found != wanted {
                let (in_port, bytes) = sent[i];
                return Err(format!(
                    "packet {i} through port {in_port}:\n  {}\nsent\n{}wanted\n{}",
                    hex(bytes),
                    print(found),
                    print(wanted)
                ));
            }
        }
        let (mut counters, mut right) = (switch.counters(), model.counters());
        if self.forward_malformed {
            // How often a packet is parsed that has been found malformed is the switch's business.
            (counters.malformed, right.malformed) = (0, 0);
        }
        if std::env::var("NOBYRULE").is_ok() {
            (counters.by_rule, right.by_rule) = (0, 0);
        } //DEV
        match counters == right {
            true => Ok(undecided),
            false => Err(format!("counted {counters:?}\nwanted  {right:?}")),
        }
    }
}

/// How often a case was not compared because the standards leave it open, by what they leave open.
pub(crate) type Undecided = BTreeMap<&'static str, u32>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn print(frames: &[(u32, Vec<u8>)]) -> String {
    let name = |port: &u32| if *port == CONTROLLER { "controller".to_owned() } else { port.to_string() };
    frames.iter().map(|(port, bytes)| format!("  {}: {}\n", name(port), hex(bytes))).collect()
}

/// Runs random cases; a difference is reported with the seed, the options and the rules.
pub(crate) fn compare(seeds: std::ops::Range<u64>, classes: Classes) -> (Undecided, Vec<String>) {
    let mut undecided = Undecided::new();
    let mut differences = Vec::new();
    for seed in seeds {
        let r = &mut Random::new(seed);
        let case = if seed % 3 == 0 { Case::written(r, classes) } else { Case::random(r, classes) };
        for options in [Options::plain(r), Options::random(r)] {
            match case.run(options) {
                Ok(open) => open.into_iter().for_each(|(why, n)| *undecided.entry(why).or_default() += n),
                Err(difference) => {
                    let policy = if case.forward_malformed { "forward" } else { "drop" };
                    let rules = worker::print_rules(&case.rules);
                    differences.push(format!(
                        "seed {seed}, {options:?}, malformed = {policy}, misses {:?}\n{difference}\n{rules}",
                        case.misses
                    ));
                    break;
                }
            }
        }
    }
    (undecided, differences)
}

#[test]
fn sound_packets_go_where_openflow_sends_them_as_it_changes_them() {
    let (_, differences) = compare(0..400, Classes::sound());
    assert!(differences.is_empty(), "{} differences; the first:\n{}", differences.len(), differences[0]);
}

#[test]
fn packets_of_every_class_go_where_openflow_sends_them_as_it_changes_them() {
    let (_, differences) = compare(10_000..10_400, Classes::all());
    assert!(differences.is_empty(), "{} differences; the first:\n{}", differences.len(), differences[0]);
}

#[test]
fn little_is_left_open() {
    let (undecided, _) = compare(20_000..20_020, Classes::all().without(Class::ManyTags));
    let share: u32 = undecided.values().sum();
    assert!(share < 20 * 2 * 50 / 10, "{undecided:?}");
}
