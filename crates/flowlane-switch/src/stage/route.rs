//! Tables of routes: where packets go by their destination.
//!
//! Rule tables are in front of a cache of megaflows; a table of routes is behind it. Were routes rules, each
//! prefix would become a megaflow, and those of longer prefixes inside it further masks: a full table of routes would
//! make dozens of masks and hundreds of thousands of megaflows. Looking up a burst of addresses in a forwarding table
//! costs less than one mask. So a path ends with [`Step::Enter`], and those packets of a burst that have come there
//! are looked up together.
//!
//! A next hop is a list of actions, or a group of other next hops of which the packet's flow picks one.

use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

use flowlane::cache::flow_hash::FlowHash;
use flowlane::packet::Field;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ether_type;
use flowlane::route::ecmp::{GroupConfig, GroupError, GroupReader, Groups, Member};
use flowlane::route::engine::{AnyFib, Engine, Family};
use flowlane::route::{Address, BuildError, Fib, FibConfig, HopSize, Prefix, Rib, RibError};
use flowlane::rule::Action;

use crate::ruleset::{PostCacheError, Step, Steps, compile_post_cache};

/// What a next hop of a table is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HopSpec {
    /// These actions; the last may be a `goto_table`.
    Actions(Vec<Action>),
    /// One of these next hops (by position) for each flow, in proportion to the weights.
    Group(Vec<(usize, u32)>),
}

/// What happens to the packets of a route.
#[derive(Clone, Debug)]
pub struct NextHop {
    /// Its name in routes and reports.
    pub name: String,
    /// What it is.
    pub spec: HopSpec,
    /// Packets that it was done to.
    pub packets: u64,
    pub bytes: u64,
}

/// Why a table of routes does not take something.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteTableError {
    /// An action that cannot be here.
    #[error("next hop `{name}`: {source}")]
    Action {
        /// The next hop.
        name: String,
        /// What is wrong with it.
        source: PostCacheError,
    },
    /// A group that cannot be.
    #[error("next hop `{name}`: {source}")]
    Group {
        /// The next hop.
        name: String,
        /// What is wrong with it.
        source: GroupError,
    },
    /// Too many routes.
    #[error(transparent)]
    Rib(#[from] RibError),
    /// The forwarding table takes too much memory.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The answer for an address without a route. Next hops are numbered from 1 on, in order.
const NO_ROUTE: u64 = 0;

/// Routes and next hops.
pub struct RouteTable {
    /// For reports; empty where none was given.
    pub name: String,
    /// Whether packets without a route go to the controller port; else they are dropped.
    pub miss_to_controller: bool,
    /// Packets without a route.
    pub missed: u64,
    routes: Arc<Routes>,
    hops: Vec<NextHop>,
    groups: GroupReader,
}

/// What all workers go by.
struct Routes {
    v4: Forwarding<u32>,
    v6: Forwarding<u128>,
    /// What is done with packets: first with those without a route, then for each next hop.
    steps: Vec<Steps>,
    flow_hash: FlowHash,
}

/// The packets of a burst that meet a table of routes, and what was found for them.
#[derive(Debug)]
pub struct Found {
    next_hops: [u64; LANES_MAX],
}

/// How routes are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FibEngine {
    /// By what suits the routes.
    #[default]
    Auto,
    /// By the structure that stays in the caches.
    Compact,
    /// By a table of all first 24 bits, DIR-24-8, for IPv4; by the compact structure for IPv6.
    Direct,
}

/// How a table of routes is to be.
#[derive(Clone, Debug, Default)]
pub struct RouteTableConfig {
    pub number: u8,
    /// Its name in reports.
    pub name: String,
    /// Whether packets without a route go to the controller port; else they are dropped.
    pub miss_to_controller: bool,
    /// The most routes of each family.
    pub routes_max: usize,
    /// The most bytes that the forwarding table of each family may take.
    pub memory_max: usize,
    /// How routes are looked up.
    pub engine: FibEngine,
    /// Keys the hash by which flows pick members of groups.
    pub seed: u64,
}

impl RouteTable {
    /// A table with these next hops, and routes to them (by position).
    ///
    /// # Errors
    /// Where a next hop cannot be as it is asked for, or the routes do not fit.
    ///
    /// # Panics
    /// Where a route leads to a next hop that is not there.
    pub fn new(
        config: RouteTableConfig,
        hops: Vec<(String, HopSpec)>,
        v4: &[(Prefix<u32>, usize)],
        v6: &[(Prefix<u128>, usize)],
    ) -> Result<Self, RouteTableError> {
        let groups_max = hops.iter().filter(|(_, spec)| matches!(spec, HopSpec::Group(_))).count();
        let first = hops.len() as u64 + 1;
        let groups = GroupConfig { first, groups_max, memory_max: usize::MAX, ..GroupConfig::default() };
        let mut groups =
            Groups::new(groups).expect("no bucket is too many for next hops that stand in memory");
        let mut numbers = Vec::new();
        let mut made = Vec::new();
        let to_controller = Step::Do(Action::Controller { max_len: u16::MAX });
        let unrouted = if config.miss_to_controller { vec![to_controller] } else { Vec::new() };
        let mut steps_of_hops = vec![Steps::new(unrouted)];
        for (position, (name, spec)) in hops.into_iter().enumerate() {
            let mut steps: Box<[Step]> = Box::default();
            let mut number = position as u64 + 1;
            match &spec {
                HopSpec::Actions(actions) => {
                    steps = compile_post_cache(actions, config.number)
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
            steps_of_hops.push(Steps::new(steps));
            made.push(NextHop { name, spec, packets: 0, bytes: 0 });
        }
        let routes = Routes {
            v4: Forwarding::new(&config, v4, &numbers, Engine::Dir24)?,
            v6: Forwarding::new(&config, v6, &numbers, Engine::Compact)?,
            steps: steps_of_hops,
            flow_hash: FlowHash::new(config.seed),
        };
        Ok(Self {
            name: config.name,
            miss_to_controller: config.miss_to_controller,
            missed: 0,
            routes: Arc::new(routes),
            hops: made,
            groups: groups.reader(),
        })
    }

    /// The same routes for another worker, with counters of its own.
    pub fn share(&self) -> Self {
        let hop = |hop: &NextHop| NextHop { packets: 0, bytes: 0, ..hop.clone() };
        Self {
            name: self.name.clone(),
            miss_to_controller: self.miss_to_controller,
            missed: 0,
            routes: self.routes.clone(),
            hops: self.hops.iter().map(hop).collect(),
            groups: self.groups.clone(),
        }
    }

    /// The next hops, in order.
    pub fn next_hops(&self) -> &[NextHop] {
        &self.hops
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes.v4.rib.len() + self.routes.v6.rib.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The engines of IPv4 and of IPv6, by name; one where they have the same.
    pub fn engines(&self) -> String {
        let [v4, v6] = [self.routes.v4.fib.engine(), self.routes.v6.fib.engine()];
        if v4 == v6 { v4.to_string() } else { format!("{v4} and {v6}") }
    }

    /// Bytes of routes and forwarding tables.
    pub fn table_bytes(&self) -> usize {
        self.routes.v4.table_bytes() + self.routes.v6.table_bytes()
    }

    /// Looks up where the packets of these lanes go.
    pub fn find(&self, keys: &[FlowKey], lanes: LaneMask) -> Found {
        let mut found = Found { next_hops: [NO_ROUTE; LANES_MAX] };
        let (mut v4, mut v6) = (Gathered::new(), Gathered::new());
        for lane in lanes.lanes() {
            let key = &keys[lane];
            match key.word(word::VLAN_ETH_TYPE) as u16 {
                ether_type::IPV4 => v4.push(lane, key.word(word::IPV4_DST)),
                ether_type::IPV6 => v6.push(lane, key.get(Field::Ipv6Dst)),
                _ => {}
            }
        }
        v4.look_up(&self.routes.v4.fib, &mut found);
        v6.look_up(&self.routes.v6.fib, &mut found);
        for lane in lanes.lanes() {
            let next_hop = &mut found.next_hops[lane];
            if *next_hop > self.hops.len() as u64 {
                *next_hop = self.groups.resolve(*next_hop, self.routes.flow_hash.of(&keys[lane]));
            }
        }
        found
    }

    /// The number that [`take`](Self::take) would give for a packet with this key, and why: its route, and the next hop that
    /// its flow picks. Counts nothing.
    pub fn explain(&self, key: &FlowKey) -> (u32, String) {
        let number = self.find(std::slice::from_ref(key), LaneMask::first(1)).next_hops[0];
        let (v4, v6) = (key.word(word::IPV4_DST), key.get(Field::Ipv6Dst));
        let (destination, route) = match key.word(word::VLAN_ETH_TYPE) as u16 {
            ether_type::IPV4 => (v4.to_ip(), self.routes.v4.route(v4)),
            ether_type::IPV6 => (v6.to_ip(), self.routes.v6.route(v6)),
            _ => return (number as u32, "no route: neither IPv4 nor IPv6".to_owned()),
        };
        let Some((prefix, first)) = route else {
            return (number as u32, format!("no route for {destination}"));
        };
        let name = |number: u64| {
            let hop = number.checked_sub(1).and_then(|position| self.hops.get(position as usize));
            hop.map_or("", |hop| hop.name.as_str())
        };
        let why = match self.groups_by_number().find(|(group, _)| *group == first) {
            Some((_, group)) => {
                format!(
                    "route {prefix} to group `{}`, of which the flow picks `{}`",
                    group.name,
                    name(number)
                )
            }
            None => format!("route {prefix} to next hop `{}`", name(number)),
        };
        (number as u32, why)
    }

    /// The groups, each with the number that stands for it in tables.
    fn groups_by_number(&self) -> impl Iterator<Item = (u64, &NextHop)> {
        let groups = self.hops.iter().filter(|hop| matches!(hop.spec, HopSpec::Group(_)));
        (self.hops.len() as u64 + 1..).zip(groups)
    }

    /// Counts the packet of a lane. Gives the number of its [steps](Self::steps).
    pub fn take(&mut self, found: &Found, lane: usize, bytes: u64) -> u32 {
        let number = found.next_hops[lane];
        let Some(hop) = number.checked_sub(1).and_then(|p| self.hops.get_mut(p as usize)) else {
            self.missed += 1;
            return NO_ROUTE as u32;
        };
        hop.packets += 1;
        hop.bytes += bytes;
        number as u32
    }

    /// What is done with packets.
    ///
    /// # Panics
    /// Where [`take`](Self::take) has not given this number.
    #[inline]
    pub fn steps(&self, number: u32) -> &Steps {
        &self.routes.steps[number as usize]
    }
}

/// Routes of one family, and the table that they are looked up in.
struct Forwarding<A: Family> {
    rib: Rib<A>,
    fib: AnyFib<A>,
}

impl<A: Family> Forwarding<A> {
    /// `numbers`: what stands for each next hop in tables. `direct`: the engine of [`FibEngine::Direct`].
    fn new(
        config: &RouteTableConfig,
        routes: &[(Prefix<A>, usize)],
        numbers: &[u64],
        direct: Engine,
    ) -> Result<Self, RouteTableError> {
        let mut rib = Rib::new(config.routes_max);
        for &(prefix, position) in routes {
            rib.insert(prefix, numbers[position])?;
        }
        let shape =
            FibConfig::new(HopSize::B4).with_default_next_hop(NO_ROUTE).with_memory_max(config.memory_max);
        let by_name = |engine| A::build(engine, &rib, &shape).expect("every family has both");
        let fib = match config.engine {
            FibEngine::Auto => AnyFib::build(&rib, &shape),
            FibEngine::Compact => by_name(Engine::Compact),
            FibEngine::Direct => by_name(direct),
        }?;
        Ok(Self { rib, fib })
    }

    fn table_bytes(&self) -> usize {
        self.rib.table_bytes() + self.fib.table_bytes()
    }

    /// The longest prefix that an address is in, as text, and the number of its next hop.
    fn route(&self, address: A) -> Option<(String, u64)> {
        self.rib.lookup(address).map(|(prefix, number)| (prefix.to_string(), number))
    }
}

/// Addresses of one family, one behind the other.
struct Gathered<A> {
    addresses: [A; LANES_MAX],
    lanes: [u8; LANES_MAX],
    len: usize,
}

impl<A: Address> Gathered<A> {
    fn new() -> Self {
        Self { addresses: [A::default(); LANES_MAX], lanes: [0; LANES_MAX], len: 0 }
    }

    fn push(&mut self, lane: usize, address: A) {
        (self.addresses[self.len], self.lanes[self.len]) = (address, lane as u8);
        self.len += 1;
    }

    fn look_up(&self, fib: &impl Fib<A>, found: &mut Found) {
        let mut next_hops = [NO_ROUTE; LANES_MAX];
        if self.len > 0 {
            fib.lookup_batch(&self.addresses[..self.len], &mut next_hops[..self.len]);
        }
        for (lane, next_hop) in self.lanes[..self.len].iter().zip(next_hops) {
            found.next_hops[usize::from(*lane)] = next_hop;
        }
    }
}

#[cfg(test)]
mod tests;
