//! Synthetic rule sets, header traces and frames, from a seed.
//!
//! ```text
//! rules      profile or parameter file ─► Vec<Rule>         (rules, seed_file)
//! trace      rules + locality          ─► FlowKeys          (trace, locality)
//! routes     lengths and clusters      ─► prefixes, updates, addresses
//! packet     FlowKey                   ─► Ethernet frame    (packet)
//! ```
//!
//! Everything here is pure: what comes out depends on the arguments and the seed alone. **The sequences
//! are stable**: the same arguments and seed give the same rules, keys and bytes on every platform and
//! in every later version of the crate, so that a measurement can name its workload in one line. (The
//! generator is [`random::Random`], and no function of the platform's mathematics library is called. A
//! profile that must change gets a new name.) The tests hold hashes of the output to keep the promise.
//!
//! | module | what |
//! |---|---|
//! | [`rules`] | rule sets from the built-in profiles: like published sets, and unlike them |
//! | [`seed_file`] | rule sets from a ClassBench parameter file |
//! | [`locality`] | how often the same flow comes again: uniform, Zipf, Pareto bursts |
//! | [`trace`] | flow keys that hit a given rule set, and some that miss it |
//! | [`routes`] | route tables like the Internet's, updates, addresses |
//! | [`packet`] | the frame that a flow key describes |
//! | [`random`] | the random numbers |

mod assemble;
mod checksum;
mod families;
mod five_tuple;
mod header;
pub mod locality;
mod openflow;
pub mod packet;
mod profile;
pub mod random;
pub mod routes;
pub mod rules;
pub mod seed_file;
mod seed_rules;
mod seed_tree;
#[cfg(test)]
mod tests;
pub mod trace;

pub use header::draw_key;
pub use locality::{Locality, Sampler};
pub use packet::build_frame;
pub use random::Random;
pub use routes::{Internet, RouteConfig, generate_addresses, generate_routes, generate_updates};
pub use rules::{Profile, RuleConfig, RuleSetError, generate_rules};
pub use seed_file::{SeedConfig, SeedFile, SeedFileError};
pub use trace::{Trace, TraceConfig, TraceError};
