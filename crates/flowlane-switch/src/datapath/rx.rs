//! Reception: frames are received and counted, spread over workers, parsed, and taken out of tunnels that end here.

use std::time::{Duration, Instant};

use flowlane::packet::batch::LaneMask;
use flowlane::tunnel::Policy;

use super::handoff::ResumePoint;
use super::inlet;
use super::ports::PortSlot;
use super::spanning_tree;
use super::stages::Stage;
use super::validate::{Difference, RunError};
use super::workers::Run;
use super::{Clock, Worker};
use crate::packet::{Burst, Frame, Spread};
use crate::port::Received;
use crate::ruleset::PortFlags;
use crate::tunnel::Tunnels;

/// How long a run that ends processes frames that had arrived before; it may take as long again to discard the rest.
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// Receives a burst of up to `most` frames from a port. A port that is idle while the run ends is drained.
pub(super) fn receive(
    worker: &mut Worker,
    burst: &mut Burst,
    port: usize,
    most: u64,
) -> Result<(), RunError> {
    let draining = worker.drain_until.is_some();
    // Only by the machine's clock: captures have no offloads left to do.
    let may_keep_offloads =
        worker.clock == Clock::Wall && worker.egress.tunnels.is_none() && worker.validator.is_none();
    burst.clear_for(port, most);
    let keep = may_keep_offloads && worker.lookup.pipeline.only_forwards();
    let slot = &mut worker.egress.ports.slots_mut()[port];
    slot.port.keep_offloads(keep && !slot.decapsulate);
    match slot.port.receive(&mut burst.frames)? {
        Received::Finished => slot.finished = true,
        Received::Idle => slot.drained = draining,
        Received::More => {}
    }
    slot.counters.rx_dropped += slot.port.rx_dropped();
    Ok(())
}

/// Receives a burst in the order of the frames' times, of all ports. Returns whether any port has one.
pub(super) fn receive_by_timestamp(
    worker: &mut Worker,
    burst: &mut Burst,
    most: u64,
) -> Result<bool, RunError> {
    burst.frames.clear_for(most);
    let port = worker.merge.next(&mut worker.egress.ports, &mut burst.frames)?;
    port.inspect(|&port| burst.start(port));
    Ok(port.is_some())
}

/// Ends reception: keeps further frames out of ports, which are then received from until they are idle. Frames left
/// after [`DRAIN_MAX`] are discarded and counted.
pub(super) fn drain(worker: &mut Worker, burst: &mut Burst, run: &Run<'_>) -> Result<(), RunError> {
    let Some(until) = worker.drain_until else {
        worker.drain_until = Some(Instant::now() + DRAIN_MAX);
        for slot in worker.egress.ports.slots_mut() {
            // A limit of packets leaves the rest where they are.
            slot.drained = run.is_full() || !slot.port.stop_arrivals();
        }
        return Ok(());
    };
    let now = Instant::now();
    if now < until {
        return Ok(());
    }
    for port in 0..worker.egress.ports.len() {
        while !worker.egress.ports.slots()[port].is_over() {
            receive(worker, burst, port, u64::MAX)?;
            let slot = &mut worker.egress.ports.slots_mut()[port];
            slot.counters.rx_dropped += burst.len() as u64;
            // Where frames cannot be kept out, there may be no end.
            slot.drained |= now.elapsed() >= DRAIN_MAX;
        }
    }
    Ok(())
}

/// Counts a burst's frames at their port, and notes when they came. Frames that the port's settings refuse are dropped.
pub(super) fn account(worker: &mut Worker, burst: &mut Burst) {
    set_times(worker, burst);
    let slot = &mut worker.egress.ports.slots_mut()[burst.port];
    if slot.flags.has_any(PortFlags::REFUSES_RECEIVED) {
        refuse(slot, burst);
    }
    let counters = &mut slot.counters;
    counters.rx_packets += burst.len() as u64;
    counters.rx_bytes += burst.frames.iter().map(|f| f.len() as u64).sum::<u64>();
}

/// Drops the frames of a burst that their port's settings refuse, or that exceed its limit.
#[cold]
fn refuse(slot: &mut PortSlot, burst: &mut Burst) {
    let mut kept = 0;
    for lane in 0..burst.len() {
        let frame = &burst.frames[lane];
        if slot.flags.refuses(frame.bytes()) || slot.polices_received(frame.len(), burst.times_ns[lane]) {
            slot.counters.rx_dropped += 1;
        } else {
            burst.frames.swap(kept, lane);
            burst.times_ns.swap(kept, lane);
            kept += 1;
        }
    }
    burst.frames.truncate(kept);
}

/// Hands frames over that are for other workers, where the port does not spread them by itself.
pub(super) fn spread(worker: &mut Worker, burst: &mut Burst) {
    let Some(links) = &mut worker.links else { return };
    let slot = &mut worker.egress.ports.slots_mut()[burst.port];
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
                links.hand(other, burst, lane, ResumePoint::Port, None);
                worker.handed += 1;
            }
        }
    }
    burst.frames.truncate(kept);
}

/// Parses the burst; returns the lanes that go on.
#[inline]
pub(super) fn parse(worker: &mut Worker, burst: &mut Burst) -> Result<LaneMask, Difference> {
    let timer = worker.stages.start();
    let slot = &worker.egress.ports.slots()[burst.port];
    let (in_port, vrf, decapsulate) = (slot.number.0, slot.vrf, slot.decapsulate);
    let tunnel = slot.tunnel.as_ref().map(|tunnel| tunnel.kind());
    let has_inlets = slot.bfd.is_some() || slot.lacp.is_some() || slot.tree.is_some();
    let mut live = burst.lanes();
    let Burst { frames, keys, headers, .. } = burst;
    match slot.is_capture {
        false => worker.parser.parse_all(frames.iter().map(Frame::bytes), in_port, keys, headers),
        true => worker.parser.parse_all(frames.iter().map(Frame::captured), in_port, keys, headers),
    }
    if let Some(validator) = &mut worker.validator {
        validator.parsed(&burst.frames, slot.is_capture, in_port, &burst.keys, &burst.headers)?;
    }
    if let Some(kind) = tunnel {
        let bytes = |burst: &Burst| burst.frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let outer = bytes(burst);
        let refused = worker.egress.port_tunnels.terminate(&worker.parser, burst, in_port, kind);
        // The port counts frames without the tunnel's headers, as it does those that it sends.
        let counters = &mut worker.egress.ports.slots_mut()[burst.port].counters;
        counters.rx_bytes = (counters.rx_bytes + bytes(burst)).saturating_sub(outer);
        worker.egress.drops.tunnel_refused += refused.len() as u64;
        live.0 &= !refused.0;
    } else if decapsulate {
        let tunnels = worker.egress.tunnels.get_or_insert_with(|| Tunnels::of_anyone(Policy::default()));
        let refused = tunnels.terminate(&worker.parser, burst, (in_port, vrf));
        worker.egress.drops.tunnel_refused += refused.len() as u64;
        live.0 &= !refused.0;
    }
    if has_inlets {
        live.0 &= !inlet::take(worker, burst, live).0;
    }
    if worker.egress.ports.slots()[burst.port].flags.has_any(PortFlags::DISCARDS) {
        spanning_tree::discard(worker, burst, live);
        live = LaneMask(0);
    }
    let mut trouble = LaneMask(0);
    for (lane, headers) in burst.headers[..burst.len()].iter().enumerate() {
        trouble.0 |= u64::from(headers.malformed.is_some()) << lane;
    }
    for lane in trouble.lanes() {
        if !worker.egress.faults.admit(&burst.headers[lane], false) {
            live.remove(lane);
        }
    }
    burst.frames.iter_mut().for_each(|frame| frame.counted = frame.len() as u32);
    worker.stages.stop(Stage::Parse, burst.len() as u64, timer);
    Ok(live)
}

/// Notes when the burst's frames came.
#[inline]
pub(super) fn set_times(worker: &mut Worker, burst: &mut Burst) {
    match worker.clock {
        Clock::Wall => burst.times_ns[..burst.frames.len()].fill(worker.started.elapsed().as_nanos() as u64),
        Clock::Frames => {
            for (time_ns, frame) in burst.times_ns.iter_mut().zip(burst.frames.iter()) {
                worker.frame_clock_ns = worker.frame_clock_ns.max(frame.time_ns);
                *time_ns = worker.frame_clock_ns;
            }
        }
    }
}
