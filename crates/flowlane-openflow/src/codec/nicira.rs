//! Messages of experimenters: Nicira's (nicira-ext, `enum nicira_type`) and the ONF's.

use super::monitor::ONF_MONITOR;
use super::{connections, control, flows, groups, packets};
use crate::action::{NICIRA, ONF};
use crate::error::ErrorCode;
use crate::message::{AsyncConfig, Experimenter, Message, PacketInFormat, Resume};
use crate::settings::Codec;
use crate::stats::FlowFormat;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// Numbers of the ONF's messages for OpenFlow 1.3: a role that changed (extension 191), and bundles (extension 230).
const ONF_ROLE_STATUS: u32 = 1911;
const ONF_MONITOR_PAUSED: u32 = ONF_MONITOR + 1;
const ONF_MONITOR_RESUMED: u32 = ONF_MONITOR + 2;
const ONF_BUNDLE_CONTROL: u32 = 2300;
const ONF_BUNDLE_ADD: u32 = 2301;

/// Reads a message of an experimenter behind the header.
pub(super) fn read(codec: &Codec, xid: u32, r: &mut Reader<'_>) -> Result<Message, ErrorCode> {
    let experimenter = r.u32()?;
    // Vendors of OpenFlow 1.0 need not have numbers.
    let kind = match r.u32() {
        Ok(kind) => kind,
        Err(_) if codec.is_10() && experimenter != NICIRA => 0,
        Err(error) => return Err(error),
    };
    match (experimenter, kind) {
        (NICIRA, _) => read_nicira(codec, kind, r),
        (ONF, ONF_ROLE_STATUS) if codec.version == Version::OpenFlow13 => {
            Ok(Message::RoleStatus(control::read_role_status(r)?))
        }
        (ONF, ONF_MONITOR) if codec.version == Version::OpenFlow13 => {
            Ok(Message::FlowMonitorCancel(r.u32()?))
        }
        (ONF, ONF_MONITOR_PAUSED) if codec.version == Version::OpenFlow13 => Ok(Message::FlowMonitorPaused),
        (ONF, ONF_MONITOR_RESUMED) if codec.version == Version::OpenFlow13 => Ok(Message::FlowMonitorResumed),
        (ONF, ONF_BUNDLE_CONTROL) if !codec.is_10() => Ok(Message::BundleControl(control::read_bundle(r)?)),
        (ONF, ONF_BUNDLE_ADD) if !codec.is_10() => super::read_bundle_add(codec, xid, r),
        (ONF, _) => Err(ErrorCode::RequestBadSubtype),
        _ => Ok(Message::Experimenter(Experimenter { experimenter, kind, data: r.take_rest().to_vec() })),
    }
}

fn read_nicira(codec: &Codec, kind: u32, r: &mut Reader<'_>) -> Result<Message, ErrorCode> {
    let is_10 = codec.is_10();
    Ok(match kind {
        10 if is_10 => Message::RoleRequest(control::read_nicira_role(r)?),
        11 if is_10 => Message::RoleReply(control::read_nicira_role(r)?),
        12 if is_10 => Message::SetFlowFormat(match r.u32()? {
            0 => FlowFormat::Standard,
            2 => FlowFormat::Nxm,
            _ => return Err(ErrorCode::RequestNotPermitted),
        }),
        13 if is_10 => Message::FlowMod(flows::read_nicira_mod(codec, r)?),
        14 if is_10 => Message::FlowRemoved(flows::read_nicira_removed(r)?),
        15 if is_10 => {
            let on = r.u8()? != 0;
            r.skip(7)?;
            Message::FlowModTableId(on)
        }
        16 => Message::SetPacketInFormat(match r.u32()? {
            0 => PacketInFormat::Standard,
            1 => PacketInFormat::Nxt,
            2 => PacketInFormat::Nxt2,
            _ => return Err(ErrorCode::RequestNotPermitted),
        }),
        17 => Message::PacketIn(packets::read_nicira_in(codec, r)?),
        18 => Message::FlowAge,
        19 if is_10 => Message::SetAsync(control::read_masks(r)?),
        20 => {
            r.zeros(6, ErrorCode::NiciraRequestMustBeZero)?;
            Message::SetControllerId(r.u16()?)
        }
        21 if is_10 => Message::FlowMonitorCancel(r.u32()?),
        22 if is_10 => Message::FlowMonitorPaused,
        23 if is_10 => Message::FlowMonitorResumed,
        24 => Message::TlvTableMod(connections::read_tlv_mod(r)?),
        25 => Message::TlvTableRequest,
        26 => Message::TlvTableReply(connections::read_tlv_table(r)?),
        27 if codec.version <= Version::OpenFlow13 => Message::SetAsync(control::read_properties(r)?),
        28 => Message::Resume(Resume(packets::read_properties(r)?)),
        29 => {
            r.zeros(6, ErrorCode::NiciraRequestMustBeZero)?;
            Message::CtFlushZone(r.u16()?)
        }
        30 => Message::PacketIn(packets::read_properties(r)?),
        31 if is_10 => Message::GroupMod(groups::read_mod(codec, r)?),
        32 => Message::CtFlush(connections::read_flush(r)?),
        _ => return Err(ErrorCode::RequestBadSubtype),
    })
}

/// The number of a message that is the ONF's in a version; `None` if the version has its own, or none has one.
pub(super) fn onf_number(codec: &Codec, message: &Message) -> Option<u32> {
    match message {
        _ if codec.version != Version::OpenFlow13 => None,
        Message::RoleStatus(_) => Some(ONF_ROLE_STATUS),
        Message::BundleControl(_) => Some(ONF_BUNDLE_CONTROL),
        Message::BundleAdd(_) => Some(ONF_BUNDLE_ADD),
        Message::FlowMonitorCancel(_) | Message::FlowMonitorPaused | Message::FlowMonitorResumed => {
            Some(ONF_MONITOR + place_among_monitors(message))
        }
        _ => None,
    }
}

/// The place of a message among those of monitors, whose numbers follow each other.
fn place_among_monitors(message: &Message) -> u32 {
    match message {
        Message::FlowMonitorPaused => 1,
        Message::FlowMonitorResumed => 2,
        _ => 0,
    }
}

/// The number of a message that is Nicira's in a version; `None` if the version has its own, or none has one.
pub(super) fn number(codec: &Codec, message: &Message) -> Option<u32> {
    let (is_10, is_old) = (codec.is_10(), codec.version <= Version::OpenFlow13);
    Some(match message {
        Message::RoleRequest(_) if is_10 => 10,
        Message::RoleReply(_) if is_10 => 11,
        Message::SetFlowFormat(_) if is_10 => 12,
        Message::FlowMod(change) if is_10 && flows::is_nicira(change) => 13,
        Message::FlowRemoved(removed) if is_10 && removed.format == FlowFormat::Nxm => 14,
        Message::FlowModTableId(_) if is_10 => 15,
        Message::SetPacketInFormat(_) => 16,
        Message::PacketIn(packet) => match packet.format {
            PacketInFormat::Standard => return None,
            PacketInFormat::Nxt => 17,
            PacketInFormat::Nxt2 => 30,
        },
        Message::FlowAge => 18,
        Message::SetAsync(config) if is_old => match (has_masks(config), is_10) {
            (true, true) => 19,
            (true, false) => return None,
            (false, _) => 27,
        },
        Message::SetControllerId(_) => 20,
        Message::FlowMonitorCancel(_) | Message::FlowMonitorPaused | Message::FlowMonitorResumed => {
            return is_10.then(|| 21 + place_among_monitors(message));
        }
        Message::TlvTableMod(_) => 24,
        Message::TlvTableRequest => 25,
        Message::TlvTableReply(_) => 26,
        Message::Resume(_) => 28,
        Message::CtFlushZone(_) => 29,
        Message::GroupMod(_) if is_10 => 31,
        Message::CtFlush(_) => 32,
        Message::Hello(_)
        | Message::Error(_)
        | Message::EchoRequest(_)
        | Message::EchoReply(_)
        | Message::Experimenter(_)
        | Message::FeaturesRequest
        | Message::FeaturesReply(_)
        | Message::GetConfigRequest
        | Message::GetConfigReply(_)
        | Message::SetConfig(_)
        | Message::FlowRemoved(_)
        | Message::PortStatus(_)
        | Message::PacketOut(_)
        | Message::FlowMod(_)
        | Message::GroupMod(_)
        | Message::PortMod(_)
        | Message::TableMod(_)
        | Message::TableStatus(_)
        | Message::MeterMod(_)
        | Message::MultipartRequest(_)
        | Message::MultipartReply(_)
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::QueueGetConfigRequest(_)
        | Message::QueueGetConfigReply { .. }
        | Message::RoleRequest(_)
        | Message::RoleReply(_)
        | Message::RoleStatus(_)
        | Message::GetAsyncRequest
        | Message::GetAsyncReply(_)
        | Message::SetAsync(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_)
        | Message::SetFlowFormat(_)
        | Message::FlowModTableId(_) => return None,
    })
}

/// Returns whether a configuration is six sets of reasons, as older messages have it.
fn has_masks(config: &AsyncConfig) -> bool {
    let mut six = config.packet_in.iter().chain(&config.port_status).chain(&config.flow_removed);
    let mut others = config.role_status.iter().chain(&config.table_status).chain(&config.request_forward);
    six.all(Option::is_some) && others.all(Option::is_none)
}

/// Writes the body of one of Nicira's messages.
pub(super) fn put(w: &mut Writer, codec: &Codec, number: u32, message: &Message) -> Result<(), Failed> {
    match message {
        Message::RoleRequest(role) | Message::RoleReply(role) => control::put_nicira_role(w, role)?,
        Message::SetFlowFormat(format) => {
            let number = match format {
                FlowFormat::Standard => 0,
                FlowFormat::Nxm => 2,
            };
            w.u32(number);
        }
        Message::FlowMod(change) => flows::put_mod(w, codec, change)?,
        Message::FlowRemoved(removed) => flows::put_removed(w, codec, removed)?,
        Message::FlowModTableId(on) => _ = w.u8(u8::from(*on)).zeros(7),
        Message::SetPacketInFormat(format) => {
            let number = match format {
                PacketInFormat::Standard => 0,
                PacketInFormat::Nxt => 1,
                PacketInFormat::Nxt2 => 2,
            };
            w.u32(number);
        }
        Message::PacketIn(packet) if packet.format == PacketInFormat::Nxt => {
            packets::put_nicira_in(w, codec, packet)?;
        }
        Message::PacketIn(packet) | Message::Resume(Resume(packet)) => {
            packets::put_properties(w, codec, packet)?;
        }
        Message::SetAsync(config) if number == 19 => control::put_masks(w, config),
        Message::SetAsync(config) => control::put_properties(w, config),
        Message::SetControllerId(id) => _ = w.zeros(6).u16(*id),
        Message::FlowMonitorCancel(id) => _ = w.u32(*id),
        Message::TlvTableMod(change) => connections::put_tlv_mod(w, change),
        Message::TlvTableReply(table) => connections::put_tlv_table(w, table),
        Message::CtFlushZone(zone) => _ = w.zeros(6).u16(*zone),
        Message::GroupMod(change) => groups::put_mod(w, codec, change)?,
        Message::CtFlush(all) => connections::put_flush(w, all),
        Message::Hello(_)
        | Message::Error(_)
        | Message::EchoRequest(_)
        | Message::EchoReply(_)
        | Message::Experimenter(_)
        | Message::FeaturesRequest
        | Message::FeaturesReply(_)
        | Message::GetConfigRequest
        | Message::GetConfigReply(_)
        | Message::SetConfig(_)
        | Message::PortStatus(_)
        | Message::PacketOut(_)
        | Message::PortMod(_)
        | Message::TableMod(_)
        | Message::TableStatus(_)
        | Message::MeterMod(_)
        | Message::MultipartRequest(_)
        | Message::MultipartReply(_)
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::QueueGetConfigRequest(_)
        | Message::QueueGetConfigReply { .. }
        | Message::RoleStatus(_)
        | Message::GetAsyncRequest
        | Message::GetAsyncReply(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_)
        | Message::FlowAge
        | Message::TlvTableRequest
        | Message::FlowMonitorPaused
        | Message::FlowMonitorResumed => {}
    }
    Ok(())
}
