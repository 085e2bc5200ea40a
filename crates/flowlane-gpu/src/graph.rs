//! What a slot does for a full batch, recorded once and launched again: copy in, clear, kernels, copy out.
//!
//! A graph is one call to the driver where its parts are four or five. It holds addresses and numbers, not what lies
//! there: what is copied is what the host has written until it is launched. Since the number of tuples is one of the
//! numbers, only full batches have a graph, and since the table is among the addresses, each table needs its own.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream};

use crate::error::GpuError;
use crate::table::GpuTable;

/// What is done for a batch: the memory here and there.
pub(crate) struct Work<'a> {
    pub(crate) stream: &'a Arc<CudaStream>,
    /// The columns of the keys, in pinned memory.
    pub(crate) columns: &'a [u32],
    pub(crate) keys_there: &'a mut CudaSlice<u32>,
    pub(crate) winners_there: &'a mut CudaSlice<u32>,
    /// In pinned memory: as many as the table has columns for the batch.
    pub(crate) winners: &'a mut [u32],
}

impl Work<'_> {
    /// Puts all of it onto the stream.
    pub(crate) fn enqueue<const W: usize>(&mut self, table: &GpuTable<W>) -> Result<(), GpuError> {
        let failed = GpuError::of("sending a batch");
        let count = self.columns.len() / W;
        // Of the device's memory the same part: the columns of a smaller batch lie closer.
        let mut there = self.keys_there.slice_mut(..self.columns.len());
        self.stream.memcpy_htod(self.columns, &mut there).map_err(&failed)?;
        table.launch(self.stream, self.keys_there, count, self.winners_there)?;
        let winners = self.winners_there.slice(..self.winners.len());
        self.stream.memcpy_dtoh(&winners, self.winners).map_err(failed)
    }
}

/// All that is done for full batches with one table, in one slot.
pub(crate) struct Recorded<const W: usize> {
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    /// It stays, since the graph has its addresses.
    table: Arc<GpuTable<W>>,
}

// SAFETY: the driver's graphs belong to no thread, but two threads may not use one at a time. This one is private to its
// slot, and all that uses it has the slot, or what is left of it, for itself (`&mut`, or by value).
unsafe impl<const W: usize> Send for Recorded<W> {}

impl<const W: usize> fmt::Debug for Recorded<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("epoch", &self.table.epoch()).finish_non_exhaustive()
    }
}

impl<const W: usize> Drop for Recorded<W> {
    /// It may end on a thread that knows nothing of the device.
    fn drop(&mut self) {
        _ = self.stream.context().bind_to_thread();
    }
}

impl<const W: usize> Recorded<W> {
    /// Records; nothing is done. The memory of `work` must be that of the slot that keeps this: it is reached whenever
    /// the graph is launched.
    pub(crate) fn new(work: &mut Work<'_>, table: &Arc<GpuTable<W>>) -> Result<Self, GpuError> {
        let failed = GpuError::of("recording what it does for a batch");
        // Others may take memory meanwhile: a thread that makes a table does.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        work.stream.begin_capture(mode).map_err(&failed)?;
        let enqueued = work.enqueue(table);
        // Also after a failure, since nothing is done on a stream that is recorded. The first may tell another's error
        // instead of ending that.
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

    /// Puts all of it onto the stream.
    pub(crate) fn launch(&mut self) -> Result<(), GpuError> {
        self.graph.launch().map_err(GpuError::of("sending a batch by a graph"))
    }
}
