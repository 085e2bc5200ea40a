//! Monitors of flows (nicira-ext `NXST_FLOW_MONITOR` for OpenFlow 1.0, the ONF's extension 187 for 1.3, OpenFlow 1.4.1 7.3.5.17).

use flowlane::{Priority, Rule};

use super::flows::empty_stats;
use super::{port_any, put_port_any, read_port_any};
use crate::action::{put_instructions, read_instructions};
use crate::error::ErrorCode;
use crate::group::GROUP_ANY;
use crate::oxm;
use crate::settings::Codec;
use crate::stats::{FlowEvent, FlowMonitorRequest, FlowUpdate};
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// The ONF's number of monitors (extension 187), for OpenFlow 1.3; those behind it pause and resume.
pub(super) const ONF_MONITOR: u32 = 1870;

/// Bits of a monitor's flags that exist: Nicira's are the first six of OpenFlow 1.4's.
const FLAGS_NICIRA: u16 = 0x3f;
const FLAGS_14: u16 = 0x7f;

/// Reads a monitor in Nicira's layout, or the ONF's.
fn read_old_request(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowMonitorRequest, ErrorCode> {
    let (id, flags) = (r.u32()?, r.u16()?);
    let (out_port, table, matches);
    if codec.is_10() {
        out_port = port_any(read_port_any(codec, r)?);
        let bytes = usize::from(r.u16()?);
        table = r.u8()?;
        r.zeros(5, ErrorCode::NiciraRequestMustBeZero)?;
        matches = oxm::read_nxm(r, bytes)?.0;
    } else {
        let bytes = r.u16()?;
        out_port = port_any(read_port_any(codec, r)?);
        table = r.u8()?;
        r.zeros(3, ErrorCode::NiciraRequestMustBeZero)?;
        matches = read_match(r, bytes)?;
    }
    if flags & !FLAGS_NICIRA != 0 {
        return Err(ErrorCode::MonitorBadFlags);
    }
    let table = (table != 0xff).then_some(table);
    Ok(FlowMonitorRequest { id, command: 0, flags, out_port, out_group: None, table, matches })
}

/// Reads a match whose length is named before, too.
fn read_match(r: &mut Reader<'_>, bytes: u16) -> Result<flowlane::Match, ErrorCode> {
    match *r.rest() {
        [_, _, high, low, ..] if u16::from_be_bytes([high, low]) == bytes => oxm::read_match(r),
        _ => Err(ErrorCode::MatchBadLen),
    }
}

/// Reads a monitor.
pub(super) fn read_request(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowMonitorRequest, ErrorCode> {
    if codec.version <= Version::OpenFlow13 {
        return read_old_request(codec, r);
    }
    let (id, out_port, out_group) = (r.u32()?, port_any(read_port_any(codec, r)?), r.u32()?);
    let (flags, table, command) = (r.u16()?, r.u8()?, r.u8()?);
    if flags & !FLAGS_14 != 0 {
        return Err(ErrorCode::MonitorBadFlags);
    }
    if command > 2 {
        return Err(ErrorCode::MonitorBadCommand);
    }
    Ok(FlowMonitorRequest {
        id,
        command,
        flags,
        out_port,
        out_group: (out_group != GROUP_ANY).then_some(out_group),
        table: (table != 0xff).then_some(table),
        matches: oxm::read_match(r)?,
    })
}

/// Writes a monitor.
pub(super) fn put_request(w: &mut Writer, codec: &Codec, request: &FlowMonitorRequest) -> Result<(), Failed> {
    let table = request.table.unwrap_or(0xff);
    w.u32(request.id);
    match codec.version {
        Version::OpenFlow10 => {
            w.u16(request.flags).u16(crate::action::put_port10(request.out_port));
            let at = w.len();
            w.u16(0).u8(table).zeros(5);
            let bytes = oxm::put_nxm(w, codec, &request.matches, None)?;
            w.set_u16(at, bytes);
            Ok(())
        }
        Version::OpenFlow13 => {
            w.u16(request.flags);
            let at = w.len();
            w.u16(0);
            put_port_any(w, codec, request.out_port);
            w.u8(table).zeros(3);
            put_match(w, codec, at, &request.matches)
        }
        Version::OpenFlow14 | Version::OpenFlow15 => {
            put_port_any(w, codec, request.out_port);
            w.u32(request.out_group.unwrap_or(GROUP_ANY)).u16(request.flags).u8(table).u8(request.command);
            oxm::put_match(w, codec, &request.matches)
        }
    }
}

/// Writes a match, and its length without padding at a place before.
fn put_match(w: &mut Writer, codec: &Codec, at: usize, matches: &flowlane::Match) -> Result<(), Failed> {
    let start = w.len();
    oxm::put_match(w, codec, matches)?;
    let length = u16::from_be_bytes([w.bytes[start + 2], w.bytes[start + 3]]);
    w.set_u16(at, length);
    Ok(())
}

/// Reads a change that a monitor reports.
pub(super) fn read_update(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowUpdate, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    let event = body.u16()?;
    if codec.version <= Version::OpenFlow13 {
        return match event {
            0..=2 => read_old_full(codec, event, &mut body),
            3 => Ok(FlowUpdate::Abbreviated { xid: body.u32()? }),
            _ => Err(ErrorCode::NiciraRequestFmBadEvent),
        };
    }
    match event {
        0..=3 => read_full(codec, event, &mut body),
        4 => Ok(FlowUpdate::Abbreviated { xid: body.u32()? }),
        5 => Ok(FlowUpdate::Paused),
        6 => Ok(FlowUpdate::Resumed),
        _ => Err(ErrorCode::NiciraRequestFmBadEvent),
    }
}

fn read_old_full(codec: &Codec, event: u16, r: &mut Reader<'_>) -> Result<FlowUpdate, ErrorCode> {
    let mut rule = empty_stats().rule;
    let reason = r.u16()?;
    rule.priority = Priority(r.u16()?.into());
    let timeouts_s = (r.u16()?, r.u16()?);
    let bytes = r.u16()?;
    rule.table = r.u8()?;
    r.skip(1)?;
    rule.cookie = r.u64()?;
    rule.matches = if codec.is_10() { oxm::read_nxm(r, bytes.into())?.0 } else { read_match(r, bytes)? };
    rule.actions = read_instructions(codec, r.take_rest())?;
    let event = match event {
        0 => FlowEvent::Added,
        1 => FlowEvent::Removed(reason as u8),
        _ => FlowEvent::Modified,
    };
    Ok(FlowUpdate::Full { event, timeouts_s, rule })
}

fn read_full(codec: &Codec, event: u16, r: &mut Reader<'_>) -> Result<FlowUpdate, ErrorCode> {
    let mut rule = empty_stats().rule;
    rule.table = r.u8()?;
    let reason = r.u8()?;
    let timeouts_s = (r.u16()?, r.u16()?);
    rule.priority = Priority(r.u16()?.into());
    r.skip(4)?;
    rule.cookie = r.u64()?;
    rule.matches = oxm::read_match(r)?;
    rule.actions = read_instructions(codec, r.take_rest())?;
    let event = match event {
        0 => FlowEvent::Initial,
        1 => FlowEvent::Added,
        2 => FlowEvent::Removed(reason),
        _ => FlowEvent::Modified,
    };
    Ok(FlowUpdate::Full { event, timeouts_s, rule })
}

/// Writes a change that a monitor reports.
pub(super) fn put_update(w: &mut Writer, codec: &Codec, update: &FlowUpdate) -> Result<(), Failed> {
    let is_old = codec.version <= Version::OpenFlow13;
    let start = w.len();
    w.u16(0);
    match update {
        FlowUpdate::Full { event, timeouts_s, rule } if is_old => {
            put_old_full(w, codec, *event, *timeouts_s, rule)?;
        }
        FlowUpdate::Full { event, timeouts_s: (idle, hard), rule } => {
            let (number, reason) = match event {
                FlowEvent::Initial => (0, 0),
                FlowEvent::Added => (1, 0),
                FlowEvent::Removed(reason) => (2, *reason),
                FlowEvent::Modified => (3, 0),
            };
            w.u16(number).u8(rule.table).u8(reason).u16(*idle).u16(*hard);
            w.u16(rule.priority.0 as u16).zeros(4).u64(rule.cookie);
            oxm::put_match(w, codec, &rule.matches)?;
            put_instructions(w, codec, &rule.matches, &rule.actions)?;
        }
        FlowUpdate::Abbreviated { xid } => _ = w.u16(if is_old { 3 } else { 4 }).u32(*xid),
        FlowUpdate::Paused | FlowUpdate::Resumed if is_old => return Err(Failed),
        FlowUpdate::Paused => _ = w.u16(5).zeros(4),
        FlowUpdate::Resumed => _ = w.u16(6).zeros(4),
    }
    w.set_length(start, start);
    Ok(())
}

fn put_old_full(
    w: &mut Writer,
    codec: &Codec,
    event: FlowEvent,
    (idle, hard): (u16, u16),
    rule: &Rule,
) -> Result<(), Failed> {
    let (number, reason) = match event {
        FlowEvent::Initial | FlowEvent::Added => (0, 0),
        FlowEvent::Removed(reason) => (1, reason),
        FlowEvent::Modified => (2, 0),
    };
    w.u16(number).u16(reason.into()).u16(rule.priority.0 as u16).u16(idle).u16(hard);
    let at = w.len();
    w.u16(0).u8(rule.table).zeros(1).u64(rule.cookie);
    match codec.is_10() {
        true => {
            let bytes = oxm::put_nxm(w, codec, &rule.matches, None)?;
            w.set_u16(at, bytes);
        }
        false => put_match(w, codec, at, &rule.matches)?,
    }
    put_instructions(w, codec, &rule.matches, &rule.actions)
}
