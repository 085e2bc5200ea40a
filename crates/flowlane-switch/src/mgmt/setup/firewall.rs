//! The firewall's section, expanded to rules of two tables.
//!
//! The first table sends packets of IP through connection tracking to the second, and lets the protocols pass that find neighbours.
//! The second decides by the state of the connection: packets of known connections pass both ways, and an entry of `allow` lets
//! connections begin, which are kept. Each table ends with a rule that drops and counts all others.
//!
//! An entry of `forward` keeps connections with their destination translated. They enter the first table again, which routes them.
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
mod forward;
mod plan;

use std::net::IpAddr;
use std::ops::Range;

use flowlane::packet::parse::ip_proto;
use flowlane::rule::{PortRange, flow_syntax};

use self::allow::{Allowed, Side};
use super::reader::Reader;
use super::{Setup, SetupError, table_numbers};
use crate::mgmt::config::{Config, ConfigError, FirewallSection, KeyPath, Source, TableEngine, TableSection};
use crate::state::router::{Interface, Link};
use plan::Forward;
pub(super) use plan::{HAIRPIN_ZONE, Plan, Translated};

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
    plan: Option<&Plan>,
    interfaces: &[Interface],
    source: &Source,
) -> Result<(), ConfigError> {
    let (Some(section), Some(plan)) = (&config.firewall, plan) else { return Ok(()) };
    check_tables(config, section, source)?;
    let tables = expand(config, plan, interfaces);
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
pub(super) fn expand(config: &Config, plan: &Plan, interfaces: &[Interface]) -> [Vec<Part>; 2] {
    let way = Way::of(config);
    let mut front = front(&way, plan);
    front.extend(translating(&way, plan, &hairpins(plan, interfaces)));
    let second = way.second;
    let tracking = ["ip", "ipv6"].map(|flow| format!("priority=100,{flow},actions=ct(table={second})"));
    front.push(Part::new("IP goes through connection tracking.", tracking));
    front.push(Part::new("Everything else is dropped.", ["priority=0,actions=drop".to_owned()]));
    let mut by_state = by_state(&way, plan);
    by_state.extend(too_long(&way, interfaces));
    [front, by_state]
}

/// Errors about the router's own packets, which no connection has: those of tunnels may be too long for their way.
fn too_long(way: &Way, interfaces: &[Interface]) -> Option<Part> {
    let rule = |interface: &Interface| {
        let Link::Tunnel(ends) = interface.link else { return None };
        let flow = match ends.local {
            IpAddr::V4(own) => format!("icmp,icmp_type=3,icmp_code=4,nw_dst={own}"),
            IpAddr::V6(own) => format!("icmp6,icmp_type=2,ipv6_dst={own}"),
        };
        Some(format!("priority=410,ct_state=+trk+inv,{flow},actions={}", way.pass))
    };
    let rules: Vec<String> = interfaces.iter().filter_map(rule).collect();
    (!rules.is_empty())
        .then(|| Part::new("Messages that packets of tunnels are too long reach the router.", rules))
}

/// Where packets go.
struct Way {
    /// The numbers of the firewall's tables.
    first: u8,
    second: u8,
    /// The actions of packets that pass.
    pass: String,
    /// The router keeps connections.
    is_routed: bool,
}

impl Way {
    fn of(config: &Config) -> Self {
        let first = table(config).unwrap_or(0);
        let router = config.router.as_ref().map(|router| router.routes_table);
        let next = config.firewall.as_ref().and_then(|section| section.next_table);
        let pass = next.or(router).map_or_else(|| "normal".to_owned(), |next| format!("goto_table:{next}"));
        Self { first, second: first + 1, pass, is_routed: router.is_some() && next.is_none() }
    }

    /// Keeps a connection and lets its packet pass. The router keeps connections where they leave, when it is known how they are
    /// translated.
    fn keep(&self, helper: Option<&str>) -> String {
        match (self.is_routed, helper) {
            (true, _) => self.pass.clone(),
            (false, None) => format!("ct(commit),{}", self.pass),
            (false, Some(helper)) => format!("ct(commit,alg={helper}),{}", self.pass),
        }
    }
}

/// The rules of an entry of `allow`.
fn allowing(plan: &Plan, allowed: &Allowed, start: &str, actions: &str) -> Vec<String> {
    let from = |(side, flow): &(Side, String)| {
        let rule = |port: &u32| format!("{start},in_port={port},{flow},actions={actions}");
        plan.ports(*side).iter().map(rule).collect::<Vec<_>>()
    };
    allowed.flows.iter().flat_map(from).collect()
}

/// An entry for fragments behind the first ones, which have no ports: connection tracking, which has seen all of their datagram, knows
/// them.
fn of_later_fragments(allowed: &Allowed) -> Allowed {
    let mut flows = Vec::new();
    for (side, flow) in &allowed.flows {
        flows.extend(later_fragments(flow).into_iter().map(|later| (*side, later)));
    }
    Allowed { flows, ..*allowed }
}

/// Matches in flow syntax for fragments behind the first ones, if the match of these has ports or types.
fn later_fragments(flow: &str) -> Vec<String> {
    // The protocol of those of IPv6 is that of the fragment header (44), as in Open vSwitch.
    let (kind, protocol) = match flow.split(',').next() {
        Some("tcp") => ("tcp", ip_proto::TCP),
        Some("tcp6") => ("ipv6", ip_proto::TCP),
        Some("udp") => ("udp", ip_proto::UDP),
        Some("udp6") => ("ipv6", ip_proto::UDP),
        Some("icmp") => ("icmp", ip_proto::ICMP),
        Some("icmp6") => ("ipv6", ip_proto::ICMPV6),
        _ => return Vec::new(),
    };
    let known = |part: &str| match part.split_once('=')? {
        ("icmp_type", kind) => Some(vec![format!("ct_tp_src={kind}")]),
        ("tp_dst", ports) => {
            let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
            let range = PortRange::new(low.parse().ok()?, high.parse().ok()?);
            Some(range.prefixes().iter().map(|(port, mask)| format!("ct_tp_dst={port}/{mask:#x}")).collect())
        }
        _ => None,
    };
    let Some(seen) = flow.split(',').find_map(known) else { return Vec::new() };
    let others = flow.split(',').skip(1).filter(|part| known(part).is_none());
    let others = std::iter::once(kind).chain(others).collect::<Vec<&str>>().join(",");
    seen.iter().map(|seen| format!("{others},ip_frag=later,ct_nw_proto={protocol},{seen}")).collect()
}

/// Packets that belong to no connection.
fn front(way: &Way, plan: &Plan) -> Vec<Part> {
    let pass = &way.pass;
    // 255 is the TTL of a packet that no router has forwarded.
    let neighbours =
        (133..=136).map(|kind| format!("priority=200,icmp6,nw_ttl=255,icmp_type={kind},actions={pass}"));
    let neighbours = std::iter::once(format!("priority=200,arp,actions={pass}")).chain(neighbours);
    let mut parts = vec![Part::new("ARP and IPv6 neighbour discovery pass.", neighbours)];
    let untracked = plan.allowed.iter().filter(|(_, allowed)| !allowed.is_tracked);
    parts.extend(untracked.map(|(line, of)| Part::new(line, allowing(plan, of, "priority=150", pass))));
    parts
}

/// The inside ports with an address of IPv4, where connections are forwarded.
pub(super) fn hairpins(plan: &Plan, interfaces: &[Interface]) -> Vec<Translated> {
    let own = interfaces.iter().filter_map(|interface| {
        Some(Translated { port: interface.number, address: plan::address_of(interface)? })
    });
    own.filter(|own| plan.is_inside(own.port) && !plan.forwards.is_empty()).collect()
}

/// Packets that get the addresses of their connection before they are routed.
fn translating(way: &Way, plan: &Plan, hairpins: &[Translated]) -> Vec<Part> {
    let Way { first, second, pass, .. } = way;
    let outside = plan.with_translation();
    let mut parts = Vec::new();
    if plan.follows_messages() && !outside.is_empty() || !plan.forwards.is_empty() {
        let kept = format!("priority=140,ct_state=+new+trk+dnat,ct_zone=0,ip,actions={pass}");
        parts.push(Part::new("New connections with their destination translated are routed to it.", [kept]));
        let refused = "priority=130,ct_state=+trk,ct_zone=0,ip,actions=drop".to_owned();
        parts.push(Part::new("Those that there is no room for are dropped.", [refused]));
    }
    let back = hairpins.iter().flat_map(|Translated { port, address }| {
        [
            format!(
                "priority=120,ct_state=-trk,ip,in_port={port},nw_dst={address},\
                 actions=ct(zone={HAIRPIN_ZONE},nat,table={first})"
            ),
            format!("priority=115,ct_state=+trk,ip,in_port={port},actions=ct_clear,ct(table={second})"),
        ]
    });
    parts.push(Part::new(
        "Replies to forwarded connections from inside get the inside addresses first.",
        back,
    ));
    let replies = outside
        .iter()
        .map(|own| format!("priority=110,ip,in_port={},actions=ct(nat,table={second})", own.port));
    parts.push(Part::new("Replies get the addresses of the connections that they are of.", replies));
    let mut forwarded: Vec<Translated> = plan.forwards.iter().map(|forward| forward.outside).collect();
    forwarded.dedup();
    let from_inside = hairpins.iter().flat_map(|inside| {
        let rule = |outside: &Translated| {
            let (port, to) = (inside.port, outside.address);
            format!("priority=110,ip,in_port={port},nw_dst={to},actions=ct(nat,table={second})")
        };
        forwarded.iter().map(rule).collect::<Vec<_>>()
    });
    parts.push(Part::new("Hosts inside reach forwarded ports, too.", from_inside));
    parts
}

/// The rules by the state of a packet's connection.
fn by_state(way: &Way, plan: &Plan) -> Vec<Part> {
    let state = |priority: u32, state: &str, actions: &str| {
        ["ip", "ipv6"].map(|flow| format!("priority={priority},ct_state={state},{flow},actions={actions}"))
    };
    let pass = &way.pass;
    let mut parts =
        vec![Part::new("Packets that belong to no connection are dropped.", state(400, "+trk+inv", "drop"))];
    if plan.follows_messages() {
        let own = plan.with_translation().into_iter().map(|own| {
            let actions = format!("ct(commit,nat,table={})", way.first);
            format!("priority=320,ct_state=+trk+new+rel,ip,nw_dst={},actions={actions}", own.address)
        });
        parts.push(Part::new("Connections that have been announced are forwarded.", own));
        let others = state(310, "+trk+new+rel", &way.keep(None));
        parts.push(Part::new("Connections that have been announced may begin.", others));
    }
    let known = ["+trk+est", "+trk+rel"].iter().flat_map(|known| state(300, known, pass));
    parts.push(Part::new("Packets of connections, and ICMP errors about them, pass.", known));
    if !plan.forwards.is_empty() {
        let kept = format!("priority=210,ct_state=+trk+new+dnat,ip,actions={pass}");
        parts.push(Part::new("Packets of forwarded connections pass before there is a reply.", [kept]));
    }
    parts.extend(plan.forwards.iter().map(|forward| forwarding(way, plan, forward)));
    for (line, allowed) in plan.allowed.iter().filter(|(_, allowed)| allowed.is_tracked) {
        let priority = if allowed.helper.is_some() { 110 } else { 100 };
        let start = format!("priority={priority},ct_state=+trk+new");
        let mut rules = allowing(plan, allowed, &start, &way.keep(allowed.helper));
        rules.extend(allowing(plan, &of_later_fragments(allowed), &start, &way.keep(None)));
        parts.push(Part::new(line, rules));
    }
    parts.push(Part::new("Other new connections are dropped.", ["priority=0,actions=drop".to_owned()]));
    parts
}

/// The rules of an entry of `forward`: connections of its outside port and of all inside ports are kept, and routed to their host.
fn forwarding(way: &Way, plan: &Plan, Forward { line, outside, entry }: &Forward) -> Part {
    let to = entry.to_port.map_or_else(|| entry.to.to_string(), |port| format!("{}:{port}", entry.to));
    let helper = entry.helper.map_or_else(String::new, |helper| format!("alg={helper},"));
    let later = entry.flows.iter().flat_map(|flow| later_fragments(flow));
    let flows: Vec<String> = entry.flows.iter().cloned().chain(later).collect();
    let rules = std::iter::once(&outside.port).chain(&plan.inside).flat_map(|port| {
        let (to, helper) = (&to, &helper);
        let rule = move |flow: &String| {
            format!(
                "priority=200,ct_state=+trk+new,in_port={port},{flow},nw_dst={},\
                 actions=ct(commit,nat(dst={to}),{helper}table={})",
                outside.address, way.first
            )
        };
        flows.iter().map(rule).collect::<Vec<_>>()
    });
    Part::new(line, rules)
}

impl Setup {
    /// Returns the rules that the sections of the router and the firewall expand to, in the syntax of `ovs-ofctl`, with a comment before the rules of
    /// each purpose; none without such sections.
    ///
    /// # Errors
    /// As [`read`](Self::read), and where ranges of ports become too many rules.
    pub fn explain(&self) -> Result<Option<String>, SetupError> {
        let plan = Plan::read(&self.config, &self.interfaces, &self.source)?;
        let mut tables = Vec::new();
        if let Some(section) = &self.config.router {
            let own = super::router::expand(&self.config, section, plan.as_ref(), &self.interfaces);
            tables.extend(own.into_iter().map(|(number, _, parts)| (number, parts)));
        }
        if let Some(plan) = &plan {
            let own = expand(&self.config, plan, &self.interfaces);
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
