//! The page of the rule language: every field and action, from the library's tables.

use flowlane::Field;
use flowlane::packet::fields::FieldInfo;
use flowlane::rule::flow_syntax::{ACTIONS, protocols};

use super::page::{Block, Page};

/// Before the tables.
const OPENING: &str = "A rule has a match, and actions for the packets that it matches. Rules are written as `ovs-ofctl add-flow` takes them, one a line; a `#` begins a comment.";
const EXAMPLE: &str = "table=0,priority=100,tcp,nw_dst=192.0.2.0/24,tp_dst=443,actions=dec_ttl,output:2
table=0,priority=0,actions=normal";
const MATCHING: &str = "A packet enters at table 0 and takes the rule of the highest priority (32768 where none is written, at most 65535) that it matches; of several with one priority, the first. A field that the match does not name may have any value. A field needs the protocol that it belongs to on the same line: `tcp,tp_dst=80`, not `tp_dst=80` alone. Where no rule matches, the table's `miss` decides.";
const VALUES: &str = "A mask follows the value: `nw_dst=192.0.2.0/24`, `reg0=0x1/0xff`, `dl_dst=01:00:00:00:00:00/01:00:00:00:00:00`. `tp_src` and `tp_dst` take ranges, both ends included: `tp_dst=1024-65535`; so do `icmp_type` and `icmp_code`. A part of a field is written `reg0[0..15]`, `reg0[3]` is a bit, `reg0[]` all of it; `xreg0` to `xreg7` and `xxreg0` to `xxreg3` are two and four registers in one. Names of extensible matches are read, too: `NXM_NX_REG0[0..15]`, `OXM_OF_METADATA[]`.";
const KEYS: &[(&str, &str)] = &[
    ("`table=N`", "the table, 0 to 254; 0 where it is left out"),
    ("`priority=N`", "0 to 65535; 32768 where it is left out"),
    ("`cookie=N`", "a number of 64 bits by which rules are found again"),
    (
        "`idle_timeout=S`, `hard_timeout=S`",
        "in a running switch: seconds until the rule is removed, without packets and in any case",
    ),
    ("`importance=N`", "rules of less importance are removed first where a table is full"),
    (
        "`send_flow_rem`, `check_overlap`, `reset_counts`, `no_packet_counts`, `no_byte_counts`",
        "as in OpenFlow",
    ),
];
const ACTING: &str = "Actions are executed from left to right. Words in capitals are filled in, parts in brackets may be left out. In a configuration, ports have names, too.";
const DIFFERENCES: &str = "A match that lacks the protocol of a field is an error, where Open vSwitch warns and drops the field. Numbers that do not fit are errors. Fields and actions are those of Open vSwitch 3.1, but for `ipv6_exthdr`, `debug_recirc` and `debug_slow`; `count` and `encap:N` are Flowlane's.";

/// `flowlane-flows(7)`.
pub(super) fn page() -> Page {
    let text = |text: &str| Block::Text(text.to_owned());
    let heading = |text: &str| Block::Heading(text.to_owned());
    let code = |text: &str| vec![format!("`{text}`")];
    let mut blocks = vec![text(OPENING), Block::Code(EXAMPLE.to_owned()), text(MATCHING)];
    blocks.extend([heading("Rules"), text("Beside fields, a rule may have:")]);
    let rows = KEYS.iter().map(|(key, about)| vec![(*key).to_owned(), (*about).to_owned()]).collect();
    blocks.push(Block::Rows(&["key", "meaning"], rows));
    blocks.extend([heading("Protocols"), text("Words in the place of fields:")]);
    let protocol = |(name, eth_type, nw_proto): (&str, u16, Option<u8>)| {
        let proto = nw_proto.map_or(String::new(), |proto| format!(",nw_proto={proto}"));
        [code(name), code(&format!("dl_type={eth_type:#06x}{proto}"))].concat()
    };
    blocks.push(Block::Rows(&["word", "short for"], protocols().map(protocol).collect()));
    blocks.extend([heading("Fields"), text(VALUES)]);
    let columns = &["field", "bits", "mask", "set by actions", "written", "of packets"];
    blocks.push(Block::Rows(columns, Field::all().iter().map(field).collect()));
    blocks.extend([heading("Actions"), text(ACTING)]);
    for (group, actions) in ACTIONS {
        blocks.push(Block::Subheading((*group).to_owned()));
        let rows = actions.iter().map(|action| {
            let others = &action.names[1..];
            let also = match others.is_empty() {
                true => String::new(),
                false => format!(" Also `{}`.", others.join("`, `")),
            };
            [code(action.form), vec![format!("{}{also}", action.about)], code(action.example)].concat()
        });
        blocks.push(Block::Rows(&["action", "effect", "example"], rows.collect()));
    }
    blocks.extend([heading("Differences from Open vSwitch"), text(DIFFERENCES)]);
    Page { name: "flowlane-flows", section: 7, file: "flows", about: "rules: matches and actions", blocks }
}

fn field(info: &FieldInfo) -> Vec<String> {
    let names: Vec<String> = [info.name].iter().chain(info.aliases).map(|name| format!("`{name}`")).collect();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        names.join(", "),
        info.width.to_string(),
        yes(info.maskable),
        yes(info.writable),
        info.written().to_owned(),
        info.of_packets().to_owned(),
    ]
}
