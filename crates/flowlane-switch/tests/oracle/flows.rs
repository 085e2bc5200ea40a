//! Flows as text: the reader of rules against `ovs-ofctl parse-flows`, which prints what it has read.

use std::path::Path;

use flowlane::packet::Field;
use flowlane::packet::fields::FieldInfo;
use flowlane::rule::flow_syntax::{print_value, read};
use flowlane::rule::{Match, ReadOptions};

use crate::ovs::OvsPrograms;

/// Prerequisites of fields, in front of them.
const BASES: [&str; 13] = [
    "",
    "ip,",
    "ipv6,",
    "arp,",
    "tcp,",
    "udp6,",
    "sctp,",
    "icmp,",
    "icmp6,icmp_type=135,icmp_code=0,",
    "icmp6,icmp_type=136,icmp_code=0,",
    "mpls,",
    "dl_vlan=7,",
    "dl_type=0x1234,",
];

/// Fields that no packet has yet, and those that are read by a map of options. `flow_syntax` compares lines with them.
const LATER: [&str; 9] = [
    "ct_",
    "nsh_",
    "tun_metadata",
    "tun_erspan_",
    "conj_id",
    "dp_hash",
    "packet_type",
    "actset_output",
    "skb_priority",
];

/// Of the registers, which are alike, the first and the last.
fn is_typical(name: &str) -> bool {
    if LATER.iter().any(|start| name.starts_with(start)) {
        return false;
    }
    !name.contains("reg") || ["reg0", "reg15", "xreg0", "xxreg3"].contains(&name)
}

/// A value as it is printed.
fn value_text(field: Field, value: u128) -> String {
    let printed = print_value(field, value);
    printed.split_once('=').map_or(printed.as_str(), |(_, value)| value).to_owned()
}

/// Fields by all their names.
fn names() -> impl Iterator<Item = (&'static FieldInfo, &'static str)> {
    let typical = Field::all().iter().filter(|info| is_typical(info.name));
    typical.flat_map(|info| {
        std::iter::once(info.name).chain(info.aliases.iter().copied()).map(move |name| (info, name))
    })
}

/// Lines with a field in each way of writing it, behind each base; without fields of `unknown` names.
fn lines(unknown: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for (info, name) in names().filter(|(_, name)| !unknown.contains(name)) {
        let upper = info.ones() & !(info.ones() >> (info.width / 2));
        let [zero, one, ones, upper] = [0, 1, info.ones(), upper].map(|value| value_text(info.field, value));
        let written = [
            format!("{name}={one}"),
            format!("{name}={zero}"),
            format!("{name}={ones}"),
            format!("{name}:{one}"),
            format!("{name}({one})"),
            format!("{name}={one}/{ones}"),
            format!("{name}={one}/{upper}"),
            format!("{name}={ones}/{upper}"),
            format!("{name}={upper}/{upper}"),
            format!("{name}[]={one}"),
        ];
        for base in BASES {
            lines.extend(written.iter().map(|written| format!("{base}{written},actions=drop")));
        }
    }
    lines
}

/// Reads a line; none where it is refused.
fn own(line: &str) -> Option<Match> {
    let mut rules = read(line, "line", &ReadOptions::default()).ok()?;
    rules.pop().map(|rule| rule.matches)
}

/// The match that Open vSwitch prints of a line; none where that is refused.
fn of_printed(printed: &str) -> Option<Match> {
    let (_, flow) = printed.split_once("ADD ").unwrap_or_else(|| panic!("no flow is added: {printed}"));
    own(flow.trim_start_matches("table:255").trim())
}

/// Lines, each with the words of Open vSwitch about it.
type Said<'a> = Vec<(&'a str, String)>;

/// Returns lines that Open vSwitch reads, as it prints them, and those that it refuses, with its reason.
fn read_by_ovs<'a>(programs: &OvsPrograms, folder: &Path, mut lines: Vec<&'a str>) -> (Said<'a>, Said<'a>) {
    let (mut read, mut refused) = (Vec::new(), Vec::new());
    // It ends at the first line that it refuses.
    while !lines.is_empty() {
        let text = lines.join("\n") + "\n";
        match programs.run("ovs-ofctl", folder, &["parse-flows", "-"], &text) {
            Ok(printed) => {
                let flows: Vec<String> =
                    printed.lines().filter(|line| line.contains("FLOW_MOD")).map(str::to_owned).collect();
                assert_eq!(flows.len(), lines.len(), "a flow is printed for each line");
                // Some it reads and does not send.
                let sent = |(_, flow): &(&str, String)| !flow.contains("decode error");
                let (good, bad): (Vec<_>, Vec<_>) = lines.drain(..).zip(flows).partition(sent);
                read.extend(good);
                refused.extend(bad);
            }
            Err(said) => {
                let place = said.split_once("ovs-ofctl: -:").and_then(|(_, place)| place.split(':').next());
                let number = place.and_then(|number| number.parse::<usize>().ok());
                let number = number.unwrap_or_else(|| panic!("a line is named: {said}"));
                let rest = lines.split_off(number);
                let wrong = lines.pop().expect("it has the number");
                refused.push((wrong, said.trim().to_owned()));
                let text = lines.join("\n") + "\n";
                if !lines.is_empty() {
                    let printed = programs.run("ovs-ofctl", folder, &["parse-flows", "-"], &text);
                    let printed = printed.expect("the lines before it are right");
                    let flows = printed.lines().filter(|line| line.contains("FLOW_MOD")).map(str::to_owned);
                    read.extend(lines.drain(..).zip(flows));
                }
                lines = rest;
            }
        }
    }
    (read, refused)
}

/// Lines that both read, and not alike: a part of the line, and why.
const READ_OTHERWISE: [(&str, &str); 11] = [
    ("in_port=4294967295", "`ANY` of OpenFlow, which no packet has"),
    ("eth_type", "Open vSwitch drops the protocol of another EtherType"),
    ("dl_type", "Open vSwitch drops the protocol of another EtherType"),
    ("ip,tp_", "ports of any protocol: Open vSwitch drops them"),
    ("ipv6,tp_", "ports of any protocol: Open vSwitch drops them"),
    ("nw_proto[]", "another protocol: Open vSwitch drops the fields of the first"),
    ("ip_proto[]", "another protocol: Open vSwitch drops the fields of the first"),
    ("arp_op=65535", "Open vSwitch has eight bits of it"),
    ("tun_flags", "Open vSwitch has `oam` alone, and prints its name"),
    ("gtpu_", "Open vSwitch prints neither masks nor zeros"),
    ("tun_gbp_flags", "Open vSwitch prints no mask"),
];

/// Returns whether both read a line, and not alike: by its last field, and where a part names two, by these.
fn is_read_otherwise(line: &str) -> bool {
    let match_text = line.trim_end_matches(",actions=drop");
    let field = match_text.rsplit(',').next().unwrap_or(match_text);
    READ_OTHERWISE
        .iter()
        .any(|(part, _)| if part.contains(',') { match_text.contains(part) } else { field.contains(part) })
}

/// Why Open vSwitch refuses lines that are read: its words, and what they are about.
const REFUSED_THERE: [(&str, &str); 6] = [
    ("port value out of range", "Flowlane takes masks on more fields"),
    ("invalid mask", "Flowlane takes masks on more fields"),
    ("invalid or unknown port", "Flowlane takes masks on more fields"),
    ("unknown tunnel flag", "it has `oam` alone"),
    ("OFPBAC_MATCH_INCONSISTENT", "fields of tunnels that OpenFlow does not carry"),
    ("normalization changed", "a second line about one of those"),
];

/// Returns whether Open vSwitch has dropped the last field of a line, for which a packet is of the wrong kind: here that is an error.
fn is_dropped(line: &str, printed: &str) -> bool {
    let base = BASES.iter().filter(|base| line.starts_with(**base)).max_by_key(|base| base.len());
    let base = own(&format!("{} actions=drop", base.expect("each line has one")));
    of_printed(printed) == base
}

/// Returns whether a line names a field after another protocol than its own: Open vSwitch takes it for that protocol's field.
fn is_of_another(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').collect();
    let (Some(base), Some(field)) = (fields.first(), fields.iter().rev().nth(1)) else { return false };
    let of = ["tcp", "udp", "sctp", "icmpv6", "icmp", "arp", "tp_", "nd_options_type"]
        .into_iter()
        .find(|of| field.starts_with(of));
    let base = base.trim_end_matches('6');
    match of {
        Some("icmpv6") => fields[0] != "icmp6",
        Some("tp_") => base == "icmp",
        Some("icmp") => fields[0] != "icmp",
        Some(of) => base != of,
        None => field.contains("_proto") && fields.len() > 2,
    }
}

#[test]
fn flows_are_read_as_open_vswitch_reads_them() {
    let Some(programs) = OvsPrograms::find() else { return };
    let folder = tempfile::tempdir().expect("there is room for a folder");
    // Names that only Flowlane has.
    let alone: Vec<(String, &str)> =
        names().map(|(_, name)| (format!("{name}=1,actions=drop"), name)).collect();
    let (_, refused) = read_by_ovs(&programs, folder.path(), alone.iter().map(|(line, _)| &**line).collect());
    let unknown: Vec<&str> = refused
        .iter()
        .filter(|(_, said)| said.contains("unknown keyword"))
        .filter_map(|(line, _)| line.split('=').next())
        .collect();
    assert!(unknown.len() < 20, "names that Open vSwitch does not know: {unknown:?}");
    let lines = lines(&unknown);
    let (accepted, refused): (Vec<&str>, Vec<&str>) =
        lines.iter().map(String::as_str).partition(|line| own(line).is_some());
    let mut differences = Vec::new();
    let (read, not_read) = read_by_ovs(&programs, folder.path(), accepted);
    assert!(read.len() > 3500, "{} lines are read by both", read.len());
    for (line, printed) in &read {
        if own(line) != of_printed(printed) && !is_read_otherwise(line) {
            differences.push(format!("{line}: Open vSwitch has {printed}"));
        }
    }
    for (line, said) in not_read {
        if !REFUSED_THERE.iter().any(|(part, _)| said.contains(part)) {
            differences.push(format!("{line}: Open vSwitch refuses it: {said}"));
        }
    }
    let plain = refused.into_iter().filter(|line| line.contains("=1,actions"));
    let (read, _) = read_by_ovs(&programs, folder.path(), plain.collect());
    for (line, printed) in &read {
        if !is_read_otherwise(line) && !is_dropped(line, printed) && !is_of_another(line) {
            differences.push(format!("{line}: refused, Open vSwitch has {printed}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
