//! What a controller can have the switch do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;
use flowlane::rule::{Action, Command, FlowMod, Match, Rule};
use flowlane::tunnel::OptionMap;
use flowlane_openflow::{ErrorCode, Version};

use super::Address;
use super::packets;
use super::settings::{ConnectionSettings, SwitchTexts};
use crate::control::{
    BundleError, Changes, Control, FAIL_OPEN, FlowStatistics, MeterEntry, MeterError, MeterMod, Notice,
    Notices, OptionMod, OptionsError, Refusal, Refused, Requester, TableSettings, VacancyLimits, vacancy_of,
};
use crate::datapath::{GroupCount, GroupCounters, PacketIns, PauseToken, PortCounters};
use crate::mgmt::rpc::{ControlServer, Controllers, Link, QueueState};
use crate::ruleset::{CompiledGroup, PortFlags, RulesetError};
use crate::state::conntrack::Wanted;

/// A port, as a controller sees it.
#[derive(Clone, Debug)]
pub(super) struct PortState {
    pub(super) number: PortNo,
    pub(super) name: String,
    pub(super) counters: PortCounters,
    pub(super) flags: PortFlags,
    /// Packets can be sent there.
    pub(super) is_up: bool,
    /// Its interface, if it has one.
    pub(super) link: Option<Link>,
}

/// A table, as a controller sees it.
#[derive(Clone, Debug)]
pub(super) struct TableState {
    pub(super) number: u8,
    pub(super) name: String,
    pub(super) rules: usize,
    pub(super) missed: u64,
    pub(super) settings: TableSettings,
    /// Its free space in percent.
    pub(super) vacancy: u8,
}

/// The switch, for the agent.
#[derive(Clone)]
pub struct Service {
    served: Arc<ControlServer>,
    packet_ins: Arc<PacketIns>,
    notices: Arc<Notices>,
    datapath_id: u64,
    name: String,
    versions: Vec<Version>,
    standalone_after: Option<Duration>,
    /// Of connections at these addresses; others have those that are usual.
    settings: Vec<(Address, ConnectionSettings)>,
    texts: SwitchTexts,
    begun: Instant,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Service {
    /// Offers a switch to controllers: `name` is its bridge's. From now on packets for controllers go to the agent.
    pub fn new(served: Arc<ControlServer>, name: &str, datapath_id: u64, packet_ins: Arc<PacketIns>) -> Self {
        let mut control = served.control();
        control.accept_any_port();
        let notices = control.notices().clone();
        drop(control);
        let (name, versions, begun) = (name.to_owned(), Version::ALL.to_vec(), Instant::now());
        let (standalone_after, settings, texts) = (None, Vec::new(), SwitchTexts::default());
        Self {
            served,
            packet_ins,
            notices,
            datapath_id,
            name,
            versions,
            standalone_after,
            settings,
            texts,
            begun,
        }
    }

    /// The connections at the addresses of controllers, for reports.
    pub(super) fn controllers(&self) -> &Controllers {
        self.served.controllers()
    }

    pub(super) fn packet_ins(&self) -> &PacketIns {
        &self.packet_ins
    }

    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Speaks these versions only.
    #[must_use]
    pub fn with_versions(self, versions: Vec<Version>) -> Self {
        Self { versions, ..self }
    }

    /// Forwards by `normal` when none of the controllers that the switch connects to has been connected for this long; with `None`,
    /// rules stay as they are.
    #[must_use]
    pub fn with_standalone_after(self, standalone_after: Option<Duration>) -> Self {
        Self { standalone_after, ..self }
    }

    /// Gives connections at these addresses settings of their own.
    #[must_use]
    pub fn with_settings(self, settings: Vec<(Address, ConnectionSettings)>) -> Self {
        Self { settings, ..self }
    }

    /// Describes itself with these texts.
    #[must_use]
    pub fn with_texts(self, texts: SwitchTexts) -> Self {
        Self { texts, ..self }
    }

    /// The settings of connections at an address.
    pub(super) fn settings(&self, address: &Address) -> ConnectionSettings {
        let own = self.settings.iter().find(|(at, _)| at == address);
        own.map_or_else(ConnectionSettings::default, |(_, settings)| *settings)
    }

    pub(super) fn texts(&self) -> &SwitchTexts {
        &self.texts
    }

    pub(super) fn standalone_after(&self) -> Option<Duration> {
        self.standalone_after
    }

    /// Removes all rules and forwards by `normal`. Returns whether the rules can be changed.
    pub(super) fn fail_open(&self) -> bool {
        let mut control = self.served.control();
        let is_done = control.fail_open().is_ok();
        control.tell_removed();
        is_done
    }

    /// Forwards by the rules of controllers again. Returns whether the rules can be changed.
    pub(super) fn end_fail_open(&self) -> bool {
        self.served.control().end_fail_open().is_ok()
    }

    /// Forwards packets that no rule matches by `normal`, where the first table's rules can be changed.
    pub(super) fn forward_misses(&self) {
        _ = self.served.control().forward_misses();
    }

    pub(super) fn versions(&self) -> &[Version] {
        &self.versions
    }

    pub(super) fn datapath_id(&self) -> u64 {
        self.datapath_id
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns whether the workers run.
    pub(super) fn runs(&self) -> bool {
        self.served.call_workers(|_| ()).is_ok()
    }

    /// The ports, with the counters of all workers.
    pub(super) fn ports(&self) -> Vec<PortState> {
        let of_worker = |worker: &mut crate::datapath::Worker| {
            let state = |slot: &crate::datapath::PortSlot| PortState {
                number: slot.number,
                name: slot.name.clone(),
                counters: slot.counters,
                flags: slot.flags,
                // A capture that has ended sends nothing more; a port that never receives is no less up.
                is_up: slot.is_up() && !(slot.finished && slot.is_capture),
                link: None,
            };
            worker.egress.ports.in_order().into_iter().map(state).collect::<Vec<_>>()
        };
        let mut all = self.served.call_workers(of_worker).unwrap_or_default().into_iter();
        let mut ports = all.next().unwrap_or_default();
        for others in all {
            for (port, other) in ports.iter_mut().zip(others) {
                port.counters += other.counters;
            }
        }
        let links = self.served.links_of_ports();
        ports.iter_mut().for_each(|port| port.link = links.get(&port.number.0).copied());
        ports
    }

    /// The queues of a port, or of all.
    pub(super) fn queues(&self, port: Option<PortNo>) -> Vec<QueueState> {
        self.served.queues(port)
    }

    /// The tables of rules.
    pub(super) fn tables(&self) -> Vec<TableState> {
        let control = self.served.control();
        let ruleset = control.ruleset();
        let state = |(number, table): (u8, &crate::ruleset::Table)| TableState {
            number,
            name: table.name.clone(),
            rules: table.len(),
            settings: control.table_settings(number),
            vacancy: vacancy_of(table),
            missed: control.missed(number).unwrap_or(0),
        };
        ruleset.tables().map(state).collect()
    }

    /// Changes the settings of a table; `None`: of all tables.
    pub(super) fn set_table(
        &self,
        table: Option<u8>,
        evicts: bool,
        vacancy: Option<VacancyLimits>,
    ) -> Result<(), RulesetError> {
        self.served.control().set_table(table, evicts, vacancy)
    }

    /// Uses the control for a request.
    fn control_by<T>(&self, by: Requester, run: impl FnOnce(&mut Control) -> T) -> T {
        let mut control = self.served.control();
        control.set_requester(Some(by));
        let done = run(&mut control);
        control.set_requester(None);
        done
    }

    /// Marks the present place among the changes for the monitors of a connection.
    pub(super) fn mark_place(&self, connection: u64) {
        let control = self.served.control();
        self.notices.push(Notice::Reached { connection, ruleset: control.ruleset() });
    }

    /// Makes changes, all or none, so that no packet meets the former state afterwards.
    pub(super) fn change(&self, changes: &Changes<'_>, by: Requester) -> Result<(), BundleError> {
        self.control_by(by, |control| {
            control.change_all(changes)?;
            control.tell_removed();
            Ok::<_, BundleError>(())
        })?;
        // As in Open vSwitch, a port that is set up or down is so for the whole system.
        for change in changes.ports.iter().filter(|change| change.mask.has_any(PortFlags::DOWN)) {
            self.served.set_interface_up(change.port, !change.flags.has_any(PortFlags::DOWN));
        }
        Ok(())
    }

    /// Returns whether a controller monitors rules.
    pub(super) fn has_monitors(&self) -> bool {
        self.notices.is_watched()
    }

    /// Changes rules; one that is modified and does not exist is added (OpenFlow 1.0, 4.6).
    pub(super) fn change_or_add(&self, one: &FlowMod, by: Requester) -> Result<(), Refused> {
        self.control_by(by, |control| {
            let done = control.change(std::slice::from_ref(one))?;
            let modifies = matches!(one.command, Command::Modify | Command::ModifyStrict);
            if modifies && done.modified + done.added == 0 && one.cookie.is_none() {
                control.change(&[FlowMod {
                    command: Command::Add,
                    table: Some(one.rule.table),
                    ..one.clone()
                }])?;
            }
            control.tell_removed();
            Ok(())
        })
    }

    /// The rules that `wanted` selects, with their counters; not the one that forwards without controllers.
    pub(super) fn flows(&self, wanted: impl Fn(u8, &Rule) -> bool) -> Vec<FlowStatistics> {
        self.served.control().statistics(|table, rule| rule.priority != FAIL_OPEN && wanted(table, rule))
    }

    /// The groups, with their counters.
    pub(super) fn groups(&self) -> Vec<(Arc<CompiledGroup>, GroupCount)> {
        let ruleset = self.served.control().ruleset();
        let mut counters = GroupCounters::default();
        let all = self.served.call_workers(|worker| worker.groups.clone()).unwrap_or_default();
        all.iter().for_each(|worker| counters.add(worker));
        ruleset.groups().iter().map(|(id, group)| (group.clone(), counters.get(id))).collect()
    }

    /// Changes meters, so that no packet meets the former ones afterwards.
    pub(super) fn change_meters(&self, change: &MeterMod, by: Requester) -> Result<(), MeterError> {
        self.control_by(by, |control| {
            control.change_meters(change)?;
            control.tell_removed();
            Ok(())
        })
    }

    /// Changes the fields of tunnel options, so that no packet comes with the former ones afterwards.
    pub(super) fn change_options(&self, change: &OptionMod, by: Requester) -> Result<(), OptionsError> {
        self.control_by(by, |control| control.change_options(change))
    }

    /// Removes connections.
    pub(super) fn flush_connections(&self, wanted: &Wanted) -> Result<(), ErrorCode> {
        let (connections, now_ms) = self.served.tracked().map_err(|_| ErrorCode::RequestNotPermitted)?;
        connections.flush(wanted, now_ms);
        Ok(())
    }

    /// The fields of tunnel options.
    pub(super) fn options(&self) -> OptionMap {
        self.served.control().options().clone()
    }

    /// The meters, with the time since their addition.
    pub(super) fn meters(&self) -> Vec<(MeterEntry, Duration)> {
        let control = self.served.control();
        control.meters().values().map(|entry| (entry.clone(), control.meter_age(entry))).collect()
    }

    /// Checks the actions of a packet-out.
    ///
    /// # Errors
    /// Actions that the switch does not execute.
    pub(super) fn check_packet_out(&self, actions: &[Action]) -> Result<(), Refusal> {
        self.served.control().check_packet_out(actions)
    }

    /// Executes actions on a packet. Where the switch ends, the packet is dropped.
    ///
    /// # Errors
    /// Actions that the switch does not execute.
    pub(super) fn packet_out(
        &self,
        in_port: PortNo,
        bytes: Vec<u8>,
        actions: Vec<Action>,
    ) -> Result<(), Refusal> {
        self.check_packet_out(&actions)?;
        _ = self.served.call_worker(0, move |worker| worker.packet_out(in_port, &bytes, &actions));
        Ok(())
    }

    /// Lets a paused packet go on. Returns whether it is still known. Where the switch ends, the packet is dropped.
    pub(super) fn resume(&self, token: &PauseToken, bytes: Vec<u8>, metadata: Match) -> bool {
        let paused = self.packet_ins.paused.find(token);
        let is_known = paused.is_some();
        if let Some(paused) = paused {
            let metadata = packets::with_hidden(metadata, &paused.key);
            _ = self.served.call_worker(0, move |worker| worker.resume(&paused, &bytes, &metadata));
        }
        is_known
    }
}
