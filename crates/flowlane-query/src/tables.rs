//! Rules and routes that functions of a query name: each is read once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, StringArray};
use flowlane::classify::AclSearch;
use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::packet::{Field, FlowMask};
use flowlane::route::engine::{AnyFib, Family};
use flowlane::route::read::{RouteOptions, read as read_routes};
use flowlane::route::{Fib, FibConfig, HopSize, Prefix, Rib};
use flowlane::rule::flow_syntax::print_actions;
use flowlane::rule::{ReadOptions, Rule, RuleId, read as read_rules};
use flowlane_capture::read_text;

use crate::QueryError;

/// What stands for no route.
pub(crate) const NO_ROUTE: u64 = u32::MAX as u64;

/// Rules, by number in their file from 0.
pub(crate) struct RuleList {
    pub(crate) name: String,
    pub(crate) search: AclSearch,
    /// Bits at which any rule looks.
    pub(crate) looked_at: FlowMask,
    pub(crate) fields: Vec<Field>,
    pub(crate) priorities: Vec<u32>,
    /// What each rule does.
    pub(crate) actions: ArrayRef,
}

/// Routes of both families.
pub(crate) struct RouteList {
    pub(crate) v4: AnyFib<u32>,
    pub(crate) v6: AnyFib<u128>,
}

/// What the functions of a session have read.
#[derive(Default)]
pub(crate) struct Tables {
    rules: Mutex<HashMap<String, Arc<RuleList>>>,
    routes: Mutex<HashMap<String, Arc<RouteList>>>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RuleList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} rules)", self.name, self.priorities.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(name: &str, what: impl std::fmt::Display) -> QueryError {
    QueryError::File { name: name.to_owned(), what: what.to_string() }
}

fn text_of(name: &str) -> Result<String, QueryError> {
    read_text(Path::new(name)).map_err(|e| refused(name, e))
}

impl Tables {
    /// The rules of a file.
    ///
    /// # Errors
    /// Where it cannot be read, or a rule is wrong.
    pub(crate) fn rules(&self, file: &str) -> Result<Arc<RuleList>, QueryError> {
        self.rules_of(file, || text_of(file))
    }

    /// A rule that is written as a match of a flow, `tcp,tp_dst=80` say.
    ///
    /// # Errors
    /// Where it is wrong.
    pub(crate) fn flow(&self, matches: &str) -> Result<Arc<RuleList>, QueryError> {
        // No file is called so.
        let name = format!("flow\0{matches}");
        let comma = if matches.trim().is_empty() { "" } else { "," };
        self.rules_of(&name, || Ok(format!("{matches}{comma}actions=drop")))
    }

    fn rules_of(
        &self,
        name: &str,
        text: impl FnOnce() -> Result<String, QueryError>,
    ) -> Result<Arc<RuleList>, QueryError> {
        if let Some(known) = lock(&self.rules).get(name) {
            return Ok(Arc::clone(known));
        }
        let shown = name.strip_prefix("flow\0").unwrap_or(name);
        let rules = read_rules(&text()?, shown, None, &ReadOptions::default());
        let list = RuleList::new(shown, &rules.map_err(|e| QueryError::Lines(e.to_string()))?)?;
        Ok(Arc::clone(lock(&self.rules).entry(name.to_owned()).or_insert(Arc::new(list))))
    }

    /// The routes of a file.
    ///
    /// # Errors
    /// Where it cannot be read, or a route is wrong.
    pub(crate) fn routes(&self, file: &str) -> Result<Arc<RouteList>, QueryError> {
        if let Some(known) = lock(&self.routes).get(file) {
            return Ok(Arc::clone(known));
        }
        let list = read_routes(&text_of(file)?, file, None, &RouteOptions::default());
        let list = list.map_err(|e| QueryError::Lines(e.to_string()))?;
        if list.next_hop_max() >= NO_ROUTE {
            return Err(refused(file, format!("next hops are below {NO_ROUTE}")));
        }
        let routes = RouteList { v4: fib(file, &list.v4)?, v6: fib(file, &list.v6)? };
        Ok(Arc::clone(lock(&self.routes).entry(file.to_owned()).or_insert(Arc::new(routes))))
    }
}

fn fib<A: Family>(file: &str, routes: &[(Prefix<A>, u64)]) -> Result<AnyFib<A>, QueryError> {
    let mut rib = Rib::new(routes.len());
    for (prefix, next_hop) in routes {
        rib.insert(*prefix, *next_hop).map_err(|e| refused(file, e))?;
    }
    let config = FibConfig::new(HopSize::B4).with_default_next_hop(NO_ROUTE);
    AnyFib::build(&rib, &config).map_err(|e| refused(file, e))
}

impl RuleList {
    fn new(name: &str, rules: &[Rule]) -> Result<Self, QueryError> {
        let config = AclConfig {
            engine: AclEngine::Auto,
            rules_max: 32 << 20,
            memory_max: 16 << 30,
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            seed: rand::random(),
            variant: None,
        };
        let mut best_first: Vec<(RuleId, &Rule)> = (0..).map(RuleId).zip(rules).collect();
        best_first.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.priority));
        let entries = best_first.into_iter().map(|(id, rule)| (id, rule.priority, &rule.matches));
        let search = AclSearch::build(config, entries).map_err(|e| refused(name, e))?;
        Ok(Self {
            name: name.to_owned(),
            looked_at: search.looked_at(),
            fields: search.fields(),
            search,
            priorities: rules.iter().map(|rule| rule.priority.0).collect(),
            actions: Arc::new(StringArray::from_iter_values(
                rules.iter().map(|rule| print_actions(&rule.actions)),
            )),
        })
    }
}
