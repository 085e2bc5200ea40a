//! The neighbours of a router: listed and forgotten.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::RpcError;
use super::server::ControlServer;
use crate::datapath::HeldPacket;
use crate::state::router::{Counters, Interface, Listed, Router, text_of};

/// Nanoseconds in a millisecond.
const NS_PER_MS: u64 = 1_000_000;

/// The neighbours that a request is about; each part that is given must agree.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NeighbourParams {
    /// The name of a port.
    port: Option<String>,
    address: Option<IpAddr>,
}

/// A neighbour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NeighbourReport {
    pub port: String,
    pub address: IpAddr,
    pub mac: Option<String>,
    pub state: String,
    pub since_s: u64,
    /// Packets that wait for it.
    pub waiting: usize,
}

/// A port of a router.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceReport {
    pub port: String,
    pub mac: String,
    pub mtu: u16,
    /// With the lengths of their networks' prefixes, and the link-local one.
    pub addresses: Vec<String>,
}

/// A router's ports, neighbours and counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterReport {
    pub ports: Vec<InterfaceReport>,
    pub neighbours: Vec<NeighbourReport>,
    pub counters: Counters,
}

impl InterfaceReport {
    fn of(interface: &Interface) -> Self {
        let given = |own: &IpAddr| interface.addresses.iter().find(|(address, _)| address == own);
        let text =
            |own: IpAddr| given(&own).map_or_else(|| own.to_string(), |(_, len)| format!("{own}/{len}"));
        Self {
            port: interface.name.clone(),
            mac: text_of(interface.mac),
            mtu: interface.mtu,
            addresses: interface.own().map(text).collect(),
        }
    }
}

impl ControlServer {
    /// Runs a function on the router, with the time by the workers' clock.
    fn on_router<T>(&self, question: impl FnOnce(&Router<HeldPacket>, u64) -> T) -> Result<T, RpcError> {
        let (router, now_ns) =
            self.call_worker(0, |worker| (worker.egress.router.clone(), worker.now_ms() * NS_PER_MS))?;
        let none = || RpcError::new(RpcError::PARAMS, "the switch has no router: no port has addresses");
        Ok(question(&*router.ok_or_else(none)?, now_ns))
    }

    /// Returns the router's ports and those of its neighbours that are wanted.
    pub(super) fn neighbours(&self, wanted: NeighbourParams) -> Result<RouterReport, RpcError> {
        self.on_router(|router, now_ns| {
            let interfaces = router.interfaces();
            let name = |listed: &Listed| &interfaces[usize::from(listed.name.interface)].name;
            let report = |listed: &Listed| NeighbourReport {
                port: name(listed).clone(),
                address: listed.name.address,
                mac: listed.mac.map(text_of),
                state: listed.state.to_string(),
                since_s: listed.since_s,
                waiting: listed.waiting,
            };
            let is_wanted = |listed: &&Listed| wanted.wants(name(listed), listed.name.address);
            let mut listed = router.neighbours(now_ns);
            listed.sort_by_key(|listed| (listed.name.interface, listed.name.address));
            RouterReport {
                ports: interfaces.iter().map(InterfaceReport::of).collect(),
                neighbours: listed.iter().filter(is_wanted).map(report).collect(),
                counters: router.counters(),
            }
        })
    }

    /// Forgets neighbours that are wanted; packets that wait for others stay. Returns their number.
    pub(super) fn flush_neighbours(&self, wanted: NeighbourParams) -> Result<usize, RpcError> {
        self.on_router(|router, _| {
            let interfaces = router.interfaces();
            router.flush(|name| wanted.wants(&interfaces[usize::from(name.interface)].name, name.address))
        })
    }
}

impl NeighbourParams {
    fn wants(&self, port: &str, address: IpAddr) -> bool {
        let Self { port: wanted, address: at } = self;
        wanted.as_deref().is_none_or(|wanted| wanted == port) && at.is_none_or(|at| at == address)
    }
}
