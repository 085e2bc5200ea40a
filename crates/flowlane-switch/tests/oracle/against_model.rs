//! The switch against the model: random rules and random packets, with caches and without, by every engine,
//! one packet at a time and in bursts.

mod changing;
mod directed;
mod wild;
mod worker;

use std::collections::BTreeMap;

use flowlane::rule::{Format, ReadOptions, Rule, read};
use strum::VariantArray;

use crate::model::{CONTROLLER, Kind, Miss, Model};
use crate::packets::{Class, Classes, Random, packet_of};
use crate::rules::{self, Labels, Limits, LinkOptions};
use worker::{Options, PORTS, Switch};

/// The input of one comparison.
#[derive(Clone)]
struct Case {
    rules: Vec<Rule>,
    tables: Vec<Kind>,
    forward_malformed: bool,
    /// (ingress port, bytes).
    packets: Vec<(u32, Vec<u8>)>,
}

impl Case {
    /// Draws a case.
    fn of(r: &mut Random, classes: Classes) -> Self {
        if r.one_in(3) { Self::written(r, classes) } else { Self::wild(r, classes) }
    }

    fn wild(r: &mut Random, classes: Classes) -> Self {
        let tables = wild::tables(r);
        let rules = wild::rules(r, &tables);
        let packets = (0..50).map(|_| (r.pick(&[1, 2]), packet_of(r, classes))).collect();
        Self { rules, tables, forward_malformed: r.one_in(2), packets }
    }

    /// Draws rules in Open vSwitch's syntax, in which every field's prerequisites are met.
    fn written(r: &mut Random, classes: Classes) -> Self {
        let labels = r.pick(&[Labels::Push, Labels::Pop, Labels::Neither]);
        let limits = Limits {
            labels,
            options: r.pick(&[LinkOptions::Match, LinkOptions::SetAddresses, LinkOptions::SetTypes]),
            calls: false,
            copies: false,
            asks_length: false,
            learns: false,
        };
        let written = rules::rules(r, limits);
        let options = ReadOptions::default();
        let rules = read(&written.text, "rules", Some(Format::Flows), &options);
        let rules = rules.unwrap_or_else(|error| panic!("{error}\n{}", written.text));
        let tables = vec![Kind::Rules(Miss::Drop); written.tables.into()];
        let packets = (0..50).map(|_| (r.pick(&[1, 2]), packet_of(r, classes))).collect();
        Self { rules, tables, forward_malformed: r.one_in(2), packets }
    }

    /// Runs it on a switch and on the model; the error is the first difference.
    fn run(&self, options: Options) -> Result<Undecided, String> {
        let mut switch = Switch::new(&self.tables, options);
        let mut model = Model::new(&self.tables, &PORTS);
        model.forward_malformed = self.forward_malformed;
        switch.forward_malformed(self.forward_malformed);
        for rule in &self.rules {
            // The model leaves out rules that the switch refuses.
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
        let found = switch.run(&sent).map_err(|error| error.to_string())?;
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
            // How often a malformed packet is parsed is up to the switch.
            (counters.malformed, right.malformed) = (0, 0);
        }
        match counters == right {
            true => Ok(undecided),
            false => Err(format!("counted {counters:?}\nwanted  {right:?}")),
        }
    }
}

impl Case {
    /// Returns a smaller case that still differs, without needless packets, rules and actions.
    fn shrunk(&self, options: Options) -> Self {
        let mut case = self.clone();
        loop {
            let fails = |smaller: &Case| smaller.run(options).is_err();
            let Some(smaller) = case.smaller().find(fails) else { return case };
            case = smaller;
        }
    }

    /// Describes the case and its first difference.
    fn report(&self, options: Options) -> String {
        let policy = if self.forward_malformed { "forward" } else { "drop" };
        let difference = self.run(options).err().unwrap_or_default();
        let rules = worker::print_rules(&self.rules);
        let packets: String =
            self.packets.iter().map(|(port, bytes)| format!("{port} {}\n", hex(bytes))).collect();
        format!(
            "{options:?}\nmalformed = {policy}, {:?}\n{rules}packets by port\n{packets}{difference}",
            self.tables
        )
    }

    /// Returns the cases without some packets, one rule or one action.
    fn smaller(&self) -> impl Iterator<Item = Self> {
        let mut out = Vec::new();
        let len = self.packets.len();
        for part in [len / 2, len / 4, 1].into_iter().filter(|&part| part > 0) {
            for start in (0..len).step_by(part) {
                let mut case = self.clone();
                case.packets.drain(start..len.min(start + part));
                out.push(case);
            }
        }
        for (i, rule) in self.rules.iter().enumerate() {
            let mut case = self.clone();
            case.rules.remove(i);
            out.push(case);
            for action in 0..rule.actions.len() {
                let mut case = self.clone();
                case.rules[i].actions.remove(action);
                out.push(case);
            }
        }
        out.into_iter()
    }
}

/// Packets that were not compared because the standards leave their treatment open, by reason.
type Undecided = BTreeMap<&'static str, u32>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn print(frames: &[(u32, Vec<u8>)]) -> String {
    let name = |port: &u32| if *port == CONTROLLER { "controller".to_owned() } else { port.to_string() };
    frames.iter().map(|(port, bytes)| format!("  {}: {}\n", name(port), hex(bytes))).collect()
}

/// A case in which the switch differs from the model.
type Difference = (u64, Options, Case);

/// Runs random cases with two sets of options each.
fn compare(seeds: std::ops::Range<u64>, classes: Classes) -> (Undecided, Vec<Difference>) {
    let (classes, seeds) = asked(classes, seeds);
    let mut undecided = Undecided::new();
    let mut differences = Vec::new();
    for seed in seeds {
        let r = &mut Random::new(seed);
        let case = Case::of(r, classes);
        for options in [Options::plain(r), Options::random(r)] {
            match case.run(options) {
                Ok(open) => open.into_iter().for_each(|(why, n)| *undecided.entry(why).or_default() += n),
                Err(_) => {
                    differences.push((seed, options, case));
                    break;
                }
            }
        }
    }
    (undecided, differences)
}

/// Returns the classes without those in `FLOWLANE_ORACLE_WITHOUT` (separated by commas), and the seeds, or
/// `FLOWLANE_ORACLE_CASES` of them: for examining differences one by one, and for long runs.
fn asked(classes: Classes, seeds: std::ops::Range<u64>) -> (Classes, std::ops::Range<u64>) {
    let without = std::env::var("FLOWLANE_ORACLE_WITHOUT").unwrap_or_default();
    let left_out = Class::VARIANTS.iter().filter(|class| without.split(',').any(|name| name == class.name()));
    let classes = left_out.fold(classes, |classes, &class| classes.without(class));
    let cases = std::env::var("FLOWLANE_ORACLE_CASES").ok().map(|n| n.parse::<u64>().expect("a number"));
    (classes, seeds.start..cases.map_or(seeds.end, |cases| seeds.start + cases))
}

/// Panics with the first difference, if any.
fn assert_none(differences: &[Difference]) {
    let Some((seed, options, case)) = differences.first() else { return };
    let case = case.shrunk(*options);
    panic!("{} cases differ; the first is seed {seed}:\n{}", differences.len(), case.report(*options));
}

#[test]
fn sound_packets_go_where_openflow_sends_them_as_it_changes_them() {
    let (_, differences) = compare(0..1000, Classes::sound());
    assert_none(&differences);
}

#[test]
fn packets_of_every_class_go_where_openflow_sends_them_as_it_changes_them() {
    let (_, differences) = compare(10_000..11_000, Classes::all());
    assert_none(&differences);
}

#[test]
fn little_is_left_open() {
    let (undecided, _) = compare(20_000..20_020, Classes::all().without(Class::ManyTags));
    let share: u32 = undecided.values().sum();
    assert!(share < 20 * 2 * 50 / 10, "{undecided:?}");
}
