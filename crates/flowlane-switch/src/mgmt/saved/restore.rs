//! Takes saved state into a switch that does not run yet.

use std::io::Read;

use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::read_groups;
use flowlane::rule::group::Group;
use flowlane::rule::{Command, ReadOptions, read_changes};

use super::blocks::{Reader, StateError};
use super::collect::{shape_of, unix_ms};
use super::record::{Address, Header, Record, RuleRecord};
use crate::control::{Control, SavedControl, SavedRule};
use crate::datapath::{Clock, Worker};
use crate::state::conntrack::{SavedConnection, State};
use crate::state::fdb::STATIC;

/// Rules, and routes, that are taken over at most.
const RULES_MAX: usize = 1 << 22;

/// Learned addresses that wait for their port at most: as many as the largest table has.
const WAITING_MAX: usize = 1 << 20;

/// The numbers of entries that were restored, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Connections, and those that are expected.
    pub connections: u64,
    pub addresses: u64,
    pub sessions: u64,
    /// Rules, groups and meters.
    pub rules: u64,
    /// Routes that were added by the socket.
    pub routes: u64,
    /// Connections, addresses, sessions and routes whose time is over, or that do not fit this switch.
    pub left_out: u64,
}

/// State that has been read to its end.
#[derive(Debug)]
pub struct Taken<R> {
    pub restored: Restored,
    /// Routes for the caller to add, with their table.
    pub routes: Vec<(u8, String)>,
    /// Learned addresses of ports that are not there, which may come (they count as left out).
    pub waiting: WaitingAddresses,
    /// The input, behind the end of the state.
    pub input: R,
}

/// The state to read, and the switch that takes it.
struct Restoring<'a> {
    workers: &'a mut [Worker],
    clock_ns: u64,
    restored: Restored,
    control: SavedControl,
    routes: Vec<(u8, String)>,
    waiting: Vec<Address>,
}

/// Reads a state to its end, and restores it into a switch that does not run yet. Rules are expected if there is `control`, and
/// refused without it, as are routes.
///
/// # Errors
/// Where the state is damaged or of another clock, or its rules do not fit. A part may have been restored: the switch must not run.
pub fn restore<R: Read>(
    mut reader: Reader<R>,
    workers: &mut [Worker],
    control: Option<&mut Control>,
) -> Result<Taken<R>, StateError> {
    let header = read_header(&mut reader)?;
    check_clock(&header, &workers[0])?;
    let clock_ns = header.clock_at(unix_ms());
    workers.iter_mut().for_each(|worker| worker.continue_clock(clock_ns));
    let mut restoring = Restoring {
        workers,
        clock_ns,
        restored: Restored::default(),
        control: SavedControl::default(),
        routes: Vec::new(),
        waiting: Vec::new(),
    };
    while let Some(record) = reader.next()? {
        let takes_rules = control.is_some();
        restoring.take(record, takes_rules)?.ok_or_else(|| reader.wrong("does not belong there"))?;
    }
    if let Some(control) = control {
        let saved = &restoring.control;
        control.restore(saved)?;
        control.forget_addresses();
        restoring.restored.rules = (saved.rules.len() + saved.groups.len() + saved.meters.len()) as u64;
    }
    let Restoring { restored, routes, waiting, .. } = restoring;
    Ok(Taken { restored, routes, waiting: WaitingAddresses(waiting), input: reader.into_input() })
}

/// Reads the header, which is the first record.
pub(super) fn read_header<R: Read>(reader: &mut Reader<R>) -> Result<Header, StateError> {
    match reader.next()? {
        Some(Record::Header(header)) => Ok(header),
        _ => Err(reader.wrong("is no header")),
    }
}

/// Checks that the state is of a switch with the ports and stages of this one.
pub(super) fn check_shape(header: &Header, worker: &Worker) -> Result<(), StateError> {
    check_clock(header, worker)?;
    let (theirs, ours) = (&header.shape, shape_of(worker));
    match *theirs == ours {
        true => Ok(()),
        false => Err(StateError::Other { theirs: theirs.clone(), ours }),
    }
}

fn check_clock(header: &Header, worker: &Worker) -> Result<(), StateError> {
    let name = |is_frame_clock| match is_frame_clock {
        true => "the clock of frames".to_owned(),
        false => "the machine's clock".to_owned(),
    };
    let ours = worker.clock() == Clock::Frames;
    match header.is_frame_clock == ours {
        true => Ok(()),
        false => Err(StateError::Other { theirs: name(header.is_frame_clock), ours: name(ours) }),
    }
}

impl Restoring<'_> {
    /// Takes a record; `None` if it cannot be in this state.
    fn take(&mut self, record: Record, takes_rules: bool) -> Result<Option<()>, StateError> {
        let control = &mut self.control;
        match record {
            Record::Header(_) | Record::End { .. } => return Ok(None),
            Record::Connection(saved) if matches!(saved.state, State::Session(_)) => {
                let is_kept = self.take_session(&saved);
                self.count(is_kept, |restored| &mut restored.sessions);
            }
            Record::Connection(saved) => {
                let connections = &self.workers[0].egress.connections;
                let is_kept = connections.restore(&saved, self.clock_ns / 1_000_000).is_ok();
                self.count(is_kept, |restored| &mut restored.connections);
            }
            Record::Expectation(saved) => {
                let connections = &self.workers[0].egress.connections;
                let is_kept = connections.restore_expectation(&saved, self.clock_ns / 1_000_000).is_ok();
                self.count(is_kept, |restored| &mut restored.connections);
            }
            Record::Address(address) => {
                let is_kept = self.take_address(address);
                self.count(is_kept, |restored| &mut restored.addresses);
            }
            _ if !takes_rules || control.rules.len().max(self.routes.len()) >= RULES_MAX => return Ok(None),
            Record::Meter(meter) => control.meters.push(meter),
            Record::Option { number, option } => control.options.push((number.into(), option)),
            Record::Group(text) => control.groups.push(read_group(&text)?),
            Record::Port { port, flags } => control.ports.push((port, flags)),
            Record::Route { table, text } => self.routes.push((table, text)),
            Record::Rule(rule) => control.rules.push(read_rule(rule)?),
        }
        Ok(Some(()))
    }

    fn count(&mut self, is_kept: bool, counter: impl Fn(&mut Restored) -> &mut u64) {
        let counter = if is_kept { counter(&mut self.restored) } else { &mut self.restored.left_out };
        *counter += 1;
    }

    fn take_address(&mut self, address: Address) -> bool {
        let now_s = (self.clock_ns / 1_000_000_000) as u32;
        let worker = &mut self.workers[0];
        if worker.egress.ports.place(PortNo(address.port)).is_some() {
            return learn(worker, address, now_s);
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(address);
        }
        false
    }

    /// Opens a session again, if it is one of a translation.
    fn take_session(&self, session: &SavedConnection) -> bool {
        let mut stages = self.workers[0].lookup.pipeline.stages();
        stages.any(|(_, stage)| stage.as_nat().is_some_and(|nat| nat.restore(session, self.clock_ns)))
    }
}

/// Learns an address whose port is there. Returns whether it is known then.
fn learn(worker: &mut Worker, address: Address, now_s: u32) -> bool {
    let Address { mac, vlan, port, seen_s } = address;
    let macs = &mut worker.egress.macs;
    match seen_s {
        STATIC => macs.add_static(mac, vlan, PortNo(port)),
        _ => macs.learn(mac, vlan, PortNo(port), seen_s.min(now_s)),
    }
    macs.lookup(mac, vlan, now_s) == Some(PortNo(port))
}

/// Learned addresses of ports that were not there when a state was restored.
#[derive(Debug, Default)]
pub struct WaitingAddresses(Vec<Address>);

impl WaitingAddresses {
    /// Learns the addresses of ports that a switch has now. Returns their number.
    pub fn restore(self, worker: &mut Worker) -> u64 {
        let now_s = worker.now_s();
        let learned = self.0.into_iter().filter(|address| {
            worker.egress.ports.place(PortNo(address.port)).is_some() && learn(worker, *address, now_s)
        });
        learned.count() as u64
    }
}

fn read_group(text: &str) -> Result<Group, StateError> {
    let read = read_groups(text, "state", &ReadOptions::default());
    let failed = |problem: String| StateError::Text { text: text.to_owned(), problem };
    let groups = read.map_err(|errors| failed(errors.to_string()))?;
    let first = groups.into_iter().next();
    first.map(|(_, group)| group).ok_or_else(|| failed("it is no group".to_owned()))
}

fn read_rule(record: RuleRecord) -> Result<SavedRule, StateError> {
    let RuleRecord { idle_timeout_s, hard_timeout_s, flags, importance, created_ns, begun_ns, text } = record;
    let read = read_changes(&format!("add {text}"), "state", &ReadOptions::default());
    let failed = |problem: String| StateError::Text { text: text.clone(), problem };
    let mods = read.map_err(|errors| failed(errors.to_string()))?;
    match &mods[..] {
        [one] if one.command == Command::Add => Ok(SavedRule {
            rule: one.rule.clone(),
            idle_timeout_s,
            hard_timeout_s,
            flags,
            importance,
            created_ns,
            begun_ns,
        }),
        _ => Err(failed("it is no rule".to_owned())),
    }
}
