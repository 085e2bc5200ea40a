//! Settings of interfaces and of the table of addresses that the database asks for (ovs-vswitchd.conf.db(5)).

use std::io;
use std::sync::Arc;

use flowlane_ovsdb::{Atom, Row};

use super::model::InterfaceSpec;
use crate::port::device;
use crate::state::vlan::{VID_MAX, Vlans};

/// The MTU of interfaces of bridges that are asked for none any more, in bytes.
const MTU_DEFAULT: u32 = 1500;

/// The settings of a bridge's table of addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FdbSettings {
    pub(super) entries_max: usize,
    pub(super) ageing_s: u32,
    /// The VLANs that are flooded, if there are any (`flood_vlans`).
    pub(super) flooded: Option<Arc<Vlans>>,
}

impl Default for FdbSettings {
    fn default() -> Self {
        Self { entries_max: 8192, ageing_s: 300, flooded: None }
    }
}

impl FdbSettings {
    /// Reads `flood_vlans`, `other_config:mac-table-size` and `other_config:mac-aging-time` (seconds), within Open vSwitch's bounds.
    pub(super) fn read(bridge: &Row) -> Self {
        let default = Self::default();
        let config = bridge.get("other_config");
        let number = |key| config.get(key).and_then(|text| text.parse::<u32>().ok());
        let entries = number("mac-table-size").map_or(default.entries_max, |size| size as usize);
        let ageing_s = number("mac-aging-time").unwrap_or(default.ageing_s);
        let vid = |vid: &Atom| if let Atom::Integer(vid) = vid { u16::try_from(*vid).ok() } else { None };
        let flooded: Vec<u16> =
            bridge.get("flood_vlans").atoms().filter_map(vid).filter(|vid| *vid <= VID_MAX).collect();
        Self {
            entries_max: entries.clamp(10, 1_000_000),
            ageing_s: ageing_s.clamp(15, 3600),
            flooded: (!flooded.is_empty()).then(|| Arc::new(Vlans::of(flooded))),
        }
    }
}

/// Makes the settings of an open interface those that are asked for now; `before` are those that it follows already. Returns whether
/// there was anything to set.
///
/// # Errors
/// What the system refuses.
pub(super) fn follow(before: Option<&InterfaceSpec>, now: &InterfaceSpec) -> Result<bool, String> {
    if !now.has_link() {
        return Ok(false);
    }
    let failed = |what: &str, error: io::Error| format!("{}: {what} cannot be set: {error}", now.name);
    let is_internal = now.kind == "internal";
    let mac_before = before.and_then(|before| before.mac);
    let new_mac = now.mac.filter(|mac| is_internal && mac_before != Some(*mac));
    if let Some(mac) = new_mac {
        device::set_mac(&now.name, mac).map_err(|error| failed("the address", error))?;
    }
    let mtu_before = before.and_then(|before| before.mtu_request);
    if now.mtu_request == mtu_before {
        return Ok(new_mac.is_some());
    }
    match now.mtu_request {
        Some(mtu) => device::set_mtu(&now.name, mtu).map_err(|error| failed(&format!("MTU {mtu}"), error)),
        None if is_internal => {
            device::set_mtu(&now.name, MTU_DEFAULT).map_err(|error| failed("the MTU", error))
        }
        None => Ok(()),
    }?;
    Ok(true)
}
