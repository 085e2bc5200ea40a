//! Batches through a device: copied in, looked up and copied out, several in flight.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, PinnedHostSlice};
use flowlane::classify::Hit;

use crate::device::Device;
use crate::error::GpuError;
use crate::graph::{Recorded, Work};
use crate::table::{COLUMNS_MAX, GpuTable, WinnerDeleted};

/// The configuration of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionConfig {
    /// The most keys of a batch.
    pub batch_max: usize,
    /// The number of batches in flight: while one is copied in, another is looked up and a third copied out.
    pub slots: usize,
    /// Whether the work of full batches is recorded as a graph. A slot records with its second full batch of a table
    /// and launches the graph from then on. If the driver refuses, the session continues without graphs.
    pub graphs: bool,
}

impl Default for SessionConfig {
    /// Returns the paper's batches of 8192 keys, three slots and one that the host fills, and no graphs.
    fn default() -> Self {
        Self { batch_max: 8192, slots: 4, graphs: false }
    }
}

/// The resources of one batch: buffers on both sides and a stream.
#[derive(Debug)]
struct Slot<const W: usize> {
    stream: Arc<CudaStream>,
    keys_here: PinnedHostSlice<u32>,
    keys_there: CudaSlice<u32>,
    winners_there: CudaSlice<u32>,
    winners_here: PinnedHostSlice<u32>,
    done: CudaEvent,
    count: usize,
    /// The table in use, kept alive until the batch has finished.
    table: Option<Arc<GpuTable<W>>>,
    /// The table of the last full batch.
    seen: Weak<GpuTable<W>>,
    recorded: Option<Recorded<W>>,
}

/// The resources for one thread's lookups. Batches return in the order of sending.
#[derive(Debug)]
pub struct Session<const W: usize> {
    free: Vec<Slot<W>>,
    under_way: VecDeque<Slot<W>>,
    batch_max: usize,
    graphs: bool,
    unanswered: Vec<u32>,
}

/// The result of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The number of keys of the batch.
    pub count: usize,
    /// The epoch of the rules that answered the whole batch: see [`GpuTable::epoch`].
    pub epoch: u64,
}

impl<const W: usize> Slot<W> {
    #[inline(never)]
    fn new(device: &Device, batch_max: usize) -> Result<Self, GpuError> {
        let failed = GpuError::of("taking memory for batches");
        device.reserve("batches", 4 * (W + COLUMNS_MAX) * batch_max)?;
        let stream = device.stream()?;
        let context = device.context();
        // SAFETY: plain numbers, and every batch writes those that it reads: the keys before they are copied, the
        // winners by the copy. The keys' memory is combined on writing, and only written; the winners' is not.
        let (keys_here, winners_here) = unsafe {
            (context.alloc_pinned(W * batch_max), context.alloc_pinned_with_flags(COLUMNS_MAX * batch_max, 0))
        };
        Ok(Self {
            keys_here: keys_here.map_err(&failed)?,
            winners_here: winners_here.map_err(&failed)?,
            keys_there: stream.alloc_zeros(W * batch_max).map_err(&failed)?,
            winners_there: stream.alloc_zeros(COLUMNS_MAX * batch_max).map_err(&failed)?,
            done: context.new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING)).map_err(&failed)?,
            stream,
            count: 0,
            table: None,
            seen: Weak::new(),
            recorded: None,
        })
    }

    /// Sends keys to the device. A full batch may use a graph; `graphs` becomes false if the driver refuses graphs.
    fn begin(
        &mut self,
        table: &Arc<GpuTable<W>>,
        keys: &[[u32; W]],
        graphs: &mut bool,
    ) -> Result<(), GpuError> {
        let failed = GpuError::of("sending a batch");
        self.count = keys.len();
        // From here on, the device may access the table.
        self.table = Some(table.clone());
        let here = self.keys_here.as_mut_slice().map_err(&failed)?;
        let is_full = W * keys.len() == here.len();
        for (w, column) in here.chunks_exact_mut(keys.len()).take(W).enumerate() {
            column.iter_mut().zip(keys).for_each(|(word, key)| *word = key[w]);
        }
        let winners = self.winners_here.as_mut_slice().map_err(&failed)?;
        let mut work = Work {
            stream: &self.stream,
            columns: &here[..W * keys.len()],
            keys_there: &mut self.keys_there,
            winners_there: &mut self.winners_there,
            winners: &mut winners[..table.columns() * keys.len()],
        };
        if *graphs && is_full && self.recorded.is_none() {
            // A table that is replaced after one batch does not justify a graph.
            if std::ptr::eq(self.seen.as_ptr(), Arc::as_ptr(table)) {
                self.recorded = Recorded::new(&mut work, table).ok();
                *graphs = self.recorded.is_some();
            }
            self.seen = Arc::downgrade(table);
        }
        match self.recorded.as_mut().filter(|_| *graphs && is_full) {
            Some(recorded) => recorded.launch()?,
            None => work.enqueue(table)?,
        }
        self.done.record(&self.stream).map_err(failed)
    }

    /// Drops the graphs of other tables, so that those tables can be freed.
    fn forget_others(&mut self, table: &Arc<GpuTable<W>>) {
        self.recorded.take_if(|recorded| !recorded.is_of(table));
    }

    /// Abandons a batch that could not be sent completely.
    fn abandon(&mut self) {
        _ = self.stream.synchronize();
        self.table = None;
    }

    /// Returns whether the batch has finished or failed, without waiting.
    fn is_ready(&self) -> bool {
        // Binding the context may report an earlier error; the query reports the error of this batch.
        _ = self.done.context().bind_to_thread();
        self.done.try_is_complete().unwrap_or(true)
    }

    /// Waits for the batch and writes its winners. `unanswered` receives the positions without an answer.
    fn end(&mut self, hits: &mut [Option<Hit>], unanswered: &mut Vec<u32>) -> Result<Answered, GpuError> {
        let failed = GpuError::of("looking a batch up");
        let waited = self.done.synchronize();
        if waited.is_err() {
            // The first call may report an earlier error without waiting.
            _ = self.stream.synchronize();
        }
        let table = self.table.take().expect("a batch under way has a table");
        waited.map_err(&failed)?;
        let winners = &self.winners_here.as_slice().map_err(&failed)?[..table.columns() * self.count];
        let (bulk, added) = winners.split_at(self.count);
        let none = std::iter::repeat(&0);
        for (place, ((hit, bulk), added)) in
            hits.iter_mut().zip(bulk).zip(added.iter().chain(none)).enumerate()
        {
            *hit = table.hit(*bulk, *added).unwrap_or_else(|WinnerDeleted| {
                unanswered.push(place as u32);
                None
            });
        }
        Ok(Answered { count: self.count, epoch: table.epoch() })
    }
}

impl<const W: usize> Drop for Slot<W> {
    /// Waits, since the device may still access the host's buffers. A failed device no longer does.
    fn drop(&mut self) {
        // The first call may report an earlier error instead of waiting.
        _ = self.stream.synchronize().or_else(|_| self.stream.synchronize());
    }
}

impl<const W: usize> Session<W> {
    /// Allocates the buffers of all slots.
    ///
    /// # Errors
    /// Returns an error if the device has too little memory.
    #[inline(never)]
    pub fn new(device: &Device, config: SessionConfig) -> Result<Self, GpuError> {
        let batch_max = config.batch_max.max(1);
        let free =
            (0..config.slots.max(1)).map(|_| Slot::new(device, batch_max)).collect::<Result<_, _>>()?;
        let graphs = config.graphs;
        Ok(Self { free, under_way: VecDeque::new(), batch_max, graphs, unanswered: Vec::new() })
    }

    /// Returns whether graphs are used: see [`SessionConfig::graphs`].
    pub fn has_graphs(&self) -> bool {
        self.graphs
    }

    /// Turns graphs on or off.
    pub fn set_graphs(&mut self, graphs: bool) {
        self.graphs = graphs;
        if !graphs {
            self.free.iter_mut().for_each(|slot| slot.recorded = None);
        }
    }

    /// Returns whether a batch may be sent; if not, receive one first.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the number of batches sent and not yet received.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Returns the most keys of a batch.
    pub fn batch_max(&self) -> usize {
        self.batch_max
    }

    /// Sends a batch of 1 to [`batch_max`](Self::batch_max) keys for lookup in a table.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    ///
    /// # Panics
    /// Panics if there is no room, or if the batch is empty or too large.
    #[inline(never)]
    pub fn send(&mut self, table: &Arc<GpuTable<W>>, keys: &[[u32; W]]) -> Result<(), GpuError> {
        assert!((1..=self.batch_max).contains(&keys.len()), "a batch of {} keys", keys.len());
        self.free.iter_mut().for_each(|slot| slot.forget_others(table));
        let mut slot = self.free.pop().expect("room, asked for before");
        let begun = slot.begin(table, keys, &mut self.graphs);
        match begun {
            Ok(()) => self.under_way.push_back(slot),
            Err(_) => {
                slot.abandon();
                self.free.push(slot);
            }
        }
        begun
    }

    /// Returns whether [`receive`](Self::receive) would return without waiting.
    pub fn is_ready(&self) -> bool {
        self.under_way.front().is_none_or(Slot::is_ready)
    }

    /// Waits for the oldest batch in flight, and returns `None` if there is none. The answers are written to the
    /// front of `hits`, except for positions in [`unanswered`](Self::unanswered).
    ///
    /// # Errors
    /// Returns an error if the device fails: the batch has no answers then.
    ///
    /// # Panics
    /// Panics if `hits` is shorter than the batch.
    #[inline(never)]
    pub fn receive(&mut self, hits: &mut [Option<Hit>]) -> Option<Result<Answered, GpuError>> {
        self.unanswered.clear();
        self.receive_also(hits)
    }

    /// Returns the positions without an answer in the last received batch, or in the last
    /// [`lookup_batch`](Self::lookup_batch), in ascending order. The winning rule of these keys was deleted after the
    /// bulk of the table was built ([`GpuTable::with_changes`]). Empty for a table without an overlay.
    pub fn unanswered(&self) -> &[u32] {
        &self.unanswered
    }

    /// Receives a batch and appends to the unanswered positions instead of replacing them.
    fn receive_also(&mut self, hits: &mut [Option<Hit>]) -> Option<Result<Answered, GpuError>> {
        let mut slot = self.under_way.pop_front()?;
        assert!(hits.len() >= slot.count, "a batch of {} for {} answers", slot.count, hits.len());
        let answered = slot.end(hits, &mut self.unanswered);
        self.free.push(slot);
        Some(answered)
    }

    /// Looks up keys in overlapping batches, except for those in [`unanswered`](Self::unanswered).
    ///
    /// # Errors
    /// Returns an error if the device fails; the contents of `hits` are unspecified then.
    ///
    /// # Panics
    /// Panics if the slices differ in length, or if batches are in flight.
    #[inline(never)]
    pub fn lookup_batch(
        &mut self,
        table: &Arc<GpuTable<W>>,
        keys: &[[u32; W]],
        hits: &mut [Option<Hit>],
    ) -> Result<(), GpuError> {
        assert_eq!(keys.len(), hits.len());
        assert!(self.under_way.is_empty(), "{} batches are under way", self.under_way.len());
        let mut batches = keys.chunks(self.batch_max);
        let mut rest = hits;
        let mut failed = None;
        let mut received = 0;
        self.unanswered.clear();
        loop {
            while failed.is_none() && self.has_room() {
                let Some(batch) = batches.next() else { break };
                failed = self.send(table, batch).err();
            }
            // After a failure, too: no batch stays in flight.
            let before = self.unanswered.len();
            match self.receive_also(rest) {
                None => return failed.map_or(Ok(()), Err),
                Some(Ok(answered)) => {
                    self.unanswered[before..].iter_mut().for_each(|place| *place += received);
                    received += answered.count as u32;
                    rest = &mut rest[answered.count..];
                }
                Some(Err(error)) => failed = Some(error),
            }
        }
    }
}
