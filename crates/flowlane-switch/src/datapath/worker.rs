//! A worker: the poll loop, and the way of a burst through the stages, on one page.
//!
//! Everything here belongs to one thread. A stage is a function over the worker and its burst; no stage calls one before it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::classify::classify;
use super::egress::Egress;
use super::execute::{self, Cursor, Cursors, DONE, Frontier};
use super::group_counters::GroupCounters;
use super::handoff::{BATCHES_MAX, Links, ResumePoint};
use super::idle::{Idle, wait_for_work};
use super::lane_steps::Copies;
use super::latency::Latency;
use super::lookup::Lookup;
use super::mailbox::Mailbox;
use super::merge::Merge;
use super::offload::reorder::{Waiting, WaitingCounters};
use super::offload::{self, MAX_DELAY};
use super::stages::{Stage, Stages, Timer};
use super::validate::{RunError, Validator};
use super::workers::Run;
use super::{mirroring, router, rx};

use flowlane::isa::Variant;
use flowlane::packet::Parser;
use flowlane::packet::batch::{LANES_MAX, LaneMask};

use crate::packet::Burst;

/// The clock of meters and address ageing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// The machine's.
    #[default]
    Wall,
    /// The frames' own times: a replayed capture gives the same result at any speed, however its frames fall into bursts.
    /// Several captures are replayed together in the order of their times.
    Frames,
}

/// When [`Worker::run`] ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Until {
    /// After this many received packets.
    pub packets: Option<u64>,
    /// After this long.
    pub duration: Option<Duration>,
}

/// Bursts between two maintenance runs (ranking of megaflow masks, ageing).
const MAINTENANCE_BURSTS: u64 = 1024;

/// Megaflows checked per maintenance run.
const SWEEP_BUDGET: usize = 4096;

/// A switch on one core.
pub struct Worker {
    /// Tables and caches.
    pub lookup: Lookup,
    /// Ports and what sends to them.
    pub egress: Egress,
    /// Cycles per stage.
    pub stages: Stages,
    /// How long packets take, by the machine's clock.
    pub latency: Latency,
    pub(super) parser: Parser,
    pub(super) validator: Option<Validator>,
    pub(super) clock: Clock,
    /// The origin of the machine's clock.
    pub(super) started: Instant,
    /// That of the first run, or of the switch whose place this one takes: later runs go on with it.
    pub(super) clock_origin: Option<Instant>,
    /// The latest frame time seen, in [`Clock::Frames`].
    pub(super) frame_clock_ns: u64,
    pub(super) bursts: u64,
    /// The burst buffer between two runs; a run passes it separately.
    pub(super) burst: Burst,
    pub(super) merge: Merge,
    pub(super) waiting: Waiting,
    pub(super) max_delay: Duration,
    pub(super) mail: Mailbox,
    /// Links to other workers, if there are any.
    pub(super) links: Option<Links>,
    /// Open calls of the burst's lanes.
    pub(super) calls: Calls,
    /// Copies of packets under way.
    pub(super) copies: Copies,
    /// Packets of groups.
    pub groups: GroupCounters,
    /// Packets handed over to other workers.
    pub handed: u64,
    /// Until when frames are received that had arrived before the run's end; `None` before that.
    pub(super) drain_until: Option<Instant>,
}

impl Worker {
    /// Makes a worker that receives up to `burst` frames at a time (1 to 64).
    ///
    /// # Panics
    /// Where `burst` is out of range; the configuration's reader refuses that.
    pub fn new(mut lookup: Lookup, egress: Egress, burst: usize, clock: Clock) -> Self {
        assert!((1..=LANES_MAX).contains(&burst));
        let seed = lookup.seed();
        lookup.pipeline.meters = egress.meters.clone();
        Self {
            lookup,
            egress,
            stages: Stages::default(),
            latency: Latency::default(),
            parser: Parser::new(),
            validator: None,
            clock,
            started: Instant::now(),
            clock_origin: None,
            frame_clock_ns: 0,
            bursts: 0,
            burst: Burst::new(burst),
            merge: Merge::default(),
            waiting: Waiting::new(seed),
            max_delay: MAX_DELAY,
            mail: Mailbox::default(),
            links: None,
            calls: Calls::default(),
            copies: Copies::default(),
            groups: GroupCounters::default(),
            handed: 0,
            drain_until: None,
        }
    }

    /// Parses and looks up by this variant from now on (where the parser has no kernel for it, by the next
    /// narrower one that it has). Returns whether the variant can be used on this machine.
    pub fn set_variant(&mut self, variant: Variant) -> bool {
        if !self.lookup.megaflows.set_variant(variant) {
            return false;
        }
        let narrower = Variant::ALL.into_iter().rev().filter(|v| v.width_bits() <= variant.width_bits());
        self.parser = narrower.filter_map(Parser::with_variant).next().unwrap_or_default();
        true
    }

    /// Runs every variant on every packet from now on and compares them (slowly): a difference ends
    /// [`run`](Self::run).
    pub fn validate(&mut self) {
        self.validator = Some(Validator::new());
        self.lookup.validate = true;
    }

    /// Number of packets compared by [`validate`](Self::validate).
    pub fn validated(&self) -> Option<u64> {
        self.validator.as_ref().map(|v| v.packets)
    }

    /// The mailbox for requests to this worker while it runs.
    pub fn mailbox(&self) -> Mailbox {
        self.mail.clone()
    }

    /// How long a packet may wait for others to fill its offload batch; [`MAX_DELAY`] by default.
    pub fn set_max_delay(&mut self, max_delay: Duration) {
        self.max_delay = max_delay;
    }

    /// Counters of packets that waited for offloaded tables.
    pub fn waiting_counters(&self) -> WaitingCounters {
        self.waiting.counters
    }

    /// Number of packets that wait for offloaded tables.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Switches until every port has come to its end, `until` is reached, or `stop` is set. `progress` is
    /// called about every thousand bursts with the packets received so far.
    ///
    /// # Errors
    /// The first port that fails for good, the first difference where [`validate`](Self::validate) asked for comparisons, or a
    /// panic.
    pub fn run(
        &mut self,
        until: Until,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> Result<(), RunError> {
        self.run_of(&Run::new(until, stop), 0, &mut progress)
    }

    fn run_by(&mut self, run: &Run<'_>, progress: &mut dyn FnMut(u64)) -> Result<(), RunError> {
        self.started = *self.clock_origin.get_or_insert(run.begun());
        self.stages.begin();
        let is_by_system = self.clock == Clock::Wall;
        self.lookup.pipeline.begin(is_by_system.then_some(self.started));
        self.drain_until = None;
        for slot in self.egress.ports.slots_mut() {
            if std::mem::take(&mut slot.drained) {
                slot.port.resume_arrivals();
            }
        }
        self.mail.open();
        let result = self.with_burst(|worker, burst| {
            let ended = poll_loop(worker, burst, run, progress);
            worker.mail.close();
            ended.and_then(|()| settle(worker, burst))
        });
        let flushed = self.egress.flush();
        let closed = self.egress.close();
        self.lookup.collect_counters();
        self.lookup.pipeline.end();
        result.and(flushed.map_err(RunError::from)).and(closed.map_err(RunError::from))
    }

    /// Runs as worker number `place` of `run`, on this thread: a failure or a panic ends the run of all.
    pub(super) fn run_of(
        &mut self,
        run: &Run<'_>,
        place: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), RunError> {
        let ended = catch_unwind(AssertUnwindSafe(|| self.run_by(run, progress)));
        let result = ended.unwrap_or_else(|panic| {
            // Deregisters, so that control does not wait for its answers.
            self.mail.close();
            self.lookup.pipeline.end();
            Err(RunError::Panicked { worker: place, message: message_of(&*panic) })
        });
        if result.is_err() {
            run.fail();
        }
        if let Some(links) = &self.links {
            links.wake_all();
        }
        result
    }

    /// Switches frames as if the port at place `port` had received them: for tests, and for callers that have no
    /// [`Port`](crate::port::Port). Where a table answers later, frames may wait until [`settle`](Self::settle).
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn inject(&mut self, port: usize, frames: &[&[u8]]) -> Result<(), RunError> {
        let now_ns = self.frame_clock_ns;
        self.inject_at(port, frames.iter().map(|&bytes| (now_ns, bytes)))
    }

    /// [Injects](Self::inject) frames with times of their own, in nanoseconds.
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn inject_at<'a>(
        &mut self,
        port: usize,
        frames: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<(), RunError> {
        let mut frames = frames.into_iter().peekable();
        self.with_burst(|worker, burst| {
            while frames.peek().is_some() {
                worker.follow();
                burst.clear_for(port, u64::MAX);
                for (time_ns, bytes) in frames.by_ref().take(burst.capacity()) {
                    let frame = burst.frames.next_frame().expect("as many as fit are taken");
                    frame.fill(bytes);
                    frame.time_ns = time_ns;
                }
                rx::set_times(worker, burst);
                process(worker, burst)?;
                poll_offloads(worker, burst)?;
                wait_for_room(worker, burst)?;
            }
            Ok(worker.egress.flush()?)
        })
    }

    /// Waits until no packet waits for an offloaded table any more.
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn settle(&mut self) -> Result<(), RunError> {
        self.with_burst(settle)
    }

    /// Lends the burst, which stages take beside the worker.
    fn with_burst<T>(&mut self, work: impl FnOnce(&mut Self, &mut Burst) -> T) -> T {
        let mut burst = std::mem::take(&mut self.burst);
        let result = work(self, &mut burst);
        self.burst = burst;
        result
    }

    /// Evicts idle state, a part at a time.
    pub(super) fn maintain(&mut self) {
        let now_ns = self.now_ns();
        self.lookup.maintain(now_ns, SWEEP_BUDGET, || self.waiting.paths());
        // By the frames' clock, time does not pass while no frame comes, and what frames find must not depend on bursts.
        if self.clock == Clock::Wall {
            self.egress.maintain(now_ns);
            self.lookup.pipeline.stages_mut().for_each(|(_, stage)| stage.age(now_ns));
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

// The poll loop.

/// Polls until the run ends: requests, packets from other workers, packets from ports, transmission, rest.
fn poll_loop(
    worker: &mut Worker,
    burst: &mut Burst,
    run: &Run<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), RunError> {
    let (mut unreported, mut idle) = (0, Idle::default());
    loop {
        worker.mail.count_round();
        let stops = run.is_to_end();
        if stops {
            rx::drain(worker, burst, run)?;
        }
        let ends = worker.egress.ports.all_finished(stops);
        if run.has_failed() || ends && has_drained(worker) {
            return Ok(());
        }
        // Also a worker that has nothing to receive, since others wait until it has taken the newest ruleset.
        if worker.lookup.pipeline.is_asked() {
            worker.follow();
        }
        serve_requests(worker);
        let resumed = drain_handoffs(worker, burst)?;
        let received = if ends { 0 } else { poll_ports(worker, burst, run)? };
        finish_round(worker, burst, resumed + received)?;
        unreported += received;
        if worker.bursts.is_multiple_of(MAINTENANCE_BURSTS) {
            progress(run.add_received(std::mem::take(&mut unreported)));
        }
        let time_left = if ends || stops { None } else { run.time_left() };
        wait_for_work(worker, &mut idle, resumed + received > 0, time_left);
    }
}

/// Returns whether no work is left, once this worker has stopped receiving.
fn has_drained(worker: &mut Worker) -> bool {
    worker.links.as_mut().is_none_or(|links| {
        links.retire();
        links.is_over()
    })
}

/// Executes the requests of other threads.
#[inline]
fn serve_requests(worker: &mut Worker) {
    for request in worker.mail.take() {
        // Pending rule changes first, so that a caller sees its own.
        worker.follow();
        request(worker);
    }
}

/// Goes on with packets that other workers have handed over; returns their number.
#[inline]
fn drain_handoffs(worker: &mut Worker, burst: &mut Burst) -> Result<u64, RunError> {
    let receivers = worker.links.as_ref().map_or(0, Links::receivers);
    let mut packets = 0;
    for receiver in 0..receivers {
        // All of them: handed-over packets go before received ones, or rings would fill, and senders would have to wait.
        for _ in 0..BATCHES_MAX {
            let Some(mut batch) = worker.links.as_mut().and_then(|links| links.take(receiver)) else { break };
            make_ready(worker, burst)?;
            worker.egress.has_bare |= batch.has_bare;
            while let Some(resume_point) = batch.unpack(burst, &mut worker.calls) {
                packets += burst.len() as u64;
                resume_burst(worker, burst, resume_point)?;
            }
            worker.links.as_mut().expect("asked above").give_back(receiver, batch);
        }
    }
    Ok(packets)
}

/// Receives a burst from each port and processes it; returns the number of packets.
fn poll_ports(worker: &mut Worker, burst: &mut Burst, run: &Run<'_>) -> Result<u64, RunError> {
    // Bounds the packets for which others have no room.
    if worker.links.as_ref().is_some_and(Links::is_backed_up) {
        return Ok(0);
    }
    let claimed = run.claim((burst.capacity() * worker.egress.ports.len()) as u64);
    let by_time = worker.clock == Clock::Frames && worker.merge.is_needed(&worker.egress.ports);
    let mut received = 0;
    if by_time {
        make_ready(worker, burst)?;
        let timer = worker.stages.start();
        if rx::receive_by_timestamp(worker, burst, claimed)? {
            received = process_received(worker, burst, timer)?;
        }
    } else {
        worker.egress.ports.ask_for_arrivals();
        for port in 0..worker.egress.ports.len() {
            if !worker.egress.ports.may_receive(port) || received >= claimed {
                continue;
            }
            make_ready(worker, burst)?;
            let timer = worker.stages.start();
            rx::receive(worker, burst, port, claimed - received)?;
            received += process_received(worker, burst, timer)?;
        }
    }
    run.give_back(claimed - received);
    Ok(received)
}

/// Transmits what a round has queued, and accounts for the round.
fn finish_round(worker: &mut Worker, burst: &mut Burst, packets: u64) -> Result<(), RunError> {
    poll_offloads(worker, burst)?;
    if worker.clock == Clock::Wall && worker.egress.router.is_some() {
        router::tick(worker, worker.now_ns())?;
    }
    let timer = worker.stages.start();
    worker.egress.flush()?;
    if let Some(links) = &mut worker.links {
        links.send(packets >= burst.capacity() as u64);
    }
    if packets > 0 {
        worker.stages.stop(Stage::Transmit, packets, timer);
    }
    let begun = worker.started;
    worker.latency.end_round(packets, || begun.elapsed().as_nanos() as u64);
    worker.bursts += 1;
    if worker.bursts.is_multiple_of(MAINTENANCE_BURSTS) || worker.bursts == 32 {
        worker.maintain();
    }
    Ok(())
}

/// Before a burst: makes room for packets that have to wait, and takes the newest ruleset. The burst meets that one to its end,
/// since it decides what a port may leave to offloads.
fn make_ready(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    wait_for_room(worker, burst)?;
    worker.follow();
    Ok(())
}

// The way of a burst.

/// Counts the frames of a burst that a port has received, and processes it.
fn process_received(worker: &mut Worker, burst: &mut Burst, timer: Timer) -> Result<u64, RunError> {
    let packets = burst.len() as u64;
    if packets > 0 {
        let port = burst.port;
        rx::account(worker, burst);
        rx::spread(worker, burst);
        worker.stages.stop(Stage::Receive, packets, timer);
        process(worker, burst)?;
        let cycles = worker.stages.start().since(timer);
        worker.egress.ports.slots_mut()[port].cycles += cycles;
    }
    Ok(packets)
}

/// Takes a burst from its port to the ports that its packets leave through: the only place that knows the order of the stages.
///
/// ```text
/// parse → classify (caches, or tables) → execute (actions ⇄ tables) → ports
///              ↑_______ recirculated lanes _______|
/// ```
fn process(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    worker.egress.now_ns = burst.times_ns[0];
    let live = rx::parse(worker, burst)?;
    if live.is_empty() {
        return Ok(());
    }
    let (begun, slow) = (worker.stages.start(), worker.lookup.slow_cycles);
    worker.lookup.begin_burst(burst, live);
    worker.calls.begin_burst();
    match worker.egress.mirroring.may_take(&worker.egress.ports.slots()[burst.port]) {
        false => run_lanes(worker, burst, live)?,
        // One by one: the mirrors that have a copy of a packet are known of one packet at a time.
        true => {
            for lane in live.lanes() {
                mirroring::mirror_received(worker, burst, lane)?;
                run_lanes(worker, burst, LaneMask(1 << lane))?;
            }
        }
    }
    let cycles = worker.stages.start().since(begun).saturating_sub(worker.lookup.slow_cycles - slow);
    worker.lookup.end_burst(live.len(), cycles);
    Ok(())
}

/// Takes received lanes to their ends.
#[inline]
fn run_lanes(worker: &mut Worker, burst: &mut Burst, lanes: LaneMask) -> Result<(), RunError> {
    let mut cursors = DONE;
    let going = classify(worker, burst, lanes, &mut cursors)?;
    execute_all(worker, burst, going, &mut cursors)
}

/// Takes lanes to their ends. Its cycles, those of lookups apart, count as actions.
#[inline]
fn execute_all(
    worker: &mut Worker,
    burst: &mut Burst,
    mut lanes: LaneMask,
    cursors: &mut Cursors,
) -> Result<(), RunError> {
    let (timer, before, packets) = (worker.stages.start(), worker.stages.cycles(), lanes.len() as u64);
    if let Some(first) = lanes.lanes().next() {
        worker.latency.note(burst.times_ns[first], lanes.len());
    }
    finish(worker, burst, &mut lanes, cursors)?;
    let within = worker.stages.cycles() - before;
    worker.stages.stop_without(Stage::Actions, packets, timer, within);
    Ok(())
}

/// Executes lanes, and classifies those again that recirculate, until all have ended.
#[inline]
pub(super) fn finish(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: &mut LaneMask,
    cursors: &mut Cursors,
) -> Result<(), RunError> {
    let mut frontier = Frontier::default();
    worker.calls.prepared.clear();
    loop {
        let again = execute::execute(worker, burst, lanes, cursors, &mut frontier)?;
        if again.is_empty() {
            return Ok(());
        }
        lanes.0 &= !again.0 | classify(worker, burst, again, cursors)?.0;
    }
}

/// Takes a burst on that another worker has begun with.
fn resume_burst(worker: &mut Worker, burst: &mut Burst, resume_point: ResumePoint) -> Result<(), RunError> {
    if let (Clock::Frames, Some(&last)) = (worker.clock, burst.times_ns[..burst.len()].last()) {
        worker.frame_clock_ns = worker.frame_clock_ns.max(last);
    }
    match resume_point {
        ResumePoint::Port => process(worker, burst),
        ResumePoint::Stage(table) => {
            burst.is_handed_over = true;
            worker.latency.note(burst.times_ns[0], burst.len());
            finish(worker, burst, &mut burst.lanes(), &mut [Cursor::Stage(table); LANES_MAX])
        }
    }
}

// Packets that wait for tables on devices.

/// Sends the offload batches that are due, takes the answers that are there, and lets packets go whose turn it is. Waits for
/// nothing.
fn poll_offloads(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    if worker.waiting.is_empty() {
        return Ok(());
    }
    offload::poll(worker);
    release(worker, burst)
}

/// Waits until no packet waits any more.
fn settle(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    while !worker.waiting.is_empty() {
        offload::wait_oldest_batch(worker);
        release(worker, burst)?;
    }
    Ok(())
}

/// Waits until a burst of packets may be received.
fn wait_for_room(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    while offload::is_full(worker, burst.capacity()) {
        offload::wait_oldest_batch(worker);
        release(worker, burst)?;
    }
    Ok(())
}

/// Lets packets go whose turn it is, in order.
fn release(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    let mut cursors = DONE;
    while offload::next_ready(worker, burst, &mut cursors) {
        execute_all(worker, burst, burst.lanes(), &mut cursors)?;
    }
    Ok(())
}
