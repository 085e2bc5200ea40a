//! Messages that carry packets (OpenFlow 1.0 5.3.6 and 5.4.1, 1.3.5 7.3.7 and 7.4.1, 1.5.1 7.3.6, nicira-ext 17, 28 and 30).

use flowlane::{Field, Match};

use super::flows::NO_BUFFER;
use super::{put_port, read_port};
use crate::action::{put_actions, read_actions};
use crate::error::ErrorCode;
use crate::message::{PacketIn, PacketInFormat, PacketOut, reason};
use crate::oxm;
use crate::property;
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// Properties of Nicira's second packet-in.
mod kind {
    pub(super) const PACKET: u16 = 0;
    pub(super) const FULL_LEN: u16 = 1;
    pub(super) const BUFFER_ID: u16 = 2;
    pub(super) const TABLE: u16 = 3;
    pub(super) const COOKIE: u16 = 4;
    pub(super) const REASON: u16 = 5;
    pub(super) const METADATA: u16 = 6;
    pub(super) const USERDATA: u16 = 7;
    pub(super) const CONTINUATION: u16 = 8;
}

fn empty(format: PacketInFormat) -> PacketIn {
    PacketIn {
        format,
        reason: reason::NO_MATCH,
        table: 0,
        cookie: u64::MAX,
        buffer_id: None,
        total_len: 0,
        metadata: Match::any(),
        data: Vec::new(),
        userdata: Vec::new(),
        continuation: Vec::new(),
    }
}

fn buffer(number: u32) -> Option<u32> {
    (number != NO_BUFFER).then_some(number)
}

/// Reads a packet-in of a version's own.
pub(super) fn read_in(codec: &Codec, r: &mut Reader<'_>) -> Result<PacketIn, ErrorCode> {
    let mut packet = empty(PacketInFormat::Standard);
    (packet.buffer_id, packet.total_len) = (buffer(r.u32()?), r.u16()?.into());
    if codec.is_10() {
        packet.metadata.set(Field::InPort, read_port(codec, r)?.0.into());
        packet.reason = reason_in(codec, r.u8()?);
        r.skip(1)?;
    } else {
        (packet.reason, packet.table, packet.cookie) = (reason_in(codec, r.u8()?), r.u8()?, r.u64()?);
        packet.metadata = oxm::read_match(r)?;
        r.skip(2)?;
    }
    packet.data = r.take_rest().to_vec();
    Ok(packet)
}

/// Reads Nicira's first packet-in.
pub(super) fn read_nicira_in(codec: &Codec, r: &mut Reader<'_>) -> Result<PacketIn, ErrorCode> {
    let mut packet = empty(PacketInFormat::Nxt);
    (packet.buffer_id, packet.total_len) = (buffer(r.u32()?), r.u16()?.into());
    (packet.reason, packet.table, packet.cookie) = (reason_in(codec, r.u8()?), r.u8()?, r.u64()?);
    let bytes = usize::from(r.u16()?);
    r.skip(6)?;
    packet.metadata = oxm::read_nxm(r, bytes)?.0;
    r.skip(2)?;
    packet.data = r.take_rest().to_vec();
    Ok(packet)
}

/// Reads Nicira's second packet-in, which is properties.
pub(super) fn read_properties(r: &mut Reader<'_>) -> Result<PacketIn, ErrorCode> {
    let mut packet = empty(PacketInFormat::Nxt2);
    while !r.is_empty() {
        let (number, mut value) = property::read(r, ErrorCode::PropertyBadLen)?;
        match number {
            kind::PACKET => packet.data = value.take_rest().to_vec(),
            kind::FULL_LEN => packet.total_len = value.u32()?,
            kind::BUFFER_ID => packet.buffer_id = buffer(value.u32()?),
            kind::TABLE => packet.table = value.u8()?,
            kind::COOKIE => {
                value.skip(4)?;
                packet.cookie = value.u64()?;
            }
            kind::REASON => packet.reason = value.u8()?,
            kind::METADATA => packet.metadata = oxm::read_bare(value.take_rest())?,
            kind::USERDATA => packet.userdata = value.take_rest().to_vec(),
            kind::CONTINUATION => packet.continuation = value.take_rest().to_vec(),
            _ => return Err(ErrorCode::PropertyBadType),
        }
    }
    if packet.data.is_empty() {
        return Err(ErrorCode::RequestBadLen);
    }
    packet.total_len = packet.total_len.max(packet.data.len() as u32);
    Ok(packet)
}

/// The reason in a version: older ones have fewer.
fn reason_in(codec: &Codec, number: u8) -> u8 {
    let is_new = matches!(number, reason::ACTION_SET | reason::GROUP | reason::PACKET_OUT);
    if is_new && codec.version < Version::OpenFlow14 { reason::ACTION } else { number }
}

/// Writes a packet-in of a version's own.
pub(super) fn put_in(w: &mut Writer, codec: &Codec, packet: &PacketIn) -> Result<(), Failed> {
    w.u32(packet.buffer_id.unwrap_or(NO_BUFFER)).u16(packet.total_len.min(0xffff) as u16);
    if codec.is_10() {
        let port = packet.metadata.get(Field::InPort).0;
        w.u16(port as u16).u8(reason_in(codec, packet.reason)).zeros(1);
    } else {
        w.u8(reason_in(codec, packet.reason)).u8(packet.table).u64(packet.cookie);
        oxm::put_match(w, codec, &oxm::expressible(codec, &packet.metadata))?;
        w.zeros(2);
    }
    w.put(&packet.data);
    Ok(())
}

/// Writes Nicira's first packet-in.
pub(super) fn put_nicira_in(w: &mut Writer, codec: &Codec, packet: &PacketIn) -> Result<(), Failed> {
    w.u32(packet.buffer_id.unwrap_or(NO_BUFFER)).u16(packet.total_len.min(0xffff) as u16);
    w.u8(reason_in(codec, packet.reason)).u8(packet.table).u64(packet.cookie);
    let at = w.len();
    w.u16(0).zeros(6);
    let bytes = oxm::put_nxm(w, codec, &oxm::expressible(codec, &packet.metadata), None)?;
    w.set_u16(at, bytes);
    w.zeros(2).put(&packet.data);
    Ok(())
}

/// Writes Nicira's second packet-in: what has its default is left out.
pub(super) fn put_properties(w: &mut Writer, codec: &Codec, packet: &PacketIn) -> Result<(), Failed> {
    property::put(w, kind::PACKET, |w| _ = w.put(&packet.data));
    if packet.total_len as usize != packet.data.len() {
        property::put(w, kind::FULL_LEN, |w| _ = w.u32(packet.total_len));
    }
    if let Some(buffer) = packet.buffer_id {
        property::put(w, kind::BUFFER_ID, |w| _ = w.u32(buffer));
    }
    property::put(w, kind::TABLE, |w| _ = w.u8(packet.table));
    if packet.cookie != u64::MAX {
        property::put(w, kind::COOKIE, |w| _ = w.zeros(4).u64(packet.cookie));
    }
    property::put(w, kind::REASON, |w| _ = w.u8(packet.reason));
    let (mut done, metadata) = (Ok(()), oxm::expressible(codec, &packet.metadata));
    property::put(w, kind::METADATA, |w| done = oxm::put_bare(w, codec, &metadata, true));
    for (number, bytes) in [(kind::CONTINUATION, &packet.continuation), (kind::USERDATA, &packet.userdata)] {
        if !bytes.is_empty() {
            property::put(w, number, |w| _ = w.put(bytes));
        }
    }
    done
}

/// Reads a packet-out.
pub(super) fn read_out(codec: &Codec, r: &mut Reader<'_>) -> Result<PacketOut, ErrorCode> {
    let buffer_id = buffer(r.u32()?);
    let mut metadata = Match::any();
    let bytes;
    if codec.version == Version::OpenFlow15 {
        bytes = usize::from(r.u16()?);
        r.skip(2)?;
        metadata = oxm::read_match(r)?;
    } else {
        let port = read_port(codec, r)?;
        metadata.set(Field::InPort, port.0.into());
        bytes = usize::from(r.u16()?);
        if !codec.is_10() {
            r.skip(6)?;
        }
    }
    let port = metadata.get(Field::InPort);
    // Ports that are no source of packets.
    if port.1 == 0 || matches!(port.0, 0xff00..=0xfff7 | 0xfff9..=0xfffc) {
        return Err(ErrorCode::RequestBadPort);
    }
    let actions = read_actions(codec, r.take(bytes)?)?;
    Ok(PacketOut { buffer_id, metadata, actions, data: r.take_rest().to_vec() })
}

/// Writes a packet-out.
pub(super) fn put_out(w: &mut Writer, codec: &Codec, packet: &PacketOut) -> Result<(), Failed> {
    w.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    let at;
    if codec.version == Version::OpenFlow15 {
        at = w.len();
        w.zeros(4);
        oxm::put_match(w, codec, &packet.metadata)?;
    } else {
        put_port(w, codec, packet.in_port());
        at = w.len();
        w.zeros(if codec.is_10() { 2 } else { 8 });
    }
    let start = w.len();
    put_actions(w, codec, &packet.metadata, &packet.actions)?;
    w.set_length(at, start);
    w.put(&packet.data);
    Ok(())
}
