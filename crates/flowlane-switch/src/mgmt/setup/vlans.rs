//! VLAN settings of ports.

use std::sync::Arc;

use super::Setup;
use crate::mgmt::config::{Config, ConfigError, KeyPath, PortSection, Source};
use crate::ruleset::PortVlans;
use crate::state::vlan::{PortVlan, VID_MAX, VlanMode};

/// Checks the VLAN settings of all ports.
pub(super) fn check(config: &Config, source: &Source) -> Result<(), ConfigError> {
    let mut ports = config.port.iter().enumerate();
    ports.try_for_each(|(n, port)| check_port(port, &KeyPath::section("port", n), source))
}

/// Returns the settings of a port that have been checked; `None` where it has none.
pub(crate) fn of(port: &PortSection) -> Option<Arc<PortVlan>> {
    let mode = mode_of(port);
    let is_plain = mode == VlanMode::Trunk && port.trunks.is_empty() && !port.protected;
    let carried = if mode == VlanMode::Dot1qTunnel { &port.cvlans } else { &port.trunks };
    let settings = || PortVlan::new(mode, port.tag.unwrap_or(0), carried).protected(port.protected);
    (!is_plain).then(|| Arc::new(settings()))
}

fn mode_of(port: &PortSection) -> VlanMode {
    let default = if port.tag.is_some() { VlanMode::Access } else { VlanMode::Trunk };
    port.vlan_mode.unwrap_or(default)
}

fn check_port(port: &PortSection, at: &KeyPath, source: &Source) -> Result<(), ConfigError> {
    let numbers = |key, list: &[u16]| {
        let too_large = list.iter().enumerate().find(|(_, vid)| **vid > VID_MAX);
        too_large.map_or(Ok(()), |(n, vid)| Err(not_a_vlan(*vid, &at.key(key).item(n), source)))
    };
    if let Some(tag) = port.tag.filter(|tag| *tag > VID_MAX) {
        return Err(not_a_vlan(tag, &at.key("tag"), source));
    }
    numbers("trunks", &port.trunks)?;
    numbers("cvlans", &port.cvlans)?;
    let mode = mode_of(port);
    let (number, name) = (port.number, mode.name());
    let is_trunk = !matches!(mode, VlanMode::Access | VlanMode::Dot1qTunnel);
    let (key, message, help) = match (mode, port.tag) {
        (VlanMode::Trunk, Some(tag)) => (
            "tag",
            format!("port {number} is a trunk, which has no VLAN of its own, and has the tag {tag}"),
            "leave tag out, or take vlan_mode = \"native-untagged\" or \"native-tagged\"",
        ),
        (VlanMode::Dot1qTunnel, Some(0)) => (
            "tag",
            format!("port {number} is a tunnel of VLAN 0, which has no header"),
            "take tag = 1 to 4095",
        ),
        (mode, None) if mode != VlanMode::Trunk => {
            ("vlan_mode", format!("port {number} is of vlan_mode {name} and has no VLAN"), "add tag = VLAN")
        }
        _ if !is_trunk && !port.trunks.is_empty() => (
            "trunks",
            format!(
                "port {number} is of vlan_mode {name}, which carries the VLAN of its tag alone, and has trunks"
            ),
            "leave trunks out, or take vlan_mode = \"native-untagged\" or \"native-tagged\"",
        ),
        _ if mode != VlanMode::Dot1qTunnel && !port.cvlans.is_empty() => (
            "cvlans",
            format!("port {number} is of vlan_mode {name}, which has no customer VLANs"),
            "leave cvlans out, or take vlan_mode = \"dot1q-tunnel\"",
        ),
        _ => return Ok(()),
    };
    Err(source.error(&at.key(key), message, help))
}

fn not_a_vlan(vid: u16, at: &KeyPath, source: &Source) -> ConfigError {
    source.error(at, format!("{vid} is no VLAN"), "take 0 to 4095")
}

impl Setup {
    /// Returns the VLAN settings of the ports that have any, by number.
    pub(super) fn vlans(&self) -> PortVlans {
        self.config.port.iter().filter_map(|port| Some((port.number, of(port)?))).collect()
    }
}
