//! The ports of a bridge: their numbers, interfaces and settings.

use std::time::Duration;
use std::time::Instant;

use flowlane::rule::action::PortNo;
use serde_json::to_value;

use super::{Bridge, LINK_TIMEOUT, vlan_of};
use crate::mgmt::config::PortSection;
use crate::mgmt::rpc::Link;
use crate::mgmt::vswitchd::model::InterfaceSpec;
use crate::mgmt::vswitchd::settings;

impl Bridge {
    /// Gives the interface of a port its settings, and waits until the system has reported them.
    pub(super) fn follow_settings(&mut self, before: Option<&InterfaceSpec>, now: &InterfaceSpec) {
        match settings::follow(before, now) {
            Ok(false) => {}
            Ok(true) => self.wait_for_link(&now.name, |link| {
                now.mtu_request.is_none_or(|mtu| link.mtu == Some(mtu))
                    && now.mac.is_none_or(|mac| link.mac == Some(mac))
            }),
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Waits until the link of an interface is known and as wanted, or for a while.
    pub(super) fn wait_for_link(&self, name: &str, is_wanted: impl Fn(&Link) -> bool) {
        let begun = Instant::now();
        while self.links.is_some()
            && !self.served.link(name).is_some_and(|link| is_wanted(&link))
            && begun.elapsed() < LINK_TIMEOUT
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn open(&self, interface: &InterfaceSpec, number: u32) -> Result<u32, String> {
        let section = interface.section(number)?;
        let value = to_value(&section).map_err(|error| error.to_string())?;
        self.served.add_port(value).map(|report| report.number).map_err(|error| {
            let is_missing = interface.is_of_system() && self.served.link(&interface.name).is_none();
            match is_missing {
                true => format!("could not open network device {} (No such device)", interface.name),
                false => error.message,
            }
        })
    }

    /// The number of a port: LOCAL for the bridge's own, the requested one, the one that it had, or the lowest that is free.
    pub(super) fn number_for(&self, bridge: &str, interface: &InterfaceSpec) -> u32 {
        if interface.name == bridge {
            return PortNo::LOCAL.0;
        }
        let is_free = |number: &u32| {
            (1..=PortNo::MAX.0).contains(number) && self.ports.values().all(|port| port.opened != Ok(*number))
        };
        let before = interface.ofport.and_then(|number| u32::try_from(number).ok());
        let mut wished = interface.ofport_request.into_iter().chain(before).chain(1..=PortNo::MAX.0);
        wished.find(is_free).unwrap_or(PortNo::MAX.0)
    }

    pub(super) fn follow_vlan(&self, number: u32, before: &InterfaceSpec, now: &InterfaceSpec) {
        let section = |of: &InterfaceSpec| -> Option<PortSection> { of.section(number).ok() };
        let (Some(before), Some(now)) = (section(before), section(now)) else { return };
        if vlan_of(&before) != vlan_of(&now) {
            self.served.set_vlan(now);
        }
    }
}
