//! Tests of `flowlane classify` on captures: threads, truncated packets, damaged files.

use std::fs;
use std::path::Path;

use crate::support::run;
use ruzstd::encoding::CompressionLevel::Fastest;
use tempfile::tempdir;

/// Creates rules with ports and a capture of `packets` packets for them in `folder`; returns the capture.
fn inputs(folder: &Path, packets: u32) -> Vec<u8> {
    run(folder, "generate rules --profile acl --count 200 --seed 9 --output r.rules", 0);
    run(
        folder,
        &format!("generate pcap --rules r.rules --count {packets} --size 300 --miss 0.1 --output t.pcap"),
        0,
    );
    fs::read(folder.join("t.pcap")).unwrap()
}

/// Truncates the packets of a capture to a snap length.
fn cut(pcap: &[u8], snap_len: usize) -> Vec<u8> {
    let (mut out, mut at) = (pcap[..24].to_vec(), 24);
    while at < pcap.len() {
        let captured = u32::from_le_bytes(*pcap[at + 8..].first_chunk().unwrap()) as usize;
        let kept = captured.min(snap_len);
        out.extend(&pcap[at..at + 8]);
        out.extend((kept as u32).to_le_bytes());
        out.extend(&pcap[at + 12..at + 16 + kept]);
        at += 16 + captured;
    }
    out
}

fn classified(folder: &Path, options: &str) -> (String, String) {
    let (_, message) = run(folder, &format!("classify --rules r.rules --trace {options} --output v.csv"), 0);
    (fs::read_to_string(folder.join("v.csv")).unwrap(), message)
}

#[test]
fn truncated_packets_get_the_verdicts_of_complete_ones() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let pcap = inputs(at, 2000);
    let (whole, message) = classified(at, "t.pcap");
    assert!(whole.lines().filter(|line| !line.ends_with(",,,")).count() > 1500);
    assert!(message.contains("| truncated headers "), "{message}");
    let counts = |options: &str| {
        let (json, _) = run(at, &format!("classify --rules r.rules --trace {options} --json"), 0);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        ["malformed", "cut"].map(|name| json["summary"][name].as_u64().unwrap())
    };
    for snap_len in [96, 64, 54] {
        fs::write(at.join("cut.pcap"), cut(&pcap, snap_len)).unwrap();
        assert_eq!(classified(at, "cut.pcap").0, whole, "{snap_len}");
        assert_eq!(counts("cut.pcap"), [0, 0], "{snap_len}");
    }
    // Within the ports of TCP and UDP.
    fs::write(at.join("cut.pcap"), cut(&pcap, 37)).unwrap();
    let [malformed, cut] = counts("cut.pcap");
    assert!(malformed == 0 && cut > 1000, "{cut}");
}

#[test]
fn verdicts_do_not_depend_on_the_number_of_threads() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let pcap = inputs(at, 8000);
    let (one, _) = classified(at, "t.pcap --threads 1");
    let numbers: Vec<&str> = one.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert!(numbers.len() == 8000 && numbers.iter().enumerate().all(|(i, n)| *n == i.to_string()));
    for threads in [2, 5] {
        assert_eq!(classified(at, &format!("t.pcap --threads {threads}")).0, one);
    }
    let packed = fs::File::create(at.join("t.pcap.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &pcap).unwrap();
    packed.finish().unwrap();
    fs::write(at.join("t.pcap.zst"), ruzstd::encoding::compress_to_vec(&pcap[..], Fastest)).unwrap();
    assert_eq!(classified(at, "t.pcap.gz").0, one);
    assert_eq!(classified(at, "t.pcap.zst").0, one);
    let (json, _) = run(at, "classify --rules r.rules --trace t.pcap --threads 3 --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let verdicts = json["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 8000);
    for (line, verdict) in one.lines().skip(1).zip(verdicts) {
        let text = |name: &str| verdict[name].as_u64().map(|n| n.to_string()).unwrap_or_default();
        assert_eq!(line, format!("{},{},{},", text("packet"), text("rule"), text("priority")));
    }
}

#[test]
fn damaged_captures_are_classified_up_to_the_damage() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let pcap = inputs(at, 5000);
    let (whole, _) = classified(at, "t.pcap");
    fs::write(at.join("half.pcap"), &pcap[..pcap.len() / 2]).unwrap();
    let message = run(at, "classify --rules r.rules --trace half.pcap --output half.csv", 2).1;
    let half = fs::read_to_string(at.join("half.csv")).unwrap();
    assert!(half.lines().count() > 2400 && whole.starts_with(&half));
    assert!(message.contains("half.pcap: the file ends within record"), "{message}");
    // The length is not trusted; a file that is damaged from the first packet on is rejected.
    let mut damaged = pcap.clone();
    let record = 16 + 300;
    damaged[24 + 3000 * record + 8..][..4].fill(0xff);
    fs::write(at.join("damaged.pcap"), &damaged).unwrap();
    let (json, message) = run(at, "classify --rules r.rules --trace damaged.pcap --json", 2);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["summary"]["packets"], 3000);
    let damage = json["summary"]["damage"].as_str().unwrap();
    assert!(damage.starts_with(&format!("record 3000 (byte {})", 24 + 3000 * record)), "{damage}");
    assert!(message.contains(damage), "{message}");
    let explain =
        |packet| run(at, &format!("classify --rules r.rules --trace damaged.pcap --explain {packet}"), 2);
    let (explained, message) = explain(17);
    assert!(explained.contains("explain") && message.contains(damage), "{explained}{message}");
    let (_, message) = explain(3000);
    assert!(message.contains("packet 3000 does not exist") && message.contains(damage), "{message}");
    damaged[24 + 8..][..4].fill(0xff);
    fs::write(at.join("damaged.pcap"), &damaged).unwrap();
    let (_, error) = run(at, "classify --rules r.rules --trace damaged.pcap --output none.csv", 2);
    assert!(error.contains("damaged.pcap: record 0 (byte 24)") && !at.join("none.csv").exists(), "{error}");
}
