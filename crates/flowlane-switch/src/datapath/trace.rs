//! What would become of a packet, and why: every table, rule, function, change and port that it meets.
//!
//! Nothing is changed by it, nothing counted or learned. Packets are taken along the same steps as those that come from ports
//! and that no cache knows.

use flowlane::packet::fields::Field;
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::{Headers, Parser, parse};
use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::{print_actions, print_value};
use flowlane::rule::{Action, Match};
use serde::{Deserialize, Serialize};

use super::Worker;
use super::faults::MalformedPolicy;
use crate::datapath::Pipeline;
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{move_field, parse_again, set_field, take_along};
use crate::packet::{Frame, decapsulate};
use crate::ruleset::{Miss, Step};
use crate::stage::{Half, Owner, Rewritten, StageCall, StagePacket, StageTable};
use crate::state::fdb::NormalDecision;

/// What would become of a packet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    pub steps: Vec<TraceStep>,
    /// What would leave.
    pub sent: Vec<TraceSent>,
    /// The source port of what would leave is drawn when it does: that of the packet stands for it.
    pub port_is_open: bool,
}

/// Something that happens to a packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceStep {
    /// Where, or by what.
    pub place: String,
    /// What happens.
    pub what: String,
    /// Why, where that is to be told.
    pub why: String,
}

/// A packet that would leave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceSent {
    /// The port's number; none: the controller's.
    pub port: Option<u32>,
    pub port_name: String,
    /// In hexadecimal.
    pub frame: String,
}

/// Tables that a packet meets at most: as many as there are, and as often as it can be parsed anew.
const TABLES_MAX: usize = 512;

/// A packet that is followed on its way, from worker to worker.
#[derive(Debug)]
pub struct Traced {
    frame: Frame,
    headers: Headers,
    key: FlowKey,
    place: usize,
    port: PortNo,
    now_ns: u64,
    /// Tables that it has met.
    tables: usize,
    /// It is half through the function where it goes on.
    half: bool,
    trace: Trace,
}

impl Traced {
    fn seen(&self) -> StagePacket<'_> {
        StagePacket { frame: &self.frame, key: &self.key, headers: &self.headers, now_ns: self.now_ns }
    }

    fn call(&self, table: u8, half: Half) -> StageCall {
        StageCall { table, port: self.place, half }
    }
}

/// How far a trace has come.
#[derive(Debug)]
pub enum Tracing {
    /// To the packet's end.
    Ended(Trace),
    /// To a function whose state another worker has, as far as the packet is concerned: [`trace_on`](Worker::trace_on) there.
    On {
        /// Who it is.
        worker: usize,
        /// The packet.
        packet: Box<Traced>,
        /// The function's number.
        function: u8,
    },
}

impl Worker {
    /// What would become of a frame that came in through a port, and was received by this worker.
    ///
    /// # Errors
    /// The ports that there are, where this is none.
    pub fn trace(&self, port: PortNo, bytes: &[u8]) -> Result<Tracing, String> {
        let Some(place) = self.egress.ports.place(port) else {
            let there =
                self.egress.ports.slots().iter().map(|slot| format!("{} {}", slot.number.0, slot.name));
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
        let now_ns = self.now_ns();
        let trace = Trace::default();
        let packet =
            Box::new(Traced { frame, headers, key, place, port, now_ns, tables: 0, half: false, trace });
        let mut tracer = Tracer { worker: self, packet };
        let entry = tracer.come_in();
        Ok(tracer.run(entry))
    }

    /// Goes on with a trace: what would become of a packet that another worker had handed over to this one before this function.
    pub fn trace_on(&self, packet: Box<Traced>, function: u8) -> Tracing {
        let mut tracer = Tracer { worker: self, packet };
        let next = match tracer.packet.half {
            true => tracer.function(function),
            false => tracer.function_of_any(function),
        };
        tracer.run(next)
    }
}

struct Tracer<'a> {
    worker: &'a Worker,
    packet: Box<Traced>,
}

/// Where a packet goes on.
#[derive(Clone, Copy)]
enum Next {
    /// Nowhere: its way has ended.
    End,
    /// In this table.
    Table(u8),
    /// With another worker.
    Worker { to: usize, function: u8 },
}

/// A function, as traces name it.
fn named(function: &StageTable, number: u8) -> String {
    format!("{} {number} {}", function.stage.kind(), function.name).trim_end().to_owned()
}

/// Fields by which two keys of a packet differ: what they were and are.
fn difference(before: &FlowKey, after: &FlowKey) -> String {
    let has = |key: &FlowKey, field| edit::has(field, |asked, bits| key.get(asked) & bits);
    let mut changes = Vec::new();
    for field in Field::all().iter().map(|info| info.field) {
        let [old, new] = [before, after].map(|key| has(key, field).then(|| key.get(field)));
        if old == new || matches!(field, Field::RecircId | Field::Malformed) {
            continue;
        }
        let told = |value: Option<u128>| value.map_or_else(|| "none".to_owned(), |v| print_value(field, v));
        changes.push(format!("{} {} \u{2192} {}", field.info().name, told(old), told(new)));
    }
    match changes.is_empty() {
        true => "nothing changes".to_owned(),
        false => changes.join(", "),
    }
}

impl Tracer<'_> {
    fn tell(&mut self, place: impl Into<String>, what: impl Into<String>, why: impl Into<String>) {
        self.packet.trace.steps.push(TraceStep { place: place.into(), what: what.into(), why: why.into() });
    }

    /// Takes it from the port to the first table.
    fn come_in(&mut self) -> Next {
        let slot = &self.worker.egress.ports.slots()[self.packet.place];
        let name = format!("port {} {}", slot.number.0, slot.name);
        if slot.decapsulate {
            let before = self.packet.frame.len();
            match decapsulate(
                &Parser::new(),
                &mut self.packet.frame,
                self.packet.port.0,
                self.packet.headers,
                &mut self.packet.key,
                &[],
                0,
            ) {
                Ok(headers) => self.packet.headers = headers,
                Err(reason) => {
                    self.tell(name, "dropped", format!("tunnel packet refused: {}", reason.name()));
                    return Next::End;
                }
            }
            if self.packet.frame.len() != before {
                let why = "tunnels end at this port; whose packets it takes is not asked here";
                self.tell(name.as_str(), "the tunnel's headers are taken off", why);
            }
        }
        if !self.is_sound(&name) {
            return Next::End;
        }
        self.tell(name, format!("{} bytes", self.packet.frame.len()), self.flow());
        Next::Table(Pipeline::entry(&self.packet.key))
    }

    /// Takes it from table to table until its way has ended, or goes on with another worker.
    fn run(mut self, mut next: Next) -> Tracing {
        while let Next::Table(table) = next
            && self.packet.tables < TABLES_MAX
        {
            self.packet.tables += 1;
            next = self.enter(table);
        }
        if let Next::Worker { to: worker, function } = next {
            return Tracing::On { worker, packet: self.packet, function };
        }
        if self.packet.trace.sent.is_empty() {
            self.tell("end", "nothing is sent", "");
        }
        Tracing::Ended(self.packet.trace)
    }

    /// The packet as a match has it: fields that it has, but those that are zero.
    fn flow(&self) -> String {
        let mut out = Match::any();
        for field in Field::all().iter().map(|info| info.field) {
            let there = edit::has(field, |asked, bits| self.packet.key.get(asked) & bits);
            let value = self.packet.key.get(field);
            if there && value != 0 && !matches!(field, Field::RecircId | Field::Malformed) {
                out.set(field, value);
            }
        }
        out.to_string()
    }

    /// Whether it goes on though something may be malformed.
    fn is_sound(&mut self, place: &str) -> bool {
        let Some(reason) = self.packet.headers.malformed else { return true };
        let dropped = self.worker.egress.faults.policy == MalformedPolicy::Drop;
        let what = if dropped { "dropped" } else { "goes on as far as it could be parsed" };
        self.tell(place, what, format!("malformed: {}", reason.name()));
        !dropped
    }

    fn enter(&mut self, number: u8) -> Next {
        let pipeline = &self.worker.lookup.pipeline;
        if pipeline.stage(number).is_some() { self.function_of_any(number) } else { self.rules(number) }
    }

    fn rules(&mut self, number: u8) -> Next {
        let pipeline = &self.worker.lookup.pipeline;
        let Some(table) = pipeline.table(number) else {
            self.tell(format!("table {number}"), "dropped", "there is no such table");
            return Next::End;
        };
        let mut looked_at = FlowMask::zero();
        let hit = table.classifier().lookup_wildcards(&self.packet.key, &mut looked_at);
        let because = Match::from_key(&self.packet.key, &looked_at).to_string();
        let place = format!("table {number} {}", table.name);
        let why = match because.is_empty() {
            true => "whatever the packet".to_owned(),
            false => format!("since {because}"),
        };
        let ruleset = pipeline.ruleset().table(number).expect("it has been there");
        let steps = ruleset.steps(hit.map(|hit| hit.rule)).clone();
        match hit.and_then(|hit| ruleset.rule(hit.rule)) {
            Some(entry) => {
                let rule = &entry.rule;
                let matches = if rule.matches.to_string().is_empty() {
                    "(any)".to_owned()
                } else {
                    rule.matches.to_string()
                };
                let cookie =
                    if rule.cookie == 0 { String::new() } else { format!("cookie {:#x}, ", rule.cookie) };
                let what = format!(
                    "{cookie}priority {}, {matches} \u{2192} {}",
                    rule.priority,
                    print_actions(&rule.actions)
                );
                self.tell(place.trim_end(), what, why);
            }
            None => {
                let what = match table.miss {
                    Miss::Drop => "no rule: dropped",
                    Miss::Controller => "no rule: to the controller",
                    Miss::Continue => "no rule: on to the next table",
                };
                self.tell(place.trim_end(), what, why);
            }
        }
        self.follow(steps.steps())
    }

    /// A function, of which another worker may have the share that the packet is for.
    fn function_of_any(&mut self, number: u8) -> Next {
        let Some(function) = self.worker.lookup.pipeline.stage(number) else { return Next::End };
        let packet = self.packet.seen();
        let owner = function.decide_owner(packet);
        let place = named(function, number);
        let to = match owner {
            Owner::Worker(to) => to,
            Owner::SplitNat(to) => {
                let explained = function.dry_run(self.packet.call(number, Half::Source), packet);
                if explained.is_refused() {
                    self.tell(place, "dropped", explained.why);
                    return Next::End;
                }
                self.tell(place.as_str(), "its source is translated", explained.why);
                self.translate(explained.edits, explained.rewritten);
                self.packet.half = true;
                to
            }
            Owner::Any | Owner::Rejected => return self.function(number),
        };
        self.tell(place, format!("handed over to worker {to}"), "its state is there");
        Next::Worker { to, function: number }
    }

    /// A function that works on the packet here.
    fn function(&mut self, number: u8) -> Next {
        let Some(function) = self.worker.lookup.pipeline.stage(number) else { return Next::End };
        let half = std::mem::take(&mut self.packet.half);
        let half = if half { Half::Destination } else { Half::Both };
        let explained = function.dry_run(self.packet.call(number, half), self.packet.seen());
        let place = named(function, number);
        if explained.is_refused() {
            self.tell(place, "dropped", explained.why);
            return Next::End;
        }
        let what = function.describe(explained.verdict);
        let steps = function.steps(explained.verdict).clone();
        self.tell(place, what, explained.why);
        self.translate(explained.edits, explained.rewritten);
        self.follow(steps.steps())
    }

    /// What a function has changed.
    fn translate(&mut self, edits: Vec<String>, rewritten: Option<Rewritten>) {
        for edit in edits {
            self.tell("translation", edit, "");
        }
        if let Some(rewritten) = rewritten {
            (self.packet.frame, self.packet.key) = (rewritten.frame, rewritten.key);
            self.packet.trace.port_is_open |= rewritten.port_is_open;
        }
    }

    /// Takes the packet along steps.
    fn follow(&mut self, steps: &[Step]) -> Next {
        for step in steps {
            let action = match step {
                Step::Do(action) => action,
                Step::Matched { .. } => continue,
                Step::Parse => {
                    self.packet.headers = parse(self.packet.frame.bytes(), 0, &mut FlowKey::zero());
                    match self.is_sound("parsed again") {
                        true => continue,
                        false => return Next::End,
                    }
                }
                Step::Enter { table, carry } => {
                    take_along(carry, &mut self.packet.key);
                    return Next::Table(*table);
                }
                Step::Recirculate { table, carry } => {
                    parse_again(
                        &self.packet.frame,
                        self.packet.port.0,
                        *table,
                        carry,
                        &mut self.packet.headers,
                        &mut self.packet.key,
                    );
                    self.tell("parsed again", format!("on to table {table}"), "its headers have changed");
                    return match self.is_sound("parsed again") {
                        true => Next::Table(*table),
                        false => Next::End,
                    };
                }
            };
            if !self.act(action) {
                return Next::End;
            }
        }
        Next::End
    }

    /// Does what an action says to the packet. Says whether it goes on.
    fn act(&mut self, action: &Action) -> bool {
        let text = print_actions(std::slice::from_ref(action));
        match *action {
            Action::Output(to) if to == self.packet.port => {
                self.tell(text, "not sent", "it came in there: `in_port` sends it back")
            }
            Action::Output(to) => self.send(&text, to, ""),
            Action::InPort => self.send(&text, self.packet.port, ""),
            Action::Flood => self.flood(&text, ""),
            Action::Normal => self.normal(&text),
            Action::Controller { max_len } => self.send_to_controller(&text, max_len),
            Action::Sample { .. } => self.tell(text, "perhaps to the controller, too", "the dice say which"),
            Action::Count(_) => self.tell(text, "it is counted", ""),
            Action::Meter(number) => return self.meter(&text, number),
            Action::DecTtl | Action::DecMplsTtl => {
                let ttl = match action {
                    Action::DecTtl => edit::dec_ttl(&mut self.packet.frame, &self.packet.headers),
                    _ => edit::dec_mpls_ttl(&mut self.packet.frame, &self.packet.headers),
                };
                if ttl == Ttl::Expired {
                    self.send_to_controller(&text, u16::MAX);
                    self.tell(text, "dropped", "its TTL has expired");
                    return false;
                }
                self.tell(text, "one less", "");
            }
            _ => return self.edit(&text, action),
        }
        true
    }

    /// An action that changes the packet.
    fn edit(&mut self, text: &str, action: &Action) -> bool {
        let parsed = |frame: &Frame| {
            let mut key = FlowKey::zero();
            parse(frame.bytes(), 0, &mut key);
            key
        };
        let (before, outside) = (parsed(&self.packet.frame), self.packet.key.clone());
        let (frame, headers, key) = (&mut self.packet.frame, &mut self.packet.headers, &mut self.packet.key);
        match *action {
            Action::SetField { field, value, mask } => set_field(frame, headers, key, field, value, mask),
            Action::Move { from, to } => move_field(frame, headers, key, from, to),
            Action::PushVlan(tpid) => _ = edit::push_vlan(frame, headers, tpid),
            Action::PopVlan => _ = edit::pop_vlan(frame, headers),
            Action::PushMpls(eth_type) => _ = edit::push_mpls(frame, headers, eth_type),
            Action::PopMpls(eth_type) => _ = edit::pop_mpls(frame, headers, eth_type),
            Action::Encapsulate(tunnel) => {
                let wrapped = self
                    .worker
                    .egress
                    .tunnels
                    .as_ref()
                    .map(|tunnels| tunnels.wrap(tunnel, frame, headers, key));
                if !matches!(wrapped, Some(Ok(_))) {
                    self.tell(text, "dropped", "the tunnel does not carry it, or it is too long for it");
                    return false;
                }
            }
            _ => {}
        }
        let after = parsed(&self.packet.frame);
        let change = match before == after {
            true => difference(&outside, &self.packet.key),
            false => difference(&before, &after),
        };
        self.tell(text, change, "");
        true
    }

    fn meter(&mut self, text: &str, number: u32) -> bool {
        let meter = self.worker.egress.meters.get(&number);
        let passes = meter.is_none_or(|meter| meter.decide(self.packet.frame.len(), self.packet.now_ns));
        match passes {
            true => self.tell(text, "it passes", "the meter has tokens left at present"),
            false => self.tell(text, "dropped", "the meter's rate is exceeded at present"),
        }
        passes
    }

    fn normal(&mut self, text: &str) {
        let now_s = (self.packet.now_ns / 1_000_000_000) as u32;
        match self.worker.egress.macs.decide(self.packet.frame.bytes(), self.packet.port, now_s) {
            NormalDecision::To(to) if to == self.packet.port => {
                self.tell(
                    text,
                    "not sent",
                    "its destination was learned at the port that it came in through",
                );
            }
            NormalDecision::To(to) => self.send(text, to, "its destination was learned there"),
            NormalDecision::Flood => self.flood(text, "its destination is a group, or is not known"),
            NormalDecision::Drop => self.tell(text, "dropped", "its destination is reserved for the link"),
        }
    }

    fn flood(&mut self, text: &str, why: &str) {
        let slots = self.worker.egress.ports.slots();
        let others = slots.iter().filter(|slot| slot.number != self.packet.port && slot.port.sends());
        let others: Vec<PortNo> = others.map(|slot| slot.number).collect();
        others.into_iter().for_each(|to| self.send(text, to, why));
    }

    fn send(&mut self, text: &str, to: PortNo, why: &str) {
        let Some(place) = self.worker.egress.ports.place(to) else {
            return self.tell(text, "not sent", "there is no such port");
        };
        let name = self.worker.egress.ports.slots()[place].name.clone();
        self.tell(text, format!("sent through port {} {name}", to.0), why);
        let frame = hex(self.packet.frame.bytes());
        self.packet.trace.sent.push(TraceSent { port: Some(to.0), port_name: name, frame });
    }

    fn send_to_controller(&mut self, text: &str, max_len: u16) {
        if self.worker.egress.controller.is_none() {
            return self.tell(text, "not sent", "there is no controller port");
        }
        self.tell(text, "to the controller", "");
        let bytes = self.packet.frame.bytes();
        let whole = max_len == u16::MAX || bytes.len() <= usize::from(max_len);
        let frame = hex(if whole { bytes } else { &bytes[..max_len.into()] });
        self.packet.trace.sent.push(TraceSent { port: None, port_name: "controller".to_owned(), frame });
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
