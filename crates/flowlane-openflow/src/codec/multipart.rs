//! Requests for statistics and descriptions, and replies of any length (OpenFlow 1.0 5.3.5, 1.3.5 7.3.5, nicira-ext).

use super::kind::Kind;
use super::{
    flow_stats, flows, groups, meters, monitor, port_any, ports, put_port_any, queues, read_port_any, tables,
};
use crate::action::{NICIRA, ONF};
use crate::error::ErrorCode;
use crate::group::GROUP_ALL;
use crate::header::{HEADER_BYTES, MESSAGE_BYTES_MAX};
use crate::message::{Experimenter, MultipartReply, MultipartRequest, Reply, Request};
use crate::settings::Codec;
use crate::stats::{Description, FlowFormat};
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};
use flowlane::PortNo;

/// Numbers of the kinds (OpenFlow 1.3.5 7.3.5).
mod number {
    pub(super) const DESCRIPTION: u16 = 0;
    pub(super) const FLOW: u16 = 1;
    pub(super) const AGGREGATE: u16 = 2;
    pub(super) const TABLE: u16 = 3;
    pub(super) const PORT: u16 = 4;
    pub(super) const QUEUE: u16 = 5;
    pub(super) const GROUP: u16 = 6;
    pub(super) const GROUP_DESCRIPTION: u16 = 7;
    pub(super) const GROUP_FEATURES: u16 = 8;
    pub(super) const METER: u16 = 9;
    pub(super) const METER_CONFIG: u16 = 10;
    pub(super) const METER_FEATURES: u16 = 11;
    pub(super) const TABLE_FEATURES: u16 = 12;
    pub(super) const PORT_DESCRIPTION: u16 = 13;
    pub(super) const TABLE_DESCRIPTION: u16 = 14;
    pub(super) const QUEUE_DESCRIPTION: u16 = 15;
    pub(super) const FLOW_MONITOR: u16 = 16;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}

/// Numbers of Nicira's kinds.
mod nicira {
    pub(super) const FLOW: u32 = 0;
    pub(super) const AGGREGATE: u32 = 1;
    pub(super) const FLOW_MONITOR: u32 = 2;
    pub(super) const GROUP: u32 = 7;
    pub(super) const GROUP_DESCRIPTION: u32 = 8;
    pub(super) const GROUP_FEATURES: u32 = 9;
}

/// A kind, by its number or an experimenter's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Own(u16),
    Nicira(u32),
    Other(u32, u32),
}

fn read_head(codec: &Codec, r: &mut Reader<'_>) -> Result<(Of, bool), ErrorCode> {
    let (kind, flags) = (r.u16()?, r.u16()?);
    if !codec.is_10() {
        r.skip(4)?;
    }
    let more = flags & 1 != 0;
    if kind != number::EXPERIMENTER {
        return Ok((Of::Own(kind), more));
    }
    let experimenter = r.u32()?;
    // Nicira's numbers in OpenFlow 1.0 have padding behind them.
    let kind = match (codec.is_10(), experimenter) {
        (true, NICIRA) => {
            let kind = r.u32()?;
            r.skip(4)?;
            kind
        }
        (true, _) => 0,
        (false, _) => r.u32()?,
    };
    let of = if experimenter == NICIRA { Of::Nicira(kind) } else { Of::Other(experimenter, kind) };
    Ok((of, more))
}

fn put_head(w: &mut Writer, codec: &Codec, of: Of, more: bool) {
    let (kind, experimenter) = match of {
        Of::Own(kind) => (kind, None),
        Of::Nicira(kind) => (number::EXPERIMENTER, Some((NICIRA, kind))),
        Of::Other(experimenter, kind) => (number::EXPERIMENTER, Some((experimenter, kind))),
    };
    w.u16(kind).u16(u16::from(more));
    if !codec.is_10() {
        w.zeros(4);
    }
    match experimenter {
        Some((NICIRA, kind)) if codec.is_10() => _ = w.u32(NICIRA).u32(kind).zeros(4),
        Some((experimenter, _)) if codec.is_10() => _ = w.u32(experimenter),
        Some((experimenter, kind)) => _ = w.u32(experimenter).u32(kind),
        None => {}
    }
}

/// Returns whether a version has a kind.
fn has(codec: &Codec, kind: u16) -> bool {
    match codec.version {
        Version::OpenFlow10 => kind <= number::QUEUE || kind == number::PORT_DESCRIPTION,
        Version::OpenFlow13 => kind <= number::PORT_DESCRIPTION,
        Version::OpenFlow14 | Version::OpenFlow15 => kind <= number::FLOW_MONITOR,
    }
}

/// Reads a list up to the end of a message.
fn list<T>(
    r: &mut Reader<'_>,
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T, ErrorCode>,
) -> Result<Vec<T>, ErrorCode> {
    let mut items = Vec::new();
    while !r.is_empty() {
        items.push(item(r)?);
    }
    Ok(items)
}

/// A number, and four bytes of padding.
fn padded(r: &mut Reader<'_>) -> Result<u32, ErrorCode> {
    let number = r.u32()?;
    r.skip(4)?;
    Ok(number)
}

/// The port of a request for ports.
fn read_port_of(codec: &Codec, r: &mut Reader<'_>) -> Result<Option<PortNo>, ErrorCode> {
    let port = port_any(read_port_any(codec, r)?);
    r.skip(if codec.is_10() { 6 } else { 4 })?;
    Ok(port)
}

/// Reads a request.
pub(super) fn read_request(codec: &Codec, r: &mut Reader<'_>) -> Result<MultipartRequest, ErrorCode> {
    let (of, more) = read_head(codec, r)?;
    let body = match of {
        Of::Own(kind) if has(codec, kind) => read_own_request(codec, kind, r)?,
        Of::Own(_) => return Err(ErrorCode::RequestBadStat),
        Of::Nicira(nicira::FLOW) if codec.is_10() => Request::Flow(flows::read_nicira_request(codec, r)?),
        Of::Nicira(nicira::AGGREGATE) if codec.is_10() => {
            Request::Aggregate(flows::read_nicira_request(codec, r)?)
        }
        _ if is_monitor(codec, of) => Request::FlowMonitor(list(r, |r| monitor::read_request(codec, r))?),
        Of::Nicira(nicira::GROUP) if codec.is_10() => Request::Group(padded(r)?),
        Of::Nicira(nicira::GROUP_DESCRIPTION) if codec.is_10() => Request::GroupDescription(padded(r)?),
        Of::Nicira(nicira::GROUP_FEATURES) if codec.is_10() => Request::GroupFeatures,
        Of::Nicira(kind) => Request::Experimenter(other(NICIRA, kind, r)),
        Of::Other(experimenter, kind) => Request::Experimenter(other(experimenter, kind, r)),
    };
    Ok(MultipartRequest { more, body })
}

fn other(experimenter: u32, kind: u32, r: &mut Reader<'_>) -> Experimenter {
    Experimenter { experimenter, kind, data: r.take_rest().to_vec() }
}

fn read_own_request(codec: &Codec, kind: u16, r: &mut Reader<'_>) -> Result<Request, ErrorCode> {
    let is_15 = codec.version == Version::OpenFlow15;
    Ok(match kind {
        number::DESCRIPTION => Request::Description,
        number::FLOW => Request::Flow(flows::read_request(codec, r)?),
        number::AGGREGATE => Request::Aggregate(flows::read_request(codec, r)?),
        number::TABLE => Request::Table,
        number::PORT => Request::Port(read_port_of(codec, r)?),
        number::QUEUE => {
            let (port, queue) = ports::read_queue(codec, r)?;
            Request::Queue { port, queue }
        }
        number::GROUP => Request::Group(padded(r)?),
        number::GROUP_DESCRIPTION => Request::GroupDescription(if is_15 { padded(r)? } else { GROUP_ALL }),
        number::GROUP_FEATURES => Request::GroupFeatures,
        number::METER => Request::Meter(padded(r)?),
        number::METER_CONFIG => Request::MeterConfig(padded(r)?),
        number::METER_FEATURES => Request::MeterFeatures,
        number::TABLE_FEATURES => Request::TableFeatures(list(r, |r| tables::read_features(codec, r))?),
        number::PORT_DESCRIPTION => {
            Request::PortDescription(if is_15 { read_port_of(codec, r)? } else { None })
        }
        number::TABLE_DESCRIPTION => Request::TableDescription,
        number::QUEUE_DESCRIPTION => {
            let (port, queue) = ports::read_queue(codec, r)?;
            Request::QueueDescription { port, queue }
        }
        number::FLOW_MONITOR => Request::FlowMonitor(list(r, |r| monitor::read_request(codec, r))?),
        _ => return Err(ErrorCode::RequestBadStat),
    })
}

/// The kind by which a version asks.
fn of_request(codec: &Codec, body: &Request) -> Of {
    let is_10 = codec.is_10();
    match body {
        Request::Description => Of::Own(number::DESCRIPTION),
        Request::Flow(request) if is_10 && request.format == FlowFormat::Nxm => Of::Nicira(nicira::FLOW),
        Request::Flow(_) => Of::Own(number::FLOW),
        Request::Aggregate(request) if is_10 && request.format == FlowFormat::Nxm => {
            Of::Nicira(nicira::AGGREGATE)
        }
        Request::Aggregate(_) => Of::Own(number::AGGREGATE),
        Request::Table => Of::Own(number::TABLE),
        Request::Port(_) => Of::Own(number::PORT),
        Request::Queue { .. } => Of::Own(number::QUEUE),
        Request::Group(_) if is_10 => Of::Nicira(nicira::GROUP),
        Request::Group(_) => Of::Own(number::GROUP),
        Request::GroupDescription(_) if is_10 => Of::Nicira(nicira::GROUP_DESCRIPTION),
        Request::GroupDescription(_) => Of::Own(number::GROUP_DESCRIPTION),
        Request::GroupFeatures if is_10 => Of::Nicira(nicira::GROUP_FEATURES),
        Request::GroupFeatures => Of::Own(number::GROUP_FEATURES),
        Request::Meter(_) => Of::Own(number::METER),
        Request::MeterConfig(_) => Of::Own(number::METER_CONFIG),
        Request::MeterFeatures => Of::Own(number::METER_FEATURES),
        Request::TableFeatures(_) => Of::Own(number::TABLE_FEATURES),
        Request::PortDescription(_) => Of::Own(number::PORT_DESCRIPTION),
        Request::TableDescription => Of::Own(number::TABLE_DESCRIPTION),
        Request::QueueDescription { .. } => Of::Own(number::QUEUE_DESCRIPTION),
        Request::FlowMonitor(_) => of_monitor(codec),
        Request::Experimenter(other) => of_experimenter(other),
    }
}

/// The kind of monitors of flows.
fn of_monitor(codec: &Codec) -> Of {
    match codec.version {
        Version::OpenFlow10 => Of::Nicira(nicira::FLOW_MONITOR),
        Version::OpenFlow13 => Of::Other(ONF, monitor::ONF_MONITOR),
        Version::OpenFlow14 | Version::OpenFlow15 => Of::Own(number::FLOW_MONITOR),
    }
}

/// Returns whether a kind is that of an extension for monitors.
fn is_monitor(codec: &Codec, of: Of) -> bool {
    match of {
        Of::Nicira(nicira::FLOW_MONITOR) => codec.is_10(),
        Of::Other(ONF, monitor::ONF_MONITOR) => codec.version == Version::OpenFlow13,
        Of::Own(_) | Of::Nicira(_) | Of::Other(..) => false,
    }
}

fn of_experimenter(other: &Experimenter) -> Of {
    match other.experimenter {
        NICIRA => Of::Nicira(other.kind),
        experimenter => Of::Other(experimenter, other.kind),
    }
}

fn check(codec: &Codec, of: Of) -> Result<(), Failed> {
    match of {
        Of::Own(kind) if !has(codec, kind) => Err(Failed),
        Of::Own(_) | Of::Nicira(_) | Of::Other(..) => Ok(()),
    }
}

/// Writes a request.
pub(super) fn put_request(w: &mut Writer, codec: &Codec, request: &MultipartRequest) -> Result<(), Failed> {
    let is_15 = codec.version == Version::OpenFlow15;
    let of = of_request(codec, &request.body);
    check(codec, of)?;
    put_head(w, codec, of, request.more);
    let is_nicira = matches!(of, Of::Nicira(_));
    let put_port_of = |w: &mut Writer, port| {
        put_port_any(w, codec, port);
        w.zeros(if codec.is_10() { 6 } else { 4 });
    };
    match &request.body {
        Request::Description
        | Request::Table
        | Request::GroupFeatures
        | Request::MeterFeatures
        | Request::TableDescription => {}
        Request::Flow(request) | Request::Aggregate(request) => flows::put_request(w, codec, request)?,
        Request::Port(port) => put_port_of(w, *port),
        Request::Queue { port, queue } => ports::put_queue(w, codec, *port, *queue),
        Request::QueueDescription { port, queue } => ports::put_queue(w, codec, *port, *queue),
        Request::GroupDescription(group) if is_15 || is_nicira => _ = w.u32(*group).zeros(4),
        Request::GroupDescription(_) => {}
        Request::Group(number) | Request::Meter(number) | Request::MeterConfig(number) => {
            w.u32(*number).zeros(4);
        }
        Request::TableFeatures(tables) => {
            tables.iter().try_for_each(|table| tables::put_features(w, codec, table))?;
        }
        Request::PortDescription(port) if is_15 => put_port_of(w, *port),
        Request::PortDescription(_) => {}
        Request::FlowMonitor(all) => {
            all.iter().try_for_each(|request| monitor::put_request(w, codec, request))?;
        }
        Request::Experimenter(other) => _ = w.put(&other.data),
    }
    Ok(())
}

/// Reads a reply.
pub(super) fn read_reply(codec: &Codec, r: &mut Reader<'_>) -> Result<MultipartReply, ErrorCode> {
    let (of, more) = read_head(codec, r)?;
    let format = FlowFormat::Nxm;
    let body = match of {
        Of::Own(kind) if has(codec, kind) => read_own_reply(codec, kind, r)?,
        Of::Own(_) => return Err(ErrorCode::RequestBadStat),
        Of::Nicira(nicira::FLOW) if codec.is_10() => {
            Reply::Flow { format, flows: list(r, |r| flow_stats::read(codec, format, r))? }
        }
        Of::Nicira(nicira::AGGREGATE) if codec.is_10() => {
            Reply::Aggregate { format, stats: flows::read_aggregate(codec, r)? }
        }
        _ if is_monitor(codec, of) => Reply::FlowMonitor(list(r, |r| monitor::read_update(codec, r))?),
        Of::Nicira(nicira::GROUP) if codec.is_10() => Reply::Group(list(r, groups::read_stats)?),
        Of::Nicira(nicira::GROUP_DESCRIPTION) if codec.is_10() => {
            Reply::GroupDescription(list(r, |r| groups::read_description(codec, r))?)
        }
        Of::Nicira(nicira::GROUP_FEATURES) if codec.is_10() => {
            Reply::GroupFeatures(groups::read_features(r)?)
        }
        Of::Nicira(kind) => Reply::Experimenter(other(NICIRA, kind, r)),
        Of::Other(experimenter, kind) => Reply::Experimenter(other(experimenter, kind, r)),
    };
    Ok(MultipartReply { more, body })
}

fn read_own_reply(codec: &Codec, kind: u16, r: &mut Reader<'_>) -> Result<Reply, ErrorCode> {
    let format = FlowFormat::Standard;
    Ok(match kind {
        number::DESCRIPTION => Reply::Description(Description {
            manufacturer: r.text(256)?,
            hardware: r.text(256)?,
            software: r.text(256)?,
            serial: r.text(32)?,
            datapath: r.text(256)?,
        }),
        number::FLOW => Reply::Flow { format, flows: list(r, |r| flow_stats::read(codec, format, r))? },
        number::AGGREGATE => Reply::Aggregate { format, stats: flows::read_aggregate(codec, r)? },
        number::TABLE => Reply::Table(list(r, |r| tables::read_stats(codec, r))?),
        number::PORT => Reply::Port(list(r, |r| ports::read_stats(codec, r))?),
        number::QUEUE => Reply::Queue(list(r, |r| ports::read_queue_stats(codec, r))?),
        number::GROUP => Reply::Group(list(r, groups::read_stats)?),
        number::GROUP_DESCRIPTION => {
            Reply::GroupDescription(list(r, |r| groups::read_description(codec, r))?)
        }
        number::GROUP_FEATURES => Reply::GroupFeatures(groups::read_features(r)?),
        number::METER => Reply::Meter(list(r, meters::read_stats)?),
        number::METER_CONFIG => Reply::MeterConfig(list(r, meters::read_config)?),
        number::METER_FEATURES => Reply::MeterFeatures(meters::read_features(r)?),
        number::TABLE_FEATURES => Reply::TableFeatures(list(r, |r| tables::read_features(codec, r))?),
        number::PORT_DESCRIPTION => Reply::PortDescription(ports::read_descriptions(codec, r)?),
        number::TABLE_DESCRIPTION => Reply::TableDescription(list(r, tables::read_description)?),
        number::QUEUE_DESCRIPTION => {
            Reply::QueueDescription(list(r, |r| queues::read_description(codec, r))?)
        }
        number::FLOW_MONITOR => Reply::FlowMonitor(list(r, |r| monitor::read_update(codec, r))?),
        _ => return Err(ErrorCode::RequestBadStat),
    })
}

/// The kind by which a version answers.
fn of_reply(codec: &Codec, body: &Reply) -> Of {
    let is_10 = codec.is_10();
    match body {
        Reply::Description(_) => Of::Own(number::DESCRIPTION),
        Reply::Flow { format: FlowFormat::Nxm, .. } if is_10 => Of::Nicira(nicira::FLOW),
        Reply::Flow { .. } => Of::Own(number::FLOW),
        Reply::Aggregate { format: FlowFormat::Nxm, .. } if is_10 => Of::Nicira(nicira::AGGREGATE),
        Reply::Aggregate { .. } => Of::Own(number::AGGREGATE),
        Reply::Table(_) => Of::Own(number::TABLE),
        Reply::Port(_) => Of::Own(number::PORT),
        Reply::Queue(_) => Of::Own(number::QUEUE),
        Reply::Group(_) if is_10 => Of::Nicira(nicira::GROUP),
        Reply::Group(_) => Of::Own(number::GROUP),
        Reply::GroupDescription(_) if is_10 => Of::Nicira(nicira::GROUP_DESCRIPTION),
        Reply::GroupDescription(_) => Of::Own(number::GROUP_DESCRIPTION),
        Reply::GroupFeatures(_) if is_10 => Of::Nicira(nicira::GROUP_FEATURES),
        Reply::GroupFeatures(_) => Of::Own(number::GROUP_FEATURES),
        Reply::Meter(_) => Of::Own(number::METER),
        Reply::MeterConfig(_) => Of::Own(number::METER_CONFIG),
        Reply::MeterFeatures(_) => Of::Own(number::METER_FEATURES),
        Reply::TableFeatures(_) => Of::Own(number::TABLE_FEATURES),
        Reply::PortDescription(_) => Of::Own(number::PORT_DESCRIPTION),
        Reply::TableDescription(_) => Of::Own(number::TABLE_DESCRIPTION),
        Reply::QueueDescription(_) => Of::Own(number::QUEUE_DESCRIPTION),
        Reply::FlowMonitor(_) => of_monitor(codec),
        Reply::Experimenter(other) => of_experimenter(other),
    }
}

/// Writes each item of a list for itself.
fn items<T>(
    list: &[T],
    mut put: impl FnMut(&mut Writer, &T) -> Result<(), Failed>,
) -> Result<Vec<Vec<u8>>, Failed> {
    let one = |item| {
        let mut w = Writer::default();
        put(&mut w, item)?;
        Ok(w.bytes)
    };
    list.iter().map(one).collect()
}

/// Writes each item of a list that every version can write.
fn plain<T>(list: &[T], mut put: impl FnMut(&mut Writer, &T)) -> Vec<Vec<u8>> {
    let one = |item| {
        let mut w = Writer::default();
        put(&mut w, item);
        w.bytes
    };
    list.iter().map(one).collect()
}

/// The parts of a reply that no message may cut.
fn put_items(codec: &Codec, body: &Reply) -> Result<Vec<Vec<u8>>, Failed> {
    match body {
        Reply::Flow { format, flows } => items(flows, |w, flow| flow_stats::put(w, codec, *format, flow)),
        Reply::Table(list) => Ok(plain(list, |w, stats| tables::put_stats(w, codec, stats))),
        Reply::Port(list) => Ok(plain(list, |w, stats| ports::put_stats(w, codec, stats))),
        Reply::Queue(list) => Ok(plain(list, |w, stats| ports::put_queue_stats(w, codec, stats))),
        Reply::Group(list) => Ok(plain(list, groups::put_stats)),
        Reply::GroupDescription(list) => items(list, |w, group| groups::put_description(w, codec, group)),
        Reply::Meter(list) => Ok(plain(list, meters::put_stats)),
        Reply::MeterConfig(list) => Ok(plain(list, meters::put_config)),
        Reply::TableFeatures(list) => items(list, |w, table| tables::put_features(w, codec, table)),
        Reply::PortDescription(list) => Ok(plain(list, |w, port| ports::put_description(w, codec, port))),
        Reply::TableDescription(list) => Ok(plain(list, tables::put_description)),
        Reply::QueueDescription(list) => Ok(plain(list, |w, queue| queues::put_description(w, codec, queue))),
        Reply::FlowMonitor(list) => items(list, |w, update| monitor::put_update(w, codec, update)),
        Reply::Description(all) => Ok(single(|w| {
            w.text(&all.manufacturer, 256).text(&all.hardware, 256).text(&all.software, 256);
            w.text(&all.serial, 32).text(&all.datapath, 256);
        })),
        Reply::Aggregate { stats, .. } => Ok(single(|w| flows::put_aggregate(w, codec, stats))),
        Reply::GroupFeatures(features) => Ok(single(|w| groups::put_features(w, features))),
        Reply::MeterFeatures(features) => Ok(single(|w| meters::put_features(w, features))),
        Reply::Experimenter(other) => Ok(single(|w| _ = w.put(&other.data))),
    }
}

/// A body that is no list.
fn single(put: impl FnOnce(&mut Writer)) -> Vec<Vec<u8>> {
    let mut w = Writer::default();
    put(&mut w);
    vec![w.bytes]
}

/// Writes a reply: as many messages as its list needs, none longer than 64 KiB.
pub(super) fn put_reply(
    codec: &Codec,
    xid: u32,
    reply: &MultipartReply,
) -> Result<Vec<u8>, crate::EncodeError> {
    let missing = crate::EncodeError::Missing(codec.version);
    let of = of_reply(codec, &reply.body);
    check(codec, of).map_err(|_| missing)?;
    let items = put_items(codec, &reply.body).map_err(|_| missing)?;
    let mut head = Writer::default();
    put_head(&mut head, codec, of, false);
    let room = MESSAGE_BYTES_MAX - HEADER_BYTES - head.len();
    let mut parts = vec![Vec::new()];
    for item in items {
        if item.len() > room {
            return Err(crate::EncodeError::TooLong);
        }
        match parts.last_mut() {
            Some(part) if part.len() + item.len() <= room => part.extend(item),
            _ => parts.push(item),
        }
    }
    let mut w = Writer::default();
    let last = parts.len() - 1;
    for (n, part) in parts.iter().enumerate() {
        let number = Kind::MultipartReply.number(codec.version).ok_or(missing)?;
        super::put_message(&mut w, codec.version.number(), number, xid, |w| {
            put_head(w, codec, of, reply.more || n < last);
            w.put(part);
            Ok(())
        })?;
    }
    Ok(w.bytes)
}
