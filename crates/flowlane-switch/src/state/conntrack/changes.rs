//! The changes that a packet and its rule make to a connection.

use std::ops::{Deref, DerefMut};

use super::ct_state::{self, TRANSLATED};
use super::entry::Live;
use super::tuple::Tuple;
use super::{Known, Request, Rewrite, Tracked, set_bits};

/// A connection as a request works on it: itself, or a copy.
pub(super) enum ForRequest<'a> {
    Itself(&'a mut Live),
    Copy(Live),
}

pub(super) fn live_for<'a>(request: &Request<'_>, live: &'a mut Live) -> ForRequest<'a> {
    match request.is_dry_run {
        true => ForRequest::Copy(live.clone()),
        false => ForRequest::Itself(live),
    }
}

impl Deref for ForRequest<'_> {
    type Target = Live;

    fn deref(&self) -> &Live {
        match self {
            Self::Itself(live) => live,
            Self::Copy(live) => live,
        }
    }
}

impl DerefMut for ForRequest<'_> {
    fn deref_mut(&mut self) -> &mut Live {
        match self {
            Self::Itself(live) => live,
            Self::Copy(live) => live,
        }
    }
}

/// Returns how a packet of a connection is translated, and notes that in its state.
pub(super) fn translate(
    live: &Live,
    tuples: [Tuple; 2],
    (request, known): (&Request<'_>, &Known),
    tracked: &mut Tracked,
) -> Option<Rewrite> {
    let direction = usize::from(known.direction);
    request.nat?;
    if live.translated.is_none() || tracked.state & TRANSLATED != 0 && tracked.zone == request.zone {
        return None;
    }
    let ends = if direction == 0 { live.translated } else { live.translated.reversed() };
    tracked.state &= !TRANSLATED;
    tracked.state |= if ends.source { ct_state::SOURCE_TRANSLATED } else { 0 };
    tracked.state |= if ends.destination { ct_state::DESTINATION_TRANSLATED } else { 0 };
    let (from, to) = (tuples[direction], tuples[1 - direction].reversed());
    Some(Rewrite { ends, from, to, is_error: known.is_error })
}

/// Shows a packet whose connection has been removed the mark and label that a rule sets: no other packet sees them.
pub(super) fn show_fields(request: &Request<'_>, tracked: &mut Tracked) {
    if tracked.announced.is_some() {
        return;
    }
    if let Some((value, mask)) = request.mark {
        tracked.mark = set_bits(tracked.mark.into(), (value.into(), mask.into())) as u32;
    }
    if let Some(bits) = request.label {
        tracked.label = set_bits(tracked.label, bits);
    }
}

/// Sets the connection's mark and label as a rule asks, and shows the packet what they then are. As in Open vSwitch, a connection
/// that was announced keeps those of its control connection.
pub(super) fn set_fields(live: &mut Live, request: &Request<'_>, tracked: &mut Tracked) {
    let is_announced = live.control_tuple().is_some();
    if let Some((value, mask)) = request.mark.filter(|_| !is_announced) {
        live.mark = set_bits(live.mark.into(), (value.into(), mask.into())) as u32;
    }
    if let Some(bits) = request.label.filter(|_| !is_announced) {
        live.set_label(set_bits(live.label(), bits));
    }
    (tracked.mark, tracked.label) = (live.mark, live.label());
}
