//! Ports by the numbers that fields hold: OpenFlow reserves some for more than a port.

use flowlane::rule::Action;
use flowlane::rule::action::PortNo;

use super::{Origin, Step, ToController};

/// Returns the action that sends a packet to the port of a number, as a field has it: 16 bits of OpenFlow 1.0, or 32 of later
/// versions. `None`: it is sent nowhere.
pub(super) fn of_number(number: u128, max_len: u16) -> Option<Action> {
    // OpenFlow 1.1 and later have the reserved numbers at the end of 32 bits.
    let number = match u32::try_from(number) {
        Ok(number) if number >= 0xffff_ff00 => number & 0xffff,
        Ok(number) => number,
        Err(_) => return None,
    };
    Some(match number {
        0xfff8 => Action::InPort,
        0xfffa => Action::Normal,
        0xfffb => Action::Flood,
        0xfffc => Action::All,
        0xfffd => Action::controller(max_len),
        0xfffe => Action::Output(PortNo::LOCAL),
        1..=0xfeff => Action::Output(PortNo(number)),
        _ => return None,
    })
}

/// Returns the output of a rule that a packet makes, to the port of a number. As in Open vSwitch, the numbers are those of OpenFlow
/// 1.0, and packets make no rules that send others to controllers, or as `normal` does.
pub(super) fn learned(number: u128) -> Option<Action> {
    match number {
        0xfff8 => Some(Action::InPort),
        0xfffb => Some(Action::Flood),
        0xfffc => Some(Action::All),
        0xfffe => Some(Action::Output(PortNo::LOCAL)),
        0..=0xfeff => Some(Action::Output(PortNo(number as u32))),
        _ => None,
    }
}

/// Returns the step that sends a packet to the port of a number.
pub(crate) fn output_step(number: u128, max_len: u16, origin: Origin) -> Option<Step> {
    Some(match of_number(number, max_len)? {
        Action::Controller(action) => ToController { action: *action, origin }.into(),
        other => Step::Do(other),
    })
}
