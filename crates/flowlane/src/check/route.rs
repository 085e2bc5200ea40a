//! Routes: every forwarding table and variant against the routes themselves, while these change.

use super::Difference;
use crate::generate::Random;
use crate::route::check::{CheckConfig, CheckError, check as check_family};

/// Checks the tables of one family (IPv4 for even seeds) with up to `size` routes. Gives the number of answers
/// compared.
///
/// # Errors
/// The first difference.
pub fn check(seed: u64, size: usize) -> Result<u64, Box<Difference>> {
    let mut random = Random::for_purpose(seed, "check: route");
    let config = CheckConfig { routes: 1 + random.index(size.max(1)), updates: size / 4 };
    let mut bits = || random.bits();
    let checked = match seed % 2 {
        0 => check_family::<u32>(&config, &mut bits),
        _ => check_family::<u128>(&config, &mut bits),
    };
    checked.map(|checked| checked.lookups as u64).map_err(|error| Box::new(difference(seed, size, &error)))
}

fn difference(seed: u64, size: usize, error: &CheckError) -> Difference {
    let (engine, step, input, wanted, found) = match error {
        CheckError::Difference { engine, variant, hop_size, updates, address, expected, found } => (
            format!("{engine} {variant}, next hops of {hop_size} bytes"),
            format!("after {updates} changes"),
            address.to_string(),
            expected.to_string(),
            found.to_string(),
        ),
        CheckError::Build { engine, variant, hop_size, updates, error } => (
            format!("{engine} {variant}, next hops of {hop_size} bytes"),
            format!("after {updates} changes"),
            "the routes".to_owned(),
            "a table".to_owned(),
            error.to_string(),
        ),
        CheckError::Grown { engine, hop_size, updates, before, after } => (
            format!("{engine}, next hops of {hop_size} bytes"),
            format!("after {updates} changes were undone"),
            "its memory".to_owned(),
            before.to_string(),
            after.to_string(),
        ),
    };
    Difference { part: "route", seed, size, engine, step, input, wanted, found }
}
