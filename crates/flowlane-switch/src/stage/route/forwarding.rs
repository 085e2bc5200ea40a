//! Routes of one address family, and what their destinations are looked up in.

use std::sync::Arc;

use flowlane::packet::batch::LANES_MAX;
use flowlane::route::engine::{AnyFib, Engine, Family};
use flowlane::route::{Address, Fib, FibConfig, HopSize, RecentAddresses, Rib};

use super::{FibEngine, NO_ROUTE, RouteTableConfig, RouteTableError, ToHop, Verdicts};

/// The tables that are built with the engine of the former one, before engines are measured again.
const BUILT_ALIKE: u32 = 256;

/// The routes of one address family and their forwarding table.
pub(super) struct Forwarding<A: Family> {
    pub(super) rib: Rib<A>,
    pub(super) fib: AnyFib<A>,
    /// Destinations of packets, also of those that the former tables looked up.
    recent: Arc<RecentAddresses<A>>,
    /// Engines are chosen by them.
    is_recorded: bool,
    /// The number of routes when its engine was chosen, and of tables that have been built with it since.
    chosen_for: usize,
    built_alike: u32,
}

impl<A: Family> Forwarding<A> {
    /// `numbers` are those of the next hops in the forwarding table, `direct` is the engine of [`FibEngine::Direct`], `before` the
    /// table whose place this one takes.
    pub(super) fn new(
        config: &RouteTableConfig,
        routes: &[ToHop<A>],
        numbers: &[u64],
        direct: Engine,
        before: Option<&Self>,
    ) -> Result<Self, RouteTableError> {
        let mut rib = Rib::new(config.routes_max);
        for &(prefix, position) in routes {
            rib.insert(prefix, numbers[position])?;
        }
        let shape = FibConfig::new(HopSize::B4)
            .with_default_next_hop(NO_ROUTE.into())
            .with_memory_max(config.memory_max);
        let shape = if config.measures { shape } else { shape.without_measuring() };
        let recent = before.map(|before| before.recent.clone()).unwrap_or_default();
        let by_name = |engine| A::build(engine, &rib, &shape).expect("every family has both");
        let before = before.filter(|before| before.is_right_for(rib.len()));
        let (mut chosen_for, mut built_alike) = (rib.len(), 0);
        let fib = match (config.engine, before) {
            (FibEngine::Auto, Some(before)) => match by_name(before.fib.engine()) {
                Ok(fib) => {
                    (chosen_for, built_alike) = (before.chosen_for, before.built_alike + 1);
                    Ok(fib)
                }
                Err(_) => AnyFib::build_for(&rib, &shape, &recent.addresses()),
            },
            (FibEngine::Auto, None) => AnyFib::build_for(&rib, &shape, &recent.addresses()),
            (FibEngine::Compact, _) => by_name(Engine::Compact),
            (FibEngine::Direct, _) => by_name(direct),
        }?;
        let is_recorded = config.measures && config.engine == FibEngine::Auto && A::ENGINES.len() > 1;
        Ok(Self { rib, fib, recent, is_recorded, chosen_for, built_alike })
    }

    /// Returns whether a table of this number of routes is built with the same engine.
    fn is_right_for(&self, routes: usize) -> bool {
        let is_alike = routes <= 2 * self.chosen_for && self.chosen_for <= 2 * routes;
        is_alike && self.built_alike < BUILT_ALIKE
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.rib.table_bytes() + self.fib.table_bytes()
    }

    /// Returns the longest prefix that contains an address, as text, and the number of its next hop.
    pub(super) fn route(&self, address: A) -> Option<(String, u64)> {
        self.rib.lookup(address).map(|(prefix, number)| (prefix.to_string(), number))
    }
}

/// A dense batch of addresses of one family.
pub(super) struct Gathered<A> {
    addresses: [A; LANES_MAX],
    lanes: [u8; LANES_MAX],
    len: usize,
}

impl<A: Address> Gathered<A> {
    pub(super) fn new() -> Self {
        Self { addresses: [A::default(); LANES_MAX], lanes: [0; LANES_MAX], len: 0 }
    }

    pub(super) fn push(&mut self, lane: usize, address: A) {
        (self.addresses[self.len], self.lanes[self.len]) = (address, lane as u8);
        self.len += 1;
    }
}

impl<A: Family> Gathered<A> {
    pub(super) fn look_up(&self, routes: &Forwarding<A>, verdicts: &mut Verdicts, is_recorded: bool) {
        let mut next_hops = [u64::from(NO_ROUTE); LANES_MAX];
        let addresses = &self.addresses[..self.len];
        if self.len > 0 {
            routes.fib.lookup_batch(addresses, &mut next_hops[..self.len]);
        }
        if is_recorded && routes.is_recorded && self.len > 0 {
            routes.recent.record(addresses);
        }
        for (lane, next_hop) in self.lanes[..self.len].iter().zip(next_hops) {
            verdicts[usize::from(*lane)] = next_hop as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use flowlane::packet::batch::LaneMask;
    use flowlane::packet::key::FlowKey;
    use flowlane::packet::parse::ether_type;
    use flowlane::packet::{Field, Headers};
    use flowlane::route::Prefix;

    use super::super::{HopSpec, RouteTable};
    use super::*;
    use crate::packet::Burst;
    use crate::stage::{StageCall, StatefulStage};

    fn config() -> RouteTableConfig {
        RouteTableConfig {
            routes_max: 5000,
            memory_max: 1 << 30,
            measures: true,
            ..RouteTableConfig::default()
        }
    }

    fn table(count: u32, before: Option<&Forwarding<u32>>) -> Forwarding<u32> {
        let routes: Vec<(Prefix<u32>, usize)> =
            (0..count).map(|n| (Prefix::truncated(0x0a00_0000 | n << 8, 24), 0)).collect();
        Forwarding::new(&config(), &routes, &[7], Engine::Dir24, before).expect("there is room")
    }

    #[test]
    fn engines_are_chosen_again_when_many_routes_have_changed() {
        let mut table_now = table(1000, None);
        table_now.recent.record(&[0x0a00_0001]);
        for _ in 0..BUILT_ALIKE {
            let next = table(1001, Some(&table_now));
            assert_eq!((next.chosen_for, next.built_alike), (1000, table_now.built_alike + 1));
            table_now = next;
        }
        let next = table(1001, Some(&table_now));
        assert_eq!((next.chosen_for, next.built_alike), (1001, 0), "after many changes");
        for count in [2003, 400] {
            let other = table(count, Some(&next));
            assert_eq!((other.chosen_for, other.built_alike), (count as usize, 0));
            assert_eq!(other.recent.addresses(), [0x0a00_0001], "destinations stay known");
        }
    }

    #[test]
    fn destinations_of_one_burst_in_256_are_remembered_where_engines_are_measured() {
        for (engine, measures, expected) in [
            (FibEngine::Auto, true, &[255][..]),
            (FibEngine::Auto, false, &[]),
            (FibEngine::Compact, true, &[]),
        ] {
            let hops = vec![("hop".to_owned(), HopSpec::Actions(Vec::new()))];
            let config = RouteTableConfig { engine, measures, ..config() };
            let mut table = RouteTable::new(config, hops, &[(Prefix::ALL, 0)], &[]).expect("there is room");
            for destination in 0..300 {
                let mut key = FlowKey::zero();
                key.set(Field::EthType, ether_type::IPV4.into());
                key.set(Field::Ipv4Dst, destination);
                let mut burst = Burst::new(1);
                burst.push(&[], &key, Headers::default(), 0);
                let call = StageCall { table: 1, port: 0, datagram: None };
                table.process(call, &mut burst, LaneMask::first(1), &mut [u32::MAX; LANES_MAX]);
            }
            assert_eq!(table.routes.v4.recent.addresses(), expected);
        }
    }
}
