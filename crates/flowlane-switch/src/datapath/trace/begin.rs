//! The beginning of a trace, and its way from worker to worker.

use std::collections::VecDeque;

use flowlane::packet::key::FlowKey;
use flowlane::packet::parse;
use flowlane::packet::{Field, FieldClass, WordSet};
use flowlane::rule::action::PortNo;

use super::super::walk::{Entered, Position, follow, follow_steps};
use super::super::worker::Worker;
use super::{Trace, Traced, Tracer, Tracing};
use crate::packet::Frame;
use crate::packet::recirculate::rounds;
use crate::ruleset::Return;
use crate::state::conntrack::Tracked;
use crate::state::mirror::MirrorSet;

impl Worker {
    /// Dry run of a frame that comes in through a port and is received by this worker.
    ///
    /// # Errors
    /// The ports that there are, where this is none.
    pub fn trace(&self, port: PortNo, bytes: &[u8]) -> Result<Tracing, String> {
        self.trace_with(port, bytes, [])
    }

    /// [Traces](Self::trace) a frame; these are the states that its `ct` actions find, one after the other.
    ///
    /// # Errors
    /// The ports that there are, where this is none.
    pub fn trace_with(
        &self,
        port: PortNo,
        bytes: &[u8],
        ct_next: impl IntoIterator<Item = u32>,
    ) -> Result<Tracing, String> {
        begin(self, port, bytes, &FlowKey::zero(), ct_next.into_iter().collect())
    }

    /// Begins a trace of a packet that has fields in no header from the start: registers, or those of the tunnel that it came out of.
    ///
    /// # Errors
    /// As [`trace`](Self::trace).
    pub fn trace_with_fields(
        &self,
        port: PortNo,
        bytes: &[u8],
        fields: &FlowKey,
        ct_next: impl IntoIterator<Item = u32>,
    ) -> Result<Tracing, String> {
        begin(self, port, bytes, fields, ct_next.into_iter().collect())
    }

    /// Goes on with a trace in the stage at which another worker would hand the packet over to this one.
    pub fn trace_on(&self, packet: Box<Traced>, stage: u8) -> Tracing {
        resume(self, packet, stage)
    }
}

/// Traces a frame that comes in through a port and is received by this worker.
///
/// # Errors
/// The ports that there are, where this is none.
fn begin(
    worker: &Worker,
    port: PortNo,
    bytes: &[u8],
    fields: &FlowKey,
    ct_next: VecDeque<u32>,
) -> Result<Tracing, String> {
    let Some(place) = worker.egress.ports.place(port) else {
        let there = worker.egress.ports.iter().map(|slot| format!("{} {}", slot.number.0, slot.name));
        return Err(format!(
            "there is no port {}; there are {}",
            port.0,
            there.collect::<Vec<_>>().join(", ")
        ));
    };
    let mut frame = Frame::default();
    frame.fill(bytes);
    let mut key = FlowKey::zero();
    let headers = parse(frame.bytes(), port.0, &mut key);
    let outside = [FieldClass::Tunnel, FieldClass::Metadata].map(WordSet::of_class);
    let own = [Field::InPort, Field::RecircId, Field::PacketType, Field::Malformed];
    let own = own.map(|field| (field, key.get(field)));
    for w in outside[0].union(outside[1]).iter().filter(|w| fields.word(*w) != 0) {
        key.set_word(w, fields.word(w));
    }
    own.into_iter().for_each(|(field, value)| key.set(field, value));
    let now_ns = worker.now_ns();
    let mut packet = Box::new(Traced {
        frame,
        headers,
        key,
        place,
        port,
        now_ns,
        tables: 0,
        moved: false,
        source: None,
        values: Vec::new(),
        translated: false,
        tracked: Tracked::default(),
        datagram: None,
        ct_next,
        copies: 0,
        mirrored: MirrorSet::default(),
        position: Position::default(),
        trace: Trace::default(),
    });
    let mut tracer = Tracer { worker, packet: &mut packet, elsewhere: None };
    let entry = tracer.come_in();
    packet.position.table = entry;
    Ok(run_on(worker, packet))
}

/// Goes on with a trace in the stage at which another worker would hand the packet over to this one.
fn resume(worker: &Worker, mut packet: Box<Traced>, stage: u8) -> Tracing {
    let mut position = std::mem::take(&mut packet.position);
    let mut tracer = Tracer { worker, packet: &mut packet, elsewhere: None };
    let entered = tracer.stage_of_any(stage);
    let elsewhere = tracer.elsewhere;
    match entered {
        Entered::Steps(steps) => {
            let rounds = rounds(&tracer.packet.key);
            follow_steps(&mut tracer, Return::to(steps, 0, rounds), &mut position);
            packet.position = position;
        }
        Entered::Pause => {
            position.table = None;
            packet.position = position;
            let (worker, stage) = elsewhere.expect("it pauses for another worker");
            return Tracing::On { worker, packet, stage };
        }
        Entered::Nothing | Entered::End => {}
    }
    run_on(worker, packet)
}

/// Takes a packet from table to table until its way has ended, or goes on with another worker.
fn run_on(worker: &Worker, mut packet: Box<Traced>) -> Tracing {
    let mut position = std::mem::take(&mut packet.position);
    let mut tracer = Tracer { worker, packet: &mut packet, elsewhere: None };
    follow(&mut tracer, &mut position);
    if let Some((worker, stage)) = tracer.elsewhere {
        position.table = None;
        packet.position = position;
        return Tracing::On { worker, packet, stage };
    }
    if packet.trace.sent.is_empty() {
        packet.trace.note("end", "nothing is sent", "");
    }
    Tracing::Ended(packet.trace)
}
