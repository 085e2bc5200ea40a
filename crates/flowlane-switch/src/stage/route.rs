//! Route tables: the next hop of a packet by its destination address.
//!
//! Rule tables are in front of the megaflow cache; a route table is behind it. If routes were rules, each prefix would
//! become a megaflow, and the longer prefixes inside it further masks: a full table of routes would make dozens of masks
//! and hundreds of thousands of megaflows. A batch lookup in a forwarding table costs less than one mask. So a path ends
//! with [`Step::Enter`], and the packets of a burst that have reached the table are looked up together.
//!
//! A next hop is a list of actions, or a group of other next hops of which the packet's flow picks one. To the datapath
//! the table is a [`StatefulStage`] whose verdicts are next hops. Packets change only its counters, so it is not
//! [ordered](StatefulStage::ORDERED) and has no owner.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use flowlane::cache::flow_hash::FlowHash;
use flowlane::packet::Field;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ether_type;
use flowlane::route::ecmp::{GroupConfig, GroupError, GroupReader, Groups, Member};
use flowlane::route::engine::Engine;
use flowlane::route::{Address, BuildError, Prefix, RibError};
use flowlane::rule::Action;
use flowlane::rule::action::Controller;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shard::{Owner, Shard};
use super::{Explanation, StageCall, StagePacket, StatefulStage, Verdicts};
use crate::packet::Burst;
use crate::ruleset::{
    LaneStep, Origin, PostCacheError, Routing, Step, Steps, ToController, compile_post_cache,
};
use crate::state::router::{InPorts, Reason};
use forwarding::{Forwarding, Gathered};

/// The definition of a next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HopSpec {
    /// A list of actions; the last may be a `goto_table`.
    Actions(Vec<Action>),
    /// The router decides; packets that leave then go on with these actions.
    Router(Routing, Vec<Action>),
    /// One of these next hops (by position) for each flow, in proportion to the weights.
    Group(Vec<(usize, u32)>),
}

/// A next hop with its counters.
#[derive(Clone, Debug)]
pub struct NextHop {
    /// The name in routes and reports.
    pub name: String,
    pub spec: HopSpec,
    /// Packets sent to it.
    pub packets: u64,
    pub bytes: u64,
}

/// The reason why a route table cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteTableError {
    /// An action that is not allowed here.
    #[error("next hop `{name}`: {source}")]
    Action {
        /// The next hop.
        name: String,
        /// The problem with it.
        source: PostCacheError,
    },
    /// An invalid group.
    #[error("next hop `{name}`: {source}")]
    Group {
        /// The next hop.
        name: String,
        /// The problem with it.
        source: GroupError,
    },
    /// Too many routes.
    #[error(transparent)]
    Rib(#[from] RibError),
    /// The forwarding table takes too much memory.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The verdict of an address without a route. Next hops are numbered from 1 on, in order; behind them is the verdict of packets that
/// the routes do not lead back from.
const NO_ROUTE: u32 = 0;

/// The treatment of packets without a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouteMiss {
    /// The packet is dropped.
    #[default]
    Drop,
    /// The packet goes to the controller port.
    Controller,
    /// The packet is dropped, and its sender gets an ICMP error, where ports have addresses.
    Unreachable,
}

/// Whether packets are dropped to whose sources the routes do not lead back (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReversePath {
    /// None is.
    #[default]
    Off,
    /// Those whose sources no route leads to.
    Loose,
    /// Those that came in through another port than the one that the route to their source leads through.
    Strict,
}

/// Routes and next hops.
pub struct RouteTable {
    /// The name in reports; may be empty.
    pub name: String,
    /// The treatment of packets without a route.
    pub miss: RouteMiss,
    /// Packets without a route.
    pub missed: u64,
    /// Packets to whose sources the routes do not lead back.
    pub refused: u64,
    routes: Arc<Routes>,
    hops: Vec<NextHop>,
    groups: GroupReader,
    /// Bursts that were looked up.
    bursts: u32,
}

/// Of this many bursts of a worker, the destinations of one are remembered.
const BURSTS_RECORDED: u32 = 256;

/// The part that all workers share.
struct Routes {
    config: RouteTableConfig,
    v4: Forwarding<u32>,
    v6: Forwarding<u128>,
    /// The steps of packets without a route, then those of each next hop, of packets to whose sources the routes do not lead back,
    /// and of packets for the router that have no route.
    steps: Vec<Steps>,
    /// The router's ports that next hops and groups lead through, by number.
    links: Vec<Vec<u16>>,
    /// Next hops are the router's, which also gets packets that are not IP.
    is_router: bool,
    flow_hash: FlowHash,
}

/// A route to a next hop, by its position.
type ToHop<A> = (Prefix<A>, usize);

/// How routes are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FibEngine {
    /// The engine that answers fastest: measured when the table is built, by addresses within the routes; and again when many routes
    /// have changed, by destinations of packets.
    #[default]
    Auto,
    /// The compressed structure, which stays in the caches.
    Compact,
    /// Tables without compression, which take a lookup fewer instructions: DIR-24-8 for IPv4, a trie for IPv6.
    Direct,
}

/// The settings of a route table.
#[derive(Clone, Debug, Default)]
pub struct RouteTableConfig {
    pub number: u8,
    /// The name in reports.
    pub name: String,
    /// The treatment of packets without a route.
    pub miss: RouteMiss,
    /// Which sources are refused.
    pub reverse_path: ReversePath,
    /// The router's interfaces.
    pub interfaces: InPorts,
    /// The maximum number of routes of each family.
    pub routes_max: usize,
    /// The maximum size of the forwarding table of each family, in bytes.
    pub memory_max: usize,
    /// How routes are looked up.
    pub engine: FibEngine,
    /// The key of the hash by which flows pick members of groups.
    pub seed: u64,
    /// Whether engines are measured where none is named.
    pub measures: bool,
}

impl RouteTable {
    /// A table with these next hops, and routes to them by position.
    ///
    /// # Errors
    /// If a next hop is invalid, or the routes do not fit.
    ///
    /// # Panics
    /// If a route leads to a next hop that does not exist.
    pub fn new(
        config: RouteTableConfig,
        hops: Vec<(String, HopSpec)>,
        v4: &[(Prefix<u32>, usize)],
        v6: &[(Prefix<u128>, usize)],
    ) -> Result<Self, RouteTableError> {
        Self::make(config, hops, (v4, v6), None)
    }

    /// As [`new`](Self::new) does, with the engines of a table `before` where they are still right.
    fn make(
        config: RouteTableConfig,
        hops: Vec<(String, HopSpec)>,
        (v4, v6): (&[ToHop<u32>], &[ToHop<u128>]),
        before: Option<&Routes>,
    ) -> Result<Self, RouteTableError> {
        let groups_max = hops.iter().filter(|(_, spec)| matches!(spec, HopSpec::Group(_))).count();
        let first = hops.len() as u64 + 1;
        let groups = GroupConfig { first, groups_max, memory_max: usize::MAX, ..GroupConfig::default() };
        let mut groups = Groups::new(groups).expect("buckets of next hops fit in memory");
        let mut numbers = Vec::new();
        let mut made = Vec::new();
        let mut steps_of_hops = vec![Steps::new(config.miss.steps())];
        for (position, (name, spec)) in hops.into_iter().enumerate() {
            let mut steps = Steps::default();
            let mut number = position as u64 + 1;
            match &spec {
                HopSpec::Actions(actions) => {
                    steps = compile_post_cache(actions, config.number)
                        .map_err(|source| RouteTableError::Action { name: name.clone(), source })?;
                }
                HopSpec::Router(routing, then) => {
                    steps = routed(*routing, then, config.number)
                        .map_err(|source| RouteTableError::Action { name: name.clone(), source })?;
                }
                HopSpec::Group(members) => {
                    let member = |&(position, weight)| Member { next_hop: position as u64 + 1, weight };
                    let members: Vec<Member> = members.iter().map(member).collect();
                    number = groups
                        .add(&members)
                        .map_err(|source| RouteTableError::Group { name: name.clone(), source })?;
                }
            }
            numbers.push(number);
            steps_of_hops.push(steps);
            made.push(NextHop { name, spec, packets: 0, bytes: 0 });
        }
        let is_router = made.iter().any(|hop| matches!(hop.spec, HopSpec::Router(..)));
        let others = [Routing::ReversePath, Routing::Receive];
        steps_of_hops.extend(others.map(|routing| Steps::new([route(routing)])));
        let routes = Routes {
            links: reverse_path::links(&made),
            is_router,
            v4: Forwarding::new(&config, v4, &numbers, Engine::Dir24, before.map(|before| &before.v4))?,
            v6: Forwarding::new(&config, v6, &numbers, Engine::Trie, before.map(|before| &before.v6))?,
            steps: steps_of_hops,
            flow_hash: FlowHash::new(config.seed),
            config,
        };
        let config = &routes.config;
        Ok(Self {
            name: config.name.clone(),
            miss: config.miss,
            missed: 0,
            refused: 0,
            routes: Arc::new(routes),
            hops: made,
            groups: groups.reader(),
            bursts: 0,
        })
    }

    /// Returns a table with the same routes for another worker, with counters of its own.
    pub fn share(&self) -> Self {
        let hop = |hop: &NextHop| NextHop { packets: 0, bytes: 0, ..hop.clone() };
        Self {
            name: self.name.clone(),
            miss: self.miss,
            missed: 0,
            refused: 0,
            routes: self.routes.clone(),
            hops: self.hops.iter().map(hop).collect(),
            groups: self.groups.clone(),
            bursts: 0,
        }
    }

    /// Returns a table with the same settings and other routes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_routes(
        &self,
        hops: Vec<(String, HopSpec)>,
        v4: &[(Prefix<u32>, usize)],
        v6: &[(Prefix<u128>, usize)],
    ) -> Result<Self, RouteTableError> {
        Self::make(self.routes.config.clone(), hops, (v4, v6), Some(&self.routes))
    }

    /// Takes over the counters of a table whose place this one takes: those of next hops that it has, too.
    pub fn take_counters(&mut self, from: &Self) {
        (self.missed, self.refused) = (from.missed, from.refused);
        let before: HashMap<&str, &NextHop> = from.hops.iter().map(|hop| (&*hop.name, hop)).collect();
        for hop in &mut self.hops {
            if let Some(before) = before.get(&*hop.name) {
                (hop.packets, hop.bytes) = (before.packets, before.bytes);
            }
        }
    }

    /// Returns the longest prefix that contains an address, as text, and the name of its next hop.
    pub fn route_to(&self, address: IpAddr) -> Option<(String, &str)> {
        let (prefix, number) = match address {
            IpAddr::V4(address) => self.routes.v4.route(address.to_bits()),
            IpAddr::V6(address) => self.routes.v6.route(address.to_bits()),
        }?;
        let group = || self.groups_by_number().find(|(group, _)| *group == number).map(|(_, hop)| hop);
        let hop = self.hop(number as u32).or_else(group)?;
        Some((prefix, &hop.name))
    }

    /// Returns the next hops, in order.
    pub fn next_hops(&self) -> &[NextHop] {
        &self.hops
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.routes.v4.rib.len() + self.routes.v6.rib.len()
    }

    /// Returns whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the names of the engines of IPv4 and of IPv6, or the one name of both.
    pub fn engines(&self) -> String {
        let [v4, v6] = [self.routes.v4.fib.engine(), self.routes.v6.fib.engine()];
        if v4 == v6 { v4.to_string() } else { format!("{v4} and {v6}") }
    }

    /// Looks up the next hops of these lanes, whose destinations are remembered if wished.
    #[inline]
    fn find(&self, keys: &[FlowKey], lanes: LaneMask, verdicts: &mut Verdicts, is_recorded: bool) {
        let (mut v4, mut v6) = (Gathered::new(), Gathered::new());
        let mut others = LaneMask(0);
        for lane in lanes.lanes() {
            let key = &keys[lane];
            match key.word(word::VLAN_ETH_TYPE) as u16 {
                ether_type::IPV4 => v4.push(lane, key.word(word::IPV4_DST)),
                ether_type::IPV6 => v6.push(lane, key.get(Field::Ipv6Dst)),
                _ => others.0 |= 1 << lane,
            }
        }
        v4.look_up(&self.routes.v4, verdicts, is_recorded);
        v6.look_up(&self.routes.v6, verdicts, is_recorded);
        for lane in LaneMask(lanes.0 & !others.0).lanes() {
            let next_hop = &mut verdicts[lane];
            if *next_hop as usize > self.hops.len() {
                let group = u64::from(*next_hop);
                *next_hop = self.groups.resolve(group, self.routes.flow_hash.of(&keys[lane])) as u32;
            }
        }
        // Not before groups are resolved, whose numbers are also larger than those of next hops.
        let of_others = if self.routes.is_router { self.received() } else { NO_ROUTE };
        others.lanes().for_each(|lane| verdicts[lane] = of_others);
        if self.routes.config.reverse_path != ReversePath::Off {
            self.check_sources(keys, lanes, verdicts);
        }
    }

    /// The verdict of packets to whose sources the routes do not lead back.
    fn refused(&self) -> u32 {
        self.hops.len() as u32 + 1
    }

    /// The verdict of packets for the router that have no route: they are not IP.
    fn received(&self) -> u32 {
        self.hops.len() as u32 + 2
    }

    /// Returns the reason for a next hop: the route, and the member that the flow picks.
    fn reason(&self, key: &FlowKey, verdict: u32) -> String {
        if verdict == self.received() {
            return "for the router: neither IPv4 nor IPv6".to_owned();
        }
        if verdict == self.refused() {
            return "the routes do not lead back to its source".to_owned();
        }
        let (v4, v6) = (key.word(word::IPV4_DST), key.get(Field::Ipv6Dst));
        let (destination, route) = match key.word(word::VLAN_ETH_TYPE) as u16 {
            ether_type::IPV4 => (v4.to_ip(), self.routes.v4.route(v4)),
            ether_type::IPV6 => (v6.to_ip(), self.routes.v6.route(v6)),
            _ => return "no route: neither IPv4 nor IPv6".to_owned(),
        };
        let Some((prefix, first)) = route else { return format!("no route for {destination}") };
        let name = self.hop(verdict).map_or("", |hop| hop.name.as_str());
        match self.groups_by_number().find(|(group, _)| *group == first) {
            Some((_, group)) => {
                format!("route {prefix} to group `{}`, of which the flow picks `{name}`", group.name)
            }
            None => format!("route {prefix} to next hop `{name}`"),
        }
    }

    /// Returns a verdict as text.
    pub(super) fn describe(&self, verdict: u32) -> String {
        let text = match self.hop(verdict) {
            Some(hop) => return format!("next hop {}", hop.name),
            None if verdict == self.refused() => "its source: refused",
            None if verdict == self.received() => "to the router",
            None => match self.miss {
                RouteMiss::Drop => "no route: dropped",
                RouteMiss::Controller => "no route: to the controller",
                RouteMiss::Unreachable => "no route: dropped, with an ICMP error",
            },
        };
        text.to_owned()
    }

    /// Returns the next hop of a verdict; none without a route.
    pub fn hop(&self, verdict: u32) -> Option<&NextHop> {
        self.hops.get(verdict.checked_sub(1)? as usize)
    }

    /// Returns the groups, each with its number in the forwarding tables.
    fn groups_by_number(&self) -> impl Iterator<Item = (u64, &NextHop)> {
        let groups = self.hops.iter().filter(|hop| matches!(hop.spec, HopSpec::Group(_)));
        (self.hops.len() as u64 + 1..).zip(groups)
    }

    /// Counts a packet with a verdict and returns its steps.
    #[inline]
    pub(crate) fn count(&mut self, verdict: u32, bytes: u64) -> &Steps {
        let is_refused = verdict == self.refused();
        match verdict.checked_sub(1).and_then(|position| self.hops.get_mut(position as usize)) {
            Some(hop) => (hop.packets, hop.bytes) = (hop.packets + 1, hop.bytes + bytes),
            None if is_refused => self.refused += 1,
            None => self.missed += u64::from(verdict == NO_ROUTE),
        }
        self.steps(verdict)
    }

    /// Returns the steps of a verdict.
    #[inline]
    pub(crate) fn steps(&self, verdict: u32) -> &Steps {
        // A packet that has waited elsewhere may bring the verdict of a table that had more next hops.
        self.routes.steps.get(verdict as usize).unwrap_or(&self.routes.steps[NO_ROUTE as usize])
    }
}

impl StatefulStage for RouteTable {
    const KIND: &'static str = "routes";
    /// Without a route. Each next hop is a further verdict.
    const VERDICTS: &'static [&'static str] = &["no route"];
    const ORDERED: bool = false;
    type Decision = u32;

    #[inline]
    fn process(&mut self, _: StageCall, packets: &mut Burst, lanes: LaneMask, verdicts: &mut Verdicts) {
        self.bursts = self.bursts.wrapping_add(1);
        self.find(&packets.keys, lanes, verdicts, self.bursts.is_multiple_of(BURSTS_RECORDED));
    }

    fn decide(&self, _: StageCall, packet: StagePacket<'_>) -> u32 {
        let mut verdicts = [NO_ROUTE; LANES_MAX];
        self.find(std::slice::from_ref(packet.key), LaneMask::first(1), &mut verdicts, false);
        verdicts[0]
    }

    fn explain(&self, _: StageCall, packet: StagePacket<'_>, decision: &u32) -> Explanation {
        Explanation::unchanged(*decision, self.reason(packet.key, *decision))
    }

    fn shard(&self) -> Shard {
        Shard::default()
    }

    fn decide_owner(&self, _: StagePacket<'_>) -> Owner {
        Owner::Any
    }

    fn age(&mut self, _: u64) {}

    fn table_bytes(&self) -> usize {
        self.routes.v4.table_bytes() + self.routes.v6.table_bytes()
    }
}

impl fmt::Debug for RouteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteTable")
            .field("name", &self.name)
            .field("routes", &self.len())
            .finish_non_exhaustive()
    }
}

impl RouteMiss {
    /// The steps of packets without a route.
    fn steps(self) -> Vec<Step> {
        match self {
            Self::Drop => Vec::new(),
            Self::Controller => vec![Step::from(ToController {
                action: Controller { reason: 0, ..Controller::default() },
                origin: Origin::none(0),
            })],
            Self::Unreachable => vec![route(Routing::Refuse(Reason::NoRoute))],
        }
    }
}

/// The step that lets the router decide.
fn route(routing: Routing) -> Step {
    Step::Lane { step: Arc::new(LaneStep::Route(routing)), again: false }
}

/// The steps of a next hop of the router: packets that leave go on with actions.
fn routed(routing: Routing, then: &[Action], table: u8) -> Result<Steps, PostCacheError> {
    let then = compile_post_cache(then, table)?;
    // Their headers have changed.
    let leads_on = |step: &Step| match step {
        Step::Enter { table, carry } => Step::Recirculate { table: *table, carry: carry.clone() },
        other => other.clone(),
    };
    let then = then.steps().iter().map(leads_on);
    Ok(Steps::new(std::iter::once(route(routing)).chain(then).collect::<Vec<_>>()))
}

mod forwarding;
mod reverse_path;

#[cfg(test)]
mod tests;
