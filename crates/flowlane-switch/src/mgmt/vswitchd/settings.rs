//! Settings of interfaces and of the table of addresses that the database asks for (ovs-vswitchd.conf.db(5)).

use std::io;

use flowlane_ovsdb::Row;

use super::model::InterfaceSpec;
use crate::port::device;

/// The MTU of interfaces of bridges that are asked for none any more, in bytes.
const MTU_DEFAULT: u32 = 1500;

/// The limits of a bridge's table of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FdbLimits {
    pub(super) entries_max: usize,
    pub(super) ageing_s: u32,
}

impl Default for FdbLimits {
    fn default() -> Self {
        Self { entries_max: 8192, ageing_s: 300 }
    }
}

impl FdbLimits {
    /// Reads `other_config:mac-table-size` and `other_config:mac-aging-time` (seconds), within Open vSwitch's bounds.
    pub(super) fn read(bridge: &Row) -> Self {
        let default = Self::default();
        let config = bridge.get("other_config");
        let number = |key| config.get(key).and_then(|text| text.parse::<u32>().ok());
        let entries = number("mac-table-size").map_or(default.entries_max, |size| size as usize);
        let ageing_s = number("mac-aging-time").unwrap_or(default.ageing_s);
        Self { entries_max: entries.clamp(10, 1_000_000), ageing_s: ageing_s.clamp(15, 3600) }
    }
}

/// Reads an Ethernet address of a host; none where the text is no such address.
pub(super) fn mac_of(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2) && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    let is_of_host = mac[0] & 1 == 0 && mac != [0; 6];
    (parts.next().is_none() && is_of_host).then_some(mac)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_hosts_are_read() {
        assert_eq!(mac_of("02:00:00:00:00:42"), Some([2, 0, 0, 0, 0, 0x42]));
        assert_eq!(mac_of("2:0:0:0:0:a"), Some([2, 0, 0, 0, 0, 10]));
        for wrong in
            ["", "02:00", "01:00:00:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00:42:00", "02:+1:0:0:0:0"]
        {
            assert_eq!(mac_of(wrong), None, "{wrong}");
        }
    }
}
