//! `flowlane classify` on captures: pieces, threads, what was cut and what is damaged.

use std::fs;
use std::path::Path;

use crate::support::run;
use ruzstd::encoding::CompressionLevel::Fastest;
use tempfile::tempdir;

/// Rules with ports and a capture of so many packets for them, in `folder`.
fn inputs(folder: &Path, packets: u32) -> Vec<u8> {
    run(folder, "generate rules --profile acl --count 200 --seed 9 --output r.rules", 0);
    run(
        folder,
        &format!("generate pcap --rules r.rules --count {packets} --size 300 --miss 0.1 --output t.pcap"),
        0,
    );
    fs::read(folder.join("t.pcap")).unwrap()
}

/// The same packets as a capture with a snap length has them.
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
    let (_, said) = run(folder, &format!("classify --rules r.rules --trace {options} --output v.csv"), 0);
    (fs::read_to_string(folder.join("v.csv")).unwrap(), said)
}

#[test]
fn packets_that_a_snap_length_cut_have_the_verdicts_of_whole_ones() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let pcap = inputs(at, 2000);
    let (whole, said) = classified(at, "t.pcap");
    assert!(whole.lines().filter(|line| !line.ends_with(",,,")).count() > 1500);
    assert!(said.contains("| cut within headers    |"), "{said}");
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
    // Within the ports, of TCP and UDP.
    fs::write(at.join("cut.pcap"), cut(&pcap, 37)).unwrap();
    let [malformed, cut] = counts("cut.pcap");
    assert!(malformed == 0 && cut > 1000, "{cut}");
}

#[test]
fn verdicts_are_the_same_however_many_threads_there_are() {
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
fn of_a_damaged_capture_all_before_the_damage_is_classified() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let pcap = inputs(at, 5000);
    let (whole, _) = classified(at, "t.pcap");
    fs::write(at.join("half.pcap"), &pcap[..pcap.len() / 2]).unwrap();
    let (half, said) = classified(at, "half.pcap");
    assert!(half.lines().count() > 2400 && whole.starts_with(&half));
    assert!(said.contains("warning: half.pcap: the file ends within record"), "{said}");
    // Its length is not believed; one that is damaged from the first packet on is none.
    let mut damaged = pcap.clone();
    let record = 16 + 300;
    damaged[24 + 3000 * record + 8..][..4].fill(0xff);
    fs::write(at.join("damaged.pcap"), &damaged).unwrap();
    let (json, said) = run(at, "classify --rules r.rules --trace damaged.pcap --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["summary"]["packets"], 3000);
    let damage = json["summary"]["damage"].as_str().unwrap();
    assert!(damage.starts_with(&format!("record 3000 (byte {})", 24 + 3000 * record)), "{damage}");
    assert!(said.contains(damage), "{said}");
    damaged[24 + 8..][..4].fill(0xff);
    fs::write(at.join("damaged.pcap"), &damaged).unwrap();
    let (_, error) = run(at, "classify --rules r.rules --trace damaged.pcap --output none.csv", 2);
    assert!(error.contains("damaged.pcap: record 0 (byte 24)") && !at.join("none.csv").exists(), "{error}");
}
