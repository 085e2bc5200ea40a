//! The whole switch with nothing tuned, where flows are many: many masks, large sets of rules, tables one behind the other,
//! floods of new flows. Cycles a packet of all stages, and their quotient to one mask × 1024 rules in the same round.
//!
//! `cargo bench -p flowlane-switch --bench tables -- [rounds=N] [NAME …]`: N is 3 where none is given; only workloads whose
//! names contain one of those given.

mod large;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use flowlane::generate::{Profile, Random, draw_key};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Rule};
use flowlane_switch::datapath::{Stage, Until};
use flowlane_switch::mgmt::setup::Setup;

use large::{Workload, generated, masks, matching, prefix, rule, udp, write};

/// Packets that are sent.
const PACKETS: u64 = 3_000_000;

/// Three tables: the first sets a register, the second the destination, the third sends.
fn chain() -> Workload {
    let mut random = Random::new(9);
    let lengths = [8, 12, 16, 20, 24, 28, 32];
    let (mut rules, mut keys) = (Vec::new(), Vec::new());
    let set = |field: Field, value: u32| Action::set_field(field, value.into(), field.info().ones());
    let inside = |n: u32| 0x0a00_0001 | n << 8;
    for n in 0..1000u32 {
        let mut length = || lengths[random.index(lengths.len())];
        let (a, b) = (length(), length());
        let (mut from, mut to, mut last) = (udp(), udp(), udp());
        prefix(&mut from, Field::Ipv4Src, &mut random, a);
        prefix(&mut to, Field::Ipv4Dst, &mut random, b);
        last.set(Field::Ipv4Dst, inside(n).into());
        rules.push(rule(0, a, from, vec![set(Field::Reg0, n % 7), Action::Goto(1)]));
        rules.push(rule(1, b, to, vec![set(Field::Ipv4Dst, inside(n)), Action::Goto(2)]));
        rules.push(rule(2, 1, last, vec![Action::Output(PortNo(2))]));
    }
    let of = |table: u8| rules.iter().filter(|r| r.table == table).cloned().collect::<Vec<Rule>>();
    let (first, second) = (of(0), of(1));
    for from in matching(&first, 40_000, &mut random) {
        let mut key = draw_key(&second[random.index(second.len())].matches, &mut random);
        key.set(Field::Ipv4Src, from.get(Field::Ipv4Src));
        keys.push(key);
    }
    Workload { name: "3 tables × 1000".into(), rules, keys }
}

/// The rules of 160 masks; of `new` packets in ten each is a flow of its own, the others are of a thousand.
fn flood(new: usize) -> Workload {
    let mut random = Random::new(11);
    let any = udp();
    let steady: Vec<FlowKey> = (0..1000).map(|_| draw_key(&any, &mut random)).collect();
    let key = |n: usize| match n % 10 < new {
        true => draw_key(&any, &mut random),
        false => steady[random.index(steady.len())].clone(),
    };
    let keys = (0..1_000_000).map(key).collect();
    Workload { name: format!("flood of {} % beside 1000 flows", 10 * new), keys, ..masks(160, 40) }
}

/// Cycles a packet of the whole switch.
fn measure(workload: &Workload, folder: &Path) -> f64 {
    let path = write(workload, folder);
    let mut worker = Setup::read(&path).and_then(|setup| setup.open(5)).expect("the configuration is right");
    let until = Until { packets: Some(PACKETS), duration: None };
    worker.run(until, &AtomicBool::new(false), |_| {}).expect("no port fails");
    Stage::ALL.iter().map(|stage| worker.stages.get(*stage).cycles as f64).sum::<f64>() / PACKETS as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let rounds = arguments.iter().find_map(|a| a.strip_prefix("rounds=")?.parse().ok()).unwrap_or(3);
    let names: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profiles = [Profile::Acl, Profile::Fw, Profile::Ipc];
    for round in 0..rounds {
        let base = masks(1, 1024);
        let least = measure(&base, folder.path());
        println!("round {round}  {:<36} {least:>7.1} cycles a packet", base.name);
        let mut all =
            vec![masks(40, 40), masks(160, 40), masks(640, 40), chain(), flood(0), flood(5), flood(10)];
        for count in [10_000, 100_000] {
            all.extend(profiles.map(|profile| generated(profile, count, 21 + round)));
        }
        let wanted =
            |w: &&Workload| names.is_empty() || names.iter().any(|name| w.name.contains(name.as_str()));
        for workload in all.iter().filter(wanted) {
            let cycles = measure(workload, folder.path());
            println!(
                "round {round}  {:<36} {cycles:>7.1} cycles a packet, {:.2} ×",
                workload.name,
                cycles / least
            );
        }
    }
}
