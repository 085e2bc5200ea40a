//! Linear search: `kernels/linear.cu`.

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

use super::{Batch, Search};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

/// Shared memory of a block: the default limit, so that several blocks share a multiprocessor.
pub(crate) const SHARED_BYTES: usize = 48 << 10;
const THREADS: u32 = 256;
/// Blocks for each multiprocessor.
const BLOCKS: usize = 4;

#[derive(Debug)]
pub(super) struct Linear {
    kernel: CudaFunction,
    rules: CudaSlice<u32>,
    rule_count: u32,
    rules_shared: u32,
    shared_bytes: u32,
    blocks: u32,
}

/// Returns the number of words of a rule: its value, its mask and its standing.
pub const fn words_of_rule(w: usize) -> usize {
    2 * w + 1
}

/// Returns the rules in the layout of the kernels: [`words_of_rule`] words for each.
pub fn rule_words<const W: usize>(rules: &TernaryRules<W>) -> Vec<u32> {
    let mut words = Vec::with_capacity(rules.rules.len() * words_of_rule(W));
    for rule in &rules.rules {
        words.extend(rule.value);
        words.extend(rule.mask);
        words.push(rule.standing);
    }
    words
}

impl Linear {
    pub(super) fn build<const W: usize>(device: &Device, rules: &TernaryRules<W>) -> Result<Self, GpuError> {
        let rule_bytes = 4 * words_of_rule(W);
        device.reserve("linear search", rule_bytes * rules.rules.len())?;
        let rules_shared = SHARED_BYTES / rule_bytes;
        // A launch needs at least one block.
        let blocks = rules.rules.len().div_ceil(rules_shared).max(1);
        let blocks_max = BLOCKS * device.properties().multiprocessors.max(1);
        Ok(Self {
            kernel: device.kernel(&format!("linear_{W}"), SHARED_BYTES)?,
            rules: device.upload("linear search", &rule_words(rules))?,
            rule_count: rules.rules.len() as u32,
            rules_shared: rules_shared as u32,
            shared_bytes: (rules_shared * rule_bytes) as u32,
            blocks: blocks.max(blocks_max.min(rules.rules.len())).min(blocks_max) as u32,
        })
    }
}

impl Search for Linear {
    fn launch(&self, stream: &CudaStream, mut batch: Batch<'_>) -> Result<(), GpuError> {
        let shape = LaunchConfig {
            grid_dim: (self.blocks, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: self.shared_bytes,
        };
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&self.rules).arg(&self.rule_count).arg(&self.rules_shared);
        launch.arg(batch.tuples).arg(&batch.count).arg(&mut batch.winners);
        // SAFETY: the arguments are those of `linear_W` in their order; `rules` holds `rule_count` rules of 2 W + 1 words
        // (`build`), `tuples` and `winners` room for `count` tuples (`Batch`), shared memory `rules_shared` rules.
        unsafe { launch.launch(shape) }.map_err(GpuError::of("starting linear search"))?;
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.rules.num_bytes()
    }
}
