//! Ports: those that come and go, their settings, links and VLANs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use flowlane::rule::Action;
use flowlane::rule::action::{PortNo, Reference};

use super::{BundleError, Control, Notice, References, Refusal};
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
    ports.iter().filter_map(|slot| Some((slot.number.0, slot.vlan.clone()?))).collect()
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
            *before = before.with(flags, PortFlags(mask.0 & PortFlags::SETTINGS.0));
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

    /// Lets rules name a port that the workers have, and reports it to controllers. One of its number that was there keeps its settings.
    pub(crate) fn add_port(
        &mut self,
        port: PortNo,
        name: &str,
        flags: PortFlags,
        vlan: Option<Arc<PortVlan>>,
    ) {
        let References { ports, vlans, .. } = &mut self.references;
        let before = ports.get(&port.0).copied();
        // The settings of an administrator stay, the link is that of the new device.
        let now = before.map_or(flags, |before| before.with(flags, PortFlags::STATES));
        ports.insert(port.0, now);
        _ = match vlan {
            Some(vlan) => vlans.insert(port.0, vlan),
            None => vlans.remove(&port.0),
        };
        self.publish_resources();
        match before {
            None => self.notices.push(Notice::PortAdded { port, name: name.to_owned(), flags: now }),
            Some(_) => self.notices.push(Notice::PortChanged(port, now)),
        }
    }

    /// Makes the switch forget a port, which the workers still have, and reports it to controllers by its name.
    ///
    /// # Errors
    /// Where a rule or group names the port, unless rules may name ports that are not there, as those of controllers.
    pub(crate) fn remove_port(&mut self, port: PortNo, name: &str) -> Result<(), Refusal> {
        if !self.references.any_port
            && let Some(user) = self.user_of(port)
        {
            return Err(Refusal::PortInUse { port: port.0, user });
        }
        let References { ports, vlans, policing, .. } = &mut self.references;
        if let Some(flags) = ports.remove(&port.0) {
            vlans.remove(&port.0);
            policing.remove(&port.0);
            self.publish_resources();
            self.macs.retain(|_, learned| learned != port);
            self.notices.push(Notice::PortRemoved { port, name: name.to_owned(), flags });
        }
        Ok(())
    }

    /// A rule or group that names a port.
    fn user_of(&self, port: PortNo) -> Option<String> {
        fn names(actions: &[Action], port: PortNo) -> bool {
            let is_it = |reference| matches!(reference, Reference::Port(one) if one == port);
            let named =
                |action: &Action| action.references().into_iter().any(is_it) || names(action.nested(), port);
            actions.iter().any(named)
        }
        let ruleset = self.ruleset();
        let mut rules = ruleset.tables().flat_map(|(_, table)| table.rules());
        let rule = rules.find(|(_, entry)| names(&entry.rule.actions, port));
        let of_rule = rule.map(|(_, entry)| format!("rule `{}`", entry.rule));
        of_rule.or_else(|| {
            let names = |group: &flowlane::rule::group::Group| {
                group.buckets.iter().any(|bucket| names(&bucket.actions, port))
            };
            ruleset
                .groups()
                .iter()
                .find(|(_, group)| names(&group.group))
                .map(|(id, _)| format!("group {id}"))
        })
    }

    /// Reports a port to controllers that has another name.
    pub(crate) fn tell_port(&self, port: PortNo) {
        if let Some(flags) = self.references.ports.get(&port.0) {
            self.notices.push(Notice::PortChanged(port, *flags));
        }
    }

    /// Notes which ports have a link, and reports those that changed to controllers.
    pub(crate) fn set_links(&mut self, links: &[(PortNo, bool)]) {
        self.set_states(links, PortFlags::NO_LINK);
    }

    /// Notes which ports reach their other end, and reports those that changed to controllers.
    pub(crate) fn set_paths(&mut self, paths: &[(PortNo, bool)]) {
        self.set_states(paths, PortFlags::NO_PATH);
    }

    /// Notes which ports are well, and gives a flag to the others.
    fn set_states(&mut self, states: &[(PortNo, bool)], flag: PortFlags) {
        let before = self.references.ports.clone();
        for (port, is_well) in states {
            if let Some(flags) = self.references.ports.get_mut(&port.0) {
                let state = if *is_well { PortFlags::default() } else { flag };
                *flags = flags.with(state, flag);
            }
        }
        if before != self.references.ports {
            self.publish_resources();
            self.tell_changed_ports(&before);
        }
    }

    /// Publishes the present resources, and waits until no packet meets the former ones.
    pub(super) fn publish_resources(&mut self) {
        let applied = self.publish_made(|control, _, _| {
            control.apply_resources();
            Ok::<_, Infallible>(())
        });
        let Ok(_) = applied;
        self.wait();
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
            if before.get(&port).is_some_and(|before| *before != flags) {
                self.notices.push(Notice::PortChanged(PortNo(port), flags));
            }
        }
    }
}
