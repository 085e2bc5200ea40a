//! Mirrors and policers of ports, which workers take with the ruleset.

use std::sync::Arc;

use flowlane::rule::action::PortNo;

use super::Control;
use crate::state::mirror::Mirrors;
use crate::state::policer::PortPolicers;

impl Control {
    /// Makes the workers copy packets as these mirrors say; none: no packets. Addresses that were learned at ports that are outputs of
    /// mirrors now are forgotten.
    pub fn set_mirrors(&mut self, mirrors: Option<Arc<Mirrors>>) {
        self.references.mirrors.clone_from(&mirrors);
        self.publish_resources();
        if let Some(mirrors) = mirrors {
            self.macs.retain(|_, port| mirrors.output_ports().all(|output| output != port));
        }
    }

    /// Limits the packets that a port receives and sends; none: no more.
    pub fn set_policers(&mut self, port: PortNo, policers: Option<Arc<PortPolicers>>) {
        let policing = &mut self.references.policing;
        _ = match policers {
            Some(policers) => policing.insert(port.0, policers),
            None => policing.remove(&port.0),
        };
        self.publish_resources();
    }
}
