use super::*;
use crate::route::v6::testing;

#[test]
fn every_variant_agrees_with_the_routes() {
    testing::agrees_with_the_routes::<Compact>(&HopSize::ALL, 7);
}

#[test]
fn every_variant_of_a_trie_agrees_with_the_routes() {
    testing::agrees_with_the_routes::<Trie>(&HopSize::ALL, 7);
}

#[test]
fn batches_of_all_lengths_are_answered_in_order() {
    testing::answers_batches_of_all_lengths::<Compact>();
    testing::answers_batches_of_all_lengths::<Trie>();
}

#[test]
fn changes_are_followed() {
    testing::follows_changes::<Compact>(&HopSize::ALL);
    testing::follows_changes::<Trie>(&HopSize::ALL);
}

/// Bytes in use once nothing waits for readers.
fn settled(fib: &mut Compact) -> usize {
    fib.pool.collect(&fib.table.epochs);
    fib.hops.collect(&fib.table.epochs);
    fib.pool.used() * UNIT_BYTES + fib.hops.len()
}

#[test]
fn churn_takes_no_memory() {
    for size in HopSize::ALL {
        testing::keeps_its_size_under_churn(size, settled);
        testing::keeps_its_size_under_churn(size, |trie: &mut Trie| settled(trie.compact()));
    }
}

#[test]
fn routes_that_do_not_fit_are_refused_without_effect() {
    testing::refuses_what_does_not_fit::<Compact>(600 << 10);
    testing::refuses_what_does_not_fit::<Trie>(2 << 20);
}

#[test]
fn readers_see_old_or_new_next_hops() {
    testing::readers_see_old_or_new::<Compact>();
    testing::readers_see_old_or_new::<Trie>();
}

/// Narrow nodes have 16 bits for a next hop; with more than they can tell apart, other nodes take their place.
#[test]
fn more_next_hops_than_codes_are_distinguished() {
    let mut random = testing::Random(8);
    let rib = testing::rib(testing::Shape::Clustered, 140_000, HopSize::B8, &mut random);
    let fib = Compact::build(&rib, &FibConfig::new(HopSize::B8)).expect("it fits");
    assert!(fib.hops.len() > 1 << 15, "{} next hops", fib.hops.len());
    testing::check(&fib, &rib, &testing::addresses(&rib, &mut random), 0);
}

#[test]
fn next_hops_that_are_too_large_are_refused() {
    let mut rib = Rib::new(10);
    rib.insert(Prefix::ALL, 256).expect("there is room");
    let error = Compact::build(&rib, &FibConfig::new(HopSize::B1)).expect_err("256 takes nine bits");
    assert!(matches!(error, BuildError::HopTooLarge { next_hop: 256, max: 255, .. }));
}

/// A site's routes come one by one, and go: its tables become wide, and narrow again.
#[test]
fn tables_of_a_dense_site_follow_its_routes() {
    let site = 0x2001_0db8_u128 << 96;
    let route = |n: u128| Prefix::truncated(site | n << 80, 48);
    let (mut rib, config) = (Rib::new(100_000), FibConfig::new(HopSize::B4));
    let mut fib = Compact::build(&rib, &config).expect("there is memory");
    let empty = settled(&mut fib);
    let check = |fib: &Compact, rib: &Rib<u128>| {
        let mut random = testing::Random(9);
        testing::check(fib, rib, &testing::addresses(rib, &mut random), 0);
    };
    for n in 0..20_000 {
        rib.insert(route(n), 1 + (n % 100) as u64).expect("there is room");
        fib.update(&rib, route(n)).expect("there is memory");
        if [20, 40, 1000, 2100, 9000, 19_999].contains(&n) {
            check(&fib, &rib);
        }
    }
    let built = Compact::build(&rib, &config).map(|mut built| settled(&mut built)).expect("there is memory");
    let is_wide = |fib: &Compact| fib.load(update::Place::Root(0x2001)).table_bits() == 16;
    assert!(
        is_wide(&fib) && settled(&mut fib) <= 2 * built,
        "{} bytes, {built} when built",
        settled(&mut fib)
    );
    for n in (0..20_000).rev() {
        rib.remove(route(n));
        fib.update(&rib, route(n)).expect("there is memory");
        if [19_000, 3000, 400, 100, 35, 1].contains(&n) {
            check(&fib, &rib);
        }
        if n == 100 {
            assert!(!is_wide(&fib), "a table of 256 KiB for 100 routes");
        }
    }
    assert_eq!(settled(&mut fib), empty);
}
