//! Applications whose messages announce connections: clients and servers of FTP and TFTP through Flowlane and Open vSwitch, with and
//! without translation. Frames, all that later tables see of connections and the lists of connections must be the same; and both ends
//! of a control connection must understand each other, whatever has been rewritten between them.
//!
//! `FLOWLANE_ALG_CASES` says how many cases are run, `FLOWLANE_ALG_FIRST` which is the first.

mod sessions;

use std::fmt::Write as _;

use flowlane_switch::datapath::MalformedPolicy;

use super::super::ovs::{Ovs, OvsPrograms, Sent};
use super::super::packets::Random;
use super::super::rules::Rules;
use super::super::switch::Flowlane;
use super::rules::{SHOWN, shown_tuple};
use super::{Failed, PACKETS, Step, explain, variable};
use sessions::Sessions;

/// Cases that are run where nothing else is said.
const CASES_DEFAULT: u64 = 30;

/// The translation of control connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Translation {
    None,
    Source,
    Destination,
}

/// Rules of a firewall for both applications. Packets have a tag for a while: Open vSwitch rewrites no text in a frame without room,
/// and makes room in a frame of a test where it pushes a tag. A `ct` of another zone, in between, has it done.
fn rules(r: &mut Random, translation: Translation) -> Rules {
    let zone = 10 + r.below(60_000);
    let (mut text, mut cookie) = (String::new(), 0);
    let mut add = |rule: &str| {
        cookie += 1;
        writeln!(text, "cookie={cookie},{rule}").expect("text takes text");
    };
    for family in ["ip", "ipv6"] {
        let v6 = if family == "ip" { "" } else { "6" };
        let nat = match (translation, v6) {
            (Translation::None, _) => "",
            (Translation::Source, "") => ",nat(src=198.51.100.1)",
            (Translation::Source, _) => ",nat(src=2001:db8::c633:6401)",
            (Translation::Destination, "") => ",nat(dst=192.0.2.1)",
            (Translation::Destination, _) => ",nat(dst=2001:db8::c000:201)",
        };
        let plain = if nat.is_empty() && r.one_in(2) { "" } else { ",nat" };
        let exec = r.pick(&["", ",exec(set_field:0x5->ct_mark)", ",exec(set_field:0x1234->ct_label)"]);
        let own = r.pick(&["", ",exec(set_field:0x70/0xf0->ct_mark)"]);
        add(&format!(
            "table=0,{family},vlan_tci=0,actions=push_vlan:0x8100,set_field:4101->vlan_vid,ct(zone=1,table=3)"
        ));
        add(&format!("table=3,{family},dl_vlan=5,actions=pop_vlan,ct(zone={zone},table=1{plain})"));
        for (proto, application, port) in [("tcp", "ftp", 21), ("udp", "tftp", 69)] {
            add(&format!(
                "table=1,priority=9,{proto}{v6},in_port=1,ct_state=+new-rel+trk,tp_dst={port},\
                 actions=ct(commit,alg={application},zone={zone},table=2{nat}{exec})"
            ));
            add(&format!(
                "table=1,priority=9,{proto}{v6},ct_state=+new+rel+trk,actions=ct(commit,zone={zone},table=2{plain}{own})"
            ));
        }
        add(&format!("table=1,priority=0,{family},actions=resubmit(,2)"));
        for (from, to) in [(1, 2), (2, 1)] {
            let tuple = shown_tuple(family);
            add(&format!(
                "table=2,{family},in_port={from},ct_state=+trk-inv,actions=output:{to},{SHOWN},{tuple}"
            ));
            add(&format!("table=2,{family},in_port={from},ct_state=+trk+inv,actions=output:{to},{SHOWN}"));
        }
    }
    Rules::new(text, String::new(), 4)
}

/// Sends the packets of a case through Flowlane. Returns them with the connections that there are then.
fn converse(flowlane: &mut Flowlane, r: &mut Random, translation: Translation) -> (Vec<Step>, Vec<String>) {
    let (mut sessions, mut steps, mut connections) = (Sessions::new(r, translation), Vec::new(), Vec::new());
    while steps.len() < PACKETS {
        let (in_port, frame) = sessions.next(r);
        let sent = flowlane.forward(in_port, &frame).0;
        if flowlane.ambiguous_connections() > 0 {
            break;
        }
        sessions.hear(&sent);
        steps.push(Step { in_port, frame, sent });
        connections = flowlane.connections();
    }
    (steps, connections)
}

/// Figures of a run: packets, related connections, and texts that were rewritten.
#[derive(Default, Debug)]
struct Figures {
    packets: usize,
    announced: usize,
    rewritten: usize,
}

impl Figures {
    fn count(&mut self, steps: &[Step], connections: &[String]) {
        self.packets += steps.len();
        self.announced += connections.iter().filter(|text| !text.contains("helper=")).count();
        let is_longer = |(step, sent): &(&Step, &Sent)| {
            sent[2 - step.in_port].iter().any(|frame| frame.len() != step.frame.len())
        };
        self.rewritten += steps.iter().map(|step| (step, &step.sent)).filter(is_longer).count();
    }
}

fn run(ovs: &mut Ovs, seed: u64, figures: &mut Figures) -> Result<(), Failed> {
    let r = &mut Random::new(seed);
    let translation = r.pick(&[Translation::None, Translation::Source, Translation::Destination]);
    let rules = rules(r, translation);
    let refused =
        |who: &str, why: &str| Failed::Differs(format!("case {seed}: {who}: {why}\n{}", rules.text));
    let mut flowlane =
        Flowlane::new(&rules, MalformedPolicy::Forward, seed).map_err(|why| refused("Flowlane", &why))?;
    ovs.set_rules(&rules).map_err(|why| refused("Open vSwitch", &why))?;
    ovs.flush_connections()?;
    let (steps, ours) = converse(&mut flowlane, r, translation);
    for (at, step) in steps.iter().enumerate() {
        if ovs.try_forward(step.in_port, &[&step.frame])? != step.sent {
            return Err(Failed::Differs(explain(ovs, seed, &rules, &steps[..=at])));
        }
    }
    if ours != ovs.connections()? {
        return Err(Failed::Differs(explain(ovs, seed, &rules, &steps)));
    }
    figures.count(&steps, &ours);
    Ok(())
}

#[test]
fn open_vswitch_follows_the_same_applications() {
    let Some(programs) = OvsPrograms::find() else { return };
    let first = variable("FLOWLANE_ALG_FIRST").unwrap_or(0);
    let cases = variable("FLOWLANE_ALG_CASES").unwrap_or(CASES_DEFAULT);
    let (mut ovs, mut figures, mut found, mut ends) =
        (Ovs::start(&programs), Figures::default(), Vec::new(), 0);
    for seed in first..first + cases {
        match run(&mut ovs, seed, &mut figures) {
            Ok(()) => {}
            Err(Failed::Differs(difference)) => {
                println!("{difference}");
                found.push(seed);
                if found.len() == 3 {
                    break;
                }
            }
            Err(Failed::Ended) => {
                ends += 1;
                ovs = Ovs::start(&programs);
            }
        }
    }
    println!("Open vSwitch has ended {ends} times; {cases} cases compared with it: {figures:?}");
    assert!(found.is_empty(), "cases that differ: {found:?}");
    assert!(ends < 3 && (cases < CASES_DEFAULT || figures.announced > 20 && figures.rewritten > 20));
}
