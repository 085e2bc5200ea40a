use proptest::prelude::*;

use super::super::{Action, print_actions, print_matches, read};
use super::*;
use crate::packet::fields::Field;
use crate::rule::Priority;

fn options() -> ReadOptions<'static> {
    ReadOptions {
        ports: &|name| (name == "uplink").then_some(PortNo(7)),
        table_default: 3,
        ..ReadOptions::default()
    }
}

#[track_caller]
fn change(line: &str) -> FlowMod {
    read_changes(line, "t.changes", &options()).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

#[track_caller]
fn rule(line: &str) -> Rule {
    read(line, "t.flows", &options()).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn problem(line: &str) -> String {
    read_changes(line, "t", &options()).expect_err(line).to_string()
}

#[test]
fn a_line_without_a_command_adds_a_rule() {
    let line =
        "table=1,priority=10,cookie=0x5,idle_timeout=60,hard_timeout=65535,tcp,tp_dst=80 actions=output:2";
    let added = change(line);
    let expected = FlowMod {
        at: None,
        command: Command::Add,
        table: Some(1),
        rule: rule("table=1,priority=10,cookie=5,tcp,tp_dst=80,actions=output:2"),
        cookie: None,
        new_cookie: Some(5),
        idle_timeout_s: 60,
        hard_timeout_s: 65535,
        importance: 0,
        flags: FlowFlags::default(),
        out_port: None,
        out_group: None,
        line: 1,
    };
    assert_eq!(added, expected);
    assert_eq!(change(&format!("add {line}")), expected);
    assert_eq!(change(&format!("\t add,{line}")), expected);

    let plain = change("actions=drop");
    assert_eq!((plain.table, plain.new_cookie, plain.rule), (Some(3), None, rule("actions=drop")));
    assert_eq!((plain.idle_timeout_s, plain.hard_timeout_s), (0, 0));
}

#[test]
fn flags_and_importance_are_those_of_the_line() {
    let added = change("send_flow_rem,importance=7,check_overlap actions=drop");
    assert_eq!(added.importance, 7);
    assert_eq!(added.flags, FlowFlags::SEND_FLOW_REM.union(FlowFlags::CHECK_OVERLAP));
    assert!(added.flags.contains(FlowFlags::CHECK_OVERLAP));
    assert!(!added.flags.contains(FlowFlags::RESET_COUNTS));
    assert_eq!(change("modify reset_counts actions=drop").flags, FlowFlags::RESET_COUNTS);
    let expected = FlowMod { line: 1, ..FlowMod::new(Command::Add, rule("table=2,udp actions=1")) };
    assert_eq!(change("table=2,udp actions=1"), expected);
}

#[test]
fn rules_are_deleted_by_the_groups_and_ports_that_they_send_to() {
    let selects = |line: &str, text: &str| change(line).selects(3, &rule(&format!("table=3 {text}")));
    for actions in ["group:5", "output:1,write_actions(group:5)", "clone(group:5)"] {
        assert!(selects("delete out_group=5", &format!("actions={actions}")), "{actions}");
        assert!(!selects("delete out_group=6", &format!("actions={actions}")), "{actions}");
    }
    assert_eq!(change("delete out_group=ANY").out_group, None);
    for actions in ["enqueue:5:1", "output(port=5,max_len=64)", "clone(output:5)", "write_actions(5)"] {
        assert!(selects("delete out_port=5", &format!("actions={actions}")), "{actions}");
    }
}

#[test]
fn times_are_read_exactly() {
    let at = |line: &str| change(&format!("{line} actions=drop")).at;
    assert_eq!(at(""), None);
    assert_eq!(at("@0"), Some(Duration::ZERO));
    assert_eq!(at("@0.25"), Some(Duration::from_millis(250)));
    assert_eq!(at("  @12.000000001  add"), Some(Duration::new(12, 1)));
    assert_eq!(at("@4294967295.999999999\tadd"), Some(Duration::new(u32::MAX.into(), 999_999_999)));
    assert_eq!(change("@1.50 delete").at, Some(Duration::from_millis(1500)));
}

#[test]
fn each_command_is_read_with_what_it_takes() {
    let modify = change("modify table=2,udp,cookie=5/-1,cookie=9,actions=drop");
    assert_eq!((modify.command, modify.table), (Command::Modify, Some(2)));
    assert_eq!((modify.cookie, modify.new_cookie, modify.rule.cookie), (Some((5, u64::MAX)), Some(9), 9));
    let again = change("modify cookie=9,udp actions=output:uplink,goto_table:1");
    assert_eq!((again.table, again.rule.table, again.cookie, again.new_cookie), (None, 3, None, Some(9)));
    assert_eq!(again.rule.actions, [Action::Output(PortNo(7)), Action::Goto(1)]);

    let strict = change("modify_strict priority=7,udp actions=normal");
    assert_eq!((strict.command, strict.rule.priority), (Command::ModifyStrict, Priority(7)));
    assert_eq!(change("modify_strict udp actions=drop").rule.priority, Priority::DEFAULT);

    let delete = change("delete table=0,cookie=0xff/0xf,out_port=uplink,tcp");
    assert_eq!((delete.command, delete.table, delete.rule.table), (Command::Delete, Some(0), 0));
    assert_eq!((delete.cookie, delete.new_cookie), (Some((0xf, 0xf)), None));
    assert_eq!((delete.out_port, delete.rule.actions.len()), (Some(PortNo(7)), 0));
    assert_eq!(change("delete out_port=ANY # all of them").out_port, None);
    assert_eq!(change("delete cookie=6").cookie, Some((6, u64::MAX)));
    let all = change(" delete ");
    assert_eq!((all.command, all.table, all.rule.matches), (Command::Delete, None, Match::any()));

    let strict = change("@1 delete_strict,priority=65535,in_port=\"uplink\",out_port=2");
    assert_eq!((strict.command, strict.rule.priority), (Command::DeleteStrict, Priority(65535)));
    assert_eq!(strict.rule.matches.get(Field::InPort), (7, 0xffff_ffff));
    assert_eq!(strict.out_port, Some(PortNo(2)));
    // Attributes that dump-flows prints with a flow have no effect.
    let dumped =
        "cookie=0x1, duration=9.5s, table=1, n_packets=3, n_bytes=180, idle_timeout=5, arp actions=NORMAL";
    assert_eq!((change(dumped).rule.cookie, change(dumped).idle_timeout_s), (1, 5));
}

#[test]
fn lines_that_say_nothing_count_and_the_order_stays() {
    let text = "# changes\n\nactions=drop\r\n  # more\n@2 delete tcp\r\n@1 delete udp";
    let changes = read_changes(text, "t", &options()).unwrap_or_else(|e| panic!("{e}"));
    let read: Vec<_> = changes.iter().map(|c| (c.line, c.at.map(|at| at.as_secs()), c.command)).collect();
    assert_eq!(read, [(3, None, Command::Add), (5, Some(2), Command::Delete), (6, Some(1), Command::Delete)]);
    assert_eq!(read_changes("", "t", &options()), Ok(vec![]));
}

/// Each line, the place of the mistake, and its message.
#[track_caller]
fn wrong<'a>(cases: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) {
    for (line, place, what) in cases {
        assert_eq!(problem(line), format!("t:{place}: {what}"), "{line}");
    }
}

#[test]
fn a_time_that_is_none_is_told() {
    let expected = "seconds since the switch's start are expected, with up to nine decimals: `@0.25`, and a space behind";
    let cases = [
        ("@x delete", "1:1: `@x`"),
        ("@ 5 delete", "1:1: `@`"),
        ("@5. delete", "1:1: `@5.`"),
        ("@.5 delete", "1:1: `@.5`"),
        ("@-1 delete", "1:1: `@-1`"),
        ("@+1 delete", "1:1: `@+1`"),
        ("@1e3 delete", "1:1: `@1e3`"),
        ("@0.1234567891 delete", "1:1: `@0.1234567891`"),
        ("@4294967296 delete", "1:1: `@4294967296`"),
        (" @1,delete", "1:2: `@1,delete`"),
    ];
    wrong(cases.map(|(line, place)| (line, place, expected)));
}

#[test]
fn a_command_that_is_none_is_told() {
    let meant = |name: &str| format!("there is no such command; did you mean `{name}`?");
    let (modify, delete, strict) = (meant("modify"), meant("delete"), meant("delete_strict"));
    let protocol = "`field=value` or a protocol such as `tcp` is expected; did you mean `tcp`?";
    wrong([
        ("@1 modfy tcp,actions=drop", "1:4: `modfy`", modify.as_str()),
        ("mod,tcp,actions=drop", "1:1: `mod`", &modify),
        ("del tcp", "1:1: `del`", &delete),
        ("delete-strict tcp", "1:1: `delete-strict`", &strict),
        ("tpc actions=drop", "1:1: `tpc`", protocol),
    ]);
}

#[test]
fn actions_that_are_missing_or_too_many_are_told() {
    let missing = "the line ends without `actions=`; write `actions=drop` to drop";
    let given = "takes no actions; leave them out, or write `out_port=PORT` for rules that send there";
    let (delete, strict) = (format!("`delete` {given}"), format!("`delete_strict` {given}"));
    wrong([
        ("@1", "1:3: ``", missing),
        ("modify tcp ", "1:11: ``", missing),
        ("delete tcp, actions=drop ", "1:13: `actions=drop`", &delete),
        ("@1 delete_strict action=output:2", "1:18: `action=output:2`", &strict),
    ]);
    let later = |table: u8| format!("a flow of table {table} can only go on in a later table");
    wrong([
        ("actions=goto_table:3", "1:9: `goto_table:3`", later(3).as_str()),
        ("modify actions=goto_table:0", "1:16: `goto_table:0`", &later(0)),
        ("modify table=5,actions=goto_table:4", "1:24: `goto_table:4`", &later(5)),
    ]);
}

#[test]
fn what_another_command_takes_is_told() {
    let every = "is about rules of every priority; leave it out, or write";
    let left = "`modify_strict` leaves time-outs as they are; leave it out, or `add` the rule again";
    let ports = "only `delete` and `delete_strict` ask where rules send packets; leave it out";
    wrong([
        ("delete tcp,priority=5", "1:12: `priority`", format!("`delete` {every} `delete_strict`").as_str()),
        ("modify priority=5 actions=drop", "1:8: `priority`", &format!("`modify` {every} `modify_strict`")),
        ("modify_strict hard_timeout=5,actions=drop", "1:15: `hard_timeout`", left),
        ("delete idle_timeout=5", "1:8: `idle_timeout`", "`delete` does not look at time-outs; leave it out"),
        ("out_port=2,actions=drop", "1:1: `out_port`", ports),
        ("modify out_port=2,actions=drop", "1:8: `out_port`", ports),
        (
            "add cookie=5/7,actions=drop",
            "1:14: `7`",
            "the cookie of a rule that is added has no mask; write `cookie=VALUE`",
        ),
    ]);
}

#[test]
fn values_that_are_none_are_told() {
    let number = |max: u64| format!("a number from 0 to {max} (0x for hexadecimal) is expected");
    let (table, short, long) = (number(254), number(65535), number(u64::MAX));
    let port = "the number of a port, or the name of one that exists, is expected; `ovs-ofctl --no-names dump-flows` prints numbers";
    wrong([
        ("idle_timeout=65536,actions=drop", "1:14: `65536`", short.as_str()),
        ("hard_timeout=1s,actions=drop", "1:14: `1s`", &short),
        ("hard_timeout,actions=drop", "1:1: `hard_timeout`", "`hard_timeout=NUMBER` is expected"),
        ("delete table=255", "1:14: `255`", &table),
        ("delete cookie=5/-2", "1:17: `-2`", &long),
        ("delete cookie=a/1", "1:15: `a`", &long),
        ("delete cookie", "1:8: `cookie`", "`cookie=NUMBER` is expected"),
        ("delete out_port", "1:8: `out_port`", "`out_port=PORT` is expected"),
        ("delete out_port=65300", "1:17: `65300`", "a port number is 0 to 65279"),
        ("delete out_port=nowhere", "1:17: `nowhere`", port),
        ("delete tcp,tp_dts=5", "1:12: `tp_dts`", "there is no such field; did you mean `tp_dst`?"),
        (
            "modify actions=set_field:5->tcp_dst",
            "1:29: `tcp_dst`",
            "tcp_dst needs `tcp` or `tcp6` in the match; add it",
        ),
    ]);
    let long = format!("delete {}", "tcp,".repeat(20_000));
    assert!(problem(&long).ends_with("the line is longer than 65536 bytes"));
}

#[test]
fn all_wrong_lines_are_told() {
    let text = "actions=drop\n@x delete\n# fine\ndelete\n delete actions=drop\n";
    let errors = read_changes(text, "f.changes", &options()).expect_err("two are wrong");
    let places: Vec<_> = errors.errors().iter().map(|e| (e.line, e.column, e.found.as_str())).collect();
    assert_eq!(places, [(2, 1, "@x"), (5, 9, "actions=drop")]);
    for error in errors.errors() {
        assert_eq!(text[error.offset..][..error.len], error.found);
    }
    let errors = read_changes(&("delete\n".to_owned() + &"@x\n".repeat(30)), "f", &options())
        .expect_err("all but one are wrong");
    assert_eq!((errors.errors().len(), errors.count()), (20, 30));
    let few = ReadOptions { rules_max: 2, ..options() };
    let error = read_changes(&"delete\n".repeat(3), "f", &few).expect_err("one too many");
    assert!(error.to_string().starts_with("f:3:1: `delete`: more than 2 changes"), "{error}");
}

/// Returns whether a change selects a rule of table 3.
#[track_caller]
fn selects(line: &str, of: &str) -> bool {
    let rule = rule(of);
    change(line).selects(rule.table, &rule)
}

#[test]
fn strict_changes_are_about_one_priority_and_match() {
    let of = "priority=10,cookie=5,tcp,tp_dst=80,actions=output:2,output:4";
    for strict in
        ["delete_strict priority=10,tcp,tp_dst=80", "delete_strict nw_proto=6,tcp_dst=80,priority=10,ip"]
    {
        assert!(selects(strict, of), "{strict}");
        for other in ["table=4", "cookie=6/-1", "out_port=3", "nw_dst=10.0.0.1", "priority=11"] {
            assert!(!selects(&format!("{strict},{other}"), of), "{strict},{other}");
        }
        for same in ["table=3", "cookie=0xd/7", "cookie=5", "out_port=4"] {
            assert!(selects(&format!("{strict},{same}"), of), "{strict},{same}");
        }
    }
    assert!(!selects("delete_strict priority=10,tcp", of), "the rule asks for more");
    assert!(!selects("delete_strict tcp,tp_dst=80", of), "the default priority");
    assert!(selects("delete_strict tcp", "tcp actions=drop"));
    assert!(selects("modify_strict priority=10,tcp,tp_dst=80,cookie=9,actions=drop", of));
    assert!(!selects("modify_strict priority=10,tcp,tp_dst=80,cookie=9/-1,actions=drop", of));
    // An added rule replaces that rule, whatever its cookie.
    assert!(selects("priority=10,tcp,tp_dst=80,cookie=1,actions=drop", of));
    assert!(!selects("priority=10,tcp,tp_dst=80-81,actions=drop", of));
    assert!(!selects("table=1,priority=10,tcp,tp_dst=80,actions=drop", of));
}

#[test]
fn other_changes_are_about_rules_that_ask_for_as_much() {
    let of = "priority=10,cookie=5,tcp,nw_dst=10.1.0.0/16,tp_dst=80-90,actions=output:2,in_port";
    for line in [
        "delete",
        "delete ip",
        "delete tcp,nw_dst=10.0.0.0/8",
        "delete tcp,nw_dst=10.1.0.0/16,tp_dst=80-90",
        "delete tcp,tp_dst=79-91",
        "delete tcp,tp_dst=0x40/0xffc0",
        "delete table=3,cookie=5,out_port=2",
        "modify tcp,cookie=1/3,cookie=9,actions=drop",
        "modify ip,actions=goto_table:9",
    ] {
        assert!(selects(line, of), "{line}");
    }
    for line in [
        "delete udp",
        "delete ipv6",
        "delete tcp,nw_src=10.0.0.0/8",
        "delete tcp,nw_dst=10.1.0.0/24",
        "delete tcp,nw_dst=11.0.0.0/8",
        "delete tcp,tp_dst=81-90",
        "delete tcp,tp_dst=85",
        "delete tcp,tp_dst=0x50/0xfff8",
        "delete table=2",
        "delete cookie=4",
        "delete cookie=2/3",
        "delete out_port=3",
        "modify cookie=4/-1,actions=drop",
    ] {
        assert!(!selects(line, of), "{line}");
    }
    assert!(selects("delete tcp,tp_dst=80-90", "tcp,tp_dst=85 actions=drop"));
    assert!(!selects("delete out_port=2", "actions=drop"));
}

const MATCHES: [&str; 8] = [
    "tcp",
    "ip",
    "tp_dst=80",
    "tp_dst=80-90",
    "nw_dst=10.0.0.0/8",
    "nw_dst=10.1.0.0/16",
    "dl_vlan=3",
    "reg0=1/3",
];

fn any_flow() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&MATCHES[..]), 0..4).prop_map(|parts| parts.join(","))
}

proptest! {
    /// An added rule is read like a rule of a file.
    #[test]
    fn added_rules_are_read_as_rules_of_files_are(flow in any_flow(), priority in any::<u16>(), cookie in any::<u64>()) {
        let line = format!("priority={priority},cookie={cookie},{flow} actions=output:1");
        let expected = read(&line, "t", &options()).map(|rules| rules[0].clone());
        let added = read_changes(&line, "t", &options()).map(|changes| changes[0].rule.clone());
        prop_assert_eq!(added, expected);
    }

    /// A rule is found by what it is printed as, and strict changes find no more than others.
    #[test]
    fn rules_are_found_by_their_own_match(of in any_flow(), other in any_flow(), priority in any::<u16>()) {
        let (of, other) = (format!("priority={priority},{of} actions=drop"), other);
        let Ok(rules) = read(&of, "t", &options()) else { return Ok(()) };
        let printed = print_matches(&rules[0].matches);
        for line in [
            format!("delete {printed}"),
            format!("delete_strict priority={priority},{printed}"),
            format!("modify_strict priority={priority},{printed} actions={}", print_actions(&[Action::InPort])),
        ] {
            prop_assert!(change(&line).selects(3, &rules[0]), "{} of {}", line, of);
        }
        let strict = read_changes(&format!("delete_strict priority={priority},{other}"), "t", &options());
        let Ok(strict) = strict else { return Ok(()) };
        let wide = change(&format!("delete {other}"));
        prop_assert!(!strict[0].selects(3, &rules[0]) || wide.selects(3, &rules[0]), "{} of {}", other, of);
        prop_assert_eq!(wide.selects(3, &rules[0]), rules[0].matches.is_within(&wide.rule.matches));
    }

    #[test]
    fn garbage_makes_no_reader_panic(text in "[ -~\n\t@é]{0,200}") {
        let _ = read_changes(&text, "garbage", &options());
    }

    #[test]
    fn a_line_with_a_hole_makes_no_reader_panic(at in 0..70usize, with in "\\PC{0,3}") {
        for line in [
            "@0.25 modify_strict table=1,priority=5,cookie=1/-1,tcp,tp_dst=1-2 actions=output:1",
            "@12 delete_strict table=1,priority=5,cookie=1/0xff,out_port=uplink,tcp,tp_dst=1-2",
        ] {
            let mut text = line.to_owned();
            text.replace_range(at..at + 1, &with);
            let _ = read_changes(&text, "hole", &options());
        }
    }
}
