//! Rules and routes that functions of a query name: each is read once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, StringArray};
use flowlane::rule::flow_syntax::print_actions;
use flowlane::{Classifier, ClassifierConfig, Field, RouteConfig, RouteTable, Rule, read_routes, read_rules};
use flowlane_capture::read_text;

use crate::QueryError;

/// Rules, by number in their file from 0.
pub(crate) struct RuleList {
    pub(crate) name: String,
    pub(crate) classifier: Classifier,
    pub(crate) fields: Vec<Field>,
    pub(crate) priorities: Vec<u32>,
    /// What each rule does.
    pub(crate) actions: ArrayRef,
}

/// What the functions of a session have read.
#[derive(Default)]
pub(crate) struct Tables {
    rules: Mutex<HashMap<String, Arc<RuleList>>>,
    routes: Mutex<HashMap<String, Arc<RouteTable>>>,
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
        let rules = read_rules(&text()?, shown).map_err(|e| QueryError::Lines(e.to_string()))?;
        let list = RuleList::new(shown, rules)?;
        Ok(Arc::clone(lock(&self.rules).entry(name.to_owned()).or_insert(Arc::new(list))))
    }

    /// The routes of a file.
    ///
    /// # Errors
    /// Where it cannot be read, or a route is wrong.
    pub(crate) fn routes(&self, file: &str) -> Result<Arc<RouteTable>, QueryError> {
        if let Some(known) = lock(&self.routes).get(file) {
            return Ok(Arc::clone(known));
        }
        let list = read_routes(&text_of(file)?, file).map_err(|e| QueryError::Lines(e.to_string()))?;
        let routes = RouteConfig::new().build(list.iter()).map_err(|e| refused(file, e))?;
        Ok(Arc::clone(lock(&self.routes).entry(file.to_owned()).or_insert(Arc::new(routes))))
    }
}

impl RuleList {
    fn new(name: &str, rules: Vec<Rule>) -> Result<Self, QueryError> {
        let priorities = rules.iter().map(|rule| rule.priority.0).collect();
        let actions = StringArray::from_iter_values(rules.iter().map(|rule| print_actions(&rule.actions)));
        let classifier = ClassifierConfig::new().build(rules).map_err(|e| refused(name, e))?;
        let fields = classifier.fields();
        Ok(Self { name: name.to_owned(), classifier, fields, priorities, actions: Arc::new(actions) })
    }
}
