//! The device behind tables of `engine = "gpu"`.

use schemars::JsonSchema;
use serde::Deserialize;

/// The CUDA device behind tables of `engine = "gpu"`. With the caches in front, it is asked for packets that these do not
/// know; with `megaflows_max = 0`, for every packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuSection {
    /// Its number, from 0: `flowlane cpu` lists the devices.
    pub device: usize,
    /// How it finds rules; `auto` measures.
    pub method: GpuMethodChoice,
    /// Most packets of a batch.
    pub batch: usize,
    /// Batches that may be under way at a time. Where all are, no more packets are received.
    pub slots: usize,
    /// Microseconds that a packet waits at most for others to fill its batch.
    pub max_delay_us: u64,
}

impl Default for GpuSection {
    fn default() -> Self {
        Self { device: 0, method: GpuMethodChoice::Auto, batch: 8192, slots: 4, max_delay_us: 100 }
    }
}

/// How a device finds rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GpuMethodChoice {
    /// As is fastest for packets of the rules.
    Auto,
    /// Every rule, from shared memory.
    Linear,
    /// A hash table for each mask.
    Tuple,
    /// The same behind Bloom filters.
    Bloom,
    /// Every rule, as bits of vectors.
    Vector,
    /// One hash table behind one filter.
    Filtered,
    /// The same table, for the masks that two words of a packet leave.
    Pruned,
}
