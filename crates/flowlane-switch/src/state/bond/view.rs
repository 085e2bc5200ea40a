//! A bond as workers see it.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane::rule::action::PortNo;

use super::hash::{flow_hash, mac_at, source_hash};
use super::{BUCKETS, BondMode, BondSettings, LacpState};

/// The bytes that all workers have sent of each bucket.
#[derive(Debug)]
pub struct Loads([AtomicU64; BUCKETS]);

impl Default for Loads {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Loads {
    /// Counts a frame.
    pub fn add(&self, bucket: u8, bytes: usize) {
        self.0[usize::from(bucket)].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes of a bucket.
    pub fn bytes(&self, bucket: u8) -> u64 {
        self.0[usize::from(bucket)].load(Ordering::Relaxed)
    }
}

/// A member as workers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BondMember {
    pub port: PortNo,
    pub is_enabled: bool,
}

/// Which frames a bond lets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    Accept,
    Drop,
    /// Unless their source was learned at another port. A gratuitous ARP says that it has moved.
    AcceptUnlessLearnedElsewhere,
}

/// The members that let frames in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LetIn {
    Nothing,
    /// The active member.
    Active,
    /// Those that LACP has negotiated.
    Enabled,
    /// All, but groups only by the active one.
    All {
        groups: bool,
    },
}

/// The member that a frame leaves through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spreading {
    None,
    Active,
    BySource,
    ByFlow,
}

/// A bond as workers see it, until the next change.
#[derive(Clone, Debug)]
pub struct BondView {
    /// Its members, in the order of their numbers, and those that are held.
    members: Vec<BondMember>,
    active: Option<PortNo>,
    let_in: LetIn,
    spreading: Spreading,
    /// The members of buckets: enabled ones.
    buckets: [Option<PortNo>; BUCKETS],
    hash_basis: u32,
    loads: Arc<Loads>,
}

impl BondView {
    /// A bond that lets nothing in or out.
    pub fn closed(members: &[PortNo]) -> Self {
        let mut members: Vec<BondMember> =
            members.iter().map(|port| BondMember { port: *port, is_enabled: false }).collect();
        members.sort_by_key(|member| member.port);
        let (let_in, spreading) = (LetIn::Nothing, Spreading::None);
        let (active, buckets, loads) = (None, [None; BUCKETS], Arc::default());
        Self { members, active, let_in, spreading, buckets, hash_basis: 0, loads }
    }

    pub(super) fn new(
        settings: &BondSettings,
        lacp: LacpState,
        mut members: Vec<BondMember>,
        active: Option<PortNo>,
        (buckets, loads): ([Option<PortNo>; BUCKETS], Arc<Loads>),
    ) -> Self {
        members.sort_by_key(|member| member.port);
        let needs_lacp = lacp == LacpState::Configured || settings.mode == BondMode::BalanceTcp;
        let (let_in, spreading) = match (settings.mode, lacp) {
            (BondMode::ActiveBackup, LacpState::Negotiated) => (LetIn::Enabled, Spreading::Active),
            (BondMode::BalanceSlb, LacpState::Negotiated) => (LetIn::Enabled, Spreading::BySource),
            (BondMode::BalanceTcp, LacpState::Negotiated) => (LetIn::Enabled, Spreading::ByFlow),
            _ if needs_lacp && !settings.falls_back => (LetIn::Nothing, Spreading::None),
            (BondMode::BalanceSlb, LacpState::Off) => {
                (LetIn::All { groups: settings.all_members_active }, Spreading::BySource)
            }
            _ => (LetIn::Active, Spreading::Active),
        };
        Self { members, active, let_in, spreading, buckets, hash_basis: settings.hash_basis, loads }
    }

    /// Lets ports belong to the bond that are about to be opened: they are members without a part in anything.
    pub fn hold(&mut self, ports: impl IntoIterator<Item = PortNo>) {
        // Behind the others: addresses learned through the bond keep the number of the first.
        self.members.extend(ports.into_iter().map(|port| BondMember { port, is_enabled: false }));
    }

    /// Returns the member whose number addresses learned through the bond have.
    pub fn lead(&self) -> Option<PortNo> {
        self.members.first().map(|member| member.port)
    }

    /// Returns the members, in the order of their numbers, and those that are held.
    pub fn members(&self) -> &[BondMember] {
        &self.members
    }

    /// Returns whether a port is a member.
    pub fn has(&self, port: PortNo) -> bool {
        self.members.iter().any(|member| member.port == port)
    }

    /// Returns whether a bond lets a frame in that came through a member.
    pub fn admission(&self, member: PortNo, frame: &[u8]) -> Admission {
        let is_active = self.active == Some(member);
        let is_group = frame.first().is_some_and(|byte| byte & 1 == 1);
        let is_let_in = match self.let_in {
            LetIn::Nothing => false,
            LetIn::Active => is_active,
            LetIn::Enabled => self.members.iter().any(|one| one.port == member && one.is_enabled),
            LetIn::All { groups } if !is_group || is_active || groups => {
                return Admission::AcceptUnlessLearnedElsewhere;
            }
            LetIn::All { .. } => false,
        };
        if is_let_in { Admission::Accept } else { Admission::Drop }
    }

    /// Returns the member that a frame in a VLAN leaves through, with its bucket if it has one. `None`: it does not leave.
    pub fn member_for(&self, frame: &[u8], vid: u16) -> Option<(PortNo, Option<u8>)> {
        let hash = match self.spreading {
            Spreading::None => return None,
            Spreading::Active => return self.active.map(|port| (port, None)),
            Spreading::BySource => source_hash(mac_at(frame, 6), vid, self.hash_basis),
            Spreading::ByFlow => flow_hash(frame, vid, self.hash_basis),
        };
        let bucket = hash as u8;
        self.buckets[usize::from(bucket)].map(|port| (port, Some(bucket)))
    }

    /// Counts a frame that has left.
    pub fn count(&self, bucket: Option<u8>, bytes: usize) {
        if let Some(bucket) = bucket {
            self.loads.add(bucket, bytes);
        }
    }
}
