//! Linear search by bit vectors: `kernels/vector.cu`.

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

use super::{Batch, Search};
use crate::device::Device;
use crate::error::GpuError;
use crate::ternary::{Ternary, TernaryRules};

const CHUNK: usize = 1024;
const CHUNK_WORDS: usize = CHUNK / 32;
/// The number of values of a four-bit stride.
const ROWS: usize = 16;
const THREADS: u32 = 256;
/// Blocks for each multiprocessor: 2048 threads.
const BLOCKS: usize = 8;

#[derive(Debug)]
pub(super) struct Vector {
    kernel: CudaFunction,
    chunks: CudaSlice<u32>,
    strides: CudaSlice<u32>,
    rows: CudaSlice<u32>,
    standings: CudaSlice<u32>,
    chunk_count: u32,
    blocks: u32,
}

/// Returns the four bits of a stride.
fn nibble(words: &[u32], stride: usize) -> u32 {
    words[stride / 8] >> (stride % 8 * 4) & 15
}

/// Returns the strides on which any rule of a chunk matches, the most selective first. There is at least one, to
/// exclude the positions after the last rule of the last chunk.
fn strides<const W: usize>(chunk: &[Ternary<W>]) -> Vec<usize> {
    // The number of values, of sixteen, that match a rule on this stride.
    let suits = |rule: &Ternary<W>, s: usize| ROWS >> nibble(&rule.mask, s).count_ones();
    let mut with_left: Vec<(usize, usize)> =
        (0..8 * W).map(|s| (chunk.iter().map(|rule| suits(rule, s)).sum(), s)).collect();
    with_left.sort_unstable();
    let all = ROWS * chunk.len();
    let wild = with_left.iter().position(|(left, _)| *left == all).unwrap_or(with_left.len());
    with_left.truncate(wild.max(1));
    with_left.into_iter().map(|(_, s)| s).collect()
}

/// Builds the rows of a stride.
fn rows<const W: usize>(chunk: &[Ternary<W>], stride: usize) -> [u32; ROWS * CHUNK_WORDS] {
    let mut rows = [0; ROWS * CHUNK_WORDS];
    for (i, rule) in chunk.iter().enumerate() {
        let (value, mask) = (nibble(&rule.value, stride), nibble(&rule.mask, stride));
        for row in (0..ROWS).filter(|row| *row as u32 & mask == value) {
            rows[row * CHUNK_WORDS + i / 32] |= 1 << (i % 32);
        }
    }
    rows
}

impl Vector {
    pub(super) fn build<const W: usize>(device: &Device, rules: &TernaryRules<W>) -> Result<Self, GpuError> {
        let mut chunks = vec![0];
        let mut which = Vec::new();
        for chunk in rules.rules.chunks(CHUNK) {
            which.extend(strides(chunk));
            chunks.push(which.len() as u32);
        }
        device.reserve("bit vectors", 4 * ROWS * CHUNK_WORDS * which.len())?;
        let mut words = Vec::with_capacity(ROWS * CHUNK_WORDS * which.len());
        for (chunk, ends) in rules.rules.chunks(CHUNK).zip(chunks.windows(2)) {
            for stride in &which[ends[0] as usize..ends[1] as usize] {
                words.extend(rows(chunk, *stride));
            }
        }
        let which: Vec<u32> = which.iter().map(|s| *s as u32).collect();
        let standings: Vec<u32> = rules.rules.iter().map(|rule| rule.standing).collect();
        Ok(Self {
            kernel: device.kernel(&format!("vector_{W}"), 0)?,
            chunk_count: chunks.len() as u32 - 1,
            chunks: device.upload("bit vectors", &chunks)?,
            strides: device.upload("bit vectors", &which)?,
            rows: device.upload("bit vectors", &words)?,
            standings: device.upload("bit vectors", &standings)?,
            blocks: (BLOCKS * device.properties().multiprocessors.max(1)) as u32,
        })
    }
}

impl Search for Vector {
    fn launch(&self, stream: &CudaStream, mut batch: Batch<'_>) -> Result<(), GpuError> {
        let warps = THREADS / 32;
        let shape = LaunchConfig {
            grid_dim: (self.blocks.min(batch.count.div_ceil(warps)), 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&self.chunks).arg(&self.chunk_count).arg(&self.strides).arg(&self.rows);
        launch.arg(&self.standings).arg(batch.tuples).arg(&batch.count).arg(&mut batch.winners);
        // SAFETY: the arguments are those of `vector_W` in their order; `chunks` leads to strides and those to rows that
        // `build` made for each, `standings` has one of each rule and only places of rules have bits, `tuples` and
        // `winners` have room for `count` tuples (`Batch`).
        unsafe { launch.launch(shape) }.map_err(GpuError::of("starting a search by bit vectors"))?;
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        let tables = [&self.chunks, &self.strides, &self.rows, &self.standings];
        tables.iter().map(|table| table.num_bytes()).sum()
    }
}
