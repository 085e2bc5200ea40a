//! Greetings, failures, features and configuration.

use super::ports;
use crate::action::{NICIRA, ONF};
use crate::error::{ErrorCode, ErrorNumbers, ErrorSpace};
use crate::message::{Error, ErrorKind, Features, Hello, SwitchConfig};
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// The type of errors of OpenFlow 1.0 that are Nicira's.
const NICIRA_ERROR: u16 = 0xb0c2;
/// The type of errors of experimenters.
const EXPERIMENTER_ERROR: u16 = 0xffff;
/// The element of a hello message that lists versions.
const VERSION_BITMAP: u16 = 1;

/// Reads a hello message of the version that its header names (OpenFlow 1.3.5 7.5.1). Elements that are unknown or damaged are
/// skipped: the header's version is enough.
pub(super) fn read_hello(version: u8, r: &mut Reader<'_>) -> Hello {
    let up_to = (2u64 << version.min(31)) - 2;
    while let (Ok(kind), Ok(length)) = (r.u16(), r.u16()) {
        let Some(bytes) = usize::from(length).checked_sub(4) else { break };
        let Ok(mut body) = r.part(bytes) else { break };
        if kind == VERSION_BITMAP
            && let Ok(versions) = body.u32()
        {
            return Hello { versions };
        }
        let _ = r.skip(usize::from(length).next_multiple_of(8) - usize::from(length));
    }
    Hello { versions: up_to as u32 }
}

/// The version of a hello message's header: the highest of its list.
pub(super) fn hello_version(hello: Hello) -> u8 {
    (31 - (hello.versions | 1).leading_zeros()) as u8
}

/// Writes a hello message, with a list unless the header's version says as much.
pub(super) fn put_hello(w: &mut Writer, hello: Hello) {
    let up_to = (2u64 << hello_version(hello)) - 2;
    if u64::from(hello.versions) != up_to {
        w.u16(VERSION_BITMAP).u16(8).u32(hello.versions);
    }
}

/// Reads an error (OpenFlow 1.3.5 7.5.4, nicira-ext `struct nx_vendor_error`).
pub(super) fn read_error(version: Version, r: &mut Reader<'_>) -> Result<Error, ErrorCode> {
    let (kind, code) = (r.u16()?, r.u16()?);
    let mut rest = *r;
    let numbers = if kind == NICIRA_ERROR && version == Version::OpenFlow10 {
        let vendor = rest.u32();
        let (kind, code) = (rest.u16().unwrap_or(0), rest.u16().unwrap_or(0));
        (vendor == Ok(NICIRA)).then_some(ErrorNumbers { space: ErrorSpace::Nicira, kind, code })
    } else if kind == EXPERIMENTER_ERROR && version != Version::OpenFlow10 {
        let space = match rest.u32() {
            Ok(NICIRA) => Some(ErrorSpace::Nicira),
            Ok(ONF) => Some(ErrorSpace::Onf),
            _ => None,
        };
        space.map(|space| ErrorNumbers { space, kind: code, code: 0 })
    } else {
        Some(ErrorNumbers { space: ErrorSpace::Standard, kind, code })
    };
    let all = r.take_rest();
    match numbers.and_then(|numbers| ErrorCode::of_numbers(version, numbers)) {
        Some(code) => Ok(Error { kind: ErrorKind::Known(code), data: rest.take_rest().to_vec() }),
        None => Ok(Error { kind: ErrorKind::Unknown(kind, code), data: all.to_vec() }),
    }
}

/// Writes an error. One that the version lacks is written as Nicira's for that.
pub(super) fn put_error(w: &mut Writer, version: Version, error: &Error) {
    let numbers = match error.kind {
        ErrorKind::Known(code) => {
            code.numbers(version).or(ErrorCode::NiciraRequestUnencodableError.numbers(version))
        }
        ErrorKind::Unknown(kind, code) => Some(ErrorNumbers { space: ErrorSpace::Standard, kind, code }),
    };
    if let Some(ErrorNumbers { space, kind, code }) = numbers {
        match space {
            ErrorSpace::Standard => w.u16(kind).u16(code),
            ErrorSpace::Nicira if version == Version::OpenFlow10 => {
                w.u16(NICIRA_ERROR).u16(0).u32(NICIRA).u16(kind).u16(code)
            }
            ErrorSpace::Nicira => w.u16(EXPERIMENTER_ERROR).u16(kind).u32(NICIRA),
            ErrorSpace::Onf => w.u16(EXPERIMENTER_ERROR).u16(kind).u32(ONF),
        };
    }
    w.put(&error.data);
}

/// Reads a description of the switch.
pub(super) fn read_features(codec: &Codec, r: &mut Reader<'_>) -> Result<Features, ErrorCode> {
    let (datapath_id, buffers, tables, auxiliary) = (r.u64()?, r.u32()?, r.u8()?, r.u8()?);
    r.skip(2)?;
    let (capabilities, actions) = (r.u32()?, r.u32()?);
    let mut features = Features { datapath_id, buffers, tables, capabilities, ..Features::default() };
    if codec.is_10() {
        features.actions = actions;
        features.ports = ports::read_descriptions(codec, r)?;
    } else {
        features.auxiliary_id = auxiliary;
    }
    Ok(features)
}

/// Writes a description of the switch.
pub(super) fn put_features(w: &mut Writer, codec: &Codec, features: &Features) -> Result<(), Failed> {
    let is_10 = codec.is_10();
    w.u64(features.datapath_id).u32(features.buffers).u8(features.tables);
    w.u8(if is_10 { 0 } else { features.auxiliary_id }).zeros(2);
    w.u32(features.capabilities).u32(if is_10 { features.actions } else { 0 });
    if is_10 {
        features.ports.iter().for_each(|port| ports::put_description(w, codec, port));
    }
    Ok(())
}

/// Reads a configuration.
pub(super) fn read_config(r: &mut Reader<'_>) -> Result<SwitchConfig, ErrorCode> {
    Ok(SwitchConfig { flags: r.u16()?, miss_send_len: r.u16()? })
}

/// Reads a new configuration.
pub(super) fn read_new_config(codec: &Codec, r: &mut Reader<'_>) -> Result<SwitchConfig, ErrorCode> {
    let config = read_config(r)?;
    // How fragments are treated, and in OpenFlow 1.0 to 1.2 whether packets of invalid TTL are sent.
    let known = if codec.is_10() { 7 } else { 3 };
    if config.flags & !known != 0 { Err(ErrorCode::ConfigBadFlags) } else { Ok(config) }
}

/// Writes a configuration.
pub(super) fn put_config(w: &mut Writer, config: SwitchConfig) {
    w.u16(config.flags).u16(config.miss_send_len);
}
