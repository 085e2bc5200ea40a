//! Warnings of `switch check`, and configurations without any.

use flowlane_switch::mgmt::setup::Setup;

const PORTS: &str =
    "[[port]]\nnumber = 1\nname = \"inside\"\nopen = \"null\"\n[[port]]\nnumber = 2\nopen = \"null\"\n";

fn warnings(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let file = folder.path().join("switch.toml");
    std::fs::write(&file, format!("{PORTS}{text}")).expect("the folder can be written to");
    let setup = Setup::read(&file).unwrap_or_else(|e| panic!("{text}: {e}"));
    setup.check().unwrap_or_else(|e| panic!("{text}: {e}"));
    let warnings = setup.warnings().unwrap_or_else(|e| panic!("{text}: {e}"));
    let place = |span: Option<std::ops::Range<usize>>| {
        std::fs::read_to_string(&file).unwrap()[span.unwrap()].to_owned()
    };
    warnings.into_iter().map(|w| format!("{}: {}", place(w.span.clone()), w.message)).collect()
}

fn filter(rules: &str, more: &str) -> Vec<String> {
    warnings(&format!(
        "[[table]]\nnumber = 0\nrules = [{rules}]\n[[table]]\nnumber = 1\nrules = [\"actions=goto_table:9\"]\n\
         [[filter_table]]\nnumber = 9\nkey = [\"nw_src\"]\n{more}\n"
    ))
}

#[test]
fn a_stage_that_learns_whom_to_let_in_from_packets_of_several_ports_is_warned_of() {
    let learns = "learn = true\nhit = \"normal\"";
    let all = "\"ip,actions=goto_table:9\"";
    let found = filter(all, learns);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("true: filter 9 learns from packets of ports 1, 2: a sender"), "{found:?}");
    // Through another table, and by a verdict that leads onwards.
    assert_eq!(
        filter("\"in_port=1,actions=goto_table:1\",\"in_port=2,actions=goto_table:1\"", learns).len(),
        1
    );
    // Of one port only, not at all, or without a difference.
    assert_eq!(filter("\"in_port=1,ip,actions=goto_table:1\"", learns), [""; 0]);
    assert_eq!(filter("\"in_port=inside,actions=goto_table:9\",\"actions=normal\"", learns), [""; 0]);
    assert_eq!(filter(all, "hit = \"normal\""), [""; 0]);
    assert_eq!(filter(all, "learn = true\nhit = \"normal\"\nmiss = \"controller,normal\""), [""; 0]);
    let assets = |new: &str| {
        warnings(&format!(
            "[[table]]\nnumber = 0\nrules = [\"actions=goto_table:8\"]\n\
             [[asset_table]]\nnumber = 8\nknown = \"normal\"\nnew = \"{new}\"\n"
        ))
    };
    assert!(assets("drop")[0].contains("asset table 8 learns"), "{:?}", assets("drop"));
    assert_eq!(assets("controller,normal"), [""; 0]);
}

#[test]
fn a_tunnel_that_its_link_does_not_carry_is_warned_of() {
    // A TAP interface that is not there has an MTU of 1500 when it is made.
    let tunnel = |more: &str, rules: &str| {
        warnings(&format!(
            "[[port]]\nnumber = 3\nopen = \"tap:flnone0\"\n[[port]]\nnumber = 4\nopen = \"tap:flnone1\"\n\
             [[table]]\nnumber = 0\nrules = [{rules}]\n\
             [[tunnel]]\nnumber = 1\nkind = \"vxlan\"\nid = 5\nlocal = \"10.0.0.1\"\nremote = \"10.0.0.2\"\n{more}\n"
        ))
    };
    let out = "\"in_port=4,actions=encap:1,output:3\"";
    let derived = tunnel("", out);
    assert_eq!(derived.len(), 1, "{derived:?}");
    assert!(
        derived[0].contains(
            "tunnel 1 carries packets of up to 1450 bytes, and port port4 (tap:flnone1) has an MTU of 1500"
        ),
        "{derived:?}"
    );
    let given = tunnel("mtu = 1600", out);
    assert!(
        given[0].starts_with("1600: tunnel 1 makes packets of up to 1600 bytes, and its way out, port port3"),
        "{given:?}"
    );
    // Captures carry everything; and where the port is open, all may be it.
    assert_eq!(tunnel("mtu = 1600", "\"in_port=4,actions=encap:1,output:2\"").len(), 0);
    assert_eq!(tunnel("", "\"actions=encap:1,normal\"").len(), 1);
}
