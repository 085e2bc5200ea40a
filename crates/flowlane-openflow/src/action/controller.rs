//! The actions that send packets to controllers.

use flowlane::Action;
use flowlane::rule::action::Controller;

use super::standard::meter;
use super::write::nicira;
use crate::error::ErrorCode;
use crate::wire::{Reader, Writer};

/// Reads Nicira's `controller` (20).
pub(super) fn read(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let (max_len, id, reason) = (r.u16()?, r.u16()?, r.u8()?);
    r.zeros(1, ErrorCode::NiciraActionMustBeZero)?;
    Ok(Action::Controller(Box::new(Controller { max_len, reason, id, ..Controller::default() })))
}

/// Reads Nicira's `controller` with properties (37).
pub(super) fn read_with_properties(r: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    r.zeros(6, ErrorCode::NiciraActionMustBeZero)?;
    let mut controller = Controller::default();
    while !r.is_empty() {
        let (kind, mut property) = crate::property::read(r, ErrorCode::PropertyBadLen)?;
        match kind {
            0 => controller.max_len = property.u16()?,
            1 => controller.id = property.u16()?,
            2 => controller.reason = property.u8()?,
            3 => controller.userdata = property.rest().to_vec(),
            4 => controller.pause = true,
            5 => controller.meter = Some(meter(property.u32()?)?),
            _ => return Err(ErrorCode::PropertyBadType),
        }
    }
    Ok(Action::Controller(Box::new(controller)))
}

/// Writes the shortest of Nicira's actions.
pub(super) fn put(w: &mut Writer, controller: &Controller) {
    let Controller { max_len, reason, id, userdata, pause, meter } = controller;
    if userdata.is_empty() && !pause && meter.is_none() {
        return nicira(w, 20, |w| _ = w.u16(*max_len).u16(*id).u8(*reason).zeros(1));
    }
    nicira(w, 37, |w| {
        w.zeros(6);
        let default = Controller::default();
        if *max_len != default.max_len {
            crate::property::put(w, 0, |w| _ = w.u16(*max_len));
        }
        if *id != default.id {
            crate::property::put(w, 1, |w| _ = w.u16(*id));
        }
        if *reason != default.reason {
            crate::property::put(w, 2, |w| _ = w.u8(*reason));
        }
        if !userdata.is_empty() {
            crate::property::put(w, 3, |w| _ = w.put(userdata));
        }
        if *pause {
            crate::property::put(w, 4, |_| ());
        }
        if let Some(meter) = meter {
            crate::property::put(w, 5, |w| _ = w.u32(*meter));
        }
    });
}
