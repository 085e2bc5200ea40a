//! The bonds that a database asks for: ports of several interfaces, and those that speak LACP (ovs-vswitchd.conf.db(5), table Port).

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::{Datum, Replica, Row, Uuid};

use crate::mgmt::setup::read_mac;
use crate::state::bond::{BondMode, BondSettings, REBALANCE_MS};
use crate::state::lacp::{LacpSettings, LinkSettings, SystemId};

/// The shortest interval between two distributions of buckets, unless they stay.
const REBALANCE_MIN_MS: u64 = 1000;

/// The columns with the settings of a bond.
const COLUMNS: [&str; 4] = ["bond_mode", "bond_updelay", "bond_downdelay", "other_config"];

/// A bond that the database asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct BondSpec {
    /// Its row of the table Port.
    pub(in super::super) uuid: Uuid,
    pub(in super::super) name: String,
    pub(in super::super) members: Vec<MemberSpec>,
    pub(super) settings: BondSettings,
    pub(super) lacp: Option<LacpSpec>,
    /// The address of the member that was the active one.
    pub(super) active_mac: Option<[u8; 6]>,
    /// A setting that cannot be followed.
    pub(in super::super) problem: Option<String>,
}

/// A member that the database asks for. Values that are none are the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct MemberSpec {
    /// Its row of the table Interface.
    pub(in super::super) interface: Uuid,
    pub(in super::super) name: String,
    id: Option<u16>,
    priority: Option<u16>,
    key: Option<u16>,
}

/// The LACP that the database asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LacpSpec {
    is_active: bool,
    is_fast: bool,
    mac: Option<[u8; 6]>,
    priority: Option<u16>,
}

/// A positive number of 16 bits.
fn number(config: &Datum, key: &str) -> Option<u16> {
    config.get(key)?.parse().ok().filter(|number| *number > 0)
}

impl BondSpec {
    /// Reads a row of the table Port; none where its interface is alone and does not speak LACP.
    pub(in super::super) fn read(replica: &Replica, uuid: Uuid, port: &Row) -> Option<Self> {
        let rows = port.get("interfaces").uuids();
        let rows = rows.filter_map(|uuid| Some((uuid, replica.row("Interface", uuid)?)));
        let members: Vec<MemberSpec> = rows.filter_map(|(uuid, row)| MemberSpec::read(uuid, row)).collect();
        let config = port.get("other_config");
        let (mut lacp, mut problem) = (LacpSpec::read(port), None);
        let system = config.get("lacp-system-id");
        if let (Some(asked), Some(text)) = (&mut lacp, system) {
            asked.mac = read_mac(text).filter(|mac| *mac != [0; 6]);
            if asked.mac.is_none() {
                problem = Some(format!("LACP system ID ({text}) must be an Ethernet address"));
                lacp = None;
            }
        }
        let name = port.get("name").text()?.to_owned();
        let is_asked_for = members.len() > 1 || lacp.is_some() || problem.is_some();
        is_asked_for.then(|| Self {
            uuid,
            settings: settings(COLUMNS.map(|column| port.get(column))),
            active_mac: port.get("bond_active_slave").text().and_then(read_mac),
            problem: problem.map(|problem| format!("port {name}: {problem}")),
            name,
            members,
            lacp,
        })
    }

    /// Returns whether it has several interfaces.
    pub(in super::super) fn is_bond(&self) -> bool {
        self.members.len() > 1
    }

    /// The settings of its LACP, if it speaks it; `mac` is the address of the bridge.
    pub(super) fn lacp(&self, mac: [u8; 6]) -> Option<LacpSettings> {
        let LacpSpec { is_active, is_fast, mac: own, priority } = self.lacp.as_ref()?;
        // As Open vSwitch, bonds decide over single links.
        let default = u16::MAX - u16::from(self.is_bond());
        let system = SystemId { priority: priority.unwrap_or(default), mac: own.unwrap_or(mac) };
        let falls_back = self.settings.falls_back;
        Some(LacpSettings { is_active: *is_active, is_fast: *is_fast, system, falls_back })
    }
}

impl MemberSpec {
    fn read(interface: Uuid, row: &Row) -> Option<Self> {
        let config = row.get("other_config");
        Some(Self {
            interface,
            name: row.get("name").text()?.to_owned(),
            id: number(config, "lacp-port-id"),
            priority: number(config, "lacp-port-priority"),
            key: number(config, "lacp-aggregation-key"),
        })
    }

    /// The settings of its link, for a port of a number that sends from an address.
    pub(super) fn link(&self, port: PortNo, mac: [u8; 6]) -> LinkSettings {
        LinkSettings {
            name: self.name.clone(),
            mac,
            id: self.id.unwrap_or(port.0 as u16),
            priority: self.priority.unwrap_or(u16::MAX),
            key: self.key.unwrap_or(0),
        }
    }
}

impl LacpSpec {
    fn read(port: &Row) -> Option<Self> {
        let config = port.get("other_config");
        let is_active = match port.get("lacp").text() {
            Some("active") => true,
            Some("passive") => false,
            _ => return None,
        };
        let is_fast = config.get("lacp-time") == Some("fast");
        Some(Self { is_active, is_fast, mac: None, priority: number(config, "lacp-system-priority") })
    }
}

/// The settings by the values of [`COLUMNS`].
fn settings([mode, updelay, downdelay, config]: [&Datum; 4]) -> BondSettings {
    let mode = mode.text();
    let delay = |ms: &Datum| ms.integer().and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    let flag = |key: &str| config.get(key) == Some("true");
    let rebalance_ms = config.get("bond-rebalance-interval").and_then(|text| text.parse::<u64>().ok());
    let mode = BondMode::ALL.into_iter().find(|one| Some(one.name()) == mode).unwrap_or_default();
    let falls_back = flag("lacp-fallback-ab");
    // Other modes use the active member for groups only.
    let may_have_primary = mode == BondMode::ActiveBackup || falls_back;
    BondSettings {
        mode,
        updelay_ms: delay(updelay),
        downdelay_ms: delay(downdelay),
        primary: config.get("bond-primary").filter(|_| may_have_primary).map(str::to_owned),
        rebalance_ms: match rebalance_ms {
            Some(0) => 0,
            other => other.unwrap_or(REBALANCE_MS).max(REBALANCE_MIN_MS),
        },
        hash_basis: config.get("bond-hash-basis").and_then(|text| text.parse().ok()).unwrap_or(0),
        falls_back,
        all_members_active: flag("all-members-active"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_none_leave_the_default() {
        let read = |pairs: &[(&str, &str)], mode: &str| {
            let config = Datum::map(pairs.iter().copied());
            settings([&Datum::set([mode]), &Datum::set([-5]), &Datum::set([300]), &config])
        };
        let expected = BondSettings { downdelay_ms: 300, ..BondSettings::default() };
        let odd =
            [("bond-rebalance-interval", "often"), ("bond-hash-basis", "-1"), ("lacp-fallback-ab", "yes")];
        assert_eq!(read(&odd, "stable"), expected);
        let set = [
            ("bond-rebalance-interval", "50"),
            ("bond-hash-basis", "7"),
            ("bond-primary", "p1"),
            ("all-members-active", "true"),
        ];
        let expected = BondSettings {
            mode: BondMode::BalanceSlb,
            rebalance_ms: 1000,
            hash_basis: 7,
            all_members_active: true,
            ..expected
        };
        assert_eq!(read(&set, "balance-slb"), expected);
        let set = [("bond-rebalance-interval", "0"), ("bond-primary", "p1"), ("lacp-fallback-ab", "true")];
        let read = read(&set, "balance-tcp");
        assert_eq!((read.rebalance_ms, read.primary.as_deref(), read.falls_back), (0, Some("p1"), true));
    }
}
