//! Flows of Open vSwitch's own tests, which `ovs-ofctl` takes: they are read, and printed so that it reads the same flow.

use std::fs;
use std::process::Command;

use super::super::{print_rule, read, read_changes};
use super::options;

/// The flow that `ovs-ofctl` reads, as bytes of OpenFlow or as it prints them, in a version of OpenFlow; none where it cannot.
fn theirs(line: &str, version: Option<&str>) -> Option<String> {
    let mut command = Command::new("ovs-ofctl");
    command.args(version.map(|version| ["-O", version]).into_iter().flatten());
    let output = command.args(["parse-flow", line]).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let flow = text.lines().filter(|line| !line.starts_with("usable") && !line.starts_with("chosen"));
    // Either message has the same flow, the latter where the match is one of OpenFlow 1.0.
    Some(flow.collect::<Vec<_>>().join("\n").replace("NXT_FLOW_MOD", "OFPT_FLOW_MOD"))
}

/// A line, as a rule with the flow's time-outs and flags that are no part of the rule.
fn printed(line: &str) -> Result<String, String> {
    let rules = read(line, "lines.txt", &options()).map_err(|e| e.to_string())?;
    let changes = read_changes(line, "lines.txt", &options()).map_err(|e| e.to_string())?;
    let [rule] = &rules[..] else { return Err(format!("{} rules", rules.len())) };
    let change = &changes[0];
    assert_eq!(change.rule, *rule, "{line}");
    let mut out = String::new();
    for (name, seconds) in [("idle_timeout", change.idle_timeout_s), ("hard_timeout", change.hard_timeout_s)]
    {
        if seconds != 0 {
            out += &format!("{name}={seconds},");
        }
    }
    if change.importance != 0 {
        out += &format!("importance={},", change.importance);
    }
    for name in ["send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"] {
        if change.flags.contains(super::super::FlowFlags::named(name).unwrap()) {
            out += &format!("{name},");
        }
    }
    Ok(out + &print_rule(rule))
}

/// The lines that are refused here, and those of which `ovs-ofctl` reads another flow as they are printed.
fn differences(lines: &[&str]) -> (Vec<String>, Vec<String>) {
    let (mut refused, mut others) = (Vec::new(), Vec::new());
    for line in lines {
        let ours = match printed(line) {
            Ok(ours) => ours,
            Err(problem) => {
                refused.push(problem);
                continue;
            }
        };
        let mut versions = [None, Some("OpenFlow15")].into_iter();
        let other = versions.find_map(|version| {
            let flow = theirs(line, version)?;
            let back = theirs(&ours, version);
            (back.as_deref() != Some(&flow)).then_some((flow, back))
        });
        if let Some((flow, back)) = other {
            others.push(format!("{line}\n  {ours}\n  {flow}\n  {}", back.unwrap_or_default()));
        }
    }
    (refused, others)
}

#[test]
fn the_flows_of_open_vswitchs_tests_are_read_and_printed_as_the_same_flows() {
    let Some(path) = crate::testing::data("../field/ovs-flows/lines.txt") else { return };
    if theirs("actions=drop", None).is_none() {
        println!("skipped: ovs-ofctl is not installed");
        return;
    }
    let text = fs::read_to_string(path).expect("the file can be read");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let (refused, others) = differences(&lines);
    println!("{} of {} lines are refused:\n{}", refused.len(), lines.len(), refused.join("\n"));
    println!("{} others are printed as other flows:\n{}", others.len(), others.join("\n"));
    let same = lines.len() - refused.len() - others.len();
    assert!(same * 100 >= lines.len() * 98, "{same} of {} lines become the same flow", lines.len());
}
