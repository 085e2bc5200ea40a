//! The socket of commands, as `ovs-appctl` uses it (ovs-appctl(8)): JSON-RPC, whose methods are commands and whose answers are texts.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use flowlane_ovsdb::{Framer, Uuid};
use serde_json::{Value, json};

use super::bridge::Bridge;
use crate::mgmt::rpc::SocketFile;

/// Connections that are served at once; further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// A connection that asks for nothing for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that takes nothing of an answer for this time is disconnected.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest request: commands are short.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The commands, with their arguments and the numbers of these.
const COMMANDS: [(&str, &str, [usize; 2]); 6] = [
    ("exit", "[--cleanup]", [0, 1]),
    ("fdb/show", "bridge", [1, 1]),
    ("list-commands", "", [0, 0]),
    ("ofproto/list", "", [0, 0]),
    ("dpif/show", "", [0, 0]),
    ("version", "", [0, 0]),
];

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
}

impl Commands {
    pub(super) fn listen(path: &Path) -> Result<Self, String> {
        let (file, listener) = SocketFile::listen(path).map_err(|error| error.to_string())?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok(Self { listener, _file: file, connections: Vec::new(), is_over: false })
    }

    /// Returns whether a command has ended the daemon.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Answers the commands that have come.
    pub(super) fn answer(&mut self, bridges: &BTreeMap<Uuid, Bridge>) {
        while self.connections.len() < CONNECTIONS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                let (framer, heard) = (Framer::default(), Instant::now());
                self.connections.push(Connection { stream, framer, received: 0, heard });
            }
        }
        let is_over = &mut self.is_over;
        self.connections.retain_mut(|connection| connection.serve(bridges, is_over));
    }
}

impl Connection {
    /// Answers what has come; returns whether the connection goes on.
    fn serve(&mut self, bridges: &BTreeMap<Uuid, Bridge>, is_over: &mut bool) -> bool {
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
                    let answer = answer_to(&message, bridges, is_over);
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

fn answer_to(message: &[u8], bridges: &BTreeMap<Uuid, Bridge>, is_over: &mut bool) -> Value {
    let request: Value = serde_json::from_slice(message).unwrap_or_default();
    let method = request["method"].as_str().unwrap_or_default();
    let texts: Option<Vec<&str>> =
        request["params"].as_array().and_then(|params| params.iter().map(Value::as_str).collect());
    let done = match texts {
        Some(arguments) => execute(method, &arguments, bridges, is_over),
        None => Err("the arguments of a command are texts".to_owned()),
    };
    let (result, error) = match done {
        Ok(text) => (json!(text), Value::Null),
        Err(problem) => (Value::Null, json!(problem + "\n")),
    };
    json!({ "id": request["id"], "result": result, "error": error })
}

fn execute(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
    is_over: &mut bool,
) -> Result<String, String> {
    let known = COMMANDS.iter().find(|(name, ..)| *name == command);
    let Some((_, usage, [least, most])) = known else {
        return Err(format!("\"{command}\" is not a valid command"));
    };
    if !(*least..=*most).contains(&arguments.len()) {
        return Err(format!("\"{command}\" command takes the arguments: {usage}"));
    }
    let lines = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect::<String>();
    match (command, arguments) {
        ("version", _) => Ok(format!("ovs-vswitchd (Flowlane) {}\n", env!("CARGO_PKG_VERSION"))),
        ("exit", _) => {
            *is_over = true;
            Ok(String::new())
        }
        ("list-commands", _) => {
            let mut all = vec!["The available commands are:".to_owned()];
            all.extend(
                COMMANDS.iter().map(|(name, usage, _)| format!("  {name:<23} {usage}").trim_end().to_owned()),
            );
            Ok(lines(all))
        }
        ("ofproto/list", _) => Ok(lines(bridges.values().map(|bridge| bridge.name().to_owned()).collect())),
        ("dpif/show", _) => Ok(bridges.values().map(Bridge::describe).collect()),
        ("fdb/show", [name]) => {
            let bridge = bridges.values().find(|bridge| bridge.name() == *name);
            let bridge = bridge.ok_or_else(|| "no such bridge".to_owned())?;
            let addresses = bridge.served().fdb().map_err(|error| error.message)?;
            let mut all = vec![" port  VLAN  MAC                Age".to_owned()];
            for entry in addresses {
                let port = if entry.port == 0xfffe { "LOCAL".to_owned() } else { entry.port.to_string() };
                all.push(format!("{port:>5}  {:>4}  {}  {:>3}", entry.vlan, entry.mac, entry.age_s));
            }
            Ok(lines(all))
        }
        _ => unreachable!("each command that is known is executed"),
    }
}
