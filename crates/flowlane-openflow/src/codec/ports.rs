//! Ports and queues.

use flowlane::PortNo;

use super::{port_any, put_port, put_port_any, read_port, read_port_any};
use crate::error::ErrorCode;
use crate::port::{Port, PortMod, PortReason, PortStatus};
use crate::property;
use crate::settings::Codec;
use crate::stats::{PortStats, QueueStats};
use crate::version::Version;
use crate::wire::{Reader, Writer};

/// Returns whether a version has properties in place of fixed fields.
fn has_properties(codec: &Codec) -> bool {
    codec.version >= Version::OpenFlow14
}

/// OpenFlow 1.0 has the media five bits lower, and no speeds beyond 10 Gb/s.
const MEDIA_10: u32 = 0xf80;

fn features_of_10(bits: u32) -> u32 {
    bits & 0x7f | (bits & MEDIA_10) << 4
}

fn features_to_10(bits: u32) -> u32 {
    bits & 0x7f | bits >> 4 & MEDIA_10
}

/// Reads descriptions up to the end of a message.
pub(super) fn read_descriptions(codec: &Codec, r: &mut Reader<'_>) -> Result<Vec<Port>, ErrorCode> {
    let mut ports = Vec::new();
    while !r.is_empty() {
        ports.push(read_description(codec, r)?);
    }
    Ok(ports)
}

/// Reads a description of a port.
pub(super) fn read_description(codec: &Codec, r: &mut Reader<'_>) -> Result<Port, ErrorCode> {
    let mut port = Port {
        number: read_port(codec, r)?,
        hw_addr: [0; 6],
        name: String::new(),
        config: 0,
        state: 0,
        current: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        speed_kbps: 0,
        max_speed_kbps: 0,
    };
    let mut body = match codec.version {
        Version::OpenFlow10 => r.part(46)?,
        Version::OpenFlow13 => r.part(60)?,
        Version::OpenFlow14 | Version::OpenFlow15 => {
            let bytes = usize::from(r.u16()?).checked_sub(6).ok_or(r.bad_length())?;
            r.part(bytes)?
        }
    };
    match codec.version {
        Version::OpenFlow10 => {}
        Version::OpenFlow13 => body.skip(4)?,
        Version::OpenFlow14 | Version::OpenFlow15 => body.skip(2)?,
    }
    port.hw_addr = body.array()?;
    if !codec.is_10() {
        body.skip(2)?;
    }
    port.name = body.text(16)?;
    (port.config, port.state) = (body.u32()?, body.u32()?);
    if has_properties(codec) {
        while !body.is_empty() {
            let (kind, mut property) = property::read(&mut body, ErrorCode::PropertyBadLen)?;
            if kind == 0 {
                property.skip(4)?;
                read_speeds(&mut property, &mut port, true)?;
            }
        }
        return Ok(port);
    }
    read_speeds(&mut body, &mut port, !codec.is_10())?;
    if codec.is_10() {
        for bits in [&mut port.current, &mut port.advertised, &mut port.supported, &mut port.peer] {
            *bits = features_of_10(*bits);
        }
    }
    Ok(port)
}

fn read_speeds(r: &mut Reader<'_>, port: &mut Port, has_speeds: bool) -> Result<(), ErrorCode> {
    (port.current, port.advertised) = (r.u32()?, r.u32()?);
    (port.supported, port.peer) = (r.u32()?, r.u32()?);
    if has_speeds {
        (port.speed_kbps, port.max_speed_kbps) = (r.u32()?, r.u32()?);
    }
    Ok(())
}

/// Writes a description of a port.
pub(super) fn put_description(w: &mut Writer, codec: &Codec, port: &Port) {
    let features = [port.current, port.advertised, port.supported, port.peer];
    let start = w.len();
    put_port(w, codec, port.number);
    match codec.version {
        Version::OpenFlow10 => {
            w.put(&port.hw_addr).text(&port.name, 16).u32(port.config).u32(port.state);
            features.iter().for_each(|bits| _ = w.u32(features_to_10(*bits)));
        }
        Version::OpenFlow13 => {
            w.zeros(4).put(&port.hw_addr).zeros(2).text(&port.name, 16).u32(port.config).u32(port.state);
            features.iter().for_each(|bits| _ = w.u32(*bits));
            w.u32(port.speed_kbps).u32(port.max_speed_kbps);
        }
        Version::OpenFlow14 | Version::OpenFlow15 => {
            w.u16(0).zeros(2).put(&port.hw_addr).zeros(2).text(&port.name, 16);
            w.u32(port.config).u32(port.state);
            property::put(w, 0, |w| {
                w.zeros(4);
                features.iter().for_each(|bits| _ = w.u32(*bits));
                w.u32(port.speed_kbps).u32(port.max_speed_kbps);
            });
            w.set_length(start + 4, start);
        }
    }
}

/// Reads a message about a port that changed.
pub(super) fn read_status(codec: &Codec, r: &mut Reader<'_>) -> Result<PortStatus, ErrorCode> {
    let reason = match r.u8()? {
        0 => PortReason::Add,
        1 => PortReason::Delete,
        2 => PortReason::Modify,
        _ => return Err(ErrorCode::NiciraRequestBadReason),
    };
    r.skip(7)?;
    Ok(PortStatus { reason, port: read_description(codec, r)? })
}

/// Writes a message about a port that changed.
pub(super) fn put_status(w: &mut Writer, codec: &Codec, status: &PortStatus) {
    let reason = match status.reason {
        PortReason::Add => 0,
        PortReason::Delete => 1,
        PortReason::Modify => 2,
    };
    w.u8(reason).zeros(7);
    put_description(w, codec, &status.port);
}

/// Reads a change of a port.
pub(super) fn read_mod(codec: &Codec, r: &mut Reader<'_>) -> Result<PortMod, ErrorCode> {
    let port = read_port(codec, r).map_err(|_| ErrorCode::PortModBadPort)?;
    if !codec.is_10() {
        r.skip(4)?;
    }
    let hw_addr = r.array()?;
    if !codec.is_10() {
        r.skip(2)?;
    }
    let (config, mask) = (r.u32()?, r.u32()?);
    let mut advertise = None;
    if has_properties(codec) {
        while !r.is_empty() {
            let (kind, mut property) = property::read(r, ErrorCode::PropertyBadLen)?;
            match kind {
                0 => advertise = Some(property.u32()?),
                _ => return Err(ErrorCode::PropertyBadType),
            }
        }
    } else {
        let bits = r.u32()?;
        r.skip(4)?;
        advertise = Some(if codec.is_10() { features_of_10(bits) } else { bits });
    }
    Ok(PortMod { port, hw_addr, config: config & mask, mask, advertise })
}

/// Writes a change of a port.
pub(super) fn put_mod(w: &mut Writer, codec: &Codec, change: &PortMod) {
    put_port(w, codec, change.port);
    match codec.version {
        Version::OpenFlow10 => {
            w.put(&change.hw_addr).u32(change.config).u32(change.mask);
            w.u32(features_to_10(change.advertise.unwrap_or(0))).zeros(4);
        }
        Version::OpenFlow13 => {
            w.zeros(4).put(&change.hw_addr).zeros(2).u32(change.config).u32(change.mask);
            w.u32(change.advertise.unwrap_or(0)).zeros(4);
        }
        Version::OpenFlow14 | Version::OpenFlow15 => {
            w.zeros(4).put(&change.hw_addr).zeros(2).u32(change.config).u32(change.mask);
            if let Some(bits) = change.advertise {
                property::put(w, 0, |w| _ = w.u32(bits));
            }
        }
    }
}

/// Reads statistics of a port.
pub(super) fn read_stats(codec: &Codec, r: &mut Reader<'_>) -> Result<PortStats, ErrorCode> {
    let mut body = match codec.version {
        Version::OpenFlow10 => r.part(104)?,
        Version::OpenFlow13 => r.part(112)?,
        Version::OpenFlow14 | Version::OpenFlow15 => {
            let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
            r.part(bytes)?
        }
    };
    let r = &mut body;
    let (mut duration, mut more) = ((0, 0), [0; 4]);
    if has_properties(codec) {
        r.skip(2)?;
    }
    let port = read_port(codec, r)?;
    match codec.version {
        Version::OpenFlow10 => r.skip(6)?,
        Version::OpenFlow13 => r.skip(4)?,
        Version::OpenFlow14 | Version::OpenFlow15 => duration = (r.u32()?, r.u32()?),
    }
    let mut first = [0; 8];
    for counter in &mut first {
        *counter = r.u64()?;
    }
    if !has_properties(codec) {
        for counter in &mut more {
            *counter = r.u64()?;
        }
        if !codec.is_10() {
            duration = (r.u32()?, r.u32()?);
        }
    }
    while has_properties(codec) && !r.is_empty() {
        let (kind, mut property) = property::read(r, ErrorCode::PropertyBadLen)?;
        if kind == 0 {
            property.skip(4)?;
            for counter in &mut more {
                *counter = property.u64()?;
            }
        }
    }
    let [rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, rx_errors, tx_errors] = first;
    let [rx_frame_errors, rx_over_errors, rx_crc_errors, collisions] = more;
    let (duration_s, duration_ns) = duration;
    Ok(PortStats {
        port,
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_dropped,
        tx_dropped,
        rx_errors,
        tx_errors,
        rx_frame_errors,
        rx_over_errors,
        rx_crc_errors,
        collisions,
        duration_s,
        duration_ns,
    })
}

/// Writes statistics of a port.
pub(super) fn put_stats(w: &mut Writer, codec: &Codec, stats: &PortStats) {
    let first = [
        stats.rx_packets,
        stats.tx_packets,
        stats.rx_bytes,
        stats.tx_bytes,
        stats.rx_dropped,
        stats.tx_dropped,
        stats.rx_errors,
        stats.tx_errors,
    ];
    let more = [stats.rx_frame_errors, stats.rx_over_errors, stats.rx_crc_errors, stats.collisions];
    let start = w.len();
    if has_properties(codec) {
        w.u16(0).zeros(2);
        put_port(w, codec, stats.port);
        w.u32(stats.duration_s).u32(stats.duration_ns);
        first.iter().for_each(|counter| _ = w.u64(*counter));
        property::put(w, 0, |w| {
            w.zeros(4);
            more.iter().for_each(|counter| _ = w.u64(*counter));
        });
        w.set_length(start, start);
        return;
    }
    put_port(w, codec, stats.port);
    w.zeros(if codec.is_10() { 6 } else { 4 });
    first.iter().chain(&more).for_each(|counter| _ = w.u64(*counter));
    if !codec.is_10() {
        w.u32(stats.duration_s).u32(stats.duration_ns);
    }
}

/// Reads the port and queue of a request.
pub(super) fn read_queue(
    codec: &Codec,
    r: &mut Reader<'_>,
) -> Result<(Option<PortNo>, Option<u32>), ErrorCode> {
    let port = read_port_any(codec, r)?;
    if codec.is_10() {
        r.skip(2)?;
    }
    let queue = r.u32()?;
    Ok((port_any(port), (queue != u32::MAX).then_some(queue)))
}

/// Writes the port and queue of a request.
pub(super) fn put_queue(w: &mut Writer, codec: &Codec, port: Option<PortNo>, queue: Option<u32>) {
    put_port_any(w, codec, port);
    if codec.is_10() {
        // All ports, not any: as Open vSwitch asks in this version.
        if port.is_none() {
            let at = w.len() - 2;
            w.set_u16(at, 0xfffc);
        }
        w.zeros(2);
    }
    w.u32(queue.unwrap_or(u32::MAX));
}

/// Reads statistics of a queue.
pub(super) fn read_queue_stats(codec: &Codec, r: &mut Reader<'_>) -> Result<QueueStats, ErrorCode> {
    if has_properties(codec) {
        let bytes = usize::from(r.u16()?).checked_sub(2).ok_or(r.bad_length())?;
        let mut body = r.part(bytes)?;
        body.skip(6)?;
        return read_queue_counters(codec, &mut body);
    }
    read_queue_counters(codec, r)
}

fn read_queue_counters(codec: &Codec, r: &mut Reader<'_>) -> Result<QueueStats, ErrorCode> {
    let port = read_port(codec, r)?;
    if codec.is_10() {
        r.skip(2)?;
    }
    let (queue, tx_bytes, tx_packets, tx_errors) = (r.u32()?, r.u64()?, r.u64()?, r.u64()?);
    let (duration_s, duration_ns) = if codec.is_10() { (0, 0) } else { (r.u32()?, r.u32()?) };
    Ok(QueueStats { port, queue, tx_bytes, tx_packets, tx_errors, duration_s, duration_ns })
}

/// Writes statistics of a queue.
pub(super) fn put_queue_stats(w: &mut Writer, codec: &Codec, stats: &QueueStats) {
    if has_properties(codec) {
        w.u16(48).zeros(6);
    }
    put_port(w, codec, stats.port);
    if codec.is_10() {
        w.zeros(2);
    }
    w.u32(stats.queue).u64(stats.tx_bytes).u64(stats.tx_packets).u64(stats.tx_errors);
    if !codec.is_10() {
        w.u32(stats.duration_s).u32(stats.duration_ns);
    }
}
