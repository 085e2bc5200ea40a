//! The output of `show ip route` and `show ipv6 route` of FRRouting, Quagga, Cisco IOS, IOS XE and Arista EOS.
//!
//! ```text
//! FRRouting: codes, `>` selected, `*` in the FIB       Cisco IOS
//!
//! B>* 10.0.0.0/8 [20/0] via 192.0.2.2, eth0, 00:01     172.16.0.0/24 is subnetted, 1 subnets
//!   *                   via 192.0.2.3, eth1, 00:01     O IA 172.16.1.0 [110/3] via 10.0.1.2, 00:01:01, Gi0/0
//! C>* 192.0.2.0/24 is directly connected, eth0         C    192.0.2.0/24 is directly connected, Gi0/1
//! ```
//!
//! Where FRRouting marks routes as selected, only these are read, with their paths in the FIB; IOS prints no others. A label becomes
//! the encapsulation `mpls LABEL`. Routes below the name of a VRF are of that table; those of the VRF `default` are of the main one.
//! Distances, metrics, weights and ages are read over, as are the legend and the line of the command.

use super::entry::{Entry, Path, collect};
use super::{AnyPrefix, NextHop, RouteList, RouteOptions, prefix};
use crate::rule::ReadErrors;
use crate::rule::error::{Fault, Token, Words, lines, read_lines};

/// States of a path in FRRouting: in the FIB, queued, rejected, backup, trapped, not offloaded.
const STATES: [&str; 6] = ["*", "q", "r", "b", "t", "o"];

/// Length of the longest codes in a legend: `I L1`.
const CODES_LEN_MAX: usize = 4;

/// Returns whether a line looks as if a router had printed it.
pub(super) fn is_like(line: &str) -> bool {
    line.starts_with("Codes:")
        || line.starts_with("Gateway of last resort")
        || Route::of(Token { text: line, at: 0 }, None).is_ok_and(|route| {
            route.is_some_and(|route| {
                ["[", "is ", "via ", "unreachable", "blackhole"]
                    .iter()
                    .any(|rest| route.rest.text.starts_with(rest))
            })
        })
}

pub(super) fn read(text: &str, file: &str, options: &RouteOptions<'_>) -> Result<RouteList, ReadErrors> {
    // Marks of selected routes are those of the whole text.
    let has_marks = lines(text).any(|(_, _, line)| {
        Route::of(line, None).is_ok_and(|route| route.is_some_and(|route| route.is_selected))
    });
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let (mut table, mut subnet_len) = (None, None);
    // Whether the route above is selected; paths of one that is not are read over.
    let mut above: Option<bool> = None;
    read_lines(text, file, (usize::MAX, "lines of routes"), |line| {
        if let Some(route) = Route::of(line, subnet_len)? {
            let is_selected = !has_marks || route.is_selected;
            above = Some(is_selected);
            if !is_selected {
                return Ok(());
            }
            if entries.len() >= options.routes_max {
                let what = format!("more than {} routes; raise the limit", options.routes_max);
                return Err(line.trim().fault(what));
            }
            let refusal = route.is_local.then_some(NextHop::Local);
            entries.push(Entry { table, refusal, ..Entry::to(line.text.trim(), Some(route.prefix)) });
            path(route.rest, !has_marks || route.is_installed, &mut entries)?;
        } else if let Some(name) = vrf(line.text) {
            (table, above) = (Some(name).filter(|name| *name != "default"), None);
        } else if let Some(len) = subnetted(line.text) {
            (subnet_len, above) = (len, None);
        } else if is_heading(line.text) {
            above = None;
        } else if let Some(rest) = further_path(line) {
            let without_route =
                || line.trim().fault("a path belongs below its route, and there is none above");
            if above.ok_or_else(without_route)? {
                let is_installed = !has_marks || line.text.trim_start().starts_with('*');
                path(rest, is_installed, &mut entries)?;
            }
        } else {
            return Err(line.trim().fault("neither a route of `show ip route` nor a path of one"));
        }
        Ok(())
    })?;
    collect(text, entries, options)
        .map_err(|(place, problem)| ReadErrors::of_part(text, file, place, problem))
}

/// The first line of a route.
struct Route<'a> {
    is_selected: bool,
    is_installed: bool,
    /// The router's own address.
    is_local: bool,
    prefix: AnyPrefix,
    /// The part behind the destination.
    rest: Token<'a>,
}

impl<'a> Route<'a> {
    /// Returns the route of a line that begins with codes and a destination. A destination without a length, as IOS prints it below
    /// `… is subnetted`, has the length `subnet_len`.
    fn of(line: Token<'a>, subnet_len: Option<u8>) -> Result<Option<Self>, Fault> {
        if !line.text.trim_start().starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Ok(None);
        }
        let mut words = Words::of(line);
        let mut codes = String::new();
        let destination = loop {
            if words.done() || codes.len() > 16 {
                return Ok(None);
            }
            let word = words.next("")?;
            if !codes.is_empty()
                && word.text.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':')
                && word.text.contains(['.', ':'])
            {
                break word;
            }
            // Codes of one or two characters, and marks: `B>*`, `O[1]>*`, `IA`, `S%`.
            let code =
                word.text.split(['>', '*', '%', '+', '&', '!', '#', '=', '[']).next().unwrap_or_default();
            let is_code =
                code.len() <= 2 && code.bytes().all(|b| b.is_ascii_alphanumeric()) && word.text.len() <= 8;
            if !is_code {
                return Ok(None);
            }
            codes.push_str(word.text);
        };
        let rest = line.part(destination.at + destination.text.len(), line.text.len()).trim();
        let prefix = match (destination.text.contains('/'), subnet_len) {
            (true, _) => prefix(destination)?,
            (false, Some(len)) => AnyPrefix::truncated(address(destination)?, len),
            (false, None) => {
                address(destination)?;
                return Err(destination.fault(
                    "a destination without a length, and no line above with one, as `172.16.0.0/24 is subnetted`",
                ));
            }
        };
        Ok(Some(Self {
            is_selected: codes.contains('>'),
            is_installed: codes.contains('*'),
            is_local: codes.starts_with('L') && !codes.starts_with("L1") && !codes.starts_with("L2"),
            prefix,
            rest,
        }))
    }
}

fn address(word: Token<'_>) -> Result<std::net::IpAddr, Fault> {
    word.text.parse().map_err(|_| word.fault("an address is expected"))
}

/// Returns the name of the VRF or table whose routes follow a line.
fn vrf(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("IPv6 Routing Table - ") {
        return rest.split_once(" - ").map_or(Some("default"), |(name, _)| Some(name));
    }
    if let Some(name) = line.strip_prefix("Routing Table: ").or(line.strip_prefix("VRF: ")) {
        return Some(name.trim());
    }
    let (_, name) = line.strip_suffix(':')?.split_once("VRF ")?;
    Some(name.split_once(" table ").map_or(name, |(_, number)| number))
}

/// Returns the length of the routes below a line of IOS that names their network; none where each has its own.
fn subnetted(line: &str) -> Option<Option<u8>> {
    let (network, rest) = line.trim().split_once(' ')?;
    match rest.trim_start() {
        rest if rest.starts_with("is variably subnetted") => Some(None),
        rest if rest.starts_with("is subnetted") => Some(network.split_once('/')?.1.parse().ok()),
        _ => None,
    }
}

/// Returns whether a line is part of the legend (`B I - iBGP, B E - eBGP`), the gateway of last resort, or the command.
fn is_heading(line: &str) -> bool {
    let line = line.trim();
    let has_prefix = |text: &str| text.split_whitespace().any(|word| word.parse::<AnyPrefix>().is_ok());
    line.starts_with("Codes:")
        || line.starts_with("Source Codes:")
        || line.starts_with("Gateway of last resort")
        || line.split_once("- ").is_some_and(|(code, _)| code.trim().len() <= CODES_LEN_MAX)
        || line.split_once("show ip").is_some_and(|(prompt, _)| !has_prefix(prompt))
}

/// Returns the path on a line of its own.
fn further_path(line: Token<'_>) -> Option<Token<'_>> {
    if !line.text.starts_with(char::is_whitespace) {
        return None;
    }
    let mut rest = line.trim();
    while let Some((_, behind)) = rest.split(" ").filter(|(mark, _)| STATES.contains(&mark.text)) {
        rest = behind.trim();
    }
    ["[", "via ", "is directly connected", "directly connected", "unreachable", "blackhole"]
        .iter()
        .any(|beginning| rest.text.starts_with(beginning))
        .then_some(rest)
}

/// Adds the path of a line to the last route; where it is empty, paths are on lines below.
fn path(rest: Token<'_>, is_installed: bool, entries: &mut [Entry<'_>]) -> Result<(), Fault> {
    let entry = entries.last_mut().expect("a path belongs to a route");
    let mut rest = rest;
    if rest.text.starts_with('[') {
        let (_, behind) = rest.split("]").ok_or_else(|| rest.fault("`[distance/metric]` does not end"))?;
        rest = behind.trim();
    }
    if rest.text.is_empty() {
        return Ok(());
    }
    if let Some(refusal) = refusal(rest.text) {
        entry.refusal.get_or_insert(refusal);
        return Ok(());
    }
    let mut path = Path { dead: !is_installed, ..Path::default() };
    let mut left = Some(rest);
    let mut is_first = true;
    while let Some(part) = left {
        let (part, further) = part.split(",").map_or((part, None), |(part, further)| (part, Some(further)));
        left = further;
        self::part(part.trim(), is_first, &mut path)?;
        is_first = false;
    }
    entry.paths.push(path);
    Ok(())
}

/// Returns what becomes of packets of a route without paths.
fn refusal(text: &str) -> Option<NextHop> {
    match text {
        _ if text.starts_with("unreachable (blackhole") || text.starts_with("blackhole") => {
            Some(NextHop::Blackhole)
        }
        _ if text.starts_with("unreachable (ICMP admin") => Some(NextHop::Prohibit),
        _ if text.starts_with("unreachable") => Some(NextHop::Unreachable),
        _ if text.split([' ', ',']).any(|word| word == "Null0") => Some(NextHop::Blackhole),
        _ => None,
    }
}

/// Reads a part between commas: the first is `via …`, `is directly connected` or `is a summary`.
fn part(part: Token<'_>, is_first: bool, path: &mut Path) -> Result<(), Fault> {
    let mut words = part.text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let gateway = &mut path.gateway;
    match (first, is_first) {
        ("via", true) => {
            let word = words.next().unwrap_or_default();
            match word.parse() {
                Ok(address) => gateway.address = Some(address),
                Err(_) if word.is_empty() => return Err(part.fault("a gateway is expected behind `via`")),
                Err(_) => gateway.device = Some(word.into()),
            }
        }
        ("is" | "directly", true) => {}
        (_, true) => {
            return Err(
                part.fault("a path is expected: `via 192.0.2.1, eth0` or `is directly connected, eth0`")
            );
        }
        ("label", _) => {
            let labels = words.next().unwrap_or_default();
            if !labels.starts_with("implicit-null") && labels != "-" {
                gateway.encapsulation = Some(format!("mpls {labels}").into());
            }
        }
        ("seg6" | "seg6local", _) => gateway.encapsulation = Some(part.text.into()),
        (
            "" | "weight" | "src" | "tag" | "rmac" | "directly" | "receive" | "onlink" | "backup" | "never",
            _,
        ) => {}
        (age, _)
            if age.starts_with(|c: char| c.is_ascii_digit())
                && age.chars().all(|c| "0123456789:ywdhms.".contains(c)) => {}
        (device, _) if gateway.device.is_none() => gateway.device = Some(device.into()),
        _ => {}
    }
    path.dead |= words.any(|word| word == "inactive");
    Ok(())
}
