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
    assert!(print(&wrong).unwrap_err().to_string().contains("more than an IPv4 5-tuple"));
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
        ("@1.2.3.4/32 1.2.3/8", "an IPv4 prefix"),
        ("@1.2.3.4/32 1.2.3.4/32 1:2", "source ports as `low : high`"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1", "the line ends where protocol"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 6/0xFF", "0xVALUE/0xMASK"),
        ("@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF 0x0/0x0 more", "nothing is expected"),
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
