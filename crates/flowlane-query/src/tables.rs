//! Rules and routes that functions of a query name; each file is read once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, StringArray};
use flowlane::rule::flow_syntax::print_actions;
use flowlane::rule::{Format, detect_format};
use flowlane::{
    Classifier, ClassifierBuilder, Field, RouteList, RouteTable, RouteTableBuilder, Rule, read_routes,
    read_rules,
};
use flowlane_capture::read_text;

use crate::QueryError;

/// Prefixes of the parts of a rule that are not match fields.
const NON_MATCH_PREFIXES: [&str; 5] = ["actions", "priority", "table=", "idle_timeout", "hard_timeout"];

/// Rules, numbered by position in the list that [`read_rules`] returns.
pub(crate) struct RuleList {
    pub(crate) name: String,
    pub(crate) classifier: Classifier,
    pub(crate) fields: Vec<Field>,
    pub(crate) priorities: Vec<u32>,
    /// Actions of each rule.
    pub(crate) actions: ArrayRef,
}

/// Routes, with the names of their next hops.
pub(crate) struct Routes {
    pub(crate) table: RouteTable,
    list: RouteList,
}

impl Routes {
    /// Returns the name of a next hop, or its number.
    pub(crate) fn name(&self, next_hop: u32) -> String {
        self.list.next_hop(next_hop).unwrap_or_else(|| next_hop.to_string())
    }
}

/// Files read by the functions of a session.
#[derive(Default)]
pub(crate) struct Tables {
    rules: Mutex<HashMap<String, Arc<RuleList>>>,
    routes: Mutex<HashMap<String, Arc<Routes>>>,
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
    read_text(Path::new(name)).map_err(|e| QueryError::Lines(e.to_string()))
}

impl Tables {
    /// Returns the rules of a file.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub(crate) fn rules(&self, file: &str) -> Result<Arc<RuleList>, QueryError> {
        self.rules_of(file, || text_of(file))
    }

    /// Returns a rule with the given match, such as `tcp,tp_dst=80`.
    ///
    /// # Errors
    /// If it does not parse.
    pub(crate) fn flow(&self, matches: &str) -> Result<Arc<RuleList>, QueryError> {
        // Cannot be a file name.
        let name = format!("flow\0{matches}");
        let file_error = |what: &str| Err(refused(matches, format!("flow: {what}")));
        match matches.trim() {
            several if several.contains(['\n', '\r', '#']) => {
                return file_error("expected one match on one line");
            }
            other
                if other
                    .split(',')
                    .any(|part| NON_MATCH_PREFIXES.iter().any(|own| part.trim().starts_with(own))) =>
            {
                return file_error("expected match fields only, without priority, table or actions");
            }
            _ => {}
        }
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
        let text = text()?;
        let rules = read_rules(&text, shown).map_err(|e| QueryError::Lines(e.to_string()))?;
        let list = RuleList::new(shown, rules, detect_format(&text))?;
        Ok(Arc::clone(lock(&self.rules).entry(name.to_owned()).or_insert(Arc::new(list))))
    }

    /// Returns the routes of a file.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub(crate) fn routes(&self, file: &str) -> Result<Arc<Routes>, QueryError> {
        if let Some(known) = lock(&self.routes).get(file) {
            return Ok(Arc::clone(known));
        }
        let list = read_routes(&text_of(file)?, file).map_err(|e| QueryError::Lines(e.to_string()))?;
        let table = RouteTableBuilder::new().build(list.iter()).map_err(|e| refused(file, e))?;
        let routes = Routes { table, list };
        Ok(Arc::clone(lock(&self.routes).entry(file.to_owned()).or_insert(Arc::new(routes))))
    }
}

impl RuleList {
    fn new(name: &str, rules: Vec<Rule>, format: Format) -> Result<Self, QueryError> {
        let priorities = rules.iter().map(|rule| rule.priority.0).collect();
        let action = |rule: &Rule| match format {
            // ClassBench filters have no actions.
            Format::Classbench => None,
            Format::Flows => Some(print_actions(&rule.actions)),
        };
        let actions: StringArray = rules.iter().map(action).collect();
        // Packets enter at table 0, as in `flowlane classify`.
        let is_empty = rules.is_empty();
        let first: Vec<(u32, Rule)> = (0..).zip(rules).filter(|(_, rule)| rule.table == 0).collect();
        if first.is_empty() && !is_empty {
            return Err(refused(name, "no rules for table 0"));
        }
        let classifier = ClassifierBuilder::new().build_numbered(first).map_err(|e| refused(name, e))?;
        let fields = classifier.fields();
        Ok(Self { name: name.to_owned(), classifier, fields, priorities, actions: Arc::new(actions) })
    }
}
