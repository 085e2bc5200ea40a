//! The connections of connection tracking: listed, counted and removed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RpcError;
use super::message::{parse_params, to_json};
use super::server::ControlServer;
use crate::state::conntrack::{Connections, Listed, Tuple, Wanted, protocol_name};

/// Connections that are listed at most, unless more are asked for.
const LISTED_DEFAULT: usize = 1000;

/// The most that can be asked for: each takes up to a kilobyte in the answer.
const LISTED_MAX: usize = 100_000;

/// The connections that a request is about; each part that is given must agree.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConnectionParams {
    zone: Option<u16>,
    /// The protocol's name or number.
    proto: Option<String>,
    /// The address of an end, before or after translation.
    address: Option<IpAddr>,
    /// The port of an end.
    port: Option<u16>,
    /// The mark, with `/` and a mask if only some bits count; hexadecimal with 0x.
    mark: Option<String>,
    /// Connections that are listed at most, or events after which following ends.
    pub(super) limit: Option<usize>,
}

/// The ends of a connection in one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndsReport {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Of ICMP, the identifier.
    pub source_port: u16,
    /// Of ICMP, the type.
    pub destination_port: u16,
}

/// A connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    pub proto: String,
    pub zone: u16,
    /// As its first packet came.
    pub original: EndsReport,
    /// As packets that go back come.
    pub reply: EndsReport,
    pub state: String,
    pub mark: u32,
    /// In hexadecimal.
    pub label: String,
    pub age_s: f64,
    pub expires_s: f64,
    /// As Open vSwitch prints it.
    pub text: String,
}

/// Connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionsReport {
    pub connections: Vec<ConnectionReport>,
    /// All that are wanted, whether they are listed or not.
    pub wanted: u64,
    /// All that there are.
    pub total: u64,
    /// Those that control connections have announced (`alg=` of `ct`), which may begin.
    pub expected: u64,
    /// The wanted ones by zone.
    pub zones: BTreeMap<u16, u64>,
    /// The wanted ones by state.
    pub states: BTreeMap<String, u64>,
}

fn ends(tuple: &Tuple) -> EndsReport {
    let destination_port =
        if tuple.is_icmp() { tuple.source.icmp_type.into() } else { tuple.destination.port };
    EndsReport {
        source: tuple.ip(tuple.source),
        destination: tuple.ip(tuple.destination),
        source_port: tuple.source.port,
        destination_port,
    }
}

pub(super) fn report(listed: &Listed) -> ConnectionReport {
    ConnectionReport {
        proto: protocol_name(listed.original.proto),
        zone: listed.original.zone,
        original: ends(&listed.original),
        reply: ends(&listed.reply),
        state: listed.state.name().to_owned(),
        mark: listed.mark,
        label: format!("{:#x}", listed.label),
        age_s: listed.age_ms as f64 / 1e3,
        expires_s: listed.left_ms as f64 / 1e3,
        text: listed.to_string(),
    }
}

/// Reads a number, in hexadecimal with 0x.
fn number(text: &str) -> Result<u32, RpcError> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| RpcError::new(RpcError::PARAMS, format!("mark: `{text}` is no number of 32 bits")))
}

impl ConnectionParams {
    /// All connections of a zone, or of all zones.
    pub(crate) fn of_zone(zone: Option<u16>) -> Self {
        Self { zone, ..Self::default() }
    }

    pub(super) fn wanted(&self) -> Result<Wanted, RpcError> {
        let proto = self.proto.as_deref().map(|name| {
            let named =
                name.parse().ok().or_else(|| (0..=u8::MAX).find(|proto| protocol_name(*proto) == name));
            let unknown = || RpcError::new(RpcError::PARAMS, format!("proto: there is no protocol `{name}`"));
            named.ok_or_else(unknown)
        });
        let mark = self.mark.as_deref().map(|text| match text.split_once('/') {
            Some((value, mask)) => Ok((number(value)?, number(mask)?)),
            None => Ok((number(text)?, u32::MAX)),
        });
        Ok(Wanted {
            zone: self.zone,
            proto: proto.transpose()?,
            address: self.address,
            port: self.port,
            mark: mark.transpose()?,
            ..Wanted::default()
        })
    }
}

impl ControlServer {
    /// Calls a method that is about connections or zones; returns its result as JSON.
    pub(super) fn call_tracked(&self, method: &str, params: Value) -> Result<String, RpcError> {
        match method {
            "connections" => {
                let wanted = parse_params(params)?;
                let _turn = self.large();
                to_json(&self.connections(&wanted)?)
            }
            "flush_connections" => to_json(&self.flush_connections(&parse_params(params)?)?),
            "zones" => to_json(&self.zones(&parse_params(params)?)?),
            _ => {
                let change = parse_params(params)?;
                // One change after the other.
                let _turn = self.large();
                to_json(&self.change_zone(change)?)
            }
        }
    }

    /// Returns the connections, and the time by the workers' clock in milliseconds.
    pub(crate) fn tracked(&self) -> Result<(Arc<Connections>, u64), RpcError> {
        self.call_worker(0, |worker| (worker.egress.connections.clone(), worker.now_ms()))
    }

    /// Lists connections, and counts those that are wanted.
    ///
    /// # Errors
    /// Where a parameter is wrong, or the switch does not run.
    pub(super) fn connections(&self, params: &ConnectionParams) -> Result<ConnectionsReport, RpcError> {
        let wanted = params.wanted()?;
        let limit = params.limit.unwrap_or(LISTED_DEFAULT);
        if limit > LISTED_MAX {
            let message = format!("limit: at most {LISTED_MAX} connections are listed; ask for a part");
            return Err(RpcError::new(RpcError::PARAMS, message));
        }
        let (connections, now_ms) = self.tracked()?;
        let mut out = ConnectionsReport {
            connections: Vec::new(),
            wanted: 0,
            total: connections.len() as u64,
            expected: connections.expected_connections() as u64,
            zones: BTreeMap::new(),
            states: BTreeMap::new(),
        };
        connections.for_each(&wanted, now_ms, |listed| {
            out.wanted += 1;
            *out.zones.entry(listed.original.zone).or_default() += 1;
            *out.states.entry(listed.state.name().to_owned()).or_default() += 1;
            if out.connections.len() < limit {
                out.connections.push(report(&listed));
            }
            true
        });
        Ok(out)
    }

    /// Lists connections that are wanted, up to a number, as Open vSwitch prints them, with or without the time that they have left.
    pub(crate) fn list_connections(
        &self,
        params: &ConnectionParams,
        has_time: bool,
        limit: usize,
    ) -> Result<Vec<String>, RpcError> {
        let wanted = params.wanted()?;
        let (connections, now_ms) = self.tracked()?;
        let mut out = Vec::new();
        connections.for_each(&wanted, now_ms, |listed| {
            out.push(if has_time { format!("{listed:#}") } else { listed.to_string() });
            out.len() < limit
        });
        Ok(out)
    }

    /// Counts the connections of a zone, or all, by the names of their protocols.
    pub(crate) fn count_connections(&self, zone: Option<u16>) -> Result<BTreeMap<String, u64>, RpcError> {
        let wanted = ConnectionParams::of_zone(zone).wanted()?;
        let (connections, now_ms) = self.tracked()?;
        let mut counts = BTreeMap::new();
        connections.for_each(&wanted, now_ms, |listed| {
            *counts.entry(protocol_name(listed.original.proto)).or_default() += 1;
            true
        });
        Ok(counts)
    }

    /// Removes connections. Returns their number.
    ///
    /// # Errors
    /// Where a parameter is wrong, or the switch does not run.
    pub(crate) fn flush_connections(&self, params: &ConnectionParams) -> Result<usize, RpcError> {
        if params.limit.is_some() {
            return Err(RpcError::new(RpcError::PARAMS, "limit: all that are wanted are removed"));
        }
        let wanted = params.wanted()?;
        let (connections, now_ms) = self.tracked()?;
        Ok(connections.flush(&wanted, now_ms))
    }
}
