use super::*;
use crate::route::v6::testing;

/// Next hops of all sizes are drawn from those that all tables take.
const SIZES: [HopSize; 4] = HopSize::ALL;

#[test]
fn every_variant_agrees_with_the_routes() {
    testing::agrees_with_the_routes::<Trie>(&SIZES, 0);
}

#[test]
fn batches_of_all_lengths_are_answered_in_order() {
    testing::answers_batches_of_all_lengths::<Trie>();
}

#[test]
fn changes_are_followed() {
    testing::follows_changes::<Trie>(&SIZES);
}

/// Groups in use once nothing waits for readers.
fn settled(fib: &mut Trie) -> usize {
    fib.pool.collect(&fib.table.epochs);
    fib.pool.used()
}

#[test]
fn churn_takes_no_memory() {
    testing::keeps_its_size_under_churn(HopSize::B4, settled);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    testing::refuses_what_does_not_fit::<Trie>((64 << 20) + (4 << 20));
}

#[test]
fn readers_see_old_or_new_next_hops() {
    testing::readers_see_old_or_new::<Trie>();
}

#[test]
fn next_hops_that_are_too_large_are_refused() {
    let mut rib = Rib::new(10);
    rib.insert(Prefix::ALL, 1 << 15).expect("there is room");
    let error = Trie::build(&rib, &FibConfig::new(HopSize::B2)).expect_err("one bit is taken");
    assert!(matches!(error, BuildError::HopTooLarge { max: 0x7fff, .. }));
}
