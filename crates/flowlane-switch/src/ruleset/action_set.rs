//! Action sets (OpenFlow 1.3.5, 5.10): actions that tables have written, to be executed when no table follows.

use std::mem::discriminant;
use std::sync::Arc;

use flowlane::rule::Action;
use flowlane::rule::action::Controller;

use super::compile::{compile, compile_later};
use super::{Origin, Steps};

/// Merges written actions into a set: of each kind the last one counts, and of those that set fields, all, in their order.
pub(crate) fn merge(set: &[Action], written: &[Action]) -> Arc<[Action]> {
    let mut merged: Vec<Action> = set.to_vec();
    for action in written {
        merged.retain(|before| !replaces(action, before));
        merged.push(action.clone());
    }
    merged.into()
}

/// Returns whether a written action takes the place of an earlier one.
fn replaces(action: &Action, before: &Action) -> bool {
    match (action, before) {
        (
            Action::SetField { field, mask, protocol, .. },
            Action::SetField { field: other, mask: covered, protocol: others, .. },
        ) => field == other && covered & !mask == 0 && (protocol.is_none() || protocol == others),
        (Action::SetField { .. } | Action::Move { .. }, _) => false,
        _ => is_output(action) && is_output(before) || discriminant(action) == discriminant(before),
    }
}

fn is_output(action: &Action) -> bool {
    matches!(
        action,
        Action::Output(_)
            | Action::OutputTruncated { .. }
            | Action::OutputMaxLen { .. }
            | Action::OutputField { .. }
            | Action::InPort
            | Action::Flood
            | Action::All
            | Action::Normal
            | Action::Controller(_)
    )
}

/// The place of an action in the order of execution; `None`: it is last, and alone.
fn place(action: &Action) -> Option<u8> {
    Some(match action {
        Action::PopVlan => 0,
        Action::PopMpls(_) => 1,
        Action::Decapsulate(_) => 2,
        Action::EncapsulateHeader(_) | Action::Encapsulate(_) => 3,
        Action::PushMpls(_) => 4,
        Action::PushVlan(_) => 5,
        Action::DecTtl(_) => 6,
        Action::DecMplsTtl => 7,
        Action::DecNshTtl => 8,
        Action::SetField { .. } | Action::Move { .. } => 9,
        Action::SetQueue(_) => 10,
        _ => return None,
    })
}

/// The actions of a set in the order of execution. A set without a group, an output or a `resubmit` drops the packet: it has none.
fn in_order(set: &[Action]) -> Vec<Action> {
    let last_of = |wanted: &dyn Fn(&Action) -> bool| set.iter().rev().find(|&action| wanted(action));
    let last = last_of(&|action| matches!(action, Action::Group(_)))
        .or_else(|| last_of(&is_output))
        .or_else(|| last_of(&|action| matches!(action, Action::Resubmit { .. })))
        .or_else(|| last_of(&|action| matches!(action, Action::ConnectionTracking(_))));
    let Some(last) = last else { return Vec::new() };
    let mut ordered: Vec<(u8, &Action)> =
        set.iter().filter_map(|action| Some((place(action)?, action))).collect();
    // Stable: fields are set in the order of writing.
    ordered.sort_by_key(|(place, _)| *place);
    let kept = ordered
        .iter()
        .enumerate()
        .filter(|(i, (place, _))| *place == 9 || ordered.get(i + 1).is_none_or(|(next, _)| next != place));
    kept.map(|(_, (_, action))| (*action).clone()).chain([last.clone()]).collect()
}

/// Gives packets that a set sends to controllers the reason of sets, or of buckets.
fn with_reason(mut actions: Vec<Action>, reason: u8) -> Vec<Action> {
    if let Some(Action::Controller(controller)) = actions.last_mut()
        && controller.reason == Controller::default().reason
    {
        controller.reason = reason;
    }
    actions
}

/// The steps of a packet's set. Whatever tables have done to its headers has been done then.
pub(crate) fn steps(set: &[Action]) -> Steps {
    // OFPR_ACTION_SET.
    compile_later(&with_reason(in_order(set), 3))
}

/// The steps of a group's bucket, for a packet whose key is what its headers say.
pub(crate) fn bucket_steps(actions: &[Action]) -> Steps {
    // A bucket is in no table: what it leads to by `resubmit` has a number.
    // OFPR_GROUP.
    compile(&with_reason(in_order(actions), 4), Origin::none(0))
}

#[cfg(test)]
mod tests {
    use flowlane::packet::Field;
    use flowlane::rule::action::PortNo;

    use super::*;

    #[test]
    fn a_set_is_executed_in_the_order_of_openflow_and_drops_without_an_output() {
        let set = |field, value| Action::set_field(field, value, 0xff);
        let out = |port| Action::Output(PortNo(port));
        let written = [out(1), set(Field::Reg0, 1), Action::PushVlan(0x8100), Action::PopVlan, out(2)];
        let merged = merge(&[], &written);
        assert_eq!(
            in_order(&merged),
            [Action::PopVlan, Action::PushVlan(0x8100), set(Field::Reg0, 1), out(2)]
        );
        let merged = merge(&merged, &[set(Field::Reg0, 2), Action::Flood]);
        assert_eq!(
            in_order(&merged),
            [Action::PopVlan, Action::PushVlan(0x8100), set(Field::Reg0, 2), Action::Flood]
        );
        let merged = merge(&merged, &[Action::Group(7)]);
        assert_eq!(in_order(&merged).last(), Some(&Action::Group(7)));
        assert_eq!(in_order(&merge(&[], &[set(Field::Reg0, 1)])), []);
        // os-ken asks for a length with every output.
        let long = |port| Action::OutputMaxLen { output: Box::new(out(port)), max_len: 0xffe5 };
        let merged = merge(&merge(&[], &[out(1)]), &[long(2), set(Field::Reg0, 1)]);
        assert_eq!(in_order(&merged), [set(Field::Reg0, 1), long(2)]);
        assert_eq!(bucket_steps(&[long(2)]), compile(&[out(2)], Origin::none(0)));
    }
}
