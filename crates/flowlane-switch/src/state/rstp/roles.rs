//! The roles of ports (IEEE 802.1D-2004 §17.21.25): the one that is nearest to the root, those that lead from it, and the others.

use super::bridge::Rstp;
use super::port::{Information, Port, Role};
use super::{Times, Vector};

impl Rstp {
    /// Chooses roles again, where a port asks for it.
    pub(super) fn select_roles(&mut self) -> bool {
        if !self.ports.values().any(|port| port.reselect) {
            return false;
        }
        self.ports.values_mut().for_each(|port| port.reselect = false);
        let own = self.settings.id;
        let mut best = Vector { root: own, designated_bridge: own, ..Vector::default() };
        (self.root_port, self.root_times) = (None, self.settings.times);
        for (number, port) in &self.ports {
            let heard = port.port_priority;
            if port.info_is != Information::Received || heard.designated_bridge.mac() == own.mac() {
                continue;
            }
            let through = Vector { cost: heard.cost.saturating_add(port.settings.cost), ..heard };
            if through < best {
                best = through;
                self.root_port = Some(*number);
                let message_age = port.port_times.message_age + 1;
                self.root_times = Times { message_age, ..port.port_times };
            }
        }
        self.root_priority = best;
        let (root_times, hello) = (self.root_times, self.settings.times.hello);
        for (number, port) in &mut self.ports {
            port.designated_priority = Vector {
                designated_bridge: own,
                designated_port: port.settings.id,
                bridge_port: port.settings.id,
                ..best
            };
            port.designated_times = Times { hello, ..root_times };
            port.choose_role(self.root_port == Some(*number), own.mac());
        }
        self.ports.values_mut().for_each(|port| port.selected = true);
        true
    }
}

impl Port {
    fn choose_role(&mut self, is_root: bool, own_mac: u64) {
        let is_mine =
            self.port_priority == self.designated_priority && self.port_times == self.designated_times;
        (self.selected_role, self.updt_info) = match self.info_is {
            Information::Disabled => (Role::Disabled, false),
            Information::Aged => (Role::Designated, true),
            Information::Mine => (Role::Designated, !is_mine),
            Information::Received if is_root => (Role::Root, false),
            Information::Received if self.designated_priority < self.port_priority => {
                (Role::Designated, true)
            }
            Information::Received if self.port_priority.designated_bridge.mac() == own_mac => {
                (Role::Backup, false)
            }
            Information::Received => (Role::Alternate, false),
        };
    }
}
