//! Stateful stages: packet filters, asset detection, address translation, route tables.
//!
//! Stages are behind the caches and have numbers of the same sequence as rule tables: a path ends with
//! [`Step::Enter`](crate::ruleset::Step::Enter), and the packets of a burst that have reached a stage are processed
//! together. All keys are gathered and looked up in one batch in a cuckoo table ([`flowlane::cuckoo`]); then each packet,
//! in order, gets its verdict, and with the verdict a list of actions like that of a rule. So a stage's state (an entry, a
//! host, a session) is part of no megaflow, and invalidates none when it changes.
//!
//! | module | contents | keys |
//! |---|---|---|
//! | [`filter`] | sets of exact keys, configured or learned | fields of the packet, up to 12 words |
//! | [`assets`] | hosts and services that have been seen | VLAN, address, MAC address; port |
//! | [`nat`] | address translation | sessions in the table of connections |
//! | [`route`] | route tables | destination address |
//! | [`ageing`] | the timer wheel that expires idle entries | |
//! | [`table`], [`gathered`] | a cuckoo table of such entries; the keys of a burst | |
//! | [`explanation`] | decisions as text | |
//! | [`shard`], [`rss`] | the worker that owns a packet's state; ports that deliver to it | |
//!
//! **Decide and commit.** A stage computes the verdict of a packet in one function, `decide`, which changes nothing, and
//! applies its consequences (entries, counters, rewritten bytes) in another, `commit`. Live packets go through both;
//! `trace` stops after the first and renders the decision as text. A decision is a small `Copy` value without text.
//!
//! Within a burst a packet sees the changes of those before it: after an entry has been added or removed, later keys are
//! looked up again. So the result is that of one packet at a time, which is how the tests define it.

pub mod ageing;
pub mod assets;
pub mod explanation;
pub mod filter;
pub mod gathered;
pub mod nat;
pub mod route;
pub mod rss;
pub mod shard;
mod shares;
pub mod table;

#[cfg(test)]
mod tests;

pub use assets::{AssetConfig, Assets};
pub use explanation::{Explanation, Rewritten};
pub use filter::{Filter, FilterConfig};
pub use gathered::Lookups;
pub use nat::{Nat, NatConfig};
pub use route::RouteTable;
pub use rss::ShardAwareRss;
pub use shard::{Owner, Owners, Shard};

use flowlane::packet::Headers;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::rule::Action;
use flowlane::rule::flow_syntax::print_actions;

use crate::packet::{Burst, Frame};
use crate::ruleset::{PostCacheError, Steps, compile_post_cache};
use crate::state::conntrack::Seen;

/// The verdict of a packet that the stage refuses: it is dropped, and the stage has counted why.
pub const REFUSED: u32 = u32::MAX;

/// The verdict of each lane.
pub type Verdicts = [u32; LANES_MAX];

/// TCP flags: the lower half of the upper half of word `FLAGS` of a flow key.
mod flag {
    pub(super) const FIN: u8 = 1;
    pub(super) const SYN: u8 = 2;
    pub(super) const RST: u8 = 4;
    pub(super) const ACK: u8 = 16;
}

/// The arguments of one call of a stage, common to all its lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageCall {
    /// The number of the table that the packets have entered.
    pub table: u8,
    /// The position of the port that they came in through.
    pub port: usize,
    /// The datagram that its only packet is a fragment of, once all of that has come; in it, none if that is not sound.
    pub datagram: Option<Option<Seen>>,
}

impl StageCall {
    /// The call of table `table` for the packets of a burst, none of which is a fragment of a known datagram.
    #[inline]
    pub fn of(table: u8, packets: &Burst) -> Self {
        Self { table, port: packets.port, datagram: None }
    }
}

/// A packet in front of a stage.
#[derive(Clone, Copy, Debug)]
pub struct StagePacket<'a> {
    pub frame: &'a Frame,
    pub key: &'a FlowKey,
    pub headers: &'a Headers,
    /// The time of its arrival.
    pub now_ns: u64,
}

impl<'a> StagePacket<'a> {
    /// The packet of a lane.
    #[inline]
    pub fn of_lane(packets: &'a Burst, lane: usize) -> Self {
        Self {
            frame: &packets.frames[lane],
            key: &packets.keys[lane],
            headers: &packets.headers[lane],
            now_ns: packets.times_ns[lane],
        }
    }
}

/// A table behind the caches with state that packets change: the datapath's only way in.
///
/// Arguments come with each call, so that one table can serve rules that ask for different things. Dispatch is static,
/// over [`AnyStage`]; the trait is the contract.
pub trait StatefulStage {
    /// The kind's name in configuration, reports and traces.
    const KIND: &'static str;

    /// The names of the verdicts, by number.
    const VERDICTS: &'static [&'static str];

    /// Packets change the state, so that the stage must see the packets of a burst in their order.
    const ORDERED: bool = true;

    /// A decision on one packet: its verdict, and all that [`process`](Self::process) needs to commit it.
    type Decision: Copy + std::fmt::Debug;

    /// Processes the packets of these lanes, each at its own time, as if one after the other: looks their keys up
    /// together, then decides and commits lane by lane. Writes the verdict of each lane.
    fn process(&mut self, call: StageCall, packets: &mut Burst, lanes: LaneMask, verdicts: &mut Verdicts);

    /// Decides on a packet as [`process`](Self::process) would if it were the next. Changes nothing.
    fn decide(&self, call: StageCall, packet: StagePacket<'_>) -> Self::Decision;

    /// Renders a decision of [`decide`](Self::decide) as text, with the packet as it continues.
    fn explain(&self, call: StageCall, packet: StagePacket<'_>, decision: &Self::Decision) -> Explanation;

    /// Returns this worker's shard of the state.
    fn shard(&self) -> Shard;

    /// Returns the worker that owns the state of a packet, without a change.
    fn decide_owner(&self, packet: StagePacket<'_>) -> Owner;

    /// Returns the worker that owns the state of a lane's packet.
    #[inline]
    fn owner(&mut self, packets: &mut Burst, lane: usize) -> Owner {
        self.decide_owner(StagePacket::of_lane(packets, lane))
    }

    /// Removes entries that are idle, up to the budget of one packet: for times without packets.
    fn age(&mut self, now_ns: u64);

    /// Returns the bytes of the stage's tables.
    fn table_bytes(&self) -> usize;
}

/// Any stage.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a switch has a few stages")]
pub enum AnyStage {
    /// Looks packets up in a set of keys.
    Filter(Filter),
    /// Records hosts and services.
    Assets(Assets),
    /// Translates addresses.
    Nat(Nat),
    /// Looks up next hops.
    Routes(RouteTable),
}

/// Evaluates an expression with the stage inside an [`AnyStage`].
macro_rules! with_stage {
    ($any:expr, $stage:ident => $body:expr) => {
        match $any {
            AnyStage::Filter($stage) => $body,
            AnyStage::Assets($stage) => $body,
            AnyStage::Nat($stage) => $body,
            AnyStage::Routes($stage) => $body,
        }
    };
}

fn verdicts_of<S: StatefulStage>(_: &S) -> &'static [&'static str] {
    S::VERDICTS
}

fn kind_of<S: StatefulStage>(_: &S) -> &'static str {
    S::KIND
}

fn is_ordered<S: StatefulStage>(_: &S) -> bool {
    S::ORDERED
}

impl AnyStage {
    /// Returns the names of the verdicts, by number.
    pub fn verdicts(&self) -> &'static [&'static str] {
        with_stage!(self, stage => verdicts_of(stage))
    }

    /// Returns the kind's name.
    pub fn kind(&self) -> &'static str {
        with_stage!(self, stage => kind_of(stage))
    }
}

/// A verdict, with its actions and counters.
#[derive(Debug)]
pub struct Verdict {
    /// The name in configuration and reports.
    pub name: &'static str,
    pub actions: Vec<Action>,
    /// Packets with this verdict.
    pub packets: u64,
    pub bytes: u64,
    steps: Steps,
}

/// An action that a verdict cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{verdict}`: {source}")]
pub struct VerdictError {
    pub verdict: &'static str,
    /// The problem with the action.
    pub source: PostCacheError,
}

/// A stage as a table: its number's name, its verdicts with their compiled actions, and counters.
#[derive(Debug)]
pub struct StageTable {
    /// The name in reports; may be empty.
    pub name: String,
    pub stage: AnyStage,
    /// Packets that have entered.
    pub packets: u64,
    /// Cycles of the time-stamp counter that the stage took, without the actions.
    pub cycles: u64,
    verdicts: Vec<Verdict>,
}

impl StageTable {
    /// A table with this number. `actions` are those of each verdict.
    ///
    /// # Errors
    /// The first action that is not allowed here.
    ///
    /// # Panics
    /// If the number of action lists is not that of verdicts.
    pub fn new(
        number: u8,
        name: &str,
        stage: AnyStage,
        actions: Vec<Vec<Action>>,
    ) -> Result<Self, VerdictError> {
        let names = stage.verdicts();
        assert_eq!(names.len(), actions.len(), "every verdict has its actions");
        let verdict = |(&name, actions): (&&'static str, Vec<Action>)| {
            let steps = compile_post_cache(&actions, number)
                .map_err(|source| VerdictError { verdict: name, source })?;
            Ok(Verdict { name, actions, packets: 0, bytes: 0, steps })
        };
        let verdicts = names.iter().zip(actions).map(verdict).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), stage, packets: 0, cycles: 0, verdicts })
    }

    /// A route table, whose verdicts are its next hops.
    pub fn of_routes(routes: RouteTable) -> Self {
        let name = routes.name.clone();
        Self { name, stage: AnyStage::Routes(routes), packets: 0, cycles: 0, verdicts: Vec::new() }
    }

    /// Returns whether the stage must see the packets of a burst in their order.
    pub fn is_ordered(&self) -> bool {
        with_stage!(&self.stage, stage => is_ordered(stage))
    }

    /// Returns the translation, if the stage is one.
    #[inline]
    pub fn as_nat(&self) -> Option<&Nat> {
        if let AnyStage::Nat(nat) = &self.stage { Some(nat) } else { None }
    }

    /// Returns the route table, if the stage is one.
    #[inline]
    pub fn as_routes(&self) -> Option<&RouteTable> {
        if let AnyStage::Routes(routes) = &self.stage { Some(routes) } else { None }
    }

    /// Processes the packets of these lanes and returns their verdicts.
    #[inline]
    pub fn process(&mut self, call: StageCall, packets: &mut Burst, lanes: LaneMask) -> Verdicts {
        let mut verdicts = [REFUSED; LANES_MAX];
        self.packets += lanes.len() as u64;
        with_stage!(&mut self.stage, stage => stage.process(call, packets, lanes, &mut verdicts));
        verdicts
    }

    /// Decides on a packet and explains the decision. Changes nothing.
    pub fn dry_run(&self, call: StageCall, packet: StagePacket<'_>) -> Explanation {
        with_stage!(&self.stage, stage => stage.explain(call, packet, &stage.decide(call, packet)))
    }

    /// Returns the worker that owns the state of a lane's packet.
    #[inline]
    pub fn owner(&mut self, packets: &mut Burst, lane: usize) -> Owner {
        with_stage!(&mut self.stage, stage => stage.owner(packets, lane))
    }

    /// Returns the workers that own the state of lanes' packets.
    pub fn owners(&mut self, packets: &mut Burst, lanes: LaneMask) -> Owners {
        with_stage!(&mut self.stage, stage => {
            Owners::collect(lanes, stage.shard().me, |lane| stage.owner(packets, lane))
        })
    }

    /// Returns the other worker that [`owner`](Self::owner) would name for a packet, or [`Owner::Any`] if this worker
    /// processes it. Changes nothing.
    pub fn decide_owner(&self, packet: StagePacket<'_>) -> Owner {
        with_stage!(&self.stage, stage => match stage.decide_owner(packet) {
            Owner::Worker(worker) if worker == stage.shard().me => Owner::Any,
            owner => owner,
        })
    }

    /// Returns whether each worker has a part of the state.
    #[inline]
    pub fn is_sharded(&self) -> bool {
        with_stage!(&self.stage, stage => stage.shard().is_part())
    }

    /// Counts a packet with a verdict and returns the verdict's steps; none if the packet is refused.
    #[inline]
    pub fn count(&mut self, verdict: u32, bytes: u64) -> Option<&Steps> {
        if let AnyStage::Routes(routes) = &mut self.stage {
            return Some(routes.count(verdict, bytes));
        }
        let verdict = self.verdicts.get_mut(verdict as usize)?;
        verdict.packets += 1;
        verdict.bytes += bytes;
        Some(&verdict.steps)
    }

    /// Returns the steps of a verdict.
    ///
    /// # Panics
    /// If there is no such verdict, or the packet is refused.
    #[inline]
    pub fn steps(&self, verdict: u32) -> &Steps {
        match &self.stage {
            AnyStage::Routes(routes) => routes.steps(verdict),
            _ => &self.verdicts[verdict as usize].steps,
        }
    }

    /// Returns the verdicts with their counters, by number; none of a route table, which has [next hops](RouteTable::next_hops).
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Returns a verdict and its actions as text.
    pub fn describe(&self, verdict: u32) -> String {
        let verdict = match &self.stage {
            AnyStage::Routes(routes) => return routes.describe(verdict),
            _ => &self.verdicts[verdict as usize],
        };
        format!("verdict {} \u{2192} {}", verdict.name, print_actions(&verdict.actions))
    }

    /// Removes entries that are idle, up to the budget of one packet: for times without packets.
    pub fn age(&mut self, now_ns: u64) {
        with_stage!(&mut self.stage, stage => stage.age(now_ns));
    }

    /// Returns the bytes of the stage's tables.
    pub fn table_bytes(&self) -> usize {
        with_stage!(&self.stage, stage => stage.table_bytes())
    }
}
