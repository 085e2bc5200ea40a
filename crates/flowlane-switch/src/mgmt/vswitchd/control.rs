//! The socket of commands, as `ovs-appctl` uses it (ovs-appctl(8)): JSON-RPC, whose methods are commands and whose answers are texts.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use flowlane_ovsdb::{Framer, Uuid};
use serde_json::{Value, json};

use super::DaemonLog;
use super::bridge::Bridge;
use super::commands::{Process, execute};
use super::figures::Figures;
use super::numbers::DatapathPorts;
use crate::mgmt::rpc::SocketFile;

/// Connections that are served at once; further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// A connection that asks for nothing for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that takes nothing of an answer for this time is disconnected.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest request: commands are short.
const REQUEST_BYTES_MAX: usize = 1 << 20;

struct Connection {
    stream: UnixStream,
    framer: Framer,
    received: usize,
    heard: Instant,
}

/// The socket.
pub(super) struct Commands {
    listener: UnixListener,
    /// Removed with this.
    _file: SocketFile,
    connections: Vec<Connection>,
    is_over: bool,
    is_cleanup: bool,
}

impl Commands {
    pub(super) fn listen(path: &Path) -> Result<Self, String> {
        let (file, listener) = SocketFile::listen(path).map_err(|error| error.to_string())?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok(Self { listener, _file: file, connections: Vec::new(), is_over: false, is_cleanup: false })
    }

    /// Returns whether a command has ended the daemon.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether nothing of the bridges is to stay.
    pub(super) fn is_cleanup(&self) -> bool {
        self.is_cleanup
    }

    /// Answers the commands that have come.
    pub(super) fn answer(
        &mut self,
        bridges: &BTreeMap<Uuid, Bridge>,
        log: &dyn DaemonLog,
        figures: &mut Figures,
        ports: &DatapathPorts,
    ) {
        while self.connections.len() < CONNECTIONS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                let (framer, heard) = (Framer::default(), Instant::now());
                self.connections.push(Connection { stream, framer, received: 0, heard });
            }
        }
        let mut process = Process { is_over: self.is_over, is_cleanup: self.is_cleanup, log, figures, ports };
        self.connections.retain_mut(|connection| connection.serve(bridges, &mut process));
        (self.is_over, self.is_cleanup) = (process.is_over, process.is_cleanup);
    }
}

impl Connection {
    /// Answers what has come; returns whether the connection goes on.
    fn serve(&mut self, bridges: &BTreeMap<Uuid, Bridge>, process: &mut Process<'_>) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(len) => {
                    (self.received, self.heard) = (self.received + len, Instant::now());
                    self.framer.push(&buffer[..len]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
            if self.received > REQUEST_BYTES_MAX {
                return false;
            }
        }
        loop {
            match self.framer.next_message() {
                Ok(Some(message)) => {
                    self.received = 0;
                    let answer = answer_to(&message, bridges, process);
                    if self.send(&answer.to_string()).is_err() {
                        return false;
                    }
                }
                Ok(None) => return self.heard.elapsed() < IDLE_TIMEOUT,
                Err(_) => return false,
            }
        }
    }
}

impl Connection {
    /// Sends an answer, for which a client may take some time.
    fn send(&mut self, answer: &str) -> std::io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        self.stream.write_all(answer.as_bytes())?;
        self.stream.set_nonblocking(true)
    }
}

fn answer_to(message: &[u8], bridges: &BTreeMap<Uuid, Bridge>, process: &mut Process<'_>) -> Value {
    let request: Value = serde_json::from_slice(message).unwrap_or_default();
    let method = request["method"].as_str().unwrap_or_default();
    let texts: Option<Vec<&str>> =
        request["params"].as_array().and_then(|params| params.iter().map(Value::as_str).collect());
    let done = match texts {
        Some(arguments) => execute(method, &arguments, bridges, process),
        None => Err("the arguments of a command are texts".to_owned()),
    };
    let (result, error) = match done {
        Ok(text) => (json!(text), Value::Null),
        Err(problem) => (Value::Null, json!(problem + "\n")),
    };
    json!({ "id": request["id"], "result": result, "error": error })
}
