//! Select groups, through Open vSwitch and through the switch. Their hashes differ, so that the buckets which they choose do; but both
//! choose live buckets with a weight only, the same for packets that are equal in what the group looks at, and every one of those
//! for some packets.

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use flowlane_switch::datapath::MalformedPolicy;

use super::ovs::{Ovs, OvsPrograms, Sent};
use super::packets::Random;
use super::rules::Rules;
use super::switch::Flowlane;

/// The port of all buckets, which tell themselves by a destination address.
const PORT: usize = 4;

/// Packets of a group: most differ in any field.
const PACKETS: usize = 90;

/// A packet, by what groups look at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    mac: u8,
    addresses: [u8; 2],
    ports: [u16; 2],
}

impl Packet {
    fn draw(r: &mut Random) -> Self {
        let mut byte = || r.below(250) as u8;
        let (mac, addresses) = (byte(), [byte(), byte()]);
        Self { mac, addresses, ports: [1000 + u16::from(byte()), 2000 + u16::from(byte())] }
    }

    fn frame(self) -> Vec<u8> {
        let [from, to] = self.addresses.map(|byte| [10, 0, 0, byte]);
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 1, self.mac], [2, 0, 0, 0, 2, 1]);
        let mut frame = Vec::new();
        let udp = ethernet.ipv4(from, to, 64).udp(self.ports[0], self.ports[1]);
        udp.write(&mut frame, b"select").expect("memory takes it");
        frame
    }
}

/// Ways to choose a bucket, and the part of packets that they look at, at most.
type Selection = (&'static str, fn(Packet) -> Packet);

const NONE: Packet = Packet { mac: 0, addresses: [0; 2], ports: [0; 2] };

const SELECTIONS: [Selection; 8] = [
    ("", |packet| packet),
    (",selection_method=dp_hash", |packet| packet),
    (",selection_method=hash", |packet| packet),
    (",selection_method=hash,fields(eth_src)", |packet| Packet { mac: packet.mac, ..NONE }),
    (",selection_method=hash,fields(ip_src)", |packet| Packet {
        addresses: [packet.addresses[0], 0],
        ..NONE
    }),
    (",selection_method=hash,selection_method_param=7,fields(ip_dst,udp_src)", |packet| Packet {
        addresses: [0, packet.addresses[1]],
        ports: [packet.ports[0], 0],
        ..NONE
    }),
    (",selection_method=hash,fields(ip_src=0.0.0.15,udp_dst)", |packet| Packet {
        addresses: [packet.addresses[0] & 15, 0],
        ports: [0, packet.ports[1]],
        ..NONE
    }),
    (",selection_method=hash,fields(udp_dst,nw_tos)", |packet| Packet {
        ports: [0, packet.ports[1]],
        ..NONE
    }),
];

/// Draws a group. Returns its buckets that may be chosen.
fn group(r: &mut Random, selection: &str) -> (String, Vec<u8>) {
    let (mut text, mut possible) = (format!("group_id=1,type=select{selection}"), Vec::new());
    for number in 1..=1 + r.below(4) as u8 {
        let weight = r.pick(&[0, 1, 1, 2]);
        // No port 7 is there.
        let watched = r.pick(&["", "", "watch_port:2,", "watch_port:7,"]);
        if weight > 0 && watched != "watch_port:7," {
            possible.push(number);
        }
        text.push_str(&format!(
            ",bucket=bucket_id:{number},weight:{weight},{watched}actions=set_field:02:00:00:00:00:{number:02x}->dl_dst,output:{PORT}"
        ));
    }
    (text + "\n", possible)
}

/// The bucket that each frame has taken.
fn buckets(sent: &Sent) -> Vec<u8> {
    sent[PORT - 1].iter().map(|frame| frame[5]).collect()
}

/// Checks the buckets that a switch has chosen for packets.
fn check(
    who: &str,
    text: &str,
    (packets, looks_at): (&[Packet], fn(Packet) -> Packet),
    chosen: &[u8],
    possible: &[u8],
) {
    let sent = if possible.is_empty() { 0 } else { packets.len() };
    assert_eq!(chosen.len(), sent, "{who}: {text}");
    let mut known = BTreeMap::new();
    for (packet, bucket) in packets.iter().zip(chosen) {
        let before = known.entry(looks_at(*packet)).or_insert(bucket);
        assert_eq!(*before, bucket, "{who} takes packets apart that are equal to the group: {text}");
        assert!(possible.contains(bucket), "{who} chooses {bucket}: {text}");
    }
    for bucket in possible {
        assert!(chosen.contains(bucket), "{who} never chooses {bucket}: {text}");
    }
}

#[test]
fn select_groups_choose_buckets_that_they_may_choose() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    let mut several = 0;
    for seed in 0..64 {
        let r = &mut Random::new(seed);
        let (selection, looks_at) = SELECTIONS[seed as usize % SELECTIONS.len()];
        let (group, possible) = group(r, selection);
        several += usize::from(possible.len() > 1);
        let rules = Rules::new("cookie=1,udp,actions=group:1\n".to_owned(), group.clone(), 1);
        let packets: Vec<Packet> = (0..PACKETS).map(|_| Packet::draw(r)).collect();
        let frames: Vec<Vec<u8>> = packets.iter().map(|packet| packet.frame()).collect();
        let mut flowlane = Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("sound rules");
        ovs.set_rules(&rules).unwrap_or_else(|error| panic!("{error}: {group}"));
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let (ours, _) = flowlane.forward_all(1, &slices);
        let theirs = ovs.forward(1, &frames);
        check("Flowlane", &group, (&packets, looks_at), &buckets(&ours), &possible);
        check("Open vSwitch", &group, (&packets, looks_at), &buckets(&theirs), &possible);
    }
    assert!(several > 20, "{several} groups choose");
}
