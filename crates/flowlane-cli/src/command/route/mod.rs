//! `flowlane route`: what routes say about addresses, what is in a table, and how fast it is.

mod bench;
mod lookup;
mod show;
mod table;

use crate::arguments::RouteVerb;
use crate::failure::Failure;

pub(crate) fn run(verb: &RouteVerb) -> Result<(), Failure> {
    match verb {
        RouteVerb::Lookup(options) => lookup::run(options),
        RouteVerb::Show(options) => show::run(options),
        RouteVerb::Bench(options) => bench::run(options),
    }
}
