//! Actions behind the caches: those of next hops, and of the verdicts of stages.
//!
//! They are a rule's actions, except those that need a megaflow. `move` reads fields that a rule's match fixes. A field in no
//! header (metadata, registers) is for later tables of the same translation: here no translation continues. The key of a packet
//! that goes on is parsed again from the frame if an action has changed the frame.

use std::sync::Arc;

use flowlane::packet::{Field, FieldRef};
use flowlane::rule::action::{Bundle, HEADERS_PUSHED_MAX, Learn, Multipath, PortNo, SetForm};
use flowlane::rule::{Action, Rule};

use super::{LaneStep, LowerTimeouts, Origin, RuleRequest, Step, Steps, ToController, Track};
use crate::packet::recirculate::{in_headers, is_followed};
use crate::packet::{Shown, edit};

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
    /// Another action that only rules may have.
    #[error("`{0}` is for rules only; let a rule in front or behind do it")]
    RulesOnly(String),
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
    // Mark and label of the connection are set by learned rules, for the tables that follow.
    match to.info().writable || to.is_set_with_connection() {
        true => Ok(()),
        false => Err(FieldError::NotWritable(to.info().name)),
    }
}

/// Counts the headers that actions push.
pub(super) fn pushes(actions: &[Action]) -> usize {
    actions.iter().map(|action| usize::from(action.pushes_header()) + pushes(action.nested())).sum()
}

/// Compiles the actions of a rule.
pub(super) fn compile_rule(rule: &Rule) -> Steps {
    Compiler { rule: Some(rule), ..Compiler::new(Origin::of(rule)) }.all(&rule.actions)
}

/// Compiles the actions of a next hop, a verdict or a bucket.
pub(crate) fn compile(actions: &[Action], origin: Origin) -> Steps {
    Compiler::new(origin).all(actions)
}

/// Compiles the actions of a packet-out.
pub(crate) fn compile_packet_out(actions: &[Action]) -> Steps {
    compile(actions, Origin::none(0))
}

/// Compiles actions of a packet whose headers other tables have changed. The tables of `resubmit` are numbers.
pub(super) fn compile_later(actions: &[Action]) -> Steps {
    Compiler { stale: true, changed: true, ..Compiler::new(Origin::none(0)) }.all(actions)
}

/// Compiles actions one after the other.
///
/// A packet whose headers the key does not follow is parsed again before the next table; one whose headers have moved is parsed
/// before the next action that reads headers. A call may have done either.
struct Compiler<'a> {
    steps: Vec<Step>,
    /// The offsets of headers are not known.
    stale: bool,
    /// The key does not follow the headers.
    changed: bool,
    origin: Origin,
    /// The rule that has the actions.
    rule: Option<&'a Rule>,
}

impl Compiler<'_> {
    fn new(origin: Origin) -> Self {
        Self { steps: Vec::new(), stale: false, changed: false, origin, rule: None }
    }

    fn all(mut self, actions: &[Action]) -> Steps {
        actions.iter().for_each(|action| self.action(action));
        Steps::new(self.steps)
    }

    fn action(&mut self, action: &Action) {
        if let Action::OutputMaxLen { output, .. } = action {
            return self.action(output);
        }
        if let Some(step) = self.lane_step(action) {
            return self.lane(step);
        }
        let traits = ActionTraits::of(action);
        if self.stale && traits.reads_headers {
            self.steps.push(Step::Parse);
            self.stale = false;
        }
        self.stale |= traits.misplaces_headers;
        match *action {
            // Nothing that packets notice.
            Action::Note(_) | Action::Conjunction { .. } => {}
            // There are no timeouts to lower.
            Action::FinTimeout { .. } => {}
            Action::Goto(table) if self.changed => {
                self.steps.push(Step::Recirculate { table, carry: Vec::new() });
            }
            Action::Goto(table) => self.steps.push(Step::Enter { table, carry: Vec::new() }),
            Action::Resubmit { in_port, table, original } => {
                let in_port = in_port.filter(|port| *port != PortNo::IN_PORT);
                let shown = Shown { in_port, original };
                let (here, again) = (self.origin.table, self.changed);
                let table = table.unwrap_or(here);
                self.steps.push(Step::Call { table, shown, back: table <= here, again });
                (self.stale, self.changed) = (true, true);
                return;
            }
            Action::Controller(ref action) => {
                let to = ToController { action: (**action).clone(), origin: self.origin };
                self.steps.push(to.into());
            }
            // Equal paths are one, however their rules are written.
            Action::SetField { field, value, mask, protocol, .. } => {
                let form = SetForm::SetField;
                // `write_metadata` may have bits outside of its mask.
                let value = value & mask;
                self.steps.push(Step::Do(Action::SetField { field, value, mask, form, protocol }));
                self.option_is_present(field, true);
            }
            Action::Move { to, .. } => {
                self.steps.push(Step::Do(action.clone()));
                self.option_is_present(to.field(), true);
            }
            // The field keeps its value, as in Open vSwitch.
            Action::DeleteField(field) => self.option_is_present(field, false),
            ref other => self.steps.push(Step::Do(other.clone())),
        }
        self.changed |= traits.outdates_key;
    }

    /// A packet has an option of tunnels if an action has written its field, and does not have one that an action has deleted.
    fn option_is_present(&mut self, field: Field, is_present: bool) {
        if let Some(number) = field.tun_metadata_number() {
            let (field, form, mask) = (Field::TunMetadataPresent, SetForm::SetField, 1 << number);
            let value = if is_present { mask } else { 0 };
            self.steps.push(Step::Do(Action::SetField { field, value, mask, form, protocol: None }));
        }
    }

    /// Adds a step that concerns more than the packet's bytes.
    fn lane(&mut self, step: LaneStep) {
        // These parse the packet themselves where the key is behind.
        let again = self.changed && step.reads_key();
        let needs_headers = match step {
            LaneStep::Pop(to) => needs_offsets(to.field()),
            // It counts without padding.
            LaneStep::CheckPacketLarger { .. } => true,
            _ => false,
        };
        let written = step.written();
        if self.stale && needs_headers {
            self.steps.push(Step::Parse);
            self.stale = false;
        }
        (self.stale, self.changed) = match step {
            LaneStep::Copy(_)
            | LaneStep::Group(_)
            | LaneStep::OutputField { .. }
            | LaneStep::Push(_)
            | LaneStep::FinTimeout(_)
            | LaneStep::Pause(_)
            | LaneStep::Track { .. }
            | LaneStep::Route(_)
            | LaneStep::Bundle(Bundle { to: None, .. }) => (false, false),
            LaneStep::Learn(ref learn) => (false, learn.result.is_some_and(|to| !is_followed(to.field()))),
            // They set a field.
            LaneStep::Multipath(Multipath { to, .. }) | LaneStep::Bundle(Bundle { to: Some(to), .. }) => {
                (false, !is_followed(to.field()))
            }
            LaneStep::Pop(to) | LaneStep::CheckPacketLarger { to, .. } => {
                (self.stale, self.changed || !is_followed(to.field()))
            }
            LaneStep::WriteActions(_)
            | LaneStep::ClearActions
            | LaneStep::Exit
            | LaneStep::PushValue(_)
            | LaneStep::Request(_)
            | LaneStep::Untrack
            | LaneStep::Expire
            | LaneStep::Refuse
            | LaneStep::Leave { .. } => (self.stale, self.changed),
        };
        self.steps.push(Step::Lane { step: Arc::new(step), again });
        if let Some(to) = written {
            self.option_is_present(to.field(), true);
        }
    }

    /// Written actions, with the table of each `resubmit`: they are executed elsewhere.
    fn with_tables(&self, actions: &[Action]) -> Arc<[Action]> {
        let with_table = |action: &Action| match *action {
            Action::Resubmit { in_port, table: None, original } => {
                Action::Resubmit { in_port, table: Some(self.origin.table), original }
            }
            ref other => other.clone(),
        };
        actions.iter().map(with_table).collect()
    }

    /// The step of an action that concerns more than the packet's bytes.
    fn lane_step(&self, action: &Action) -> Option<LaneStep> {
        Some(match action {
            // The packet is parsed before a copy is made, if its key is behind.
            Action::Clone(actions) => {
                LaneStep::Copy(Compiler { rule: self.rule, ..Compiler::new(self.origin) }.all(actions))
            }
            &Action::FinTimeout { idle_s, hard_s } if idle_s > 0 || hard_s > 0 => {
                let Rule { table, priority, matches, .. } = self.rule?;
                let lower = LowerTimeouts::new(*table, (*priority, matches.clone()), idle_s, hard_s);
                LaneStep::FinTimeout(Arc::new(RuleRequest::Lower(lower)))
            }
            Action::Group(group) => LaneStep::Group(*group),
            Action::WriteActions(actions) => LaneStep::WriteActions(self.with_tables(actions)),
            Action::ClearActions => LaneStep::ClearActions,
            Action::Exit => LaneStep::Exit,
            Action::Push(part) => LaneStep::Push(*part),
            Action::Pop(part) => LaneStep::Pop(*part),
            Action::OutputField { port, max_len } => {
                LaneStep::OutputField { port: *port, max_len: *max_len, origin: self.origin }
            }
            Action::Multipath(multipath) => LaneStep::Multipath((**multipath).clone()),
            Action::Bundle(bundle) => LaneStep::Bundle((**bundle).clone()),
            Action::Learn(learn) => {
                // Learned rules go with a rule, and a packet-out is none.
                let delete_learned = learn.delete_learned && !self.origin.is_none();
                LaneStep::Learn(Arc::new(Learn { delete_learned, ..(**learn).clone() }))
            }
            Action::Controller(action) if action.pause => {
                LaneStep::Pause(Arc::new(ToController { action: (**action).clone(), origin: self.origin }))
            }
            Action::ConnectionTracking(action) => {
                LaneStep::track(Track::new((**action).clone(), self.origin.table))
            }
            Action::ClearConnection => LaneStep::Untrack,
            Action::CheckPacketLarger { bytes, to } => LaneStep::CheckPacketLarger { bytes: *bytes, to: *to },
            Action::Output(_)
            | Action::OutputTruncated { .. }
            | Action::OutputMaxLen { .. }
            | Action::Enqueue { .. }
            | Action::InPort
            | Action::Flood
            | Action::All
            | Action::Normal
            | Action::Controller(_)
            | Action::Sample(_)
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::PushVlan(_)
            | Action::PopVlan
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::SetField { .. }
            | Action::Move { .. }
            | Action::DeleteField(_)
            | Action::DecTtl(_)
            | Action::DecMplsTtl
            | Action::DecNshTtl
            | Action::Meter(_)
            | Action::Count(_)
            | Action::Encapsulate(_)
            | Action::EncapsulateHeader(_)
            | Action::Decapsulate(_)
            | Action::Resubmit { .. }
            | Action::Conjunction { .. }
            | Action::FinTimeout { .. }
            | Action::Nat(_)
            | Action::Note(_)
            | Action::Goto(_) => return None,
        })
    }
}

/// Why the switch does not execute an action yet; `None` if it does.
pub(super) fn unsupported(action: &Action) -> Option<&'static str> {
    match action {
        Action::ConnectionTracking(tracking) if !matches!(tracking.alg, 0 | 21 | 69) => {
            Some("has a helper for an application other than ftp (21) and tftp (69)")
        }
        Action::Nat(_) => Some("is part of ct"),
        Action::EncapsulateHeader(header) if edit::nsh_bytes(header) > edit::NSH_BYTES_MAX => {
            Some("has more metadata than there is room for in NSH")
        }
        _ => None,
    }
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
        let compiler = Compiler::new(Origin::none(table));
        let is_for_rules = compiler.lane_step(action).is_some();
        match *action {
            Action::Move { .. } => return Err(PostCacheError::Move),
            Action::SetField { field, .. } if !in_headers(field) => {
                return Err(PostCacheError::Field(field.info().name));
            }
            Action::Goto(to) if to <= table || i < last => return Err(PostCacheError::Goto { to, table }),
            Action::Resubmit { .. } => return Err(PostCacheError::RulesOnly(action.to_string())),
            Action::Conjunction { .. } | Action::FinTimeout { .. } => {
                return Err(PostCacheError::RulesOnly(action.to_string()));
            }
            _ if is_for_rules || unsupported(action).is_some() => {
                return Err(PostCacheError::RulesOnly(action.to_string()));
            }
            _ => {}
        }
    }
    Ok(compile(actions, Origin::none(table)))
}

/// Returns whether setting a field needs the offsets of headers.
fn needs_offsets(field: Field) -> bool {
    in_headers(field) && !matches!(field, Field::EthSrc | Field::EthDst)
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
    /// It leaves addresses and ports as they are, and keeps connections with these alone; nested actions aside. Not said of actions
    /// that are seldom beside `ct`.
    keeps_ends: bool,
}

impl ActionTraits {
    fn of(action: &Action) -> Self {
        let none = Self::default();
        let keeps = Self { keeps_ends: true, ..none };
        let edits = Self { reads_headers: true, outdates_key: true, ..none };
        match *action {
            Action::Output(_)
            | Action::OutputMaxLen { .. }
            | Action::Enqueue { .. }
            | Action::InPort
            | Action::Flood
            | Action::All
            | Action::Normal => Self { has_effects: true, forwards: true, ..keeps },
            Action::OutputTruncated { .. } | Action::Controller(_) | Action::Sample(_) => {
                Self { has_effects: true, ..keeps }
            }
            // It may raise the drop precedence.
            Action::Meter(_) => Self { has_effects: true, reads_headers: true, ..keeps },
            Action::Count(_) | Action::ClearActions => keeps,
            Action::Note(_) | Action::SetQueue(_) | Action::PopQueue | Action::Conjunction { .. } => {
                Self { forwards: true, ..keeps }
            }
            // Whatever their tables and copies do.
            Action::Resubmit { .. }
            | Action::Clone(_)
            | Action::WriteActions(_)
            | Action::OutputField { .. }
            | Action::ClearConnection
            | Action::Exit => Self { keeps_ends: true, ..edits },
            Action::ConnectionTracking(ref tracking) => {
                let is_plain = !tracking.force && tracking.alg == 0 && tracking.exec.is_empty();
                Self { keeps_ends: is_plain, ..edits }
            }
            Action::Group(_)
            | Action::Push(_)
            | Action::Pop(_)
            | Action::Learn(_)
            | Action::Multipath(_)
            | Action::Bundle(_)
            | Action::FinTimeout { .. }
            | Action::CheckPacketLarger { .. }
            | Action::Nat(_) => edits,
            // The presence of an option is in the key alone.
            Action::DeleteField(_) => none,
            Action::Goto(_) => Self { forwards: true, ..keeps },
            Action::PushVlan(_) => Self { reads_headers: false, ..edits },
            Action::PopVlan
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::EncapsulateHeader(_)
            | Action::Decapsulate(_) => Self { misplaces_headers: true, ..edits },
            Action::DecTtl(_) => Self { keeps_ends: true, ..edits },
            Action::DecMplsTtl | Action::DecNshTtl | Action::Encapsulate(_) => edits,
            Action::SetField { field, .. } => Self {
                reads_headers: needs_offsets(field),
                outdates_key: !is_followed(field),
                keeps_ends: is_apart_from_ends(field),
                ..none
            },
            Action::Move { to, .. } => {
                let field = to.field();
                Self { outdates_key: !is_followed(field), keeps_ends: is_apart_from_ends(field), ..edits }
            }
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

/// Returns whether a field is in no header that an address or a port is in, nor decides which.
fn is_apart_from_ends(field: Field) -> bool {
    !in_headers(field) || matches!(field, Field::EthSrc | Field::EthDst)
}

/// Returns whether an action leaves addresses and ports as they are, and keeps connections with these alone.
pub(super) fn keeps_ends(action: &Action) -> bool {
    ActionTraits::of(action).keeps_ends && action.nested().iter().all(keeps_ends)
}

/// Returns whether the key does not follow what an action does to the headers.
pub(crate) fn outdates_key(action: &Action) -> bool {
    ActionTraits::of(action).outdates_key
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
            let nowhere = ["in_port", "metadata", "tun_", "reg", "pkt_mark"];
            match nowhere.iter().any(|start| name.starts_with(start)) {
                true => assert_eq!(result, Err(PostCacheError::Field(name))),
                false => {
                    // However the rule is written, the step has one form.
                    let Action::SetField { field, value, mask, protocol, .. } = set(field) else {
                        unreachable!()
                    };
                    let form = SetForm::SetField;
                    let step = Step::Do(Action::SetField { field, value, mask, form, protocol });
                    assert_eq!(result, Ok(Steps::new([step])), "{name}");
                }
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
