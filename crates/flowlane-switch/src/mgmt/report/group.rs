//! The counters of groups.

use flowlane::rule::flow_syntax::print_actions;
use flowlane::rule::group::{Bucket, GroupKind};
use serde::{Deserialize, Serialize};

use crate::datapath::Worker;

/// A group with its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupReport {
    pub number: u32,
    /// Its type, as `ovs-ofctl` writes it.
    pub kind: String,
    pub packets: u64,
    pub bytes: u64,
    pub buckets: Vec<BucketReport>,
}

/// A bucket with its counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketReport {
    pub number: u32,
    /// Its weight in a group of the type `select`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    pub actions: String,
    pub packets: u64,
    pub bytes: u64,
}

/// The groups of a switch, as one of its workers has counted them.
pub(super) fn reports(worker: &Worker) -> Vec<GroupReport> {
    let groups = worker.lookup.pipeline.ruleset().groups().iter();
    let report = |(number, group): (u32, &std::sync::Arc<crate::ruleset::CompiledGroup>)| {
        let (group, counts) = (&group.group, worker.groups.get(number));
        let bucket = |bucket: &Bucket| {
            let count = counts.buckets.get(&bucket.id).copied().unwrap_or_default();
            BucketReport {
                number: bucket.id,
                weight: (group.kind == GroupKind::Select).then_some(bucket.weight),
                actions: print_actions(&bucket.actions),
                packets: count.packets,
                bytes: count.bytes,
            }
        };
        GroupReport {
            number,
            kind: if group.kind == GroupKind::FastFailover { "ff".into() } else { group.kind.to_string() },
            packets: counts.all.packets,
            bytes: counts.all.bytes,
            buckets: group.buckets.iter().map(bucket).collect(),
        }
    };
    groups.map(report).collect()
}
