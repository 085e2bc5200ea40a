//! Settings and VLANs of ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowlane::rule::action::PortNo;

use super::{BundleError, Control, Notice, References};
use crate::datapath::Ports;
use crate::ruleset::{PortFlags, PortVlans};
use crate::state::vlan::PortVlan;

/// A change of a port's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortChange {
    pub port: PortNo,
    /// The new values of the flags in `mask`.
    pub flags: PortFlags,
    /// The flags that change.
    pub mask: PortFlags,
}

/// A change of a port's VLAN settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanChange {
    pub port: PortNo,
    /// The new settings; `None`: it becomes a trunk of all VLANs.
    pub vlan: Option<Arc<PortVlan>>,
}

/// Returns the VLAN settings of the ports that have any.
pub(super) fn vlans_of(ports: &Ports) -> PortVlans {
    ports.slots().iter().filter_map(|slot| Some((slot.number.0, slot.vlan.clone()?))).collect()
}

impl Control {
    /// Accepts rules that send packets to ports which do not exist, as OpenFlow does: ports come and go there.
    pub fn accept_any_port(&mut self) {
        self.references.any_port = true;
    }

    /// Makes changes of ports to the standby, all or none. Nothing can be rejected after them: they are not undone.
    pub(super) fn apply_port_changes(
        &mut self,
        changes: &[PortChange],
        vlan_changes: &[VlanChange],
    ) -> Result<(), BundleError> {
        let References { mut ports, mut vlans, .. } = self.references.clone();
        for (at, &PortChange { port, flags, mask }) in changes.iter().enumerate() {
            let before = ports.get_mut(&port.0).ok_or(BundleError::Port { at, port })?;
            *before = PortFlags(before.0 & !mask.0 | flags.0 & mask.0);
        }
        for (at, VlanChange { port, vlan }) in (changes.len()..).zip(vlan_changes) {
            if !ports.contains_key(&port.0) {
                return Err(BundleError::Port { at, port: *port });
            }
            _ = match vlan {
                Some(vlan) => vlans.insert(port.0, vlan.clone()),
                None => vlans.remove(&port.0),
            };
        }
        if (&ports, &vlans) != (&self.references.ports, &self.references.vlans) {
            (self.references.ports, self.references.vlans) = (ports, vlans);
            self.apply_resources();
        }
        Ok(())
    }

    /// Returns the VLAN settings of the ports that have any.
    pub fn vlans(&self) -> &PortVlans {
        &self.references.vlans
    }

    /// Removes the learned addresses of VLANs that their port does not carry any more.
    pub(crate) fn forget_addresses(&self) {
        let vlans = &self.references.vlans;
        self.macs.retain(|vid, port| vlans.get(&port.0).is_none_or(|vlan| vlan.carries(vid)));
    }

    /// Reports the ports with other settings than before to controllers.
    pub(super) fn tell_changed_ports(&self, before: &BTreeMap<u32, PortFlags>) {
        for (&port, &flags) in &self.references.ports {
            if before.get(&port) != Some(&flags) {
                self.notices.push(Notice::PortChanged(PortNo(port), flags));
            }
        }
    }
}
