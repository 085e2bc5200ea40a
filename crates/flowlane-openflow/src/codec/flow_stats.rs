//! Flows with their statistics (OpenFlow 1.0 5.3.5, 1.3.5 7.3.5.2, 1.5.1 7.3.5.2 and 7.2.4, nicira-ext `NXST_FLOW`).

use flowlane::Priority;

use super::flows::empty_stats;
use crate::action::{put_instructions, read_instructions};
use crate::error::ErrorCode;
use crate::match10;
use crate::oxm;
use crate::settings::Codec;
use crate::stats::{AggregateStats, FlowFormat, FlowStats};
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// The class of statistics of OpenFlow 1.5 (7.2.4.2).
const OXS: u16 = 0x8002;

/// Numbers of statistics.
mod field {
    pub(super) const DURATION: u8 = 0;
    pub(super) const IDLE_TIME: u8 = 1;
    pub(super) const FLOWS: u8 = 3;
    pub(super) const PACKETS: u8 = 4;
    pub(super) const BYTES: u8 = 5;
}

/// The statistics of a list.
pub(super) struct Counters {
    pub(super) duration: (u32, u32),
    pub(super) idle_s: Option<u32>,
    pub(super) flows: u32,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Reads a list of statistics.
pub(super) fn read_counters(r: &mut Reader<'_>) -> Result<Counters, ErrorCode> {
    r.skip(2)?;
    let length = usize::from(r.u16()?);
    let mut list = r.part(length.checked_sub(4).ok_or(r.bad_length())?)?;
    r.skip(length.next_multiple_of(8) - length)?;
    let mut counters =
        Counters { duration: (0, 0), idle_s: None, flows: 0, packets: u64::MAX, bytes: u64::MAX };
    while !list.is_empty() {
        let (class, number, length) = (list.u16()?, list.u8()? >> 1, list.u8()?);
        let mut value = list.part(length.into())?;
        match number {
            _ if class != OXS => {}
            field::DURATION => counters.duration = (value.u32()?, value.u32()?),
            field::IDLE_TIME => counters.idle_s = Some(value.u32()?),
            field::FLOWS => counters.flows = value.u32()?,
            field::PACKETS => counters.packets = value.u64()?,
            field::BYTES => counters.bytes = value.u64()?,
            _ => {}
        }
    }
    Ok(counters)
}

fn put_list(w: &mut Writer, list: impl FnOnce(&mut Writer)) {
    let start = w.len();
    w.zeros(4);
    list(w);
    w.set_length(start + 2, start);
    w.pad(start, 8);
}

fn head(w: &mut Writer, number: u8, bytes: u8) -> &mut Writer {
    w.u16(OXS).u8(number << 1).u8(bytes)
}

/// Writes sums as a list of statistics.
pub(super) fn put_sums(w: &mut Writer, stats: &AggregateStats) {
    put_list(w, |w| {
        head(w, field::PACKETS, 8).u64(stats.packets);
        head(w, field::BYTES, 8).u64(stats.bytes);
        head(w, field::FLOWS, 4).u32(stats.flows);
    });
}

/// Writes a flow's statistics as a list.
pub(super) fn put_counters(
    w: &mut Writer,
    duration: (u32, u32),
    idle_s: Option<u32>,
    packets: u64,
    bytes: u64,
) {
    put_list(w, |w| {
        head(w, field::DURATION, 8).u32(duration.0).u32(duration.1);
        if let Some(idle_s) = idle_s {
            head(w, field::IDLE_TIME, 8).u32(idle_s).u32(0);
        }
        head(w, field::PACKETS, 8).u64(packets);
        head(w, field::BYTES, 8).u64(bytes);
    });
}

/// Reads a flow.
pub(super) fn read(codec: &Codec, format: FlowFormat, r: &mut Reader<'_>) -> Result<FlowStats, ErrorCode> {
    let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
    let mut body = r.part(bytes)?;
    match (codec.version, format) {
        (Version::OpenFlow10, FlowFormat::Standard) => read_10(codec, &mut body),
        (Version::OpenFlow10, FlowFormat::Nxm) => read_nicira(codec, &mut body),
        (Version::OpenFlow13 | Version::OpenFlow14, _) => read_13(codec, &mut body),
        (Version::OpenFlow15, _) => read_15(codec, &mut body),
    }
}

fn read_counts(flow: &mut FlowStats, r: &mut Reader<'_>) -> Result<(), ErrorCode> {
    (flow.rule.cookie, flow.packets, flow.bytes) = (r.u64()?, r.u64()?, r.u64()?);
    Ok(())
}

/// Reads table, duration, priority and time-outs.
fn read_times(flow: &mut FlowStats, r: &mut Reader<'_>) -> Result<(), ErrorCode> {
    (flow.duration_s, flow.duration_ns) = (r.u32()?, r.u32()?);
    flow.rule.priority = Priority(r.u16()?.into());
    (flow.idle_timeout_s, flow.hard_timeout_s) = (r.u16()?, r.u16()?);
    Ok(())
}

fn read_10(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowStats, ErrorCode> {
    let mut flow = empty_stats();
    flow.rule.table = r.u8()?;
    r.skip(1)?;
    flow.rule.matches = match10::read(r)?.0;
    read_times(&mut flow, r)?;
    r.skip(6)?;
    read_counts(&mut flow, r)?;
    flow.rule.actions = read_instructions(codec, r.take_rest())?;
    Ok(flow)
}

fn read_nicira(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowStats, ErrorCode> {
    let mut flow = empty_stats();
    flow.rule.table = r.u8()?;
    r.skip(1)?;
    read_times(&mut flow, r)?;
    let bytes = usize::from(r.u16()?);
    // An age is one more than the seconds; 0 is unknown.
    (flow.idle_age_s, flow.hard_age_s) =
        (r.u16()?.checked_sub(1).map(u32::from), r.u16()?.checked_sub(1).map(u32::from));
    read_counts(&mut flow, r)?;
    flow.rule.matches = oxm::read_nxm(r, bytes)?.0;
    flow.rule.actions = read_instructions(codec, r.take_rest())?;
    Ok(flow)
}

fn read_13(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowStats, ErrorCode> {
    let mut flow = empty_stats();
    flow.rule.table = r.u8()?;
    r.skip(1)?;
    read_times(&mut flow, r)?;
    (flow.flags, flow.importance) = (r.u16()?, r.u16()?);
    if codec.version == Version::OpenFlow13 {
        flow.importance = 0;
    }
    r.skip(2)?;
    read_counts(&mut flow, r)?;
    flow.rule.matches = oxm::read_match(r)?;
    flow.rule.actions = read_instructions(codec, r.take_rest())?;
    Ok(flow)
}

fn read_15(codec: &Codec, r: &mut Reader<'_>) -> Result<FlowStats, ErrorCode> {
    let mut flow = empty_stats();
    r.skip(2)?;
    flow.rule.table = r.u8()?;
    r.skip(1)?;
    flow.rule.priority = Priority(r.u16()?.into());
    (flow.idle_timeout_s, flow.hard_timeout_s) = (r.u16()?, r.u16()?);
    (flow.flags, flow.importance, flow.rule.cookie) = (r.u16()?, r.u16()?, r.u64()?);
    flow.rule.matches = oxm::read_match(r)?;
    let counters = read_counters(r)?;
    (flow.duration_s, flow.duration_ns) = counters.duration;
    (flow.idle_age_s, flow.packets, flow.bytes) = (counters.idle_s, counters.packets, counters.bytes);
    flow.rule.actions = read_instructions(codec, r.take_rest())?;
    Ok(flow)
}

/// Writes a flow.
pub(super) fn put(w: &mut Writer, codec: &Codec, format: FlowFormat, flow: &FlowStats) -> Result<(), Failed> {
    let start = w.len();
    let rule = &flow.rule;
    w.u16(0);
    match (codec.version, format) {
        (Version::OpenFlow10, FlowFormat::Standard) => {
            w.u8(rule.table).zeros(1);
            match10::put(w, &rule.matches)?;
            put_times(w, flow);
            w.zeros(6);
            put_counts(w, flow);
        }
        (Version::OpenFlow10, FlowFormat::Nxm) => {
            w.u8(rule.table).zeros(1);
            put_times(w, flow);
            let at = w.len();
            let age = |age: Option<u32>| age.map_or(0, |age| (age.min(0xfffe) + 1) as u16);
            w.u16(0).u16(age(flow.idle_age_s)).u16(age(flow.hard_age_s));
            put_counts(w, flow);
            let bytes = oxm::put_nxm(w, codec, &rule.matches, None)?;
            w.set_u16(at, bytes);
        }
        (Version::OpenFlow13 | Version::OpenFlow14, _) => {
            let importance = if codec.version == Version::OpenFlow13 { 0 } else { flow.importance };
            w.u8(rule.table).zeros(1);
            put_times(w, flow);
            w.u16(flow.flags).u16(importance).zeros(2);
            put_counts(w, flow);
            oxm::put_match(w, codec, &rule.matches)?;
        }
        (Version::OpenFlow15, _) => {
            w.zeros(2).u8(rule.table).zeros(1).u16(rule.priority.0 as u16);
            w.u16(flow.idle_timeout_s).u16(flow.hard_timeout_s).u16(flow.flags).u16(flow.importance);
            w.u64(rule.cookie);
            oxm::put_match(w, codec, &rule.matches)?;
            let duration = (flow.duration_s, flow.duration_ns);
            put_counters(w, duration, flow.idle_age_s, flow.packets, flow.bytes);
        }
    }
    put_instructions(w, codec, &rule.matches, &rule.actions)?;
    w.set_length(start, start);
    Ok(())
}

fn put_times(w: &mut Writer, flow: &FlowStats) {
    w.u32(flow.duration_s).u32(flow.duration_ns).u16(flow.rule.priority.0 as u16);
    w.u16(flow.idle_timeout_s).u16(flow.hard_timeout_s);
}

fn put_counts(w: &mut Writer, flow: &FlowStats) {
    w.u64(flow.rule.cookie).u64(flow.packets).u64(flow.bytes);
}
