//! Groups: what several rules do together (OpenFlow 1.5.1, 5.10).

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use super::Action;
use super::action::PortNo;
use crate::packet::{Field, FieldRef};

/// How a group uses its buckets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum GroupKind {
    /// Each bucket gets a copy of the packet.
    All,
    /// One bucket, by a hash of the packet and the buckets' weights.
    Select,
    /// The only bucket.
    Indirect,
    /// The first live bucket.
    #[strum(serialize = "ff", serialize = "fast_failover")]
    FastFailover,
}

/// How a group of the kind `select` hashes packets.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Selection {
    /// As the switch likes: addresses and ports.
    #[default]
    Default,
    /// The datapath's hash: addresses and ports.
    DpHash,
    /// These fields; with none, addresses and ports.
    Hash(Vec<FieldRef>),
}

/// The actions for packets that a group gives to them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bucket {
    /// Its number within the group.
    pub id: u32,
    /// Its share of the packets of a `select` group.
    pub weight: u16,
    /// It is live while this port is up.
    pub watch_port: Option<PortNo>,
    /// It is live while this group has a live bucket.
    pub watch_group: Option<u32>,
    /// An action set.
    pub actions: Vec<Action>,
}

/// Buckets of a group, by their place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BucketPlace {
    /// The bucket of this number.
    Id(u32),
    /// The first.
    First,
    /// The last.
    Last,
    /// All of them.
    All,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// Its number, up to [`Group::MAX`].
    pub id: u32,
    /// How it uses its buckets.
    pub kind: GroupKind,
    /// How packets are hashed.
    pub selection: Selection,
    /// The parameter of the selection's hash.
    pub basis: u64,
    /// In order.
    pub buckets: Vec<Bucket>,
}

impl Group {
    /// The largest number of a group, and of a bucket: those above have other meanings in OpenFlow.
    pub const MAX: u32 = 0xffff_ff00;

    /// The fields that a hash of addresses and ports covers.
    pub const HASHED: [Field; 10] = [
        Field::EthSrc,
        Field::EthDst,
        Field::EthType,
        Field::NwProto,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::Ipv6Src,
        Field::Ipv6Dst,
        Field::TpSrc,
        Field::TpDst,
    ];
}
