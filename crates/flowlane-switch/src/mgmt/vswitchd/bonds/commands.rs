//! The bonds as the commands `bond/*` and `lacp/*` of `ovs-appctl` show and change them, in Open vSwitch's words.

use super::{Bonds, Driven};
use crate::mgmt::rpc::ControlServer;
use crate::state::bond::{Bond, BondMode};

const NO_MEMBER: &str = "no such member";

impl Bonds {
    /// The lines of `bond/list`.
    pub(in super::super) fn list(&self) -> Vec<String> {
        let inner = self.lock();
        inner.by_row.values().filter_map(|driven| Some(driven.bond.as_ref()?.list(&driven.name))).collect()
    }

    /// Describes all bonds, or that of a name.
    pub(in super::super) fn describe(&self, name: Option<&str>, served: &ControlServer) -> Option<String> {
        let now_ms = self.thread.now_ms();
        let mut inner = self.lock();
        let of = |driven: &mut Driven| {
            let mac = driven.active_mac(driven.bond.as_ref()?, served);
            Some(driven.bond.as_mut()?.describe(&driven.name, mac, now_ms))
        };
        let asked = inner.by_row.values_mut().filter(|driven| name.is_none_or(|name| driven.name == name));
        all_or_one(asked.filter_map(of), name)
    }

    /// Describes the LACP of all ports, or of that of a name.
    pub(in super::super) fn describe_lacp(&self, name: Option<&str>) -> Option<String> {
        self.of_lacp(name, |driven| Some(driven.lacp.as_ref()?.describe(&driven.name)))
    }

    /// Describes the counters of LACP of all ports, or of that of a name.
    pub(in super::super) fn describe_lacp_counters(&self, name: Option<&str>) -> Option<String> {
        self.of_lacp(name, |driven| Some(driven.lacp.as_ref()?.describe_counters(&driven.name)))
    }

    fn of_lacp(&self, name: Option<&str>, of: impl Fn(&Driven) -> Option<String>) -> Option<String> {
        let inner = self.lock();
        let asked = inner.by_row.values().filter(|driven| name.is_none_or(|name| driven.name == name));
        all_or_one(asked.filter_map(of), name)
    }

    /// Changes the bond of a name; none where there is none.
    fn change<T>(&self, name: &str, change: impl FnOnce(&mut Bond) -> T) -> Option<T> {
        let mut inner = self.lock();
        let driven = inner.by_row.values_mut().find(|driven| driven.name == name && driven.bond.is_some());
        let changed = driven.and_then(|driven| driven.bond.as_mut()).map(change);
        drop(inner);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        changed
    }

    /// Makes a member the active one.
    pub(in super::super) fn set_active(&self, name: &str, member: &str) -> Option<Result<String, String>> {
        self.change(name, |bond| match bond.set_active(member) {
            Ok(true) => Ok("done\n".to_owned()),
            Ok(false) => Ok("no change\n".to_owned()),
            Err(_) if bond.has_member(member) => Err("cannot make disabled member active".to_owned()),
            Err(_) => Err(NO_MEMBER.to_owned()),
        })
    }

    /// Enables or disables a member.
    pub(in super::super) fn set_enabled(
        &self,
        name: &str,
        member: &str,
        is_enabled: bool,
    ) -> Option<Result<String, String>> {
        let said = if is_enabled { "enabled\n" } else { "disabled\n" };
        let set = |bond: &mut Bond| bond.set_enabled(member, is_enabled).map(|()| said.to_owned());
        self.change(name, |bond| set(bond).map_err(|_| NO_MEMBER.to_owned()))
    }

    /// Gives a bucket to a member; of a larger number, the lowest bits count.
    pub(in super::super) fn migrate(
        &self,
        name: &str,
        bucket: &str,
        member: &str,
    ) -> Option<Result<String, String>> {
        self.change(name, |bond| {
            if bond.settings().mode != BondMode::BalanceSlb {
                return Err("not an SLB bond".to_owned());
            }
            let bucket: u32 = bucket.parse().map_err(|_| "bad hash".to_owned())?;
            match bond.migrate(bucket as u8, member) {
                Ok(()) => Ok("migrated\n".to_owned()),
                Err(_) if bond.has_member(member) => Err("cannot migrate to disabled member".to_owned()),
                Err(_) => Err(NO_MEMBER.to_owned()),
            }
        })
    }
}

/// All descriptions as one; none where the one that was asked for is not there.
fn all_or_one(all: impl Iterator<Item = String>, name: Option<&str>) -> Option<String> {
    let all: Vec<String> = all.collect();
    (name.is_none() || !all.is_empty()).then(|| all.concat())
}
