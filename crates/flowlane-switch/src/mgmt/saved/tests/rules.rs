//! Rules, groups, meters and settings of ports in the next switch.

use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::read_groups;
use flowlane::rule::{ReadOptions, read_changes};
use flowlane::tunnel::MappedOption;

use super::*;
use crate::control::{Changes, GroupMod, MeterMod, MeterSpec, OptionMod, PortChange};
use crate::ruleset::PortFlags;
use crate::state::meter::{Band, Unit};

/// Settings of a port, none of which a worker derives.
const SET: PortFlags = PortFlags(PortFlags::NO_FLOOD.0 | PortFlags::NO_FORWARD.0);

fn change(bench: &mut Bench, text: &str) {
    let mods = read_changes(text, "test", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    bench.control.change(&mods).unwrap();
}

/// A switch with rules of every kind of flow-mod beside those of its configuration.
fn changed_with(config: &str) -> Bench {
    let mut bench = Bench::new(config);
    let control = &mut bench.control;
    let bands = vec![Band::drop(10, 20), Band::remark(30, 5, 2)];
    let spec = MeterSpec { number: 4, unit: Unit::Packets, bands, has_bursts: true, keeps_statistics: false };
    control.change_meters(&MeterMod::Add(spec)).unwrap();
    let option = MappedOption { class: 0x102, kind: 3, bytes: 8 };
    control.change_options(&OptionMod::Add(vec![(5, option)])).unwrap();
    let text = "group_id=7,type=select,selection_method=hash,fields(ip_src),bucket=bucket_id=3,weight=2,output:1,bucket=output:2\n\
                group_id=8,type=all,bucket=group:7,bucket=in_port";
    let groups = read_groups(text, "test", &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let groups: Vec<GroupMod> = groups.into_iter().map(|(_, group)| GroupMod::Add(group)).collect();
    let flags = SET;
    let ports = [PortChange { port: PortNo(2), flags, mask: flags }];
    control.change_all(&Changes { groups: &groups, ports: &ports, ..Changes::default() }).unwrap();
    change(
        &mut bench,
        "add table=2,priority=5,cookie=0x77,idle_timeout=9,hard_timeout=60,importance=3,send_flow_rem,tcp,tp_dst=80-90,actions=group:8\n\
         add table=2,priority=5,udp,actions=meter:4,resubmit(,6),output:1\n\
         add table=2,tun_metadata5=0x1234/0xffff,actions=learn(table=6,idle_timeout=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])\n\
         add table=2,priority=1,actions=drop\n\
         delete table=0,udp,tp_dst=53",
    );
    bench
}

#[test]
fn rules_and_all_that_they_name_are_those_of_the_other_switch() {
    let config = CONFIG.to_owned() + "[[table]]\nnumber = 2\nrules = [\"priority=3,icmp,actions=drop\"]\n";
    let old_config = CONFIG.to_owned() + "[[table]]\nnumber = 2\n";
    let mut old = changed_with(&old_config);
    let saved = old.saved();
    let mut new = Bench::new(&config);
    // The new configuration has rules and a group that the running switch lacks.
    let group = read_groups("group_id=9,type=all,bucket=output:1", "test", &ReadOptions::default()).unwrap();
    let groups: Vec<GroupMod> = group.into_iter().map(|(_, group)| GroupMod::Add(group)).collect();
    new.control.change_all(&Changes { groups: &groups, ..Changes::default() }).unwrap();
    change(&mut new, "add table=2,priority=8,actions=group:9");
    let restored = new.restore(&saved).unwrap_or_else(|e| panic!("{e}"));
    let (was, is) = (old.control.save(), new.control.save());
    assert_eq!(is, was);
    assert_eq!(restored.rules, (is.rules.len() + is.groups.len() + is.meters.len()) as u64);
    assert!(is.rules.iter().any(|saved| saved.rule.cookie == 0x77 && saved.hard_timeout_s == 60));
    assert!(is.ports.contains(&(2, SET)));
    // Once more, to the switch that has them.
    let again = new.saved();
    new.restore(&again).unwrap();
    assert_eq!(new.control.save(), was);
}

#[test]
fn rules_that_do_not_fit_are_named() {
    let mut old = changed_with(&(CONFIG.to_owned() + "[[table]]\nnumber = 2\n"));
    let saved = old.saved();
    let refused = Bench::new(CONFIG).restore(&saved).unwrap_err().to_string();
    assert!(refused.contains("table=2") && refused.contains("there is no table 2"), "{refused}");
}
