//! The recording implementation of [`Effects`]: what forwarding would perform becomes text of the trace.

use std::convert::Infallible;
use std::sync::Arc;

use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, parse};
use flowlane::rule::Action;
use flowlane::rule::action::{EncapsulateHeader, PortNo, Sample};

use super::super::apply::Effects;
use super::{Traced, Tracer, text};
use crate::packet::edit;
use crate::ruleset::{PortFlags, ToController};
use crate::state::meter::Verdict;

/// Records effects as text.
pub(super) struct Recorder;

/// Sends a packet to a port, or back where it came in.
fn send(packet: &mut Tracer<'_>, action: &Action, to: PortNo, more: &str) {
    let (text, own) = (text(action), packet.packet.source());
    match to {
        _ if to == own => packet.tell(text, "not sent", "it came in there: `in_port` sends it back"),
        PortNo::IN_PORT => packet.send(&text, own, more),
        other => packet.send(&text, other, more),
    }
}

impl Effects<Tracer<'_>> for Recorder {
    type Error = Infallible;

    fn output(&mut self, packet: &mut Tracer<'_>, to: PortNo) -> Result<(), Infallible> {
        send(packet, &Action::Output(to), to, "");
        Ok(())
    }

    fn in_port(&mut self, packet: &mut Tracer<'_>) -> Result<(), Infallible> {
        packet.send(&text(&Action::InPort), packet.packet.source(), "");
        Ok(())
    }

    fn flood(&mut self, packet: &mut Tracer<'_>) -> Result<(), Infallible> {
        packet.flood(&text(&Action::Flood), "");
        Ok(())
    }

    fn normal(&mut self, packet: &mut Tracer<'_>) -> Result<(), Infallible> {
        packet.normal();
        Ok(())
    }

    fn all(&mut self, packet: &mut Tracer<'_>) -> Result<(), Infallible> {
        packet.flood_to(&text(&Action::All), PortFlags::REFUSES_SENT, "");
        Ok(())
    }

    fn enqueue(&mut self, packet: &mut Tracer<'_>, to: PortNo, queue: u32) -> Result<(), Infallible> {
        send(packet, &Action::Enqueue { port: to, queue }, to, "");
        Ok(())
    }

    fn output_truncated(
        &mut self,
        packet: &mut Tracer<'_>,
        to: PortNo,
        max_len: u32,
    ) -> Result<(), Infallible> {
        send(packet, &Action::OutputTruncated { port: to, max_len }, to, "its first bytes");
        Ok(())
    }

    fn controller(&mut self, packet: &mut Tracer<'_>, to: &Arc<ToController>) -> Result<(), Infallible> {
        let text = text(&Action::Controller(Box::new(to.action.clone())));
        let egress = &packet.worker.egress;
        let place = egress.ports.place(packet.packet.source());
        let flags = place.map_or(PortFlags::default(), |place| egress.ports.slots()[place].flags);
        match to.is_miss() && flags.has_any(PortFlags::NO_PACKET_IN) {
            true => packet.tell(text, "not sent", "the port's settings refuse it"),
            false => packet.send_to_controller(&text, &to.action),
        }
        Ok(())
    }

    fn sample(&mut self, packet: &mut Tracer<'_>, sample: &Sample) -> Result<(), Infallible> {
        let text = text(&Action::Sample(Box::new(sample.clone())));
        packet.tell(text, "perhaps to the controller, too", "the dice say which");
        Ok(())
    }

    fn meter(&mut self, packet: &mut Tracer<'_>, number: u32) -> bool {
        let Traced { frame, now_ns, .. } = &*packet.packet;
        let meter = packet.worker.egress.meters.get(number);
        let verdict = meter.map_or(Verdict::Passes, |meter| meter.decide(frame.len(), *now_ns));
        let action = Action::Meter(number);
        match verdict {
            Verdict::Passes => {
                packet.tell(text(&action), "it passes", "the meter has tokens left at present")
            }
            Verdict::Remarked(levels) => packet.edit(&action, |packet| packet.remark(levels)),
            Verdict::Dropped => {
                packet.tell(text(&action), "dropped", "the meter's rate is exceeded at present");
            }
        }
        verdict != Verdict::Dropped
    }

    fn count(&mut self, packet: &mut Tracer<'_>, number: u32) {
        packet.tell(text(&Action::Count(number)), "it is counted", "");
    }

    fn encapsulate(&mut self, packet: &mut Tracer<'_>, tunnel: u32) -> bool {
        let action = Action::Encapsulate(tunnel);
        let tunnels = packet.worker.egress.tunnels.as_ref();
        let noted = packet.packet.trace.steps.len();
        let carried = packet.edit(&action, |packet| {
            let wrapped =
                tunnels.map(|tunnels| tunnels.wrap(tunnel, packet.frame, packet.headers, packet.key));
            packet.key.set(Field::TunMetadataPresent, 0);
            wrapped.is_some_and(|wrapped| wrapped.is_ok())
        });
        if !carried {
            packet.packet.trace.steps.truncate(noted);
            packet.tell(text(&action), "dropped", "the tunnel does not carry it, or it is too long for it");
            return false;
        }
        packet.untrack();
        packet.packet.translated = false;
        true
    }

    fn encapsulate_header(&mut self, packet: &mut Tracer<'_>, header: &EncapsulateHeader) -> bool {
        let action = Action::EncapsulateHeader(header.clone());
        packet.change_type(&action, |frame, headers| edit::encapsulate(frame, headers, header))
    }

    fn decapsulate(&mut self, packet: &mut Tracer<'_>, to: Option<(u16, u16)>) -> bool {
        let action = Action::Decapsulate(to);
        packet.change_type(&action, |frame, headers| edit::decapsulate(frame, headers, to))
    }

    fn reparse(&mut self, packet: &mut Tracer<'_>) -> bool {
        if !std::mem::take(&mut packet.packet.moved) {
            return true;
        }
        packet.packet.headers = parse(packet.packet.frame.bytes(), 0, &mut FlowKey::zero());
        packet.is_sound("parsed again")
    }
}
