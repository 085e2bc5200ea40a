//! The members of a bond: which are enabled, and which is the active one.
//!
//! Times are milliseconds of any clock that does not go back.

use flowlane::rule::action::PortNo;

use super::balance::Buckets;
use super::{BondMember, BondMode, BondSettings, BondView, LacpState};

/// There is no member of a name, or it does not send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such member")]
pub struct NoMember;

/// A member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) port: PortNo,
    pub(super) name: String,
    pub(super) is_enabled: bool,
    /// Its link is up, and LACP and BFD have nothing against it.
    pub(super) is_well: bool,
    /// When it is enabled or disabled, unless it changes again.
    pub(super) due_ms: Option<u64>,
}

/// A bond.
#[derive(Debug)]
pub struct Bond {
    pub(super) settings: BondSettings,
    pub(super) lacp: LacpState,
    /// In the order of their numbers.
    pub(super) members: Vec<Member>,
    pub(super) active: Option<PortNo>,
    pub(super) buckets: Buckets,
    pub(super) rebalance_ms: u64,
    /// The view that workers have is not the present one.
    has_changed: bool,
    /// Neighbours are to learn again where addresses are.
    announces: bool,
}

impl Bond {
    /// Makes a bond without members.
    pub fn new(settings: BondSettings, now_ms: u64) -> Self {
        let rebalance_ms = now_ms + settings.rebalance_ms;
        Self {
            settings,
            lacp: LacpState::Off,
            members: Vec::new(),
            active: None,
            buckets: Buckets::default(),
            rebalance_ms,
            has_changed: true,
            announces: false,
        }
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: BondSettings, now_ms: u64) {
        if settings.rebalance_ms != self.settings.rebalance_ms || settings.mode != self.settings.mode {
            self.rebalance_ms = now_ms + settings.rebalance_ms;
        }
        self.has_changed |= settings != self.settings;
        self.settings = settings;
    }

    /// Makes the members these; those that were members stay as they are.
    pub fn set_members(&mut self, members: &[(PortNo, String)]) {
        let of = |(port, name): &(PortNo, String)| {
            let known = self.members.iter().find(|member| member.port == *port && member.name == *name);
            known.cloned().unwrap_or_else(|| Member {
                port: *port,
                name: name.clone(),
                is_enabled: false,
                is_well: false,
                due_ms: None,
            })
        };
        let mut now: Vec<Member> = members.iter().map(of).collect();
        now.sort_by_key(|member| member.port);
        self.has_changed |= now != self.members;
        self.members = now;
    }

    /// Makes a member the active one, if it is enabled by the next run.
    pub fn prefer(&mut self, port: PortNo) {
        if self.active != Some(port) && self.members.iter().any(|member| member.port == port) {
            (self.active, self.has_changed) = (Some(port), true);
        }
    }

    /// Notes how LACP is.
    pub fn set_lacp(&mut self, lacp: LacpState) {
        self.has_changed |= self.lacp != lacp;
        self.lacp = lacp;
    }

    /// Notes whether a member may be enabled.
    pub fn set_well(&mut self, port: PortNo, is_well: bool) {
        if let Some(member) = self.members.iter_mut().find(|member| member.port == port) {
            member.is_well = is_well;
        }
    }

    /// Enables and disables members whose time has come, chooses the active one, and distributes buckets.
    pub fn run(&mut self, now_ms: u64) {
        let delays = match self.lacp {
            LacpState::Off => [self.settings.downdelay_ms, self.settings.updelay_ms],
            // LACP has timers of its own.
            LacpState::Configured | LacpState::Negotiated => [0; 2],
        };
        for member in &mut self.members {
            if member.is_well == member.is_enabled {
                member.due_ms = None;
                continue;
            }
            let due_ms = *member.due_ms.get_or_insert(now_ms + delays[usize::from(member.is_well)]);
            if now_ms >= due_ms {
                (member.is_enabled, member.due_ms) = (member.is_well, None);
                self.has_changed = true;
            }
        }
        self.choose_active();
        let enabled = self.enabled();
        let (is_loaded, has_moved) = self.buckets.assign(&enabled);
        self.has_changed |= has_moved;
        // Their sources are at another link now.
        let is_slb = self.settings.mode == BondMode::BalanceSlb && self.lacp == LacpState::Off;
        self.announces |= is_loaded && is_slb;
        if self.is_balanced() && now_ms >= self.rebalance_ms {
            self.has_changed |= self.buckets.rebalance(&enabled);
            self.rebalance_ms = now_ms + self.settings.rebalance_ms;
        }
    }

    /// The members that are enabled.
    fn enabled(&self) -> Vec<PortNo> {
        self.members.iter().filter(|member| member.is_enabled).map(|member| member.port).collect()
    }

    /// Returns whether buckets move by their load.
    pub(super) fn is_balanced(&self) -> bool {
        let has_buckets = match self.settings.mode {
            BondMode::ActiveBackup => false,
            BondMode::BalanceSlb | BondMode::BalanceTcp => self.lacp != LacpState::Configured,
        };
        has_buckets && self.settings.rebalance_ms > 0
    }

    /// Chooses the active member: the primary one, else the one that is active, else any that is enabled. Where none is, the one
    /// that would be enabled first is at once.
    fn choose_active(&mut self) {
        let enabled = |member: &&Member| member.is_enabled;
        let primary = |member: &&Member| Some(&member.name) == self.settings.primary.as_ref();
        let active = |member: &&Member| Some(member.port) == self.active;
        let members = || self.members.iter().filter(enabled);
        let chosen = members().find(primary).or_else(|| members().find(active)).or_else(|| members().next());
        let mut chosen = chosen.map(|member| member.port);
        if chosen.is_none() {
            let waiting = self.members.iter_mut().filter(|member| member.is_well && member.due_ms.is_some());
            if let Some(first) = waiting.min_by_key(|member| member.due_ms) {
                (first.is_enabled, first.due_ms) = (true, None);
                chosen = Some(first.port);
            }
        }
        if chosen != self.active {
            self.announces |= chosen.is_some() && self.lacp != LacpState::Negotiated;
            (self.active, self.has_changed) = (chosen, true);
        }
    }

    /// Makes a member the active one until the next change. Returns whether it was not.
    ///
    /// # Errors
    /// Where there is no member of this name that is enabled.
    pub fn set_active(&mut self, name: &str) -> Result<bool, NoMember> {
        let member = self.find(name)?;
        if !member.is_enabled {
            return Err(NoMember);
        }
        let port = member.port;
        let is_new = self.active != Some(port);
        (self.active, self.has_changed) = (Some(port), true);
        self.announces |= is_new;
        Ok(is_new)
    }

    /// Enables or disables a member until the next change of its link.
    ///
    /// # Errors
    /// Where there is no member of this name.
    pub fn set_enabled(&mut self, name: &str, is_enabled: bool) -> Result<(), NoMember> {
        let member = self.members.iter_mut().find(|member| member.name == name).ok_or(NoMember)?;
        (member.is_enabled, member.due_ms) = (is_enabled, None);
        self.has_changed = true;
        Ok(())
    }

    /// Gives a bucket to a member.
    ///
    /// # Errors
    /// Where there is no member of this name that is enabled.
    pub fn migrate(&mut self, bucket: u8, name: &str) -> Result<(), NoMember> {
        let member = self.find(name).ok().filter(|member| member.is_enabled).ok_or(NoMember)?;
        self.buckets.migrate(bucket, member.port);
        self.has_changed = true;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&Member, NoMember> {
        self.members.iter().find(|member| member.name == name).ok_or(NoMember)
    }

    /// Returns whether there is a member of a name.
    pub fn has_member(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Returns the active member.
    pub fn active(&self) -> Option<PortNo> {
        self.active
    }

    /// Returns the settings.
    pub fn settings(&self) -> &BondSettings {
        &self.settings
    }

    /// Returns when [`run`](Self::run) has something to do, if nothing changes before.
    pub fn deadline_ms(&self) -> u64 {
        let due = self.members.iter().filter_map(|member| member.due_ms).min().unwrap_or(u64::MAX);
        if self.is_balanced() { due.min(self.rebalance_ms) } else { due }
    }

    /// Returns the present view if workers have another one.
    pub fn take_change(&mut self) -> Option<BondView> {
        std::mem::take(&mut self.has_changed).then(|| self.view())
    }

    /// Returns once whether neighbours are to learn again where addresses are: another member is the active one.
    pub fn take_announcement(&mut self) -> bool {
        std::mem::take(&mut self.announces)
    }

    /// Returns the bond as workers see it.
    pub fn view(&self) -> BondView {
        let member = |member: &Member| BondMember { port: member.port, is_enabled: member.is_enabled };
        let members = self.members.iter().map(member).collect();
        BondView::new(&self.settings, self.lacp, members, self.active, self.buckets.shared())
    }
}
