//! Changes of rules that packets make: rules that `learn` adds, timeouts that `fin_timeout` lowers.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::{ether_type, ip_proto};
use flowlane::packet::{Field, FieldRef};
use flowlane::rule::action::{Learn, LearnSource, LearnSpec, SetForm};
use flowlane::rule::{Action, Command, FlowFlags, FlowMod, Match, Priority, Rule};

use super::{Entry, RuleKey, outputs};

/// The keys of the hash of rules: secret, since packets decide what they hold.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A change of rules that a packet asks control for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleRequest {
    /// To add a rule.
    Learn(Learned),
    /// To lower the timeouts of a rule.
    Lower(LowerTimeouts),
}

impl RuleRequest {
    /// A hash of the rule's table, priority and match.
    pub fn identity(&self) -> u64 {
        match self {
            Self::Learn(learned) => learned.digest.identity,
            Self::Lower(lower) => lower.identity,
        }
    }

    /// A hash of the request.
    pub fn hash(&self) -> u64 {
        match self {
            Self::Learn(learned) => learned.hash,
            Self::Lower(lower) => lower.hash,
        }
    }
}

impl Hash for RuleRequest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        RuleRequest::hash(self).hash(state);
    }
}

/// Timeouts that a rule is to have at most, since a TCP connection has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LowerTimeouts {
    pub table: u8,
    /// The rule.
    pub rule: RuleKey,
    /// Seconds without a packet; 0: as before.
    pub idle_s: u16,
    /// Seconds after the rule was added; 0: as before.
    pub hard_s: u16,
    identity: u64,
    hash: u64,
}

impl LowerTimeouts {
    /// Creates a request for a rule of a table.
    pub fn new(table: u8, rule: RuleKey, idle_s: u16, hard_s: u16) -> Self {
        let identity = RuleDigest::identity(table, rule.0, &rule.1);
        let hash = HASH.hash_one((identity, idle_s, hard_s));
        Self { table, rule, idle_s, hard_s, identity, hash }
    }
}

/// Returns whether a packet ends a TCP connection: whether it has FIN or RST.
pub(crate) fn ends_connection(key: &FlowKey) -> bool {
    is_tcp(key) && key.get(Field::TcpFlags) & u128::from(FIN_OR_RST) != 0
}

/// Returns whether a packet is TCP.
pub(crate) fn is_tcp(key: &FlowKey) -> bool {
    let is_ip = [ether_type::IPV4, ether_type::IPV6].map(u128::from).contains(&key.get(Field::EthType));
    is_ip && key.get(Field::NwProto) == ip_proto::TCP.into()
}

/// The flags by which TCP connections end.
pub(crate) const FIN_OR_RST: u16 = 0x001 | 0x004;

/// A learned rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learned {
    /// The change that adds it, or replaces the one of its priority and match.
    pub flow_mod: FlowMod,
    /// It is not added where this many rules of its table have its cookie; 0: no limit.
    pub limit: u32,
    /// It goes with the last rule that learns it.
    pub delete_learned: bool,
    /// Hashes that tell the rule from others.
    pub(crate) digest: RuleDigest,
    /// A hash of the request.
    hash: u64,
}

/// Hashes of a rule, by which rules are compared that packets ask for and that are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleDigest {
    /// A hash of its table, priority and match.
    pub(crate) identity: u64,
    /// A hash of all else that Open vSwitch compares: cookie, actions, timeouts and flags.
    pub(crate) content: u64,
    /// Its table and cookie.
    pub(crate) cookie: (u8, u64),
}

impl RuleDigest {
    fn new(rule: &Rule, timeouts_s: (u16, u16), flags: FlowFlags) -> Self {
        let Rule { table, priority, cookie, matches, actions } = rule;
        let identity = Self::identity(*table, *priority, matches);
        let content = HASH.hash_one((identity, cookie, actions, timeouts_s, flags));
        Self { identity, content, cookie: (*table, *cookie) }
    }

    /// Returns the digest of a rule that is there.
    pub(crate) fn of(entry: &Entry) -> Self {
        let timeouts_s = (entry.timeouts.idle_s(), entry.timeouts.hard_s());
        Self::new(&entry.rule, timeouts_s, entry.flags)
    }

    fn identity(table: u8, priority: Priority, matches: &Match) -> u64 {
        HASH.hash_one((table, priority, matches))
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
        let (idle_s, hard_s) = (learn.fin_idle_timeout_s, learn.fin_hard_timeout_s);
        if idle_s > 0 || hard_s > 0 {
            actions.push(Action::FinTimeout { idle_s, hard_s });
        }
        for spec in &learn.specs {
            match spec {
                LearnSpec::Match { to, from } => {
                    let bits = to.place(value(from) & to.ones());
                    let (before, mask) = matches.get(to.field());
                    let others = before & mask & !to.mask();
                    // The 16 bits of a port in this action are all of it: numbers of ports are below 0xff00.
                    let is_port = to.field() == Field::InPort && to.mask() == 0xffff;
                    let ones = if is_port { Field::InPort.info().ones() } else { to.mask() };
                    matches.set_masked(to.field(), others | bits, mask | ones);
                }
                LearnSpec::Load { to, from } => {
                    let value = to.place(value(from) & to.ones());
                    let form = SetForm::Load;
                    actions.push(Action::SetField {
                        field: to.field(),
                        value,
                        mask: to.mask(),
                        form,
                        protocol: None,
                    });
                }
                LearnSpec::Output(port) => actions.extend(outputs::learned(port.get(key))),
            }
        }
        let (table, priority, cookie) = (learn.table, Priority(learn.priority.into()), learn.cookie);
        let rule = Rule { table, priority, cookie, matches, actions };
        let flags = if learn.send_flow_removed { FlowFlags::SEND_FLOW_REM } else { FlowFlags::default() };
        let (idle_timeout_s, hard_timeout_s) = (learn.idle_timeout_s, learn.hard_timeout_s);
        let digest = RuleDigest::new(&rule, (idle_timeout_s, hard_timeout_s), flags);
        let flow_mod = FlowMod { idle_timeout_s, hard_timeout_s, flags, ..FlowMod::new(Command::Add, rule) };
        let Learn { limit, delete_learned, .. } = *learn;
        let hash = HASH.hash_one((digest.content, limit, delete_learned));
        Self { flow_mod, limit, delete_learned, digest, hash }
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

/// The tables and cookies whose rules a limit of these actions is for.
pub(crate) fn limited(actions: &[Action]) -> Vec<(u8, u64)> {
    let mut found = Vec::new();
    for action in actions {
        match action {
            Action::Learn(learn) => found.extend((learn.limit > 0).then_some((learn.table, learn.cookie))),
            other => found.extend(limited(other.nested())),
        }
    }
    found
}
