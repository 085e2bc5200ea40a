//! The controllers that the database asks for, and the texts by which they know the bridge (ovs-vswitchd.conf.db(5)).

use std::time::Duration;

use flowlane_ovsdb::{Replica, Row};

use crate::mgmt::openflow::{Address, ConnectionSettings, SwitchTexts};

/// The least longest pause between attempts to connect.
const BACKOFF_LEAST: Duration = Duration::from_secs(1);

/// The controllers of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ControllersSpec {
    /// Their addresses, in addition to the bridge's own socket.
    pub(super) addresses: Vec<Address>,
    /// The settings of connections at these addresses.
    pub(super) settings: Vec<(Address, ConnectionSettings)>,
    /// Targets that are no addresses.
    pub(super) unknown: Vec<String>,
    pub(super) texts: SwitchTexts,
}

impl ControllersSpec {
    pub(super) fn read(replica: &Replica, bridge: &Row) -> Self {
        let config = bridge.get("other_config");
        let text = |key| config.get(key).filter(|text| !text.is_empty()).map(str::to_owned);
        let texts = SwitchTexts { serial: text("dp-sn"), datapath: text("dp-desc") };
        let mut spec = Self { texts, ..Self::default() };
        for row in bridge.get("controller").uuids().filter_map(|uuid| replica.row("Controller", uuid)) {
            let Some(target) = row.get("target").text() else { continue };
            match target.parse::<Address>() {
                Ok(address) => {
                    spec.settings.push((address.clone(), settings(row)));
                    spec.addresses.push(address);
                }
                Err(_) => spec.unknown.push(target.to_owned()),
            }
        }
        spec
    }

    /// The longest interval of probes, where there are any.
    pub(super) fn longest_probe(&self) -> Option<Duration> {
        self.settings.iter().filter_map(|(_, settings)| settings.probe_interval).max()
    }
}

/// The settings of a controller's connection: `inactivity_probe`, where 0 is none, and `max_backoff`, both in milliseconds.
fn settings(row: &Row) -> ConnectionSettings {
    let duration = |column| {
        let ms = row.get(column).integer().and_then(|ms| u64::try_from(ms).ok());
        ms.map(Duration::from_millis)
    };
    let default = ConnectionSettings::default();
    ConnectionSettings {
        probe_interval: match duration("inactivity_probe") {
            Some(interval) => Some(interval).filter(|interval| !interval.is_zero()),
            None => default.probe_interval,
        },
        backoff_max: duration("max_backoff").map_or(default.backoff_max, |most| most.max(BACKOFF_LEAST)),
    }
}
