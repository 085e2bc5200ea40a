//! The compiled ruleset: tables with the steps of their rules, and publication of new versions to workers.
//!
//! | module | what |
//! |---|---|
//! | `compile`, `step`, `lane_step`, `action_set` | the steps that a rule's actions compile to |
//! | `groups` | groups, with the steps of their buckets |
//! | `resources` | meters, and settings and VLANs of ports, which workers take with the ruleset |
//! | `rules`, `snapshot` | the rules of a table; the tables; what changed last |
//! | `rule_index` | rules by priority and match, and their ids |
//! | `counters` | what a worker has counted, read by others |
//! | `publication` | the newest ruleset, and which workers have passed it |
//! | `table_map` | things by the numbers of tables |
//!
//! Nothing here knows workers, stages or open ports.

mod action_set;
mod check;
mod compile;
mod counters;
mod groups;
mod lane_step;
mod learned;
mod of_type;
mod outputs;
mod publication;
mod resources;
mod rule_index;
mod rules;
mod shared_map;
mod snapshot;
mod step;
mod table_map;

#[cfg(all(loom, test))]
mod loom;

#[cfg(test)]
pub(crate) use compile::compile;
pub use compile::{FieldError, PostCacheError, compile_post_cache};
pub(crate) use compile::{compile_packet_out, misplaces_headers, outdates_key};
pub use counters::{FlowStats, SharedCounters};
pub(crate) use counters::{LocalCounters, sums};
pub use groups::{CompiledGroup, GroupError, Groups};
pub use lane_step::{LaneStep, Routing, Track};
pub(crate) use learned::{FIN_OR_RST, RuleDigest, ends_connection, is_tcp, limited, sources};
pub use learned::{Learned, LowerTimeouts, RuleRequest};
pub(crate) use outputs::output_step;
pub(crate) use publication::{PublishedRuleset, RulesetReader, WorkerEpoch, WorkerEpochs};
pub use resources::{Meters, Policing, PortFlags, PortVlans, Resources};
pub(crate) use rule_index::RuleIndex;
pub use rule_index::RuleKey;
pub use rules::{Entry, Timeouts};
pub(crate) use rules::{is_conjunctive, without_recirc_id};
pub use shared_map::SharedMap;
pub use snapshot::{Change, ChangeKind, EVENTS_KEPT, Event, Ruleset, Table};
pub use step::{ActionSet, Origin, Return, SideEffects, Step, StepSummary, Steps, ToController};
pub(crate) use table_map::{TableMap, TableSet};

use flowlane::classify::InsertError;
use flowlane::rule::action::HEADERS_PUSHED_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of packets that no rule of a table matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Miss {
    /// The packet is dropped (OpenFlow 1.3's default).
    #[default]
    Drop,
    /// The packet goes to the controller port.
    Controller,
    /// The packet continues in the next table.
    Continue,
}

/// Why a rule was not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesetError {
    /// The rule names a table that does not exist.
    #[error("there is no table {0}; declare it in the configuration")]
    NoTable(u8),
    /// A `goto_table` leads to a table that does not exist.
    #[error("goto_table:{0} leads to a table that does not exist; declare it in the configuration")]
    NoGotoTable(u8),
    /// A `goto_table` does not lead onwards, so that packets might go round for ever.
    #[error("goto_table:{to} in table {from} does not lead to a later table")]
    GotoBackwards {
        /// The rule's table.
        from: u8,
        /// Where it leads.
        to: u8,
    },
    /// A step follows `goto_table`, or would.
    #[error("goto_table:{0} must be the last action of its rule")]
    GotoNotLast(u8),
    /// A rule pushes too many headers.
    #[error("{0} headers are pushed; a rule may push {HEADERS_PUSHED_MAX}")]
    Pushes(usize),
    /// An action sets a field that no action may set, or bits that it does not have.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The switch does not execute an action yet.
    #[error("`{action}` {why}")]
    Unsupported {
        /// The action.
        action: String,
        /// The reason.
        why: &'static str,
    },
    /// `conjunction` is with another action, within one, or of impossible clauses.
    #[error("a rule with conjunction has no other action but note, and conjunctions have 2 to 64 clauses")]
    Conjunction,
    /// The table is on a device.
    #[error("`conjunction` needs a table that is not on a device")]
    ConjunctionOnDevice,
    /// The rule is for packets that the switch looks up again.
    #[error("recirc_id is the switch's own; rules may only match 0")]
    RecircId,
    /// The table's engine refuses it.
    #[error("table {table}: {source}")]
    Insert {
        table: u8,
        /// ChangeKind the engine says.
        source: InsertError,
    },
    /// The rules belong to `Control`, which alone changes them.
    #[error("the rules of this switch are changed by its control")]
    Controlled,
}
