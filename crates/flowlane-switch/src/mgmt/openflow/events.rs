//! Messages that a controller has not asked for: the choice and the contents.

use flowlane_openflow::Version;
use flowlane_openflow::message::{AsyncConfig, Message, Role, reason};
use flowlane_openflow::port::{PortReason, PortStatus};
use flowlane_openflow::stats::{FlowFormat, FlowRemoved as Sent, TableStatus, table_reason};

use flowlane::rule::action::PortNo;

use super::describe::table_description;
use super::ports;
use super::service::{PortState, Service};
use super::session::State;
use crate::control::{FlowRemoved, Notice, Reason};
use crate::datapath::PortCounters;
use crate::ruleset::{PortFlags, ToController};

/// Reasons of packet-in and flow-removed messages that all versions with asynchronous configuration know.
const OLD_REASONS: u32 = 0b111;

/// Bits of the reasons for which a kind of message is sent, to primary and equal controllers, and to secondary ones.
type Masks = [Option<u32>; 2];

/// The messages that a controller gets until it says which it wants, as in Open vSwitch: all but packets of invalid TTL;
/// secondary controllers get the status of ports alone.
pub(super) fn defaults(version: Version) -> AsyncConfig {
    let flow_removed = match version {
        Version::OpenFlow10 => 0b111,
        Version::OpenFlow13 => 0b1111,
        Version::OpenFlow14 | Version::OpenFlow15 => 0b11_1111,
    };
    let none = [Some(0), Some(0)];
    AsyncConfig {
        packet_in: [Some(0b11_1011), Some(0)],
        port_status: [Some(0b111), Some(0b111)],
        flow_removed: [Some(flow_removed), Some(0)],
        role_status: none,
        table_status: none,
        request_forward: none,
    }
}

/// Changes a configuration; what a request leaves out stays as it is.
pub(super) fn set(config: &mut AsyncConfig, change: &AsyncConfig) {
    let or = |before: Masks, change: Masks| [change[0].or(before[0]), change[1].or(before[1])];
    *config = AsyncConfig {
        packet_in: or(config.packet_in, change.packet_in),
        port_status: or(config.port_status, change.port_status),
        flow_removed: or(config.flow_removed, change.flow_removed),
        role_status: or(config.role_status, change.role_status),
        table_status: or(config.table_status, change.table_status),
        request_forward: or(config.request_forward, change.request_forward),
    };
}

/// A configuration as a version reports it, which has no reasons of later ones.
pub(super) fn reported(version: Version, config: &AsyncConfig) -> AsyncConfig {
    let packet_in = match version {
        Version::OpenFlow10 | Version::OpenFlow13 => {
            config.packet_in.map(|mask| mask.map(|mask| mask & OLD_REASONS))
        }
        Version::OpenFlow14 | Version::OpenFlow15 => config.packet_in,
    };
    AsyncConfig { packet_in, ..*config }
}

/// Returns whether a packet is sent by an action that says nothing else, of a table-miss rule.
fn is_table_miss(to: &ToController) -> bool {
    to.origin.is_table_miss && to.action.reason == reason::ACTION
}

/// The reason of a packet-in in a version: OpenFlow 1.0 knows no table-miss rules, and before OpenFlow 1.4 later reasons are actions.
pub(super) fn packet_in_reason(version: Version, to: &ToController) -> u8 {
    match to.action.reason {
        reason::ACTION_SET | reason::GROUP | reason::PACKET_OUT if version < Version::OpenFlow14 => {
            reason::ACTION
        }
        _ if is_table_miss(to) && version > Version::OpenFlow10 => reason::NO_MATCH,
        other => other,
    }
}

/// The number of a reason (`OFPRR`) in a version, where versions that lack one say that the rule was deleted.
pub(super) fn removal_reason(version: Version, reason: Reason) -> u8 {
    match reason {
        Reason::IdleTimeout => 0,
        Reason::HardTimeout => 1,
        Reason::GroupDeleted if version > Version::OpenFlow10 => 3,
        Reason::MeterDeleted if version > Version::OpenFlow13 => 4,
        // Open vSwitch says so in all versions.
        Reason::Evicted => 5,
        Reason::GroupDeleted | Reason::MeterDeleted | Reason::Deleted => 2,
    }
}

impl State {
    /// Returns whether the controller wants messages of a kind for a reason.
    fn wants(&self, kind: impl Fn(&AsyncConfig) -> Masks, reason: u8) -> bool {
        let mask = kind(&self.asynchronous)[usize::from(self.role == Role::Secondary)];
        self.wants_events && mask.unwrap_or(0) >> reason.min(31) & 1 == 1
    }

    /// Returns whether the controller wants a packet that is sent so. Those of table-miss rules are chosen as misses also in
    /// OpenFlow 1.0, as in Open vSwitch.
    pub(super) fn wants_packet(&self, to: &ToController) -> bool {
        let reason =
            if is_table_miss(to) { reason::NO_MATCH } else { packet_in_reason(self.codec.version, to) };
        self.wants(|config| config.packet_in, reason)
    }
}

/// A change of the switch, with what its message says of the switch.
#[derive(Debug)]
pub(super) enum Change<'a> {
    Removed(&'a FlowRemoved),
    Port(PortReason, PortState),
    Table(TableStatus),
}

/// Completes a notice. A port that is gone has no description.
pub(super) fn complete<'a>(service: &Service, notice: &'a Notice) -> Option<Change<'a>> {
    Some(match notice {
        Notice::FlowRemoved(removed) => Change::Removed(removed),
        Notice::PortAdded { port: number, name, flags } => {
            // It may have gone again.
            let now = port(service, *number).unwrap_or_else(|| absent(*number, name, *flags));
            Change::Port(PortReason::Add, now)
        }
        Notice::PortRemoved { port, name, flags } => {
            Change::Port(PortReason::Delete, absent(*port, name, *flags))
        }
        &Notice::PortChanged(number, flags) => {
            let now = port(service, number)?;
            // As it was after the change; it may have changed again.
            let is_open = now.is_up || now.flags.has_any(PortFlags::NOT_UP);
            let is_up = is_open && !flags.has_any(PortFlags::NOT_UP);
            Change::Port(PortReason::Modify, PortState { flags, is_up, ..now })
        }
        Notice::Vacancy { table, is_up, vacancy, settings } => Change::Table(TableStatus {
            reason: if *is_up { table_reason::VACANCY_UP } else { table_reason::VACANCY_DOWN },
            config: table_description(*table, settings, *vacancy),
        }),
        // Those are for monitors.
        Notice::RulesChanged { .. } | Notice::Reached { .. } => return None,
    })
}

/// A port that is not there any more.
fn absent(number: PortNo, name: &str, flags: PortFlags) -> PortState {
    let (name, counters) = (name.to_owned(), PortCounters::default());
    PortState { number, name, counters, flags, is_up: false, link: None }
}

fn port(service: &Service, number: PortNo) -> Option<PortState> {
    service.ports().into_iter().find(|port| port.number == number)
}

/// The message for a change, if the controller wants it.
pub(super) fn message(state: &State, change: &Change<'_>) -> Option<Vec<u8>> {
    match change {
        Change::Removed(removed) => flow_removed(state, removed),
        Change::Port(reason, port) => port_changed(state, *reason, port),
        Change::Table(status) => table_changed(state, status),
    }
}

/// Versions before OpenFlow 1.4 have no such message.
fn table_changed(state: &State, status: &TableStatus) -> Option<Vec<u8>> {
    if !state.wants(|config| config.table_status, status.reason) {
        return None;
    }
    state.codec.encode(0, &Message::TableStatus(status.clone())).ok()
}

fn port_changed(state: &State, reason: PortReason, port: &PortState) -> Option<Vec<u8>> {
    // OFPPR_ADD, OFPPR_DELETE and OFPPR_MODIFY.
    let number = match reason {
        PortReason::Add => 0,
        PortReason::Delete => 1,
        PortReason::Modify => 2,
    };
    if !state.wants(|config| config.port_status, number) {
        return None;
    }
    let port = ports::description(port, state.codec.version);
    state.codec.encode(0, &Message::PortStatus(PortStatus { reason, port })).ok()
}

fn flow_removed(state: &State, removed: &FlowRemoved) -> Option<Vec<u8>> {
    let reason = removal_reason(state.codec.version, removed.reason);
    if !state.wants(|config| config.flow_removed, reason) {
        return None;
    }
    let rule = &removed.rule;
    let sent = |format| {
        Message::FlowRemoved(Sent {
            format,
            matches: rule.matches.clone(),
            cookie: rule.cookie,
            priority: rule.priority,
            reason,
            table: Some(rule.table),
            duration_s: removed.duration.as_secs() as u32,
            duration_ns: removed.duration.subsec_nanos(),
            idle_timeout_s: removed.idle_timeout_s,
            hard_timeout_s: removed.hard_timeout_s,
            packets: removed.count.packets,
            bytes: removed.count.bytes,
        })
    };
    // A match with fields that OpenFlow 1.0 lacks is better sent in Nicira's message than not at all.
    let encode = |format| state.codec.encode(0, &sent(format));
    encode(state.flow_format).or_else(|_| encode(FlowFormat::Nxm)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut config = defaults(Version::OpenFlow14);
        set(&mut config, &AsyncConfig { flow_removed: [Some(1), None], ..AsyncConfig::default() });
        assert_eq!(config.flow_removed, [Some(1), Some(0)]);
        assert_eq!(config.port_status, defaults(Version::OpenFlow14).port_status);
        assert_eq!(reported(Version::OpenFlow13, &config).packet_in, [Some(0b011), Some(0)]);
    }
}
