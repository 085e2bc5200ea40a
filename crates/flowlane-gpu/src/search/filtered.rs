//! Tuple search behind one filter for all classes: `kernels/filtered.cu`.

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

use super::tuple_table::{Order, Prepared, TupleTable};
use super::{Batch, Search};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

const THREADS: usize = 512;
/// Queued lookups of a warp.
const QUEUE: usize = 64;
/// Words of the filter for a rule: with two, one foreign tuple of 2000 passes.
const WORDS_A_RULE: usize = 2;
const WORDS_MIN: usize = 64;

#[derive(Debug)]
pub(super) struct Filtered {
    kernel: CudaFunction,
    table: TupleTable,
    filter: CudaSlice<u32>,
    filter_words: u32,
    shared_bytes: u32,
    blocks: u32,
}

/// Returns the bits that a hash sets in its word.
fn bits(x: u32) -> u32 {
    let y = x.wrapping_mul(0xc2b2_ae35);
    1 << (y >> 27) | 1 << (y >> 22 & 31) | 1 << (y >> 17 & 31)
}

impl Filtered {
    pub(super) fn build<const W: usize>(
        device: &Device,
        rules: &TernaryRules<W>,
        seed: u64,
    ) -> Result<Self, GpuError> {
        let prepared = Prepared::new(rules, Order::Masks, seed)?;
        let warp_words = 32 * W + 32 + 2 * QUEUE;
        let block_words = THREADS / 32 * warp_words;
        let room = (device.properties().shared_bytes_max / 4).saturating_sub(block_words).max(WORDS_MIN);
        let filter_words = (prepared.rules() * WORDS_A_RULE).clamp(WORDS_MIN, room);
        let mut filter = vec![0; filter_words];
        for (c, class) in prepared.classes.iter().enumerate() {
            for rule in &class.rules {
                let x = prepared.hash(c, &rule.value);
                filter[((u64::from(x) * filter_words as u64) >> 32) as usize] |= bits(x);
            }
        }
        let shared_bytes = 4 * (filter_words + block_words);
        let resident = (device.properties().shared_bytes_max / shared_bytes).clamp(1, 4);
        Ok(Self {
            kernel: device.kernel(&format!("filtered_{W}"), shared_bytes)?,
            table: prepared.upload(device)?,
            filter: device.upload("a filter", &filter)?,
            filter_words: filter_words as u32,
            shared_bytes: shared_bytes as u32,
            blocks: (resident * device.properties().multiprocessors.max(1)) as u32,
        })
    }
}

impl Search for Filtered {
    fn launch(&self, stream: &CudaStream, mut batch: Batch<'_>) -> Result<(), GpuError> {
        let shape = LaunchConfig {
            grid_dim: (self.blocks.min(batch.count.div_ceil(THREADS as u32)), 1, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: self.shared_bytes,
        };
        let table = self.table.argument();
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&table).arg(&self.filter).arg(&self.filter_words);
        launch.arg(batch.tuples).arg(&batch.count).arg(&mut batch.winners);
        // SAFETY: the arguments are those of `filtered_W` in their order; `table` points into `self.table`, which was made
        // for W words, `filter` has `filter_words`, `tuples` and `winners` room for `count` tuples (`Batch`), shared
        // memory the filter and what each warp needs.
        unsafe { launch.launch(shape) }.map_err(GpuError::of("starting filtered tuple search"))?;
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.table.table_bytes() + self.filter.num_bytes()
    }

    fn classes(&self) -> Option<usize> {
        Some(self.table.class_count as usize)
    }
}
