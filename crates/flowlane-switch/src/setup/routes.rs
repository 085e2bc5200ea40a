//! Tables of routes, from their sections of the configuration.

use std::path::Path;

use flowlane::route::Prefix;
use flowlane::route::read::{self, Gateway, NextHop, RouteOptions};
use flowlane::rule::flow_syntax::read_actions;
use flowlane::rule::{Action, ReadOptions, Rule};

use super::SetupError;
use crate::config::{ConfigError, FibChoice, NextHopSection, RouteMissChoice, RouteTableSection};
use crate::stage::route::{FibEngine, HopSpec, RouteTable, RouteTableConfig, RouteTableError};

/// Makes an error at the first place of a text in the configuration: (text, message, help).
pub(super) type Place<'a> = &'a dyn Fn(&str, String, String) -> ConfigError;

/// A section with its routes read.
pub(super) struct RoutesSetup {
    section: RouteTableSection,
    hops: Vec<(String, HopSpec)>,
    v4: Vec<(Prefix<u32>, usize)>,
    v6: Vec<(Prefix<u128>, usize)>,
}

impl RoutesSetup {
    /// Reads the routes that a section names.
    pub(super) fn read(
        section: &RouteTableSection,
        folder: &Path,
        options: &ReadOptions<'_>,
        place: Place<'_>,
    ) -> Result<Self, SetupError> {
        let hops = next_hops(section, options, place)?;
        let mut setup = Self { section: section.clone(), hops, v4: Vec::new(), v6: Vec::new() };
        let inline = section.routes.join("\n");
        setup.add(inline, &format!("routes of table {}", section.number), place)?;
        if let Some(file) = &section.routes_file {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path).map_err(|e| ConfigError {
                file: path.clone(),
                text: String::new(),
                span: None,
                message: format!("the routes of table {} cannot be read: {e}", section.number),
                help: Some("it must be text: decompress it first".to_owned()),
                environment: false,
            })?;
            setup.add(text, &path.display().to_string(), place)?;
        }
        Ok(setup)
    }

    /// The table's number.
    pub(super) fn number(&self) -> u8 {
        self.section.number
    }

    /// Number of routes.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The next hops' actions as rules, to be checked like rules.
    pub(super) fn as_rules(&self) -> impl Iterator<Item = Rule> {
        self.hops.iter().filter_map(|(_, spec)| match spec {
            HopSpec::Actions(actions) => {
                let rule = Rule::new(flowlane::rule::Match::any(), actions.clone());
                Some(Rule { table: self.section.number, ..rule })
            }
            HopSpec::Group(_) => None,
        })
    }

    /// Puts the table together.
    pub(super) fn open(&self, seed: u32) -> Result<RouteTable, RouteTableError> {
        let config = RouteTableConfig {
            number: self.section.number,
            name: self.section.name.clone(),
            miss_to_controller: self.section.miss == RouteMissChoice::Controller,
            routes_max: self.section.routes_max,
            memory_max: self.section.memory_mib.saturating_mul(1 << 20),
            engine: match self.section.engine {
                FibChoice::Auto => FibEngine::Auto,
                FibChoice::Compact => FibEngine::Compact,
                FibChoice::Direct => FibEngine::Direct,
            },
            seed: seed.into(),
        };
        RouteTable::new(config, self.hops.clone(), &self.v4, &self.v6)
    }

    fn add(&mut self, text: String, name: &str, place: Place<'_>) -> Result<(), SetupError> {
        let options = RouteOptions {
            routes_max: self.section.routes_max,
            next_hop_absent: &|_| 0,
            ..RouteOptions::default()
        };
        let routes = match read::read(&text, name, None, &options) {
            Ok(routes) => routes,
            Err(errors) => return Err(SetupError::Rules { table: self.section.number, text, errors }),
        };
        // Positions of next hops by the numbers that stand for them in these routes.
        let mut known = std::collections::HashMap::new();
        let mut position = |setup: &mut Self, number: u64| match known.get(&number) {
            Some(position) => Ok(*position),
            None => {
                let position = setup.position(number, routes.next_hops.get(number), name, place)?;
                known.insert(number, position);
                Ok::<usize, ConfigError>(position)
            }
        };
        for &(prefix, number) in &routes.v4 {
            let position = position(self, number)?;
            self.v4.push((prefix, position));
        }
        for &(prefix, number) in &routes.v6 {
            let position = position(self, number)?;
            self.v6.push((prefix, position));
        }
        Ok(())
    }

    /// The position of the next hop that routes name. Groups and refusals of `ip route` need no section.
    fn position(
        &mut self,
        number: u64,
        hop: Option<&NextHop>,
        file: &str,
        place: Place<'_>,
    ) -> Result<usize, ConfigError> {
        let find = |setup: &Self, name: &str| setup.hops.iter().position(|(n, _)| n == name);
        let via = |setup: &Self, gateway: &Gateway| {
            let alone = |address, device: Option<&Box<str>>| Gateway { address, device: device.cloned() };
            find(setup, &gateway.to_string())
                .or_else(|| find(setup, &alone(gateway.address, None).to_string()))
                .or_else(|| find(setup, &alone(None, gateway.device.as_ref()).to_string()))
        };
        let missing = |name: String| {
            let message = format!("{file}: routes lead to the next hop `{name}`, which is not declared");
            let help = format!("declare it: [[route_table.next_hop]] with name = \"{name}\" and its actions");
            place("[[route_table]]", message, help)
        };
        let text = hop.map_or_else(|| number.to_string(), ToString::to_string);
        match hop {
            None if number == 0 => {
                let help = "write it behind the prefix, as in `192.0.2.0/24 198.51.100.1`".to_owned();
                Err(place("[[route_table]]", format!("{file}: a route names no next hop"), help))
            }
            Some(NextHop::Via(gateway)) => via(self, gateway).ok_or_else(|| missing(text)),
            Some(NextHop::Group(members)) => {
                let member = |(gateway, weight): &(Gateway, u32)| match via(self, gateway) {
                    Some(position) => Ok((position, *weight)),
                    None => Err(missing(gateway.to_string())),
                };
                let members = members.iter().map(member).collect::<Result<_, _>>()?;
                self.hops.push((text, HopSpec::Group(members)));
                Ok(self.hops.len() - 1)
            }
            Some(NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit) => Ok(find(self, &text)
                .unwrap_or_else(|| {
                    self.hops.push((text, HopSpec::Actions(Vec::new())));
                    self.hops.len() - 1
                })),
            _ => find(self, &text).ok_or_else(|| missing(text)),
        }
    }
}

/// The next hops of a section.
fn next_hops(
    section: &RouteTableSection,
    options: &ReadOptions<'_>,
    place: Place<'_>,
) -> Result<Vec<(String, HopSpec)>, SetupError> {
    let mut out: Vec<(String, HopSpec)> = Vec::new();
    for hop in &section.next_hop {
        if section.next_hop.iter().filter(|h| h.name == hop.name).count() > 1 {
            let message = format!("two next hops of table {} are called `{}`", section.number, hop.name);
            return Err(place(&hop.name, message, "give each its own name".to_owned()).into());
        }
        let spec = match (&hop.actions, hop.members.is_empty()) {
            (Some(text), true) => HopSpec::Actions(actions(section, hop, text, options)?),
            (None, false) => HopSpec::Group(members(section, hop, place)?),
            _ => {
                let message = format!("next hop `{}` needs actions or members, and not both", hop.name);
                let help = "write actions = \"output:1\", or members = [{ name = \"…\" }]".to_owned();
                return Err(place(&hop.name, message, help).into());
            }
        };
        out.push((hop.name.clone(), spec));
    }
    Ok(out)
}

fn actions(
    section: &RouteTableSection,
    hop: &NextHopSection,
    text: &str,
    options: &ReadOptions<'_>,
) -> Result<Vec<Action>, SetupError> {
    let name = format!("next hop {} of table {}", hop.name, section.number);
    read_actions(text, &name, options).map_err(|errors| SetupError::Rules {
        table: section.number,
        text: text.to_owned(),
        errors,
    })
}

fn members(
    section: &RouteTableSection,
    hop: &NextHopSection,
    place: Place<'_>,
) -> Result<Vec<(usize, u32)>, ConfigError> {
    let member = |m: &crate::config::MemberSection| {
        let position = section.next_hop.iter().position(|h| h.name == m.name && h.members.is_empty());
        position.map(|position| (position, m.weight)).ok_or_else(|| {
            let message = format!("the member `{}` of next hop `{}` is none with actions", m.name, hop.name);
            place(&m.name, message, "name next hops of this table that have actions".to_owned())
        })
    };
    hop.members.iter().map(member).collect()
}
