//! Extended access lists, as Cisco IOS writes them.

use std::collections::BTreeMap;
use std::iter::{Copied, Peekable};
use std::net::{IpAddr, Ipv4Addr};

use super::chains::Entry;
use super::condition::{Condition, ICMP, IPV4, Network, SCTP, TCP, UDP, other_ports, protocol_of};
use super::{LeftOut, List, with_policy};

/// Ports with names.
const PORTS: [(&str, u16); 22] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("tacacs", 49),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("www", 80),
    ("http", 80),
    ("pop3", 110),
    ("sunrpc", 111),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("isakmp", 500),
    ("syslog", 514),
];

/// Messages of ICMP with names: the type and the code.
const MESSAGES: [(&str, u8, Option<u8>); 10] = [
    ("echo-reply", 0, None),
    ("unreachable", 3, None),
    ("net-unreachable", 3, Some(0)),
    ("host-unreachable", 3, Some(1)),
    ("port-unreachable", 3, Some(3)),
    ("packet-too-big", 3, Some(4)),
    ("redirect", 5, None),
    ("echo", 8, None),
    ("time-exceeded", 11, None),
    ("ttl-exceeded", 11, Some(0)),
];

pub(super) fn read(text: &str) -> Result<List, String> {
    let (mut entries, mut left_out) = (BTreeMap::<u64, Entry>::new(), Vec::new());
    let mut list: Option<String> = None;
    let mut open = None;
    for (n, line) in text.lines().enumerate() {
        let place = format!("line {}", n + 1);
        let line = match line_of(line, &mut open) {
            Ok(Some(line)) => line,
            Ok(None) => continue,
            Err(reason) => {
                left_out.push(LeftOut::new(&place, reason));
                continue;
            }
        };
        if *list.get_or_insert_with(|| line.list.clone()) != line.list {
            left_out.push(LeftOut::new(
                &place,
                format!("access list {}: only the first of a file is converted", line.list),
            ));
            continue;
        }
        match entry(&line.words) {
            Ok((entry, note)) => {
                // An entry without a number goes behind all others, as it does when it is typed.
                let last = entries.last_key_value().map_or(0, |(number, _)| *number);
                let number = line.number.map_or(last.saturating_add(10), u64::from);
                if entries.contains_key(&number) {
                    left_out.push(LeftOut::new(&place, format!("the list has an entry {number} already")));
                    continue;
                }
                entries.insert(number, entry);
                left_out.extend(note.map(|note| LeftOut::new(&place, note)));
            }
            Err(reason) => left_out.push(LeftOut::new(&place, reason)),
        }
    }
    list.ok_or("there is no line `access-list NUMBER permit …` or `ip access-list extended NAME`")?;
    Ok(List { entries: with_policy(entries.into_values().collect(), IPV4, false), left_out })
}

/// A line of a list: `permit …` or `deny …`.
struct Line<'a> {
    list: String,
    number: Option<u32>,
    words: Vec<&'a str>,
}

/// Returns the line of a list that this is. `open` is the list that lines with a number or `permit` at the beginning belong to.
fn line_of<'a>(line: &'a str, open: &mut Option<String>) -> Result<Option<Line<'a>>, String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let (list, number) = match &words[..] {
        [] => return Ok(None),
        [first, ..] if first.starts_with('!') => return Ok(None),
        ["ip", "access-list", "extended", name] => {
            *open = Some((*name).to_owned());
            return Ok(None);
        }
        ["access-list", name, ..] => {
            *open = None;
            if !is_extended(name) {
                return Err(format!("`access-list {name}` is no extended access list"));
            }
            let list = (*name).to_owned();
            words.drain(..2);
            (list, None)
        }
        [first, ..] if ["permit", "deny", "remark"].contains(first) || first.parse::<u32>().is_ok() => {
            let list = open.clone().ok_or("no `ip access-list extended NAME` before it")?;
            let number = first.parse().ok();
            words.drain(..usize::from(number.is_some()));
            (list, number)
        }
        _ => {
            // Lines of a list are indented.
            if !line.starts_with(char::is_whitespace) {
                *open = None;
            }
            return Err("no part of an extended access list".to_owned());
        }
    };
    Ok((words.first() != Some(&"remark")).then_some(Line { list, number, words }))
}

/// Returns whether lists with this number are extended ones.
fn is_extended(number: &str) -> bool {
    number.parse().is_ok_and(|number: u32| matches!(number, 100..=199 | 2000..=2699))
}

/// The rest of a line.
struct Words<'w, 'a>(Peekable<Copied<std::slice::Iter<'w, &'a str>>>);

impl<'a> Words<'_, 'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn address(&mut self) -> Result<Option<Vec<Network>>, String> {
        let address = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| format!("`{text}` is no address"));
        match self.next("an address")? {
            "any" => Ok(None),
            "host" => {
                let host = address(self.next("an address")?)?;
                Ok(Some(vec![Network::new(IpAddr::V4(host), u32::MAX.into())]))
            }
            group @ ("object-group" | "addrgroup") => Err(format!("{group} {}", self.next("a name")?)),
            first => {
                let (first, wild) = (address(first)?, address(self.next("a wildcard mask")?)?);
                Ok(Some(vec![Network::new(IpAddr::V4(first), u128::from(!u32::from(wild)))]))
            }
        }
    }

    fn ports(&mut self) -> Result<Option<Vec<(u16, u16)>>, String> {
        let Some(operator) = self.0.next_if(|word| ["eq", "neq", "gt", "lt", "range"].contains(word)) else {
            return Ok(None);
        };
        let first = port(self.next("a port")?)?;
        Ok(Some(match operator {
            "gt" => first.checked_add(1).map(|low| (low, u16::MAX)).into_iter().collect(),
            "lt" => first.checked_sub(1).map(|high| (0, high)).into_iter().collect(),
            "range" => {
                let last = port(self.next("a port")?)?;
                vec![(first.min(last), first.max(last))]
            }
            _ => {
                let mut ports = vec![(first, first)];
                while let Some(more) = self.0.peek().and_then(|word| port(word).ok()) {
                    self.0.next();
                    ports.push((more, more));
                }
                if operator == "neq" { other_ports(&ports) } else { ports }
            }
        }))
    }
}

fn port(text: &str) -> Result<u16, String> {
    let known = PORTS.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
    known.or_else(|| text.parse().ok()).ok_or_else(|| format!("port {text}"))
}

/// `permit|deny PROTOCOL SOURCE [PORTS] DESTINATION [PORTS] [established] [MESSAGE] [log]`
fn entry(words: &[&str]) -> Result<(Entry, Option<String>), String> {
    let mut words = Words(words.iter().copied().peekable());
    let passes = match words.next("permit or deny")? {
        "permit" => true,
        "deny" => false,
        other => return Err(format!("`{other}`")),
    };
    let mut condition = Condition::of(IPV4);
    let protocol = words.next("a protocol")?;
    if protocol != "ip" {
        condition.protocol = Some(protocol_of(protocol).ok_or_else(|| format!("protocol {protocol}"))?);
    }
    let has_ports = matches!(condition.protocol, Some(TCP | UDP | SCTP));
    condition.src = words.address()?;
    if has_ports {
        condition.src_ports = words.ports()?;
    }
    condition.dst = words.address()?;
    if has_ports {
        condition.dst_ports = words.ports()?;
    }
    let mut note = None;
    while let Some(word) = words.0.next() {
        match word {
            // Segments with ACK or RST, whatever their connection is.
            "established" if condition.protocol == Some(TCP) => {
                condition.flags = Some(vec!["+ack".to_owned(), "+rst".to_owned()]);
            }
            "log" | "log-input" => note = Some(format!("`{word}`: the rule counts, and writes no log")),
            other if condition.protocol == Some(ICMP) && condition.icmp.is_none() => {
                let known = MESSAGES.iter().find(|(name, ..)| *name == other);
                let kind = || other.parse::<u8>().map_err(|_| format!("message {other} of ICMP"));
                condition.icmp = Some(match known {
                    Some((_, kind, code)) => (*kind, *code),
                    None => {
                        (kind()?, words.0.next_if(|w| w.parse::<u8>().is_ok()).and_then(|w| w.parse().ok()))
                    }
                });
            }
            other => return Err(format!("`{other}`")),
        }
    }
    Ok((Entry { condition, passes }, note))
}
