//! Tuple search: `kernels/tuple.cu`.

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

use super::classes::{ClassTables, words_of_class};
use super::{Batch, Search};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::TernaryRules;

const THREADS: u32 = 256;
/// The most blocks for each multiprocessor: as many as can be resident. Blocks take classes in strides.
const BLOCKS: usize = 32;

#[derive(Debug)]
pub(super) struct Tuple {
    kernel: CudaFunction,
    tables: CudaSlice<u32>,
    functions: CudaSlice<u64>,
    class_count: u32,
    shape: LaunchConfig,
}

impl Tuple {
    pub(super) fn build<const W: usize>(
        device: &Device,
        rules: &TernaryRules<W>,
        seed: u64,
    ) -> Result<Self, GpuError> {
        let tables = ClassTables::new(rules, seed, |what, bytes| device.reserve(what, bytes))?;
        let shared_bytes = 4 * words_of_class(W);
        Ok(Self {
            kernel: device.kernel(&format!("tuple_{W}"), shared_bytes)?,
            tables: device.upload("tuple search", &tables.words)?,
            functions: device.upload("tuple search", &tables.functions.words())?,
            class_count: tables.classes.len() as u32,
            shape: block_a_class(device, tables.classes.len(), shared_bytes),
        })
    }
}

/// Returns a launch of one block for each class, up to the limit of resident blocks.
pub(super) fn block_a_class(device: &Device, classes: usize, shared_bytes: usize) -> LaunchConfig {
    let blocks_max = BLOCKS * device.properties().multiprocessors.max(1);
    LaunchConfig {
        grid_dim: (classes.clamp(1, blocks_max) as u32, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: shared_bytes as u32,
    }
}

impl Search for Tuple {
    fn launch(&self, stream: &CudaStream, mut batch: Batch<'_>) -> Result<(), GpuError> {
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&self.tables).arg(&self.class_count).arg(&self.functions);
        launch.arg(batch.tuples).arg(&batch.count).arg(&mut batch.winners);
        // SAFETY: the arguments are those of `tuple_W` in their order; `tables` holds `class_count` tables and `functions`
        // all functions (`build`), `tuples` and `winners` room for `count` tuples (`Batch`), shared memory one table.
        unsafe { launch.launch(self.shape) }.map_err(GpuError::of("starting tuple search"))?;
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.tables.num_bytes() + self.functions.num_bytes()
    }

    fn classes(&self) -> Option<usize> {
        Some(self.class_count as usize)
    }
}
