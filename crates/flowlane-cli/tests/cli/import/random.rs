//! Random rule sets of nft and random access lists of Cisco, converted, against interpreters of their texts.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use flowlane::packet::Field;
use flowlane::rule::Rule;
use serde_json::{Value, json};
use tempfile::tempdir;

use super::{Packet, Random, STATE_BITS, STATES, address, convert, key, passes, port, rules};

fn random_packet(random: &mut Random) -> Packet {
    Packet {
        src: address(random),
        dst: address(random),
        protocol: [6, 17, 1][random.below(3) as usize],
        ports: [port(random), port(random)],
        state: random.below(4) as usize,
        port: 1 + random.below(2) as u32,
    }
}

/// Returns whether flows pass a packet; a packet of ICMP has its first port as its type, and one of TCP its second as its flags.
fn flows_pass(rules: &[Rule], table: u8, packet: &Packet) -> bool {
    let mut fields = vec![
        (Field::InPort, packet.port.into()),
        (Field::EthType, 0x800),
        (Field::NwProto, packet.protocol.into()),
        (Field::Ipv4Src, packet.src.into()),
        (Field::Ipv4Dst, packet.dst.into()),
        (Field::CtState, STATE_BITS[packet.state]),
    ];
    match packet.protocol {
        1 => fields.push((Field::IcmpType, u128::from(packet.ports[0] & 15))),
        _ => {
            fields.push((Field::TpSrc, packet.ports[0].into()));
            fields.push((Field::TpDst, packet.ports[1].into()));
        }
    }
    if packet.protocol == 6 {
        fields.push((Field::TcpFlags, u128::from(packet.ports[1] & 0x3f)));
    }
    passes(rules, table, &key(&fields))
}

// nft.

fn prefix(random: &mut Random) -> (u32, u32) {
    let length = [8, 9, 10, 30, 31, 32][random.below(6) as usize];
    (address(random) >> (32 - length) << (32 - length), length)
}

fn nft_addresses(random: &mut Random) -> Value {
    let text = |address: u32| Ipv4Addr::from(address).to_string();
    match random.below(3) {
        0 => json!(text(address(random))),
        1 => {
            let (network, length) = prefix(random);
            json!({"prefix": {"addr": text(network), "len": length}})
        }
        _ => {
            let (one, other) = (address(random), address(random));
            json!({"range": [text(one.min(other)), text(one.max(other))]})
        }
    }
}

fn nft_ports(random: &mut Random) -> (&'static str, Value) {
    let value = port(random).clamp(1, 65_534);
    match random.below(5) {
        0 => (["<", ">", "<=", ">="][random.below(4) as usize], json!(value)),
        1 => {
            let other = port(random);
            (["==", "!="][random.below(2) as usize], json!({"range": [value.min(other), value.max(other)]}))
        }
        2 => {
            let (one, other) = (port(random), port(random));
            let range = json!({"range": [one.min(other), one.max(other)]});
            (["==", "!="][random.below(2) as usize], json!({"set": [value, range]}))
        }
        _ => (["==", "!="][random.below(2) as usize], json!(value)),
    }
}

fn state_name(random: &mut Random) -> String {
    STATES[random.below(4) as usize].to_lowercase()
}

fn nft_match(random: &mut Random) -> Value {
    let payload = |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
    let (op, left, right) = match random.below(8) {
        0..3 => {
            let field = ["saddr", "daddr"][random.below(2) as usize];
            let right = nft_addresses(random);
            // Of a range, all but those are more than one network.
            let op = if right["range"].is_null() && random.below(4) == 0 { "!=" } else { "==" };
            (op, payload("ip", field), right)
        }
        3 | 4 => {
            let (op, right) = nft_ports(random);
            let protocol = ["tcp", "udp"][random.below(2) as usize];
            (op, payload(protocol, ["sport", "dport"][random.below(2) as usize]), right)
        }
        5 => {
            let right = json!([state_name(random), state_name(random)]);
            (["in", "!="][random.below(2) as usize], json!({"ct": {"key": "state"}}), right)
        }
        6 => ("==", json!({"meta": {"key": "iifname"}}), json!(format!("p{}", 1 + random.below(2)))),
        _ => ("==", payload("icmp", "type"), json!(random.below(4) * 4)),
    };
    json!({"match": {"op": op, "left": left, "right": right}})
}

fn nft_verdict(random: &mut Random, chain: u64) -> Value {
    let to = json!({"target": format!("c{}", chain + 1 + random.below(2))});
    match random.below(if chain < 3 { 8 } else { 5 }) {
        0 | 1 => json!({"accept": null}),
        2 | 3 => json!({"drop": null}),
        4 => json!({"return": null}),
        5 | 6 => json!({"jump": to}),
        _ => json!({"goto": to}),
    }
}

fn nft_rule(random: &mut Random, chain: u64) -> Vec<Value> {
    let mut expr: Vec<Value> = (0..random.below(3)).map(|_| nft_match(random)).collect();
    if random.below(4) == 0 {
        let (one, other) = (random.below(4) as usize, random.below(3) as usize);
        let names = [STATES[one], STATES[(one + 1 + other) % 4]].map(str::to_lowercase);
        let pairs = names.map(|name| json!([name, nft_verdict(random, chain)]));
        expr.push(json!({"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": pairs}}}));
    } else {
        expr.push(json!({"counter": {"packets": 0, "bytes": 0}}));
        expr.push(nft_verdict(random, chain));
    }
    expr
}

/// Returns whether a number is one of the values of a right side.
fn is_one(right: &Value, number: u32, read: &impl Fn(&Value) -> u32) -> bool {
    if let Some(list) = right["set"].as_array() {
        return list.iter().any(|one| is_one(one, number, read));
    }
    if let Some(range) = right["range"].as_array() {
        return (read(&range[0])..=read(&range[1])).contains(&number);
    }
    if let Some(length) = right["prefix"]["len"].as_u64() {
        return (number ^ read(&right["prefix"]["addr"])) >> (32 - length) == 0;
    }
    read(right) == number
}

/// Returns whether a match holds.
fn nft_holds(body: &Value, packet: &Packet) -> bool {
    let (op, left, right) = (body["op"].as_str().unwrap(), &body["left"], &body["right"]);
    let number = |value: &Value| match value.as_str() {
        Some(text) => text.parse::<Ipv4Addr>().unwrap().into(),
        None => value.as_u64().unwrap() as u32,
    };
    if left["meta"]["key"] == "iifname" {
        return *right == format!("p{}", packet.port);
    }
    if left["ct"]["key"] == "state" {
        let is_in = right.as_array().unwrap().iter().any(|name| *name == STATES[packet.state].to_lowercase());
        return is_in == (op != "!=");
    }
    let field = (left["payload"]["protocol"].as_str().unwrap(), left["payload"]["field"].as_str().unwrap());
    let (protocol, value) = match field {
        ("ip", "saddr") => (packet.protocol, packet.src),
        ("ip", "daddr") => (packet.protocol, packet.dst),
        ("icmp", _) => (1, u32::from(packet.ports[0] & 15)),
        (protocol, "sport") => (if protocol == "tcp" { 6 } else { 17 }, packet.ports[0].into()),
        (protocol, _) => (if protocol == "tcp" { 6 } else { 17 }, packet.ports[1].into()),
    };
    packet.protocol == protocol
        && match op {
            "<" => value < number(right),
            ">" => value > number(right),
            "<=" => value <= number(right),
            ">=" => value >= number(right),
            "!=" => !is_one(right, value, &number),
            _ => is_one(right, value, &number),
        }
}

/// How a chain ends for a packet.
enum Ended {
    With(bool),
    Returned,
}

fn nft_chain(chains: &[Vec<Vec<Value>>], number: usize, packet: &Packet) -> Ended {
    let target = |body: &Value| body["target"].as_str().unwrap()[1..].parse::<usize>().unwrap();
    for rule in &chains[number] {
        for statement in rule {
            let mut statement = statement;
            if let Some(map) = statement.get("vmap") {
                let pairs = map["data"]["set"].as_array().unwrap();
                let own = pairs.iter().find(|pair| pair[0] == STATES[packet.state].to_lowercase());
                let Some(pair) = own else { break };
                statement = &pair[1];
            }
            let (kind, body) = statement.as_object().unwrap().iter().next().unwrap();
            match kind.as_str() {
                "match" if !nft_holds(body, packet) => break,
                "accept" => return Ended::With(true),
                "drop" => return Ended::With(false),
                "return" => return Ended::Returned,
                "goto" => return nft_chain(chains, target(body), packet),
                "jump" => match nft_chain(chains, target(body), packet) {
                    Ended::Returned => {}
                    ended => return ended,
                },
                _ => {}
            }
        }
    }
    Ended::Returned
}

#[test]
fn converted_rule_sets_decide_as_nft_does() {
    let folder = tempdir().unwrap();
    let mut counts = [0, 0];
    for seed in 0..40 {
        let mut random = Random(seed);
        let family = ["ip", "inet"][random.below(2) as usize];
        let accepts = random.below(2) == 0;
        let policy = if accepts { "accept" } else { "drop" };
        let mut objects = vec![
            json!({"chain": {"family": family, "table": "t", "name": "c0", "hook": "forward", "prio": 0, "policy": policy}}),
        ];
        objects.extend(
            (1..6).map(|n| json!({"chain": {"family": family, "table": "t", "name": format!("c{n}")}})),
        );
        let mut chains: Vec<Vec<Vec<Value>>> = Vec::new();
        for chain in 0..6 {
            let count = random.below(4) + 2 * u64::from(chain == 0);
            chains.push((0..count).map(|_| nft_rule(&mut random, chain.min(4))).collect());
            for expr in &chains[chain as usize] {
                let rule = json!({"family": family, "table": "t", "chain": format!("c{chain}"), "handle": 9, "expr": expr});
                objects.push(json!({"rule": rule}));
            }
        }
        let text = json!({"nftables": objects}).to_string();
        let (flows, left) = convert(folder.path(), "nft", &text);
        let is_impossible = left.lines().all(|line| line.ends_with("no packet matches it"));
        assert!(is_impossible, "seed {seed}: {left}\n{text}");
        let rules = rules(&flows);
        let table = rules.iter().map(|rule| rule.table).max().unwrap().min(1);
        for _ in 0..1500 {
            let packet = random_packet(&mut random);
            let expected = match nft_chain(&chains, 0, &packet) {
                Ended::With(passes) => passes,
                Ended::Returned => accepts,
            };
            counts[usize::from(expected)] += 1;
            let found = flows_pass(&rules, table, &packet);
            assert_eq!(
                found,
                expected,
                "seed {seed}: {} -> {} {} {:?} {} {}\n{text}\n{flows}",
                Ipv4Addr::from(packet.src),
                Ipv4Addr::from(packet.dst),
                packet.protocol,
                packet.ports,
                STATES[packet.state],
                packet.port
            );
        }
    }
    assert!(counts.iter().all(|count| *count > 10_000), "{counts:?}");
}

// Cisco.

fn cisco_address(random: &mut Random) -> String {
    match random.below(4) {
        0 => "any".to_owned(),
        1 => format!("host {}", Ipv4Addr::from(address(random))),
        _ => {
            let wild = [0, 1, 3, 5, 0x0040_0000, 0x00c0_0002, 0x00ff_ffff][random.below(7) as usize];
            // Bits of the address that the wildcard covers do not count.
            format!("{} {}", Ipv4Addr::from(address(random)), Ipv4Addr::from(wild))
        }
    }
}

fn cisco_ports(random: &mut Random) -> String {
    let (one, other) = (port(random).clamp(1, 65_534), port(random));
    match random.below(7) {
        0 => format!(" eq {one} {other}"),
        1 => format!(" neq {one}"),
        2 => format!(" gt {one}"),
        3 => format!(" lt {one}"),
        4 => format!(" range {} {}", one.min(other), one.max(other)),
        _ => String::new(),
    }
}

fn cisco_entry(random: &mut Random) -> String {
    let verb = ["permit", "deny"][random.below(2) as usize];
    let protocol = ["ip", "tcp", "udp", "icmp"][random.below(4) as usize];
    let has_ports = matches!(protocol, "tcp" | "udp");
    let mut entry = format!("{verb} {protocol} {}", cisco_address(random));
    entry += &if has_ports { cisco_ports(random) } else { String::new() };
    write!(entry, " {}", cisco_address(random)).unwrap();
    entry += &if has_ports { cisco_ports(random) } else { String::new() };
    match protocol {
        "tcp" if random.below(3) == 0 => entry += " established",
        "icmp" if random.below(2) == 0 => write!(entry, " {}", random.below(4) * 4).unwrap(),
        _ => {}
    }
    entry
}

/// Returns whether an entry is about a packet.
fn cisco_holds(words: &[&str], packet: &Packet) -> bool {
    let mut at = 2;
    let addresses = [packet.src, packet.dst];
    for (address, port) in addresses.into_iter().zip(packet.ports) {
        let parse = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
        let (holds, taken) = match words[at] {
            "any" => (true, 1),
            "host" => (parse(words[at + 1]) == address, 2),
            own => ((parse(own) ^ address) & !parse(words[at + 1]) == 0, 2),
        };
        at += taken;
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u16>().ok());
        let (in_ports, taken) = match (words.get(at).copied(), number(at + 1), number(at + 2)) {
            (Some("eq"), Some(one), Some(other)) => (port == one || port == other, 3),
            (Some("neq"), Some(one), _) => (port != one, 2),
            (Some("gt"), Some(one), _) => (port > one, 2),
            (Some("lt"), Some(one), _) => (port < one, 2),
            (Some("range"), Some(one), Some(other)) => ((one..=other).contains(&port), 3),
            _ => (true, 0),
        };
        at += taken;
        if !holds || !in_ports {
            return false;
        }
    }
    let protocol = match words[1] {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        _ => packet.protocol,
    };
    packet.protocol == protocol
        && match words.get(at) {
            // ACK or RST.
            Some(&"established") => packet.ports[1] & 0x14 != 0,
            Some(kind) => kind.parse::<u16>().unwrap() == packet.ports[0] & 15,
            None => true,
        }
}

#[test]
fn converted_access_lists_decide_as_cisco_does() {
    let folder = tempdir().unwrap();
    let mut counts = [0, 0];
    for seed in 0..40 {
        let mut random = Random(seed);
        let (mut text, mut entries) = ("ip access-list extended L\n".to_owned(), Vec::new());
        for _ in 0..3 + random.below(8) {
            let entry = cisco_entry(&mut random);
            let last = entries.iter().map(|(number, _)| *number).max().unwrap_or(0);
            let number = match random.below(3) {
                0 => None,
                _ => Some(1 + random.below(60)).filter(|n| entries.iter().all(|(other, _)| other != n)),
            };
            match number {
                Some(number) => writeln!(text, " {number} {entry}").unwrap(),
                None => writeln!(text, " {entry}").unwrap(),
            }
            entries.push((number.unwrap_or(last + 10), entry));
        }
        entries.sort_by_key(|(number, _)| *number);
        let (flows, left) = convert(folder.path(), "cisco", &text);
        assert_eq!(left, "", "seed {seed}\n{text}");
        let rules = rules(&flows);
        for _ in 0..1500 {
            let packet = random_packet(&mut random);
            let mut holding = entries.iter().map(|(_, entry)| entry.split(' ').collect::<Vec<_>>());
            let expected =
                holding.find(|words| cisco_holds(words, &packet)).is_some_and(|words| words[0] == "permit");
            counts[usize::from(expected)] += 1;
            let found = flows_pass(&rules, 0, &packet);
            assert_eq!(
                found,
                expected,
                "seed {seed}: {} -> {} {} {:?}\n{text}\n{flows}",
                Ipv4Addr::from(packet.src),
                Ipv4Addr::from(packet.dst),
                packet.protocol,
                packet.ports
            );
        }
    }
    assert!(counts.iter().all(|count| *count > 10_000), "{counts:?}");
}
