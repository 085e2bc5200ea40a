//! `learn`: rules that packets make, through control.

use flowlane::rule::{ReadOptions, read_changes};

use super::*;
use crate::control::Control;

/// Adds rules, as they are written.
fn add(control: &mut Control, text: &str) {
    let mods = read_changes(text, "rules", &ReadOptions::default()).unwrap();
    control.change(&mods).unwrap_or_else(|error| panic!("{error}: {text}"));
}

/// A frame from one host to another, with a tag or without.
fn frame(from: u8, to: u8, tag: Option<u8>) -> Vec<u8> {
    let tag = tag.map_or(Vec::new(), |vid| vec![0x81, 0, 0, vid]);
    [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from], &tag[..], &[0x88, 0xb5], &[0; 46]].concat()
}

const SWITCH: &str = "\
table=0,actions=learn(table=1,hard_timeout=3,priority=9,cookie=7,NXM_OF_VLAN_TCI[0..11],\
NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:5->NXM_NX_REG1[0..3],output:NXM_OF_IN_PORT[]),resubmit(,1)
table=1,priority=0,actions=flood
";

/// A bridge made of two rules (ovs-actions(7)).
#[test]
fn rules_that_packets_make_are_in_force_for_the_next() {
    for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let (mut worker, sent) = worker(&[], 2, caches, By::Tuple);
        let mut control = Control::attach(&mut worker).unwrap();
        add(&mut control, SWITCH);
        let through = |worker: &mut Worker, control: &mut Control, port: usize, frame: &[u8]| {
            worker.inject(port, &[frame]).unwrap();
            let added = control.add_learned();
            (added, sent.lock().unwrap().drain(..).map(|(port, _)| port).collect::<Vec<_>>())
        };
        assert_eq!(through(&mut worker, &mut control, 0, &frame(1, 2, None)), (1, vec![2, 3, 4]));
        assert_eq!(through(&mut worker, &mut control, 1, &frame(2, 1, None)), (1, vec![1]));
        assert_eq!(through(&mut worker, &mut control, 0, &frame(1, 2, None)), (0, vec![2]));
        // The tag is part of the match; the parts that are not named are not.
        assert_eq!(through(&mut worker, &mut control, 0, &frame(1, 2, Some(5))), (1, vec![2, 3, 4]));
        assert_eq!(through(&mut worker, &mut control, 1, &frame(2, 1, Some(5))), (1, vec![1]));
        let learned = control.statistics(|table, rule| table == 1 && rule.cookie == 7);
        let mut texts: Vec<String> = learned.iter().map(|flow| flow.rule.to_string()).collect();
        texts.sort();
        assert_eq!(texts.len(), 4);
        let one = "table=1,priority=9,cookie=0x7,dl_dst=02:00:00:00:00:02,vlan_tci=0x5/0xfff";
        assert!(texts.iter().any(|text| text.starts_with(one)), "{texts:#?}");
        assert!(texts.iter().all(|text| text.contains("load:0x5->reg1[0..3],output:")), "{texts:#?}");
        // A host that has moved replaces its rule.
        assert_eq!(through(&mut worker, &mut control, 2, &frame(1, 2, None)), (1, vec![2]));
        assert_eq!(through(&mut worker, &mut control, 1, &frame(2, 1, None)), (0, vec![3]));
        assert_eq!(control.statistics(|table, _| table == 1).len(), 5);
        // To and fro at once, and after it was deleted.
        assert_eq!(through(&mut worker, &mut control, 0, &frame(1, 2, None)), (1, vec![2]));
        assert_eq!(through(&mut worker, &mut control, 1, &frame(2, 1, None)), (0, vec![1]));
        add(&mut control, "delete table=1,cookie=7/-1");
        assert_eq!(through(&mut worker, &mut control, 0, &frame(1, 2, None)), (1, vec![2, 3, 4]));
        assert_eq!(worker.egress.learning.lost(), 0);
    }
}

/// Packets restart hard timeouts, those of their own flow only.
#[test]
fn a_rule_that_is_learned_again_begins_its_hard_timeout_again() {
    let (mut worker, _) = worker(&[], 2, CacheConfig::default(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(&mut control, SWITCH);
    let send = |worker: &mut Worker, control: &mut Control, second: u64, from: u8| {
        for _ in 0..2 {
            // Control knows the time of the last burst.
            worker.inject_at(0, [(second * 1_000_000_000, &frame(from, 9, None)[..])]).unwrap();
        }
        control.add_learned();
        let gone = control.expire();
        (gone, control.statistics(|table, rule| table == 1 && rule.cookie == 7).len())
    };
    assert_eq!(send(&mut worker, &mut control, 1, 1), (0, 1));
    assert_eq!(send(&mut worker, &mut control, 2, 2), (0, 2));
    assert_eq!(send(&mut worker, &mut control, 3, 1), (0, 2));
    assert_eq!(send(&mut worker, &mut control, 5, 1), (1, 1));
    assert_eq!(send(&mut worker, &mut control, 7, 1), (0, 1));
}

#[test]
fn floods_of_new_rules_are_bounded_and_counted() {
    let (mut worker, _) = worker(&[], 2, CacheConfig::default(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(&mut control, SWITCH);
    for host in 0..5000u16 {
        let mut frame = frame(0, 9, None);
        frame[10..12].copy_from_slice(&host.to_be_bytes());
        worker.inject(0, &[&frame]).unwrap();
    }
    assert_eq!(worker.egress.learning.lost(), 5000 - 4096);
    assert_eq!(control.add_learned(), 4096);
    // The engine has room for 10,000 rules. Those beyond are refused, and others still take the place of theirs.
    let mut hosts = 5000..;
    let mut learn = |worker: &mut Worker, control: &mut Control, count: usize| {
        for host in hosts.by_ref().take(count) {
            let mut frame = frame(0, 9, None);
            frame[10..12].copy_from_slice(&u16::to_be_bytes(host));
            worker.inject(0, &[&frame]).unwrap();
        }
        control.add_learned()
    };
    assert_eq!(learn(&mut worker, &mut control, 4000), 4000);
    let room = 10_000 - 4096 - 4000 - 1;
    assert_eq!(learn(&mut worker, &mut control, room - 1), room - 1);
    let before = worker.egress.learning.lost();
    assert_eq!(learn(&mut worker, &mut control, 4), 1);
    assert_eq!(worker.egress.learning.lost(), before + 3);
    let mut moved = frame(0, 9, None);
    moved[10..12].copy_from_slice(&7u16.to_be_bytes());
    worker.inject(1, &[&moved]).unwrap();
    assert_eq!(learn(&mut worker, &mut control, 5), 1);
    assert_eq!(worker.egress.learning.lost(), before + 8);
    // Each refusal costs a copy of the ruleset, and so those of a flood are not looked for one by one.
    assert_eq!(learn(&mut worker, &mut control, 2000), 0);
    assert_eq!(worker.egress.learning.lost(), before + 2008);
}

/// Sends one frame of a host, and returns what control has added.
fn learn_of(worker: &mut Worker, control: &mut Control, port: usize, host: u8) -> usize {
    worker.inject(port, &[&frame(host, 9, None)]).unwrap();
    control.add_learned()
}

/// The rules of table 1.
fn learned(control: &Control) -> usize {
    control.statistics(|table, _| table == 1).len()
}

/// As Open vSwitch 3.1 does: all rules with the cookie count, those of controllers, too.
#[test]
fn rules_are_learned_up_to_the_limit() {
    for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let (mut worker, _) = worker(&[], 2, caches, By::Tuple);
        let mut control = Control::attach(&mut worker).unwrap();
        add(
            &mut control,
            "table=0,actions=learn(table=1,limit=3,cookie=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])\n\
             table=1,cookie=7,priority=1,actions=drop\n\
             table=1,cookie=8,priority=2,actions=drop\n",
        );
        let added: Vec<usize> = (1..=5).map(|host| learn_of(&mut worker, &mut control, 0, host)).collect();
        assert_eq!((added, learned(&control)), (vec![1, 1, 0, 0, 0], 4));
        // A host that has moved would replace its rule.
        assert_eq!(learn_of(&mut worker, &mut control, 1, 2), 0);
        assert_eq!(
            control.statistics(|table, rule| table == 1 && rule.to_string().ends_with("output:2")).len(),
            0
        );
        // Room for one more, though two come at once.
        add(&mut control, "delete table=1,cookie=7/-1,dl_dst=02:00:00:00:00:01");
        worker.inject(0, &[&frame(6, 9, None), &frame(7, 9, None)]).unwrap();
        assert_eq!((control.add_learned(), learned(&control)), (1, 4));
        // A rule gets the cookie, so that there are more than the limit; then two lose it.
        add(&mut control, "table=1,cookie=7,priority=2,actions=drop");
        add(&mut control, "delete table=1,cookie=7/-1,dl_dst=02:00:00:00:00:02");
        assert_eq!(learn_of(&mut worker, &mut control, 0, 8), 0);
        add(&mut control, "table=1,cookie=8,priority=2,actions=drop");
        assert_eq!(learn_of(&mut worker, &mut control, 0, 8), 1);
        assert_eq!(worker.egress.learning.lost(), 0, "a limit is no loss");
    }
}

const WITH_RESULT: &str = "\
table=0,actions=learn(table=1,limit=2,cookie=7,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
output:NXM_OF_IN_PORT[]),resubmit(,2)
table=2,reg0=1,actions=output:3
table=2,reg0=0,actions=output:4
";

/// The ports to which packets of hosts go that come by a port.
fn sent_to(worker: &mut Worker, sent: &Sent, port: usize, hosts: &[u8]) -> Vec<u32> {
    for &host in hosts {
        worker.inject(port, &[&frame(host, 9, None)]).unwrap();
    }
    sent.lock().unwrap().drain(..).map(|(port, _)| port).collect()
}

/// Later tables see whether the limit allows the rule, before control has added it.
#[test]
fn the_result_says_whether_a_limit_allows_the_rule() {
    for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let (mut worker, sent) = worker(&[], 3, caches, By::Tuple);
        let mut control = Control::attach(&mut worker).unwrap();
        add(&mut control, WITH_RESULT);
        assert_eq!(sent_to(&mut worker, &sent, 0, &[1, 2, 3, 1, 3]), [3, 3, 4, 3, 4]);
        assert_eq!(control.add_learned(), 2);
        assert_eq!(sent_to(&mut worker, &sent, 0, &[3, 2, 1, 1]), [4, 3, 3, 3]);
        // A rule that would take the place of another needs room, too.
        assert_eq!(sent_to(&mut worker, &sent, 1, &[1]), [4]);
        assert_eq!((control.add_learned(), learned(&control)), (0, 2));
        // There is room where a rule goes, gets another cookie, or is replaced by one.
        add(&mut control, "delete table=1,cookie=7/-1,dl_dst=02:00:00:00:00:01");
        assert_eq!(sent_to(&mut worker, &sent, 0, &[3, 1]), [3, 4]);
        assert_eq!(control.add_learned(), 1);
        add(&mut control, "table=1,cookie=8,dl_dst=02:00:00:00:00:02,actions=output:1");
        assert_eq!(sent_to(&mut worker, &sent, 0, &[1, 2]), [3, 4]);
        assert_eq!(control.add_learned(), 1);
        // A controller's rules count.
        add(&mut control, "delete table=1");
        add(&mut control, "table=1,cookie=7,priority=1,actions=drop");
        assert_eq!(sent_to(&mut worker, &sent, 0, &[1, 2]), [3, 4]);
        // A promise is kept, though a controller has added a rule meanwhile.
        add(&mut control, "table=1,cookie=7,priority=2,actions=drop");
        assert_eq!((control.add_learned(), learned(&control)), (1, 3));
        // The other limit for the same rules.
        add(&mut control, &WITH_RESULT.replace("limit=2", "limit=4"));
        assert_eq!(sent_to(&mut worker, &sent, 0, &[1, 2, 3]), [3, 3, 4]);
        // Without one.
        add(&mut control, &WITH_RESULT.replace("limit=2,", ""));
        assert_eq!(sent_to(&mut worker, &sent, 0, &[1, 2, 3]), [3, 3, 3]);
        assert_eq!((control.add_learned(), learned(&control)), (2, 5));
    }
}

/// A trace asks without being promised anything.
#[test]
fn a_trace_shows_the_result() {
    let (mut worker, sent) = worker(&[], 3, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(&mut control, &WITH_RESULT.replace("limit=2", "limit=1"));
    // A worker takes newer rules with the next packet.
    worker.inject(3, &[&[0; 60]]).unwrap();
    control.add_learned();
    add(&mut control, "delete table=1");
    sent.lock().unwrap().clear();
    let traced = |worker: &Worker, host: u8| {
        let Ok(Tracing::Ended(trace)) = worker.trace(PortNo(1), &frame(host, 9, None)) else {
            panic!("ended")
        };
        trace.sent.iter().filter_map(|sent| sent.port).collect::<Vec<_>>()
    };
    assert_eq!((traced(&worker, 1), traced(&worker, 2)), (vec![3], vec![3]));
    assert_eq!(sent_to(&mut worker, &sent, 0, &[2]), [3]);
    assert_eq!((traced(&worker, 1), traced(&worker, 2)), (vec![4], vec![3]));
    assert_eq!(control.add_learned(), 1);
    assert_eq!((traced(&worker, 1), traced(&worker, 2)), (vec![4], vec![3]));
}

/// A rule that another action of the packet has replaced is asked for again by the next packet.
#[test]
fn requests_that_replace_each_other_are_taken_in_order() {
    let (mut worker, _) = worker(&[], 2, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    let learn = |value: u8, timeout: u16| {
        format!(
            "learn(table=1,idle_timeout={timeout},NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:{value}->NXM_NX_REG0[])"
        )
    };
    add(&mut control, &format!("table=0,actions={},{}", learn(1, 0), learn(2, 0)));
    for _ in 0..2 {
        assert_eq!(learn_of(&mut worker, &mut control, 0, 1), 2);
        let flows = control.statistics(|table, _| table == 1);
        assert!(flows.len() == 1 && flows[0].rule.to_string().contains("load:0x2->"), "{flows:?}");
    }
    // A rule that is there keeps its timeouts, as in Open vSwitch.
    add(&mut control, &format!("table=0,actions={},{}", learn(2, 5), learn(3, 6)));
    assert_eq!(learn_of(&mut worker, &mut control, 0, 1), 1);
    let flows = control.statistics(|table, _| table == 1);
    assert_eq!((flows.len(), flows[0].idle_timeout_s), (1, 0));
    assert!(flows[0].rule.to_string().contains("load:0x3->"), "{flows:?}");
}

/// A rule that takes the place of one with another cookie makes room there, at once.
#[test]
fn limits_of_two_cookies_share_rules() {
    let (mut worker, sent) = worker(&[], 3, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(&mut control, &WITH_RESULT.replace("limit=2", "limit=1"));
    let other =
        "table=0,in_port=2,priority=40000,actions=learn(table=1,cookie=8,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    add(&mut control, other);
    assert_eq!(sent_to(&mut worker, &sent, 0, &[1, 2]), [3, 4]);
    assert_eq!(sent_to(&mut worker, &sent, 1, &[1]), [0; 0]);
    assert_eq!(sent_to(&mut worker, &sent, 0, &[2, 1]), [3, 4]);
    assert_eq!((control.add_learned(), learned(&control)), (3, 2));
    assert_eq!(sent_to(&mut worker, &sent, 0, &[2, 1]), [3, 4]);
}

/// No rule names the cookie of a packet-out.
#[test]
fn limits_of_packet_outs_are_kept() {
    let (mut worker, sent) = worker(&[], 3, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    let text = WITH_RESULT.replace("limit=2", "limit=1");
    let (learning, others) = text.split_once('\n').unwrap();
    let actions = read_changes(learning, "rules", &ReadOptions::default()).unwrap().remove(0).rule.actions;
    add(&mut control, others);
    add(&mut control, "table=1,cookie=7,priority=1,actions=drop");
    let mut out = |control: &mut Control, host: u8| {
        control.check_packet_out(&actions).unwrap();
        worker.packet_out(PortNo(1), &frame(host, 9, None), &actions).unwrap();
        let sent: Vec<u32> = sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
        (sent, control.add_learned())
    };
    assert_eq!(out(&mut control, 1), (vec![4], 0));
    add(&mut control, "delete table=1");
    assert_eq!((out(&mut control, 1), out(&mut control, 2)), ((vec![3], 1), (vec![4], 0)));
}

/// A change that is rejected leaves the counts as they were.
#[test]
fn rejected_changes_do_not_count() {
    let (mut worker, _) = worker(&[], 2, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    let learn = "learn(table=1,limit=1,delete_learned,cookie=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    add(&mut control, &format!("table=0,actions={learn}"));
    assert_eq!(learn_of(&mut worker, &mut control, 0, 1), 1);
    let rejected = "table=1,cookie=7,priority=2,actions=drop\n\
                    delete table=1,cookie=7/-1\n\
                    table=0,actions=drop\n\
                    table=0,priority=3,actions=output:77\n";
    let mods = read_changes(rejected, "rules", &ReadOptions::default()).unwrap();
    control.change(&mods).unwrap_err();
    assert_eq!((learned(&control), learn_of(&mut worker, &mut control, 0, 2)), (1, 0));
    add(&mut control, "delete table=1");
    assert_eq!(learn_of(&mut worker, &mut control, 0, 2), 1);
    add(&mut control, "table=0,actions=drop");
    assert_eq!(learned(&control), 0);
}

/// As Open vSwitch 3.1 does.
#[test]
fn learned_rules_go_with_the_last_rule_that_learns_them() {
    let (mut worker, _) = worker(&[], 2, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    let learn =
        "learn(table=1,delete_learned,cookie=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let rules = format!(
        "table=0,in_port=1,actions={learn}\n\
         table=0,in_port=2,idle_timeout=1,actions=clone({learn})\n\
         table=1,cookie=7,priority=1,actions=drop\n\
         table=1,cookie=8,priority=2,actions=drop\n"
    );
    add(&mut control, &rules);
    let send = |worker: &mut Worker, control: &mut Control| {
        (0..2).map(|port| learn_of(worker, control, port, 1 + port as u8)).sum::<usize>()
    };
    assert_eq!((send(&mut worker, &mut control), learned(&control)), (2, 4));
    add(&mut control, "delete table=0,in_port=1");
    assert_eq!(learned(&control), 4, "another rule learns them");
    // It is replaced by one that learns them, and by one that does not.
    add(&mut control, &format!("modify table=0,in_port=2,actions={learn}"));
    assert_eq!(learned(&control), 4);
    add(&mut control, "modify table=0,in_port=2,actions=drop");
    assert_eq!(learned(&control), 1);
    // By its timeout; and a packet that was on its way learns nothing then.
    add(&mut control, &rules);
    add(&mut control, "delete table=0,in_port=1");
    worker.inject(1, &[&frame(3, 9, None)]).unwrap();
    assert_eq!((control.add_learned(), learned(&control)), (1, 3));
    for second in [1, 2, 3] {
        worker.inject_at(0, [(second * 1_000_000_000, &frame(4, 9, None)[..])]).unwrap();
        control.expire();
    }
    assert_eq!(learned(&control), 1);
    add(&mut control, &rules);
    worker.inject(0, &[&frame(5, 9, None)]).unwrap();
    add(&mut control, "delete table=0");
    assert_eq!((control.add_learned(), learned(&control)), (0, 1));
}

/// Rules that learn may have been learned, as far as their cookie says.
#[test]
fn learned_rules_that_learn_take_theirs_along() {
    let (mut worker, _) = worker(&[], 3, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(
        &mut control,
        "table=0,actions=learn(table=1,delete_learned,cookie=7,NXM_OF_ETH_DST[])\n\
         table=1,cookie=7,actions=learn(table=2,delete_learned,cookie=8,NXM_OF_ETH_DST[])\n\
         table=2,cookie=8,actions=learn(table=2,delete_learned,cookie=8,NXM_OF_ETH_DST[])\n\
         table=2,cookie=8,priority=3,actions=drop\n",
    );
    add(&mut control, "delete table=0");
    // The third keeps itself, and what it would learn.
    let left = control.statistics(|table, _| table < 3);
    let left: Vec<String> = left.iter().map(|flow| flow.rule.to_string()).collect();
    assert!(left.len() == 2 && left.iter().all(|rule| rule.starts_with("table=2,")), "{left:#?}");
}
