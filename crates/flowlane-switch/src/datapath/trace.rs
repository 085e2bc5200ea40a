//! Tracing: a dry run of a packet, with every table, rule, stage, change and port that it meets.
//!
//! The packet is [followed](super::walk::follow) like any other, on a copy of its frame; side effects are recorded as text in place
//! of being performed ([`Recorder`]). Nothing is sent, counted or learned. Packets are traced as packets that no cache knows.

mod begin;
mod lane_steps;
mod mirroring;
mod recorder;
mod router;
mod sending;
mod track;

use recorder::Recorder;

use flowlane::packet::FieldRef;
use flowlane::packet::fields::Field;
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::{Headers, Parser, parse};
use flowlane::rule::action::{Controller, PortNo, SetForm};
use flowlane::rule::flow_syntax::{print_actions, print_key, print_value};
use flowlane::rule::{Action, Match};
use serde::{Deserialize, Serialize};

use std::collections::VecDeque;
use std::convert::Infallible;

use super::apply::PacketEdit;
use super::egress::{Changed, Packet};
use super::faults::MalformedPolicy;
use super::walk::{AfterStep, Entered, Follow, Outcome, Position, run};
use super::worker::Worker;
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{entry, keep_ends, parse_again, rounds, set_rounds, take_along};
use crate::packet::{Frame, Shown, decapsulate};
use crate::ruleset::{LaneStep, Miss, PortFlags, Return, Step, Steps};
use crate::stage::{Owner, Rewritten, StageCall, StagePacket, StageTable};
use crate::state::conntrack::{Seen, Tracked, Tuple};
use crate::state::mirror::MirrorSet;
use crate::tunnel::Tunnels;

/// The dry run of a packet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    pub steps: Vec<TraceStep>,
    /// The packets that would leave.
    pub sent: Vec<TraceSent>,
    /// The source port of a packet that leaves is drawn then: the trace shows the one that it came with.
    pub port_is_open: bool,
}

/// Something that happens to a packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceStep {
    /// Where, or by what.
    pub place: String,
    /// The event.
    pub what: String,
    /// The reason; may be empty.
    pub why: String,
    /// The rule that has won in a table of rules, or that none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visit: Option<TraceVisit>,
}

/// A packet's visit to a table of rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceVisit {
    pub table: u8,
    /// None: no rule matches.
    pub rule: Option<TraceRule>,
}

/// A rule that has won.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceRule {
    pub priority: u32,
    pub cookie: u64,
    /// In the syntax of rule files, as the actions.
    pub matches: String,
    pub actions: Vec<String>,
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

/// Maximum number of tables that a traced packet enters.
const TABLES_MAX: usize = 4096;

/// A packet that is traced, from worker to worker.
#[derive(Debug)]
pub struct Traced {
    frame: Frame,
    headers: Headers,
    key: FlowKey,
    place: usize,
    port: PortNo,
    now_ns: u64,
    /// Tables that it has entered.
    tables: usize,
    /// Headers may not be where `headers` has them.
    moved: bool,
    /// A `ct` has translated it: its headers have other ends than its key.
    translated: bool,
    /// The port that an action says it came in through.
    source: Option<PortNo>,
    /// Values that actions have pushed.
    values: Vec<u128>,
    /// The packet's connection.
    tracked: Tracked,
    /// The datagram that it is a fragment of, once all of that would have come; in it, none if that is invalid.
    datagram: Option<Option<Seen>>,
    /// States that the next `ct` actions find, instead of those of connections.
    ct_next: VecDeque<u32>,
    /// Copies that are open, one within the other.
    copies: usize,
    /// The mirrors that would have a copy of it.
    mirrored: MirrorSet,
    /// The table that comes next, and the open calls.
    position: Position,
    trace: Trace,
}

impl Traced {
    fn seen(&self) -> StagePacket<'_> {
        StagePacket { frame: &self.frame, key: &self.key, headers: &self.headers, now_ns: self.now_ns }
    }

    /// Returns the port that it came in through, or that an action says it did.
    fn source(&self) -> PortNo {
        self.source.unwrap_or(self.port)
    }

    fn call(&self, table: u8) -> StageCall {
        StageCall { table, port: self.place, datagram: self.datagram }
    }
}

impl Trace {
    fn note(&mut self, place: impl Into<String>, what: impl Into<String>, why: impl Into<String>) {
        self.steps.push(TraceStep { place: place.into(), what: what.into(), why: why.into(), visit: None });
    }
}

/// The state of a trace.
#[derive(Debug)]
pub enum Tracing {
    /// Complete: the packet has ended.
    Ended(Trace),
    /// At a stage where another worker owns the packet's state: continue there with [`trace_on`](Worker::trace_on).
    On {
        /// That worker's number.
        worker: usize,
        /// The packet.
        packet: Box<Traced>,
        /// The stage's number.
        stage: u8,
    },
}

/// Follows a packet's copy, and notes what happens to it.
struct Tracer<'a> {
    worker: &'a Worker,
    packet: &'a mut Traced,
    /// The worker that goes on with the packet, and the stage.
    elsewhere: Option<(usize, u8)>,
}

/// A stateful stage, as traces name it.
fn named(stage: &StageTable, number: u8) -> String {
    format!("{} {number} {}", stage.stage.kind(), stage.name).trim_end().to_owned()
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
        self.packet.trace.note(place, what, why);
    }

    /// Takes it from the port to the first table.
    fn come_in(&mut self) -> Option<u8> {
        let slot = &self.worker.egress.ports.slots()[self.packet.place];
        let name = format!("port {} {}", slot.number.0, slot.name);
        if slot.flags.refuses(self.packet.frame.bytes()) {
            self.tell(name, "dropped", "the port's settings refuse it");
            return None;
        }
        if slot.flags.has_any(PortFlags::DISCARDS) {
            self.tell(name, "dropped", "its spanning tree lets it receive control packets only");
            return None;
        }
        if slot.decapsulate && slot.tunnel.is_none() {
            let before = self.packet.frame.len();
            let (tunnels, headers) = (self.worker.egress.tunnels.as_ref(), &self.packet.headers);
            let termination = Tunnels::termination(tunnels, self.packet.frame.bytes(), headers);
            match decapsulate(
                &Parser::new(),
                &mut self.packet.frame,
                self.packet.port.0,
                self.packet.headers,
                &mut self.packet.key,
                termination,
                0,
            ) {
                Ok(headers) => self.packet.headers = headers,
                Err(reason) => {
                    self.tell(name, "dropped", format!("tunnel packet refused: {}", reason.name()));
                    return None;
                }
            }
            if self.packet.frame.len() != before {
                let why = "tunnels end at this port; whose packets it takes is not asked here";
                self.tell(name.as_str(), "the tunnel's headers are taken off", why);
            }
        }
        if !self.is_sound(&name) {
            return None;
        }
        self.tell(name, format!("{} bytes", self.packet.frame.len()), self.flow());
        self.mirror_received();
        Some(entry(&self.packet.key))
    }

    /// Returns the packet's non-zero fields as a match.
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

    /// Traces a malformed packet. Returns whether it continues.
    fn is_sound(&mut self, place: &str) -> bool {
        let Some(reason) = self.packet.headers.malformed else { return true };
        let dropped = self.worker.egress.faults.policy == MalformedPolicy::Drop;
        let what = if dropped { "dropped" } else { "goes on as far as it could be parsed" };
        self.tell(place, what, format!("malformed: {}", reason.name()));
        !dropped
    }

    fn rules(&mut self, number: u8) -> Entered {
        let pipeline = &self.worker.lookup.pipeline;
        let Some(table) = pipeline.table(number) else {
            self.tell(format!("table {number}"), "nothing is found", "there is no such table");
            return Entered::Nothing;
        };
        let mut looked_at = FlowMask::zero();
        let hit = table.lookup_wildcards(&self.packet.key, &mut looked_at);
        let because = print_key(&self.packet.key, &looked_at);
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
                let actions = rule.actions.iter().map(|action| print_actions(std::slice::from_ref(action)));
                self.visit(
                    number,
                    Some(TraceRule {
                        priority: rule.priority.0,
                        cookie: rule.cookie,
                        matches: rule.matches.to_string(),
                        actions: actions.collect(),
                    }),
                );
            }
            None => {
                let what = match table.miss {
                    Miss::Drop => "no rule: dropped",
                    Miss::Controller => "no rule: to the controller",
                    Miss::Continue => "no rule: on to the next table",
                };
                self.tell(place.trim_end(), what, why);
                self.visit(number, None);
            }
        }
        Entered::Steps(steps)
    }

    /// Notes that the latest step is a visit to a table of rules.
    fn visit(&mut self, table: u8, rule: Option<TraceRule>) {
        if let Some(step) = self.packet.trace.steps.last_mut() {
            step.visit = Some(TraceVisit { table, rule });
        }
    }

    /// A stage, of which another worker may have the shard that the packet is for.
    fn stage_of_any(&mut self, number: u8) -> Entered {
        let Some(stage) = self.worker.lookup.pipeline.stage(number) else { return Entered::End };
        let packet = self.packet.seen();
        let owner = stage.decide_owner(packet);
        let place = named(stage, number);
        let Owner::Worker(to) = owner else { return self.stage(number) };
        self.tell(place, format!("handed over to worker {to}"), "its state is there");
        self.elsewhere = Some((to, number));
        Entered::Pause
    }

    /// A stage that processes the packet here.
    fn stage(&mut self, number: u8) -> Entered {
        let Some(stage) = self.worker.lookup.pipeline.stage(number) else { return Entered::End };
        let place = named(stage, number);
        if stage.as_nat().is_some_and(|nat| self.waits_at_translation(nat.fragments())) {
            self.tell(place, "it waits", "other fragments of its datagram have not come");
            return Entered::End;
        }
        let explained = stage.dry_run(self.packet.call(number), self.packet.seen());
        if explained.is_refused() {
            self.tell(place, "dropped", explained.why);
            return Entered::End;
        }
        let what = stage.describe(explained.verdict);
        let steps = stage.steps(explained.verdict).clone();
        self.tell(place, what, explained.why);
        self.translate(explained.edits, explained.rewritten);
        Entered::Steps(steps)
    }

    /// The packet as a stage has rewritten it.
    fn translate(&mut self, edits: Vec<String>, rewritten: Option<Rewritten>) {
        for edit in edits {
            self.tell("translation", edit, "");
        }
        if let Some(rewritten) = rewritten {
            (self.packet.frame, self.packet.key) = (rewritten.frame, rewritten.key);
            if let Some(Some(seen)) = &mut self.packet.datagram {
                seen.tuple = Tuple { zone: seen.tuple.zone, ..rewritten.tuple };
            }
            self.packet.trace.port_is_open |= rewritten.port_is_open;
        }
    }

    /// Edits the packet, and notes what has changed.
    fn edit<T>(&mut self, action: &Action, edit: impl FnOnce(&mut Packet<'_>) -> T) -> T {
        let parsed = |frame: &Frame| {
            let mut key = FlowKey::zero();
            parse(frame.bytes(), 0, &mut key);
            key
        };
        let (before, outside) = (parsed(&self.packet.frame), self.packet.key.clone());
        let Traced { frame, headers, key, place, now_ns, moved, source, translated, .. } = &mut *self.packet;
        let (port, now_ns, sent) = (*place, *now_ns, false);
        let mut packet = Packet {
            frame,
            headers,
            key,
            port,
            now_ns,
            sent,
            moved: *moved,
            source: *source,
            translated: *translated,
            changed: Changed::Nothing,
        };
        let result = edit(&mut packet);
        (*moved, *source, *translated) = (packet.moved, packet.source, packet.translated);
        if packet.changed == Changed::Ends {
            self.packet.tracked.forget_place();
        }
        let after = parsed(&self.packet.frame);
        let change = match before == after {
            true => difference(&outside, &self.packet.key),
            false => difference(&before, &after),
        };
        self.tell(text(action), change, "");
        result
    }

    /// Puts a header around the packet or takes one off, and notes that. Returns whether the packet's type allows it.
    fn change_type(
        &mut self,
        action: &Action,
        change: impl FnOnce(&mut Frame, &mut Headers) -> bool,
    ) -> bool {
        (self.packet.moved, self.packet.translated) = (true, false);
        let is_done = change(&mut self.packet.frame, &mut self.packet.headers);
        let (what, why) = match (is_done, self.packet.frame.is_bare()) {
            (false, _) => ("dropped", "the packet's type does not allow it"),
            (true, true) => ("the packet's type changes", "it has no Ethernet header now"),
            (true, false) => ("the packet's type changes", "it is an Ethernet frame now"),
        };
        self.tell(text(action), what, why);
        is_done
    }

    /// Decrements a TTL, and notes that.
    fn decrement(&mut self, action: &Action, edit: impl FnOnce(&mut Packet<'_>) -> Ttl) -> Ttl {
        let Traced { frame, headers, key, place, now_ns, .. } = &mut *self.packet;
        let ttl = edit(&mut Packet {
            frame,
            headers,
            key,
            port: *place,
            now_ns: *now_ns,
            sent: false,
            moved: false,
            source: None,
            translated: false,
            changed: Changed::Nothing,
        });
        if ttl == Ttl::Expired {
            self.send_to_controller(&text(action), &Controller::default());
            self.tell(text(action), "dropped", "its TTL has expired");
        } else {
            self.tell(text(action), "one less", "");
        }
        ttl
    }
}

/// An action, as rules spell it.
fn text(action: &Action) -> String {
    print_actions(std::slice::from_ref(action))
}

impl Follow for Tracer<'_> {
    fn enter(&mut self, table: u8, shown: Shown, _: &[Return]) -> Entered {
        self.packet.tables += 1;
        if self.packet.tables > TABLES_MAX {
            self.tell(format!("table {table}"), "the trace ends", "the packet has met too many tables");
            return Entered::End;
        }
        if !shown.comes(|field| self.packet.key.get(field)) {
            self.tell(
                format!("table {table}"),
                "not looked up",
                "`ct` shows it a connection, which the packet has not",
            );
            return Entered::Nothing;
        }
        if self.worker.lookup.pipeline.is_post_cache(table) && !self.follow_translation() {
            return Entered::End;
        }
        if self.worker.lookup.pipeline.stage(table).is_some() {
            return self.stage_of_any(table);
        }
        let own = shown.show(&mut self.packet.key);
        let entered = self.rules(table);
        own.restore(&mut self.packet.key);
        entered
    }

    fn lane_step(
        &mut self,
        step: &LaneStep,
        again: bool,
        here: &Return,
        position: &mut Position,
    ) -> AfterStep {
        self.take(step, again, here, position)
    }

    fn run<'a>(&mut self, steps: &'a [Step], from: usize, _: &[Return]) -> Result<Outcome<'a>, Infallible> {
        run(steps, from, self, &mut Recorder)
    }

    fn pass(&mut self, table: u8, carry: &[(u8, u32, u32)], again: bool, _: &[Return]) -> bool {
        let Traced { frame, headers, key, port, translated, .. } = &mut *self.packet;
        if !again {
            take_along(carry, key);
            return true;
        }
        let before = translated.then(|| key.clone());
        parse_again(frame, port.0, table, carry, headers, key);
        if let Some(before) = before {
            keep_ends(&before, key);
        }
        self.packet.moved = false;
        self.tell("parsed again", format!("on to table {table}"), "its headers have changed");
        self.is_sound("parsed again")
    }

    fn last_copy(&mut self, step: &LaneStep, again: bool, position: &mut Position) -> Option<Steps> {
        self.take_last_copy(step, again, position)
    }

    fn expired(&mut self, _: &Return, _: &[Return]) -> bool {
        true
    }

    fn stop(&mut self) {}

    fn rounds(&self) -> u8 {
        rounds(&self.packet.key)
    }

    fn set_rounds(&mut self, rounds: u8) {
        set_rounds(&mut self.packet.key, rounds);
    }

    fn refuse_call(&mut self, table: u8) {
        self.tell(format!("call of table {table}"), "dropped", "the packet has called too many");
    }
}

impl PacketEdit for Tracer<'_> {
    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        let action = Action::set_field(field, value, mask);
        self.edit(&action, |packet| packet.set_field(field, value, mask));
    }

    fn set_field_of(&mut self, protocol: u8, field: Field, value: u128, mask: u128) {
        let action =
            Action::SetField { field, value, mask, form: SetForm::SetField, protocol: Some(protocol) };
        self.edit(&action, |packet| packet.set_field_of(protocol, field, value, mask));
    }

    fn take_along(&mut self, carry: &[(u8, u32, u32)]) {
        take_along(carry, &mut self.packet.key);
    }

    fn move_field(&mut self, from: FieldRef, to: FieldRef) {
        self.edit(&Action::Move { from, to }, |packet| packet.move_field(from, to));
    }

    fn push_vlan(&mut self, tpid: u16) {
        self.edit(&Action::PushVlan(tpid), |packet| packet.push_vlan(tpid));
    }

    fn pop_vlan(&mut self) {
        self.edit(&Action::PopVlan, |packet| packet.pop_vlan());
    }

    fn push_mpls(&mut self, eth_type: u16) {
        self.edit(&Action::PushMpls(eth_type), |packet| packet.push_mpls(eth_type));
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        self.edit(&Action::PopMpls(eth_type), |packet| packet.pop_mpls(eth_type));
    }

    fn dec_ttl(&mut self) -> Ttl {
        self.decrement(&Action::dec_ttl(), |packet| packet.dec_ttl())
    }

    fn dec_mpls_ttl(&mut self) -> Ttl {
        self.decrement(&Action::DecMplsTtl, |packet| packet.dec_mpls_ttl())
    }

    fn dec_nsh_ttl(&mut self) -> Ttl {
        self.decrement(&Action::DecNshTtl, |packet| packet.dec_nsh_ttl())
    }

    fn set_queue(&mut self, queue: Option<u32>) {
        let action = queue.map_or(Action::PopQueue, Action::SetQueue);
        self.tell(text(&action), "ports send it through that queue, if they have it", "");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
