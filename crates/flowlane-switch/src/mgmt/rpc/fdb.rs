//! The learned addresses (FDB), as clients see and change them.

use std::sync::Arc;

use flowlane::rule::action::PortNo;
use serde::{Deserialize, Serialize};

use super::RpcError;
use super::server::ControlServer;
use crate::datapath::Worker;
use crate::state::fdb::{FdbCounters, STATIC};
use crate::state::vlan::Vlans;

/// The slots that one call of a worker lists.
const SLOTS: usize = 4096;

/// A learned address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MacEntry {
    pub mac: String,
    pub vlan: u16,
    pub port: u32,
    pub port_name: String,
    /// Since it was last seen; 0 for a static address.
    pub age_s: u32,
    /// It was given by an administrator, and does not age.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_static: bool,
}

/// The table of addresses, in figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FdbFigures {
    pub(crate) entries: usize,
    pub(crate) entries_max: usize,
    pub(crate) counters: FdbCounters,
}

impl ControlServer {
    /// Returns the learned addresses (FDB).
    ///
    /// # Errors
    /// Where the switch does not run.
    pub fn fdb(&self) -> Result<Vec<MacEntry>, RpcError> {
        let mut entries = Vec::new();
        let mut from = Some(0);
        while let Some(at) = from {
            let (some, next) = self.call_worker(0, move |worker| addresses(worker, at))?;
            entries.extend(some);
            from = next;
        }
        Ok(entries)
    }

    /// Returns the size and counters of the table of addresses.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn fdb_figures(&self) -> Result<FdbFigures, RpcError> {
        self.call_worker(0, |worker| {
            let macs = &worker.egress.macs;
            FdbFigures {
                entries: macs.len(),
                entries_max: macs.entries_max(),
                counters: macs.recent_counters(),
            }
        })
    }

    /// Lets the counters of [`fdb_figures`](Self::fdb_figures) begin with zero.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn clear_fdb_counters(&self) -> Result<(), RpcError> {
        self.call_worker(0, |worker| worker.egress.macs.clear_counters())
    }

    /// Changes how many addresses are learned, and how long they stay unseen, in seconds.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn set_fdb_limits(&self, entries_max: usize, ageing_s: u32) -> Result<(), RpcError> {
        self.call_worker(0, move |worker| worker.egress.macs.set_limits(entries_max, ageing_s))
    }

    /// Floods all frames of some VLANs, in which no address is learned; `None`: of none.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn flood_vlans(&self, vlans: Option<&Arc<Vlans>>) -> Result<(), RpcError> {
        for worker in 0..self.workers_count() {
            let vlans = vlans.cloned();
            self.call_worker(worker, move |worker| worker.egress.macs.flood_vlans(vlans))?;
        }
        Ok(())
    }

    /// Adds an address that does not age.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn add_static_address(&self, mac: u64, vlan: u16, port: PortNo) -> Result<(), RpcError> {
        self.call_worker(0, move |worker| worker.egress.macs.add_static(mac, vlan, port))
    }

    /// Removes an address that does not age. Returns whether there was one.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn remove_static_address(&self, mac: u64, vlan: u16) -> Result<bool, RpcError> {
        self.call_worker(0, move |worker| worker.egress.macs.remove_static(mac, vlan))
    }

    /// Forgets all learned addresses; static ones stay.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn flush_fdb(&self) -> Result<(), RpcError> {
        self.call_worker(0, |worker| worker.egress.macs.retain_where(|_, _, seen_s| seen_s == STATIC))
    }
}

/// Returns the addresses in some slots, and the slot to continue from.
fn addresses(worker: &mut Worker, from: usize) -> (Vec<MacEntry>, Option<usize>) {
    let now_s = worker.now_s();
    let egress = &worker.egress;
    let (entries, next) = egress.macs.entries_from(from, SLOTS);
    let entry = |(mac, vlan, port, seen_s): (u64, u16, PortNo, u32)| {
        let bytes = mac.to_be_bytes().map(|byte| format!("{byte:02x}"));
        MacEntry {
            mac: bytes[2..].join(":"),
            vlan,
            port: port.0,
            port_name: egress.port_name(port).unwrap_or_default().to_owned(),
            age_s: now_s.saturating_sub(seen_s),
            is_static: seen_s == STATIC,
        }
    };
    (entries.into_iter().map(entry).collect(), next)
}
