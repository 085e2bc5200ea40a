//! The links that packets of tunnels leave through.

use std::collections::BTreeSet;

use flowlane::rule::Action;
use flowlane::rule::action::PortNo;

use super::Setup;
use crate::port::PortSpec;

/// MTU of a tunnel whose packets leave through no interface: 1500 bytes inside VXLAN or GENEVE over IPv6, and some options.
const MTU_DEFAULT: u16 = 1600;

/// MTU of an interface that is made when its port is opened, as Linux sets it.
const MTU_OF_TAP: u16 = 1500;

impl Setup {
    /// The MTU of a tunnel that names none: the smallest of the interfaces that its packets leave through.
    pub(super) fn tunnel_mtu(&self, tunnel: u32) -> u16 {
        self.exits(tunnel).into_iter().filter_map(|port| self.link_mtu(port)).min().unwrap_or(MTU_DEFAULT)
    }

    /// The positions of the ports that packets of a tunnel leave through, by the outputs behind `encap`; of all ports where an
    /// action leaves the port open (`normal`, a later table, …).
    pub(super) fn exits(&self, tunnel: u32) -> BTreeSet<usize> {
        let mut exits = BTreeSet::new();
        for actions in self.action_lists() {
            let mut is_inside = false;
            for action in actions {
                match action {
                    Action::Encapsulate(number) => is_inside = *number == tunnel,
                    Action::Output(PortNo(number)) if is_inside => {
                        exits.extend(self.config.port.iter().position(|port| port.number == *number));
                    }
                    Action::Normal | Action::Flood | Action::InPort | Action::Goto(_) if is_inside => {
                        return (0..self.specs.len()).collect();
                    }
                    _ => {}
                }
            }
        }
        exits
    }

    /// The MTU of a port's interface; none for other ports, and for an interface that is not there.
    pub(super) fn link_mtu(&self, port: usize) -> Option<u16> {
        let of = |interface: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?;
            // Loopback has 65536.
            Some(text.trim().parse::<u32>().ok()?.min(u16::MAX.into()) as u16)
        };
        match self.specs.get(port)? {
            PortSpec::AfPacket { interface } | PortSpec::AfXdp { interface, .. } => of(interface),
            PortSpec::Tap { name, .. } => Some(of(name).unwrap_or(MTU_OF_TAP)),
            PortSpec::Pcap(_)
            | PortSpec::PcapOut(_)
            | PortSpec::Gen { .. }
            | PortSpec::Null
            | PortSpec::Patch { .. }
            | PortSpec::Tunnel(_) => None,
        }
    }

    /// The actions of all rules, verdicts and next hops.
    fn action_lists(&self) -> impl Iterator<Item = &[Action]> {
        let rules = self.rules.iter().map(|rule| &rule.actions[..]);
        let verdicts =
            self.stateful_stages.iter().flat_map(|stage| stage.actions().iter().map(Vec::as_slice));
        rules.chain(verdicts).chain(self.routes.iter().flat_map(|routes| routes.actions()))
    }
}
