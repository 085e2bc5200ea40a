//! What must differ between two switches, taken out of the text.

/// Text in front of values that differ.
const VALUES: [&str; 7] = ["xid=", "dpid:", "addr:", "duration=", "duration:", " time=", " duration"];

/// The output of a command without what must differ; where a switch may choose the order, sorted.
pub(super) fn normal(command: &str, switch: &str, output: &str) -> String {
    let mut blocks: Vec<String> = Vec::new();
    // Open vSwitch's dummy ports do not count these, and have counters of their own.
    let output = output.replace(switch, "BR").replace("=?", "=0");
    for line in output.lines().filter(|line| !is_custom(line)) {
        let line = VALUES.iter().fold(untimed(line).to_owned(), |line, name| without(&line, name));
        // Lines that belong to the one before stay with it.
        match blocks.last_mut() {
            Some(block) if line.starts_with("     ") => {
                block.push('\n');
                block.push_str(&line);
            }
            _ => blocks.push(line),
        }
    }
    blocks.retain(|block| !is_local(block));
    if is_unordered(command) {
        blocks.sort();
    }
    blocks.iter().map(|block| format!("{block}\n")).collect()
}

/// Returns whether a line has the further counters of a dummy port.
fn is_custom(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("CUSTOM Statistics") || line.starts_with("rx_custom") || line.starts_with("rx_q0")
}

/// Returns whether text describes the port of the host, which only Open vSwitch has.
fn is_local(block: &str) -> bool {
    [" LOCAL(", "  port LOCAL:", "  port \"br0\":", "  port br0:"]
        .iter()
        .any(|local| block.starts_with(local))
}

/// Returns whether a command prints in an order that the switch chooses.
fn is_unordered(command: &str) -> bool {
    let dumps =
        ["dump-flows", "dump-groups", "dump-group-stats", "dump-ports", "show", "dump-meters", "meter-stats"];
    !command.contains("sort") && dumps.iter().any(|dump| command.contains(dump))
}

/// A line of a log without its time and number: `2026-01-01T00:00:00Z|00001|vconn|WARN|…`.
fn untimed(line: &str) -> &str {
    match line.split_once("Z|") {
        Some((_, rest)) if line.starts_with("20") => rest.split_once('|').map_or(rest, |(_, rest)| rest),
        _ => line,
    }
}

/// A line without the values behind a name.
fn without(line: &str, name: &str) -> String {
    let mut parts = line.split(name);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start();
        let end = part.find([',', ' ', ')']).unwrap_or(part.len());
        out.push_str(name);
        out.push('*');
        out.push_str(&part[end..]);
    }
    let out = ["idle_age=", "hard_age="].iter().fold(out, |out, name| without_age(out, name));
    // With the port of the host.
    out.replace(": 5 ports", ": 4 ports")
}

/// The text without an age: Flowlane keeps no time of the last packet for each rule, and an age of 0 s is not printed.
fn without_age(text: String, name: &str) -> String {
    match text.split_once(name) {
        Some((before, rest)) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            format!("{before}{}", rest[end..].trim_start_matches([',', ' ']))
        }
        None => text,
    }
}
