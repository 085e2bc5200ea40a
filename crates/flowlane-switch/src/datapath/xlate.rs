//! Translation (xlate) of a key to a path and a megaflow mask.
//!
//! A walk follows a key through the tables in place of a packet. The key is kept as the packet's would be after the actions so
//! far, and the actions are recorded as steps of a path. The bits that a later table looks at are of three kinds:
//!
//! - unchanged: they go into the mask;
//! - *written*: an action has set them to a value that the path fixes, so they do not depend on the
//!   packet and stay out of the mask;
//! - *derived*: an action has computed them from the packet (TTL − 1): the whole original field goes into the mask.
//!
//! Whether a packet has a field at all (so that setting it does anything) depends on its EtherType,
//! protocol and so on: these prerequisites go into the mask.
//!
//! Where the key cannot follow an action (MPLS; a third VLAN tag; a tunnel), the rest of the rule is recorded for the packet as
//! it then is: it is [parsed](Step::Parse) before the next action that reads headers, and nothing more goes into the mask. The
//! next table sees the packet with a new key ([`Step::Recirculate`]).
//!
//! A path ends where rules alone do not decide: before a table behind the caches, or at a recirculation. Calls that are open
//! there are recorded as [`Step::Push`].

mod depend;
mod edit_key;
mod lane_steps;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use flowlane::classify::Hit;
use flowlane::packet::WordSet;
use flowlane::packet::fields::{Field, FieldClass, VLAN_PRESENT, word};
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::packet::parse::ether_type;
use flowlane::rule::Action;
use flowlane::rule::action::{EncapsulateHeader, PortNo, Sample, SetForm};

use super::Pipeline;
use super::apply::Effects;
use super::walk::{AfterStep, Entered, Follow, Outcome, Position, follow, run};
use crate::packet::Shown;
use crate::packet::edit::{self, Ttl};
use crate::packet::recirculate::{entry, in_headers, is_bare, rounds};
use crate::ruleset::{LaneStep, Return, Step, Steps, ToController, misplaces_headers};

/// A path, and the key bits that it depends on.
#[derive(Debug)]
pub struct Translation {
    /// The steps of the path.
    pub steps: Vec<Step>,
    /// The bits of the key that the path depends on.
    pub mask: FlowMask,
}

/// A key that is followed through the tables. It may pause before an offloaded table.
#[derive(Debug)]
pub(super) struct Walk {
    key: TrackedKey,
    position: Position,
}

/// A packet's key after the actions so far, and the bits that the path depends on.
#[derive(Debug)]
struct TrackedKey {
    key: FlowKey,
    mask: FlowMask,
    written: FlowMask,
    derived: Vec<Field>,
    /// The key does not follow the headers any more.
    parse_again: bool,
    /// Nor are the offsets of the headers known.
    stale: bool,
    /// The packet may have been translated since: its headers have other ends than the key.
    translated: bool,
    /// Fields in no header that have been written since, with values that only the packet has.
    moved: FlowMask,
    /// The written bits of tunnels' fields that the steps so far give to the packet, and the key that has their values.
    recorded: Box<(FlowMask, FlowKey)>,
    steps: Vec<Step>,
    /// A caller or an action set follows at the end of the rule.
    is_called: bool,
    /// Whether the TTL has expired cannot be known.
    may_expire: bool,
    /// The TTL has expired in a called table. Whether it does again is part of the path, too.
    has_expired: bool,
    /// Values that actions have pushed.
    stack: Vec<u128>,
    /// Number of times that key bits were looked at.
    asked: u32,
}

/// Returns the path of packets with this key, which depends only on the key and the rules. Looks up offloaded tables for this key
/// alone, without waiting for a batch.
pub fn translate(pipeline: &Pipeline, key: &FlowKey) -> Translation {
    let mut walk = Walk::new(key);
    let Walk { key, position } = &mut walk;
    follow(&mut Xlate { pipeline, key, answer: None, pauses: false }, position);
    walk.end()
}

/// Continues a walk. Returns the table whose answer it then waits for; `None` at its end. `answer` is that of the table that it
/// was waiting for.
pub(super) fn advance(pipeline: &Pipeline, walk: &mut Walk, answer: Option<Option<Hit>>) -> Option<u8> {
    let Walk { key, position } = walk;
    follow(&mut Xlate { pipeline, key, answer, pauses: true }, position);
    position.table
}

/// A key, and the tables that it is followed through.
struct Xlate<'a> {
    pipeline: &'a Pipeline,
    key: &'a mut TrackedKey,
    /// The answer of the table before which the walk is, if known.
    answer: Option<Option<Hit>>,
    /// Pause before offloaded tables.
    pauses: bool,
}

impl Follow for Xlate<'_> {
    fn enter(&mut self, number: u8, shown: Shown, calls: &[Return]) -> Entered {
        let Self { pipeline, key, .. } = self;
        if !shown.comes(|field| key.look(field, u128::MAX)) {
            return Entered::Nothing;
        }
        if pipeline.is_post_cache(number) {
            // Routes and stateful stages look packets up by their headers as parsed.
            let stale = match pipeline.routes(number).is_some() {
                true => key.destination_written(),
                false => key.headers_written(),
            };
            key.end(number, stale || key.translated, calls);
            return Entered::End;
        }
        let is_bare = is_bare(&key.key);
        if self.pauses && self.answer.is_none() && pipeline.deferred(number).is_some() && !is_bare {
            return Entered::Pause;
        }
        let Some((table, _)) = pipeline.entered(number) else {
            return Entered::Nothing;
        };
        let hit = match (self.answer.take(), pipeline.deferred(number)) {
            (Some(hit), Some(deferred)) => {
                key.depend_on_shown(shown, deferred.looks_at().clone());
                hit
            }
            (_, device) => {
                let mut looked_at = key.known(shown);
                let own = shown.show(&mut key.key);
                let hit = table.lookup_wildcards(device, &key.key, &mut looked_at);
                own.restore(&mut key.key);
                key.depend_on_shown(shown, looked_at);
                hit
            }
        };
        let rule = hit.map(|hit| hit.rule);
        key.steps.push(Step::Matched { table: number, rule, original: shown.original });
        Entered::Steps(table.steps(rule).clone())
    }

    fn run<'a>(
        &mut self,
        steps: &'a [Step],
        from: usize,
        calls: &[Return],
    ) -> Result<Outcome<'a>, Infallible> {
        self.key.is_called = !calls.is_empty() || self.key.has_expired;
        run(steps, from, self.key, &mut Record(Some(self.pipeline)))
    }

    fn pass(&mut self, table: u8, _: &[(u8, u32, u32)], _: bool, calls: &[Return]) -> bool {
        let again = self.key.parse_again;
        if again {
            self.key.end(table, true, calls);
        }
        !again
    }

    fn lane_step(
        &mut self,
        step: &LaneStep,
        again: bool,
        here: &Return,
        position: &mut Position,
    ) -> AfterStep {
        if self.key.lane_step(step) {
            // The rule's next steps take it that the packet has been parsed.
            if again && std::mem::take(&mut self.key.stale) {
                self.key.steps.push(Step::Parse);
            }
            return AfterStep::Next;
        }
        match step {
            // Nothing follows here: the packet goes on in the table of the action.
            LaneStep::Track { track, .. } if self.key.may_end_with(track, here, &position.calls) => {
                self.key.record_stack();
                self.key.track(track);
            }
            _ => self.key.leave(here, &position.calls, self.key.is_outdated()),
        }
        AfterStep::End
    }

    fn last_copy(&mut self, step: &LaneStep, again: bool, _: &mut Position) -> Option<Steps> {
        match step {
            LaneStep::Copy(steps) if !again => Some(steps.clone()),
            _ => None,
        }
    }

    fn may_show(&mut self, here: &dyn Fn() -> Return, calls: &[Return]) -> bool {
        let follows = !self.key.parse_again;
        if !follows {
            // A packet that is parsed again has its own port in its key. Nothing else parses it: the rule may have done no more than to
            // meter it, after what others did.
            self.key.leave(&here(), calls, true);
        }
        follows
    }

    fn expired(&mut self, here: &Return, calls: &[Return]) -> bool {
        let is_known = !std::mem::take(&mut self.key.may_expire);
        if !is_known {
            self.key.leave(here, calls, false);
        }
        is_known
    }

    fn stop(&mut self) {}

    fn rounds(&self) -> u8 {
        rounds(&self.key.key)
    }

    fn set_rounds(&mut self, rounds: u8) {
        self.key.set_rounds(rounds);
    }

    fn refuse_call(&mut self, _: u8) {
        self.key.lane(LaneStep::Refuse);
    }
}

/// A step's action that sets a field: in one form, so that equal paths are one.
fn set_field(field: Field, value: u128, mask: u128) -> Action {
    Action::SetField { field, value, mask, form: SetForm::SetField, protocol: None }
}

/// Records effects as steps of the path; with the pipeline, where meters may be among them.
struct Record<'a>(Option<&'a Pipeline>);

impl Effects<TrackedKey> for Record<'_> {
    type Error = Infallible;

    fn output(&mut self, key: &mut TrackedKey, to: PortNo) -> Result<(), Infallible> {
        key.record_output(Action::Output(to))
    }

    fn in_port(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record_output(Action::InPort)
    }

    fn enqueue(&mut self, key: &mut TrackedKey, to: PortNo, queue: u32) -> Result<(), Infallible> {
        key.record_output(Action::Enqueue { port: to, queue })
    }

    fn output_truncated(&mut self, key: &mut TrackedKey, to: PortNo, max_len: u32) -> Result<(), Infallible> {
        key.record_output(Action::OutputTruncated { port: to, max_len })
    }

    fn flood(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record_output(Action::Flood)
    }

    fn all(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record_output(Action::All)
    }

    fn normal(&mut self, key: &mut TrackedKey) -> Result<(), Infallible> {
        key.record_output(Action::Normal)
    }

    fn controller(&mut self, key: &mut TrackedKey, to: &Arc<ToController>) -> Result<(), Infallible> {
        let carry = key.carried();
        key.steps.push(Step::Controller { to: to.clone(), carry });
        Ok(())
    }

    fn sample(&mut self, key: &mut TrackedKey, sample: &Sample) -> Result<(), Infallible> {
        key.record(Action::Sample(Box::new(sample.clone())))
    }

    fn meter(&mut self, key: &mut TrackedKey, number: u32) -> bool {
        key.push(Action::Meter(number));
        // Which packets exceed a rate is not known before they come: their DSCP is read again behind it.
        key.parse_again |= self.0.is_some_and(|pipeline| pipeline.may_remark(number));
        true
    }

    fn count(&mut self, key: &mut TrackedKey, number: u32) {
        key.push(Action::Count(number));
    }

    fn encapsulate(&mut self, key: &mut TrackedKey, tunnel: u32) -> bool {
        key.record_tunnel();
        key.parse_again = true;
        key.push(Action::Encapsulate(tunnel));
        // The step itself forgets the packet's.
        key.hide_connection();
        key.write_outside(Field::TunMetadataPresent, 0, Field::TunMetadataPresent.info().ones());
        true
    }

    fn encapsulate_header(&mut self, key: &mut TrackedKey, header: &EncapsulateHeader) -> bool {
        key.parse_again = true;
        key.push(Action::EncapsulateHeader(header.clone()));
        true
    }

    fn decapsulate(&mut self, key: &mut TrackedKey, to: Option<(u16, u16)>) -> bool {
        key.parse_again = true;
        key.push(Action::Decapsulate(to));
        true
    }

    fn reparse(&mut self, key: &mut TrackedKey) -> bool {
        // The rule's compiler could not know whether the headers are still in place.
        if std::mem::take(&mut key.stale) {
            key.steps.push(Step::Parse);
        }
        true
    }
}

impl Walk {
    /// Makes the walk of packets with this key, before their first table.
    pub(super) fn new(key: &FlowKey) -> Self {
        Self { key: TrackedKey::new(key), position: Position::at(entry(key)) }
    }

    /// Returns the key to look up in the table that the walk is before.
    pub(super) fn key(&self) -> Cow<'_, FlowKey> {
        let (key, shown) = (&self.key.key, self.position.shown);
        if shown.is_nothing() {
            return Cow::Borrowed(key);
        }
        let mut key = key.clone();
        shown.show(&mut key);
        Cow::Owned(key)
    }

    /// Returns whether the first table's answer alone has decided the path so far: every packet with that answer takes it.
    pub(super) fn is_decided_by_one_answer(&self) -> bool {
        // Every dependence on the key is counted by `depend_on`.
        self.key.asked == 1
    }

    /// Returns the path and its mask.
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
            translated: false,
            moved: FlowMask::zero(),
            recorded: Box::new((FlowMask::zero(), FlowKey::zero())),
            steps: Vec::new(),
            is_called: false,
            may_expire: false,
            has_expired: false,
            stack: Vec::new(),
            asked: 0,
        }
    }

    /// Ends the path: at a table behind the caches, or at any table with a key that is parsed `again`.
    fn end(&mut self, table: u8, again: bool, calls: &[Return]) {
        self.steps.extend(calls.iter().cloned().map(Step::Push));
        self.record_stack();
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

    /// Writes a field that is in no header.
    fn write_outside(&mut self, field: Field, value: u128, mask: u128) {
        self.key.set_masked(field, value, mask);
        self.written.set_masked(field, mask, mask);
    }

    /// Records an action by which the packet may leave through a port that is a tunnel.
    fn record_output(&mut self, action: Action) -> Result<(), Infallible> {
        self.record_tunnel();
        self.record(action)
    }

    /// Records what rules have written of the fields that a packet takes into a tunnel, unless the packet has them from an output
    /// before.
    fn record_tunnel(&mut self) {
        let words = WordSet::of_class(FieldClass::Tunnel);
        let is_new = |w: usize| {
            let bits = self.written.word(w);
            bits & !self.recorded.0.word(w) != 0 || (self.key.word(w) ^ self.recorded.1.word(w)) & bits != 0
        };
        if !self.written.present().intersection(words).iter().any(is_new) {
            return;
        }
        let fields =
            Field::all().iter().filter(|info| info.class == FieldClass::Tunnel).map(|info| info.field);
        for field in fields.chain([Field::TunMetadataPresent]) {
            let bits = self.written.get(field);
            if bits != 0 {
                self.steps.push(Step::Do(set_field(field, self.key.get(field) & bits, bits)));
            }
        }
        for w in words.iter() {
            self.recorded.0.or_word(w, self.written.word(w));
        }
        self.recorded.1 = self.key.clone();
    }

    fn push(&mut self, action: Action) {
        if self.parse_again {
            self.stale |= misplaces_headers(&action);
        }
        self.steps.push(Step::Do(action));
    }

    fn set_followed(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & edit::bits(field);
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
            self.push(set_field(field, value, mask));
        }
        if field == Field::InPort {
            // Outputs ask the packet itself where it came in.
            self.push(set_field(field, value, mask));
        }
        let kind = matches!(field, Field::IcmpType | Field::IcmpCode);
        let discovery = kind && edit::is_neighbour_discovery(|asked, bits| self.look(asked, bits));
        let option = self.key.get(Field::NdOptionsType);
        self.key.set_masked(field, value, mask);
        self.written.set_masked(field, mask, mask);
        // Another message type has other fields, and another option has another address.
        self.parse_again |= kind
            && discovery != edit::is_neighbour_discovery(|asked, bits| self.look(asked, bits))
            || field == Field::NdOptionsType && option != self.key.get(field);
        if matches!(field, Field::VlanTci | Field::VlanVid | Field::VlanPcp) {
            self.key.or_word(word::VLAN_ETH_TYPE, u32::from(VLAN_PRESENT) << 16);
        }
    }

    fn decrement(&mut self, field: Field, action: Action) -> Ttl {
        if self.parse_again && self.is_called {
            self.may_expire = true;
            return Ttl::Expired;
        }
        if self.parse_again {
            self.push(action);
            return Ttl::Decremented;
        }
        if !self.has(field) {
            return Ttl::None;
        }
        if self.is_called {
            // The packet goes on behind the call even if its TTL expires here: whether it does is part of the path.
            self.depend_on_field(field, u128::MAX);
            if self.key.get(field) <= 1 {
                self.lane(LaneStep::Expire);
                self.has_expired = true;
                return Ttl::Expired;
            }
        }
        self.push(action);
        // A packet whose TTL expires ends the path here, whatever the key is.
        self.key.set(field, self.key.get(field).wrapping_sub(1) & field.info().ones());
        if self.written.get(field) != field.info().ones() {
            self.derived.push(field);
        }
        Ttl::Decremented
    }

    /// Returns whether an action has set the packet's destination IP address.
    fn destination_written(&self) -> bool {
        let mut words = [word::IPV4_DST].into_iter().chain(word::IPV6_DST..word::IPV6_DST + 4);
        words.any(|w| self.written.word(w) != 0)
    }

    /// Returns whether an action has set header fields; a TTL decrement does not count.
    fn headers_written(&self) -> bool {
        let headers = self.written.present().intersection(WordSet::of_class(FieldClass::Header));
        headers.iter().any(|w| self.written.word(w) != 0)
    }

    fn tagged(&self) -> bool {
        self.key.get(Field::VlanTci) & u128::from(VLAN_PRESENT) != 0
    }

    /// Makes the path depend on both tags, which count as written from now on.
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
        // The third tag of a frame is not parsed, nor are the first two if they are truncated. The header offsets stay known.
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
        // A third tag may follow two, and the key does not have the TPID of the second.
        self.parse_again = self.key.get(Field::VlanTci1) != 0;
        self.stale = self.parse_again;
        self.key.set(Field::VlanTci, 0);
        self.key.set(Field::VlanTpid, 0);
    }
}
