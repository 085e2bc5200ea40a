//! The actions of the versions' own.

use flowlane::rule::action::SetForm;
use flowlane::{Action, Field, PortNo};

use super::header::{output, read_part, read_target, set_error};
use super::set;
use crate::error::ErrorCode;
use crate::oxm::{self, port_of_32};
use crate::version::Version;
use crate::wire::Reader;

fn own(field: Field, value: u128) -> Action {
    Action::SetField { field, value, mask: field.info().ones(), form: SetForm::Own, protocol: None }
}

/// Requires the length of an action.
fn exactly(r: &Reader<'_>, bytes: usize) -> Result<(), ErrorCode> {
    if r.len() == bytes { Ok(()) } else { Err(ErrorCode::ActionBadLen) }
}

/// Reads an action of OpenFlow 1.0 behind its type and length.
pub(super) fn read_10(kind: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let bytes = if matches!(kind, 4 | 5 | 11) { 12 } else { 4 };
    if kind > 11 {
        return Err(ErrorCode::ActionBadType);
    }
    exactly(r, bytes)?;
    let address = |r: &mut Reader<'_>| {
        let bytes = r.array::<6>()?;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
    };
    Ok(match kind {
        0 => output(r.u16()?.into(), r.u16()?)?,
        1 => match r.u16()? {
            vid @ 0..=0xfff => own(Field::VlanVid, vid.into()),
            _ => return Err(ErrorCode::ActionBadArgument),
        },
        2 => match r.u8()? {
            pcp @ 0..=7 => own(Field::VlanPcp, pcp.into()),
            _ => return Err(ErrorCode::ActionBadArgument),
        },
        3 => Action::PopVlan,
        4 => own(Field::EthSrc, address(r)?),
        5 => own(Field::EthDst, address(r)?),
        6 => own(Field::Ipv4Src, r.u32()?.into()),
        7 => own(Field::Ipv4Dst, r.u32()?.into()),
        8 => match r.u8()? {
            tos if tos & 3 == 0 => own(Field::IpDscp, u128::from(tos >> 2)),
            _ => return Err(ErrorCode::ActionBadArgument),
        },
        9 => own(Field::TpSrc, r.u16()?.into()),
        10 => own(Field::TpDst, r.u16()?.into()),
        11 => {
            let port = u32::from(r.u16()?);
            r.skip(6)?;
            match port {
                0..0xff00 | 0xfff8 | 0xfffe => Action::Enqueue { port: PortNo(port), queue: r.u32()? },
                _ => return Err(ErrorCode::ActionBadOutPort),
            }
        }
        _ => return Err(ErrorCode::ActionBadType),
    })
}

/// Reads an action of OpenFlow 1.3 and later behind its type and length.
pub(super) fn read_13(version: Version, kind: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let is_15 = version == Version::OpenFlow15;
    match kind {
        25 => return set::read_set_field(r),
        28 if is_15 => return read_copy(r),
        0 => exactly(r, 12)?,
        15..=24 => exactly(r, 4)?,
        29 if is_15 => exactly(r, 4)?,
        _ => return Err(ErrorCode::ActionBadType),
    }
    Ok(match kind {
        0 => {
            let port = port_of_32(r.u32()?).ok_or(ErrorCode::ActionBadOutPort)?;
            output(port, r.u16()?)?
        }
        15 => own(Field::MplsTtl, r.u8()?.into()),
        16 => Action::DecMplsTtl,
        17 => match r.u16()? {
            tpid @ (0x8100 | 0x88a8) => Action::PushVlan(tpid),
            _ => return Err(ErrorCode::ActionBadArgument),
        },
        18 => Action::PopVlan,
        19 => push_mpls(r.u16()?)?,
        20 => Action::PopMpls(r.u16()?),
        21 => Action::SetQueue(r.u32()?),
        22 => Action::Group(group(r.u32()?)?),
        23 => own(Field::NwTtl, r.u8()?.into()),
        24 => Action::dec_ttl(),
        29 => Action::Meter(meter(r.u32()?)?),
        _ => return Err(ErrorCode::ActionBadType),
    })
}

/// Checks the EtherType of a label that is added.
pub(super) fn push_mpls(eth_type: u16) -> Result<Action, ErrorCode> {
    match eth_type {
        0x8847 | 0x8848 => Ok(Action::PushMpls(eth_type)),
        _ => Err(ErrorCode::ActionBadArgument),
    }
}

/// Checks a group's number.
pub(super) fn group(group: u32) -> Result<u32, ErrorCode> {
    if group <= crate::group::GROUP_MAX { Ok(group) } else { Err(ErrorCode::ActionBadOutGroup) }
}

/// Checks a meter's number.
pub(super) fn meter(meter: u32) -> Result<u32, ErrorCode> {
    match meter {
        1..=crate::meter::METER_MAX => Ok(meter),
        _ => Err(ErrorCode::ActionBadMeter),
    }
}

/// Reads the action that copies a field (OpenFlow 1.5.1 7.2.6.11).
fn read_copy(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (bits, from_bit, to_bit) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(2)?;
    let from = read_part(r, from_bit, bits)?;
    let to = read_target(r, to_bit, bits)?;
    r.zeros(r.len(), ErrorCode::NiciraActionMustBeZero)?;
    Ok(Action::Move { from, to })
}

/// Reads an action of the ONF behind its number as experimenter: `copy_field` for OpenFlow 1.3 (extension 320).
pub(super) fn read_onf(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    match r.u16()? {
        3200 => {
            r.skip(2)?;
            read_copy(r)
        }
        _ => Err(ErrorCode::ActionBadVendorType),
    }
}

/// Reads a field with a value: the action that sets it.
pub(super) fn read_value(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let entry = oxm::read_setting(r).map_err(set_error)?;
    let field = entry.row.field;
    super::header::check_writable(field)?;
    let ones = field.info().ones();
    // A tag's presence is not a part of its identifier.
    let (value, mask, protocol) = (entry.value & ones, entry.mask & ones, entry.row.needs.protocol());
    Ok(Action::SetField { field, value, mask, form: SetForm::SetField, protocol })
}
