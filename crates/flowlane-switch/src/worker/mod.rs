//! The worker: bursts from ports, through parser, caches and tables, to ports.
//!
//! ```text
//! receive → parse → exact match → megaflow → slow path → actions → transmit
//!                                     ↑________ recirculated lanes ______|
//! ```
//!
//! Where a table answers later, packets that no cache knows are parked between the slow path and their actions
//! (`deferral`, `waiting`).
//!
//! Everything here belongs to one thread. A stage takes a burst's lanes and narrows them; the stages'
//! cycles are counted per burst ([`Stages`]).

mod behind;
mod choice;
mod deferral;
mod egress;
mod hybrid;
mod lookup;
mod ports;
mod stages;
mod validate;
mod waiting;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use choice::Arm;
pub use deferral::MAX_DELAY;
pub use egress::{Arrival, Drops, Egress};
pub use hybrid::{HybridCounters, Mode};
pub use lookup::{CacheConfig, Lookup};
pub use ports::{PortCounters, PortSlot, Ports};
pub use stages::{Stage, StageCounters, Stages};
pub use validate::{Difference, RunError};
pub use waiting::WaitingCounters;

use behind::Behind;
use egress::Outcome;
use validate::Validator;
use waiting::Waiting;

use flowlane::isa::Variant;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Headers, Malformed, Parser};
use flowlane::tunnel::Policy;

use crate::packet::recirculate::{parse_again, take_along};
use crate::packet::{Burst, Frame};
use crate::pipeline::PathId;
use crate::port::Received;
use crate::tunnel::Tunnels;

/// What happens to frames in which something is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MalformedPolicy {
    /// They are dropped (and counted).
    #[default]
    Drop,
    /// They are matched on what could be parsed (and counted), as Open vSwitch does.
    Forward,
}

/// By what clock meters and address ageing go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// The machine's.
    #[default]
    Wall,
    /// The frames' own times: a replayed capture gives the same result at any speed.
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
    /// What happens to malformed frames.
    pub malformed_policy: MalformedPolicy,
    /// Malformed frames by reason.
    pub malformed: [u64; Malformed::ALL.len()],
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
    waiting: Waiting,
    max_delay: Duration,
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
            malformed_policy: MalformedPolicy::default(),
            malformed: [0; Malformed::ALL.len()],
            parser: Parser::new(),
            validator: None,
            clock,
            started: Instant::now(),
            frame_clock_ns: 0,
            bursts: 0,
            burst: Burst::new(burst),
            keys: vec![FlowKey::zero(); burst],
            headers: vec![Headers::default(); burst],
            waiting: Waiting::new(seed),
            max_delay: MAX_DELAY,
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
        let result = loop {
            let left = until.packets.map_or(u64::MAX, |n| n.saturating_sub(received));
            let expired = until.duration.is_some_and(|d| self.started.elapsed() >= d);
            if left == 0 || expired || stop.load(Ordering::Relaxed) || self.egress.ports.all_finished() {
                break Ok(());
            }
            match self.round(left) {
                Ok(0) => idle_rounds += 1,
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
        let result = result.and_then(|()| self.settle());
        let flushed = self.egress.flush();
        let closed = self.egress.close();
        self.lookup.collect_counters();
        result.and(flushed.map_err(RunError::from)).and(closed.map_err(RunError::from))
    }

    /// One burst from each port; returns the number of packets.
    fn round(&mut self, most: u64) -> Result<u64, RunError> {
        let mut received = 0;
        for port in 0..self.egress.ports.len() {
            if self.egress.ports.slots()[port].finished || received >= most {
                continue;
            }
            self.wait_for_room()?;
            received += self.receive_from(port)?;
        }
        self.poll()?;
        let timer = self.stages.start();
        self.egress.flush()?;
        self.stages.stop(Stage::Transmit, received, timer);
        self.bursts += 1;
        if self.bursts.is_multiple_of(MAINTENANCE_BURSTS) || self.bursts == 32 {
            let now_ns = self.now_ns();
            self.lookup.maintain(now_ns, SWEEP_BUDGET, || self.waiting.paths());
            self.egress.maintain(now_ns);
            // Before the first frame has set the clock, nothing has begun that could age.
            if now_ns > 0 {
                self.lookup.pipeline.functions_mut().for_each(|(_, function)| function.age(now_ns));
            }
        }
        Ok(received)
    }

    fn receive_from(&mut self, port: usize) -> Result<u64, RunError> {
        let timer = self.stages.start();
        self.burst.clear();
        let slot = &mut self.egress.ports.slots_mut()[port];
        match slot.port.receive(&mut self.burst)? {
            Received::Finished => slot.finished = true,
            Received::More | Received::Idle => {}
        }
        let packets = self.burst.len() as u64;
        if packets > 0 {
            slot.counters.rx_packets += packets;
            slot.counters.rx_bytes += self.burst.frames().iter().map(|f| f.len() as u64).sum::<u64>();
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
        for chunk in frames.chunks(self.burst.capacity()) {
            self.burst.clear();
            for bytes in chunk {
                self.burst.next_frame().expect("a chunk fits").fill(bytes);
            }
            self.process(port)?;
            self.poll()?;
            self.wait_for_room()?;
        }
        Ok(self.egress.flush()?)
    }

    fn process(&mut self, port: usize) -> Result<(), RunError> {
        let timer = self.stages.start();
        let live = self.parse_all(port)?;
        self.stages.stop(Stage::Parse, self.burst.len() as u64, timer);
        let now_ns = self.now_ns();
        self.look_up(port, live, now_ns)
    }

    /// Looks lanes up and does what is to be done with them, also with those that come back; what waits for a table is
    /// parked.
    #[inline]
    fn look_up(&mut self, port: usize, mut live: LaneMask, now_ns: u64) -> Result<(), RunError> {
        let mut paths = [PathId(0); LANES_MAX];
        while !live.is_empty() {
            let frames = self.burst.frames();
            let left = self.lookup.resolve(&self.keys, frames, live, now_ns, &mut paths, &mut self.stages);
            if let Some(difference) = self.lookup.difference.take() {
                return Err(difference.into());
            }
            if self.lookup.pipeline.defers() {
                live = self.park_all(port, live, left, now_ns, &mut paths);
            }
            let timer = self.stages.start();
            let packets = live.len() as u64;
            live = self.act_all(port, live, &paths, now_ns)?;
            self.stages.stop(Stage::Actions, packets, timer);
        }
        Ok(())
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
            if let Some(reason) = self.headers[lane].malformed {
                self.malformed[reason as usize] += 1;
            }
            if self.malformed_policy == MalformedPolicy::Drop {
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

    /// Does what the lanes' paths say; returns the lanes that are to be looked up again.
    #[inline]
    fn act_all(
        &mut self,
        port: usize,
        live: LaneMask,
        paths: &[PathId; LANES_MAX],
        now_ns: u64,
    ) -> Result<LaneMask, RunError> {
        let mut again = LaneMask(0);
        let mut behind = Behind::default();
        let in_port = self.egress.ports.slots()[port].number;
        for lane in live.lanes() {
            let frame = &mut self.burst.frames_mut()[lane];
            let headers = &mut self.headers[lane];
            let bytes = frame.len() as u64;
            let (path, steps) = self.lookup.paths.get_mut(paths[lane]);
            match self.egress.run(
                steps,
                frame,
                headers,
                Arrival { key: &self.keys[lane], port, now_ns, sent: false },
            )? {
                Outcome::Stopped { at } => {
                    self.lookup.credit_until(paths[lane], at, bytes);
                    continue;
                }
                Outcome::Done => {}
                Outcome::Enter { table, carry, sent } => {
                    take_along(carry, &mut self.keys[lane]);
                    behind.add(lane, table, sent);
                }
                Outcome::Again { table, carry } => {
                    parse_again(frame, in_port.0, table, carry, headers, &mut self.keys[lane]);
                    again.0 |= 1 << lane;
                }
            }
            path.packets += 1;
            path.bytes += bytes;
        }
        again.0 |= self.behind_all(port, behind, now_ns)?.0;
        Ok(again)
    }

    fn now_ns(&mut self) -> u64 {
        match self.clock {
            Clock::Wall => self.started.elapsed().as_nanos() as u64,
            Clock::Frames => {
                if let Some(frame) = self.burst.frames().last() {
                    self.frame_clock_ns = self.frame_clock_ns.max(frame.time_ns);
                }
                self.frame_clock_ns
            }
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
