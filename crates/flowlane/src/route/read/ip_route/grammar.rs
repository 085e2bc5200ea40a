//! The attributes of a route.

use std::net::IpAddr;

use super::super::entry::{Entry, Family, Path};
use super::super::{Gateway, NextHop, prefix};
use super::encapsulation;
use super::words::RouteWords;
use crate::rule::error::{Fault, Token, did_you_mean};

/// Words before the destination with which a route may begin, and what becomes of packets that no path takes.
pub(super) const KINDS: [(&str, Option<NextHop>); 10] = [
    ("unicast", None),
    ("local", Some(NextHop::Local)),
    ("broadcast", Some(NextHop::Local)),
    ("multicast", None),
    ("anycast", Some(NextHop::Local)),
    ("blackhole", Some(NextHop::Blackhole)),
    ("unreachable", Some(NextHop::Unreachable)),
    ("prohibit", Some(NextHop::Prohibit)),
    ("throw", Some(NextHop::Throw)),
    ("nat", None),
];

/// Attributes that say where packets go, or that the route depends on more than the destination.
const ROUTING: [&str; 14] = [
    "via", "dev", "encap", "nexthop", "weight", "dead", "metric", "table", "nhid", "from", "tos", "dsfield",
    "mark", "iif",
];

/// Origins of IPv6 routes that are no paths of one another: routers that advertise themselves, of which Linux takes one at a time,
/// and redirects. They are printed as names or, with `-N`, as numbers.
const LEARNED: [&str; 4] = ["ra", "9", "redirect", "1"];

/// Attributes with a value that is read over.
const VALUES: [&str; 14] = [
    "proto",
    "scope",
    "src",
    "realm",
    "realms",
    "uid",
    "pref",
    "ttl-propagate",
    "expires",
    "error",
    "users",
    "used",
    "age",
    "ipid",
];

/// Attributes with a value that is read over, behind `lock` where it is fixed: metrics of paths.
const METRICS: [&str; 17] = [
    "mtu",
    "window",
    "rtt",
    "rttvar",
    "ssthresh",
    "cwnd",
    "advmss",
    "reordering",
    "hoplimit",
    "initcwnd",
    "rto_min",
    "initrwnd",
    "quickack",
    "congctl",
    "fastopen_no_cookie",
    "ts",
    "tsage",
];

/// Attributes without a value that are read over.
const FLAGS: [&str; 12] = [
    "onlink",
    "pervasive",
    "offload",
    "trap",
    "notify",
    "linkdown",
    "unresolved",
    "rt_offload",
    "rt_trap",
    "rt_offload_failed",
    "cache",
    "equalize",
];

/// Attributes with a list of values that is read over.
const LISTS: [&str; 2] = ["features", "nh_info"];

const FEATURES: [&str; 6] = ["lock", "ecn", "tcp_usec_ts", "sack", "timestamp", "allfrag"];

fn known() -> impl Iterator<Item = &'static str> {
    [&ROUTING[..], &VALUES, &METRICS, &FLAGS, &LISTS].concat().into_iter()
}

/// Returns whether a word begins an attribute.
pub(super) fn is_attribute(word: &str) -> bool {
    ROUTING.contains(&word)
        || VALUES.contains(&word)
        || METRICS.contains(&word)
        || FLAGS.contains(&word)
        || LISTS.contains(&word)
}

/// Reads a route from its kind or destination on.
pub(super) fn route<'a>(words: &mut RouteWords<'a, '_>) -> Result<Entry<'a>, Fault> {
    let mut first = words.next("a route")?;
    if first.text == "Deleted" || first.text.starts_with('[') {
        return Err(
            first.fault("`ip monitor` prints changes, not a table; give the output of `ip route show`")
        );
    }
    let mut refusal = None;
    if let Some((_, kind)) = KINDS.iter().find(|(kind, _)| *kind == first.text) {
        refusal.clone_from(kind);
        first = words.next("a prefix or `default`")?;
    }
    let prefix = if first.text == "default" { None } else { Some(prefix(first)?) };
    let mut entry = Entry { refusal, joins: true, ..Entry::to(first.text, prefix) };
    attributes(words, &mut entry)?;
    Ok(entry)
}

/// Reads the attributes behind a destination, or those of a line below.
pub(super) fn attributes<'a>(words: &mut RouteWords<'a, '_>, entry: &mut Entry<'a>) -> Result<(), Fault> {
    while !words.done() {
        let word = words.next("")?;
        match word.text {
            "nexthop" => {
                // Flags of the whole route may come before its paths.
                if entry.paths.len() == 1 && entry.paths[0].gateway == Gateway::default() {
                    entry.paths.clear();
                }
                entry.paths.push(Path::default());
            }
            "via" | "dev" | "encap" | "weight" | "dead" => path(word, words, entry)?,
            "metric" => set(word, &mut entry.metric, number(words.next("a metric")?, 0)?)?,
            "table" => set(word, &mut entry.table, words.next("a table")?.text)?,
            "nhid" => {
                set(word, &mut entry.object, number(words.next("the number of a nexthop object")?, 1)?)?
            }
            "from" if is_any(words.peek()) => _ = words.next("")?,
            "from" | "tos" | "dsfield" | "mark" | "iif" => {
                return Err(word.fault(
                    "routes that depend on more than the destination cannot be held; leave them out of the file",
                ));
            }
            "features" => {
                while FEATURES.contains(&words.peek()) || words.peek().starts_with("0x") {
                    words.next("")?;
                }
            }
            "nh_info" => words.skip_to(&["nexthop"]),
            "cache" if words.peek().starts_with('<') => _ = words.next("")?,
            flag if FLAGS.contains(&flag) => {}
            value if VALUES.contains(&value) => {
                let value = words.next("a value")?.text;
                entry.joins &= !(word.text == "proto" && LEARNED.contains(&value));
                entry.family = entry.family.or(family(word.text, value));
            }
            metric if METRICS.contains(&metric) => {
                if words.peek() == "lock" {
                    words.next("")?;
                }
                words.next("a value")?;
            }
            _ => return Err(unknown(word)),
        }
    }
    Ok(())
}

/// Reads an attribute of the last path; the route's own comes first.
fn path(word: Token<'_>, words: &mut RouteWords<'_, '_>, entry: &mut Entry<'_>) -> Result<(), Fault> {
    if entry.paths.is_empty() {
        entry.paths.push(Path::default());
    }
    let path = entry.paths.last_mut().expect("there is one");
    match word.text {
        "via" => {
            let (address, family) = gateway(words)?;
            entry.family = entry.family.or(Some(family));
            set(word, &mut path.gateway.address, address)
        }
        "dev" => set(word, &mut path.gateway.device, words.next("a device")?.text.into()),
        "encap" => {
            let encapsulation = encapsulation::read(words)?;
            set(word, &mut path.gateway.encapsulation, encapsulation)
        }
        "weight" => {
            path.weight = number(words.next("a weight")?, 1)?;
            Ok(())
        }
        _ => {
            path.dead = true;
            Ok(())
        }
    }
}

fn set<T>(word: Token<'_>, place: &mut Option<T>, value: T) -> Result<(), Fault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(word.fault(format!("a second `{}` in one route", word.text))),
    }
}

/// Returns whether a source is any.
fn is_any(source: &str) -> bool {
    let address = source.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
    ["all", "any", "default", "0/0"].contains(&source)
        || address.is_some_and(|address| address.is_unspecified())
            && source.split_once('/').is_none_or(|(_, length)| length == "0")
}

/// Returns the family of a route that the value of an attribute shows.
fn family(attribute: &str, value: &str) -> Option<Family> {
    match attribute {
        "src" => value.parse().ok().map(Family::of),
        "pref" => Some(Family::V6),
        "scope" if value != "global" => Some(Family::V4),
        _ => None,
    }
}

/// Reads the address behind `via`, and returns it with the family of its route: behind the name of a family the address is of that,
/// and the route of the other.
fn gateway(words: &mut RouteWords<'_, '_>) -> Result<(IpAddr, Family), Fault> {
    let mut word = words.next("a gateway's address")?;
    let route = match word.text {
        "inet6" => Some(Family::V4),
        "inet" => Some(Family::V6),
        _ => None,
    };
    if route.is_some() {
        word = words.next("a gateway's address")?;
    }
    let address = word.text.parse().map_err(|_| word.fault("an address is expected behind `via`"))?;
    Ok((address, route.unwrap_or(Family::of(address))))
}

fn number(token: Token<'_>, least: u32) -> Result<u32, Fault> {
    let read = token.text.parse().ok().filter(|n| *n >= least);
    read.ok_or_else(|| token.fault(format!("a number from {least} to {} is expected", u32::MAX)))
}

fn unknown(word: Token<'_>) -> Fault {
    let is_next_hop = word.text.parse::<IpAddr>().is_ok() || word.text.parse::<u64>().is_ok();
    word.fault(match is_next_hop {
        true => "routes of `ip route` name a gateway behind `via` and a device behind `dev`; prefixes with next hops \
                 and the output of `ip route` cannot be mixed"
            .to_owned(),
        false => format!("unknown in a route of `ip route`{}", did_you_mean(word.text, known())),
    })
}
