//! Settings of ports.

use flowlane::rule::action::PortNo;

use super::flow_mods::Made;
use super::{Control, Notice};
use crate::ruleset::PortFlags;

impl Control {
    /// Sets those flags of a port that are in `mask`, waits until no packet meets the former ones, and reports a change to
    /// controllers. Returns whether there is such a port.
    pub fn change_port(&mut self, port: PortNo, flags: PortFlags, mask: PortFlags) -> bool {
        let Some(&before) = self.references.ports.get(&port.0) else { return false };
        let after = PortFlags(before.0 & !mask.0 | flags.0 & mask.0);
        if after != before {
            self.reclaim();
            self.catch_up();
            self.references.ports.insert(port.0, after);
            self.publish_resources(&Made::default(), self.readers.now_ns());
            self.notices.push(Notice::PortChanged(port, after));
        }
        true
    }
}
