//! Actions and instructions.
//!
//! Actions of OpenFlow 1.0 (5.2.4), 1.3 (7.2.5) and 1.5 (7.2.6) and of nicira-ext become the library's [`Action`]s. Where a
//! version has no action for one, Nicira's is written, as Open vSwitch does.

mod connection;
mod controller;
mod header;
mod instructions;
mod learn;
mod nicira;
mod set;
mod standard;
mod write;

pub(crate) use header::{port10, port32, put_port10, put_port32};
pub(crate) use instructions::{put_instructions, read_instructions};
pub(crate) use write::put_actions;

use flowlane::rule::action::{NESTING_MAX, SetForm};
use flowlane::{Action, Field};

use crate::error::ErrorCode;
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::Reader;

/// Nicira's number as experimenter.
pub(crate) const NICIRA: u32 = 0x2320;
/// The ONF's number as experimenter.
pub(crate) const ONF: u32 = 0x4f4e_4600;
/// The type of actions and instructions of experimenters.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

/// The settings of a list of actions that is read.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) codec: &'a Codec,
    /// How deep the list lies in other actions.
    depth: usize,
    /// It is the `exec` of `ct`, which sets marks and labels of connections, and nothing else.
    is_exec: bool,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(codec: &'a Codec) -> Self {
        Self { codec, depth: 0, is_exec: false }
    }

    /// The settings of a list within an action of this one.
    fn nested(self) -> Result<Self, ErrorCode> {
        match self.depth + 1 > NESTING_MAX {
            true => Err(ErrorCode::ActionTooMany),
            false => Ok(Self { depth: self.depth + 1, is_exec: false, ..self }),
        }
    }

    /// The settings of the list within `ct`.
    fn exec(self) -> Result<Self, ErrorCode> {
        Ok(Self { is_exec: true, ..self.nested()? })
    }

    /// Refuses actions that set fields which may not be set here.
    fn check(self, action: &Action) -> Result<(), ErrorCode> {
        let target = match action {
            Action::SetField { field, .. } => *field,
            Action::Move { to, .. } => to.field(),
            Action::Nat(_) if self.is_exec => return Ok(()),
            Action::Nat(_) => return Err(ErrorCode::ActionBadArgument),
            _ if self.is_exec => return Err(ErrorCode::ActionBadArgument),
            _ => return Ok(()),
        };
        let is_kept = matches!(target, Field::CtMark | Field::CtLabel);
        if is_kept == self.is_exec { Ok(()) } else { Err(ErrorCode::ActionBadSetArgument) }
    }
}

/// Reads a list of actions.
pub(crate) fn read_actions(codec: &Codec, bytes: &[u8]) -> Result<Vec<Action>, ErrorCode> {
    read_list(Reading::new(codec), bytes)
}

fn read_list(reading: Reading<'_>, bytes: &[u8]) -> Result<Vec<Action>, ErrorCode> {
    let mut list = Reader::new(bytes, ErrorCode::ActionBadLen);
    let mut actions = Vec::new();
    while !list.is_empty() {
        let mut peek = list;
        let (kind, length) = (peek.u16()?, usize::from(peek.u16()?));
        if length < 8 || !length.is_multiple_of(8) {
            return Err(ErrorCode::ActionBadLen);
        }
        // A later version has an instruction in the place of `write_metadata`, which comes last.
        if reading.codec.is_10() && actions.last().is_some_and(writes_metadata) {
            return Err(ErrorCode::ActionUnsupportedOrder);
        }
        let mut body = list.part(length)?;
        body.skip(4)?;
        if kind == EXPERIMENTER {
            let action = match body.u32()? {
                NICIRA => nicira::read(reading, &mut body)?,
                ONF => standard::read_onf(&mut body)?,
                _ => return Err(ErrorCode::ActionBadVendor),
            };
            reading.check(&action)?;
            actions.push(action);
            continue;
        }
        let action = match reading.codec.version {
            Version::OpenFlow10 => standard::read_10(kind, &mut body)?,
            Version::OpenFlow13 | Version::OpenFlow14 | Version::OpenFlow15 => {
                standard::read_13(reading.codec.version, kind, &mut body)?
            }
        };
        reading.check(&action)?;
        actions.push(action);
    }
    Ok(actions)
}

/// Returns whether an action is `write_metadata`.
fn writes_metadata(action: &Action) -> bool {
    matches!(action, Action::SetField { field: Field::Metadata, form: SetForm::Own, .. })
}
