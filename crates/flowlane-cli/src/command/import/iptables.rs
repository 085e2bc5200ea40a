//! The chain FORWARD of the output of `iptables-save` and `ip6tables-save`.

use std::collections::BTreeMap;

use super::chains::{Chains, Line, Target};
use super::condition::{Condition, ICMP, ICMPV6, IPV4, IPV6, Network, SCTP, TCP, UDP};
use super::condition::{other_ports, protocol_of, state_of};
use super::{LeftOut, List, with_policy};

/// Extensions whose options are read, or have none.
const MODULES: [&str; 12] = [
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "icmpv6",
    "ipv6-icmp",
    "multiport",
    "conntrack",
    "state",
    "comment",
    "iprange",
];

const FLAGS: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

pub(super) fn read(text: &str) -> Result<List, String> {
    let is_v6 = text.lines().any(|line| line.starts_with('#') && line.contains("ip6tables-save"));
    let family = if is_v6 { IPV6 } else { IPV4 };
    let (mut chains, mut policy) = (Chains::default(), None);
    // Rules that are left out, by their chain: only those count that packets may come to.
    let mut left_out: Vec<(String, LeftOut)> = Vec::new();
    let mut others: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut table = String::new();
    for (n, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line.trim())) {
        let place = format!("line {n}");
        match line.chars().next() {
            None | Some('#') => {}
            Some('*') => table = line[1..].to_owned(),
            Some(':') if table == "filter" => {
                let words: Vec<&str> = line[1..].split_whitespace().collect();
                if words.first() == Some(&"FORWARD") {
                    policy = Some(words.get(1) != Some(&"DROP"));
                }
                chains.0.entry(words.first().copied().unwrap_or_default().to_owned()).or_default();
            }
            _ if line == "COMMIT" => table.clear(),
            _ if table == "filter" => {
                let words = words_of(line).map_err(|problem| format!("{place}: {problem}"))?;
                let Some(chain) = words.iter().position(|word| word == "-A").and_then(|at| words.get(at + 1))
                else {
                    return Err(format!("{place}: `-A CHAIN` is expected, as iptables-save writes it"));
                };
                match rule(&words, family) {
                    Ok((condition, target, reason)) => {
                        left_out.extend(reason.map(|reason| (chain.clone(), LeftOut::new(&place, reason))));
                        chains.0.entry(chain.clone()).or_default().push(Line { place, condition, target });
                    }
                    Err(reason) => left_out.push((chain.clone(), LeftOut::new(&place, reason))),
                }
            }
            Some('-' | '[') => others.entry(table.clone()).or_insert((n, 0)).1 += 1,
            _ => {}
        }
    }
    let policy =
        policy.ok_or("there is no chain FORWARD in a table filter: is this the output of iptables-save?")?;
    left_out.extend(chains.remove_unknown_targets());
    let reached = chains.reached("FORWARD");
    let (entries, more) = chains.list("FORWARD", &Condition::of(family), policy)?;
    let mut left_out: Vec<LeftOut> = left_out
        .into_iter()
        .filter(|(chain, _)| reached.contains(chain))
        .map(|(_, left)| left)
        .chain(more)
        .collect();
    left_out.extend(others.into_iter().map(|(table, (first, count))| {
        LeftOut::new(&format!("line {first}"), format!("{count} rules of table {table}"))
    }));
    left_out.dedup();
    Ok(List { entries: with_policy(entries, family, policy), left_out })
}

/// The words of a line, with quotes around some.
fn words_of(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut is_quoted, mut is_escaped) = (Vec::new(), None, false, false);
    for c in line.chars() {
        match c {
            _ if is_escaped => {
                word.get_or_insert_with(String::new).push(c);
                is_escaped = false;
            }
            '\\' if is_quoted => is_escaped = true,
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_with(String::new);
            }
            ' ' | '\t' if !is_quoted => words.extend(word.take()),
            _ => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    if is_quoted { Err("a quote is not closed".to_owned()) } else { Ok(words) }
}

/// A rule: its condition and target, and what of it is not said.
fn rule(words: &[String], family: u8) -> Result<(Condition, Target, Option<String>), String> {
    let mut condition = Condition::of(family);
    let (mut target, mut is_negated, mut note) = (None, false, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{option}` has no value"));
        match option {
            "!" => {
                is_negated = true;
                continue;
            }
            "-A" | "-c" | "--comment" | "--reject-with" => _ = value()?,
            "-j" | "--jump" => match value()? {
                "ACCEPT" => target = Some(Target::Accept),
                "DROP" => target = Some(Target::Drop),
                "RETURN" => target = Some(Target::Return),
                "REJECT" => {
                    note = Some("REJECT becomes drop: the sender gets no error".to_owned());
                    target = Some(Target::Drop);
                }
                chain => target = Some(Target::Jump(chain.to_owned())),
            },
            "-g" | "--goto" => target = Some(Target::Goto(value()?.to_owned())),
            "-m" | "--match" => {
                let module = value()?;
                if !MODULES.contains(&module) {
                    return Err(format!("match {module}"));
                }
            }
            "--tcp-flags" => {
                let (mask, set) = (value()?, value()?);
                let flags = flags(mask, set, is_negated)?;
                condition.flags = Some(flags);
            }
            "--syn" => condition.flags = Some(flags("FIN,SYN,RST,ACK", "SYN", is_negated)?),
            _ => {
                let own = single(option, value, is_negated, family)?;
                condition = condition.and(&own)?.ok_or("no packet matches it")?;
            }
        }
        is_negated = false;
    }
    let has_ports = condition.src_ports.is_some() || condition.dst_ports.is_some();
    if has_ports && !matches!(condition.protocol, Some(TCP | UDP | SCTP)) {
        return Err("ports of no protocol that has ports".to_owned());
    }
    let target = target.ok_or("no target: it only counts")?;
    Ok((condition, target, note))
}

/// An option with one value.
fn single<'a>(
    option: &str,
    mut value: impl FnMut() -> Result<&'a str, String>,
    is_negated: bool,
    family: u8,
) -> Result<Condition, String> {
    let mut condition = Condition::of(family);
    let negated = || format!("`! {option}`");
    match option {
        "-s" | "--source" | "-d" | "--destination" => {
            let text = value()?;
            let network = Network::read(text).filter(|network| network.family == family);
            let network = network.ok_or_else(|| format!("`{option} {text}` is no network of this family"))?;
            let networks = Some(if is_negated { network.others() } else { vec![network] });
            *(if option.starts_with("-s") || option == "--source" {
                &mut condition.src
            } else {
                &mut condition.dst
            }) = networks;
        }
        "-p" | "--protocol" => {
            let name = value()?;
            if is_negated {
                return Err(negated());
            }
            let number = protocol_of(name).ok_or_else(|| format!("protocol {name}"))?;
            condition.protocol = (name != "all" && number != 0).then_some(number);
        }
        "-i" | "--in-interface" => {
            let name = value()?;
            if is_negated || name.ends_with('+') {
                return Err(format!("several interfaces (`{option} {name}`)"));
            }
            condition.in_port = Some(name.to_owned());
        }
        "-o" | "--out-interface" => {
            return Err(format!("the interface that packets leave through (`-o {}`)", value()?));
        }
        "--ctstate" | "--state" => {
            let names = value()?;
            let known = names.split(',').filter(|name| *name != "UNTRACKED");
            let states = known.map(|name| state_of(name).ok_or_else(|| format!("state {name}")));
            let states = states.collect::<Result<Vec<_>, _>>()?.into_iter().fold(0, |all, state| all | state);
            condition.states = Some(if is_negated { !states & 0xf } else { states });
        }
        _ => of_ports_or_messages(option, value, is_negated, &mut condition)?,
    }
    Ok(condition)
}

/// Reads an option for ports, ranges of addresses or messages of ICMP.
fn of_ports_or_messages<'a>(
    option: &str,
    mut value: impl FnMut() -> Result<&'a str, String>,
    is_negated: bool,
    condition: &mut Condition,
) -> Result<(), String> {
    match option {
        "--sport"
        | "--source-port"
        | "--sports"
        | "--source-ports"
        | "--dport"
        | "--destination-port"
        | "--dports"
        | "--destination-ports" => {
            let text = value()?;
            let ranges = text.split(',').map(port_range).collect::<Option<Vec<_>>>();
            let ranges = ranges.ok_or_else(|| format!("ports `{text}`"))?;
            let ranges = Some(if is_negated { other_ports(&ranges) } else { ranges });
            *(if option.starts_with("--s") { &mut condition.src_ports } else { &mut condition.dst_ports }) =
                ranges;
        }
        "--src-range" | "--dst-range" if !is_negated => {
            let text = value()?;
            let ends =
                text.split_once('-').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            let networks = ends.and_then(|(low, high)| Network::range(low, high));
            let networks = Some(networks.ok_or_else(|| format!("range `{text}`"))?);
            *(if option == "--src-range" { &mut condition.src } else { &mut condition.dst }) = networks;
        }
        "--icmp-type" | "--icmpv6-type" if !is_negated => {
            let text = value()?;
            let (kind, code) = text.split_once('/').map_or((text, None), |(kind, code)| (kind, Some(code)));
            let number = |text: &str| text.parse::<u8>().map_err(|_| format!("ICMP type `{text}` by a name"));
            condition.protocol = Some(if condition.families == IPV4 { ICMP } else { ICMPV6 });
            if text != "any" {
                condition.icmp = Some((number(kind)?, code.map(number).transpose()?));
            }
        }
        other => return Err(format!("`{other}`")),
    }
    Ok(())
}

fn port_range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once(':').unwrap_or((text, text));
    let low = if low.is_empty() { 0 } else { low.parse().ok()? };
    let high = if high.is_empty() { u16::MAX } else { high.parse().ok()? };
    (low <= high).then_some((low, high))
}

/// Flags in flow syntax: those of `set` are set, and the others of `mask` are not. Negated, each flag that differs is an alternative.
fn flags(mask: &str, set: &str, is_negated: bool) -> Result<Vec<String>, String> {
    let list = |text: &str| -> Result<Vec<&str>, String> {
        match text {
            "ALL" => Ok(FLAGS.to_vec()),
            "NONE" => Ok(Vec::new()),
            text => text
                .split(',')
                .map(|name| FLAGS.iter().find(|f| **f == name).copied().ok_or_else(|| format!("flag {name}")))
                .collect(),
        }
    };
    let (mask, set) = (list(mask)?, list(set)?);
    let sign = |flag: &&str, is_other: bool| {
        format!("{}{}", if set.contains(flag) == is_other { '-' } else { '+' }, flag.to_ascii_lowercase())
    };
    if is_negated {
        return Ok(mask.iter().map(|flag| sign(flag, true)).collect());
    }
    if let Some(flag) = set.iter().find(|flag| !mask.contains(flag)) {
        return Err(format!("flag {flag} outside of its mask"));
    }
    Ok(vec![mask.iter().map(|flag| sign(flag, false)).collect()])
}
