//! Groups and their buckets.

pub use flowlane::rule::group::{Bucket, BucketPlace, GroupKind};

/// The number that means all groups.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// The number that means any group, or none.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// The largest number of a group.
pub const GROUP_MAX: u32 = 0xffff_ff00;

/// A change of groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupCommand {
    /// A group comes.
    Add,
    /// A group's kind and buckets are replaced.
    Modify,
    /// A group comes, or is replaced (Open vSwitch's extension, 0x8000).
    AddOrModify,
    /// A group, or all, go.
    Delete,
    /// Buckets come behind those of a place (OpenFlow 1.5).
    InsertBuckets(BucketPlace),
    /// Buckets go (OpenFlow 1.5).
    RemoveBuckets(BucketPlace),
}

/// How a `select` group chooses (nicira-ext, `NTRSELECT`): a property of OpenFlow 1.5.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The method's name, `hash` or `dp_hash`, of up to 15 bytes; empty: the switch's own.
    pub method: String,
    /// The method's parameter.
    pub parameter: u64,
    /// The fields that are hashed.
    pub fields: Vec<SelectionField>,
}

/// A field that a [`Selection`] looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SelectionField {
    /// The field.
    pub field: flowlane::Field,
    /// The bits, right-aligned.
    pub mask: u128,
}

/// Changes groups (OpenFlow 1.3.5 7.3.4.2, 1.5.1 7.3.4.3; in OpenFlow 1.0 Nicira's message 31).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// The change.
    pub command: GroupCommand,
    /// The kind.
    pub kind: GroupKind,
    /// The group, or [`GROUP_ALL`].
    pub group: u32,
    /// The buckets, in order.
    pub buckets: Vec<Bucket>,
    /// How a `select` group chooses.
    pub selection: Option<Selection>,
}

/// A group's description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDescription {
    /// The group.
    pub group: u32,
    /// The kind.
    pub kind: GroupKind,
    /// The buckets, in order.
    pub buckets: Vec<Bucket>,
    /// How a `select` group chooses.
    pub selection: Option<Selection>,
}

/// Statistics of a group (OpenFlow 1.3.5 7.3.5.9).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupStats {
    /// The group.
    pub group: u32,
    /// Rules and groups that refer to it.
    pub references: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Seconds since it came.
    pub duration_s: u32,
    /// Nanoseconds beyond these seconds.
    pub duration_ns: u32,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// Features of groups (OpenFlow 1.3.5 7.3.5.11).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GroupFeatures {
    /// Bits of the kinds, `all` (bit 0) to `fast failover` (bit 3).
    pub kinds: u32,
    /// Bits of `OFPGFC`: weights (0), liveness (1), chains (2), checks of chains (3).
    pub capabilities: u32,
    /// The most groups of each kind.
    pub groups_max: [u32; 4],
    /// Bits of the actions of each kind, by their numbers in OpenFlow 1.1 and later.
    pub actions: [u32; 4],
}
