//! Rules that `learn` makes of packets.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use flowlane::packet::FieldRef;
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::{Learn, LearnSource, LearnSpec, SetForm};
use flowlane::rule::{Action, Command, FlowFlags, FlowMod, Match, Priority, Rule};

use super::outputs::of_number;

/// The keys of the hash of rules: secret, since packets decide what they hold.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A learned rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learned {
    /// The change that adds it, or replaces the one of its priority and match.
    pub flow_mod: FlowMod,
    /// It is not added where this many rules of its table have its cookie; 0: no limit.
    pub limit: u32,
    /// It goes with the last rule that learns it.
    pub delete_learned: bool,
    /// A hash of its table, priority and match.
    pub identity: u64,
    /// A hash of the rule.
    pub hash: u64,
}

impl Hash for Learned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl Learned {
    /// Makes the rule of a packet with this key.
    pub fn of(learn: &Learn, key: &FlowKey) -> Self {
        let value = |from: &LearnSource| match from {
            LearnSource::Field(field) => field.get(key),
            LearnSource::Value(value) => *value,
        };
        let (mut matches, mut actions) = (Match::any(), Vec::new());
        for spec in &learn.specs {
            match spec {
                LearnSpec::Match { to, from } => {
                    let bits = to.place(value(from) & to.ones());
                    let (before, mask) = matches.get(to.field());
                    let others = before & mask & !to.mask();
                    matches.set_masked(to.field(), others | bits, mask | to.mask());
                }
                LearnSpec::Load { to, from } => {
                    let value = to.place(value(from) & to.ones());
                    let form = SetForm::Load;
                    actions.push(Action::SetField { field: to.field(), value, mask: to.mask(), form });
                }
                LearnSpec::Output(port) => actions.extend(of_number(port.get(key), u16::MAX)),
            }
        }
        let (table, priority, cookie) = (learn.table, Priority(learn.priority.into()), learn.cookie);
        let identity = HASH.hash_one((table, priority, &matches));
        let hash = HASH.hash_one((identity, cookie, &actions, learn.limit));
        let rule = Rule { table, priority, cookie, matches, actions };
        let flags = if learn.send_flow_removed { FlowFlags::SEND_FLOW_REM } else { FlowFlags::default() };
        let (idle_timeout_s, hard_timeout_s) = (learn.idle_timeout_s, learn.hard_timeout_s);
        let flow_mod = FlowMod { idle_timeout_s, hard_timeout_s, flags, ..FlowMod::new(Command::Add, rule) };
        let Learn { limit, delete_learned, .. } = *learn;
        Self { flow_mod, limit, delete_learned, identity, hash }
    }
}

/// The fields of packets that a `learn` reads.
pub(crate) fn sources(learn: &Learn) -> impl Iterator<Item = FieldRef> {
    learn.specs.iter().filter_map(|spec| match spec {
        LearnSpec::Match { from: LearnSource::Field(field), .. }
        | LearnSpec::Load { from: LearnSource::Field(field), .. }
        | LearnSpec::Output(field) => Some(*field),
        LearnSpec::Match { from: LearnSource::Value(_), .. }
        | LearnSpec::Load { from: LearnSource::Value(_), .. } => None,
    })
}
