//! Ports: their descriptions and changes.

use flowlane_openflow::port::{Port, PortMod, features, state};
use flowlane_openflow::{ErrorCode, Version};

use super::service::{PortState, Service};
use crate::control::PortChange;
use crate::mgmt::rpc::local_mac;
use crate::port::device::LinkMode;
use crate::ruleset::PortFlags;

/// The settings that a version knows; bits beyond are ignored, as in Open vSwitch.
fn known(version: Version) -> u16 {
    match version {
        Version::OpenFlow10 => 0x7f,
        Version::OpenFlow13 | Version::OpenFlow14 | Version::OpenFlow15 => {
            let flags =
                [PortFlags::DOWN, PortFlags::NO_RECEIVE, PortFlags::NO_FORWARD, PortFlags::NO_PACKET_IN];
            flags.into_iter().fold(0, |all, flag| all | flag.0)
        }
    }
}

/// The address of a port: that of its interface, or a local one that says its number.
fn hw_addr(port: &PortState) -> [u8; 6] {
    port.link.and_then(|link| link.mac).unwrap_or_else(|| local_mac(port.number))
}

/// The bits of the mode that a link is in, and its speed in Mb/s; 0 where they are unknown.
fn features_in_use(mode: LinkMode) -> (u32, u32) {
    let Some(speed_mbps) = mode.speed_mbps else { return (0, 0) };
    let speed = match (speed_mbps, mode.is_full_duplex) {
        (10, false) => features::HALF_10MB,
        (10, true) => features::FULL_10MB,
        (100, false) => features::HALF_100MB,
        (100, true) => features::FULL_100MB,
        (1000, false) => features::HALF_1GB,
        (1000, true) => features::FULL_1GB,
        (10_000, _) => features::FULL_10GB,
        (40_000, _) => features::FULL_40GB,
        (100_000, _) => features::FULL_100GB,
        (1_000_000, _) => features::FULL_1TB,
        _ => features::OTHER,
    };
    (speed | if mode.is_copper { features::COPPER } else { features::FIBER }, speed_mbps)
}

/// Describes a port in a version.
pub(super) fn description(port: &PortState, version: Version) -> Port {
    let state = match (port.is_up, version) {
        (false, _) => state::LINK_DOWN,
        (true, Version::OpenFlow10) => 0,
        (true, _) if port.flags.has_any(PortFlags::NOT_LIVE) => 0,
        (true, Version::OpenFlow13 | Version::OpenFlow14 | Version::OpenFlow15) => state::LIVE,
    };
    let (current, speed_mbps) = port.link.and_then(|link| link.mode).map_or((0, 0), features_in_use);
    let is_disabled = port.link.is_some_and(|link| !link.is_enabled);
    let flags = if is_disabled { port.flags.0 | PortFlags::DOWN.0 } else { port.flags.0 };
    Port {
        number: port.number,
        hw_addr: hw_addr(port),
        name: port.name.chars().take(15).collect(),
        config: (flags & known(version)).into(),
        state,
        current,
        advertised: 0,
        supported: 0,
        peer: 0,
        speed_kbps: speed_mbps.saturating_mul(1000),
        max_speed_kbps: 0,
    }
}

/// Reads a change of a port's settings. Ports have no speeds to advertise: a list of them is ignored, as Open vSwitch does where a
/// device has none.
pub(super) fn change(
    service: &Service,
    version: Version,
    request: &PortMod,
) -> Result<PortChange, ErrorCode> {
    let port = request.port;
    let ports = service.ports();
    let state = ports.iter().find(|one| one.number == port).ok_or(ErrorCode::PortModBadPort)?;
    if request.hw_addr != hw_addr(state) {
        return Err(ErrorCode::PortModBadHwAddr);
    }
    let bits = |bits: u32| PortFlags(bits as u16 & known(version));
    Ok(PortChange { port, flags: bits(request.config), mask: bits(request.mask) })
}
