//! Meters and port settings: actions refer to them by number, and workers take them with the ruleset.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::meter::Meter;

/// Meters by number, which all workers share.
pub type Meters = Arc<BTreeMap<u32, Arc<Meter>>>;

/// The resources of a ruleset's actions. Packets meet them when an action is executed: no path depends on them.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    pub meters: Meters,
}
