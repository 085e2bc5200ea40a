//! Routes while the switch runs: listed, added and removed; those of the system are followed.

use std::net::IpAddr;

use flowlane::route::read::{AnyPrefix, NextHop};
use serde::{Deserialize, Serialize};

use super::RpcError;
use super::server::ControlServer;
use crate::mgmt::setup::{LiveRoutes, RouteReport};
use crate::stage::RouteTable;

/// Routes that are listed at most, unless more are asked for.
const LISTED_DEFAULT: usize = 1000;

/// The routes that a request is about.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RoutesParams {
    /// The table's number; that of the only one by default.
    table: Option<u8>,
    /// The route that packets for this address take.
    address: Option<IpAddr>,
    limit: Option<usize>,
}

/// A change of routes.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RouteChangeParams {
    table: Option<u8>,
    /// Routes as `ip route` prints them, a line each.
    add: String,
    /// Prefixes of routes that were added before.
    delete: Vec<String>,
}

/// Routes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoutesReport {
    pub table: u8,
    pub routes: Vec<RouteReport>,
    /// All that there are, whether they are listed or not.
    pub total: usize,
}

/// The result of a change of routes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RouteChangeReport {
    pub added: usize,
    pub removed: usize,
}

fn wrong(message: impl Into<String>) -> RpcError {
    RpcError::new(RpcError::PARAMS, message)
}

/// The position of the table with a number, or of the only one.
fn position(tables: &[LiveRoutes], number: Option<u8>) -> Result<usize, RpcError> {
    match (number, tables) {
        (_, []) => Err(wrong("the switch has no table of routes")),
        (None, [_]) => Ok(0),
        (None, _) => {
            let numbers: Vec<String> = tables.iter().map(|table| table.number().to_string()).collect();
            Err(wrong(format!("say which table of routes: {}", numbers.join(", "))))
        }
        (Some(number), tables) => tables
            .iter()
            .position(|table| table.number() == number)
            .ok_or_else(|| wrong(format!("table {number} is no table of routes"))),
    }
}

impl ControlServer {
    /// Lists routes, or the one that an address takes.
    pub(super) fn routes(&self, params: &RoutesParams) -> Result<RoutesReport, RpcError> {
        let tables = self.reload.routes();
        let table = &tables[position(&tables, params.table)?];
        let mut routes = table.list();
        let total = routes.len();
        if let Some(address) = params.address {
            let taken = self.route_table(table.number())?.route_to(address).map(|(prefix, _)| prefix);
            routes.retain(|route| Some(&route.prefix) == taken.as_ref());
        }
        routes.truncate(params.limit.unwrap_or(LISTED_DEFAULT));
        Ok(RoutesReport { table: table.number(), routes, total })
    }

    /// Adds and removes routes; all of a request or none.
    pub(super) fn change_routes(&self, params: &RouteChangeParams) -> Result<RouteChangeReport, RpcError> {
        let mut tables = self.reload.routes();
        let at = position(&tables, params.table)?;
        let mut changed = tables[at].clone();
        let mut removed = 0;
        for text in &params.delete {
            let prefix = match text.split_once('/') {
                _ if text == "default" => Some(AnyPrefix::truncated(IpAddr::from([0; 4]), 0)),
                Some((address, len)) => {
                    address.parse().ok().zip(len.parse().ok()).and_then(|(address, len): (IpAddr, u8)| {
                        (len <= AnyPrefix::bits(address)).then(|| AnyPrefix::truncated(address, len))
                    })
                }
                None => text.parse().ok().map(|address| AnyPrefix::truncated(address, u8::MAX)),
            };
            let prefix = prefix.ok_or_else(|| wrong(format!("`{text}` is no prefix")))?;
            if !changed.remove(prefix) {
                return Err(wrong(format!(
                    "no route to {prefix} has been added by the socket; others are of the configuration, the system or a port"
                )));
            }
            removed += 1;
        }
        let added = match params.add.trim() {
            "" => 0,
            text => changed.add(text, "routes").map_err(|errors| wrong(errors.to_string()))?,
        };
        self.publish(&changed)?;
        tables[at] = changed;
        Ok(RouteChangeReport { added, removed })
    }

    /// Takes over the routes of the system. Returns the number of those that do not lead through the router's ports.
    pub(crate) fn set_kernel_routes(
        &self,
        number: u8,
        routes: impl IntoIterator<Item = (AnyPrefix, NextHop)>,
    ) -> Result<usize, RpcError> {
        let mut tables = self.reload.routes();
        let at = position(&tables, Some(number))?;
        let mut changed = tables[at].clone();
        let left_out = changed.set_kernel(routes);
        self.publish(&changed)?;
        tables[at] = changed;
        Ok(left_out)
    }

    fn route_table(&self, number: u8) -> Result<RouteTable, RpcError> {
        let shared = move |worker: &mut crate::datapath::Worker| {
            worker.lookup.pipeline.routes(number).map(RouteTable::share)
        };
        let none = || wrong(format!("table {number} is no table of routes"));
        self.call_worker(0, shared)?.ok_or_else(none)
    }

    /// Gives all workers a table with other routes. A packet meets the former table or the new one.
    fn publish(&self, routes: &LiveRoutes) -> Result<(), RpcError> {
        let number = routes.number();
        let before = self.route_table(number)?;
        let next = routes.build(&before).map_err(|error| wrong(error.to_string()))?;
        for worker in 0..self.workers_count() {
            let of_worker = next.share();
            // Freed on this thread: a large table takes a while.
            drop(self.call_worker(worker, move |worker| {
                worker.lookup.pipeline.replace_routes(number, of_worker)
            })?);
        }
        Ok(())
    }
}
