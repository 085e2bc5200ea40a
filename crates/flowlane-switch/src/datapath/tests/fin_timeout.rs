//! `fin_timeout`: packets that end TCP connections lower the timeouts of rules, through control.

use flowlane::rule::{ReadOptions, read_changes};

use super::*;
use crate::control::Control;

const FIN: u8 = 0x11;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Adds rules, as they are written.
fn add(control: &mut Control, text: &str) {
    let mods = read_changes(text, "rules", &ReadOptions::default()).unwrap();
    control.change(&mods).unwrap_or_else(|error| panic!("{error}: {text}"));
}

/// An IPv4 packet of a protocol with these TCP flags (or others at their place), in a tag or without.
fn packet(protocol: u8, flags: u8, tag: Option<u8>) -> Vec<u8> {
    let mut bytes = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..]].concat();
    tag.into_iter().for_each(|vid| bytes.extend([0x81, 0, 0, vid]));
    bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    // The UDP length is at the place of the sequence number's high half.
    bytes.extend([0, 1, 0, 2, 0, 20, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 9, 0, 0, 0, 0]);
    bytes
}

/// The timeouts of the rule with this cookie.
fn timeouts(control: &Control, cookie: u64) -> (u16, u16) {
    let flows = control.statistics(|_, rule| rule.cookie == cookie);
    assert_eq!(flows.len(), 1);
    (flows[0].idle_timeout_s, flows[0].hard_timeout_s)
}

const RULES: &str = "\
table=0,cookie=1,in_port=1,idle_timeout=60,actions=fin_timeout(idle_timeout=5,hard_timeout=9),resubmit(,1)
table=0,cookie=2,in_port=2,idle_timeout=4,actions=fin_timeout(idle_timeout=5),output:1
table=1,cookie=3,hard_timeout=20,actions=pop_vlan,fin_timeout(hard_timeout=10),output:4
";

#[test]
fn packets_that_end_a_connection_lower_the_timeouts_of_their_rules() {
    for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let has_caches = caches.megaflows_max > 0;
        for end in [FIN, RST] {
            let (mut worker, sent) = worker(&[], 2, caches, By::Tuple);
            let mut control = Control::attach(&mut worker).unwrap();
            add(&mut control, RULES);
            // Several, so that there are paths for them.
            for _ in 0..4 {
                for port in 0..2 {
                    let others = [packet(6, ACK, None), packet(6, ACK, Some(5)), packet(17, end, None)];
                    others.iter().for_each(|other| worker.inject(port, &[other]).unwrap());
                }
            }
            control.add_learned();
            let all = |control: &Control| [1, 2, 3].map(|cookie| timeouts(control, cookie));
            assert_eq!(all(&control), [(60, 0), (4, 0), (0, 20)]);
            worker.inject(1, &[&packet(6, end, Some(5))]).unwrap();
            control.add_learned();
            assert_eq!(all(&control), [(60, 0), (4, 0), (0, 20)], "timeouts never go up");
            worker.inject(0, &[&packet(6, end, Some(5))]).unwrap();
            control.add_learned();
            assert_eq!(all(&control), [(5, 9), (4, 0), (0, 10)]);
            // From the caches, at another time, so that control is asked again.
            let hits = worker.lookup.megaflows.counters().hits;
            for second in 1..6 {
                worker.inject_at(0, [(second * 1_000_000_000, &packet(6, end, Some(5))[..])]).unwrap();
                let requests = worker.egress.learning.queue.as_ref().unwrap().take();
                assert_eq!(requests.len(), 2);
            }
            assert_eq!(worker.lookup.megaflows.counters().hits > hits, has_caches);
            assert_eq!(worker.egress.learning.lost(), 0);
            assert!(sent.lock().unwrap().iter().all(|(port, _)| [1, 4].contains(port)));
        }
    }
}

/// The clock of a hard timeout began with the rule, that of an idle timeout begins with the packet.
#[test]
fn lowered_timeouts_expire() {
    let (mut worker, _) = worker(&[], 1, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(
        &mut control,
        "cookie=1,in_port=1,actions=fin_timeout(idle_timeout=3)\n\
         cookie=2,in_port=2,actions=fin_timeout(hard_timeout=6)\n\
         cookie=3,in_port=3,idle_timeout=100,actions=clone(fin_timeout(idle_timeout=3))\n",
    );
    let mut left = Vec::new();
    for second in 0..10u64 {
        for port in 0..3 {
            let flags = if second == 2 { FIN } else { ACK };
            if second <= 2 || port == 1 {
                worker.inject_at(port, [(second * 1_000_000_000, &packet(6, flags, None)[..])]).unwrap();
            }
        }
        worker.inject_at(3, [(second * 1_000_000_000, &packet(17, 0, None)[..])]).unwrap();
        control.add_learned();
        control.expire();
        left.push(control.statistics(|table, _| table == 0).len());
    }
    assert_eq!(left, [3, 3, 3, 3, 3, 1, 0, 0, 0, 0]);
}

/// As Open vSwitch 3.1 makes it: the action is the first of the learned rule.
#[test]
fn learned_rules_have_fin_timeout() {
    let (mut worker, _) = worker(&[], 2, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(
        &mut control,
        "actions=learn(table=1,cookie=7,idle_timeout=100,fin_idle_timeout=5,fin_hard_timeout=6,eth_type=0x800,\
         nw_proto=6,load:1->NXM_NX_REG0[],output:NXM_OF_IN_PORT[]),resubmit(,1)",
    );
    // The packet that ends the connection makes the rule and lowers its timeouts as soon as it meets the rule.
    worker.inject(0, &[&packet(6, FIN, None)]).unwrap();
    assert_eq!(control.add_learned(), 1);
    let rule = control.statistics(|table, _| table == 1)[0].rule.to_string();
    let actions = "actions=fin_timeout(idle_timeout=5,hard_timeout=6),load:0x1->reg0,output:1";
    assert!(rule.ends_with(actions), "{rule}");
    assert_eq!(timeouts(&control, 7), (100, 0));
    worker.inject(0, &[&packet(6, FIN, None)]).unwrap();
    assert_eq!((control.add_learned(), timeouts(&control, 7)), (0, (5, 6)));
    // The next connection does not restore them.
    worker.inject(0, &[&packet(6, ACK, None)]).unwrap();
    assert_eq!((control.add_learned(), timeouts(&control, 7)), (0, (5, 6)));
}

#[test]
fn a_packet_out_lowers_no_timeouts() {
    let (mut worker, _) = worker(&[], 1, no_caches(), By::Tuple);
    let mut control = Control::attach(&mut worker).unwrap();
    add(&mut control, "cookie=1,idle_timeout=9,actions=drop");
    let actions = [Action::FinTimeout { idle_s: 1, hard_s: 1 }, Action::Output(PortNo(2))];
    worker.packet_out(PortNo(1), &packet(6, FIN, None), &actions).unwrap();
    assert_eq!((control.add_learned(), timeouts(&control, 1)), (0, (9, 0)));
}
