//! Following connections: a client gets their changes as notifications, until it sends another request or has had as many as it
//! wants.
//!
//! ```text
//! ─► {"jsonrpc":"2.0","id":1,"method":"follow_connections","params":{"zone":5}}
//! ◄─ {"jsonrpc":"2.0","method":"following","params":{}}
//! ◄─ {"jsonrpc":"2.0","method":"connection","params":{"event":"new","time_s":1795826460.125,"proto":"tcp",…}}
//! ◄─ {"jsonrpc":"2.0","method":"connections_lost","params":{"events":12}}
//! ◄─ {"jsonrpc":"2.0","id":1,"result":{"events":1,"lost":12}}
//! ```

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RpcError;
use super::message::{parse_params, to_json};
use super::server::ControlServer;
use super::tracked::{ConnectionParams, ConnectionReport, report};
use crate::state::conntrack::{Change, Event};

/// The time after which the thread looks whether the client or the switch has ended.
const PATIENCE: Duration = Duration::from_millis(200);

/// Events that are written at once.
const EVENTS_AT_ONCE: usize = 256;

/// A change of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionEventReport {
    /// `new`, `updated` (its state, mark or label) or `destroyed`.
    pub event: String,
    /// Of one that is destroyed: `closed`, `expired`, `evicted`, `replaced` or `flushed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since 1970.
    pub time_s: f64,
    #[serde(flatten)]
    pub connection: ConnectionReport,
}

/// The end of following connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FollowReport {
    /// Events that were sent.
    pub events: u64,
    /// Those for which there was no room.
    pub lost: u64,
}

impl ConnectionEventReport {
    fn of(event: &Event) -> Self {
        let (name, reason) = match event.change {
            Change::New => ("new", None),
            Change::Updated => ("updated", None),
            Change::Ended(why) => ("destroyed", Some(<&str>::from(why).to_owned())),
        };
        let time = event.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let connection = report(&event.connection);
        Self { event: name.to_owned(), reason, time_s: time.as_secs_f64(), connection }
    }
}

fn notification(method: &str, params: &impl Serialize) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string() + "\n"
}

/// Returns whether the client has sent something, or is gone.
fn is_readable(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut polled, Some(&at_once)), Ok(ready) if ready > 0)
}

impl ControlServer {
    /// Sends changes of the wanted connections to a client. Returns the result as JSON.
    ///
    /// # Errors
    /// Where a parameter is wrong, too many clients follow connections, this one does not read, or the switch does not run.
    pub(super) fn follow(&self, params: Value, mut stream: &UnixStream) -> Result<String, RpcError> {
        let params: ConnectionParams = parse_params(params)?;
        let wanted = params.wanted()?;
        let (connections, _) = self.tracked()?;
        let subscription = connections.subscribe(wanted).ok_or_else(|| {
            RpcError::new(RpcError::BUSY, "as many clients as may do so follow connections already")
        })?;
        let gone = |error: io::Error| RpcError::new(RpcError::STOPPED, format!("no reader: {error}"));
        stream.write_all(notification("following", &json!({})).as_bytes()).map_err(gone)?;
        let mut left = params.limit.unwrap_or(usize::MAX);
        let mut done = FollowReport { events: 0, lost: 0 };
        while left > 0 && !self.stop_flag().load(Ordering::SeqCst) && !is_readable(stream) {
            let (mut events, lost) = subscription.take(PATIENCE);
            events.truncate(left);
            left -= events.len();
            for some in events.make_contiguous().chunks(EVENTS_AT_ONCE) {
                let lines =
                    some.iter().map(|one| notification("connection", &ConnectionEventReport::of(one)));
                stream.write_all(lines.collect::<String>().as_bytes()).map_err(gone)?;
            }
            done.events += events.len() as u64;
            if lost > 0 && left > 0 {
                done.lost += lost;
                let line = notification("connections_lost", &json!({ "events": lost }));
                stream.write_all(line.as_bytes()).map_err(gone)?;
            }
        }
        to_json(&done)
    }
}
