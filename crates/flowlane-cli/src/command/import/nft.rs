//! The chain of the hook `forward` in the output of `nft -j list ruleset`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chains::{Chains, Line, Target};
use super::condition::{Condition, ICMP, ICMPV6, IPV4, IPV6, Network, SCTP, TCP, UDP};
use super::condition::{interface, other_ports, protocol_of, state_of};
use super::{LeftOut, List, with_policy};

/// Messages of ICMP and ICMPv6 with names.
const MESSAGES: [(&str, u8, u8); 9] = [
    ("echo-reply", 0, 129),
    ("destination-unreachable", 3, 1),
    ("redirect", 5, 137),
    ("echo-request", 8, 128),
    ("time-exceeded", 11, 3),
    ("parameter-problem", 12, 4),
    ("packet-too-big", 3, 2),
    ("nd-neighbor-solicit", 255, 135),
    ("nd-neighbor-advert", 255, 136),
];

/// The sets of a table, by their names.
type Sets<'a> = BTreeMap<&'a str, &'a Value>;

pub(super) fn read(text: &str) -> Result<List, String> {
    let whole: Value = serde_json::from_str(text).map_err(|error| format!("no JSON of nft: {error}"))?;
    let objects = whole["nftables"]
        .as_array()
        .ok_or("there is no list `nftables`: is this of `nft -j list ruleset`?")?;
    let of = |kind: &'static str| objects.iter().map(move |o| &o[kind]).filter(|o| o.is_object());
    let is_ip = |chain: &&Value| ["ip", "ip6", "inet"].iter().any(|family| chain["family"] == *family);
    let hooked = of("chain").filter(|chain| chain["hook"] == "forward");
    let (mut bases, of_others): (Vec<&Value>, Vec<&Value>) = hooked.partition(is_ip);
    bases.sort_by_key(|chain| chain["prio"].as_i64());
    let Some((base, others)) = bases.split_first() else {
        return Err("there is no chain with the hook forward in a table of ip, ip6 or inet".to_owned());
    };
    let name = |chain: &Value| chain["name"].as_str().unwrap_or_default().to_owned();
    let mut left_out: Vec<(Option<String>, LeftOut)> = Vec::new();
    for other in others.iter().chain(&of_others) {
        let place = format!("chain {} of table {}", name(other), other["table"].as_str().unwrap_or_default());
        left_out.push((None, LeftOut::new(&place, "only the first chain of the hook forward is converted")));
    }
    let is_own = |object: &&Value| object["table"] == base["table"] && object["family"] == base["family"];
    let families = match base["family"].as_str() {
        Some("ip") => IPV4,
        Some("ip6") => IPV6,
        _ => IPV4 | IPV6,
    };
    let sets: Sets<'_> =
        of("set").filter(is_own).filter_map(|set| Some((set["name"].as_str()?, &set["elem"]))).collect();
    let mut chains = Chains::default();
    of("chain").filter(is_own).for_each(|chain| _ = chains.0.entry(name(chain)).or_default());
    for rule in of("rule").filter(is_own) {
        let chain = rule["chain"].as_str().unwrap_or_default().to_owned();
        let place = format!("rule of handle {} in chain {chain}", rule["handle"]);
        match lines(rule, &place, families, &sets) {
            Ok((lines, notes)) => {
                left_out
                    .extend(notes.into_iter().map(|note| (Some(chain.clone()), LeftOut::new(&place, note))));
                chains.0.entry(chain).or_default().extend(lines);
            }
            Err(reason) => left_out.push((Some(chain), LeftOut::new(&place, reason))),
        }
    }
    let (first, policy) = (name(base), base["policy"] != "drop");
    let unknown = chains.remove_unknown_targets();
    left_out.extend(unknown.into_iter().map(|(chain, left)| (Some(chain), left)));
    let reached = chains.reached(&first);
    let (entries, more) = chains.list(&first, &Condition::of(families), policy)?;
    let left_out =
        left_out.into_iter().filter(|(chain, _)| chain.as_ref().is_none_or(|c| reached.contains(c)));
    let mut left_out: Vec<LeftOut> = left_out.map(|(_, left)| left).chain(more).collect();
    left_out.dedup();
    Ok(List { entries: with_policy(entries, families, policy), left_out })
}

/// The lines of a rule, and what of it is not said.
fn lines(
    rule: &Value,
    place: &str,
    families: u8,
    sets: &Sets<'_>,
) -> Result<(Vec<Line>, Vec<String>), String> {
    let (mut condition, mut lines, mut notes) = (Condition::of(families), Vec::new(), Vec::new());
    let line = |condition: Condition, target| Line { place: place.to_owned(), condition, target };
    for statement in rule["expr"].as_array().into_iter().flatten() {
        let (kind, body) =
            statement.as_object().and_then(|o| o.iter().next()).ok_or("a statement without a name")?;
        match kind.as_str() {
            "match" => {
                let operator = body["op"].as_str().unwrap_or_default();
                let own = condition_of(&body["left"], operator, &body["right"], families, sets)?;
                condition = condition.and(&own)?.ok_or("no packet matches it")?;
            }
            "counter" => {}
            "vmap" => {
                let pairs = body["data"]["set"].as_array().ok_or("a verdict map with a name")?;
                for pair in pairs {
                    let own = condition_of(&body["key"], "==", &pair[0], families, sets)?;
                    let target = target_of(&pair[1]).ok_or("a verdict that is not known")?;
                    lines.extend(condition.and(&own)?.map(|both| line(both, target)));
                }
            }
            "reject" => {
                notes.push("reject becomes drop: the sender gets no error".to_owned());
                lines.push(line(condition.clone(), Target::Drop));
            }
            "log" => notes.push("log".to_owned()),
            other => match target_of(statement) {
                Some(target) => lines.push(line(condition.clone(), target)),
                None => return Err(format!("statement {other}")),
            },
        }
    }
    for line in &lines {
        let Condition { src_ports, dst_ports, protocol, .. } = &line.condition;
        let has_ports = src_ports.is_some() || dst_ports.is_some();
        if has_ports && !matches!(protocol, Some(TCP | UDP | SCTP)) {
            return Err("ports of several protocols".to_owned());
        }
    }
    Ok((lines, notes))
}

fn target_of(statement: &Value) -> Option<Target> {
    let (kind, body) = statement.as_object()?.iter().next()?;
    let to = || body["target"].as_str().map(str::to_owned);
    match kind.as_str() {
        "accept" => Some(Target::Accept),
        "drop" => Some(Target::Drop),
        "return" => Some(Target::Return),
        "jump" => to().map(Target::Jump),
        "goto" => to().map(Target::Goto),
        _ => None,
    }
}

/// The packets of which `left` is, or is not, one of the values on the right.
fn condition_of(
    left: &Value,
    operator: &str,
    right: &Value,
    families: u8,
    sets: &Sets<'_>,
) -> Result<Condition, String> {
    let takes_all =
        ["tcp", "udp", "sctp", "th"].iter().any(|protocol| left["payload"]["protocol"] == *protocol);
    if !takes_all && !["==", "!=", "in"].contains(&operator) {
        return Err(format!("a match of {left} by `{operator}`"));
    }
    let values = values(right, sets)?;
    let is_negated = operator == "!=";
    let mut condition = Condition::of(families);
    let one = || match &values[..] {
        [one] if !is_negated => Ok(one.as_str().map_or_else(|| one.to_string(), str::to_owned)),
        _ => Err(format!("several values, or all but one, of {left}")),
    };
    let payload = (left["payload"]["protocol"].as_str(), left["payload"]["field"].as_str());
    let known = (payload, left["meta"]["key"].as_str(), left["ct"]["key"].as_str());
    match known {
        ((Some(ip @ ("ip" | "ip6")), Some(field @ ("saddr" | "daddr"))), ..) => {
            condition.families = if ip == "ip" { IPV4 } else { IPV6 };
            let networks = networks_of_all(&values, is_negated)?;
            *(if field == "saddr" { &mut condition.src } else { &mut condition.dst }) = Some(networks);
        }
        ((Some(protocol @ ("tcp" | "udp" | "sctp" | "th")), Some(field @ ("sport" | "dport"))), ..) => {
            condition.protocol = protocol_of(protocol);
            let ranges = ports_of_all(&values, operator)?;
            *(if field == "sport" { &mut condition.src_ports } else { &mut condition.dst_ports }) =
                Some(ranges);
        }
        ((Some(icmp @ ("icmp" | "icmpv6")), Some("type")), ..) => {
            (condition.families, condition.protocol) =
                if icmp == "icmp" { (IPV4, Some(ICMP)) } else { (IPV6, Some(ICMPV6)) };
            condition.icmp = Some((message(&one()?, condition.families == IPV4)?, None));
        }
        ((Some("ip"), Some("protocol")) | (Some("ip6"), Some("nexthdr")), ..) | (_, Some("l4proto"), _) => {
            let name = one()?;
            match payload.0 {
                Some("ip") => condition.families = IPV4,
                Some(_) => condition.families = IPV6,
                None => {}
            }
            condition.protocol = Some(protocol_of(&name).ok_or_else(|| format!("protocol {name}"))?);
        }
        (_, Some("nfproto"), _) => {
            condition.families = match one()?.as_str() {
                "ipv4" => IPV4,
                "ipv6" => IPV6,
                other => return Err(format!("nfproto {other}")),
            }
        }
        (_, Some("iifname" | "iif"), _) => {
            let name = one()?;
            if name.ends_with('*') {
                return Err(format!("several interfaces ({name})"));
            }
            condition.in_port = Some(interface(&name)?);
        }
        (_, Some("oifname" | "oif"), _) => return Err("the interface that packets leave through".to_owned()),
        (_, _, Some("state")) => {
            let states = states_of(&values)?;
            condition.states = Some(if is_negated { !states & 0xf } else { states });
        }
        _ => return Err(format!("a match of {left} by `{operator}`")),
    }
    Ok(condition)
}

/// The values of a right side: of a set, of one with a name, or itself.
fn values(right: &Value, sets: &Sets<'_>) -> Result<Vec<Value>, String> {
    let list = match right.as_str().and_then(|name| name.strip_prefix('@')) {
        Some(name) => sets.get(name).and_then(|elements| elements.as_array()),
        None if right.is_array() => right.as_array(),
        None => match &right["set"] {
            Value::Array(list) => Some(list),
            _ => return Ok(vec![right.clone()]),
        },
    };
    // Elements with a timeout or comment are in an object of their own.
    let plain = |value: &Value| {
        if value["elem"]["val"].is_null() { value.clone() } else { value["elem"]["val"].clone() }
    };
    list.map(|list| list.iter().map(plain).collect())
        .ok_or_else(|| format!("set {right} has no elements here"))
}

fn ports_of_all(values: &[Value], operator: &str) -> Result<Vec<(u16, u16)>, String> {
    let mut ranges = Vec::new();
    for value in values {
        ranges.push(ports_of(value, operator).ok_or_else(|| format!("ports `{operator} {value}`"))?);
    }
    Ok(if operator == "!=" { other_ports(&ranges) } else { ranges })
}

fn networks_of_all(values: &[Value], is_negated: bool) -> Result<Vec<Network>, String> {
    let mut networks = Vec::new();
    for value in values {
        networks.extend(networks_of(value).ok_or_else(|| format!("address {value}"))?);
    }
    match (&networks[..], is_negated) {
        (_, false) => Ok(networks),
        ([one], true) => Ok(one.others()),
        _ => Err("all addresses but several".to_owned()),
    }
}

fn networks_of(value: &Value) -> Option<Vec<Network>> {
    if let Some(text) = value.as_str() {
        return Network::read(text).map(|network| vec![network]);
    }
    let (prefix, range) = (&value["prefix"], &value["range"]);
    if let (Some(address), Some(length)) = (prefix["addr"].as_str(), prefix["len"].as_u64()) {
        return Network::read(&format!("{address}/{length}")).map(|network| vec![network]);
    }
    Network::range(range[0].as_str()?.parse().ok()?, range[1].as_str()?.parse().ok()?)
}

/// The type of a message by its name or number.
fn message(name: &str, is_v4: bool) -> Result<u8, String> {
    let known =
        MESSAGES.iter().find(|known| known.0 == name).map(|(_, v4, v6)| if is_v4 { *v4 } else { *v6 });
    known.filter(|kind| *kind < 255).or_else(|| name.parse().ok()).ok_or_else(|| format!("message {name}"))
}

fn states_of(values: &[Value]) -> Result<u8, String> {
    values.iter().try_fold(0, |all, value| match value.as_str() {
        Some("untracked") => Ok(all),
        name => Ok(all | name.and_then(state_of).ok_or_else(|| format!("state {value}"))?),
    })
}

fn ports_of(value: &Value, operator: &str) -> Option<(u16, u16)> {
    let port = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
    if let [low, high] = value["range"].as_array().map_or(&[][..], Vec::as_slice) {
        return Some((port(low)?, port(high)?)).filter(|(low, high)| low <= high);
    }
    let port = port(value)?;
    match operator {
        "==" | "!=" | "in" => Some((port, port)),
        ">=" => Some((port, u16::MAX)),
        "<=" => Some((0, port)),
        ">" => Some((port.checked_add(1)?, u16::MAX)),
        "<" => Some((0, port.checked_sub(1)?)),
        _ => None,
    }
}
