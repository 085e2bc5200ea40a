//! A connection to a server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::frame::{FrameError, Framer};
use crate::replica::{Form, Replica, UpdateError};
use crate::schema::Schema;

/// The columns of a table that are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The table.
    pub table: &'static str,
    /// Its columns.
    pub columns: &'static [&'static str],
}

/// A change that a session has seen.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The copy has what the server has; from now on, changes follow.
    Synchronised,
    /// The copy has changed.
    Changed,
    /// The session has the lock.
    Locked,
    /// Another client has the lock.
    LockLost,
    /// The answer to a transaction: the results of its operations, or the error because of which none of them was made.
    Answered(u64, Result<Vec<Value>, Value>),
}

/// Why a session has ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The stream has something else than messages.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message is not one of JSON-RPC.
    #[error("a message of the server is malformed: {0}")]
    Malformed(String),
    /// The copy cannot follow.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// The server has no such database, or refuses what every client asks for.
    #[error("the server refuses `{method}`: {error}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The server's error.
        error: String,
    },
    /// The server does not send changes any more, as after a change of its schema.
    #[error("the server has ended the monitor")]
    Cancelled,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Schema,
    Lock,
    /// With the place of its method in [`MONITORS`].
    Monitor(usize),
    Transaction,
    Probe,
}

/// The methods that follow columns, the newest first, and the form of their updates.
const MONITORS: [(&str, Form); 3] =
    [("monitor_cond_since", Form::Differences), ("monitor_cond", Form::Differences), ("monitor", Form::Rows)];

/// The transaction before all others.
const NO_TRANSACTION: &str = "00000000-0000-0000-0000-000000000000";

/// A connection to a server.
#[derive(Debug)]
pub struct Session {
    database: &'static str,
    wanted: Vec<Wanted>,
    lock: Option<&'static str>,
    framer: Framer,
    outgoing: Vec<u8>,
    asked: BTreeMap<u64, Asked>,
    next_id: u64,
    schema: Schema,
    replica: Replica,
    is_synchronised: bool,
    has_lock: bool,
}

impl Session {
    /// Begins a session with a new connection. `replica` is that of the session before, or a new one.
    pub fn new(
        database: &'static str,
        wanted: &[Wanted],
        lock: Option<&'static str>,
        replica: Replica,
    ) -> Self {
        let mut session = Self {
            database,
            wanted: wanted.to_vec(),
            lock,
            framer: Framer::default(),
            outgoing: Vec::new(),
            asked: BTreeMap::new(),
            next_id: 1,
            schema: Schema::default(),
            replica,
            is_synchronised: false,
            has_lock: false,
        };
        session.ask(Asked::Schema, "get_schema", json!([database]));
        if let Some(lock) = lock {
            session.ask(Asked::Lock, "lock", json!([lock]));
        }
        session
    }

    /// The copy.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Ends the session; its copy is for the next one.
    pub fn into_replica(self) -> Replica {
        self.replica
    }

    /// The server's schema, once it has sent it.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns whether the copy has what the server has.
    pub fn is_synchronised(&self) -> bool {
        self.is_synchronised
    }

    /// Returns whether the session has the lock.
    pub fn has_lock(&self) -> bool {
        self.has_lock
    }

    /// Takes the bytes that are to be sent.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Makes a transaction of operations (RFC 7047, 5.2). Returns its number, with which its answer comes. With a lock, it is made
    /// only while the session has it.
    pub fn transact(&mut self, operations: Vec<Value>) -> u64 {
        let assertion = self.lock.map(|lock| json!({ "op": "assert", "lock": lock }));
        let params: Vec<Value> =
            [json!(self.database)].into_iter().chain(operations).chain(assertion).collect();
        self.ask(Asked::Transaction, "transact", Value::Array(params))
    }

    /// Asks the server for a sign of life; any message is one.
    pub fn probe(&mut self) {
        self.ask(Asked::Probe, "echo", json!([]));
    }

    /// Takes bytes that have come.
    ///
    /// # Errors
    /// Why the connection is of no use any more.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Event>, SessionError> {
        self.framer.push(bytes);
        let mut events = Vec::new();
        while let Some(message) = self.framer.next_message()? {
            let value: Value = serde_json::from_slice(&message)
                .map_err(|error| SessionError::Malformed(error.to_string()))?;
            self.take(&value, &mut events)?;
        }
        Ok(events)
    }

    fn ask(&mut self, what: Asked, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.asked.insert(id, what);
        self.send(&json!({ "method": method, "params": params, "id": id }));
        id
    }

    fn send(&mut self, message: &Value) {
        self.outgoing.extend(message.to_string().into_bytes());
    }

    fn take(&mut self, message: &Value, events: &mut Vec<Event>) -> Result<(), SessionError> {
        let id = message.get("id").cloned().unwrap_or(Value::Null);
        match message.get("method").and_then(Value::as_str) {
            Some("echo") => {
                let params = message.get("params").cloned().unwrap_or_else(|| json!([]));
                self.send(&json!({ "result": params, "error": null, "id": id }));
                Ok(())
            }
            Some(method) => self.notice(method, message.get("params").unwrap_or(&Value::Null), events),
            None => {
                let asked = id.as_u64().and_then(|id| Some((id, self.asked.remove(&id)?)));
                let unknown = || SessionError::Malformed(format!("it answers {id}, which nothing has asked"));
                let (id, asked) = asked.ok_or_else(unknown)?;
                let error = message.get("error").filter(|error| !error.is_null());
                let answer = match error {
                    Some(error) => Err(error.clone()),
                    None => Ok(message.get("result").unwrap_or(&Value::Null)),
                };
                self.answered(id, asked, answer, events)
            }
        }
    }

    fn notice(&mut self, method: &str, params: &Value, events: &mut Vec<Event>) -> Result<(), SessionError> {
        let malformed = || SessionError::Malformed(format!("the parameters of `{method}`"));
        let params = params.as_array().ok_or_else(malformed)?;
        let (updates, form) = match (method, &params[..]) {
            ("update", [_, updates]) => (updates, Form::Rows),
            ("update2", [_, updates]) => (updates, Form::Differences),
            ("update3", [_, last, updates]) => {
                self.apply(updates, Form::Differences)?;
                self.replica.last = last.as_str().map(str::to_owned);
                events.push(Event::Changed);
                return Ok(());
            }
            ("locked", _) => {
                self.has_lock = true;
                events.push(Event::Locked);
                return Ok(());
            }
            ("stolen", _) => {
                self.has_lock = false;
                events.push(Event::LockLost);
                return Ok(());
            }
            ("monitor_canceled", _) => return Err(SessionError::Cancelled),
            ("update" | "update2" | "update3", _) => return Err(malformed()),
            // A notice that this client has not asked for says nothing to it.
            _ => return Ok(()),
        };
        self.apply(updates, form)?;
        events.push(Event::Changed);
        Ok(())
    }

    /// Applies updates; a copy to which some cannot be applied is of no use any more, and begins again with the next session.
    fn apply(&mut self, updates: &Value, form: Form) -> Result<(), SessionError> {
        let applied = self.replica.apply(updates, form, &self.schema);
        Ok(applied.inspect_err(|_| self.replica.clear())?)
    }

    fn answered(
        &mut self,
        id: u64,
        asked: Asked,
        answer: Result<&Value, Value>,
        events: &mut Vec<Event>,
    ) -> Result<(), SessionError> {
        let refused = |method, error: Value| SessionError::Refused { method, error: error.to_string() };
        match (asked, answer) {
            (Asked::Schema, Ok(schema)) => {
                let unread = || SessionError::Malformed("the schema".to_owned());
                self.schema = Schema::read(schema).ok_or_else(unread)?;
                self.ask_monitor(0);
            }
            (Asked::Schema, Err(error)) => return Err(refused("get_schema", error)),
            (Asked::Lock, Ok(answer)) => {
                self.has_lock = answer.get("locked").and_then(Value::as_bool).unwrap_or(false);
                events.push(if self.has_lock { Event::Locked } else { Event::LockLost });
            }
            (Asked::Lock, Err(error)) => return Err(refused("lock", error)),
            (Asked::Monitor(place), Ok(answer)) => {
                self.begin_copy(place, answer)?;
                self.is_synchronised = true;
                events.push(Event::Synchronised);
            }
            (Asked::Monitor(place), Err(_)) if place + 1 < MONITORS.len() => self.ask_monitor(place + 1),
            (Asked::Monitor(_), Err(error)) => return Err(refused("monitor", error)),
            (Asked::Transaction, Ok(answer)) => {
                let results = answer.as_array().cloned().unwrap_or_default();
                // The first that fails says why; those behind it are null.
                let failed = results.iter().find(|result| result.get("error").is_some()).cloned();
                events.push(Event::Answered(id, failed.map_or(Ok(results), Err)));
            }
            (Asked::Transaction, Err(error)) => events.push(Event::Answered(id, Err(error))),
            (Asked::Probe, _) => {}
        }
        Ok(())
    }

    /// Asks for the wanted columns, as far as the schema has them.
    fn ask_monitor(&mut self, place: usize) {
        let (method, _) = MONITORS[place];
        let mut tables = serde_json::Map::new();
        for Wanted { table, columns } in &self.wanted {
            let there: Vec<&str> = columns
                .iter()
                .copied()
                .filter(|column| self.schema.column(table, column).is_some())
                .collect();
            if self.schema.has_table(table) {
                tables.insert((*table).to_owned(), json!([{ "columns": there }]));
            }
        }
        let mut params =
            vec![json!(self.database), json!(["flowlane", self.database]), Value::Object(tables)];
        if place == 0 {
            params.push(json!(self.replica.last.as_deref().unwrap_or(NO_TRANSACTION)));
        }
        self.ask(Asked::Monitor(place), method, Value::Array(params));
    }

    /// Takes the rows that there are, or those that have changed since the last session.
    fn begin_copy(&mut self, place: usize, answer: &Value) -> Result<(), SessionError> {
        let malformed = || SessionError::Malformed("the rows of a monitor".to_owned());
        let (_, form) = MONITORS[place];
        let (updates, last) = match (place, answer.as_array().map(Vec::as_slice)) {
            (0, Some([Value::Bool(is_known), last, updates])) => {
                if !is_known {
                    self.replica.clear();
                }
                (updates, last.as_str().map(str::to_owned))
            }
            (0, _) => return Err(malformed()),
            _ => {
                self.replica.clear();
                (answer, None)
            }
        };
        self.apply(updates, form)?;
        self.replica.last = last;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Datum;

    const WANTED: [Wanted; 2] = [
        Wanted { table: "Bridge", columns: &["name", "ports", "newer"] },
        Wanted { table: "Newer", columns: &["name"] },
    ];
    const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn sent(session: &mut Session) -> Vec<Value> {
        let mut framer = Framer::default();
        framer.push(&session.take_outgoing());
        let mut out = Vec::new();
        while let Some(message) = framer.next_message().unwrap() {
            out.push(serde_json::from_slice(&message).unwrap());
        }
        out
    }

    fn receive(session: &mut Session, message: &Value) -> Result<Vec<Event>, SessionError> {
        session.receive(message.to_string().as_bytes())
    }

    fn answer(session: &mut Session, to: &Value, result: Value) -> Vec<Event> {
        receive(session, &json!({ "id": to["id"], "result": result, "error": null })).unwrap()
    }

    fn schema() -> Value {
        let ports = json!({ "type": { "key": "uuid", "min": 0, "max": "unlimited" } });
        json!({ "tables": { "Bridge": { "columns": { "name": { "type": "string" }, "ports": ports } } } })
    }

    /// Begins a session; returns the request for columns.
    fn begin(replica: Replica) -> (Session, Value) {
        let mut session = Session::new("Open_vSwitch", &WANTED, Some("ovs_vswitchd"), replica);
        let asked = sent(&mut session);
        assert_eq!((&asked[0]["method"], &asked[1]["method"]), (&json!("get_schema"), &json!("lock")));
        answer(&mut session, &asked[0], schema());
        assert_eq!(answer(&mut session, &asked[1], json!({ "locked": true })), [Event::Locked]);
        let monitor = sent(&mut session).remove(0);
        (session, monitor)
    }

    #[test]
    fn columns_that_the_schema_lacks_are_left_out_and_changes_are_followed() {
        let (mut session, monitor) = begin(Replica::default());
        assert_eq!(monitor["method"], "monitor_cond_since");
        assert_eq!(monitor["params"][2], json!({ "Bridge": [{ "columns": ["name", "ports"] }] }));
        assert_eq!(monitor["params"][3], NO_TRANSACTION);
        let rows = json!({ "Bridge": { UUID: { "initial": { "name": "br0", "ports": ["set", [1, 2]] } } } });
        assert_eq!(answer(&mut session, &monitor, json!([false, "t1", rows])), [Event::Synchronised]);
        let update = |last: &str, row: Value| json!({ "method": "update3", "id": null, "params": [null, last, { "Bridge": { UUID: row } }] });
        let change = update("t2", json!({ "modify": { "name": "br1", "ports": ["set", [2, 3]] } }));
        assert_eq!(receive(&mut session, &change), Ok(vec![Event::Changed]));
        let (_, row) = session.replica().rows("Bridge").next().unwrap();
        assert_eq!((row.get("name").text(), row.get("ports")), (Some("br1"), &Datum::set([1, 3])));
        assert_eq!(row.get("newer"), &Datum::empty());
        // The next session asks for the rest.
        let (mut session, monitor) = begin(session.into_replica());
        assert_eq!(monitor["params"][3], "t2");
        let gone = json!({ "Bridge": { UUID: { "delete": null } } });
        answer(&mut session, &monitor, json!([true, "t3", gone]));
        assert_eq!(session.replica().rows("Bridge").count(), 0);
        let unknown = receive(&mut session, &change);
        assert!(matches!(unknown, Err(SessionError::Update(UpdateError::UnknownRow(..)))), "{unknown:?}");
        // The next session begins with nothing.
        assert_eq!(begin(session.into_replica()).1["params"][3], NO_TRANSACTION);
    }

    #[test]
    fn older_servers_are_asked_with_older_methods() {
        let (mut session, mut monitor) = begin(Replica::default());
        for method in ["monitor_cond", "monitor"] {
            let refusal = json!({ "id": monitor["id"], "result": null, "error": "unknown method" });
            assert_eq!(receive(&mut session, &refusal), Ok(vec![]));
            monitor = sent(&mut session).remove(0);
            assert_eq!(
                (monitor["method"].as_str(), monitor["params"].as_array().unwrap().len()),
                (Some(method), 3)
            );
        }
        let rows = json!({ "Bridge": { UUID: { "new": { "name": "br0" } } } });
        assert_eq!(answer(&mut session, &monitor, rows), [Event::Synchronised]);
        let gone = json!({ "Bridge": { UUID: { "old": { "name": "br0" } } } });
        receive(&mut session, &json!({ "method": "update", "params": [null, gone], "id": null })).unwrap();
        assert_eq!(session.replica().rows("Bridge").count(), 0);
    }

    #[test]
    fn transactions_assert_the_lock_and_have_answers() {
        let (mut session, _) = begin(Replica::default());
        let id = session.transact(vec![json!({ "op": "comment", "comment": "x" })]);
        let asked = sent(&mut session).remove(0);
        assert_eq!(asked["params"][2], json!({ "op": "assert", "lock": "ovs_vswitchd" }));
        assert_eq!(
            answer(&mut session, &asked, json!([{}, {}])),
            [Event::Answered(id, Ok(vec![json!({}); 2]))]
        );
        let id = session.transact(Vec::new());
        let asked = sent(&mut session).remove(0);
        let error = json!({ "error": "not owner" });
        assert_eq!(answer(&mut session, &asked, json!([error])), [Event::Answered(id, Err(error))]);
        let stolen = json!({ "method": "stolen", "params": ["ovs_vswitchd"], "id": null });
        assert_eq!(receive(&mut session, &stolen), Ok(vec![Event::LockLost]));
        assert!(!session.has_lock());
    }

    #[test]
    fn probes_are_answered_and_nonsense_ends_the_session() {
        let (mut session, _) = begin(Replica::default());
        assert_eq!(
            receive(&mut session, &json!({ "method": "echo", "params": ["x"], "id": "e" })),
            Ok(vec![])
        );
        assert_eq!(sent(&mut session), [json!({ "result": ["x"], "error": null, "id": "e" })]);
        assert_eq!(
            receive(&mut session, &json!({ "method": "future", "params": [1], "id": null })),
            Ok(vec![])
        );
        for nonsense in [
            json!({ "id": 999, "result": [] }),
            json!({ "method": "update3", "params": [1], "id": null }),
            json!({ "method": "update2", "params": [null, { "Bridge": 7 }], "id": null }),
            json!({ "method": "monitor_canceled", "params": [null], "id": null }),
        ] {
            let (mut session, _) = begin(Replica::default());
            assert!(receive(&mut session, &nonsense).is_err(), "{nonsense}");
        }
        assert!(session.receive(b"HTTP").is_err());
    }
}
