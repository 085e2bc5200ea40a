//! Bonds: ports of several interfaces, the *members* (ovs-vswitchd.conf.db(5), "Bonding Configuration").
//!
//! For the `normal` action a bond is one port, with one entry for each address learned through it. A frame leaves through one
//! member, and is let in by some members only, so that a neighbour that knows nothing of the bond sends no frame around:
//!
//! | mode | sends through | lets in |
//! |---|---|---|
//! | `active-backup` | the active member | the active member |
//! | `balance-slb` | the member of the hash of source address and VLAN | all members, groups only the active one; not from a source that was learned elsewhere, since that is a frame of ours that came back |
//! | `balance-tcp` | the member of the hash of addresses and ports | members that LACP has negotiated |
//!
//! Where LACP is negotiated, members that it enables let frames in, in all modes. Where it is asked for in vain, the bond passes
//! nothing, or is of mode `active-backup` where that is the fallback.
//!
//! A [`Bond`] has neither a clock nor links: callers pass both. Workers get a [`BondView`], which is immutable but for the loads that
//! they count. A hash names one of 256 buckets, each of which belongs to a member; every few seconds some move from members
//! with more load to those with less.
//!
//! ```text
//! links, LACP, BFD ─► Bond: delays, active member, buckets ─► BondView ─► workers
//!                       ▲                                        │
//!                       └────────── loads of buckets ────────────┘
//! ```

mod balance;
mod hash;
mod members;
mod text;
mod view;

pub use hash::{is_gratuitous_arp, source_hash};
pub use members::{Bond, NoMember};
pub use view::{Admission, BondMember, BondView, Loads};

/// The number of buckets.
pub const BUCKETS: usize = 256;

/// The choice of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BondMode {
    #[default]
    ActiveBackup,
    BalanceSlb,
    BalanceTcp,
}

impl BondMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ActiveBackup, Self::BalanceSlb, Self::BalanceTcp];

    /// Returns its name, as in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceSlb => "balance-slb",
            Self::BalanceTcp => "balance-tcp",
        }
    }
}

/// The state of LACP on a bond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LacpState {
    /// Not asked for.
    #[default]
    Off,
    /// Asked for, but no neighbour has agreed.
    Configured,
    Negotiated,
}

impl LacpState {
    /// Returns its name, as Open vSwitch's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Configured => "configured",
            Self::Negotiated => "negotiated",
        }
    }
}

/// The settings of a bond; the defaults are those of Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BondSettings {
    pub mode: BondMode,
    /// How long a link must be up before its member is enabled.
    pub updelay_ms: u64,
    /// How long a link must be down before its member is disabled.
    pub downdelay_ms: u64,
    /// The name of the member that is the active one while it is enabled.
    pub primary: Option<String>,
    /// The interval between two distributions of buckets; 0: buckets stay.
    pub rebalance_ms: u64,
    pub hash_basis: u32,
    /// Without a neighbour that speaks LACP, the mode is `active-backup`.
    pub falls_back: bool,
    /// In mode `balance-slb`, all members let frames to groups in.
    pub all_members_active: bool,
}

/// The default interval between two distributions of buckets.
pub const REBALANCE_MS: u64 = 10_000;

impl Default for BondSettings {
    fn default() -> Self {
        Self {
            mode: BondMode::default(),
            updelay_ms: 0,
            downdelay_ms: 0,
            primary: None,
            rebalance_ms: REBALANCE_MS,
            hash_basis: 0,
            falls_back: false,
            all_members_active: false,
        }
    }
}

#[cfg(test)]
mod tests;
