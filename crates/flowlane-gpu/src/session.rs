//! Batches on their way through a device: copied in, looked up, copied out, several at once.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, PinnedHostSlice};
use flowlane::classify::Hit;

use crate::device::Device;
use crate::error::GpuError;
use crate::graph::{Recorded, Work};
use crate::table::{COLUMNS_MAX, Gone, GpuTable};

/// Batches that may be under way at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionConfig {
    /// Most keys of a batch.
    pub batch_max: usize,
    /// Batches under way: one is copied in while another is looked up and a third copied out.
    pub slots: usize,
    /// Whether what is done for a full batch is recorded with the second that a slot has for a table, and launched as
    /// one from then on. Where the driver refuses, it is done without.
    pub graphs: bool,
}

impl Default for SessionConfig {
    /// The paper's batches of 8192; three slots and one that the host fills; no graphs.
    fn default() -> Self {
        Self { batch_max: 8192, slots: 4, graphs: false }
    }
}

/// What is needed for one batch: memory here and there, and a stream.
#[derive(Debug)]
struct Slot<const W: usize> {
    stream: Arc<CudaStream>,
    keys_here: PinnedHostSlice<u32>,
    keys_there: CudaSlice<u32>,
    winners_there: CudaSlice<u32>,
    winners_here: PinnedHostSlice<u32>,
    done: CudaEvent,
    count: usize,
    /// The table that looks up: it stays until it has.
    table: Option<Arc<GpuTable<W>>>,
    /// That of the last full batch.
    seen: Weak<GpuTable<W>>,
    recorded: Option<Recorded<W>>,
}

/// What one thread needs to have keys looked up. Batches come back in the order in which they went.
#[derive(Debug)]
pub struct Session<const W: usize> {
    free: Vec<Slot<W>>,
    under_way: VecDeque<Slot<W>>,
    batch_max: usize,
    graphs: bool,
    unanswered: Vec<u32>,
}

/// The answer to a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Keys of the batch.
    pub count: usize,
    /// The epoch of the rules that answered, all of it: see [`GpuTable::epoch`].
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

    /// Sends keys on their way. A batch that is full may go by a graph; `graphs` becomes false where none can be had.
    fn begin(
        &mut self,
        table: &Arc<GpuTable<W>>,
        keys: &[[u32; W]],
        graphs: &mut bool,
    ) -> Result<(), GpuError> {
        let failed = GpuError::of("sending a batch");
        self.count = keys.len();
        // From here on the device may read it.
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
            // A table that is followed by another after one batch is not worth it.
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

    /// Forgets what was recorded with other tables, so that they can end.
    fn forget_others(&mut self, table: &Arc<GpuTable<W>>) {
        self.recorded.take_if(|recorded| !recorded.is_of(table));
    }

    /// Gives up what could not be sent as a whole.
    fn abandon(&mut self) {
        _ = self.stream.synchronize();
        self.table = None;
    }

    /// Whether the batch has ended, well or not. Does not wait.
    fn is_ready(&self) -> bool {
        // What binding tells may be another's error; the question tells of this one.
        _ = self.done.context().bind_to_thread();
        self.done.try_is_complete().unwrap_or(true)
    }

    /// Waits for the batch, and gives the winners. `unanswered` gets the places of those that the device does not know.
    fn end(&mut self, hits: &mut [Option<Hit>], unanswered: &mut Vec<u32>) -> Result<Answered, GpuError> {
        let failed = GpuError::of("looking a batch up");
        let waited = self.done.synchronize();
        if waited.is_err() {
            // It may be another's error, told before there was any waiting.
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
            *hit = table.hit(*bulk, *added).unwrap_or_else(|Gone| {
                unanswered.push(place as u32);
                None
            });
        }
        Ok(Answered { count: self.count, epoch: table.epoch() })
    }
}

impl<const W: usize> Drop for Slot<W> {
    /// The device may still read or write the host's memory. A device that fails no longer does.
    fn drop(&mut self) {
        // The first may tell another's error instead of waiting.
        _ = self.stream.synchronize().or_else(|_| self.stream.synchronize());
    }
}

impl<const W: usize> Session<W> {
    /// Takes memory for batches.
    ///
    /// # Errors
    /// Where the device has not enough.
    #[inline(never)]
    pub fn new(device: &Device, config: SessionConfig) -> Result<Self, GpuError> {
        let batch_max = config.batch_max.max(1);
        let free =
            (0..config.slots.max(1)).map(|_| Slot::new(device, batch_max)).collect::<Result<_, _>>()?;
        let graphs = config.graphs;
        Ok(Self { free, under_way: VecDeque::new(), batch_max, graphs, unanswered: Vec::new() })
    }

    /// Whether graphs are used: see [`SessionConfig::graphs`].
    pub fn has_graphs(&self) -> bool {
        self.graphs
    }

    /// Uses graphs from now on, or none.
    pub fn set_graphs(&mut self, graphs: bool) {
        self.graphs = graphs;
        if !graphs {
            self.free.iter_mut().for_each(|slot| slot.recorded = None);
        }
    }

    /// Whether a batch may be sent: otherwise receive one first.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Batches that were sent and not yet received.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Most keys of a batch.
    pub fn batch_max(&self) -> usize {
        self.batch_max
    }

    /// Sends a batch of 1 to [`batch_max`](Self::batch_max) keys to be looked up in a table.
    ///
    /// # Errors
    /// Where the device fails.
    ///
    /// # Panics
    /// Where there is no room, or too many keys or none.
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

    /// Whether [`receive`](Self::receive) need not wait: the oldest batch has its answers or has failed, or none is
    /// under way.
    pub fn is_ready(&self) -> bool {
        self.under_way.front().is_none_or(Slot::is_ready)
    }

    /// Waits for the oldest batch under way; none where there is none. Its winners are the first of `hits`, but for
    /// those that are [`unanswered`](Self::unanswered).
    ///
    /// # Errors
    /// Where the device fails: the batch has no answer then.
    ///
    /// # Panics
    /// Where `hits` are fewer than the keys of the batch.
    #[inline(never)]
    pub fn receive(&mut self, hits: &mut [Option<Hit>]) -> Option<Result<Answered, GpuError>> {
        self.unanswered.clear();
        self.receive_also(hits)
    }

    /// The places of the keys that the last batch received, or the last [`lookup_batch`](Self::lookup_batch), has no
    /// answer to: a rule won that is gone since the bulk of the table was made ([`GpuTable::with_changes`]). Ascending;
    /// none in a table without changes.
    pub fn unanswered(&self) -> &[u32] {
        &self.unanswered
    }

    /// As [`receive`](Self::receive), without forgetting what was not answered before.
    fn receive_also(&mut self, hits: &mut [Option<Hit>]) -> Option<Result<Answered, GpuError>> {
        let mut slot = self.under_way.pop_front()?;
        assert!(hits.len() >= slot.count, "a batch of {} for {} answers", slot.count, hits.len());
        let answered = slot.end(hits, &mut self.unanswered);
        self.free.push(slot);
        Some(answered)
    }

    /// Looks keys up, in batches that overlap; but for those that are [`unanswered`](Self::unanswered).
    ///
    /// # Errors
    /// Where the device fails; what `hits` holds then means nothing.
    ///
    /// # Panics
    /// Where the slices differ in length, or batches are under way.
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
            // Also after a failure: nothing stays under way.
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
