//! CUDA graphs: the work of a slot for a full batch (copy in, clear, kernels, copy out), recorded once and launched
//! repeatedly.
//!
//! A graph is one driver call instead of four or five. It contains addresses and sizes, not data, and copies the data
//! present at launch. The number of tuples is one of the sizes, so only full batches have a graph; the table is one
//! of the addresses, so each table needs its own graph.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream};

use crate::error::GpuError;
use crate::table::GpuTable;

/// The work for a batch: buffers on both sides and the stream.
pub(crate) struct Work<'a> {
    pub(crate) stream: &'a Arc<CudaStream>,
    /// The columns of the keys, in pinned memory.
    pub(crate) columns: &'a [u32],
    pub(crate) keys_there: &'a mut CudaSlice<u32>,
    pub(crate) winners_there: &'a mut CudaSlice<u32>,
    /// The winners, in pinned memory: one for each column of the table and key.
    pub(crate) winners: &'a mut [u32],
}

impl Work<'_> {
    /// Enqueues the work on the stream.
    pub(crate) fn enqueue<const W: usize>(&mut self, table: &GpuTable<W>) -> Result<(), GpuError> {
        let failed = GpuError::of("sending a batch");
        let count = self.columns.len() / W;
        // The part of the device's buffer that the batch uses: the columns of a smaller batch are closer together.
        let mut there = self.keys_there.slice_mut(..self.columns.len());
        self.stream.memcpy_htod(self.columns, &mut there).map_err(&failed)?;
        table.launch(self.stream, self.keys_there, count, self.winners_there)?;
        let winners = self.winners_there.slice(..self.winners.len());
        self.stream.memcpy_dtoh(&winners, self.winners).map_err(failed)
    }
}

/// The recorded work of one slot for full batches of one table.
pub(crate) struct Recorded<const W: usize> {
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    /// Keeps the table alive, since the graph contains its addresses.
    table: Arc<GpuTable<W>>,
}

// SAFETY: a graph of the driver belongs to no thread, but two threads may not use it at the same time. This graph is
// private to its slot, and every use of it has exclusive access to the slot or to its remains (`&mut`, or by value).
unsafe impl<const W: usize> Send for Recorded<W> {}

impl<const W: usize> fmt::Debug for Recorded<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("epoch", &self.table.epoch()).finish_non_exhaustive()
    }
}

impl<const W: usize> Drop for Recorded<W> {
    /// The last owner may be a thread without a context of the device.
    fn drop(&mut self) {
        _ = self.stream.context().bind_to_thread();
    }
}

impl<const W: usize> Recorded<W> {
    /// Records the work without executing it. The buffers of `work` must belong to the slot that keeps this graph:
    /// each launch accesses them.
    pub(crate) fn new(work: &mut Work<'_>, table: &Arc<GpuTable<W>>) -> Result<Self, GpuError> {
        let failed = GpuError::of("recording what it does for a batch");
        // Other threads may allocate meanwhile: a background rebuild does.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        work.stream.begin_capture(mode).map_err(&failed)?;
        let enqueued = work.enqueue(table);
        // The capture is ended after a failure, too, since a recording stream executes nothing. The first call may
        // report an earlier error instead of ending the capture.
        let end = || work.stream.end_capture(CUgraphInstantiate_flags(0));
        let graph = end().or_else(|error| end().map_err(|_| error));
        enqueued?;
        let nothing = || GpuError::Device {
            doing: "recording what it does for a batch",
            reason: "that there was nothing".to_owned(),
        };
        let graph = graph.map_err(failed)?.ok_or_else(nothing)?;
        Ok(Self { graph, stream: work.stream.clone(), table: table.clone() })
    }

    pub(crate) fn is_of(&self, table: &Arc<GpuTable<W>>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    /// Launches the graph on the stream.
    pub(crate) fn launch(&mut self) -> Result<(), GpuError> {
        self.graph.launch().map_err(GpuError::of("sending a batch by a graph"))
    }
}
