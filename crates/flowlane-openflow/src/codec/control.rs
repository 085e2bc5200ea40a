//! Roles, asynchronous messages and bundles.

use crate::error::ErrorCode;
use crate::message::{AsyncConfig, BundleControl, BundleControlKind, Role, RoleRequest, RoleStatus};
use crate::property;
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

fn role(number: u32) -> Result<Role, ErrorCode> {
    Ok(match number {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Primary,
        3 => Role::Secondary,
        _ => return Err(ErrorCode::RoleBadRole),
    })
}

fn role_number(role: Role) -> u32 {
    match role {
        Role::NoChange => 0,
        Role::Equal => 1,
        Role::Primary => 2,
        Role::Secondary => 3,
    }
}

/// Reads a role request or reply (OpenFlow 1.3.5 7.3.9).
pub(super) fn read_role(codec: &Codec, r: &mut Reader<'_>) -> Result<RoleRequest, ErrorCode> {
    let role = role(r.u32()?)?;
    let (short_id, _) = (r.u16()?, r.u16()?);
    let generation = r.u64()?;
    let is_15 = codec.version == Version::OpenFlow15;
    Ok(RoleRequest {
        role,
        generation_id: (generation != u64::MAX || role == Role::Primary || role == Role::Secondary)
            .then_some(generation),
        short_id: (is_15 && short_id != 0xffff).then_some(short_id),
    })
}

/// Writes a role request or reply.
pub(super) fn put_role(w: &mut Writer, codec: &Codec, request: &RoleRequest) {
    w.u32(role_number(request.role));
    match codec.version == Version::OpenFlow15 {
        true => w.u16(request.short_id.unwrap_or(0xffff)).zeros(2),
        false => w.zeros(4),
    };
    w.u64(request.generation_id.unwrap_or(u64::MAX));
}

/// Reads Nicira's role request or reply (nicira-ext 10 and 11).
pub(super) fn read_nicira_role(r: &mut Reader<'_>) -> Result<RoleRequest, ErrorCode> {
    let role = match r.u32()? {
        0 => Role::Equal,
        1 => Role::Primary,
        2 => Role::Secondary,
        _ => return Err(ErrorCode::RoleBadRole),
    };
    Ok(RoleRequest { role, generation_id: None, short_id: None })
}

/// Writes Nicira's role request or reply, which cannot ask for the role alone.
pub(super) fn put_nicira_role(w: &mut Writer, request: &RoleRequest) -> Result<(), Failed> {
    let number = match request.role {
        Role::Equal => 0,
        Role::Primary => 1,
        Role::Secondary => 2,
        Role::NoChange => return Err(Failed),
    };
    w.u32(number);
    Ok(())
}

/// Reads a role that changed (OpenFlow 1.4.1 7.4.4).
pub(super) fn read_role_status(r: &mut Reader<'_>) -> Result<RoleStatus, ErrorCode> {
    let (role, reason) = (role(r.u32()?)?, r.u8()?);
    r.skip(3)?;
    let generation_id = r.u64()?;
    r.take_rest();
    Ok(RoleStatus { role, reason, generation_id })
}

/// Writes a role that changed.
pub(super) fn put_role_status(w: &mut Writer, status: &RoleStatus) {
    w.u32(role_number(status.role)).u8(status.reason).zeros(3).u64(status.generation_id);
}

/// Reads six sets of reasons (OpenFlow 1.3.5 7.3.10, nicira-ext 19).
pub(super) fn read_masks(r: &mut Reader<'_>) -> Result<AsyncConfig, ErrorCode> {
    let mut pair = || -> Result<[Option<u32>; 2], ErrorCode> { Ok([Some(r.u32()?), Some(r.u32()?)]) };
    Ok(AsyncConfig {
        packet_in: pair()?,
        port_status: pair()?,
        flow_removed: pair()?,
        ..AsyncConfig::default()
    })
}

/// Writes six sets of reasons.
pub(super) fn put_masks(w: &mut Writer, config: &AsyncConfig) {
    let masks = [config.packet_in, config.port_status, config.flow_removed];
    masks.iter().flatten().for_each(|mask| _ = w.u32(mask.unwrap_or(0)));
}

/// Reads sets of reasons as properties (OpenFlow 1.4.1 7.3.10, nicira-ext 27): an even type for secondary controllers, the odd one
/// behind it for others.
pub(super) fn read_properties(r: &mut Reader<'_>) -> Result<AsyncConfig, ErrorCode> {
    let mut config = AsyncConfig::default();
    while !r.is_empty() {
        let (kind, mut value) = property::read(r, ErrorCode::PropertyBadLen)?;
        let pair = match kind / 2 {
            0 => &mut config.packet_in,
            1 => &mut config.port_status,
            2 => &mut config.flow_removed,
            3 => &mut config.role_status,
            4 => &mut config.table_status,
            5 => &mut config.request_forward,
            _ => return Err(ErrorCode::PropertyBadType),
        };
        pair[usize::from(kind & 1 == 0)] = Some(value.u32()?);
    }
    Ok(config)
}

/// Writes sets of reasons as properties.
pub(super) fn put_properties(w: &mut Writer, config: &AsyncConfig) {
    let pairs = [
        config.packet_in,
        config.port_status,
        config.flow_removed,
        config.role_status,
        config.table_status,
        config.request_forward,
    ];
    for (kind, [primary, secondary]) in (0..).zip(pairs) {
        for (odd, mask) in [(0, secondary), (1, primary)] {
            if let Some(mask) = mask {
                property::put(w, kind * 2 + odd, |w| _ = w.u32(mask));
            }
        }
    }
}

/// Reads flags of a bundle: atomic, ordered.
pub(super) fn read_flags(r: &mut Reader<'_>) -> Result<(bool, bool), ErrorCode> {
    match r.u16()? {
        flags @ 0..=3 => Ok((flags & 1 != 0, flags & 2 != 0)),
        _ => Err(ErrorCode::BundleBadFlags),
    }
}

/// The flags of a bundle.
pub(super) fn flags(atomic: bool, ordered: bool) -> u16 {
    u16::from(atomic) | u16::from(ordered) << 1
}

/// Reads a step of a bundle.
pub(super) fn read_bundle(r: &mut Reader<'_>) -> Result<BundleControl, ErrorCode> {
    let bundle = r.u32()?;
    let kind = match r.u16()? {
        0 => BundleControlKind::OpenRequest,
        1 => BundleControlKind::OpenReply,
        2 => BundleControlKind::CloseRequest,
        3 => BundleControlKind::CloseReply,
        4 => BundleControlKind::CommitRequest,
        5 => BundleControlKind::CommitReply,
        6 => BundleControlKind::DiscardRequest,
        7 => BundleControlKind::DiscardReply,
        _ => return Err(ErrorCode::BundleBadType),
    };
    let (atomic, ordered) = match kind {
        BundleControlKind::OpenRequest => read_flags(r)?,
        _ => {
            let flags = r.u16()?;
            (flags & 1 != 0, flags & 2 != 0)
        }
    };
    r.take_rest();
    Ok(BundleControl { bundle, kind, atomic, ordered })
}

/// Writes a step of a bundle.
pub(super) fn put_bundle(w: &mut Writer, control: &BundleControl) {
    let kind = match control.kind {
        BundleControlKind::OpenRequest => 0,
        BundleControlKind::OpenReply => 1,
        BundleControlKind::CloseRequest => 2,
        BundleControlKind::CloseReply => 3,
        BundleControlKind::CommitRequest => 4,
        BundleControlKind::CommitReply => 5,
        BundleControlKind::DiscardRequest => 6,
        BundleControlKind::DiscardReply => 7,
    };
    w.u32(control.bundle).u16(kind).u16(flags(control.atomic, control.ordered));
}
