//! Tunnels, from their sections of the configuration.

use flowlane::packet::parse::ether_type;
use flowlane::packet::tunnel::Inner;
use flowlane::packet::tunnel::erspan::Erspan;
use flowlane::tunnel::{
    Encapsulation, EncapsulationError, Encapsulator, Endpoint, EndpointError, MappedOption, OptionMap,
    OptionMapError, Policy, Sequence, Tos, TunnelKind,
};

use crate::mgmt::config::{
    ByName, Config, ConfigError, InnerProtocol, KeyPath, Source, TunnelOptionSection, TunnelPolicySection,
    TunnelSection,
};
use crate::tunnel::{TunnelError, TunnelSpec, Tunnels};

/// Makes the tunnels of a configuration; none where it has none and no port takes packets out of them. `mtu` is that of a tunnel,
/// by number, that names none.
pub(super) fn open(
    config: &Config,
    seed: u32,
    source: &Source,
    mtu: impl Fn(u32) -> u16,
) -> Result<Option<Tunnels>, ConfigError> {
    let policy = policy_of(config, source)?;
    if config.tunnel.is_empty() {
        let wanted = config.port.iter().any(|port| port.decapsulate);
        return Ok(wanted.then(|| Tunnels::of_anyone(policy)));
    }
    let policy = with_ports(policy, &config.tunnel, source)?;
    let mut specs: Vec<TunnelSpec> = Vec::new();
    for (n, section) in config.tunnel.iter().enumerate() {
        let at = KeyPath::section("tunnel", n);
        if specs.iter().any(|s| s.number == section.number) {
            let message = format!("two tunnels have the number {}", section.number);
            return Err(source.error(&at.key("number"), message, "give each its own"));
        }
        specs.push(spec(section, &at, source, &mtu)?);
    }
    let tunnels = Tunnels::new(&specs, policy, seed);
    tunnels.map(Some).map_err(|(number, error)| {
        let n = specs.iter().position(|spec| spec.number == number).expect("the tunnel is one of these");
        let at = KeyPath::section("tunnel", n);
        let at = key_of(&error, &config.tunnel[n]).map_or(at.clone(), |key| at.key(key));
        source.error(&at, format!("tunnel {number}: {error}"), "")
    })
}

/// The checks of packets that come out of tunnels, and the fields of their options.
pub(super) fn policy_of(config: &Config, source: &Source) -> Result<Policy, ConfigError> {
    Ok(Policy { option_fields: option_fields(config, source)?, ..policy(&config.tunnel_policy) })
}

/// The key that an error of a tunnel is about; none for the tunnel as a whole.
fn key_of(error: &TunnelError, section: &TunnelSection) -> Option<&'static str> {
    match error {
        TunnelError::Endpoint(EndpointError::Families { .. })
        | TunnelError::Encapsulation(EncapsulationError::Families { .. }) => Some("remote"),
        TunnelError::Endpoint(EndpointError::Vni { .. } | EndpointError::Session { .. }) => Some("id"),
        TunnelError::Encapsulation(EncapsulationError::Erspan) => Some("erspan_index"),
        TunnelError::Endpoint(EndpointError::Vrf { .. }) => Some("vrf"),
        TunnelError::Encapsulation(EncapsulationError::Vni { .. } | EncapsulationError::Session { .. }) => {
            Some(if section.id_out.is_some() { "id_out" } else { "id" })
        }
        TunnelError::Encapsulation(EncapsulationError::Dscp { .. }) => Some("dscp"),
        TunnelError::Encapsulation(EncapsulationError::Inner { .. }) => Some("inner"),
        TunnelError::Encapsulation(EncapsulationError::Options { .. }) => Some("options"),
        TunnelError::Encapsulation(EncapsulationError::Mtu { .. }) => Some("mtu"),
        _ => None,
    }
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

/// The fields of GENEVE options.
fn option_fields(config: &Config, source: &Source) -> Result<OptionMap, ConfigError> {
    let mut all = OptionMap::default();
    for (n, section) in config.tunnel_option.iter().enumerate() {
        let &TunnelOptionSection { number, class, kind, bytes } = section;
        all.add(number.into(), MappedOption { class, kind, bytes }).map_err(|error| {
            let (key, help) = match error {
                OptionMapError::Length(_) | OptionMapError::TooLong(_) => ("bytes", "take 4, 8, 12 or 16"),
                OptionMapError::OptionTaken(_) => ("type", "give an option one field"),
                _ => ("number", "take a number from 0 to 6 that no other option has"),
            };
            source.error(&KeyPath::section("tunnel_option", n).key(key), error.to_string(), help)
        })?;
    }
    Ok(all)
}

/// Refuses keys that a tunnel's protocol has nothing of.
fn check_keys(section: &TunnelSection, at: &KeyPath, source: &Source) -> Result<(), ConfigError> {
    let ByName(kind) = section.kind;
    let has_udp = kind.own_port().is_some();
    let wrong = [
        ("port", section.port.is_some(), has_udp),
        ("udp_checksum", section.udp_checksum.is_some(), has_udp),
        ("gre_checksum", section.gre_checksum, kind == TunnelKind::Gre),
        ("gre_sequence", section.gre_sequence, kind == TunnelKind::Gre),
        ("erspan_index", section.erspan_index != 0, kind == TunnelKind::Erspan),
    ];
    match wrong.into_iter().find(|(_, is_given, is_known)| *is_given && !is_known) {
        Some((key, ..)) => {
            let message = format!("tunnel {} is of {}, which has no {key}", section.number, kind.name());
            Err(source.error(&at.key(key), message, "leave it out, or take another kind"))
        }
        None => Ok(()),
    }
}

/// Gives a policy the UDP ports of tunnels, and GRE where there is one.
fn with_ports(policy: Policy, sections: &[TunnelSection], source: &Source) -> Result<Policy, ConfigError> {
    let port = |section: &TunnelSection| section.port.or(section.kind.0.own_port());
    for (n, section) in sections.iter().enumerate() {
        let refused = |message: String, help: &str| {
            Err(source.error(&KeyPath::section("tunnel", n).key("port"), message, help))
        };
        check_keys(section, &KeyPath::section("tunnel", n), source)?;
        let (number, wanted, ByName(kind)) = (section.number, port(section), section.kind);
        if wanted == Some(0) {
            return refused(format!("tunnel {number} has UDP port 0"), "take 1 to 65535");
        }
        // GRE and ERSPAN have no port.
        for other in sections[..n].iter().filter(|_| wanted.is_some()) {
            let is_same = port(other) == wanted;
            if (other.kind.0 == kind) != is_same {
                let what =
                    if is_same { "the UDP port, and another protocol than" } else { "another UDP port than" };
                let help = "all tunnels of one protocol have one port, and no other protocol has it";
                return refused(format!("tunnel {number} has {what} tunnel {}", other.number), help);
            }
        }
    }
    // A protocol without tunnels leaves its port to others.
    let first = |kind: TunnelKind| sections.iter().find(|section| section.kind.0 == kind);
    let of = |kind: TunnelKind| match first(kind) {
        Some(section) => port(section),
        None => kind.own_port().filter(|own| sections.iter().all(|section| port(section) != Some(*own))),
    };
    let [vxlan_port, geneve_port, gtpu_port] =
        [TunnelKind::Vxlan, TunnelKind::Geneve, TunnelKind::Gtpu].map(of);
    let [gre, erspan] = [TunnelKind::Gre, TunnelKind::Erspan].map(|kind| first(kind).is_some());
    Ok(Policy { vxlan_port, geneve_port, gtpu_port, gre, erspan, ..policy })
}

fn spec(
    section: &TunnelSection,
    at: &KeyPath,
    source: &Source,
    mtu: &impl Fn(u32) -> u16,
) -> Result<TunnelSpec, ConfigError> {
    let mac = |key: &'static str, text: &Option<String>| mac(text.as_deref(), &at.key(key), source);
    let ByName(kind) = section.kind;
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
            out.macs = [mac("eth_dst", &section.eth_dst)?, mac("eth_src", &section.eth_src)?];
            out.port = section.port;
            (out.ttl, out.mtu) = (section.ttl, section.mtu.unwrap_or_else(|| mtu(section.number)));
            out.tos = section.dscp.map_or(Tos::Inner, Tos::Dscp);
            out.options = options(&section.options, &at.key("options"), source)?;
            if let Some(checksum) = section.udp_checksum {
                out.checksum = checksum;
            }
            out.checksum |= section.gre_checksum;
            out.erspan = Erspan::Version1 { index: section.erspan_index };
            if section.gre_sequence {
                out.sequence = Some(Sequence::default());
            }
            match section.inner {
                None => {}
                Some(InnerProtocol::Ethernet) => out.inner = Inner::Ethernet,
                Some(InnerProtocol::Ipv4) => out.inner = Inner::Ip(ether_type::IPV4),
                Some(InnerProtocol::Ipv6) => out.inner = Inner::Ip(ether_type::IPV6),
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

/// Returns the bytes between the beginnings of the outer and the inner IP packet of a tunnel's packets that leave; none where it carries no
/// Ethernet frames.
pub(super) fn ethernet_headers(
    section: &TunnelSection,
    at: &KeyPath,
    source: &Source,
) -> Result<Option<u16>, ConfigError> {
    let spec = spec(section, at, source, &|_| u16::MAX)?;
    let Some(out) = spec.encapsulation.filter(|out| out.inner == Inner::Ethernet) else { return Ok(None) };
    // Its mistakes are reported with those of all tunnels.
    let wrap = Encapsulator::new(&Encapsulation { mtu: u16::MAX, ..out });
    Ok(wrap.ok().map(|wrap| wrap.header_bytes() as u16))
}

/// Reads a MAC address; zeros where there is none.
pub(super) fn mac(text: Option<&str>, at: &KeyPath, source: &Source) -> Result<[u8; 6], ConfigError> {
    let Some(text) = text else { return Ok([0; 6]) };
    read_mac(text).ok_or_else(|| {
        let help = "write six bytes in hexadecimal, as in 02:00:00:00:00:01";
        source.error(at, format!("`{text}` is no MAC address"), help)
    })
}

/// Reads a MAC address: six bytes of one or two hexadecimal digits, with colons.
pub(crate) fn read_mac(text: &str) -> Option<[u8; 6]> {
    // `from_str_radix` accepts a sign, and zeros in front.
    let is_byte =
        |part: &str| matches!(part.len(), 1 | 2) && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |part| u8::from_str_radix(part, 16).ok().filter(|_| is_byte(part));
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes?.try_into().ok()
}

/// Reads the MAC address of a host: neither of a group nor zero.
pub(crate) fn read_host_mac(text: &str) -> Option<[u8; 6]> {
    read_mac(text).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6])
}

/// Reads GENEVE options in hexadecimal.
fn options(text: &str, at: &KeyPath, source: &Source) -> Result<Vec<u8>, ConfigError> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !c.is_whitespace()).filter_map(|c| c.to_digit(16)).collect();
    let given = text.chars().filter(|c| !c.is_whitespace()).count();
    if digits.len() != given || !given.is_multiple_of(2) {
        let help = "write pairs of hexadecimal digits: class (2 bytes), type, length in words, data";
        return Err(source.error(at, "these options are not hexadecimal", help));
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_six_bytes_of_one_or_two_digits() {
        assert_eq!(read_mac("02:0:00:0a:Ff:1"), Some([2, 0, 0, 10, 255, 1]));
        for wrong in [
            "",
            "02:zz",
            "1:2:3:4:5",
            "1:2:3:4:5:6:7",
            "001:2:3:4:5:6",
            "+1:2:3:4:5:6",
            "1:2::4:5:6",
            "1-2-3-4-5-6",
        ] {
            assert_eq!(read_mac(wrong), None, "{wrong}");
        }
        assert_eq!(read_host_mac("02:00:00:00:00:42"), Some([2, 0, 0, 0, 0, 0x42]));
        assert_eq!(["01:00:00:00:00:01", "0:0:0:0:0:0"].map(read_host_mac), [None, None]);
    }
}
