//! Tunnels, from their sections of the configuration.

use flowlane::packet::parse::ether_type;
use flowlane::packet::tunnel::Inner;
use flowlane::tunnel::{Encapsulation, Endpoint, Policy, Tos, TunnelKind};

use super::routes::Place;
use crate::config::{Config, ConfigError, InnerChoice, TunnelKindChoice, TunnelPolicySection, TunnelSection};
use crate::tunnel::{TunnelSpec, Tunnels};

/// The tunnels of a configuration; none where it has none and no port takes packets out of them.
pub(super) fn open(config: &Config, seed: u32, place: Place<'_>) -> Result<Option<Tunnels>, ConfigError> {
    if config.tunnel.is_empty() {
        let wanted = config.port.iter().any(|port| port.decapsulate);
        return Ok(wanted.then(|| Tunnels::of_anyone(policy(&config.tunnel_policy))));
    }
    let mut specs: Vec<TunnelSpec> = Vec::new();
    for section in &config.tunnel {
        let number = format!("number = {}", section.number);
        if specs.iter().any(|s| s.number == section.number) {
            let message = format!("two tunnels have the number {}", section.number);
            return Err(place(&number, message, "give each its own".to_owned()));
        }
        specs.push(spec(section, place)?);
    }
    let tunnels = Tunnels::new(&specs, policy(&config.tunnel_policy), seed);
    tunnels.map(Some).map_err(|(number, error)| {
        let help = "mend this [[tunnel]]".to_owned();
        place("[[tunnel]]", format!("tunnel {number}: {error}"), help)
    })
}

fn policy(section: &TunnelPolicySection) -> Policy {
    Policy {
        verify_ipv4_checksum: section.verify_ipv4_checksum,
        verify_udp_checksum: section.verify_udp_checksum,
        ipv6_zero_checksum: section.ipv6_zero_checksum,
        geneve_options: section.geneve_options.clone(),
        ..Policy::default()
    }
}

fn spec(section: &TunnelSection, place: Place<'_>) -> Result<TunnelSpec, ConfigError> {
    let kind = match section.kind {
        TunnelKindChoice::Vxlan => TunnelKind::Vxlan,
        TunnelKindChoice::Geneve => TunnelKind::Geneve,
        TunnelKindChoice::Gtpu => TunnelKind::Gtpu,
    };
    let endpoint = Endpoint {
        kind,
        id: section.id,
        vrf: section.vrf,
        source: section.remote,
        destination: section.local,
    };
    let encapsulation = match section.remote {
        None => None,
        Some(remote) => {
            let id = section.id_out.unwrap_or(section.id);
            let mut out = Encapsulation::new(kind, id, section.local, remote);
            out.macs = [mac(&section.eth_dst, place)?, mac(&section.eth_src, place)?];
            (out.ttl, out.mtu) = (section.ttl, section.mtu);
            out.tos = section.dscp.map_or(Tos::Inner, Tos::Dscp);
            out.options = options(section, place)?;
            if let Some(checksum) = section.udp_checksum {
                out.udp_checksum = checksum;
            }
            match section.inner {
                None => {}
                Some(InnerChoice::Ethernet) => out.inner = Inner::Ethernet,
                Some(InnerChoice::Ipv4) => out.inner = Inner::Ip(ether_type::IPV4),
                Some(InnerChoice::Ipv6) => out.inner = Inner::Ip(ether_type::IPV6),
            }
            Some(out)
        }
    };
    let name =
        if section.name.is_empty() { format!("tunnel{}", section.number) } else { section.name.clone() };
    Ok(TunnelSpec {
        number: section.number,
        name,
        endpoint: Some(endpoint),
        encapsulation,
        in_port: section.in_port,
    })
}

/// A MAC address; zeros where there is none.
fn mac(text: &Option<String>, place: Place<'_>) -> Result<[u8; 6], ConfigError> {
    let Some(text) = text else { return Ok([0; 6]) };
    let bytes: Option<Vec<u8>> = text.split(':').map(|b| u8::from_str_radix(b, 16).ok()).collect();
    bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| {
        let help = "write six bytes in hexadecimal, as in 02:00:00:00:00:01".to_owned();
        place(text, format!("`{text}` is no MAC address"), help)
    })
}

fn options(section: &TunnelSection, place: Place<'_>) -> Result<Vec<u8>, ConfigError> {
    let digits: Vec<u32> =
        section.options.chars().filter(|c| !c.is_whitespace()).filter_map(|c| c.to_digit(16)).collect();
    let given = section.options.chars().filter(|c| !c.is_whitespace()).count();
    if digits.len() != given || !given.is_multiple_of(2) {
        let help =
            "write pairs of hexadecimal digits: class (2 bytes), type, length in words, data".to_owned();
        return Err(place(&section.options, "these options are not hexadecimal".to_owned(), help));
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}
