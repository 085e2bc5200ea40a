//! `flowlane route`: route lookups, table contents, and benchmarks.

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
