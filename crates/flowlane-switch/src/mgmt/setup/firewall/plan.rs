//! The firewall's section with its entries read.

use std::net::{IpAddr, Ipv4Addr};

use super::allow::{self, Allowed, Side, Word};
use super::forward::{self, Entry};
use super::{Mistake, table};
use crate::mgmt::config::{Config, ConfigError, FirewallSection, KeyPath, Source};
use crate::state::router::Interface;

/// The zone of the source translation of connections that go back through the port that they came in through. That of all others
/// is 0.
pub(in crate::mgmt::setup) const HAIRPIN_ZONE: u16 = u16::MAX;

/// An outside port, and the address that connections take which leave there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::mgmt::setup) struct Translated {
    pub(in crate::mgmt::setup) port: u32,
    pub(in crate::mgmt::setup) address: Ipv4Addr,
}

/// Connections to an outside port's address that go to a host inside.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::mgmt::setup) struct Forward {
    /// The entry.
    pub(super) line: String,
    pub(super) outside: Translated,
    pub(super) entry: Entry,
}

/// The section with its entries.
#[derive(Debug)]
pub(in crate::mgmt::setup) struct Plan {
    /// The numbers of the ports of both sides.
    pub(super) inside: Vec<u32>,
    pub(super) outside: Vec<u32>,
    pub(super) allowed: Vec<(String, Allowed)>,
    pub(super) translated: Vec<Translated>,
    pub(super) forwards: Vec<Forward>,
}

impl Plan {
    /// Reads the section, if there is one.
    pub(in crate::mgmt::setup) fn read(
        config: &Config,
        interfaces: &[Interface],
        source: &Source,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(section) = &config.firewall else { return Ok(None) };
        let [inside, outside] = sides(config, section, interfaces, source)?;
        let mut allowed = Vec::new();
        for (n, line) in section.allow.iter().enumerate() {
            let mistake = |mistake| error_in(source, "allow", n, mistake);
            allowed.push((in_one_line(line), allow::read(line).map_err(mistake)?));
        }
        let translated = translated(section, interfaces, source)?;
        let mut forwards = Vec::new();
        for (n, line) in section.forward.iter().enumerate() {
            let mistake = |mistake| error_in(source, "forward", n, mistake);
            forwards.push(forward_of(section, interfaces, line).map_err(mistake)?);
        }
        Ok(Some(Self { inside, outside, allowed, translated, forwards }))
    }

    /// The ports of a side.
    pub(super) fn ports(&self, side: Side) -> &[u32] {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    /// The port's address that connections take which leave there.
    pub(in crate::mgmt::setup) fn address_of(&self, port: u32) -> Option<Ipv4Addr> {
        self.translated.iter().find(|translated| translated.port == port).map(|of| of.address)
    }

    /// The outside ports whose packets may be of translated connections, each once.
    pub(in crate::mgmt::setup) fn with_translation(&self) -> Vec<Translated> {
        let mut all = self.translated.clone();
        for forward in &self.forwards {
            if !all.contains(&forward.outside) {
                all.push(forward.outside);
            }
        }
        all
    }

    /// The hosts that connections are forwarded to, each once.
    pub(in crate::mgmt::setup) fn servers(&self) -> Vec<Ipv4Addr> {
        let mut servers: Vec<Ipv4Addr> = self.forwards.iter().map(|forward| forward.entry.to).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Returns whether a port is inside.
    pub(in crate::mgmt::setup) fn is_inside(&self, port: u32) -> bool {
        self.inside.contains(&port)
    }

    /// The entries of applications whose messages announce connections: the text, the application and matches in flow syntax.
    pub(in crate::mgmt::setup) fn helped(&self) -> impl Iterator<Item = (&str, &'static str, Vec<String>)> {
        self.allowed.iter().filter_map(|(line, allowed)| {
            let of_ports = |(side, flow): &(Side, String)| {
                let flow = |port: &u32| format!("in_port={port},{flow}");
                self.ports(*side).iter().map(flow).collect::<Vec<_>>()
            };
            Some((&**line, allowed.helper?, allowed.flows.iter().flat_map(of_ports).collect()))
        })
    }

    /// Returns whether messages of connections announce others.
    pub(super) fn follows_messages(&self) -> bool {
        self.helped().next().is_some() || self.forwards.iter().any(|forward| forward.entry.helper.is_some())
    }
}

/// One line, since comments have no more.
fn in_one_line(line: &str) -> String {
    line.split_whitespace().collect::<Vec<&str>>().join(" ")
}

fn error_in(source: &Source, key: &'static str, item: usize, mistake: Mistake) -> ConfigError {
    let at = KeyPath::of("firewall").key(key).item(item);
    source.error_in_string(&at, mistake.part, mistake.message, mistake.help)
}

/// The address of IPv4 of a port.
pub(super) fn address_of(interface: &Interface) -> Option<Ipv4Addr> {
    interface.addresses.iter().find_map(|(own, _)| match own {
        IpAddr::V4(own) => Some(*own),
        IpAddr::V6(_) => None,
    })
}

/// An outside port that translates. Else, why it does not, and a way to fix it.
fn outside_port(
    section: &FirewallSection,
    interfaces: &[Interface],
    name: &str,
) -> Result<Translated, (String, &'static str)> {
    if !section.outside.iter().any(|outside| outside == name) {
        return Err((format!("`{name}` is no outside port"), "name ports of `outside`"));
    }
    let interface = interfaces.iter().find(|interface| interface.name == *name);
    let own = interface
        .and_then(|interface| Some(Translated { port: interface.number, address: address_of(interface)? }));
    let Some(own) = own else {
        let help = "give it addresses, with a section [router]";
        return Err((format!("port `{name}` has no address of IPv4"), help));
    };
    if section.next_table.is_some() {
        let message = "connections are translated where the router sends their packets";
        return Err((message.to_owned(), "remove next_table, so that packets that pass are routed"));
    }
    Ok(own)
}

/// The outside ports whose address connections take.
fn translated(
    section: &FirewallSection,
    interfaces: &[Interface],
    source: &Source,
) -> Result<Vec<Translated>, ConfigError> {
    let read = |(n, name): (usize, &String)| {
        outside_port(section, interfaces, name).map_err(|(message, help)| {
            source.error(&KeyPath::of("firewall").key("translate").item(n), message, help)
        })
    };
    section.translate.iter().enumerate().map(read).collect()
}

fn forward_of(section: &FirewallSection, interfaces: &[Interface], line: &str) -> Result<Forward, Mistake> {
    let mut outside = None;
    let entry = forward::read(line, |name: &Word<'_>| {
        let own = outside_port(section, interfaces, name.text);
        outside = Some(own.map_err(|(message, help)| name.mistake(message, help))?);
        Ok(())
    })?;
    let whole = |message, help: &str| Mistake { part: 0..line.len(), message, help: help.to_owned() };
    let outside = outside.ok_or_else(|| whole("this entry names no port".to_owned(), ""))?;
    if interfaces.iter().any(|interface| interface.has(entry.to.into())) {
        let message = format!("{} is the router itself, which has no servers", entry.to);
        return Err(whole(message, "name a host behind an inside port"));
    }
    Ok(Forward { line: in_one_line(line), outside, entry })
}

/// The numbers of the ports of both sides: of a router's interfaces, if there is a router.
fn sides(
    config: &Config,
    section: &FirewallSection,
    interfaces: &[Interface],
    source: &Source,
) -> Result<[Vec<u32>; 2], ConfigError> {
    let of_ports = || config.port.iter().map(|port| (port.name().into_owned(), port.number));
    let known: Vec<(String, u32)> = match config.router {
        Some(_) => interfaces.iter().map(|interface| (interface.name.clone(), interface.number)).collect(),
        None => of_ports().collect(),
    };
    let read = |key: &'static str, names: &[String], others: &[String]| {
        let at = KeyPath::of("firewall").key(key);
        let mut numbers = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let Some((_, number)) = known.iter().find(|(known, _)| known == name) else {
                let (message, what) = match config.router {
                    Some(_) if of_ports().any(|(port, _)| port == *name) => {
                        (format!("port `{name}` is no interface of the router"), "interfaces of the router")
                    }
                    Some(_) => (format!("the router has no interface `{name}`"), "interfaces of the router"),
                    None => (format!("there is no port `{name}`"), "ports as `name` of [[port]] does"),
                };
                let known: Vec<&str> = known.iter().map(|(known, _)| &**known).collect();
                let help = format!("name {what}: {}", known.join(", "));
                return Err(source.error(&at.item(n), message, help));
            };
            if names[..n].contains(name) || others.contains(name) {
                let message = format!("port `{name}` is there twice");
                return Err(source.error(&at.item(n), message, "name it once, inside or outside"));
            }
            numbers.push(*number);
        }
        match numbers.is_empty() {
            true => Err(source.error(&at, format!("there is no port {key}"), "name at least one")),
            false => Ok(numbers),
        }
    };
    let sides = [read("inside", &section.inside, &[])?, read("outside", &section.outside, &section.inside)?];
    // Packets of all ports enter here, and `normal` sends to all.
    let is_of_none = |number: u32| !sides.iter().flatten().any(|of_side| *of_side == number);
    if table(config) == Some(0)
        && let Some(n) = config.port.iter().position(|port| is_of_none(port.number))
    {
        let port = &config.port[n];
        let message = format!("port `{}` is on no side of the firewall", port.name());
        return Err(source.error(
            &KeyPath::section("port", n),
            message,
            "add its name to inside or outside of [firewall]",
        ));
    }
    Ok(sides)
}
