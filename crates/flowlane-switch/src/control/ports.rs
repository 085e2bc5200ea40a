//! Settings of ports.

use std::collections::BTreeMap;

use flowlane::rule::action::PortNo;

use super::{BundleError, Control, Notice};
use crate::ruleset::PortFlags;

/// A change of a port's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortChange {
    pub port: PortNo,
    /// The new values of the flags in `mask`.
    pub flags: PortFlags,
    /// The flags that change.
    pub mask: PortFlags,
}

impl Control {
    /// Makes changes of ports to the standby, all or none. Nothing can be rejected after them: they are not undone.
    pub(super) fn apply_port_changes(&mut self, changes: &[PortChange]) -> Result<(), BundleError> {
        let mut ports = self.references.ports.clone();
        for (at, &PortChange { port, flags, mask }) in changes.iter().enumerate() {
            let before = ports.get_mut(&port.0).ok_or(BundleError::Port { at, port })?;
            *before = PortFlags(before.0 & !mask.0 | flags.0 & mask.0);
        }
        if ports != self.references.ports {
            self.references.ports = ports;
            self.apply_resources();
        }
        Ok(())
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
