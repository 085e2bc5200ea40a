//! Actions behind the caches: those of next hops, and of the verdicts of stages.
//!
//! They are a rule's actions, except those that need a megaflow. `move` reads fields that a rule's match fixes. A field in no
//! header (metadata, registers) is for later tables of the same translation: here no translation continues. The key of a packet
//! that goes on is parsed again from the frame if an action has changed the frame.

use flowlane::packet::{Field, FieldRef};
use flowlane::rule::Action;
use flowlane::rule::action::HEADERS_PUSHED_MAX;

use super::{Step, Steps};
use crate::packet::recirculate::{in_headers, is_followed};

/// Why an action cannot be behind the caches.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostCacheError {
    /// An action that only rules may have.
    #[error("`move` reads fields that only a rule's match fixes; let a rule in front or behind do it")]
    Move,
    /// A field that is in no header is set.
    #[error(
        "set_field of `{0}`, which no header has, is for rules only; let a rule in front or behind do it"
    )]
    Field(&'static str),
    /// A `goto_table` that leads back or is not the last action.
    #[error("goto_table:{to} must lead to a later table than {table}, and be the last action")]
    Goto {
        /// Where it leads.
        to: u8,
        /// The table that it is in.
        table: u8,
    },
    /// An action sets a field that no action may set, or bits that it does not have.
    #[error(transparent)]
    Set(#[from] FieldError),
    /// Too many headers are pushed.
    #[error("{0} headers are pushed; at most {HEADERS_PUSHED_MAX} can be")]
    Pushes(usize),
}

/// Why an action cannot set a field. Readers of text make no such action.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// Actions do not set the field.
    #[error("{0} cannot be set")]
    NotWritable(&'static str),
    /// The value or the mask has bits that the field does not have.
    #[error("{value:#x}/{mask:#x} does not fit into the {} bits of {}", .field.info().width, .field.info().name)]
    TooWide {
        /// The field.
        field: Field,
        /// The value.
        value: u128,
        /// The mask.
        mask: u128,
    },
    /// A move's fields are of different widths.
    #[error("{from} and {to} are of different widths")]
    Widths {
        /// The field that is read.
        from: FieldRef,
        /// The field that is written.
        to: FieldRef,
    },
}

/// Checks the field that an action sets: an action of another program than the readers may have any value.
pub(super) fn check_field(action: &Action) -> Result<(), FieldError> {
    let to = match *action {
        Action::SetField { field, value, mask, .. } if (value | mask) & !field.info().ones() != 0 => {
            return Err(FieldError::TooWide { field, value, mask });
        }
        Action::SetField { field, .. } => field,
        Action::Move { from, to } if from.bits() != to.bits() => {
            return Err(FieldError::Widths { from, to });
        }
        Action::Move { to, .. } => to.field(),
        _ => return Ok(()),
    };
    match to.info().writable {
        true => Ok(()),
        false => Err(FieldError::NotWritable(to.info().name)),
    }
}

/// Counts the headers that actions push.
pub(super) fn pushes(actions: &[Action]) -> usize {
    let pushes =
        |a: &&Action| matches!(a, Action::PushVlan(_) | Action::PushMpls(_) | Action::Encapsulate(_));
    actions.iter().filter(pushes).count()
}

/// An action, or a call of a table between two.
#[derive(Clone, Copy)]
pub(crate) enum Item<'a> {
    Action(&'a Action),
    #[cfg_attr(not(test), expect(dead_code, reason = "no action of the flow syntax calls a table yet"))]
    Call(u8),
}

/// Compiles a rule's actions, or those of a next hop or a verdict.
pub(super) fn compile(actions: &[Action]) -> Steps {
    compile_items(actions.iter().map(Item::Action))
}

/// Compiles actions and calls.
///
/// A packet whose headers the key does not follow is parsed again before the next table; one whose headers have moved is parsed
/// before the next action that reads headers. A call may have done either.
pub(crate) fn compile_items<'a>(items: impl Iterator<Item = Item<'a>>) -> Steps {
    let mut steps = Vec::new();
    let (mut stale, mut changed) = (false, false);
    for item in items {
        let Item::Action(action) = item else {
            if let Item::Call(table) = item {
                steps.push(Step::Call { table, again: changed });
            }
            (stale, changed) = (true, true);
            continue;
        };
        let traits = ActionTraits::of(action);
        if stale && traits.reads_headers {
            steps.push(Step::Parse);
            stale = false;
        }
        stale |= traits.misplaces_headers;
        steps.push(match *action {
            Action::Goto(table) if changed => Step::Recirculate { table, carry: Vec::new() },
            Action::Goto(table) => Step::Enter { table, carry: Vec::new() },
            ref other => Step::Do(other.clone()),
        });
        changed |= traits.outdates_key;
    }
    Steps::new(steps)
}

/// Compiles actions in table `table` behind the caches.
///
/// # Errors
/// The first action that cannot be there.
pub fn compile_post_cache(actions: &[Action], table: u8) -> Result<Steps, PostCacheError> {
    if pushes(actions) > HEADERS_PUSHED_MAX {
        return Err(PostCacheError::Pushes(pushes(actions)));
    }
    let last = actions.len().saturating_sub(1);
    for (i, action) in actions.iter().enumerate() {
        check_field(action)?;
        match *action {
            Action::Move { .. } => return Err(PostCacheError::Move),
            Action::SetField { field, .. } if !in_headers(field) => {
                return Err(PostCacheError::Field(field.info().name));
            }
            Action::Goto(to) if to <= table || i < last => return Err(PostCacheError::Goto { to, table }),
            _ => {}
        }
    }
    Ok(compile(actions))
}

/// An action's effects on the steps around it. A new action is added here and in [`apply`](crate::datapath).
#[derive(Clone, Copy, Debug, Default)]
struct ActionTraits {
    /// It sends the packet somewhere, or uses state that packets share, and so runs in packet order.
    has_effects: bool,
    /// It only forwards the packet, unchanged.
    forwards: bool,
    /// It needs the header offsets.
    reads_headers: bool,
    /// After it, header offsets are unknown, and whether headers are there.
    misplaces_headers: bool,
    /// The key does not follow what it does to the headers.
    outdates_key: bool,
}

impl ActionTraits {
    fn of(action: &Action) -> Self {
        let none = Self::default();
        let edits = Self { reads_headers: true, outdates_key: true, ..none };
        match *action {
            Action::Output(_) | Action::InPort | Action::Flood | Action::Normal => {
                Self { has_effects: true, forwards: true, ..none }
            }
            Action::Controller(_) | Action::Sample(_) | Action::Meter(_) => {
                Self { has_effects: true, ..none }
            }
            Action::Count(_) => none,
            Action::Goto(_) => Self { forwards: true, ..none },
            Action::PushVlan(_) => Self { reads_headers: false, ..edits },
            Action::PopVlan | Action::PushMpls(_) | Action::PopMpls(_) => {
                Self { misplaces_headers: true, ..edits }
            }
            Action::DecTtl(_) | Action::DecMplsTtl | Action::Encapsulate(_) => edits,
            Action::SetField { field, .. } => Self {
                reads_headers: in_headers(field) && !matches!(field, Field::EthSrc | Field::EthDst),
                outdates_key: !is_followed(field),
                ..none
            },
            Action::Move { to, .. } => Self { outdates_key: !is_followed(to.field()), ..edits },
        }
    }
}

/// Returns whether an action sends the packet somewhere, or uses state that packets share.
pub(super) fn has_effects(action: &Action) -> bool {
    ActionTraits::of(action).has_effects
}

/// Returns whether an action only forwards the packet, unchanged.
pub(super) fn forwards(action: &Action) -> bool {
    ActionTraits::of(action).forwards
}

/// Returns whether header offsets are unknown after an action.
pub(crate) fn misplaces_headers(action: &Action) -> bool {
    ActionTraits::of(action).misplaces_headers
}

#[cfg(test)]
mod tests {
    use flowlane::rule::action::PortNo;

    use super::*;

    fn set(field: Field) -> Action {
        Action::set_field(field, 1, field.info().ones())
    }

    #[test]
    fn a_field_is_set_where_a_header_has_it_and_refused_where_none_has() {
        for field in Field::all().iter().map(|info| info.field).filter(|f| f.info().writable) {
            let result = compile_post_cache(&[set(field)], 4);
            let name = field.info().name;
            let nowhere = ["metadata", "tun_", "reg", "pkt_mark"];
            match nowhere.iter().any(|start| name.starts_with(start)) {
                true => assert_eq!(result, Err(PostCacheError::Field(name))),
                false => assert_eq!(result, Ok(Steps::new([Step::Do(set(field))])), "{name}"),
            }
        }
    }

    #[test]
    fn goto_leads_onwards_last_and_parses_anew_where_headers_have_changed() {
        let (out, go) = (Action::Output(PortNo(1)), Action::Goto);
        let enter = Step::Enter { table: 9, carry: Vec::new() };
        assert_eq!(
            compile_post_cache(&[out.clone(), go(9)], 4),
            Ok(Steps::new([Step::Do(out.clone()), enter]))
        );
        let again = Step::Recirculate { table: 9, carry: Vec::new() };
        let ttl = Action::dec_ttl();
        assert_eq!(compile_post_cache(&[ttl.clone(), go(9)], 4), Ok(Steps::new([Step::Do(ttl), again])));
        assert_eq!(compile_post_cache(&[go(4)], 4), Err(PostCacheError::Goto { to: 4, table: 4 }));
        assert_eq!(compile_post_cache(&[go(9), out], 4), Err(PostCacheError::Goto { to: 9, table: 4 }));
        let wide = Action::set_field(Field::NwTtl, 256, 0xff);
        assert!(matches!(
            compile_post_cache(&[wide], 4),
            Err(PostCacheError::Set(FieldError::TooWide { value: 256, .. }))
        ));
        let moves = Action::Move { from: Field::Ipv4Src.into(), to: Field::Ipv4Dst.into() };
        assert_eq!(compile_post_cache(&[moves], 4), Err(PostCacheError::Move));
    }
}
