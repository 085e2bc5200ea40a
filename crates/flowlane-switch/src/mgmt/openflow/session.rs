//! What a connection's requests mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use flowlane::packet::{Field, FieldRef};
use flowlane::rule::action::PortNo;
use flowlane::rule::flow_syntax::is_consistent;
use flowlane::rule::group::{Bucket, Group, Selection};
use flowlane::rule::{Action, Command, FlowMod, Match};
use flowlane_openflow::group::{GROUP_ALL, GroupCommand, GroupMod as SentMod, Selection as SentSelection};
use flowlane_openflow::message::{
    AsyncConfig, Error, FlowModMessage, Message, MultipartReply, MultipartRequest, PacketIn as SentPacketIn,
    PacketInFormat, PacketOut, Request, Resume, Role, RoleRequest, SwitchConfig, TlvTableMod,
};
use flowlane_openflow::stats::{FlowFormat, TableConfig, Vacancy};
use flowlane_openflow::{Codec, ErrorCode, Header, Version};

use super::bundles::Bundle;
use super::{Shared, connections, describe, errors, events, lists, meters, options, packets, ports, queues};
use crate::control::{Changes, GroupMod, Refusal, Requester, VacancyLimits};
use crate::datapath::PacketIn;

/// Bytes of a request that an error returns: all that fit into a message, by which controllers find the refused one. The
/// longest header is that of an experimenter's error.
pub(super) const ERROR_DATA: usize = u16::MAX as usize - 20;

/// The bit of a table's settings that lets rules make room for new ones (`OFPTC14_EVICTION`).
pub(super) const TABLE_EVICTION: u32 = 1 << 2;

/// In a table's configuration: events of its free space are sent (`OFPTC_VACANCY_EVENTS`).
pub(super) const TABLE_VACANCY: u32 = 1 << 3;

/// OpenFlow's number for all ports.
const PORT_ANY: PortNo = PortNo(0xffff);

/// The part of a connection that the dispatcher of packets reads, too.
#[derive(Debug)]
pub(super) struct State {
    pub(super) codec: Codec,
    pub(super) role: Role,
    pub(super) packet_in_format: PacketInFormat,
    pub(super) config: SwitchConfig,
    controller_id: u16,
    /// The layout of matches in messages of OpenFlow 1.0 that the peer has not asked for.
    pub(super) flow_format: FlowFormat,
    pub(super) asynchronous: AsyncConfig,
    /// The peer has said how many bytes of a packet it wants, or has been connected to.
    pub(super) wants_events: bool,
}

impl State {
    /// The state of a new connection. A peer that has connected to the switch gets only answers until it asks for packets,
    /// as in Open vSwitch.
    pub(super) fn new(codec: Codec, is_passive: bool) -> Self {
        let miss_send_len = if is_passive { 0 } else { 128 };
        let asynchronous = events::defaults(codec.version);
        Self {
            codec,
            role: Role::Equal,
            packet_in_format: PacketInFormat::Standard,
            config: SwitchConfig { flags: 0, miss_send_len },
            controller_id: 0,
            flow_format: FlowFormat::Standard,
            asynchronous,
            wants_events: !is_passive,
        }
    }

    /// Returns whether a packet is for this controller.
    pub(super) fn wants_packet_in(&self, packet: &PacketIn) -> bool {
        let action = &packet.to.action;
        action.id == self.controller_id && self.wants_packet(&packet.to)
    }
}

/// A connection's requests.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) state: Arc<Mutex<State>>,
    /// The number of the connection among the subscribers.
    pub(super) connection: u64,
    /// The identifier of the present request.
    xid: u32,
    /// The identifiers of its monitors of flows.
    pub(super) monitors: BTreeSet<u32>,
    pub(super) bundles: BTreeMap<u32, Bundle>,
    /// Errors of earlier requests, which precede the answer to a request.
    pub(super) belated: Vec<u8>,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, state: Arc<Mutex<State>>) -> Self {
        let (monitors, bundles, belated) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        Self { shared, state, connection: 0, xid: 0, monitors, bundles, belated }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Asks whether the peer lives.
    pub(super) fn probe(&self) -> Vec<u8> {
        self.state().codec.encode(0, &Message::EchoRequest(Vec::new())).unwrap_or_default()
    }

    /// Refuses a request: the bytes of the error.
    pub(super) fn refuse(&self, request: &[u8], code: ErrorCode) -> Vec<u8> {
        let xid = Header::read(request).map_or(0, |header| header.xid);
        self.state().codec.encode(xid, &error(code, request)).unwrap_or_default()
    }

    /// Answers a request: the bytes of all messages of the answer.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let codec = self.state().codec.clone();
        let (xid, result) = match codec.decode(bytes) {
            Ok(decoded) => (decoded.xid, self.handle(decoded.message, bytes)),
            Err(error) => (error.xid, Err(error.code)),
        };
        let answer = match result {
            Ok(None) => return Vec::new(),
            Ok(Some(message)) => message,
            Err(code) => error(code, bytes),
        };
        // The request may have changed the connection's settings, but not those of its answer.
        let last = lists::encode(&codec, xid, answer)
            .or_else(|| codec.encode(xid, &error(ErrorCode::RequestBadType, bytes)).ok())
            .unwrap_or_default();
        let mut all = std::mem::take(&mut self.belated);
        all.extend(last);
        all
    }

    fn handle(&mut self, message: Message, bytes: &[u8]) -> Result<Option<Message>, ErrorCode> {
        self.xid = Header::read(bytes).map_or(0, |header| header.xid);
        let service = &self.shared.service;
        if is_change(&message) && self.state().role == Role::Secondary {
            return Err(ErrorCode::RequestIsSecondary);
        }
        Ok(Some(match message {
            Message::EchoRequest(data) => Message::EchoReply(data),
            Message::FeaturesRequest => {
                let version = self.state().codec.version;
                Message::FeaturesReply(describe::features(service, version))
            }
            Message::GetConfigRequest => Message::GetConfigReply(self.state().config),
            Message::SetConfig(config) => {
                let mut state = self.state();
                state.wants_events |= config.miss_send_len > 0;
                state.config = config;
                return Ok(None);
            }
            Message::MultipartRequest(request) if request.more => {
                return Err(ErrorCode::RequestMultipartBufferOverflow);
            }
            Message::MultipartRequest(MultipartRequest { body: Request::FlowMonitor(all), .. }) => {
                self.monitor(self.xid, all)?;
                return Ok(None);
            }
            Message::MultipartRequest(request) => {
                // Not locked meanwhile: the dispatchers must not wait for control.
                let version = self.state().codec.version;
                let body = describe::answer(service, version, request.body)?;
                Message::MultipartReply(MultipartReply { more: false, body })
            }
            // Changes are in force before they are acknowledged.
            Message::BarrierRequest => Message::BarrierReply,
            Message::QueueGetConfigRequest(port) => {
                let asked = (port != PORT_ANY).then_some(port);
                Message::QueueGetConfigReply { port, queues: queues::configurations(service, asked, None)? }
            }
            Message::RoleRequest(request) => Message::RoleReply(self.set_role(request)?),
            Message::GetAsyncRequest => {
                let state = self.state();
                Message::GetAsyncReply(events::reported(state.codec.version, &state.asynchronous))
            }
            Message::BundleControl(request) => Message::BundleControl(self.bundle(request)?),
            Message::BundleAdd(request) => {
                self.add_to_bundle(request.bundle, *request.message, bytes)?;
                return Ok(None);
            }
            Message::TlvTableRequest => Message::TlvTableReply(options::table(&service.options())),
            Message::FlowMonitorCancel(id) => {
                self.cancel_monitor(id)?;
                return Ok(None);
            }
            other => return self.execute(other).map(|()| None),
        }))
    }

    /// Executes a request that has no answer.
    fn execute(&mut self, message: Message) -> Result<(), ErrorCode> {
        let service = &self.shared.service;
        match message {
            Message::FlowMod(request) => self.flow_mod(&request),
            Message::GroupMod(request) => {
                self.change(&Changes { groups: &[group_mod(request)?], ..Changes::default() })
            }
            Message::PacketOut(request) => self.packet_out(request),
            Message::PortMod(request) => {
                let version = self.state().codec.version;
                let ports = &[ports::change(service, version, &request)?];
                self.change(&Changes { ports, ..Changes::default() })
            }
            Message::TableMod(config) => self.table_mod(&config),
            Message::MeterMod(request) => {
                service.change_meters(&meters::change(&request), self.requester()).map_err(errors::of_meter)
            }
            Message::Resume(Resume(packet)) => self.resume(packet),
            Message::TlvTableMod(request) => self.map_options(&request),
            Message::CtFlushZone(zone) => service.flush_connections(&connections::of_zone(zone)),
            Message::CtFlush(request) => service.flush_connections(&connections::wanted(&request)),
            other => self.set(other),
        }
    }

    /// Changes whether rules of a table make room for new ones, and the events of its free space.
    fn table_mod(&self, config: &TableConfig) -> Result<(), ErrorCode> {
        let has_eviction = self.state().codec.version >= Version::OpenFlow14;
        let known = if has_eviction { TABLE_EVICTION | TABLE_VACANCY } else { 0 };
        if config.config & !known != 0 {
            return Err(ErrorCode::TableModNotPermitted);
        }
        if !has_eviction {
            return Ok(());
        }
        let table = (config.table != 0xff).then_some(config.table);
        let limits = config.vacancy.map(|Vacancy { down, up, .. }| VacancyLimits { down, up });
        if limits.is_some_and(|limits| limits.down > limits.up || limits.up > 100) {
            return Err(ErrorCode::PropertyBadValue);
        }
        let none = VacancyLimits { down: 0, up: 0 };
        let vacancy = (config.config & TABLE_VACANCY != 0).then(|| limits.unwrap_or(none));
        let evicts = config.config & TABLE_EVICTION != 0;
        let done = self.shared.service.set_table(table, evicts, vacancy);
        done.map_err(|_| ErrorCode::TableModBadTable)
    }

    /// Changes the fields of tunnel options, whose bytes in the messages of all connections follow.
    fn map_options(&self, request: &TlvTableMod) -> Result<(), ErrorCode> {
        let changed = self.shared.service.change_options(&options::change(request), self.requester());
        changed.map_err(errors::of_options)?;
        self.take_option_bytes();
        Ok(())
    }

    /// Has the codecs of connections follow the map of tunnel options.
    pub(super) fn take_option_bytes(&self) {
        let Shared { service, subscribers, .. } = &*self.shared;
        subscribers.set_option_bytes(&self.state, || options::bytes(&service.options()));
    }

    /// Changes a setting of the connection.
    fn set(&mut self, message: Message) -> Result<(), ErrorCode> {
        let mut state = self.state();
        match message {
            Message::SetAsync(config) => events::set(&mut state.asynchronous, &config),
            Message::SetPacketInFormat(format) => state.packet_in_format = format,
            Message::FlowModTableId(names) => state.codec.flow_mod_table_id = names,
            Message::SetControllerId(id) => state.controller_id = id,
            // Replies have the layout of their request.
            Message::SetFlowFormat(format) => state.flow_format = format,
            // Replies have ages where Open vSwitch has them.
            Message::FlowAge => {}
            // Answers to what the switch has asked, and late greetings.
            Message::Hello(_) | Message::EchoReply(_) | Message::Error(_) => {}
            Message::Experimenter(_) => return Err(ErrorCode::RequestBadVendor),
            _ => return Err(ErrorCode::RequestBadType),
        }
        Ok(())
    }

    fn set_role(&mut self, request: RoleRequest) -> Result<RoleRequest, ErrorCode> {
        // One for all controllers, compared as serial numbers (OpenFlow 1.3.5, 6.3.4).
        let mut newest = self.shared.generation.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if matches!(request.role, Role::Primary | Role::Secondary)
            && let Some(generation) = request.generation_id
        {
            if newest.is_some_and(|before| (generation.wrapping_sub(before) as i64) < 0) {
                return Err(ErrorCode::RoleStale);
            }
            *newest = Some(generation);
        }
        let generation_id = newest.or(request.generation_id);
        // Locked until the role is set: of two requests at a time one is the former.
        if request.role == Role::Primary {
            let Shared { subscribers, notices, .. } = &*self.shared;
            subscribers.demote_others(&self.state, newest.unwrap_or(0), notices);
        }
        let mut state = self.state();
        if request.role != Role::NoChange {
            state.role = request.role;
        }
        Ok(RoleRequest { role: state.role, generation_id, ..request })
    }

    /// The present request, for monitors of the rules that it changes.
    pub(super) fn requester(&self) -> Requester {
        Requester { connection: self.connection, xid: self.xid }
    }

    pub(super) fn change(&self, changes: &Changes<'_>) -> Result<(), ErrorCode> {
        self.shared.service.change(changes, self.requester()).map_err(|error| errors::of_changes(&error))
    }

    fn resume(&self, packet: SentPacketIn) -> Result<(), ErrorCode> {
        if packet.data.len() > flowlane_capture::FRAME_MAX {
            return Err(ErrorCode::RequestBadLen);
        }
        let token = packets::token(&packet.continuation).ok_or(ErrorCode::NiciraResumeStale)?;
        match self.shared.service.resume(&token, packet.data, packet.metadata) {
            true => Ok(()),
            false => Err(ErrorCode::NiciraResumeStale),
        }
    }

    fn packet_out(&self, request: PacketOut) -> Result<(), ErrorCode> {
        let packet = packet_of(request)?;
        self.send_packet(packet).map_err(|error| errors::of_refusal(&error))
    }

    /// Executes the actions of a packet-out.
    pub(super) fn send_packet(&self, packet: PacketOut) -> Result<(), Refusal> {
        let in_port = packet.in_port();
        self.shared.service.packet_out(in_port, packet.data, packet.actions)
    }
}

/// Returns a packet-out as it is executed.
pub(super) fn packet_of(request: PacketOut) -> Result<PacketOut, ErrorCode> {
    if request.buffer_id.is_some() {
        return Err(ErrorCode::RequestBufferUnknown);
    }
    if request.data.len() > flowlane_capture::FRAME_MAX {
        return Err(ErrorCode::RequestBadLen);
    }
    // OFPP_TABLE, which only a packet-out may name: the tables decide.
    let to_tables = |action| match action {
        Action::Output(PortNo(0xfff9)) => Action::call(0),
        other => other,
    };
    let actions = request.actions.into_iter().map(to_tables).collect();
    Ok(PacketOut { actions, ..request })
}

/// Returns whether a request changes the switch or sends packets, which secondary controllers may not (OpenFlow 1.3.5, 6.3.4).
fn is_change(request: &Message) -> bool {
    use Message::{
        BundleAdd, BundleControl, CtFlush, CtFlushZone, FlowMod, GroupMod, MeterMod, PacketOut, PortMod,
        Resume, TableMod, TlvTableMod,
    };
    matches!(
        request,
        FlowMod(_)
            | GroupMod(_)
            | MeterMod(_)
            | PortMod(_)
            | TableMod(_)
            | TlvTableMod(_)
            | CtFlush(_)
            | CtFlushZone(_)
            | PacketOut(_)
            | Resume(_)
            | BundleControl(_)
            | BundleAdd(_)
    )
}

pub(super) fn error(code: ErrorCode, request: &[u8]) -> Message {
    let data = request[..request.len().min(ERROR_DATA)].to_vec();
    Message::Error(Error { kind: code.into(), data })
}

/// Checks a flow-mod of a version, and completes it.
pub(super) fn checked(request: &FlowModMessage, version: Version) -> Result<FlowMod, ErrorCode> {
    if request.buffer_id.is_some() {
        return Err(ErrorCode::RequestBufferUnknown);
    }
    let mut one = request.flow_mod.clone();
    if let Some(cookie) = one.new_cookie.filter(|_| one.command == Command::Add) {
        one.rule.cookie = cookie;
    }
    if !fits_tuple(&one.rule.matches) {
        return Err(ErrorCode::ActionMatchInconsistent);
    }
    let has_actions = !matches!(one.command, Command::Delete | Command::DeleteStrict);
    if has_actions && !is_consistent(&one.rule, version == Version::OpenFlow10) {
        return Err(ErrorCode::ActionMatchInconsistent);
    }
    Ok(one)
}

/// Returns whether packets that match are of the version of IP whose addresses of connections are matched.
fn fits_tuple(matches: &Match) -> bool {
    let is_matched = |fields: [Field; 2]| fields.into_iter().any(|field| matches.get(field).1 != 0);
    let is_of = |kind| {
        matches.get(Field::EthType) == (kind, 0xffff) || matches.get(Field::PacketType).0 == 1 << 16 | kind
    };
    (is_of(0x0800) || !is_matched([Field::CtIpv4Src, Field::CtIpv4Dst]))
        && (is_of(0x86dd) || !is_matched([Field::CtIpv6Src, Field::CtIpv6Dst]))
}

/// The change of groups that a message asks for.
pub(super) fn group_mod(request: SentMod) -> Result<GroupMod, ErrorCode> {
    let id = request.group;
    let buckets: Vec<Bucket> = request.buckets.iter().cloned().enumerate().map(bucket).collect();
    let group = |buckets| -> Result<Group, ErrorCode> {
        let selection = request.selection.as_ref().map_or(Ok(Selection::Default), selection)?;
        let basis = request.selection.as_ref().map_or(0, |selection| selection.parameter);
        Ok(Group { id, kind: request.kind, selection, basis, buckets })
    };
    Ok(match request.command {
        GroupCommand::Add => GroupMod::Add(group(buckets)?),
        GroupCommand::Modify => GroupMod::Modify(group(buckets)?),
        GroupCommand::AddOrModify => GroupMod::AddOrModify(group(buckets)?),
        GroupCommand::Delete => GroupMod::Delete((id != GROUP_ALL).then_some(id)),
        GroupCommand::InsertBuckets(place) => GroupMod::InsertBuckets { group: id, place, buckets },
        GroupCommand::RemoveBuckets(place) => GroupMod::RemoveBuckets { group: id, place },
    })
}

/// A bucket; one without a number gets its place.
fn bucket((place, bucket): (usize, Bucket)) -> Bucket {
    let id = if bucket.id <= Group::MAX { bucket.id } else { place as u32 };
    Bucket { id, ..bucket }
}

fn selection(sent: &SentSelection) -> Result<Selection, ErrorCode> {
    let field = |one: &flowlane_openflow::group::SelectionField| FieldRef::of_mask(one.field, one.mask);
    match sent.method.as_str() {
        "" => Ok(Selection::Default),
        "dp_hash" => Ok(Selection::DpHash),
        "hash" => {
            let fields: Option<Vec<FieldRef>> = sent.fields.iter().map(field).collect();
            fields.map(Selection::Hash).ok_or(ErrorCode::GroupModInvalidGroup)
        }
        _ => Err(ErrorCode::PropertyBadValue),
    }
}
