//! Translation: from key to path and megaflow mask.
//!
//! A walk over the tables with a key in place of a packet. The key is kept as the packet would have it after the operations so far;
//! the operations are recorded as the steps of a path. The bits that a later table looks at fall into three kinds:
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
//! Where the key cannot follow an operation (MPLS; a third VLAN tag; a tunnel), the rest of the rule is recorded for the packet as
//! it is then: it is [parsed](Step::Parse) before the next operation that reads headers, and nothing more goes into the mask. The
//! next table sees the packet with a new key ([`Step::Recirculate`]).
//!
//! A path ends where the answer is not the rules' to give: before a table behind the caches, or at a recirculation. Calls that are
//! open there go along as [`Step::Push`].

use std::convert::Infallible;

use flowlane::classify::Hit;
use flowlane::packet::FieldRef;
use flowlane::packet::WordSet;
use flowlane::packet::fields::{Field, FieldClass, VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::parse::ether_type;
use flowlane::rule::Action;
use flowlane::rule::action::PortNo;

use super::Pipeline;
use super::apply::{Effects, PacketEdit};
use super::walk::{Entered, Follow, Outcome, Position, follow, run};
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::in_headers;
use crate::ruleset::{Return, Step, misplaces_headers};

/// A path and what it depends on.
#[derive(Debug)]
pub struct Translation {
    /// The steps of the path.
    pub steps: Vec<Step>,
    /// The bits of the key because of which.
    pub mask: FlowMask,
}

/// A key that is followed through the tables. It may pause before a table that answers later.
#[derive(Debug)]
pub(super) struct Walk {
    key: TrackedKey,
    position: Position,
}

/// A packet's key after the operations so far, and what that depends on.
#[derive(Debug)]
struct TrackedKey {
    key: FlowKey,
    mask: FlowMask,
    written: FlowMask,
    derived: Vec<Field>,
    /// The key does not follow the headers any more.
    parse_again: bool,
    /// Nor is it known where they are.
    stale: bool,
    /// Fields that are in no header, written since with values that only the packet knows.
    moved: FlowMask,
    steps: Vec<Step>,
    /// How often the key was looked at.
    asked: u32,
}

/// The table that packets with this key enter at: a recirculated packet's key says where to go on.
#[inline]
pub(super) fn entry(key: &FlowKey) -> u8 {
    key.get(Field::RecircId).saturating_sub(1) as u8
}

/// The path of packets with this key. Depends on nothing but the key and the rules. Waits for no table: those that answer later
/// are asked for this packet by itself.
pub fn translate(pipeline: &Pipeline, key: &FlowKey) -> Translation {
    let mut walk = Walk::new(key);
    let Walk { key, position } = &mut walk;
    follow(&mut Xlate { pipeline, key, answer: None, pauses: false }, position);
    walk.end()
}

/// Takes a walk as far as it goes. Returns the table before which it waits for an answer; none at its end. `answer` is that of the
/// table before which it stood.
pub(super) fn advance(pipeline: &Pipeline, walk: &mut Walk, answer: Option<Option<Hit>>) -> Option<u8> {
    let Walk { key, position } = walk;
    follow(&mut Xlate { pipeline, key, answer, pauses: true }, position);
    position.table
}

/// A key with the tables that it goes through.
struct Xlate<'a> {
    pipeline: &'a Pipeline,
    key: &'a mut TrackedKey,
    /// The answer of the table before which it stands, where that is known.
    answer: Option<Option<Hit>>,
    /// It pauses before tables that answer later.
    pauses: bool,
}

impl Follow for Xlate<'_> {
    fn enter(&mut self, number: u8, calls: &[Return]) -> Entered {
        let Self { pipeline, key, .. } = self;
        if pipeline.is_post_cache(number) {
            // Routes and stateful stages look packets up by the headers as they were parsed.
            let stale = match pipeline.routes(number).is_some() {
                true => key.destination_written(),
                false => key.headers_written(),
            };
            key.end(number, stale, calls);
            return Entered::End;
        }
        if self.pauses && self.answer.is_none() && pipeline.deferred(number).is_some() {
            return Entered::Pause;
        }
        let (Some(view), Some((table, _))) = (pipeline.table(number), pipeline.entered(number)) else {
            return Entered::Nothing;
        };
        let hit = match (self.answer.take(), view.deferred()) {
            (Some(hit), Some(deferred)) => {
                key.depend_on(deferred.looks_at());
                hit
            }
            _ => {
                let mut looked_at = FlowMask::zero();
                let hit = view.classifier().lookup_wildcards(&key.key, &mut looked_at);
                key.depend_on(&looked_at);
                hit
            }
        };
        let rule = hit.map(|hit| hit.rule);
        key.steps.push(Step::Matched { table: number, rule });
        Entered::Steps(table.steps(rule).clone())
    }

    fn run<'a>(&mut self, steps: &'a [Step], from: usize) -> Result<Outcome<'a>, Infallible> {
        run(steps, from, self.key, &mut Record)
    }

    fn pass(&mut self, table: u8, _: &[(u8, u32, u32)], _: bool, calls: &[Return]) -> bool {
        let again = self.key.parse_again;
        if again {
            self.key.end(table, true, calls);
        }
        !again
    }

    fn stop(&mut self, _: bool) {}

    fn refuse_call(&mut self, table: u8, calls: &[Return]) {
        // The packet opens the same calls, is refused the next one, and counted.
        self.key.steps.extend(calls.iter().cloned().map(Step::Push));
        self.key.steps.push(Step::Call { table, again: false });
    }
}

/// Records effects as steps of the path.
struct Record;

impl Effects<TrackedKey> for Record {
    type Error = Infallible;

    fn output(&mut self, key: &mut TrackedKey, to: PortNo) -> Result<(), Infallible> {
        key.record(Action::Output(to))
    }

    fn in_port(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record(Action::InPort)
    }

    fn flood(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record(Action::Flood)
    }

    fn normal(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record(Action::Normal)
    }

    fn controller(&mut self, key: &mut TrackedKey, max_len: u16) -> Result<(), Infallible> {
        key.record(Action::Controller { max_len })
    }

    fn sample(&mut self, key: &mut TrackedKey, probability: u16) -> Result<(), Infallible> {
        key.record(Action::Sample { probability })
    }

    fn meter(&mut self, key: &mut TrackedKey, number: u32) -> bool {
        key.push(Action::Meter(number));
        true
    }

    fn count(&mut self, key: &mut TrackedKey, number: u32) {
        key.push(Action::Count(number));
    }

    fn encapsulate(&mut self, key: &mut TrackedKey, tunnel: u32) -> bool {
        key.parse_again = true;
        key.push(Action::Encapsulate(tunnel));
        true
    }

    fn reparse(&mut self, key: &mut TrackedKey) -> bool {
        // Whoever compiled the rule could not know whether its headers are still in place.
        if std::mem::take(&mut key.stale) {
            key.steps.push(Step::Parse);
        }
        true
    }
}

impl Walk {
    /// The walk of packets with this key, before their first table.
    pub(super) fn new(key: &FlowKey) -> Self {
        Self { key: TrackedKey::new(key), position: Position::at(entry(key)) }
    }

    /// The key that the table before which it stands is looked up with.
    pub(super) fn key(&self) -> &FlowKey {
        &self.key.key
    }

    /// Whether the first table's answer has decided everything so far: every packet with the same answer there takes the
    /// same path.
    pub(super) fn is_decided_by_one_answer(&self) -> bool {
        // The key decides nothing that is not noted by `depend_on`.
        self.key.asked == 1
    }

    /// The path and its mask.
    pub(super) fn end(self) -> Translation {
        Translation { steps: self.key.steps, mask: self.key.mask }
    }
}

impl TrackedKey {
    fn new(key: &FlowKey) -> Self {
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
            asked: 0,
        }
    }

    /// The path leads to a table behind the caches, or to any with a key that is parsed `again`.
    fn end(&mut self, table: u8, again: bool, calls: &[Return]) {
        self.steps.extend(calls.iter().cloned().map(Step::Push));
        let carry = self.carried();
        self.steps.push(match again {
            true => Step::Recirculate { table, carry },
            false => Step::Enter { table, carry },
        });
    }

    fn record(&mut self, action: Action) -> Result<(), Infallible> {
        self.push(action);
        Ok(())
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

    /// Writes a field that is in no header.
    fn write_outside(&mut self, field: Field, value: u128, mask: u128) {
        self.key.set_masked(field, value, mask);
        self.written.set_masked(field, mask, mask);
    }

    fn push(&mut self, action: Action) {
        if self.parse_again {
            self.stale |= misplaces_headers(&action);
        }
        self.steps.push(Step::Do(action));
    }

    fn set_followed(&mut self, field: Field, value: u128, mask: u128) {
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

    fn decrement(&mut self, field: Field, action: Action) -> Ttl {
        if self.parse_again {
            self.push(action);
            return Ttl::Decremented;
        }
        if !self.has(field) {
            return Ttl::None;
        }
        self.push(action);
        // Where it would expire the path ends there, whatever the key says.
        self.key.set(field, self.key.get(field).wrapping_sub(1));
        if self.written.get(field) != field.info().ones() {
            self.derived.push(field);
        }
        Ttl::Decremented
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

    fn push_vlan_followed(&mut self, tpid: u16) {
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

    fn pop_vlan_followed(&mut self) {
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

impl PacketEdit for TrackedKey {
    fn set_field(&mut self, field: Field, value: u128, mask: u128) {
        if !self.parse_again {
            return self.set_followed(field, value, mask);
        }
        if !in_headers(field) {
            self.write_outside(field, value, mask);
            if self.moved.get(field) == 0 {
                return;
            }
        }
        self.push(Action::SetField { field, value, mask });
    }

    fn move_field(&mut self, from: FieldRef, to: FieldRef) {
        if !self.parse_again || !in_headers(from.field()) && from.get(&self.moved) == 0 {
            self.depend_on_field(from.field(), from.mask());
            let value = to.place(from.get(&self.key));
            return self.set_field(to.field(), value, to.mask());
        }
        if !in_headers(to.field()) {
            to.set(&mut self.moved, to.ones());
            to.set(&mut self.written, 0);
        }
        self.push(Action::Move { from, to });
    }

    fn push_vlan(&mut self, tpid: u16) {
        match self.parse_again {
            true => self.push(Action::PushVlan(tpid)),
            false => self.push_vlan_followed(tpid),
        }
    }

    fn pop_vlan(&mut self) {
        match self.parse_again {
            true => self.push(Action::PopVlan),
            false => self.pop_vlan_followed(),
        }
    }

    fn push_mpls(&mut self, eth_type: u16) {
        self.parse_again = true;
        self.push(Action::PushMpls(eth_type));
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        if !self.parse_again && !self.has(Field::MplsLabel) {
            return;
        }
        self.parse_again = true;
        self.push(Action::PopMpls(eth_type));
    }

    fn dec_ttl(&mut self) -> Ttl {
        self.decrement(Field::NwTtl, Action::DecTtl)
    }

    fn dec_mpls_ttl(&mut self) -> Ttl {
        self.decrement(Field::MplsTtl, Action::DecMplsTtl)
    }
}
