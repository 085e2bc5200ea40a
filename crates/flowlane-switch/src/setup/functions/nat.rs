//! Address translation, from its section of the configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use flowlane::packet::parse::ip_proto;
use flowlane::route::Prefix;
use flowlane::rule::ReadOptions;

use super::{KindSetup, Made, SetupError, actions, entries_in_range, lookups, network};
use crate::config::{ConfigError, ForwardProtocolChoice, ForwardSection, NatTableSection};
use crate::setup::routes::Place;
use crate::stage::NatConfig;
use crate::stage::ageing::idle_ticks;
use crate::stage::nat::ports::{ADDRESSES_MAX, Range, Secret};
use crate::stage::nat::{Forward, IdleTimes, Nat};

/// How addresses are to be translated, and the actions of the verdicts.
pub(super) fn read(
    section: &NatTableSection,
    secret: Secret,
    options: &ReadOptions<'_>,
    place: Place<'_>,
) -> Result<Made, SetupError> {
    let number = section.number;
    entries_in_range(number, section.sessions_max, place)?;
    if section.fragments_max > 0 {
        entries_in_range(number, section.fragments_max, place)?;
    }
    let mut inside = Vec::new();
    for text in &section.inside {
        match network(text, place)? {
            (IpAddr::V4(address), length) => inside.push(Prefix::truncated(address.into(), length)),
            (IpAddr::V6(_), _) => {
                let help = "translation is of IPv4; route IPv6 instead".to_owned();
                return Err(place(text, format!("inside network `{text}` is of IPv6"), help).into());
            }
        }
    }
    let pool = section.pool.iter().map(|text| range(text, place)).collect::<Result<Vec<_>, _>>()?;
    let addresses: u64 = pool.iter().map(|&(first, last)| u64::from(last - first) + 1).sum();
    if inside.is_empty() || addresses == 0 {
        let help = "give it inside networks and a pool of outside addresses".to_owned();
        return Err(place("[[nat_table]]", format!("nat {number} has nothing to translate"), help).into());
    }
    if addresses > ADDRESSES_MAX as u64 {
        let message = format!("{addresses} outside addresses in nat {number}");
        return Err(place("pool", message, format!("take up to {ADDRESSES_MAX}")).into());
    }
    let (first, last) = section.ports;
    if first == 0 || first > last {
        let help = "write the first and the last, as in ports = [1024, 65535]".to_owned();
        return Err(place("ports", format!("ports {first} to {last} of nat {number}"), help).into());
    }
    let config = NatConfig {
        ports: section.ports,
        forwards: section.forward.iter().map(|f| forward(f, place)).collect::<Result<_, _>>()?,
        sessions_per_host_max: section.sessions_per_host_max,
        fragments_max: section.fragments_max,
        hairpin: section.hairpin.is_some(),
        idle: idle_times(section, place)?,
        lookups: lookups(section.lookups),
        secret,
        ..NatConfig::new(inside, pool, section.sessions_max)
    };
    let verdicts = [
        ("outbound", section.outbound.as_str()),
        ("inbound", &section.inbound),
        ("hairpin", section.hairpin.as_deref().unwrap_or("drop")),
        ("other", &section.other),
    ];
    let verdicts = verdicts.into_iter().map(|(name, text)| actions(number, name, text, options));
    let verdicts = verdicts.collect::<Result<_, _>>()?;
    // Whether forwards agree with each other and with the pool.
    Nat::new(config.clone()).map_err(|error| {
        let help = "mend this [[nat_table.forward]]".to_owned();
        place("[[nat_table.forward]]", format!("nat {number}: {error}"), help)
    })?;
    Ok((KindSetup::Nat(config), verdicts))
}

/// Addresses: one, or the first and the last.
fn range(text: &str, place: Place<'_>) -> Result<Range, ConfigError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
    match (address(first), address(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => {
            let help =
                "write an IPv4 address, or the first and the last: 203.0.113.8-203.0.113.15".to_owned();
            Err(place(text, format!("`{text}` is no range of addresses"), help))
        }
    }
}

fn forward(section: &ForwardSection, place: Place<'_>) -> Result<Forward, ConfigError> {
    let endpoint = |text: &str| {
        let address: Option<SocketAddrV4> = text.parse().ok();
        address.map(|a| (u32::from(*a.ip()), a.port())).ok_or_else(|| {
            let help = "write an IPv4 address and a port, as in 203.0.113.1:443".to_owned();
            place(text, format!("`{text}` is no address with port"), help)
        })
    };
    let proto = match section.protocol {
        ForwardProtocolChoice::Tcp => ip_proto::TCP,
        ForwardProtocolChoice::Udp => ip_proto::UDP,
    };
    Ok(Forward { proto, outside: endpoint(&section.outside)?, inside: endpoint(&section.inside)? })
}

fn idle_times(section: &NatTableSection, place: Place<'_>) -> Result<IdleTimes, ConfigError> {
    let ticks = |name: &str, seconds: u64| match seconds {
        0 => {
            let help = "a session must go some time: give it a second at least".to_owned();
            Err(place(name, format!("{name} = 0"), help))
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
