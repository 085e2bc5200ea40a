//! A daemon takes the place of another, which forwards until each of its bridges is taken: an upgrade in place.
//!
//! ```text
//! new daemon                                        old daemon, which has the lock
//!     │ monitors the database                            │ forwards
//!     │ take_over (BRIDGE.control) ────────────────────► │
//!     │ ◄─────────────────── ports, rules, connections   │ for each bridge; it does not follow the database any more
//!     │ exit (its socket of commands) ─────────────────► │
//!     │ ◄──────────────────────────────────────── lock   │ ends
//! ```
//!
//! A bridge that cannot be taken is started when the old daemon has ended, with the state that it has saved.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use flowlane_ovsdb::Replica;
use serde_json::{Value, json};

use super::Daemon;
use super::bridge::Bridge;
use super::forwarding::control_path;
use crate::mgmt::rpc::TakeOver;

/// A daemon of which bridges are taken goes on if it is not ended in this time.
const YIELD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for another daemon to answer `exit`.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

impl Daemon<'_> {
    /// Takes the bridges of a daemon that runs, and ends it. `commands`: its socket of commands.
    pub(super) fn take_over(&mut self, commands: &Path, replica: &Replica) {
        for spec in self.wanted(replica) {
            let begun = Instant::now();
            let other = match TakeOver::connect(&control_path(&self.options.folder, &spec.name)) {
                Ok(other) => other,
                Err(error) => {
                    (self.say)(&format!("bridge {} is not taken over: {error}", spec.name));
                    continue;
                }
            };
            let process = other.process();
            match Bridge::take_over(&spec, &self.options.folder, self.options.seed, other) {
                Ok(bridge) => {
                    self.bridges.insert(spec.uuid, bridge);
                    let ms = begun.elapsed().as_millis();
                    (self.say)(&format!(
                        "bridge {} is taken over from process {process} in {ms} ms",
                        spec.name
                    ));
                }
                Err(error) => (self.say)(&format!("{error}; it is started when process {process} has ended")),
            }
        }
        if let Err(error) = end(commands) {
            (self.say)(&format!("{} does not end: {error}", commands.display()));
        }
        self.say_problems();
    }

    /// Returns once whether another daemon has taken bridges of this one, and has not ended it in time: it has gone, and they have to be
    /// started again.
    pub(super) fn has_yielded_in_vain(&mut self) -> bool {
        let is_over = self.yielding.take_if(|since| since.elapsed() > YIELD_TIMEOUT).is_some();
        if is_over {
            (self.say)("the daemon that has taken bridges over has not ended this one, which goes on");
        }
        is_over
    }
}

/// Ends a daemon by its socket of commands.
fn end(commands: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(commands)?;
    stream.set_read_timeout(Some(EXIT_TIMEOUT))?;
    let request = json!({ "id": 0, "method": "exit", "params": [] });
    stream.write_all(request.to_string().as_bytes())?;
    // The answer is a value without an end of line.
    let mut answer = serde_json::Deserializer::from_reader(BufReader::new(stream)).into_iter::<Value>();
    match answer.next() {
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
