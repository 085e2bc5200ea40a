//! The table of listeners and routers.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;

use flowlane::rule::action::PortNo;

use super::{ROUTER_AGEING_S, SnoopingSettings};

/// A group in a VLAN.
type GroupKey = (Ipv6Addr, u16);

/// A port where a group has listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    /// An address of IPv4 is mapped to IPv6.
    pub group: Ipv6Addr,
    pub vid: u16,
    pub port: PortNo,
    /// Seconds since the last report.
    pub age_s: u32,
}

/// A port behind which a router is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterPort {
    pub vid: u16,
    pub port: PortNo,
    /// Seconds since the last query.
    pub age_s: u32,
}

/// A group with listeners.
#[derive(Debug, Default)]
struct Group {
    /// Ports and the times of their last reports, the latest at the end.
    ports: Vec<(PortNo, u32)>,
    /// Its place in the order of reports.
    place: u64,
}

/// Groups and routers.
#[derive(Debug, Default)]
pub(super) struct Table {
    groups: HashMap<GroupKey, Group>,
    /// The groups in the order of their last reports.
    order: BTreeMap<u64, GroupKey>,
    next_place: u64,
    /// The times of the last queries.
    routers: BTreeMap<(u16, PortNo), u32>,
}

fn is_old(seen_s: u32, now_s: u32, ageing_s: u32) -> bool {
    now_s.saturating_sub(seen_s) >= ageing_s
}

impl Table {
    /// Notes that a port listens to a group. Of a full table, the group that was reported longest ago goes.
    pub(super) fn join(&mut self, key: GroupKey, port: PortNo, seen_s: u32, settings: &SnoopingSettings) {
        if !self.groups.contains_key(&key) {
            self.shrink(settings.groups_max.saturating_sub(1));
        }
        let group = self.groups.entry(key).or_default();
        let before = group.ports.iter().find(|(known, _)| *known == port).map_or(0, |(_, seen_s)| *seen_s);
        group.ports.retain(|(known, at_s)| *known != port && !is_old(*at_s, seen_s, settings.ageing_s));
        group.ports.push((port, seen_s.max(before)));
        self.order.remove(&group.place);
        self.next_place += 1;
        group.place = self.next_place;
        self.order.insert(group.place, key);
    }

    /// Notes that a port does not listen to a group any more. A group without ports goes.
    pub(super) fn leave(&mut self, key: GroupKey, port: PortNo) {
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.ports.retain(|(known, _)| *known != port);
        if group.ports.is_empty() {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: GroupKey) {
        if let Some(group) = self.groups.remove(&key) {
            self.order.remove(&group.place);
        }
    }

    /// Removes the groups that were reported longest ago, until there are no more than this.
    pub(super) fn shrink(&mut self, groups_max: usize) {
        while self.groups.len() > groups_max
            && let Some((_, key)) = self.order.pop_first()
        {
            self.groups.remove(&key);
        }
    }

    /// Notes that a router is behind a port.
    pub(super) fn note_router(&mut self, vid: u16, port: PortNo, seen_s: u32) {
        let at_s = self.routers.entry((vid, port)).or_insert(seen_s);
        *at_s = seen_s.max(*at_s);
    }

    pub(super) fn has_router(&self, vid: u16, port: PortNo, now_s: u32) -> bool {
        self.routers.get(&(vid, port)).is_some_and(|seen_s| !is_old(*seen_s, now_s, ROUTER_AGEING_S))
    }

    /// The ports of routers in a VLAN.
    pub(super) fn routers(&self, vid: u16, now_s: u32) -> impl Iterator<Item = PortNo> {
        let of_vlan = self.routers.range((vid, PortNo(0))..=(vid, PortNo(u32::MAX)));
        let current = of_vlan.filter(move |(_, seen_s)| !is_old(**seen_s, now_s, ROUTER_AGEING_S));
        current.map(|((_, port), _)| *port)
    }

    /// The ports where a group has listeners.
    pub(super) fn listeners(
        &self,
        group: Ipv6Addr,
        vid: u16,
        now_s: u32,
        ageing_s: u32,
    ) -> impl Iterator<Item = PortNo> {
        let ports = self.groups.get(&(group, vid)).map_or(&[][..], |group| &group.ports);
        let current = ports.iter().filter(move |(_, seen_s)| !is_old(*seen_s, now_s, ageing_s));
        current.map(|(port, _)| *port)
    }

    /// Returns whether the group that was reported longest ago has no listener any more, or a router has been silent for too long.
    pub(super) fn has_old(&self, now_s: u32, ageing_s: u32) -> bool {
        self.oldest_is_old(now_s, ageing_s).is_some()
            || self.routers.values().any(|seen_s| is_old(*seen_s, now_s, ROUTER_AGEING_S))
    }

    /// Returns the group that was reported longest ago, if no port of it listens any more.
    fn oldest_is_old(&self, now_s: u32, ageing_s: u32) -> Option<GroupKey> {
        let (_, key) = self.order.first_key_value()?;
        let (_, seen_s) = self.groups.get(key)?.ports.last()?;
        is_old(*seen_s, now_s, ageing_s).then_some(*key)
    }

    pub(super) fn sweep(&mut self, now_s: u32, ageing_s: u32) {
        while let Some(key) = self.oldest_is_old(now_s, ageing_s) {
            self.remove(key);
        }
        self.routers.retain(|_, seen_s| !is_old(*seen_s, now_s, ROUTER_AGEING_S));
    }

    pub(super) fn retain(&mut self, keep: impl Fn(u16, PortNo) -> bool) {
        self.groups.retain(|(_, vid), group| {
            group.ports.retain(|(port, _)| keep(*vid, *port));
            !group.ports.is_empty()
        });
        let groups = &self.groups;
        self.order.retain(|_, key| groups.contains_key(key));
        self.routers.retain(|(vid, port), _| keep(*vid, *port));
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn list(&self, now_s: u32, ageing_s: u32) -> Vec<Listener> {
        let groups = self.order.values().filter_map(|key| Some((*key, self.groups.get(key)?)));
        let all = groups.flat_map(|((group, vid), of)| {
            let age_s = |seen_s: u32| now_s.saturating_sub(seen_s);
            of.ports.iter().map(move |(port, seen_s)| Listener {
                group,
                vid,
                port: *port,
                age_s: age_s(*seen_s),
            })
        });
        all.filter(|listener| listener.age_s < ageing_s).collect()
    }

    pub(super) fn list_routers(&self, now_s: u32) -> Vec<RouterPort> {
        let port = |((vid, port), seen_s): (&(u16, PortNo), &u32)| RouterPort {
            vid: *vid,
            port: *port,
            age_s: now_s.saturating_sub(*seen_s),
        };
        let mut all: Vec<RouterPort> = self.routers.iter().map(port).collect();
        all.retain(|router| router.age_s < ROUTER_AGEING_S);
        all.sort_by_key(|router| std::cmp::Reverse(router.age_s));
        all
    }
}
