//! Monitors of flows (nicira-ext `NXST_FLOW_MONITOR`, OpenFlow 1.4.1 7.3.5.17).

use flowlane::{Priority, Rule};

use super::flows::empty_stats;
use super::{port_any, put_port_any, read_port_any};
use crate::action::{put_instructions, read_instructions};
use crate::error::ErrorCode;
use crate::group::GROUP_ANY;
use crate::oxm;
use crate::settings::Codec;
use crate::stats::{FlowEvent, FlowMonitorRequest, FlowUpdate};
use crate::wire::{Failed, Reader, Writer};

/// Bits of a monitor's flags that exist: Nicira's are the first six of OpenFlow 1.4's.
const FLAGS_NICIRA: u16 = 0x3f;
const FLAGS_14: u16 = 0x7f;

/// Reads a monitor in Nicira's layout.
pub(super) fn read_nicira_request(
    codec: &Codec,
    r: &mut Reader<'_>,
) -> Result<FlowMonitorRequest, ErrorCode> {
    let (id, flags) = (r.u32()?, r.u16()?);
    let out_port =
        if codec.is_10() { port_any(read_port_any(codec, r)?) } else { crate::action::port10(r.u16()?) };
    let (bytes, table) = (usize::from(r.u16()?), r.u8()?);
    r.zeros(5, ErrorCode::NiciraRequestMustBeZero)?;
    if flags & !FLAGS_NICIRA != 0 {
        return Err(ErrorCode::MonitorBadFlags);
    }
    Ok(FlowMonitorRequest {
        id,
        command: 0,
        flags,
        out_port,
        out_group: None,
        table: (table != 0xff).then_some(table),
        matches: oxm::read_nxm(r, bytes)?.0,
    })
}

/// Reads a monitor of OpenFlow 1.4.
pub(super) fn read_request(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowMonitorRequest, ErrorCode> {
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
pub(super) fn put_request(
    w: &mut Writer,
    codec: &Codec,
    is_nicira: bool,
    request: &FlowMonitorRequest,
) -> Result<(), Failed> {
    let table = request.table.unwrap_or(0xff);
    w.u32(request.id);
    if is_nicira {
        w.u16(request.flags).u16(crate::action::put_port10(request.out_port));
        let at = w.len();
        w.u16(0).u8(table).zeros(5);
        let bytes = oxm::put_nxm(w, codec, &request.matches, None)?;
        w.set_u16(at, bytes);
        return Ok(());
    }
    put_port_any(w, codec, request.out_port);
    w.u32(request.out_group.unwrap_or(GROUP_ANY)).u16(request.flags).u8(table).u8(request.command);
    oxm::put_match(w, codec, &request.matches)
}

/// Reads a change that a monitor reports.
pub(super) fn read_update(
    codec: &Codec,
    is_nicira: bool,
    r: &mut Reader<'_>,
) -> Result<FlowUpdate, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    let event = body.u16()?;
    if is_nicira {
        return match event {
            0..=2 => read_nicira_full(codec, event, &mut body),
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

fn read_nicira_full(codec: &Codec, event: u16, r: &mut Reader<'_>) -> Result<FlowUpdate, ErrorCode> {
    let mut rule = empty_stats().rule;
    let reason = r.u16()?;
    rule.priority = Priority(r.u16()?.into());
    let timeouts_s = (r.u16()?, r.u16()?);
    let bytes = usize::from(r.u16()?);
    rule.table = r.u8()?;
    r.skip(1)?;
    rule.cookie = r.u64()?;
    rule.matches = oxm::read_nxm(r, bytes)?.0;
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
pub(super) fn put_update(
    w: &mut Writer,
    codec: &Codec,
    is_nicira: bool,
    update: &FlowUpdate,
) -> Result<(), Failed> {
    let start = w.len();
    w.u16(0);
    match update {
        FlowUpdate::Full { event, timeouts_s, rule } if is_nicira => {
            put_nicira_full(w, codec, *event, *timeouts_s, rule)?;
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
        FlowUpdate::Abbreviated { xid } => _ = w.u16(if is_nicira { 3 } else { 4 }).u32(*xid),
        FlowUpdate::Paused | FlowUpdate::Resumed if is_nicira => return Err(Failed),
        FlowUpdate::Paused => _ = w.u16(5).zeros(4),
        FlowUpdate::Resumed => _ = w.u16(6).zeros(4),
    }
    w.set_length(start, start);
    Ok(())
}

fn put_nicira_full(
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
    let bytes = oxm::put_nxm(w, codec, &rule.matches, None)?;
    w.set_u16(at, bytes);
    put_instructions(w, codec, &rule.matches, &rule.actions)
}
