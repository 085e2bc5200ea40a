//! The actions that set a field.

use flowlane::rule::action::SetForm;
use flowlane::{Action, Field, FieldRef};

use super::header::{check_writable, pack_bits, set_error, unpack_bits};
use super::standard::read_value;
use super::write::Writing;
use crate::error::ErrorCode;
use crate::fields::{self, Row, Shape};
use crate::oxm;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// Reads `set_field` behind its type and length (OpenFlow 1.3.5 7.2.5, 1.5.1 7.2.6.10).
pub(super) fn read_set_field(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let set = read_value(r)?;
    if r.len() >= 8 {
        return Err(ErrorCode::ActionBadLen);
    }
    r.zeros(r.len(), ErrorCode::ActionBadSetArgument)?;
    Ok(set)
}

/// Reads Nicira's `load` (7).
pub(super) fn read_load(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (first, bits) = unpack_bits(r.u16()?);
    let mut head = r.part(4)?;
    let row = oxm::read_header(&mut head).map_err(set_error)?;
    let to = oxm::reference(row, first, bits)?;
    check_writable(to.field())?;
    let value = u128::from(r.u64()?);
    if value > to.ones() {
        return Err(ErrorCode::ActionBadArgument);
    }
    let (field, value, mask, protocol) = (to.field(), to.place(value), to.mask(), row.needs.protocol());
    Ok(Action::SetField { field, value, mask, form: SetForm::Load, protocol })
}

/// Writes the action that sets bits of a field.
pub(super) fn put(
    w: &mut Writer,
    writing: &Writing<'_>,
    (field, value, mask): (Field, u128, u128),
    form: SetForm,
) -> Result<(), Failed> {
    let is_whole = mask == field.info().ones();
    let is_own = form == SetForm::Own && is_whole;
    match writing.codec.version {
        Version::OpenFlow10 => {
            let is_legacy = form != SetForm::Load && is_whole && put_10(w, field, value);
            if is_legacy || (is_own || form == SetForm::SetTunnel64) && put_own(w, field, value, form) {
                return Ok(());
            }
        }
        Version::OpenFlow13 | Version::OpenFlow14 | Version::OpenFlow15 => {
            let is_15 = writing.codec.version == Version::OpenFlow15;
            let is_metadata = field == Field::Metadata && form == SetForm::Own;
            match field {
                Field::NwTtl if is_own => return put_octet(w, 23, value),
                Field::MplsTtl if is_own => return put_octet(w, 15, value),
                _ if is_metadata => {}
                _ if is_15 || is_whole && form != SetForm::Load => {
                    return put_set_field(w, writing, (field, value, mask));
                }
                _ => {}
            }
        }
    }
    if field == Field::Metadata && form == SetForm::Own {
        super::write::nicira(w, 22, |w| _ = w.zeros(6).u64(value as u64).u64(mask as u64));
        return Ok(());
    }
    put_load(w, writing, (field, value, mask))
}

fn put_octet(w: &mut Writer, kind: u16, value: u128) -> Result<(), Failed> {
    w.u16(kind).u16(8).u8(value as u8).zeros(3);
    Ok(())
}

/// Writes an action of OpenFlow 1.0, if it has one for the field.
fn put_10(w: &mut Writer, field: Field, value: u128) -> bool {
    let bytes = value.to_be_bytes();
    match field {
        Field::VlanVid => w.u16(1).u16(8).u16(value as u16).zeros(2),
        Field::VlanPcp => w.u16(2).u16(8).u8(value as u8).zeros(3),
        Field::EthSrc => w.u16(4).u16(16).put(&bytes[10..]).zeros(6),
        Field::EthDst => w.u16(5).u16(16).put(&bytes[10..]).zeros(6),
        Field::Ipv4Src => w.u16(6).u16(8).u32(value as u32),
        Field::Ipv4Dst => w.u16(7).u16(8).u32(value as u32),
        Field::IpDscp => w.u16(8).u16(8).u8((value as u8) << 2).zeros(3),
        Field::TpSrc => w.u16(9).u16(8).u16(value as u16).zeros(2),
        Field::TpDst => w.u16(10).u16(8).u16(value as u16).zeros(2),
        _ => return false,
    };
    true
}

/// Writes Nicira's action of a field's own, if there is one.
fn put_own(w: &mut Writer, field: Field, value: u128, form: SetForm) -> bool {
    match (field, form) {
        (Field::TunId, SetForm::Own) if value <= u32::MAX.into() => {
            super::write::nicira(w, 2, |w| _ = w.zeros(2).u32(value as u32));
        }
        (Field::TunId, SetForm::Own | SetForm::SetTunnel64) => {
            super::write::nicira(w, 9, |w| _ = w.zeros(6).u64(value as u64));
        }
        (Field::MplsTtl, SetForm::Own) => {
            super::write::nicira(w, 25, |w| _ = w.u8(value as u8).zeros(5));
        }
        (Field::MplsLabel, SetForm::Own) => {
            super::write::nicira(w, 30, |w| _ = w.zeros(2).u32(value as u32));
        }
        (Field::MplsTc, SetForm::Own) => {
            super::write::nicira(w, 31, |w| _ = w.u8(value as u8).zeros(5));
        }
        _ => return false,
    }
    true
}

/// The row by which an action sets a field, and the bits that it has. A port has 16 bits, of which no port's number needs more, unless a
/// rule sets others.
fn row_and_ones(
    (field, mask): (Field, u128),
    version: Version,
    writing: &Writing<'_>,
) -> Result<(&'static Row, u128), Failed> {
    match field {
        Field::InPort if mask <= 0xffff || mask == field.info().ones() => {
            fields::find(0, 0, 0, 2).map(|row| (row, 0xffff)).ok_or(Failed)
        }
        Field::InPort => fields::find(0x8000, 0, 0, 4).map(|row| (row, mask)).ok_or(Failed),
        _ => {
            let row = oxm::row_of(field.into(), version, writing.protocol).ok_or(Failed)?;
            Ok((row, field.info().ones()))
        }
    }
}

fn put_set_field(
    w: &mut Writer,
    writing: &Writing<'_>,
    (field, value, mask): (Field, u128, u128),
) -> Result<(), Failed> {
    let (row, ones) = row_and_ones((field, mask), writing.codec.version, writing)?;
    let is_whole = mask & ones == ones;
    let start = w.len();
    w.u16(25).u16(0);
    let present = if row.shape == Shape::Vid { 0x1000 } else { 0 };
    row.put(w, writing.codec, value | present, (!is_whole).then_some(mask));
    w.pad(start, 8).set_length(start + 2, start);
    Ok(())
}

/// Writes a `load` for each run of bits of the mask, of 64 bits at most; of a field of variable length, one with value and mask.
fn put_load(
    w: &mut Writer,
    writing: &Writing<'_>,
    (field, value, mask): (Field, u128, u128),
) -> Result<(), Failed> {
    let (row, ones) = row_and_ones((field, mask), Version::OpenFlow10, writing)?;
    if matches!(row.shape, Shape::Option(_)) || row.class == 0xffff {
        let is_whole = mask == field.info().ones();
        super::write::nicira(w, 33, |w| row.put(w, writing.codec, value, (!is_whole).then_some(mask)));
        return Ok(());
    }
    let mut left = mask & ones;
    while left != 0 {
        let first = left.trailing_zeros();
        let run = (left >> first).trailing_ones().min(64);
        let part = FieldRef::new(field, first as u8, run as u8).ok_or(Failed)?;
        left &= !part.mask();
        let bits = pack_bits(part, row).ok_or(Failed)?;
        super::write::nicira(w, 7, |w| {
            w.u16(bits);
            oxm::put_header(w, writing.codec, row);
            w.u64(part.extract(value) as u64);
        });
    }
    Ok(())
}
