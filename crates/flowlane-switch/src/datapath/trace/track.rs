//! Connection tracking, narrated.

use flowlane::packet::FlowKey;
use flowlane::rule::Action;

use super::super::egress::NS_PER_MS;
use super::super::track::{HeldFragment, hide, request, show, track_packet, translated};
use super::super::walk::{AfterStep, Follow, Position, ROUNDS_MAX};
use super::{Traced, Tracer, difference};
use crate::packet::recirculate::{rounds, set_rounds};
use crate::ruleset::{Return, Track};
use crate::state::conntrack::fragments::{Datagram, Fate, Piece, piece, piece_of_any_length, seen_whole};
use crate::state::conntrack::{Connections, Request, Tracked, rewrite, with_addresses};

/// The result of looking a packet's connection up.
enum Found {
    /// It is of this or that connection.
    Itself,
    /// So are the other fragments of its datagram, which wait for it.
    WithOthers,
    /// It waits for other fragments.
    Waits,
}

impl Tracer<'_> {
    /// Forgets the packet's connection.
    pub(super) fn untrack(&mut self) {
        self.packet.tracked = Tracked::default();
        hide(&mut self.packet.key);
    }

    /// Looks the packet's connection up; a copy goes on in the action's table, or the packet itself, where nothing follows.
    pub(super) fn track(&mut self, track: &Track, here: &Return, position: &mut Position) -> AfterStep {
        let text = Action::ConnectionTracking(Box::new(track.action.clone())).to_string();
        let (before, was_translated) = (self.packet.key.clone(), self.packet.translated);
        if !self.follow_translation() {
            return AfterStep::End;
        }
        // Only a packet that goes on in a table sees a state.
        let given = track.entering.is_some().then(|| self.packet.ct_next.pop_front()).flatten();
        let request = request(track, &before, true);
        let why = match (self.connection(&request), given) {
            (_, Some(state)) => {
                (self.packet.tracked.state, self.packet.tracked.zone) = (state, request.zone);
                "that state was given"
            }
            (Found::Waits, None) => {
                self.tell(text, "it waits", "other fragments of its datagram have not come");
                return AfterStep::End;
            }
            (Found::WithOthers, None) => "the last fragment of its datagram, whose others go on now, too",
            (Found::Itself, None) => "a trace changes no connection",
        };
        let translation = difference(&before, &self.packet.key);
        let is_translated = was_translated || self.packet.translated;
        let came_as = is_translated.then(|| before.clone());
        self.packet.translated = false;
        show(&mut self.packet.key, &self.packet.tracked);
        self.tell(text.as_str(), difference(&before, &self.packet.key), why);
        let Some((steps, table)) = track.entering.as_ref().zip(track.action.table) else {
            if track.action.nat().is_some() {
                self.tell(text, translation, "");
            }
            self.show_former(came_as);
            return AfterStep::Next;
        };
        let before = rounds(&self.packet.key);
        if track.back {
            if before == ROUNDS_MAX {
                self.refuse_call(table);
                return AfterStep::End;
            }
            set_rounds(&mut self.packet.key, before + 1);
        }
        let is_last = here.at + 1 == here.steps.steps().len() && position.calls.is_empty();
        if is_last && self.packet.copies == 0 {
            position.table = self.pass(table, &[], true, &[]).then_some(table);
            return AfterStep::End;
        }
        let mirrored = self.packet.mirrored;
        self.copy(&text, steps, position, false);
        self.show_former(came_as);
        self.packet.mirrored = mirrored;
        set_rounds(&mut self.packet.key, before);
        AfterStep::Next
    }

    /// Gives the key the ends that the packet had before it was translated, if it was, and hides its connection.
    fn show_former(&mut self, came_as: Option<FlowKey>) {
        if let Some(key) = came_as {
            (self.packet.key, self.packet.translated) = (key, true);
        }
        hide(&mut self.packet.key);
    }

    /// Takes the packet to its connection.
    fn connection(&mut self, request: &Request<'_>) -> Found {
        let now_ms = self.packet.now_ns / NS_PER_MS;
        let egress = &self.worker.egress;
        let Traced { frame, headers, key, tracked, translated: is_translated, .. } = &mut *self.packet;
        if headers.fragment == 0 || Connections::knows(tracked, request) {
            *is_translated =
                track_packet(&egress.connections, request, (frame, headers, key), tracked, now_ms);
            return Found::Itself;
        }
        let own = piece(frame.bytes(), headers, key, request.zone, egress.connections.shortest_fragments);
        let found = self.meet_others(own, usize::MAX);
        let Traced { frame, headers, key, tracked, datagram, .. } = &mut *self.packet;
        let seen = datagram.flatten().map(|seen| with_addresses(seen, key));
        if let Found::Waits = found {
            return found;
        }
        let by = egress.connections.track(seen.as_ref(), request, tracked, now_ms);
        if let Some(by) = &by {
            rewrite(frame, headers, key, by);
        }
        self.packet.translated = by.is_some();
        let datagram = &mut self.packet.datagram;
        if datagram.is_some() {
            *datagram = Some(translated(seen, by.as_ref()));
        }
        found
    }

    /// Returns whether a fragment waits at a translation for the others of its datagram.
    pub(super) fn waits_at_translation(&mut self, (zone, datagrams_max): (u16, usize)) -> bool {
        let Traced { frame, headers, key, .. } = &*self.packet;
        if headers.fragment == 0 {
            return false;
        }
        let own = piece_of_any_length(frame.bytes(), headers, key, zone);
        matches!(self.meet_others(own, datagrams_max), Found::Waits)
    }

    /// Notes the datagram that the packet is a fragment of, unless that is known or others of its fragments have not come.
    fn meet_others(&mut self, own: Option<(Datagram, Piece)>, datagrams_max: usize) -> Found {
        let Traced { frame, tracked, datagram, now_ns, .. } = &mut *self.packet;
        let (None, Some((of, piece))) = (*datagram, own) else { return Found::Itself };
        let fragments = &self.worker.egress.fragments;
        let mut fragments = fragments.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_ms = *now_ns / NS_PER_MS;
        match fragments.preview(&of, piece, (now_ms, datagrams_max)) {
            Fate::Waits => Found::Waits,
            Fate::All(pieces) => {
                if let Some((_, Some(first))) = pieces.first() {
                    *tracked = first.tracked();
                }
                let bytes = |held: Option<_>| held.map_or(frame.bytes(), HeldFragment::bytes);
                *datagram = Some(seen_whole(pieces.iter().map(|(piece, held)| (*piece, bytes(*held))), &of));
                Found::WithOthers
            }
            Fate::Refused => Found::Itself,
        }
    }
}
