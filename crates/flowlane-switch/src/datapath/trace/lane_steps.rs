//! Steps that concern more than the packet's bytes, narrated.

use flowlane::packet::{Field, FieldRef};
use flowlane::rule::Action;
use flowlane::rule::action::{Bundle, Controller, Learn, PortNo};

use super::super::egress::Changed;
use super::super::hash_ports;
use super::super::walk::{AfterStep, CALLED_MAX, Outcome, Position, follow, follow_steps, run};
use super::{Recorder, Traced, Tracer};
use crate::packet::Frame;
use crate::packet::length::without_padding;
use crate::packet::recirculate::{keep_ends, parse_again, rounds, set_field};
use crate::ruleset::{LaneStep, Learned, Return, Step, Steps, ends_connection, output_step};

/// Copies within copies that a trace follows.
const COPIES_MAX: usize = 32;

/// A packet that needs no copy goes on like this.
const GOES_ITSELF: &str = "the packet itself goes on there";

impl Tracer<'_> {
    /// Parses the packet again. Returns whether it goes on.
    pub(super) fn parse_again(&mut self) -> bool {
        let Traced { frame, headers, key, port, translated, .. } = &mut *self.packet;
        let before = translated.then(|| key.clone());
        parse_again(frame, port.0, 0, &[], headers, key);
        if let Some(before) = before {
            keep_ends(&before, key);
        }
        self.packet.moved = false;
        self.is_sound("parsed again")
    }

    /// Gives the key the ends of a packet that has been translated without it. Returns whether the packet goes on.
    pub(super) fn follow_translation(&mut self) -> bool {
        !std::mem::take(&mut self.packet.translated) || self.parse_again()
    }

    /// Takes a step.
    pub(super) fn take(
        &mut self,
        step: &LaneStep,
        again: bool,
        here: &Return,
        position: &mut Position,
    ) -> AfterStep {
        let looks = matches!(step, LaneStep::Route(_));
        if again && !self.parse_again() || looks && !self.follow_translation() {
            return AfterStep::End;
        }
        match step {
            LaneStep::Copy(steps) => {
                if self.copy("clone", steps, position, false) {
                    return AfterStep::Exit;
                }
            }
            LaneStep::Group(group) => self.group(*group, position),
            LaneStep::Push(part) => {
                let value = part.get(&self.packet.key);
                self.packet.values.push(value);
                self.tell(format!("push:{part}"), format!("{value:#x}"), "");
            }
            LaneStep::PushValue(value) => self.packet.values.push(*value),
            LaneStep::Pop(part) => match self.packet.values.pop() {
                Some(value) => self.assign(format!("pop:{part}"), *part, value & part.ones()),
                None => self.tell(format!("pop:{part}"), "nothing changes", "no value has been pushed"),
            },
            LaneStep::OutputField { port, max_len, origin } => {
                let number = port.get(&self.packet.key);
                self.tell(format!("output:{port}"), format!("to port {number}"), "");
                self.output(output_step(number, *max_len, *origin));
            }
            LaneStep::Multipath(multipath) => {
                let link = hash_ports::link(&self.packet.key, multipath);
                let to = multipath.to;
                self.assign(format!("multipath({})", multipath.hash), to, u128::from(link) & to.ones());
            }
            LaneStep::Bundle(bundle) => self.bundle(bundle),
            LaneStep::CheckPacketLarger { bytes, to } => {
                let len = without_padding(&self.packet.frame, &self.packet.headers);
                let is_larger = len > usize::from(*bytes);
                self.assign(format!("check_pkt_larger({bytes})"), *to, is_larger.into());
            }
            LaneStep::Learn(learn) => self.learn(learn),
            LaneStep::FinTimeout(_) => self.fin_timeout(),
            LaneStep::Pause(to) => return self.pause(&to.action),
            LaneStep::Track { track, .. } => return self.track(track, here, position),
            LaneStep::Route(routing) => return self.route(*routing),
            LaneStep::Untrack => {
                self.untrack();
                self.tell("ct_clear", "its connection is forgotten", "");
            }
            LaneStep::Expire | LaneStep::Refuse | LaneStep::Request(_) | LaneStep::Leave { .. } => {}
            LaneStep::WriteActions(_) | LaneStep::ClearActions | LaneStep::Exit => {
                unreachable!("walking takes them")
            }
        }
        AfterStep::Next
    }

    fn pause(&mut self, action: &Controller) -> AfterStep {
        let text = Action::Controller(Box::new(action.clone())).to_string();
        self.send_to_controller(&text, action);
        match self.worker.egress.packet_ins.is_some() {
            true => self.tell(text, "it waits", "a controller that resumes it decides what follows"),
            false => self.tell(text, "ends", "no controller of OpenFlow can resume it"),
        }
        AfterStep::End
    }

    fn bundle(&mut self, bundle: &Bundle) {
        let member = self.worker.egress.bundle_member(&self.packet.key, bundle);
        let name = format!("bundle({})", bundle.hash);
        match (bundle.to, member) {
            (Some(to), member) => {
                let number = member.map_or(0xffff, |port| port.0);
                self.assign(name, to, u128::from(number) & to.ones());
            }
            (None, Some(PortNo(number))) => {
                self.tell(name, format!("to port {number}"), "");
                self.output(Some(Step::Do(Action::Output(PortNo(number)))));
            }
            (None, None) => self.tell(name, "not sent", "no member is live"),
        }
    }

    fn learn(&mut self, learn: &Learn) {
        let learned = Learned::of(learn, &self.packet.key);
        let is_allowed = self.worker.egress.learning.allows(&learned);
        let why = match is_allowed {
            true => "a trace does not add it",
            false => "its limit does not allow it",
        };
        self.tell("learn", learned.flow_mod.rule.to_string(), why);
        if let Some(to) = learn.result {
            self.assign("learn".to_owned(), to, is_allowed.into());
        }
    }

    fn fin_timeout(&mut self) {
        match ends_connection(&self.packet.key) {
            true => self.tell("fin_timeout", "its rule's timeouts go down", "a trace does not lower them"),
            false => self.tell("fin_timeout", "nothing changes", "no TCP with FIN or RST"),
        }
    }

    /// Sets a field, or some of its bits.
    fn assign(&mut self, name: String, to: FieldRef, value: u128) {
        let Traced { frame, headers, key, .. } = &mut *self.packet;
        set_field(frame, headers, key, to.field(), to.place(value), to.mask());
        if Changed::by(to.field()) == Changed::Ends {
            self.packet.tracked.forget_place();
        }
        if to.field() == Field::InPort {
            self.packet.source = Some(PortNo(self.packet.key.get(Field::InPort) as u32));
        }
        self.tell(name, format!("{to} is {value:#x}"), "");
    }

    fn output(&mut self, step: Option<Step>) {
        let Ok(ended) = run(step.as_slice(), 0, self, &mut Recorder);
        debug_assert!(matches!(ended, Outcome::Done), "an output does not drop");
    }

    fn group(&mut self, id: u32, position: &mut Position) {
        for (name, steps) in self.buckets(id) {
            self.copy(&name, &steps, position, true);
        }
    }

    /// Returns the buckets that a group chooses, with their names.
    fn buckets(&mut self, id: u32) -> Vec<(String, Steps)> {
        let groups = self.worker.lookup.pipeline.ruleset().groups();
        let name = format!("group:{id}");
        let Some(group) = groups.get(id) else {
            self.tell(name, "nothing happens", "there is no such group");
            return Vec::new();
        };
        let is_live = |port| self.worker.egress.is_live(port);
        let chosen = groups.chosen(&group.group, &self.packet.key, &is_live);
        let bucket =
            |at: usize| (format!("{name}, bucket {}", group.group.buckets[at].id), group.steps[at].clone());
        let buckets: Vec<_> = chosen.into_iter().map(bucket).collect();
        if buckets.is_empty() {
            self.tell(name.as_str(), "nothing happens", "no bucket is live");
        }
        buckets
    }

    /// Returns the steps of a copy behind which nothing follows, if the packet itself takes them.
    pub(super) fn take_last_copy(
        &mut self,
        step: &LaneStep,
        again: bool,
        position: &mut Position,
    ) -> Option<Steps> {
        let is_copy = matches!(step, LaneStep::Copy(_) | LaneStep::Group(_));
        if !is_copy || self.packet.copies > 0 || again && !self.parse_again() {
            return None;
        }
        match step {
            LaneStep::Copy(steps) => {
                self.tell("clone", GOES_ITSELF, "nothing follows");
                Some(steps.clone())
            }
            LaneStep::Group(group) => self.last_bucket(*group, position),
            _ => None,
        }
    }

    /// Takes copies to all buckets that a group chooses but the last, whose steps the packet itself takes.
    fn last_bucket(&mut self, id: u32, position: &mut Position) -> Option<Steps> {
        let mut buckets = self.buckets(id);
        let last = buckets.pop();
        for (name, steps) in buckets {
            self.copy(&name, &steps, position, true);
        }
        let (name, steps) = last.unwrap_or_default();
        if !name.is_empty() {
            self.tell(name, GOES_ITSELF, "nothing follows");
        }
        Some(steps)
    }

    /// Follows a copy of the packet along steps, to its end. Returns whether it has met an `exit` that is the packet's, too.
    pub(super) fn copy(&mut self, name: &str, steps: &Steps, outer: &mut Position, is_bucket: bool) -> bool {
        outer.called += 1;
        if self.packet.copies == COPIES_MAX || outer.called > CALLED_MAX {
            self.tell(name, "dropped", "too many copies are made");
            return false;
        }
        self.tell(name, "a copy of the packet", "");
        let mut frame = Frame::default();
        frame.copy_from(&self.packet.frame);
        let (headers, key) = (self.packet.headers, self.packet.key.clone());
        let (moved, source, values) = (self.packet.moved, self.packet.source, self.packet.values.clone());
        let (tracked, datagram, translated) =
            (self.packet.tracked, self.packet.datagram, self.packet.translated);
        self.packet.copies += 1;
        let calls = Return::for_copy(&outer.calls);
        let mut position =
            Position { calls, called: outer.called, leaves_set: is_bucket, ..Position::default() };
        follow_steps(self, Return::to(steps.clone(), 0, rounds(&self.packet.key)), &mut position);
        if position.table.is_some() {
            follow(self, &mut position);
        }
        self.packet.copies -= 1;
        (self.packet.frame, self.packet.headers, self.packet.key) = (frame, headers, key);
        (self.packet.moved, self.packet.source) = (moved, source);
        (self.packet.tracked, self.packet.datagram, self.packet.translated) = (tracked, datagram, translated);
        outer.called = position.called;
        self.tell(name, "the copy has ended", "");
        if is_bucket {
            Return::write(&mut outer.calls, None);
            if let Some(set) = position.left_set {
                Return::write(&mut outer.calls, Some(&set));
            }
            return false;
        }
        self.packet.values = values;
        position.exited
    }
}
