//! The worker: bursts from ports, through parser, caches and tables, to ports.
//!
//! ```text
//! receive → parse ┬ exact match → signature match → megaflow: a path ────────┬ actions → transmit
//!              ↑  └ rule tables, all lanes before one together: rules, hops ┘      │
//!              └────────────────────────── recirculated lanes ─────────────────────┘
//! ```
//!
//! Which of the two ways is cheaper is measured (`choice`, `hybrid`); what brings a megaflow is decided in `admission`. Where a
//! table answers later, packets that no cache knows are parked before their actions (`deferral`, `waiting`).
//!
//! Everything here belongs to one thread. A stage takes a burst's lanes and narrows them; the stages'
//! cycles are counted per burst ([`Stages`]).

mod admission;
mod choice;
mod deferral;
mod egress;
mod faults;
mod hybrid;
mod lookup;
mod mail;
mod merge;
mod order;
mod ports;
mod stages;
mod trace;
mod validate;
mod waiting;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use choice::Arm;
pub use deferral::MAX_DELAY;
pub use egress::{Drops, Egress, Packet};
pub use faults::{Faults, MalformedPolicy};
pub use hybrid::{HybridCounters, Mode};
pub use lookup::{CacheConfig, Lookup};
pub use mail::Mailbox;
pub use ports::{PortCounters, PortSlot, Ports};
pub use stages::{Stage, StageCounters, Stages, Timer};
pub use trace::{Trace, TraceSent, TraceStep};
pub use validate::{Difference, RunError};
pub use waiting::WaitingCounters;

use merge::Merge;
use order::{NOWHERE, Way, Ways};
use validate::Validator;
use waiting::Waiting;

use flowlane::isa::Variant;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Headers, Parser};
use flowlane::tunnel::Policy;

use crate::packet::{Burst, Frame};
use crate::pipeline::PathId;
use crate::port::Received;
use crate::tunnel::Tunnels;

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
    parser: Parser,
    validator: Option<Validator>,
    clock: Clock,
    started: Instant,
    /// The latest frame time seen, in [`Clock::Frames`].
    frame_clock_ns: u64,
    bursts: u64,
    burst: Burst,
    keys: Vec<FlowKey>,
    headers: Vec<Headers>,
    /// When each frame came: not before those in front of it.
    times_ns: [u64; LANES_MAX],
    /// Those that have been sent somewhere.
    sent: LaneMask,
    merge: Merge,
    waiting: Waiting,
    max_delay: Duration,
    mail: Mailbox,
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
            parser: Parser::new(),
            validator: None,
            clock,
            started: Instant::now(),
            frame_clock_ns: 0,
            bursts: 0,
            burst: Burst::new(burst),
            keys: vec![FlowKey::zero(); burst],
            headers: vec![Headers::default(); burst],
            times_ns: [0; LANES_MAX],
            sent: LaneMask(0),
            merge: Merge::default(),
            waiting: Waiting::new(seed),
            max_delay: MAX_DELAY,
            mail: Mailbox::default(),
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
    fn answer(&mut self) {
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
        self.started = Instant::now();
        let mut received = 0;
        let mut idle_rounds = 0u32;
        self.lookup.pipeline.begin();
        self.mail.open();
        let result = loop {
            let left = until.packets.map_or(u64::MAX, |n| n.saturating_sub(received));
            let expired = until.duration.is_some_and(|d| self.started.elapsed() >= d);
            if left == 0 || expired || stop.load(Ordering::Relaxed) || self.egress.ports.all_finished() {
                break Ok(());
            }
            self.answer();
            match self.round(left) {
                Ok(0) => {
                    idle_rounds += 1;
                    self.lookup.follow(self.now_ns());
                }
                Ok(n) => {
                    received += n;
                    idle_rounds = 0;
                }
                Err(error) => break Err(error),
            }
            if self.bursts.is_multiple_of(MAINTENANCE_BURSTS) {
                progress(received);
            }
            // What waits for answers is not to wait for this thread to wake.
            if self.waiting.is_empty() {
                rest(idle_rounds);
            }
        };
        self.mail.close();
        let result = result.and_then(|()| self.settle());
        let flushed = self.egress.flush();
        let closed = self.egress.close();
        self.lookup.collect_counters();
        self.lookup.pipeline.end();
        result.and(flushed.map_err(RunError::from)).and(closed.map_err(RunError::from))
    }

    /// One burst from each port; returns the number of packets.
    fn round(&mut self, most: u64) -> Result<u64, RunError> {
        let mut received = 0;
        if self.clock == Clock::Frames && self.merge.is_needed(&self.egress.ports) {
            self.wait_for_room()?;
            received = self.receive_in_time(most)?;
        } else {
            for port in 0..self.egress.ports.len() {
                if self.egress.ports.slots()[port].finished || received >= most {
                    continue;
                }
                self.wait_for_room()?;
                received += self.receive_from(port, most - received)?;
            }
        }
        self.poll()?;
        let timer = self.stages.start();
        self.egress.flush()?;
        self.stages.stop(Stage::Transmit, received, timer);
        self.bursts += 1;
        if self.bursts.is_multiple_of(MAINTENANCE_BURSTS) || self.bursts == 32 {
            let now_ns = self.now_ns();
            self.lookup.maintain(now_ns, SWEEP_BUDGET, || self.waiting.paths());
            // By the frames' clock, time stands still where no frame comes, and what frames find must not depend on bursts.
            if self.clock == Clock::Wall {
                self.egress.maintain(now_ns);
                self.lookup.pipeline.functions_mut().for_each(|(_, function)| function.age(now_ns));
            }
        }
        Ok(received)
    }

    fn receive_from(&mut self, port: usize, most: u64) -> Result<u64, RunError> {
        let timer = self.stages.start();
        self.burst.clear_for(most);
        let slot = &mut self.egress.ports.slots_mut()[port];
        match slot.port.receive(&mut self.burst)? {
            Received::Finished => slot.finished = true,
            Received::More | Received::Idle => {}
        }
        slot.counters.rx_dropped += slot.port.lost();
        self.received(port, timer)
    }

    /// The same from all ports, in the order of the frames' times.
    fn receive_in_time(&mut self, most: u64) -> Result<u64, RunError> {
        let timer = self.stages.start();
        self.burst.clear_for(most);
        match self.merge.next(&mut self.egress.ports, &mut self.burst)? {
            Some(port) => self.received(port, timer),
            None => Ok(0),
        }
    }

    /// Counts and switches the frames of a burst.
    fn received(&mut self, port: usize, timer: Timer) -> Result<u64, RunError> {
        let packets = self.burst.len() as u64;
        if packets > 0 {
            let counters = &mut self.egress.ports.slots_mut()[port].counters;
            counters.rx_packets += packets;
            counters.rx_bytes += self.burst.frames().iter().map(|f| f.len() as u64).sum::<u64>();
            self.stages.stop(Stage::Receive, packets, timer);
            self.process(port)?;
        }
        Ok(packets)
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
        while frames.peek().is_some() {
            self.burst.clear();
            for (time_ns, bytes) in frames.by_ref().take(self.burst.capacity()) {
                let frame = self.burst.next_frame().expect("as many as fit are taken");
                frame.fill(bytes);
                frame.time_ns = time_ns;
            }
            self.process(port)?;
            self.poll()?;
            self.wait_for_room()?;
        }
        Ok(self.egress.flush()?)
    }

    fn process(&mut self, port: usize) -> Result<(), RunError> {
        self.lookup.follow(self.now_ns());
        let timer = self.stages.start();
        let live = self.parse_all(port)?;
        self.sent = LaneMask(0);
        let packets = self.burst.len() as u64;
        self.stages.stop(Stage::Parse, packets, timer);
        if live.is_empty() {
            return Ok(());
        }
        self.burst.frames_mut().iter_mut().for_each(|frame| frame.counted = frame.len() as u32);
        self.set_times();
        let (begun, slow) = (self.stages.start(), self.lookup.slow_cycles);
        self.lookup.begin_burst(&self.keys, live, self.times_ns[self.burst.len() - 1]);
        let mut ways = NOWHERE;
        let going = self.find_ways(port, live, &mut ways)?;
        self.act(port, going, &mut ways)?;
        let cycles = self.stages.start().since(begun).saturating_sub(self.lookup.slow_cycles - slow);
        self.lookup.end_burst(live.len(), cycles);
        Ok(())
    }

    /// Takes the lanes of a burst to the end of their ways; what that takes beside looking up anew counts as acting.
    #[inline]
    fn act(&mut self, port: usize, live: LaneMask, ways: &mut Ways) -> Result<(), RunError> {
        let (timer, before) = (self.stages.start(), self.stages.cycles());
        self.advance(port, live, ways)?;
        let within = self.stages.cycles() - before;
        self.stages.stop_without(Stage::Actions, live.len() as u64, timer, within);
        Ok(())
    }

    /// Finds the ways of lanes; gives those that go on at once. What waits for a table is parked.
    #[inline]
    fn find_ways(&mut self, port: usize, mut lanes: LaneMask, ways: &mut Ways) -> Result<LaneMask, RunError> {
        if lanes.is_empty() {
            return Ok(lanes);
        }
        let mut paths = [PathId(0); LANES_MAX];
        let (frames, times_ns) = (self.burst.frames(), &self.times_ns);
        let left = self.lookup.resolve(&self.keys, frames, lanes, times_ns, &mut paths, &mut self.stages);
        if let Some(difference) = self.lookup.difference.take() {
            return Err(difference.into());
        }
        let mut known = LaneMask(lanes.0 & !left.0);
        if self.lookup.pipeline.defers() {
            known = self.park_all(port, lanes, left, &mut paths);
            lanes = known;
        }
        for lane in known.lanes() {
            ways[lane] = Way::Path(paths[lane]);
        }
        if lanes != known {
            self.enter_tables(left, ways);
        }
        Ok(lanes)
    }

    /// Parses the burst; returns the lanes that go on.
    #[inline]
    fn parse_all(&mut self, port: usize) -> Result<LaneMask, Difference> {
        let slot = &self.egress.ports.slots()[port];
        let (in_port, decapsulate) = (slot.number.0, slot.decapsulate);
        let mut live = LaneMask::first(self.burst.len());
        let frames = self.burst.frames().iter().map(Frame::bytes);
        self.parser.parse_all(frames, in_port, &mut self.keys, &mut self.headers);
        if let Some(validator) = &mut self.validator {
            validator.parsed(self.burst.frames(), in_port, &self.keys, &self.headers)?;
        }
        if decapsulate {
            live.0 &= !self.decapsulate_all(port).0;
        }
        let mut trouble = LaneMask(0);
        for (lane, headers) in self.headers[..self.burst.len()].iter().enumerate() {
            trouble.0 |= u64::from(headers.malformed.is_some()) << lane;
        }
        for lane in trouble.lanes() {
            if !self.egress.faults.admit(&self.headers[lane], false) {
                live.remove(lane);
            }
        }
        Ok(live)
    }

    /// Terminates the burst's tunnels; returns the lanes that are to be dropped.
    fn decapsulate_all(&mut self, port: usize) -> LaneMask {
        let slot = &self.egress.ports.slots()[port];
        let (in_port, vrf) = (slot.number.0, slot.vrf);
        let frames = self.burst.frames_mut();
        let (keys, headers) = (&mut self.keys[..frames.len()], &mut self.headers[..frames.len()]);
        let tunnels = self.egress.tunnels.get_or_insert_with(|| Tunnels::of_anyone(Policy::default()));
        let refused = tunnels.terminate(&self.parser, frames, (in_port, vrf), keys, headers);
        self.egress.drops.tunnel_refused += refused.len() as u64;
        refused
    }

    /// Notes when the burst's frames came.
    #[inline]
    fn set_times(&mut self) {
        let frames = self.burst.frames();
        match self.clock {
            Clock::Wall => self.times_ns[..frames.len()].fill(self.started.elapsed().as_nanos() as u64),
            Clock::Frames => {
                for (time_ns, frame) in self.times_ns.iter_mut().zip(frames) {
                    self.frame_clock_ns = self.frame_clock_ns.max(frame.time_ns);
                    *time_ns = self.frame_clock_ns;
                }
            }
        }
    }

    /// The worker's clock, in whole seconds: as addresses are remembered with.
    pub fn now_s(&self) -> u32 {
        (self.now_ns() / 1_000_000_000) as u32
    }

    fn now_ns(&self) -> u64 {
        match self.clock {
            Clock::Wall => self.started.elapsed().as_nanos() as u64,
            Clock::Frames => self.frame_clock_ns,
        }
    }
}

/// Lets the core rest a little where nothing has come for a while: first the hyperthread's sibling, then
/// other processes, then the battery.
fn rest(idle_rounds: u32) {
    match idle_rounds {
        0..200 => std::hint::spin_loop(),
        200..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
