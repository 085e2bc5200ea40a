//! Entries of the firewall's `forward`: connections to an outside address that go to a host inside.
//!
//! ```text
//! PORT tcp|udp|sctp PORTS [from NETWORKS] to ADDRESS[:PORT]
//! PORT ftp|tftp [from NETWORKS] to ADDRESS
//! ```

use std::net::{IpAddr, Ipv4Addr};

use super::Mistake;
use super::allow::{PROTOCOLS, Protocol, Word, network, ports, words};

/// An entry: the packets that begin connections, and where they go.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The name of the outside port, whose address the packets are for.
    pub(super) port: String,
    /// Matches in flow syntax, without the destination's address.
    pub(super) flows: Vec<String>,
    pub(super) to: Ipv4Addr,
    /// Where it is not the port that the packets are for.
    pub(super) to_port: Option<u16>,
    pub(super) helper: Option<&'static str>,
}

const EXAMPLE: &str = "write it as `wan tcp 443 to 192.168.1.80` or `wan tcp 8022 to 192.168.1.80:22`";

/// Reads an entry. `check_port` refuses names that are not those of outside ports.
pub(super) fn read(
    line: &str,
    check_port: impl FnOnce(&Word<'_>) -> Result<(), Mistake>,
) -> Result<Entry, Mistake> {
    let (whole, words) = words(line);
    let [port, name, rest @ ..] = &words[..] else {
        return Err(whole.mistake("this entry names no port and protocol", EXAMPLE));
    };
    check_port(port)?;
    let can_be = |protocol: &&Protocol| protocol.has_ports || protocol.helper.is_some();
    let Some(protocol) = PROTOCOLS.iter().filter(can_be).find(|protocol| protocol.name == name.text) else {
        let message = format!("connections of `{}` cannot be forwarded", name.text);
        return Err(name.mistake(message, "take tcp, udp, sctp, ftp or tftp"));
    };
    let (details, rest) = match rest.split_first() {
        Some((first, rest)) if protocol.has_ports => {
            (first.split(|c| c == ',').iter().map(ports).collect::<Result<Vec<_>, _>>()?, rest)
        }
        _ if protocol.has_ports => return Err(name.mistake(format!("`{}` needs ports", name.text), EXAMPLE)),
        _ => (vec![String::new()], rest),
    };
    let (from, rest) = match rest {
        [key, list, rest @ ..] if key.text == "from" => (sources(list)?, rest),
        [key] if key.text == "from" => {
            return Err(key.mistake("`from` needs a network", "write one behind it, as 192.0.2.0/24"));
        }
        _ => (vec![String::new()], rest),
    };
    let (to, to_port) = match rest {
        [key, to] if key.text == "to" => target(to, protocol, &details)?,
        [key, _, more, ..] if key.text == "to" => {
            return Err(more.mistake(format!("`{}` is not expected here", more.text), "`to` comes last"));
        }
        [other, ..] if other.text != "to" => {
            return Err(other.mistake(format!("`{}` is not expected here", other.text), EXAMPLE));
        }
        _ => return Err(whole.mistake("this entry does not say where connections go", EXAMPLE)),
    };
    let flows = from.iter().flat_map(|from| details.iter().map(move |detail| format!("{from}{detail}")));
    let flows = flows.map(|rest| format!("{}{rest}", protocol.flows[0])).collect();
    Ok(Entry { port: port.text.to_owned(), flows, to, to_port, helper: protocol.helper })
}

/// The matches of a list of networks that connections are from.
fn sources(list: &Word<'_>) -> Result<Vec<String>, Mistake> {
    let read = |word: &Word<'_>| match network(word)? {
        own if own.is_v6 => Err(word.mistake(format!("`{}` is of IPv6", own.text), "IPv6 is not translated")),
        own => Ok(format!(",nw_src={}", own.text)),
    };
    list.split(|c| c == ',').iter().map(read).collect()
}

/// The host and the port that connections go to.
fn target(
    to: &Word<'_>,
    protocol: &Protocol,
    details: &[String],
) -> Result<(Ipv4Addr, Option<u16>), Mistake> {
    if let Ok(IpAddr::V6(own)) = to.text.parse() {
        let message = "IPv6 is not translated: hosts have addresses that others reach";
        return Err(to.mistake(message, format!("let them in: `in tcp 443 to {own}` in allow")));
    }
    let (address, port) = to.text.split_once(':').map_or((to.text, None), |(a, port)| (a, Some(port)));
    let wrong = || to.mistake(format!("`{}` is no host", to.text), EXAMPLE);
    let address = address.parse().map_err(|_| wrong())?;
    let Some(port) = port else { return Ok((address, None)) };
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let is_one = matches!(details, [one] if protocol.has_ports && !one.contains('-'));
    match is_one {
        true => Ok((address, Some(port))),
        false => Err(to.mistake(
            "another port is for connections to one port",
            "write an entry for each port, or leave the port out: several ports stay as they are",
        )),
    }
}
