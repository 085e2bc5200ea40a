//! Instructions (OpenFlow 1.3.5 7.2.4), which are actions here, in the order in which OpenFlow executes them (5.9).

use flowlane::rule::action::{Controller, SetForm};
use flowlane::{Action, Field, Match};

use super::write::{Writing, is_instruction, put_list};
use super::{EXPERIMENTER, read_actions, standard};
use crate::error::ErrorCode;
use crate::settings::Codec;
use crate::version::Version;
use crate::wire::{Failed, Reader, Writer};

/// Types of instructions.
mod kind {
    pub(super) const GOTO: u16 = 1;
    pub(super) const WRITE_METADATA: u16 = 2;
    pub(super) const WRITE_ACTIONS: u16 = 3;
    pub(super) const APPLY_ACTIONS: u16 = 4;
    pub(super) const CLEAR_ACTIONS: u16 = 5;
    pub(super) const METER: u16 = 6;
}

/// The instructions of a flow, each once.
#[derive(Default)]
struct Instructions {
    meter: Option<Action>,
    apply: Option<Vec<Action>>,
    clear: Option<Action>,
    write: Option<Action>,
    metadata: Option<Action>,
    goto: Option<Action>,
}

/// Fills a place, or refuses the second of a kind.
fn once<T>(place: &mut Option<T>, value: T) -> Result<(), ErrorCode> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ErrorCode::InstructionDupInst),
    }
}

/// Reads instructions up to the end of a message; of OpenFlow 1.0, actions.
pub(crate) fn read_instructions(codec: &Codec, bytes: &[u8]) -> Result<Vec<Action>, ErrorCode> {
    if codec.is_10() {
        return read_actions(codec, bytes);
    }
    let mut r = Reader::new(bytes, ErrorCode::InstructionBadLen);
    let mut all = Instructions::default();
    while !r.is_empty() {
        let mut peek = r;
        let (kind, length) = (peek.u16()?, usize::from(peek.u16()?));
        if length < 8 || !length.is_multiple_of(8) {
            return Err(ErrorCode::InstructionBadLen);
        }
        let mut body = r.part(length)?;
        body.skip(4)?;
        read_one(codec, kind, &mut body, &mut all)?;
    }
    let first = all.meter.into_iter().chain(all.apply.unwrap_or_default());
    Ok(first.chain(all.clear).chain(all.write).chain(all.metadata).chain(all.goto).collect())
}

fn read_one(
    codec: &Codec,
    kind: u16,
    body: &mut Reader<'_>,
    all: &mut Instructions,
) -> Result<(), ErrorCode> {
    let exactly = |r: &Reader<'_>, bytes| match r.len() == bytes {
        true => Ok(()),
        false => Err(ErrorCode::InstructionBadLen),
    };
    match kind {
        kind::GOTO => {
            exactly(body, 4)?;
            once(&mut all.goto, Action::Goto(body.u8()?))
        }
        kind::WRITE_METADATA => {
            exactly(body, 20)?;
            body.skip(4)?;
            let (value, mask) = (u128::from(body.u64()?), u128::from(body.u64()?));
            let (field, form, protocol) = (Field::Metadata, SetForm::Own, None);
            once(&mut all.metadata, Action::SetField { field, value, mask, form, protocol })
        }
        kind::WRITE_ACTIONS | kind::APPLY_ACTIONS => {
            body.skip(4)?;
            let actions = read_actions(codec, body.take_rest())?;
            match kind {
                kind::APPLY_ACTIONS => once(&mut all.apply, actions),
                _ => {
                    check_set(&actions)?;
                    once(&mut all.write, Action::WriteActions(actions))
                }
            }
        }
        kind::CLEAR_ACTIONS => {
            exactly(body, 4)?;
            once(&mut all.clear, Action::ClearActions)
        }
        kind::METER if codec.version == Version::OpenFlow13 || codec.version == Version::OpenFlow14 => {
            exactly(body, 4)?;
            once(&mut all.meter, Action::Meter(standard::meter(body.u32()?)?))
        }
        EXPERIMENTER => Err(ErrorCode::InstructionBadExperimenter),
        _ => Err(ErrorCode::InstructionUnknownInst),
    }
}

/// Refuses actions that no action set has.
fn check_set(actions: &[Action]) -> Result<(), ErrorCode> {
    let is_allowed = |action: &Action| match action {
        Action::Note(_)
        | Action::Exit
        | Action::Learn(_)
        | Action::Conjunction { .. }
        | Action::Clone(_)
        | Action::CheckPacketLarger { .. }
        | Action::Bundle(_)
        | Action::Multipath(_)
        | Action::Push(_)
        | Action::Pop(_)
        | Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Sample(_)
        | Action::FinTimeout { .. }
        | Action::Enqueue { .. }
        | Action::PopQueue
        | Action::Meter(_)
        | Action::DeleteField(_) => false,
        // As an output, which has a length alone.
        Action::Controller(controller) => {
            **controller == Controller { max_len: controller.max_len, ..Controller::default() }
        }
        Action::Output(_)
        | Action::OutputMaxLen { .. }
        | Action::InPort
        | Action::Flood
        | Action::All
        | Action::Normal
        | Action::SetQueue(_)
        | Action::PushVlan(_)
        | Action::PopVlan
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::SetField { .. }
        | Action::Move { .. }
        | Action::DecTtl(_)
        | Action::DecMplsTtl
        | Action::DecNshTtl
        | Action::Count(_)
        | Action::Encapsulate(_)
        | Action::EncapsulateHeader(_)
        | Action::Decapsulate(_)
        | Action::Resubmit { .. }
        | Action::WriteActions(_)
        | Action::ClearActions
        | Action::Group(_)
        | Action::ConnectionTracking(_)
        | Action::Nat(_)
        | Action::ClearConnection
        | Action::Goto(_) => true,
    };
    if actions.iter().all(is_allowed) { Ok(()) } else { Err(ErrorCode::ActionBadType) }
}

/// Writes the actions of a rule: instructions, or in OpenFlow 1.0 actions.
pub(crate) fn put_instructions(
    w: &mut Writer,
    codec: &Codec,
    matches: &Match,
    actions: &[Action],
) -> Result<(), Failed> {
    let writing = Writing::of(codec, matches);
    if codec.is_10() {
        return put_list(w, &writing, actions);
    }
    let (own, apply): (Vec<&Action>, Vec<&Action>) =
        actions.iter().partition(|action| is_instruction(action, codec.version));
    let find = |is: fn(&Action) -> bool| own.iter().rev().find(|action| is(action)).copied();
    if let Some(Action::Meter(meter)) = find(|action| matches!(action, Action::Meter(_))) {
        w.u16(kind::METER).u16(8).u32(*meter);
    }
    if !apply.is_empty() {
        let apply: Vec<Action> = apply.into_iter().cloned().collect();
        put_list_instruction(w, &writing, kind::APPLY_ACTIONS, &apply)?;
    }
    if find(|action| matches!(action, Action::ClearActions)).is_some() {
        w.u16(kind::CLEAR_ACTIONS).u16(8).zeros(4);
    }
    if let Some(Action::WriteActions(actions)) = find(|action| matches!(action, Action::WriteActions(_))) {
        put_list_instruction(w, &writing, kind::WRITE_ACTIONS, actions)?;
    }
    let metadata = find(|action| matches!(action, Action::SetField { .. }));
    if let Some(Action::SetField { value, mask, .. }) = metadata {
        w.u16(kind::WRITE_METADATA).u16(24).zeros(4).u64(*value as u64).u64(*mask as u64);
    }
    if let Some(Action::Goto(table)) = find(|action| matches!(action, Action::Goto(_))) {
        w.u16(kind::GOTO).u16(8).u8(*table).zeros(3);
    }
    Ok(())
}

fn put_list_instruction(
    w: &mut Writer,
    writing: &Writing<'_>,
    kind: u16,
    actions: &[Action],
) -> Result<(), Failed> {
    let start = w.len();
    w.u16(kind).u16(0).zeros(4);
    put_list(w, writing, actions)?;
    w.set_length(start + 2, start);
    Ok(())
}
