//! Monitors of flows: controllers learn of changes of rules (nicira-ext `NXST_FLOW_MONITOR`, OpenFlow 1.4.1, 7.3.5.17).
//!
//! A request takes its place among the changes that wait for the agent: the first reply has the rules at that place, and later
//! changes follow. A controller that does not read is paused: the last state of each rule that changes waits instead of all changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use flowlane::rule::{Command, FlowMod, Match, Priority, Rule};
use flowlane_openflow::message::{Message, MultipartReply, Reply};
use flowlane_openflow::stats::{FlowEvent, FlowMonitorRequest, FlowUpdate};
use flowlane_openflow::{ErrorCode, Version};

use super::session::{Session, State};
use super::{Shared, events, lists};
use crate::control::{FAIL_OPEN, Requester, RuleEvent, RuleEventKind};
use crate::ruleset::{Entry, Ruleset};

/// Monitors of a connection.
const MONITORS_MAX: usize = 256;
/// Requests of a connection whose place among the changes is not reached: each holds the rules of its place.
const REQUESTED_MAX: usize = 16;
/// Bytes that wait for a controller before its monitors are paused, as in Open vSwitch.
pub(super) const PAUSE_BYTES: usize = 128 << 10;
/// Rules that change while monitors are paused; with more, the connection ends.
const PAUSED_MAX: usize = 1 << 16;

/// Bits of a monitor's flags.
mod flag {
    pub(super) const INITIAL: u16 = 1;
    pub(super) const ADD: u16 = 1 << 1;
    pub(super) const REMOVED: u16 = 1 << 2;
    pub(super) const MODIFY: u16 = 1 << 3;
    pub(super) const INSTRUCTIONS: u16 = 1 << 4;
    /// Own changes are reported in full: `OFPFMF_NO_ABBREV`, or `OFPFMF_ONLY_OWN`, which Open vSwitch 3.1 takes for it and
    /// `ovs-ofctl` sends.
    pub(super) const OWN_IN_FULL: u16 = 1 << 5 | 1 << 6;
    pub(super) const CHANGES: u16 = ADD | REMOVED | MODIFY;
}

/// The commands that add and remove a monitor (`OFPFMC_ADD`, `OFPFMC_DELETE`).
const ADD: u8 = 0;
const DELETE: u8 = 2;

/// A monitor, and the rules that it selects.
#[derive(Debug)]
struct Monitor {
    flags: u16,
    select: FlowMod,
}

impl Monitor {
    fn new(request: &FlowMonitorRequest) -> Self {
        let select = FlowMod {
            table: request.table,
            out_port: request.out_port,
            out_group: request.out_group,
            ..FlowMod::new(Command::Delete, Rule::new(request.matches.clone(), Vec::new()))
        };
        Self { flags: request.flags, select }
    }

    fn selects(&self, rule: &Rule) -> bool {
        rule.priority != FAIL_OPEN && self.select.selects(rule.table, rule)
    }

    fn wants(&self, event: &RuleEvent) -> bool {
        let bit = match event.kind {
            RuleEventKind::Added => flag::ADD,
            RuleEventKind::Modified => flag::MODIFY,
            RuleEventKind::Removed(_) => flag::REMOVED,
        };
        self.flags & bit != 0 && self.selects_change(event)
    }

    /// Returns whether it selects a rule before or after a change.
    fn selects_change(&self, event: &RuleEvent) -> bool {
        self.selects(&event.entry.rule)
            || event.before.as_ref().is_some_and(|before| self.selects(&before.rule))
    }
}

/// A rule, by its table, priority and match.
type Key = (u8, Priority, Match);

/// The states of a rule before its monitors were paused, and after its last change.
#[derive(Debug)]
struct Held {
    was_there: bool,
    last: RuleEvent,
}

/// The monitors of a connection.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    /// Requests whose place among the changes is not reached.
    requested: VecDeque<(Option<u32>, Vec<FlowMonitorRequest>)>,
    active: BTreeMap<u32, Monitor>,
    /// While they are paused: the rules that changed.
    held: Option<HashMap<Key, Held>>,
}

/// The messages for a connection, in their order; `Err` where it has missed too much.
type Sent = Result<Vec<u8>, ()>;

impl Monitors {
    /// Expects the place of a request, unless too many wait for theirs: returns whether it does. Without an identifier, the request
    /// has no answer.
    pub(super) fn expect(&mut self, xid: Option<u32>, requests: Vec<FlowMonitorRequest>) -> bool {
        let has_room = self.requested.len() < REQUESTED_MAX;
        if has_room {
            self.requested.push_back((xid, requests));
        }
        has_room
    }

    /// Executes the next request, and returns its answer.
    pub(super) fn reach(&mut self, state: &State, ruleset: &Ruleset) -> Vec<u8> {
        let Some((xid, requests)) = self.requested.pop_front() else { return Vec::new() };
        let mut listed = Vec::new();
        for request in requests {
            if request.command == DELETE {
                self.active.remove(&request.id);
                continue;
            }
            if request.flags & flag::INITIAL != 0 {
                listed.push(Monitor::new(&request));
            }
            self.active.insert(request.id, Monitor::new(&request));
        }
        // A rule of several monitors is listed once.
        let mut flows = Vec::new();
        for (_, table) in ruleset.tables().filter(|_| !listed.is_empty()) {
            for (_, entry) in table.in_order() {
                let selecting = listed.iter().filter(|monitor| monitor.selects(&entry.rule));
                if let Some(flags) = selecting.map(|monitor| monitor.flags).reduce(|all, flags| all | flags) {
                    flows.push(update(FlowEvent::Initial, entry, flags));
                }
            }
        }
        xid.map_or_else(Vec::new, |xid| reply(state, xid, flows))
    }

    /// Reports changes. `is_full`: the connection has more waiting than it may.
    pub(super) fn report(
        &mut self,
        state: &State,
        by: Option<Requester>,
        connection: u64,
        events: &[RuleEvent],
        is_full: bool,
    ) -> Sent {
        let mut bytes = Vec::new();
        if is_full && self.held.is_none() && !self.active.is_empty() {
            self.held = Some(HashMap::new());
            bytes = pause(state, true);
        }
        let own = by.filter(|by| by.connection == connection);
        let (mut updates, mut is_abbreviated) = (Vec::new(), false);
        for event in events {
            let mut flags = 0;
            let wanted = self.active.values().filter(|monitor| monitor.wants(event));
            wanted.for_each(|monitor| flags |= monitor.flags | flag::ADD);
            if flags == 0 {
                continue;
            }
            if let Some(held) = &mut self.held {
                hold(held, event)?;
            } else if let (Some(by), true) = (own, flags & flag::OWN_IN_FULL == 0) {
                if !std::mem::replace(&mut is_abbreviated, true) {
                    updates.push(FlowUpdate::Abbreviated { xid: by.xid });
                }
            } else {
                updates.push(update(kind(state, event), &event.entry, flags));
            }
        }
        if !updates.is_empty() {
            bytes.extend(reply(state, 0, updates));
        }
        Ok(bytes)
    }

    /// Returns whether the monitors are paused.
    pub(super) fn is_paused(&self) -> bool {
        self.held.is_some()
    }

    /// Reports what has changed while the monitors were paused.
    pub(super) fn resume(&mut self, state: &State) -> Vec<u8> {
        let Some(held) = self.held.take() else { return Vec::new() };
        let mut updates = Vec::new();
        for (_, Held { was_there, last }) in held {
            let event = match (was_there, last.kind) {
                (false, RuleEventKind::Removed(_)) => continue,
                (true, RuleEventKind::Removed(_)) => kind(state, &last),
                (true, _) => FlowEvent::Modified,
                (false, _) => FlowEvent::Added,
            };
            let selecting = self.active.values().filter(|monitor| monitor.selects_change(&last));
            if let Some(flags) = selecting.map(|monitor| monitor.flags).reduce(|all, flags| all | flags) {
                updates.push(update(event, &last.entry, flags));
            }
        }
        let mut bytes = if updates.is_empty() { Vec::new() } else { reply(state, 0, updates) };
        bytes.extend(pause(state, false));
        bytes
    }
}

/// Keeps the last change of a rule.
fn hold(held: &mut HashMap<Key, Held>, event: &RuleEvent) -> Result<(), ()> {
    let rule = &event.entry.rule;
    let key = (rule.table, rule.priority, rule.matches.clone());
    if held.len() == PAUSED_MAX && !held.contains_key(&key) {
        return Err(());
    }
    let first = || Held { was_there: !event.is_new, last: event.clone() };
    let held = held.entry(key).or_insert_with(first);
    // The rule as it was before the pause.
    held.last = RuleEvent { before: held.last.before.clone(), ..event.clone() };
    Ok(())
}

fn kind(state: &State, event: &RuleEvent) -> FlowEvent {
    match event.kind {
        RuleEventKind::Added => FlowEvent::Added,
        RuleEventKind::Modified => FlowEvent::Modified,
        RuleEventKind::Removed(reason) => {
            FlowEvent::Removed(events::removal_reason(state.codec.version, reason))
        }
    }
}

fn update(event: FlowEvent, entry: &Entry, flags: u16) -> FlowUpdate {
    let mut rule = entry.rule.clone();
    if flags & flag::INSTRUCTIONS == 0 {
        rule.actions.clear();
    }
    FlowUpdate::Full { event, timeouts_s: (entry.timeouts.idle_s(), entry.timeouts.hard_s()), rule }
}

/// The messages of changes. A rule that the version cannot write is left out.
fn reply(state: &State, xid: u32, updates: Vec<FlowUpdate>) -> Vec<u8> {
    let body = Reply::FlowMonitor(updates);
    let message = Message::MultipartReply(MultipartReply { more: false, body });
    lists::encode(&state.codec, xid, message).unwrap_or_default()
}

/// The message that pauses monitors or resumes them.
fn pause(state: &State, is_paused: bool) -> Vec<u8> {
    if state.codec.version >= Version::OpenFlow14 {
        return reply(state, 0, vec![if is_paused { FlowUpdate::Paused } else { FlowUpdate::Resumed }]);
    }
    let message = if is_paused { Message::FlowMonitorPaused } else { Message::FlowMonitorResumed };
    state.codec.encode(0, &message).unwrap_or_default()
}

impl Session {
    /// Adds, changes and removes monitors, all or none. The answer follows when the agent reaches their place among the changes.
    pub(super) fn monitor(&mut self, xid: u32, requests: Vec<FlowMonitorRequest>) -> Result<(), ErrorCode> {
        let mut ids = self.monitors.clone();
        for FlowMonitorRequest { id, command, flags, .. } in &requests {
            let is_there = ids.contains(id);
            match (*command, is_there) {
                (ADD, true) => return Err(ErrorCode::MonitorMonitorExists),
                (ADD, false) if ids.len() == MONITORS_MAX => return Err(ErrorCode::RequestNotPermitted),
                (ADD, false) => _ = ids.insert(*id),
                (_, false) => return Err(ErrorCode::MonitorUnknownMonitor),
                (DELETE, true) => _ = ids.remove(id),
                (_, true) => {}
            }
            if *command != DELETE && flags & flag::CHANGES == 0 {
                return Err(ErrorCode::MonitorBadFlags);
            }
        }
        self.expect(Some(xid), requests, ids)
    }

    /// Removes a monitor.
    pub(super) fn cancel_monitor(&mut self, id: u32) -> Result<(), ErrorCode> {
        let mut ids = self.monitors.clone();
        if !ids.remove(&id) {
            return Err(ErrorCode::MonitorUnknownMonitor);
        }
        let (command, flags, out_port, out_group, table) = (DELETE, 0, None, None, None);
        let matches = Match::any();
        let request = FlowMonitorRequest { id, command, flags, out_port, out_group, table, matches };
        self.expect(None, vec![request], ids)
    }

    fn expect(
        &mut self,
        xid: Option<u32>,
        requests: Vec<FlowMonitorRequest>,
        ids: BTreeSet<u32>,
    ) -> Result<(), ErrorCode> {
        let (before, after) = (self.monitors.len(), ids.len());
        let Shared { service, subscribers, .. } = &*self.shared;
        if !subscribers.expect_monitors(self.connection, xid, requests) {
            return Err(ErrorCode::RequestNotPermitted);
        }
        self.monitors = ids;
        service.notices().watch(after.saturating_sub(before));
        service.mark_place(self.connection);
        service.notices().unwatch(before.saturating_sub(after));
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.service.notices().unwatch(self.monitors.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_for_their_place_are_bounded() {
        let mut monitors = Monitors::default();
        let taken = (0..1000).filter(|xid| monitors.expect(Some(*xid), Vec::new())).count();
        assert_eq!(taken, REQUESTED_MAX);
    }
}
