//! Address translation, from its section of the configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;

use super::{KindSetup, Made, SetupError, entries_in_range, network};
use crate::mgmt::config::{ConfigError, ForwardProtocol, ForwardSection, KeyPath, NatTableSection, Source};
use crate::mgmt::setup::reader::Reader;
use crate::stage::NatConfig;
use crate::stage::ageing::idle_ticks;
use crate::stage::nat::ports::{ADDRESSES_MAX, Range, Secret};
use crate::stage::nat::{Forward, IdleTimes, Nat, NatError};

/// Reads how addresses are to be translated, and the actions of the verdicts.
pub(super) fn read(
    section: &NatTableSection,
    at: &KeyPath,
    secret: Secret,
    reader: &Reader<'_>,
) -> Result<Made, SetupError> {
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
        ports: section.ports,
        forwards: forwards.collect::<Result<_, _>>()?,
        sessions_per_host_max: section.sessions_per_host_max,
        fragments_max: section.fragments_max,
        hairpin: section.hairpin.is_some(),
        idle: idle_times(section, at, source)?,
        lookups: section.lookups,
        secret,
        ..NatConfig::new(inside, pool, section.sessions_max)
    };
    let verdicts = [
        ("outbound", section.outbound.as_str()),
        ("inbound", &section.inbound),
        ("hairpin", section.hairpin.as_deref().unwrap_or("drop")),
        ("other", &section.other),
    ];
    let verdicts = verdicts.map(|(name, text)| reader.actions(number, text, at.key(name)));
    let verdicts = verdicts.into_iter().collect::<Result<_, _>>()?;
    // Whether forwards agree with each other and with the pool.
    Nat::new(config.clone()).map_err(|error| {
        let (n, key) = match error {
            NatError::Outside(n) => (n, "outside"),
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
) -> Result<(Vec<Prefix<u32>>, Vec<Range>), ConfigError> {
    let number = section.number;
    let mut inside = Vec::new();
    for (n, text) in section.inside.iter().enumerate() {
        let at = at.key("inside").item(n);
        match network(text, &at, source)? {
            (IpAddr::V4(address), length) => inside.push(Prefix::truncated(address.into(), length)),
            (IpAddr::V6(_), _) => {
                let message = format!("inside network `{text}` is of IPv6");
                return Err(source.error(&at, message, "translation is of IPv4; route IPv6 instead"));
            }
        }
    }
    let ranges = section.pool.iter().enumerate();
    let ranges = ranges.map(|(n, text)| range(text, &at.key("pool").item(n), source));
    let pool = ranges.collect::<Result<Vec<_>, _>>()?;
    let addresses: u64 = pool.iter().map(|&(first, last)| u64::from(last - first) + 1).sum();
    if inside.is_empty() || addresses == 0 {
        let at = at.key(if inside.is_empty() { "inside" } else { "pool" });
        let help = "give it inside networks and a pool of outside addresses";
        return Err(source.error(&at, format!("nat {number} has nothing to translate"), help));
    }
    if addresses > ADDRESSES_MAX as u64 {
        let message = format!("{addresses} outside addresses in nat {number}");
        return Err(source.error(&at.key("pool"), message, format!("take up to {ADDRESSES_MAX}")));
    }
    Ok((inside, pool))
}

/// Reads addresses: one, or the first and the last.
fn range(text: &str, at: &KeyPath, source: &Source) -> Result<Range, ConfigError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
    match (address(first), address(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => {
            let help = "write an IPv4 address, or the first and the last: 203.0.113.8-203.0.113.15";
            Err(source.error(at, format!("`{text}` is no range of addresses"), help))
        }
    }
}

fn forward(section: &ForwardSection, at: &KeyPath, source: &Source) -> Result<Forward, ConfigError> {
    let endpoint = |text: &str, key: &'static str| {
        let address: Option<SocketAddrV4> = text.parse().ok();
        address.map(|a| (u32::from(*a.ip()), a.port())).ok_or_else(|| {
            let help = "write an IPv4 address and a port, as in 203.0.113.1:443";
            source.error(&at.key(key), format!("`{text}` is no address with port"), help)
        })
    };
    let proto = match section.protocol {
        ForwardProtocol::Tcp => ip_proto::TCP,
        ForwardProtocol::Udp => ip_proto::UDP,
    };
    let outside = endpoint(&section.outside, "outside")?;
    Ok(Forward { proto, outside, inside: endpoint(&section.inside, "inside")? })
}

fn idle_times(section: &NatTableSection, at: &KeyPath, source: &Source) -> Result<IdleTimes, ConfigError> {
    let ticks = |key: &'static str, seconds: u64| match seconds {
        0 => {
            let help = "a session must go some time: give it a second at least";
            Err(source.error(&at.key(key), format!("{key} = 0"), help))
        }
        seconds => Ok(idle_ticks(seconds)),
    };
    Ok(IdleTimes {
        udp: ticks("udp_idle_s", section.udp_idle_s)?,
        tcp_transitory: ticks("tcp_transitory_idle_s", section.tcp_transitory_idle_s)?,
        tcp_established: ticks("tcp_idle_s", section.tcp_idle_s)?,
        icmp: ticks("icmp_idle_s", section.icmp_idle_s)?,
    })
}
