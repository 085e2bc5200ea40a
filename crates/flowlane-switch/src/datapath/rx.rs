//! The beginning of a burst's way: frames are received and counted, parsed, and taken out of tunnels that end here.

use flowlane::packet::batch::LaneMask;
use flowlane::tunnel::Policy;

use super::handoff::Entrance;
use super::stages::{Stage, Timer};
use super::validate::{Difference, RunError};
use super::{Clock, Worker};
use crate::packet::{Burst, Frame, Spread};
use crate::port::Received;
use crate::tunnel::Tunnels;

impl Worker {
    /// A burst from each port after the other, each through the switch; gives the number of packets.
    pub(super) fn take_from_each(&mut self, burst: &mut Burst, most: u64) -> Result<u64, RunError> {
        let mut received = 0;
        // By the machine's clock alone: captures have nothing left to do.
        let may_be_left =
            self.clock == Clock::Wall && self.egress.tunnels.is_none() && self.validator.is_none();
        for port in 0..self.egress.ports.len() {
            if self.egress.ports.slots()[port].finished || received >= most {
                continue;
            }
            self.make_ready(burst)?;
            let timer = self.stages.start();
            burst.clear_for(port, most - received);
            let left = may_be_left && self.lookup.pipeline.only_forwards();
            let slot = &mut self.egress.ports.slots_mut()[port];
            slot.port.keep_offloads(left && !slot.decapsulate);
            match slot.port.receive(&mut burst.frames)? {
                Received::Finished => slot.finished = true,
                Received::More | Received::Idle => {}
            }
            slot.counters.rx_dropped += slot.port.rx_dropped();
            received += self.take(burst, timer)?;
        }
        Ok(received)
    }

    /// The same in the order of the frames' times, of all ports.
    pub(super) fn take_in_time(&mut self, burst: &mut Burst, most: u64) -> Result<u64, RunError> {
        self.make_ready(burst)?;
        let timer = self.stages.start();
        burst.frames.clear_for(most);
        let Some(port) = self.merge.next(&mut self.egress.ports, &mut burst.frames)? else { return Ok(0) };
        burst.start(port);
        self.take(burst, timer)
    }

    /// Before a burst: there is room for those who have to wait, and the newest ruleset is there. The burst meets that one to its
    /// end, since it says what a port may leave to others.
    pub(super) fn make_ready(&mut self, burst: &mut Burst) -> Result<(), RunError> {
        self.wait_for_room(burst)?;
        self.lookup.follow(self.now_ns());
        Ok(())
    }

    /// Counts the frames of a burst, and switches them.
    fn take(&mut self, burst: &mut Burst, timer: Timer) -> Result<u64, RunError> {
        let packets = burst.len() as u64;
        if packets > 0 {
            let counters = &mut self.egress.ports.slots_mut()[burst.port].counters;
            counters.rx_packets += packets;
            counters.rx_bytes += burst.frames.iter().map(|f| f.len() as u64).sum::<u64>();
            let port = burst.port;
            self.set_times(burst);
            self.spread(burst);
            self.stages.stop(Stage::Receive, packets, timer);
            self.switch(burst)?;
            let cycles = self.stages.start().since(timer);
            self.egress.ports.slots_mut()[port].cycles += cycles;
        }
        Ok(packets)
    }

    /// Hands those frames over that are for other workers, where the port does not know for whom they are.
    fn spread(&mut self, burst: &mut Burst) {
        let Some(links) = &mut self.links else { return };
        let slot = &mut self.egress.ports.slots_mut()[burst.port];
        if !slot.port.needs_software_rss() {
            return;
        }
        let spread = slot.spread.get_or_insert_with(|| Spread::new(links.me(), links.workers()));
        let mut kept = 0;
        for lane in 0..burst.len() {
            match spread.worker(burst.frames[lane].bytes(), burst.times_ns[lane]) {
                me if me == spread.me() => {
                    burst.frames.swap(kept, lane);
                    kept += 1;
                }
                other => {
                    links.hand(other, burst, lane, Entrance::Port);
                    self.handed += 1;
                }
            }
        }
        burst.frames.truncate(kept);
    }

    /// Parses the burst; returns the lanes that go on.
    #[inline]
    pub(super) fn parse(&mut self, burst: &mut Burst) -> Result<LaneMask, Difference> {
        let timer = self.stages.start();
        let slot = &self.egress.ports.slots()[burst.port];
        let (in_port, vrf, decapsulate) = (slot.number.0, slot.vrf, slot.decapsulate);
        let mut live = burst.lanes();
        let bytes = burst.frames.iter().map(Frame::bytes);
        self.parser.parse_all(bytes, in_port, &mut burst.keys, &mut burst.headers);
        if let Some(validator) = &mut self.validator {
            validator.parsed(&burst.frames, in_port, &burst.keys, &burst.headers)?;
        }
        if decapsulate {
            let tunnels = self.egress.tunnels.get_or_insert_with(|| Tunnels::of_anyone(Policy::default()));
            let refused = tunnels.terminate(&self.parser, burst, (in_port, vrf));
            self.egress.drops.tunnel_refused += refused.len() as u64;
            live.0 &= !refused.0;
        }
        let mut trouble = LaneMask(0);
        for (lane, headers) in burst.headers[..burst.len()].iter().enumerate() {
            trouble.0 |= u64::from(headers.malformed.is_some()) << lane;
        }
        for lane in trouble.lanes() {
            if !self.egress.faults.admit(&burst.headers[lane], false) {
                live.remove(lane);
            }
        }
        burst.frames.iter_mut().for_each(|frame| frame.counted = frame.len() as u32);
        self.stages.stop(Stage::Parse, burst.len() as u64, timer);
        Ok(live)
    }

    /// Notes when the burst's frames came.
    #[inline]
    pub(super) fn set_times(&mut self, burst: &mut Burst) {
        match self.clock {
            Clock::Wall => {
                burst.times_ns[..burst.frames.len()].fill(self.started.elapsed().as_nanos() as u64)
            }
            Clock::Frames => {
                for (time_ns, frame) in burst.times_ns.iter_mut().zip(burst.frames.iter()) {
                    self.frame_clock_ns = self.frame_clock_ns.max(frame.time_ns);
                    *time_ns = self.frame_clock_ns;
                }
            }
        }
    }
}
