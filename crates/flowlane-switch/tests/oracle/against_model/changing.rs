//! Rules that change between packets: the switch, whose control changes them, against the model.

use std::sync::Arc;

use flowlane::rule::{Command, FlowMod, Rule};
use flowlane_switch::control::Control;
use flowlane_switch::datapath::Given;

use super::worker::{Options, PORTS, Switch};
use super::{Case, Kind, asked, hex, print, worker};
use crate::model::Model;
use crate::packets::{Classes, Random};

fn flow_mod(command: Command, rule: &Rule) -> FlowMod {
    FlowMod::new(command, rule.clone())
}

/// Changes to some of these rules, made together.
fn changes(r: &mut Random, rules: &[Rule]) -> Vec<FlowMod> {
    let mut out = Vec::new();
    while !rules.is_empty() && !r.one_in(3) {
        let rule = &rules[r.below(rules.len() as u32) as usize];
        let others: Vec<&Rule> = rules.iter().filter(|other| other.table == rule.table).collect();
        let other =
            Rule { actions: others[r.below(others.len() as u32) as usize].actions.clone(), ..rule.clone() };
        out.push(match r.below(4) {
            0 => flow_mod(Command::DeleteStrict, &Rule { actions: Vec::new(), ..rule.clone() }),
            1 => flow_mod(Command::ModifyStrict, &other),
            _ => flow_mod(Command::Add, rule),
        });
    }
    out
}

/// Runs packets of a case between changes. The first difference is the answer.
fn run(case: &Case, r: &mut Random, options: Options) -> Result<(), String> {
    let mut switch = Switch::new(&case.tables, options);
    let mut model = Model::new(&case.tables, &PORTS);
    model.forward_malformed = case.forward_malformed;
    switch.forward_malformed(case.forward_malformed);
    let mut control = Control::attach(&mut switch.worker).expect("the worker is new");
    for (number, kind) in (0..).zip(&case.tables) {
        if let Kind::Rules(_) = kind {
            let build = move |rules: &[Given<'_>], _| {
                let mut engine = options.engine();
                let filled = rules.iter().try_for_each(|(id, priority, m)| engine.insert(*id, *priority, m));
                filled.ok().map(|()| engine)
            };
            control.rebuild_with(number, Arc::new(build));
        }
    }
    let mut packets = &case.packets[..];
    while !packets.is_empty() {
        let mods = changes(r, &case.rules);
        if control.change(&mods).is_ok() {
            mods.iter().for_each(|one| model.change(one));
        }
        control.rebuild_engines();
        let (these, later) = packets.split_at(packets.len().min(1 + r.below(12) as usize));
        packets = later;
        let (mut sent, mut wanted): (Vec<(u32, &[u8])>, _) = (Vec::new(), Vec::new());
        for (in_port, bytes) in these {
            if let Ok(frames) = model.switch(*in_port, bytes) {
                sent.push((*in_port, bytes));
                wanted.push(frames);
            }
        }
        let found = switch.run(&sent).map_err(|error| error.to_string())?;
        if let Some(i) = (0..found.len()).find(|&i| found[i] != wanted[i]) {
            let (port, bytes) = sent[i];
            let (found, wanted) = (print(&found[i]), print(&wanted[i]));
            return Err(format!("through port {port}: {}\nsent\n{found}wanted\n{wanted}", hex(bytes)));
        }
    }
    let (mut counters, mut right) = (switch.counters(), model.counters());
    if case.forward_malformed {
        (counters.malformed, right.malformed) = (0, 0);
    }
    for (number, (rules, _)) in &mut counters.tables {
        if let Kind::Rules(_) = case.tables[usize::from(*number)] {
            *rules = control.statistics(|n, _| n == *number).iter().map(|flow| flow.count.packets).collect();
        }
    }
    if counters != right {
        return Err(format!("counted {counters:?}\nwanted  {right:?}"));
    }
    // Asked for and brought: what had been asked for before, then the rest.
    let mut gone = Vec::new();
    for _ in 0..3 {
        gone.extend(control.take_flow_removed().iter().map(|gone| gone.count.packets));
        switch.worker.lookup.collect_counters();
    }
    let mut left = model.gone.clone();
    gone.sort_unstable();
    left.sort_unstable();
    match gone == left {
        true => Ok(()),
        false => Err(format!("of rules that went {gone:?}\nwanted {left:?}")),
    }
}

#[test]
fn packets_between_changes_meet_the_rules_of_their_time() {
    let (classes, seeds) = asked(Classes::all(), 40_000..41_000);
    for seed in seeds {
        let r = &mut Random::new(seed);
        let mut case = Case::of(r, classes);
        // Few that come again and again, so that caches hold what changes may concern.
        let few: Vec<_> = case.packets[..8].to_vec();
        case.packets = (0..100).map(|_| few[r.below(8) as usize].clone()).collect();
        let options = Options::random(r);
        if let Err(difference) = run(&case, r, options) {
            panic!("seed {seed}: {options:?}\n{}{difference}", worker::print_rules(&case.rules));
        }
    }
}
