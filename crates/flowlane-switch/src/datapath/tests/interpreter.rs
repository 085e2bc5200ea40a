//! The pipeline as OpenFlow and Open vSwitch describe it, without caches, masks or compiled steps: the packet is parsed again
//! before every table and every `move`, and control flow is recursion.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use flowlane::rule::RuleId;

use super::*;
use crate::packet::recirculate::note_type;
use flowlane::packet::FieldClass;
use flowlane::rule::group::GroupKind;

/// How a packet goes on after some actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    On,
    /// The list of actions has ended: its TTL has expired.
    ListEnds,
    /// Nothing more happens to it.
    Dropped,
    /// Nor to the packet that it is a copy of.
    Exited,
}

/// All actions that were written, as they are executed (OpenFlow 1.3.5, 5.10): the last of each kind, but all that set fields.
fn in_order(written: &[Action]) -> Vec<Action> {
    let last = |is: fn(&Action) -> bool| written.iter().rev().find(|&action| is(action)).cloned();
    let sends = |action: &Action| {
        use Action::{Controller, Flood, InPort, Normal, Output};
        matches!(action, Output(_) | InPort | Flood | Normal | Controller(_))
    };
    let end = last(|action| matches!(action, Action::Group(_)))
        .or_else(|| last(sends))
        .or_else(|| last(|action| matches!(action, Action::Resubmit { .. })));
    let Some(end) = end else { return Vec::new() };
    let first: [fn(&Action) -> bool; 9] = [
        |action| matches!(action, Action::PopVlan),
        |action| matches!(action, Action::PopMpls(_)),
        |action| matches!(action, Action::Decapsulate(_)),
        |action| matches!(action, Action::EncapsulateHeader(_)),
        |action| matches!(action, Action::PushMpls(_)),
        |action| matches!(action, Action::PushVlan(_)),
        |action| matches!(action, Action::DecTtl(_)),
        |action| matches!(action, Action::DecMplsTtl),
        |action| matches!(action, Action::DecNshTtl),
    ];
    let mut ordered: Vec<Action> = first.into_iter().filter_map(last).collect();
    let sets = |action: &&Action| matches!(action, Action::SetField { .. } | Action::Move { .. });
    ordered.extend(written.iter().filter(sets).cloned());
    ordered.push(end);
    ordered
}

/// The winning rule of a table for a packet without an Ethernet header: of those that ask for its type, or for no header at all.
fn winner_of_type(table: &TableView<'_>, key: &FlowKey) -> Option<RuleId> {
    let headers = |matches: &Match| {
        let fields = Field::all().iter().filter(|info| info.class == FieldClass::Header);
        fields.into_iter().any(|info| matches.get(info.field).1 != 0)
    };
    let may_match = |matches: &Match| match matches.get(Field::PacketType) {
        (_, 0) => !headers(matches),
        (packet_type, _) => packet_type != 0,
    };
    let matching = table.rules().filter(|(_, entry)| {
        let matches = &entry.rule.matches;
        may_match(matches) && matches.matches(key)
    });
    matching.min_by_key(|(id, entry)| (Reverse(entry.rule.priority), *id)).map(|(id, _)| id)
}

/// The winning rule of a table, conjunctions included (ovs-fields(7)).
fn winner(table: &TableView<'_>, key: &FlowKey) -> Option<RuleId> {
    if key.get(Field::PacketType) != 0 {
        return winner_of_type(table, key);
    }
    let mut parts: BTreeMap<(Reverse<Priority>, u32, u8), BTreeSet<u8>> = BTreeMap::new();
    for (_, RuleEntry { rule, .. }) in table.rules().filter(|(_, entry)| entry.rule.matches.matches(key)) {
        for action in &rule.actions {
            if let &Action::Conjunction { id, clause, clauses } = action {
                parts.entry((Reverse(rule.priority), id, clauses)).or_default().insert(clause);
            }
        }
    }
    let hard = table.classifier().lookup(key);
    let above = |priority| hard.is_none_or(|hit| priority > hit.priority);
    let met = parts.into_iter().filter(|((Reverse(priority), _, clauses), met)| {
        above(*priority) && met.len() == usize::from(*clauses)
    });
    let again = |((_, id, _), _): ((Reverse<Priority>, u32, u8), BTreeSet<u8>)| {
        let mut key = key.clone();
        key.set(Field::ConjId, id.into());
        table.classifier().lookup(&key)
    };
    met.filter_map(again).next().or(hard).map(|hit| hit.rule)
}

type CallsByRule = BTreeMap<(u8, u32), (usize, u8)>;

struct Interpreter<'a> {
    pipeline: &'a Pipeline,
    in_port: u32,
    frame: Frame,
    headers: Headers,
    /// Headers have moved since they were parsed.
    stale: bool,
    /// Words of the key that are in no header.
    outside: BTreeMap<usize, u32>,
    /// The stack of values.
    values: Vec<u128>,
    /// Written actions.
    set: Vec<Action>,
    /// They are being executed.
    executes: bool,
    sent: Vec<(u32, Vec<u8>)>,
    /// Calls of tables, by table and rule: (the action that it precedes, the table called).
    calls: &'a CallsByRule,
}

impl Interpreter<'_> {
    fn key(&mut self) -> FlowKey {
        let mut key = FlowKey::zero();
        self.headers = parse(self.frame.bytes(), self.in_port, &mut key);
        self.stale = false;
        for (&w, &value) in &self.outside {
            key.set_word(w, value);
        }
        note_type(&self.frame, &mut key);
        key
    }

    fn send(&mut self, port: u32) {
        if self.frame.is_bare() {
            return;
        }
        self.sent.push((port, self.frame.bytes().to_vec()));
    }

    fn run(mut self) -> Vec<(u32, Vec<u8>)> {
        if self.tables(0, None, 0) == Fate::On {
            self.execute_set();
        }
        self.sent
    }

    fn execute_set(&mut self) -> Fate {
        let set = in_order(&std::mem::take(&mut self.set));
        // Actions that are written meanwhile are lost.
        let before = std::mem::replace(&mut self.executes, true);
        let fate = self.list_and_tables(&set, 0, 0);
        self.executes = before;
        fate
    }

    /// Takes the packet from a table on, until no table leads on.
    fn tables(&mut self, from: u8, in_port: Option<PortNo>, depth: usize) -> Fate {
        let (mut at, mut in_port) = (Some(from), in_port);
        while let Some(number) = at.take() {
            let mut key = self.key();
            if self.headers.malformed.is_some() {
                return Fate::Dropped;
            }
            if self.pipeline.route_tables().any(|(n, _)| n == number) {
                for action in routes::actions(&key, number) {
                    match action {
                        Action::Goto(next) => at = Some(next),
                        action => match self.act(&action) {
                            Fate::On => {}
                            Fate::ListEnds => return Fate::On,
                            other => return other,
                        },
                    }
                }
                continue;
            }
            let Some(table) = self.pipeline.table(number) else { break };
            if let Some(port) = in_port.take() {
                key.set(Field::InPort, port.0.into());
            }
            let Some(rule) = winner(&table, &key) else {
                match table.miss {
                    Miss::Drop => {}
                    Miss::Controller => self.send(CONTROLLER),
                    Miss::Continue => at = Some(number + 1),
                }
                continue;
            };
            let (_, entry) = table.rules().find(|(id, _)| *id == rule).unwrap();
            let mut actions = entry.rule.actions.clone();
            if let Some((before, target)) = self.calls.get(&(number, rule.0)) {
                actions.insert((*before).min(actions.len()), Action::call(*target));
            }
            let (fate, next) = self.list(&actions, number, depth);
            match fate {
                Fate::On => at = next,
                Fate::ListEnds => return Fate::On,
                other => return other,
            }
        }
        Fate::On
    }

    /// Takes the packet through actions, and the table that they lead to.
    fn list_and_tables(&mut self, actions: &[Action], table: u8, depth: usize) -> Fate {
        match self.list(actions, table, depth) {
            (Fate::On, Some(next)) => self.tables(next, None, depth),
            (Fate::On | Fate::ListEnds, _) => Fate::On,
            (other, _) => other,
        }
    }

    /// Takes the packet through the actions of a table's rule. Returns the table that comes next.
    fn list(&mut self, actions: &[Action], table: u8, depth: usize) -> (Fate, Option<u8>) {
        for (place, action) in actions.iter().enumerate() {
            let fate = match action {
                Action::Goto(next) => return (Fate::On, Some(*next)),
                Action::Resubmit { in_port, table: to, .. } => {
                    let depth = depth + usize::from(place + 1 < actions.len());
                    match depth > 64 {
                        true => Fate::Dropped,
                        false => self.tables(to.unwrap_or(table), *in_port, depth),
                    }
                }
                Action::Clone(actions) => self.copied(|copy| {
                    let (values, set) = (copy.values.clone(), copy.set.clone());
                    let mut fate = copy.list_and_tables(actions, table, 0);
                    if fate == Fate::On && !copy.executes {
                        fate = copy.execute_set();
                    }
                    (copy.values, copy.set) = (values, set);
                    if fate == Fate::Exited { fate } else { Fate::On }
                }),
                Action::Group(group) => self.group(*group),
                Action::Exit => Fate::Exited,
                Action::WriteActions(_) | Action::ClearActions if self.executes => Fate::On,
                Action::WriteActions(actions) => {
                    self.set.extend(actions.iter().cloned());
                    Fate::On
                }
                Action::ClearActions => {
                    self.set.clear();
                    Fate::On
                }
                other => self.act(other),
            };
            if fate != Fate::On {
                return (fate, None);
            }
        }
        (Fate::On, None)
    }

    fn group(&mut self, id: u32) -> Fate {
        let groups = self.pipeline.ruleset().groups();
        let Some(group) = groups.get(id) else { return Fate::On };
        let key = self.key();
        if self.headers.malformed.is_some() {
            return Fate::Dropped;
        }
        let buckets = &group.group.buckets;
        let lives = |at: &usize| buckets[*at].watch_port.is_none_or(|port| port.0 <= 4);
        let chosen: Vec<usize> = match group.group.kind {
            GroupKind::All => (0..buckets.len()).collect(),
            GroupKind::Indirect => vec![0],
            GroupKind::FastFailover => (0..buckets.len()).find(lives).into_iter().collect(),
            // The hash is the switch's own.
            GroupKind::Select => groups.chosen(&group.group, &key, &|port| port.0 <= 4),
        };
        for at in chosen {
            let actions = in_order(&group.group.buckets[at].actions);
            self.copied(|copy| copy.list_and_tables(&actions, 0, 0));
        }
        Fate::On
    }

    /// Does something with a copy of the packet.
    fn copied(&mut self, with: impl FnOnce(&mut Self) -> Fate) -> Fate {
        self.key();
        if self.headers.malformed.is_some() {
            return Fate::Dropped;
        }
        let mut frame = Frame::default();
        frame.copy_from(&self.frame);
        let (headers, outside, in_port) = (self.headers, self.outside.clone(), self.in_port);
        let fate = with(self);
        (self.frame, self.headers, self.outside) = (frame, headers, outside);
        (self.in_port, self.stale) = (in_port, false);
        fate
    }

    /// Applies an action that is no control flow.
    fn act(&mut self, action: &Action) -> Fate {
        let ethernet = |f: Field| matches!(f, Field::EthDst | Field::EthSrc | Field::Reg0 | Field::Reg1);
        let changes_type = matches!(action, Action::EncapsulateHeader(_) | Action::Decapsulate(_));
        let misplaces =
            changes_type || matches!(action, Action::PopVlan | Action::PushMpls(_) | Action::PopMpls(_));
        let looks = match *action {
            Action::SetField { field, .. } => !ethernet(field),
            Action::Move { .. } | Action::DecTtl(_) | Action::DecMplsTtl | Action::DecNshTtl => true,
            Action::Push(_) | Action::OutputField { .. } => true,
            Action::Pop(to) => !ethernet(to.field()),
            _ => misplaces,
        };
        if self.stale && looks {
            self.key();
            if self.headers.malformed.is_some() {
                return Fate::Dropped;
            }
        }
        self.stale |= misplaces;
        match *action {
            Action::Output(PortNo(port)) => self.output(port),
            Action::OutputField { port, .. } => {
                // The numbers that OpenFlow 1.0 reserves (5.2.1).
                match port.get(&self.key()) as u32 {
                    0xfff8 => self.send(self.in_port),
                    0xfffb | 0xfffc => self.flood(),
                    0xfffd => self.send(CONTROLLER),
                    port => self.output(port),
                }
            }
            Action::InPort => self.send(self.in_port),
            Action::Controller(_) => self.send(CONTROLLER),
            Action::Flood => self.flood(),
            Action::PushVlan(tpid) => _ = edit::push_vlan(&mut self.frame, &mut self.headers, tpid),
            Action::PopVlan => _ = edit::pop_vlan(&mut self.frame, &mut self.headers),
            Action::PushMpls(t) => _ = edit::push_mpls(&mut self.frame, &mut self.headers, t),
            Action::PopMpls(t) => _ = edit::pop_mpls(&mut self.frame, &mut self.headers, t),
            Action::SetField { field, value, mask, protocol, .. } => {
                let of_packet = self.behind_tags().get(Field::NwProto);
                if protocol.is_none_or(|protocol| of_packet == protocol.into()) {
                    self.set(field, value, mask);
                }
            }
            Action::Move { from, to } => {
                let value = from.get(&self.behind_tags());
                self.set(to.field(), to.place(value), to.mask());
            }
            Action::Push(from) => {
                let value = from.get(&self.key());
                self.values.push(value);
            }
            Action::Pop(to) => {
                if let Some(value) = self.values.pop() {
                    self.set(to.field(), to.place(value & to.ones()), to.mask());
                }
            }
            _ => return self.act_or_end(action),
        }
        Fate::On
    }

    /// Applies an action that may end the packet's way: headers that change its type, and decrements.
    fn act_or_end(&mut self, action: &Action) -> Fate {
        match *action {
            Action::EncapsulateHeader(ref header) => {
                if !edit::encapsulate(&mut self.frame, &mut self.headers, header) {
                    return Fate::Dropped;
                }
            }
            Action::Decapsulate(to) => {
                if !edit::decapsulate(&mut self.frame, &mut self.headers, to) {
                    return Fate::Dropped;
                }
            }
            Action::DecTtl(_) | Action::DecMplsTtl | Action::DecNshTtl => {
                let ttl = match action {
                    Action::DecTtl(_) => edit::dec_ttl(&mut self.frame, &self.headers),
                    Action::DecMplsTtl => edit::dec_mpls_ttl(&mut self.frame, &self.headers),
                    _ => edit::dec_nsh_ttl(&mut self.frame, &self.headers),
                };
                if ttl == edit::Ttl::Expired {
                    self.send(CONTROLLER);
                    return Fate::ListEnds;
                }
            }
            ref other => panic!("{other:?} is not interpreted"),
        }
        Fate::On
    }

    /// The key of the packet: headers are known behind the tags that the rule has pushed, where a parser does not look.
    fn behind_tags(&self) -> FlowKey {
        let pushed = 4 * usize::from(self.headers.vlan_tags.saturating_sub(2));
        let mut now = FlowKey::zero();
        parse(&self.frame.bytes()[pushed..], self.in_port, &mut now);
        self.outside.iter().for_each(|(&w, &value)| now.set_word(w, value));
        note_type(&self.frame, &mut now);
        now
    }

    fn flood(&mut self) {
        let from = self.in_port;
        (1..=4).filter(|&p| p != from).for_each(|p| self.send(p));
    }

    fn output(&mut self, port: u32) {
        if port != self.in_port && (1..=4).contains(&port) {
            self.send(port);
        }
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        let word = match field {
            Field::Reg0 => word::REG,
            Field::Reg1 => word::REG + 1,
            _ => {
                _ = edit::set_field(&mut self.frame, &mut self.headers, field, value, mask);
                return;
            }
        };
        let before = self.outside.get(&word).copied().unwrap_or(0);
        self.outside.insert(word, before & !(mask as u32) | value as u32);
    }
}

pub(super) fn interpret(pipeline: &Pipeline, in_port: u32, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    interpret_with(pipeline, &BTreeMap::new(), in_port, bytes)
}

pub(super) fn interpret_with(
    pipeline: &Pipeline,
    calls: &CallsByRule,
    in_port: u32,
    bytes: &[u8],
) -> Vec<(u32, Vec<u8>)> {
    let mut frame = Frame::default();
    frame.fill(bytes);
    let (headers, outside, sent) = (Headers::default(), BTreeMap::new(), Vec::new());
    let (values, set, stale, executes) = (Vec::new(), Vec::new(), false, false);
    Interpreter { pipeline, in_port, frame, headers, stale, outside, values, set, executes, sent, calls }
        .run()
}
