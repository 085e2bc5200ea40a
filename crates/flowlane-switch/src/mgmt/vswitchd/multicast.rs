//! Multicast snooping as a database asks for it (ovs-vswitchd.conf.db(5), "Multicast Snooping Configuration").

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Atom, Datum, Replica, Row, Uuid};
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, to_value};

use super::bfd::unix_ms;
use super::bridge::Bridge;
use super::model::BridgeSpec;

use crate::mgmt::rpc::ControlServer;
use crate::state::multicast::{Listener, RouterPort, Snooping, SnoopingSettings};

/// The snooping of a bridge that is asked for. Ports are the rows of their interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SnoopingSpec {
    groups_max: usize,
    ageing_s: u32,
    floods_unregistered: bool,
    flood: Vec<Uuid>,
    flood_reports: Vec<Uuid>,
}

impl SnoopingSpec {
    /// Reads the columns of a bridge and its ports, with the defaults and bounds of Open vSwitch; `None` where it snoops nothing.
    pub(super) fn read(replica: &Replica, bridge: &Row) -> Option<Self> {
        if !bridge.get("mcast_snooping_enable").atoms().any(|atom| *atom == Atom::Boolean(true)) {
            return None;
        }
        let default = SnoopingSettings::default();
        let config = bridge.get("other_config");
        let number =
            |key| config.get(key).and_then(|text| text.parse::<u32>().ok()).filter(|number| *number > 0);
        let groups = number("mcast-snooping-table-size").map_or(default.groups_max, |size| size as usize);
        let ageing_s = number("mcast-snooping-aging-time").unwrap_or(default.ageing_s);
        let interfaces = |key: &str| {
            let ports = bridge.get("ports").uuids().filter_map(|port| replica.row("Port", port));
            let marked = ports.filter(|port| is_true(port.get("other_config"), key));
            marked.flat_map(|port| port.get("interfaces").uuids().collect::<Vec<_>>()).collect()
        };
        Some(Self {
            groups_max: groups.clamp(10, 1_000_000),
            ageing_s: ageing_s.clamp(15, 3600),
            floods_unregistered: !is_true(config, "mcast-snooping-disable-flood-unregistered"),
            flood: interfaces("mcast-snooping-flood"),
            flood_reports: interfaces("mcast-snooping-flood-reports"),
        })
    }

    fn settings(&self, numbers: &BTreeMap<Uuid, u32>) -> SnoopingSettings {
        let ports = |interfaces: &[Uuid]| {
            interfaces.iter().filter_map(|interface| Some(PortNo(*numbers.get(interface)?))).collect()
        };
        SnoopingSettings {
            groups_max: self.groups_max,
            ageing_s: self.ageing_s,
            floods_unregistered: self.floods_unregistered,
            flood_ports: ports(&self.flood),
            report_ports: ports(&self.flood_reports),
        }
    }
}

fn is_true(config: &Datum, key: &str) -> bool {
    config.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Listeners and routers, for another process. Ports have the names of their interfaces.
#[derive(Default, Serialize, Deserialize)]
struct SavedSnooping {
    /// When it was saved, in milliseconds since 1970.
    unix_ms: u64,
    /// Groups with VLAN, port and age in seconds.
    listeners: Vec<(Ipv6Addr, u16, String, u32)>,
    /// VLANs with port and age in seconds.
    routers: Vec<(u16, String, u32)>,
}

#[derive(Default)]
struct Inner {
    snooping: Option<Arc<Snooping>>,
    /// The names of the ports that are open.
    names: BTreeMap<PortNo, String>,
    /// Taken from another process, until the ports are open.
    saved: Option<SavedSnooping>,
}

/// The snooping of a running bridge.
#[derive(Default)]
pub(super) struct BridgeSnooping(Mutex<Inner>);

impl BridgeSnooping {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing is left half done by a thread that panics here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, where the bridge snoops.
    fn table(&self) -> Option<Arc<Snooping>> {
        self.lock().snooping.clone()
    }

    /// Makes the settings those that are asked for, where these are the names of the ports that are open.
    fn follow(
        &self,
        settings: Option<SnoopingSettings>,
        names: BTreeMap<PortNo, String>,
        served: &ControlServer,
    ) {
        let mut inner = self.lock();
        inner.names = names;
        match (settings, &inner.snooping) {
            (Some(settings), Some(snooping)) => {
                if snooping.settings() != settings {
                    snooping.configure(settings);
                }
            }
            (Some(settings), None) => {
                let snooping = Arc::new(Snooping::new(settings));
                inner.restore_into(&snooping, now_s(served));
                // Workers that do not run any more forward nothing.
                _ = served.set_multicast(Some(&snooping));
                inner.snooping = Some(snooping);
            }
            (None, Some(_)) => {
                _ = served.set_multicast(None);
                inner.snooping = None;
            }
            (None, None) => {}
        }
    }

    /// Forgets what has been learned at a port that goes.
    pub(super) fn forget(&self, port: PortNo) {
        if let Some(snooping) = self.table() {
            snooping.retain(|_, other| other != port);
        }
    }

    /// Forgets all listeners and routers.
    pub(super) fn flush(&self) {
        if let Some(snooping) = self.table() {
            snooping.flush();
        }
    }

    /// Returns what has been learned, for another process.
    pub(super) fn save(&self) -> Value {
        let inner = self.lock();
        let Some(snooping) = &inner.snooping else { return Value::Null };
        let name = |port: &PortNo| inner.names.get(port).cloned();
        // Workers may have stopped: their last sweep was a second ago at most.
        let now_s = snooping.swept_s();
        let listeners = snooping.list(now_s).into_iter();
        let routers = snooping.list_routers(now_s).into_iter();
        let saved = SavedSnooping {
            unix_ms: unix_ms(),
            listeners: listeners
                .filter_map(|one| Some((one.group, one.vid, name(&one.port)?, one.age_s)))
                .collect(),
            routers: routers.filter_map(|one| Some((one.vid, name(&one.port)?, one.age_s))).collect(),
        };
        to_value(saved).unwrap_or_default()
    }

    /// Takes what another process has learned. Without it, hosts report again when they are asked.
    pub(super) fn restore(&self, saved: Value) {
        self.lock().saved = from_value(saved).ok();
    }
}

impl Inner {
    fn restore_into(&mut self, snooping: &Snooping, now_s: u32) {
        let Some(saved) = self.saved.take() else { return };
        let passed_s = (unix_ms().saturating_sub(saved.unix_ms) / 1000) as u32;
        let ports: BTreeMap<&str, PortNo> = self.names.iter().map(|(port, name)| (&**name, *port)).collect();
        let port = |name: &str| ports.get(name).copied();
        let after = |age_s: u32| age_s.saturating_add(passed_s);
        let listeners = saved.listeners.iter().filter_map(|(group, vid, name, age_s)| {
            Some(Listener { group: *group, vid: *vid, port: port(name)?, age_s: after(*age_s) })
        });
        let routers = saved.routers.iter().filter_map(|(vid, name, age_s)| {
            Some(RouterPort { vid: *vid, port: port(name)?, age_s: after(*age_s) })
        });
        snooping.restore(&listeners.collect::<Vec<_>>(), &routers.collect::<Vec<_>>(), now_s);
    }
}

/// The second of the workers' clock.
fn now_s(served: &ControlServer) -> u32 {
    served.call_worker(0, |worker| worker.now_s()).unwrap_or(0)
}

impl Bridge {
    /// Snoops as it is asked for, between the ports that are open. Forgets listeners of VLANs that their port has left.
    pub(super) fn follow_multicast(&self, spec: &BridgeSpec) {
        let settings = spec.snooping.as_ref().map(|wanted| wanted.settings(&self.numbers().collect()));
        let names = self.opened().into_iter().map(|(number, port)| (PortNo(number), port.name.clone()));
        self.snooping.follow(settings, names.collect(), self.served());
        if let Some(snooping) = self.snooping.table() {
            let vlans = self.served().control().vlans().clone();
            snooping.retain(|vid, port| vlans.get(&port.0).is_none_or(|vlan| vlan.carries(vid)));
        }
    }

    /// Lists listeners and routers as `mdb/show` does; `None` where the bridge snoops nothing.
    pub(super) fn describe_multicast(&self) -> Option<Vec<String>> {
        let snooping = self.snooping.table()?;
        let now_s = now_s(self.served());
        let name = |port: PortNo| if port == PortNo::LOCAL { "LOCAL".to_owned() } else { port.0.to_string() };
        let mut all = vec![" port  VLAN  GROUP                Age".to_owned()];
        for Listener { group, vid, port, age_s } in snooping.list(now_s) {
            let group = group.to_ipv4_mapped().map_or_else(|| group.to_string(), |group| group.to_string());
            all.push(format!("{:>5}  {vid:>4}  {group}         {age_s:>3}", name(port)));
        }
        for RouterPort { vid, port, age_s } in snooping.list_routers(now_s) {
            all.push(format!("{:>5}  {vid:>4}  querier             {age_s:>3}", name(port)));
        }
        Some(all)
    }

    /// Forgets listeners and routers. Returns whether the bridge snoops.
    pub(super) fn flush_multicast(&self) -> bool {
        let snooping = self.snooping.table();
        snooping.inspect(|snooping| snooping.flush()).is_some()
    }
}
