//! The router's section, expanded to tables of rules and a table of routes.
//!
//! ```text
//!         ┌─ table ─────────────────┐     ┌─ routes_table ───────────┐     ┌─ of each port, with a firewall ─┐
//! port ─► │ for its address, or all ┼──┬─►│ own addresses ─► answered │  ┌─►│ new ─► keep, translate ─► port  │
//!         │ else ─► drop            │  │  │ a neighbour   ─► ─────────┼──┘  │ else ─► translate ─► port       │
//!         └─────────────────────────┘  │  │ no route      ─► error    │     └─────────────────────────────────┘
//!                             [firewall]  └───────────────────────────┘
//! ```
//!
//! With a firewall, connections are kept where packets leave: their translated address depends on the port. Before,
//! packets have the addresses that their senders know, also in errors about them. Forwarded connections are the exception: the
//! firewall keeps them with their destination translated, since they are routed to it. Where one leaves through the port that it
//! came in through, its source is translated as well, by a second connection in a zone of its own.

use flowlane::rule::{Action, flow_syntax};

use super::firewall::{self, HAIRPIN_ZONE, Part, Plan, Translated};
use super::{table_numbers, vlans};
use crate::mgmt::config::{
    Config, ConfigError, KeyPath, PortSection, RouteTableSection, RouterSection, Source, TableEngine,
    TableSection,
};
use crate::port::PortSpec;
use crate::stage::route::RouteMiss;
use crate::state::router::{Interface, Link, OWN_PACKETS, text_of};
use crate::state::vlan;

/// Adds the tables of the router, if there is one.
pub(super) fn add_tables(
    config: &mut Config,
    plan: Option<&Plan>,
    interfaces: &[Interface],
    source: &Source,
) -> Result<(), ConfigError> {
    let Some(section) = config.router.clone() else {
        let port = interfaces.iter().find_map(|interface| Some((interface, interface.place()?)));
        return match port {
            Some((interface, place)) => {
                let message = format!("port `{}` has addresses, and there is no router", interface.name);
                let at = KeyPath::section("port", place).key("addresses");
                Err(source.error(&at, message, "add a section [router], or remove the addresses"))
            }
            None => Ok(()),
        };
    };
    check(config, &section, interfaces, source)?;
    for (number, name, parts) in expand(config, &section, plan, interfaces) {
        config.table.push(TableSection {
            name,
            engine: TableEngine::Auto,
            rules: parts.into_iter().flat_map(|part| part.rules).collect(),
            ..TableSection::of_controllers(number)
        });
    }
    let RouterSection { routes, routes_file, reverse_path, routes_table, .. } = section;
    config.route_table.push(RouteTableSection {
        name: "router".to_owned(),
        miss: RouteMiss::Unreachable,
        routes,
        routes_file,
        reverse_path,
        ..RouteTableSection::numbered(routes_table)
    });
    Ok(())
}

/// The numbers of the tables of an interface: that of its connections and the one behind.
fn tables_of(section: &RouterSection, position: usize) -> Option<(u8, u8)> {
    let first = usize::from(section.routes_table) + 1 + 2 * position;
    Some((u8::try_from(first).ok()?, u8::try_from(first + 1).ok().filter(|second| *second < u8::MAX)?))
}

/// Returns whether an interface has tables of its own.
fn has_tables(config: &Config, interface: &Interface) -> bool {
    config.firewall.is_some() || interface.place().is_none()
}

fn check(
    config: &Config,
    section: &RouterSection,
    interfaces: &[Interface],
    source: &Source,
) -> Result<(), ConfigError> {
    let at = KeyPath::of("router");
    if interfaces.is_empty() {
        let help = "give ports addresses, as in addresses = [\"192.0.2.1/24\"]";
        return Err(source.error(&at, "no port has an address, so there is nothing to route", help));
    }
    if section.neighbours_max == 0 {
        return Err(source.error(
            &at.key("neighbours_max"),
            "a router needs room for neighbours",
            "take 1 or more",
        ));
    }
    if let Some(name) = &section.kernel_table {
        check_kernel_table(config, name, interfaces, source)?;
    }
    let mut own = vec![section.table, section.routes_table];
    for (position, _) in interfaces.iter().enumerate().filter(|(_, one)| has_tables(config, one)) {
        let Some((first, second)) = tables_of(section, position) else {
            let message = format!("there are too few numbers behind table {}", section.routes_table);
            let help = "take a smaller number: with a firewall, each interface has two tables behind it";
            return Err(source.error(&at.key("routes_table"), message, help));
        };
        own.extend([first, second]);
    }
    let next = firewall::table(config).filter(|_| config.firewall.is_some()).unwrap_or(section.routes_table);
    if next <= section.table || section.routes_table <= next && config.firewall.is_some() {
        let message = "the tables of the router are not in order";
        let help = "take table < that of [firewall] < routes_table";
        return Err(source.error(&at.key("routes_table"), message, help));
    }
    if let Some((number, place)) = table_numbers(config).find(|(number, _)| own.contains(number)) {
        let message = format!("table {number} is the router's");
        let help = "give this table another number; table and routes_table of [router] move the router's";
        return Err(source.error(&place.key("number"), message, help));
    }
    if section.table > 0 && !table_numbers(config).any(|(number, _)| number == 0) {
        let help = "take table = 0, or add a [[table]] with number = 0";
        return Err(source.error(&at.key("table"), "packets enter at table 0, which is not there", help));
    }
    Ok(())
}

/// Checks that a table of the system's can be followed, and that the system can answer for the router's addresses.
fn check_kernel_table(
    config: &Config,
    name: &str,
    interfaces: &[Interface],
    source: &Source,
) -> Result<(), ConfigError> {
    if kernel_table(name).is_none() {
        let at = KeyPath::of("router").key("kernel_table");
        let help = "write main, default or a number";
        return Err(source.error(&at, format!("`{name}` is no table of the system's routes"), help));
    }
    for interface in interfaces {
        let Some(place) = interface.place() else {
            let at = KeyPath::of("router").key("kernel_table");
            let message = format!(
                "with kernel_table, the system has the router's addresses, and `{}` is no interface of the system",
                interface.name
            );
            return Err(source.error(&at, message, "remove [[router.interface]], or kernel_table"));
        };
        let open = &config.port[place].open;
        if !matches!(open.parse(), Ok(PortSpec::AfPacket { .. })) {
            let at = KeyPath::section("port", place).key("open");
            let message = format!(
                "with kernel_table, the system answers for port `{}`, whose packets it does not see",
                interface.name
            );
            return Err(source.error(
                &at,
                message,
                "take afpacket:INTERFACE, or remove kernel_table from [router]",
            ));
        }
    }
    Ok(())
}

/// The number of a table of the system's, from its name or number.
pub(super) fn kernel_table(name: &str) -> Option<u32> {
    match name {
        "main" => Some(254),
        "default" => Some(253),
        other => other.parse().ok().filter(|number| *number > 0),
    }
}

/// The tables of rules: number, name, rules.
pub(super) fn expand(
    config: &Config,
    section: &RouterSection,
    plan: Option<&Plan>,
    interfaces: &[Interface],
) -> Vec<(u8, String, Vec<Part>)> {
    let next = firewall::table(config).filter(|_| config.firewall.is_some()).unwrap_or(section.routes_table);
    let mut front = Vec::new();
    for interface in interfaces {
        front.extend(match interface.link {
            Link::Port(_) | Link::Tunnel(_) => vec![for_router(interface, next)],
            Link::Vlan(vid) => in_vlan(config, interface, vid, next),
        });
    }
    if interfaces.iter().any(|interface| matches!(interface.link, Link::Tunnel(_))) {
        let own = format!("priority=100,in_port={OWN_PACKETS},actions=goto_table:{}", section.routes_table);
        front.push(Part::new("Packets that the router sends into tunnels are routed.", [own]));
    }
    if interfaces.iter().any(|interface| matches!(interface.link, Link::Vlan(_))) {
        let switched =
            switched(config).map(|port| format!("priority=50,in_port={},actions=normal", port.number));
        front.push(Part::new("Others are switched between the ports of their VLAN.", switched));
    }
    front.push(Part::new("Everything else is dropped.", ["priority=0,actions=drop".to_owned()]));
    let mut tables = vec![(section.table, "router".to_owned(), front)];
    let hairpins = plan.map_or_else(Vec::new, |plan| firewall::hairpins(plan, interfaces));
    for (position, interface) in interfaces.iter().enumerate().filter(|(_, one)| has_tables(config, one)) {
        let Some((first, second)) = tables_of(section, position) else { continue };
        let (name, out) = (&interface.name, flow_syntax::print_actions(&interface.out));
        if let Some(plan) = plan {
            let hairpin = hairpins.iter().find(|hairpin| hairpin.port == interface.number);
            let mut parts = hairpin.map_or_else(Vec::new, |hairpin| to_servers(plan, hairpin, second));
            parts.extend(leaving(plan, interface.number, second, &out));
            tables.push((first, format!("{name} connections"), parts));
        }
        let sent = Part::new(format!("Out of {name}."), [format!("actions={out}")]);
        tables.push((second, format!("{name} out"), vec![sent]));
    }
    tables
}

/// The ports whose frames are switched: those without addresses.
fn switched(config: &Config) -> impl Iterator<Item = &PortSection> {
    config.port.iter().filter(|port| port.addresses.is_empty())
}

/// The rules for packets that a port or a tunnel has for the router.
fn for_router(interface: &Interface, next: u8) -> Part {
    let to = [text_of(interface.mac), "01:00:00:00:00:00/01:00:00:00:00:00".to_owned()];
    let rule = |to| {
        format!(
            "priority=100,in_port={},vlan_tci=0x0000/0x1000,dl_dst={to},actions=goto_table:{next}",
            interface.number
        )
    };
    let why = format!("Packets for the router at {}, and those for all.", interface.name);
    Part::new(why, to.map(rule))
}

/// The rules for packets that ports of a VLAN have for the router. Questions of ARP and neighbour discovery to all stations are switched,
/// too.
fn in_vlan(config: &Config, interface: &Interface, vid: u16, next: u8) -> Vec<Part> {
    let frames = |port: &PortSection| {
        let settings = vlans::of(port);
        let settings = settings.as_deref().unwrap_or(&vlan::TRUNK);
        let forms =
            [("vlan_tci=0x0000/0x1000".to_owned(), None), ("vlan_tci=0x1000/0x1fff".to_owned(), Some(0))]
                .into_iter()
                .chain((vid > 0).then(|| (format!("dl_vlan={vid}"), Some(vid))));
        let is_in = |tag: &Option<u16>| settings.takes_into(vid, *tag);
        let rules = forms.filter(|(_, tag)| is_in(tag)).map(|(form, tag)| {
            (format!("in_port={},{form}", port.number), if tag.is_some() { "pop_vlan," } else { "" })
        });
        rules.collect::<Vec<_>>()
    };
    let frames: Vec<(String, &str)> = switched(config).flat_map(frames).collect();
    let enter = format!("set_field:{}->in_port", interface.number);
    let to_it = frames.iter().map(|(frame, pop)| {
        let mac = text_of(interface.mac);
        format!("priority=100,{frame},dl_dst={mac},actions={pop}{enter},goto_table:{next}")
    });
    let asked = ["arp", "icmp6,icmp_type=135", "icmp6,icmp_type=136"];
    let to_all = frames.iter().flat_map(|(frame, pop)| {
        let rule = |what: &str| {
            format!(
                "priority=100,{what},{frame},dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,\
                 actions=clone({pop}{enter},resubmit(,{next})),normal"
            )
        };
        asked.map(rule)
    });
    vec![
        Part::new(format!("Packets for the router at {}.", interface.name), to_it),
        Part::new(format!("Questions to all stations of {}.", interface.name), to_all),
    ]
}

/// The rules for packets of forwarded connections that leave through an inside port.
fn to_servers(plan: &Plan, Translated { port, address }: &Translated, second: u8) -> Vec<Part> {
    let servers = plan.servers();
    let hairpin = servers.iter().map(|server| {
        format!(
            "priority=120,ct_state=-rpl+trk+dnat,ip,in_port={port},nw_dst={server},\
             actions=ct_clear,ct(commit,zone={HAIRPIN_ZONE},nat(src={address}),table={second})"
        )
    });
    let kept = format!("priority=110,ct_state=+new+trk+dnat,ip,actions=goto_table:{second}");
    let replies = servers.iter().map(|server| {
        format!("priority=105,ct_state=-new+rpl+trk,ip,nw_src={server},actions=ct(nat,table={second})")
    });
    vec![
        Part::new(
            "Forwarded connections from this port take its address, so that replies come back.",
            hairpin,
        ),
        Part::new("Others are kept already.", [kept]),
        Part::new("Replies to hosts inside come from the address that they know.", replies),
    ]
}

/// The rules for packets that leave through a port.
fn leaving(plan: &Plan, port: u32, second: u8, out: &str) -> Vec<Part> {
    let rule = |priority: u32, state: &str, flow: &str, actions: &str| {
        format!("priority={priority},ct_state={state},{flow},actions=ct({actions}table={second})")
    };
    let mut parts = Vec::new();
    let nat = plan.address_of(port).map_or_else(String::new, |own| format!("nat(src={own}),"));
    for (line, helper, flows) in plan.helped() {
        let of_flow = |flow: &String| {
            let nat = if flow.contains("tcp6") || flow.contains("udp6") { "" } else { &nat };
            rule(110, "+new-rel+trk", flow, &format!("commit,alg={helper},{nat}"))
        };
        parts.push(Part::new(line, flows.iter().map(of_flow)));
    }
    let new = ["ip", "ipv6"].map(|flow| {
        let nat = if flow == "ip" { &nat } else { "" };
        rule(100, "+new+trk", flow, &format!("commit,{nat}"))
    });
    parts.push(Part::new("New connections are kept.", new));
    if plan.with_translation().iter().any(|own| own.port == port) {
        let why = "Packets of known connections are translated.";
        parts.push(Part::new(why, [rule(100, "-new+trk", "ip", "nat,")]));
    }
    parts.push(Part::new("Everything else leaves as it is.", [format!("priority=0,actions={out}")]));
    parts
}

/// Returns the actions that packets go on with which leave through an interface.
pub(super) fn after_routing(config: &Config, interface: &Interface, position: usize) -> Vec<Action> {
    let tables = config.router.as_ref().filter(|_| has_tables(config, interface));
    match tables.and_then(|section| tables_of(section, position)) {
        Some((first, second)) => {
            let table = if config.firewall.is_some() { first } else { second };
            vec![Action::Goto(table)]
        }
        None => interface.out.clone(),
    }
}
