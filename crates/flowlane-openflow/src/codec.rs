//! Bytes to messages, and messages to bytes.

mod basic;
mod connections;
mod control;
mod flow_stats;
mod flows;
mod groups;
mod kind;
mod meters;
mod monitor;
mod multipart;
mod nicira;
mod packets;
mod ports;
mod queues;
mod tables;

use flowlane::PortNo;

use crate::action::{NICIRA, ONF, put_port10, put_port32};
use crate::error::ErrorCode;
use crate::header::{HEADER_BYTES, Header};
use crate::message::{BundleAdd, Message};
use crate::oxm::port_of_32;
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};
use kind::Kind;

/// A message with its identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// The identifier, which replies have, too.
    pub xid: u32,
    /// The message.
    pub message: Message,
}

/// A failure to read a message: the error to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code} of message {xid:#x}")]
pub struct DecodeError {
    /// The error.
    pub code: ErrorCode,
    /// The identifier of the message.
    pub xid: u32,
}

/// A failure to write a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The version has no such message, field or action.
    #[error("OpenFlow version {0:?} has no message for this")]
    Missing(Version),
    /// The message is longer than 64 KiB, or an action of it is.
    #[error("a message has at most 65,535 bytes")]
    TooLong,
}

impl Codec {
    /// Decodes one message, as [`split`](crate::split) returns it.
    ///
    /// # Errors
    /// The error that Open vSwitch would send.
    pub fn decode(&self, bytes: &[u8]) -> Result<Decoded, DecodeError> {
        let xid = Header::read(bytes).map_or(0, |header| header.xid);
        match read_message(self, bytes) {
            Ok(message) => Ok(Decoded { xid, message }),
            Err(code) => Err(DecodeError { code, xid }),
        }
    }

    /// Encodes a message: one, or for a long [`MultipartReply`](crate::message::MultipartReply) several one behind the other.
    ///
    /// # Errors
    /// A message that the version lacks, or that is too long.
    pub fn encode(&self, xid: u32, message: &Message) -> Result<Vec<u8>, EncodeError> {
        if let Message::MultipartReply(reply) = message {
            return multipart::put_reply(self, xid, reply);
        }
        let mut w = Writer::default();
        put_any(&mut w, self, xid, message)?;
        Ok(w.bytes)
    }
}

/// Decodes one message of the version that its header names, on a connection without settings of its own.
///
/// # Errors
/// The error that Open vSwitch would send.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let header = Header::read(bytes);
    let version = header.and_then(|header| Version::of_number(header.version));
    Codec::new(version.unwrap_or(Version::OpenFlow15)).decode(bytes)
}

/// Encodes a message, on a connection without settings of its own.
///
/// # Errors
/// A message that the version lacks, or that is too long.
pub fn encode(version: Version, xid: u32, message: &Message) -> Result<Vec<u8>, EncodeError> {
    Codec::new(version).encode(xid, message)
}

fn read_message(codec: &Codec, bytes: &[u8]) -> Result<Message, ErrorCode> {
    let header = Header::read(bytes).ok_or(ErrorCode::RequestBadLen)?;
    if usize::from(header.length) != bytes.len() {
        return Err(ErrorCode::RequestBadLen);
    }
    let mut r = Reader::new(&bytes[HEADER_BYTES..], ErrorCode::RequestBadLen);
    if header.kind == 0 {
        return Ok(Message::Hello(basic::read_hello(header.version, &mut r)));
    }
    if header.version != codec.version.number() {
        return Err(ErrorCode::RequestBadVersion);
    }
    let kind = Kind::of_number(codec.version, header.kind).ok_or(ErrorCode::RequestBadType)?;
    read_body(codec, kind, header.xid, &mut r)
}

fn read_body(codec: &Codec, kind: Kind, xid: u32, r: &mut Reader<'_>) -> Result<Message, ErrorCode> {
    let message = match kind {
        Kind::Hello => Message::Hello(basic::read_hello(codec.version.number(), r)),
        Kind::Error => Message::Error(basic::read_error(codec.version, r)?),
        Kind::EchoRequest => Message::EchoRequest(r.take_rest().to_vec()),
        Kind::EchoReply => Message::EchoReply(r.take_rest().to_vec()),
        Kind::Experimenter => nicira::read(codec, xid, r)?,
        Kind::FeaturesRequest => Message::FeaturesRequest,
        Kind::FeaturesReply => Message::FeaturesReply(basic::read_features(codec, r)?),
        Kind::GetConfigRequest => Message::GetConfigRequest,
        Kind::GetConfigReply => Message::GetConfigReply(basic::read_config(r)?),
        Kind::SetConfig => Message::SetConfig(basic::read_new_config(codec, r)?),
        Kind::PacketIn => Message::PacketIn(packets::read_in(codec, r)?),
        Kind::FlowRemoved => Message::FlowRemoved(flows::read_removed(codec, r)?),
        Kind::PortStatus => Message::PortStatus(ports::read_status(codec, r)?),
        Kind::PacketOut => Message::PacketOut(packets::read_out(codec, r)?),
        Kind::FlowMod => Message::FlowMod(flows::read_mod(codec, r)?),
        Kind::GroupMod => Message::GroupMod(groups::read_mod(codec, r)?),
        Kind::PortMod => Message::PortMod(ports::read_mod(codec, r)?),
        Kind::TableMod => Message::TableMod(tables::read_mod(codec, r)?),
        Kind::TableStatus => Message::TableStatus(tables::read_status(r)?),
        Kind::MultipartRequest => Message::MultipartRequest(multipart::read_request(codec, r)?),
        Kind::MultipartReply => Message::MultipartReply(multipart::read_reply(codec, r)?),
        Kind::BarrierRequest => Message::BarrierRequest,
        Kind::BarrierReply => Message::BarrierReply,
        Kind::QueueGetConfigRequest => {
            let port = read_port(codec, r)?;
            r.skip(if codec.is_10() { 2 } else { 4 })?;
            Message::QueueGetConfigRequest(port)
        }
        Kind::QueueGetConfigReply => {
            let (port, queues) = queues::read_reply(codec, r)?;
            Message::QueueGetConfigReply { port, queues }
        }
        Kind::RoleRequest => Message::RoleRequest(control::read_role(codec, r)?),
        Kind::RoleReply => Message::RoleReply(control::read_role(codec, r)?),
        Kind::GetAsyncRequest => Message::GetAsyncRequest,
        Kind::GetAsyncReply => Message::GetAsyncReply(read_async(codec, r)?),
        Kind::SetAsync => Message::SetAsync(read_async(codec, r)?),
        Kind::MeterMod => Message::MeterMod(meters::read_mod(r)?),
        Kind::RoleStatus => Message::RoleStatus(control::read_role_status(r)?),
        Kind::BundleControl => Message::BundleControl(control::read_bundle(r)?),
        Kind::BundleAdd => read_bundle_add(codec, xid, r)?,
    };
    r.end()?;
    Ok(message)
}

fn read_async(codec: &Codec, r: &mut Reader<'_>) -> Result<crate::message::AsyncConfig, ErrorCode> {
    match codec.version < Version::OpenFlow14 {
        true => control::read_masks(r),
        false => control::read_properties(r),
    }
}

/// Reads a message that is added to a bundle (OpenFlow 1.4.1 7.3.9.6, ONF extension 230).
fn read_bundle_add(codec: &Codec, xid: u32, r: &mut Reader<'_>) -> Result<Message, ErrorCode> {
    let bundle = r.u32()?;
    r.skip(2)?;
    let (atomic, ordered) = control::read_flags(r)?;
    let header = Header::read(r.rest()).ok_or(ErrorCode::BundleMsgBadLen)?;
    if usize::from(header.length) < HEADER_BYTES {
        return Err(ErrorCode::BundleMsgBadLen);
    }
    let bytes = r.take(header.length.into()).map_err(|_| ErrorCode::BundleMsgBadLen)?;
    // Properties may follow.
    r.take_rest();
    if header.xid != xid {
        return Err(ErrorCode::BundleMsgBadXid);
    }
    if header.version != codec.version.number() {
        return Err(ErrorCode::RequestBadVersion);
    }
    let kind = Kind::of_number(codec.version, header.kind).ok_or(ErrorCode::RequestBadType)?;
    if !matches!(kind, Kind::FlowMod | Kind::GroupMod | Kind::PortMod | Kind::PacketOut) {
        return Err(ErrorCode::BundleMsgUnsup);
    }
    let message = Box::new(read_message(codec, bytes)?);
    Ok(Message::BundleAdd(BundleAdd { bundle, atomic, ordered, message }))
}

/// Writes a message with its header.
fn put_message(
    w: &mut Writer,
    version: u8,
    number: u8,
    xid: u32,
    body: impl FnOnce(&mut Writer) -> Result<(), Failed>,
) -> Result<(), EncodeError> {
    let start = w.len();
    w.u8(version).u8(number).u16(0).u32(xid);
    let missing = Version::of_number(version).unwrap_or(Version::OpenFlow10);
    body(w).map_err(|_| EncodeError::Missing(missing))?;
    let length = u16::try_from(w.len() - start).map_err(|_| EncodeError::TooLong)?;
    w.set_u16(start + 2, length);
    Ok(())
}

/// Writes any message but a reply, which may be several.
fn put_any(w: &mut Writer, codec: &Codec, xid: u32, message: &Message) -> Result<(), EncodeError> {
    let version = codec.version.number();
    let experimenter = Kind::Experimenter.number(codec.version).unwrap_or_default();
    if let Message::Hello(hello) = message {
        return put_message(w, basic::hello_version(*hello), 0, xid, |w| {
            basic::put_hello(w, *hello);
            Ok(())
        });
    }
    if let Some(number) = nicira::number(codec, message) {
        return put_message(w, version, experimenter, xid, |w| {
            w.u32(NICIRA).u32(number);
            nicira::put(w, codec, number, message)
        });
    }
    if let Some(number) = nicira::onf_number(codec, message) {
        return put_message(w, version, experimenter, xid, |w| {
            w.u32(ONF).u32(number);
            put_body(w, codec, xid, message)
        });
    }
    let number = kind_of(message).and_then(|kind| kind.number(codec.version));
    let number = number.ok_or(EncodeError::Missing(codec.version))?;
    put_message(w, version, number, xid, |w| put_body(w, codec, xid, message))
}

/// The type of a message that is a version's own.
fn kind_of(message: &Message) -> Option<Kind> {
    Some(match message {
        Message::Hello(_) => Kind::Hello,
        Message::Error(_) => Kind::Error,
        Message::EchoRequest(_) => Kind::EchoRequest,
        Message::EchoReply(_) => Kind::EchoReply,
        Message::Experimenter(_) => Kind::Experimenter,
        Message::FeaturesRequest => Kind::FeaturesRequest,
        Message::FeaturesReply(_) => Kind::FeaturesReply,
        Message::GetConfigRequest => Kind::GetConfigRequest,
        Message::GetConfigReply(_) => Kind::GetConfigReply,
        Message::SetConfig(_) => Kind::SetConfig,
        Message::PacketIn(_) => Kind::PacketIn,
        Message::FlowRemoved(_) => Kind::FlowRemoved,
        Message::PortStatus(_) => Kind::PortStatus,
        Message::PacketOut(_) => Kind::PacketOut,
        Message::FlowMod(_) => Kind::FlowMod,
        Message::GroupMod(_) => Kind::GroupMod,
        Message::PortMod(_) => Kind::PortMod,
        Message::TableMod(_) => Kind::TableMod,
        Message::TableStatus(_) => Kind::TableStatus,
        Message::MeterMod(_) => Kind::MeterMod,
        Message::MultipartRequest(_) => Kind::MultipartRequest,
        Message::MultipartReply(_) => Kind::MultipartReply,
        Message::BarrierRequest => Kind::BarrierRequest,
        Message::BarrierReply => Kind::BarrierReply,
        Message::QueueGetConfigRequest(_) => Kind::QueueGetConfigRequest,
        Message::QueueGetConfigReply { .. } => Kind::QueueGetConfigReply,
        Message::RoleRequest(_) => Kind::RoleRequest,
        Message::RoleReply(_) => Kind::RoleReply,
        Message::RoleStatus(_) => Kind::RoleStatus,
        Message::GetAsyncRequest => Kind::GetAsyncRequest,
        Message::GetAsyncReply(_) => Kind::GetAsyncReply,
        Message::SetAsync(_) => Kind::SetAsync,
        Message::BundleControl(_) => Kind::BundleControl,
        Message::BundleAdd(_) => Kind::BundleAdd,
        Message::SetFlowFormat(_)
        | Message::SetPacketInFormat(_)
        | Message::FlowModTableId(_)
        | Message::SetControllerId(_)
        | Message::FlowAge
        | Message::Resume(_)
        | Message::TlvTableMod(_)
        | Message::TlvTableRequest
        | Message::TlvTableReply(_)
        | Message::CtFlushZone(_)
        | Message::CtFlush(_)
        | Message::FlowMonitorCancel(_)
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed => return None,
    })
}

fn put_body(w: &mut Writer, codec: &Codec, xid: u32, message: &Message) -> Result<(), Failed> {
    match message {
        Message::Error(error) => basic::put_error(w, codec.version, error),
        Message::EchoRequest(data) | Message::EchoReply(data) => _ = w.put(data),
        Message::Experimenter(other) => {
            w.u32(other.experimenter);
            if !codec.is_10() || other.kind != 0 || !other.data.is_empty() {
                w.u32(other.kind);
            }
            w.put(&other.data);
        }
        Message::FeaturesReply(features) => basic::put_features(w, codec, features)?,
        Message::GetConfigReply(config) | Message::SetConfig(config) => basic::put_config(w, *config),
        Message::PacketIn(packet) => packets::put_in(w, codec, packet)?,
        Message::FlowRemoved(removed) => flows::put_removed(w, codec, removed)?,
        Message::PortStatus(status) => ports::put_status(w, codec, status),
        Message::PacketOut(packet) => packets::put_out(w, codec, packet)?,
        Message::FlowMod(change) => flows::put_mod(w, codec, change)?,
        Message::GroupMod(change) => groups::put_mod(w, codec, change)?,
        Message::PortMod(change) => ports::put_mod(w, codec, change),
        Message::TableMod(config) => tables::put_mod(w, codec, config),
        Message::TableStatus(status) => tables::put_status(w, status),
        Message::MeterMod(change) => meters::put_mod(w, change),
        Message::MultipartRequest(request) => multipart::put_request(w, codec, request)?,
        Message::QueueGetConfigRequest(port) => {
            put_port(w, codec, *port);
            w.zeros(if codec.is_10() { 2 } else { 4 });
        }
        Message::QueueGetConfigReply { port, queues } => queues::put_reply(w, codec, *port, queues),
        Message::RoleRequest(role) | Message::RoleReply(role) => control::put_role(w, codec, role),
        Message::RoleStatus(status) => control::put_role_status(w, status),
        Message::GetAsyncReply(config) | Message::SetAsync(config) => {
            match codec.version < Version::OpenFlow14 {
                true => control::put_masks(w, config),
                false => control::put_properties(w, config),
            }
        }
        Message::BundleControl(_) | Message::BundleAdd(_) => put_bundle(w, codec, xid, message)?,
        Message::FlowMonitorCancel(id) => _ = w.u32(*id),
        // These have no body here: it is Nicira's, or there is none.
        Message::Hello(_)
        | Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::MultipartReply(_)
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest
        | Message::SetFlowFormat(_)
        | Message::SetPacketInFormat(_)
        | Message::FlowModTableId(_)
        | Message::SetControllerId(_)
        | Message::FlowAge
        | Message::Resume(_)
        | Message::TlvTableMod(_)
        | Message::TlvTableRequest
        | Message::TlvTableReply(_)
        | Message::CtFlushZone(_)
        | Message::CtFlush(_)
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed => {}
    }
    Ok(())
}

fn put_bundle(w: &mut Writer, codec: &Codec, xid: u32, message: &Message) -> Result<(), Failed> {
    if let Message::BundleControl(control) = message {
        control::put_bundle(w, control);
    }
    if let Message::BundleAdd(add) = message {
        w.u32(add.bundle).zeros(2).u16(control::flags(add.atomic, add.ordered));
        put_any(w, codec, xid, &add.message).map_err(|_| Failed)?;
    }
    Ok(())
}

/// Reads a port's number: 16 bits in OpenFlow 1.0, 32 later.
fn read_port(codec: &Codec, r: &mut Reader<'_>) -> Result<PortNo, ErrorCode> {
    match codec.is_10() {
        true => Ok(PortNo(r.u16()?.into())),
        false => port_of_32(r.u32()?).map(PortNo).ok_or(ErrorCode::ActionBadOutPort),
    }
}

fn put_port(w: &mut Writer, codec: &Codec, port: PortNo) {
    match codec.is_10() {
        true => w.u16(put_port10(Some(port))),
        false => w.u32(put_port32(Some(port))),
    };
}

/// Reads a port's number, which may mean any.
fn read_port_any(codec: &Codec, r: &mut Reader<'_>) -> Result<PortNo, ErrorCode> {
    read_port(codec, r)
}

/// The port that a number means, if not any (0xffff) or, in OpenFlow 1.0, all (0xfffc).
fn port_any(port: PortNo) -> Option<PortNo> {
    (port.0 != 0xffff && port.0 != 0xfffc).then_some(port)
}

fn put_port_any(w: &mut Writer, codec: &Codec, port: Option<PortNo>) {
    match codec.is_10() {
        true => w.u16(put_port10(port)),
        false => w.u32(put_port32(port)),
    };
}
