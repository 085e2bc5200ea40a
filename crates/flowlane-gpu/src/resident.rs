//! Keys that stay on a device, to measure kernels without copies.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use flowlane::classify::Hit;

use crate::device::Device;
use crate::error::GpuError;
use crate::table::{COLUMNS_MAX, GpuTable};

/// Batches of keys on a device, and buffers for their winners.
#[derive(Debug)]
pub struct ResidentKeys<const W: usize> {
    stream: Arc<CudaStream>,
    batches: Vec<(CudaSlice<u32>, usize)>,
    winners: CudaSlice<u32>,
}

impl<const W: usize> ResidentKeys<W> {
    /// Copies keys to a device, in batches of at most `batch_max`.
    ///
    /// # Errors
    /// Returns an error if the device has too little memory.
    pub fn new(device: &Device, keys: &[[u32; W]], batch_max: usize) -> Result<Self, GpuError> {
        let stream = device.stream()?;
        let batch = |keys: &[[u32; W]]| {
            let columns: Vec<u32> = (0..W).flat_map(|w| keys.iter().map(move |key| key[w])).collect();
            Ok((device.upload("keys", &columns)?, keys.len()))
        };
        let batches = keys.chunks(batch_max.max(1)).map(batch).collect::<Result<_, GpuError>>()?;
        let winners = stream.alloc_zeros(COLUMNS_MAX * batch_max.max(1));
        let winners = winners.map_err(GpuError::of("taking memory for winners"))?;
        Ok(Self { stream, batches, winners })
    }

    /// Looks up all batches in order and waits for the last.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub fn look_up(&mut self, table: &GpuTable<W>) -> Result<(), GpuError> {
        let failed = GpuError::of("looking keys up");
        let begun = self.begin(table);
        // Waits after a failure, too: the caller may drop the table.
        let waited = self.stream.synchronize().map_err(failed);
        begun.and(waited)
    }

    fn begin(&mut self, table: &GpuTable<W>) -> Result<(), GpuError> {
        self.batches
            .iter()
            .try_for_each(|(tuples, count)| table.launch(&self.stream, tuples, *count, &mut self.winners))
    }

    /// Returns the winners of the last batch of the last [`look_up`](Self::look_up), in a table without an overlay.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Panics
    /// Panics if rules of the table were deleted.
    pub fn last_hits(&self, table: &GpuTable<W>) -> Result<Vec<Option<Hit>>, GpuError> {
        let count = self.batches.last().map_or(0, |(_, count)| *count);
        let failed = GpuError::of("reading winners");
        let mut winners = vec![0; self.winners.len()];
        self.stream.memcpy_dtoh(&self.winners, &mut winners).map_err(&failed)?;
        self.stream.synchronize().map_err(failed)?;
        let hit = |standing: &u32| table.hit(*standing, 0).expect("no rule of the table is deleted");
        Ok(winners[..count].iter().map(hit).collect())
    }
}

impl<const W: usize> Drop for ResidentKeys<W> {
    fn drop(&mut self) {
        _ = self.stream.synchronize();
    }
}
