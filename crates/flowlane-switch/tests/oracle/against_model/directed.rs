//! Packets and rules for one fault each. The expected frames are spelled out here, and the model must
//! produce them.

mod time;
mod tunnels;

use flowlane::classify::LinearSearch;
use flowlane::route::Prefix;
use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Format, ReadOptions, Rule, read};
use flowlane_switch::datapath::Pipeline;
use flowlane_switch::datapath::{CacheConfig, Lookup};
use flowlane_switch::ruleset;
use flowlane_switch::stage::route::{HopSpec, RouteTable, RouteTableConfig};

use super::worker::{Options, PORTS, Switch};
use super::{hex, print};
use crate::model::{Counters, Frames, Kind, Miss, Model};
use crate::packets::{Random, crc32c, sum};

/// An IP packet to build.
#[derive(Clone, Copy)]
struct Ip {
    src: u8,
    dst: [u8; 4],
    tos: u8,
    ttl: u8,
    /// Flags and offset of IPv4.
    fragment: u16,
}

/// From 10.0.0.1 or 2001:db8::1 to 10.0.0.2 or 2001:db8::2.
const PLAIN: Ip = Ip { src: 1, dst: [10, 0, 0, 2], tos: 0, ttl: 64, fragment: 0 };

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ether_type.to_be_bytes(), payload].concat()
}

/// RFC 791 §3.1.
fn ipv4(ip: Ip, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut out = [&[0x45, ip.tos][..], &len.to_be_bytes(), &[0, 7], &ip.fragment.to_be_bytes()].concat();
    out.extend([ip.ttl, protocol, 0, 0, 10, 0, 0, ip.src]);
    out.extend(ip.dst);
    let checksum = !sum(&[&out]);
    out[10..12].copy_from_slice(&checksum.to_be_bytes());
    [out, payload.to_vec()].concat()
}

fn v6(last: u8) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// RFC 8200 §3.
fn ipv6(ip: Ip, next: u8, payload: &[u8]) -> Vec<u8> {
    let first = 0x6000_0000 | u32::from(ip.tos) << 20;
    let len = (payload.len() as u16).to_be_bytes();
    let header = [&first.to_be_bytes()[..], &len, &[next, ip.ttl], &v6(ip.src), &v6(ip.dst[3])];
    [&header.concat()[..], payload].concat()
}

/// Builds a datagram from port 443 to 53, its checksum over these addresses (RFC 768).
fn udp(src: &[u8], dst: &[u8], payload: &[u8]) -> Vec<u8> {
    datagram(17, (src, dst), payload)
}

fn datagram(protocol: u8, (src, dst): (&[u8], &[u8]), payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let mut out = [&[1, 187, 0, 53][..], &len.to_be_bytes(), &[0, 0], payload].concat();
    let lengths = [&len.to_be_bytes()[..], &[0, protocol]].concat();
    let checksum = !sum(&[src, dst, &lengths, &out]);
    out[6..8].copy_from_slice(&checksum.to_be_bytes());
    out
}

fn udp4(ip: Ip) -> Vec<u8> {
    ipv4(ip, 17, &udp(&[10, 0, 0, ip.src], &ip.dst, b"payload"))
}

/// Builds a label stack entry: label 7, this TTL.
fn label(bottom: bool, ttl: u8) -> [u8; 4] {
    [0, 0, 0x70 | u8::from(bottom), ttl]
}

fn labelled(labels: &[[u8; 4]], payload: &[u8]) -> Vec<u8> {
    ethernet(0x8847, &[&labels.concat()[..], payload].concat())
}

/// Builds 802.3 with LLC and SNAP (RFC 1042) in front of labels.
fn snap(labels: &[[u8; 4]], payload: &[u8], ether_type: u16) -> Vec<u8> {
    let body = [&labels.concat()[..], payload].concat();
    let head = [&[0xaa, 0xaa, 3, 0, 0, 0][..], &ether_type.to_be_bytes()].concat();
    ethernet((8 + body.len()) as u16, &[head, body].concat())
}

fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

fn rules(text: &str) -> Vec<Rule> {
    read(text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Switches a frame from port 1 by these rules of at most two tables. Returns the model's frames and counters, and checks
/// that the switch sends the same frames with several options.
fn switch(text: &str, forward_malformed: bool, frame: &[u8]) -> (Frames, Counters) {
    let kinds = drops(2);
    let mut model = Model::new(&kinds, &PORTS);
    model.forward_malformed = forward_malformed;
    rules(text).iter().for_each(|rule| model.add(rule));
    let wanted = model.switch(1, frame).unwrap();
    let r = &mut Random::new(1);
    for options in [Options::plain(r), Options::random(r), Options::random(r)] {
        let mut switch = Switch::new(&kinds, options);
        switch.forward_malformed(forward_malformed);
        rules(text).iter().for_each(|rule| assert!(switch.add(rule), "{text}: a rule is refused"));
        // Twice, so that the second hits the caches, if there are any.
        for time in 0..2 {
            let found = switch.run(&[(1, frame)]).unwrap().pop().unwrap();
            assert!(
                found == wanted,
                "{text}\n{} ({time}, {options:?}):\n{}the model:\n{}",
                hex(frame),
                print(&found),
                print(&wanted)
            );
        }
    }
    (wanted, model.counters())
}

/// Returns tables that drop packets on a miss.
fn drops(tables: usize) -> Vec<Kind> {
    vec![Kind::Rules(Miss::Drop); tables]
}

fn sends_to_2(text: &str, frame: &[u8], wanted: &[u8]) {
    let (sent, _) = switch(text, false, frame);
    assert!(sent == [(2, wanted.to_vec())], "{text}\n{} becomes\n{}", hex(frame), print(&sent));
}

fn sends_nothing(text: &str, frame: &[u8]) {
    let (sent, _) = switch(text, false, frame);
    assert!(sent.is_empty(), "{text}\n{} becomes\n{}", hex(frame), print(&sent));
}

#[test]
fn actions_behind_pop_mpls_are_done_to_what_it_uncovers() {
    let frame = labelled(&[label(true, 9)], &udp4(PLAIN));
    let wanted = ethernet(0x0800, &udp4(Ip { ttl: 63, dst: [9; 4], ..PLAIN }));
    sends_to_2("mpls,actions=pop_mpls:0x0800,dec_ttl,set_field:9.9.9.9->nw_dst,output:2", &frame, &wanted);
    let frame = labelled(&[label(false, 9), label(true, 5)], &udp4(PLAIN));
    sends_to_2(
        "mpls,actions=pop_mpls:0x8847,dec_mpls_ttl,pop_mpls:0x0800,dec_ttl,set_field:9.9.9.9->nw_dst,output:2",
        &frame,
        &wanted,
    );
}

#[test]
fn what_lies_behind_a_third_tag_or_a_fourth_label_is_found_when_those_in_front_have_gone() {
    let inner = ethernet(0x0800, &udp4(PLAIN));
    let changed = ethernet(0x0800, &udp4(Ip { ttl: 63, ..PLAIN }));
    let tag = |vid| [0x81, 0, 0, vid];
    let three = tagged(&inner, &[tag(1), tag(2), tag(3)]);
    sends_to_2("actions=pop_vlan,pop_vlan,pop_vlan,dec_ttl,output:2", &three, &changed);
    sends_to_2("actions=pop_vlan,dec_ttl,output:2", &three, &tagged(&changed, &[tag(2), tag(3)]));
    let two = tagged(&inner, &[tag(1), tag(2)]);
    sends_to_2(
        "actions=push_vlan:0x8100,set_field:7->dl_vlan,pop_vlan,pop_vlan,dec_ttl,output:2",
        &two,
        &tagged(&changed, &[tag(2)]),
    );
    let moved = ethernet(0x0800, &udp4(Ip { dst: [10, 0, 0, 1], ..PLAIN }));
    sends_to_2(
        "ip,actions=push_vlan:0x8100,move:nw_src->nw_dst,output:2",
        &two,
        &tagged(&moved, &[[0x81, 0, 0, 0], tag(1), tag(2)]),
    );
    let four = [label(false, 9), label(false, 8), label(false, 7), label(true, 6)];
    sends_to_2(
        "mpls,actions=pop_mpls:0x8847,dec_mpls_ttl,output:2",
        &labelled(&four, &udp4(PLAIN)),
        &labelled(&[label(false, 7), four[2], four[3]], &udp4(PLAIN)),
    );
}

#[test]
fn three_hundred_tags_are_pushed_and_popped_or_refused() {
    let frame = ethernet(0x0800, &udp4(PLAIN));
    let changed = ethernet(0x0800, &udp4(Ip { ttl: 63, ..PLAIN }));
    let (push, pop) = ("push_vlan:0x8100,".repeat(300), "pop_vlan,".repeat(300));
    let r = &mut Random::new(1);
    for (actions, wanted) in [
        (format!("actions={push}{pop}dec_ttl,output:2"), changed),
        (format!("actions={push}output:2"), tagged(&frame, &[[0x81, 0, 0, 0]; 300])),
    ] {
        let Ok(rules) = read(&actions, "rules", Some(Format::Flows), &ReadOptions::default()) else {
            continue;
        };
        for options in [Options::plain(r), Options::random(r)] {
            let mut switch = Switch::new(&drops(1), options);
            if switch.add(&rules[0]) {
                let sent = switch.run(&[(1, &frame)]).unwrap().pop().unwrap();
                assert!(sent == [(2, wanted.clone())], "{actions}:\n{}", print(&sent));
            }
        }
    }
}

#[test]
fn what_is_found_malformed_when_it_is_uncovered_is_dropped_and_counted() {
    let mut lie = udp4(PLAIN);
    lie[2..4].copy_from_slice(&200u16.to_be_bytes());
    let in_label = labelled(&[label(true, 9)], &lie);
    let in_tags = tagged(&ethernet(0x0800, &lie), &[[0x81, 0, 0, 1], [0x81, 0, 0, 2], [0x81, 0, 0, 3]]);
    for (text, frame) in [
        ("mpls,actions=pop_mpls:0x0800,goto_table:1\ntable=1,actions=output:2", &in_label),
        ("mpls,actions=pop_mpls:0x0800,dec_ttl,output:2", &in_label),
        ("actions=pop_vlan,goto_table:1\ntable=1,actions=output:2", &in_tags),
        ("actions=pop_vlan,dec_ttl,output:2", &in_tags),
    ] {
        let (sent, counters) = switch(text, false, frame);
        assert_eq!((sent.len(), counters.malformed, counters.by_rule), (0, 1, 0), "{text}");
        let r = &mut Random::new(1);
        let mut product = Switch::new(&drops(2), Options::plain(r));
        rules(text).iter().for_each(|rule| assert!(product.add(rule)));
        product.run(&[(1, frame)]).unwrap();
        assert_eq!(product.counters(), counters, "{text}");
        let (sent, _) = switch(text, true, frame);
        assert_eq!(sent.len(), 1, "malformed = forward: {text}");
    }
}

#[test]
fn nw_tos_is_dscp_only() {
    let frame = |tos, v6| match v6 {
        false => ethernet(0x0800, &udp4(Ip { tos, ..PLAIN })),
        true => ethernet(0x86dd, &ipv6(Ip { tos, ..PLAIN }, 59, &[])),
    };
    for (family, v6) in [("ip", false), ("ipv6", true)] {
        let text = format!("{family},nw_tos=32,actions=output:2");
        sends_to_2(&text, &frame(33, v6), &frame(33, v6));
        sends_to_2(&text, &frame(32, v6), &frame(32, v6));
        sends_nothing(&text, &frame(36, v6));
        for set in ["set_field:64->nw_tos", "load:64->NXM_OF_IP_TOS[]", "mod_nw_tos:64"] {
            sends_to_2(&format!("{family},actions={set},output:2"), &frame(0x23, v6), &frame(0x43, v6));
        }
    }
}

#[test]
fn labels_behind_snap_are_changed_where_they_are() {
    let frame = snap(&[label(false, 9), label(true, 5)], &udp4(PLAIN), 0x8847);
    let wanted = snap(&[label(false, 8), label(true, 5)], &udp4(PLAIN), 0x8847);
    sends_to_2("mpls,actions=dec_mpls_ttl,output:2", &frame, &wanted);
    let mut wanted = snap(&[label(false, 9), label(true, 5)], &udp4(PLAIN), 0x8847);
    wanted[24] = 0x80;
    sends_to_2("mpls,actions=set_field:8->mpls_label,output:2", &frame, &wanted);
    let wanted = snap(&[label(true, 5)], &udp4(PLAIN), 0x8847);
    sends_to_2("mpls,actions=pop_mpls:0x8847,output:2", &frame, &wanted);
    let wanted = snap(&[], &udp4(Ip { ttl: 63, ..PLAIN }), 0x0800);
    sends_to_2("mpls,actions=pop_mpls:0x8847,pop_mpls:0x0800,dec_ttl,output:2", &frame, &wanted);
}

/// Builds a first and a later fragment of a datagram, of IPv4 and IPv6, from a flow's address.
fn fragmented(flow: u8) -> [[Vec<u8>; 2]; 2] {
    let ip = Ip { src: flow, ..PLAIN };
    let whole = udp(&[10, 0, 0, flow], &ip.dst, &[flow; 24]);
    let v4 = |fragment, part: &[u8]| ethernet(0x0800, &ipv4(Ip { fragment, ..ip }, 17, part));
    let v6 = |offset: u16, part: &[u8]| {
        let header = [&[17, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 7]].concat();
        ethernet(0x86dd, &ipv6(ip, 44, &[&header[..], part].concat()))
    };
    let (first, later) = whole.split_at(16);
    [[v4(0x2000, first), v4(2, later)], [v6(1, first), v6(16, later)]]
}

#[test]
fn the_fragments_of_a_datagram_take_one_next_hop() {
    let hop = |port| HopSpec::Actions(vec![Action::Output(PortNo(port))]);
    let hops = vec![
        ("a".to_owned(), hop(2)),
        ("b".to_owned(), hop(3)),
        ("both".to_owned(), HopSpec::Group(vec![(0, 1), (1, 1)])),
    ];
    let config =
        RouteTableConfig { routes_max: 1, memory_max: 128 << 20, seed: 7, ..RouteTableConfig::default() };
    let (v4, v6) = ([(Prefix::truncated(0, 0), 2)], [(Prefix::truncated(0, 0), 2)]);
    for caches in [CacheConfig::default(), CacheConfig { megaflows_max: 0, ..CacheConfig::default() }] {
        let mut pipeline = Pipeline::new();
        let table = RouteTable::new(config.clone(), hops.clone(), &v4, &v6).unwrap();
        pipeline.add_routes(0, table);
        let mut switch = Switch::new(&[], Options::plain(&mut Random::new(1)));
        switch.worker.lookup = Lookup::new(pipeline, caches);
        let mut ports = [0; 4];
        for flow in 0..200u8 {
            for pair in fragmented(flow) {
                let sent = switch.run(&[(1, &pair[0]), (1, &pair[1])]).unwrap();
                let (first, later) = (sent[0][0].0, sent[1][0].0);
                assert_eq!(first, later, "datagram {flow}: {}", hex(&pair[0]));
                ports[first as usize] += 1;
            }
        }
        assert!(ports[2] > 100 && ports[3] > 100, "the group is not shared: {ports:?}");
    }
}

#[test]
fn a_destination_that_is_not_the_last_is_in_no_checksum() {
    // RFC 8200 §8.1: with segments left the pseudo header has the last address of the Routing header.
    for (left, last) in [(1, 9), (0, 2)] {
        let routed = |dst: u8, last: u8| {
            let datagram = udp(&v6(1), &v6(last), b"payload");
            let routing = [&[17, 2, 2, left, 0, 0, 0, 0][..], &v6(9)].concat();
            let ip = Ip { dst: [10, 0, 0, dst], ..PLAIN };
            ethernet(0x86dd, &ipv6(ip, 43, &[routing, datagram].concat()))
        };
        let wanted = routed(5, if left == 1 { 9 } else { 5 });
        sends_to_2("ipv6,actions=set_field:2001:db8::5->ipv6_dst,output:2", &routed(2, last), &wanted);
    }
}

#[test]
fn later_ipv6_fragments_have_the_protocol_of_the_fragment_header() {
    let fragment = |offset: u16| {
        let header = [&[17, 0][..], &(offset | 1).to_be_bytes(), &[0, 0, 0, 7]].concat();
        let part = udp(&v6(1), &v6(2), &[0; 24]);
        ethernet(0x86dd, &ipv6(PLAIN, 44, &[&header[..], &part].concat()))
    };
    sends_to_2("ipv6,nw_proto=44,actions=output:2", &fragment(16), &fragment(16));
    sends_nothing("udp6,actions=output:2", &fragment(16));
    sends_to_2("udp6,actions=output:2", &fragment(0), &fragment(0));
    sends_nothing("ipv6,nw_proto=44,actions=output:2", &fragment(0));
}

#[test]
fn sixteen_extension_headers_are_followed() {
    for (count, forwarded) in [(15, true), (16, true), (17, false)] {
        let datagram = udp(&v6(1), &v6(2), b"payload");
        let mut payload = datagram;
        for i in 0..count {
            let next = if i == 0 { 17 } else { 60 };
            payload = [&[next, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat();
        }
        let frame = ethernet(0x86dd, &ipv6(PLAIN, 60, &payload));
        let (sent, counters) = switch("udp6,tp_dst=53,actions=output:2", false, &frame);
        assert_eq!((sent.len() == 1, counters.malformed == 0), (forwarded, forwarded), "{count} headers");
    }
}

#[test]
fn what_is_not_set_in_the_packet_is_not_matched_as_if_it_were() {
    let mut sctp = [&[1, 187, 0, 53, 1, 2, 3, 4, 0, 0, 0, 0][..], &[0, 3, 0, 20], &[5; 16]].concat();
    let crc = crc32c(&sctp);
    sctp[8..12].copy_from_slice(&crc.to_le_bytes());
    let first = ethernet(0x0800, &ipv4(Ip { fragment: 0x2000, ..PLAIN }, 132, &sctp[..24]));
    let text = "sctp,actions=set_field:99->sctp_dst,goto_table:1\n\
                table=1,priority=2,sctp,tp_dst=99,actions=output:3\n\
                table=1,priority=1,sctp,tp_dst=53,actions=output:2";
    sends_to_2(text, &first, &first);
    let datagram = udp(&[10, 0, 0, 1], &PLAIN.dst, b"payload");
    let cut = ethernet(0x0800, &ipv4(PLAIN, 17, &datagram[..6]));
    let text = "udp,actions=set_field:99->udp_dst,goto_table:1\n\
                table=1,priority=2,udp,tp_dst=99,actions=output:3\n\
                table=1,priority=1,udp,tp_dst=0,actions=output:2";
    let (sent, _) = switch(text, true, &cut);
    assert_eq!(sent, [(2, cut)], "malformed = forward");
    let mut lie = ethernet(0x0800, &udp4(PLAIN));
    lie[17] = 200;
    let text = "ip,actions=set_field:9.9.9.9->nw_dst,set_field:1->nw_ttl,goto_table:1\n\
                table=1,priority=2,ip,nw_dst=9.9.9.9,actions=output:3\n\
                table=1,priority=1,ip,nw_ttl=0,actions=output:2";
    let (sent, _) = switch(text, true, &lie);
    assert_eq!(sent, [(2, lie)], "malformed = forward");
}

#[test]
fn setting_vlan_tci_to_0_removes_the_tag() {
    let frame = ethernet(0x0800, &udp4(PLAIN));
    let one = tagged(&frame, &[[0x81, 0, 0, 5]]);
    sends_to_2("vlan_tci=0x1000/0x1000,actions=set_field:0->vlan_tci,output:2", &one, &frame);
    let two = tagged(&frame, &[[0x88, 0xa8, 0x60, 6], [0x81, 0, 0, 5]]);
    sends_to_2("actions=set_field:0->vlan_tci,output:2", &two, &one);
    sends_to_2("actions=set_field:0->vlan_tci,output:2", &frame, &frame);
    let text = "actions=set_field:0->vlan_tci,goto_table:1\ntable=1,vlan_tci=0,actions=output:2";
    sends_to_2(text, &one, &frame);
}

#[test]
fn what_does_not_change_is_left_as_it_is() {
    // Wrong checksums: all ones, which is another form of 0 in a sum, and a CRC.
    let mut tcp = [&[1, 187, 0, 53][..], &[0; 8], &[0x50, 0x10, 0, 0, 0xff, 0xff, 0, 0]].concat();
    let frame = ethernet(0x0800, &ipv4(PLAIN, 6, &tcp));
    sends_to_2("tcp,actions=set_field:53->tcp_dst,set_field:10.0.0.2->nw_dst,output:2", &frame, &frame);
    tcp.truncate(12);
    let frame = ethernet(0x0800, &ipv4(PLAIN, 132, &tcp));
    sends_to_2("sctp,actions=set_field:53->sctp_dst,output:2", &frame, &frame);
}

#[test]
fn udp_lites_checksum_follows_addresses() {
    let packet = |dst: [u8; 4]| {
        let ip = Ip { dst, ..PLAIN };
        ethernet(0x0800, &ipv4(ip, 136, &datagram(136, (&[10, 0, 0, 1], &dst), b"payload")))
    };
    sends_to_2("ip,actions=set_field:9.9.9.9->nw_dst,output:2", &packet(PLAIN.dst), &packet([9; 4]));
}

#[test]
fn what_is_sent_and_then_parsed_anew_is_not_dropped_by_a_rule() {
    let frame = labelled(&[label(true, 9)], &udp4(PLAIN));
    let text = "mpls,actions=output:2,pop_mpls:0x0800,goto_table:1\ntable=1,ip,actions=drop";
    let (sent, counters) = switch(text, false, &frame);
    assert_eq!((sent.len(), counters.by_rule), (1, 0));
    let mut product = Switch::new(&drops(2), Options::plain(&mut Random::new(1)));
    rules(text).iter().for_each(|rule| assert!(product.add(rule)));
    product.run(&[(1, &frame)]).unwrap();
    assert_eq!(product.counters(), counters);
}

/// Returns a pipeline of one table with these rules.
fn pipeline(text: &str) -> Pipeline {
    let mut out = Pipeline::new();
    out.add_table(0, "", Box::new(LinearSearch::new(100)), ruleset::Miss::Drop);
    rules(text).into_iter().for_each(|rule| _ = out.add_rule(rule).unwrap());
    out
}
