//! The interfaces of a router: ports with addresses, VLANs and tunnels.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use flowlane::rule::ReadOptions;
use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::read_actions;

use super::tunnels::{self, read_host_mac};
use crate::mgmt::config::{
    Config, ConfigError, InterfaceSection, KeyPath, PortSection, RouterSection, Source,
};
use crate::port::PortSpec;
use crate::state::router::{Interface, Link, Mac, OWN_PACKETS, TunnelEnds};
use crate::state::vlan::VID_MAX;

/// The bit of a VLAN's identifier that says that there is a tag.
const VID_PRESENT: u16 = 0x1000;

/// The MTU of ports that are no interfaces.
const MTU: u16 = 1500;

/// The smallest MTU: of IPv4 (RFC 791), and of IPv6 (RFC 8200, section 5).
const MTU_V4: u16 = 68;
const MTU_V6: u16 = 1280;

/// The settings of an interface, and where they are.
struct Settings<'a> {
    at: KeyPath,
    number: u32,
    name: String,
    link: Link,
    /// The actions of its frames.
    out: String,
    addresses: &'a [String],
    mac: Option<&'a str>,
    mtu: Option<u16>,
    /// The longest packet that it can send.
    mtu_max: Option<u16>,
    /// The interface of the system.
    of_kernel: Option<String>,
}

/// Reads the interfaces: ports with addresses, then those of the router's section.
pub(super) fn read(config: &Config, source: &Source) -> Result<Vec<Interface>, ConfigError> {
    let mut interfaces = Vec::new();
    for (place, port) in config.port.iter().enumerate() {
        if port.addresses.is_empty() {
            refuse_settings(port, place, source)?;
            continue;
        }
        let of_kernel = kernel_interface(port);
        let settings = Settings {
            at: KeyPath::section("port", place),
            number: port.number,
            name: port.name().into_owned(),
            link: Link::Port(place),
            out: format!("output:{}", port.number),
            addresses: &port.addresses,
            mac: port.mac.as_deref(),
            mtu: port.mtu.or_else(|| kernel_mtu(of_kernel.as_deref()?)),
            mtu_max: None,
            of_kernel,
        };
        add(&mut interfaces, settings, source)?;
    }
    let Some(router) = &config.router else { return Ok(interfaces) };
    for (n, section) in router.interface.iter().enumerate() {
        let at = KeyPath::of("router").key("interface").item(n);
        check_names(config, router, n, &at, source)?;
        let (link, out, mtu_max) = match (section.vlan, section.tunnel) {
            (Some(vid), None) => {
                if router.interface[..n].iter().any(|other| other.vlan == Some(vid)) {
                    let message = format!("two interfaces are in VLAN {vid}");
                    let help = "give one interface the addresses of both";
                    return Err(source.error(&at.key("vlan"), message, help));
                }
                vlan(vid, &at, source).map(|(link, out)| (link, out, None))?
            }
            (None, Some(number)) => {
                tunnel(config, router, (section, number), outer_mtu(&interfaces, router), &at, source)?
            }
            _ => {
                let message = format!("interface `{}` needs a link", section.name);
                return Err(source.error(&at, message, "give it either vlan or tunnel"));
            }
        };
        let settings = Settings {
            number: section.number,
            name: section.name.clone(),
            link,
            out,
            addresses: &section.addresses,
            mac: section.mac.as_deref(),
            mtu: section.mtu.or(mtu_max),
            mtu_max,
            of_kernel: None,
            at,
        };
        add(&mut interfaces, settings, source)?;
    }
    Ok(interfaces)
}

fn add(interfaces: &mut Vec<Interface>, settings: Settings<'_>, source: &Source) -> Result<(), ConfigError> {
    let Settings { at, number, name, link, out, mac, mtu, mtu_max, of_kernel, .. } = settings;
    if settings.addresses.is_empty() {
        let message = format!("interface `{name}` has no address");
        return Err(source.error(
            &at.key("addresses"),
            message,
            "add one, as in addresses = [\"192.0.2.1/24\"]",
        ));
    }
    let mut addresses: Vec<(IpAddr, u8)> = Vec::new();
    for (n, text) in settings.addresses.iter().enumerate() {
        let at = at.key("addresses").item(n);
        let (address, len) = address(text).map_err(|(message, help)| source.error(&at, message, help))?;
        let has = |interface: &Interface| interface.has(address);
        if interfaces.iter().any(has) || addresses.iter().any(|(own, _)| *own == address) {
            let message = format!("the router has the address {address} already");
            return Err(source.error(&at, message, "give each port its own"));
        }
        addresses.push((address, len));
    }
    let mac = match mac {
        Some(text) => own_mac(text, &at.key("mac"), source)?,
        None => of_kernel.as_deref().and_then(kernel_mac).unwrap_or_else(|| made_mac(&name, &addresses)),
    };
    let mtu = mtu.unwrap_or(MTU);
    let least = if addresses.iter().any(|(own, _)| own.is_ipv6()) { MTU_V6 } else { MTU_V4 };
    if mtu < least {
        let message = format!("an MTU of {mtu} bytes is too small");
        return Err(source.error(&at.key("mtu"), message, format!("take {least} or more")));
    }
    if let Some(most) = mtu_max.filter(|most| *most < mtu) {
        let message = format!("packets of {mtu} bytes do not fit into the tunnel");
        return Err(source.error(&at.key("mtu"), message, format!("take {most} or less, or leave it out")));
    }
    let out = read_actions(&out, "", &ReadOptions::default()).expect("these actions are sound");
    interfaces.push(Interface { number, name, link, out, mac, mtu, addresses });
    Ok(())
}

/// Checks the number and the name of an interface: neither is another interface's, nor a port's.
fn check_names(
    config: &Config,
    router: &RouterSection,
    n: usize,
    at: &KeyPath,
    source: &Source,
) -> Result<(), ConfigError> {
    let InterfaceSection { number, name, .. } = &router.interface[n];
    if *number == 0 || *number > PortNo::MAX.0 {
        let message = format!("the number {number} of interface `{name}` is out of range");
        return Err(source.error(&at.key("number"), message, "take 1 to 65279"));
    }
    let ports = config.port.iter().map(|port| (port.number, port.name().into_owned()));
    let before = router.interface[..n].iter().map(|other| (other.number, other.name.clone()));
    for (other_number, other) in ports.chain(before) {
        if other_number == *number {
            let message = format!("`{other}` has the number {number}, too");
            return Err(source.error(&at.key("number"), message, "give each port and interface its own"));
        }
        if other == *name {
            let message = format!("two ports or interfaces are called `{name}`");
            return Err(source.error(&at.key("name"), message, "give each its own name"));
        }
    }
    Ok(())
}

/// An interface in a VLAN, and the actions of its frames.
fn vlan(vid: u16, at: &KeyPath, source: &Source) -> Result<(Link, String), ConfigError> {
    if vid >= VID_MAX {
        let message = format!("{vid} is no VLAN");
        return Err(source.error(&at.key("vlan"), message, "take 1 to 4094, or 0 for frames without a tag"));
    }
    let out = match vid {
        0 => "normal".to_owned(),
        vid => format!("push_vlan:0x8100,set_field:{}->vlan_vid,normal", vid | VID_PRESENT),
    };
    Ok((Link::Vlan(vid), out))
}

/// An interface at a tunnel, the actions of its frames, and the longest packet that fits into it.
fn tunnel(
    config: &Config,
    router: &RouterSection,
    (section, number): (&InterfaceSection, u32),
    outer_mtu: u16,
    at: &KeyPath,
    source: &Source,
) -> Result<(Link, String, Option<u16>), ConfigError> {
    let at = at.key("tunnel");
    let refused = |message: String, help: &str| Err(source.error(&at, message, help));
    let Some(place) = config.tunnel.iter().position(|tunnel| tunnel.number == number) else {
        return refused(format!("there is no tunnel {number}"), "declare it with [[tunnel]]");
    };
    let tunnel = &config.tunnel[place];
    let Some(remote) = tunnel.remote else {
        let message = format!("tunnel {number} has no other end that packets go to");
        return refused(message, "give the tunnel a remote address");
    };
    if let Some(in_port) = tunnel.in_port.filter(|in_port| *in_port != section.number) {
        let message =
            format!("tunnel {number} has in_port {in_port}, and its interface the number {}", section.number);
        return refused(message, "remove in_port from the tunnel");
    }
    if config.port.iter().all(|port| !port.decapsulate) {
        let message = format!("no packet comes out of tunnel {number}: no port takes packets out of tunnels");
        return refused(message, "add decapsulate = true to the port that its packets arrive at");
    }
    if router.interface.iter().filter(|other| other.tunnel == Some(number)).count() > 1 {
        return refused(format!("two interfaces are at tunnel {number}"), "give a tunnel one interface");
    }
    let path = KeyPath::section("tunnel", place);
    let Some(headers) = tunnels::ethernet_headers(tunnel, &path, source)? else {
        let message = format!("tunnel {number} carries no Ethernet frames");
        return refused(message, "give it inner = \"ethernet\", and another kind if it is gtpu");
    };
    let outer = tunnel.mtu.unwrap_or(outer_mtu);
    let ends = TunnelEnds { number, local: tunnel.local, remote, headers };
    let out = format!("encap:{number},set_field:{OWN_PACKETS}->in_port,resubmit(,{})", router.table);
    Ok((Link::Tunnel(ends), out, Some(outer.saturating_sub(headers))))
}

/// The longest packet that may carry a tunnel's: the smallest of ports and VLANs, whichever they are routed by.
fn outer_mtu(interfaces: &[Interface], router: &RouterSection) -> u16 {
    let of_ports = interfaces.iter().filter(|interface| interface.place().is_some());
    let of_vlans = router.interface.iter().filter(|section| section.vlan.is_some());
    let mtus = of_ports.map(|port| port.mtu).chain(of_vlans.map(|section| section.mtu.unwrap_or(MTU)));
    mtus.min().unwrap_or(MTU)
}

/// Gives packets of tunnels the `in_port` of their interface, and tunnels their MTU.
pub(super) fn set_tunnels(config: &mut Config, interfaces: &[Interface]) {
    for interface in interfaces {
        if let Link::Tunnel(ends) = interface.link
            && let Some(tunnel) = config.tunnel.iter_mut().find(|tunnel| tunnel.number == ends.number)
        {
            tunnel.in_port = Some(interface.number);
            // The router refuses packets that are too long before they enter the tunnel.
            tunnel.mtu = tunnel.mtu.or(Some(interface.mtu + ends.headers));
        }
    }
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
        PortSpec::Tap { name, .. } => Some(name),
        _ => kernel_interface(port),
    }
}

fn of_kernel(interface: &str, what: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).ok()
}

fn kernel_mac(interface: &str) -> Option<Mac> {
    read_host_mac(of_kernel(interface, "address")?.trim())
}

fn kernel_mtu(interface: &str) -> Option<u16> {
    let mtu: u32 = of_kernel(interface, "mtu")?.trim().parse().ok()?;
    Some(mtu.min(u16::MAX.into()) as u16)
}

/// A locally administered address that is the same at each start, and other on other machines. Two routers may be on one machine, or on
/// machines that are copies of another: on one link, their addresses of IP differ.
fn made_mac(name: &str, addresses: &[(IpAddr, u8)]) -> Mac {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (machine, name, addresses).hash(&mut hasher);
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
    fn made_addresses_are_of_single_stations_and_differ_by_name_and_address() {
        let own = |name, address: &str| made_mac(name, &[(address.parse().unwrap(), 24)]);
        let [lan, wan] = ["lan", "wan"].map(|name| own(name, "192.0.2.1"));
        assert!(lan != wan && lan == own("lan", "192.0.2.1"));
        // The other end of a link may have the name, too.
        assert!(lan != own("lan", "192.0.2.2"));
        assert_eq!(lan[0] & 3, 2);
    }
}
