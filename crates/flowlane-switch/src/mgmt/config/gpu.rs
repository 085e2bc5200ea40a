//! The device behind tables of `engine = "gpu"`.

use std::borrow::Cow;

use flowlane_gpu::{Method, SessionConfig};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};

use super::by_name;

/// The CUDA device behind tables of `engine = "gpu"`. With the caches in front, it looks up the packets that miss them; with
/// `megaflows_max = 0`, every packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuSection {
    /// Its number, from 0: `flowlane cpu` lists the devices.
    pub device: usize,
    /// The search method; `auto` measures.
    pub method: GpuMethod,
    /// The maximum number of packets of a batch.
    pub batch: usize,
    /// The maximum number of batches in flight. While all are, no more packets are received.
    pub slots: usize,
    /// Microseconds that a packet waits at most for others to fill its batch.
    pub max_delay_us: u64,
}

impl Default for GpuSection {
    fn default() -> Self {
        let SessionConfig { batch_max: batch, slots, .. } = SessionConfig::default();
        Self { device: 0, method: GpuMethod::default(), batch, slots, max_delay_us: 100 }
    }
}

/// The search method of a device; `auto` is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GpuMethod(pub Option<Method>);

/// The methods and their names: those of engines, without `gpu-`.
fn names() -> Vec<(&'static str, GpuMethod)> {
    let methods = Method::ALL.map(|method| {
        let name = method.name();
        (name.strip_prefix("gpu-").unwrap_or(name), GpuMethod(Some(method)))
    });
    [("auto", GpuMethod(None))].into_iter().chain(methods).collect()
}

impl<'de> Deserialize<'de> for GpuMethod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        by_name::find(&String::deserialize(deserializer)?, &names())
    }
}

impl JsonSchema for GpuMethod {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GpuMethod".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = names().iter().map(|(name, _)| *name).collect();
        by_name::schema(&names)
    }
}
