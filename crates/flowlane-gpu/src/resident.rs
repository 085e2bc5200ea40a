//! Keys that stay on a device: what a kernel does by itself, without copies.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use flowlane::classify::Hit;

use crate::device::Device;
use crate::error::GpuError;
use crate::table::{COLUMNS_MAX, GpuTable};

/// Batches of keys on a device, and room for their winners.
#[derive(Debug)]
pub struct ResidentKeys<const W: usize> {
    stream: Arc<CudaStream>,
    batches: Vec<(CudaSlice<u32>, usize)>,
    winners: CudaSlice<u32>,
}

impl<const W: usize> ResidentKeys<W> {
    /// Brings keys to a device, in batches of at most `batch_max`.
    ///
    /// # Errors
    /// Where there is not enough memory.
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

    /// Looks all batches up, one after the other, and waits for the last.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn look_up(&mut self, table: &GpuTable<W>) -> Result<(), GpuError> {
        let failed = GpuError::of("looking keys up");
        let begun = self.begin(table);
        // Also after a failure: the caller may drop the table.
        let waited = self.stream.synchronize().map_err(failed);
        begun.and(waited)
    }

    fn begin(&mut self, table: &GpuTable<W>) -> Result<(), GpuError> {
        self.batches
            .iter()
            .try_for_each(|(tuples, count)| table.launch(&self.stream, tuples, *count, &mut self.winners))
    }

    /// The winners of the last batch of the last [`look_up`](Self::look_up), in a table without changes.
    ///
    /// # Errors
    /// Where the device fails.
    ///
    /// # Panics
    /// Where rules of the table are gone.
    pub fn last_hits(&self, table: &GpuTable<W>) -> Result<Vec<Option<Hit>>, GpuError> {
        let count = self.batches.last().map_or(0, |(_, count)| *count);
        let failed = GpuError::of("reading winners");
        let mut winners = vec![0; self.winners.len()];
        self.stream.memcpy_dtoh(&self.winners, &mut winners).map_err(&failed)?;
        self.stream.synchronize().map_err(failed)?;
        let hit = |standing: &u32| table.hit(*standing, 0).expect("no rule of the table is gone");
        Ok(winners[..count].iter().map(hit).collect())
    }
}

impl<const W: usize> Drop for ResidentKeys<W> {
    fn drop(&mut self) {
        _ = self.stream.synchronize();
    }
}
