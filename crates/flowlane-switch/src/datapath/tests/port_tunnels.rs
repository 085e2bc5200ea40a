//! Ports that are tunnels.

use flowlane::rule::{ReadOptions, flow_syntax};
use flowlane::tunnel::{MappedOption, OptionMap, Refused};

use super::bursts::Capture;
use super::*;
use crate::tunnel::{PortTunnel, PortTunnelSpec};

/// The specification of a port.
fn spec(text: &str) -> PortTunnelSpec {
    let (kind, rest) = text.split_once(':').unwrap();
    let kind = PortTunnelSpec::KINDS.into_iter().find(|known| known.name() == kind).unwrap();
    let mut parts = rest.split(',');
    let remote = parts.next().unwrap();
    let options: Vec<_> = parts.map(|part| part.split_once('=').unwrap()).collect();
    PortTunnelSpec::parse(kind, remote, &options).unwrap()
}

fn map() -> OptionMap {
    let mut map = OptionMap::default();
    map.add(0, MappedOption { class: 0x0102, kind: 0x80, bytes: 4 }).unwrap();
    map
}

/// A worker with these rules, some of whose ports are tunnels.
fn end(rules: &str, tunnels: &[(u32, &str)], cache: CacheConfig) -> (Worker, Sent) {
    let rules = flow_syntax::read(rules, "rules", &ReadOptions::default()).unwrap();
    let (mut worker, sent) = worker(&rules, 3, cache, By::Tuple);
    for &(number, text) in tunnels {
        let place = worker.egress.ports.place(PortNo(number)).unwrap();
        worker.egress.ports.slots_mut()[place].tunnel = Some(Box::new(PortTunnel::new(spec(text))));
    }
    worker.egress.port_tunnels.policy.option_fields = map();
    (worker, sent)
}

fn caches() -> [CacheConfig; 3] {
    [CacheConfig::default(), CacheConfig { adaptive: false, ..CacheConfig::default() }, no_caches()]
}

const NEAR: &str = "table=0,in_port=1,ip actions=set_field:7->metadata,load:3->NXM_NX_REG14[],load:9->NXM_NX_REG15[],resubmit(,1)\n\
    table=0,in_port=1,ipv6 actions=set_field:8->metadata,resubmit(,1)\n\
    table=1,metadata=7 actions=move:OXM_OF_METADATA[0..23]->NXM_NX_TUN_ID[0..23],\
    move:NXM_NX_REG15[0..15]->NXM_NX_TUN_METADATA0[0..15],move:NXM_NX_REG14[0..14]->NXM_NX_TUN_METADATA0[16..30],\
    output:2,set_field:5->tun_id,output:3,set_field:6->tun_id,output:3,output:2\n\
    table=1,metadata=8 actions=set_field:0x1000008->tun_id,set_field:2001:db8::9->tun_ipv6_dst,output:3,output:4\n";

const TUNNELS: [(u32, &str); 3] = [
    (2, "geneve:192.0.2.2,key=flow"),
    (3, "geneve:flow,key=flow,local=2001:db8::1"),
    (4, "vxlan:192.0.2.4,key=77,ttl=9,tos=8"),
];

/// A packet, the port of a tunnel through which it left, and the frame there.
type Wrapped = (Vec<u8>, u32, Vec<u8>);

/// The frames that random packets go into tunnels in.
fn wrapped_by(cache: CacheConfig) -> Vec<Wrapped> {
    let (mut near, sent) = end(NEAR, &TUNNELS, cache);
    let (mut r, mut out) = (Random(7), Vec::new());
    for _ in 0..300 {
        let bytes = packet(&mut r);
        near.inject(0, &[&bytes]).unwrap();
        let mut sent = sent.lock().unwrap();
        let into_tunnels = sent.drain(..).filter(|(port, _)| (2..=4).contains(port));
        out.extend(into_tunnels.map(|(port, outer)| (bytes.clone(), port, outer)));
    }
    // Neither the port nor the packet says where it goes.
    assert!(near.egress.drops.no_tunnel > 50);
    out
}

/// Clears source port and flow label, which are hashes with secrets of their own.
fn without_hash((_, _, outer): &mut Wrapped) {
    let udp = if outer[12] == 8 { 34 } else { 54 };
    outer[udp..udp + 2].fill(0);
    if outer[12] == 0x86 {
        outer[15] &= 0xf0;
        outer[16..18].fill(0);
    }
}

/// As OVN does it: the network is in the VNI, the ports of the packet in an option, and the tunnel's port says the other end.
#[test]
fn rules_fields_go_into_tunnels_and_come_out_at_the_other_end() {
    let [first, others @ ..] = caches().map(|cache| {
        let mut all = wrapped_by(cache);
        all.iter_mut().for_each(without_hash);
        all
    });
    for other in others {
        assert_eq!(other.len(), first.len());
        for (other, own) in other.iter().zip(&first) {
            assert_eq!(format!("{other:02x?}"), format!("{own:02x?}"));
        }
    }
    let far = "table=0,tun_id=7,tun_src=192.0.2.1,tun_metadata0=0x30009 actions=1\n\
        table=0,priority=0 actions=2\n";
    let (mut far, sent) = end(far, &[(3, "geneve:192.0.2.1,key=flow")], CacheConfig::default());
    let (mut ports, mut of_vxlan) = ([0; 3], 0);
    for (bytes, port, mut outer) in first {
        match port {
            2 => {
                assert_eq!(outer[26..34], [0, 0, 0, 0, 192, 0, 2, 2], "the system chooses the source");
                outer[26..30].copy_from_slice(&[192, 0, 2, 1]);
                far.inject(2, &[&outer]).unwrap();
                let (port, inside) = sent.lock().unwrap().pop().expect("it is a packet of the tunnel");
                assert_eq!(inside, bytes);
                ports[port as usize] += 1;
            }
            3 => {
                let address = |last: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
                assert_eq!(outer[22..54], [address(1), address(9)].concat());
                assert_eq!(outer[66..69], [0, 0, 8], "a VNI has 24 bits");
            }
            other => {
                assert_eq!(other, 4);
                of_vxlan += 1;
                assert_eq!((outer[22], outer[15] & 0xfc, &outer[46..49]), (9, 8, &[0, 0, 77][..]));
                assert!(outer.ends_with(&bytes));
            }
        }
    }
    // Each packet leaves twice, with two VNIs.
    assert!(ports[1] > 30 && ports[1] == ports[2], "{ports:?}");
    assert!(of_vxlan > 20);
    assert_eq!(far.egress.ports.slots()[0].counters.tx_packets, ports[1]);
}

/// A port that is a tunnel takes nothing but packets of its tunnel, whatever becomes of malformed frames elsewhere.
#[test]
fn nothing_else_comes_in_through_a_tunnel() {
    let (mut near, sent) = end("actions=output:2", &[(2, "geneve:192.0.2.2,key=5")], CacheConfig::default());
    let bytes = packet(&mut Random(3));
    near.inject(0, &[&bytes]).unwrap();
    let (_, outer) = sent.lock().unwrap().pop().unwrap();
    for policy in [MalformedPolicy::Drop, MalformedPolicy::Forward] {
        let (mut far, sent) =
            end("in_port=2 actions=output:3", &[(2, "geneve:192.0.2.2,key=5")], CacheConfig::default());
        far.egress.faults.policy = policy;
        far.inject(1, &[&outer]).unwrap();
        assert_eq!(sent.lock().unwrap().pop(), Some((3, bytes.clone())));
        let changed = |at: usize, to: u8| {
            let mut outer = outer.clone();
            outer[at] = to;
            outer
        };
        let cut = outer[..46].to_vec();
        for wrong in [
            changed(42, 0x40),
            changed(43, 0x80),
            changed(44, 0),
            changed(42, 0x3f),
            cut,
            changed(23, 6),
            bytes.clone(),
        ] {
            far.inject(1, &[&wrong]).unwrap();
            assert_eq!(sent.lock().unwrap().pop(), None, "{wrong:02x?}");
        }
        assert_eq!(far.egress.drops.tunnel_refused, 7);
        let refused: Vec<_> = far.egress.port_tunnels.refused().filter(|(_, packets)| *packets > 0).collect();
        assert_eq!(refused, [(Refused::GeneveControl, 1)]);
    }
}

/// GRE has what its specification says, the key of rules, and sequence numbers that all packets of the port share.
#[test]
fn gre_has_the_checksum_key_and_sequence_number_that_its_port_says() {
    let rules = "actions=set_field:0x89abcdef->tun_id,output:2,output:3,output:4,output:2";
    let tunnels = [
        (2, "gre:192.0.2.2,key=flow,csum=true,seq=true"),
        (3, "gre:2001:db8::2"),
        (4, "gre:flow,key=0,ttl=9,tos=8"),
    ];
    for cache in caches() {
        let (mut near, sent) = end(
            &rules.replace("output:2,output:3", "set_field:192.0.2.4->tun_dst,output:2,output:3"),
            &tunnels,
            cache,
        );
        let far_rules = "tun_id=0x89abcdef,tun_flags=0/0x80 actions=3\npriority=0 actions=4\n";
        let (mut far, out) = end(far_rules, &[(2, "gre:192.0.2.1,key=flow")], cache);
        let mut r = Random(3);
        for number in 0..20u32 {
            let bytes = packet(&mut r);
            near.inject(0, &[&bytes]).unwrap();
            let sent: Vec<_> = sent.lock().unwrap().drain(..).collect();
            assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [2, 3, 4, 2]);
            for (place, which) in [(0, 0), (3, 1)] {
                let outer = &sent[place].1;
                let (header, key) = (&outer[34..38], &outer[42..46]);
                assert_eq!((header, key), (&[0xb0, 0, 0x65, 0x58][..], &[0x89, 0xab, 0xcd, 0xef][..]));
                assert_eq!(outer[46..50], (2 * number + which).to_be_bytes());
                let mut outer = outer.clone();
                outer[26..30].copy_from_slice(&[192, 0, 2, 1]);
                far.inject(1, &[&outer]).unwrap();
                assert_eq!(out.lock().unwrap().pop(), Some((3, bytes.clone())));
                // The checksum is that of all that is behind the IP header.
                outer[60] ^= 4;
                far.inject(1, &[&outer]).unwrap();
                assert_eq!(out.lock().unwrap().pop(), None);
            }
            assert_eq!(sent[1].1[54..], [&[0, 0, 0x65, 0x58][..], &bytes].concat());
            let outer = &sent[2].1;
            assert_eq!((outer[22], outer[15] & 0xfc, &outer[30..34]), (9, 8, &[192, 0, 2, 4][..]));
            assert_eq!(outer[34..], [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 0][..], &bytes].concat());
        }
        let refused: Vec<_> = far.egress.port_tunnels.refused().filter(|(_, packets)| *packets > 0).collect();
        assert_eq!(refused, [(Refused::GreChecksum, 40)]);
    }
}

/// Malformed GRE is counted by its reason; IP packets without Ethernet header are none of a port's.
#[test]
fn malformed_gre_and_ip_in_gre_are_refused_by_reason() {
    let (mut near, sent) = end("actions=output:2", &[(2, "gre:192.0.2.2,key=5")], CacheConfig::default());
    let bytes = packet(&mut Random(3));
    near.inject(0, &[&bytes]).unwrap();
    let (_, outer) = sent.lock().unwrap().pop().unwrap();
    for policy in [MalformedPolicy::Drop, MalformedPolicy::Forward] {
        let (mut far, sent) =
            end("in_port=2 actions=output:3", &[(2, "gre:192.0.2.1,key=5")], CacheConfig::default());
        far.egress.faults.policy = policy;
        far.inject(1, &[&outer]).unwrap();
        assert_eq!(sent.lock().unwrap().pop(), Some((3, bytes.clone())));
        for (at, to, reason) in [
            (34, 0x21, Refused::GreFormat),
            (35, 1, Refused::GreFormat),
            (34, 0x60, Refused::GreFormat),
            (36, 0x88, Refused::InnerProtocol),
        ] {
            let mut wrong = outer.clone();
            wrong[at] = to;
            let before: u64 = far.egress.port_tunnels.refused().map(|(_, packets)| packets).sum();
            far.inject(1, &[&wrong]).unwrap();
            assert_eq!(sent.lock().unwrap().pop(), None, "{wrong:02x?}");
            let after: u64 = far.egress.port_tunnels.refused().map(|(_, packets)| packets).sum();
            let of_reason = far.egress.port_tunnels.refused().find(|(known, _)| *known == reason);
            assert!(after == before + 1 && of_reason.unwrap().1 > 0, "{reason}");
        }
        // IP of version 4 behind the key.
        let mut ip = outer[..42].to_vec();
        ip[36..38].copy_from_slice(&[8, 0]);
        ip.extend(&outer[14..34]);
        ip[16..18].copy_from_slice(&48u16.to_be_bytes());
        let udp = bytes.clone();
        for wrong in [ip, udp] {
            far.inject(1, &[&wrong]).unwrap();
            assert_eq!(sent.lock().unwrap().pop(), None, "{wrong:02x?}");
        }
        assert_eq!(far.egress.drops.tunnel_refused, 6);
    }
}

/// ERSPAN's header has what the port, or the packet, says, and rules see it at the other end.
#[test]
fn erspan_says_where_frames_were_seen() {
    let rules = "actions=set_field:1->tun_erspan_ver,set_field:0xabcde->tun_erspan_idx,set_field:9->tun_id,output:2,\
        set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:0x2a->tun_erspan_hwid,output:2,output:3,\
        set_field:3->tun_erspan_ver,output:2";
    let tunnels =
        [(2, "erspan:192.0.2.2,key=flow,erspan_ver=flow"), (3, "erspan:192.0.2.2,key=1023,erspan_idx=7")];
    for cache in caches() {
        let (mut near, sent) = end(rules, &tunnels, cache);
        let far_rules = "tun_id=9,tun_erspan_ver=1,tun_erspan_idx=0xabcde,tun_type=5 actions=1\n\
            tun_id=9,tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0x2a,tun_erspan_idx=0 actions=3\n\
            tun_id=1023,tun_erspan_ver=1,tun_erspan_idx=7 actions=4\n";
        let (mut far, out) = end(far_rules, &[(2, "erspan:flow,key=flow")], cache);
        let mut r = Random(3);
        for number in 0..20u32 {
            let bytes = packet(&mut r);
            near.inject(0, &[&bytes]).unwrap();
            let sent: Vec<_> = sent.lock().unwrap().drain(..).collect();
            assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [2, 2, 3]);
            let numbers = [2 * number, 2 * number + 1, number].map(u32::to_be_bytes);
            for ((place, (_, outer)), wanted) in sent.iter().enumerate().zip([1, 3, 4]) {
                assert_eq!(outer[38..42], numbers[place]);
                let mut outer = outer.clone();
                outer[26..30].copy_from_slice(&[192, 0, 2, 1]);
                far.inject(1, &[&outer]).unwrap();
                assert_eq!(out.lock().unwrap().pop(), Some((wanted, bytes.clone())));
                // Of type I, and of a version that there is not.
                for (at, to) in [(34, 0), (42, 0x30)] {
                    let mut wrong = outer.clone();
                    wrong[at] = to;
                    far.inject(1, &[&wrong]).unwrap();
                    assert_eq!(out.lock().unwrap().pop(), None);
                }
            }
        }
        let refused: Vec<_> = far.egress.port_tunnels.refused().filter(|(_, packets)| *packets > 0).collect();
        assert_eq!(refused, [(Refused::ErspanFormat, 120)]);
        assert_eq!(near.egress.drops.no_tunnel, 20);
    }
}

/// Whatever action sends a frame there.
#[test]
fn floods_and_normal_go_into_tunnels() {
    for rules in ["actions=flood", "actions=all", "actions=normal", "actions=in_port,output:2"] {
        let (mut near, sent) = end(rules, &[(2, "vxlan:192.0.2.2,key=5")], CacheConfig::default());
        let mut bytes = packet(&mut Random(3));
        bytes[..6].fill(0xff);
        near.inject(0, &[&bytes]).unwrap();
        let sent: Vec<_> = sent.lock().unwrap().drain(..).filter(|(port, _)| *port == 2).collect();
        let [(2, outer)] = &sent[..] else { panic!("{rules}: {sent:02x?}") };
        assert_eq!(outer[50..], bytes, "{rules}");
    }
}

/// Frames count without the tunnel's headers, whichever way they go.
#[test]
fn bytes_are_those_of_the_frames_inside() {
    let (mut near, sent) = end("actions=output:2", &[(2, "vxlan:192.0.2.2,key=5")], CacheConfig::default());
    let mut r = Random(3);
    let frames: Vec<Vec<u8>> = (0..40).map(|_| packet(&mut r)).collect();
    frames.iter().for_each(|bytes| near.inject(0, &[bytes]).unwrap());
    let bytes = frames.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
    let counters = near.egress.ports.slots()[1].counters;
    assert_eq!((counters.tx_packets, counters.tx_bytes), (40, bytes));
    let outer: Vec<_> = sent.lock().unwrap().drain(..).map(|(_, outer)| (0, outer)).collect();
    let (mut far, sent) = end("actions=output:3", &[(2, "vxlan:192.0.2.2,key=5")], CacheConfig::default());
    far.egress.ports.slots_mut()[1].port =
        Box::new(Capture { frames: outer.into_iter(), out: Recorder(2, Sent::default()) });
    far.run(Until::default(), &AtomicBool::new(false), |_| {}).unwrap();
    let counters = far.egress.ports.slots()[1].counters;
    assert_eq!((counters.rx_packets, counters.rx_bytes, sent.lock().unwrap().len()), (40, bytes, 40));
}
