//! Messages as Open vSwitch 3.1.0 sends them, byte for byte.

use flowlane_openflow::{Codec, Header, Version, check};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn messages() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
    include_str!("data/messages.txt").lines().map(|line| {
        let (message, label) = line.split_once(" # ").expect("a label");
        (bytes(&message[2..]), label)
    })
}

/// Messages with more than is kept: counters of Open vSwitch's own (`dump-ports`), the parts of `enqueue` (whose output is
/// given a length), the lengths of tunnel options that no map gives.
const REDUCED: [&str; 3] = ["dump-ports", "enqueue:", "tun_metadata"];

/// The settings of the connection that a message was sent on.
fn codec(message: &[u8], label: &str) -> Codec {
    let version = Header::read(message).and_then(|header| Version::of_number(header.version));
    let mut codec = Codec::new(version.unwrap_or(Version::OpenFlow15));
    // ovs-ofctl asks for tables in flow-mods where a flow names one.
    codec.flow_mod_table_id = label.contains("table=") && codec.version == Version::OpenFlow10;
    codec
}

#[test]
fn messages_are_written_as_they_were_read() {
    let (mut count, mut reduced) = (0, 0);
    for (message, label) in messages() {
        let codec = codec(&message, label);
        let decoded = codec.decode(&message);
        let decoded = decoded.unwrap_or_else(|error| panic!("{error}\n{}\n{label}", hex(&message)));
        let written = codec.encode(decoded.xid, &decoded.message);
        let written = written.unwrap_or_else(|error| panic!("{error}\n{decoded:?}\n{label}"));
        if written != message && REDUCED.iter().any(|reason| label.contains(reason)) {
            assert_eq!(codec.decode(&written), Ok(decoded), "{label}");
            reduced += 1;
            continue;
        }
        assert_eq!(hex(&written), hex(&message), "{label}\n{decoded:?}");
        count += 1;
    }
    println!("{count} messages are equal, {reduced} are shorter");
    assert!(count > 400 && reduced < 20);
}

/// Numbers that are the same in every run (xorshift64*, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}

/// Changes bytes, and then perhaps the length; the header's length fits, or nothing but it would be tested.
fn mutate(message: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = message.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len());
        out[at] = match random.below(5) {
            0 => 0,
            1 => 0xff,
            2 => out[at] ^ 1 << random.below(8),
            3 => out[at].wrapping_add(8),
            _ => random.next() as u8,
        };
    }
    match random.below(6) {
        0 => out.truncate(8 + random.below(out.len() - 7)),
        1 => out.extend((0..random.below(40)).map(|_| random.next() as u8)),
        2 if out.len() > 24 => {
            let (from, to) = (8 + random.below(out.len() - 16), 8 + random.below(out.len() - 16));
            out.copy_within(from..from + 8, to);
        }
        _ => {}
    }
    out[0] = message[0];
    let length = (out.len() as u16).to_be_bytes();
    out[2..4].copy_from_slice(&length);
    out
}

#[test]
fn mutated_messages_are_read_alike_or_refused() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut read = 0;
    for (message, _) in messages() {
        check(&message);
        for _ in 0..400 {
            let mutated = mutate(&message, &mut random);
            let result = std::panic::catch_unwind(|| check(&mutated));
            assert!(result.is_ok(), "{}", hex(&mutated));
            read += usize::from(flowlane_openflow::decode(&mutated).is_ok());
        }
    }
    println!("{read} mutated messages are messages");
    assert!(read > 10_000);
}

#[test]
fn bytes_of_no_message_are_refused() {
    let mut random = Random(7);
    for _ in 0..20_000 {
        let length = 8 + random.below(120);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        bytes[0] = [1, 4, 5, 6][random.below(4)];
        bytes[1] %= 36;
        bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        check(&bytes);
    }
}
