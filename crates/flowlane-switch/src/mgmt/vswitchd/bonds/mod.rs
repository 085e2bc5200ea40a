//! The bonds of a bridge, and the LACP of its ports, as the table Port asks for them (ovs-vswitchd.conf.db(5)).
//!
//! ```text
//! worker ─ inlets ─► thread of bonds ─ PDUs that are due, bonds as workers see them ─► workers
//!                      ▲        ▲
//!        links ────────┘        └──────── sessions of BFD
//! ```
//!
//! The thread runs where there is a bond, or a port that speaks LACP. Bonds are with the workers before their ports are: a frame that
//! is flooded to one member must not come back through the next.

mod commands;
mod spec;

pub(super) use spec::BondSpec;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::Uuid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, to_value};

use super::bfd::{BfdSessions, SAVED_MAX, unix_ms};
use super::protocol_thread::{self, ProtocolThread};
use crate::datapath::Inlet;
use crate::mgmt::rpc::{ControlServer, local_mac};
use crate::state::bond::{Bond, BondView, LacpState};
use crate::state::lacp::{Lacp, LinkSettings, SavedLink};

/// How often sessions of BFD are asked for their state.
const BFD_MS: u64 = 100;

/// A member whose port is open, or about to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MemberPort {
    pub(super) interface: Uuid,
    pub(super) port: PortNo,
    pub(super) name: String,
    pub(super) is_open: bool,
    /// It is an interface of the system.
    pub(super) has_link: bool,
    /// It is up where the system does not know it.
    pub(super) may_hide: bool,
    pub(super) has_bfd: bool,
}

/// A bond, or a port that speaks LACP.
struct Driven {
    name: String,
    /// In the order of their numbers.
    members: Vec<MemberPort>,
    /// None where the interface is alone.
    bond: Option<Bond>,
    lacp: Option<Lacp>,
    inlets: BTreeMap<PortNo, Arc<Inlet>>,
    /// The address of the member that was the active one, until all members are open.
    was_active: Option<[u8; 6]>,
}

#[derive(Default)]
struct Inner {
    by_row: BTreeMap<Uuid, Driven>,
    /// Workers have other bonds than these.
    is_stale: bool,
    /// Links of another process that hear their neighbours, by their interface, until their ports are open; and when they came.
    saved: BTreeMap<String, (SavedLink, u64)>,
}

/// The links of a bridge that hear their neighbours, for another process.
#[derive(Default, Serialize, Deserialize)]
struct SavedLinks {
    /// When they were saved, in milliseconds since 1970.
    unix_ms: u64,
    links: BTreeMap<String, SavedLink>,
}

/// The bonds of a bridge.
#[derive(Default)]
pub(super) struct Bonds {
    pub(super) thread: ProtocolThread,
    inner: Mutex<Inner>,
}

/// The bonds that workers are to have.
#[derive(Default)]
struct ForWorkers {
    bonds: Vec<Arc<BondView>>,
    /// Those of ports that speak LACP.
    inlets: Vec<(PortNo, Arc<Inlet>)>,
}

/// The work that a step has left.
#[derive(Default)]
struct Due {
    /// None: workers have them.
    for_workers: Option<ForWorkers>,
    /// The members of bonds through which addresses are announced.
    announced: Vec<PortNo>,
    frames: Vec<(PortNo, Vec<u8>)>,
    deadline_ms: u64,
}

impl Bonds {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A bond is consistent between two of its methods, and none of them panics midway.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the bonds these, with the members whose ports are open. `system` is the address of the bridge.
    pub(super) fn follow(
        &self,
        specs: &[(&BondSpec, Vec<MemberPort>)],
        system: [u8; 6],
        served: &ControlServer,
    ) {
        let now_ms = self.thread.now_ms();
        let mut inner = self.lock();
        let Inner { by_row, saved, .. } = &mut *inner;
        let before = by_row.len();
        by_row.retain(|row, _| specs.iter().any(|(spec, _)| spec.uuid == *row));
        let mut is_stale = by_row.len() < before;
        for (spec, members) in specs {
            let driven = by_row.entry(spec.uuid).or_insert_with(|| Driven {
                name: spec.name.clone(),
                members: Vec::new(),
                bond: None,
                lacp: None,
                inlets: BTreeMap::new(),
                was_active: spec.active_mac,
            });
            is_stale |= driven.follow(spec, members, system, now_ms, served);
            driven.resume(saved, now_ms);
            let inlet = || self.thread.get().map(|thread| Arc::new(Inlet::of_lacp(thread.clone())));
            is_stale |= driven.follow_inlets(inlet);
        }
        inner.is_stale |= is_stale;
    }

    /// Lets time pass, and gives workers what has become of the bonds. Returns when there is more to do.
    pub(super) fn update(&self, served: &ControlServer, bfd: &BfdSessions) -> u64 {
        let _turn = self.thread.take_turn();
        let Due { for_workers, announced, frames, deadline_ms } = self.step(served, bfd);
        if let Some(ForWorkers { bonds, inlets }) = for_workers
            && served.set_bonds(&bonds, &inlets, &announced).is_err()
        {
            // A switch that does not run gets them when it does.
            self.lock().is_stale = true;
        }
        protocol_thread::send(frames, served);
        deadline_ms
    }

    /// Runs the bonds until `stop` is set.
    pub(super) fn run(&self, served: &ControlServer, bfd: &BfdSessions, stop: &AtomicBool) {
        self.thread.run(served, stop, || self.update(served, bfd));
    }

    fn step(&self, served: &ControlServer, bfd: &BfdSessions) -> Due {
        let now_ms = self.thread.now_ms();
        let mut inner = self.lock();
        let mut due = Due { deadline_ms: u64::MAX, ..Due::default() };
        let mut is_stale = std::mem::take(&mut inner.is_stale);
        for driven in inner.by_row.values_mut() {
            due.frames.extend(driven.receive(served, |at| self.thread.ms(at), now_ms));
            is_stale |= driven.choose(served, bfd, now_ms);
            let announces = driven.bond.as_mut().is_some_and(Bond::take_announcement);
            due.announced.extend(driven.bond.as_ref().and_then(Bond::active).filter(|_| announces));
            due.deadline_ms = due.deadline_ms.min(driven.deadline_ms(now_ms));
        }
        if is_stale {
            let bonds = inner.by_row.values().filter_map(Driven::view).map(Arc::new).collect();
            let inlets = inner.by_row.values().flat_map(|driven| &driven.inlets);
            let inlets = inlets.map(|(port, inlet)| (*port, inlet.clone())).collect();
            due.for_workers = Some(ForWorkers { bonds, inlets });
        }
        due
    }

    /// Returns the links that hear their neighbours, for another process.
    pub(super) fn save(&self) -> Value {
        let now_ms = self.thread.now_ms();
        let inner = self.lock();
        let all = inner.by_row.values().filter_map(|driven| driven.lacp.as_ref());
        let links = all.flat_map(|lacp| lacp.save(now_ms)).map(|(name, link)| (name.to_owned(), link));
        to_value(SavedLinks { unix_ms: unix_ms(), links: links.collect() }).unwrap_or_default()
    }

    /// Takes links of another process, with which ports go on that are opened from now on.
    pub(super) fn restore(&self, saved: Value) {
        // Without them, neighbours negotiate again.
        let SavedLinks { unix_ms: then, links } = from_value(saved).unwrap_or_default();
        // A clock that went back does not say how long neighbours have waited.
        let Some(passed) = unix_ms().checked_sub(then) else { return };
        let now_ms = self.thread.now_ms();
        let left = links.into_iter().take(SAVED_MAX);
        let left = left.map(|(name, link)| (name, (link.after(passed), now_ms)));
        self.lock().saved = left.collect();
    }

    /// The addresses of the active members of bonds, by the rows of ports.
    pub(super) fn active_macs(&self, served: &ControlServer) -> Vec<(Uuid, [u8; 6])> {
        let inner = self.lock();
        let of =
            |(row, driven): (&Uuid, &Driven)| Some((*row, driven.active_mac(driven.bond.as_ref()?, served)));
        inner.by_row.iter().filter_map(of).collect()
    }

    /// Returns whether an interface hears a neighbour that speaks LACP, if it speaks LACP itself.
    pub(super) fn lacp_current(&self, interface: &Uuid) -> Option<bool> {
        let inner = self.lock();
        inner.by_row.values().find_map(|driven| {
            let member = driven.members.iter().find(|member| member.interface == *interface)?;
            Some(driven.lacp.as_ref()?.is_current(member.port))
        })
    }
}

impl Driven {
    /// Follows the database; returns whether workers are to have other members.
    fn follow(
        &mut self,
        spec: &BondSpec,
        members: &[MemberPort],
        system: [u8; 6],
        now_ms: u64,
        served: &ControlServer,
    ) -> bool {
        let mut members = members.to_vec();
        members.sort_by_key(|member| member.port);
        let has_others = std::mem::replace(&mut self.members, members) != self.members;
        self.name.clone_from(&spec.name);
        let settings = spec.lacp(system);
        self.lacp = settings.map(|settings| {
            let mut lacp = self.lacp.take().unwrap_or_else(|| Lacp::new(settings.clone()));
            lacp.configure(settings);
            lacp.set_links(&self.links(spec, served), now_ms);
            lacp
        });
        if !spec.is_bond() {
            return self.bond.take().is_some() || has_others;
        }
        let open = self.members.iter().filter(|member| member.is_open);
        let named = open.map(|member| (member.port, member.name.clone()));
        let bond = self.bond.get_or_insert_with(|| Bond::new(spec.settings.clone(), now_ms));
        bond.configure(spec.settings.clone(), now_ms);
        bond.set_members(&named.collect::<Vec<_>>());
        let is_whole = self.members.iter().filter(|member| member.is_open).count() == spec.members.len();
        if let Some(mac) = self.was_active.take_if(|_| is_whole)
            && let Some(member) = self.members.iter().find(|member| mac_of(member, served) == mac)
        {
            bond.prefer(member.port);
        }
        has_others
    }

    /// Goes on with links of another process.
    fn resume(&mut self, saved: &mut BTreeMap<String, (SavedLink, u64)>, now_ms: u64) {
        let Some(lacp) = &mut self.lacp else { return };
        for member in self.members.iter().filter(|member| member.is_open) {
            if let Some((link, came_ms)) = saved.remove(&member.name) {
                lacp.resume(member.port, &link.after(now_ms.saturating_sub(came_ms)), now_ms);
            }
        }
    }

    /// The links of its LACP.
    fn links(&self, spec: &BondSpec, served: &ControlServer) -> Vec<(PortNo, LinkSettings, bool)> {
        let of = |member: &MemberPort| {
            let own = spec.members.iter().find(|own| own.interface == member.interface)?;
            Some((member.port, own.link(member.port, mac_of(member, served)), is_up(member, served)))
        };
        self.members.iter().filter(|member| member.is_open).filter_map(of).collect()
    }

    /// Makes inlets for the members that speak LACP; returns whether workers are to have others.
    fn follow_inlets(&mut self, inlet: impl Fn() -> Option<Arc<Inlet>>) -> bool {
        let before: Vec<PortNo> = self.inlets.keys().copied().collect();
        let has_lacp = self.lacp.is_some();
        self.inlets.retain(|port, _| has_lacp && self.members.iter().any(|member| member.port == *port));
        for member in self.members.iter().filter(|_| has_lacp) {
            if !self.inlets.contains_key(&member.port)
                && let Some(inlet) = inlet()
            {
                self.inlets.insert(member.port, inlet);
            }
        }
        !before.iter().eq(self.inlets.keys())
    }

    /// Returns the bond as workers see it.
    fn view(&self) -> Option<BondView> {
        let mut view = self.bond.as_ref()?.view();
        view.hold(self.members.iter().filter(|member| !member.is_open).map(|member| member.port));
        Some(view)
    }

    /// Takes the PDUs that have come; returns those to be sent.
    fn receive(
        &mut self,
        served: &ControlServer,
        ms: impl Fn(Instant) -> u64,
        now_ms: u64,
    ) -> Vec<(PortNo, Vec<u8>)> {
        let Some(lacp) = &mut self.lacp else { return Vec::new() };
        for member in &self.members {
            lacp.set_up(member.port, is_up(member, served), now_ms);
        }
        for (port, inlet) in &self.inlets {
            for frame in inlet.take() {
                // The link counts those that are refused.
                _ = lacp.receive(*port, &frame.bytes, ms(frame.received));
            }
        }
        lacp.run(now_ms)
    }

    /// Chooses members; returns whether workers are to have another view.
    fn choose(&mut self, served: &ControlServer, bfd: &BfdSessions, now_ms: u64) -> bool {
        let Some(bond) = &mut self.bond else { return false };
        for member in &self.members {
            let is_reached = bfd.status(&member.interface).is_none_or(|status| status.is_forwarding);
            let is_agreed = self.lacp.as_ref().is_none_or(|lacp| lacp.may_enable(member.port));
            bond.set_well(member.port, is_up(member, served) && is_reached && is_agreed);
        }
        bond.set_lacp(match &self.lacp {
            None => LacpState::Off,
            Some(lacp) if lacp.is_negotiated() => LacpState::Negotiated,
            Some(_) => LacpState::Configured,
        });
        bond.run(now_ms);
        bond.take_change().is_some()
    }

    fn deadline_ms(&self, now_ms: u64) -> u64 {
        let of_bond = self.bond.as_ref().map_or(u64::MAX, Bond::deadline_ms);
        let of_lacp = self.lacp.as_ref().map_or(u64::MAX, Lacp::deadline_ms);
        let has_bfd = self.bond.is_some() && self.members.iter().any(|member| member.has_bfd);
        let of_bfd = if has_bfd { now_ms + BFD_MS } else { u64::MAX };
        of_bond.min(of_lacp).min(of_bfd)
    }

    /// The address of the active member; zero where there is none.
    fn active_mac(&self, bond: &Bond, served: &ControlServer) -> [u8; 6] {
        let active = self.members.iter().find(|member| Some(member.port) == bond.active());
        active.map_or([0; 6], |member| mac_of(member, served))
    }
}

fn is_up(member: &MemberPort, served: &ControlServer) -> bool {
    member.is_open && (!member.has_link || served.is_link_up(&member.name, member.may_hide))
}

fn mac_of(member: &MemberPort, served: &ControlServer) -> [u8; 6] {
    let link = served.link(&member.name).filter(|_| member.has_link);
    link.and_then(|link| link.mac).unwrap_or_else(|| local_mac(member.port))
}
