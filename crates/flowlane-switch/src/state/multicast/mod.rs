//! Multicast snooping for the `normal` action: which ports want the packets of a group (RFC 4541).
//!
//! Hosts say by IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) which groups they listen to, and routers ask. Both are read on their
//! way, so that a packet for a group goes to its listeners and the routers instead of all ports:
//!
//! | frame | learned | sent to |
//! |---|---|---|
//! | report: a host listens to a group, or leaves it | its port, as a listener | ports of routers, and those of `report_ports` |
//! | query with a source address | its port, as that of a router for 180 s | all ports |
//! | packet for 224.0.0.0/24 or ff02::1, other IGMP | | all ports |
//! | packet for a group that has listeners | | their ports, those of routers, and those of `flood_ports` |
//! | packet for another group | | all ports; or, if the bridge does not flood such, as above |
//!
//! All of it is per VLAN, and no packet goes back. Rules and timeouts are those of Open vSwitch 3.1. Its lists may send a
//! packet twice through a port that has become that of a router; here each port is named once.
//!
//! **Bounds.** The table has at most `groups_max` groups, of which the one that was reported longest ago makes room. A group has a port
//! once, and a VLAN has the port of a router once. Messages with a wrong checksum, cut off, or as fragments change nothing, nor
//! do reports of addresses that are no groups.
//!
//! Workers share one table behind a lock: packets for groups read it, reports and queries write it. `normal` is executed for
//! each packet, so no cached path depends on the table.

mod message;
mod table;

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use flowlane::rule::action::PortNo;

pub use message::{GroupFrame, Memberships, read};
pub use table::{Listener, RouterPort};

use table::Table;

/// Seconds after which the port of a router that has not asked is forgotten.
pub const ROUTER_AGEING_S: u32 = 180;

/// The settings of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnoopingSettings {
    /// The groups in the table; a group counts once for each VLAN.
    pub groups_max: usize,
    /// Seconds after which a listener that has not reported is forgotten.
    pub ageing_s: u32,
    /// Packets for groups without listeners go to all ports.
    pub floods_unregistered: bool,
    /// Ports that get all packets for groups. No listeners and routers are learned there.
    pub flood_ports: BTreeSet<PortNo>,
    /// Ports that get reports as those of routers do. Listeners there leave groups by age only.
    pub report_ports: BTreeSet<PortNo>,
}

impl Default for SnoopingSettings {
    /// The defaults of Open vSwitch.
    fn default() -> Self {
        let (flood_ports, report_ports) = (BTreeSet::new(), BTreeSet::new());
        Self { groups_max: 2048, ageing_s: 300, floods_unregistered: true, flood_ports, report_ports }
    }
}

#[derive(Debug)]
struct Inner {
    settings: SnoopingSettings,
    table: Table,
}

/// The listeners and routers of a bridge, which all workers share.
#[derive(Debug)]
pub struct Snooping {
    inner: RwLock<Inner>,
    /// The second of the last sweep.
    swept_s: AtomicU32,
}

impl Snooping {
    /// Makes an empty table.
    pub fn new(settings: SnoopingSettings) -> Self {
        let inner = RwLock::new(Inner { settings, table: Table::default() });
        Self { inner, swept_s: AtomicU32::new(0) }
    }

    fn lock(&self) -> RwLockReadGuard<'_, Inner> {
        // Nothing panics while it is locked.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_to_change(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings.
    pub fn settings(&self) -> SnoopingSettings {
        self.lock().settings.clone()
    }

    /// Changes the settings. Groups beyond a lower limit are forgotten.
    pub fn configure(&self, settings: SnoopingSettings) {
        let inner = &mut *self.lock_to_change();
        inner.table.shrink(settings.groups_max);
        inner.settings = settings;
    }

    /// Learns from a frame that came in through a port.
    pub fn learn(&self, frame: &GroupFrame<'_>, vid: u16, port: PortNo, now_s: u32) {
        match frame {
            GroupFrame::Report(memberships) => {
                let inner = &mut *self.lock_to_change();
                inner.learn_listener(*memberships, vid, port, now_s);
            }
            GroupFrame::Query { is_of_router: true } => {
                let Inner { settings, table } = &mut *self.lock_to_change();
                if !settings.flood_ports.contains(&port) {
                    table.note_router(vid, port, now_s);
                }
            }
            GroupFrame::Query { .. } | GroupFrame::OfLink | GroupFrame::ToGroup(_) => {}
        }
    }

    /// Lists the ports that a frame goes to in a VLAN, each once, the one that it came in through included. Returns whether these are all:
    /// else it goes to all ports.
    pub fn ports_for(&self, frame: &GroupFrame<'_>, vid: u16, now_s: u32, ports: &mut Vec<PortNo>) -> bool {
        ports.clear();
        let Inner { settings, table } = &*self.lock();
        match frame {
            GroupFrame::Query { .. } | GroupFrame::OfLink => return false,
            GroupFrame::Report(_) => ports.extend(&settings.report_ports),
            GroupFrame::ToGroup(group) => {
                ports.extend(table.listeners(*group, vid, now_s, settings.ageing_s));
                if ports.is_empty() && settings.floods_unregistered {
                    return false;
                }
                ports.extend(&settings.flood_ports);
            }
        }
        ports.extend(table.routers(vid, now_s));
        ports.sort_unstable();
        ports.dedup();
        true
    }

    /// Forgets what has been learned at ports and in VLANs that `keep` refuses.
    pub fn retain(&self, keep: impl Fn(u16, PortNo) -> bool) {
        self.lock_to_change().table.retain(keep);
    }

    /// Forgets all listeners and routers.
    pub fn flush(&self) {
        self.lock_to_change().table = Table::default();
    }

    /// Removes what has become too old, once a second.
    pub fn sweep(&self, now_s: u32) {
        if self.swept_s.swap(now_s, Ordering::Relaxed) == now_s {
            return;
        }
        let is_old = {
            let Inner { settings, table } = &*self.lock();
            table.has_old(now_s, settings.ageing_s)
        };
        if is_old {
            let Inner { settings, table } = &mut *self.lock_to_change();
            table.sweep(now_s, settings.ageing_s);
        }
    }

    /// Returns the second of the last sweep.
    pub fn swept_s(&self) -> u32 {
        self.swept_s.load(Ordering::Relaxed)
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.lock().table.len()
    }

    /// Returns whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lists the listeners, by group, those reported longest ago first.
    pub fn list(&self, now_s: u32) -> Vec<Listener> {
        let Inner { settings, table } = &*self.lock();
        table.list(now_s, settings.ageing_s)
    }

    /// Lists the ports of routers, those heard longest ago first.
    pub fn list_routers(&self, now_s: u32) -> Vec<RouterPort> {
        self.lock().table.list_routers(now_s)
    }

    /// Learns listeners and routers of another table, whose ages are as listed.
    pub fn restore(&self, listeners: &[Listener], routers: &[RouterPort], now_s: u32) {
        let Inner { settings, table } = &mut *self.lock_to_change();
        for one in listeners {
            let group = (one.group, one.vid);
            table.join(group, one.port, now_s.saturating_sub(one.age_s), settings);
        }
        for one in routers {
            table.note_router(one.vid, one.port, now_s.saturating_sub(one.age_s));
        }
    }
}

impl Inner {
    fn learn_listener(&mut self, memberships: Memberships<'_>, vid: u16, port: PortNo, now_s: u32) {
        let Self { settings, table } = self;
        // These get the packets in any case.
        if settings.flood_ports.contains(&port) {
            return;
        }
        for (group, listens) in memberships.filter(|(group, _)| is_group(group)) {
            match listens {
                true if table.has_router(vid, port, now_s) => {}
                true => table.join((group, vid), port, now_s, settings),
                // There may be several hosts behind it.
                false if settings.report_ports.contains(&port) => {}
                false => table.leave((group, vid), port),
            }
        }
    }
}

/// Returns whether an address, of IPv4 as IPv6 holds it, is that of a group.
fn is_group(address: &Ipv6Addr) -> bool {
    address.to_ipv4_mapped().map_or(address.is_multicast(), |address| address.is_multicast())
}

#[cfg(test)]
pub(crate) mod tests;
