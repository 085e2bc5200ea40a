//! Actions behind the caches: those of next hops, and of the verdicts of functions.
//!
//! They are a rule's, but for what needs a megaflow. `move` reads what a rule's match fixes. A field that is in no header
//! (metadata, registers) is what later tables of the same walk look at: here no walk goes on, and a packet that does has
//! its key parsed from the frame.

use flowlane::packet::Field;
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
    /// A `goto_table` to where packets have been.
    #[error("goto_table:{to} must lead to a later table than {table}, and be the last action")]
    Goto {
        /// Where it leads.
        to: u8,
        /// The table that it stands in.
        table: u8,
    },
    /// Too many headers are pushed.
    #[error("{0} headers are pushed; at most {HEADERS_PUSHED_MAX} can be")]
    Pushes(usize),
}

/// How many headers actions push.
pub(super) fn pushes(actions: &[Action]) -> usize {
    let pushes =
        |a: &&Action| matches!(a, Action::PushVlan(_) | Action::PushMpls(_) | Action::Encapsulate(_));
    actions.iter().filter(pushes).count()
}

/// The steps of a rule's actions, for packets that come to it without a megaflow: where it leads on, packets take their keys
/// along, so that fields which are in no header may be set.
pub(super) fn steps_of(actions: &[Action]) -> Steps {
    let mut steps = Vec::with_capacity(actions.len());
    let (mut stale, mut changed) = (false, false);
    for action in actions {
        if stale && looks_at_headers(action) {
            steps.push(Step::Parse);
            stale = false;
        }
        stale |= misplaces_headers(action);
        steps.push(match *action {
            Action::Goto(table) if changed => Step::Recirculate { table, carry: Vec::new() },
            Action::Goto(table) => Step::Enter { table, carry: Vec::new() },
            ref other => Step::Do(other.clone()),
        });
        changed |= match *action {
            Action::SetField { field, .. } => !is_followed(field),
            Action::Move { to, .. } => !is_followed(to.field()),
            _ => changes_headers(action),
        };
    }
    Steps::new(steps)
}

/// The steps of actions in table `table`. Where no action changes headers, the table that a `goto_table` leads to may be
/// entered as it is; else the packet is parsed anew before.
///
/// # Errors
/// The first action that cannot be here.
pub fn compile_post_cache(actions: &[Action], table: u8) -> Result<Box<[Step]>, PostCacheError> {
    if pushes(actions) > HEADERS_PUSHED_MAX {
        return Err(PostCacheError::Pushes(pushes(actions)));
    }
    let last = actions.len().saturating_sub(1);
    let changes = actions.iter().any(changes_headers);
    let step = |(i, action): (usize, &Action)| match *action {
        Action::Move { .. } => Err(PostCacheError::Move),
        Action::SetField { field, .. } if !in_headers(field) => Err(PostCacheError::Field(field.info().name)),
        Action::Goto(to) if to <= table || i < last => Err(PostCacheError::Goto { to, table }),
        Action::Goto(table) if changes => Ok(Step::Recirculate { table, carry: Vec::new() }),
        Action::Goto(table) => Ok(Step::Enter { table, carry: Vec::new() }),
        ref other => Ok(Step::Do(other.clone())),
    };
    let mut steps = Vec::with_capacity(actions.len());
    let mut stale = false;
    for (i, action) in actions.iter().enumerate() {
        if stale && looks_at_headers(action) {
            steps.push(Step::Parse);
            stale = false;
        }
        stale |= misplaces_headers(action);
        steps.push(step((i, action))?);
    }
    Ok(steps.into())
}

/// Whether an action sends the packet somewhere, or uses what other packets use too.
pub(super) fn is_seen(action: &Action) -> bool {
    matches!(
        action,
        Action::Output(_)
            | Action::InPort
            | Action::Flood
            | Action::Normal
            | Action::Controller { .. }
            | Action::Sample { .. }
            | Action::Meter(_)
    )
}

/// Whether an action does nothing with a packet but send it on as it came.
pub(super) fn forwards(action: &Action) -> bool {
    matches!(action, Action::Output(_) | Action::InPort | Action::Flood | Action::Normal | Action::Goto(_))
}

fn changes_headers(action: &Action) -> bool {
    !is_seen(action) && !matches!(action, Action::Count(_) | Action::Goto(_))
}

/// Whether it is not known behind an action where headers are, or whether there are any.
pub(crate) fn misplaces_headers(action: &Action) -> bool {
    matches!(action, Action::PushMpls(_) | Action::PopMpls(_) | Action::PopVlan)
}

/// Whether it matters to an action where headers are.
pub(crate) fn looks_at_headers(action: &Action) -> bool {
    match *action {
        Action::SetField { field, .. } => {
            in_headers(field) && !matches!(field, Field::EthSrc | Field::EthDst)
        }
        Action::Move { .. }
        | Action::DecTtl
        | Action::DecMplsTtl
        | Action::PopVlan
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::Encapsulate(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use flowlane::rule::action::PortNo;

    use super::*;

    fn set(field: Field) -> Action {
        Action::SetField { field, value: 1, mask: field.info().ones() }
    }

    #[test]
    fn a_field_is_set_where_a_header_has_it_and_refused_where_none_has() {
        for field in Field::all().iter().map(|info| info.field).filter(|f| f.info().writable) {
            let result = compile_post_cache(&[set(field)], 4);
            let name = field.info().name;
            let nowhere = ["metadata", "tun_", "reg", "pkt_mark"];
            match nowhere.iter().any(|start| name.starts_with(start)) {
                true => assert_eq!(result, Err(PostCacheError::Field(name))),
                false => assert_eq!(result, Ok([Step::Do(set(field))].into()), "{name}"),
            }
        }
    }

    #[test]
    fn goto_leads_onwards_last_and_parses_anew_where_headers_have_changed() {
        let (out, go) = (Action::Output(PortNo(1)), Action::Goto);
        let enter = Step::Enter { table: 9, carry: Vec::new() };
        assert_eq!(compile_post_cache(&[out.clone(), go(9)], 4), Ok([Step::Do(out.clone()), enter].into()));
        let again = Step::Recirculate { table: 9, carry: Vec::new() };
        let ttl = Action::DecTtl;
        assert_eq!(compile_post_cache(&[ttl.clone(), go(9)], 4), Ok([Step::Do(ttl), again].into()));
        assert_eq!(compile_post_cache(&[go(4)], 4), Err(PostCacheError::Goto { to: 4, table: 4 }));
        assert_eq!(compile_post_cache(&[go(9), out], 4), Err(PostCacheError::Goto { to: 9, table: 4 }));
        let moves = Action::Move { from: Field::Ipv4Src.into(), to: Field::Ipv4Dst.into() };
        assert_eq!(compile_post_cache(&[moves], 4), Err(PostCacheError::Move));
    }
}
