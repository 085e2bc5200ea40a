//! Ports, and the parts that actions have in common.

use flowlane::{Action, Field, FieldRef, PortNo};

use crate::error::ErrorCode;
use crate::fields::Row;
use crate::oxm::{self, port_of_32, port_to_32};
use crate::wire::Reader;

/// Ports with a meaning of their own, in the numbers of OpenFlow 1.0 (5.2.1).
pub(super) mod reserved {
    pub(crate) const MAX: u32 = 0xff00;
    pub(crate) const IN_PORT: u32 = 0xfff8;
    pub(crate) const TABLE: u32 = 0xfff9;
    pub(crate) const NORMAL: u32 = 0xfffa;
    pub(crate) const FLOOD: u32 = 0xfffb;
    pub(crate) const ALL: u32 = 0xfffc;
    pub(crate) const CONTROLLER: u32 = 0xfffd;
    pub(crate) const LOCAL: u32 = 0xfffe;
    pub(crate) const NONE: u32 = 0xffff;
}

/// A port of OpenFlow 1.0 as an argument: `None` for none.
pub(crate) fn port10(port: u16) -> Option<PortNo> {
    (u32::from(port) != reserved::NONE).then_some(PortNo(port.into()))
}

/// A port of OpenFlow 1.1 and later as an argument: `None` for any.
pub(crate) fn port32(port: u32) -> Result<Option<PortNo>, ErrorCode> {
    let port = port_of_32(port).ok_or(ErrorCode::ActionBadOutPort)?;
    Ok((port != reserved::NONE).then_some(PortNo(port)))
}

/// The number of a port, or none, in OpenFlow 1.0.
pub(crate) fn put_port10(port: Option<PortNo>) -> u16 {
    port.map_or(0xffff, |port| port.0 as u16)
}

/// The number of a port, or any, in OpenFlow 1.1 and later.
pub(crate) fn put_port32(port: Option<PortNo>) -> u32 {
    port.map_or(u32::MAX, |port| port_to_32(port.0))
}

/// The action that sends to a port.
pub(super) fn output(port: u32, max_len: u16) -> Result<Action, ErrorCode> {
    let output = match port {
        reserved::IN_PORT => Action::InPort,
        reserved::NORMAL => Action::Normal,
        reserved::FLOOD => Action::Flood,
        reserved::ALL => Action::All,
        reserved::CONTROLLER => return Ok(Action::controller(max_len)),
        0..reserved::MAX | reserved::TABLE | reserved::LOCAL => Action::Output(PortNo(port)),
        _ => return Err(ErrorCode::ActionBadOutPort),
    };
    Ok(match max_len {
        0 => output,
        _ => Action::OutputMaxLen { output: Box::new(output), max_len },
    })
}

/// The first bit and the number of bits, as `ofs_nbits` packs them.
pub(super) fn unpack_bits(ofs_nbits: u16) -> (u16, u16) {
    (ofs_nbits >> 6, (ofs_nbits & 0x3f) + 1)
}

/// Packs a reference's first bit and number of bits; `None` for more than 64 bits.
pub(super) fn pack_bits(part: FieldRef, row: &Row) -> Option<u16> {
    let (first, bits) = (first_bit(part, row), u16::from(part.bits()));
    (bits <= 64).then_some(first << 6 | (bits - 1))
}

/// The first bit of a reference on the wire.
pub(super) fn first_bit(part: FieldRef, row: &Row) -> u16 {
    let shift = if row.shape == crate::fields::Shape::Tos { 2 } else { 0 };
    u16::from(part.first_bit()) + shift
}

/// Reads the header of a field, whose bits are given.
pub(super) fn read_part(r: &mut Reader<'_>, first: u16, bits: u16) -> Result<FieldRef, ErrorCode> {
    let row = oxm::read_header(r).map_err(set_error)?;
    oxm::reference(row, first, bits)
}

/// Reads the header of a field that an action writes.
pub(super) fn read_target(r: &mut Reader<'_>, first: u16, bits: u16) -> Result<FieldRef, ErrorCode> {
    let part = read_part(r, first, bits)?;
    check_writable(part.field())?;
    Ok(part)
}

/// Refuses fields that no action may write.
pub(super) fn check_writable(field: Field) -> Result<(), ErrorCode> {
    // The port can be set for the tables that follow, in Open vSwitch, and mark and label of a connection within `ct`.
    match field.info().writable || matches!(field, Field::InPort | Field::CtMark | Field::CtLabel) {
        true => Ok(()),
        false => Err(ErrorCode::ActionBadSetArgument),
    }
}

/// The error of an action for one of a match.
pub(super) fn set_error(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::MatchBadField => ErrorCode::ActionBadSetType,
        ErrorCode::MatchBadLen => ErrorCode::ActionBadSetLen,
        ErrorCode::MatchBadValue | ErrorCode::MatchBadWildcards => ErrorCode::ActionBadSetArgument,
        ErrorCode::MatchBadMask => ErrorCode::ActionBadSetMask,
        other => other,
    }
}
