//! Flows as `ovs-ofctl dump-flows` prints them: a header, statistics in front of each, ports by name.

use std::collections::HashSet;

use super::super::error::Token;
use super::values::is_reserved_port;
use crate::packet::fields::Field;

const HEADERS: [&str; 2] = ["NXST_FLOW reply", "OFPST_FLOW reply"];
const STATISTICS: [&str; 2] = ["duration=", "n_packets="];

/// Returns whether a line is the one that is printed first, as in `NXST_FLOW reply (xid=0x4):`.
pub(super) fn is_header(line: Token<'_>) -> bool {
    let text = line.text.trim();
    HEADERS.into_iter().any(|begin| text.starts_with(begin)) && !text.contains("actions=")
}

/// The names of ports in a dump, in the order of appearance, each once; empty for a text that is no dump.
///
/// Only the switch that printed them has their numbers: a reader without a configuration may number them itself.
pub fn dumped_ports(text: &str) -> Vec<&str> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    if !HEADERS.into_iter().chain(STATISTICS).any(|mark| text.contains(mark)) {
        return names;
    }
    for key in ["in_port=", "output:"] {
        for (at, _) in text.match_indices(key) {
            let rest = &text[at + key.len()..];
            let name = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next(),
                None => rest.split([',', ' ', '\t', '\r', '\n', ')']).next(),
            };
            let is_name = |name: &&str| {
                let is_number = name.starts_with(|c: char| c.is_ascii_digit()) && !rest.starts_with('"');
                let is_field = name.contains('[') || Field::by_name(name).is_some();
                !name.is_empty() && !is_number && !is_field && !is_reserved_port(name)
            };
            names.extend(name.filter(is_name).filter(|name| known.insert(*name)));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::super::action::PortNo;
    use super::super::super::{Action, Priority, ReadOptions};
    use super::super::{FlowFlags, read, read_changes};
    use super::*;

    const DUMP: &str = "NXST_FLOW reply (xid=0x4):\n\
        \x20cookie=0x5, duration=8.5s, table=0, n_packets=3, n_bytes=180, idle_timeout=60, hard_timeout=120, \
        importance=7, idle_age=4, hard_age=5, send_flow_rem check_overlap reset_counts no_packet_counts \
        no_byte_counts priority=5,tcp,in_port=\"eth0,1\",tp_dst=0x50/0xfff0 actions=output:\"br-x\",output:eth1\n\
        \x20cookie=0x0, duration=1.2s, table=1, n_packets=0, n_bytes=0, n_offload_packets=0, idle_age=1, \
        in_port=LOCAL actions=resubmit(,2)\n";

    #[test]
    fn a_dump_is_read_as_it_is_printed() {
        let names = dumped_ports(DUMP);
        assert_eq!(names, ["eth0,1", "br-x", "eth1"]);
        let number = |name: &str| names.iter().position(|known| *known == name).map(|n| PortNo(n as u32 + 1));
        let options = ReadOptions { ports: &number, ..ReadOptions::default() };
        let rules = read(DUMP, "dump", &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((rules[0].priority, rules[0].cookie), (Priority(5), 5));
        assert_eq!(rules[0].matches.get(Field::InPort), (1, 0xffff_ffff));
        assert_eq!(rules[0].matches.get(Field::TpDst), (0x50, 0xfff0));
        assert_eq!(rules[0].actions, [Action::Output(PortNo(2)), Action::Output(PortNo(3))]);
        assert_eq!(rules[1].matches.get(Field::InPort), (0xfffe, 0xffff_ffff));
        assert_eq!(rules[1].actions, [Action::call(2)]);
        let changes = read_changes(DUMP, "dump", &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((changes.len(), changes[0].idle_timeout_s, changes[0].hard_timeout_s), (2, 60, 120));
        assert_eq!((changes[0].importance, changes[0].flags), (7, FlowFlags(0x1f)));
        let newer = DUMP.replace("NXST_FLOW reply (", "OFPST_FLOW reply (OF1.3) (");
        assert_eq!(read(&newer, "dump", &options), Ok(rules));
    }

    #[test]
    fn names_of_ports_are_those_of_dumps_alone() {
        assert_eq!(dumped_ports("in_port=eth0,actions=output:nowhere"), [""; 0]);
        let text =
            "n_packets=0, in_port=3 actions=output:reg0,output:NXM_NX_REG1[],output:controller,output:\"7\"";
        assert_eq!(dumped_ports(text), ["7"]);
        // Linear: a search among the names before each would take minutes.
        let many: String = (0..200_000).map(|n| format!("n_packets=0 actions=output:p{n}\n")).collect();
        assert_eq!(dumped_ports(&(many.clone() + &many)).len(), 200_000);
    }
}
