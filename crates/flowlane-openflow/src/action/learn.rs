//! The action that learns a rule (nicira-ext, `struct nx_action_learn`).

use flowlane::rule::action::{Learn, LearnSource, LearnSpec};
use flowlane::{Action, FieldRef};

use super::header::{check_writable, first_bit, read_part};
use super::write::{Writing, nicira};
use crate::error::ErrorCode;
use crate::fields::Row;
use crate::oxm;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

const SEND_FLOW_REMOVED: u16 = 1;
const DELETE_LEARNED: u16 = 1 << 1;
const WRITE_RESULT: u16 = 1 << 2;

/// Bits of the header of a part: 11 for the number of bits, 2 for the kind, 1 for a constant.
mod part {
    pub(super) const BITS: u16 = 0x7ff;
    pub(super) const LOAD: u16 = 1 << 11;
    pub(super) const OUTPUT: u16 = 2 << 11;
    pub(super) const KIND: u16 = 3 << 11;
    pub(super) const CONSTANT: u16 = 1 << 13;
}

/// Reads `learn` (16), or with a limit (45).
pub(super) fn read(subtype: u16, r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (idle_timeout_s, hard_timeout_s, priority, cookie) = (r.u16()?, r.u16()?, r.u16()?, r.u64()?);
    let (flags, table) = (r.u16()?, r.u8()?);
    r.zeros(1, ErrorCode::ActionBadArgument)?;
    let (fin_idle_timeout_s, fin_hard_timeout_s) = (r.u16()?, r.u16()?);
    let known = if subtype == 45 { 7 } else { 3 };
    if flags & !known != 0 || table == 0xff {
        return Err(ErrorCode::ActionBadArgument);
    }
    let (mut limit, mut result) = (0, None);
    if subtype == 45 {
        limit = r.u32()?;
        let first = r.u16()?;
        r.zeros(2, ErrorCode::ActionBadArgument)?;
        if flags & WRITE_RESULT != 0 {
            let to = read_part(r, first, 1)?;
            check_writable(to.field())?;
            result = Some(to);
        }
    }
    Ok(Action::Learn(Box::new(Learn {
        idle_timeout_s,
        hard_timeout_s,
        priority,
        table,
        cookie,
        fin_idle_timeout_s,
        fin_hard_timeout_s,
        send_flow_removed: flags & SEND_FLOW_REMOVED != 0,
        delete_learned: flags & DELETE_LEARNED != 0,
        limit,
        result,
        specs: read_specs(r)?,
    })))
}

fn read_specs(r: &mut Reader<'_>) -> Result<Vec<LearnSpec>, ErrorCode> {
    let mut specs = Vec::new();
    while r.len() >= 2 {
        let head = r.u16()?;
        if head == 0 {
            break;
        }
        let bits = head & part::BITS;
        if bits == 0 || head & !(part::BITS | part::KIND | part::CONSTANT) != 0 {
            return Err(ErrorCode::ActionBadArgument);
        }
        let from = if head & part::CONSTANT != 0 {
            LearnSource::Value(read_constant(r, bits.into())?)
        } else {
            LearnSource::Field(read_reference(r, bits)?)
        };
        specs.push(match (head & part::KIND, from) {
            (0, from) => LearnSpec::Match { to: read_reference(r, bits)?, from },
            (part::LOAD, from) => {
                let to = read_reference(r, bits)?;
                check_writable(to.field())?;
                LearnSpec::Load { to, from }
            }
            (part::OUTPUT, LearnSource::Field(from)) => LearnSpec::Output(from),
            _ => return Err(ErrorCode::ActionBadArgument),
        });
    }
    r.zeros(r.len(), ErrorCode::ActionBadArgument)?;
    Ok(specs)
}

/// A constant, in whole numbers of 16 bits.
fn read_constant(r: &mut Reader<'_>, bits: usize) -> Result<u128, ErrorCode> {
    let bytes = r.take(bits.div_ceil(16) * 2)?;
    let (high, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let value = low.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
    let fits = bits >= 128 || value >> bits == 0;
    if fits && high.iter().all(|byte| *byte == 0) { Ok(value) } else { Err(ErrorCode::ActionBadArgument) }
}

fn read_reference(r: &mut Reader<'_>, bits: u16) -> Result<FieldRef, ErrorCode> {
    let row = oxm::read_header(r).map_err(super::header::set_error)?;
    let first = r.u16()?;
    oxm::reference(row, first, bits)
}

/// Writes `learn`, with its limit where it has one.
pub(super) fn put(w: &mut Writer, writing: &Writing<'_>, learn: &Learn) -> Result<(), Failed> {
    let is_new = learn.limit != 0 || learn.result.is_some();
    let mut done = Ok(());
    nicira(w, if is_new { 45 } else { 16 }, |w| {
        let flag = |is: bool, bit| if is { bit } else { 0 };
        let flags = flag(learn.send_flow_removed, SEND_FLOW_REMOVED)
            | flag(learn.delete_learned, DELETE_LEARNED)
            | flag(learn.result.is_some(), WRITE_RESULT);
        w.u16(learn.idle_timeout_s).u16(learn.hard_timeout_s).u16(learn.priority).u64(learn.cookie);
        w.u16(flags).u8(learn.table).zeros(1).u16(learn.fin_idle_timeout_s).u16(learn.fin_hard_timeout_s);
        if is_new {
            w.u32(learn.limit);
            match learn.result.map(|to| (to, row(to, writing))) {
                Some((to, Some(row))) => {
                    w.u16(first_bit(to, row)).zeros(2);
                    oxm::put_header(w, writing.codec, row);
                }
                Some((_, None)) => done = Err(Failed),
                None => _ = w.zeros(4),
            }
        }
        for spec in &learn.specs {
            done = done.and(put_spec(w, writing, spec));
        }
    });
    done
}

/// The row of a field. Open vSwitch writes NXM's in this action, where there is one.
fn row(to: FieldRef, writing: &Writing<'_>) -> Option<&'static Row> {
    oxm::row_of(to, Version::OpenFlow10, writing.protocol)
}

fn put_spec(w: &mut Writer, writing: &Writing<'_>, spec: &LearnSpec) -> Result<(), Failed> {
    let (kind, to, from) = match spec {
        LearnSpec::Match { to, from } => (0, Some(*to), from.clone()),
        LearnSpec::Load { to, from } => (part::LOAD, Some(*to), from.clone()),
        LearnSpec::Output(from) => (part::OUTPUT, None, LearnSource::Field(*from)),
    };
    let bits = u16::from(match (to, &from) {
        (Some(to), _) => to.bits(),
        (None, LearnSource::Field(from)) => from.bits(),
        (None, LearnSource::Value(_)) => return Err(Failed),
    });
    match from {
        LearnSource::Value(value) => {
            let bytes = usize::from(bits).div_ceil(16) * 2;
            w.u16(bits | kind | part::CONSTANT).put(&value.to_be_bytes()[16 - bytes..]);
        }
        LearnSource::Field(from) => {
            w.u16(bits | kind);
            put_reference(w, writing, from)?;
        }
    }
    to.map_or(Ok(()), |to| put_reference(w, writing, to))
}

fn put_reference(w: &mut Writer, writing: &Writing<'_>, part: FieldRef) -> Result<(), Failed> {
    let row = row(part, writing).ok_or(Failed)?;
    oxm::put_header(w, writing.codec, row);
    w.u16(first_bit(part, row));
    Ok(())
}
