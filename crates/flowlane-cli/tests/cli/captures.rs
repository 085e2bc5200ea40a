//! Captures of all kinds by every command that reads them: classify, query and the switch see the same packets.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::support::run;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::tempdir;

/// TCP to port 2, UDP to port 3, the rest nowhere.
const FLOWS: &str =
    "priority=2,tcp,tp_dst=80,actions=output:2\npriority=2,udp,actions=output:3\npriority=1,actions=drop\n";

fn le(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn be(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_be_bytes()).collect()
}

/// An IPv4 packet to port 80 with a payload.
fn packet(proto: u8, payload: usize) -> Vec<u8> {
    let transport = if proto == 6 { 20 } else { 8 };
    let mut ip = vec![0x45, 0, 0, (20 + transport + payload) as u8, 0, 7, 0, 0, 64, proto, 0, 0];
    ip.extend([192, 0, 2, 1, 198, 51, 100, 7, 4, 87, 0, 80]);
    ip.resize(20 + transport + payload, 0);
    match proto {
        6 => ip[32] = 0x50,
        _ => ip[25] = (transport + payload) as u8,
    }
    ip
}

fn ethernet(eth_type: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &eth_type, payload].concat()
}

/// Two packets of TCP and one of UDP.
fn packets() -> [Vec<u8>; 3] {
    [packet(6, 40), packet(17, 40), packet(6, 60)]
}

/// A pcap file of frames, of which it has the first `snap_len` bytes.
fn pcap(link: u32, frames: &[Vec<u8>], snap_len: usize) -> Vec<u8> {
    let mut file = le(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, link]);
    for frame in frames {
        let captured = &frame[..frame.len().min(snap_len)];
        file.extend(le(&[5, 6, captured.len() as u32, frame.len() as u32]));
        file.extend(captured);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = body.len() as u32 + 12;
    [&le(&[kind, len])[..], &body, &le(&[len])].concat()
}

/// A pcapng section of this version with an Ethernet interface and one of USB, and packets of these interfaces.
fn section(version: u32, frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = block(0x0a0d_0d0a, &le(&[0x1a2b_3c4d, version, u32::MAX, u32::MAX]));
    file.extend([block(1, &le(&[1, 0])), block(1, &le(&[220, 0]))].concat());
    for (interface, frame) in frames {
        let len = frame.len() as u32;
        file.extend(block(6, &[&le(&[*interface, 0, 0, len, len])[..], frame].concat()));
    }
    file
}

fn snoop(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [&b"snoop\0\0\0"[..], &be(&[2, 4])].concat();
    for frame in frames {
        let len = frame.len() as u32;
        file.extend(be(&[len, len, 24 + len.next_multiple_of(4), 0, 5, 6]));
        file.extend(frame);
        file.resize(file.len().next_multiple_of(4), 0);
    }
    file
}

/// Captures of the three packets, with the exit code of reading them.
fn captures() -> Vec<(&'static str, Vec<u8>, i32)> {
    let frames = packets().map(|ip| ethernet([8, 0], &ip));
    let behind = |header: &[u8]| packets().map(|ip| [header, &ip].concat());
    let nflog = packets().map(|ip| {
        let len = (4 + ip.len() as u16).to_le_bytes();
        [&[2, 0, 0, 0][..], &len, &[9, 0], &ip].concat()
    });
    let ppi = frames.clone().map(|frame| [&[0, 0, 8, 0, 1, 0, 0, 0][..], &frame].concat());
    let whole = pcap(1, &frames, 0xffff);
    let gzip = {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&whole).unwrap();
        packer.finish().unwrap()
    };
    let mut modified = le(&[0xa1b2_cd34, 0x0004_0002, 0, 0, 0xffff, 1]);
    for frame in &frames {
        let len = frame.len() as u32;
        modified.extend([&le(&[5, 6, len, len, 2, 8])[..], frame].concat());
    }
    let [a, b, c] = frames.clone();
    let usb = (1, vec![0; 64]);
    let first = [(0, a), usb, (0, b), (7, vec![0; 60])];
    let cut_off = [&whole[..], &le(&[5, 6, 60, 60]), &[0; 9]].concat();
    let other = section(2, &[(0, c.clone())]);
    vec![
        ("whole.pcap", whole.clone(), 0),
        ("packed.pcap.gz", gzip, 0),
        ("packed.pcap.zst", compress_to_vec(&whole[..], CompressionLevel::Fastest), 0),
        ("cut-96.pcap", pcap(1, &frames, 96), 0),
        ("cut-54.pcap", pcap(1, &frames, 54), 0),
        ("raw.pcap", pcap(101, &packets(), 0xffff), 0),
        ("pppoe.pcap", pcap(51, &behind(&[0x11, 0, 0, 7, 0, 90, 0, 0x21]), 0xffff), 0),
        ("nflog.pcap", pcap(239, &nflog, 0xffff), 0),
        ("ppi.pcap", pcap(192, &ppi, 0xffff), 0),
        ("snoop.cap", snoop(&frames), 0),
        ("modified.pcap", modified, 0),
        ("skipped.pcapng", [section(1, &first), section(1, &[(0, c.clone())])].concat(), 2),
        ("version.pcapng", [section(1, &first), other, section(1, &[(0, c)])].concat(), 2),
        ("damaged.pcap", cut_off, 2),
    ]
}

/// Packets in all, to port 2 and to port 3, as `flowlane classify` sees them.
fn classified(at: &Path, name: &str, code: i32) -> [u64; 3] {
    let (csv, _) = run(at, &format!("classify --rules t.flows --trace {name}"), code);
    let count = |part: &str| csv.lines().filter(|line| line.ends_with(part)).count() as u64;
    [csv.lines().count() as u64 - 1, count("output:2"), count("output:3")]
}

/// The packets that a switch sees, and sends; with the options of its capture port.
fn switched(at: &Path, name: &str, code: i32, workers: usize) -> [u64; 3] {
    let config = format!(
        "[switch]\nworkers = {workers}\n[[port]]\nnumber = 1\nopen = \"pcap:{name}\"\n\
         [[port]]\nnumber = 2\nopen = \"null\"\n[[port]]\nnumber = 3\nopen = \"null\"\n\
         [[table]]\nnumber = 0\nrules_file = \"t.flows\"\n"
    );
    fs::write(at.join("switch.toml"), config).unwrap();
    let (json, message) = run(at, "switch run switch.toml --json", code);
    assert!(code == 0 || message.contains(name), "{message}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let port = |place: usize, counter: &str| json["ports"][place][counter].as_u64().unwrap();
    [port(0, "rx_packets"), port(1, "tx_packets"), port(2, "tx_packets")]
}

#[test]
fn every_command_sees_the_same_packets_of_every_capture() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("t.flows"), FLOWS).unwrap();
    for (name, file, code) in captures() {
        fs::write(at.join(name), file).unwrap();
        assert_eq!(classified(at, name, code), [3, 2, 1], "{name}");
        for workers in [1, 2] {
            assert_eq!(switched(at, name, code, workers), [3, 2, 1], "{name}, {workers} workers");
        }
        #[cfg(feature = "query")]
        {
            let sql = "SELECT count(*), count(*) FILTER (WHERE nw_proto = 6 AND tp_dst = 80), \
                       count(*) FILTER (WHERE nw_proto = 17) FROM packets";
            let mut query = crate::support::flowlane();
            let done = query.current_dir(at).args(["query", sql, name, "--format", "csv"]).output().unwrap();
            let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            assert_eq!(done.status.code(), Some(code), "{name}: {err}");
            assert!(out.ends_with("\n3,2,1\n"), "{name}: {out}{err}");
        }
    }
}

#[test]
fn pppoe_sessions_on_ethernet_are_classified_by_the_packets_in_them() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("t.flows"), FLOWS).unwrap();
    let frames =
        packets().map(|ip| ethernet([0x88, 0x64], &[&[0x11, 0, 0, 7, 0, 90, 0, 0x21][..], &ip].concat()));
    fs::write(at.join("pppoe.pcap"), pcap(1, &frames, 0xffff)).unwrap();
    assert_eq!(classified(at, "pppoe.pcap", 0), [3, 2, 1]);
    // A switch forwards sessions by their EtherType.
    assert_eq!(switched(at, "pppoe.pcap", 0, 1), [3, 0, 0]);
    fs::write(at.join("t.flows"), "dl_type=0x8864,actions=output:3\n").unwrap();
    assert_eq!(switched(at, "pppoe.pcap", 0, 1), [3, 0, 3]);
}

#[test]
fn what_a_capture_lacks_of_a_frame_is_lacking_in_the_output_and_counted() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let frames = packets().map(|ip| ethernet([8, 0], &ip));
    let cut = pcap(1, &frames, 60);
    fs::write(at.join("cut.pcap"), &cut).unwrap();
    let config = "[[port]]\nnumber = 1\nopen = \"pcap:cut.pcap\"\n[[port]]\nnumber = 2\nopen = \"pcap-out:out.pcap\"\n\
                  [[table]]\nnumber = 0\nrules = [\"ip,actions=mod_nw_src:10.0.0.1,output:2\"]\n";
    fs::write(at.join("switch.toml"), config).unwrap();
    let (json, _) = run(at, "switch run switch.toml --json --validate-simd", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(json["ports"][0]["rx_bytes"], bytes);
    let out = fs::read(at.join("out.pcap")).unwrap();
    assert_eq!(out.len(), cut.len());
    let lens = |file: &[u8], record: usize| file[24 + record * 76 + 8..24 + record * 76 + 16].to_vec();
    for record in 0..3 {
        assert_eq!(lens(&out, record), lens(&cut, record));
        assert_eq!(out[24 + record * 76 + 16 + 26..][..4], [10, 0, 0, 1]);
    }
}
