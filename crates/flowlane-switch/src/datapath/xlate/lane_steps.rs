//! Translation of steps that concern more than the packet's bytes: what follows from the key is recorded, and before the rest the
//! path ends.

use std::sync::Arc;

use super::super::apply::PacketEdit;
use super::super::hash_ports;
use super::super::walk::{Outcome, run};
use super::{Record, TrackedKey};
use flowlane::packet::fields::Field;
use flowlane::packet::{FieldClass, FieldRef, FlowKey, WordSet};
use flowlane::rule::action::Learn;

use crate::packet::recirculate::{self, in_headers};
use crate::ruleset::{
    FIN_OR_RST, LaneStep, Learned, Return, RuleRequest, Step, Track, ends_connection, is_tcp, outdates_key,
    output_step, sources,
};

impl TrackedKey {
    /// Takes a step, if its result follows from the key. Returns whether it does.
    pub(super) fn lane_step(&mut self, step: &LaneStep) -> bool {
        match step {
            LaneStep::Push(part) => {
                let is_known = self.knows(*part);
                if is_known {
                    self.depend_on_field(part.field(), part.mask());
                    self.stack.push(part.get(&self.key));
                }
                is_known
            }
            LaneStep::Pop(part) => {
                let pushed = self.stack.pop();
                if let Some(value) = pushed {
                    let value = part.place(value & part.ones());
                    self.set_field(part.field(), value, part.mask());
                }
                // Other values are the packet's own: it may have come with some.
                pushed.is_some()
            }
            LaneStep::PushValue(value) => {
                self.stack.push(*value);
                true
            }
            LaneStep::OutputField { port, max_len, origin } => {
                let is_known = self.knows(*port);
                if is_known {
                    self.depend_on_field(port.field(), port.mask());
                    let step = output_step(port.get(&self.key), *max_len, *origin);
                    let Ok(ended) = run(step.as_slice(), 0, self, &mut Record(None));
                    debug_assert!(matches!(ended, Outcome::Done), "an output does not drop");
                }
                is_known
            }
            LaneStep::Untrack => {
                self.hide_connection();
                self.lane(LaneStep::Untrack);
                true
            }
            LaneStep::Track { track, .. } => self.pass(track),
            LaneStep::Learn(learn) => self.learn(learn),
            LaneStep::FinTimeout(request) => self.fin_timeout(request),
            LaneStep::Multipath(multipath) if !self.parse_again => {
                for &field in multipath.hash.fields() {
                    self.depend_on_field(field, u128::MAX);
                }
                let link = hash_ports::link(&self.key, multipath);
                let to = multipath.to;
                self.set_field(to.field(), to.place(u128::from(link) & to.ones()), to.mask());
                true
            }
            LaneStep::Copy(_)
            | LaneStep::Group(_)
            | LaneStep::Multipath(_)
            | LaneStep::Bundle(_)
            | LaneStep::CheckPacketLarger { .. }
            | LaneStep::Pause(_)
            | LaneStep::Route(_)
            | LaneStep::Expire
            | LaneStep::Refuse
            | LaneStep::Request(_)
            | LaneStep::Leave { .. } => false,
            LaneStep::WriteActions(_) | LaneStep::ClearActions | LaneStep::Exit => {
                unreachable!("walking takes them")
            }
        }
    }

    /// Hides the packet's connection from what follows.
    pub(super) fn hide_connection(&mut self) {
        for w in WordSet::of_class(FieldClass::Connection).iter() {
            self.key.set_word(w, 0);
            self.written.set_word(w, u32::MAX);
        }
    }

    /// Records the rule that the packet makes, if it follows from the key. Returns whether it does.
    fn learn(&mut self, learn: &Learn) -> bool {
        // The answer of a limit differs from packet to packet.
        let has_one_result = learn.result.is_none() || learn.limit == 0;
        let are_known = has_one_result && sources(learn).all(|part| self.knows(part));
        if are_known {
            sources(learn).for_each(|part| self.depend_on_field(part.field(), part.mask()));
            let learned = Learned::of(learn, &self.key);
            self.lane(LaneStep::Request(Arc::new(RuleRequest::Learn(learned))));
            if let Some(to) = learn.result {
                self.set_field(to.field(), to.place(1), to.mask());
            }
        }
        are_known
    }

    /// Records the request of a packet that ends a connection: packets within one have no step. Returns whether the key says so.
    fn fin_timeout(&mut self, request: &Arc<RuleRequest>) -> bool {
        if self.parse_again {
            return false;
        }
        self.depend_on_field(Field::EthType, u128::MAX);
        self.depend_on_field(Field::NwProto, u128::MAX);
        if is_tcp(&self.key) {
            self.depend_on_field(Field::TcpFlags, FIN_OR_RST.into());
        }
        if ends_connection(&self.key) {
            self.lane(LaneStep::Request(request.clone()));
        }
        true
    }

    /// Returns whether the key has the packet's value of a field, or of a part of it.
    fn knows(&self, part: FieldRef) -> bool {
        !self.parse_again || !in_headers(part.field()) && part.get(&self.moved) == 0
    }

    /// Returns whether a path can end with looking the packet's connection up: the packet takes nothing to the table of the action
    /// but its key and its stack of values.
    pub(super) fn may_end_with(&self, track: &Track, here: &Return, calls: &[Return]) -> bool {
        let is_last = here.steps.lead_nowhere_from(here.at + 1);
        track.entering.is_some() && is_last && Return::lead_nowhere(calls)
    }

    /// Records that the packet's connection is looked up, if the key comes out as it went in: rules that keep a connection and lead
    /// on, of which each new connection meets several. Where they translate the packet, its key does not follow. Returns whether it does.
    fn pass(&mut self, track: &Arc<Track>) -> bool {
        let action = &track.action;
        let passes = track.entering.is_none() && action.alg == 0 && !self.parse_again;
        if passes {
            self.translated |= action.nat().is_some();
            self.track(track);
            // As in Open vSwitch, it goes on as one that has not been tracked.
            self.hide_connection();
        }
        passes
    }

    /// Records that the packet's connection is looked up.
    pub(super) fn track(&mut self, track: &Arc<Track>) {
        let step = LaneStep::Track { track: track.clone(), carry: self.carried() };
        self.steps.push(Step::Lane { step: Arc::new(step), again: self.is_outdated() });
    }

    /// Ends the path before a step: the packet goes on there in the rule's own steps, parsed `again`
    /// if its key lacks what the path did.
    pub(super) fn leave(&mut self, here: &Return, calls: &[Return], again: bool) {
        self.steps.extend(calls.iter().cloned().map(Step::Push));
        self.steps.push(Step::Push(here.clone()));
        self.record_stack();
        let carry = self.carried();
        self.steps.push(Step::Lane { step: Arc::new(LaneStep::Leave { carry }), again });
    }

    /// Returns the written bits in no header, which a recirculated packet carries: (word, value, mask).
    pub(super) fn carried(&self) -> Vec<(u8, u32, u32)> {
        let outside = self.written.present().difference(WordSet::of_class(FieldClass::Header));
        outside
            .iter()
            .map(|w| (w as u8, self.key.word(w) & self.written.word(w), self.written.word(w)))
            .collect()
    }

    /// Records the stack of values for the packet.
    pub(super) fn record_stack(&mut self) {
        for value in std::mem::take(&mut self.stack) {
            self.lane(LaneStep::PushValue(value));
        }
    }

    /// Returns whether the path does something to headers that the key of a packet which takes it does not follow.
    pub(super) fn is_outdated(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Do(action) if outdates_key(action)))
    }

    /// Sets the packet's rounds, which are in the key's `recirc_id`: every path depends on that.
    pub(super) fn set_rounds(&mut self, rounds: u8) {
        if rounds == recirculate::rounds(&self.key) {
            return;
        }
        let mut ones = FlowKey::zero();
        recirculate::set_rounds(&mut ones, u8::MAX);
        recirculate::set_rounds(&mut self.key, rounds);
        let ones = ones.get(Field::RecircId);
        self.written.set_masked(Field::RecircId, ones, ones);
    }

    pub(super) fn lane(&mut self, step: LaneStep) {
        self.steps.push(Step::Lane { step: Arc::new(step), again: false });
    }
}
