//! Messages about options of tunnels and connections (nicira-ext 24 to 26, 29 and 32).

use std::net::{IpAddr, Ipv6Addr};

use crate::error::ErrorCode;
use crate::message::{CtFlush, CtTuple, TlvCommand, TlvMapping, TlvTable, TlvTableMod};
use crate::property;
use crate::wire::{Reader, Writer};

/// Reads a change of the map of tunnel options.
pub(super) fn read_tlv_mod(r: &mut Reader<'_>) -> Result<TlvTableMod, ErrorCode> {
    let command = match r.u16()? {
        0 => TlvCommand::Add,
        1 => TlvCommand::Delete,
        2 => TlvCommand::Clear,
        _ => return Err(ErrorCode::TlvTableBadCommand),
    };
    r.skip(6)?;
    Ok(TlvTableMod { command, mappings: read_mappings(r)? })
}

/// Writes a change of the map of tunnel options.
pub(super) fn put_tlv_mod(w: &mut Writer, change: &TlvTableMod) {
    let command = match change.command {
        TlvCommand::Add => 0,
        TlvCommand::Delete => 1,
        TlvCommand::Clear => 2,
    };
    w.u16(command).zeros(6);
    put_mappings(w, &change.mappings);
}

fn read_mappings(r: &mut Reader<'_>) -> Result<Vec<TlvMapping>, ErrorCode> {
    let mut mappings = Vec::new();
    while !r.is_empty() {
        let mapping = TlvMapping { class: r.u16()?, kind: r.u8()?, length: r.u8()?, index: r.u16()? };
        r.skip(2)?;
        if mapping.length == 0 || !mapping.length.is_multiple_of(4) || mapping.length > 124 {
            return Err(ErrorCode::TlvTableBadOptLen);
        }
        if mapping.index >= 64 {
            return Err(ErrorCode::TlvTableBadFieldIdx);
        }
        mappings.push(mapping);
    }
    Ok(mappings)
}

fn put_mappings(w: &mut Writer, mappings: &[TlvMapping]) {
    for TlvMapping { class, kind, length, index } in mappings {
        w.u16(*class).u8(*kind).u8(*length).u16(*index).zeros(2);
    }
}

/// Reads the map of tunnel options.
pub(super) fn read_tlv_table(r: &mut Reader<'_>) -> Result<TlvTable, ErrorCode> {
    let (space_max, fields_max) = (r.u32()?, r.u16()?);
    r.skip(10)?;
    Ok(TlvTable { space_max, fields_max, mappings: read_mappings(r)? })
}

/// Writes the map of tunnel options.
pub(super) fn put_tlv_table(w: &mut Writer, table: &TlvTable) {
    w.u32(table.space_max).u16(table.fields_max).zeros(10);
    put_mappings(w, &table.mappings);
}

/// Properties of the message that forgets connections.
mod flush {
    pub(super) const ORIGINAL: u16 = 0;
    pub(super) const REPLY: u16 = 1;
    pub(super) const ZONE: u16 = 2;
    pub(super) const MARK: u16 = 3;
    pub(super) const MARK_MASK: u16 = 4;
    pub(super) const LABEL: u16 = 5;
    pub(super) const LABEL_MASK: u16 = 6;
}

/// Properties of a direction.
mod tuple {
    pub(super) const SOURCE: u16 = 0;
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const SOURCE_PORT: u16 = 2;
    pub(super) const DESTINATION_PORT: u16 = 3;
    pub(super) const ICMP_ID: u16 = 4;
    pub(super) const ICMP_TYPE: u16 = 5;
    pub(super) const ICMP_CODE: u16 = 6;
}

/// Reads the message that forgets connections.
pub(super) fn read_flush(r: &mut Reader<'_>) -> Result<CtFlush, ErrorCode> {
    let mut all = CtFlush { protocol: r.u8()?, ..CtFlush::default() };
    r.zeros(7, ErrorCode::NiciraRequestMustBeZero)?;
    let (mut mark, mut label) = ((None, None), (None, None));
    while !r.is_empty() {
        let (kind, mut value) = property::read(r, ErrorCode::PropertyBadLen)?;
        match kind {
            flush::ORIGINAL => all.original = Some(read_tuple(&mut value)?),
            flush::REPLY => all.reply = Some(read_tuple(&mut value)?),
            flush::ZONE => all.zone = Some(value.u16()?),
            flush::MARK => mark.0 = Some(value.u32()?),
            flush::MARK_MASK => mark.1 = Some(value.u32()?),
            flush::LABEL => label.0 = Some(read_label(&mut value)?),
            flush::LABEL_MASK => label.1 = Some(read_label(&mut value)?),
            _ => return Err(ErrorCode::PropertyBadType),
        }
    }
    all.mark = mark.0.map(|value| (value, mark.1.unwrap_or(u32::MAX)));
    all.label = label.0.map(|value| (value, label.1.unwrap_or(u128::MAX)));
    Ok(all)
}

/// A label of 128 bits; the property may have padding in front.
fn read_label(r: &mut Reader<'_>) -> Result<u128, ErrorCode> {
    r.skip(r.len().saturating_sub(16))?;
    Ok(u128::from_be_bytes(r.array()?))
}

fn read_tuple(r: &mut Reader<'_>) -> Result<CtTuple, ErrorCode> {
    let mut all = CtTuple::default();
    // Nested properties begin at a multiple of 8 bytes.
    r.skip(4)?;
    while !r.is_empty() {
        let (kind, mut value) = property::read(r, ErrorCode::PropertyBadLen)?;
        match kind {
            tuple::SOURCE => all.source = Some(read_address(&mut value)?),
            tuple::DESTINATION => all.destination = Some(read_address(&mut value)?),
            tuple::SOURCE_PORT => all.source_port = Some(value.u16()?),
            tuple::DESTINATION_PORT => all.destination_port = Some(value.u16()?),
            tuple::ICMP_ID => all.icmp_id = Some(value.u16()?),
            tuple::ICMP_TYPE => all.icmp_type = Some(value.u8()?),
            tuple::ICMP_CODE => all.icmp_code = Some(value.u8()?),
            _ => return Err(ErrorCode::PropertyBadType),
        }
    }
    Ok(all)
}

/// Addresses of IPv4 are sent as those of IPv6 (RFC 4291 2.5.5.2).
fn read_address(r: &mut Reader<'_>) -> Result<IpAddr, ErrorCode> {
    let address = Ipv6Addr::from(r.array::<16>()?);
    Ok(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
}

/// Writes the message that forgets connections.
pub(super) fn put_flush(w: &mut Writer, all: &CtFlush) {
    w.u8(all.protocol).zeros(7);
    for (kind, direction) in [(flush::ORIGINAL, &all.original), (flush::REPLY, &all.reply)] {
        if let Some(direction) = direction {
            property::put(w, kind, |w| put_tuple(w, direction));
        }
    }
    if let Some(zone) = all.zone {
        property::put(w, flush::ZONE, |w| _ = w.u16(zone).zeros(2));
    }
    if let Some((value, mask)) = all.mark {
        property::put(w, flush::MARK, |w| _ = w.u32(value));
        if mask != u32::MAX {
            property::put(w, flush::MARK_MASK, |w| _ = w.u32(mask));
        }
    }
    if let Some((value, mask)) = all.label {
        property::put(w, flush::LABEL, |w| _ = w.put(&value.to_be_bytes()));
        if mask != u128::MAX {
            property::put(w, flush::LABEL_MASK, |w| _ = w.put(&mask.to_be_bytes()));
        }
    }
}

fn put_tuple(w: &mut Writer, all: &CtTuple) {
    w.zeros(4);
    for (kind, address) in [(tuple::SOURCE, all.source), (tuple::DESTINATION, all.destination)] {
        let address = address.map(|address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        });
        if let Some(address) = address {
            property::put(w, kind, |w| _ = w.put(&address.octets()));
        }
    }
    let numbers = [
        (tuple::SOURCE_PORT, all.source_port),
        (tuple::DESTINATION_PORT, all.destination_port),
        (tuple::ICMP_ID, all.icmp_id),
    ];
    for (kind, number) in numbers {
        if let Some(number) = number {
            property::put(w, kind, |w| _ = w.u16(number).zeros(2));
        }
    }
    for (kind, number) in [(tuple::ICMP_TYPE, all.icmp_type), (tuple::ICMP_CODE, all.icmp_code)] {
        if let Some(number) = number {
            property::put(w, kind, |w| _ = w.u8(number));
        }
    }
}
