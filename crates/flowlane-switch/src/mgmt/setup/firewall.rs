//! The firewall's section, expanded to rules of two tables.
//!
//! The first table sends packets of IP through connection tracking to the second, and lets the protocols pass that find neighbours.
//! The second decides by the state of the connection: packets of known connections pass both ways, and an entry of `allow` lets
//! connections begin, which are kept. Each table ends with a rule that drops and counts all others.
//!
//! ```text
//!         ┌─ table ──────────────┐       ┌─ table + 1 ───────────────────┐
//! port ─► │ ARP, ND, DHCP ───────┼──┐    │ +inv            ─► drop       │
//!         │ IP ─► ct(table + 1) ─┼──┼──► │ +est, +rel      ─► pass       │
//!         │ else ─► drop         │  │    │ +new, allowed   ─► keep, pass │
//!         └──────────────────────┘  │    │ else            ─► drop       │
//!                                   ▼    └───────────────────────────────┘
//!                        pass: `normal`, or the next table
//! ```
//!
//! `normal` selects the port behind the firewall, so a rule knows the side that a packet is from, and not the one that it goes to:
//! packets between two ports of a side are handled as those to the other side.

mod allow;

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use flowlane::rule::flow_syntax;

use self::allow::{Allowed, Side};
use super::reader::Reader;
use super::{Setup, SetupError, port_name, table_numbers};
use crate::mgmt::config::{Config, ConfigError, FirewallSection, KeyPath, Source, TableEngine, TableSection};
use crate::state::router::Interface;

/// Rules with a reason in common.
pub(super) struct Part {
    pub(super) why: String,
    pub(super) rules: Vec<String>,
}

impl Part {
    pub(super) fn new(why: impl Into<String>, rules: impl IntoIterator<Item = String>) -> Self {
        Self { why: why.into(), rules: rules.into_iter().collect() }
    }
}

/// A mistake in an entry of `allow`: its bytes, and a way to fix it.
struct Mistake {
    part: Range<usize>,
    message: String,
    help: String,
}

/// Adds the tables of the firewall, if there is one.
pub(super) fn add_tables(
    config: &mut Config,
    interfaces: &[Interface],
    source: &Source,
) -> Result<(), ConfigError> {
    let Some(section) = &config.firewall else { return Ok(()) };
    check_tables(config, section, source)?;
    let tables = expand(config, section, interfaces, source)?;
    let names = ["firewall", "firewall connections"];
    for ((number, name), parts) in (table(config).unwrap_or(0)..).zip(names).zip(tables) {
        config.table.push(TableSection {
            name: name.to_owned(),
            engine: TableEngine::Auto,
            rules: parts.into_iter().flat_map(|part| part.rules).collect(),
            ..TableSection::of_controllers(number)
        });
    }
    Ok(())
}

/// The first table of the firewall; none where its number is out of range.
pub(super) fn table(config: &Config) -> Option<u8> {
    let behind = config.router.as_ref().map_or(Some(0), |router| router.table.checked_add(1));
    config.firewall.as_ref()?.table.or(behind)
}

/// The address of a port that connections take which leave there.
pub(super) fn address_of(interface: &Interface) -> Option<Ipv4Addr> {
    interface.addresses.iter().find_map(|(own, _)| match own {
        IpAddr::V4(own) => Some(*own),
        IpAddr::V6(_) => None,
    })
}

/// Checks that the firewall's tables are free, that packets reach them, and that the next table exists.
fn check_tables(config: &Config, section: &FirewallSection, source: &Source) -> Result<(), ConfigError> {
    let at = KeyPath::of("firewall");
    let first = table(config).unwrap_or(u8::MAX);
    let second = first.saturating_add(1);
    if second > 254 {
        let message = format!("table number {first} of the firewall is out of range");
        return Err(source.error(
            &at.key("table"),
            message,
            "take 0 to 253: the next table is the firewall's, too",
        ));
    }
    if let Some((number, place)) = table_numbers(config).find(|(number, _)| [first, second].contains(number))
    {
        let message = format!("table {number} is the firewall's, which has tables {first} and {second}");
        let help = "give this table another number; next_table in [firewall] leads there, and table moves the firewall";
        return Err(source.error(&place.key("number"), message, help));
    }
    if first > 0 && !table_numbers(config).any(|(number, _)| number == 0) {
        let message = "packets enter at table 0, which is not there";
        return Err(source.error(
            &at.key("table"),
            message,
            "take table = 0, or add a [[table]] with number = 0",
        ));
    }
    match section.next_table {
        Some(next) if next <= second || !table_numbers(config).any(|(number, _)| number == next) => {
            let message = format!(
                "table {next} is not there, or not behind the firewall's tables {first} and {second}"
            );
            let help = "name a [[table]] with a larger number, or leave it out: `normal` forwards then";
            Err(source.error(&at.key("next_table"), message, help))
        }
        _ => Ok(()),
    }
}

/// The rules of both tables.
pub(super) fn expand(
    config: &Config,
    section: &FirewallSection,
    interfaces: &[Interface],
    source: &Source,
) -> Result<[Vec<Part>; 2], ConfigError> {
    let [inside, outside] = sides(config, section, source)?;
    let of_side = |side: Side| match side {
        Side::Inside => &inside,
        Side::Outside => &outside,
    };
    let mut allowed = Vec::new();
    for (n, line) in section.allow.iter().enumerate() {
        let mistake = |m: Mistake| {
            let at = KeyPath::of("firewall").key("allow").item(n);
            source.error_in_string(&at, m.part, m.message, m.help)
        };
        // One line, since comments have no more.
        let words: Vec<&str> = line.split_whitespace().collect();
        allowed.push((words.join(" "), allow::read(line).map_err(mistake)?));
    }
    let second = table(config).unwrap_or(0) + 1;
    let router = config.router.as_ref().map(|router| router.routes_table);
    let next = section.next_table.or(router);
    let pass = next.map_or_else(|| "normal".to_owned(), |next| format!("goto_table:{next}"));
    let rules = |allowed: &Allowed, start: &str, actions: &str| {
        let from = |(side, flow): &(Side, String)| {
            let rule = |port: &u32| format!("{start},in_port={port},{flow},actions={actions}");
            of_side(*side).iter().map(rule).collect::<Vec<_>>()
        };
        allowed.flows.iter().flat_map(from).collect::<Vec<_>>()
    };
    let (untracked, tracked): (Vec<_>, Vec<_>) = allowed.iter().partition(|(_, allowed)| !allowed.is_tracked);

    // 255 is the TTL of a packet that no router has forwarded.
    let neighbours =
        (133..=136).map(|kind| format!("priority=200,icmp6,nw_ttl=255,icmp_type={kind},actions={pass}"));
    let neighbours = std::iter::once(format!("priority=200,arp,actions={pass}")).chain(neighbours);
    let mut front = vec![Part::new("ARP and IPv6 neighbour discovery pass.", neighbours)];
    let untracked = untracked.iter().map(|(line, of)| Part::new(line, rules(of, "priority=150", &pass)));
    front.extend(untracked);
    let translated = translated_ports(config, section, interfaces, source)?;
    let back = translated
        .iter()
        .map(|port| format!("priority=110,ip,in_port={port},actions=ct(nat,table={second})"));
    front.push(Part::new("Replies get the addresses of the connections that they are of.", back));
    let tracking = ["ip", "ipv6"].map(|flow| format!("priority=100,{flow},actions=ct(table={second})"));
    front.push(Part::new("IP goes through connection tracking.", tracking));
    front.push(Part::new("Everything else is dropped.", ["priority=0,actions=drop".to_owned()]));

    let state = |priority: u32, state: &str, actions: &str| {
        ["ip", "ipv6"].map(|flow| format!("priority={priority},ct_state={state},{flow},actions={actions}"))
    };
    let known = ["+trk+est", "+trk+rel"].iter().flat_map(|known| state(300, known, &pass));
    let mut back = vec![
        Part::new("Packets that belong to no connection are dropped.", state(400, "+trk+inv", "drop")),
        Part::new("Packets of connections, and ICMP errors about them, pass.", known),
    ];
    // The router keeps connections where they leave, when it is known how they are translated.
    let keep =
        if section.next_table.is_none() && router.is_some() { pass } else { format!("ct(commit),{pass}") };
    let tracked =
        tracked.iter().map(|(line, of)| Part::new(line, rules(of, "priority=100,ct_state=+trk+new", &keep)));
    back.extend(tracked);
    back.push(Part::new("Other new connections are dropped.", ["priority=0,actions=drop".to_owned()]));
    Ok([front, back])
}

/// The numbers of the outside ports whose address connections take.
fn translated_ports(
    config: &Config,
    section: &FirewallSection,
    interfaces: &[Interface],
    source: &Source,
) -> Result<Vec<u32>, ConfigError> {
    let mut numbers = Vec::new();
    for (n, name) in section.translate.iter().enumerate() {
        let at = KeyPath::of("firewall").key("translate").item(n);
        if !section.outside.contains(name) {
            let message = format!("`{name}` is no outside port");
            return Err(source.error(&at, message, "name ports of `outside`"));
        }
        let interface = interfaces.iter().find(|interface| interface.name == *name);
        let Some(interface) = interface.filter(|interface| address_of(interface).is_some()) else {
            let message = format!("port `{name}` has no address of IPv4");
            let help = "give it addresses, with a section [router]";
            return Err(source.error(&at, message, help));
        };
        if section.next_table.is_some() {
            let message = "connections are translated where the router sends their packets";
            return Err(source.error(
                &at,
                message,
                "remove next_table, so that packets that pass are routed",
            ));
        }
        numbers.push(config.port[interface.place].number);
    }
    Ok(numbers)
}

/// The numbers of the ports of both sides.
fn sides(config: &Config, section: &FirewallSection, source: &Source) -> Result<[Vec<u32>; 2], ConfigError> {
    let port =
        |name: &String| config.port.iter().find(|port| port_name(port.number, port.name.as_deref()) == *name);
    let read = |key: &'static str, names: &[String], others: &[String]| {
        let at = KeyPath::of("firewall").key(key);
        let mut numbers = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let Some(port) = port(name) else {
                let known = config.port.iter().map(|port| port_name(port.number, port.name.as_deref()));
                let help = format!(
                    "name ports as `name` of [[port]] does: {}",
                    known.collect::<Vec<_>>().join(", ")
                );
                return Err(source.error(&at.item(n), format!("there is no port `{name}`"), help));
            };
            if names[..n].contains(name) || others.contains(name) {
                let message = format!("port `{name}` is there twice");
                return Err(source.error(&at.item(n), message, "name it once, inside or outside"));
            }
            numbers.push(port.number);
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
        let message =
            format!("port `{}` is on no side of the firewall", port_name(port.number, port.name.as_deref()));
        return Err(source.error(
            &KeyPath::section("port", n),
            message,
            "add its name to inside or outside of [firewall]",
        ));
    }
    Ok(sides)
}

impl Setup {
    /// Returns the rules that the sections of the router and the firewall expand to, in the syntax of `ovs-ofctl`, with a comment before the rules of
    /// each purpose; none without such sections.
    ///
    /// # Errors
    /// As [`read`](Self::read), and where ranges of ports become too many rules.
    pub fn explain(&self) -> Result<Option<String>, SetupError> {
        let Config { firewall, router, .. } = &self.config;
        let mut tables = Vec::new();
        if let Some(section) = router {
            let own = super::router::expand(&self.config, section, &self.interfaces);
            tables.extend(own.into_iter().map(|(number, _, parts)| (number, parts)));
        }
        if let Some(section) = firewall {
            let own = expand(&self.config, section, &self.interfaces, &self.source)?;
            tables.extend((table(&self.config).unwrap_or(0)..).zip(own));
        }
        if tables.is_empty() {
            return Ok(None);
        }
        tables.sort_by_key(|(number, _)| *number);
        let at = KeyPath::of("firewall");
        let reader = Reader::new(&self.source, &self.config);
        let mut out = String::new();
        for (number, parts) in tables {
            for Part { why, rules } in parts.into_iter().filter(|part| !part.rules.is_empty()) {
                let table = TableSection { rules, ..TableSection::of_controllers(number) };
                let rules = reader.rules(&table, &at)?;
                let lines = flow_syntax::print_openflow_rules(&rules, table.rules_max);
                let lines =
                    lines.map_err(|error| self.source.error(&at.key("allow"), error.to_string(), ""))?;
                out += &format!("# {why}\n{lines}");
            }
        }
        Ok(Some(out))
    }
}
