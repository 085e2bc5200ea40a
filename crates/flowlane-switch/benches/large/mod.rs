//! Workloads with many masks, large sets of rules and many flows, as configurations of a switch.

use std::fmt::Write;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use flowlane::generate::{Profile, Random, RuleConfig, build_frame, draw_key, generate_rules};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::print_rules;
use flowlane::rule::{Action, Match, Priority, Rule};
use flowlane_capture::{CaptureWriter, FileFormat};

/// Rules, and keys of packets.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) keys: Vec<FlowKey>,
}

pub(crate) fn prefix(matches: &mut Match, field: Field, random: &mut Random, length: u32) {
    let mask = u32::MAX << (32 - length);
    matches.set_masked(field, u128::from(random.bits() as u32 & mask), mask.into());
}

pub(crate) fn udp() -> Match {
    let mut matches = Match::any();
    matches.set(Field::EthType, 0x0800).set(Field::NwProto, 17);
    matches
}

pub(crate) fn rule(table: u8, priority: u32, matches: Match, actions: Vec<Action>) -> Rule {
    Rule { table, priority: Priority(priority), ..Rule::new(matches, actions) }
}

/// Pairs of prefix lengths of both addresses, `rules` of each.
pub(crate) fn masks(masks: usize, rules: usize) -> Workload {
    let mut random = Random::new(5);
    let mut pairs: Vec<(u32, u32)> = (1..=32).flat_map(|a| (1..=32).map(move |b| (a, b))).collect();
    random.shuffle(&mut pairs);
    let mut out = Vec::new();
    for (a, b) in pairs.into_iter().take(masks) {
        // One mask is wide enough for that many rules.
        let (a, b) = if masks == 1 { (16, 16) } else { (a, b) };
        for _ in 0..rules {
            let mut matches = udp();
            prefix(&mut matches, Field::Ipv4Src, &mut random, a);
            prefix(&mut matches, Field::Ipv4Dst, &mut random, b);
            out.push(rule(0, a + b, matches, vec![Action::Output(PortNo(2))]));
        }
    }
    let keys = matching(&out, 40_000, &mut random);
    Workload { name: format!("{masks} masks × {rules}"), rules: out, keys }
}

/// Keys of packets that match a rule each.
pub(crate) fn matching(rules: &[Rule], packets: usize, random: &mut Random) -> Vec<FlowKey> {
    (0..packets).map(|_| draw_key(&rules[random.index(rules.len())].matches, random)).collect()
}

pub(crate) fn generated(profile: Profile, count: usize, seed: u64) -> Workload {
    let config = RuleConfig { seed, ..RuleConfig::new(profile, count) };
    let rules = generate_rules(&config).expect("profiles have as many");
    let keys = matching(&rules, 100_000, &mut Random::new(seed));
    Workload { name: format!("{} {count} seed {seed}", profile.name()), rules, keys }
}

/// Writes a configuration with the workload's rules, and its packets; gives the configuration's path.
pub(crate) fn write(workload: &Workload, folder: &Path) -> PathBuf {
    let file = BufWriter::new(File::create(folder.join("in.pcap")).expect("a temporary file"));
    let mut capture = CaptureWriter::new(file, FileFormat::Pcap).expect("a temporary file");
    let mut bytes = Vec::new();
    for (time, key) in (0..).zip(&workload.keys) {
        let mut key = key.clone();
        key.set(Field::NwTtl, 64);
        build_frame(&key, 60, &mut bytes);
        capture.write(time, &bytes).expect("a temporary file");
    }
    capture.finish().expect("a temporary file");
    let mut config = String::from("[[port]]\nnumber = 1\nname = \"in\"\nopen = \"pcap:in.pcap,loop=0\"\n");
    for number in 2..100 {
        _ = write!(config, "[[port]]\nnumber = {number}\nname = \"out{number}\"\nopen = \"null\"\n");
    }
    for table in 0..=workload.rules.iter().map(|rule| rule.table).max().unwrap_or(0) {
        let rules: Vec<Rule> = workload.rules.iter().filter(|rule| rule.table == table).cloned().collect();
        let name = format!("rules-{table}.flows");
        std::fs::write(folder.join(&name), print_rules(&rules)).expect("a temporary file");
        _ = write!(config, "[[table]]\nnumber = {table}\nrules_max = 200000\nrules_file = \"{name}\"\n");
    }
    let path = folder.join("switch.toml");
    std::fs::write(&path, config).expect("a temporary file");
    path
}
