//! Connections meet their packets in order, however many packets come at once.

use flowlane::rule::flow_syntax::read_groups;
use flowlane::rule::{Format, ReadOptions, read};

use flowlane::packet::parse;

use super::*;
use crate::state::conntrack::{Connections, Limits, Wanted};

/// Firewalls: a plain one; one that marks connections with every packet; one that translates; one whose packets go on behind `ct`,
/// too; one that replaces connections; one that marks them after a call; one that marks those of another zone; one whose connections
/// announce others, in its second table; a plain one of two zones; one that looks original tuples up.
const FIREWALLS: [&str; 10] = [
    "table=0,ip,actions=ct(zone=1,table=1)\n\
     table=1,priority=3,ip,ct_state=+est+trk,actions=output:3\n\
     table=1,priority=1,ip,in_port=1,ct_state=+new+trk,actions=ct(commit,zone=1),output:2\n\
     table=1,priority=0,ip,actions=output:4\n",
    "table=0,ip,actions=ct(zone=1,table=1)\n\
     table=1,priority=4,ip,ct_mark=0x3/0x3,actions=output:4\n\
     table=1,priority=3,ip,ct_state=+est+trk,actions=ct(commit,zone=1,exec(load:1->NXM_NX_CT_MARK[1])),output:3\n\
     table=1,priority=1,ip,ct_state=+new+trk,actions=ct(commit,zone=1,exec(load:1->NXM_NX_CT_MARK[0])),output:2\n",
    "table=0,ip,actions=set_field:7->reg0,ct(zone=NXM_NX_REG0[0..15],nat,table=1)\n\
     table=1,priority=3,ip,reg0=7,ct_state=+est+trk,actions=ct(zone=8,table=2)\n\
     table=1,priority=1,ip,ct_state=+new+trk,actions=ct(commit,zone=7,nat(src=198.51.100.1),table=2)\n\
     table=2,priority=1,ip,ct_state=+trk,actions=output:3\n",
    "table=0,ip,actions=ct(commit,zone=1,table=1),output:4\n\
     table=1,priority=1,ip,ct_state=+est+trk,actions=ct_clear,output:2\n\
     table=1,priority=0,ip,actions=output:3\n",
    "table=0,ip,actions=ct(zone=1,table=1)\n\
     table=1,priority=2,ip,ct_state=+rpl+trk,actions=ct(commit,force,zone=1),output:2\n\
     table=1,priority=1,ip,ct_state=+new+trk,actions=ct(commit,zone=1),output:3\n\
     table=1,priority=0,ip,actions=output:4\n",
    "table=0,priority=1,udp,nw_src=192.0.2.1,actions=check_pkt_larger(1500)->NXM_NX_REG0[0],resubmit(,1),\
     ct(commit,zone=1,exec(load:1->NXM_NX_CT_MARK[0]))\n\
     table=0,priority=0,ip,actions=ct(zone=1,table=2)\n\
     table=1,actions=output:2\n\
     table=2,priority=1,ip,ct_mark=1,actions=output:3\n\
     table=2,priority=0,ip,actions=output:4\n",
    "table=0,priority=1,udp,nw_src=192.0.2.1,actions=ct(zone=1,table=1)\n\
     table=0,priority=0,udp,actions=ct(zone=2,table=2)\n\
     table=1,ip,actions=ct(commit,zone=2,exec(load:1->NXM_NX_CT_MARK[0])),ct(commit,zone=1),output:2\n\
     table=2,priority=2,ip,ct_mark=1,actions=output:3\n\
     table=2,priority=0,ip,actions=ct(commit,zone=2),output:4\n",
    "table=0,ip,actions=ct(zone=1,table=1)\n\
     table=1,priority=3,udp,ct_state=-rel+trk,tp_dst=53,actions=ct(commit,zone=1,alg=tftp),output:2\n\
     table=1,priority=2,ip,ct_state=+rel+trk,actions=ct(commit,zone=1),output:3\n\
     table=1,priority=1,ip,ct_state=+est+trk,actions=output:2\n\
     table=1,priority=0,ip,actions=output:4\n",
    "table=0,ip,actions=ct(zone=1,table=1)\n\
     table=1,priority=1,ip,in_port=1,ct_state=+new+trk,actions=ct(commit,zone=2),ct(zone=2,table=2),output:4\n\
     table=1,priority=0,ip,actions=ct(zone=2,table=2)\n\
     table=2,priority=1,ip,ct_state=+rpl+trk,actions=ct(commit,zone=1),output:3\n\
     table=2,priority=0,ip,actions=output:2\n",
    "table=0,ip,actions=ct(zone=1,nat,table=1)\n\
     table=1,priority=3,ip,ct_state=+est+trk,actions=resubmit(,2,ct),output:4\n\
     table=1,priority=1,ip,ct_state=+new+trk,actions=ct(commit,zone=1,nat(src=198.51.100.1),table=2),resubmit(9,2,ct)\n\
     table=2,priority=3,udp,nw_src=10.0.0.1,tp_dst=53,actions=output:2\n\
     table=2,priority=2,ip,in_port=9,nw_dst=192.0.2.1,actions=output:3\n\
     table=2,priority=1,ip,ct_state=+rpl+trk,ct_nw_dst=198.51.100.1,actions=output:3\n\
     table=2,priority=0,ip,actions=output:4\n",
];

/// A UDP packet between two of few ends, without a checksum.
fn packet(r: &mut Random) -> (usize, Vec<u8>) {
    let (client, server) = ([10, 0, 0, 1 + r.next(2) as u8], [192, 0, 2, 1]);
    let (client_port, reply) = (1000 + r.next(6) as u16, r.next(3) == 0);
    // Servers answer from another port now and then.
    let server_port = if reply && r.next(4) == 0 { 54 } else { 53 };
    let (from, to) = match reply {
        true => ((server, server_port), (client, client_port)),
        false => ((client, client_port), (server, server_port)),
    };
    // A request of TFTP, or something else.
    (usize::from(reply), udp(from, to, [0, 1 + r.next(3) as u8, 2, 3]))
}

/// A UDP packet from an address and port to others.
fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0];
    bytes.extend(from.0);
    bytes.extend(to.0);
    let sum: u32 = bytes[14..].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(from.1.to_be_bytes());
    bytes.extend(to.1.to_be_bytes());
    bytes.extend([0, 12, 0, 0]);
    bytes.extend(payload);
    bytes
}

fn connections_of(worker: &Worker) -> Vec<String> {
    let mut all = Vec::new();
    worker.egress.connections.for_each(&Wanted::default(), 0, |connection| {
        all.push(connection.to_string());
        true
    });
    all.sort();
    all
}

/// Bursts of up to 64 packets of one port each.
fn bursts(seed: u64) -> Vec<(usize, Vec<Vec<u8>>)> {
    let r = &mut Random(seed);
    let mut bursts: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
    for _ in 0..400 {
        let (port, bytes) = packet(r);
        match bursts.last_mut() {
            Some((last, burst)) if burst.len() < 64 && (*last == port || r.next(4) > 0) => burst.push(bytes),
            _ => bursts.push((port, vec![bytes])),
        }
    }
    bursts
}

#[test]
fn connections_do_not_depend_on_bursts() {
    let (mut translated, mut announced) = (0, 0);
    for (number, text) in FIREWALLS.iter().enumerate() {
        for seed in 0..12u64 {
            let bursts = bursts(seed);
            // Full tables, too, where a new connection takes the place of an old one.
            let connections = [1000, 5][usize::from(seed % 3 == 0)];
            let run = |alone: bool, cache| {
                let mut pipeline = Pipeline::new();
                for table in 0..3 {
                    pipeline.add_table(table, "", By::Tuple.engine(), Miss::Drop);
                }
                for rule in read(text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap() {
                    pipeline.add_rule(rule).unwrap();
                }
                let (sent, mut egress) = (Sent::default(), Egress::new(Fdb::new(1000, 300, 1), 1));
                for number in 1..=4 {
                    let port = Box::new(Recorder(number, sent.clone()));
                    egress.ports.add(PortSlot::new(PortNo(number), "", "", port));
                }
                egress.connections = Arc::new(Connections::new(Limits { connections, per_zone: None }));
                let mut worker = Worker::new(Lookup::new(pipeline, cache), egress, 64, Clock::Frames);
                for (port, burst) in &bursts {
                    let frames: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
                    match alone {
                        true => frames.iter().for_each(|frame| {
                            let (expected, before) =
                                (traced(&worker, *port, frame), sent.lock().unwrap().len());
                            worker.inject(*port, &[frame]).unwrap();
                            let sent = &sent.lock().unwrap()[before..];
                            assert!(
                                expected.is_none_or(|expected| expected == sent),
                                "firewall {number}, seed {seed}"
                            );
                        }),
                        false => worker.inject(*port, &frames).unwrap(),
                    }
                }
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                (sent, connections_of(&worker))
            };
            let expected = run(true, no_caches());
            for cache in [no_caches(), CacheConfig::default()] {
                for alone in [true, false] {
                    let found = run(alone, cache);
                    assert_eq!(found.1, expected.1, "firewall {number}, seed {seed}, alone {alone}");
                    // Ports are written to one after the other.
                    for port in 1..=4 {
                        let of = |sent: &[(u32, Vec<u8>)]| -> Vec<Vec<u8>> {
                            sent.iter()
                                .filter(|(to, _)| *to == port)
                                .map(|(_, frame)| frame.clone())
                                .collect()
                        };
                        let is_same = of(&found.0) == of(&expected.0);
                        assert!(is_same, "firewall {number}, seed {seed}, alone {alone}, port {port}");
                    }
                }
            }
            announced += expected.0.iter().filter(|(port, _)| number == 7 && *port == 3).count();
            translated += expected.1.iter().filter(|text| text.contains("198.51.100.1")).count();
        }
    }
    assert!(translated > 50 && announced > 50, "{translated}, {announced}");
}

/// A packet announces a connection in the second table, whose first packet is in the same burst: it waits in front of the first table.
#[test]
fn a_connection_that_is_announced_in_its_burst_is_related() {
    for cache in [no_caches(), CacheConfig::default()] {
        let mut pipeline = Pipeline::new();
        (0..2).for_each(|table| pipeline.add_table(table, "", By::Tuple.engine(), Miss::Drop));
        for rule in read(FIREWALLS[7], "rules", Some(Format::Flows), &ReadOptions::default()).unwrap() {
            pipeline.add_rule(rule).unwrap();
        }
        let (sent, mut egress) = (Sent::default(), Egress::new(Fdb::new(1000, 300, 1), 1));
        for number in 1..=4 {
            egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(Recorder(number, sent.clone()))));
        }
        let mut worker = Worker::new(Lookup::new(pipeline, cache), egress, 64, Clock::Frames);
        let (client, server) = (([10, 0, 0, 1], 1000), [192, 0, 2, 1]);
        let of = |from, to, opcode| udp(from, to, [0, opcode, 2, 3]);
        let data = of(client, (server, 53), 3);
        (0..4).for_each(|_| worker.inject(0, &[&data]).unwrap());
        (0..4).for_each(|_| worker.inject(1, &[&of((server, 53), client, 3)]).unwrap());
        sent.lock().unwrap().clear();
        let burst = [of(client, (server, 53), 1), of((server, 54), client, 3)];
        worker.inject(0, &[&burst[0], &burst[1]]).unwrap();
        let ports: Vec<u32> = sent.lock().unwrap().iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, [2, 3]);
    }
}

/// Returns two fragments of a frame with IPv4 of at least 1,248 bytes.
pub(super) fn fragments_of(frame: &[u8]) -> Vec<Vec<u8>> {
    let part = |place: u16, more: u16, payload: &[u8]| {
        let mut bytes = [&frame[..34], payload].concat();
        bytes[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        bytes[18..20].copy_from_slice(&frame[34..36]);
        bytes[20..22].copy_from_slice(&(more | place).to_be_bytes());
        bytes[24..26].fill(0);
        let sum: u32 = bytes[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
        bytes[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        bytes
    };
    let (first, rest) = frame[34..].split_at(1208);
    vec![part(0, 0x2000, first), part(1208 / 8, 0, rest)]
}

/// A packet that waits for a table is of its connection, and has come in through the port that an action has named, when it goes on.
#[test]
fn packets_that_wait_keep_their_connections() {
    let rules = "table=0,priority=3,in_port=1,udp,actions=ct(commit,zone=1,nat(dst=10.9.9.9),table=1)\n\
                 table=0,priority=2,in_port=2,udp,actions=ct(zone=1,nat,table=1)\n\
                 table=0,priority=1,actions=set_field:3->in_port,push_mpls:0x8847,goto_table:1\n\
                 table=1,priority=2,ct_state=+trk,ip,actions=ct(zone=1,table=2)\n\
                 table=1,priority=1,actions=pop_mpls:0x9000,in_port\n\
                 table=2,priority=1,ct_state=+est+rpl+trk,actions=in_port,output:1\n\
                 table=2,priority=0,actions=output:4\n";
    let mut other = vec![0xff; 12];
    other.extend([0x90, 0]);
    other.resize(60, 0);
    for by in [By::Tuple, By::Later(1), By::Later(7)] {
        for is_fragmented in [false, true] {
            let rules = read(rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
            let (mut worker, sent) = worker(&rules, 3, no_caches(), by);
            for port in 1000..1010u16 {
                let payload = vec![1; if is_fragmented { 1600 } else { 8 }];
                let udp = |from: ([u8; 4], u16), to: ([u8; 4], u16)| {
                    let mut bytes = Vec::new();
                    let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
                    eth.ipv4(from.0, to.0, 9).udp(from.1, to.1).write(&mut bytes, &payload).unwrap();
                    if is_fragmented { fragments_of(&bytes) } else { vec![bytes] }
                };
                let (client, server) = (([10, 0, 0, 1], port), ([203, 0, 113, 1], 53));
                let both = [(0, udp(client, server)), (1, udp(([10, 9, 9, 9], 53), client))];
                for (place, frames) in both {
                    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                    worker.inject(place, &frames).unwrap();
                    worker.settle().unwrap();
                }
                worker.inject(1, &[&other]).unwrap();
                worker.settle().unwrap();
                worker.egress.flush().unwrap();
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                let ports: Vec<u32> = sent.iter().map(|(port, _)| *port).collect();
                let wanted: &[u32] = if is_fragmented { &[4, 4, 2, 1, 2, 1, 3] } else { &[4, 2, 1, 3] };
                assert_eq!(ports, wanted, "{by:?}, port {port}, fragments {is_fragmented}");
            }
            assert!((worker.waiting_counters().asked > 0) == (by != By::Tuple));
        }
    }
}

/// A worker with rules, and perhaps a group.
fn with_group(rules: &str, group: Option<&str>, cache: CacheConfig) -> (Worker, Sent) {
    let rules = read(rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
    let (mut worker, sent) = worker(&rules, 5, cache, By::Tuple);
    if let Some(text) = group {
        let groups = read_groups(text, "groups", &ReadOptions::default()).unwrap();
        groups.into_iter().for_each(|(_, group)| worker.lookup.pipeline.add_group(group).unwrap());
    }
    (worker, sent)
}

/// A bucket's copy leaves its action set to the packet that it was made of, unless it goes on behind `ct`: whether it waits for other
/// fragments, is refused as one, or is parsed again.
#[test]
fn a_bucket_leaves_the_set_that_it_ends_with() {
    let fragments = {
        let mut bytes = Vec::new();
        let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
        eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(&mut bytes, &[1; 1600]).unwrap();
        fragments_of(&bytes)
    };
    // It belongs to no datagram: all but the last have a multiple of eight bytes.
    let mut refused = fragments[0].clone();
    refused.truncate(refused.len() - 4);
    refused[17] -= 4;
    refused[25] += 4;
    let later = "table=0,priority=2,ip,nw_frag=first,actions=group:1\n\
                 table=0,priority=1,ip,actions=ct(zone=1,table=1)\n\
                 table=1,actions=write_actions(output:3)\n";
    let cleared = "table=0,actions=group:1\n\
                   table=2,actions=write_actions(output:2),goto_table:3\n\
                   table=3,ip,actions=ct(zone=1),clear_actions\n";
    let kept = "table=0,actions=group:1\n\
                table=2,actions=write_actions(output:2),goto_table:3\n\
                table=3,ip,actions=output:3,ct(zone=1)\n";
    let parsed = "table=0,actions=group:1,output:4\ntable=1,actions=write_actions(output:3)\n";
    let bucket = |actions: &str| format!("group_id=1,type=all,bucket=actions={actions}\n");
    let (again, whole) = (bucket("push_mpls:0x8847,pop_mpls:0x0800,resubmit(,1)"), packet(&mut Random(2)).1);
    for cache in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let ports = |rules: &str, group: &str, frames: &[Vec<u8>]| -> Vec<u32> {
            let (mut worker, sent) = with_group(rules, Some(group), cache);
            frames.iter().for_each(|frame| worker.inject(0, &[frame]).unwrap());
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            sent.into_iter().map(|(port, _)| port).collect()
        };
        assert_eq!(ports(later, &bucket("ct(zone=1,table=1)"), &fragments), [3, 3]);
        assert_eq!(ports(cleared, &bucket("resubmit(,2)"), std::slice::from_ref(&refused)), [0; 0]);
        assert_eq!(ports(kept, &bucket("resubmit(,2)"), std::slice::from_ref(&refused)), [3, 2]);
        let twice = vec![whole.clone(); 3];
        assert_eq!(ports(parsed, &again, &twice), [4, 3, 4, 3, 4, 3]);
    }
}

/// Many `ct` in a row, one within the other, or round and round, end where a packet's do.
#[test]
fn a_trace_takes_as_many_ct_as_a_packet() {
    let chain = |action: fn(u32) -> String| -> String {
        let rules = (0..40).map(|table| format!("table={table},ip,actions={}\n", action(table + 1)));
        rules.chain(["table=40,actions=output:2\n".to_owned()]).collect()
    };
    let cases = [
        (chain(|next| format!("ct(table={next})")), 1),
        // A copy within a copy each; as deep as copies may be.
        (chain(|next| format!("ct(table={next}),output:3")), 33),
        ("table=0,ip,actions=output:2,ct(table=0)\n".to_owned(), 65),
        ("table=0,ip,actions=output:2,resubmit(,1)\ntable=1,ip,actions=ct(table=0)\n".to_owned(), 65),
        ("table=0,ip,actions=output:2,ct(table=0),output:3\n".to_owned(), 2 * 33),
    ];
    let frame = packet(&mut Random(2)).1;
    for (rules, count) in cases {
        let rules = read(&rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
        for cache in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
            let (mut worker, sent) = worker(&rules, 41, cache, By::Tuple);
            for _ in 0..2 {
                let expected = traced(&worker, 0, &frame).unwrap();
                worker.inject(0, &[&frame]).unwrap();
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                assert_eq!((expected.len(), sent.len()), (count, count), "{rules:?}");
                assert_eq!(expected, sent);
            }
        }
    }
}

/// A traced fragment waits where a packet does, and goes on where it is the last one.
#[test]
fn a_trace_says_what_becomes_of_a_fragment() {
    let rules = "table=0,in_port=1,ip,actions=ct(commit,zone=1,nat(src=198.51.100.1),table=1)\n\
                 table=0,in_port=2,ip,actions=group:1\n\
                 table=0,in_port=3,ip,actions=group:1,clear_actions,write_actions(output:1)\n\
                 table=1,priority=1,ct_state=+new-inv+trk,ip,actions=ct(zone=2,table=2)\n\
                 table=1,priority=0,actions=output:4\n\
                 table=2,ct_state=+new+trk,actions=output:3\n\
                 table=3,ip,actions=write_actions(output:1),goto_table:4\n\
                 table=4,ip,actions=ct(zone=3),output:4\n";
    let mut bytes = Vec::new();
    let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
    eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(&mut bytes, &[1; 1600]).unwrap();
    let fragments = fragments_of(&bytes);
    let group = "group_id=1,type=all,bucket=actions=resubmit(,3)\n";
    for order in [[0, 1], [1, 0]] {
        let (mut worker, sent) = with_group(rules, Some(group), no_caches());
        for (nth, at) in order.into_iter().enumerate() {
            let expected = traced(&worker, 0, &fragments[at]).unwrap();
            assert_eq!(expected, traced(&worker, 0, &fragments[at]).unwrap(), "a trace keeps no fragment");
            worker.inject(0, &[&fragments[at]]).unwrap();
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            assert_eq!((expected.len(), sent.len()), (nth, 2 * nth), "one of both is traced");
            assert!(expected.iter().all(|one| sent.contains(one) && one.0 == 3 && one.1[26] == 198));
        }
        // The packet of the group's bucket waits; that of a bucket which is a copy leaves its action set.
        let (port, ports) = if order[0] == 0 { (1, vec![]) } else { (2, vec![1]) };
        let expected = traced(&worker, port, &fragments[0]).unwrap();
        worker.inject(port, &[&fragments[0]]).unwrap();
        assert_eq!(std::mem::take(&mut *sent.lock().unwrap()), expected);
        assert_eq!(expected.iter().map(|(port, _)| *port).collect::<Vec<_>>(), ports);
    }
}

/// A copy that goes on in a later table is a packet of its own there: its `exit` and its action set are not the original's.
#[test]
fn a_copy_behind_ct_ends_alone() {
    let frame = packet(&mut Random(2)).1;
    let run = |rules: &str, group: Option<&str>, cache| {
        let (mut worker, sent) = with_group(rules, group, cache);
        (0..3).for_each(|_| worker.inject(0, &[&frame]).unwrap());
        std::mem::take(&mut *sent.lock().unwrap())
    };
    for cache in [no_caches(), CacheConfig::default()] {
        let exits = "table=0,ip,actions=clone(ct(zone=1,table=1)),output:2\ntable=1,actions=exit\n";
        let sent = run(exits, None, cache);
        assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [2; 3]);
        let sets = "table=0,ip,actions=group:1\ntable=1,actions=write_actions(output:3)\n";
        let bucket = "group_id=1,type=all,bucket=actions=ct(commit,nat(src=10.9.9.9),table=1)\n";
        let sent = run(sets, Some(bucket), cache);
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|(port, frame)| *port == 3 && frame[26..30] == [10, 9, 9, 9]));
    }
}

/// A megaflow does not outlive a change of rules that its packets meet with other fields than they came with: those of their
/// connection, or those that they have when they meet a table for the second time.
#[test]
fn megaflows_follow_changes_of_tables_that_see_other_fields() {
    let (client, server) = (([10, 0, 0, 1], 1000), ([192, 0, 2, 1], 53));
    let (to, back) = (udp(client, server, [0; 4]), udp(server, ([198, 51, 100, 1], 1000), [0; 4]));
    let shown = "table=0,ip,actions=ct(zone=1,nat,table=1)\n\
                 table=1,priority=1,ip,ct_state=+est+trk,nw_src=192.0.2.1,actions=resubmit(,2,ct)\n\
                 table=1,priority=0,ip,ct_state=+new+trk,actions=ct(commit,zone=1,nat(src=198.51.100.1))\n\
                 table=2,priority=0,ip,nw_src=10.0.0.1,actions=output:4\n";
    let twice = "table=0,ip,actions=resubmit(,1),set_field:192.0.2.9->nw_dst,resubmit(,1)\n\
                 table=1,priority=0,ip,nw_dst=192.0.2.1,actions=output:4\n\
                 table=1,priority=0,ip,nw_dst=192.0.2.9,actions=drop\n";
    let cases = [
        (shown, &back, "table=2,priority=1,ip,nw_src=10.0.0.1,actions=output:3", [vec![4], vec![3]]),
        (twice, &to, "table=1,priority=1,ip,nw_dst=192.0.2.9,actions=output:3", [vec![4], vec![3, 4]]),
    ];
    let of = |text: &str| read(text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
    for (rules, frame, added, expected) in cases {
        let caches = CacheConfig { adaptive: false, ..CacheConfig::default() };
        let (mut worker, sent) = worker(&of(rules), 3, caches, By::Tuple);
        let ports = |worker: &mut Worker| -> Vec<u32> {
            (0..2).for_each(|_| {
                sent.lock().unwrap().clear();
                worker.inject(1, &[frame.as_slice()]).unwrap();
            });
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            let mut ports: Vec<u32> = sent.into_iter().map(|(port, _)| port).collect();
            ports.sort_unstable();
            ports
        };
        worker.inject(0, &[to.as_slice()]).unwrap();
        let before = ports(&mut worker);
        worker.lookup.pipeline.add_rule(of(added).remove(0)).unwrap();
        assert_eq!([before, ports(&mut worker)], expected, "{rules}");
    }
}

/// A table that answers later is asked for the fields that it is shown, too.
#[test]
fn a_table_that_answers_later_sees_the_fields_that_it_is_shown() {
    let rules = "table=0,in_port=1,ip,actions=ct(commit,zone=1,nat(src=198.51.100.1),table=1)\n\
                 table=0,in_port=2,ip,actions=ct(zone=1,nat,table=1)\n\
                 table=1,priority=1,ip,ct_state=+new+trk,actions=resubmit(9,3)\n\
                 table=1,priority=0,ip,ct_state=+est+trk,actions=resubmit(8,3,ct),output:4\n\
                 table=3,priority=2,in_port=9,ip,nw_src=198.51.100.1,actions=output:3\n\
                 table=3,priority=1,in_port=8,ip,nw_src=10.0.0.1,actions=output:1\n\
                 table=3,priority=0,actions=output:4\n";
    let rules = read(rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
    let (client, server) = (([10, 0, 0, 1], 1000), ([192, 0, 2, 1], 53));
    let (to, back) = (udp(client, server, [0; 4]), udp(server, ([198, 51, 100, 1], 1000), [0; 4]));
    for by in [By::Tuple, By::Later(1), By::Later(7)] {
        let (mut worker, sent) = worker(&rules, 4, CacheConfig::default(), by);
        for (place, frame, expected) in [(0, &to, vec![3]), (1, &back, vec![1, 4]), (1, &back, vec![1, 4])] {
            worker.inject(place, &[frame.as_slice()]).unwrap();
            worker.settle().unwrap();
            worker.egress.flush().unwrap();
            let sent = std::mem::take(&mut *sent.lock().unwrap());
            let mut ports: Vec<u32> = sent.iter().map(|(port, _)| *port).collect();
            ports.sort_unstable();
            assert_eq!(ports, expected, "{by:?}");
        }
    }
}

/// The tables behind a rule that keeps a connection are not looked up for each packet, and see the ends that it came with.
#[test]
fn paths_go_on_behind_actions_that_keep_a_connection() {
    let (client, server) = (([10, 0, 0, 1], 1000), ([192, 0, 2, 1], 53));
    let frame = udp(client, server, [0; 4]);
    for options in ["", ",exec(move:NXM_NX_REG1[]->NXM_NX_CT_MARK[])", ",nat(src=10.9.9.9)"] {
        let text = format!(
            "table=0,ip,actions=set_field:7->reg1,ct(commit,zone=1{options}),resubmit(,1)\n\
             table=1,ct_state=-trk,ip,nw_src=10.0.0.1,actions=output:2\n"
        );
        let rules = read(&text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
        let (mut worker, sent) = worker(&rules, 2, CacheConfig::default(), By::Tuple);
        let mut key = FlowKey::zero();
        parse(&frame, 1, &mut key);
        let path = translate(&worker.lookup.pipeline, &key);
        let ends = matches!(path.steps.last(), Some(crate::ruleset::Step::Do(Action::Output(PortNo(2)))));
        assert!(ends, "{options}: {:?}", path.steps);
        (0..3).for_each(|_| worker.inject(0, &[frame.as_slice()]).unwrap());
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        let source: &[u8] = if options.contains("nat") { &[10, 9, 9, 9] } else { &[10, 0, 0, 1] };
        assert_eq!(sent.len(), 3, "{options}");
        assert!(sent.iter().all(|(port, frame)| *port == 2 && &frame[26..30] == source), "{options}");
    }
}

/// `clone` is how OVN leads from one logical datapath to the next, where behind it only the port is taken back that the packet came in by.
#[test]
fn paths_go_on_in_a_clone_behind_which_nothing_follows() {
    let text = "table=0,actions=push:NXM_NX_REG2[],set_field:7->reg1,resubmit(,2)BEHIND\n\
                table=1,reg1=1,actions=output:2\n\
                table=2,actions=clone(ct_clear,set_field:1->reg1,resubmit(,1))\n";
    let behind = [
        ("", true),
        (",pop:NXM_NX_REG2[]", true),
        (",pop:NXM_NX_REG2[],set_field:3->reg2", true),
        (",output:3", false),
    ];
    for (behind, goes_on) in behind {
        let rules = text.replace("BEHIND", behind);
        let rules = read(&rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
        let (worker, _) = worker(&rules, 3, CacheConfig::default(), By::Tuple);
        let path = translate(&worker.lookup.pipeline, &FlowKey::zero());
        let ends = matches!(path.steps.last(), Some(crate::ruleset::Step::Do(Action::Output(PortNo(2)))));
        assert_eq!(ends, goes_on, "{behind}: {:?}", path.steps);
    }
}

/// As those of load balancers do, whose last bucket the packet itself takes. Values on its stack stay there.
#[test]
fn packets_of_buckets_take_cached_paths_behind_ct() {
    let text = "table=0,ip,actions=set_field:6->reg2,push:NXM_NX_REG2[],group:1\n\
                table=1,ip,actions=resubmit(,2)\n\
                table=2,ip,actions=resubmit(,3)\n\
                table=3,ip,actions=pop:NXM_NX_REG3[],resubmit(,4)\n\
                table=4,ip,reg3=6,actions=output:2\n";
    let rules = read(text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
    let frame = udp(([10, 0, 0, 1], 1000), ([192, 0, 2, 1], 53), [0; 4]);
    let ct = "ct(commit,zone=1,nat(dst=10.1.0.1:5353),table=1)";
    for (buckets, ports) in [
        (format!("type=select,bucket=actions={ct}"), vec![2]),
        (format!("type=all,bucket=actions=output:3,bucket=actions={ct}"), vec![3, 2]),
    ] {
        let config = CacheConfig { adaptive: false, ..CacheConfig::default() };
        let (mut worker, sent) = worker(&rules, 5, config, By::Tuple);
        let groups =
            read_groups(&format!("group_id=1,{buckets}"), "groups", &ReadOptions::default()).unwrap();
        groups.into_iter().for_each(|(_, group)| worker.lookup.pipeline.add_group(group).unwrap());
        (0..4).for_each(|_| worker.inject(0, &[frame.as_slice()]).unwrap());
        let seen: Vec<u32> = sent.lock().unwrap().iter().map(|(port, _)| *port).collect();
        assert_eq!(seen, ports.repeat(4), "{buckets}");
        // One path up to the group, and one behind `ct`, up to the value that it has not pushed.
        assert_eq!(worker.lookup.slow, 2, "{buckets}");
        assert!(
            sent.lock().unwrap().iter().all(|(port, frame)| *port == 3 || frame[30..34] == [10, 1, 0, 1]),
            "{buckets}"
        );
    }
}

/// Not from rule to rule, as copies of `clone` do that are not the last.
#[test]
fn a_copy_for_the_table_of_ct_takes_cached_paths() {
    let rules = "table=0,ip,actions=ct(commit,zone=1,table=1),output:3\ntable=1,ip,actions=output:2\n";
    let rules = read(rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
    let config = CacheConfig { adaptive: false, ..CacheConfig::default() };
    let (mut worker, sent) = worker(&rules, 3, config, By::Tuple);
    let frame = udp(([10, 0, 0, 1], 1000), ([192, 0, 2, 1], 53), [0; 4]);
    (0..4).for_each(|_| worker.inject(0, &[frame.as_slice()]).unwrap());
    let ports: Vec<u32> = sent.lock().unwrap().iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [2, 3].repeat(4));
    // A path for the packet, and one for the copy in the table.
    assert_eq!(worker.lookup.slow, 2);
}

/// It does not matter whether headers are parsed again in between, and whether rules or a path lead there.
#[test]
fn rules_behind_a_translation_see_the_ends_that_the_packet_came_with() {
    let frame = udp(([10, 0, 0, 1], 1000), ([192, 0, 2, 1], 53), [0; 4]);
    let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    for between in ["", "pop_vlan,", "push_vlan:0x8100,", "push_vlan:0x8100,pop_vlan,pop_vlan,"] {
        let text = format!(
            "table=0,ip,actions=ct(commit,zone=1,nat(src=10.9.9.9)),{between}resubmit(,1)\n\
             table=1,ip,nw_src=10.0.0.1,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG3[],output:2,ct(zone=1,table=2)\n\
             table=2,ip,reg3=0x0a000001,nw_src=10.9.9.9,ct_state=+trk-inv,actions=output:3\n"
        );
        let rules = read(&text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
        for caches in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
            let (mut worker, sent) = worker(&rules, 3, caches, By::Tuple);
            for frame in [&frame, &tagged, &frame] {
                worker.inject(0, &[frame.as_slice()]).unwrap();
                let sent = std::mem::take(&mut *sent.lock().unwrap());
                let ports: Vec<u32> = sent.iter().map(|(port, _)| *port).collect();
                assert_eq!(ports, [2, 3], "{between}");
            }
        }
    }
}
