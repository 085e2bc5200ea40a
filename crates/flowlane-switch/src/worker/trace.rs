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
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{move_field, parse_again, set_field, take_along};
use crate::packet::{Frame, decapsulate};
use crate::pipeline::Pipeline;
use crate::program::{Miss, Step};
use crate::state::mac_table::NormalDecision;

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

impl Worker {
    /// What would become of a frame that came in through a port.
    ///
    /// # Errors
    /// The ports that there are, where this is none.
    pub fn trace(&self, port: PortNo, bytes: &[u8]) -> Result<Trace, String> {
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
        let mut tracer =
            Tracer { worker: self, frame, headers, key, place, port, now_ns, trace: Trace::default() };
        tracer.run();
        Ok(tracer.trace)
    }
}

struct Tracer<'a> {
    worker: &'a Worker,
    frame: Frame,
    headers: Headers,
    key: FlowKey,
    place: usize,
    port: PortNo,
    now_ns: u64,
    trace: Trace,
}

/// Where a packet goes on: none where its way has ended.
type Next = Option<u8>;

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
        self.trace.steps.push(TraceStep { place: place.into(), what: what.into(), why: why.into() });
    }

    fn run(&mut self) {
        let slot = &self.worker.egress.ports.slots()[self.place];
        let name = format!("port {} {}", slot.number.0, slot.name);
        if slot.decapsulate {
            let before = self.frame.len();
            match decapsulate(&Parser::new(), &mut self.frame, self.port.0, self.headers, &mut self.key, &[])
            {
                Ok(headers) => self.headers = headers,
                Err(reason) => {
                    return self.tell(name, "dropped", format!("tunnel packet refused: {}", reason.name()));
                }
            }
            if self.frame.len() != before {
                let why = "tunnels end at this port; whose packets it takes is not asked here";
                self.tell(name.as_str(), "the tunnel's headers are taken off", why);
            }
        }
        if !self.is_sound(&name) {
            return;
        }
        self.tell(name, format!("{} bytes", self.frame.len()), self.flow());
        let mut next = Some(Pipeline::entry(&self.key));
        for _ in 0..TABLES_MAX {
            let Some(table) = next else { break };
            next = self.enter(table);
        }
        if self.trace.sent.is_empty() {
            self.tell("end", "nothing is sent", "");
        }
    }

    /// The packet as a match has it: fields that it has, but those that are zero.
    fn flow(&self) -> String {
        let mut out = Match::any();
        for field in Field::all().iter().map(|info| info.field) {
            let there = edit::has(field, |asked, bits| self.key.get(asked) & bits);
            let value = self.key.get(field);
            if there && value != 0 && !matches!(field, Field::RecircId | Field::Malformed) {
                out.set(field, value);
            }
        }
        out.to_string()
    }

    /// Whether it goes on though something may be malformed.
    fn is_sound(&mut self, place: &str) -> bool {
        let Some(reason) = self.headers.malformed else { return true };
        let dropped = self.worker.egress.faults.policy == MalformedPolicy::Drop;
        let what = if dropped { "dropped" } else { "goes on as far as it could be parsed" };
        self.tell(place, what, format!("malformed: {}", reason.name()));
        !dropped
    }

    fn enter(&mut self, number: u8) -> Next {
        let pipeline = &self.worker.lookup.pipeline;
        if pipeline.routes(number).is_some() {
            self.route(number)
        } else if pipeline.function(number).is_some() {
            self.function(number)
        } else {
            self.rules(number)
        }
    }

    fn rules(&mut self, number: u8) -> Next {
        let pipeline = &self.worker.lookup.pipeline;
        let Some(table) = pipeline.table(number) else {
            self.tell(format!("table {number}"), "dropped", "there is no such table");
            return None;
        };
        let mut looked_at = FlowMask::zero();
        let hit = table.classifier().lookup_wildcards(&self.key, &mut looked_at);
        let because = Match::from_key(&self.key, &looked_at).to_string();
        let place = format!("table {number} {}", table.name);
        let why = match because.is_empty() {
            true => "whatever the packet".to_owned(),
            false => format!("since {because}"),
        };
        let steps =
            self.worker.lookup.pipeline.program().table(number)?.steps(hit.map(|hit| hit.rule)).clone();
        match hit.and_then(|hit| pipeline.program().table(number)?.rule(hit.rule)) {
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

    fn route(&mut self, number: u8) -> Next {
        let routes = self.worker.lookup.pipeline.routes(number)?;
        let (hop, why) = routes.explain(&self.key);
        let what = match routes.next_hops().get((hop as usize).wrapping_sub(1)) {
            Some(hop) => format!("next hop {}", hop.name),
            None if routes.miss_to_controller => "no route: to the controller".to_owned(),
            None => "no route: dropped".to_owned(),
        };
        let steps = routes.steps(hop).clone();
        self.tell(format!("routes {number} {}", routes.name).trim_end(), what, why);
        self.follow(steps.steps())
    }

    fn function(&mut self, number: u8) -> Next {
        let function = self.worker.lookup.pipeline.function(number)?;
        let explained = function.explain(&self.frame, &self.key, &self.headers, self.now_ns);
        let place = format!("{} {number} {}", function.kind.name(), function.name);
        if explained.is_refused() {
            self.tell(place.trim_end(), "dropped", explained.why);
            return None;
        }
        let verdict = &function.verdicts()[usize::from(explained.verdict)];
        let what = format!("verdict {} \u{2192} {}", verdict.name, print_actions(&verdict.actions));
        let steps = function.steps(explained.verdict).clone();
        self.tell(place.trim_end(), what, explained.why);
        for edit in explained.edits {
            self.tell("translation", edit, "");
        }
        if let Some(translated) = explained.translated {
            (self.frame, self.key) = (translated.frame, translated.key);
            self.trace.port_is_open |= translated.port_is_open;
        }
        self.follow(steps.steps())
    }

    /// Takes the packet along steps.
    fn follow(&mut self, steps: &[Step]) -> Next {
        for step in steps {
            let action = match step {
                Step::Do(action) => action,
                Step::Matched { .. } => continue,
                Step::Parse => {
                    self.headers = parse(self.frame.bytes(), 0, &mut FlowKey::zero());
                    match self.is_sound("parsed again") {
                        true => continue,
                        false => return None,
                    }
                }
                Step::Enter { table, carry } => {
                    take_along(carry, &mut self.key);
                    return Some(*table);
                }
                Step::Recirculate { table, carry } => {
                    parse_again(&self.frame, self.port.0, *table, carry, &mut self.headers, &mut self.key);
                    self.tell("parsed again", format!("on to table {table}"), "its headers have changed");
                    return self.is_sound("parsed again").then_some(*table);
                }
            };
            if !self.act(action) {
                return None;
            }
        }
        None
    }

    /// Does what an action says to the packet. Says whether it goes on.
    fn act(&mut self, action: &Action) -> bool {
        let text = print_actions(std::slice::from_ref(action));
        match *action {
            Action::Output(to) if to == self.port => {
                self.tell(text, "not sent", "it came in there: `in_port` sends it back")
            }
            Action::Output(to) => self.send(&text, to, ""),
            Action::InPort => self.send(&text, self.port, ""),
            Action::Flood => self.flood(&text, ""),
            Action::Normal => self.normal(&text),
            Action::Controller { max_len } => self.send_to_controller(&text, max_len),
            Action::Sample { .. } => self.tell(text, "perhaps to the controller, too", "the dice say which"),
            Action::Count(_) => self.tell(text, "it is counted", ""),
            Action::Meter(number) => return self.meter(&text, number),
            Action::DecTtl | Action::DecMplsTtl => {
                let ttl = match action {
                    Action::DecTtl => edit::dec_ttl(&mut self.frame, &self.headers),
                    _ => edit::dec_mpls_ttl(&mut self.frame, &self.headers),
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
        let (before, outside) = (parsed(&self.frame), self.key.clone());
        let (frame, headers, key) = (&mut self.frame, &mut self.headers, &mut self.key);
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
        let after = parsed(&self.frame);
        let change = match before == after {
            true => difference(&outside, &self.key),
            false => difference(&before, &after),
        };
        self.tell(text, change, "");
        true
    }

    fn meter(&mut self, text: &str, number: u32) -> bool {
        let meter = self.worker.egress.meters.get(&number);
        let passes = meter.is_none_or(|meter| meter.would_allow(self.frame.len(), self.now_ns));
        match passes {
            true => self.tell(text, "it passes", "the meter has tokens left at present"),
            false => self.tell(text, "dropped", "the meter's rate is exceeded at present"),
        }
        passes
    }

    fn normal(&mut self, text: &str) {
        let now_s = (self.now_ns / 1_000_000_000) as u32;
        match self.worker.egress.macs.would_switch(self.frame.bytes(), self.port, now_s) {
            NormalDecision::To(to) if to == self.port => {
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
        let others = slots.iter().filter(|slot| slot.number != self.port && slot.port.sends());
        let others: Vec<PortNo> = others.map(|slot| slot.number).collect();
        others.into_iter().for_each(|to| self.send(text, to, why));
    }

    fn send(&mut self, text: &str, to: PortNo, why: &str) {
        let Some(place) = self.worker.egress.ports.place(to) else {
            return self.tell(text, "not sent", "there is no such port");
        };
        let name = self.worker.egress.ports.slots()[place].name.clone();
        self.tell(text, format!("sent through port {} {name}", to.0), why);
        let frame = hex(self.frame.bytes());
        self.trace.sent.push(TraceSent { port: Some(to.0), port_name: name, frame });
    }

    fn send_to_controller(&mut self, text: &str, max_len: u16) {
        if self.worker.egress.controller.is_none() {
            return self.tell(text, "not sent", "there is no controller port");
        }
        self.tell(text, "to the controller", "");
        let bytes = self.frame.bytes();
        let whole = max_len == u16::MAX || bytes.len() <= usize::from(max_len);
        let frame = hex(if whole { bytes } else { &bytes[..max_len.into()] });
        self.trace.sent.push(TraceSent { port: None, port_name: "controller".to_owned(), frame });
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
