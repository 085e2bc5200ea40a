//! Which engine answers addresses fastest: measured on the machine, with these routes.

use super::engine::{AnyFib, Family};
use super::{Fib, Prefix, Rib};
use crate::dispatch::{Clock, WIN_BELOW};
use crate::hash::murmur3;

/// Addresses of a pass: more than the nearest caches hold, in tables that are larger than these.
const ADDRESSES: usize = 1 << 15;

/// Addresses that say something about traffic; fewer stay in the nearest cache, whatever the table.
const RECENT_MIN: usize = 1 << 12;

/// Addresses of a batch.
const BATCH: usize = 64;

/// Passes that are timed, of which the shortest counts: others may have been interrupted.
const ROUNDS: usize = 3;

/// Returns the table that answers `recent` addresses fastest, or addresses within the routes beside them, where there are few. An
/// earlier one is taken unless a later one is clearly faster.
pub(super) fn fastest<A: Family>(
    mut tables: Vec<AnyFib<A>>,
    rib: &Rib<A>,
    recent: &[A],
    clock: Clock,
) -> Option<AnyFib<A>> {
    if tables.len() < 2 && tables.iter().all(|table| table.dir24_by_vectors().is_none()) {
        return tables.pop();
    }
    let mut addresses = recent.to_vec();
    if recent.len() < RECENT_MIN {
        addresses.extend(within_routes(rib));
    }
    tables.iter().for_each(|table| choose_way(table, &addresses, clock));
    let mut least = vec![u64::MAX; tables.len()];
    for round in 0..ROUNDS {
        for turn in 0..tables.len() {
            let at = (round + turn) % tables.len();
            // Once more than is timed: what another has left in the caches is of no use.
            look_up(&tables[at], &addresses);
            let since = clock();
            look_up(&tables[at], &addresses);
            least[at] = clock().wrapping_sub(since).min(least[at]);
        }
    }
    let is_faster = |a: usize, b: usize| (least[a] as f64) < least[b] as f64 * WIN_BELOW;
    let best = (1..tables.len()).fold(0, |best, at| if is_faster(at, best) { at } else { best });
    Some(tables.swap_remove(best))
}

/// Lets a table that may be looked up in two ways take the faster one.
fn choose_way<A: Family>(table: &AnyFib<A>, addresses: &[A], clock: Clock) {
    let Some(dir24) = table.dir24_by_vectors() else { return };
    let mut least = [u64::MAX; 2];
    look_up(table, addresses);
    for (round, turn) in (0..ROUNDS).flat_map(|round| [(round, 0), (round, 1)]) {
        let way = (round + turn) % 2;
        dir24.set_always_reads_groups(way == 1);
        let since = clock();
        look_up(table, addresses);
        least[way] = clock().wrapping_sub(since).min(least[way]);
    }
    dir24.set_always_reads_groups((least[1] as f64) < least[0] as f64 * WIN_BELOW);
}

fn look_up<A: Family>(table: &AnyFib<A>, addresses: &[A]) {
    let mut next_hops = [0; BATCH];
    for batch in addresses.chunks(BATCH) {
        table.lookup_batch(batch, &mut next_hops);
        std::hint::black_box(&next_hops);
    }
}

/// Returns addresses within the routes, each route as likely as another.
fn within_routes<A: Family>(rib: &Rib<A>) -> Vec<A> {
    let step = (rib.len() / ADDRESSES).max(1);
    let mut some: Vec<Prefix<A>> = rib.walk(Prefix::ALL).map(|(prefix, _)| prefix).step_by(step).collect();
    if some.is_empty() {
        some.push(Prefix::ALL);
    }
    let mut words = 0;
    let mut random = || {
        words += 1;
        u64::from(murmur3::finish(murmur3::mix(1, words), 4))
    };
    let mut address = || {
        let prefix = some[random() as usize % some.len()];
        let host = prefix.last() & !prefix.first();
        let [high, low] = [(); 2].map(|()| random() << 32 | random());
        prefix.first() | (A::from_words(high, low) & host)
    };
    (0..ADDRESSES).map(|_| address()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::dispatch::testing;
    use crate::isa::Variant;
    use crate::route::engine::Engine;
    use crate::route::{BuildError, FibConfig, FibReader, HopSize, Routes};

    fn routes(count: u32) -> Rib<u32> {
        let mut rib = Rib::new(1 << 17);
        for n in 0..count {
            rib.insert(Prefix::truncated(0x0a00_0000 + (n << 8), 24), n.into()).expect("there is room");
        }
        rib
    }

    /// The clock is read twice for a table and round, and by no trial of kernels.
    fn chosen(favourite: usize, recent: &[u32]) -> Engine {
        testing::favour(favourite, 2);
        let config = FibConfig::new(HopSize::B4).with_variant(Variant::Scalar).expect("everywhere");
        let build = || AnyFib::build_for(&routes(300), &config, recent);
        testing::forcing(testing::scripted, build).expect("there is memory").engine()
    }

    #[test]
    fn the_engine_that_took_least_is_taken() {
        for recent in [&[][..], &[0x0a00_0101; 100]] {
            assert_eq!([chosen(0, recent), chosen(1, recent)], [Engine::Compact, Engine::Dir24]);
        }
    }

    /// The clock is read twice for each way and round.
    #[test]
    fn the_way_of_reading_groups_that_took_least_is_taken() {
        let mut rib = routes(300);
        rib.insert(Prefix::truncated(0x0a00_0007, 32), 7).expect("there is room");
        let table = u32::build(Engine::Dir24, &rib, &FibConfig::new(HopSize::B4));
        let table = table.expect("IPv4 has it").expect("there is memory");
        // Scalar code has one way.
        let Some(dir24) = table.dir24_by_vectors() else { return };
        for favourite in [1, 0] {
            testing::favour(favourite, 2);
            choose_way(&table, &[0x0a00_0007; 100], testing::scripted);
            assert_eq!(dir24.always_reads_groups(), favourite == 1);
        }
    }

    #[test]
    fn addresses_are_within_the_routes() {
        for count in [1, 300, 1 << 16] {
            let rib = routes(count);
            let addresses = within_routes(&rib);
            assert!(addresses.iter().all(|address| rib.lookup(*address).is_some()));
            let mut found: Vec<u64> =
                addresses.iter().filter_map(|address| Some(rib.lookup(*address)?.1)).collect();
            found.sort_unstable();
            found.dedup();
            assert!(found.len() as u32 >= count.min(10_000), "{} of {count} routes", found.len());
        }
        assert_eq!(within_routes(&Rib::<u128>::new(1)).len(), ADDRESSES, "anywhere");
    }

    /// Compact tables number 65,535 next hops.
    #[test]
    fn changes_that_an_engine_cannot_take_go_to_another_under_the_readers() {
        let config = FibConfig::new(HopSize::B4);
        let mut table =
            Routes::<u32, AnyFib<u32>>::with_rib(routes(65_000), &config).expect("there is memory");
        assert_eq!(table.fib().engine(), Engine::Compact);
        /// Ends the other thread, also where this one panics.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&ended);
            let reader = table.fib().reader();
            let ended = &ended;
            scope.spawn(move || {
                let mut next_hops = [0; 64];
                while !ended.load(Ordering::Acquire) {
                    for n in (0..65_000).step_by(64) {
                        let addresses: [u32; 64] =
                            std::array::from_fn(|at| 0x0a00_0007 + ((n + at as u32) << 8));
                        if n % 128 == 0 {
                            reader.clone().lookup_batch(&addresses, &mut next_hops);
                        } else {
                            reader.lookup_batch(&addresses, &mut next_hops);
                        }
                        let same = next_hops.iter().zip(u64::from(n)..).all(|(found, hop)| *found == hop);
                        assert!(same || n + 64 > 65_000, "{next_hops:?} from {n}");
                    }
                }
            });
            let reader = table.fib().reader();
            for n in 65_000..66_000 {
                let prefix = Prefix::truncated(0x0a00_0000 + (n << 8), 24);
                table.add(prefix, n.into()).expect("there is room");
                assert_eq!(reader.lookup(prefix.first()), n.into());
            }
            assert_eq!((table.fib().engine(), reader.lookup(0x0a00_0001)), (Engine::Dir24, 0));
        });
    }

    /// A large next hop, or many groups: a DIR-24-8 of the smallest entries cannot hold them.
    #[test]
    fn small_entries_give_way_to_larger_ones_under_the_readers() {
        use crate::route::engine::Family;
        let config = FibConfig::new(HopSize::B4);
        for (long, hop) in [(0, 1 << 30), (200, 7), (200, 1000), (40_000, 7)] {
            let mut rib = routes(100);
            let mut fib =
                u32::build(Engine::Dir24, &rib, &config).expect("IPv4 has it").expect("there is memory");
            let reader = fib.reader();
            let small = fib.table_bytes();
            let change = |fib: &mut AnyFib<u32>, rib: &mut Rib<u32>, prefix: Prefix<u32>, hop: u64| {
                rib.insert(prefix, hop).expect("there is room");
                fib.update(rib, prefix).expect("larger entries hold it");
                assert_eq!(fib.reader().lookup(prefix.first()), hop);
            };
            for n in 0..long {
                change(&mut fib, &mut rib, Prefix::truncated(0x0b00_0001 + (n << 8), 32), 3);
            }
            change(&mut fib, &mut rib, Prefix::truncated(0x0a00_0500, 24), hop);
            assert_eq!(fib.engine(), Engine::Dir24);
            assert!(fib.table_bytes() >= small, "{} of {small} bytes", fib.table_bytes());
            let addresses: Vec<u32> = (0..100)
                .map(|n| 0x0a00_0007 + (n << 8))
                .chain((0..long).map(|n| 0x0b00_0001 + (n << 8)))
                .collect();
            let mut next_hops = vec![0; addresses.len()];
            reader.lookup_batch(&addresses, &mut next_hops);
            let expected: Vec<u64> =
                addresses.iter().map(|address| rib.lookup(*address).map_or(0, |(_, hop)| hop)).collect();
            assert_eq!(next_hops, expected);
        }
        let mut rib = routes(100);
        let config = FibConfig::new(HopSize::B2);
        let mut fib =
            u32::build(Engine::Dir24, &rib, &config).expect("IPv4 has it").expect("there is memory");
        let prefix = Prefix::truncated(0x0a00_0500, 24);
        rib.insert(prefix, 1 << 15).expect("there is room");
        let refused = fib.update(&rib, prefix).expect_err("an entry of two bytes has 15 bits");
        assert!(matches!(refused, BuildError::HopTooLarge { hop_size: HopSize::B2, .. }), "{refused}");
        assert_eq!(fib.lookup(prefix.first()), 5);
    }

    #[test]
    fn an_engine_that_was_named_stays() {
        use crate::route::engine::Family;
        let config = FibConfig::new(HopSize::B4);
        // The compact table would be chosen for these.
        let rib = routes(300);
        let named = u32::build(Engine::Dir24, &rib, &config).expect("IPv4 has it").expect("there is memory");
        let mut table = named;
        table.renew(&rib, &[]).expect("nothing is done");
        assert_eq!(table.engine(), Engine::Dir24);
    }
}
