//! The captures that both switches read.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flowlane::generate::Random;

/// Bytes of a frame.
const FRAME: usize = 60;

/// Datagrams of the capture that is replayed. DPDK keeps all of them in buffers, of which Open vSwitch has 262,144.
const DATAGRAMS: u32 = 200_000;

/// Connections of the datagrams at most.
pub(crate) const ESTABLISHED_MAX: u32 = 50_000;

/// Writes `syns.pcap`, the first segments of connections, and `datagrams.pcap`, packets of established ones.
pub(crate) fn write(folder: &Path, connections: u32) {
    capture(&folder.join("syns.pcap"), (0..connections).map(|n| frame(n, false, 6)));
    let mut random = Random::new(7);
    let established = connections.min(ESTABLISHED_MAX);
    // Each connection begins, and is answered, before others follow in random order.
    let first = (0..established).flat_map(|n| [false, true].map(|reply| frame(n, reply, 17)));
    let others = (2 * established..DATAGRAMS)
        .map(|_| frame(random.below(established.into()) as u32, random.below(2) == 1, 17));
    capture(&folder.join("datagrams.pcap"), first.chain(others));
}

fn capture(path: &Path, frames: impl Iterator<Item = [u8; FRAME]>) {
    let mut file = BufWriter::new(File::create(path).expect("the folder is there"));
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut out = |bytes: &[u8]| file.write_all(bytes).expect("there is room");
    out(&words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, 1]));
    for (n, frame) in frames.enumerate() {
        let len = FRAME as u32;
        out(&words(&[n as u32 / 1_000_000, n as u32 % 1_000_000, len, len]));
        out(&frame);
    }
}

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | b.get(1).map_or(0, |b| u32::from(*b)));
    let sum = start + words.sum::<u32>();
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

/// A frame of connection `n`: a SYN, or a datagram in one of its directions.
fn frame(n: u32, reply: bool, proto: u8) -> [u8; FRAME] {
    let (client, server) = ((0x0a00_0000 + n / 32_768, 1024 + (n % 32_768) as u16), (0xc000_0201u32, 443u16));
    let (from, to) = if reply { (server, client) } else { (client, server) };
    let mut out = [0; FRAME];
    out[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let l4_len = if proto == 6 { 20u16 } else { 26 };
    out[14..24].copy_from_slice(&[0x45, 0, 0, 20 + l4_len as u8, 0, 1, 0x40, 0, 64, proto]);
    out[26..30].copy_from_slice(&from.0.to_be_bytes());
    out[30..34].copy_from_slice(&to.0.to_be_bytes());
    let sum = checksum(&out[14..34], 0);
    out[24..26].copy_from_slice(&sum.to_be_bytes());
    out[34..36].copy_from_slice(&from.1.to_be_bytes());
    out[36..38].copy_from_slice(&to.1.to_be_bytes());
    let end = 34 + usize::from(l4_len);
    let at = if proto == 6 {
        out[38..42].copy_from_slice(&1000u32.to_be_bytes());
        out[46..50].copy_from_slice(&[0x50, 2, 0x20, 0]);
        50
    } else {
        out[38..40].copy_from_slice(&l4_len.to_be_bytes());
        40
    };
    let pseudo = [from.0 >> 16, from.0 & 0xffff, to.0 >> 16, to.0 & 0xffff, proto.into(), l4_len.into()];
    let sum = checksum(&out[34..end], pseudo.iter().sum());
    out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    out
}
