//! The accelerators: their sizes and latencies, and the choices that the paper leaves open.

use serde::{Deserialize, Serialize};

/// The rule that selects an accelerator for a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatch {
    /// By a hash of the table's address: all queries of a table go to one accelerator.
    Table,
    /// By table, each new table to the next accelerator: the most even map.
    Balanced,
    /// By the address of the first bucket.
    Bucket,
}

/// How an accelerator accesses other slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remote {
    /// With the latency of its own slice.
    Ideal,
    /// Over the mesh.
    Mesh,
}

/// How an accelerator translates addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Translation {
    /// Without latency.
    Ideal,
    /// With a TLB of its own.
    Tlb,
    /// By a request to the core for every access.
    Core,
}

/// When an accelerator locks and fetches a key's second bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buckets {
    /// Together with the first, once the key is hashed.
    Together,
    /// After the first was compared, and only if the table's filter says that a key may have moved there.
    InTurn,
}

/// How long lines stay locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockHold {
    /// Until the query commits.
    Commit,
    /// Until the line has been read.
    Data,
}

/// The effect of LOOKUP_B on later instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocking {
    /// No later instruction enters the window before the answer arrives.
    Serialise,
    /// Later instructions proceed as behind a load.
    LoadLike,
}

/// The location of a query's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyPlace {
    /// In the shared cache.
    Llc,
    /// In the cache of the core, which has written the key.
    Core,
}

/// The configuration of the accelerators.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AcceleratorConfig {
    pub scoreboard_queries: u32,
    pub in_flight_queries: u32,
    pub metadata_tables: u32,
    pub metadata_cycles: u64,
    pub hash_cycles: u64,
    pub compare_cycles: u64,
    pub boundary_cycles: u64,
    pub fixed_cycles: u64,
    pub slice_cycles: u64,
    pub distributor_cycles: u64,
    pub dispatch: Dispatch,
    pub dispatch_seed: u64,
    pub remote: Remote,
    pub translation: Translation,
    pub tlb_entries: u32,
    pub tlb_miss_cycles: u64,
    pub buckets: Buckets,
    pub lock_hold: LockHold,
    pub blocking: Blocking,
    pub key: KeyPlace,
    pub flow_register_bits: u32,
    pub snapshot_retry_cycles: u64,
    pub packets_ahead: u32,
    pub packets_at_once: u32,
}

/// The configuration of the engines next to second-level caches.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NearL2Config {
    pub in_flight_queries: u32,
    pub attach_cycles: u64,
    pub fixed_cycles: u64,
    pub hash_cycles: u64,
    pub compare_cycles: u64,
}
