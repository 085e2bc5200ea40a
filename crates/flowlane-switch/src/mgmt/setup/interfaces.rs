//! The ports with addresses, which a router has.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::{port_name, tunnels};
use crate::mgmt::config::{Config, ConfigError, KeyPath, PortSection, Source};
use crate::port::PortSpec;
use crate::state::router::{Interface, Mac};

/// The MTU of ports that are no interfaces.
const MTU: u16 = 1500;

/// The smallest MTU: of IPv4 (RFC 791), and of IPv6 (RFC 8200, section 5).
const MTU_V4: u16 = 68;
const MTU_V6: u16 = 1280;

/// Reads the ports with addresses.
pub(super) fn read(config: &Config, source: &Source) -> Result<Vec<Interface>, ConfigError> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for (place, port) in config.port.iter().enumerate() {
        if port.addresses.is_empty() {
            refuse_settings(port, place, source)?;
            continue;
        }
        let at = KeyPath::section("port", place);
        let name = port_name(port.number, port.name.as_deref());
        let mut addresses: Vec<(IpAddr, u8)> = Vec::new();
        for (n, text) in port.addresses.iter().enumerate() {
            let at = at.key("addresses").item(n);
            let (address, len) = address(text).map_err(|(message, help)| source.error(&at, message, help))?;
            let has = |interface: &Interface| interface.has(address);
            if interfaces.iter().any(has) || addresses.iter().any(|(own, _)| *own == address) {
                let message = format!("the router has the address {address} already");
                return Err(source.error(&at, message, "give each port its own"));
            }
            addresses.push((address, len));
        }
        let of_kernel = kernel_interface(port);
        let mac = match &port.mac {
            Some(text) => own_mac(text, &at.key("mac"), source)?,
            None => of_kernel.as_deref().and_then(kernel_mac).unwrap_or_else(|| made_mac(&name)),
        };
        let mtu = port.mtu.or_else(|| kernel_mtu(of_kernel.as_deref()?)).unwrap_or(MTU);
        let least = if addresses.iter().any(|(own, _)| own.is_ipv6()) { MTU_V6 } else { MTU_V4 };
        if mtu < least {
            let message = format!("an MTU of {mtu} bytes is too small");
            return Err(source.error(&at.key("mtu"), message, format!("take {least} or more")));
        }
        interfaces.push(Interface { place, name, mac, mtu, addresses });
    }
    Ok(interfaces)
}

/// Refuses settings that only ports with addresses have.
fn refuse_settings(port: &PortSection, place: usize, source: &Source) -> Result<(), ConfigError> {
    let given = [("mac", port.mac.is_some()), ("mtu", port.mtu.is_some())];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) => {
            let at = KeyPath::section("port", place).key(key);
            let message = format!("`{key}` is of ports with addresses, and this port has none");
            Err(source.error(
                &at,
                message,
                "add addresses, as in addresses = [\"192.0.2.1/24\"], or remove it",
            ))
        }
        None => Ok(()),
    }
}

/// Reads an address with the length of its network's prefix.
fn address(text: &str) -> Result<(IpAddr, u8), (String, &'static str)> {
    const HELP: &str = "write an address and the length of its network's prefix, as in 192.0.2.1/24";
    let malformed = || (format!("`{text}` is no address with a prefix length"), HELP);
    let (address, len) = text.split_once('/').ok_or_else(malformed)?;
    let address: IpAddr = address.parse().map_err(|_| malformed())?;
    let len: u8 = len.parse().map_err(|_| malformed())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if len > bits {
        return Err(malformed());
    }
    let is_group = match address {
        IpAddr::V4(own) => own.is_multicast() || own.is_broadcast(),
        IpAddr::V6(own) => own.is_multicast() || own.is_unicast_link_local(),
    };
    if is_group || address.is_unspecified() || address.is_loopback() {
        let help = "take an address of one host; the link-local one is made by itself";
        return Err((format!("a port cannot have the address {address}"), help));
    }
    if let IpAddr::V4(own) = address
        && len < 31
    {
        let host = own.to_bits() & (u32::MAX >> len);
        if host == 0 || host == u32::MAX >> len {
            return Err((
                format!("{address} is not an address of a host in its network"),
                "the first address of a network names it, and the last is its broadcast address",
            ));
        }
    }
    Ok((address, len))
}

fn own_mac(text: &str, at: &KeyPath, source: &Source) -> Result<Mac, ConfigError> {
    let mac = tunnels::mac(Some(text), at, source)?;
    if mac[0] & 1 == 1 || mac == [0; 6] {
        let help = "take one of a single station, as 02:00:00:00:00:01";
        return Err(source.error(at, format!("{text} is no address of a station"), help));
    }
    Ok(mac)
}

/// The interface of the system whose Ethernet address is the port's: not that of a TAP, which is the other end's.
fn kernel_interface(port: &PortSection) -> Option<String> {
    match port.open.parse().ok()? {
        PortSpec::AfPacket { interface } | PortSpec::AfXdp { interface, .. } => Some(interface),
        _ => None,
    }
}

/// The name by which routes of the system name a port.
pub(super) fn kernel_name(port: &PortSection) -> Option<String> {
    match port.open.parse().ok()? {
        PortSpec::Tap { name } => Some(name),
        _ => kernel_interface(port),
    }
}

fn of_kernel(interface: &str, what: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).ok()
}

fn kernel_mac(interface: &str) -> Option<Mac> {
    let text = of_kernel(interface, "address")?;
    let bytes: Vec<u8> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    <Mac>::try_from(bytes).ok().filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6])
}

fn kernel_mtu(interface: &str) -> Option<u16> {
    let mtu: u32 = of_kernel(interface, "mtu")?.trim().parse().ok()?;
    Some(mtu.min(u16::MAX.into()) as u16)
}

/// A locally administered address that is the same at each start, and other on other machines.
fn made_mac(name: &str) -> Mac {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (machine, name).hash(&mut hasher);
    let [_, _, a, b, c, d, e, _] = hasher.finish().to_be_bytes();
    [2, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_hosts_are_read_and_others_refused() {
        assert_eq!(address("192.0.2.1/24"), Ok(("192.0.2.1".parse().unwrap(), 24)));
        assert_eq!(address("192.0.2.0/31"), Ok(("192.0.2.0".parse().unwrap(), 31)));
        assert_eq!(address("2001:db8::1/64"), Ok(("2001:db8::1".parse().unwrap(), 64)));
        let wrong = [
            "192.0.2.1",
            "192.0.2.1/33",
            "192.0.2.0/24",
            "192.0.2.255/24",
            "224.0.0.1/24",
            "ff02::1/64",
            "fe80::1/64",
            "::/0",
            "127.0.0.1/8",
            "x/1",
            "192.0.2.1/-1",
        ];
        for text in wrong {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn made_addresses_are_of_single_stations_and_differ_by_name() {
        let [lan, wan] = ["lan", "wan"].map(made_mac);
        assert!(lan != wan && lan == made_mac("lan"));
        assert_eq!(lan[0] & 3, 2);
    }
}
