//! Reading input files.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use flowlane::route::read::{self as route_read, RouteList, RouteOptions};
use flowlane::rule::action::PortNo;
use flowlane::rule::{Flags, Format, ReadOptions, Rule, flow_syntax};
use flowlane_capture::{MRT_TABLE, read_bytes, recognise_mrt, text_of};

use crate::arguments::{RoutesFormat, RoutesInput, RulesInput};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::stderr::note;

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    Ok(flowlane_capture::read_text(path)?)
}

/// The numbers of ports that dumps name, which no configuration numbers: a name has one number in all files of a command.
#[derive(Default)]
pub(crate) struct DumpedPorts(HashMap<String, PortNo>);

impl DumpedPorts {
    /// Numbers the ports that a text names, if it is a dump; returns these. The largest numbers are the least likely ones of other
    /// ports.
    fn number<'t>(&mut self, text: &'t str, path: &Path) -> Result<Vec<(&'t str, PortNo)>, Failure> {
        let names = flow_syntax::dumped_ports(text);
        let mut numbered = Vec::with_capacity(names.len());
        for name in names {
            let next = (PortNo::MAX.0 as usize).checked_sub(self.0.len()).filter(|next| *next > 0);
            let port = match (self.0.get(name), next) {
                (Some(known), _) => *known,
                (None, Some(next)) => *self.0.entry(name.to_owned()).or_insert(PortNo(next as u32)),
                (None, None) => {
                    let most = PortNo::MAX.0;
                    let message =
                        format!("{}: `{name}`: the rules name more than {most} ports", path.display());
                    let help = "a switch has no more: is it a dump of one switch?";
                    return Err(Failure::input_help(message, help));
                }
            };
            numbered.push((name, port));
        }
        Ok(numbered)
    }
}

/// Reads a rule file; returns its rules and their format.
pub(crate) fn read_rules(input: &RulesInput) -> Result<(Vec<Rule>, Format), Failure> {
    read_rules_beside(input, &mut DumpedPorts::default())
}

/// Reads a rule file beside others, in which `dumped` are ports with names.
pub(crate) fn read_rules_beside(
    input: &RulesInput,
    dumped: &mut DumpedPorts,
) -> Result<(Vec<Rule>, Format), Failure> {
    let text = read_text(&input.rules)?;
    let format = input.syntax.rules_format.0.unwrap_or_else(|| flowlane::rule::detect_format(&text));
    let flags = if input.syntax.match_flags { Flags::Match } else { Flags::Ignore };
    let numbered = dumped.number(&text, &input.rules)?;
    let ports = |name: &str| dumped.0.get(name).copied();
    let options = ReadOptions { flags, ports: &ports, ..ReadOptions::default() };
    let name = input.rules.display().to_string();
    let rules = match flowlane::rule::read(&text, &name, Some(format), &options) {
        Ok(rules) => rules,
        Err(errors) => {
            drop(numbered);
            return Err(Failure::lines_of(&[Kind::Flows, Kind::Filters], text, &errors));
        }
    };
    if !numbered.is_empty() {
        let numbered = numbered.iter().map(|(name, port)| format!("\"{name}\" is {}", port.0));
        let numbered = numbered.collect::<Vec<_>>().join(", ");
        note!("flowlane: {name}: ports have names there and numbers here: {numbered}");
    }
    Ok((rules, format))
}

/// Reads a file of routes; returns them with the name of their format.
pub(crate) fn read_routes(input: &RoutesInput) -> Result<(RouteList, &'static str), Failure> {
    let (path, bytes) = (&input.routes, read_bytes(&input.routes)?);
    let is_mrt = match input.routes_format {
        RoutesFormat::Auto => recognise_mrt(&bytes) == Some(MRT_TABLE),
        format => format == RoutesFormat::Mrt,
    };
    if is_mrt {
        reject_table(input, "an MRT dump")?;
        return Ok((read_mrt(&bytes, path, input.routes_max)?, "mrt"));
    }
    let text = text_of(bytes, path.display())?;
    let given = input.routes_format.of_text();
    let format = given.unwrap_or_else(|| route_read::detect_format(&text));
    if format == route_read::Format::Plain {
        reject_table(input, "a list of prefixes")?;
    }
    let options =
        RouteOptions { routes_max: input.routes_max, table: &input.table, ..RouteOptions::default() };
    match route_read::read(&text, &path.display().to_string(), given, &options) {
        Ok(routes) => Ok((routes, format.name())),
        Err(errors) => Err(Failure::lines_of(&[Kind::Routes], text, &errors)),
    }
}

/// Rejects the choice of a table of a file that has one, without a name.
fn reject_table(input: &RoutesInput, kind: &str) -> Result<(), Failure> {
    if ["main", "254"].contains(&input.table.as_str()) {
        return Ok(());
    }
    let message =
        format!("--table {}: {} is {kind}, which has one table", input.table, input.routes.display());
    Err(Failure::input_help(message, "leave out --table"))
}

fn read_mrt(bytes: &[u8], path: &Path, routes_max: usize) -> Result<RouteList, Failure> {
    route_read::read_mrt(bytes, routes_max).map_err(|error| {
        let help = match recognise_mrt(bytes) {
            Some(kind) if kind != MRT_TABLE => format!("it is {kind}"),
            _ => "expected an MRT table dump: TABLE_DUMP_V2, uncompressed or gzipped".to_owned(),
        };
        Failure::input_help(format!("{}: {error}", path.display()), help)
    })
}

/// Reads addresses, one per line; blank lines and comments are skipped.
pub(crate) fn read_addresses(path: &Path) -> Result<Vec<IpAddr>, Failure> {
    let text = read_text(path)?;
    let mut addresses = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        addresses.push(word.parse().map_err(|_| {
            let message = format!("{}:{number}: `{word}` is not an address", path.display());
            Failure::input_help(message, "write one address a line, as 192.0.2.1 or 2001:db8::1")
        })?);
    }
    Ok(addresses)
}
