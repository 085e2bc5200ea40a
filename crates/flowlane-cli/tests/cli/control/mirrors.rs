//! Mirrors of a configuration: copies in files while the switch runs, changes by a reload, and errors.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Switch;
use crate::support::{run, wait_until};

const CONFIG: &str = r#"
[switch]
workers = 2
[[port]]
number = 1
name = "in"
open = "gen:udp,rate=5000"
[[port]]
number = 2
name = "out"
open = "null"
[[port]]
number = 3
name = "copies"
open = "pcap-out:copies.pcap,rotate=300K,files=3"
[[table]]
number = 0
rules = ["actions=normal"]
"#;

const MIRROR: &str = "[[mirror]]\nname = \"lan\"\nreceived = [\"in\"]\nto = \"copies\"\nbytes_max = 40\n";

fn bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |data| data.len())
}

#[test]
fn copies_are_in_the_file_while_the_switch_runs_and_end_with_the_mirror() {
    let switch = Switch::start(&(CONFIG.to_owned() + MIRROR), &[]);
    let file = switch.at().join("copies.pcap");
    let mirrored = |show: &Value| show["mirrors"][0]["packets"].as_u64().unwrap_or(0);
    // Without waiting for the end, nor for as many as are written at once: 56 bytes each.
    wait_until("copies are written", || bytes(&file) > 24);
    wait_until("a full file is put aside", || bytes(&switch.at().join("copies.1.pcap")) >= 300 << 10);
    let show = switch.json("show");
    assert_eq!(show["mirrors"][0]["name"], "lan");
    assert!(mirrored(&show) > 1000, "{}", show["mirrors"]);
    let port = |show: &Value, place: usize| show["ports"][place]["tx_packets"].as_u64().unwrap();
    // `normal` floods to `out` alone: the port of copies gets these and nothing else.
    assert!(port(&show, 1) > 1000);
    assert!(port(&show, 2) <= mirrored(&show) + 128, "{show}");
    assert!(switch.say("show", 0).0.contains("mirror lan: copied"));

    // Packets of another VLAN are not copied; the counters go on.
    let config = switch.at().join("switch.toml");
    fs::write(&config, CONFIG.to_owned() + MIRROR + "vlans = [7]\n").unwrap();
    let (said, _) = switch.say("reload", 0);
    assert!(said.contains("1 mirrors changed"), "{said}");
    let before = mirrored(&switch.json("show"));
    let sent = || port(&switch.json("show"), 1);
    let since = sent();
    wait_until("packets are sent", || sent() > since + 500);
    assert_eq!(mirrored(&switch.json("show")), before);
    assert!(before > 1000);
    fs::write(&config, CONFIG).unwrap();
    assert!(switch.say("reload", 0).0.contains("1 mirrors changed"));
    assert_eq!(switch.json("show")["mirrors"], Value::Array(Vec::new()));
    // Now it is a port like others, and `normal` floods to it.
    let copies = port(&switch.json("show"), 2);
    wait_until("packets are flooded", || port(&switch.json("show"), 2) > copies);
    assert!(!switch.say("reload", 0).0.contains("mirrors"));
}

#[test]
fn wrong_mirrors_are_errors_at_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let lines = CONFIG.lines().count();
    let stage = "[[asset_table]]\nnumber = 3\nknown = \"drop\"\n";
    for (text, line, expected) in [
        ("[[mirror]]\nto = \"nowhere\"\n", 2, "there is no port `nowhere`"),
        ("[[mirror]]\nto = \"nowhere\"\n", 2, "ports are called in, out, copies"),
        ("[[mirror]]\nreceived = [\"in\", \"ni\"]\nto = \"copies\"\n", 2, "there is no port `ni`"),
        ("[[mirror]]\nsent = [\"copies\"]\nto = \"copies\"\n", 3, "gets the copies of its own packets"),
        ("[[mirror]]\nreceived = [\"in\"]\n", 1, "mirror `mirror0` has no destination"),
        ("[[mirror]]\nto = \"copies\"\nto_vlan = 3\n", 1, "mirror `mirror0` has two destinations"),
        ("[[mirror]]\nto_vlan = 4096\n", 2, "VLAN 4096 is out of range"),
        ("[[mirror]]\nto = \"copies\"\nvlans = [1, 5000]\n", 3, "VLAN 5000 is out of range"),
        ("[[mirror]]\nto = \"copies\"\nbytes_max = 3\n", 3, "no whole Ethernet header"),
        (
            "[[mirror]]\nname = \"a\"\nto = \"copies\"\n[[mirror]]\nname = \"a\"\nto = \"out\"\n",
            5,
            "two mirrors are called `a`",
        ),
        (&format!("[[mirror]]\nto = \"copies\"\n{stage}"), 1, "take `workers = 1` in [switch]"),
    ] {
        fs::write(folder.path().join("switch.toml"), CONFIG.to_owned() + text).unwrap();
        let (_, said) = run(folder.path(), "switch check switch.toml", 2);
        let place = format!("switch.toml:{}:", lines + line);
        assert!(said.contains(expected) && said.contains(&place), "{text}: {place} {said}");
    }
    for (open, expected) in [
        ("pcap-out:a.pcap,files=3", "`files=3` needs `rotate=BYTES`"),
        ("pcap-out:a.pcap,rotate=0", "bytes are expected, such as 500000, 64K, 100M or 2G"),
        ("pcap-out:a.pcap,rotate=99999999999G", "bytes are expected"),
        ("pcap-out:a.pcap,rotate=1M,files=1", "a number from 2 to 1000 is expected"),
        ("pcap-out:a.pcap,rotat=1M", "there is no option `rotat=1M`"),
    ] {
        let config = CONFIG.replace("pcap-out:copies.pcap,rotate=300K,files=3", open);
        fs::write(folder.path().join("switch.toml"), config).unwrap();
        let (_, said) = run(folder.path(), "switch check switch.toml", 2);
        assert!(said.contains(expected), "{open}: {said}");
    }
    // An older file of a rotation would be lost as well.
    let config = CONFIG.replace("open = \"null\"", "open = \"pcap-out:copies.2.pcap\"");
    fs::write(folder.path().join("switch.toml"), config).unwrap();
    let (_, said) = run(folder.path(), "switch check switch.toml", 2);
    assert!(said.contains("copies.2.pcap is written by another port"), "{said}");
}
