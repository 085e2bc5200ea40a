//! Address translation, from its section of the configuration.

use std::net::{IpAddr, SocketAddr};

use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;

use super::{KindSetup, Made, SetupError, entries_in_range, network};
use crate::mgmt::config::{ConfigError, ForwardProtocol, ForwardSection, KeyPath, NatTableSection, Source};
use crate::mgmt::setup::reader::Reader;
use crate::stage::NatConfig;
use crate::stage::nat::{Forward, NatError};
use crate::state::conntrack::End;
use crate::state::conntrack::session::{IdleTimes, Range};

/// The zones of tables, by their numbers.
const ZONES: u16 = 0xff00;

/// Returns the zone of a table's sessions.
pub(super) fn zone_of(section: &NatTableSection) -> u16 {
    section.zone.unwrap_or(ZONES | u16::from(section.number))
}

/// Reads how addresses are to be translated, and the actions of the verdicts.
pub(super) fn read(section: &NatTableSection, at: &KeyPath, reader: &Reader<'_>) -> Result<Made, SetupError> {
    let (number, source) = (section.number, reader.source);
    entries_in_range(number, section.sessions_max, &at.key("sessions_max"), source)?;
    if section.fragments_max > 0 {
        entries_in_range(number, section.fragments_max, &at.key("fragments_max"), source)?;
    }
    let (inside, pool) = addresses(section, at, source)?;
    let (first, last) = section.ports;
    if first == 0 || first > last {
        let message = format!("ports {first} to {last} of nat {number}");
        let help = "write the first and the last, as in ports = [1024, 65535]";
        return Err(source.error(&at.key("ports"), message, help).into());
    }
    let forwards = section.forward.iter().enumerate();
    let forwards = forwards.map(|(n, section)| forward(section, &at.key("forward").item(n), source));
    let config = NatConfig {
        zone: zone_of(section),
        mapping: section.mapping,
        inside,
        pool,
        ports: section.ports,
        forwards: forwards.collect::<Result<_, _>>()?,
        sessions_per_host_max: section.sessions_per_host_max,
        fragments_max: section.fragments_max,
        hairpin: section.hairpin.is_some(),
        idle: idle_times(section, at, source)?,
        lookups: section.lookups,
        ..NatConfig::new(Vec::new(), Vec::new(), section.sessions_max)
    };
    let verdicts = [
        ("outbound", section.outbound.as_str()),
        ("inbound", &section.inbound),
        ("hairpin", section.hairpin.as_deref().unwrap_or("drop")),
        ("other", &section.other),
    ];
    let verdicts = verdicts.map(|(name, text)| reader.actions(number, text, at.key(name)));
    let verdicts = verdicts.into_iter().collect::<Result<_, _>>()?;
    config.check().map_err(|error| {
        let (n, key) = match error {
            NatError::Outside(n) | NatError::Full(n) => (n, "outside"),
            NatError::Inside(n) | NatError::NotInside(n) => (n, "inside"),
        };
        source.error(&at.key("forward").item(n).key(key), format!("nat {number}: {error}"), "")
    })?;
    Ok((KindSetup::Nat(config), verdicts))
}

/// Reads the inside networks and the pool of outside addresses.
fn addresses(
    section: &NatTableSection,
    at: &KeyPath,
    source: &Source,
) -> Result<(Vec<Range>, Vec<Range>), ConfigError> {
    let number = section.number;
    let mut inside = Vec::new();
    for (n, text) in section.inside.iter().enumerate() {
        inside.push(match network(text, &at.key("inside").item(n), source)? {
            (IpAddr::V4(address), length) => {
                let network = Prefix::truncated(u32::from(address), length);
                Range::v4(network.first(), network.last())
            }
            (IpAddr::V6(address), length) => {
                let network = Prefix::truncated(u128::from(address), length);
                Range { is_ipv6: true, first: network.first(), last: network.last() }
            }
        });
    }
    let ranges = section.pool.iter().enumerate();
    let ranges = ranges.map(|(n, text)| range(text, &at.key("pool").item(n), source));
    let pool = ranges.collect::<Result<Vec<_>, _>>()?;
    if inside.is_empty() || pool.is_empty() {
        let at = at.key(if inside.is_empty() { "inside" } else { "pool" });
        let help = "give it inside networks and a pool of outside addresses";
        return Err(source.error(&at, format!("nat {number} has nothing to translate"), help));
    }
    for (n, network) in inside.iter().enumerate() {
        if !pool.iter().any(|range| range.is_ipv6 == network.is_ipv6) {
            let message = format!("no address of the pool is for inside network `{}`", section.inside[n]);
            let help = "give the pool an address of the same version of IP, or leave the network out";
            return Err(source.error(&at.key("inside").item(n), message, help));
        }
    }
    Ok((inside, pool))
}

/// Reads addresses: one, or the first and the last.
fn range(text: &str, at: &KeyPath, source: &Source) -> Result<Range, ConfigError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = match (first.trim().parse(), last.trim().parse()) {
        (Ok(IpAddr::V4(first)), Ok(IpAddr::V4(last))) => Some(Range::v4(first.into(), last.into())),
        (Ok(IpAddr::V6(first)), Ok(IpAddr::V6(last))) => {
            Some(Range { is_ipv6: true, first: first.into(), last: last.into() })
        }
        _ => None,
    };
    range.filter(|range| range.first <= range.last).ok_or_else(|| {
        let help = "write an address, or the first and the last: 203.0.113.8-203.0.113.15";
        source.error(at, format!("`{text}` is no range of addresses"), help)
    })
}

fn forward(section: &ForwardSection, at: &KeyPath, source: &Source) -> Result<Forward, ConfigError> {
    let endpoint = |text: &str, key: &'static str| {
        text.parse::<SocketAddr>().map_err(|_| {
            let help = "write an address and a port, as in 203.0.113.1:443 or [2001:db8::1]:443";
            source.error(&at.key(key), format!("`{text}` is no address with port"), help)
        })
    };
    let proto = match section.protocol {
        ForwardProtocol::Tcp => ip_proto::TCP,
        ForwardProtocol::Udp => ip_proto::UDP,
    };
    let outside = endpoint(&section.outside, "outside")?;
    let inside = endpoint(&section.inside, "inside")?;
    if outside.is_ipv6() != inside.is_ipv6() {
        let message = format!("`{inside}` and `{outside}` are of different versions of IP");
        return Err(source.error(
            &at.key("inside"),
            message,
            "translation keeps the version: write two of one",
        ));
    }
    let end = |of: SocketAddr| {
        let address = match of.ip() {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => address.into(),
        };
        End { address, port: of.port(), icmp_type: 0 }
    };
    Ok(Forward { proto, is_ipv6: inside.is_ipv6(), outside: end(outside), inside: end(inside) })
}

fn idle_times(section: &NatTableSection, at: &KeyPath, source: &Source) -> Result<IdleTimes, ConfigError> {
    let ms = |key: &'static str, seconds: u64| match seconds {
        0 => {
            let help = "a session must go some time: give it a second at least";
            Err(source.error(&at.key(key), format!("{key} = 0"), help))
        }
        seconds => Ok(seconds.saturating_mul(1000)),
    };
    Ok(IdleTimes {
        udp: ms("udp_idle_s", section.udp_idle_s)?,
        tcp_transitory: ms("tcp_transitory_idle_s", section.tcp_transitory_idle_s)?,
        tcp_established: ms("tcp_idle_s", section.tcp_idle_s)?,
        icmp: ms("icmp_idle_s", section.icmp_idle_s)?,
    })
}
