//! Upper bounds of a device: copies, kernel launches and random reads. Benchmarks compare classifiers with these.
//!
//! Each call waits until its work has finished, so that a caller can time it.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg};

use crate::device::Device;
use crate::error::GpuError;

/// Threads of a random-read launch, and reads of each thread.
const THREADS: u32 = 256;
const BLOCKS: usize = 8;
const READS: u32 = 256;

/// Buffers on the host and on the device for copies.
pub struct Copies {
    stream: Arc<CudaStream>,
    sent: PinnedHostSlice<u8>,
    received: PinnedHostSlice<u8>,
    there: CudaSlice<u8>,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("bytes", &self.there.len()).finish_non_exhaustive()
    }
}

impl Copies {
    /// Allocates buffers of `bytes` bytes.
    ///
    /// # Errors
    /// Returns an error if the device has too little memory.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, GpuError> {
        let failed = GpuError::of("taking memory for copies");
        device.reserve("copies", bytes)?;
        let stream = device.stream()?;
        // SAFETY: bytes, all of which are written below before any is read.
        let (sent, received) = unsafe {
            (device.context().alloc_pinned(bytes), device.context().alloc_pinned_with_flags(bytes, 0))
        };
        let (mut sent, mut received) = (sent.map_err(&failed)?, received.map_err(&failed)?);
        sent.as_mut_slice().map_err(&failed)?.fill(1);
        received.as_mut_slice().map_err(&failed)?.fill(0);
        let there = stream.alloc_zeros(bytes).map_err(failed)?;
        Ok(Self { stream, sent, received, there })
    }

    /// Copies from the host to the device.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub fn to_device(&mut self) -> Result<(), GpuError> {
        let failed = GpuError::of("copying to it");
        self.stream.memcpy_htod(&self.sent, &mut self.there).map_err(&failed)?;
        self.stream.synchronize().map_err(failed)
    }

    /// Copies from the device to the host.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub fn to_host(&mut self) -> Result<(), GpuError> {
        let failed = GpuError::of("copying from it");
        self.stream.memcpy_dtoh(&self.there, &mut self.received).map_err(&failed)?;
        self.stream.synchronize().map_err(failed)
    }
}

/// A benchmark of random reads of 32 bytes from a table.
#[derive(Debug)]
pub struct Gather {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    nothing: CudaFunction,
    sectors: CudaSlice<u32>,
    sums: CudaSlice<u32>,
    mask: u32,
    blocks: u32,
}

impl Gather {
    /// Allocates a table of at least `table_bytes`, rounded up to a power of two of sectors.
    ///
    /// # Errors
    /// Returns an error if the device has too little memory.
    pub fn new(device: &Device, table_bytes: usize) -> Result<Self, GpuError> {
        let failed = GpuError::of("taking memory for random reads");
        let sectors = (table_bytes / 32).clamp(1, 1 << 30).next_power_of_two();
        device.reserve("random reads", 32 * sectors)?;
        let stream = device.stream()?;
        let blocks = BLOCKS * device.properties().multiprocessors.max(1);
        let out = Self {
            kernel: device.kernel("gather", 0)?,
            nothing: device.kernel("nothing", 0)?,
            sectors: stream.alloc_zeros(8 * sectors).map_err(&failed)?,
            sums: stream.alloc_zeros(THREADS as usize * blocks).map_err(&failed)?,
            mask: sectors as u32 - 1,
            blocks: blocks as u32,
            stream,
        };
        out.stream.synchronize().map_err(failed)?;
        Ok(out)
    }

    /// Returns the number of reads of one [`run`](Self::run).
    pub fn reads(&self) -> usize {
        THREADS as usize * self.blocks as usize * READS as usize
    }

    /// Reads random sectors.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub fn run(&mut self) -> Result<(), GpuError> {
        let failed = GpuError::of("reading at random");
        let shape =
            LaunchConfig { grid_dim: (self.blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(&self.sectors).arg(&self.mask).arg(&READS).arg(&mut self.sums);
        // SAFETY: the arguments are those of `gather` in their order; `sectors` has `mask` + 1 sectors and `sums` a word for
        // each thread of the launch.
        unsafe { launch.launch(shape) }.map_err(&failed)?;
        self.stream.synchronize().map_err(failed)
    }

    /// Launches an empty kernel and waits for it.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    pub fn launch_nothing(&self) -> Result<(), GpuError> {
        let failed = GpuError::of("launching a kernel that does nothing");
        let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: it takes no arguments and touches no memory.
        unsafe { self.stream.launch_builder(&self.nothing).launch(shape) }.map_err(&failed)?;
        self.stream.synchronize().map_err(failed)
    }
}
