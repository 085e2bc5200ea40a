//! Zones of connections: their settings, listed and changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RpcError;
use super::server::ControlServer;
use crate::state::conntrack::{Timeout, ZoneSettings};

/// The zones that a request is about.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ZonesParams {
    /// All by default.
    zone: Option<u16>,
}

/// A change of settings.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ZoneChangeParams {
    /// The zone; by default, the settings of all zones are changed.
    zone: Option<u16>,
    connections_max: Option<u32>,
    /// Seconds by the names of timeouts.
    timeouts: BTreeMap<Timeout, u32>,
    /// Takes the zone's own settings away, before others are set.
    remove: bool,
}

/// A zone: its connections, and the settings of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZoneReport {
    pub zone: u16,
    pub connections: u64,
    /// The connections that it may have; none: as many as all zones.
    pub connections_max: Option<u32>,
    /// Seconds of timeouts.
    pub timeouts: BTreeMap<Timeout, u32>,
}

/// The zones that have connections or settings of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZonesReport {
    /// The connections that a zone without a limit of its own may have; none: any number.
    pub connections_max: Option<u32>,
    /// The seconds of all timeouts where a zone has none of its own.
    pub timeouts: BTreeMap<Timeout, u32>,
    pub zones: Vec<ZoneReport>,
}

impl ControlServer {
    /// Lists the zones that have connections or settings of their own, or one zone.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(super) fn zones(&self, params: &ZonesParams) -> Result<ZonesReport, RpcError> {
        let (connections, _) = self.tracked()?;
        let (counts, mut own) = (connections.by_zone(), connections.zones().with_own());
        counts.keys().chain(&params.zone).for_each(|zone| _ = own.entry(*zone).or_default());
        let report = |(zone, settings): (u16, ZoneSettings)| {
            let ZoneSettings { connections_max, timeouts } = settings;
            let connections = counts.get(&zone).copied().unwrap_or_default().into();
            ZoneReport { zone, connections, connections_max, timeouts }
        };
        let wanted = own.into_iter().filter(|(zone, _)| params.zone.is_none_or(|wanted| wanted == *zone));
        let zones = wanted.map(report).collect();
        let ZoneSettings { connections_max, timeouts } = connections.zones().of_all();
        Ok(ZonesReport { connections_max, timeouts, zones })
    }

    /// Changes the settings of a zone, or those of all zones.
    ///
    /// # Errors
    /// Where nothing is to be changed, or the switch does not run.
    pub(super) fn change_zone(&self, change: ZoneChangeParams) -> Result<(), RpcError> {
        let ZoneChangeParams { zone, connections_max, timeouts, remove } = change;
        let wrong = |message| Err(RpcError::new(RpcError::PARAMS, message));
        if connections_max.is_none() && timeouts.is_empty() && !remove {
            return wrong("give connections_max, timeouts or remove");
        }
        let (connections, _) = self.tracked()?;
        let zones = connections.zones();
        let former = match zone {
            Some(_) if remove => ZoneSettings::default(),
            Some(zone) => zones.of(zone),
            None if remove => return wrong("give the zone whose settings are to be removed"),
            None => zones.of_all(),
        };
        let settings = ZoneSettings {
            connections_max: connections_max.or(former.connections_max),
            timeouts: former.timeouts.into_iter().chain(timeouts).collect(),
        };
        match zone {
            Some(zone) => zones.set(zone, &settings),
            None => zones.set_all(&settings),
        }
        Ok(())
    }
}
