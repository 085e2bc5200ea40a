//! One vocabulary over all commands: options of one name mean one thing, exit codes, sockets, and files of another kind.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::tempdir;

use crate::support::{flowlane, run, wait_until};

const CONFIG: &str = "[[port]]\nnumber = 1\nopen = \"gen:udp,rate=100\"\n[[port]]\nnumber = 2\nopen = \"null\"\n\
    [[table]]\nnumber = 0\nname = \"access\"\nrules = [\"priority=1,actions=goto_table:7\"]\n\
    [[table]]\nnumber = 7\nname = \"forward\"\nrules = [\"priority=2,actions=normal\"]\n";

#[test]
fn every_verb_of_switch_honours_the_socket_of_the_environment_and_waits_for_it() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("s.toml"), CONFIG).unwrap();
    let with_socket = |words: &str| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        command
            .args(words.split(' '))
            .current_dir(at)
            .env("FLOWLANE_SOCKET", "s.sock")
            .env("FLOWLANE_TUNE", "/dev/null");
        command
    };
    // Without a switch: an error at once, or after the wait.
    assert_eq!(with_socket("switch show").output().unwrap().status.code(), Some(3));
    assert_eq!(with_socket("switch show --wait 0.1").output().unwrap().status.code(), Some(3));
    let waiting = with_socket("switch flows --wait 30").stdout(Stdio::piped()).spawn().unwrap();
    let mut switch = with_socket("switch run s.toml --duration 60").stdout(Stdio::null()).spawn().unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("2 rules"),
        "the switch that came later answers"
    );
    let said = |words: &str, code: i32| {
        let output = with_socket(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words}: {text}");
        text
    };
    // Tables by number and by name.
    assert!(said("switch flows --table 7", 0).contains("1 rules"));
    let by_name = said("switch flows --table forward", 0);
    assert!(by_name.contains("normal") && !by_name.contains("goto_table"), "{by_name}");
    let unknown = said("switch flows --table forwrd", 2);
    assert!(unknown.contains("--table forwrd") && unknown.contains("access, forward"), "{unknown}");
    let limited = said("switch show --limit 0", 0);
    assert!(limited.contains("1 more rules"), "{limited}");
    said("switch stop", 0);
    wait_until("the switch ends", || switch.try_wait().unwrap().is_some());
}

#[test]
fn a_check_as_json_has_counts_errors_and_warnings() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("s.toml"), CONFIG).unwrap();
    let check =
        |code| -> Value { serde_json::from_str(&run(at, "switch check --json s.toml", code).0).unwrap() };
    let good = check(0);
    assert_eq!(
        (&good["valid"], &good["ports"], &good["rules"]),
        (&true.into(), &2.into(), &2.into()),
        "{good}"
    );
    assert_eq!((&good["errors"], &good["file"]), (&Value::Array(vec![]), &"s.toml".into()), "{good}");
    fs::write(at.join("s.toml"), CONFIG.replace("normal", "nromal")).unwrap();
    let wrong = check(2);
    let place = &wrong["errors"][0]["places"][0];
    assert_eq!((&wrong["valid"], &place["line"]), (&false.into(), &14.into()), "{wrong}");
    assert!(place["column"].as_u64().unwrap() > 10, "{wrong}");
    fs::write(at.join("s.toml"), CONFIG.replace("number = 2", "numbr = 2")).unwrap();
    let wrong = check(2);
    assert!(wrong["errors"][0]["message"].as_str().unwrap().contains("numbr"), "{wrong}");
    assert_eq!(wrong["errors"][0]["places"][0]["line"], 5, "{wrong}");
}

/// Files, commands that read them as another kind, and parts of the message.
const OTHER_KINDS: &[(&str, &str, [&str; 2])] = &[
    (
        "# Generated\n*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j ACCEPT\nCOMMIT\n",
        "rules show FILE",
        ["the output of iptables-save", "--from iptables"],
    ),
    (
        "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n",
        "switch check FILE",
        ["the output of iptables-save", "--from iptables"],
    ),
    ("{\"nftables\": []}\n", "rules show FILE", ["nft -j list ruleset", "--from nft"]),
    ("table inet filter {\n  chain forward {\n }\n}\n", "rules show FILE", ["nft list ruleset", "nft -j"]),
    (
        "table inet filter {\n  chain forward {\n }\n}\n",
        "rules convert FILE --from nft",
        ["nft list ruleset", "nft -j"],
    ),
    ("hostname r1\n!\naccess-list 101 permit ip any any\n", "rules show FILE", ["Cisco", "--from cisco"]),
    (
        "167772161\t3221225985\t1024\t80\t6\n1\t2\t3\t4\t17\n",
        "rules show FILE",
        ["a header trace", "--trace"],
    ),
    (
        "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n",
        "classify --rules GOOD --trace FILE",
        ["filters of ClassBench", "--rules"],
    ),
    (
        "priority=1,actions=normal\ntcp,actions=drop\n",
        "switch check FILE",
        ["flows", "rules_file = \"FILE\""],
    ),
    ("priority=1,actions=normal\ntcp,actions=drop\n", "route show --routes FILE", ["flows", "--rules"]),
    (
        "[[port]]\nnumber = 1\nopen = \"null\"\n",
        "rules show FILE",
        ["the configuration of a switch", "switch run FILE"],
    ),
    (
        "default via 192.0.2.1\n10.0.0.0/8 via 192.0.2.2\n",
        "rules show FILE",
        ["a list of routes", "--routes"],
    ),
];

#[test]
fn a_file_of_another_kind_gets_one_error_that_names_the_kind() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("good.rules"), "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n").unwrap();
    for (text, command, parts) in OTHER_KINDS {
        fs::write(at.join("a.file"), text).unwrap();
        let command = command.replace("FILE", "a.file").replace("GOOD", "good.rules");
        let (_, error) = run(at, &command, 2);
        for part in ["a.file looks like ", parts[0], &parts[1].replace("FILE", "a.file")] {
            assert!(error.contains(part), "{command} without `{part}`: {error}");
        }
        assert!(error.lines().count() <= 4, "{command}: {error}");
    }
}

#[test]
fn a_mistake_in_a_file_of_the_right_kind_is_shown_at_its_line() {
    let folder = tempdir().unwrap();
    for (text, command, place) in [
        ("priority=1,actions=normal\ntcp,actions=dorp\ntcp,actions=drop\n", "rules show a.file", "a.file:2"),
        (
            "@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n@10.0.0.0/99 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n",
            "rules show a.file",
            "a.file:2",
        ),
        ("10.0.0.0/8 192.0.2.1\n10.0.0.0/77 192.0.2.1\n", "route show --routes a.file", "a.file:2"),
    ] {
        fs::write(folder.path().join("a.file"), text).unwrap();
        let (_, error) = run(folder.path(), command, 2);
        assert!(error.contains(place) && !error.contains("looks like"), "{error}");
    }
}

#[test]
fn exit_codes_say_which_kind_of_failure_it_was() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("s.toml"), CONFIG).unwrap();
    fs::write(
        at.join("fw.save"),
        "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m string --string x --algo bm -j DROP\nCOMMIT\n",
    )
    .unwrap();
    for (command, code) in [
        ("switch check s.toml", 0),
        ("rules convert fw.save --from iptables --strict --output fw.flows", 1),
        ("switch check missing.toml", 2),
        ("switch check --no-such-option s.toml", 2),
        ("switch show --socket none.sock", 3),
    ] {
        run(at, command, code);
    }
}

/// The options of all commands: page of the manual, name, and name of the value.
fn options(at: &Path) -> Vec<(String, String, String)> {
    run(at, "man pages", 0);
    let mut options = Vec::new();
    for page in fs::read_dir(at.join("pages")).unwrap().map(|page| page.unwrap().path()) {
        let text = fs::read_to_string(&page).unwrap().replace("\\-", "-");
        for line in text.lines().filter(|line| line.starts_with("\\fB--") || line.starts_with("\\fB-")) {
            let Some((_, rest)) = line.split_once("\\fB--") else { continue };
            let Some((name, value)) = rest.split_once("\\fR") else { continue };
            let value = value.split_once("\\fI<").and_then(|(_, value)| value.split_once('>'));
            let page = page.file_name().unwrap().to_str().unwrap().to_owned();
            options.push((
                page,
                name.to_owned(),
                value.map_or_else(String::new, |(value, _)| value.to_owned()),
            ));
        }
    }
    options
}

#[test]
fn options_of_one_name_take_one_kind_of_value() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    assert!(options.len() > 150, "{} options were found", options.len());
    for (page, name, value) in &options {
        let kinds: &[&str] = match name.as_str() {
            "rules" | "trace" | "routes" | "output" | "hits" | "report" => &["FILE", "FILE.html"],
            "table" => &["N", "TABLE", "NAME"],
            "memory-max" | "table-max" | "size" if page != "flowlane-selftest.1" => &["BYTES"],
            "socket" => &["PATH"],
            "seed" | "count" | "limit" => &["N", ""],
            "json" => &[""],
            _ => continue,
        };
        assert!(kinds.contains(&value.as_str()), "{page}: --{name} <{value}>, expected {kinds:?}");
    }
    assert!(!options.iter().any(|(.., value)| value == "MIB"), "a size takes a unit instead");
    // Sizes take units.
    fs::write(folder.path().join("r.txt"), "10.0.0.0/8 192.0.2.1\n").unwrap();
    run(folder.path(), "route lookup --routes r.txt --memory-max 64M 10.0.0.1", 0);
    flowlane()
        .args(["route", "lookup", "--routes", "r.txt", "--memory-max", "64Q", "10.0.0.1"])
        .assert()
        .code(2);
}
