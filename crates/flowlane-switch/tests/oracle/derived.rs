//! Rules that make rules: `learn`, and conjunctions, through Open vSwitch and through the switch.

use std::fmt::Write;

use etherparse::PacketBuilder;
use flowlane_switch::datapath::MalformedPolicy;

use super::ovs::{Ovs, OvsPrograms, Sent};
use super::packets::Random;
use super::rules::Rules;
use super::switch::Flowlane;

const HOSTS: u32 = 4;

/// A packet from one host to another.
fn packet(r: &mut Random) -> Vec<u8> {
    let from = r.below(HOSTS);
    let to = (from + 1 + r.below(HOSTS - 1)) % HOSTS;
    let host = |n: u32| ([2, 0, 0, 0, 0, n as u8], [10, 0, 0, n as u8]);
    let ((from_mac, from_ip), (to_mac, to_ip)) = (host(from), host(to));
    let (source, destination) = (r.pick(&[1000, 1001]), r.pick(&[53, 80]));
    let ethernet = PacketBuilder::ethernet2(from_mac, to_mac);
    let mut bytes = Vec::new();
    let written = match r.below(4) {
        0 => {
            let tagged = ethernet.single_vlan(5.try_into().expect("12 bits"));
            tagged.ipv4(from_ip, to_ip, 64).udp(source, destination).write(&mut bytes, b"flow")
        }
        1 => ethernet.ipv4(from_ip, to_ip, 64).tcp(source, destination, 1, 1).write(&mut bytes, b"flow"),
        _ => ethernet.ipv4(from_ip, to_ip, 64).udp(source, destination).write(&mut bytes, b"flow"),
    };
    written.expect("memory takes it");
    bytes
}

/// Rules of which the first table's learn some of the second's.
fn learning(r: &mut Random) -> String {
    let mut text = String::new();
    for priority in 1..=1 + r.below(3) {
        let matches = r.pick(&["", "udp,", "ip,nw_src=10.0.0.1,", "dl_vlan=5,", "in_port=1,"]);
        let is_ip = matches.contains("udp") || matches.contains("ip,");
        let mut specs = vec!["NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]".to_owned()];
        let mut some = |spec: &str| {
            if r.one_in(2) {
                specs.push(spec.to_owned());
            }
        };
        some("NXM_OF_VLAN_TCI[0..11]");
        some("NXM_NX_REG2[0..3]=7");
        some("load:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG1[8..15]");
        some("load:0x5->NXM_NX_REG0[4..7]");
        if is_ip {
            specs.push("eth_type=0x800".to_owned());
            specs.push("NXM_OF_IP_DST[]=NXM_OF_IP_SRC[]".to_owned());
        }
        if matches.contains("udp") && r.one_in(2) {
            specs.extend(["nw_proto=17", "NXM_OF_UDP_DST[]=NXM_OF_UDP_SRC[]"].map(str::to_owned));
        }
        if !r.one_in(4) {
            specs.push("output:NXM_OF_IN_PORT[]".to_owned());
        }
        // Rules that overlap are of different priorities.
        let (learned, cookie) = (10 + 3 * r.below(3) + priority, 100 + priority);
        let set = r.pick(&["", "load:7->NXM_NX_REG2[],"]);
        writeln!(
            text,
            "cookie={priority},priority={priority},{matches}actions={set}learn(table=1,priority={learned},cookie={cookie},{}),resubmit(,1)",
            specs.join(",")
        )
        .expect("text takes text");
    }
    text + "cookie=50,priority=0,actions=resubmit(,1)\n\
            table=1,cookie=51,priority=1,actions=output:4\n\
            table=1,cookie=52,priority=30,reg1=0x100/0xff00,actions=output:3\n"
}

/// Rules that are parts of conjunctions, each of a priority of its own, and others.
fn conjunctive(r: &mut Random) -> String {
    let mut text = String::new();
    let part = |r: &mut Random| {
        let host = r.below(HOSTS);
        match r.below(6) {
            0 => format!("ip,nw_src=10.0.0.{host}"),
            1 => format!("ip,nw_src=10.0.0.{}/31", host & !1),
            2 => format!("ip,nw_dst=10.0.0.{host}"),
            3 => format!("udp,tp_dst={}", r.pick(&[53, 80])),
            4 => format!("in_port={}", 1 + r.below(2)),
            _ => "dl_vlan=5".to_owned(),
        }
    };
    for id in 1..=3 {
        let clauses = 2 + r.below(2);
        let priority = 10 * id + r.below(3);
        for clause in 1..=clauses {
            for _ in 0..1 + r.below(3) {
                let matches = part(r);
                writeln!(
                    text,
                    "priority={priority},cookie={id},{matches},actions=conjunction({id},{clause}/{clauses})"
                )
                .expect("text takes text");
            }
        }
        let (priority, ip) = (r.pick(&[5, 15, 35]), r.pick(&["", "ip,"]));
        writeln!(
            text,
            "priority={priority},cookie={},conj_id={id},{ip}actions=output:{}",
            10 + id,
            2 + r.below(3)
        )
        .expect("text takes text");
    }
    for cookie in 20..20 + r.below(3) {
        // None that a part has: there is a class of differences for that.
        let (priority, matches) =
            (r.below(30), r.pick(&["tcp", "udp,tp_src=1000", "ip,nw_tos=0", "dl_src=02:00:00:00:00:02"]));
        writeln!(text, "priority={priority},cookie={cookie},{matches},actions=output:2")
            .expect("text takes text");
    }
    text
}

/// Sends the same packets through both, and compares what leaves and the rules' packets.
fn compare(ovs: &mut Ovs, seed: u64, text: &str, frames: &[Vec<u8>]) -> usize {
    let rules = Rules::new(text.to_owned(), String::new(), 2);
    let at = |frame: usize| format!("seed {seed}, packet {frame}, with\n{text}");
    ovs.set_rules(&rules).unwrap_or_else(|error| panic!("{error}: {}", at(0)));
    let mut flowlane = Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("sound rules");
    let mut sent = 0;
    for (number, frame) in frames.iter().enumerate() {
        let port = 1 + number % 2;
        let theirs: Sent = ovs.forward(port, &[frame]);
        // Revalidators would find what has been learned.
        ovs.forget_megaflows();
        let (ours, _) = flowlane.forward(port, frame);
        assert_eq!(ours, theirs, "{}", at(number));
        sent += ours.iter().map(Vec::len).sum::<usize>();
    }
    let packets = |counters: Vec<(u64, super::ovs::Counters)>| {
        let mut packets: Vec<_> = counters
            .into_iter()
            .map(|(cookie, counters)| (cookie, counters.packets))
            .filter(|(_, packets)| *packets > 0)
            .collect();
        packets.sort_unstable();
        packets
    };
    assert_eq!(flowlane.rules(1), ovs.rules(1), "{}", at(frames.len()));
    // A worker takes newer rules with the next packet.
    let theirs = packets(ovs.counters().expect("it answers"));
    assert_eq!(packets(flowlane.counters()), theirs, "{}", at(frames.len()));
    sent
}

#[test]
fn learned_rules_and_conjunctions_are_those_of_open_vswitch() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    let mut sent = [0, 0];
    for seed in 0..40 {
        let r = &mut Random::new(seed);
        for (sent, text) in sent.iter_mut().zip([learning(r), conjunctive(r)]) {
            let frames: Vec<Vec<u8>> = (0..24).map(|_| packet(r)).collect();
            *sent += compare(&mut ovs, seed, &text, &frames);
        }
    }
    assert!(sent.iter().all(|sent| *sent > 300), "{sent:?}");
}
