//! Entries of the firewall's `allow`: the connections that may begin.
//!
//! ```text
//! outgoing
//! dhcp
//! in|out PROTOCOL [PORTS|echo] [from NETWORKS] [to NETWORKS]
//! in|out ftp|tftp [from NETWORKS] [to NETWORKS]
//! ```
//!
//! Ports and networks are lists with commas. An entry without networks is of IPv4 and IPv6. Of `ftp` and `tftp`, the connections
//! that their messages announce may begin, too.

use std::net::IpAddr;
use std::ops::Range;

use super::Mistake;

/// A side of the firewall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Inside,
    Outside,
}

/// The packets that an entry lets pass.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Allowed {
    /// The first packets of connections pass, not single packets.
    pub(super) is_tracked: bool,
    /// The application whose messages announce further connections.
    pub(super) helper: Option<&'static str>,
    /// The side that packets are from, and a match in flow syntax.
    pub(super) flows: Vec<(Side, String)>,
}

/// A part of an entry, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    at: Range<usize>,
}

impl<'a> Word<'a> {
    pub(super) fn mistake(&self, message: impl Into<String>, help: impl Into<String>) -> Mistake {
        Mistake { part: self.at.clone(), message: message.into(), help: help.into() }
    }

    /// Its parts between separators.
    pub(super) fn split(&self, separator: impl Fn(char) -> bool) -> Vec<Word<'a>> {
        let start_of = |text: &str| text.as_ptr() as usize - self.text.as_ptr() as usize + self.at.start;
        let word = |text: &'a str| Word { text, at: start_of(text)..start_of(text) + text.len() };
        self.text.split(separator).map(word).collect()
    }
}

pub(super) struct Protocol {
    pub(super) name: &'static str,
    /// The match of IPv4 and of IPv6.
    pub(super) flows: [&'static str; 2],
    pub(super) has_ports: bool,
    /// The application whose messages announce further connections: its name in `alg`.
    pub(super) helper: Option<&'static str>,
}

const fn protocol(name: &'static str, v4: &'static str, v6: &'static str, has_ports: bool) -> Protocol {
    Protocol { name, flows: [v4, v6], has_ports, helper: None }
}

const fn application(name: &'static str, v4: &'static str, v6: &'static str) -> Protocol {
    Protocol { helper: Some(name), ..protocol(name, v4, v6, false) }
}

pub(super) const PROTOCOLS: [Protocol; 9] = [
    protocol("any", "ip", "ipv6", false),
    protocol("tcp", "tcp", "tcp6", true),
    protocol("udp", "udp", "udp6", true),
    protocol("sctp", "sctp", "sctp6", true),
    protocol("icmp", "icmp", "icmp6", false),
    protocol("gre", "ip,nw_proto=47", "ipv6,nw_proto=47", false),
    protocol("esp", "ip,nw_proto=50", "ipv6,nw_proto=50", false),
    application("ftp", "tcp,tp_dst=21", "tcp6,tp_dst=21"),
    application("tftp", "udp,tp_dst=69", "udp6,tp_dst=69"),
];

/// A range of port numbers as flow syntax has it, or nothing for all.
type Ports = Vec<String>;

/// Returns a line as one word, and its words.
pub(super) fn words(line: &str) -> (Word<'_>, Vec<Word<'_>>) {
    let whole = Word { text: line, at: 0..line.len() };
    let words = whole.split(char::is_whitespace).into_iter().filter(|word| !word.text.is_empty()).collect();
    (whole, words)
}

/// Reads an entry.
pub(super) fn read(line: &str) -> Result<Allowed, Mistake> {
    let (whole, words) = words(line);
    let Some((first, rest)) = words.split_first() else {
        return Err(
            whole.mistake("this entry is empty", "write `outgoing`, or as `in tcp 22 from 192.0.2.0/24`")
        );
    };
    let side = match first.text {
        "outgoing" | "dhcp" => {
            return match rest.first() {
                Some(more) => Err(more.mistake(
                    format!("`{}` has nothing behind it", first.text),
                    "remove this; `out tcp 443` allows some of what `outgoing` does",
                )),
                None if first.text == "dhcp" => Ok(dhcp()),
                None => Ok(Allowed {
                    is_tracked: true,
                    helper: None,
                    flows: ["ip", "ipv6"].map(|flow| (Side::Inside, flow.to_owned())).into(),
                }),
            };
        }
        "in" => Side::Outside,
        "out" => Side::Inside,
        other => {
            let help = "begin with `in` or `out` (connections from outside, or from inside), or write `outgoing` or `dhcp`";
            return Err(first.mistake(format!("`{other}` does not say where connections come from"), help));
        }
    };
    let (protocol, flows) = connections(first, rest)?;
    let flows = flows.into_iter().map(|flow| (side, flow)).collect();
    Ok(Allowed { is_tracked: true, helper: protocol.helper, flows })
}

/// Clients inside and servers outside: replies to a broadcast come from an address that it did not go to, so that they belong to
/// no connection.
fn dhcp() -> Allowed {
    let flow = |protocol: &str, from: u16, to: u16| format!("{protocol},tp_src={from},tp_dst={to}");
    let flows = [("udp", 68, 67), ("udp6", 546, 547)].into_iter().flat_map(|(protocol, client, server)| {
        [(Side::Inside, flow(protocol, client, server)), (Side::Outside, flow(protocol, server, client))]
    });
    Allowed { is_tracked: false, helper: None, flows: flows.collect() }
}

/// The matches of `PROTOCOL [PORTS|echo] [from NETWORKS] [to NETWORKS]`.
fn connections<'a>(
    direction: &Word<'a>,
    words: &[Word<'a>],
) -> Result<(&'static Protocol, Vec<String>), Mistake> {
    let names = || PROTOCOLS.map(|protocol| protocol.name).join(", ");
    let Some((name, words)) = words.split_first() else {
        let help = format!("write one behind it: {}", names());
        return Err(direction.mistake(format!("`{}` needs a protocol", direction.text), help));
    };
    let Some(protocol) = PROTOCOLS.iter().find(|protocol| protocol.name == name.text) else {
        return Err(
            name.mistake(format!("there is no protocol `{}`", name.text), format!("take one of {}", names()))
        );
    };
    let is_key = |word: &Word<'_>| ["from", "to"].contains(&word.text);
    let (details, words) = match words.split_first() {
        Some((first, rest)) if !is_key(first) => (Some(first), rest),
        _ => (None, words),
    };
    let details = details
        .map_or_else(|| Ok([vec![String::new()], vec![String::new()]]), |word| details_of(protocol, word))?;
    let (mut from, mut to) = (None, None);
    let mut words = words.iter();
    while let Some(key) = words.next() {
        let list = match key.text {
            "from" => &mut from,
            "to" => &mut to,
            other => return Err(key.mistake(format!("`{other}` is not expected here"), "networks follow, as `from 192.0.2.0/24` or `to 2001:db8::1`; ports are a list with commas and no spaces")),
        };
        let Some(value) = words.next() else {
            return Err(key.mistake(
                format!("`{}` needs a network", key.text),
                "write one behind it, as 192.0.2.0/24 or 2001:db8::1",
            ));
        };
        if list.is_some() {
            return Err(key.mistake(
                format!("`{}` is there twice", key.text),
                "write a list with commas: from 192.0.2.0/24,198.51.100.7",
            ));
        }
        *list = Some((value, value.split(|c| c == ',').iter().map(network).collect::<Result<Vec<_>, _>>()?));
    }
    Ok((protocol, combine(protocol, &details, from.as_ref(), to.as_ref())?))
}

type Networks<'w, 'a> = (&'w Word<'a>, Vec<Network>);

/// The matches of all combinations of the same family.
fn combine(
    protocol: &Protocol,
    details: &[Ports; 2],
    from: Option<&Networks<'_, '_>>,
    to: Option<&Networks<'_, '_>>,
) -> Result<Vec<String>, Mistake> {
    let mut flows = Vec::new();
    for (n, keys) in [["nw_src", "nw_dst"], ["ipv6_src", "ipv6_dst"]].into_iter().enumerate() {
        let of_family = |networks: Option<&Networks<'_, '_>>, key: &str| match networks {
            None => vec![String::new()],
            Some((_, list)) => {
                let own = list.iter().filter(|network| network.is_v6 == (n == 1));
                own.map(|network| format!(",{key}={}", network.text)).collect()
            }
        };
        for from in of_family(from, keys[0]) {
            for to in of_family(to, keys[1]) {
                flows.extend(
                    details[n].iter().map(|detail| format!("{}{from}{to}{detail}", protocol.flows[n])),
                );
            }
        }
    }
    match (flows.is_empty(), to.or(from)) {
        (true, Some((word, _))) => {
            Err(word
                .mistake("no packet has addresses of IPv4 and of IPv6", "take networks of one of the two"))
        }
        _ => Ok(flows),
    }
}

/// The matches of the word behind a protocol, in IPv4 and IPv6.
fn details_of(protocol: &Protocol, word: &Word<'_>) -> Result<[Ports; 2], Mistake> {
    match (protocol.name, word.text) {
        ("icmp", "echo") => return Ok(["8", "128"].map(|kind| vec![format!(",icmp_type={kind}")])),
        ("icmp", other) => {
            let help = "write `icmp echo`, or `icmp` for all requests; errors about connections pass anyway";
            return Err(word.mistake(format!("`{other}` is not expected behind icmp"), help));
        }
        (name, other) if !protocol.has_ports => {
            let help = "remove it; networks follow, as `from 192.0.2.0/24`";
            return Err(word.mistake(format!("{name} has no ports, and `{other}` is no network"), help));
        }
        _ => {}
    }
    let ports = word.split(|c| c == ',').iter().map(ports).collect::<Result<Vec<_>, _>>()?;
    Ok([ports.clone(), ports])
}

/// The match of a port or a range of ports.
pub(super) fn ports(word: &Word<'_>) -> Result<String, Mistake> {
    let bounds = word.split(|c| c == '-');
    let number = |word: &Word<'_>| {
        let help = "write 0 to 65535, a range as 8000-8100, or a list as 80,443";
        word.text.parse::<u16>().map_err(|_| word.mistake(format!("`{}` is no port", word.text), help))
    };
    let (low, high) = match &bounds[..] {
        [one] => (number(one)?, number(one)?),
        [low, high] => (number(low)?, number(high)?),
        _ => {
            return Err(
                word.mistake(format!("`{}` is no range of ports", word.text), "write it as 8000-8100")
            );
        }
    };
    if low > high {
        let help = format!("write the smaller port first ({high}-{low})");
        return Err(word.mistake(format!("port range {low}-{high} is empty"), help));
    }
    Ok(if low == high { format!(",tp_dst={low}") } else { format!(",tp_dst={low}-{high}") })
}

pub(super) struct Network {
    pub(super) is_v6: bool,
    pub(super) text: String,
}

pub(super) fn network(word: &Word<'_>) -> Result<Network, Mistake> {
    let parts = word.split(|c| c == '/');
    let wrong = |part: &Word<'_>| {
        part.mistake(
            format!("`{}` is no network", word.text),
            "write it as 192.0.2.0/24, 2001:db8::/32, or a single address",
        )
    };
    let address: IpAddr = parts[0].text.parse().map_err(|_| wrong(word))?;
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let length: u32 = match &parts[1..] {
        [] => width,
        [length] => {
            length.text.parse().ok().filter(|length| *length <= width).ok_or_else(|| wrong(length))?
        }
        _ => return Err(wrong(word)),
    };
    let host = if length == width { 0 } else { u128::MAX >> (128 - width + length) };
    if bits & host != 0 {
        let first = match address {
            IpAddr::V4(_) => IpAddr::V4(((bits & !host) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6((bits & !host).into()),
        };
        let message = format!("`{}` has bits behind its prefix of {length}", word.text);
        return Err(word.mistake(message, format!("write {first}/{length}, or {address} alone")));
    }
    Ok(Network { is_v6: address.is_ipv6(), text: word.text.to_owned() })
}
