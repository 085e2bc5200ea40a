use super::*;

fn options(flags: Flags) -> ReadOptions<'static> {
    ReadOptions { flags, ..ReadOptions::default() }
}

const FILTER: &str = "@10.0.0.0/8\t192.0.2.1/32\t0 : 65535\t1024 : 65535\t0x06/0xFF\t0x0200/0x1200\t\n";

#[test]
fn a_filter_is_read_and_the_first_wins() {
    let text = format!("{FILTER}# comment\n\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 53 : 53 0x00/0x00\n");
    let rules = read(&text, "f", &options(Flags::Match)).unwrap();
    assert_eq!(rules.iter().map(|r| r.priority.0).collect::<Vec<_>>(), [2, 1]);
    let m = &rules[0].matches;
    assert_eq!(m.get(Field::Ipv4Src), (0x0a00_0000, 0xff00_0000));
    assert_eq!(m.tp_src_range(), None);
    assert_eq!(m.tp_dst_range().map(|r| (r.low(), r.high())), Some((1024, 65535)));
    // SYN without ACK.
    assert_eq!(m.get(Field::TcpFlags), (0x02, 0x12));
    assert_eq!(read(FILTER, "f", &options(Flags::Ignore)).unwrap()[0].matches.get(Field::TcpFlags), (0, 0));
    assert_eq!(rules[1].matches.get(Field::TpDst), (53, 0xffff));
}

#[test]
fn what_is_printed_is_read_back() {
    let rules = read(FILTER, "f", &options(Flags::Match)).unwrap();
    assert_eq!(print(&rules).unwrap(), FILTER);
    let mut wrong = rules.clone();
    wrong[0].matches.set(Field::InPort, 1);
    assert!(print(&wrong).unwrap_err().to_string().contains("more than a 5-tuple"));
    let mut wrong = [rules.clone(), rules].concat();
    wrong[1].priority = Priority(9);
    assert!(print(&wrong).is_err());
}

#[test]
fn errors_name_line_column_and_remedy() {
    let problem = |line: &str| read(line, "acl.rules", &options(Flags::Match)).unwrap_err().to_string();
    assert_eq!(
        problem("@1.2.3.4/32 1.2.3.4/32 443 : 80 0 : 65535 0x06/0xFF"),
        "acl.rules:1:24: `443 : 80`: port range 443 : 80 is empty; write the smaller port first (80 : 443)"
    );
    let cases = [
        ("1.2.3.4/32", "begins with `@source/length`"),
        ("@1.2.3.4/33 ", "0 to 32"),
        ("@1.2.3.4/32 1.2.3/8", "a prefix as"),
        ("@1.2.3.4/32 2001:db8::/32", "different families"),
        ("@::/0 2001:db8::/129", "0 to 128"),
        ("@1.2.3.4/32 1.2.3.4/32 1 2", "source ports as `low : high`"),
        ("@1.2.3.4/32 1.2.3.4/32 1:x", "source ports as `low : high`"),
        ("@1.2.3.4/32 1.2.3.4/32 +1:2", "source ports as `low : high`"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1", "the line ends where protocol"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 6/FF", "0xVALUE/0xMASK"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 256", "its number up to 255"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 0", "0x00/0x00"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF 0x0/0x0 @1.2.3.4/32", "a second filter"),
    ];
    for (line, part) in cases {
        let text = problem(line);
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn a_trace_is_read_and_printed() {
    let line = "167772161\t3221225985\t5\t80\t6\t512\t3\n";
    let keys = read_trace(line, "t").unwrap();
    assert_eq!(keys[0].get(Field::Ipv4Src), 0x0a00_0001);
    assert_eq!(keys[0].get(Field::TcpFlags), 2);
    let mut out = String::new();
    print_header(&keys[0], 3, &mut out);
    assert_eq!(out, line);
    assert_eq!(read_trace("1 2 3 4 17", "t").unwrap().len(), 1);
    assert!(read_trace("1 2 3 70000 17", "t").unwrap_err().to_string().contains("destination port"));
}

#[test]
fn filters_of_other_programs_are_read() {
    let one = |line: &str| read(line, "f", &options(Flags::Match)).unwrap().remove(0).matches;
    let canonical = one("@10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 90 0x06/0xFF 0x0200/0x1200");
    let same = [
        "@10.0.0.0/8\t192.0.2.1/32\t0:65535\t80:90\t6/255\t0x0200/0x1200\t",
        "@10.0.0.0/8 192.0.2.1/32 0: 65535 80 :90 6 0x0200/0x1200 17 permit",
        "@10.0.0.0/8 192.0.2.1/32 0 :65535 80: 90 0x06 512/4608",
    ];
    for line in same {
        assert_eq!(one(line), canonical, "{line}");
    }
    let without_flags = one("@10.0.0.0/8 192.0.2.1/32 0:65535 80:90 6 12");
    assert_eq!(without_flags.get(Field::TcpFlags), (0, 0));
    assert_eq!(one("@0.0.0.0/0 0.0.0.0/0 0:65535 0:65535 0/0").get(Field::NwProto), (0, 0));
}

#[test]
fn filters_and_headers_of_ipv6_are_read_and_printed() {
    let line = "@2001:db8::/32\t::/0\t0 : 65535\t443 : 443\t0x06/0xFF\t0x0000/0x0000\t\n";
    let rules = read(line, "f", &options(Flags::Match)).unwrap();
    let m = &rules[0].matches;
    assert_eq!(m.get(Field::EthType), (0x86dd, 0xffff));
    assert_eq!(m.get(Field::Ipv6Src), (0x2001_0db8 << 96, 0xffff_ffff << 96));
    assert_eq!((m.get(Field::Ipv6Dst), m.get(Field::Ipv4Src)), ((0, 0), (0, 0)));
    assert_eq!(print(&rules).unwrap(), line);
    let host = "@2001:db8::1/128\tfe80::/10\t0 : 65535\t0 : 65535\t0x3a/0xFF\t0x8000/0xff00\t\n";
    let rules = read(host, "f", &options(Flags::Match)).unwrap();
    assert_eq!(rules[0].matches.get(Field::IcmpType), (0x80, 0xff));
    assert_eq!(print(&rules).unwrap(), host);
    let header = "2001:db8::1\tfe80::2\t0\t0\t58\t32768\t0\n";
    let keys = read_trace(header, "t").unwrap();
    assert!(rules[0].matches.matches(&keys[0]));
    let mut out = String::new();
    print_header(&keys[0], 0, &mut out);
    assert_eq!(out, header);
}

#[test]
fn addresses_of_headers_may_be_dotted() {
    let keys = read_trace("10.0.0.1 192.0.2.1 5 80 6 512 3\n167772161\t3221225985\t5\t80\t6\t512\t3\n", "t")
        .unwrap();
    assert_eq!(keys[0], keys[1]);
    for (line, problem) in [("10.0.0 1 2 3 6", "192.0.2.1"), ("10.0.0.1 ::1 2 3 6", "different families")] {
        assert!(read_trace(line, "t").unwrap_err().to_string().contains(problem), "{line}");
    }
}

#[test]
fn lines_of_classbench_ng_are_read() {
    let text = "dl_type=0x0800, nw_src=10.0.0.0/8, nw_dst=192.0.2.1, nw_proto=6, tp_dst=1024..65535\n\
                nw_src=10.0.0.0/8, nw_dst=192.0.2.1/32, tp_src=0..7, tp_dst=80\n\
                in_port=3, dl_src=00:11:22:33:44:55\n";
    let rules = read(text, "f", &options(Flags::Match)).unwrap();
    assert_eq!(rules.iter().map(|r| r.priority.0).collect::<Vec<_>>(), [3, 2, 1]);
    let same = "@10.0.0.0/8 192.0.2.1/32 0:65535 1024:65535 6\n@10.0.0.0/8 192.0.2.1/32 0:7 80:80 0/0\n";
    let same = read(same, "f", &options(Flags::Match)).unwrap();
    assert_eq!((&rules[0].matches, &rules[1].matches), (&same[0].matches, &same[1].matches));
    assert_eq!(rules[2].matches.get(Field::InPort), (3, u32::MAX.into()));
    for (line, problem) in [
        ("nw_src=10.0.0.0/8, tp_dst=9..7", "f:1:27: `9..7`: port range 9..7 is empty"),
        ("nw_src=10.0.0.0/8, tcp", "`tcp`: `field=value` is expected"),
        ("nw_src=10.0.0.0/8, tp_dst=70000", "f:1:27: `70000`"),
        ("nw_sorc=10.0.0.0/8", "nw_src"),
    ] {
        let error = read(line, "f", &options(Flags::Match)).unwrap_err().to_string();
        assert!(error.contains(problem), "{line}: {error}");
    }
}
