//! Configurations of queues (OpenFlow 1.0 5.3.4, 1.3.5 7.3.6, 1.4.1 7.3.5.11).

use flowlane::PortNo;

use super::{put_port, read_port};
use crate::error::ErrorCode;
use crate::header::MESSAGE_BYTES_MAX;
use crate::property;
use crate::settings::Codec;
use crate::stats::QueueConfig;
use crate::version::Version;
use crate::wire::{Reader, Writer};

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
/// Bytes of a rate in a reply of OpenFlow 1.0 and 1.3.
const RATE_BYTES: usize = 16;

/// Reads the queues of a port.
pub(super) fn read_reply(codec: &Codec, r: &mut Reader<'_>) -> Result<(PortNo, Vec<QueueConfig>), ErrorCode> {
    let port = read_port(codec, r)?;
    r.skip(if codec.is_10() { 6 } else { 4 })?;
    let mut queues = Vec::new();
    while !r.is_empty() {
        let queue = r.u32()?;
        let (own, fixed) = if codec.is_10() { (port, 8) } else { (read_port(codec, r)?, 16) };
        let bytes = usize::from(r.u16()?).checked_sub(fixed).ok_or(r.bad_length())?;
        r.skip(if codec.is_10() { 2 } else { 6 })?;
        let mut properties = r.part(bytes)?;
        let mut config = QueueConfig { port: own, queue, min_rate: None, max_rate: None };
        while !properties.is_empty() {
            let (kind, mut property) = property::read(&mut properties, r.bad_length())?;
            property.skip(4)?;
            match kind {
                MIN_RATE => config.min_rate = Some(property.u16()?),
                MAX_RATE => config.max_rate = Some(property.u16()?),
                _ => {}
            }
        }
        queues.push(config);
    }
    Ok((port, queues))
}

/// Writes the queues of a port: those that a message holds, since no other one follows it.
pub(super) fn put_reply(w: &mut Writer, codec: &Codec, port: PortNo, queues: &[QueueConfig]) {
    put_port(w, codec, port);
    w.zeros(if codec.is_10() { 6 } else { 4 });
    for queue in queues {
        let start = w.len();
        let rates = usize::from(queue.min_rate.is_some()) + usize::from(queue.max_rate.is_some());
        let bytes = if codec.is_10() { 8 } else { 16 } + rates * RATE_BYTES;
        if start + bytes > MESSAGE_BYTES_MAX {
            break;
        }
        w.u32(queue.queue);
        if !codec.is_10() {
            put_port(w, codec, queue.port);
        }
        let at = w.len();
        w.u16(0).zeros(if codec.is_10() { 2 } else { 6 });
        for (kind, rate) in [(MIN_RATE, queue.min_rate), (MAX_RATE, queue.max_rate)] {
            if let Some(rate) = rate {
                w.u16(kind).u16(RATE_BYTES as u16).zeros(4).u16(rate).zeros(6);
            }
        }
        w.set_length(at, start);
    }
}

/// Reads a description of a queue.
pub(super) fn read_description(codec: &Codec, r: &mut Reader<'_>) -> Result<QueueConfig, ErrorCode> {
    let (port, queue) = (read_port(codec, r)?, r.u32()?);
    let bytes = usize::from(r.u16()?).checked_sub(16).ok_or(r.bad_length())?;
    r.skip(6)?;
    let mut properties = r.part(bytes)?;
    let mut config = QueueConfig { port, queue, min_rate: None, max_rate: None };
    while !properties.is_empty() {
        let (kind, mut property) = property::read(&mut properties, ErrorCode::PropertyBadLen)?;
        match kind {
            MIN_RATE => config.min_rate = Some(property.u16()?),
            MAX_RATE => config.max_rate = Some(property.u16()?),
            _ => {}
        }
    }
    Ok(config)
}

/// Writes a description of a queue.
pub(super) fn put_description(w: &mut Writer, codec: &Codec, queue: &QueueConfig) {
    debug_assert!(codec.version >= Version::OpenFlow14, "older versions have no such message");
    let start = w.len();
    put_port(w, codec, queue.port);
    w.u32(queue.queue);
    let at = w.len();
    w.u16(0).zeros(6);
    for (kind, rate) in [(MIN_RATE, queue.min_rate), (MAX_RATE, queue.max_rate)] {
        if let Some(rate) = rate {
            w.u16(kind).u16(8).u16(rate).zeros(2);
        }
    }
    w.set_length(at, start);
}
