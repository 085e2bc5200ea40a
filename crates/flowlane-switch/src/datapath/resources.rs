//! What workers take with a newer ruleset.

use std::sync::Arc;

use super::egress::Egress;
use super::{Pipeline, Worker};
use crate::ruleset::{PortFlags, Resources};
use crate::state::meter::Meter;

impl Worker {
    /// Takes the newest ruleset between two bursts, with its resources.
    #[inline]
    pub(super) fn follow(&mut self) {
        if self.lookup.follow(self.now_ns()) {
            self.take_resources();
        }
    }

    #[cold]
    fn take_resources(&mut self) {
        if let Some(resources) = self.lookup.pipeline.ruleset().resources() {
            self.egress.take(resources);
            self.lookup.pipeline.meters = resources.meters.clone();
        }
    }
}

impl Pipeline {
    /// Returns whether a meter may change packets.
    pub(super) fn may_remark(&self, meter: u32) -> bool {
        self.meters.get(meter).is_some_and(|meter| meter.remarks())
    }
}

impl Egress {
    /// Adds a meter before the worker runs; later ones come with the ruleset.
    pub fn add_meter(&mut self, number: u32, meter: Arc<Meter>) {
        self.meters.insert(number, meter);
    }

    fn take(&mut self, resources: &Resources) {
        self.meters = resources.meters.clone();
        self.mirroring.set(resources.mirrors.clone());
        for slot in self.ports.iter_mut() {
            let flags = resources.ports.get(&slot.number.0).copied().unwrap_or_default();
            // The spanning tree does not come with the ruleset.
            slot.flags = flags.with(slot.flags, PortFlags::OF_TREE);
            slot.take_mirrors(self.mirroring.mirrors());
            slot.take_policers(resources.policing.get(&slot.number.0));
        }
        self.port_tunnels.policy.option_fields = resources.options.clone();
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.set_option_fields(resources.options.clone());
        }
        self.ports.set_vlans(&resources.vlans);
    }
}
