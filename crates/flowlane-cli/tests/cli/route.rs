//! Tests of `flowlane route`.

use std::process::Command;
use std::{fs, io};

use crate::support::{data, flowlane, run};
use flowlane::generate::Random;
use serde_json::Value;
use tempfile::tempdir;

const PRINTED: &str = "\
default via 192.0.2.1 dev eth0
10.0.0.0/8 proto static
\tnexthop via 192.0.2.3 dev eth0 weight 1
\tnexthop via 192.0.2.4 dev eth0 weight 3
blackhole 203.0.113.0/24
2001:db8::/32 via fe80::1 dev eth1
";

#[test]
fn lookup_prints_prefix_next_hop_and_engine() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.txt"), PRINTED).unwrap();
    let (out, _) = run(at, "route lookup --routes r.txt 10.1.2.3 203.0.113.9 2001:db8::1 2002::", 0);
    let cells = |line: &str| line.split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = out.lines().filter(|l| l.starts_with('|')).skip(2).map(cells).collect();
    assert_eq!(rows[0][1..3], ["10.1.2.3", "10.0.0.0/8"]);
    assert_eq!(rows[0][4], "group of 192.0.2.3 dev eth0 weight 1, 192.0.2.4 dev eth0 weight 3");
    assert_eq!((rows[1][2].as_str(), rows[1][4].as_str()), ("203.0.113.0/24", "blackhole"));
    assert_eq!((rows[2][2].as_str(), rows[2][4].as_str()), ("2001:db8::/32", "fe80::1 dev eth1"));
    assert_eq!((rows[3][2].as_str(), rows[3][3].as_str()), ("no route", "0"));
}

#[test]
fn all_engines_and_variants_agree() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.txt"), "10.0.0.0/8 7\n10.1.0.0/16 8\n10.1.1.128/25 9\n2001:db8::/32 3\n::/0 4\n")
        .unwrap();
    fs::write(at.join("a.txt"), "10.1.1.200\n10.1.1.1 # inside\n10.9.9.9\n\n11.0.0.0\n2001:db8::5\n::1\n")
        .unwrap();
    let expected = "address,prefix,next_hop,via\n10.1.1.200,10.1.1.128/25,9,\n10.1.1.1,10.1.0.0/16,8,\n\
                    10.9.9.9,10.0.0.0/8,7,\n11.0.0.0,,99,\n2001:db8::5,2001:db8::/32,3,\n::1,::/0,4,\n";
    let ask = "route lookup --routes r.txt --addresses a.txt --default-next-hop 99 --output o.csv";
    for engine in ["auto", "compact"] {
        for hop_size in [1, 2, 4, 8] {
            let (_, err) = run(at, &format!("{ask} --engine {engine} --hop-size {hop_size}"), 0);
            assert!(err.contains("IPv4") && err.contains("differences from the routes"), "{err}");
            assert_eq!(fs::read_to_string(at.join("o.csv")).unwrap(), expected);
        }
    }
    for (engine, address, next_hop) in [("dir24", "10.1.1.200", 9), ("compact", "2001:db8::5", 3)] {
        let ask = format!("route lookup --routes r.txt --engine {engine} --variant scalar --json {address}");
        let answer: Value = serde_json::from_str(&run(at, &ask, 0).0).unwrap();
        assert_eq!(answer["tables"][0]["engine"], engine);
        assert_eq!(answer["tables"][0]["variant"], "scalar");
        assert_eq!(answer["answers"][0]["next_hop"], next_hop);
    }
}

#[test]
fn show_prints_prefix_lengths_engines_and_next_hops() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.txt"), PRINTED).unwrap();
    let (out, _) = run(at, "route show --routes r.txt", 0);
    for part in ["IPv4: 3 routes", "IPv6: 1 routes", "/24", "dir24", "compact", "next hops: 4", "blackhole"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let shown: Value = serde_json::from_str(&run(at, "route show --routes r.txt --json", 0).0).unwrap();
    assert_eq!(shown["format"], "ip-route");
    assert_eq!(shown["families"][0]["routes"], 3);
    assert_eq!(shown["families"][0]["engines"].as_array().unwrap().len(), 2);
    let (out, _) = run(at, "route show --routes r.txt --subtree 10.0.0.0/7", 0);
    let group = "group of 192.0.2.3 dev eth0 weight 1, 192.0.2.4 dev eth0 weight 3";
    assert_eq!(out, format!("0.0.0.0/0 192.0.2.1 dev eth0\n10.0.0.0/8 {group}\n"));
}

#[test]
fn bench_measures_every_engine_and_replays_updates() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.txt"), "10.0.0.0/8 7\n10.1.0.0/16 8\n10.1.1.128/25 9\n2001:db8::/32 3\n").unwrap();
    fs::write(
        at.join("u.txt"),
        "1 w 10.1.0.0/16 0.0.0.0\n2 a 10.2.0.0/16 192.0.2.1\n3 a 10.1.0.0/16 192.0.2.2\n",
    )
    .unwrap();
    let ask = "route bench --routes r.txt --updates u.txt --count 500 --seconds 0.05 --miss 0.05 --locality zipf:1.0";
    let rows: Value = serde_json::from_str(&run(at, &format!("{ask} --json"), 0).0).unwrap();
    let rows = rows.as_array().unwrap();
    for engine in ["dir24", "compact"] {
        let row = rows.iter().find(|r| r["engine"] == engine && r["variant"] == "scalar").unwrap();
        assert!(row["millions_per_second"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["table_bytes"].as_u64().unwrap() > 0, "{row}");
    }
    let v4 = rows.iter().find(|r| r["family"] == "IPv4").unwrap();
    assert_eq!(v4["updates"]["applied"], 3);
    let (out, _) = run(at, &format!("{ask} --engine compact --variant scalar"), 0);
    assert!(out.contains("IPv6") && !out.contains("dir24"), "{out}");
}

#[test]
fn mrt_dumps_are_read_and_damaged_ones_rejected() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("rib.mrt"), dump()).unwrap();
    let (out, _) = run(at, "route show --routes rib.mrt --subtree 0.0.0.0/0", 0);
    // Two peers announce the prefix; the second with the shorter path.
    assert_eq!(out, "10.0.0.0/8 192.0.2.2\n");
    let (out, _) = run(at, "route lookup --routes rib.mrt --json 10.1.2.3", 0);
    assert!(out.contains("\"via\": \"192.0.2.2\""), "{out}");
    let mut cut = dump();
    cut.truncate(cut.len() - 5);
    fs::write(at.join("cut.mrt"), cut).unwrap();
    let (_, err) = run(at, "route show --routes cut.mrt", 2);
    assert!(err.contains("cut.mrt: record 2") && err.contains("TABLE_DUMP_V2"), "{err}");
    // Truncated anywhere, or with any byte changed, the dump is read or rejected. (Listing builds no forwarding tables.)
    let whole = dump();
    for at_byte in 0..whole.len() {
        let (cut, mut other) = (whole[..at_byte].to_vec(), whole.clone());
        other[at_byte] ^= 0xff;
        for bytes in [cut, other] {
            fs::write(at.join("harmed.mrt"), bytes).unwrap();
            let output = flowlane()
                .current_dir(at)
                .args(["route", "show", "--routes", "harmed.mrt", "--subtree", "0.0.0.0/0"])
                .output()
                .unwrap();
            let (code, err) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
            assert!([Some(0), Some(2)].contains(&code), "byte {at_byte}: {code:?} {err}");
        }
    }
}

#[test]
fn all_mrt_table_types_are_read_and_others_rejected() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let shown = |records: &[Vec<u8>], family: &str, code| {
        fs::write(at.join("rib.mrt"), records.concat()).unwrap();
        run(at, &format!("route show --routes rib.mrt --subtree {family}"), code)
    };
    let (far, near) = (
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
    );
    let prefix = [32, 0x20, 1, 0xd, 0xb8];
    // A next hop alone, with a link-local address; and as in an UPDATE message, with family and prefixes.
    let alone = [&[0x80, 14, 33, 32][..], &near, &far].concat();
    let as_in_a_message = [&[0x90, 14, 0, 21, 0, 2, 1, 16][..], &near, &[0]].concat();
    for next_hop in [alone, as_in_a_message] {
        let (out, _) = shown(&[index(), rib(4, &prefix, &[entry(&[], 1, &next_hop)])], "::/0", 0);
        assert_eq!(out, "2001:db8::/32 2001:db8::9\n");
    }
    // Without a next hop, the peer is the next hop.
    let ten = [8, 10];
    let (out, _) = shown(&[index(), rib(2, &ten, &[entry(&[], 2, &[])])], "0.0.0.0/0", 0);
    assert_eq!(out, "10.0.0.0/8 192.0.2.2\n");
    // A set of five counts as one, a confederation as zero.
    let set = [&[0x40, 2, 22, 1, 5][..], &[0; 20]].concat();
    let confederation = [&[0x40, 2, 22, 3, 5][..], &[0; 20]].concat();
    for short in [set, confederation] {
        let two = [0x40, 2, 10, 2, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        let entries = [entry(&[], 1, &two), entry(&[], 2, &short)];
        assert_eq!(shown(&[index(), rib(2, &ten, &entries)], "0.0.0.0/0", 0).0, "10.0.0.0/8 192.0.2.2\n");
    }
    // Additional paths (RFC 8050), and a multicast table, which is skipped.
    let paths = [entry(&[0, 0, 0, 7], 1, &[]), entry(&[0, 0, 0, 8], 2, &[])];
    let (out, _) =
        shown(&[index(), rib(3, &[8, 11], &[entry(&[], 1, &[])]), rib(8, &ten, &paths)], "0.0.0.0/0", 0);
    assert_eq!(out, "10.0.0.0/8 192.0.2.1\n");
    // The older TABLE_DUMP has AS numbers of two bytes.
    let mut old = vec![0, 0, 0, 1, 10, 0, 0, 0, 8, 1, 0, 0, 0, 0, 192, 0, 2, 7, 0xfd, 1, 0, 7];
    old.extend([0x40, 2, 4, 2, 1, 0xfd, 1]);
    assert_eq!(shown(&[record(12, 1, &old)], "0.0.0.0/0", 0).0, "10.0.0.0/8 192.0.2.7\n");
    for (records, what) in [
        (vec![index(), rib(2, &[33, 10, 0, 0, 0, 0], &[])], "record 2: prefix length 33 exceeds"),
        (vec![index(), rib(4, &[255; 40], &[])], "record 2: prefix length 255 exceeds"),
        (vec![index(), record(13, 99, &[])], "record 2: type 13, subtype 99"),
        (vec![index(), record(16, 4, &[])], "record 2: type 16"),
        (vec![index(), rib(2, &ten, &[entry(&[], 1, &[0x40, 2, 9, 2])])], "9 bytes expected, 1 left"),
    ] {
        let (_, err) = shown(&records, "0.0.0.0/0", 2);
        assert!(err.contains(what), "{what}: {err}");
    }
}

/// A TABLE_DUMP_V2 file with random announcements of random prefixes by two peers: sequences, sets and confederations.
fn random_dump(random: &mut Random) -> Vec<u8> {
    let mut records = vec![index()];
    for _ in 0..200 {
        let is_v6 = random.chance(0.3);
        let len = random.below(if is_v6 { 65 } else { 33 }) as u8;
        let mut prefix = vec![len];
        prefix.extend((0..len.div_ceil(8)).map(|_| random.bits() as u8));
        if let (Some(last), bits @ 1..) = (prefix.last_mut(), len % 8) {
            *last &= 0xff << (8 - bits);
        }
        let announced = |random: &mut Random| {
            let mut path = Vec::new();
            for _ in 0..random.below(4) {
                let numbers = 1 + random.below(4) as u8;
                path.extend([[2, 2, 2, 1, 3][random.index(5)], numbers]);
                (0..numbers).for_each(|_| path.extend((random.bits() as u32).to_be_bytes()));
            }
            let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, path.len() as u8];
            attributes.extend(path);
            let neighbour = random.below(200) as u8;
            match is_v6 {
                true => attributes
                    .extend([&[0x80, 14, 17, 16, 0x20, 1, 0xd, 0xb8][..], &[0; 11], &[neighbour]].concat()),
                false => attributes.extend([0x40, 3, 4, 192, 0, 2, neighbour]),
            }
            entry(&[], 1 + random.below(2) as u8, &attributes)
        };
        let entries: Vec<Vec<u8>> = (0..1 + random.below(3)).map(|_| announced(random)).collect();
        records.push(rib(if is_v6 { 4 } else { 2 }, &prefix, &entries));
    }
    records.concat()
}

#[test]
fn mrt_dumps_hold_the_routes_that_bgpdump_prints() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    for seed in 0..5 {
        fs::write(at.join("rib.mrt"), random_dump(&mut Random::new(seed))).unwrap();
        let printed = Command::new("bgpdump").current_dir(at).args(["-m", "rib.mrt"]).output();
        let Ok(printed) = printed.inspect_err(|e| assert_eq!(e.kind(), io::ErrorKind::NotFound, "{e}"))
        else {
            println!("skipped: bgpdump is not installed");
            return;
        };
        fs::write(at.join("rib.txt"), &printed.stdout).unwrap();
        for family in ["0.0.0.0/0", "::/0"] {
            let [ours, theirs] = ["rib.mrt", "rib.txt"]
                .map(|file| run(at, &format!("route show --routes {file} --subtree {family}"), 0).0);
            assert_eq!(ours, theirs, "seed {seed}");
            assert!(ours.lines().count() > 30, "seed {seed}: {ours}");
        }
    }
}

/// Builds a record of an MRT file (RFC 6396, 2).
fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x65, 0, 0, 0];
    out.extend(kind.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
    out
}

/// Builds an index of the peers 192.0.2.1 and 192.0.2.2 (RFC 6396, 4.3.1), with 4-byte AS numbers.
fn index() -> Vec<u8> {
    let mut index = vec![192, 0, 2, 254, 0, 0, 0, 2];
    for peer in [1u8, 2] {
        index.extend([2, 192, 0, 2, peer, 192, 0, 2, peer, 0, 0, 0xfd, peer]);
    }
    record(13, 1, &index)
}

/// Builds the record of a prefix (length and bytes) with its announcements (RFC 6396, 4.3.2).
fn rib(subtype: u16, prefix: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
    record(13, subtype, &[&[0; 4], prefix, &[0, entries.len() as u8], &entries.concat()].concat())
}

/// Builds a peer's announcement: path ID if present, and attributes.
fn entry(path: &[u8], peer: u8, attributes: &[u8]) -> Vec<u8> {
    [&[0, peer - 1, 0x65, 0, 0, 0], path, &[0, attributes.len() as u8], attributes].concat()
}

/// A TABLE_DUMP_V2 file: two peers, which both announce 10.0.0.0/8.
fn dump() -> Vec<u8> {
    let announced = |peer: u8, path: &[u8]| {
        // ORIGIN igp; AS_PATH of one sequence; NEXT_HOP.
        let mut attributes = vec![0x40, 1, 1, 0];
        attributes.extend([0x40, 2, 2 + 4 * path.len() as u8, 2, path.len() as u8]);
        path.iter().for_each(|number| attributes.extend([0, 0, 0xfd, *number]));
        attributes.extend([0x40, 3, 4, 192, 0, 2, peer]);
        entry(&[], peer, &attributes)
    };
    [index(), rib(2, &[8, 10], &[announced(1, &[1, 7, 9]), announced(2, &[2, 9])])].concat()
}

#[test]
fn errors_name_the_place_and_the_fix() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("good.txt"), "10.0.0.0/8 7\n").unwrap();
    fs::write(at.join("large.txt"), "10.0.0.0/8 300\n").unwrap();
    fs::write(at.join("bad.txt"), "10.0.0.0/8 7\n10.0.0.0/33 8\n").unwrap();
    fs::write(at.join("bad-addresses.txt"), "10.0.0.1\n10.0.0\n").unwrap();
    fs::write(at.join("packed.bz2"), "BZh91AY").unwrap();
    // The header of a record of MRT: BGP4MP, a state change.
    fs::write(at.join("updates.mrt"), b"\x65\x53\xf1\0\0\x10\0\0\0\0\0\0").unwrap();
    fs::write(at.join("utf16.txt"), b"\xff\xfe1\x000\x00").unwrap();
    fs::write(at.join("table77.txt"), "default via 192.0.2.66 dev eth3 \n").unwrap();
    fs::write(at.join("route-n.txt"), "Kernel IP routing table\nDestination Gateway Genmask\n").unwrap();
    let cases = [
        ("route show --routes updates.mrt", 2, ["MRT file of BGP updates", "bgpdump -m"]),
        (
            "route show --routes updates.mrt --routes-format mrt",
            2,
            ["record 1: type 16", "MRT file of BGP updates"],
        ),
        ("route bench --routes good.txt --updates updates.mrt", 2, ["MRT file of BGP updates", "bgpdump -m"]),
        ("route show --routes utf16.txt", 2, ["UTF-16", "iconv"]),
        (
            "route lookup --routes table77.txt --table 77 1.1.1.1",
            2,
            ["table77.txt:1:1", "no route is of table `77`"],
        ),
        ("route lookup --routes good.txt --table 77 1.1.1.1", 2, ["--table 77", "leave out --table"]),
        ("route show --routes route-n.txt", 2, ["`netstat -r`", "`ip route show`"]),
        ("route lookup --routes bad.txt 10.0.0.1", 2, ["bad.txt:2:10", "0 to 32"]),
        ("route lookup --routes none.txt 10.0.0.1", 2, ["none.txt", "read"]),
        ("route lookup --routes good.txt", 2, ["no address to look up", "--addresses FILE"]),
        (
            "route lookup --routes good.txt --addresses bad-addresses.txt",
            2,
            ["bad-addresses.txt:2", "one address a line"],
        ),
        ("route lookup --routes good.txt --engine dir24 2001:db8::1", 2, ["no IPv6 tables", "compact"]),
        (
            "route lookup --routes good.txt --engine dir24 --memory-max 1M 10.0.0.1",
            2,
            ["bytes", "--memory-max"],
        ),
        ("route lookup --routes large.txt --hop-size 1 10.0.0.1", 2, ["300", "--hop-size"]),
        ("route lookup --routes good.txt --routes-max 0 10.0.0.1", 2, ["more than 0 routes", "limit"]),
        ("route show --routes packed.bz2", 2, ["compressed by bzip2", "bunzip2"]),
        ("route show --routes good.txt --subtree 10.0.0.1/8", 2, ["bits set behind", "10.0.0.0/8"]),
        ("route bench --routes good.txt --seconds 0", 2, ["--seconds", "positive"]),
        ("route bench --routes good.txt --miss 2", 2, ["--miss", "0 to 1"]),
        (
            "--max-simd 64 route lookup --routes good.txt --variant avx2 10.0.0.1",
            3,
            ["avx2", "cannot be used"],
        ),
    ];
    for (arguments, code, parts) in cases {
        let (_, err) = run(at, arguments, code);
        // The renderer wraps long lines.
        let plain: String =
            err.split_whitespace().filter(|w| !["│", "×", "help:"].contains(w)).collect::<Vec<_>>().join(" ");
        assert!(parts.iter().all(|part| plain.contains(part)), "{arguments}: {plain}");
    }
}

#[test]
fn help_has_examples() {
    for verb in ["lookup", "show", "bench"] {
        let output = flowlane().args(["route", verb, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Examples:") && text.contains(&format!("flowlane route {verb}")), "{text}");
    }
}

#[test]
fn a_full_ipv6_table_is_looked_up() {
    let Some(folder) = data("fib") else { return };
    let at = tempdir().unwrap();
    let table = folder.join("linx-rib-ipv6.20141225.txt.gz");
    let ask = format!("route lookup --routes {} 2600:2004::1 2600:2003::1", table.display());
    let (out, _) = run(at.path(), &ask, 0);
    assert!(out.contains("2600:2004::/32") && out.contains("2001:7f8:4::1a0b:1"), "{out}");
}
