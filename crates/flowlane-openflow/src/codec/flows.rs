//! Changes and statistics of flows.

use flowlane::rule::{Command, FlowFlags, FlowMod};
use flowlane::{Match, Priority, Rule};

use super::{port_any, put_port_any, read_port_any};
use crate::action::{put_instructions, read_instructions};
use crate::error::ErrorCode;
use crate::group::GROUP_ANY;
use crate::match10;
use crate::message::FlowModMessage;
use crate::oxm;
use crate::settings::Codec;
use crate::stats::{AggregateStats, FlowFormat, FlowRemoved, FlowStats, FlowStatsRequest};
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// The buffer that means none.
pub(super) const NO_BUFFER: u32 = u32::MAX;
/// The table that means all.
const ALL_TABLES: u8 = 0xff;
/// Bits of flags (`OFPFF`): of OpenFlow 1.0, and of later versions.
const FLAGS_10: u16 = 0b11;
const FLAGS_13: u16 = 0b1_1111;
/// OpenFlow 1.0's flag for flows of emergencies, which no switch of today has.
const EMERGENCY: u16 = 0b100;

/// The fields of a flow-mod, without its match and actions.
struct Head {
    command: Command,
    table: Option<u8>,
    cookie: u64,
    cookie_mask: u64,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    priority: u16,
    buffer_id: u32,
    out_port: Option<flowlane::PortNo>,
    out_group: u32,
    flags: u16,
    importance: u16,
}

fn command(number: u8) -> Result<Command, ErrorCode> {
    Ok(match number {
        0 => Command::Add,
        1 => Command::Modify,
        2 => Command::ModifyStrict,
        3 => Command::Delete,
        4 => Command::DeleteStrict,
        _ => return Err(ErrorCode::FlowModBadCommand),
    })
}

fn command_number(command: Command) -> u8 {
    match command {
        Command::Add => 0,
        Command::Modify => 1,
        Command::ModifyStrict => 2,
        Command::Delete => 3,
        Command::DeleteStrict => 4,
    }
}

/// Makes the library's change. All of its fields are named here and nowhere else.
fn flow_mod(head: &Head, new_cookie: Option<u64>, rule: Rule) -> FlowMod {
    let has_condition = head.cookie_mask != 0;
    FlowMod {
        at: None,
        command: head.command,
        table: head.table,
        rule,
        cookie: has_condition.then_some((head.cookie & head.cookie_mask, head.cookie_mask)),
        new_cookie,
        idle_timeout_s: head.idle_timeout_s,
        hard_timeout_s: head.hard_timeout_s,
        importance: head.importance,
        flags: FlowFlags(head.flags),
        out_port: head.out_port,
        out_group: (head.out_group != GROUP_ANY).then_some(head.out_group),
        line: 0,
    }
}

/// Reads the head of OpenFlow 1.0 from the cookie on, of which `command` may name the table.
fn read_head_10(codec: &Codec, r: &mut Reader<'_>) -> Result<Head, ErrorCode> {
    let (cookie, number) = (r.u64()?, r.u16()?);
    let (table, number) = match codec.flow_mod_table_id {
        true => ((number >> 8) as u8, number & 0xff),
        false => (ALL_TABLES, number),
    };
    let command = command(u8::try_from(number).unwrap_or(u8::MAX))?;
    let head = Head {
        command,
        table: (table != ALL_TABLES).then_some(table),
        cookie,
        cookie_mask: 0,
        idle_timeout_s: r.u16()?,
        hard_timeout_s: r.u16()?,
        priority: r.u16()?,
        buffer_id: r.u32()?,
        out_port: port_any(read_port_any(codec, r)?),
        out_group: GROUP_ANY,
        flags: r.u16()?,
        importance: 0,
    };
    match head.flags {
        flags if flags & EMERGENCY != 0 => Err(ErrorCode::FlowModTableFull),
        flags if flags & !FLAGS_10 != 0 => Err(ErrorCode::FlowModBadFlags),
        _ => Ok(head),
    }
}

fn read_head_13(codec: &Codec, r: &mut Reader<'_>) -> Result<Head, ErrorCode> {
    let (cookie, cookie_mask, table, number) = (r.u64()?, r.u64()?, r.u8()?, r.u8()?);
    let head = Head {
        command: command(number)?,
        table: (table != ALL_TABLES).then_some(table),
        cookie,
        cookie_mask,
        idle_timeout_s: r.u16()?,
        hard_timeout_s: r.u16()?,
        priority: r.u16()?,
        buffer_id: r.u32()?,
        out_port: port_any(read_port_any(codec, r)?),
        out_group: r.u32()?,
        flags: r.u16()?,
        importance: r.u16()?,
    };
    match head.flags & !FLAGS_13 {
        0 if codec.version == Version::OpenFlow13 => Ok(Head { importance: 0, ..head }),
        0 => Ok(head),
        _ => Err(ErrorCode::FlowModBadFlags),
    }
}

/// Reads a flow-mod (OpenFlow 1.0 5.3.3, 1.3.5 7.3.4.1).
pub(super) fn read_mod(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowModMessage, ErrorCode> {
    if codec.is_10() {
        let (matches, is_exact) = match10::read(r)?;
        let mut head = read_head_10(codec, r)?;
        // A flow that leaves nothing out is above all others.
        if is_exact {
            head.priority = u16::MAX;
        }
        let new_cookie = new_cookie_10(&head);
        return message(codec, r, head, new_cookie, matches, FlowFormat::Standard);
    }
    let mut head = read_head_13(codec, r)?;
    let mut new_cookie = None;
    if head.command == Command::Add {
        (new_cookie, head.cookie_mask) = (Some(head.cookie), 0);
    }
    let matches = oxm::read_match(r)?;
    message(codec, r, head, new_cookie, matches, FlowFormat::Standard)
}

/// The cookie that rules get, in OpenFlow 1.0: all ones keeps that of modified rules.
fn new_cookie_10(head: &Head) -> Option<u64> {
    match head.command {
        Command::Add => Some(head.cookie),
        Command::Modify | Command::ModifyStrict => (head.cookie != u64::MAX).then_some(head.cookie),
        Command::Delete | Command::DeleteStrict => None,
    }
}

/// Reads Nicira's flow-mod (nicira-ext 13).
pub(super) fn read_nicira_mod(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowModMessage, ErrorCode> {
    let mut head = read_head_10(codec, r)?;
    let bytes = usize::from(r.u16()?);
    r.skip(6)?;
    let (matches, cookie) = oxm::read_nxm(r, bytes)?;
    let new_cookie = new_cookie_10(&head);
    if head.command == Command::Add && cookie.is_some() {
        return Err(ErrorCode::NiciraRequestNxmInvalid);
    }
    (head.cookie, head.cookie_mask) = cookie.unwrap_or((0, 0));
    message(codec, r, head, new_cookie, matches, FlowFormat::Nxm)
}

fn message(
    codec: &Codec,
    r: &mut Reader<'_>,
    mut head: Head,
    new_cookie: Option<u64>,
    matches: Match,
    format: FlowFormat,
) -> Result<FlowModMessage, ErrorCode> {
    if head.command == Command::Add && head.table.is_none() {
        match codec.is_10() {
            true => head.table = Some(0),
            false => return Err(ErrorCode::FlowModBadTableId),
        }
    }
    if !head.command.deletes() {
        (head.out_port, head.out_group) = (None, GROUP_ANY);
    }
    let rule = Rule {
        table: head.table.unwrap_or(0),
        priority: Priority(head.priority.into()),
        cookie: new_cookie.unwrap_or(0),
        matches,
        actions: read_instructions(codec, r.take_rest())?,
    };
    Ok(FlowModMessage {
        format,
        flow_mod: flow_mod(&head, new_cookie, rule),
        buffer_id: (head.buffer_id != NO_BUFFER).then_some(head.buffer_id),
    })
}

/// Returns whether a flow-mod of OpenFlow 1.0 is written as Nicira's: because it was read so, or OpenFlow's cannot express it.
pub(super) fn is_nicira(message: &FlowModMessage) -> bool {
    let rule = &message.flow_mod.rule;
    let has_condition = message.flow_mod.cookie.is_some();
    message.format == FlowFormat::Nxm
        || has_condition
        || match10::put(&mut Writer::default(), &rule.matches).is_err()
}

/// Writes a flow-mod; of OpenFlow 1.0, OpenFlow's or Nicira's.
pub(super) fn put_mod(w: &mut Writer, codec: &Codec, message: &FlowModMessage) -> Result<(), Failed> {
    let change = &message.flow_mod;
    let matches = &change.rule.matches;
    let is_nicira = codec.is_10() && is_nicira(message);
    if codec.is_10() {
        if !is_nicira {
            match10::put(w, matches)?;
        }
        put_head_10(w, codec, message);
    } else {
        put_head_13(w, codec, message);
        oxm::put_match(w, codec, matches)?;
    }
    if is_nicira {
        let at = w.len();
        w.u16(0).zeros(6);
        let bytes = oxm::put_nxm(w, codec, matches, change.cookie)?;
        w.set_u16(at, bytes);
    }
    put_instructions(w, codec, matches, &change.rule.actions)
}

fn put_head_10(w: &mut Writer, codec: &Codec, message: &FlowModMessage) {
    let change = &message.flow_mod;
    let keeps = matches!(change.command, Command::Modify | Command::ModifyStrict);
    let number = u16::from(command_number(change.command));
    let table = if codec.flow_mod_table_id { change.table.unwrap_or(ALL_TABLES) } else { 0 };
    w.u64(change.new_cookie.unwrap_or(if keeps { u64::MAX } else { 0 }));
    w.u16(u16::from(table) << 8 | number).u16(change.idle_timeout_s).u16(change.hard_timeout_s);
    w.u16(change.rule.priority.0 as u16).u32(message.buffer_id.unwrap_or(NO_BUFFER));
    put_port_any(w, codec, change.out_port);
    w.u16(change.flags.0);
}

fn put_head_13(w: &mut Writer, codec: &Codec, message: &FlowModMessage) {
    let change = &message.flow_mod;
    let (cookie, mask) = match (change.command, change.cookie) {
        (Command::Add, _) => (change.new_cookie.unwrap_or(0), 0),
        (_, Some(condition)) => condition,
        (_, None) => (0, 0),
    };
    w.u64(cookie).u64(mask).u8(change.table.unwrap_or(ALL_TABLES)).u8(command_number(change.command));
    w.u16(change.idle_timeout_s).u16(change.hard_timeout_s).u16(change.rule.priority.0 as u16);
    w.u32(message.buffer_id.unwrap_or(NO_BUFFER));
    put_port_any(w, codec, change.out_port);
    w.u32(change.out_group.unwrap_or(GROUP_ANY)).u16(change.flags.0);
    w.u16(if codec.version == Version::OpenFlow13 { 0 } else { change.importance });
}

/// Reads a request for flows.
pub(super) fn read_request(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowStatsRequest, ErrorCode> {
    let mut request = FlowStatsRequest::all(FlowFormat::Standard);
    let table;
    if codec.is_10() {
        request.matches = match10::read(r)?.0;
        table = r.u8()?;
        r.skip(1)?;
        request.out_port = port_any(read_port_any(codec, r)?);
    } else {
        table = r.u8()?;
        r.skip(3)?;
        request.out_port = port_any(read_port_any(codec, r)?);
        request.out_group = Some(r.u32()?).filter(|group| *group != GROUP_ANY);
        r.skip(4)?;
        (request.cookie, request.cookie_mask) = (r.u64()?, r.u64()?);
        request.cookie &= request.cookie_mask;
        request.matches = oxm::read_match(r)?;
    }
    request.table = (table != ALL_TABLES).then_some(table);
    Ok(request)
}

/// Reads Nicira's request for flows (nicira-ext `NXST_FLOW`).
pub(super) fn read_nicira_request(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowStatsRequest, ErrorCode> {
    let out_port = port_any(read_port_any(codec, r)?);
    let (bytes, table) = (usize::from(r.u16()?), r.u8()?);
    r.skip(3)?;
    let (matches, cookie) = oxm::read_nxm(r, bytes)?;
    let (cookie, cookie_mask) = cookie.unwrap_or((0, 0));
    Ok(FlowStatsRequest {
        format: FlowFormat::Nxm,
        table: (table != ALL_TABLES).then_some(table),
        out_port,
        out_group: None,
        cookie,
        cookie_mask,
        matches,
    })
}

/// Writes a request for flows.
pub(super) fn put_request(w: &mut Writer, codec: &Codec, request: &FlowStatsRequest) -> Result<(), Failed> {
    let table = request.table.unwrap_or(ALL_TABLES);
    match (codec.is_10(), request.format) {
        (true, FlowFormat::Standard) => {
            match10::put(w, &request.matches)?;
            w.u8(table).zeros(1);
            put_port_any(w, codec, request.out_port);
        }
        (true, FlowFormat::Nxm) => {
            put_port_any(w, codec, request.out_port);
            let at = w.len();
            w.u16(0).u8(table).zeros(3);
            let cookie = Some((request.cookie, request.cookie_mask));
            let bytes = oxm::put_nxm(w, codec, &request.matches, cookie)?;
            w.set_u16(at, bytes);
        }
        (false, _) => {
            w.u8(table).zeros(3);
            put_port_any(w, codec, request.out_port);
            w.u32(request.out_group.unwrap_or(GROUP_ANY)).zeros(4);
            w.u64(request.cookie).u64(request.cookie_mask);
            oxm::put_match(w, codec, &request.matches)?;
        }
    }
    Ok(())
}

/// Reads a message about a flow that went.
pub(super) fn read_removed(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowRemoved, ErrorCode> {
    if codec.version == Version::OpenFlow15 {
        return read_removed_15(r);
    }
    let is_10 = codec.is_10();
    let first = if is_10 { match10::read(r)?.0 } else { Match::any() };
    let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, r.u8()?, r.u8()?);
    let (duration_s, duration_ns, idle_timeout_s, hard) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let (packets, bytes) = (r.u64()?, r.u64()?);
    Ok(FlowRemoved {
        format: FlowFormat::Standard,
        matches: if is_10 { first } else { oxm::read_match(r)? },
        cookie,
        priority: Priority(priority.into()),
        reason,
        table: (!is_10).then_some(table),
        duration_s,
        duration_ns,
        idle_timeout_s,
        hard_timeout_s: if is_10 { 0 } else { hard },
        packets,
        bytes,
    })
}

/// Reads the message of OpenFlow 1.5 (7.4.2), with its list of statistics.
fn read_removed_15(r: &mut Reader<'_>) -> Result<FlowRemoved, ErrorCode> {
    let (table, reason, priority) = (r.u8()?, r.u8()?, r.u16()?);
    let (idle_timeout_s, hard_timeout_s, cookie) = (r.u16()?, r.u16()?, r.u64()?);
    let matches = oxm::read_match(r)?;
    let counters = super::flow_stats::read_counters(r)?;
    Ok(FlowRemoved {
        format: FlowFormat::Standard,
        matches,
        cookie,
        priority: Priority(priority.into()),
        reason,
        table: Some(table),
        duration_s: counters.duration.0,
        duration_ns: counters.duration.1,
        idle_timeout_s,
        hard_timeout_s,
        packets: counters.packets,
        bytes: counters.bytes,
    })
}

/// Writes the message of OpenFlow 1.5.
fn put_removed_15(w: &mut Writer, codec: &Codec, removed: &FlowRemoved) -> Result<(), Failed> {
    w.u8(removed.table.unwrap_or(0)).u8(removed.reason).u16(removed.priority.0 as u16);
    w.u16(removed.idle_timeout_s).u16(removed.hard_timeout_s).u64(removed.cookie);
    oxm::put_match(w, codec, &removed.matches)?;
    let duration = (removed.duration_s, removed.duration_ns);
    super::flow_stats::put_counters(w, duration, None, removed.packets, removed.bytes);
    Ok(())
}

/// Reads Nicira's message about a flow that went (nicira-ext 14).
pub(super) fn read_nicira_removed(r: &mut Reader<'_>) -> Result<FlowRemoved, ErrorCode> {
    let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, r.u8()?, r.u8()?);
    let (duration_s, duration_ns, idle_timeout_s) = (r.u32()?, r.u32()?, r.u16()?);
    let (match_bytes, packets, bytes) = (usize::from(r.u16()?), r.u64()?, r.u64()?);
    Ok(FlowRemoved {
        format: FlowFormat::Nxm,
        matches: oxm::read_nxm(r, match_bytes)?.0,
        cookie,
        priority: Priority(priority.into()),
        reason,
        table: table.checked_sub(1),
        duration_s,
        duration_ns,
        idle_timeout_s,
        hard_timeout_s: 0,
        packets,
        bytes,
    })
}

/// Writes a message about a flow that went.
pub(super) fn put_removed(w: &mut Writer, codec: &Codec, removed: &FlowRemoved) -> Result<(), Failed> {
    if codec.version == Version::OpenFlow15 {
        return put_removed_15(w, codec, removed);
    }
    let is_nicira = codec.is_10() && removed.format == FlowFormat::Nxm;
    if codec.is_10() && !is_nicira {
        match10::put(w, &removed.matches)?;
    }
    let table = match (codec.is_10(), is_nicira) {
        (_, true) => removed.table.map_or(0, |table| table.wrapping_add(1)),
        (true, _) => 0,
        (false, _) => removed.table.unwrap_or(0),
    };
    w.u64(removed.cookie).u16(removed.priority.0 as u16).u8(removed.reason).u8(table);
    w.u32(removed.duration_s).u32(removed.duration_ns).u16(removed.idle_timeout_s);
    let at = w.len();
    w.u16(if codec.is_10() { 0 } else { removed.hard_timeout_s }).u64(removed.packets).u64(removed.bytes);
    if is_nicira {
        let bytes = oxm::put_nxm(w, codec, &removed.matches, None)?;
        w.set_u16(at, bytes);
    } else if !codec.is_10() {
        oxm::put_match(w, codec, &removed.matches)?;
    }
    Ok(())
}

/// Reads sums over flows.
pub(super) fn read_aggregate(codec: &Codec, r: &mut Reader<'_>) -> Result<AggregateStats, ErrorCode> {
    if codec.version == Version::OpenFlow15 {
        let counters = super::flow_stats::read_counters(r)?;
        return Ok(AggregateStats {
            packets: counters.packets,
            bytes: counters.bytes,
            flows: counters.flows,
        });
    }
    let stats = AggregateStats { packets: r.u64()?, bytes: r.u64()?, flows: r.u32()? };
    r.skip(4)?;
    Ok(stats)
}

/// Writes sums over flows.
pub(super) fn put_aggregate(w: &mut Writer, codec: &Codec, stats: &AggregateStats) {
    if codec.version == Version::OpenFlow15 {
        return super::flow_stats::put_sums(w, stats);
    }
    w.u64(stats.packets).u64(stats.bytes).u32(stats.flows).zeros(4);
}

/// A flow without numbers.
pub(super) fn empty_stats() -> FlowStats {
    FlowStats::new(Rule::new(Match::any(), Vec::new()))
}
