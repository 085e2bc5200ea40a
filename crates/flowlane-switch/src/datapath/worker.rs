//! A worker: its loop, and the way of a burst.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::egress::Egress;
use super::execute::{NOWHERE, Way, Ways};
use super::handoff::{Entrance, Links, PARCELS};
use super::idle::Idle;
use super::latency::Latency;
use super::lookup::Lookup;
use super::mailbox::Mailbox;
use super::merge::Merge;
use super::offload::MAX_DELAY;
use super::offload::reorder::Waiting;
use super::path::PathId;
use super::stages::{Stage, Stages};
use super::validate::{RunError, Validator};
use super::workers::Run;

use flowlane::isa::Variant;
use flowlane::packet::Parser;
use flowlane::packet::batch::{LANES_MAX, LaneMask};

use crate::packet::{Burst, Handover};

/// By what clock meters and address ageing go.
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

/// Bursts between two rankings of the megaflow masks and two looks at what is idle.
const MAINTENANCE_BURSTS: u64 = 1024;

/// Megaflows looked at for idleness in one go.
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
    pub(super) started: Instant,
    /// The latest frame time seen, in [`Clock::Frames`].
    pub(super) frame_clock_ns: u64,
    pub(super) bursts: u64,
    /// Between two runs. Stages are given it beside the worker.
    pub(super) burst: Burst,
    pub(super) merge: Merge,
    pub(super) waiting: Waiting,
    pub(super) max_delay: Duration,
    pub(super) mail: Mailbox,
    /// To other workers, while there are such.
    pub(super) links: Option<Links>,
    /// Packets that were handed over to others.
    pub handed: u64,
}

impl Worker {
    /// A worker that takes up to `burst` frames at a time (1 to 64).
    ///
    /// # Panics
    /// Where `burst` is out of range; the configuration's reader refuses that.
    pub fn new(lookup: Lookup, egress: Egress, burst: usize, clock: Clock) -> Self {
        assert!((1..=LANES_MAX).contains(&burst));
        let seed = lookup.seed();
        Self {
            lookup,
            egress,
            stages: Stages::default(),
            latency: Latency::default(),
            parser: Parser::new(),
            validator: None,
            clock,
            started: Instant::now(),
            frame_clock_ns: 0,
            bursts: 0,
            burst: Burst::new(burst),
            merge: Merge::default(),
            waiting: Waiting::new(seed),
            max_delay: MAX_DELAY,
            mail: Mailbox::default(),
            links: None,
            handed: 0,
        }
    }

    /// Parses and looks up by this variant from now on (where the parser has no body for it, by the next
    /// narrower one that it has). Says whether the variant can be used here.
    pub fn set_variant(&mut self, variant: Variant) -> bool {
        if !self.lookup.megaflows.set_variant(variant) {
            return false;
        }
        let narrower = Variant::ALL.into_iter().rev().filter(|v| v.width_bits() <= variant.width_bits());
        self.parser = narrower.filter_map(Parser::with_variant).next().unwrap_or_default();
        true
    }

    /// From now on runs every variant on every packet and compares (slowly): a difference ends
    /// [`run`](Self::run).
    pub fn validate(&mut self) {
        self.validator = Some(Validator::new());
        self.lookup.validate = true;
    }

    /// Packets that were compared so far, where that was asked for.
    pub fn validated(&self) -> Option<u64> {
        self.validator.as_ref().map(|v| v.packets)
    }

    /// Where others may ask this worker something while it runs.
    pub fn mailbox(&self) -> Mailbox {
        self.mail.clone()
    }

    /// Answers what has been asked.
    #[inline]
    pub(super) fn answer(&mut self) {
        for question in self.mail.take() {
            // Whoever has changed rules and asks then is to be told of these.
            self.lookup.follow(self.now_ns());
            question(self);
        }
    }

    /// Switches until every port has come to its end, `until` is reached, or `stop` is set. `progress` is
    /// called about every thousand bursts with the packets received so far.
    ///
    /// # Errors
    /// The first port that fails for good, or the first difference where [`validate`](Self::validate) asked for
    /// comparisons.
    pub fn run(
        &mut self,
        until: Until,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> Result<(), RunError> {
        self.run_by(&Run::new(until, stop), &mut progress)
    }

    /// The same, perhaps with others.
    pub(super) fn run_by(&mut self, run: &Run<'_>, progress: &mut dyn FnMut(u64)) -> Result<(), RunError> {
        self.started = run.begun();
        self.stages.begin();
        self.lookup.pipeline.begin();
        self.mail.open();
        let result = self.with_burst(|worker, burst| {
            let ended = worker.rounds(burst, run, progress);
            worker.mail.close();
            ended.and_then(|()| worker.settle_by(burst))
        });
        let flushed = self.egress.flush();
        let closed = self.egress.close();
        self.lookup.collect_counters();
        self.lookup.pipeline.end();
        result.and(flushed.map_err(RunError::from)).and(closed.map_err(RunError::from))
    }

    /// Nobody is to wait for this worker any more.
    pub(super) fn leave(&mut self) {
        self.mail.close();
        self.lookup.pipeline.end();
    }

    /// Rounds, until there is an end.
    pub(super) fn rounds(
        &mut self,
        burst: &mut Burst,
        run: &Run<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), RunError> {
        let (mut untold, mut idle) = (0, Idle::default());
        loop {
            let ends = run.is_to_end() || self.egress.ports.all_finished();
            if run.has_failed() || ends && self.is_over() {
                return Ok(());
            }
            self.answer();
            let taken_over = self.take_over(burst)?;
            let received = if ends { 0 } else { self.take_in(burst, run)? };
            self.finish_round(burst, taken_over + received)?;
            untold += received;
            if self.bursts.is_multiple_of(MAINTENANCE_BURSTS) {
                progress(run.add_received(std::mem::take(&mut untold)));
            }
            let time_left = if ends { None } else { run.time_left() };
            self.rest(&mut idle, taken_over + received > 0, time_left);
        }
    }

    /// Whether nothing is left to be done, once nothing more is received.
    pub(super) fn is_over(&mut self) -> bool {
        self.links.as_mut().is_none_or(|links| {
            links.retire();
            links.is_over()
        })
    }

    /// A burst from each port, through the switch; gives the number of packets.
    pub(super) fn take_in(&mut self, burst: &mut Burst, run: &Run<'_>) -> Result<u64, RunError> {
        // What others have no room for is bounded by this.
        if self.links.as_ref().is_some_and(Links::is_backed_up) {
            return Ok(0);
        }
        let claimed = run.claim((burst.capacity() * self.egress.ports.len()) as u64);
        let received = match self.clock == Clock::Frames && self.merge.is_needed(&self.egress.ports) {
            true => self.take_in_time(burst, claimed)?,
            false => self.take_from_each(burst, claimed)?,
        };
        run.give_back(claimed - received);
        Ok(received)
    }

    /// What has been done in a round goes out.
    pub(super) fn finish_round(&mut self, burst: &mut Burst, packets: u64) -> Result<(), RunError> {
        self.poll(burst)?;
        let timer = self.stages.start();
        self.egress.flush()?;
        if let Some(links) = &mut self.links {
            links.send(packets >= burst.capacity() as u64);
        }
        if packets > 0 {
            self.stages.stop(Stage::Transmit, packets, timer);
        }
        let begun = self.started;
        self.latency.end_round(packets, || begun.elapsed().as_nanos() as u64);
        self.bursts += 1;
        if self.bursts.is_multiple_of(MAINTENANCE_BURSTS) || self.bursts == 32 {
            self.maintain();
        }
        Ok(())
    }

    /// Goes on with packets that other workers have handed over; gives their number.
    #[inline]
    pub(super) fn take_over(&mut self, burst: &mut Burst) -> Result<u64, RunError> {
        let inlets = self.links.as_ref().map_or(0, Links::inlets);
        let mut packets = 0;
        for inlet in 0..inlets {
            // All of them: what others have handed over goes before what comes in, or rings would fill, and whoever fills them would
            // have to wait.
            for _ in 0..PARCELS {
                let Some(mut parcel) = self.links.as_mut().and_then(|links| links.take(inlet)) else { break };
                self.make_ready(burst)?;
                while let Some(entrance) = parcel.unpack(burst) {
                    packets += burst.len() as u64;
                    self.go_on(burst, entrance)?;
                }
                self.links.as_mut().expect("asked above").give_back(inlet, parcel);
            }
        }
        Ok(packets)
    }

    /// Takes a burst to its end that another worker has begun with.
    pub(super) fn go_on(&mut self, burst: &mut Burst, entrance: Entrance) -> Result<(), RunError> {
        if let (Clock::Frames, Some(&last)) = (self.clock, burst.times_ns[..burst.len()].last()) {
            self.frame_clock_ns = self.frame_clock_ns.max(last);
        }
        match entrance {
            Entrance::Port => self.switch(burst),
            Entrance::Function(table) | Entrance::OtherHalf(table) => {
                burst.handover =
                    if matches!(entrance, Entrance::Function(_)) { Handover::Whole } else { Handover::Half };
                self.latency.note(burst.times_ns[0], burst.len());
                self.advance(burst, burst.lanes(), &mut [Way::Function(table); LANES_MAX])
            }
        }
    }

    /// The way of a burst: the only place that knows its order.
    ///
    /// ```text
    /// (the newest ruleset → a port's frames) → parse → caches ─ or tables ─► ways → actions ⇄ tables → ports
    /// ```
    pub(super) fn switch(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        let live = self.parse(burst)?;
        if live.is_empty() {
            return Ok(());
        }
        let (begun, slow) = (self.stages.start(), self.lookup.slow_cycles);
        self.lookup.begin_burst(burst, live);
        let mut ways = NOWHERE;
        let going = self.find_ways(burst, live, &mut ways)?;
        self.act(burst, going, &mut ways)?;
        let cycles = self.stages.start().since(begun).saturating_sub(self.lookup.slow_cycles - slow);
        self.lookup.end_burst(live.len(), cycles);
        Ok(())
    }

    /// Now and then: what is idle goes.
    pub(super) fn maintain(&mut self) {
        let now_ns = self.now_ns();
        self.lookup.maintain(now_ns, SWEEP_BUDGET, || self.waiting.paths());
        // By the frames' clock, time stands still where no frame comes, and what frames find must not depend on bursts.
        if self.clock == Clock::Wall {
            self.egress.maintain(now_ns);
            self.lookup.pipeline.stages_mut().for_each(|(_, function)| function.age(now_ns));
        }
    }

    /// Does something with the burst, which stages are given beside the worker.
    pub(super) fn with_burst<T>(&mut self, work: impl FnOnce(&mut Self, &mut Burst) -> T) -> T {
        let mut burst = std::mem::take(&mut self.burst);
        let result = work(self, &mut burst);
        self.burst = burst;
        result
    }

    /// Switches frames that came in through the port at place `port`, as if it had received them: for
    /// tests, and for callers that have no [`Port`](crate::port::Port). Where a table answers later, frames may wait
    /// until [`settle`](Self::settle).
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn inject(&mut self, port: usize, frames: &[&[u8]]) -> Result<(), RunError> {
        let now_ns = self.frame_clock_ns;
        self.inject_at(port, frames.iter().map(|&bytes| (now_ns, bytes)))
    }

    /// The same with the frames' own times, in nanoseconds.
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
                worker.lookup.follow(worker.now_ns());
                burst.clear_for(port, u64::MAX);
                for (time_ns, bytes) in frames.by_ref().take(burst.capacity()) {
                    let frame = burst.frames.next_frame().expect("as many as fit are taken");
                    frame.fill(bytes);
                    frame.time_ns = time_ns;
                }
                worker.set_times(burst);
                worker.switch(burst)?;
                worker.poll(burst)?;
                worker.wait_for_room(burst)?;
            }
            Ok(worker.egress.flush()?)
        })
    }

    /// Takes the lanes of a burst to the end of their ways; what that takes beside looking up anew counts as acting.
    #[inline]
    pub(super) fn act(&mut self, burst: &mut Burst, live: LaneMask, ways: &mut Ways) -> Result<(), RunError> {
        let (timer, before) = (self.stages.start(), self.stages.cycles());
        if let Some(first) = live.lanes().next() {
            self.latency.note(burst.times_ns[first], live.len());
        }
        self.advance(burst, live, ways)?;
        let within = self.stages.cycles() - before;
        self.stages.stop_without(Stage::Actions, live.len() as u64, timer, within);
        Ok(())
    }

    /// Finds the ways of lanes; gives those that go on at once. What waits for a table is parked.
    #[inline]
    pub(super) fn find_ways(
        &mut self,
        burst: &mut Burst,
        mut lanes: LaneMask,
        ways: &mut Ways,
    ) -> Result<LaneMask, RunError> {
        if lanes.is_empty() {
            return Ok(lanes);
        }
        let mut paths = [PathId(0); LANES_MAX];
        let left = self.lookup.resolve(burst, lanes, &mut paths, &mut self.stages);
        if let Some(difference) = self.lookup.difference.take() {
            return Err(difference.into());
        }
        let mut known = LaneMask(lanes.0 & !left.0);
        if self.lookup.pipeline.defers() {
            known = self.park_all(burst, lanes, left, &mut paths);
            lanes = known;
        }
        for lane in known.lanes() {
            ways[lane] = Way::Path(paths[lane]);
        }
        if lanes != known {
            self.enter_tables(burst, left, ways);
        }
        Ok(lanes)
    }

    /// By what clock it goes.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The worker's clock, in whole seconds: as addresses are remembered with.
    pub fn now_s(&self) -> u32 {
        (self.now_ns() / 1_000_000_000) as u32
    }

    pub(super) fn now_ns(&self) -> u64 {
        match self.clock {
            Clock::Wall => self.started.elapsed().as_nanos() as u64,
            Clock::Frames => self.frame_clock_ns,
        }
    }
}
