//! The bonds of a bridge: which of its ports are members.

use std::thread::{Builder, Thread};

use flowlane::rule::action::PortNo;
use flowlane_ovsdb::Uuid;
use serde_json::Value;

use super::{Bridge, BridgePort};
use crate::mgmt::vswitchd::bfd::BfdSessions;
use crate::mgmt::vswitchd::bonds::{BondSpec, Bonds, MemberPort};
use crate::mgmt::vswitchd::model::{BridgeSpec, InterfaceSpec};
use crate::mgmt::vswitchd::multicast::BridgeSnooping;
use crate::mgmt::vswitchd::spanning_tree::BridgeTree;

/// The sessions of BFD and LACP, the listeners of groups, and the spanning tree, for another process.
pub(super) fn save_sessions(
    bfd: &BfdSessions,
    bonds: &Bonds,
    snooping: &BridgeSnooping,
    tree: &BridgeTree,
) -> Value {
    let mut all = bfd.save();
    // Other versions of the program take the sessions of BFD alone.
    all["lacp"] = bonds.save();
    all["multicast"] = snooping.save();
    all["tree"] = tree.save();
    all
}

impl Bridge {
    /// Takes the sessions of another process.
    pub(super) fn restore_sessions(&self, mut sessions: Value) {
        let mut take = |key| sessions.get_mut(key).map(Value::take).unwrap_or_default();
        self.bonds.restore(take("lacp"));
        self.snooping.restore(take("multicast"));
        self.tree.restore(take("tree"));
        self.bfd.restore(sessions);
    }

    /// Says which settings of bonds cannot be followed, once each.
    pub(super) fn note_bonds(&mut self, spec: &BridgeSpec) {
        for bond in &spec.bonds {
            let before = self.spec.bonds.iter().find(|before| before.uuid == bond.uuid);
            if before.is_none_or(|before| before.problem != bond.problem) {
                self.problems.extend(bond.problem.clone());
            }
        }
    }

    /// Makes the bonds those that are asked for, with the ports that are open, and one that comes.
    pub(super) fn follow_bonds(&mut self, spec: &BridgeSpec, coming: Option<(&InterfaceSpec, u32)>) {
        if spec.bonds.is_empty() && self.bonds.thread.get().is_none() {
            return;
        }
        if let Err(error) = self.start_bonds() {
            self.problems.push(format!("bonds have no thread: {error}"));
        }
        let members: Vec<_> = spec.bonds.iter().map(|bond| (bond, self.members_of(bond, coming))).collect();
        self.bonds.follow(&members, self.own_mac(spec), &self.served);
        self.bonds.update(&self.served, &self.bfd);
    }

    /// The members of a bond whose ports are open, or about to be.
    fn members_of(&self, bond: &BondSpec, coming: Option<(&InterfaceSpec, u32)>) -> Vec<MemberPort> {
        let member = |interface: &InterfaceSpec, number: u32, is_open: bool| MemberPort {
            interface: interface.uuid,
            port: PortNo(number),
            name: interface.name.clone(),
            is_open,
            has_link: interface.has_link(),
            may_hide: !interface.is_of_system(),
            has_bfd: interface.bfd.is_some(),
        };
        let rows = bond.members.iter().map(|member| member.interface);
        let find = |row: Uuid| match (self.ports.get(&row), coming) {
            (Some(BridgePort { spec, opened: Ok(number), .. }), _) => Some(member(spec, *number, true)),
            (_, Some((spec, number))) if spec.uuid == row => Some(member(spec, number, false)),
            _ => None,
        };
        rows.filter_map(find).collect()
    }

    /// Starts the thread of bonds, if it does not run.
    fn start_bonds(&mut self) -> std::io::Result<()> {
        if self.bonds.thread.get().is_some() {
            return Ok(());
        }
        let (served, bonds) = (self.served.clone(), self.bonds.clone());
        let (bfd, is_over) = (self.bfd.clone(), self.is_over.clone());
        let thread = self.spawn("bonds", move || bonds.run(&served, &bfd, &is_over))?;
        self.bonds.thread.set(thread);
        Ok(())
    }

    /// Starts a thread of the bridge.
    pub(super) fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Thread> {
        let handle = Builder::new().name(name.to_owned()).spawn(work)?;
        let thread = handle.thread().clone();
        self.threads.push(handle);
        Ok(thread)
    }
}
