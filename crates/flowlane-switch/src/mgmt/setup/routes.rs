//! Tables of routes, from their sections of the configuration.

use std::cell::RefCell;
use std::collections::HashMap;

use flowlane::route::Prefix;
use flowlane::route::read::{self, AnyPrefix, Gateway, NextHop, RouteOptions};
use flowlane::rule::Action;

pub(super) use self::connected::Links;
use self::connected::is_special;
pub use self::live::{LiveRoutes, Origin, RouteReport};
use super::SetupError;
use super::lines::Lines;
use super::reader::Reader;
use crate::mgmt::config::{ConfigError, KeyPath, MemberSection, NextHopSection, RouteTableSection, Source};
use crate::ruleset::Routing;
use crate::stage::route::{HopSpec, RouteTable, RouteTableConfig, RouteTableError};

/// A section with its routes read.
#[derive(Clone)]
pub(super) struct RoutesSetup {
    section: RouteTableSection,
    at: KeyPath,
    links: Links,
    hops: Vec<(String, HopSpec)>,
    /// The first of them are those of the configuration; others are a router's neighbours, and groups.
    declared: usize,
    /// The first routes are those of the router's ports.
    own_v4: usize,
    own_v6: usize,
    v4: Vec<(Prefix<u32>, usize)>,
    v6: Vec<(Prefix<u128>, usize)>,
}

impl RoutesSetup {
    /// Reads the routes that a section names.
    pub(super) fn read(
        section: &RouteTableSection,
        at: KeyPath,
        reader: &Reader<'_>,
        links: Links,
        is_routers: bool,
    ) -> Result<Self, SetupError> {
        let hops = next_hops(section, &at, reader)?;
        let declared = hops.len();
        let section = section.clone();
        let (own_v4, own_v6, v4, v6) = (0, 0, Vec::new(), Vec::new());
        let mut setup = Self { section, at, links, hops, declared, own_v4, own_v6, v4, v6 };
        if is_routers {
            setup.add_own();
        }
        (setup.own_v4, setup.own_v6) = (setup.v4.len(), setup.v6.len());
        let (routes, file) = (setup.section.routes.clone(), setup.section.routes_file.clone());
        setup.add(&Lines::list(reader.source, setup.at.key("routes"), &routes))?;
        if let Some(file) = &file {
            let help = "give prefixes with next hops, or the output of `ip route`";
            setup.add(&Lines::file(reader.source, &setup.at.key("routes_file"), file, help)?)?;
        }
        Ok(setup)
    }

    /// Number of routes.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The table's number.
    pub(super) fn number(&self) -> u8 {
        self.section.number
    }

    /// The actions of its next hops.
    pub(super) fn actions(&self) -> impl Iterator<Item = &[Action]> {
        self.hops.iter().filter_map(|(_, hop)| match hop {
            HopSpec::Actions(actions) | HopSpec::Router(_, actions) => Some(&actions[..]),
            HopSpec::Group(_) => None,
        })
    }

    /// Builds the table.
    pub(super) fn open(&self, seed: u32, measures: bool, source: &Source) -> Result<RouteTable, ConfigError> {
        let config = RouteTableConfig {
            number: self.section.number,
            name: self.section.name.clone(),
            miss: self.section.miss,
            reverse_path: self.section.reverse_path,
            interfaces: self.links.in_ports(),
            routes_max: self.section.routes_max,
            memory_max: self.section.memory_mib.saturating_mul(1 << 20),
            engine: self.section.engine,
            seed: seed.into(),
            measures,
        };
        RouteTable::new(config, self.hops.clone(), &self.v4, &self.v6)
            .map_err(|error| source.error(&self.place_of(&error), format!("routes: {error}"), ""))
    }

    /// The part of the section that an error is about.
    fn place_of(&self, error: &RouteTableError) -> KeyPath {
        let hop = |name: &str| {
            let n = self.section.next_hop.iter().position(|hop| hop.name == name);
            n.map_or(self.at.clone(), |n| self.at.key("next_hop").item(n))
        };
        match error {
            RouteTableError::Action { name, .. } => hop(name).key("actions"),
            RouteTableError::Group { name, .. } => hop(name).key("members"),
            RouteTableError::Rib(_) => self.at.key("routes_max"),
            RouteTableError::Build(_) => self.at.key("memory_mib"),
        }
    }

    fn add(&mut self, lines: &Lines<'_>) -> Result<(), SetupError> {
        let routes_max = self.section.routes_max;
        let setup = RefCell::new(&mut *self);
        // Positions of next hops by the numbers that stand for them in these routes.
        let known = RefCell::new(HashMap::new());
        let check = |number: u64, hop: Option<&NextHop>| {
            if !known.borrow().contains_key(&number) {
                let position = setup.borrow_mut().position(number, hop)?;
                known.borrow_mut().insert(number, position);
            }
            Ok(())
        };
        let options = RouteOptions {
            routes_max,
            next_hop_absent: &|_| 0,
            check_next_hop: &check,
            ..RouteOptions::default()
        };
        let routes = read::read(&lines.text, &lines.name(), None, &options).map_err(|e| lines.errors(e))?;
        let known = known.into_inner();
        let has_router = self.links.has_router();
        let is_refused = |prefix: AnyPrefix| has_router && is_special(prefix);
        let v4 = routes.v4.iter().filter(|(prefix, _)| !is_refused(AnyPrefix::V4(*prefix)));
        let v6 = routes.v6.iter().filter(|(prefix, _)| !is_refused(AnyPrefix::V6(*prefix)));
        self.v4.extend(v4.map(|(prefix, number)| (*prefix, known[number])));
        self.v6.extend(v6.map(|(prefix, number)| (*prefix, known[number])));
        Ok(())
    }

    /// The position of the next hop that routes name. Groups and refusals of `ip route` need no section.
    fn position(&mut self, number: u64, hop: Option<&NextHop>) -> Result<usize, String> {
        let find = |setup: &Self, name: &str| setup.hops.iter().position(|(n, _)| n == name);
        let via = |setup: &Self, gateway: &Gateway| {
            let find = |setup: &Self, name: &str| find(setup, name).filter(|at| *at < setup.declared);
            // A next hop with an encapsulation is another one than that without.
            find(setup, &gateway.to_string())
                .or_else(|| find(setup, &Gateway { device: None, ..gateway.clone() }.to_string()))
                .or_else(|| find(setup, &Gateway { address: None, ..gateway.clone() }.to_string()))
        };
        let missing = |name: String| {
            format!(
                "routes lead to the next hop `{name}`, which is not declared; declare it: [[route_table.next_hop]] with \
                 name = \"{name}\" and its actions"
            )
        };
        let text = hop.map_or_else(|| number.to_string(), ToString::to_string);
        match hop {
            None if number == 0 => Err("a route names no next hop; write it behind the prefix, as in \
                                        `192.0.2.0/24 198.51.100.1`"
                .to_owned()),
            Some(NextHop::Via(gateway)) => match via(self, gateway) {
                Some(position) => Ok(position),
                None => self.neighbour(gateway).unwrap_or_else(|| Err(missing(text))),
            },
            Some(NextHop::Group(members)) => {
                let mut positions = Vec::new();
                for (gateway, weight) in members {
                    let position = match via(self, gateway) {
                        Some(position) => position,
                        None => {
                            self.neighbour(gateway).unwrap_or_else(|| Err(missing(gateway.to_string())))?
                        }
                    };
                    positions.push((position, *weight));
                }
                let members = positions;
                self.hops.push((text, HopSpec::Group(members)));
                Ok(self.hops.len() - 1)
            }
            Some(hop @ (NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit)) => {
                Ok(find(self, &text).unwrap_or_else(|| self.add_hop(text, self.refusal(hop))))
            }
            Some(NextHop::Local) if self.links.has_router() => Ok(find(self, &text)
                .unwrap_or_else(|| self.add_hop(text, HopSpec::Router(Routing::Receive, Vec::new())))),
            _ => find(self, &text).ok_or_else(|| missing(text)),
        }
    }
}

mod connected;
mod live;
mod text;

/// Reads the next hops of a section.
fn next_hops(
    section: &RouteTableSection,
    at: &KeyPath,
    reader: &Reader<'_>,
) -> Result<Vec<(String, HopSpec)>, SetupError> {
    let mut out: Vec<(String, HopSpec)> = Vec::new();
    for (n, hop) in section.next_hop.iter().enumerate() {
        let at = at.key("next_hop").item(n);
        if out.iter().any(|(name, _)| *name == hop.name) {
            let message = format!("two next hops of table {} are called `{}`", section.number, hop.name);
            return Err(reader.source.error(&at.key("name"), message, "give each its own name").into());
        }
        let spec = match (&hop.actions, hop.members.is_empty()) {
            (Some(text), true) => {
                HopSpec::Actions(reader.actions(section.number, text, at.key("actions"))?)
            }
            (None, false) => HopSpec::Group(members(section, hop, &at.key("members"), reader.source)?),
            _ => {
                let message = format!("next hop `{}` needs actions or members, and not both", hop.name);
                let help = "write actions = \"output:1\", or members = [{ name = \"…\" }]";
                return Err(reader.source.error(&at.key("name"), message, help).into());
            }
        };
        out.push((hop.name.clone(), spec));
    }
    Ok(out)
}

/// The positions of a group's members, and their weights.
fn members(
    section: &RouteTableSection,
    hop: &NextHopSection,
    at: &KeyPath,
    source: &Source,
) -> Result<Vec<(usize, u32)>, ConfigError> {
    let member = |(n, member): (usize, &MemberSection)| {
        let name = &member.name;
        let position = section.next_hop.iter().position(|h| h.name == *name && h.members.is_empty());
        position.map(|position| (position, member.weight)).ok_or_else(|| {
            let message = format!("the member `{name}` of next hop `{}` is none with actions", hop.name);
            source.error(&at.item(n).key("name"), message, "name next hops of this table that have actions")
        })
    };
    hop.members.iter().enumerate().map(member).collect()
}
