//! From key to path and mask.
//!
//! The walk keeps the key as the packet would have it after the actions so far. What a later table looks
//! at then falls into three kinds of bits:
//!
//! - as they came: they go into the mask;
//! - *written*: an action has set them to a value that the path fixes, so they do not depend on the
//!   packet and stay out of the mask;
//! - *derived*: an action has changed them by a function of the packet (TTL − 1): the whole original
//!   field goes into the mask.
//!
//! Whether a packet has a field at all (so that setting it does anything) depends on its EtherType,
//! protocol and so on: these prerequisites go into the mask.
//!
//! Where the key cannot follow what an action does to the headers (MPLS; a third VLAN tag; a tunnel), the rest of the rule
//! is done to the packet as it is then, whatever that is: it is [parsed](Step::Parse) before the next action that looks at
//! headers, and nothing more goes into the mask. The next table sees it with a new key ([`Step::Recirculate`]).

use flowlane::classify::Hit;
use flowlane::packet::WordSet;
use flowlane::packet::fields::{Field, FieldClass, VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::parse::ether_type;
use flowlane::rule::Action;

use super::Pipeline;
use crate::packet::edit;
use crate::packet::recirculate::in_headers;
use crate::ruleset::{Miss, Step, looks_at_headers, misplaces_headers};

/// A path and what it depends on.
#[derive(Debug)]
pub struct Translation {
    /// What to do.
    pub steps: Vec<Step>,
    /// The bits of the key because of which.
    pub mask: FlowMask,
}

/// A packet on its way through the tables. It may stand still before a table that answers later.
#[derive(Debug)]
pub struct Walk {
    /// The packet's key after the actions so far.
    key: FlowKey,
    mask: FlowMask,
    written: FlowMask,
    derived: Vec<Field>,
    /// The key does not follow the headers any more.
    parse_again: bool,
    /// Nor is it known where they are.
    stale: bool,
    /// Fields that are in no header, written since with what only the packet knows.
    moved: FlowMask,
    steps: Vec<Step>,
    /// The table that comes next.
    at: Option<u8>,
    /// How often the key was asked for something.
    asked: u32,
}

impl Pipeline {
    /// The table that packets with this key enter at: one that is back from recirculation says where to go on.
    #[inline]
    pub fn entry(key: &FlowKey) -> u8 {
        key.get(Field::RecircId).saturating_sub(1) as u8
    }

    /// The path of packets with this key. Depends on nothing but the key and the rules. Waits for no table: those that
    /// answer later are asked for this packet by itself.
    pub fn translate(&self, key: &FlowKey) -> Translation {
        let mut walk = Walk::new(key);
        while let Some(table) = walk.at {
            self.step(table, &mut walk, None);
        }
        walk.end()
    }

    /// Takes a walk as far as it goes: says before which table it waits for an answer, or that it has come to its end.
    /// `answer` is that of the table before which it stood.
    pub fn advance(&self, walk: &mut Walk, mut answer: Option<Option<Hit>>) -> Option<u8> {
        while let Some(table) = walk.at {
            if self.devices.contains(table) && answer.is_none() {
                return Some(table);
            }
            self.step(table, walk, answer.take());
        }
        None
    }

    /// One table, with its answer where that is known.
    fn step(&self, table: u8, walk: &mut Walk, answer: Option<Option<Hit>>) {
        walk.at = self.visit(table, walk, answer);
        if let (Some(next), true) = (walk.at, walk.parse_again) {
            let carry = walk.carried();
            walk.steps.push(Step::Recirculate { table: next, carry });
            walk.at = None;
        }
    }

    /// What a table does; says which comes next.
    fn visit(&self, number: u8, walk: &mut Walk, answer: Option<Option<Hit>>) -> Option<u8> {
        if self.is_post_cache(number) {
            // Stages look packets up by the headers as they were parsed; routes by the destination only.
            let stale = match self.routes(number).is_some() {
                true => walk.destination_written(),
                false => walk.headers_written(),
            };
            if stale {
                walk.parse_again = true;
                return Some(number);
            }
            let carry = walk.carried();
            walk.steps.push(Step::Enter { table: number, carry });
            return None;
        }
        let table = self.table(number)?;
        let hit = match (answer, table.deferred()) {
            (Some(hit), Some(deferred)) => {
                walk.depend_on(deferred.looks_at());
                hit
            }
            _ => {
                let mut looked_at = FlowMask::zero();
                let hit = table.classifier().lookup_wildcards(&walk.key, &mut looked_at);
                walk.depend_on(&looked_at);
                hit
            }
        };
        let rule = hit.map(|h| h.rule);
        walk.steps.push(Step::Matched { table: number, rule });
        let Some(rule) = rule else {
            return match table.miss {
                Miss::Drop => None,
                Miss::Controller => {
                    walk.push(Action::Controller { max_len: u16::MAX });
                    None
                }
                Miss::Continue => self.ruleset.next_table(number),
            };
        };
        let entry =
            self.ruleset.table(number)?.rule(rule).expect("an engine answers with rules that are there");
        for action in &entry.rule.actions {
            if let Action::Goto(next) = *action {
                return Some(next);
            }
            walk.act(action);
        }
        None
    }
}

impl Walk {
    /// The walk of packets with this key, before their first table.
    pub fn new(key: &FlowKey) -> Self {
        let mut mask = FlowMask::zero();
        mask.add_field(Field::RecircId);
        mask.add_field(Field::Malformed);
        Self {
            key: key.clone(),
            mask,
            written: FlowMask::zero(),
            derived: Vec::new(),
            parse_again: false,
            stale: false,
            moved: FlowMask::zero(),
            steps: Vec::new(),
            at: Some(Pipeline::entry(key)),
            asked: 0,
        }
    }

    /// The key that the table before which it stands is to be asked for.
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Whether the first table's answer has decided everything so far: whoever gets the same answer there goes the
    /// same way.
    pub fn is_decided_by_one_answer(&self) -> bool {
        // The key decides nothing that is not noted by `depend_on`.
        self.asked == 1
    }

    /// What has come of it.
    pub fn end(self) -> Translation {
        Translation { steps: self.steps, mask: self.mask }
    }

    /// Notes that the path depends on bits of the key as it is now.
    fn depend_on(&mut self, looked_at: &FlowMask) {
        self.asked += 1;
        for w in looked_at.present_words() {
            self.mask.or_word(w, looked_at.word(w) & !self.written.word(w));
        }
        let derived: Vec<Field> = self.derived.iter().copied().filter(|&f| looked_at.get(f) != 0).collect();
        for field in derived {
            self.mask.add_field(field);
        }
    }

    fn depend_on_field(&mut self, field: Field, bits: u128) {
        let mut looked_at = FlowMask::zero();
        looked_at.set_masked(field, bits, bits);
        self.depend_on(&looked_at);
    }

    fn act(&mut self, action: &Action) {
        if self.parse_again {
            return self.act_unfollowed(action);
        }
        match *action {
            Action::PushVlan(tpid) => return self.push_vlan(tpid),
            Action::PopVlan => return self.pop_vlan(),
            Action::PushMpls(_) | Action::Encapsulate(_) => self.parse_again = true,
            Action::PopMpls(_) => {
                if !self.has(Field::MplsLabel) {
                    return;
                }
                self.parse_again = true;
            }
            Action::SetField { field, value, mask } => return self.set_field(field, value, mask),
            Action::Move { from, to } => {
                self.depend_on_field(from.field(), from.mask());
                let value = to.place(from.get(&self.key));
                return self.set_field(to.field(), value, to.mask());
            }
            Action::DecTtl => return self.decrement(Field::NwTtl, action),
            Action::DecMplsTtl => return self.decrement(Field::MplsTtl, action),
            _ => {}
        }
        self.stale |= misplaces_headers(action);
        self.push(action.clone());
    }

    /// An action behind one that the key could not follow.
    fn act_unfollowed(&mut self, action: &Action) {
        if self.stale && looks_at_headers(action) {
            self.steps.push(Step::Parse);
            self.stale = false;
        }
        match *action {
            Action::SetField { field, value, mask } if !in_headers(field) => {
                self.write_outside(field, value, mask);
                if self.moved.get(field) == 0 {
                    return;
                }
            }
            Action::Move { from, to } if !in_headers(from.field()) && from.get(&self.moved) == 0 => {
                self.depend_on_field(from.field(), from.mask());
                let (value, mask) = (to.place(from.get(&self.key)), to.mask());
                return self.act_unfollowed(&Action::SetField { field: to.field(), value, mask });
            }
            Action::Move { to, .. } if !in_headers(to.field()) => {
                to.set(&mut self.moved, to.ones());
                to.set(&mut self.written, 0);
            }
            _ => {}
        }
        self.stale |= misplaces_headers(action);
        self.push(action.clone());
    }

    /// Writes a field that is in no header.
    fn write_outside(&mut self, field: Field, value: u128, mask: u128) {
        self.key.set_masked(field, value, mask);
        self.written.set_masked(field, mask, mask);
    }

    fn push(&mut self, action: Action) {
        self.steps.push(Step::Do(action));
    }

    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        if in_headers(field) {
            if !self.has(field) {
                return;
            }
            if matches!(field, Field::VlanTci | Field::VlanVid | Field::VlanPcp) {
                self.depend_on_field(Field::VlanTci, VLAN_PRESENT.into());
                if !self.tagged() {
                    self.key.set(Field::VlanTci, 0);
                    self.key.set(Field::VlanTpid, ether_type::VLAN.into());
                    self.key.set(Field::VlanTci1, 0);
                    self.written.add_field(Field::VlanTci);
                    self.written.add_field(Field::VlanTpid);
                    self.written.add_field(Field::VlanTci1);
                }
            }
            self.push(Action::SetField { field, value, mask });
        }
        let kind = matches!(field, Field::IcmpType | Field::IcmpCode);
        let discovery = kind && edit::is_neighbour_discovery(|asked, bits| self.look(asked, bits));
        self.key.set_masked(field, value, mask);
        self.written.set_masked(field, mask, mask);
        // Another type of message has other fields.
        self.parse_again |=
            kind && discovery != edit::is_neighbour_discovery(|asked, bits| self.look(asked, bits));
        if matches!(field, Field::VlanTci | Field::VlanVid | Field::VlanPcp) {
            self.key.or_word(word::VLAN_ETH_TYPE, u32::from(VLAN_PRESENT) << 16);
        }
    }

    fn decrement(&mut self, field: Field, action: &Action) {
        if !self.has(field) {
            return;
        }
        self.push(action.clone());
        // Where it would expire the path ends there, whatever the key says.
        self.key.set(field, self.key.get(field).wrapping_sub(1));
        if self.written.get(field) != field.info().ones() {
            self.derived.push(field);
        }
    }

    /// Whether an action has changed the address that the packet goes to.
    fn destination_written(&self) -> bool {
        let mut words = [word::IPV4_DST].into_iter().chain(word::IPV6_DST..word::IPV6_DST + 4);
        words.any(|w| self.written.word(w) != 0)
    }

    /// Whether an action has changed headers, their TTL apart.
    fn headers_written(&self) -> bool {
        let headers = self.written.present().intersection(WordSet::of_class(FieldClass::Header));
        headers.iter().any(|w| self.written.word(w) != 0)
    }

    fn tagged(&self) -> bool {
        self.key.get(Field::VlanTci) & u128::from(VLAN_PRESENT) != 0
    }

    /// Makes both tags depend on nothing but the path, by depending on them now.
    fn fix_tags(&mut self) {
        for field in [Field::VlanTci, Field::VlanTpid, Field::VlanTci1] {
            self.depend_on_field(field, u128::MAX);
            self.written.add_field(field);
        }
    }

    fn push_vlan(&mut self, tpid: u16) {
        if !self.has(Field::VlanTci) {
            return;
        }
        self.push(Action::PushVlan(tpid));
        self.fix_tags();
        // The third tag of a frame is not parsed; the first two are missed where they are cut off. Where headers are is
        // known all the same.
        let tags = [ether_type::VLAN, ether_type::QINQ].map(u128::from);
        let cut = tags.contains(&self.look(Field::EthType, u128::MAX));
        self.parse_again = cut || self.key.get(Field::VlanTci1) != 0;
        self.key.set(Field::VlanTci1, self.key.get(Field::VlanTci));
        self.key.set(Field::VlanTci, VLAN_PRESENT.into());
        self.key.set(Field::VlanTpid, tpid.into());
    }

    fn pop_vlan(&mut self) {
        self.depend_on_field(Field::VlanTci, VLAN_PRESENT.into());
        if !self.tagged() {
            return;
        }
        self.push(Action::PopVlan);
        self.fix_tags();
        // Behind two tags there may be a third; behind one, the key does not say which TPID the other has.
        self.parse_again = self.key.get(Field::VlanTci1) != 0;
        self.stale = self.parse_again;
        self.key.set(Field::VlanTci, 0);
        self.key.set(Field::VlanTpid, 0);
    }

    /// Whether the packet has `field`; depends on what tells.
    fn has(&mut self, field: Field) -> bool {
        edit::has(field, |asked, bits| self.look(asked, bits))
    }

    /// Bits of the key as it is now; depends on them.
    fn look(&mut self, field: Field, bits: u128) -> u128 {
        // Every mask has this one. A path of a sound packet does no harm to one that is cut off before the addresses of
        // Ethernet: so one answer may decide it. The other way round it must not.
        if field != Field::Malformed || self.key.get(field) != 0 {
            self.depend_on_field(field, bits);
        }
        // An address in an option tells that the option is there, unless an action wrote zeros.
        let option = matches!(field, Field::NdSll | Field::NdTll);
        self.key.get(field) & bits | if option { self.written.get(field) } else { 0 }
    }

    /// What a recirculated packet takes along: the written bits that are in no header.
    fn carried(&self) -> Vec<(u8, u32, u32)> {
        let outside = self.written.present().difference(WordSet::of_class(FieldClass::Header));
        outside
            .iter()
            .map(|w| (w as u8, self.key.word(w) & self.written.word(w), self.written.word(w)))
            .collect()
    }
}
