//! Packets from and to controllers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flowlane::packet::{Field, FieldClass, FlowKey};
use flowlane::rule::Match;
use flowlane_openflow::message::{Message, PacketIn as Sent, PacketInFormat, Role, RoleStatus, role_reason};
use flowlane_openflow::stats::FlowMonitorRequest;
use flowlane_openflow::{OPTIONS_MAX, Version, has_header};

use super::monitors::{Monitors, PAUSE_BYTES};
use super::outgoing::Outgoing;
use super::session::State;
use super::{Service, events};
use crate::control::Notice;
use crate::datapath::{PacketIn, PauseToken};
use crate::mgmt::rpc::Budget;

/// How long the dispatcher waits for packets before it looks whether the switch ends.
const PATIENCE: Duration = Duration::from_millis(100);

/// A connection that gets messages without asking.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) queue: Arc<Outgoing>,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) monitors: Mutex<Monitors>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Mutex<(u64, BTreeMap<u64, Subscriber>)>);

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Subscriber>)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn add(&self, subscriber: Subscriber) -> u64 {
        let (last, all) = &mut *self.lock();
        *last += 1;
        all.insert(*last, subscriber);
        *last
    }

    pub(super) fn remove(&self, id: u64) {
        self.lock().1.remove(&id);
    }

    pub(super) fn close_all(&self) {
        self.lock().1.clear();
    }

    /// Makes a primary controller the only one: the former becomes a secondary one, and is informed, whatever messages it wants, as
    /// by Open vSwitch. `generation_id` is the newest generation of roles.
    pub(super) fn demote_others(&self, own: &Arc<Mutex<State>>, generation_id: u64, budget: &Arc<Budget>) {
        for subscriber in self.lock().1.values().filter(|subscriber| !Arc::ptr_eq(&subscriber.state, own)) {
            let mut state = subscriber.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if state.role == Role::Primary {
                state.role = Role::Secondary;
                let (role, reason) = (state.role, role_reason::PRIMARY_REQUEST);
                let status = Message::RoleStatus(RoleStatus { role, reason, generation_id });
                // OpenFlow 1.0 has no message for it.
                let bytes = state.codec.encode(0, &status).ok();
                bytes.into_iter().for_each(|bytes| subscriber.queue.notice(bytes, budget));
            }
        }
    }

    /// Gives the codec of a connection, and those of all others, the bytes of the fields of tunnel options. These are read while no other
    /// map can be given to a connection.
    pub(super) fn set_option_bytes(
        &self,
        own: &Arc<Mutex<State>>,
        bytes: impl FnOnce() -> [u8; OPTIONS_MAX],
    ) {
        let all = self.lock();
        let bytes = bytes();
        for state in all.1.values().map(|subscriber| &subscriber.state).chain([own]) {
            state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).codec.option_bytes = bytes;
        }
    }

    /// Sends waiting packets to the controllers that they are for.
    pub(super) fn dispatch(&self, service: &Service) {
        for packet in service.packet_ins().take(PATIENCE) {
            for subscriber in self.lock().1.values() {
                let state = subscriber.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let bytes = state.wants_packet_in(&packet).then(|| message(&state, &packet)).flatten();
                drop(state);
                // A controller that does not read misses it.
                bytes.into_iter().for_each(|bytes| subscriber.queue.event(bytes));
            }
        }
    }

    /// Sends notices to the controllers that want them.
    pub(super) fn tell(&self, service: &Service, budget: &Arc<Budget>) {
        let (notices, lost) = service.notices().take(PATIENCE);
        for notice in &notices {
            self.monitor(notice, budget);
            let Some(change) = events::complete(service, notice) else { continue };
            for subscriber in self.lock().1.values() {
                let state = subscriber.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let bytes = events::message(&state, &change);
                drop(state);
                bytes.into_iter().for_each(|bytes| subscriber.queue.notice(bytes, budget));
            }
        }
        self.resume_monitors(budget);
        if lost {
            // None of them knows any more what there is.
            self.lock().1.values().for_each(|subscriber| subscriber.queue.abort());
        }
    }
}

impl Subscribers {
    /// Gives monitors of a connection a request whose place [comes](Notice::Reached) among the notices. Returns whether they take it.
    pub(super) fn expect_monitors(
        &self,
        connection: u64,
        xid: Option<u32>,
        requests: Vec<FlowMonitorRequest>,
    ) -> bool {
        let all = self.lock();
        all.1.get(&connection).is_some_and(|subscriber| subscriber.lock_monitors().expect(xid, requests))
    }

    /// Sends what a notice is for monitors.
    fn monitor(&self, notice: &Notice, budget: &Arc<Budget>) {
        let all = self.lock();
        match notice {
            Notice::Reached { connection, ruleset } => {
                if let Some(subscriber) = all.1.get(connection) {
                    let answer = subscriber.lock_monitors().reach(&subscriber.lock_state(), ruleset);
                    subscriber.queue.notice(answer, budget);
                }
            }
            Notice::RulesChanged { by, events } => {
                for (&connection, subscriber) in &all.1 {
                    let is_full = subscriber.queue.bytes() > PAUSE_BYTES;
                    let mut monitors = subscriber.lock_monitors();
                    let state = subscriber.lock_state();
                    match monitors.report(&state, *by, connection, events, is_full) {
                        Ok(bytes) => subscriber.queue.notice(bytes, budget),
                        Err(()) => subscriber.queue.abort(),
                    }
                }
            }
            Notice::FlowRemoved(_)
            | Notice::PortAdded { .. }
            | Notice::PortRemoved { .. }
            | Notice::PortChanged(..)
            | Notice::Vacancy { .. } => {}
        }
    }

    /// Resumes the monitors of controllers that have read all that waited.
    fn resume_monitors(&self, budget: &Arc<Budget>) {
        for subscriber in self.lock().1.values() {
            let mut monitors = subscriber.lock_monitors();
            if monitors.is_paused() && subscriber.queue.bytes() == 0 {
                let bytes = monitors.resume(&subscriber.lock_state());
                subscriber.queue.notice(bytes, budget);
            }
        }
    }
}

impl Subscriber {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_monitors(&self) -> MutexGuard<'_, Monitors> {
        self.monitors.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The message for a packet, as the connection has it.
fn message(state: &State, packet: &PacketIn) -> Option<Vec<u8>> {
    let action = &packet.to.action;
    let mut data = packet.bytes.clone();
    if packet.to.is_miss() {
        data.truncate(state.config.miss_send_len.into());
    }
    let has_metadata =
        state.codec.version != Version::OpenFlow10 || state.packet_in_format != PacketInFormat::Standard;
    let metadata = metadata(&packet.key, has_metadata);
    let message = Message::PacketIn(Sent {
        format: state.packet_in_format,
        reason: events::packet_in_reason(state.codec.version, &packet.to),
        table: packet.to.origin.table,
        cookie: packet.to.origin.cookie,
        buffer_id: None,
        total_len: packet.total_len as u32,
        metadata,
        data,
        userdata: action.userdata.clone(),
        continuation: packet.paused.as_ref().map(continuation).unwrap_or_default(),
    });
    state.codec.encode(0, &message).ok()
}

/// The metadata of a packet: its port, and if there is more to say all other fields in no header.
fn metadata(key: &FlowKey, has_more: bool) -> Match {
    let mut metadata = Match::any();
    metadata.set(Field::InPort, key.get(Field::InPort));
    if !has_more {
        return metadata;
    }
    let outside = [FieldClass::Metadata, FieldClass::Tunnel];
    let fields = Field::all().iter().filter(|info| outside.contains(&info.class)).map(|info| info.field);
    let present = key.get(Field::TunMetadataPresent);
    for field in fields.filter(|field| !matches!(field, Field::RecircId | Field::Malformed)) {
        let value = key.get(field);
        match field.tun_metadata_number().map(|number| 1 << number) {
            // An option may be there with a value of 0, and one that has been deleted keeps its value.
            Some(bit) if present & bit != 0 => {
                metadata.set(field, value).set_masked(Field::TunMetadataPresent, bit, bit);
            }
            None if value != 0 => _ = metadata.set(field, value),
            Some(_) | None => {}
        }
    }
    metadata
}

/// Adds the fields of a paused packet that its message could not have, such as the type of its tunnel.
pub(super) fn with_hidden(mut metadata: Match, key: &FlowKey) -> Match {
    let outside = [FieldClass::Metadata, FieldClass::Tunnel];
    let hidden = Field::all().iter().filter(|info| outside.contains(&info.class) && !has_header(info.field));
    for field in hidden.map(|info| info.field) {
        metadata.set(field, key.get(field));
    }
    metadata
}

/// The property of a continuation that has an identifier, which Open vSwitch has its bridge in: `ovs-ofctl` prints it.
const IDENTIFIER: [u8; 8] = [0, 0, 0, 0, 0x80, 0, 0, 20];

/// The continuation of a paused packet: properties behind padding, as Open vSwitch has them.
fn continuation(token: &PauseToken) -> Vec<u8> {
    [&IDENTIFIER[..], token, &[0; 4]].concat()
}

/// The token of a continuation.
pub(super) fn token(continuation: &[u8]) -> Option<PauseToken> {
    continuation.strip_prefix(&IDENTIFIER)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use flowlane_openflow::Codec;

    use super::*;

    /// The type of a tunnel has no header in OpenFlow: its packets are sent without, and resumed with it.
    #[test]
    fn messages_lack_some_fields_which_packets_keep() {
        let mut key = FlowKey::zero();
        for (field, value) in [(Field::InPort, 3), (Field::TunType, 2), (Field::TunId, 9), (Field::Reg4, 5)] {
            key.set(field, value);
        }
        for version in Version::ALL {
            let (codec, format) = (Codec::new(version), PacketInFormat::Nxt2);
            let packet = Sent {
                format,
                reason: 1,
                table: 0,
                cookie: 0,
                buffer_id: None,
                total_len: 4,
                metadata: metadata(&key, true),
                data: vec![1; 4],
                userdata: Vec::new(),
                continuation: Vec::new(),
            };
            let bytes = codec.encode(1, &Message::PacketIn(packet)).expect("it can be sent");
            let Message::PacketIn(packet) = codec.decode(&bytes).unwrap().message else { panic!("a packet") };
            let values = |metadata: &Match| {
                [Field::TunType, Field::TunId, Field::Reg4].map(|field| metadata.get(field).0)
            };
            assert_eq!(values(&packet.metadata), [0, 9, 5], "{version:?}");
            assert_eq!(values(&with_hidden(packet.metadata, &key)), [2, 9, 5], "{version:?}");
        }
    }
}
