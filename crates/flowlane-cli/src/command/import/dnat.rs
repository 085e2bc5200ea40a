//! Rules with DNAT of a table nat: flows do not say them, and `forward` of `[firewall]` does.

use std::net::Ipv4Addr;

/// Returns how an entry of `forward` has a rule; none where none does. `PORT` is for an outside port that the rule does not name.
pub(super) fn entry(words: &[String]) -> Option<String> {
    let (mut port, mut from, mut protocol, mut ports, mut to) = ("PORT", None, None, None, None);
    let (mut is_dnat, mut is_negated) = (false, false);
    let mut words = words.iter().map(String::as_str);
    while let Some(option) = words.next() {
        if option == "!" {
            is_negated = true;
            continue;
        }
        let value = words.next()?;
        match option {
            // Packets of all ports but those inside, as programs for containers write them.
            "-i" | "--in-interface" if is_negated => {}
            _ if is_negated => return None,
            // The destination is an address of the port.
            "-A" | "-c" | "--comment" | "-d" | "--destination" => {}
            "-i" | "--in-interface" => port = value,
            "-s" | "--source" => from = Some(value),
            "-p" | "--protocol" if ["tcp", "udp", "sctp"].contains(&value) => protocol = Some(value),
            "-m" | "--match" if ["tcp", "udp", "sctp", "multiport", "comment"].contains(&value) => {}
            "--dport" | "--destination-port" | "--dports" | "--destination-ports" => ports = Some(value),
            "-j" | "--jump" if value == "DNAT" => is_dnat = true,
            "--to-destination" => to = Some(value),
            _ => return None,
        }
        is_negated = false;
    }
    let (ports, to) = (ports?.replace(':', "-"), to?);
    let (host, host_port) = to.split_once(':').map_or((to, None), |(host, port)| (host, Some(port)));
    host.parse::<Ipv4Addr>().ok()?;
    let is_one = !ports.contains([',', '-']);
    let rest = match host_port {
        // The port that it has anyway.
        Some(same) if is_one && same == ports => host,
        Some(port) if is_one => port.parse::<u16>().ok().map(|_| to)?,
        Some(_) => return None,
        None => host,
    };
    let from = from.map_or_else(String::new, |from| format!(" from {from}"));
    let protocol = protocol.filter(|_| is_dnat)?;
    Some(format!("{port} {protocol} {ports}{from} to {rest}"))
}
