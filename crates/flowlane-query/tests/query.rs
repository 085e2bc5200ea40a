//! Queries, compared with plain loops over the same packets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use flowlane::generate::{Random, build_frame};
use flowlane::packet::{Field, FlowKey, parse};
use flowlane::rule::{ReadOptions, Rule, read};
use flowlane_capture::{CaptureWriter, FileFormat};
use flowlane_query::{Format, Options, QueryError, Session, write};

const RULES: &str = "\
priority=40,tcp,nw_dst=10.0.0.0/9,tp_dst=80,actions=output:1
priority=30,udp,tp_dst=53,actions=set_field:1->reg0,output:2
priority=20,ip,nw_src=10.0.0.0/12,actions=drop
priority=10,tcp6,actions=output:3
";

/// A packet with its key and capture time.
struct Packet {
    frame: Vec<u8>,
    key: FlowKey,
    time: u64,
}

/// Generates packets that match every rule, and some that match none.
fn packets(seed: u64, count: usize) -> Vec<Packet> {
    let mut random = Random::new(seed);
    let packet = |i: usize| {
        let mut wanted = FlowKey::zero();
        let is_v6 = random.chance(0.2);
        wanted.set(Field::EthType, if is_v6 { 0x86dd } else { 0x0800 });
        wanted.set(Field::NwProto, if random.chance(0.5) { 6 } else { 17 });
        wanted.set(Field::TpDst, [53, 80, 443][random.index(3)]);
        wanted.set(Field::TpSrc, 1024 + u128::from(random.below(5)));
        match is_v6 {
            true => wanted.set(Field::Ipv6Dst, 0x2001_0db8 << 96 | u128::from(random.below(3))),
            false => {
                wanted.set(Field::Ipv4Src, 0x0a00_0000 | u128::from(random.below(1 << 24)));
                wanted.set(Field::Ipv4Dst, 0x0a00_0000 | u128::from(random.below(1 << 24)));
            }
        }
        let mut frame = Vec::new();
        build_frame(&wanted, 60 + random.index(1000), &mut frame);
        let mut key = FlowKey::zero();
        parse(&frame, 1, &mut key);
        Packet { frame, key, time: 1_700_000_000_000_000_000 + 1_000_000_000 * i as u64 }
    };
    (0..count).map(packet).collect()
}

fn save(path: &Path, packets: &[Packet], format: FileFormat) {
    let mut writer = CaptureWriter::new(File::create(path).unwrap(), format).unwrap();
    for packet in packets {
        writer.write(packet.time, &packet.frame).unwrap();
    }
    writer.finish().unwrap();
}

/// Creates a directory with captures and rules; returns it with all packets.
fn archive() -> (tempfile::TempDir, Vec<Packet>) {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    std::fs::create_dir(folder.path().join("more")).unwrap();
    let names = ["a.pcap", "b.pcapng", "more/c.pcap"];
    for (seed, name) in (1..).zip(names) {
        let own = packets(seed, 3000 * seed as usize);
        let format = if name.ends_with("ng") { FileFormat::Pcapng } else { FileFormat::Pcap };
        save(&folder.path().join(name), &own, format);
        all.extend(own);
    }
    std::fs::write(folder.path().join("rules.flows"), RULES).unwrap();
    std::fs::write(folder.path().join("routes.txt"), "10.0.0.0/8 1\n10.128.0.0/9 2\n2001:db8::2/128 7\n")
        .unwrap();
    (folder, all)
}

fn rules() -> Vec<Rule> {
    read(RULES, "rules", None, &ReadOptions::default()).unwrap()
}

/// Returns the first matching rule of the highest priority.
fn winner(rules: &[Rule], key: &FlowKey) -> Option<usize> {
    (0..rules.len())
        .filter(|i| rules[*i].matches.matches(key))
        .min_by_key(|i| std::cmp::Reverse(rules[*i].priority))
}

fn session(threads: usize) -> Session {
    let mut options = Options::default();
    options.threads = NonZeroUsize::new(threads);
    Session::new(&options).unwrap()
}

/// Returns the result as CSV lines without the header; `{}` in the query is the directory.
fn ask_with(threads: usize, folder: &Path, sql: &str) -> Result<Vec<String>, QueryError> {
    let session = session(threads);
    session.packets(&[folder.display().to_string()])?;
    let answer = session.query(&sql.replace("{}", &folder.display().to_string()))?;
    let mut text = Vec::new();
    write(&answer.schema(), answer, Format::Csv, None, &mut text)?;
    Ok(String::from_utf8(text).unwrap().lines().skip(1).map(str::to_owned).collect())
}

fn ask(folder: &Path, sql: &str) -> Vec<String> {
    let one = ask_with(1, folder, sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let four = ask_with(4, folder, sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!(one, four, "{sql}");
    one
}

fn refused(folder: &Path, sql: &str) -> String {
    ask_with(2, folder, sql).expect_err(sql).to_string()
}

/// Counts packets by kind.
fn counts<K: Ord>(packets: &[Packet], kind: impl Fn(&Packet) -> K) -> BTreeMap<K, usize> {
    packets.iter().fold(BTreeMap::new(), |mut counts, packet| {
        *counts.entry(kind(packet)).or_default() += 1;
        counts
    })
}

#[test]
fn rule_functions_agree_with_linear_search() {
    let (folder, all) = archive();
    let rules = rules();
    let by_rule = counts(&all, |packet| winner(&rules, &packet.key));
    assert_eq!(by_rule.len(), 5, "every rule wins, and some packets match none");
    let wanted: Vec<String> = by_rule
        .iter()
        .map(|(rule, n)| match rule {
            Some(rule) => format!("{rule},{},{n}", rules[*rule].priority.0),
            None => format!(",,{n}"),
        })
        .collect();
    let sql = "SELECT matches('{}/rules.flows') AS rule, priority('{}/rules.flows'), count(*) FROM packets \
               GROUP BY 1, 2 ORDER BY 1 NULLS FIRST";
    assert_eq!(ask(folder.path(), sql), wanted);
    let sql = "SELECT action('{}/rules.flows') AS a, count(*) FROM packets WHERE matches('{}/rules.flows') <= 1 \
               GROUP BY 1 ORDER BY 2";
    let mut wanted =
        [(by_rule[&Some(0)], "output:1,"), (by_rule[&Some(1)], "\"set_field:0x1->reg0,output:2\",")];
    wanted.sort();
    let wanted: Vec<String> = wanted.iter().map(|(n, action)| format!("{action}{n}")).collect();
    assert_eq!(ask(folder.path(), sql), wanted);
}

#[test]
fn flow_agrees_with_a_rule_of_the_same_match() {
    let (folder, all) = archive();
    for text in [
        "tcp,tp_dst=80",
        "ip,nw_src=10.0.0.0/12",
        "ipv6,ipv6_dst=2001:db8::1",
        "udp6",
        "in_port=1",
        "in_port=2",
        "",
    ] {
        let rule = read(&format!("{text},actions=drop"), "rule", None, &ReadOptions::default()).unwrap();
        let wanted = all.iter().filter(|packet| rule[0].matches.matches(&packet.key)).count();
        let sql = format!("SELECT count(*) FROM packets WHERE flow('{text}')");
        assert_eq!(ask(folder.path(), &sql), [wanted.to_string()], "{text}");
    }
}

#[test]
fn time_and_length_conditions_are_evaluated_before_parsing() {
    let (folder, all) = archive();
    let second = |n: u64| 1_700_000_000_000_000_000 + n * 1_000_000_000;
    type Holds<'a> = &'a dyn Fn(&Packet) -> bool;
    let conditions: [(&str, Holds<'_>); 5] = [
        ("time >= '2023-11-14T22:13:30Z'", &|p| p.time >= second(10)),
        ("time BETWEEN '2023-11-14T22:13:30Z' AND '2023-11-14T22:14:00Z'", &|p| {
            (second(10)..=second(40)).contains(&p.time)
        }),
        ("200 > length AND tp_dst = 53", &|p| p.frame.len() < 200 && p.key.get(Field::TpDst) == 53),
        ("captured = 100 OR length = 200", &|p| [100, 200].contains(&p.frame.len())),
        ("length > 100 AND length <= 500 AND length <> 300", &|p| {
            let len = p.frame.len();
            len > 100 && len <= 500 && len != 300
        }),
    ];
    for (condition, holds) in conditions {
        let wanted = all.iter().filter(|packet| holds(packet)).count();
        assert!(wanted > 0, "{condition}");
        let sql = format!("SELECT count(*) FROM packets WHERE {condition}");
        assert_eq!(ask(folder.path(), &sql), [wanted.to_string()], "{condition}");
    }
    let plan = ask(folder.path(), "EXPLAIN SELECT tp_dst FROM packets WHERE length < 100").join("\n");
    assert!(plan.contains("CaptureScan: files=3, columns=[tp_dst], length <= 99"), "{plan}");
    assert!(!plan.contains("FilterExec"), "{plan}");
}

#[test]
fn addresses_are_text_in_output_and_conditions() {
    let (folder, all) = archive();
    let key = &all.iter().find(|packet| packet.key.get(Field::EthType) == 0x0800).unwrap().key;
    let address = std::net::Ipv4Addr::from(key.get(Field::Ipv4Src) as u32);
    let own = all.iter().filter(|p| p.key.get(Field::Ipv4Src) == key.get(Field::Ipv4Src)).count();
    let sql = format!(
        "SELECT nw_src, address(nw_src), count(*) FROM packets WHERE nw_src = '{address}' GROUP BY 1"
    );
    assert_eq!(ask(folder.path(), &sql), [format!("{address},{address},{own}")]);
    let v6 = all.iter().filter(|p| p.key.get(Field::Ipv6Dst) as u32 == 2).count();
    let sql = "SELECT ipv6_dst, count(*) FROM packets WHERE ipv6_dst IN ('2001:db8::2', '::1') GROUP BY 1";
    assert_eq!(ask(folder.path(), sql), [format!("2001:db8::2,{v6}")]);
    let inside = all.iter().filter(|p| p.key.get(Field::Ipv4Src) as u32 >> 20 == 0x0a0).count();
    let sql = "SELECT count(*) FROM packets WHERE in_prefix(nw_src, '10.0.0.0/12')";
    assert_eq!(ask(folder.path(), sql), [inside.to_string()]);
    let not = refused(folder.path(), "SELECT 1 FROM packets WHERE nw_src = '10.0.0.0/8'");
    assert!(not.contains("`nw_src` is compared with '10.0.0.0/8'") && not.contains("in_prefix"), "{not}");
}

#[test]
fn routes_are_the_longest_prefix() {
    let (folder, all) = archive();
    let hop = |packet: &Packet| match packet.key.get(Field::EthType) {
        0x0800 => Some(1 + (packet.key.get(Field::Ipv4Dst) as u32 >> 23 & 1)),
        _ => None,
    };
    let wanted: Vec<String> = counts(&all, hop)
        .iter()
        .map(|(hop, n)| format!("{},{n}", hop.map_or(String::new(), |hop| hop.to_string())))
        .collect();
    let sql = "SELECT route('{}/routes.txt', nw_dst) AS hop, count(*) FROM packets GROUP BY 1 ORDER BY 1 NULLS FIRST";
    assert_eq!(ask(folder.path(), sql), wanted);
    let seven = all.iter().filter(|p| p.key.get(Field::Ipv6Dst) as u32 == 2).count();
    let sql = "SELECT count(*) FROM packets WHERE route('{}/routes.txt', ipv6_dst) = 7";
    assert_eq!(ask(folder.path(), sql), [seven.to_string()]);
}

#[test]
fn files_directories_and_patterns_are_tables() {
    let (folder, all) = archive();
    let sql = "SELECT substr(file, length(file) - 5) AS f, count(*), min(packet), max(packet) FROM '{}' GROUP BY 1 ORDER BY 1";
    assert_eq!(ask(folder.path(), sql), ["a.pcap,3000,0,2999", "c.pcap,9000,0,8999", "pcapng,6000,0,5999"]);
    assert_eq!(ask(folder.path(), "SELECT count(*) FROM '{}/*.pcap*'"), ["9000"]);
    let both = "SELECT (SELECT count(*) FROM '{}/a.pcap') + (SELECT count(*) FROM packets)";
    assert_eq!(ask(folder.path(), both), [(3000 + all.len()).to_string()]);
    let sql = "SELECT count(*) FROM '{}/a.pcap' x JOIN '{}/a.pcap' y ON x.packet = y.packet";
    assert_eq!(ask(folder.path(), sql), ["3000"]);
    let none = refused(folder.path(), "SELECT count(*) FROM '{}/*.nothing'");
    assert!(none.contains("no captures found"), "{none}");
}

#[test]
fn results_are_written_in_every_format_and_can_be_queried() {
    let (folder, _) = archive();
    let session = session(2);
    session.packets(&[folder.path().display().to_string()]).unwrap();
    let sql = "SELECT packet, time, nw_src, nw_dst, ipv6_dst, dl_dst, tp_dst, nw_proto, dl_type FROM packets";
    let path = folder.path().join("x.parquet");
    let answer = session.query(sql).unwrap();
    let written =
        write(&answer.schema(), answer, Format::Parquet, None, File::create(&path).unwrap()).unwrap();
    assert_eq!((written.rows, written.is_limited), (18_000, false));
    // Rules match written results as they match captures.
    let by_rule = "SELECT matches('{}/rules.flows') AS r, count(*) FROM @ GROUP BY 1 ORDER BY 1 NULLS FIRST";
    let kept = "(SELECT * FROM '{}/x.parquet')";
    assert_eq!(
        ask(folder.path(), &by_rule.replace('@', kept)),
        ask(folder.path(), &by_rule.replace('@', "packets"))
    );

    let of = |format: Format, rows_max: Option<u64>| {
        let answer =
            session.query("SELECT nw_proto, count(*) AS n FROM packets GROUP BY 1 ORDER BY 1").unwrap();
        let mut bytes = Vec::new();
        let written = write(&answer.schema(), answer, format, rows_max, &mut bytes).unwrap();
        (bytes, written)
    };
    let (text, _) = of(Format::Json, None);
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("[{\"nw_proto\":6,\"n\":") && text.trim_end().ends_with("}]"), "{text}");
    let (text, written) = of(Format::NdJson, Some(1));
    assert_eq!(String::from_utf8(text).unwrap().lines().count(), 1);
    assert!(written.is_limited);
    let (text, _) = of(Format::Table, None);
    assert!(String::from_utf8(text).unwrap().contains("| nw_proto | n"));
    let (bytes, _) = of(Format::Arrow, None);
    std::fs::write(folder.path().join("n.arrow"), &bytes).unwrap();
    let kept = "SELECT count(*), sum(n) FROM '{}/n.arrow'";
    assert_eq!(ask(folder.path(), kept), ["2,18000"]);
}

#[test]
fn damaged_captures_yield_the_packets_before_the_damage_and_a_warning() {
    let (folder, _) = archive();
    let whole = std::fs::read(folder.path().join("a.pcap")).unwrap();
    let cut = folder.path().join("more/d.pcap");
    std::fs::write(&cut, &whole[..whole.len() - 10]).unwrap();
    let mut file = File::create(folder.path().join("more/e.pcap")).unwrap();
    file.write_all(b"this is none").unwrap();
    let session = session(2);
    session.packets(&[folder.path().display().to_string()]).unwrap();
    let answer = session.query("SELECT count(*) FROM packets").unwrap();
    let mut text = Vec::new();
    write(&answer.schema(), answer, Format::Csv, None, &mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "count(*)\n20999\n");
    let mut damage = session.progress().take_damage();
    damage.sort();
    assert!(damage[0].contains("d.pcap: the file ends within record 2999"), "{damage:?}");
    assert!(damage[1].contains("e.pcap: not a pcap"), "{damage:?}");
    let named = PathBuf::from(folder.path()).join("more/e.pcap");
    let error = session.packets(&[named.display().to_string()]).unwrap_err().to_string();
    assert!(error.contains("e.pcap: not a pcap"), "{error}");
}

#[test]
fn errors_name_the_cause() {
    let (folder, _) = archive();
    std::fs::write(folder.path().join("bad.flows"), "tcp,tp_dts=80,actions=drop").unwrap();
    for (sql, wanted) in [
        ("SELECT matches('{}/bad.flows') FROM packets", "bad.flows:1:5"),
        ("SELECT matches('{}/none.flows') FROM packets", "none.flows cannot be read: No such file"),
        ("SELECT matches(file) FROM packets", "expected a text in quotes"),
        ("SELECT flow('tcp,tp_dts=80') FROM packets", "tp_dts"),
        ("SELECT matches('{}/rules.flows') FROM (SELECT tp_dst FROM packets)", "missing here: "),
        ("SELECT matches('{}/rules.flows') FROM packets a, packets b", "is ambiguous"),
        ("SELECT route('{}/routes.txt', tp_dst) FROM packets", "UInt16 is not an address type"),
        ("SELECT route(file, nw_dst) FROM packets", "route: expected a text constant"),
        ("SELECT in_prefix(nw_src, '10.0.0.1/8') FROM packets", "in_prefix: `10.0.0.1/8`"),
        ("SELECT nothing FROM packets", "No field named nothing"),
        ("SELEC 1", "SELEC"),
        ("SELECT 1 FROM elsewhere", "elsewhere"),
    ] {
        let said = refused(folder.path(), sql);
        assert!(said.contains(wanted), "{sql}: {said}");
    }
}

#[test]
fn memory_is_bounded_and_larger_sorts_spill() {
    let (folder, all) = archive();
    let mut options = Options::default();
    (options.threads, options.memory_max) = (NonZeroUsize::new(2), 32 << 20);
    let session = Session::new(&options).unwrap();
    session.packets(&[folder.path().display().to_string()]).unwrap();
    let often = "(VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10))";
    let answer = session.query(&format!("SELECT frame FROM packets, {often} ORDER BY frame")).unwrap();
    let (mut rows, mut last) = (0, Vec::new());
    let mut wanted: Vec<Vec<u8>> = all.into_iter().map(|packet| packet.frame).collect();
    wanted.sort();
    for batch in answer {
        let batch = batch.unwrap();
        for frame in batch.column(0).as_binary::<i32>() {
            let frame = frame.unwrap();
            assert!(last.as_slice() <= frame && wanted[rows / 10] == frame, "row {rows}");
            last = frame.to_vec();
            rows += 1;
        }
    }
    assert_eq!(rows, 10 * wanted.len());
}

#[test]
fn rules_of_table_0_classify() {
    let (folder, all) = archive();
    let rules = "table=0,priority=10,tcp,actions=goto_table:1\ntable=1,priority=50,tcp,tp_dst=443,actions=output:9\n\
                 table=1,priority=1,actions=drop\n";
    std::fs::write(folder.path().join("two.flows"), rules).unwrap();
    let is_tcp =
        |packet: &Packet| packet.key.get(Field::NwProto) == 6 && packet.key.get(Field::EthType) == 0x0800;
    let by_rule = counts(&all, is_tcp);
    let sql = "SELECT matches('{}/two.flows') AS r, count(*) FROM packets GROUP BY 1 ORDER BY 1 NULLS FIRST";
    assert_eq!(ask(folder.path(), sql), [format!(",{}", by_rule[&false]), format!("0,{}", by_rule[&true])]);
    std::fs::write(folder.path().join("one.flows"), "table=1,actions=drop\n").unwrap();
    let said = refused(folder.path(), "SELECT matches('{}/one.flows') FROM packets");
    assert!(said.contains("no rules for table 0"), "{said}");
}

#[test]
fn packets_of_unknown_type_match_nothing() {
    let (folder, all) = archive();
    // IPv6 packets have no IPv4 address, and there is no other column for the type.
    let v4 =
        |packet: &&Packet| packet.key.get(Field::EthType) == 0x0800 && packet.key.get(Field::NwProto) == 6;
    let v4 = all.iter().filter(v4).count();
    let of = |inner: &str, flow: &str| format!("SELECT count(*) FROM ({inner}) WHERE flow('{flow}')");
    let inner = "SELECT nw_src, nw_proto FROM packets";
    assert_eq!(ask(folder.path(), &of(inner, "tcp6")), ["0"]);
    assert_eq!(ask(folder.path(), &of(inner, "tcp")), [v4.to_string()]);
    let valid = format!("{inner} WHERE nw_src IS NOT NULL");
    assert_eq!(ask(folder.path(), &of(&valid, "tcp")), [v4.to_string()]);
    let hexadecimal = "SELECT count(*) FROM packets WHERE dl_type = 0x0800 AND nw_proto & 0x06 = 0x06";
    assert_eq!(ask(folder.path(), hexadecimal), [v4.to_string()]);
}

#[test]
fn a_file_given_by_several_names_is_read_once() {
    let (folder, _) = archive();
    std::os::unix::fs::symlink("..", folder.path().join("more/loop")).unwrap();
    assert_eq!(ask(folder.path(), "SELECT count(*) FROM packets"), ["18000"]);
    std::fs::rename(folder.path().join("a.pcap"), folder.path().join("a.pcap1")).unwrap();
    assert_eq!(ask(folder.path(), "SELECT count(*) FROM packets"), ["18000"]);
    assert_eq!(ask(folder.path(), "SELECT count(*) FROM '{}/a.*'"), ["3000"]);
    let session = session(2);
    let name = |of: &str| folder.path().join(of).display().to_string();
    session.packets(&[name("a.pcap1"), name("more/../a.pcap1"), name("")]).unwrap();
    let answer = session.query("SELECT count(*) FROM packets").unwrap();
    let mut text = Vec::new();
    write(&answer.schema(), answer, Format::Csv, None, &mut text).unwrap();
    assert_eq!(text, b"count(*)\n18000\n");
}

#[test]
fn many_small_captures_are_read_together() {
    let folder = tempfile::tempdir().unwrap();
    let all = packets(9, 900);
    for (number, one) in all.chunks(3).enumerate() {
        save(&folder.path().join(format!("{number:03}.pcap")), one, FileFormat::Pcap);
    }
    let by_time = ask(folder.path(), "SELECT right(file, 8), packet FROM packets ORDER BY time");
    let wanted = (0..900).map(|i| format!("{:03}.pcap,{}", i / 3, i % 3));
    assert_eq!(by_time, wanted.collect::<Vec<_>>());
    let last = "SELECT right(file, 8) FROM packets WHERE time >= to_timestamp_nanos(1700000000000000000 + 899000000000)";
    assert_eq!(ask(folder.path(), last), ["299.pcap"]);
    let session = session(1);
    session.packets(&[folder.path().display().to_string()]).unwrap();
    let sizes =
        session.query("SELECT file, packet FROM packets").unwrap().map(|batch| batch.unwrap().num_rows());
    assert_eq!(sizes.collect::<Vec<_>>(), [900], "one batch");
}

#[test]
fn explain_shows_the_rule_files() {
    let (folder, _) = archive();
    let sql = "EXPLAIN SELECT count(*) FROM packets WHERE flow('udp') AND matches('{}/rules.flows') = 1";
    let plan = ask_with(2, folder.path(), sql).unwrap().join("\n");
    assert!(plan.contains("flow('udp')(") && plan.contains("rules.flows')("), "{plan}");
}

#[test]
fn written_results_can_be_queried() {
    let (folder, _) = archive();
    let session = session(2);
    session.packets(&[folder.path().display().to_string()]).unwrap();
    let sql = "SELECT file, packet, tp_dst, action('@/rules.flows') AS a FROM packets ORDER BY file, packet";
    let sql = sql.replace('@', &folder.path().display().to_string());
    let formats = [
        ("x.arrow", Format::Arrow),
        ("y.json", Format::Json),
        ("z.jsonl", Format::NdJson),
        ("U.CSV", Format::Csv),
        ("v[1].parquet", Format::Parquet),
    ];
    for (name, format) in formats {
        let path = folder.path().join(name);
        let answer = session.query(&sql).unwrap();
        write(&answer.schema(), answer, format, None, File::create(&path).unwrap()).unwrap();
        let kept = format!("SELECT count(*), sum(tp_dst), count(a) FROM '{}'", path.display());
        let direct = "SELECT count(*), sum(tp_dst), count(action('{}/rules.flows')) FROM packets";
        assert_eq!(ask(folder.path(), &kept), ask(folder.path(), direct), "{name}");
    }
}

#[test]
fn statements_that_change_data_are_rejected() {
    let (folder, _) = archive();
    for sql in
        ["CREATE VIEW v AS SELECT 1", "COPY (SELECT 1) TO '{}/c.csv'", "DROP TABLE packets", "SET x.y = 1"]
    {
        let said = refused(folder.path(), sql);
        assert!(said.contains("not supported"), "{sql}: {said}");
    }
    assert!(!folder.path().join("c.csv").exists());
    for wrong in ["tcp\nudp", "tcp,actions=drop", "priority=3,tcp", "# tcp"] {
        let said = refused(folder.path(), &format!("SELECT flow('{wrong}') FROM packets"));
        assert!(said.contains("flow: "), "{wrong}: {said}");
    }
    let said = refused(folder.path(), "SELECT packet FROM packets ORDER BY flow('udp')");
    assert!(said.contains("add flow(..) to SELECT"), "{said}");
}

#[test]
fn parquet_files_keep_the_form_of_addresses() {
    let (folder, _) = archive();
    let session = session(2);
    session.packets(&[folder.path().display().to_string()]).unwrap();
    let path = folder.path().join("p.parquet");
    let answer =
        session.query("SELECT nw_src, ipv6_dst, dl_src, dl_type, tp_dst, nw_proto FROM packets").unwrap();
    write(&answer.schema(), answer, Format::Parquet, None, File::create(&path).unwrap()).unwrap();
    let text = "SELECT nw_src, ipv6_dst FROM '{}/p.parquet' WHERE nw_src > '10.0.0.1' ORDER BY 1 LIMIT 1";
    assert!(ask(folder.path(), text)[0].starts_with("10."), "{:?}", ask(folder.path(), text));
    let of = |table: &str| {
        format!(
            "SELECT count(*) FROM {table} WHERE dl_src < '80:00:00:00:00:00' AND ipv6_dst = '2001:db8::1'"
        )
    };
    assert_eq!(ask(folder.path(), &of("'{}/p.parquet'")), ask(folder.path(), &of("packets")));
}

#[test]
fn addresses_are_grouped_by_network() {
    let (folder, all) = archive();
    let sql = "SELECT network(nw_dst, 12), count(*) FROM packets GROUP BY 1 ORDER BY 1";
    let network = |packet: &Packet| {
        let address = packet.key.get(Field::Ipv4Dst) as u32 & 0xfff0_0000;
        (packet.key.get(Field::EthType) == 0x0800)
            .then(|| format!("{}/12", std::net::Ipv4Addr::from(address)))
    };
    let mut wanted: Vec<String> = counts(&all, network)
        .into_iter()
        .map(|(key, n)| format!("{},{n}", key.unwrap_or_default()))
        .collect();
    wanted.sort_by_key(|line| line.starts_with(','));
    assert_eq!(ask(folder.path(), sql), wanted);
    let sql = "SELECT count(DISTINCT network(nw_dst, 12)), count(DISTINCT address(nw_dst & 0xfff00000)), \
               min(network(ipv6_dst, 32)), min(network(nw_dst, 0)) FROM packets";
    let one = &ask(folder.path(), sql)[0];
    assert_eq!(*one, format!("{0},{0},2001:db8::/32,0.0.0.0/0", wanted.len() - 1));
    for (sql, what) in [
        ("SELECT network(nw_dst, 33) FROM packets", "must be 0 to 32, not 33"),
        ("SELECT network(ipv6_dst, tp_dst) FROM packets", "must be a constant number"),
        ("SELECT network(dl_src, 24) FROM packets", "Ethernet addresses have no prefixes"),
    ] {
        assert!(refused(folder.path(), sql).contains(what), "{}", refused(folder.path(), sql));
    }
}

#[test]
fn next_hops_have_names() {
    let (folder, _) = archive();
    std::fs::write(
        folder.path().join("hops.txt"),
        "10.0.0.0/8 via 192.0.2.1 dev a\nblackhole 10.128.0.0/9\n",
    )
    .unwrap();
    let by = |hop: &str| {
        format!("SELECT {hop}, count(*) FROM packets WHERE nw_dst IS NOT NULL GROUP BY 1 ORDER BY 2, 1")
    };
    let names = ask(folder.path(), &by("via('{}/hops.txt', nw_dst)"));
    let numbers = ask(folder.path(), &by("route('{}/hops.txt', nw_dst)"));
    let named = numbers.iter().map(|line| match line.split_once(',').unwrap() {
        ("1", count) => format!("192.0.2.1 dev a,{count}"),
        (_, count) => format!("blackhole,{count}"),
    });
    assert_eq!(names, named.collect::<Vec<_>>());
    assert_eq!(
        ask(
            folder.path(),
            "SELECT via('{}/routes.txt', nw_dst) FROM packets WHERE in_prefix(nw_dst, '10.128.0.0/9') LIMIT 1"
        ),
        ["2"]
    );
}

#[test]
fn errors_suggest_a_fix() {
    let (folder, _) = archive();
    std::fs::write(folder.path().join("arp.flows"), "arp,arp_tpa=10.0.0.0/8,actions=drop\n").unwrap();
    std::fs::write(folder.path().join("hosts.csv"), "ip,name\n10.0.0.1,a\n").unwrap();
    for (sql, what) in [
        (
            "SELECT matches('{}/arp.flows') FROM (SELECT dl_type, nw_dst FROM packets)",
            "columns that are missing here: arp_tpa",
        ),
        ("SELECT name FROM packets JOIN '{}/hosts.csv' ON nw_src = ip", "write address(nw_src) = text"),
    ] {
        assert!(refused(folder.path(), sql).contains(what), "{}", refused(folder.path(), sql));
    }
    let joined = "SELECT count(*) FROM packets JOIN '{}/hosts.csv' ON address(nw_src) = ip";
    ask(folder.path(), joined);
    let none = session(1);
    let Err(error) = none.query("SELECT count(*) FROM packets") else { panic!("there are no captures") };
    assert!(error.to_string().contains("FROM 'trace.pcap'"), "{error}");
    let Err(error) = none.query("SELECT count(*) FROM day1.pcap") else { panic!("a name without quotes") };
    assert!(error.to_string().contains("FROM 'day1.pcap'"), "{error}");
}
